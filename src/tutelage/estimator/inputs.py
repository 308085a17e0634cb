"""The inputs of a fit: checked, as numbers, and tried on public rows."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_array, validate_data

from tutelage._internal.gate import user_path
from tutelage._internal.typing import ABSTAIN, IntArray, Matrix, NeverPickled
from tutelage._internal.validation import problems_in
from tutelage.boundary import Filing
from tutelage.digests import RunningDigest, data_digest, table_digest
from tutelage.estimator.parameters import Parameters, Resolved
from tutelage.exceptions import (
    FewPublicRowsWarning,
    InvalidDataError,
    InvalidParameterError,
    PreflightError,
    PreflightWarning,
    Problem,
    TutelageError,
    UndeclaredClassesWarning,
    as_is,
)
from tutelage.features import PublicColumns, Schema
from tutelage.features.base import check_row_by_row
from tutelage.features.columns import (
    ColumnMap,
    by_name,
    dense_rows,
    labels_of_public,
    numbered_rows,
    public_features,
    require_same_rows,
    without_columns,
)
from tutelage.features.scored import ScoredRows
from tutelage.ledger import Ledger
from tutelage.ledger.ledger import delta_of, existing_ledger
from tutelage.methods import Method
from tutelage.methods.needs import Offered, unmet
from tutelage.methods.requests import PrivateRows, Public, Training
from tutelage.partition import Shards, as_column, canonical_ids, unit_of_single_people
from tutelage.preflight import IN_PYTHON, Found, Given, Words, least_noise, noise_of, preflight
from tutelage.privacy import ROW, PrivacyUnit
from tutelage.students.base import refuse_class_of_unlabeled, try_student
from tutelage.tables import Batches, Cells, Table, as_batches, as_table, column_array, is_missing
from tutelage.targets import MISSING_LABEL, Encoding
from tutelage.teachers.batches import BatchReader, PeopleInBatches
from tutelage.teachers.partitions import PeopleInPartitions

_TRIAL_ROWS_PER_CLASS = 10
_PLAIN = ("builtins", "numpy", "pandas", "datetime", "decimal", "uuid")  # modules of the types of cells
_NO_LABELS = "`fit` requires y to be passed, but the target y is None. Pass one label for each private row."
_UNDECLARED = (
    "`classes` were not declared, so the class values were read from the private labels, and the card says so. ε does "
    "not count what they reveal: a class that only one person has would reveal that person. Declare them from public "
    "knowledge: classes=[...]."
)
_NO_PUBLIC = (
    "`fit` needs rows that everyone may see, with the columns of `X`, as `X_public=...`, or a description of the "
    "columns, as `PATEClassifier(public=Schema({...}))` (docs/howto/no-public-rows.md)."
)
_NO_NUMBERS = "X must hold numbers. Encode text columns by categories that are public."


class Caller(NamedTuple):
    """Knowledge of the rows that a caller has beyond them, and its names of things in messages; private."""

    words: Words = IN_PYTHON  # names of settings
    columns: PublicColumns | None = None  # the kinds of the columns of rows that come as numbers
    others: Mapping[str, Cells] = {}  # private columns that the rows do not have
    apart: tuple[str, ...] = ()  # columns with another purpose: labels and silos
    named: Mapping[str, str] = {}  # how messages call `entity_ids` and `silos`
    file: Filing | None = None  # stores ballots
    unused_labels: str | None = None  # the column of public labels that nothing learns from
    tuned_on: str | None = None  # the data on which the settings were chosen

    def __repr__(self) -> str:
        return "Caller(<private rows hidden>)"


class People(NamedTuple):
    """Private rows, their labels, and the identifiers by which a ledger recognizes their data set; private."""

    rows: Matrix
    labels: npt.NDArray[Any]
    entity_ids: npt.NDArray[Any] | None
    silos: npt.NDArray[Any] | None
    whole_rows: npt.NDArray[Any] | Table
    as_given: Any = None  # labels, before any were merged

    def __repr__(self) -> str:
        return "People(<private rows hidden>)"

    def digest(self) -> bytes:
        """Return the digest of the entities or, where none are named, of the rows with all their columns."""
        if self.entity_ids is not None:
            return RunningDigest().add_people(self.ids()).digest()
        whole = self.whole_rows
        return table_digest(whole) if isinstance(whole, Table) else data_digest(whole)

    def ids(self) -> list[str]:
        """Return the ids of the people, each once; of rows without ids none."""
        return [] if self.entity_ids is None else np.unique(canonical_ids(self.entity_ids)).tolist()


Everybody = People | PeopleInBatches | PeopleInPartitions


class Rows(NamedTuple):
    """The rows of a fit as they are given, in any form; private."""

    _stored_by = None
    __reduce__ = NeverPickled.__reduce__

    X: Any
    y: Any
    X_public: Any = None
    y_public: Any = None
    entity_ids: Any = None
    silos: Any = None
    whole_rows: Any = None

    def __repr__(self) -> str:
        return "Rows(<private rows hidden>)"

    @property
    def batches(self) -> Batches | None:
        """The private rows, if they are read in batches."""
        return as_batches(self.X) if isinstance(self.y, str) or isinstance(self.X, Batches) else None


class Received(NamedTuple):
    """The rows of a fit in memory, checked, before anything is learned from those that are public; private."""

    run: Resolved
    known: People
    people: PrivateRows
    public: Matrix
    labels: IntArray | None  # of public rows
    label: str | None  # the column that `y` names
    unused_labels: str | None  # the column of public labels that nothing learns from
    everybody: People  # whoever withdrew, too: a ledger knows its people by their ids

    def __repr__(self) -> str:
        return "Received(<private rows hidden>)"

    @property
    def given(self) -> list[Matrix]:
        """The public rows, and their labels if there are any, by which a ledger knows the release."""
        return [self.public] if self.labels is None else [self.public, self.labels]


class Inputs(Parameters):
    """Private and public rows, labels and ids of a fit, by the parameters."""

    columns_: ColumnMap | Schema | None
    n_features_in_: int
    target_: Encoding
    _caller = Caller()

    def _resolved_for(self, rows: Rows) -> Resolved:
        """Return what the parameters come to beside these rows; all that do not go together are refused at once."""
        has_labels, has_silos = rows.y_public is not None, rows.silos is not None
        parameters = partial(self.resolved, batches=rows.batches is not None, labels=has_labels, silos=has_silos)
        if problems := [*problems_in(parameters), *self._problems_of_rows(rows)]:
            raise InvalidParameterError(*problems)
        return self._unchecked()

    def _problems_of_rows(self, rows: Rows) -> Iterator[Problem]:
        """Yield problems of parameters beside rows, as far as they do not depend on cells."""
        if isinstance(self.public, Schema):
            for place, name in (("y", rows.y), ("entity_ids", rows.entity_ids)):
                if isinstance(name, str) and name in self.public.columns:
                    yield Problem(
                        f"{self._owner}.fit.{place}",
                        "not be a column of the schema, because those columns are features",
                        fix=f"Remove {as_is(repr(name))} from the schema.",
                    )
        unit = self.unit if isinstance(self.unit, str) else None
        if unit == ROW and rows.entity_ids is not None:
            yield Problem(
                f"{self._owner}.unit",
                "not be 'row' if you pass $entity_ids, because 'row' protects each row alone",
                fix="Leave out $entity_ids or $unit.",
            )
        if unit not in (None, ROW) and rows.entity_ids is None:
            yield Problem(
                f"{self._owner}.unit",
                "be left out if you pass no $entity_ids, because it names what they identify",
                fix="Pass $entity_ids, or leave $unit out.",
            )
        if rows.batches is not None:
            yield from self._problems_of_batches(rows)
        elif self.release is not None:
            if rows.entity_ids is None:
                yield Problem(
                    f"{self._owner}.release",
                    "come with $entity_ids, by which the ledger knows who came when",
                    fix="Pass $entity_ids, or leave $release out.",
                )
            if not self._target.is_declared and labels_of_public(rows.X_public, rows.y) is None:
                yield Problem(
                    f"{self._owner}.classes",
                    "list all class values if you name a $release, because private labels may be those of people who "
                    "take no part",
                )

    def _problems_of_batches(self, rows: Rows) -> Iterator[Problem]:
        """Yield problems of rows that are read in batches."""
        if not isinstance(rows.y, str) or not isinstance(rows.entity_ids, str | None):
            yield Problem(
                f"{self._owner}.fit.y",
                "be the name of a column if rows are read in batches, and so must $entity_ids",
            )
        if not self._target.is_declared:
            yield Problem(f"{self._owner}.classes", "list all class values if rows are read in batches")
        if as_table(rows.X_public) is None:
            yield Problem(f"{self._owner}.fit.X_public", "have named columns if rows are read in batches")
        for name, given in (("silos", rows.silos), ("whole_rows", rows.whole_rows)):
            if given is not None:
                yield Problem(f"{self._owner}.fit.{name}", "be left out if rows are read in batches")
        if self.release is not None:
            yield Problem(
                f"{self._owner}.release",
                "be left out if rows are read in batches",
                fix="To name a release, load all rows into memory.",
            )

    def _received(self, run: Resolved, asked: Rows) -> Received:
        """Return private and public rows of any form, checked, as numbers; set `target_`."""
        X, y, X_public, y_public, entity_ids, silos, given_whole = asked
        if y is None:
            raise InvalidDataError(_NO_LABELS)
        require_same_rows(X, y=y, entity_ids=entity_ids, silos=silos, whole_rows=given_whole)
        if run.schema is None and X_public is None:
            raise InvalidDataError(_NO_PUBLIC)
        if run.schema is not None:
            X_public = run.schema.empty()
        target = self._target
        public_labels = None if target.is_declared else labels_of_public(X_public, y)
        label = y if isinstance(y, str) else None
        unused = self._unused_labels(run, y, X_public, y_public)
        X_public, y_public = _apart(X_public, y_public)
        X, y, X_public, entity_ids = by_name(X, y, X_public, entity_ids, self._owner)
        y, entity_ids, silos = map(column_array, (y, entity_ids, silos))
        known = column_array(y_public)
        _require_plain(y=y, X_public=public_labels, y_public=known, entity_ids=entity_ids, silos=silos)
        run, X, X_public, table = self._numbered(run, X, X_public, entity_ids)
        column = as_column(y)
        if column.dtype == object and any(map(is_missing, column.ravel().tolist())):
            raise InvalidDataError(MISSING_LABEL)
        if not _holds_numbers(X):
            raise InvalidDataError(_NO_NUMBERS)
        rows, labels = self._validated(X, target.merged(y))
        target.check(labels)
        self._check_columns(len(rows), entity_ids=entity_ids, silos=silos)
        whole_rows: Any = table if given_whole is None else given_whole
        whole = rows if whole_rows is None else as_table(whole_rows) or as_column(whole_rows)
        n_whole = whole.n_rows if isinstance(whole, Table) else len(np.atleast_1d(whole))
        if n_whole != len(rows):
            raise InvalidDataError(
                f"`whole_rows` must have one row per private row. Got {n_whole} for {len(rows)} rows."
            )
        stay, left_out = self._staying(len(rows), entity_ids)
        keep = np.flatnonzero(stay)
        self.target_ = target.read(labels[keep], public_labels)
        targets, as_given = np.full(len(rows), ABSTAIN, dtype=np.int64), np.ravel(np.asarray(y))
        targets[keep] = self.target_.private(as_given[keep])
        public = self._validated(X_public) if run.schema is None else X_public
        entities, owners = (None if given is None else as_column(given)[keep] for given in (entity_ids, silos))
        if not isinstance(whole, Table):
            whole = whole[keep]
        elif len(keep) < len(rows):
            whole = whole.take(keep)
        known = People(rows[keep], labels[keep], entities, owners, whole, as_given[keep])
        everybody = known if entity_ids is None else known._replace(entity_ids=as_column(entity_ids))
        if np.all(stay):
            shards = self.partition(run.method, len(keep), entities, owners)
        else:  # the others have the teachers that they would have, whoever withdrew
            shards = self.partition(run.method, len(rows), entity_ids, silos).of_some(stay)
        known_labels = None if y_public is None else self.target_.public(y_public, len(public))
        people = PrivateRows(known.rows, targets[keep], shards, left_out)
        return Received(run, known, people, public, known_labels, label, unused, everybody)

    def _look(self, received: Received) -> None:
        """Refuse rows that should not be released from, and warn of others."""
        run, known, public = received.run, received.known, received.public
        given = replace(self._given(run, known, public, received.label), unused_labels=received.unused_labels)
        self._told(run, preflight(given, self._caller.words, insist=self.insist))

    def _ready(self, received: Received) -> tuple[Resolved, PrivateRows, Public]:
        """Return the people, and the public rows as the maps of the run show them."""
        run, _, people, public, labels, *_ = received
        run, shown = self._begun(run, public, labels)
        self.student_map_ = run.student_map
        return run, people, self._public(run, public, shown, people.shards.unit, people.n_teachers, labels)

    def _unscored(self, run: Resolved, public: Public) -> Public:
        """Return public rows as the maps show them, and zeros for scores, by which no answer is remembered."""
        asked, seen = (_mapped(one, public.rows) for one in (run.teacher_map, run.student_map))
        scores = np.zeros((len(public.rows), public.n_scores))
        return replace(public, teacher_rows=np.hstack([asked, scores]), student_rows=seen)

    @property
    def _ledger_given(self) -> Path | Ledger | None:
        return (
            self.ledger if isinstance(self.ledger, Ledger | None) else user_path(self.ledger, f"{self._owner}.ledger")
        )

    def _staying(self, n_rows: int, entity_ids: Any) -> tuple[npt.NDArray[np.bool_], str]:
        """Return which rows are not those of people who withdrew, and what the ledger told of these; private."""
        ledger = existing_ledger(self._ledger_given)
        if ledger is None or entity_ids is None:
            return np.ones(n_rows, dtype=bool), ""
        return ledger.staying(canonical_ids(entity_ids).tolist())

    def _rows_in_batches(
        self, run: Resolved, rows: Rows, batches: Batches
    ) -> tuple[Resolved, PeopleInBatches | PeopleInPartitions, Public]:
        """Read private rows in batches, once, and return the people and the public rows; set `target_`."""
        X, label, X_public, y_public, entity, *_ = rows
        unused = self._unused_labels(run, label, X_public, y_public)
        X_public, y_public = _apart(X_public, y_public)
        features = public_features(X_public, label, entity)
        run, _, X_public, _ = self._numbered(run, features, features)
        if not isinstance(self.columns_, PublicColumns):
            raise InvalidParameterError(
                Problem(
                    f"{self._owner}.features",
                    "begin with PublicColumns if rows are read in batches",
                    fix="Put PublicColumns first, or leave $features out.",
                )
            )
        public = self._validated(X_public, reset=True)
        self.target_ = self._target.read(np.array([]))
        reader = BatchReader(  # which travels to the workers of Dask, and this estimator does not
            batches=batches,
            columns=self.columns_,
            like=features,
            label=label,
            entity=entity,
            checked=partial(_checked_rows, allow_nan=self._allow_nan),
            encoded=self.target_.private,
        )
        known_labels = None if y_public is None else self.target_.public(y_public, len(public))
        run, shown = self._begun(run, public, known_labels)
        self.student_map_ = run.student_map
        unit = unit_of_single_people(self.unit or "entity", named=entity is not None)
        settings = reader, unit, run.teacher_map, shown[0].shape[1]
        people = PeopleInBatches(*settings) if batches is X else PeopleInPartitions.of(X, *settings)
        nobody = People(public[:0], np.array([]), None, None, Table("", {name: [] for name in batches.names}))
        given = self._given(run, nobody, public, label, n_people=people.n_people)
        given = replace(given, unused_labels=unused)
        self._told(run, people.look(partial(_found_in, people.reader, given, self._caller.words, self.insist)))
        n_people = people.n_people if entity is None else None
        return run, people, self._public(run, public, shown, unit, n_people, known_labels)

    def _unused_labels(self, run: Resolved, y: Any, X_public: Any, y_public: Any) -> str | None:
        """Return the column of public rows that has labels, if the method can learn from them and is not given them."""
        if y_public is not None:
            return None
        table = as_table(X_public) if isinstance(y, str) and X_public is not None else None
        return run.method.start_from(y if table is not None and y in table.columns else self._caller.unused_labels)

    def _begun(self, run: Resolved, public: Matrix, labels: IntArray | None) -> tuple[Resolved, tuple[Matrix, Matrix]]:
        """Return public rows as teachers and student see them, beside the scores by a model of their labels, if any."""
        asked, seen = self._tried(run, public)
        if labels is None or run.schema is not None:
            return run, (asked, seen)
        scored, rows = ScoredRows.learn(public, run.teacher_map, asked, labels, len(self.target_.names))
        check_row_by_row(scored, public)
        if run.method.student is not None:  # which learns from the rows without scores
            return replace(run, teacher_map=scored), (rows, seen)
        return replace(run, teacher_map=scored, student_map=scored), (rows, rows)

    def _public(
        self,
        run: Resolved,
        rows: Matrix,
        shown: tuple[Matrix, Matrix],
        unit: PrivacyUnit,
        n_teachers: int | None,
        labels: IntArray | None,
    ) -> Public:
        """Return all that the method may look at: the public rows, also as `shown` to teachers and student."""
        of_teachers, of_student = (int(seed.generate_state(1)[0]) for seed in self._seeds()[1:])
        checkpoints = None if self.checkpoints is None else user_path(self.checkpoints, f"{self._owner}.checkpoints")
        return Public(
            rows=rows,
            teacher_rows=shown[0],
            student_rows=shown[1],
            classes=self.target_.names,
            question=self.target_.question,
            unit=unit,
            simulated=run.noise.simulated,
            n_teachers=n_teachers,
            seed=of_student,
            teacher_map=run.teacher_map,
            training=Training(of_teachers, self.n_jobs, self.progress, checkpoints),
            labels=labels,
            weights=self.target_.weights,
            schema=run.schema,
        )

    def partition(self, method: Method, n_rows: int, entity_ids: Any = None, silos: Any = None) -> Shards:
        """Return which teacher of a method gets which row; again the same if there is a `random_state`.

        Parameters
        ----------
        method : Method
            Who the teachers are.
        n_rows : int
            Number of private rows.
        entity_ids, silos : array of shape (rows,), optional
            As for `fit`.
        """
        offered = Offered(self._target, schema=self._has_schema, silos=silos is not None)
        if problems := [*unmet(method, offered, self._owner)]:
            raise InvalidParameterError(*problems)
        key = np.random.default_rng(self._seeds()[0]).bytes(32)
        return method.shards(n_rows, entity_ids, silos, self.unit or "entity", key)

    def _seeds(self) -> list[np.random.SeedSequence]:
        """Return the seeds of partition, teachers and student."""
        return np.random.SeedSequence(self.random_state).spawn(3)

    def _check_columns(self, n_rows: int, **columns: npt.ArrayLike | None) -> None:
        for name, column in columns.items():
            if column is not None and np.shape(column) != (n_rows,):
                raise InvalidDataError(
                    f"`{name}` must have one entry per private row. Got shape {np.shape(column)} for {n_rows} rows."
                )

    def _numbered(
        self, run: Resolved, X: Any, X_public: Any, people: Any = None
    ) -> tuple[Resolved, Any, Any, Table | None]:
        """Return rows of any form as numbers, and the maps without named columns; set what predictions need."""
        self.columns_, schema = None, run.schema
        if schema is not None:
            self.columns_, self.student_map_, self._allow_nan = schema, None, False
            rows = schema.table(dense_rows(X), None if people is None else canonical_ids(people))
            return run, schema.transform(rows), np.empty((0, len(schema.names))), rows
        declared, (teacher_map, student_map) = without_columns(run.teacher_map, run.student_map)
        rows = numbered_rows(X, X_public, declared)
        if rows is not None:
            if not run.method.needs.shards and (run.teacher_map is None or isinstance(run.teacher_map, PublicColumns)):
                teacher_map = rows.default_map()
                student_map = teacher_map if run.same_map else student_map
            run = replace(run, teacher_map=teacher_map, student_map=student_map)
        self.student_map_, self._allow_nan = run.student_map, run.allow_nan
        if rows is None:
            return run, dense_rows(X), X_public, None
        self.columns_ = rows.columns
        return run, rows.private, rows.public, rows.table

    def _seen(self, X: Any) -> Matrix:
        """Return rows as the student sees them."""
        return _mapped(self.student_map_, self._numbers_of(X))

    def _numbers_of(self, X: Any) -> Matrix:
        rows = dense_rows(X) if self.columns_ is None else np.asarray(self.columns_.transform(dense_rows(X)))
        return self._validated(rows)

    def _tried(self, run: Resolved, public: Matrix) -> tuple[Matrix, Matrix]:
        """Return public rows as teachers and student see them, once everything was tried on them."""
        classes = self.target_.names
        refuse_class_of_unlabeled(run.student, classes)
        if few := run.method.rows_warning(len(public)):
            warnings.warn(few, FewPublicRowsWarning, stacklevel=8)
        asked, seen = _mapped(run.teacher_map, public), _mapped(run.student_map, public)
        if run.teacher_map is not None:
            check_row_by_row(run.teacher_map, public)
        # Both are tried on made-up labels, so that a wrong parameter costs nothing.
        trials: dict[str, Any] = {"teacher": lambda: run.method.check_training(asked, len(classes))}
        if run.method.student is not None:  # the one in closed form has no settings
            trials["student"] = lambda: try_student(run.student, seen, classes, rows_per_class=_TRIAL_ROWS_PER_CLASS)
        for name, trial in trials.items():
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # made-up labels earn warnings that mean nothing
                    trial()
            except Exception as error:
                raise InvalidParameterError(
                    Problem(
                        f"{self._owner}.{name}",
                        "train without an error on public rows with made-up labels",
                        fix=self._raised(error),
                    )
                ) from None
        run.method.check_selection(seen, len(classes))
        return asked, seen

    def _validated(self, X: Any, *y: Any, reset: bool = False) -> Any:
        """Check inputs as scikit-learn does: with `y` they define the features, without they must match them."""
        return _validated(partial(validate_data, self, X, *y, reset=reset or bool(y)), allow_nan=self._allow_nan)

    def _given(
        self, run: Resolved, people: People, public: Matrix, label: str | None = None, *, n_people: int | None = None
    ) -> Given:
        """Return what `preflight` looks at."""
        caller, named = self._caller, getattr(self, "columns_", None)
        learned = named if isinstance(named, PublicColumns) else caller.columns
        whole, features = people.whole_rows, tuple(f"column {number}" for number in range(people.rows.shape[1]))
        if isinstance(whole, Table):
            columns = whole.columns
        else:
            columns = {**dict(zip(features, people.rows.T, strict=True)), **caller.others}
            if whole.ndim == 2 and whole.shape != people.rows.shape:
                columns |= {f"column {number} of `whole_rows`": cells for number, cells in enumerate(whole.T)}
        return Given(
            private=people.rows,
            public=public,
            numbers=features if learned is None else learned.numbers,
            categories=() if learned is None else learned.categorical,
            columns={name: cells for name, cells in columns.items() if name not in (label, *caller.apart)},
            labels=people.labels,
            n_classes=len(self.target_.names),
            entity_ids=people.entity_ids,
            silos=people.silos,
            named=caller.named,
            unit_is_row=self.unit == ROW,
            noise=self._least_noise(run.method),
            n_people=n_people,
            takes_empty=run.method.needs.empty,
            schema=run.schema,
            declared=((run.schema, whole),) if run.schema is not None and isinstance(whole, Table) else (),
        )

    def _told(self, run: Resolved, found: Found) -> None:
        """Refuse rows that should not be released from as they are, and warn the owner, before anything is spent."""
        if run.noise.simulated:  # nothing private is released, so there is nothing to refuse
            found = Found((), (*found.refusals, *found.warnings))
        if self.target_.origin == "private":
            warnings.warn(_UNDECLARED, UndeclaredClassesWarning, stacklevel=7)
        for warning in found.warnings:
            warnings.warn(warning, PreflightWarning, stacklevel=7)
        if found.refusals:
            raise PreflightError(*found.refusals)

    def _raised(self, error: Exception) -> str:
        """Return what an estimator raised; of private class values, which it may quote, only the kind."""
        kind = type(error).__name__
        if self.target_.origin == "private" and not isinstance(error, TutelageError):
            return f"It raised {kind}, whose message may quote private class values. To see it, declare $classes."
        return f"It raised {kind}: {as_is(error)}"

    def _least_noise(self, method: Method) -> float | None:
        """Return about the least noise of one sum of ballots; None if only a ledger knows it, which judged it."""
        if method.mechanism is not None:
            return noise_of(method.mechanism)
        ledger = existing_ledger(self._ledger_given)
        asked = self._asked(method, delta_of(self.delta, self._ledger_given))
        stated = method.terms(asked, None if ledger is None else ledger.limit).stated
        return None if stated is None else least_noise(stated, asked.delta)


def _validated(validate: Callable[..., Any], *, allow_nan: bool) -> Any:
    """Return what a validation of scikit-learn does; of its complaint come out no values."""
    # One dtype whatever the cells hold: a dtype inferred from all private rows would depend on each of them.
    checked, complaint = None, ""
    try:
        with np.errstate(all="ignore"):  # a warning that a sum overflows would tell of a row
            checked = validate(ensure_all_finite="allow-nan" if allow_nan else True, dtype=np.float64)
    except ValueError as error:
        complaint = str(error)
    except TypeError:  # of a cell that cannot be a number
        complaint = "could not convert"
    except OverflowError:  # of a whole number beyond all floats
        complaint = "Input X contains infinity"
    if checked is None:  # out here: raised while it is handled, the complaint would be carried along
        raise InvalidDataError(_without_values(complaint, allow_nan=allow_nan))
    return checked


# Functions that a `BatchReader` takes to the workers of Dask


def _checked_rows(rows: Matrix, *, allow_nan: bool) -> Matrix:
    return _validated(partial(check_array, rows, input_name="X"), allow_nan=allow_nan)


def _found_in(reader: BatchReader, given: Given, words: Words, insist: bool, table: Table) -> Found:
    """Return what `preflight` finds in the first of many rows, where they are read."""
    here = replace(
        given,
        private=reader.checked(np.asarray(reader.columns.transform(table))),
        labels=reader.encoded(table.column(reader.label)),
        entity_ids=None if reader.entity is None else as_column(table.column(reader.entity)),
        columns={name: cells for name, cells in table.columns.items() if name in given.columns},
    )
    return preflight(here, words, insist=insist)


def labeled(X: Any, y: Any, name: str = "y") -> tuple[Any, Any]:
    """Return public rows and their labels, which may be a column of them."""
    if not isinstance(y, str):
        return X, column_array(y)
    table = as_table(X)
    if table is None:
        raise InvalidDataError(f"`{name}` may be the name of a column only if its rows have named columns.")
    return table, table.column(y)


def _apart(X_public: Any, y_public: Any) -> tuple[Any, Any]:
    """Return public rows without their labels, and the labels, which may be a column of them."""
    rows, labels = labeled(X_public, y_public, "y_public")
    return (rows.without([y_public]), labels) if isinstance(y_public, str) else (X_public, y_public)


def _require_plain(**columns: Any) -> None:
    """Refuse cells of somebody's own classes, which may raise an error that quotes them wherever they are compared."""
    for name, cells in columns.items():
        kinds = set(map(type, cells if isinstance(cells, list | tuple) else np.asarray(cells).ravel()))
        if any(kind.__module__.partition(".")[0] not in _PLAIN for kind in kinds):
            raise InvalidDataError(
                f"`{name}` must hold text or numbers. Write objects of your own classes as one of these."
            )


