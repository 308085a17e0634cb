"""What a publication covers: the one decision that every road to a published ε, every card and every run asks for."""

from collections import Counter
from typing import Any

from tutelage.accounting import Accountant
from tutelage.events import Event, Repeated, counted, event_from_dict
from tutelage.exceptions import LedgerMismatchError
from tutelage.ledger.entries import Kind
from tutelage.ledger.history import answered, is_publication


def check_covered(accounted: Counter[Event], entries: list[dict[str, Any]]) -> None:
    """Refuse an ε of less than every answer that a ledger gave, or of anything that it did not pay for.

    Batches that were interrupted gave no answer. Answers of the student's own may be counted as the teachers'.

    Parameters
    ----------
    accounted : Counter of Event
        How often each kind of answer that the ε is of happened: `accounted_in`.
    entries : list of dict
        Those of the ledger, as `Ledger.export` gives them.

    Raises
    ------
    LedgerMismatchError
        If they differ.
    """
    check_complete(accounted, entries)
    paid = counted(
        Repeated(event_from_dict(entry["event"]), entry["queries"]) for entry, _ in _answered_batches(entries)
    )
    if accounted - paid:
        raise LedgerMismatchError(
            "An epsilon is published only of labels that the ledger paid for, and this one would cover others. Pass "
            "the ledger that paid for them, or account only for what was released through this one."
        )


def check_complete(accounted: Counter[Event], entries: list[dict[str, Any]]) -> None:
    """Refuse an ε that leaves out an answer of the ledger; `check_covered` without its second half.

    Parameters
    ----------
    accounted : Counter of Event
        The answers that the ε is of, or the most that it can be of.
    entries : list of dict
        Those of the ledger.

    Raises
    ------
    LedgerMismatchError
        If it does.
    """
    if any(times > accounted[event] for event, times in given(entries).items()):
        raise LedgerMismatchError(
            "The ledger paid for labels that this publication does not cover: another session's, or later ones. An "
            "epsilon that was published before them covers only what was released until then. Publish one of all "
            "labels (`LabelingSession.released` accounts for those of earlier sessions), or the worst-case epsilon of "
            "the ledger."
        )


def given(entries: list[dict[str, Any]]) -> Counter[Event]:
    """Return how often each kind of answer was given through a ledger; an interrupted batch gave none."""
    return counted(event_from_dict(done) for _, done in _answered_batches(entries))


def accounted_in(released: Accountant) -> Counter[Event]:
    """Return how often each kind of answer happened of which an accountant holds the votes."""
    return counted(Repeated(event, votes.n_queries) for event, votes, _ in released.voted())


def _answered_batches(entries: list[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return each batch of queries that was answered, with the event that happened, as plain values."""
    settled = answered(entries)
    reserved = [entry for entry in entries if entry["kind"] == Kind.RESERVED and not is_publication(entry)]
    return [(entry, settled[entry["number"]]["happened"]) for entry in reserved if entry["number"] in settled]
