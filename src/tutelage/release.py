"""A prepared release: everything that is about to be released, checked and with its noise; `release` spends for it."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from threading import Lock
from typing import Any, NamedTuple, final

import numpy as np

from tutelage._internal.fitting import arrays_out
from tutelage._internal.records import by_keywords
from tutelage._internal.releases import on_one_day, today
from tutelage._internal.typing import Matrix, Private
from tutelage._internal.warned import warn
from tutelage.accounting import data_independent
from tutelage.accounting.tiers import guarantee_of_tier
from tutelage.accounting.together import WITHOUT_LEDGER
from tutelage.boundary import Boundary, Filing
from tutelage.budget import Budget
from tutelage.events import TIER_STEPS, Event, Repeated, TierSteps, event_of_tier, tiers_of
from tutelage.exceptions import (
    BudgetContinuedWarning,
    LedgerOvertakenError,
    PreflightError,
    RepeatedFitWarning,
    literal,
)
from tutelage.ledger import Ledger, LedgerState
from tutelage.ledger.beginning import Whom
from tutelage.mechanisms import Release
from tutelage.methods import Method, Public
from tutelage.methods.requests import Facts, Outcome, Prepared, PreparedTiers
from tutelage.noise import NoiseSource
from tutelage.people.blocks import People
from tutelage.people.memory import PeopleInMemory
from tutelage.preflight import TO_INSIST
from tutelage.privacy import ONE_TEACHER, PublicEpsilon, printed_up, round_up
from tutelage.publishing import Proposal
from tutelage.publishing.publication import Publication, publication_after_test

FEW_VOTES_LEFT = (
    "The new queries spend nothing, but people who have cast all their votes abstain, so the labels of these queries "
    "may be mostly noise. To keep votes for later queries, give CappedGNMax a larger `cap`."
)
# People who take part in a release where others cannot, by the standard deviation in ballots.
_FEWEST_PER_NOISE = 10
_LOGGER = logging.getLogger(__name__)


class Once(NamedTuple):
    """Settings of one release alone; public."""

    release: str | None = None  # its name
    data_changed: bool = False  # since the ledger was last used
    insist: bool = False  # continue although rows are refused
    checkpoints: Any = None  # private folder of the ballots of teachers
    proposal: Proposal | None = None  # of a smaller ε, to be tested after the labels
    tuned_on: str | None = None  # the data by which settings were chosen
    report: bool | None = None  # whether the student is tested on the people; None as is usual
    holdout: float = 0.0  # share of the people who only test it


@final
@by_keywords
class Released:
    """The result of a release and its cost; public, except `ledger` and `owner`, which are for the data set owner."""

    outcome: Outcome
    labels: Release  # with the event that was charged now, and its cost
    facts: Facts
    epsilon: PublicEpsilon  # the worst-case guarantee of all that is published
    state: LedgerState  # of the budget, after the release
    day: str
    drawn: int  # number of different answers that are new
    remembered: int  # number of those that were released before
    earlier: tuple[str, ...]  # names of earlier releases of the same question
    n_earlier: int  # number of their answers
    # The worst-case guarantee of the people of each tier, of the same releases as `epsilon`, and the share of a whole
    # ballot that theirs are.
    tiers: Mapping[str, tuple[PublicEpsilon, float]]
    publication: Publication | None = None  # what may be claimed after the test of a proposal
    ledger: Ledger = field(repr=False)
    owner: Mapping[str, Any] = field(repr=False)  # votes, or sums of ballots; private


class _Drawn(NamedTuple):
    """The outcome of a release in its turn, and the budget before and after it."""

    outcome: Outcome
    before: LedgerState
    after: LedgerState
    # All that was ever drawn through the ledger, if all of it was drawn for this release.
    alone: Event | None
    earlier: tuple[str, ...]


class _Progress:
    """How far a prepared release has come."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.boundary: Boundary | None = None
        self.before: int | None = None  # fits without a ledger that were counted before this one
        self.released: Released | None = None
        self.finished: Any = None


