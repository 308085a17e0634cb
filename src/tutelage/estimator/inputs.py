"""The inputs of a fit: checked, as numbers, and tried on public rows."""

import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from functools import partial
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple, cast, final

import numpy as np
import numpy.typing as npt

from tutelage._internal.fitting import scikit_learn
from tutelage._internal.gate import user_path
from tutelage._internal.records import Entries, by_identity
from tutelage._internal.typing import ABSTAIN, Array, IntArray, Mask, Matrix, Private
from tutelage._internal.validation import as_image_shape, problems_in
from tutelage._internal.warned import warn
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
    literal,
    quote,
)
from tutelage.features import PublicColumns, Schema
from tutelage.features.base import FeatureMap, check_row_by_row, parts_of
from tutelage.features.columns import (
    ColumnMap,
    LearnedMap,
    dense_rows,
    numbered_as,
    numbered_rows,
    public_features,
    refuse_containers,
)
from tutelage.features.scored import ScoredRows
from tutelage.ledger import Ledger
from tutelage.ledger.ledger import DEFAULT_DELTA, existing_ledger
from tutelage.methods import Method
from tutelage.methods.requests import AnyLayout, Public, Training
from tutelage.partition import Shards, as_column, canonical_ids, ids_in, unit_of_single_people
from tutelage.people.batches import BatchReader, PeopleInBatches
from tutelage.people.blocks import People
from tutelage.people.groups import Grouping, groups_from
from tutelage.people.memory import PeopleInMemory
from tutelage.people.partitions import PeopleInPartitions
from tutelage.people.tiers import Tiers
from tutelage.preflight import Found, Sight, least_noise, preflight, warnings_of_order
from tutelage.privacy import ROW
from tutelage.publishing import Proposal
from tutelage.release import Once
from tutelage.students.base import refuse_class_of_unlabeled, try_student
from tutelage.students.images import ImageStudent
from tutelage.tables import (
    Batches,
    Table,
    as_batches,
    as_table,
    cell_text,
    column_array,
    is_lazy,
    is_missing,
)
from tutelage.targets import MISSING_LABEL, Encoding
from tutelage.terms import terms_of

Column = npt.ArrayLike | None  # cells, or the name of a column of the rows
_TRIAL_ROWS_PER_CLASS = 10
_MOST_APART = 0.5  # of the people, who only test the student
# Modules of the types of cells.
_PLAIN = ("builtins", "numpy", "pandas", "datetime", "decimal", "uuid")
_NO_LABELS = (
    "`fit` requires y to be passed, but the target y is None. Pass one label for each private row."
)
_UNDECLARED = (
    "`classes` were not declared, so the class values were read from the private labels, and the card says so. ε does "
    "not count what they reveal: a class that only one person has would reveal that person. Declare them from public "
    "knowledge: classes=[...]."
)
_ONE_PUBLIC_CLASS = (
    "The public labels must hold at least 2 classes, because `classes` are not declared. Declare them from public "
    "knowledge."
)
_NO_PUBLIC = (
    "`fit` needs rows that everyone may see, with the columns of `X`, as `X_public=...`, or a description of the "
    "columns, as `PATEClassifier(columns=Schema({...}))` (docs/howto/no-public-rows.md)."
)
_FEW_ROWS = (
    "`X_public` has {} rows, and ballots are measured against them: with fewer than {} the student learns little for "
    "its budget. Add public rows; several hundred are best."
)
_WITHOUT_CELLS = (
    "Found ",
    "X has ",
    "Expected ",
    "The feature names ",
    "Input y ",
    "Unknown label",
    "bad input shape",
    "y ",
)
_NO_NUMBERS = "X must hold numbers. Encode text columns by categories that are public."


@final
@by_identity
class Rows(Private):
    """The rows of a fit as they are given, in any form, and what is true of this fit alone."""

    X: Any
    y: Column
    X_public: Any = None
    y_public: Column = None
    entity_ids: Column = None
    silos: Column = None
    whole_rows: Column = None
    tiers: Tiers | None = None
    groups: Grouping = None
    # How many of the last public rows only score: a private row among them is found.
    scored: int = 0
    later: bool = False  # whether these are meant to differ from the others
    # Further private columns by name: one that may be an id is found.
    others: Mapping[str, Array] | None = None
    once: Once = Once()

    @classmethod
    def of(cls, X: object, y: Column, **more: Any) -> "Rows":
        """Return the arguments of `fit`."""
        once = {name: more.pop(name) for name in Once._fields if name in more}
        return cls(X, y, **more, once=Once(**once))

    @property
    def public_labels(self) -> Array | None:
        """The labels of public rows, as `y_public` or in a column that `y` names too; never private ones."""
        if self.y_public is not None:
            labels = _labels_of_public(self.X_public, self.y_public)
            if labels is None:
                raise InvalidDataError(_ONE_PUBLIC_CLASS)
            return labels
        if isinstance(self.y, str):
            return _labels_of_public(self.X_public, self.y)
        return None

    @property
    def batches(self) -> Batches | None:
        """The private rows, if they are read in batches."""
        if isinstance(self.y, str) or isinstance(self.X, Batches):
            return as_batches(self.X)
        return None


