"""One accountant for a whole labeling run: add what was released, then ask what it cost by any of the analyses."""

from collections.abc import Callable
from typing import NamedTuple, final

import numpy as np
import numpy.typing as npt

from tutelage._internal.typing import FloatArray
from tutelage._internal.validation import integer_at_least, probability
from tutelage.accounting import data_independent, pate_bounds
from tutelage.accounting.exact import ExactCosts
from tutelage.accounting.rdp import (
    DEFAULT_ORDERS,
    Conversion,
    RenyiCurve,
    cks2020,
    classic,
    search_epsilon,
)
from tutelage.ballots import VoteHistogram
from tutelage.events import (
    CappedArgmaxGaussian,
    Check,
    Composed,
    ConfidenceCheck,
    Event,
    InteractiveCheck,
    NoisyArgmaxGaussian,
    NoisyArgmaxLaplace,
    Repeated,
    SummedNoise,
)
from tutelage.exceptions import InvalidDataError, UnsupportedEventError
from tutelage.privacy import PrivateEpsilon, PublicEpsilon

_WITHOUT_VOTES: dict[type[Event], str] = {
    CappedArgmaxGaussian: "Capped votes have no cost that depends on them: the counts do not say how many votes a "
    "teacher has left.",
    SummedNoise: "The votes under noise that several owners summed are unknown, so no vote-dependent cost exists.",
}

# Neighboring orders of simulated runs differ by 13 %: ε within 0.2 % of the best.
_RUN_ORDERS: FloatArray = 1 + np.geomspace(0.2, 1000, 72)


class _Release(NamedTuple):
    event: Event
    times: int
    at_most: int | None
    votes: VoteHistogram | None
    exact: ExactCosts | None
    offsets: FloatArray | None

    @property
    def times_charged(self) -> int:
        """How many releases a cost that may be published charges."""
        if self.at_most is None:
            return self.times
        return self.at_most


