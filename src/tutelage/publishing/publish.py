"""Either road to a published ε: choose one on public votes, before anyone sees the private ones, then publish by it."""

from functools import partial
from math import ceil

import numpy.typing as npt

from tutelage.accounting import Accountant
from tutelage.exceptions import NothingToGainError, UnsupportedEventError
from tutelage.ledger import Ledger
from tutelage.noise import NoiseSource
from tutelage.publishing.proposal import Proposal, propose
from tutelage.publishing.smooth_plan import SmoothPlan, plan_smooth_release
from tutelage.publishing.smooth_sensitivity import SmoothCosts
from tutelage.publishing.smoothed import SmoothedPublication, publish_smoothed
from tutelage.publishing.tested import Publication, publish_epsilon

Road = Proposal | SmoothPlan


def choose_release(proxy: Accountant, delta: float, *, ledger_order: float | None = None) -> Road:
    """Return the plan that would publish the smaller ε for votes like the public ones: tested, or noised.

    Parameters
    ----------
    proxy : Accountant
        The planned releases, added with *public* votes in place of the private ones.
    delta : float
        δ of the whole claim, in (0, 1).
    ledger_order : float, optional
        Rényi order of the ledger that will pay, `LedgerState.order`.

    Returns
    -------
    Proposal or SmoothPlan
        To be passed to `tutelage.publishing.publish` after the release.

    Raises
    ------
    NothingToGainError
        If neither would publish less than the data-independent ε: publish that one.
    UnsupportedEventError
        If neither knows a bound for something that is planned.
    """
    found: list[tuple[float, Road]] = []
    refusals: list[NothingToGainError | UnsupportedEventError] = []
    for road in (_tested, partial(_noised, ledger_order=ledger_order)):
        try:
            found.append(road(proxy, delta))
        except (NothingToGainError, UnsupportedEventError) as refusal:
            refusals.append(refusal)
    if not found:
        raise refusals[0]
    return min(found, key=lambda candidate: candidate[0])[1]


def publish(
    released: Accountant,
    ledger: Ledger,
    road: Road,
    queries: npt.ArrayLike,
    *,
    question: str = "",
    noise: NoiseSource | None = None,
) -> Publication | SmoothedPublication:
    """Return the ε that may be published of what was released, by the road that was chosen in advance.

    Parameters
    ----------
    released : Accountant
        What was released, with the private votes behind it.
    ledger : Ledger
        The ledger that paid for it, and pays for this.
    road : Proposal or SmoothPlan
        From `choose_release`, `propose` or `plan_smooth_release` on public votes.
    queries : array of shape (queries, ...)
        The public rows that were asked, in that order.
    question : str, optional
        What was voted on, as in `LabelingSession`.
    noise : NoiseSource, optional
        `SystemNoise()` by default.

    Raises
    ------
    TutelageError
        What `publish_epsilon` and `publish_smoothed` raise.
    """
    if isinstance(road, Proposal):
        return publish_epsilon(released, ledger, road, queries, question=question, noise=noise)
    return publish_smoothed(released, ledger, road, queries, question=question, noise=noise)


def _tested(proxy: Accountant, delta: float) -> tuple[float, Road]:
    proposal = propose(proxy, delta)
    return proposal.epsilon, proposal


def _noised(proxy: Accountant, delta: float, ledger_order: float | None) -> tuple[float, Road]:
    """Return the plan with the ε that it would publish of the public votes, were the noise zero."""
    plan = plan_smooth_release(proxy, delta, ledger_order=ledger_order)
    costs = SmoothCosts(proxy, plan.order)
    raised = costs.cost() + plan.margin.of(plan.deviation(costs.smooth_sensitivity(plan.smoothness)))
    return plan.epsilon(ceil(raised / plan.grid)), plan
