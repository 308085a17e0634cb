"""The fit that both estimators have: one release of private rows, and the student that learns from it."""

import hashlib
import logging
import secrets
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from tutelage._internal.gate import user_path
from tutelage._internal.releases import RESULTS, claimed_folder, on_one_day, released, today
from tutelage._internal.typing import ABSTAIN
from tutelage.accounting import data_independent
from tutelage.boundary import Boundary, Budget
from tutelage.digests import canonical, data_digest, spelled_out
from tutelage.estimator.inputs import Everybody, Inputs, People, Rows
from tutelage.estimator.parameters import Resolved
from tutelage.estimator.together import WITHOUT_LEDGER
from tutelage.events import Event
from tutelage.exceptions import (
    BudgetContinuedWarning,
    LedgerOvertakenError,
    MuchNoiseWarning,
    OneClassWarning,
    PreflightError,
    PreflightWarning,
    RepeatedFitWarning,
)
from tutelage.features.scored import chances_of
from tutelage.ledger import LedgerState
from tutelage.ledger.ledger import delta_of
from tutelage.mechanisms import Release
from tutelage.methods import Method, Public, Sizes
from tutelage.methods.requests import Facts, Outcome, PrivateRows
from tutelage.methods.shortcuts import DEFAULTS
from tutelage.preflight import few_take_part
from tutelage.privacy import ONE_TEACHER, PrivacyUnit, printed_up, round_up
from tutelage.published import joined, write_results
from tutelage.reporting import PrivacyCard
from tutelage.reporting.lints import lint
from tutelage.reporting.meaning import strength
from tutelage.students import fit_student
from tutelage.students.base import weighing
from tutelage.teachers.checkpoints import discard_checkpoints

_NOT_OF_THE_RELEASE = (
    "ledger", "noise", "n_jobs", "progress", "checkpoints", "data_changed", "insist", "goal", "class_weight", "release",
    "target_range",  # which is in the target
    "budget", "delta",  # of the ledger, which refuses others
)  # fmt: skip
FEW_VOTES_LEFT = (
    "The new queries spend nothing, but people who have cast all their votes abstain, so the labels of these queries "
    "may be mostly noise. To keep votes for later queries, give CappedGNMax a larger `cap`."
)
_ONE_CLASS = (
    "The student gives all public rows one class, because that class is frequent and the noise hides most of the other "
    "information. Its probabilities still rank rows (`predict_proba`). To get other classes too, set "
    "`goal='balanced_accuracy'`, or use more people, a larger `epsilon`, or private classes of similar size."
)
_LOGGER = logging.getLogger(__name__)


class Intended(NamedTuple):
    """A release that a fit is about to make; private."""

    run: Resolved
    method: Method  # with its noise
    budget: Budget
    people: Any
    public: Public

    def __repr__(self) -> str:
        return "Intended(<private rows hidden>)"


class Beginning(NamedTuple):
    """How a fit would begin; public but for the digest of the people."""

    budget: Budget
    method: Method  # without the noise that it finds
    most: Event  # that is released