@final
@by_keywords
class PreparedRelease(Private):
    """A release that was checked and is not made yet. Nothing was drawn, trained or written for it.

    Attributes
    ----------
    method : Method
        The method, with its noise.
    public : Public
        All that the method may look at.
    people : People
        Those whose rows cast ballots; private.
    budget : Budget
        The terms by which it spends.
    ledger : Ledger
        Where it spends, in memory if no file is named.
    once : Once
        Settings of this release alone.
    """

    method: Method
    public: Public
    people: People
    budget: Budget
    ledger: Ledger
    once: Once
    noise: NoiseSource
    scored: Matrix  # public rows that only score
    doubts: tuple[str, ...]  # about these
    finish: Callable[[Released], Any]  # makes what `release` returns
    _progress: _Progress = field(default_factory=_Progress, init=False)

    def __str__(self) -> str:
        kind = type(self.method).__name__
        return f"{kind} with {self.method.mechanism}: {self.epsilon}, at most {self.cost:.4g} of the budget"

    @property
    def most(self) -> Repeated:
        """The worst-case event of the whole release."""
        return self.budget.worst_case(self.method, self.public.sizes, self.ledger.limit)

    @property
    def tiers(self) -> TierSteps:
        """Names of the tiers of people, with the steps of each; none if people have no tiers."""
        return tiers_of(self.most)

    @property
    def epsilon(self) -> PublicEpsilon:
        """The worst-case guarantee of this release alone."""
        return data_independent.epsilon(self.most, self.ledger.limit.delta)

    @property
    def cost(self) -> float:
        """The most that it takes of the budget, in ε."""
        limit = self.budget.limit_for(self.most)
        return limit.share(limit.cost(self.most))

    @property
    def _whom(self) -> Whom:
        """Whose data the release uses."""
        people: Any = self.people
        left_out = people.left_out if isinstance(people, PeopleInMemory) else ""
        return self.budget.whom(lambda: people.shard_ids, left_out)  # with a name, in memory alone

    def release(self, *, file: Filing | None = None) -> Any:
        """Spend, draw, and return what is made of it: of an estimator's release, the fitted estimator.

        Once it is made, the same object is returned again, at no further cost.

        Parameters
        ----------
        file : function, optional
            Called with the number of an entry of the ledger and its private ballots, before noise is drawn, to store
            them for the data set owner. It is not called where teachers are trained, because these vote again.
        """
        so_far = self._progress
        with so_far.lock, on_one_day(), arrays_out():
            released = so_far.released or self._make(so_far, file)
            if released.publication is None and self.once.proposal is not None:
                released = so_far.released = self._test(self.once.proposal, released)
            if so_far.finished is None:
                so_far.finished = self.finish(released)
        return so_far.finished

    def _make(self, so_far: _Progress, file: Filing | None) -> Released:
        """Spend, draw and release; what came out is kept before anything more can fail."""
        method = self.method
        public = self.public
        day = today()
        _LOGGER.info(
            "Fit started: %s, %d classes, %d public rows.",
            type(method).__name__,
            len(public.classes),
            len(public.rows),
        )
        _LOGGER.info("Noise chosen: %s.", method.mechanism)
        if so_far.boundary is None:
            so_far.boundary = Boundary(
                self.ledger,
                self.noise,
                file=None if method.needs.shards else file,
                tiers=self.tiers,
            )
        boundary = so_far.boundary
        self.budget.check_people(boundary.ledger)  # others may have spent or changed it since
        # The answers of an earlier call, which was interrupted before it stored them.
        boundary.store_late()
        if self.once.release is None:
            boundary.require_room(method, public)
            boundary.prepared = self.prepare_people(self.people)
        if so_far.before is None:
            so_far.before = 0
            if self.budget.ledger is None and not self.noise.simulated:
                event = method.event_of_one(replace(public.sizes, unit=ONE_TEACHER))
                unit = self.budget.unit.name
                so_far.before = WITHOUT_LEDGER.count(event, self.most.count, unit)

        try:
            drawn = self._draw_in_turn(boundary)
        except LedgerOvertakenError:  # before anything was spent
            if self.tiers:  # whose lengths follow from the ledger as it was
                raise
            boundary.ledger = self.budget.ledger_for(method, public.sizes)
            drawn = self._draw_in_turn(boundary)
        released = so_far.released = self._result(boundary, drawn, day)
        if drawn.before.spent > 0 and (self.once.release is None or not released.drawn):
            warn(_sentences_of_continued(drawn.before, released), BudgetContinuedWarning)
        if so_far.before:
            warn(_sentences_of_repeated(so_far.before + 1, released), RepeatedFitWarning)
        return released

    def _test(self, proposal: Proposal, released: Released) -> Released:
        """Return a release with what may be claimed of it after the test of a proposal."""
        whom = replace(self._whom, digest=None)  # the release wrote down whose data they are
        with released.ledger.begin(None, whom) as scope:
            publication = publication_after_test(
                proposal,
                released.labels,
                released.owner["votes_"],
                self.most,
                self.public.rows[released.outcome.queries],
                released.ledger,
                scope.account,
                question=str(self.public.question),
                n_drawn=released.drawn,
                noise=self.noise,
            )
        if released.epsilon == released.state.guarantee():  # which holds the test already
            return replace(released, publication=publication)
        return replace(released, publication=publication, epsilon=publication.data_independent)

    def _draw_in_turn(self, boundary: Boundary) -> _Drawn:
        """Return what is released while no other release goes on through the ledger."""
        ledger = boundary.ledger
        budget = self.budget
        name = self.once.release
        with ledger.begin(budget.intent(self.method.noise, self.most), self._whom) as scope:
            boundary.account = scope.account
            earlier: tuple[str, ...] = ()
            if name is not None:
                self._prepare_those(scope.taking_part, boundary, name)
                # Found in the turn of this release: one that it waited for is an earlier one.
                earlier = ledger.register.earlier_releases(budget.question, name)
            outcome = boundary.run(self.method.steps(replace(self.public, earlier=earlier)))
            # The number of queries may depend on answers. `most` counts all that could have been asked.
            ended = scope.end(boundary.reservations, self.most)
        return _Drawn(outcome, scope.before, ended.after, ended.alone, earlier)

    def _prepare_those(self, taking_part: Any, boundary: Boundary, name: str) -> None:
        """Prepare the people who have budget for a release with a name."""
        people: Any = self.people
        is_new = name not in boundary.ledger.register.fitting_by_cohort(self.most)
        if is_new and not self.once.insist:
            fewest = _FEWEST_PER_NOISE * (self.method.noise or 0.0)
            if not taking_part.all() and np.count_nonzero(taking_part) < fewest:
                raise PreflightError(
                    f"Too few people take part in {literal(name)}: the budget of the others is spent, and those who "
                    "are new are hardly more than the noise. Their budget would be spent for nothing. Wait until more "
                    f"people have come, or raise the budget with `tutelage ledger raise`. {TO_INSIST}"
                )
        boundary.require_room(self.method, self.public)
        boundary.prepared = self.prepare_people(people.only(taking_part))

    def prepare_people(self, people: Any) -> Prepared:
        """Return who casts the ballots of these people, where they have tiers, each tier for itself; private."""
        tiers = self.tiers
        if not tiers:
            return self.method.prepare(self.public, people)
        parts = [
            self.method.prepare(self.public, people.in_tier(number)) for number in range(len(tiers))
        ]
        return PreparedTiers(parts, tiers)

    def _guarantees_of_tiers(self, *, is_alone: bool) -> dict[str, tuple[PublicEpsilon, float]]:
        """Return ε and length of ballots of each tier; ε of this release if it `is_alone`, or else of the ledger."""
        found = dict[str, tuple[PublicEpsilon, float]]()
        for name, steps in self.tiers:
            if is_alone:
                most = event_of_tier(self.most, name)
                epsilon = data_independent.epsilon(most, self.ledger.limit.delta)
            else:
                epsilon = guarantee_of_tier(
                    self.ledger.state().guarantee(), self.ledger.limit, steps
                )
            found[name] = epsilon, steps / TIER_STEPS
        return found

    def _result(self, boundary: Boundary, drawn: _Drawn, day: str) -> Released:
        outcome = drawn.outcome
        state = drawn.after
        event = boundary.event
        epsilon = state.guarantee()
        by_itself = data_independent.epsilon(self.most, state.delta)
        # Rows may have been chosen by earlier answers: then these labels have no guarantee apart from them.
        if drawn.alone is not None:
            # The noise of a release that was interrupted or repeated was drawn before, in part or all of it.
            if drawn.before.spent != 0:
                event = drawn.alone
            if by_itself.epsilon <= state.budget:
                epsilon = by_itself

        facts = self.method.facts(outcome.n_teachers, len(outcome.rounds))
        n_drawn = boundary.n_drawn
        n_remembered = boundary.n_remembered
        if facts.of_sums and len(outcome.labels):  # all rows are labeled by what was released
            n_drawn = len(outcome.labels) if boundary.cost else 0
            n_remembered = len(outcome.labels) - n_drawn
        return Released(
            outcome=outcome,
            labels=Release(outcome.labels, event, boundary.cost),
            facts=facts,
            epsilon=epsilon,
            state=state,
            day=day,
            drawn=n_drawn,
            remembered=n_remembered,
            earlier=drawn.earlier,
            tiers=self._guarantees_of_tiers(is_alone=epsilon == by_itself),
            n_earlier=boundary.n_earlier,
            ledger=boundary.ledger,
            owner=boundary.prepared.private_attributes(outcome, boundary.noised),
        )