@final
class Accountant:
    """Adds up the cost of everything released from one private data set.

    Parameters
    ----------
    progress : bool
        Show a progress bar on exact costs that take more than about a second.

    Examples
    --------
    >>> import numpy as np
    >>> from tutelage import VoteHistogram
    >>> from tutelage.accounting import Accountant
    >>> from tutelage.events import NoisyArgmaxGaussian, Repeated
    >>> votes = VoteHistogram(np.array([[230, 15, 5], [120, 110, 20]]), n_teachers=250)
    >>> accountant = Accountant()
    >>> accountant.add(Repeated(NoisyArgmaxGaussian(40, 3, votes.unit), 2), votes)
    >>> print(accountant.data_independent(1e-5))
    ε = 0.1522 at δ = 1e-05
    >>> accountant.exact(1e-5).reveal() < 0.1522
    True
    """

    def __init__(self, *, progress: bool = False) -> None:
        self._progress = progress
        self._releases: list[_Release] = []

    def add(
        self,
        event: Event,
        votes: VoteHistogram | None = None,
        *,
        offsets: FloatArray | None = None,
        at_most: int | None = None,
    ) -> None:
        """Add one kind of release on a batch of queries, as it happened.

        A confident mechanism is two additions: its check on every query asked, and its answers on the votes of the
        queries that were answered (`votes.select`). How many are answered depends on the votes and on which queries
        are asked next, so what may be published charges as many answers as were allowed for in advance: `at_most`.

        Parameters
        ----------
        event : Event
            One release, or `Repeated` of one.
        votes : VoteHistogram, optional
            Private votes, one row per repetition; needed for costs that depend on them. They must be the very counts
            that noise was added to: nothing here can check it, and costs of other counts can be far too small.
        offsets : array of shape (queries, classes), optional
            For `InteractiveCheck`: the public offsets, in votes.
        at_most : int, optional
            How many releases of this kind had been fixed as the limit before the first one; by default, as many as
            happened.

        Raises
        ------
        InvalidDataError
            If the votes do not fit the event.
        UnsupportedEventError
            If the event is a composition of several kinds: add each with its own votes. If votes are given for noise
            that was summed from shares: its owners know none.
        """
        if isinstance(event, Composed) or len(event.flatten()) != 1:
            raise UnsupportedEventError(
                "A composition has no votes of its own: add each of its events with its votes."
            )
        ((kind, count),) = event.flatten()
        if at_most is not None:
            at_most = integer_at_least(at_most, count, "at_most", "Accountant.add")
        exact = None
        if votes is None and offsets is not None:
            raise InvalidDataError("`offsets` go with `votes`. Pass them together.")
        if votes is not None:
            why = _WITHOUT_VOTES.get(type(kind))
            if why:
                raise UnsupportedEventError(f"{why} Add the event without `votes`.")
            if votes.n_queries != count:
                raise InvalidDataError(
                    f"The event happened {count} times, the votes hold {votes.n_queries} queries."
                )
            exact = ExactCosts(kind, votes, offsets, progress=self._progress)
        self._releases.append(_Release(kind, count, at_most, votes, exact, offsets))

    def add_release(
        self,
        one: Event,
        votes: VoteHistogram,
        answered: npt.NDArray[np.bool_] | None = None,
        offsets: FloatArray | None = None,
    ) -> None:
        """Add what a mechanism released on a batch of queries: its check, if it has one, and its answers.

        Parameters
        ----------
        one : Event
            What one query can be at most: `Mechanism.event_of_one`.
        votes, offsets
            As for `add`, one row per query.
        answered : boolean array of shape (queries,), optional
            Which queries got an answer; by default all did.
        """
        for part in one.flatten():
            if isinstance(part.event, Check):
                is_interactive = isinstance(part.event, InteractiveCheck)
                self.add(
                    Repeated(part.event, votes.n_queries),
                    votes,
                    offsets=offsets if is_interactive else None,
                )
            elif answered is None:
                self.add(Repeated(part.event, votes.n_queries), votes)
            else:
                kept = votes.select(answered)
                self.add(Repeated(part.event, kept.n_queries), kept, at_most=votes.n_queries)

    def data_independent(self, delta: float) -> PublicEpsilon:
        """Return the smallest proved ε that holds for all votes, so that it may be published.

        It holds for numbers of releases that were fixed, or limited by `at_most`, before the first one.
        """
        probability(delta, "delta", "Accountant.data_independent")
        return data_independent.epsilon(self.event_at_limits(), delta)

    def event_at_limits(self) -> Composed:
        """Return everything that was added as one event, with every number that checks decided at its limit.

        If checks decided which queries were answered, a limit on the answers must have been named.
        """
        self._refuse_if_empty()
        answers = [
            release
            for release in self._releases
            if not isinstance(release.event.without_shares(), Check)
        ]
        n_answers = sum(release.times_charged for release in answers)
        n_checks = sum(release.times_charged for release in self._releases) - n_answers
        unlimited = any(release.at_most is None for release in answers)
        if unlimited and n_answers < n_checks:
            raise InvalidDataError(
                "The number of answers depends on private checks, so it was not fixed in advance. Pass the largest "
                "number that was allowed as `at_most`; the number of checks is always safe."
            )
        charged = [Repeated(release.event, release.times_charged) for release in self._releases]
        return Composed(tuple(charged))

    def bound_2017(self, delta: float) -> PrivateEpsilon:
        """Return ε of Laplace answers as PATE 2017 computes it: Theorem 3 and Lemma 4, moments 1..8, its tail bound."""
        probability(delta, "delta", "Accountant.bound_2017")
        orders = pate_bounds.MOMENTS_2017 + 1
        total = np.zeros(len(orders))
        for event, votes, _ in self.parts_with_votes():
            if not isinstance(event, NoisyArgmaxLaplace):
                raise UnsupportedEventError(
                    f"PATE 2017 has no bound for the event {type(event).__name__}."
                )
            total += pate_bounds.total_cost_2017(votes, event.scale)
        best = RenyiCurve(orders, total).to_epsilon(delta, classic)
        return self._private(best, delta, pate_bounds.METHOD_2017)

    def bound_2018(self, delta: float) -> PrivateEpsilon:
        """Return ε as Scalable PATE 2018 computes it: Theorem 6 with Propositions 7 and 10, the classic conversion.

        Laplace answers are accounted by Theorem 3 of 2017, as the paper does.
        """
        probability(delta, "delta", "Accountant.bound_2018")
        total = np.zeros(len(DEFAULT_ORDERS))
        for event, votes, _ in self.parts_with_votes():
            total += pate_bounds.total_cost_2018(event, votes, DEFAULT_ORDERS)
        best = RenyiCurve(DEFAULT_ORDERS, total).to_epsilon(delta, classic)
        method = "PATE 2018 Theorem 6, Propositions 7 and 10, continuous noise, one direction"
        return self._private(best, delta, method)

    def exact(self, delta: float) -> PrivateEpsilon:
        """Return ε from the exact Rényi cost of every release at the votes at hand."""
        probability(delta, "delta", "Accountant.exact")
        method = "exact Rényi divergence over all neighbors, both directions, conversion of CKS 2020 Proposition 12"
        costs = self._exact_costs()

        def total(orders: FloatArray) -> FloatArray:
            return np.sum([part.total(orders) for part in costs], axis=0)

        def estimate(orders: FloatArray) -> FloatArray:
            return np.sum([part.estimate(orders) for part in costs], axis=0)

        best = search_epsilon(total, delta, estimate)
        return self._private(best, delta, method)

    def parts_with_votes(self) -> list[tuple[Event, VoteHistogram, FloatArray | None]]:
        """Return each kind of release with its private votes, which none may lack, and its public offsets."""
        self._exact_costs()
        return [
            (part.event, part.votes, part.offsets)
            for part in self._releases
            if part.votes is not None
        ]

    def _exact_costs(self) -> list[ExactCosts]:
        self._refuse_if_empty()
        costs = [release.exact for release in self._releases if release.exact is not None]
        if len(costs) < len(self._releases):
            raise InvalidDataError(
                "This cost depends on the votes: pass `votes` with every addition to the accountant."
            )
        return costs

    def _refuse_if_empty(self) -> None:
        if not self._releases:
            raise InvalidDataError("The accountant is empty: `add` what was released first.")

    def _private(self, best: tuple[float, float], delta: float, method: str) -> PrivateEpsilon:
        units = {votes.unit for _, votes, _ in self.parts_with_votes()}
        if len(units) != 1:
            raise UnsupportedEventError(
                "Releases with different units of privacy do not add up to one epsilon."
            )
        epsilon, order = best
        return PrivateEpsilon(epsilon, order, delta, units.pop(), method)


