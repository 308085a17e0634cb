"""Checks of public parameters, all in one sentence form: name, what it must be, what it was, the fix."""

import math
from numbers import Integral, Real

from tutelage.exceptions import InvalidParameterError


def positive_real(value: object, name: str, owner: str, unit: str) -> float:
    """Return `value` as a float if it is a finite number above zero."""
    if not _is_real(value) or not math.isfinite(float(value)) or float(value) <= 0:  # type: ignore[arg-type]
        raise InvalidParameterError(f"`{name}` of {owner} must be a finite number > 0 ({unit}). Got {value!r}.")
    return float(value)  # type: ignore[arg-type]


def integer_at_least(value: object, minimum: int, name: str, owner: str) -> int:
    """Return `value` as an int if it is an integer that is not below `minimum`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < minimum:
        raise InvalidParameterError(f"`{name}` of {owner} must be an integer >= {minimum}. Got {value!r}.")
    return int(value)


def probability(value: object, name: str, owner: str) -> float:
    """Return `value` as a float if it lies strictly between 0 and 1."""
    if not _is_real(value) or not 0 < float(value) < 1:  # type: ignore[arg-type]
        raise InvalidParameterError(
            f"`{name}` of {owner} must lie strictly between 0 and 1, for example 1e-5. Got {value!r}."
        )
    return float(value)  # type: ignore[arg-type]


def _is_real(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
