"""Costs of simulated runs of a mechanism that may abstain, several runs at once: each check and each answer is paid.

For planning by the data set owner. The number of answers of a real run is public; that of a simulated one reads the
votes, so everything here is private.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tutelage._internal.typing import FloatArray
from tutelage._internal.validation import probability
from tutelage.accounting import data_independent, pate2018
from tutelage.accounting.exact import ExactCosts
from tutelage.accounting.rdp import Conversion, RenyiCurve, cks2020, classic
from tutelage.events import ConfidenceCheck, Event, NoisyArgmaxGaussian
from tutelage.exceptions import InvalidDataError
from tutelage.privacy import PrivateEpsilon
from tutelage.votes import VoteHistogram

_ORDERS: FloatArray = 1 + np.geomspace(0.2, 1000, 72)  # neighboring orders differ by 13 %: ε within 0.2 % of the best


class SimulatedRuns(NamedTuple):
    """One private value per run, by three analyses."""

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
        raise InvalidDataError(f"`passed` must have shape (runs, {votes.n_queries}). Got {passed.shape}.")

    def runs_of(
        check_costs: FloatArray, answer_costs: FloatArray, conversion: Conversion, method: str
    ) -> list[PrivateEpsilon]:
        totals = check_costs.sum(axis=0) + passed @ answer_costs
        found = [RenyiCurve(_ORDERS, total).to_epsilon(delta, conversion) for total in totals]
        return [PrivateEpsilon(epsilon, order, delta, votes.unit, method) for epsilon, order in found]

    def for_every_query(event: Event) -> FloatArray:
        return np.tile(data_independent.rdp_of_three_outcomes(event, _ORDERS).values, (votes.n_queries, 1))

    def exactly(event: Event) -> FloatArray:
        return ExactCosts(event, votes, progress=progress).per_query(_ORDERS)

    def by_2018(event: Event) -> FloatArray:
        return pate2018.costs(event, votes, _ORDERS)

    how = "checks and answers as they happened"
    return SimulatedRuns(
        data_independent=runs_of(for_every_query(check), for_every_query(answer), cks2020, f"data-independent, {how}"),
        bound_2018=runs_of(by_2018(check), by_2018(answer), classic, f"PATE 2018 Theorem 6, {how}"),
        exact=runs_of(exactly(check), exactly(answer), cks2020, f"exact Rényi divergence, {how}"),
    )