class SimulatedRuns(NamedTuple):
    """Costs of simulated runs of a mechanism that may abstain, one private value per run, by three analyses.

    For planning by the data set owner. The number of answers of a real run is public; that of a simulated one reads
    the votes.
    """

    data_independent: list[PrivateEpsilon]
    bound_2018: list[PrivateEpsilon]
    exact: list[PrivateEpsilon]


def confident_runs(
    check: ConfidenceCheck,
    answer: NoisyArgmaxGaussian,
    votes: VoteHistogram,
    delta: float,
    passed: npt.NDArray[np.bool_],
    *,
    progress: bool = False,
) -> SimulatedRuns:
    """Return the costs of asking every query of `votes` once through a check and, where it passes, an answer."""
    probability(delta, "delta", "confident_runs")
    if passed.ndim != 2 or passed.shape[1] != votes.n_queries:
        raise InvalidDataError(
            f"`passed` must have shape (runs, {votes.n_queries}). Got {passed.shape}."
        )

    # passed: (runs, queries); the costs of an event: (queries, orders); totals: (runs, orders)
    def runs_of(
        costs: Callable[[Event], FloatArray], conversion: Conversion, method: str
    ) -> list[PrivateEpsilon]:
        totals = costs(check).sum(axis=0) + passed @ costs(answer)
        how = f"{method}, checks and answers as they happened"
        runs = list[PrivateEpsilon]()
        for total in totals:
            epsilon, order = RenyiCurve(_RUN_ORDERS, total).to_epsilon(delta, conversion)
            runs.append(PrivateEpsilon(epsilon, order, delta, votes.unit, how))
        return runs

    def worst_case(event: Event) -> FloatArray:
        of_each = data_independent.rdp_of_three_outcomes(event, _RUN_ORDERS).values
        return np.tile(of_each, (votes.n_queries, 1))

    def by_theorem_6(event: Event) -> FloatArray:
        return pate_bounds.costs_2018(event, votes, _RUN_ORDERS)

    def exact(event: Event) -> FloatArray:
        return ExactCosts(event, votes, progress=progress).per_query(_RUN_ORDERS)

    return SimulatedRuns(
        data_independent=runs_of(worst_case, cks2020, "data-independent"),
        bound_2018=runs_of(by_theorem_6, classic, "PATE 2018 Theorem 6"),
        exact=runs_of(exact, cks2020, "exact Rényi divergence"),
    )
