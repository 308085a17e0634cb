"""How large a batch may be, so that no one pays for what cannot be sent or computed."""

from tutelage.exceptions import InvalidDataError
from tutelage.federation.members.consortium import Consortium
from tutelage.federation.messages.envelopes import MOST_PAYLOAD_BYTES
from tutelage.federation.noise_shares import MOST_BITS, SharedMechanism, bit_length
from tutelage.federation.sharing import ELEMENT_BYTES, SPLIT_NAME_BYTES
from tutelage.mechanisms import ConfidentGNMax

_MOST_QUERIES = 2**24
_MOST_CLASSES = 2**16  # of what is compared in one message
_MOST_CELLS = 2**23  # of all entities together: 200 bytes of a computing party's memory each


def require_size(consortium: Consortium, queries: int) -> None:
    """Refuse a batch of so many queries if it is more than `most_queries`."""
    if not _fits(consortium, queries):
        most = most_queries(consortium)
        raise InvalidDataError(
            f"A batch under these terms can hold {most:,} queries at most. Got {queries:,}. Ask fewer at once."
            if most
            else "Under these terms not one query can be computed: there are too many classes, or noise, threshold or "
            "teachers are too many votes for the numbers that are compared. Agree on others."
        )


def most_queries(consortium: Consortium) -> int:
    """Return how many queries a batch under these terms can hold: what is compared and what is sent must fit."""
    low, high = 0, _MOST_QUERIES
    while low < high:  # what is compared and what is sent grows with the number of queries
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _fits(consortium, middle) else (low, middle - 1)
    return low


def _fits(consortium: Consortium, queries: int) -> bool:
    mechanism, classes = consortium.mechanism, consortium.n_classes
    if not isinstance(mechanism, SharedMechanism):
        return queries <= min(_MOST_QUERIES, MOST_PAYLOAD_BYTES // (8 * classes))
    cells = (2 if isinstance(mechanism, ConfidentGNMax) else 1) * classes * queries
    entities, teachers = len(consortium.entities), consortium.teachers_per_entity
    if SPLIT_NAME_BYTES + ELEMENT_BYTES * cells > MOST_PAYLOAD_BYTES:
        return False
    if classes > _MOST_CLASSES or entities * cells > _MOST_CELLS:
        return False
    return bit_length(mechanism, consortium.honest, entities, teachers, classes, queries) <= MOST_BITS
