"""The papers' road to a published ε: their data-dependent cost, noised by its smooth sensitivity, via the ledger."""

from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from tutelage.accounting import Accountant, data_independent
from tutelage.budget import PublicEpsilon
from tutelage.events import Composed, Event
from tutelage.exceptions import InvalidParameterError, LedgerMismatchError
from tutelage.ledger import Ledger
from tutelage.noise import NoiseSource, known_noise
from tutelage.publishing.coverage import accounted_in, all_but, check_covered
from tutelage.publishing.memory import drawn_once, publication_key
from tutelage.publishing.recording import check_recorded
from tutelage.publishing.smooth_plan import CLAIMED, SmoothPlan
from tutelage.publishing.smooth_sensitivity import SmoothCosts, most_sensitive

METHOD = (
    "Theorem 3 of PATE 2017 and Theorem 6 of PATE 2018, noised by their smooth sensitivity; it holds for this outcome, "
    "release included"
)


@final
@dataclass(frozen=True, slots=True)
class SmoothedPublication:
    """What may be published after a cost was noised; all of it is public.

    Parameters
    ----------
    released : int
        The noised cost, in steps of the plan's grid; it may be negative.
    epsilon : PublicEpsilon
        What may be claimed for this outcome, at most what holds for any votes.
    data_independent : PublicEpsilon
        What holds for any votes and any outcome, the release included; always to be shown beside the other.
    """

    released: int
    epsilon: PublicEpsilon
    data_independent: PublicEpsilon


def publish_smoothed(
    released: Accountant,
    ledger: Ledger,
    plan: SmoothPlan,
    queries: npt.ArrayLike,
    *,
    question: str = "",
    noise: NoiseSource | None = None,
) -> SmoothedPublication:
    """Return the ε that may be published of what was released, after noise was added to its data-dependent cost.

    The release is charged to the ledger before noise is drawn, and remembered: the same again is the same at no cost.
    Further publications from the same ledger are releases of their own; each one's ε pays for those before it.

    Parameters
    ----------
    released : Accountant
        What was released, with the private votes: `LabelingSession.accountant`.
        One filled by hand must hold the very counts that noise was added to, or what is published is false.
    ledger : Ledger
        The ledger that paid for it.
    plan : SmoothPlan
        From `plan_smooth_release` on public votes, recorded in the ledger (`record`) before the labels were asked.
    queries : array of shape (queries, ...)
        The public rows that were asked, in that order: what the publication is remembered by, beside the plan and the
        events. Nothing private may decide whether a publication is remembered.
    question : str, optional
        What was voted on, as in `LabelingSession`.
    noise : NoiseSource, optional
        `SystemNoise()` by default.

    Raises
    ------
    InvalidParameterError
        If the plan is for fewer releases than there were. Nothing was spent or drawn.
    BudgetExceededError
        If the budget has no room for the release. Nothing was spent or drawn.
    LedgerMismatchError
        If votes, plan and ledger are not about the same unit of privacy; if what was released is not what the ledger
        paid for, also where the release is remembered and labels were released since; if the ledger does not hold the
        plan.
    UnsupportedEventError
        If the papers have no bound for something released, or no budget like this one could pay for the release.
    InvalidDataError
        If something was added to the accountant without votes, or `queries` is empty.
    """
    noise = known_noise(noise, "publish_smoothed")
    labels = released.charged()
    if {part.event.unit for part in labels.flatten()} != {plan.unit}:
        raise LedgerMismatchError("The plan and what was released have different units of privacy. Plan again.")
    _check_covered(released, plan)
    event = plan.event(simulated=noise.simulated or labels.is_simulated or ledger.state().simulated)
    about = {"plan": plan.as_dict(), "event": event.as_dict(), "released": labels.as_dict(), "question": question}
    query = publication_key(ledger, about, queries)
    remembered = ledger.recall([query]).get(query)
    if remembered is None:
        history = ledger.history()
        check_recorded(plan, history)
        check_covered(accounted_in(released), history)
        costs = SmoothCosts(released, plan.order)  # before anything is spent: it may be refused
        remembered = (drawn_once(ledger, event, query, lambda: _noised(costs, plan, noise)),)
    history = ledger.history()  # newer than the release
    check_covered(accounted_in(released), history)
    return _claimed(remembered[0], plan, labels, event, all_but(history.publications, event), ledger.delta)


def _noised(costs: SmoothCosts, plan: SmoothPlan, noise: NoiseSource) -> int:
    """Return the private cost with its margin and noise, on the public grid."""
    deviation = plan.deviation(costs.smooth_sensitivity(plan.smoothness))
    raised = np.ceil((costs.cost() + plan.margin.of(deviation)) / plan.grid)
    return int(raised) + int(noise.discrete_gaussian(deviation / plan.grid, (1,))[0])


def _claimed(
    noised: int, plan: SmoothPlan, labels: Event, event: Event, earlier: tuple[Event, ...], delta: float
) -> SmoothedPublication:
    whole = Composed((labels, event, *earlier))
    independent = data_independent.epsilon(whole, delta)
    before = float(data_independent.rdp(Composed(earlier), np.array([plan.order])).values[0]) if earlier else 0.0
    claims = [
        PublicEpsilon(plan.epsilon(noised, before), delta, plan.unit, METHOD, plan.order, whole.is_simulated, True),
        _otherwise(whole, plan, delta),
    ]
    return SmoothedPublication(noised, min(claims, key=lambda claim: claim.epsilon), independent)


def _otherwise(whole: Event, plan: SmoothPlan, delta: float) -> PublicEpsilon:
    """Return what is claimed where the noised cost comes out larger than what holds for any votes."""
    found = data_independent.epsilon(whole, (1 - CLAIMED) * plan.delta)
    method = f"{found.method}; a noised cost was drawn and came out larger"
    return PublicEpsilon(found.epsilon, delta, plan.unit, method, found.order, whole.is_simulated)


def _check_covered(released: Accountant, plan: SmoothPlan) -> None:
    if most_sensitive(released, plan.order) > plan.most * (1 + 1e-9):
        raise InvalidParameterError(
            "`plan` was made for fewer or other releases than there were, so that its noise might be too little. "
            "Publish the data-independent epsilon; next time, plan for the most that may be released."
        )
