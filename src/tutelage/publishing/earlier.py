"""The publications of a ledger: which were charged, and how much of its δ they take."""

from typing import Any

from tutelage.events import PUBLICATIONS, NoisedCost, PublicationTest, event_from_dict
from tutelage.exceptions import PublicationsExhaustedError
from tutelage.ledger import Ledger, Reservation

Published = PublicationTest | NoisedCost


def publications_in(ledger: Ledger) -> tuple[Published, ...]:
    """Return every test and noised cost that a ledger was charged for, whether answered or interrupted."""
    return publications_of(ledger.export())


def publications_of(entries: list[dict[str, Any]]) -> tuple[Published, ...]:
    """Return the same from the entries of a ledger, as `Ledger.export` gives them."""
    return tuple(event for _, event in _publications(entries))


def all_but(published: tuple[Published, ...], one: Published) -> tuple[Published, ...]:
    """Return publications without one that equals `one`, which is among them."""
    place = published.index(one)
    return published[:place] + published[place + 1 :]


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
    before = [
        event for number, event in _publications(ledger.export()) if reservation is None or number < reservation.number
    ]
    taken = sum(event.delta for event in before)
    if taken + delta > ledger.delta * (1 + 1e-9):
        raise PublicationsExhaustedError(
            f"`delta` of all publications through one ledger, interrupted ones included, adds up to its δ = "
            f"{ledger.delta:g} at most; {taken:g} is taken. Propose with a smaller `delta` in advance where there are "
            "to be several."
        )


def _publications(entries: list[dict[str, Any]]) -> list[tuple[int, Published]]:
    reserved = [(entry["number"], event_from_dict(entry["event"])) for entry in entries if "event" in entry]
    return [(number, event) for number, event in reserved if isinstance(event, PUBLICATIONS)]
