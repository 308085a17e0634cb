"""Publish an ε that rests on the votes: tested or noised, as chosen on public votes before anyone saw these."""

from dataclasses import dataclass, replace
from math import ceil
from typing import NamedTuple, final

import numpy as np
import numpy.typing as npt

from tutelage._internal.days import on_one_day
from tutelage.accounting import Accountant, data_independent
from tutelage.events import Composed, Event
from tutelage.exceptions import InvalidParameterError, LedgerMismatchError, NothingToGainError, UnsupportedEventError
from tutelage.ledger import Ledger
from tutelage.ledger.history import Published
from tutelage.noise import NoiseSource, known_noise
from tutelage.privacy import PublicEpsilon
from tutelage.publishing.cost_envelope import reach_of
from tutelage.publishing.proposal import REFUSED, Proposal, propose
from tutelage.publishing.recording import (
    accounted_in,
    all_but,
    check_covered,
    check_recorded,
    drawn_once,
    publication_key,
)
from tutelage.publishing.smooth_plan import CLAIMED, SmoothPlan, plan_smooth_release
from tutelage.publishing.smooth_sensitivity import SmoothCosts, most_sensitive

Road = Proposal | SmoothPlan
_TESTED_METHOD = (
    "exact Rényi cost within a cap that was fixed in advance, borne out by a private test that passed; it holds for "
    "this outcome, test included"
)
_NOISED_METHOD = (
    "Theorem 3 of PATE 2017 and Theorem 6 of PATE 2018, noised by their smooth sensitivity; it holds for this outcome, "
    "release included"
)


@final
@dataclass(frozen=True, slots=True)
class Publication:
    """Publishable result of a test; all of it is public.

    Parameters
    ----------
    passed : bool
        Whether the test passed.
    epsilon : PublicEpsilon
        The claim for this outcome: the proposed ε if the test passed, otherwise the worst-case ε.
    data_independent : PublicEpsilon
        The worst-case ε for both outcomes, test included; always publish it with the other.
    """

    passed: bool
    epsilon: PublicEpsilon
    data_independent: PublicEpsilon


@final
@dataclass(frozen=True, slots=True)
class SmoothedPublication:
    """Publishable result of a noised cost; all of it is public.

    Parameters
    ----------
    released : int
        The noised cost, in steps of the plan's grid; it may be negative.
    epsilon, data_independent : PublicEpsilon
        As for `Publication`.
    """

    released: int
    epsilon: PublicEpsilon
    data_independent: PublicEpsilon


@on_one_day()
def publish_epsilon(
    released: Accountant,
    ledger: Ledger,
    proposal: Proposal,
    queries: npt.ArrayLike,
    *,
    question: str = "",
    noise: NoiseSource | None = None,
) -> Publication:
    """Return a publishable ε of all releases from a ledger, after the test that the proposal describes.

    The test is spent from the ledger before it is drawn, and remembered: repeating it is the same at no cost. Further
    proposals are further tests: each ε covers the ones before it, and their δ share the ledger's, at which all are
    claimed. The claim after a failed test holds if the number of queries was fixed, or limited, in advance.

    Parameters
    ----------
    released : Accountant
        The release, with the private votes behind it: `LabelingSession.accountant` or `.released`.
        One filled manually must hold the very counts that noise was added to, or what is published is false.
    ledger : Ledger
        The ledger that it was spent from.
    proposal : Proposal
        From `propose` on public votes, recorded in the ledger (`record`) before the first label was released.
    queries : array of shape (queries, ...)
        The queries, in the order asked: the test is remembered by them, beside the proposal and the
        events. Nothing private may decide whether a test is remembered.
    question : str, optional
        What was voted on, as in `LabelingSession`.
    noise : NoiseSource, optional
        `SystemNoise()` by default.

    Raises
    ------
    BudgetExceededError, PublicationsExhaustedError
        If the budget has no room for the test, or the ledger's δ none for that of the proposal beside those of earlier
        publications. Nothing was spent or drawn.
    InvalidDataError
        If something was added to the accountant without votes, or `queries` is empty.
    LedgerMismatchError
        If the releases differ from those of the ledger, also if the test is remembered and labels were released
        since; if the ledger does not hold the proposal, or it protects another unit.
    UnsupportedEventError
        If the costs of something released cannot be bounded around the votes.
    """
    noise = known_noise(noise, "publish_epsilon")
    asked = _asked(released, ledger, proposal, queries, question, simulated=noise.simulated)
    passed = _recalled(asked, ledger)
    if passed is None:
        _check_chargeable(proposal, released, ledger)
        reach = reach_of(released, proposal.order, len(proposal.caps))  # before anything is spent: it may be refused
        chance = proposal.chances[min(proposal.shortfall(reach.reveal()), len(proposal.caps))]
        passed = drawn_once(ledger, asked.event, asked.query, lambda: int(noise.happens(chance)))
    return publication_of(
        proposal, bool(passed), asked.labels, asked.event, _earlier(asked, released, ledger), ledger.delta
    )