def _holds_numbers(X: Any) -> bool:
    """Return whether no cell of a matrix is text, a moment or, beside others, a truth value.

    A reader leaves numbers as text if one cell is none, and makes truth values of all cells of a column or of none.
    """
    cells = np.asarray(X, dtype=None if hasattr(X, "dtype") else object)
    if cells.dtype != object:
        return cells.dtype.kind in "biufc"  # scikit-learn refuses complex numbers
    kinds = {type(cell) for cell in cells.ravel().tolist()}
    return not any(issubclass(kind, (str, bytes, bool, np.bool_, date, np.datetime64)) for kind in kinds)


def _mapped(feature_map: Any | None, rows: Matrix) -> Matrix:
    return rows if feature_map is None else np.asarray(feature_map.transform(np.array(rows)))


def _without_values(message: str, *, allow_nan: bool) -> str:
    """Return scikit-learn's complaint about an input without the values that some of its messages quote."""
    if message.startswith(("could not convert", "dtype='numeric'")):
        return _NO_NUMBERS
    if message.startswith("Complex data"):
        return "Complex data not supported."
    if message.startswith("Input X contains") and allow_nan:
        return "X contains infinity, or a number too large. Cells may be missing, but all others must be finite."
    if message.startswith("Input X contains"):
        return (
            "X contains NaN or infinity, which the teacher or the student does not take. Where people cast ballots, "
            "pass rows with named columns, in which numbers may be missing. Otherwise impute inside both, for example "
            "make_pipeline(SimpleImputer(), ...), so that no statistic runs over all private rows, or take models that "
            "accept missing values, such as HistGradientBoostingClassifier."
        )
    complaint, quotes, rest = message.partition("array=")
    return complaint + rest[rest.rfind("Reshape your data") :] if quotes else message
