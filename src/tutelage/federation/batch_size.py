"""How large a batch may be, so that no one pays for what cannot be sent or computed."""

from tutelage.exceptions import InvalidDataError
from tutelage.federation.members.consortium import Consortium
from tutelage.federation.messages.envelopes import MOST_PAYLOAD_BYTES
from tutelage.federation.noise_shares import MOST_BITS, SharedMechanism, bit_length
from tutelage.federation.sharing import ELEMENT_BYTES, SPLIT_NAME_BYTES
from tutelage.mechanisms import ConfidentGNMax

_MOST_QUERIES = 2**24


def require_size(consortium: Consortium, queries: int) -> None:
    """Refuse a batch of so many queries if it is more than `most_queries`.

    Raises
    ------
    InvalidDataError
        If it is.
    """
    most = most_queries(consortium)
    if queries > most:
        raise InvalidDataError(
            f"A batch under these terms can hold {most:,} queries at most. Got {queries:,}. Ask fewer at once."
            if most
            else "Under these terms not one query can be computed: noise, threshold or teachers are too many votes "
            "for the numbers that are compared. Agree on others."
        )


def most_queries(consortium: Consortium) -> int:
    """Return how many queries a batch under these terms can hold: what is compared and what is sent must fit."""
    mechanism = consortium.mechanism
    if not isinstance(mechanism, SharedMechanism):
        return min(_MOST_QUERIES, MOST_PAYLOAD_BYTES // (8 * consortium.n_classes))
    blocks = 2 if isinstance(mechanism, ConfidentGNMax) else 1
    sent = (MOST_PAYLOAD_BYTES - SPLIT_NAME_BYTES) // (ELEMENT_BYTES * blocks * consortium.n_classes)
    low, high = 0, min(_MOST_QUERIES, sent)
    while low < high:  # bits grow with the number of queries
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _bits(consortium, mechanism, middle) <= MOST_BITS else (low, middle - 1)
    return low


def _bits(consortium: Consortium, mechanism: SharedMechanism, queries: int) -> int:
    entities, teachers = len(consortium.entities), consortium.teachers_per_entity
    return bit_length(mechanism, consortium.honest, entities, teachers, consortium.n_classes, queries)