class Taken(NamedTuple):
    """The inputs that a fit uses: people, public rows, and a look at the private rows before anything is released."""

    run: Resolved
    people: People
    public: Matrix
    labels: IntArray | None  # of public rows
    look: Callable[[Callable[[Sight], Found]], Found]  # at private rows, where they are
    # Number of teachers that vote; if they are people, only if their number is public.
    n_teachers: int | None
    n_people: int  # private, unless rows are the people
    # Returns the people as another method deals rows to teachers; None if rows are read in batches.
    deal: Callable[[Method], PeopleInMemory] | None = None
    tiers: Tiers | None = None  # of the people
    report: AnyLayout | None = None  # of the ballots of a test report, if there is one


class Inputs(Parameters):
    """Private and public rows, labels and ids of a fit, by the parameters."""

    columns_: ColumnMap | Schema | None
    n_features_in_: int
    target_: Encoding
    _ledger: Path | Ledger | None = None  # while a release is prepared
    _scored: Matrix  # public rows that only score, likewise
    _doubts: tuple[str, ...]  # about these

    @property
    def _delta(self) -> float:
        """δ as it is stated, or else that of the ledger, or the usual one where there is no ledger yet."""
        if self.delta is not None:
            return self.delta
        existing = existing_ledger(self._ledger)
        if existing is None:
            return DEFAULT_DELTA
        return existing.limit.delta

    def _resolved_for(self, rows: Rows) -> Resolved:
        """Return the parameters as a fit of these rows resolves them; refuse all problems at once."""
        parameters = partial(
            self.resolved,
            rows.once,
            batches=rows.batches is not None,
            labels=rows.y_public is not None and not rows.scored and self._target.is_declared,
            silos=rows.silos is not None,
            tiers=rows.tiers is not None,
            report=asks_for_report(rows.once, rows.groups),
        )
        InvalidParameterError.raise_for(
            [
                *problems_in(parameters),
                *self._problems_of_rows(rows),
            ]
        )
        run = self._unchecked(rows.once)
        if rows.groups is None:
            return run
        groups = groups_from(rows.groups, run.schema, rows.X_public, self._owner)
        return replace(run, groups=groups)

    def _problems_of_rows(self, rows: Rows) -> Iterator[Problem]:
        """Yield problems of parameters beside rows, as far as they do not depend on cells."""
        if isinstance(self.columns, Schema):
            columns = {"y": rows.y, "entity_ids": rows.entity_ids, "silos": rows.silos}
            for place, name in columns.items():
                if isinstance(name, str) and name in self.columns.columns:
                    yield Problem(
                        f"{self._owner}.fit.{place}",
                        "not be a column of the schema, because those columns are features",
                        fix=f"Remove {literal(repr(name))} from the schema.",
                    )
        yield from self._problems_of_tiers(rows)
        proposal = rows.once.proposal
        if not isinstance(proposal, Proposal) and proposal is not None:
            yield Problem(
                f"{self._owner}.prepare.proposal",
                "be a Proposal of tutelage.publishing",
                quote(proposal),
            )
        method = self.method
        is_testable = isinstance(method, Method) and method.facts(None).testable
        if proposal is not None and not is_testable:
            yield Problem(
                f"{self._owner}.prepare.proposal",
                "come with a $method of votes in one round, and in that a `mechanism`",
                fix="It must not be `interactive` or `capped`. Otherwise leave out $proposal.",
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
        if rows.groups is not None and _leaves_report_out(rows.once):
            yield Problem(
                f"{self._owner}.fit.groups",
                "be left out if you set $report=False, because the test report alone tells groups apart",
            )
        yield from self._problems_of_holdout(rows)
        if rows.batches is not None:
            yield from self._problems_of_batches(rows)
        elif rows.once.release is not None:
            if rows.entity_ids is None:
                yield Problem(
                    f"{self._owner}.fit.release",
                    "come with $entity_ids, by which the ledger knows who came when",
                    fix="Pass $entity_ids, or leave $release out.",
                )
            if not self._target.is_declared and rows.public_labels is None:
                yield Problem(
                    f"{self._owner}.classes",
                    "list all class values if you name a $release, because private labels may be those of people who "
                    "take no part",
                )

    def _problems_of_tiers(self, rows: Rows) -> Iterator[Problem]:
        """Yield problems of tiers of people, as far as they do not depend on cells."""
        if rows.tiers is None:
            return
        name = f"{self._owner}.fit.tiers"
        if not isinstance(rows.tiers, Tiers):  # pyright: ignore[reportUnnecessaryIsInstance]
            yield Problem(
                name, 'be Tiers(column, {"careful": 0.3})', f"a {type(rows.tiers).__name__}"
            )
            return
        if rows.entity_ids is None:
            yield Problem(
                name,
                "come with $entity_ids, because a tier is of a person, who may have several rows",
                fix="Pass $entity_ids.",
            )
        if rows.batches is not None:
            yield Problem(
                name,
                "be left out if rows are read in batches",
                fix="To let people ask for a smaller ε, load all rows into memory.",
            )
        column = rows.tiers.column
        if (
            isinstance(self.columns, Schema)
            and isinstance(column, str)
            and column in self.columns.columns
        ):
            yield Problem(
                name,
                "not name a column of the schema, because those columns are features",
                fix=f"Remove {literal(repr(column))} from the schema.",
            )

    def _problems_of_holdout(self, rows: Rows) -> Iterator[Problem]:
        """Yield problems of the share of people who only take part in the test report."""
        name = f"{self._owner}.fit.holdout"
        given: object = rows.once.holdout
        # Another type is refused as such.
        holdout = float(given) if isinstance(given, Real) else 0.0
        if not 0 <= holdout <= _MOST_APART:
            yield Problem(name, f"be from 0 to {_MOST_APART}, such as 0.1", f"{holdout}")
        elif holdout and rows.entity_ids is None:
            yield Problem(
                name,
                "come with $entity_ids, by which a person stays on one side when a fit is repeated",
                fix="Pass $entity_ids; of single rows, the number of each.",
            )
        elif holdout and (_leaves_report_out(rows.once) or rows.batches is not None):
            yield Problem(
                name,
                "be left out if rows are read in batches or you set $report=False",
                fix="Leave it out, or load all rows into memory.",
            )

    def _problems_of_batches(self, rows: Rows) -> Iterator[Problem]:
        """Yield problems of rows that are read in batches."""
        if not isinstance(rows.y, str) or not isinstance(rows.entity_ids, str | None):
            yield Problem(
                f"{self._owner}.fit.y",
                "be the name of a column if rows are read in batches, and so must $entity_ids",
            )
        if not self._target.is_declared and rows.public_labels is None:
            yield Problem(
                f"{self._owner}.classes", "list all class values if rows are read in batches"
            )
        if as_table(rows.X_public) is None:
            yield Problem(
                f"{self._owner}.fit.X_public", "have named columns if rows are read in batches"
            )
        for name, given in (("silos", rows.silos), ("whole_rows", rows.whole_rows)):
            if given is not None:
                yield Problem(
                    f"{self._owner}.fit.{name}", "be left out if rows are read in batches"
                )
        if rows.once.release is not None:
            yield Problem(
                f"{self._owner}.fit.release",
                "be left out if rows are read in batches",
                fix="To name a release, load all rows into memory.",
            )

    def _take(self, run: Resolved, given: Rows) -> Taken:
        """Return private and public rows of any form, checked, as numbers; set `target_`."""
        # rows: (rows, features); y, labels, entity_ids, silos, stay: (rows,); public: (public rows, features)
        target = self._target
        public_labels = None if target.is_declared else given.public_labels
        cells = _cells(run, given, self._owner)
        y: Any = cells.y
        entity_ids = cells.entity_ids
        silos = cells.silos
        tiers = cells.tiers
        of_rows = None if tiers is None else tiers.column
        _require_plain(
            y=y,
            X_public=public_labels,
            y_public=cells.y_public,
            entity_ids=entity_ids,
            silos=silos,
            tiers=of_rows,
        )
        run, X, X_public, table = self._as_numbers(
            run, cells.X, cells.X_public, entity_ids, scored=given.scored
        )
        _require_cells(X, y)
        rows, labels = self._validate(X, target.merged_labels(y))
        target.check(labels)
        _check_columns(len(rows), entity_ids=entity_ids, silos=silos, tiers=of_rows)
        whole = _whole(rows, table, given.whole_rows)
        stay, left_out = self._rows_that_stay(len(rows), entity_ids)
        keep = np.flatnonzero(stay)
        as_given = np.ravel(np.asarray(y))[keep]
        self.target_ = target.read(labels[keep], public_labels)
        targets = self.target_.private(as_given)
        public = X_public
        if run.schema is None:
            # A copy: the caller may overwrite its own before the release.
            public = np.array(self._validate(X_public))
        entities = None if entity_ids is None else as_column(entity_ids)[keep]
        owners = None if silos is None else as_column(silos)[keep]
        if not isinstance(whole, Table):
            whole = whole[keep]
        elif len(keep) < whole.n_rows:
            whole = whole.take(keep)
        unit = self._unit_name(given.entity_ids)
        everybody = None if entity_ids is None else canonical_ids(as_column(entity_ids))
        groups = None
        if run.groups is not None:
            table = as_table(cells.X)
            if table is None:
                raise InvalidParameterError(
                    f"{self._owner}.fit.groups", "be left out unless $X has named columns"
                )
            groups = run.groups.codes(table, everybody)[keep]

        def deal(method: Method) -> PeopleInMemory:
            if np.all(stay):
                shards = self.partition(method, len(keep), entities, owners, unit)
            else:  # the others have the teachers that they would have, whoever withdrew
                shards = self.partition(method, len(rows), entity_ids, silos, unit).of_some(stay)
            of_people = None
            if tiers is not None:
                cells_of_tiers = as_column(tiers.column)[keep]
                of_people = tiers.of_people(cells_of_tiers, shards.assignment, shards.n_shards)
            return PeopleInMemory(
                rows[keep],
                targets,
                shards,
                left_out,
                everybody,
                whole,
                of_people,
                groups,
            )

        people = deal(run.method)
        public, known_labels = self._set_scored_apart(run, given, public, cells.y_public)
        sight = self._sight(
            run,
            given,
            people.rows,
            whole,
            public,
            labels[keep],
            entity_ids=entities,
            silos=owners,
        )
        sight = self._with_targets(sight, as_given)

        def look(at: Callable[[Sight], Found]) -> Found:
            return at(sight)

        n_people = len(people.ids()) or len(people.rows)
        return Taken(
            run,
            people,
            public,
            known_labels,
            look,
            people.n_teachers,
            n_people,
            deal,
            tiers,
        )

    def _public_labels(
        self, _run: Resolved, public: Matrix, _X_public: object, y_public: object
    ) -> tuple[Matrix, IntArray | None]:
        """Return public rows as numbers, and their labels as such, if there are any."""
        if y_public is None:
            return public, None
        return public, self.target_.public(y_public, len(public))

    def _set_scored_apart(
        self, run: Resolved, given: Rows, public: Matrix, y_public: object
    ) -> tuple[Matrix, IntArray | None]:
        """Return public rows, and their labels if the method starts from them, without those that only score."""
        public, labels = self._public_labels(run, public, given.X_public, y_public)
        self._doubts = ()
        self._scored = public[:0]
        known = labels if run.method.needs.start else None
        if not given.scored:
            return public, known
        # If the rows that score have all labels, nothing starts from labels or is compared by them.
        if labels is not None and np.all(labels[: -given.scored] == ABSTAIN):
            labels = None
            known = None
        if not given.later:
            names: Iterable[object] = range(public.shape[1])
            if isinstance(self.columns_, PublicColumns):
                names = self.columns_.get_feature_names_out()
            cells = dict(zip(map(str, names), public.T, strict=True))
            self._doubts = tuple(warnings_of_order(cells, labels, given.scored))
        self._scored = public[-given.scored :]
        if known is not None:
            known = known[: -given.scored]
        return public[: -given.scored], known

    def _open_ledger(self) -> Path | Ledger | None:
        """Return the open ledger, or the path of one that does not exist yet."""
        if isinstance(self.ledger, Ledger | None):
            return self.ledger
        path = user_path(self.ledger, f"{self._owner}.ledger")
        return existing_ledger(path) or path

    def _rows_that_stay(self, n_rows: int, entity_ids: Column) -> tuple[Mask, str]:
        """Return which rows stay, because their people did not withdraw, and who withdrew; private."""
        if not isinstance(self._ledger, Ledger) or entity_ids is None:
            return np.ones(n_rows, dtype=bool), ""
        return self._ledger.register.not_withdrawn(canonical_ids(entity_ids).tolist())

    def _rows_in_batches(
        self, run: Resolved, rows: Rows, batches: Batches
    ) -> tuple[Taken, tuple[Matrix, Matrix]]:
        """Read private rows in batches, once; return them, and public rows as the maps show them; set `target_`."""
        label: Any = rows.y
        entity: Any = rows.entity_ids
        X_public, y_public = _without_labels(rows.X_public, rows.y_public)
        features = public_features(X_public, label, entity)
        run, _, X_public, _ = self._as_numbers(run, features, features, scored=rows.scored)
        if not isinstance(self.columns_, PublicColumns):
            raise InvalidParameterError(
                f"{self._owner}.columns",
                "be PublicColumns if rows are read in batches",
                fix="Pass PublicColumns, or leave $columns out.",
            )
        public = np.array(self._validate(X_public, reset=True))
        target = self._target
        self.target_ = target.read(np.array([]), None if target.is_declared else rows.public_labels)
        reader = BatchReader(  # it travels to the workers of Dask, and this estimator does not
            batches=batches,
            columns=self.columns_,
            like=features,
            label=label,
            entity=entity,
            check_rows=partial(_checked_rows, allow_nan=self._allow_nan),
            encode_labels=self.target_.private,
            groups=run.groups,
        )
        public, known_labels = self._set_scored_apart(run, rows, public, y_public)
        run, views = self._views(run, public, known_labels)
        unit = unit_of_single_people(self._unit_name(entity), named=entity is not None)
        settings = reader, unit, run.teacher_map, views[0].shape[1]
        gather = PeopleInBatches if batches is rows.X else partial(PeopleInPartitions.of, rows.X)
        people = gather(*settings)
        no_rows = Table("", {name: [] for name in batches.names})
        sight = self._sight(
            run,
            rows,
            public[:0],
            no_rows,
            public,
            np.array([]),
            n_people=people.n_people,
        )

        def look(at: Callable[[Sight], Found]) -> Found:
            return people.look(partial(_found_in, people.reader, sight, at))

        n_teachers = people.n_people if entity is None else None
        taken = Taken(run, people, public, known_labels, look, n_teachers, people.n_people)
        return taken, views

    def _views(
        self, run: Resolved, public: Matrix, labels: IntArray | None
    ) -> tuple[Resolved, tuple[Matrix, Matrix]]:
        """Return public rows as teachers and student see them, beside the scores by a model of their labels, if any."""
        teacher_rows, student_rows = self._try_training(run, public)
        if labels is None or run.schema is not None:
            return run, (teacher_rows, student_rows)
        scored, rows = ScoredRows.learn(
            public, run.teacher_map, teacher_rows, labels, len(self.target_.names)
        )
        check_row_by_row(scored, public)
        if run.method.student is not None:  # it learns from the rows without scores
            return replace(run, teacher_map=scored), (rows, student_rows)
        return replace(run, teacher_map=scored, student_map=scored), (rows, rows)

    def _public_without_scores(self, taken: Taken) -> Public:
        """Return public rows as the maps show them, and zeros for scores, by which no answer is remembered."""
        run = taken.run
        teacher_rows = _apply_map(run.teacher_map, taken.public)
        student_rows = _apply_map(run.student_map, taken.public)
        public = self._public(run, taken, (teacher_rows, student_rows))
        scores = np.zeros((len(public.rows), public.n_scores))
        return replace(public, teacher_rows=np.hstack([public.teacher_rows, scores]))

    def _public(self, run: Resolved, taken: Taken, views: tuple[Matrix, Matrix]) -> Public:
        """Return all that the method may look at: the public rows, also as teachers and student see them."""
        of_teachers, of_student = (int(seed.generate_state(1)[0]) for seed in self._seeds()[1:])
        checkpoints = None
        if run.once.checkpoints is not None:
            checkpoints = user_path(run.once.checkpoints, f"{self._owner}.fit.checkpoints")
        # The ballots of a test report, and the share of people who cast no others; not for some methods.
        report: Entries = {}
        if taken.report is not None and run.method.needs.report and run.method.student is None:
            report = {"report": taken.report, "holdout": float(run.once.holdout)}
        return Public(
            rows=taken.public,
            teacher_rows=views[0],
            student_rows=views[1],
            classes=self.target_.names,
            question=self.target_.question,
            unit=taken.people.unit,
            simulated=run.noise.simulated,
            n_teachers=taken.n_teachers,
            seed=of_student,
            teacher_map=run.teacher_map,
            training=Training(of_teachers, self.n_jobs, self.progress, checkpoints),
            labels=taken.labels,
            weights=self.target_.weights,
            schema=run.schema,
            release=run.once.release,
            **report,
        )

    def _unit_name(self, entity_ids: object) -> str:
        """Return the name of the unit: as it is set, or that of the column of the ids."""
        default = entity_ids if isinstance(entity_ids, str) else "entity"
        return self.unit or default

    def partition(
        self,
        method: Method,
        n_rows: int,
        entity_ids: Column = None,
        silos: Column = None,
        unit: str | None = None,
    ) -> Shards:
        """Return which teacher of a method gets which row; again the same if there is a `random_state`.

        Parameters
        ----------
        method : Method
            Who the teachers are.
        n_rows : int
            Number of private rows.
        entity_ids, silos : array of shape (rows,), optional
            As for `fit`.
        unit : str, optional
            Name of the unit. Default: that of the estimator, or ``"entity"``.
        """
        key = np.random.default_rng(self._seeds()[0]).bytes(32)
        return method.shards(n_rows, entity_ids, silos, unit or self._unit_name(None), key)

    def _seeds(self) -> list[np.random.SeedSequence]:
        """Return the seeds of partition, teachers and student."""
        return np.random.SeedSequence(self.random_state).spawn(3)

    def _as_numbers(
        self,
        run: Resolved,
        X: Any,
        X_public: Any,
        entity_ids: Column = None,
        *,
        scored: int = 0,
    ) -> tuple[Resolved, Any, Any, Table | None]:
        """Return rows of any form as numbers, and the maps without named columns; set what predictions need.

        Columns are known by all public rows, and maps by those that do not only score.
        """
        self.columns_ = None
        schema = run.schema
        if schema is not None:
            self.columns_ = schema
            self.student_map_ = None
            self._allow_nan = False
            ids = None if entity_ids is None else canonical_ids(entity_ids)
            rows = schema.table(dense_rows(X), ids)
            return run, schema.transform(rows), np.empty((0, len(schema.names))), rows
        public = numbered_rows(X_public, run.columns)
        is_plain = public.table is None and public.image_shape is None
        if is_plain and run.columns is not None:
            raise InvalidParameterError(
                f"{self._owner}.columns",
                "be left out if rows have no named columns",
                fix="Name the columns.",
            )
        if scored and not 0 < scored < len(public.rows):
            raise InvalidParameterError(
                f"{self._owner}.prepare.scored",
                f"be less than the {len(public.rows)} public rows, and not negative",
                quote(scored),
            )
        private, table = numbered_as(public, X)
        wanted = run.teacher_map
        if wanted is None and not run.trains:
            wanted = LearnedMap()
        if isinstance(wanted, LearnedMap):
            if is_plain:
                checked = _checked_rows(public.rows, allow_nan=True)
                public = public._replace(rows=checked)
            n_learned = len(public.rows) - scored
            try:
                teacher_map = public._replace(rows=public.rows[:n_learned]).feature_map(wanted)
            except ValueError as error:  # about public rows and settings only
                raise InvalidParameterError(
                    f"{self._owner}.features", "fit the public rows", fix=literal(error)
                ) from None
            run = replace(run, teacher_map=teacher_map)
            if run.same_map:
                run = replace(run, student_map=teacher_map)
        shape = public.image_shape or getattr(parts_of(run.teacher_map)[0], "image_shape", None)
        run = replace(run, method=_with_image_shape(run.method, shape))
        if scored:  # which may have said what columns are
            run = replace(run, columns=public.columns)
        self.student_map_ = run.student_map
        self._allow_nan = run.allow_nan
        self.columns_ = public.columns
        return run, private, public.rows, table

    def _student_rows(self, X: object) -> Matrix:
        """Return rows as the student sees them."""
        return _apply_map(self.student_map_, self._numbers_of(X))

    def _numbers_of(self, X: object) -> Matrix:
        """Return rows of any form as numbers, checked against the columns of the fit."""
        rows = dense_rows(X)
        if self.columns_ is not None:
            rows = np.asarray(self.columns_.transform(rows))
        return self._validate(rows)

    def _try_training(self, run: Resolved, public: Matrix) -> tuple[Matrix, Matrix]:
        """Return public rows as teachers and student see them, once everything was tried on them."""
        classes = self.target_.names
        refuse_class_of_unlabeled(run.student, classes)
        if len(public) < run.method.needs.fewest:
            warn(_FEW_ROWS.format(len(public), run.method.needs.fewest), FewPublicRowsWarning)
        teacher_rows = _apply_map(run.teacher_map, public)
        student_rows = _apply_map(run.student_map, public)
        if run.teacher_map is not None:
            check_row_by_row(run.teacher_map, public)
        # Both are tried on made-up labels, so that a wrong parameter costs nothing.
        kind = type(run.method).__name__
        with self._refusing_errors(kind, "teacher"):
            run.method.check_training(teacher_rows, len(classes))
        if run.method.student is not None:  # the one in closed form has no settings
            with self._refusing_errors(kind, "student"):
                try_student(
                    run.student, student_rows, classes, rows_per_class=_TRIAL_ROWS_PER_CLASS
                )
        return teacher_rows, student_rows

    @contextmanager
    def _refusing_errors(self, owner: str, name: str) -> Generator[None]:
        """Refuse a parameter if an error is raised."""
        try:
            with warnings.catch_warnings():
                # Made-up labels earn warnings that mean nothing.
                warnings.simplefilter("ignore")
                yield
        except Exception as error:
            fix = f"It raised {type(error).__name__}"
            # Only the kind, if the message may quote private class values.
            if self.target_.origin == "private" and not isinstance(error, TutelageError):
                fix += (
                    ", whose message may quote private class values. To see it, declare $classes."
                )
            else:
                fix += f": {literal(error)}"
            raise InvalidParameterError(
                f"{owner}.{name}",
                "train without an error on public rows with made-up labels",
                fix=fix,
            ) from None

    def _validate(self, X: object, *y: object, reset: bool = False) -> Any:
        """Return inputs checked by scikit-learn: with `y` they define the features, without they must match them."""
        validate_data = scikit_learn.utils.validation.validate_data
        validate = partial(validate_data, self, X, *y, reset=reset or bool(y))
        return _validate_quietly(validate, allow_nan=self._allow_nan)

    def _sight(
        self,
        run: Resolved,
        given: Rows,
        rows: Matrix,
        whole: Table | Array,
        public: Matrix,
        labels: Array,
        *,
        entity_ids: Array | None = None,
        silos: Array | None = None,
        n_people: int | None = None,
    ) -> Sight:
        """Return the private rows and settings for the checks of `preflight`."""
        numbers = tuple(f"column {number}" for number in range(rows.shape[1]))
        declared = ()
        if isinstance(whole, Table):
            columns = {**whole.columns}
            if run.schema is not None:
                declared = ((run.schema, whole),)
        else:
            columns = {**dict(zip(numbers, rows.T, strict=True)), **(given.others or {})}
            if whole.ndim == 2 and whole.shape != rows.shape:
                for number, cells in enumerate(whole.T):
                    columns[f"column {number} of `whole_rows`"] = cells
        tiers = None if given.tiers is None else given.tiers.column
        for name in (given.y, given.silos, tiers):
            if isinstance(name, str):
                columns.pop(name, None)
        categories = ()
        if isinstance(self.columns_, PublicColumns):
            numbers = self.columns_.numbers
            categories = self.columns_.categorical
        named = dict[str, str]()
        if isinstance(given.entity_ids, str):
            named["entity_ids"] = f"column '{given.entity_ids}'"
        if isinstance(given.silos, str):
            named["silos"] = f"column '{given.silos}'"
        return Sight(
            private=rows,
            public=public,
            scored=self._scored if len(self._scored) else None,
            numbers=numbers,
            categories=categories,
            columns=columns,
            n_classes=len(self.target_.names),
            entity_ids=entity_ids,
            silos=silos,
            named=named,
            unit_is_row=self.unit == ROW,
            noise=self._least_noise(run),
            n_people=n_people,
            takes_empty=run.method.needs.empty,
            schema=run.schema,
            unused_labels=_unused_labels(run, given),
            labels=labels,
            declared=declared,
        )

    def _with_targets(self, sight: Sight, targets: Array) -> Sight:  # noqa: ARG002  a subclass reads them
        """Return the sight with the targets as they are given, before any were merged, if it shows these."""
        return sight

    def _look(self, taken: Taken) -> None:
        """Refuse rows that should not be released from as they are, and warn the owner, before anything is spent."""
        run = taken.run
        found = taken.look(partial(preflight, insist=run.once.insist))
        if run.noise.simulated:  # nothing private is released, so there is nothing to refuse
            found = Found((), (*found.refusals, *found.warnings))
        if self.target_.origin == "private":
            warn(_UNDECLARED, UndeclaredClassesWarning)
        for warning in found.warnings:
            warn(warning, PreflightWarning)
        if found.refusals:
            raise PreflightError(*found.refusals)

    def _least_noise(self, run: Resolved) -> float | None:
        """Return about the least noise of one sum of ballots; None if only a ledger knows it, which judged it."""
        if run.method.mechanism is not None:
            return run.method.noise
        asked = self._asked(run, self._delta)
        limit = self._ledger.limit if isinstance(self._ledger, Ledger) else None
        stated = terms_of(asked, run.method.needs.accounting, limit).stated
        return None if stated is None else least_noise(stated, asked.delta)


def _validate_quietly(validate: Callable[..., Any], *, allow_nan: bool) -> Any:
    """Return the result of a validation of scikit-learn; no value leaves with its complaint."""
    checked = None
    complaint = ""
    finite = "allow-nan" if allow_nan else True
    try:
        with np.errstate(all="ignore"):  # a warning that a sum overflows would tell of a row
            # One dtype whatever the cells hold: a dtype inferred from all private rows would depend on each of them.
            checked = validate(ensure_all_finite=finite, dtype=np.float64)
    except ValueError as error:
        complaint = str(error)
    except TypeError:  # of a cell that cannot be a number
        complaint = "could not convert"
    except OverflowError:  # of a whole number beyond all floats
        complaint = "Input X contains infinity"
    # Out here: raised while it is handled, the complaint would be carried along.
    if checked is None:
        raise InvalidDataError(_without_values(complaint, allow_nan=allow_nan))
    return checked


# Functions that a `BatchReader` takes to the workers of Dask


def _checked_rows(rows: Matrix, *, allow_nan: bool) -> Matrix:
    validate = partial(scikit_learn.utils.check_array, rows, input_name="X")
    return _validate_quietly(validate, allow_nan=allow_nan)


def _found_in(
    reader: BatchReader, sight: Sight, at: Callable[[Sight], Found], table: Table
) -> Found:
    """Return the findings in the first of many rows, where they are read."""
    here = replace(
        sight,
        private=reader.check_rows(np.asarray(reader.columns.transform(table))),
        labels=reader.encode_labels(table.column(reader.label)),
        entity_ids=None if reader.entity is None else as_column(table.column(reader.entity)),
        columns={name: cells for name, cells in table.columns.items() if name in sight.columns},
    )
    return at(here)


def _cells(run: Resolved, given: Rows, owner: str) -> Rows:
    """Return the rows of a fit with columns in place of their names, and labels apart from public rows.

    The public rows, or the schema, say which of the columns are features.
    """
    if given.y is None:
        raise InvalidDataError(_NO_LABELS)
    special = {"y": given.y, "entity_ids": given.entity_ids, "silos": given.silos}
    if given.tiers is not None:
        special["tiers"] = given.tiers.column
    _require_same_rows(given.X, **special, whole_rows=given.whole_rows)
    if run.schema is None and given.X_public is None:
        raise InvalidDataError(_NO_PUBLIC)
    rows = given.X
    X_public, y_public = _without_labels(given.X_public, given.y_public)
    refuse_containers(rows)
    refuse_containers(X_public)
    names = [name for name in special.values() if isinstance(name, str)]
    if names:
        private = as_table(rows)
        if private is None:
            raise InvalidParameterError(
                f"{owner}.fit.y",
                "be an array unless $X has named columns, and so must $entity_ids and $silos",
            )
        rows = private
        for place, name in special.items():
            if isinstance(name, str):
                read = private.column if place in ("y", "tiers") else partial(ids_in, private)
                special[place] = read(name)
        X_public = public_features(X_public, *names)
    columns: dict[str, Any] = {name: column_array(cells) for name, cells in special.items()}
    if given.tiers is not None:
        columns["tiers"] = Tiers(columns["tiers"], given.tiers.epsilons)
    return replace(given, X=rows, X_public=X_public, y_public=y_public, **columns)


def _leaves_report_out(once: Once) -> bool:
    return isinstance(once.report, bool | np.bool_) and not once.report


def asks_for_report(once: Once, groups: object) -> bool:
    """Return whether a fit asks for a test report, beyond what is usual."""
    is_asked = isinstance(once.report, bool | np.bool_) and bool(once.report)
    holdout: object = once.holdout
    return is_asked or groups is not None or (isinstance(holdout, Real) and holdout != 0)


def _unused_labels(run: Resolved, given: Rows) -> str | None:
    """Return the column of public labels that the method could learn from and is not given, if there is one."""
    label = given.y
    if given.y_public is not None or run.schema is not None or not isinstance(label, str):
        return None
    table = None
    if run.method.needs.start and given.X_public is not None:
        table = as_table(given.X_public)
    return label if table is not None and label in table.columns else None


def rows_and_labels(X: Any, y: object, name: str = "y") -> tuple[Any, Any]:
    """Return public rows and their labels, which may be a column of them."""
    if not isinstance(y, str):
        return X, column_array(y)
    table = as_table(X)
    if table is None:
        raise InvalidDataError(
            f"`{name}` may be the name of a column only if its rows have named columns."
        )
    return table, table.column(y)


def _whole(rows: Matrix, table: Table | None, whole_rows: Column) -> Table | Array:
    """Return the private rows with all their columns: as they are passed, as they were read, or as numbers."""
    if whole_rows is None:
        return rows if table is None else table
    whole = as_table(whole_rows) or as_column(whole_rows)
    n_whole = whole.n_rows if isinstance(whole, Table) else len(np.atleast_1d(whole))
    if n_whole != len(rows):
        raise InvalidDataError(
            f"`whole_rows` must have one row per private row. Got {n_whole} for {len(rows)} rows."
        )
    return whole


def _require_cells(X: object, y: npt.ArrayLike) -> None:
    """Refuse a row without a label, and rows that hold other things than numbers."""
    column = as_column(y)
    if column.dtype == object and any(map(is_missing, column.ravel().tolist())):
        raise InvalidDataError(MISSING_LABEL)
    if not _holds_numbers(X):
        raise InvalidDataError(_NO_NUMBERS)


def _check_columns(n_rows: int, **columns: Column) -> None:
    """Refuse columns that do not have one entry per private row."""
    for name, column in columns.items():
        if column is not None and np.shape(column) != (n_rows,):
            raise InvalidDataError(
                f"`{name}` must have one entry per private row. Got shape {np.shape(column)} for {n_rows} rows."
            )


def _without_labels(X_public: object, y_public: object) -> tuple[Any, Any]:
    """Return public rows without their labels, and the labels, which may be a column of them."""
    rows, labels = rows_and_labels(X_public, y_public, "y_public")
    if isinstance(y_public, str):
        rows = rows.without([y_public])
    return rows, labels


def _require_plain(**columns: Any) -> None:
    """Refuse cells of somebody's own classes, which may raise an error that quotes them wherever they are compared."""
    for name, cells in columns.items():
        if not isinstance(cells, list | tuple):
            cells = np.asarray(cells).ravel()
        kinds = {type(cell) for cell in cast("Iterable[object]", cells)}
        if any(kind.__module__.partition(".")[0] not in _PLAIN for kind in kinds):
            raise InvalidDataError(
                f"`{name}` must hold text or numbers. Write objects of your own classes as one of these."
            )


def _holds_numbers(X: object) -> bool:
    """Return whether no cell of a matrix is text, a moment or, beside others, a truth value.

    If one cell is not a number, a reader leaves the whole column as text; truth values are always whole columns.
    """
    cells = np.asarray(X, dtype=None if hasattr(X, "dtype") else object)
    if cells.dtype != object:
        return cells.dtype.kind in "biufc"  # scikit-learn refuses complex numbers
    kinds = {type(cell) for cell in cast("list[object]", cells.ravel().tolist())}
    return not any(
        issubclass(kind, (str, bytes, bool, np.bool_, date, np.datetime64)) for kind in kinds
    )


def _with_image_shape(method: Method, shape: tuple[int, ...] | None) -> Method:
    """Return a method whose student knows the shape of its images, if it has one that asks for it."""
    student = method.student
    if shape is None or not isinstance(student, ImageStudent):
        return method
    owner = type(student).__name__
    given = student.image_shape
    if given is not None and as_image_shape(given, 1, "image_shape", owner) != tuple(shape):
        raise InvalidParameterError(
            f"{owner}.image_shape",
            f"be that of the public images, {tuple(shape)}, or be left out",
            f"{given!r}",
        )
    return method.with_params(student__image_shape=tuple(shape))


def _apply_map(feature_map: FeatureMap | None, rows: Matrix) -> Matrix:
    if feature_map is None:
        return rows
    return np.asarray(feature_map.transform(np.array(rows)))


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
            "numbers may be missing if `features` is left out. Otherwise impute inside both, for example "
            "make_pipeline(SimpleImputer(), ...), so that no statistic runs over all private rows, or take models that "
            "accept missing values, such as HistGradientBoostingClassifier."
        )
    complaint, quotes, rest = message.partition("array=")
    if quotes:
        return complaint + rest[rest.rfind("Reshape your data") :]
    return message if message.startswith(_WITHOUT_CELLS) else _NO_NUMBERS


