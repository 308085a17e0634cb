"""Integers as shares mod p = 2^89 − 1: additive ones of what an entity sends, Shamir's of what is opened.

The integer x is the element x mod p, so −x is p − x. An element travels as 12 bytes, little-endian.
"""

import secrets
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tutelage._internal.typing import IntArray
from tutelage.exceptions import ForgedMessageError, InvalidDataError

MODULUS = 2**89 - 1  # a Mersenne prime
ELEMENT_BYTES = 12
PARTIES = 3
# Of what is compared: masked by 62 bits more (`SECURITY_BITS` of the runtime), it must stay below p.
MOST_BITS = 26
MOST_TESTED_BITS = 47  # of what is only tested for its size: masked by 41 bits more
SPLIT_NAME_BYTES = 32  # a random name of one splitting, the same beside all three of its shares
# Random bytes that only one party gets, so that the hash of its shares does not reveal them.
SALT_BYTES = 32
HEAD_BYTES = SPLIT_NAME_BYTES + SALT_BYTES  # before the shares
_BOUND = 2**40
_BOUND_OF_SUMS = 2**62  # what 64-bit integers hold; sums over a million entities stay below p
_TOP = 2**25 - 1  # the bits of an element from the 65th on
_ELEMENT = np.dtype([("low", "<u8"), ("high", "<u4")])

ElementArray = npt.NDArray[Any]  # of Python integers in [0, p)
_Encoded = npt.NDArray[np.void]  # of `_ELEMENT`


def split(values: IntArray, *, summed: bool = False) -> tuple[bytes, bytes, bytes]:
    """Split each integer into three additive shares mod p; any two of them are uniform and independent of it.

    Integers that are only ever `summed`, and not compared, may have 62 bits in place of 40. The first two shares come
    from the operating system's entropy, redrawn where they reach p, so without bias.
    """
    values = np.asarray(values)
    if not np.issubdtype(values.dtype, np.integer):
        raise InvalidDataError(
            f"Values to be shared must be an array of integers. Got dtype {values.dtype}."
        )
    bound = _BOUND_OF_SUMS if summed else _BOUND
    if values.size and (int(values.min()) <= -bound or int(values.max()) >= bound):
        power = bound.bit_length() - 1
        raise InvalidDataError(
            f"Values to be shared must lie strictly between -2^{power} and 2^{power}."
        )
    first = _uniform_elements(values.size)
    second = _uniform_elements(values.size)
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
        raise ForgedMessageError(
            f"Shares of shape {tuple(shape)} must take {expected} bytes. Got {len(data)}."
        )
    encoded = np.frombuffer(data, dtype=_ELEMENT)
    if np.any(_beyond(encoded)):
        raise ForgedMessageError(
            "A share is no element of the field. Its sender must send it again."
        )
    return _elements(encoded).reshape(shape)


def recombine(shares: Sequence[bytes], shape: Sequence[int]) -> IntArray:
    """Open integers from the computing parties' Shamir shares: the values at 1, 2 and 3 of lines, at 0.

    Two points fix the line (Shamir, How to share a secret, 1979, with degree 1); the third must confirm it.
    """
    first, second, third = _of_all(shares, shape)
    if np.any((2 * second - first - third) % MODULUS != 0):
        raise ForgedMessageError(
            "The computing parties' shares contradict each other. Run the computation again."
        )
    return _open_integers(2 * first - second, _BOUND, "small integer")


def open_sum(shares: Sequence[bytes], shape: Sequence[int]) -> IntArray:
    """Open integers from additive shares of all computing parties."""
    first, second, third = _of_all(shares, shape)
    return _open_integers(first + second + third, _BOUND_OF_SUMS, "sum of ballots")


def _of_all(shares: Sequence[bytes], shape: Sequence[int]) -> list[ElementArray]:
    if len(shares) != PARTIES:
        raise ForgedMessageError(
            f"Opening needs the shares of {PARTIES} computing parties. Got {len(shares)}."
        )
    return [decode(share, shape) for share in shares]


def _open_integers(elements: ElementArray, bound: int, what: str) -> IntArray:
    opened = (elements + bound) % MODULUS - bound
    if np.any(opened >= bound):
        raise ForgedMessageError(
            f"The computing parties' shares open to no {what}. Run the computation again."
        )
    return opened.astype(np.int64)


def from_random(random: bytes) -> ElementArray:
    """Return elements from random bytes, 12 each, of which 89 bits count; a chance of 2^-89 each for p, which is 0."""
    return _elements(_bits_of(random))


def _uniform_elements(count: int) -> _Encoded:
    """Return uniform elements: 89 random bits each, redrawn where all are ones, which is p."""
    drawn = _bits_of(secrets.token_bytes(ELEMENT_BYTES * count))
    refused = _beyond(drawn)
    while np.any(refused):
        again = int(refused.sum())
        drawn[refused] = _bits_of(secrets.token_bytes(ELEMENT_BYTES * again))
        refused = _beyond(drawn)
    return drawn


def _bits_of(random: bytes) -> _Encoded:
    drawn = np.frombuffer(bytearray(random), dtype=_ELEMENT)
    drawn["high"] &= _TOP
    return drawn


def _beyond(encoded: _Encoded) -> npt.NDArray[np.bool_]:
    ones = (encoded["high"] == _TOP) & (encoded["low"] == 2**64 - 1)
    return (encoded["high"] > _TOP) | ones


def _elements(encoded: _Encoded) -> ElementArray:
    elements = encoded["high"].astype(object)
    elements <<= 64  # in place, since memory for each step takes longer than the step
    elements += encoded["low"].astype(object)
    return elements
