"""What was spent on publishing an ε before: each further one is a release of its own and pays for them."""

from tutelage.events import Event, NoisedCost, PublicationTest, event_from_dict
from tutelage.ledger import Ledger

PUBLICATIONS = (PublicationTest, NoisedCost)


def earlier_publications(ledger: Ledger, but: Event) -> tuple[Event, ...]:
    """Return the tests and noised costs that the ledger was charged for, but one that equals `but`.

    Parameters
    ----------
    ledger : Ledger
        Where they were charged, whether they were answered or interrupted.
    but : Event
        The publication at hand, which is in the ledger itself.
    """
    reserved = [entry["event"] for entry in ledger.export() if "event" in entry]
    found: list[Event] = [event for event in map(event_from_dict, reserved) if isinstance(event, PUBLICATIONS)]
    del found[found.index(but)]
    return tuple(found)