def _require_same_rows(X: object, **columns: object) -> None:
    """Refuse columns that may hold the cells of other rows than `X` has at their places.

    That is so if one of them, or `X` beside an array, is computed again whenever it is looked at, perhaps in another
    order; or if `X` and one of them are of pandas and have different indexes.
    """
    beside = dict[str, object]()
    for name, column in columns.items():
        if column is not None and not isinstance(column, str):
            beside[name] = column
    if not beside:
        return
    for name, rows in {**beside, "X": X}.items():
        if is_lazy(rows):
            raise InvalidDataError(
                f"`{name}` is a lazy frame or a relation, whose rows may come in another order each time. Compute the "
                "private rows once, for example by `collect()` or `df()`, or pass `y` and `entity_ids` as names of "
                "columns."
            )
    index = _pandas_index(X)
    for name, column in beside.items():
        of_column = _pandas_index(column)
        if index is None or of_column is None:
            continue
        if not index.equals(of_column):
            raise InvalidDataError(
                f"`{name}` must have the index of `X`, in the same order. Select its rows by `{name}.loc[X.index]`, or "
                f"pass `{name}.to_numpy()` if the rows are in the right order."
            )


def _pandas_index(rows: object) -> Any:
    """Return the index of a frame or column of pandas; None for anything else."""
    index: Any = getattr(rows, "index", None)
    if type(index).__module__.partition(".")[0] == "pandas":
        return index
    return None


def _labels_of_public(X_public: object, y: object) -> Array | None:
    """Return the known labels of public rows, given or in a column of them; None if fewer than two classes occur."""
    if isinstance(y, str):
        table = as_table(X_public)
        if table is None or y not in table.columns:
            return None
        y = table.column(y)
    if y is None:
        return None
    cells: Array = np.asarray(column_array(y))
    labels: Array = cells[[not is_missing(cell) for cell in cells.tolist()]]
    classes = {cell_text(label) for label in labels.tolist()}
    return labels if len(classes) > 1 else None
