"""The fit that both estimators have: one release of private rows, and the student that learns from it."""

import hashlib
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from copy import copy, deepcopy
from dataclasses import replace
from functools import cache, partial
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
from msgspec import structs
from sklearn.base import is_classifier
from sklearn.pipeline import make_pipeline
from sklearn.utils.validation import check_is_fitted

from tutelage._internal.fitting import arrays_out, clone_with
from tutelage._internal.gate import user_path
from tutelage._internal.records import Entries
from tutelage._internal.releases import RESULTS, claimed_folder, on_one_day, publish_folder
from tutelage._internal.typing import ABSTAIN, Array, FloatArray, Matrix
from tutelage._internal.warned import warn
from tutelage.accounting import data_independent
from tutelage.accounting.generalization import most_on_others, pairs_of, pairs_within
from tutelage.boundary import Boundary
from tutelage.budget import Budget
from tutelage.digests import canonical, data_digest, plain_settings
from tutelage.estimator.inputs import Column, Inputs, Rows, Taken, asks_for_report, rows_and_labels
from tutelage.estimator.parameters import ARGUMENTS_OF_FIT, Resolved
from tutelage.events import Event, tiers_of
from tutelage.exceptions import (
    InvalidParameterError,
    MuchNoiseWarning,
    OneClassWarning,
    PreflightWarning,
    Problem,
    UnknownParameterError,
)
from tutelage.features.scored import chances_of
from tutelage.ledger import Ledger
from tutelage.methods import Method, Public
from tutelage.methods.choice import Chooser, Known
from tutelage.methods.requests import AnyLayout, Facts
from tutelage.people.tiers import Tiers
from tutelage.privacy import NeighboringRelation, PublicEpsilon
from tutelage.published import card_of_model, write_results
from tutelage.publishing import Proposal
from tutelage.publishing.recording import check_testable
from tutelage.release import Once, PreparedRelease, Released
from tutelage.reporting import PrivacyCard
from tutelage.reporting.lints import Case, lint
from tutelage.reporting.meaning import strength
from tutelage.reporting.measured import Measured, MeasuredErrors
from tutelage.reporting.record import Judged
from tutelage.students import fit_student
from tutelage.students.base import weight_parameter
from tutelage.students.noisy_sums import Moments
from tutelage.teachers.checkpoints import discard_checkpoints

_ONE_CLASS = (
    "The student gives all public rows one class, because that class is frequent and the noise hides most of the other "
    "information. Its probabilities still rank rows (`predict_proba`). To get other classes too, set "
    "`goal='balanced_accuracy'`, or use more people, a larger `epsilon`, or private classes of similar size."
)
_NO_ROOM_FOR_REPORT = (
    "The sums were released before, and the budget has no room for a test report of this student, so how good it is on "
    "the people is not measured."
)
_MUCH_NOISE = (
    "The noise for `epsilon`, σ = {:.4g} votes, is larger than all {:,} votes on a query. Many labels will be wrong. "
    "Ask fewer queries (`n_queries`), train more teachers, or let every person cast a ballot (`NoisyMoments`)."
)


def _warn_of_names(name: str | None, budget: Budget, ledger: Ledger) -> None:
    """Warn if a release of people with ids needs a name for later ones, or if its name has no earlier release."""
    state = ledger.state()
    if name is None and budget.asked.releases > 1 and not state.spent:
        warn(
            f"The budget is for {budget.asked.releases} releases, and this one has no name, so no later one of this "
            "ledger can have one. If people come later, month by month, name each release by $release.",
            PreflightWarning,
        )
    elif (
        name is not None
        and state.cohorts
        and name not in state.cohorts
        and not ledger.register.earlier_releases(budget.question, name)
    ):
        warn(
            "No earlier release of this ledger has these settings, so the student learns from this one alone. To learn "
            "from earlier ones, too, use their question, classes, columns, method, noise and public rows.",
            PreflightWarning,
        )


