"""Integers as shares mod p = 2^89 − 1, and noise that is summed from shares of several owners.

Shares are additive for what an entity sends, Shamir's for what is opened. The integer x is the element x mod p, so −x
is p − x. An element travels as 12 bytes, little-endian.

Whoever colludes knows the own share of noise and can subtract it. So every entity adds discrete Gaussians of parameter
σ/√h, where h entities are counted on to be honest; what more than h add only hides more. Proofs:
docs/proofs/summed_noise.md.
"""

import secrets
from collections.abc import Sequence
from math import ceil, log, prod, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from tutelage._internal.typing import IntArray
from tutelage._internal.validation import integer_at_least
from tutelage.events import Composed, ConfidenceCheck, Event, NoisyArgmaxGaussian, SummedNoise
from tutelage.exceptions import ForgedMessageError, InvalidDataError, InvalidParameterError
from tutelage.mechanisms import ConfidentGNMax, GNMax
from tutelage.privacy import ONE_TEACHER, PrivacyUnit

MODULUS = 2**89 - 1  # a Mersenne prime
ELEMENT_BYTES = 12
PARTIES = 3
SPLIT_NAME_BYTES = 32  # a random name of one splitting, the same beside all three of its shares
_BOUND = 2**40
_TOP = 2**25 - 1  # the bits of an element from the 65th on
_ELEMENT = np.dtype([("low", "<u8"), ("high", "<u4")])

ElementArray = npt.NDArray[Any]  # of Python integers in [0, p)


def split(values: IntArray) -> tuple[bytes, bytes, bytes]:
    """Split each integer into three additive shares mod p; any two of them are uniform and say nothing about it.

    Notes
    -----
    The first two shares come from the operating system's entropy, redrawn where they reach p, so without bias.
    """
    values = np.asarray(values)
    if not np.issubdtype(values.dtype, np.integer):
        raise InvalidDataError(f"Values to be shared must be an array of integers. Got dtype {values.dtype}.")
    if values.size and (int(values.min()) <= -_BOUND or int(values.max()) >= _BOUND):
        raise InvalidDataError("Values to be shared must lie strictly between -2^40 and 2^40.")
    first, second = _uniform_elements(values.size), _uniform_elements(values.size)
    third = values.ravel().astype(object) - _elements(first) - _elements(second)
    return first.tobytes(), second.tobytes(), encode(third)


def encode(array: npt.ArrayLike) -> bytes:
    """Return the elements x mod p of an array of integers in C order, 12 bytes each, little-endian."""
    elements = np.asarray(array, dtype=object).ravel() % MODULUS
    encoded = np.empty(elements.size, dtype=_ELEMENT)
    encoded["low"] = elements & (2**64 - 1)
    encoded["high"] = elements >> 64
    return encoded.tobytes()


def decode(data: bytes, shape: Sequence[int]) -> ElementArray:
    """Return the elements that `encode` wrote, as Python integers in [0, p) in an array of objects of `shape`."""
    expected = ELEMENT_BYTES * prod(shape)
    if len(data) != expected:
        raise ForgedMessageError(f"Shares of shape {tuple(shape)} must take {expected} bytes. Got {len(data)}.")
    encoded = np.frombuffer(data, dtype=_ELEMENT)
    if np.any(_beyond(encoded)):
        raise ForgedMessageError("A share is no element of the field. Its sender must send it again.")
    return _elements(encoded).reshape(shape)


def recombine(shares: Sequence[bytes], shape: Sequence[int]) -> IntArray:
    """Open integers from the computing parties' Shamir shares: the values at 1, 2 and 3 of lines, at 0.

    Notes
    -----
    Shamir, How to share a secret, 1979, with degree 1. Two points fix the line; the third must confirm it.
    """
    if len(shares) != PARTIES:
        raise ForgedMessageError(f"Opening needs the shares of {PARTIES} computing parties. Got {len(shares)}.")
    first, second, third = (decode(share, (prod(shape),)) for share in shares)
    if np.any((2 * second - first - third) % MODULUS != 0):
        raise ForgedMessageError("The computing parties' shares contradict each other. Run the computation again.")
    opened = (2 * first - second + _BOUND) % MODULUS - _BOUND
    if np.any(opened >= _BOUND):
        raise ForgedMessageError("The computing parties' shares open to no small integer. Run the computation again.")
    return opened.astype(np.int64).reshape(shape)


def from_random(random: bytes) -> ElementArray:
    """Return elements from random bytes, 12 each, of which 89 bits count; a chance of 2^-89 each for p, which is 0."""
    return _elements(_bits_of(random))


def _uniform_elements(count: int) -> npt.NDArray[Any]:
    """Return uniform elements: 89 random bits each, redrawn where all are ones, which is p."""
    drawn = _random_bits(count)
    while np.any(refused := _beyond(drawn)):
        drawn[refused] = _random_bits(int(refused.sum()))
    return drawn


def _random_bits(count: int) -> npt.NDArray[Any]:
    return _bits_of(secrets.token_bytes(ELEMENT_BYTES * count))


