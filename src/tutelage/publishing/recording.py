"""Publications in a ledger: the proposals recorded before the first label, and the releases that each covers."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from tutelage._internal.records import Entries
from tutelage.digests import row_bytes
from tutelage.events import Composed, Event, PublicationTest, Repeated, count_releases
from tutelage.exceptions import LedgerMismatchError, PublicationsExhaustedError
from tutelage.ledger import Ledger
from tutelage.ledger.history import History
from tutelage.publishing.proposal import Proposal


def check_covered(accounted: Counter[Event], history: History) -> None:
    """Refuse an ε that covers fewer or other labels than those released through a ledger."""
    check_complete(accounted, history)
    if accounted - count_releases(
        charge.most for charge in history.batches if charge.settled is not None
    ):
        raise LedgerMismatchError(
            "A published epsilon must cover exactly the labels of its ledger, and this one covers others too. Pass the "
            "ledger they were spent from, or account only for releases through this one."
        )


def check_complete(accounted: Counter[Event], history: History) -> None:
    """Refuse an ε that leaves out an answer of the ledger; `check_covered` without its second half."""
    if history.answer_counts - accounted:
        raise LedgerMismatchError(
            "The publication must cover all labels of the ledger, and some are missing: another session's, or later "
            "ones. An epsilon that was published before them covers only what was released until then. Publish one of "
            "all labels (`LabelingSession.released` accounts for those of earlier sessions), or the worst-case epsilon "
            "of the ledger."
        )


def all_but(
    published: Iterable[PublicationTest], test: PublicationTest
) -> tuple[PublicationTest, ...]:
    """Return publications without one that equals `test`, which is among them."""
    others = list(published)
    others.remove(test)
    return tuple(others)


def check_unit(proposal: Proposal, ledger: Ledger) -> None:
    """Refuse a proposal for another unit of privacy than that of the ledger."""
    if proposal.unit != ledger.unit:
        raise LedgerMismatchError(
            f"The proposal protects one {proposal.unit}, the ledger one {ledger.unit}. Propose again for the unit of "
            "the ledger."
        )


def record(proposal: Proposal, ledger: Ledger) -> None:
    """Record a proposal in the ledger that the labels will be spent from; recording it again changes nothing.

    Parameters
    ----------
    proposal : Proposal
        From `propose` on public votes.
    ledger : Ledger
        Nothing was asked through it yet, or `LateProposalError` is raised.

    Raises
    ------
    PublicationsExhaustedError
        If the ledger's δ has no room for that of the proposal; where proposals of several orders are recorded, for
        those of all of them, drawn or not, since labels may decide which is.
    """
    check_unit(proposal, ledger)
    history = ledger.history()
    entries = proposal.as_dict()
    history.check_share(proposal.delta)
    recorded = history.proposals
    if entries not in recorded:
        recorded = (*recorded, entries)
    _check_orders(recorded, ledger.limit.delta)
    ledger.register.propose(entries)


def check_recorded(proposal: Proposal, history: History) -> None:
    """Refuse a proposal that the ledger does not hold: labels could have shaped it."""
    recorded = history.proposals
    entries = proposal.as_dict()
    if entries not in recorded:
        raise LedgerMismatchError(
            "The ledger does not hold this proposal, and one that was not recorded before the first label may have "
            "been shaped by labels. Record it with `tutelage.publishing.record`, or `tutelage publish propose "
            "--ledger`, before the first label is asked for; publish the worst-case epsilon of these labels."
        )
    up_to_this = recorded[: recorded.index(entries) + 1]
    _check_orders(up_to_this, history.state.delta)
    drawn = {replace(event, simulated=False) for event in history.publications.values()}
    if _has_several_orders(recorded) and proposal.event() in drawn:
        raise PublicationsExhaustedError(
            "The ledger holds proposals of several orders. Each can be tested once, and this one was tested already. "
            "Publish the worst-case epsilon of these labels."
        )


def _check_orders(recorded: tuple[Entries, ...], delta: float) -> None:
    """Refuse proposals of several orders, any of which labels may choose, whose δ add up to more than the ledger's.

    One order has one supermartingale, whichever of its proposals is tested (docs/proofs/release.md, Theorem 3).
    """
    taken = sum(entries["delta"] for entries in recorded)
    if _has_several_orders(recorded) and taken > delta * (1 + 1e-9):
        raise PublicationsExhaustedError(
            f"`delta` of proposals of different orders must add up to at most the δ of the ledger, {delta:g}, because "
            f"labels may decide which is tested. With this one, the sum is {taken:g}. Propose with a smaller `delta`."
        )


def _has_several_orders(recorded: tuple[Entries, ...]) -> bool:
    return len({entries["order"] for entries in recorded}) > 1


def check_testable(proposal: Proposal, most: Repeated, rows: npt.ArrayLike, ledger: Ledger) -> None:
    """Refuse, before anything is spent, a release whose proposal could not be tested.

    `most` is all that the release can be, and `rows` are those that may be asked.
    """
    check_unit(proposal, ledger)
    history = ledger.history()
    if history.state.spent == 0:
        check_recorded(proposal, history)
        history.check_share(proposal.delta)
        ledger.account.require_room(Composed((most, proposal.event())), 1)
    elif proposal.event() not in history.publications.values():
        raise LedgerMismatchError(
            "A proposal must cover all releases of its ledger, and this ledger has earlier ones. Leave it out. If you "
            "have the votes, `tutelage publish test` can still test it."
        )
    else:
        # Twins are one query; without them, labels that the test was not about would be asked for now.
        keys = row_bytes(np.asarray(rows))
        accounted = count_releases([most])
        if len(set(keys)) < len(keys):
            check_complete(accounted, history)
        else:
            check_covered(accounted, history)