class Estimator(Inputs):
    """An estimator of scikit-learn whose fit is one release of private rows.

    Inherited from `Inputs`: `_take`, which reads the rows, `_look`, which checks them, and `_open_ledger`. In errors
    and warnings, `$x` is shown as the parameter or the config key.
    """

    student_: Any
    votes_: Any  # the method decides which of these exist
    moments_: tuple[Moments, ...]
    public_model_: Any
    class_weight_: Mapping[Any, float] | None
    earlier_: tuple[str, ...]
    tiers_: Mapping[str, tuple[PublicEpsilon, float]]
    facts_: Facts
    method_: Method
    report_: Any  # Measured, MeasuredErrors or None

    _judge: Callable[[Any, Any], Judged]
    _layout: Callable[[tuple[str, ...]], AnyLayout]
    _private: tuple[str, ...] = ()  # names of attributes that only the data set owner may see

    @on_one_day()
    @arrays_out()
    def fit(
        self,
        X: object,
        y: Column,
        *,
        X_public: object = None,
        y_public: Column = None,
        entity_ids: Column = None,
        silos: Column = None,
        whole_rows: Column = None,
        tiers: Tiers | None = None,
        release: str | None = None,
        data_changed: bool = False,
        insist: bool = False,
        checkpoints: str | Path | None = None,
        groups: str | Mapping[str, Sequence[Any]] | None = None,
        report: bool | None = None,
        holdout: float = 0.0,
    ) -> Self:
        """Let people or teachers cast ballots from the private rows, release them through noise, and train the student.

        Parameters
        ----------
        X : array of shape (rows, features), images, texts, or rows with named columns
            Private rows. Images are an array of shape (rows, height, width) or (rows, height, width, channels); texts
            are a list, an array or a column. A frame of pandas, Polars or PyArrow, a DuckDB relation, a `Table`, or a
            mapping of names to cells has named columns, in any order. `X_public` decides which columns are used and of
            which kind they are; text becomes `text_features`. For `NoisyMoments`, rows larger than memory can be read
            in batches by `read_batches`, or stay on the workers of a Dask DataFrame. Then `y` is the name of a column,
            `classes` must be declared, and the result is bit-for-bit the same.
        y : array of shape (rows,) or str
            Class value, or number, of each private row. `y` and the identifiers may be columns of the same libraries,
            or names of columns of `X`, as they must be if `X` is a LazyFrame or a relation.
        X_public : array of shape (public rows, features), or rows with named columns
            Public rows: the queries, and further rows for the student to learn from without labels. All columns are
            features, except those that `y`, `y_public` and `entity_ids` name. Of a number to predict, they propose the
            schema if `columns` is not given.
        y_public : array of shape (public rows,) or str, optional
            Labels of public rows, or the name of a column of them; some may be missing, and no number. `NoisyMoments`
            and `AdditiveMean` start from a model of these labels, and the private rows say what it gets wrong. Do not
            score by these rows afterwards. Without `classes`, the class values are read from them, for every method.
        entity_ids : array of shape (rows,) or str, optional
            Identifier of the person of each row, who is the privacy unit. Without it the unit is one row.
        silos : array of shape (rows,) or str, optional
            Identifier of the owner of each row, or the name of a column of `X`. Each owner is one teacher.
        whole_rows : array of shape (rows, ...), optional
            The private rows with all their columns, if `X` has only some of them. Without `entity_ids`, the ledger
            recognizes its data set by these rows, whichever columns and labels a fit uses. Default: all columns of `X`.
        tiers : Tiers, optional
            The tier of each person, and the ε that people of each tier ask for, where it is smaller than that of the
            release: ``Tiers("consent", {"careful": 0.3, "usual": 1.0})``. The ballots of a tier are shortened, so its
            people count less. It needs `entity_ids`, rows in memory, and a method that releases noisy sums.
        release : str, optional
            Name of the release: ``"2026-02"``. People whose ids first appear in it have the whole `budget` for
            themselves, and people whose budget is spent take no part. The student also learns from earlier releases of
            the same question and settings. The same name is the same release. It needs a `ledger` and `entity_ids`;
            see docs/howto/production.md.
        data_changed : bool, default=False
            Confirms that the private data changed since the ledger was last used and still belong to it.
        insist : bool, default=False
            Continue although many public rows equal private rows, or people or public rows are too few to learn from.
            The card says that refusals were overridden, and calls the guarantee weak.
        checkpoints : path-like, optional
            Private folder in which an interrupted `fit` leaves its ballots, so that the next `fit` can resume. It needs
            a `random_state`, so that the shards are equal. A successful `fit` empties the folder.
        groups : str or mapping of str to sequence, optional
            Column of the private rows whose values the test report tells apart: ``"sex"``, if it is a column of the
            public rows or the schema, or ``{"sex": ["female", "male"]}``. The values must be public.
        report : bool, optional
            Whether a last noisy sum says how good the student is on the people, with intervals: `report_`. It takes 3 %
            of the noise budget. Default: if the noise follows from ε and no public row has a label. See
            docs/howto/test-report.md.
        holdout : float, default=0
            Share of the people, up to 0.5, who cast no ballots but those of the report, which then takes 10 %. Without
            them, the report is about people who taught the student.

        Raises
        ------
        InvalidParameterError, InvalidDataError, OverlappingShardsError, TeacherTrainingError
            If a parameter or the data are invalid. No message quotes a private value.
        PreflightError
            If a column repeats as an id does and the privacy unit was not decided. Unless `insist` is set, also if many
            public rows equal private rows, or if people or public rows are too few to learn from. Nothing was spent.
        BudgetExceededError, LedgerError
            If the budget does not allow the release, before any teacher is trained; if the ledger belongs to other data
            or has another budget, or if its file cannot be used.

        Warns
        -----
        BudgetContinuedWarning, RepeatedFitWarning
            If the ledger was used before; or if there is none, as in earlier fits in this process, which may be of the
            same people. The warning states what was spent. Fits with `SimulationNoise` do not count.
        PreflightWarning, UndeclaredClassesWarning, FewPublicRowsWarning
            If the rows or settings have something that their owner should look at before publishing the result, the
            class values were read from `y`, or people cast ballots and there are fewer than 50 public rows.
        MuchNoiseWarning, OneClassWarning
            If the noise that `epsilon` requires is larger than the number of teachers, or the student gives all public
            rows the same class.
        """
        once = Once(release, data_changed, insist, checkpoints, report=report, holdout=holdout)
        rows = Rows(
            X,
            y,
            X_public,
            y_public,
            entity_ids,
            silos,
            whole_rows,
            tiers,
            groups,
            once=once,
        )
        fitted: Self = self._prepare(rows).release()
        # A fit that fails leaves the estimator as it was.
        vars(self).clear()
        vars(self).update(vars(fitted))
        return self

    @on_one_day()
    @arrays_out()
    def prepare(
        self,
        X: object,
        y: Column,
        *,
        choose: Chooser | None = None,
        proposal: Proposal | None = None,
        scored: int = 0,
        later: bool = False,
        tuned_on: str | None = None,
        **more: Any,
    ) -> PreparedRelease:
        """Return the release that `fit` would make, checked and with its noise; it raises and warns as `fit` does.

        Nothing is trained, drawn or written, and the estimator stays as it is. `release` of what is returned spends,
        and returns a fitted copy of the estimator. Released again, it returns that copy, and spends nothing.

        Parameters
        ----------
        X, y, **more
            As for `fit`. Rows in batches are read once.
        choose : Chooser, optional
            Chooses the method by what is public, such as `tutelage.planning.Planned()`. A release that was begun by a
            method goes on with it. Default: the method of the estimator.
        proposal : Proposal, optional
            A smaller ε, recorded in the `ledger` before anything was released (`tutelage.publishing.record`). `release`
            tests it on the votes, and returns the estimator with `publication_`: the ε to publish.
        scored : int
            How many of the last public rows only score the student: nothing is learned from them but what columns are.
            They are compared with the private rows and with the other public rows. `y_public` may then hold labels also
            where the method does not start from these.
        later : bool
            Whether these rows are meant to differ from the others, as later ones do.
        tuned_on : {"nothing", "public", "private"}, optional
            The data by which settings were chosen. It warns of private ones, and the card objects to them.
        """
        UnknownParameterError.raise_for(
            Problem(f"{self._owner}.fit.{name}", "be left out: there is no such parameter")
            for name in more.keys() - {*ARGUMENTS_OF_FIT, "others"}
        )
        more |= {"proposal": proposal, "tuned_on": tuned_on, "scored": scored, "later": later}
        return self._prepare(Rows.of(X, y, **more), choose)

    def check(self, X: object, y: Column, **more: Any) -> Self:
        """Check parameters, rows and ledger as `fit` does before it spends anything; reads batches once.

        It raises and warns as `fit` does. Nothing is trained or released, and no ledger is written.

        Parameters
        ----------
        X, y, **more
            As for `fit`.
        """
        self.prepare(X, y, **more)
        return self

    def _prepare(self, rows: Rows, choose: Chooser | None = None) -> PreparedRelease:
        """Return the release of these rows, by a copy of the estimator that has no attributes of an earlier fit."""
        trial = copy(self)
        for name in [*vars(trial)]:
            if name.endswith("_"):
                del vars(trial)[name]
        trial._private = ()
        return trial._prepare_self(rows, choose)

    def _prepare_self(self, rows: Rows, choose: Chooser | None) -> PreparedRelease:
        """Return the release of these rows; set the attributes that it needs, check everything, and warn.

        The order protects people: resolve parameters, open the ledger, read rows, check them before anything is
        spent (`_look`), refuse what the budget has no room for, and only then learn from public rows.
        """
        run = self._resolved_for(rows)
        batches = rows.batches
        if choose is not None and (batches is not None or run.schema is not None):
            raise InvalidParameterError(
                f"{self._owner}.prepare.choose",
                "be left out if rows are read in batches, or by a Schema: then there is one method",
            )
        self._ledger = self._open_ledger()
        views: tuple[Matrix, Matrix] | None = None
        if batches is None:
            taken = self._take(run, rows)
        else:
            taken, views = self._rows_in_batches(run, rows, batches)
        n_people = taken.n_people
        budget = self._budget(taken)
        taken = taken._replace(report=self._layout_of_report(run, rows))
        for doubt in self._doubts:
            warn(doubt, PreflightWarning)
        self._look(taken)
        budget.check()
        if choose is not None:
            taken, budget = self._choose(choose, taken, budget, silos=rows.silos is not None)
        # Before anything is learned from public rows.
        method, ledger = self._with_room(taken, budget)
        run = taken.run
        if views is None:
            run, views = self._views(run, taken.public, taken.labels)
        self.student_map_ = run.student_map
        public = self._public(run, taken, views)
        self._warn_of_settings(run, method, budget, n_people, public)
        if batches is None and taken.people.ids():
            _warn_of_names(run.once.release, budget, ledger)
        method.check(public)
        if run.once.proposal is not None:
            if not isinstance(self._ledger, Ledger):
                raise InvalidParameterError(
                    f"{self._owner}.prepare.proposal",
                    "come with the $ledger in which it was recorded",
                    fix="Create it with `tutelage ledger init`, then propose with --ledger.",
                )
            check_testable(run.once.proposal, method.event(public.sizes), public.rows, self._ledger)
        self.n_private_rows_ = None
        if rows.entity_ids is None and rows.silos is None:
            self.n_private_rows_ = n_people
        return PreparedRelease(
            method=method,
            public=public,
            people=taken.people,
            budget=budget,
            ledger=ledger,
            once=run.once,
            noise=run.noise,
            scored=self._scored,
            doubts=self._doubts,
            finish=partial(self._finish, run=run, method=method, public=public),
        )

    def _layout_of_report(self, run: Resolved, rows: Rows) -> AnyLayout | None:
        """Return the ballots of a test report: usual if the noise follows from ε and no public row has a label."""
        has_labels = rows.y_public is not None or rows.public_labels is not None
        is_usual = run.once.report is None and run.method.mechanism is None and not has_labels
        if not (is_usual or asks_for_report(run.once, run.groups)):
            return None
        groups = ("",) if run.groups is None else run.groups.names
        return self._layout(groups)

    def _with_room(
        self, taken: Taken, budget: Budget, *, remembered: bool = True
    ) -> tuple[Method, Ledger]:
        """Return the method with its noise, and its ledger; refuse what the ledger would refuse, and write nothing.

        Without room, the release is refused, except for answers that the ledger remembers: with `remembered`, these
        are looked up; without it, as before a method is chosen, the release is refused at once.
        """
        run = taken.run
        sizes = self._public(run, taken, (taken.public, taken.public)).sizes
        method = run.method

        def event_with(noise: float) -> Event:
            # In steps, which tiers need, it costs no more.
            return run.method.with_noise(noise).event(sizes)

        if not budget.asked.given:
            method = method.with_noise(budget.least_noise(event_with))
        ledger = budget.ledger_for(method, sizes)
        worst_case = budget.worst_case(method, sizes, ledger.limit)
        if isinstance(budget.ledger, Ledger):
            ledger.register.check(budget.release_name, budget.identity, worst_case)
        full = budget.ledger_without_room(worst_case)
        if full is not None and remembered:
            Boundary(full, run.noise, tiers=tiers_of(worst_case)).require_room(
                method, self._public_without_scores(taken)
            )
        elif full is not None:
            full.account.require_room(worst_case, 1)  # raises
        return method, ledger

    def _choose(
        self, choose: Chooser, taken: Taken, budget: Budget, *, silos: bool
    ) -> tuple[Taken, Budget]:
        """Return the inputs with the chosen method, and its budget.

        A release of the same question that was begun keeps its method; then nothing is chosen again.
        """
        unit = taken.people.unit
        rows_are_people = unit.neighboring is NeighboringRelation.CHANGE_ONE_ROW
        target: Any = self._target  # classes, where there is a choice
        known = Known(
            rows=taken.public,
            labels=taken.labels,
            features=taken.run.teacher_map,
            people=taken.n_people if rows_are_people else None,
            epsilon=budget.asked.each,
            delta=budget.asked.delta,
            goal=target.goal,
            weighted=target.weight is not None,
            n_classes=len(self.target_.names),
            unit=unit,
            named=taken.run.once.release is not None,
        )
        for method in choose.candidates(known):
            candidate = self._with_method(method, taken)
            its_budget = self._budget(candidate)
            if its_budget.stored_noise is not None:
                return self._deal_again(candidate, silos=silos), its_budget
        # Raise if the budget has no room, before a method is chosen: that takes minutes.
        self._with_room(taken, budget, remembered=False)
        chosen = self._with_method(choose(known), taken)
        its_budget = self._budget(chosen)
        return self._deal_again(chosen, silos=silos), its_budget

    def _with_method(self, method: Method, taken: Taken) -> Taken:
        """Return the inputs for another method, with the teachers as they were dealt."""
        resolved = copy(self).set_params(method=method)._unchecked(taken.run.once).method
        run = replace(taken.run, method=resolved)
        return taken._replace(run=run, labels=taken.labels if method.needs.start else None)

    def _deal_again(self, taken: Taken, *, silos: bool) -> Taken:
        """Return the inputs with the teachers of their method; refuse one that does not fit."""
        run = taken.run
        self._check_together(
            run,
            silos=silos,
            tiers=taken.tiers is not None,
            report=asks_for_report(run.once, run.groups),
        )
        if taken.deal is None:
            return taken
        people = taken.deal(run.method)
        return taken._replace(people=people, n_teachers=people.n_teachers)

    def _finish(self, found: Released, *, run: Resolved, method: Method, public: Public) -> Self:
        """Set the attributes of a release, train the student, and return the estimator."""
        outcome = found.outcome
        names = self.target_.names

        # Declarations of the caller, and results of the release.
        self._ledger = None
        self.day_ = found.day
        self.name_ = run.once.release
        self.insisted_ = run.once.insist
        self.proposal_ = run.once.proposal
        self.tuned_on_ = run.once.tuned_on
        self.publication_ = found.publication
        self.open_ledger_ = found.ledger
        self.ledger_ = found.state
        self.queries_ = outcome.queries
        self.rounds_ = outcome.rounds
        self.n_teachers_ = outcome.n_teachers
        self.mechanism_ = method.mechanism
        self.release_ = found.labels
        self.epsilon_ = found.epsilon
        self.tiers_ = found.tiers
        self.method_ = replace(run.method, mechanism=method.mechanism)  # type: ignore[type-var]
        self.earlier_ = found.earlier
        self.n_earlier_ = found.n_earlier
        self.drawn_ = found.drawn
        self.remembered_ = found.remembered
        self.facts_ = found.facts

        # Attributes for the data set owner alone.
        self._private = tuple(found.owner)
        vars(self).update(found.owner)
        if outcome.sums:
            self.moments_ = outcome.sums
        self.report_ = _report_of(found, method, public)
        self.class_weight_ = outcome.class_weight

        # The public model and the student.
        self.public_model_ = None if public.labels is None else public.teacher_map
        self._public_weights = _weights_of_public_model(public, len(names))
        student = run.method.student
        if student is None:
            self.student_ = outcome.student
            if len(np.unique(found.labels.labels)) == 1:
                warn(_ONE_CLASS, OneClassWarning)
        else:
            labels = np.full(len(public.student_rows), ABSTAIN, dtype=np.int64)
            labels[outcome.queries] = outcome.labels
            # Labels of noisy sums follow from the class weights already.
            if public.weights is not None and not found.facts.of_sums:
                self.class_weight_ = public.weights.of_labels(labels, names)
                weights = {str(weight_parameter(student)): self.class_weight_}
                student = clone_with(student, **weights)
            self.student_ = fit_student(
                student, public.student_rows, labels, names, seed=public.seed
            )
        if public.training.checkpoints is not None:
            discard_checkpoints(public.training.checkpoints)
        return self

    def _warn_of_settings(
        self, run: Resolved, method: Method, budget: Budget, n_people: int, public: Public
    ) -> None:
        """Warn of much noise, and of settings under which ε protects less than it seems; nothing is spent."""
        noise = method.noise
        facts = method.facts(public.n_teachers)
        teachers = facts.teachers
        most_votes = float("inf") if teachers is None else teachers
        if noise is not None and noise > most_votes and not budget.asked.given:
            warn(_MUCH_NOISE.format(noise, teachers), MuchNoiseWarning)
        if public.simulated:
            return
        limit = budget.terms.limit
        delta = budget.asked.delta
        if limit is not None:
            epsilon = limit.epsilon
        else:
            event = method.event(public.sizes)
            epsilon = data_independent.rdp(event).to_epsilon(delta).epsilon
            if strength(epsilon, delta) == "weak":  # a tighter bound takes seconds
                epsilon = data_independent.epsilon(event, delta).epsilon
        case = Case(
            epsilon=epsilon,
            delta=delta,
            entities=n_people or None,
            classes=len(self.target_.names),
            tuned_on=run.once.tuned_on,
            insisted=run.once.insist,
            **facts.for_lint,
        )
        for finding in lint(case):
            reason = finding.reason
            if finding.severity == "danger":
                reason = f"Danger: {reason}"
            warn(reason, PreflightWarning)

    def card(
        self,
        X: object = None,
        y: object = None,
        *,
        feature_names: Collection[str] | None = None,
        statements: dict[str, str] | None = None,
        feature_map: str | None = None,
        people: int | None = None,
        tuned_on: str | None = None,
    ) -> PrivacyCard:
        """Return the privacy card of this fit, from public values only; costs no privacy.

        Parameters
        ----------
        X, y : array of shape (rows, features) or rows with named columns, array of shape (rows,) or str, optional
            Public rows with labels, or numbers, which score the student: best rows that were not queries. They must
            not be private rows.
        feature_names : collection of str, optional
            Names of the columns. Default: those of the frame that was fitted, or the column numbers.
        statements : dict of str to str, optional
            Statements of the people behind the data, by the topics of docs/card.md:
            ``{"private_data": "Admissions of 2019 to 2023"}``.
        feature_map : str, optional
            Description of the feature map, with the rows that it was learned from. Default: its name.
        people : int, optional
            About how many people there are, if that is public and the fit does not know it. The card objects to a δ
            that is too large for them.
        tuned_on : {"nothing", "public", "private"}, optional
            The data by which settings were chosen. The card objects to private ones. Default: as told to `prepare`.

        Returns
        -------
        PrivacyCard
            The card; notebooks show its first lines, and its `save` writes it whole.
        """
        check_is_fitted(self)
        if (X is None) != (y is None):
            raise InvalidParameterError(
                f"{self._owner}.card.X",
                "come with $y, because both are needed to score the student",
            )
        judged = Judged()
        if y is not None:
            judged = self._judge(*rows_and_labels(X, y))
        if isinstance(self.report_, Measured):
            judged = structs.replace(judged, on_people=self.report_)
        elif self.report_ is not None:
            judged = structs.replace(judged, errors_on_people=self.report_)
        return card_of_model(
            self,
            judged,
            statements or {},
            feature_names,
            feature_map=feature_map,
            people=people,
            tuned_on=tuned_on or self.tuned_on_,
        )

    def save(self, folder: str | PathLike[str], card: PrivacyCard | None = None) -> Path:
        """Write what may be published of this fit as one folder, and return the folder.

        Its files are ``student.skops``, the student behind its feature map; ``labels.csv``, the released labels by the
        number of the public row; ``card.json``, ``card.md`` and ``card.html``; and ``manifest.json`` with the hashes of
        the others. `tutelage.students.load_student` takes the folder. The folder appears whole, or replaces earlier
        results in one step. If the fit had the file of a ledger, the ledger then names the manifest.

        Parameters
        ----------
        folder : path-like
            Destination. It must not exist, be empty, or hold earlier results and nothing else.
        card : PrivacyCard, optional
            Default: that of `card()`.

        Raises
        ------
        ConfigError
            If a file is there that earlier results do not account for, if the ledger is in the folder, or if another
            process is writing the folder. Nothing is written then.
        """
        check_is_fitted(self)
        folder = user_path(folder, f"{self._owner}.save.folder")
        ledger: Ledger | None = getattr(self, "open_ledger_", None)
        file = None
        record = None
        if ledger is not None and ledger.path is not None:
            file = ledger.path
            record = ledger.register.publish
        claiming = claimed_folder(folder, RESULTS, "name another `folder`", ledger=file)
        with on_one_day(self.day_), claiming as claim:
            card = card or self.card()
            with publish_folder(claim, card.budget.head, record) as part:
                write_results(part, self, card, self.whole_student())
        return folder

    def whole_student(self) -> Any:
        """Return the student behind its feature map, which takes rows as `fit` did; it may be published.

        A student that was fitted on columns with names finds these by name, in frames of any library and in any order,
        and refuses rows in which one is missing.

        Returns
        -------
        scikit-learn classifier or pipeline
            For `export_onnx` of `tutelage.students`, and for predictions without this object.
        """
        check_is_fitted(self)
        parts: list[Any] = [self.columns_, self.student_map_, self.student_]
        steps = [part for part in parts if part is not None]
        if len(steps) == 1:
            return steps[0]
        for place, step in enumerate(steps):
            if hasattr(step, "set_output") and not is_classifier(step):
                # A copy that gives arrays whatever scikit-learn's `set_output` says: so the student was fitted.
                steps[place] = deepcopy(step).set_output(transform="default")
        return make_pipeline(*steps)

    def __getstate__(self) -> Entries:
        """Leave votes and ledger behind, so that a stored or copied model holds public values only."""
        state: Any = super().__getstate__()
        hidden = {*self._private, "open_ledger_", "_ledger"}
        return {name: value for name, value in state.items() if name not in hidden}

    def _budget(self, taken: Taken) -> Budget:
        """Return the budget that this fit spends from."""
        run = taken.run
        people = taken.people
        public = [taken.public]
        if taken.labels is not None:
            public.append(taken.labels)
        tiers: Mapping[str, float] = {} if taken.tiers is None else taken.tiers.epsilons
        question = self._question_identity(run, people.unit.name, *public, tiers=tiers)
        release = run.once.release
        identity = question
        if release is not None:
            identity = canonical([question, "release", release])
        return Budget(
            ledger=self._ledger,
            asked=self._asked(run, self._delta),
            digest=cache(people.digest),
            people=cache(people.ids),
            unit=people.unit,
            data_changed=run.once.data_changed,
            identity=identity,
            release_name=release,
            question=question,
            tiers=tiers,
            method=run.method,
        )

    def _question_identity(
        self,
        run: Resolved,
        unit: str,
        *public: Array,
        tiers: Mapping[str, float],
    ) -> str:
        """Return the digest of everything declared for a release except its name, and of the public rows given."""
        target = self.target_
        schema = run.schema
        # Whether the method keeps a feature map of trained teachers by which it was planned.
        planned = run.trains and self.features is None and run.teacher_map is not None
        # If a teacher cannot be serialized, the identity is random, so no other release is taken for this one.
        with suppress(Exception):
            epsilon = None if self.epsilon is None else float(self.epsilon)
            columns = run.columns if schema is None else schema
            # `canonical` sorts the keys of a mapping, so the order of columns is added.
            names = None if schema is None else schema.names
            whole: list[Any] = [
                [epsilon, self.releases, unit, self.random_state],
                [target.names, target.origin, target.question],
                [columns, self.features, planned],
                names,
                run.method,
                run.noise.simulated,
                data_digest(*public).hex(),
            ]
            if tiers:
                whole.append(dict(tiers))
            if run.once.holdout:
                # Others then teach. A report changes no sum of the student, so it may be asked for later.
                whole.append({"holdout": float(run.once.holdout)})
            return hashlib.sha256(canonical(plain_settings(whole)).encode()).hexdigest()
        return secrets.token_hex(32)


def _weights_of_public_model(public: Public, n_classes: int) -> FloatArray:
    """Return how much classes count in predictions by public labels alone."""
    if public.weights is None or public.labels is None:
        return np.ones(n_classes)
    shares = chances_of(public.teacher_rows[:, -public.n_scores :]).mean(axis=0)
    return public.weights.of(shares)


def _report_of(found: Released, method: Method, public: Public) -> Measured | MeasuredErrors | None:
    """Return what the test report of a release says, with how far its optimism may go."""
    if found.outcome.report is None:
        if public.report is not None:
            warn(_NO_ROOM_FOR_REPORT, PreflightWarning)
        return None
    measured = found.outcome.report.quality()
    if public.holdout:
        return structs.replace(measured, holdout=public.holdout)
    if public.simulated:  # which guarantees nothing
        return measured
    pairs = pairs_within(found.ledger.limit)
    if found.epsilon != found.state.guarantee():  # the release is alone
        pairs = pairs_of(method.event(public.sizes))
    return measured.with_optimism(partial(most_on_others, pairs=pairs))
