"""Choosing a proposal by public votes alone, so that nothing about it depends on the private ones."""

from collections.abc import Callable
from math import ceil, exp, log

import numpy as np
from scipy import optimize

from tutelage._validation import integer_at_least, number_between, probability
from tutelage.accounting import data_independent
from tutelage.accounting.accountant import Accountant
from tutelage.accounting.release.proposal import Proposal, best_chances
from tutelage.events import Composed, Repeated
from tutelage.exceptions import NothingToGainError, UnsupportedEventError

_LEVELS = 96  # changed teachers looked at; a test is over long before
_ORDERS = (0.5, 200.0)  # least and largest λ − 1
_CERTAINLY_FOLLOWED = 0.0  # log(λ − 1) up to which a refusal is about the event and not the order
_NONE = 1e6  # in place of an ε that there is not
_EVALUATIONS = 14  # of an order; ε within 0.1 % of the best


def propose(
    proxy: Accountant, delta: float, *, queries: int | None = None, margin: float = 2.0, refusal: float = 0.05
) -> Proposal:
    """Return the smallest ε that votes like the public ones would bear, with the test that private votes must pass.

    To be fixed before the first label is released.

    Parameters
    ----------
    proxy : Accountant
        The planned releases, added with *public* votes in place of the private ones: from teachers trained on public
        data, or made up. What is proposed reveals them.
    delta : float
        δ of the whole claim, in (0, 1).
    queries : int, optional
        Planned queries, where they are not as many as were added to `proxy`: its costs are scaled to them.
    margin : float
        How many times the cost of the public votes is allowed, ≥ 1; more makes a refusal less likely and ε larger.
    refusal : float
        Chance, in (0, 0.5], that the test refuses although the cost is as allowed; less makes ε larger.

    Returns
    -------
    Proposal
        Its `epsilon` is what will be published if the private votes pass.

    Raises
    ------
    NothingToGainError
        If no ε below the data-independent one can be proposed.
    UnsupportedEventError
        If the costs of something released cannot be bounded around the votes.
    """
    probability(delta, "delta", "propose")
    number_between(margin, 1, 1e6, "margin", "propose")
    number_between(refusal, 1e-6, 0.5, "refusal", "propose")
    planned = proxy.charged()
    asked = max(part.times for part in planned.flatten())
    if queries is not None:
        share = integer_at_least(queries, 1, "queries", "propose") / asked
        parts = [Repeated(part.event, ceil(share * part.times)) for part in planned.flatten()]
        planned, margin = Composed(tuple(parts)), margin * share
    published = data_independent.epsilon(planned, delta)
    tried: dict[float, tuple[float, list[float], list[int]]] = {}

    def epsilon_at(log_offset: float) -> float:
        order = 1 + exp(log_offset)
        try:
            caps = margin * proxy.reach(order, _LEVELS).reveal()
        except UnsupportedEventError:
            if log_offset <= _CERTAINLY_FOLLOWED:
                raise
            return _NONE  # so large an order is not followed for this noise
        epsilon, chances = best_chances(caps, order, delta, refusal)
        tried[order] = (epsilon, caps.tolist(), chances)
        return min(epsilon, _NONE)

    _least(epsilon_at)
    order, (epsilon, caps, chances) = min(tried.items(), key=lambda item: item[1][0])
    if epsilon >= published.epsilon:
        raise NothingToGainError(
            f"Votes like these bear no smaller epsilon than the data-independent one, {published}. Publish that one."
        )
    kept = tuple(caps[: len(chances) - 1])
    return Proposal(delta=delta, order=order, caps=kept, chances=tuple(chances), unit=published.unit)


def _least(function: Callable[[float], float]) -> None:
    """Look for the least value of `function` over the logarithms of λ − 1; it keeps what it finds."""
    coarse = np.linspace(log(_ORDERS[0]), log(_ORDERS[1]), 7)
    values = [function(float(at)) for at in coarse]
    best = int(np.argmin(values))
    bounds = float(coarse[max(best - 1, 0)]), float(coarse[min(best + 1, len(coarse) - 1)])
    optimize.minimize_scalar(function, bounds=bounds, method="bounded", options={"maxiter": _EVALUATIONS - 7})
