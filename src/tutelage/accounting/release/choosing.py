"""Which road to a published ε to take: decided by public votes, before anyone sees the private ones."""

from functools import partial
from math import ceil

from tutelage.accounting.accountant import Accountant
from tutelage.accounting.release.proposal import Proposal
from tutelage.accounting.release.proposing import propose
from tutelage.accounting.release.smooth_plan import SmoothPlan, plan_smooth_release
from tutelage.accounting.release.smooth_sensitivity import SmoothCosts
from tutelage.exceptions import NothingToGainError, UnsupportedEventError

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


def _tested(proxy: Accountant, delta: float) -> tuple[float, Road]:
    proposal = propose(proxy, delta)
    return proposal.epsilon, proposal


def _noised(proxy: Accountant, delta: float, ledger_order: float | None) -> tuple[float, Road]:
    """Return the plan with the ε that it would publish of the public votes, were the noise zero."""
    plan = plan_smooth_release(proxy, delta, ledger_order=ledger_order)
    costs = SmoothCosts(proxy, plan.order)
    raised = costs.cost() + plan.margin.of(plan.deviation(costs.smooth_sensitivity(plan.smoothness)))
    return plan.epsilon(ceil(raised / plan.grid)), plan
