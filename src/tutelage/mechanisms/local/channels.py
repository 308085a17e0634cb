"""Chances of each report given each class, in whatever numbers the parameter comes in: float or Fraction."""

from fractions import Fraction
from typing import TypeVar

Number = TypeVar("Number", float, Fraction)


def randomized_response(keep: Number, n_classes: int) -> list[list[Number]]:
    """Return the channel that keeps a class with chance `keep`, or else reports any other, all equally likely.

    Parameters
    ----------
    keep : float or Fraction
        Chance that the report is the class itself.
    n_classes : int
        Number of classes.
    """
    other = (1 - keep) / (n_classes - 1)
    return [[keep if report == own else other for report in range(n_classes)] for own in range(n_classes)]


def truncated_geometric(alpha: Number, n_classes: int) -> list[list[Number]]:
    """Return the α-truncated geometric channel on the classes (Ghosh, Roughgarden and Sundararajan 2012).

    Parameters
    ----------
    alpha : float or Fraction
        α in (0, 1): chances of neighbouring reports differ by this factor.
    n_classes : int
        Number of classes.
    """
    return [_clamped(alpha, own, n_classes) for own in range(n_classes)]


def truncated_geometric_as_printed(alpha: Number, n_classes: int) -> list[list[Number]]:
    """Return the channel of Zhao's equation (2), which has one report too many, 0, that is no class: the last column.

    Parameters
    ----------
    alpha : float or Fraction
        α in (0, 1).
    n_classes : int
        Number of classes.
    """
    rows = [_clamped(alpha, own, n_classes + 1) for own in range(1, n_classes + 1)]
    return [[*row[1:], row[0]] for row in rows]


def _clamped(alpha: Number, own: int, size: int) -> list[Number]:
    """Return the law of own + Z clamped to 0 … size − 1, P(Z = k) ∝ α^|k|."""
    ends = (0, size - 1)
    return [(1 if report in ends else 1 - alpha) * alpha ** abs(report - own) / (1 + alpha) for report in range(size)]
