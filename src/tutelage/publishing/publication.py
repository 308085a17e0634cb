"""Publish an ε that rests on the votes: proposed on public votes before anyone saw these, then tested once."""

from collections import Counter
from dataclasses import replace
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage._internal.records import frozen
from tutelage._internal.releases import on_one_day
from tutelage._internal.typing import IntArray
from tutelage.accounting import Accountant, data_independent
from tutelage.ballots import Missing, Shortfall, VoteHistogram
from tutelage.boundary import Boundary
from tutelage.digests import row_bytes
from tutelage.events import Composed, Event, PublicationTest, Repeated, count_releases
from tutelage.exceptions import InvalidDataError, LedgerMismatchError
from tutelage.ledger import Ledger
from tutelage.ledger.account import Account
from tutelage.ledger.history import History
from tutelage.mechanisms.base import Release
from tutelage.methods.requests import Request, first_places
from tutelage.noise import NoiseSource, SystemNoise, known_noise
from tutelage.privacy import PublicEpsilon
from tutelage.publishing.cost_envelope import reach_of
from tutelage.publishing.proposal import REFUSED, Proposal
from tutelage.publishing.recording import all_but, check_covered, check_recorded

_TESTED_METHOD = (
    "exact Rényi cost within a cap that was fixed in advance, borne out by a private test that passed; it holds for "
    "this outcome, test included"
)


@final
@frozen
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

    @property
    def smaller(self) -> PublicEpsilon | None:
        """The tested ε, where the test passed and it is below the worst case; None otherwise."""
        is_tested = self.passed and self.epsilon.output_dependent
        if is_tested and self.epsilon < self.data_independent:
            return self.epsilon
        return None


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
    boundary = Boundary(ledger, known_noise(noise, "publish_epsilon"), released)
    return _run_test(boundary, proposal, queries, question)


def _run_test(
    boundary: Boundary, proposal: Proposal, queries: npt.ArrayLike, question: str
) -> Publication:
    """Return what may be claimed of what was released, after the test."""
    released: Accountant = boundary.prepared
    request = _test_request(released, boundary.ledger, proposal, queries, question)

    def check(history: History) -> None:
        check_recorded(proposal, history)
        check_covered(_count_accounted(released), history)

    release = boundary.release(request, check)
    return _publication_now(boundary, request, proposal, passed=bool(release.labels[0]))


def _recalled_publication(
    released: Accountant,
    ledger: Ledger,
    proposal: Proposal,
    queries: npt.ArrayLike,
    *,
    question: str = "",
) -> Publication | None:
    """Return what this very test came to if it was drawn before; its votes are counted and not looked at."""
    boundary = Boundary(ledger, SystemNoise(), released)
    request = _test_request(released, ledger, proposal, queries, question)
    for (label,) in boundary.account.recall(boundary.keys(request)).values():
        return _publication_now(boundary, request, proposal, passed=bool(label))
    return None


@final
@frozen
class _Test:
    """The test of a proposal: the ballot that is asked for, and the mechanism by which it passes."""

    proposal: Proposal
    simulated: bool  # whether the releases are, or anything else of the ledger

    def cast(self, prepared: Accountant, request: Any, _places: IntArray, /) -> Missing:
        """Return how many teachers are missing until the releases cost no more than what was proposed."""
        reach = reach_of(prepared, self.proposal.order, len(self.proposal.caps))
        shortfall = self.proposal.shortfall(reach.reveal())
        return Missing(shortfall, request.form)

    def key(self) -> str:
        """Return the name of the mechanism."""
        return "publication-test:v1"

    def most(self, _form: object, *, simulated: bool) -> PublicationTest:
        """Return what the test is, whether it passes or fails."""
        return self.proposal.event(simulated=simulated or self.simulated)

    def check(self, _missing: Missing, _predictions: object = None, /) -> None:
        """Raise what `release` would refuse: nothing."""

    def release(
        self, missing: Missing, noise: NoiseSource, _predictions: object = None, /
    ) -> Release:
        """Return whether the test passes, by a fresh draw; calling again is another release and costs again."""
        event = self.most(missing.form, simulated=noise.simulated)
        last = len(event.chances) - 1
        passed = noise.happens(event.chances[min(missing.teachers, last)])
        return Release(np.array([int(passed)]), event)


