"""What a publication covers: the one decision that every road to a published ε, every card and every run asks for."""

from collections import Counter

from tutelage.accounting import Accountant
from tutelage.events import Event, Repeated, counted
from tutelage.exceptions import LedgerMismatchError
from tutelage.ledger import History
from tutelage.ledger.history import Published


def check_covered(accounted: Counter[Event], history: History) -> None:
    """Refuse an ε of less than every answer that a ledger gave, or of anything that it did not pay for.

    Batches that were interrupted gave no answer. Answers of the student's own may be counted as the teachers'.
    """
    check_complete(accounted, history)
    if accounted - history.paid:
        raise LedgerMismatchError(
            "An epsilon is published only of labels that the ledger paid for, and this one would cover others. Pass "
            "the ledger that paid for them, or account only for what was released through this one."
        )


def check_complete(accounted: Counter[Event], history: History) -> None:
    """Refuse an ε that leaves out an answer of the ledger; `check_covered` without its second half."""
    if history.given - accounted:
        raise LedgerMismatchError(
            "The ledger paid for labels that this publication does not cover: another session's, or later ones. An "
            "epsilon that was published before them covers only what was released until then. Publish one of all "
            "labels (`LabelingSession.released` accounts for those of earlier sessions), or the worst-case epsilon of "
            "the ledger."
        )


def accounted_in(released: Accountant) -> Counter[Event]:
    """Return how often each kind of answer happened of which an accountant holds the votes."""
    return counted(Repeated(event, votes.n_queries) for event, votes, _ in released.voted())


def all_but(published: tuple[Published, ...], one: Published) -> tuple[Published, ...]:
    """Return publications without one that equals `one`, which is among them."""
    place = published.index(one)
    return published[:place] + published[place + 1 :]