class Estimator(Inputs):
    """A release of private rows as scikit-learn estimators make it, and what comes out."""

    votes_: Any  # which of these there are follows from the method
    moments_: Any
    public_model_: Any
    class_weight_: Any
    earlier_: tuple[str, ...]
    facts_: Facts

    card: Callable[..., PrivacyCard]
    _private: tuple[str, ...] = ()  # names of attributes that only the owner of the rows may see

    def _released(self, intended: Intended, *, alone: bool) -> Self:
        """Release what is intended and set the student; `alone` says that each row is protected by itself."""
        run, method, _, people, public = intended
        day, names = today(), self.target_.names
        _LOGGER.info(
            "Fit started: %s, %d classes, %d public rows.", type(method).__name__, len(names), len(public.student_rows)
        )
        _LOGGER.info("Noise chosen: %s.", method.mechanism)
        outcome = self._release(intended)
        self.day_ = day
        self.public_model_ = None if public.labels is None else public.teacher_map
        self._public_weights = np.ones(len(names))
        if public.weights is not None and public.labels is not None:
            shares = chances_of(public.teacher_rows[:, -public.n_scores :]).mean(axis=0)
            self._public_weights = public.weights.of(shares)
        self.n_private_rows_ = None
        if alone:
            self.n_private_rows_ = len(people.rows) if isinstance(people, PrivateRows) else people.n_people
        student, seen = run.method.student, public.student_rows
        if student is None:
            self.student_ = outcome.student
            if len(np.unique(self.release_.labels)) == 1:
                warnings.warn(_ONE_CLASS, OneClassWarning, stacklevel=5)
        else:
            labels = np.full(len(seen), ABSTAIN, dtype=np.int64)
            labels[outcome.queries] = outcome.labels
            if public.weights is not None and not self.facts_.of_sums:  # labels by sums follow from weights
                self.class_weight_ = public.weights.of_labels(labels, names)
                student = weighing(student, self.class_weight_)
            self.student_ = fit_student(student, seen, labels, names, seed=public.seed)
        if public.training.checkpoints is not None:
            discard_checkpoints(public.training.checkpoints)
        return self

    @contextmanager
    def _kept_if_refused(self) -> Iterator[None]:
        """Leave a fitted model as it was if another fit of it fails."""
        before = vars(self).copy()
        try:
            yield
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    def intended(self, X: Any, y: Any, **more: Any) -> Intended:
        """Return what `fit` would release, checked and with its noise; nothing is trained, drawn or written.

        Parameters
        ----------
        X, y, **more
            As for `fit`.
        """
        rows = Rows(X, y, **more)
        run, batches = self._resolved_for(rows), rows.batches
        if batches is None:
            received = self._received(run, rows)
            budget = self._budget(received.run, received.everybody, received.people.shards.unit, received.given)
            self._look(received)
            budget.check()  # before anything is learned from public rows
            run, people, public = self._ready(received)
        else:
            run, people, public = self._rows_in_batches(run, rows, batches)
            budget = self._budget(run, people, public.unit, public.given)
            budget.check()
        public = replace(public, release=self.release)
        method = self._with_noise(run.method, budget, public.sizes, public.n_teachers)
        self._warn_of_settings(method, budget, people, public)
        return Intended(run, method, budget, people, public)

    def _warn_of_settings(self, method: Method, budget: Budget, people: Any, public: Public) -> None:
        """Warn the owner of settings under which ε protects less than it seems, before anything is spent."""
        if public.simulated:
            return
        in_memory = isinstance(people, PrivateRows)
        n_people = (len(budget.people()) or len(people.rows)) if in_memory else people.n_people  # each row without ids
        limit, delta = budget.terms.limit, budget.asked.delta
        if limit is not None:
            epsilon = limit.epsilon
        else:
            event = method.event(public.sizes)
            epsilon = data_independent.rdp(event).to_epsilon(delta).epsilon
            if strength(epsilon, delta) == "weak":  # a tighter bound takes seconds
                epsilon = data_independent.epsilon(event, delta).epsilon
        objections = lint(
            epsilon=epsilon,
            delta=delta,
            entities=n_people or None,
            classes=len(self.target_.names),
            tuned_on=self._caller.tuned_on,
            insisted=self.insist,
            **method.facts(public.n_teachers).for_lint,
        )
        for one in objections:
            begins = "Danger: " if one.severity == "danger" else ""
            warnings.warn(f"{begins}{one.reason}", PreflightWarning, stacklevel=6)

    def beginning(self, X: Any, y: Any, *, methods: Collection[Method] = (), **more: Any) -> Beginning:
        """Check, without spending anything, how `fit` would begin, and whether the ledger would accept it.

        It takes a second: nothing is learned, and no ledger written. The method is the first of `methods` by which the
        release, or an earlier one of its question, was begun; otherwise it is that of `fit`.

        Parameters
        ----------
        X, y, **more
            As for `fit`.
        methods : collection of Method
            Other methods, one of which may have been chosen when the release was begun.
        """
        asked = Rows(X, y, **more)
        received = self._received(self._resolved_for(asked), asked)
        run, people, everybody, given = received.run, received.people, received.everybody, received.given
        rows, labels = received.public, received.labels
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the fit says them
                self._look(received)
        except PreflightError:
            self._look(received)  # nothing else will say them
        unit = people.shards.unit

        def begun_by(method: Method) -> tuple[Method, Budget]:
            seen = given if method.start_from(labels) is not None else given[:1]
            by = replace(run, method=copy(self).set_params(method=method)._unchecked().method)
            return method, self._budget(by, everybody, unit, seen)

        by_fit = run.method, self._budget(run, everybody, unit, given)
        method, budget = next((one for one in map(begun_by, methods) if one[1].begun is not None), by_fit)
        budget.check()
        public = self._public(run, rows, (rows, rows), unit, people.n_teachers, method.start_from(labels))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MuchNoiseWarning)  # the fit says it
            asked = self._with_noise(method, budget, public.sizes, people.n_teachers)
        budget.check_beginning(most := asked.event(public.sizes))
        if full := budget.full(most):  # where all may be remembered
            Boundary(full, run.noise).require_room(asked, self._unscored(run, public))
        return Beginning(budget, method, most)

    def check(self, X: Any, y: Any, **more: Any) -> Self:
        """Check parameters, rows and ledger as `fit` does before it spends anything; reads batches once.

        It raises and warns as `fit` does. Nothing is trained or released, and no ledger is written.

        Parameters
        ----------
        X, y, **more
            As for `fit`.
        """
        trial = copy(self)  # a fitted model stays as it is
        if self.ledger is not None and Rows(X, y, **more).batches is None:
            trial.beginning(X, y, **more)
        trial.intended(X, y, **more)
        return self

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
        folder, ledger = user_path(folder, f"{self._owner}.save.folder"), getattr(self, "open_ledger_", None)
        file = None if ledger is None else ledger.path
        claiming = claimed_folder(folder, RESULTS, "name another `folder`", ledger=file)
        with on_one_day(self.day_), claiming as claim:
            card = card or self.card()
            record = None if ledger is None or file is None else ledger.record_release
            with released(claim, card.budget["head"], record) as part:
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
        return joined(self.columns_, self.student_map_, self.student_)

    def __getstate__(self) -> dict[str, Any]:
        """Leave votes and ledger behind, so that a stored or copied model holds public values only."""
        state: Any = super().__getstate__()
        return {name: value for name, value in state.items() if name not in (*self._private, "open_ledger_", "_caller")}

    def _budget(self, run: Resolved, people: Everybody, unit: PrivacyUnit, given: Sequence[Any]) -> Budget:
        """Return the budget that this fit spends from, with the public rows that were given."""
        question = self._question_identity(run, *given)
        return Budget(
            ledger=self._ledger_given,
            asked=self._asked(run.method, delta_of(self.delta, self._ledger_given)),
            digest=people.digest,
            people=people.ids if isinstance(people, People) else tuple,
            unit=unit,
            data_changed=self.data_changed,
            identity=question if self.release is None else canonical([question, "release", self.release]),
            release=self.release,
            question=question,
            method=run.method,
        )

    def _question_identity(self, run: Resolved, *public: Any) -> str:
        """Return what the release is known by but its name: all that is declared for it, and the public rows given."""
        # In whatever words the method was given: shortcuts and the record that they stand for are one release.
        left_out = {*_NOT_OF_THE_RELEASE, *DEFAULTS, "method"}
        declared = {name: one for name, one in self.get_params(deep=False).items() if name not in left_out}
        declared["public"] = run.schema  # which public rows may have proposed
        with suppress(Exception):  # where a teacher cannot be spelled, no other release is known to be the same
            order = None if run.schema is None else run.schema.names  # of which a mapping is spelled without
            given = [declared, order, run.method, self.target_.names, run.noise.simulated, data_digest(*public).hex()]
            return hashlib.sha256(canonical(spelled_out(given)).encode()).hexdigest()
        return secrets.token_hex(32)

    def _with_noise(self, method: Method, budget: Budget, sizes: Sizes, n_teachers: int | None) -> Method:
        """Return the method with its noise: as given, or the least that ε allows."""
        if budget.asked.given:
            return method
        method = method.with_noise(budget.least_noise(lambda noise: method.with_noise(noise).event(sizes)))
        if much := method.noise_warning(n_teachers):
            warnings.warn(much, MuchNoiseWarning, stacklevel=6)
        return method

    def _release(self, intended: Intended) -> Outcome:
        """Spend, draw and release; set what came out and what it cost, and return it."""
        run, method, budget, people, public = intended
        sizes, most = public.sizes, method.event(public.sizes)
        method.check(public)
        boundary = Boundary(budget.opened(method, sizes), run.noise, file=self._caller.file)
        if self.release is None:
            boundary.require_room(method, public)
            boundary.prepared = method.prepare(public, people)
        earlier = 0
        if self.ledger is None and not run.noise.simulated:
            of_one_teacher = method.event_of_one(replace(sizes, unit=ONE_TEACHER))
            earlier = WITHOUT_LEDGER.count(of_one_teacher, most.count, budget.unit.name)

        def drawn() -> tuple[LedgerState, Outcome, Event | None]:
            boundary.ledger.leave_out(getattr(people, "left_out", ""))  # rows in batches leave out none
            with boundary.ledger.releasing():
                boundary.ledger.intend(budget.identity, None if budget.asked.given else method.noise)
                if self.release is not None:
                    is_new = self.release not in boundary.ledger.rooms(most)
                    taking_part = boundary.ledger.admit(self.release, budget.question, people.ids, most)
                    few = few_take_part(taking_part, method.mechanism, self.release) if is_new else None
                    if few is not None and not self.insist:
                        raise PreflightError(f"{few} To continue anyway, {self._caller.words.insist}.")
                    boundary.require_room(method, public)
                    boundary.prepared = method.prepare(public, people.only(taking_part))
                # Found in the turn of this release: one that it waited for is an earlier one.
                self.earlier_ = () if self.release is None else boundary.ledger.earlier(budget.question, self.release)
                asked = method.steps(replace(public, earlier=self.earlier_))
                before, made = boundary.ledger.state(), boundary.run(asked)
                # How many were asked may have followed from answers: `most` is as many as could have been.
                return before, made, boundary.ledger.whole_release(budget.identity, boundary.reservations, most)

        try:
            before, made, alone = drawn()
        except LedgerOvertakenError:  # before anything was spent
            boundary.ledger = budget.opened(method, sizes)
            before, made, alone = drawn()
        boundary.ledger.write_binding()
        self.open_ledger_, self.ledger_ = boundary.ledger, boundary.ledger.state()
        self.queries_, self.rounds_, self.n_teachers_ = made.queries, made.rounds, made.n_teachers
        self.mechanism_, self.n_earlier_ = method.mechanism, boundary.n_earlier
        self.method_ = replace(run.method, mechanism=method.mechanism)  # type: ignore[type-var]
        # `alone` is all that was ever drawn through the ledger, if all of it was drawn for this release, which may have
        # been interrupted or repeated.
        event = boundary.event if alone is None or before.spent == 0 else alone
        self.release_ = Release(made.labels, event, boundary.cost)
        # Rows may have been chosen by earlier answers: then these labels have no guarantee apart from them.
        by_itself = data_independent.epsilon(most, self.ledger_.delta)
        is_alone = alone is not None and by_itself.epsilon <= self.ledger_.budget
        self.epsilon_ = by_itself if is_alone else self.ledger_.guarantee()
        self.drawn_, self.remembered_ = boundary.n_drawn, boundary.n_remembered
        self.facts_ = method.facts(made.n_teachers, made.rounds)
        if self.facts_.of_sums and len(made.labels):  # all rows are labeled by what was released
            self.drawn_ = len(made.labels) if boundary.cost else 0
            self.remembered_ = len(made.labels) - self.drawn_
        for name in (*self._private, "moments_"):
            vars(self).pop(name, None)  # of an earlier fit
        of_owner = boundary.prepared.private_attributes(made, boundary.kept)
        self._private = tuple(of_owner)
        vars(self).update(of_owner)
        if made.sums:
            self.moments_ = made.sums
        self.class_weight_ = made.class_weight
        if before.spent > 0 and (self.release is None or not self.drawn_):
            warnings.warn(self._continued(before), BudgetContinuedWarning, stacklevel=6)
        if earlier:
            delta = self.ledger_.delta
            unit, together = WITHOUT_LEDGER.total(delta)
            warnings.warn(
                f"This is fit {earlier + 1} without a ledger in this process. If all of them used the same people, "
                f"together they guarantee one {unit} ε = {_upward(together)} at δ = {printed_up(delta)}, and not the "
                f"{_upward(self.epsilon_.epsilon)} of this fit alone. Give the fits one `ledger`, which limits what "
                "they spend, or choose settings on public data (docs/pitfalls.md).",
                RepeatedFitWarning,
                stacklevel=6,
            )
        return made

    def _continued(self, before: LedgerState) -> str:
        """Return what a fit says that continues a budget, of which there was so much before."""
        after = self.ledger_
        said = (
            f"This fit continues a budget of ε = {_upward(after.budget)} at δ = {printed_up(after.delta)}: "
            f"{_upward(before.spent)} was spent before it, {_upward(self.release_.cost)} by it, and "
            f"{-round_up(-after.remaining) + 0.0:.12g} remains."
        )
        if self.remembered_ and self.facts_.of_sums:
            said += (
                " The sums were released before. This fit returned them at no cost, and did not use its private rows "
                "or labels. For another label column pass another `question`."
            )
        elif self.remembered_:
            which = f"{self.remembered_:,} of its queries" if self.drawn_ else "All its queries"
            said += (
                f" {which} were answered before: they keep their labels, at no cost, and the private rows of this fit "
                "did not vote on them. For labels from these rows, ask about other public rows, or another `question`."
            )
        return f"{said} {FEW_VOTES_LEFT}" if self.drawn_ and self.release_.cost == 0 else said


def _upward(epsilon: float) -> str:
    return f"{round_up(epsilon):.12g}"