def _test_request(
    released: Accountant, ledger: Ledger, proposal: Proposal, queries: npt.ArrayLike, question: str
) -> Request:
    """Return the request for a test; public."""
    labels = released.event_at_limits()
    rows = np.asarray(queries)
    units = {part.event.unit for part in labels.flatten()}
    if units != {proposal.unit}:
        raise LedgerMismatchError(
            "The proposal and what was released have different units of privacy. Make a new one."
        )
    if rows.ndim == 0 or not len(rows):
        raise InvalidDataError(
            "`queries` of a publication must contain the queries of the release. Got none."
        )
    test: Any = _Test(proposal, labels.is_simulated or ledger.state().simulated)
    about = {"proposal": proposal.as_dict(), "released": labels.as_dict(), "question": question}
    return Request(
        mechanism=test,
        form=Shortfall(proposal.unit, labels),
        subject=about,
        ballot=test,
        rows=rows[np.newaxis],
    )


def _publication_now(
    boundary: Boundary, request: Request, proposal: Proposal, *, passed: bool
) -> Publication:
    """Return what may be claimed, after checking that a drawn test covers all present releases of the ledger."""
    test: Any = boundary.event_of_one(request)
    released: Accountant = boundary.prepared
    ledger = boundary.ledger
    history = ledger.history()
    check_covered(_count_accounted(released), history)
    earlier = all_but(history.publications.values(), test)
    labels = released.event_at_limits()
    return publication_of(proposal, passed, labels, test, earlier, ledger.limit.delta)


def _count_accounted(released: Accountant) -> Counter[Event]:
    """Return how often each kind of answer happened of which an accountant holds the votes."""
    parts = released.parts_with_votes()
    return count_releases(Repeated(event, votes.n_queries) for event, votes, _ in parts)


def publication_of(
    proposal: Proposal,
    passed: bool,
    labels: Event,
    test: Event,
    earlier: tuple[Event, ...],
    delta: float,
) -> Publication:
    """Return what may be claimed after a test, at the ledger's δ: that of the proposal is one share of it."""
    whole = Composed((labels, test, *earlier))
    independent = data_independent.epsilon(whole, delta)
    claim = replace(data_independent.epsilon(whole, REFUSED * proposal.delta), delta=delta)
    if not passed:
        method = f"{claim.method}; a smaller one was tested and refused"
        return Publication(False, replace(claim, method=method), independent)

    tested = PublicEpsilon(
        epsilon=proposed_epsilon(proposal, earlier),
        delta=delta,
        unit=proposal.unit,
        method=_TESTED_METHOD,
        order=proposal.order,
        simulated=whole.is_simulated,
        output_dependent=True,
    )
    if tested <= claim:
        claim = tested
    return Publication(True, claim, independent)


def proposed_epsilon(proposal: Proposal, earlier: tuple[Event, ...]) -> float:
    """Return the ε of a proposal whose test passed, where these other publications are in the ledger."""
    if not earlier:
        return proposal.epsilon
    curve = data_independent.rdp(Composed(earlier), np.array([proposal.order]))
    return proposal.epsilon + float(curve.values[0])


def publication_after_test(
    proposal: Proposal,
    release: Release,
    votes: VoteHistogram,
    most: Repeated,
    rows: npt.ArrayLike,
    ledger: Ledger,
    account: Account,
    *,
    question: str,
    n_drawn: int,
    noise: NoiseSource,
) -> Publication:
    """Return what may be claimed of labels after the test, which `account` pays for; `n_drawn` of them are new."""
    # Equal rows are one query.
    places = sorted(first_places(row_bytes(np.asarray(rows))).values())
    released = Accountant()
    released.add_release(most.event, votes.select(np.array(places)), release.answered[places])
    recalled = _recalled_publication(released, ledger, proposal, rows, question=question)
    if recalled is not None:
        return recalled
    if n_drawn < len(places):
        raise LedgerMismatchError(
            "A proposal must be left out here: an earlier run released these labels."
        )
    boundary = Boundary(ledger, noise, released)
    boundary.account = account
    return _run_test(boundary, proposal, rows, question)