def _sentences_of_continued(before: LedgerState, released: Released) -> str:
    """Return the warning of a release that continues a budget; `before` is the budget before the release."""
    after = released.state
    cost = released.labels.cost
    text = (
        f"This fit continues a budget of ε = {_upward(after.budget)} at δ = {printed_up(after.delta)}: "
        f"{_upward(before.spent)} was spent before it, {_upward(cost)} by it, and "
        f"{-round_up(-after.remaining) + 0.0:.12g} remains."
    )
    if released.remembered and released.facts.of_sums:
        text += (
            " The sums were released before. This fit returned them at no cost, and did not use its private rows "
            "or labels. For another label column pass another `question`."
        )
    elif released.remembered:
        which = f"{released.remembered:,} of its queries" if released.drawn else "All its queries"
        text += (
            f" {which} were answered before: they keep their labels, at no cost, and the private rows of this fit "
            "did not vote on them. For labels from these rows, ask about other public rows, or another `question`."
        )
    if released.drawn and cost == 0:
        text += f" {FEW_VOTES_LEFT}"
    return text


def _sentences_of_repeated(number: int, released: Released) -> str:
    """Return the warning of a fit without a ledger; `number` counts those of this process."""
    delta = released.state.delta
    unit, together = WITHOUT_LEDGER.total(delta)
    return (
        f"This is fit {number} without a ledger in this process. If all of them used the same people, together they "
        f"guarantee one {unit} ε = {_upward(together)} at δ = {printed_up(delta)}, and not the "
        f"{_upward(released.epsilon.epsilon)} of this fit alone. Give the fits one `ledger`, which limits what they "
        "spend, or choose settings on public data (docs/pitfalls.md)."
    )


def _upward(epsilon: float) -> str:
    return f"{round_up(epsilon):.12g}"
