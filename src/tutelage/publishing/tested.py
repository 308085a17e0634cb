"""The road to a published ε for exact costs: test a proposal against the private votes, once, through the ledger."""

from dataclasses import dataclass, replace
from typing import NamedTuple, final

import numpy as np
import numpy.typing as npt

from tutelage.accounting import Accountant, data_independent
from tutelage.budget import PublicEpsilon
from tutelage.events import Composed, Event, PublicationTest
from tutelage.exceptions import LedgerMismatchError
from tutelage.ledger import Ledger
from tutelage.noise import NoiseSource, known_noise
from tutelage.publishing.cost_envelope import reach_of
from tutelage.publishing.coverage import accounted_in, all_but, check_covered
from tutelage.publishing.memory import drawn_once, publication_key
from tutelage.publishing.proposal import REFUSED, Proposal
from tutelage.publishing.recording import check_recorded

METHOD = (
    "exact Rényi cost within a cap that was fixed in advance, borne out by a private test that passed; it holds for "
    "this outcome, test included"
)


@final
@dataclass(frozen=True, slots=True)
class Publication:
    """What may be published after a test; all of it is public.

    Parameters
    ----------
    passed : bool
        Whether the test passed.
    epsilon : PublicEpsilon
        What may be claimed for this outcome: what was proposed, or else what holds for any votes.
    data_independent : PublicEpsilon
        What holds for any votes and either outcome, the test included; always to be shown beside the other.
    """

    passed: bool
    epsilon: PublicEpsilon
    data_independent: PublicEpsilon


def publish_epsilon(
    released: Accountant,
    ledger: Ledger,
    proposal: Proposal,
    queries: npt.ArrayLike,
    *,
    question: str = "",
    noise: NoiseSource | None = None,
) -> Publication:
    """Return the ε that may be published of all that a ledger paid for, after the test that the proposal describes.

    The test is charged to the ledger before it is drawn, and remembered: the same again is the same at no cost. Further
    proposals are further tests: each one's ε pays for those before it, and their δ share the ledger's, at which all are
    claimed. What is claimed where it does not pass holds if the number of queries was fixed, or limited, in advance.

    Parameters
    ----------
    released : Accountant
        What was released, with the private votes behind it: `LabelingSession.accountant` or `.released`.
        One filled by hand must hold the very counts that noise was added to, or what is published is false.
    ledger : Ledger
        The ledger that paid for it.
    proposal : Proposal
        From `propose` on public votes, recorded in the ledger (`record`) before the first label was released.
    queries : array of shape (queries, ...)
        The public rows that were asked, in that order: what the test is remembered by, beside the proposal and the
        events. Nothing private may decide whether a test is remembered.
    question : str, optional
        What was voted on, as in `LabelingSession`.
    noise : NoiseSource, optional
        `SystemNoise()` by default.

    Raises
    ------
    BudgetExceededError
        If the budget has no room for the test. Nothing was spent or drawn.
    InvalidDataError
        If something was added to the accountant without votes, or `queries` is empty.
    PublicationsExhaustedError
        If the ledger's δ has no room for that of the proposal beside those of earlier publications.
    LedgerMismatchError
        If what was released is not what the ledger paid for, also where the test is remembered and labels were released
        since; if the ledger does not hold the proposal, or it protects another unit.
    UnsupportedEventError
        If the costs of something released cannot be bounded around the votes.
    """
    noise = known_noise(noise, "publish_epsilon")
    asked = _asked(released, ledger, proposal, queries, question, simulated=noise.simulated)
    passed = ledger.recall([asked.query]).get(asked.query)
    if passed is None:
        history = ledger.history()
        check_recorded(proposal, history)
        check_covered(accounted_in(released), history)
        reach = reach_of(released, proposal.order, len(proposal.caps))  # before anything is spent: it may be refused
        chance = proposal.chances[min(proposal.shortfall(reach.reveal()), len(proposal.caps))]
        passed = (drawn_once(ledger, asked.test, asked.query, lambda: int(noise.happens(chance))),)
    return _covering(asked, bool(passed[0]), released, ledger, proposal)


def recalled_publication(
    released: Accountant, ledger: Ledger, proposal: Proposal, queries: npt.ArrayLike, *, question: str = ""
) -> Publication | None:
    """Return what this very test came to if it was drawn before; its votes are counted and not looked at.

    Parameters
    ----------
    released, ledger, proposal, queries, question
        As for `publish_epsilon`.

    Raises
    ------
    LedgerMismatchError
        If the ledger paid for labels that the test was not about.
    """
    asked = _asked(released, ledger, proposal, queries, question, simulated=False)
    passed = ledger.recall([asked.query]).get(asked.query)
    return None if passed is None else _covering(asked, bool(passed[0]), released, ledger, proposal)


class _Asked(NamedTuple):
    """What was released, the test as it is charged, and what it is remembered by; all of it public."""

    labels: Composed
    test: PublicationTest
    query: bytes


def _asked(
    released: Accountant,
    ledger: Ledger,
    proposal: Proposal,
    queries: npt.ArrayLike,
    question: str,
    *,
    simulated: bool,
) -> _Asked:
    labels = released.charged()
    if {part.event.unit for part in labels.flatten()} != {proposal.unit}:
        raise LedgerMismatchError("The proposal and what was released have different units of privacy. Propose again.")
    test = proposal.event(simulated=simulated or labels.is_simulated or ledger.state().simulated)
    about = {"proposal": proposal.as_dict(), "event": test.as_dict(), "released": labels.as_dict()}
    return _Asked(labels, test, publication_key(ledger, {**about, "question": question}, queries))


def _covering(asked: _Asked, passed: bool, released: Accountant, ledger: Ledger, proposal: Proposal) -> Publication:
    """Return what is claimed of a test that was drawn, once it is found to cover what the ledger paid for by now."""
    history = ledger.history()
    check_covered(accounted_in(released), history)
    earlier = all_but(history.publications, asked.test)
    return publication_of(proposal, passed, asked.labels, asked.test, earlier, ledger.delta)


def publication_of(
    proposal: Proposal, passed: bool, labels: Event, test: PublicationTest, earlier: tuple[Event, ...], delta: float
) -> Publication:
    """Return what may be claimed after a test, at the ledger's δ: that of the proposal is one share of it."""
    whole = Composed((labels, test, *earlier))
    otherwise = data_independent.epsilon(whole, REFUSED * proposal.delta)
    claims = [replace(otherwise, delta=delta, method=f"{otherwise.method}; a smaller one was tested and refused")]
    if passed:
        proposed = proposed_epsilon(proposal, earlier)
        claims = [
            PublicEpsilon(proposed, delta, proposal.unit, METHOD, proposal.order, whole.is_simulated, True),
            replace(otherwise, delta=delta),
        ]
    independent = data_independent.epsilon(whole, delta)
    return Publication(passed, min(claims, key=lambda claim: claim.epsilon), independent)


def proposed_epsilon(proposal: Proposal, earlier: tuple[Event, ...]) -> float:
    """Return the ε of a proposal whose test passed, where these other publications are in the ledger."""
    before = data_independent.rdp(Composed(earlier), np.array([proposal.order])).values[0] if earlier else 0.0
    return proposal.epsilon + float(before)