def recalled_publication(
    released: Accountant, ledger: Ledger, proposal: Proposal, queries: npt.ArrayLike, *, question: str = ""
) -> Publication | None:
    """Return what this very test came to if it was drawn before; its votes are counted and not looked at.

    Parameters
    ----------
    released, ledger, proposal, queries, question
        As for `publish_epsilon`.
    """
    asked = _asked(released, ledger, proposal, queries, question, simulated=False)
    passed = _recalled(asked, ledger)
    if passed is None:
        return None
    return publication_of(
        proposal, bool(passed), asked.labels, asked.event, _earlier(asked, released, ledger), ledger.delta
    )


class _Asked(NamedTuple):
    """The releases, the event of the publication and the key that it is remembered by; all public."""

    labels: Composed
    event: Published
    query: bytes


def _asked(
    released: Accountant, ledger: Ledger, road: Road, queries: npt.ArrayLike, question: str, *, simulated: bool
) -> _Asked:
    labels, kind = released.charged(), "proposal" if isinstance(road, Proposal) else "plan"
    if {part.event.unit for part in labels.flatten()} != {road.unit}:
        raise LedgerMismatchError(f"The {kind} and what was released have different units of privacy. Make a new one.")
    event = road.event(simulated=simulated or labels.is_simulated or ledger.state().simulated)
    about = {kind: road.as_dict(), "event": event.as_dict(), "released": labels.as_dict(), "question": question}
    return _Asked(labels, event, publication_key(ledger, about, queries))


def _recalled(asked: _Asked, ledger: Ledger) -> int | None:
    """Return what a publication came to if it was drawn before."""
    remembered = ledger.recall([asked.query])
    return remembered[asked.query][0] if remembered else None


def _check_chargeable(road: Road, released: Accountant, ledger: Ledger) -> None:
    """Refuse a proposal that was not recorded in advance or does not cover all releases of the ledger."""
    history = ledger.history()
    check_recorded(road, history)
    check_covered(accounted_in(released), history)


def _earlier(asked: _Asked, released: Accountant, ledger: Ledger) -> tuple[Published, ...]:
    """Return the other publications, after checking that a drawn one covers all present releases of the ledger."""
    history = ledger.history()
    check_covered(accounted_in(released), history)
    return all_but(history.publications, asked.event)


def publication_of(
    proposal: Proposal, passed: bool, labels: Event, test: Event, earlier: tuple[Event, ...], delta: float
) -> Publication:
    """Return what may be claimed after a test, at the ledger's δ: that of the proposal is one share of it."""
    whole = Composed((labels, test, *earlier))
    otherwise = data_independent.epsilon(whole, REFUSED * proposal.delta)
    claims = [replace(otherwise, delta=delta, method=f"{otherwise.method}; a smaller one was tested and refused")]
    if passed:
        proposed = proposed_epsilon(proposal, earlier)
        claims = [
            PublicEpsilon(proposed, delta, proposal.unit, _TESTED_METHOD, proposal.order, whole.is_simulated, True),
            replace(otherwise, delta=delta),
        ]
    independent = data_independent.epsilon(whole, delta)
    return Publication(passed, min(claims, key=lambda claim: claim.epsilon), independent)


def proposed_epsilon(proposal: Proposal, earlier: tuple[Event, ...]) -> float:
    """Return the ε of a proposal whose test passed, where these other publications are in the ledger."""
    return proposal.epsilon + _cost_of(earlier, proposal.order)


def _cost_of(earlier: tuple[Event, ...], order: float) -> float:
    return float(data_independent.rdp(Composed(earlier), np.array([order])).values[0]) if earlier else 0.0


