"""Checks of public parameters, all in one sentence form: name, what it must be, what it was, the fix."""

import difflib
import hashlib
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from math import inf
from numbers import Integral, Real
from types import UnionType

import numpy as np
import numpy.typing as npt

from tutelage._internal.typing import ABSTAIN, Array, is_series
from tutelage.exceptions import (
    InvalidBallotError,
    InvalidDataError,
    InvalidParameterError,
    Problem,
    quote,
)

MOST_VOTES = 1e15
_LOCAL_RANGE = (1e-6, 100.0)  # above, a response hides nothing; below, it carries no information
# Above, noise could reach the limit of 64-bit integers, where adding a vote would no longer be hidden: there,
# P(|noise| > 2^62) is below e^-4000. Below, it is not noise.
_NOISE_RANGE = (1e-6, MOST_VOTES)


def noise_scale(value: object, name: str, owner: str) -> float:
    """Return `value` as a float if it is a usable scale of noise, in votes."""
    return _within(value, *_NOISE_RANGE, "votes", name, owner)


def local_epsilon(value: object, owner: str) -> float:
    """Return `value` as a float if it is a usable pure loss of one local response."""
    return _within(value, *_LOCAL_RANGE, "nats", "epsilon", owner)


def integer_at_least(value: object, minimum: int, name: str, owner: str) -> int:
    """Return `value` as an int if it is an integer that is not below `minimum`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < minimum:
        raise InvalidParameterError(f"{owner}.{name}", f"be an integer >= {minimum}", quote(value))
    return int(value)


def as_image_shape(value: object, least: int, name: str, owner: str) -> tuple[int, ...]:
    """Return `value` as a tuple if it is the shape of an image whose sides are not below `least`."""
    if not is_series(value) or len(value) not in (2, 3):
        raise InvalidParameterError(
            f"{owner}.{name}",
            "be (height, width) or (height, width, channels)",
            f"{value!r}" if is_series(value) else quote(value),
        )
    for size, smallest in zip(value, (least, least, 1), strict=False):
        integer_at_least(size, smallest, name, owner)
    return tuple(value)


def positive(value: object, name: str, owner: str) -> float:
    """Return `value` as a float if it is a finite number above 0."""
    return _number(
        value, lambda number: 0 < number < inf, "be a finite number above 0", name, owner
    )


def number_between(
    value: object,
    low: float,
    high: float,
    name: str,
    owner: str,
) -> float:
    """Return `value` as a float if it is a number, at least `low` and below `high`, which may be infinite."""
    below = "finite" if high == inf else f"below {high:g}"
    rule = f"be a number, at least {low:g} and {below}"
    return _number(value, lambda number: low <= number < high, rule, name, owner)


def probability(value: object, name: str, owner: str) -> float:
    """Return `value` as a float if it lies strictly between 0 and 1."""
    example = ", for example 1e-5" if name.endswith("delta") else ""
    rule = f"lie strictly between 0 and 1{example}"
    return _number(value, lambda number: 0 < number < 1, rule, name, owner)


def number_of_votes(value: object, name: str, owner: str) -> float:
    """Return `value` as a float if it is a number of votes, negative or not, that integers can hold."""
    return _within(value, -MOST_VOTES, MOST_VOTES, "votes", name, owner)


def ballots_between(
    given: npt.ArrayLike,
    n_classes: int,
    name: str,
    axes: str,
    error: type[InvalidDataError] = InvalidBallotError,
) -> Array:
    """Return `given` as an array, once it is found to be a matrix of class indices, or −1, in integers."""
    ballots = np.asarray(given)
    if ballots.ndim != 2 or not np.issubdtype(ballots.dtype, np.integer):
        raise error(
            f"{name} must be an integer array of shape {axes}. Got {ballots.dtype} of shape {ballots.shape}."
        )
    if ballots.size and (ballots.min() < ABSTAIN or ballots.max() >= n_classes):
        raise error(f"{name} must each be {ABSTAIN} (abstain) or a class index below {n_classes}.")
    return ballots


def _within(
    value: object,
    low: float,
    high: float,
    of: str,
    name: str,
    owner: str,
) -> float:
    rule = f"be a number of {of} between {low:g} and {high:g}"
    return _number(value, lambda number: low <= number <= high, rule, name, owner)


def _number(
    value: object,
    fits: Callable[[float], bool],
    rule: str,
    name: str,
    owner: str,
) -> float:
    """Return `value` as a float if it is a real number that fits; NaN fits nothing."""
    if not isinstance(value, bool) and isinstance(value, Real):
        with suppress(OverflowError):  # an integer of hundreds of digits
            number = float(value)
            if fits(number):
                return number
    raise InvalidParameterError(f"{owner}.{name}", rule, quote(value))


def require_instance(name: str, must: str, value: object, kind: type | UnionType) -> None:
    """Refuse a value that is no instance of a class; only its type is quoted."""
    if not isinstance(value, kind):
        raise InvalidParameterError(name, must, f"a {type(value).__name__}")


def hmac_key(key: object, owner: str) -> bytes:
    """Return a key for HMAC that no other key is equivalent to: HMAC pads keys with zero bytes, so those are hashed."""
    if not isinstance(key, bytes) or len(key) < 16:
        raise InvalidParameterError(
            f"{owner}.key", "be at least 16 bytes, for example secrets.token_bytes(32)"
        )
    if key.endswith(b"\0"):
        return hashlib.sha256(key).digest()
    return key


def nearest(name: str, known: Collection[str]) -> str:
    """Return advice about an unknown name: the nearest one that is known, or all of them."""
    near = difflib.get_close_matches(name, known, 1)
    if near:
        return f"Did you mean `{near[0]}`?"
    return f"It takes: {', '.join(known)}."


def problems_in(check: Callable[[], object]) -> Iterator[Problem]:
    """Yield the problems of the parameters that a check refuses."""
    try:
        check()
    except InvalidParameterError as error:
        yield from error.problems
