"""What a ledger says before an ε is published: what it paid for, and what was spent on publishing before."""

from collections import Counter

from tutelage.accounting import Accountant
from tutelage.accounting.data_independent import flatten
from tutelage.events import PUBLICATIONS, Event, NoisedCost, PublicationTest, event_from_dict
from tutelage.exceptions import LedgerMismatchError, PublicationsExhaustedError
from tutelage.ledger import Ledger, Reservation

Published = PublicationTest | NoisedCost


def check_paid(released: Accountant, ledger: Ledger) -> None:
    """Refuse to publish an ε of less than everything that the ledger paid for, or of anything that it did not.

    Parameters
    ----------
    released : Accountant
        What the ε is to be of.
    ledger : Ledger
        What was paid.

    Raises
    ------
    LedgerMismatchError
        If they differ. Answers of the student's own may be counted as the teachers'.
    """
    reserved, happened = Counter[Event](), Counter[Event]()
    open_ones: dict[int, tuple[Event, int]] = {}
    for entry in ledger.export():
        if entry["kind"] == "reserved":
            open_ones[entry["number"]] = event_from_dict(entry["event"]), entry["queries"]
        elif entry["kind"] == "answered":
            for part in flatten(*open_ones[entry["reservation"]]):
                reserved[part.event] += part.times
            for part in flatten(event_from_dict(entry["happened"])):
                happened[part.event] += part.times
    accounted = Counter[Event]()
    for event, votes, _ in released.voted():
        accounted[event] += votes.n_queries
    answers = {event for event in reserved if not isinstance(event, PUBLICATIONS)}
    if accounted - reserved or any(accounted[event] < happened[event] for event in answers):
        raise LedgerMismatchError(
            "An epsilon is published of everything that the ledger paid for, and of nothing else. Account for all its "
            "answers with the votes behind them: `LabelingSession.released` for those of earlier sessions."
        )


def earlier_publications(ledger: Ledger, but: Event) -> tuple[Event, ...]:
    """Return the tests and noised costs that the ledger was charged for, but one that equals `but`.

    Parameters
    ----------
    ledger : Ledger
        Where they were charged, whether they were answered or interrupted.
    but : Event
        The publication at hand, which is in the ledger itself.
    """
    found: list[Event] = list(publications_in(ledger))
    del found[found.index(but)]
    return tuple(found)


def publications_in(ledger: Ledger) -> tuple[Published, ...]:
    """Return every test and noised cost that a ledger was charged for, whether answered or interrupted."""
    return tuple(event for _, event in _publications(ledger))


def check_share(ledger: Ledger, delta: float, reservation: Reservation | None = None) -> None:
    """Refuse a publication where the δ of all those through one ledger would pass the ledger's.

    Each of several claims may be the one that is wrong, so their δ add, and all of them are claimed at the ledger's.

    Parameters
    ----------
    ledger : Ledger
        Where they are charged.
    delta : float
        δ of the publication at hand.
    reservation : Reservation, optional
        That of the publication at hand, where it was reserved already: only those before it count.

    Raises
    ------
    PublicationsExhaustedError
        If there is no room.
    """
    before = [event for number, event in _publications(ledger) if reservation is None or number < reservation.number]
    taken = sum(event.delta for event in before)
    if taken + delta > ledger.delta * (1 + 1e-9):
        raise PublicationsExhaustedError(
            f"`delta` of all publications through one ledger, interrupted ones included, adds up to its δ = "
            f"{ledger.delta:g} at most; {taken:g} is taken. Propose with a smaller `delta` in advance where there are "
            "to be several."
        )


def _publications(ledger: Ledger) -> list[tuple[int, Published]]:
    reserved = [(entry["number"], event_from_dict(entry["event"])) for entry in ledger.export() if "event" in entry]
    return [(number, event) for number, event in reserved if isinstance(event, PUBLICATIONS)]