@on_one_day()
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

    The release is spent from the ledger before noise is drawn, and remembered: repeating it is the same at no cost.
    Further publications from the same ledger are releases of their own; each ε covers the ones before it.

    Parameters
    ----------
    released, ledger, queries, question, noise
        As for `publish_epsilon`, which also says what is raised.
    plan : SmoothPlan
        From `plan_smooth_release` on public votes, recorded in the ledger (`record`) before the labels were asked.

    Raises
    ------
    InvalidParameterError
        If the plan is for fewer releases than there were. Nothing was spent or drawn.
    UnsupportedEventError
        If the papers have no bound for one of the releases, or this kind of budget does not support it.
    """
    noise = known_noise(noise, "publish_smoothed")
    asked = _asked(released, ledger, plan, queries, question, simulated=noise.simulated)
    if most_sensitive(released, plan.order) > plan.most * (1 + 1e-9):
        raise InvalidParameterError(
            "`plan` was made for fewer or other releases than there were, so that its noise might be too little. "
            "Publish the data-independent epsilon; next time, plan for the most that may be released."
        )
    noised = _recalled(asked, ledger)
    if noised is None:
        _check_chargeable(plan, released, ledger)
        costs = SmoothCosts(released, plan.order)  # before anything is spent: it may be refused
        noised = drawn_once(ledger, asked.event, asked.query, lambda: _noised(costs, plan, noise))
    return _claimed(noised, plan, asked, _earlier(asked, released, ledger), ledger.delta)


def _noised(costs: SmoothCosts, plan: SmoothPlan, noise: NoiseSource) -> int:
    """Return the private cost with its margin and noise, on the public grid."""
    deviation = plan.deviation(costs.smooth_sensitivity(plan.smoothness))
    raised = np.ceil((costs.cost() + plan.margin.of(deviation)) / plan.grid)
    return int(raised) + int(noise.discrete_gaussian(deviation / plan.grid, (1,))[0])


def _claimed(
    noised: int, plan: SmoothPlan, asked: _Asked, earlier: tuple[Event, ...], delta: float
) -> SmoothedPublication:
    whole = Composed((asked.labels, asked.event, *earlier))
    epsilon = plan.epsilon(noised, _cost_of(earlier, plan.order))
    otherwise = data_independent.epsilon(whole, (1 - CLAIMED) * plan.delta)
    method = f"{otherwise.method}; a noised cost was drawn and came out larger"
    claims = [
        PublicEpsilon(epsilon, delta, plan.unit, _NOISED_METHOD, plan.order, whole.is_simulated, True),
        replace(otherwise, delta=delta, method=method),
    ]
    independent = data_independent.epsilon(whole, delta)
    return SmoothedPublication(noised, min(claims, key=lambda claim: claim.epsilon), independent)


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
        To be passed to `tutelage.publishing.publish` after the release. If neither would publish less than the
        data-independent ε, `NothingToGainError` is raised: publish that one.
    """
    found: list[tuple[float, Road]] = []
    refusals: list[NothingToGainError | UnsupportedEventError] = []
    for planned in (_planned_tested, _planned_noised):
        try:
            found.append(planned(proxy, delta, ledger_order))
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
    released, ledger, queries, question, noise
        As for `publish_epsilon`.
    road : Proposal or SmoothPlan
        From `choose_release`, `propose` or `plan_smooth_release` on public votes.
    """
    if isinstance(road, Proposal):
        return publish_epsilon(released, ledger, road, queries, question=question, noise=noise)
    return publish_smoothed(released, ledger, road, queries, question=question, noise=noise)


def _planned_tested(proxy: Accountant, delta: float, _ledger_order: float | None) -> tuple[float, Road]:
    proposal = propose(proxy, delta)
    return proposal.epsilon, proposal


def _planned_noised(proxy: Accountant, delta: float, ledger_order: float | None) -> tuple[float, Road]:
    """Return the plan with the ε that it would publish of the public votes, were the noise zero."""
    plan = plan_smooth_release(proxy, delta, ledger_order=ledger_order)
    costs = SmoothCosts(proxy, plan.order)
    raised = costs.cost() + plan.margin.of(plan.deviation(costs.smooth_sensitivity(plan.smoothness)))
    return plan.epsilon(ceil(raised / plan.grid)), plan