def _bits_of(random: bytes) -> npt.NDArray[Any]:
    drawn = np.frombuffer(bytearray(random), dtype=_ELEMENT)
    drawn["high"] &= _TOP
    return drawn


def _beyond(encoded: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    ones = (encoded["high"] == _TOP) & (encoded["low"] == 2**64 - 1)
    return (encoded["high"] > _TOP) | ones


def _elements(encoded: npt.NDArray[Any]) -> ElementArray:
    return (encoded["high"].astype(object) << 64) + encoded["low"].astype(object)


_FALSE_ALARM = 2.0**-100  # chance that honest votes of one entity fail one projection: it is in nobody's δ
MOST_BITS = 26  # of what is compared: masked by 62 bits more (`SECURITY_BITS` of the runtime), it must stay below p

SharedMechanism = GNMax | ConfidentGNMax


def share_sigmas(mechanism: SharedMechanism, honest: int) -> tuple[float, ...]:
    """Return the parameter σ/√h of one entity's discrete Gaussians, one per block of what it sends."""
    parts = parts_of(event_of_one(mechanism, 2, ONE_TEACHER, honest, simulated=False))
    votes = [part.sigma_of_share for part in parts if isinstance(part.event, NoisyArgmaxGaussian)]
    checks = [part.sigma_of_share for part in parts if isinstance(part.event, ConfidenceCheck)]
    return (*votes, *checks)


def event_of_one(
    mechanism: SharedMechanism, n_classes: int, unit: PrivacyUnit, honest: int, *, simulated: bool
) -> Event:
    """Return the most that answering one query can be, for whoever sees labels and abstentions only."""
    honest = integer_at_least(honest, 1, "honest", "event_of_one")
    return _summed(_shared(mechanism).event_of_one(n_classes, unit, simulated=simulated), honest)


def bit_length(
    mechanism: SharedMechanism,
    honest: int,
    entities: int,
    teachers_per_entity: int,
    n_classes: int,
    queries: int,
) -> int:
    """Return bits L such that every number that is compared lies in [−2^(L−1), 2^(L−1)).

    Compared are differences of two noised totals, and a noised total and the threshold. The range is that of votes
    which pass the test of `projection_bound`, whoever made them, not that of honest votes: outside it a comparison is
    no bit, and what is opened would say more than a label.

    Notes
    -----
    An entity with a number beyond twice the bound passes each of forty projections with probability ½ at most: two of
    the coefficients −1, 0, 1 would have to keep one and the same sum within the bound. So it passes with 2⁻⁴⁰.
    """
    entities = integer_at_least(entities, 1, "entities", "bit_length")
    at_most(integer_at_least(honest, 1, "honest", "bit_length"), entities, "honest", "entities", "bit_length")
    total = 2 * entities * projection_bound(mechanism, honest, teachers_per_entity, n_classes, queries)
    threshold = ceil(mechanism.threshold) if isinstance(mechanism, ConfidentGNMax) else 0
    return max(2 * total, total + abs(threshold)).bit_length() + 1


def projection_bound(
    mechanism: SharedMechanism, honest: int, teachers_per_entity: int, n_classes: int, queries: int
) -> int:
    """Return what a projection of one entity's noised votes on coefficients −1, 0, 1 stays below, if it is honest.

    The coefficients are independent, ±1 with probability ¼ each. docs/proofs/summed_noise.md has the proof.
    """
    teachers = integer_at_least(teachers_per_entity, 1, "teachers_per_entity", "projection_bound")
    classes = integer_at_least(n_classes, 2, "n_classes", "projection_bound")
    queries = integer_at_least(queries, 1, "queries", "projection_bound")
    vote, *check = share_sigmas(mechanism, honest)
    parts = 2 + 2 * len(check)
    tail = log(2 * parts / _FALSE_ALARM)
    counts = teachers * sqrt((1 + len(check)) * queries / 2)
    noise = vote * sqrt(classes * queries)
    # All classes of a query share the check's noise: their coefficients add up first.
    common = [sigma * sqrt(classes / 2 * (queries + 2 * sqrt(queries * tail) + 2 * tail)) for sigma in check]
    return ceil((counts + noise + sum(common)) * sqrt(2 * tail))


def _shared(mechanism: SharedMechanism) -> SharedMechanism:
    if not isinstance(mechanism, SharedMechanism):
        raise InvalidParameterError(
            f"`mechanism` must be a GNMax or ConfidentGNMax to sum its noise. Got a {type(mechanism).__name__}."
        )
    return mechanism


def _summed(event: Event, shares: int) -> Event:
    if isinstance(event, Composed):
        return Composed(tuple(_summed(part, shares) for part in event.events))
    return SummedNoise(event, shares)  # type: ignore[arg-type]


def parts_of(event: Event) -> list[SummedNoise]:
    """Return the releases of `event` whose noise is summed."""
    parts = (part.event for part in event.flatten())
    return [part for part in parts if isinstance(part, SummedNoise)]


def at_most(value: int, most: int, name: str, other: str, owner: str) -> None:
    """Refuse a number above another, by their names."""
    if value > most:
        raise InvalidParameterError(f"`{name}` of {owner} must be at most `{other}`, {most}. Got {value}.")
