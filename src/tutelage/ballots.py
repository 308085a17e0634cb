"""Bounded ballots: each teacher casts one array of whole numbers of limited length, and only their sum goes on.

The vote on every query (`tutelage.votes`) is one kind of ballot. Here are others: a vector for each class, and votes on
few of the queries. The bound is checked on the numbers of every ballot, so the sensitivity of the sum needs no other
assumption.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import sqrt
from pathlib import Path
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt

from tutelage._internal.outputs import open_private
from tutelage._internal.typing import ABSTAIN, Ballots, FloatArray, IntArray, NeverPickled
from tutelage._internal.validation import integer_at_least
from tutelage.exceptions import InvalidBallotError, InvalidDataError
from tutelage.privacy import ONE_TEACHER, PrivacyUnit

_MOST_ENTRY = 2**24
_MOST_NORM = 2**30
_UPWARD = 1 + 2.0**-40  # many times the rounding of a few operations
_MOST_TOTAL = 2**53  # up to which sums of floats are exact, in which they are made


@final
@dataclass(frozen=True, slots=True)
class OneHot:
    """The form of votes: a teacher votes for one class, on every query or, with a cap, on few of them; public."""

    n_classes: int
    unit: PrivacyUnit
    cap: int | None = None  # most votes of one teacher

    def holds(self, other: object) -> bool:
        """Return whether ballots of another form are no longer than those of this one."""
        if not isinstance(other, OneHot) or (other.n_classes, other.unit) != (self.n_classes, self.unit):
            return False
        return self.cap is None or (other.cap is not None and other.cap <= self.cap)


@final
@dataclass(frozen=True, slots=True)
class Vector:
    """The form of ballots of whole numbers of limited length; public."""

    shape: tuple[int, int]  # classes and numbers
    norm_squared: int  # the most, over all classes and numbers together
    unit: PrivacyUnit
    cap: ClassVar[None] = None

    def holds(self, other: object) -> bool:
        """Return whether ballots of another form are no longer than those of this one: only of the same."""
        return self == other


@final
@dataclass(frozen=True, slots=True, eq=False)
class BallotSum(NeverPickled):
    """The sum of all teachers' ballots; private.

    Parameters
    ----------
    totals : integer array of shape (classes, numbers)
        The sum.
    norm_squared : int
        Largest squared L2 norm that a ballot can have, over all classes and numbers together.
    unit : PrivacyUnit
        Whose change moves at most one ballot.
    """

    totals: IntArray = field(repr=False)
    norm_squared: int
    unit: PrivacyUnit = ONE_TEACHER

    def __post_init__(self) -> None:
        integer_at_least(self.norm_squared, 1, "norm_squared", "BallotSum")
        totals = np.asarray(self.totals)
        if totals.ndim != 2 or not np.issubdtype(totals.dtype, np.integer):
            raise InvalidDataError(
                f"`totals` of BallotSum must be integers of shape (classes, numbers). Got {totals.dtype} of shape "
                f"{totals.shape}."
            )
        totals = totals.astype(np.int64)
        totals.setflags(write=False)
        object.__setattr__(self, "totals", totals)

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return self.totals.shape[0]

    @property
    def form(self) -> Vector:
        """What is public of the ballots."""
        return Vector((self.totals.shape[0], self.totals.shape[1]), self.norm_squared, self.unit)

    def moved(self, neighbor: "BallotSum") -> float:
        """Return how far the sum of a neighbor is from this one, in lengths of the longest ballot."""
        return float(np.linalg.norm((neighbor.totals - self.totals).astype(np.float64))) / sqrt(self.norm_squared)

    def __repr__(self) -> str:
        return (
            f"BallotSum(<totals hidden: private ballots>, classes={self.n_classes}, numbers={self.totals.shape[1]}, "
            f"unit={self.unit.name!r})"
        )


def add_sums(one: BallotSum, other: BallotSum) -> BallotSum:
    """Return the sum of the ballots of two groups of teachers that have no person in common."""
    if (one.norm_squared, one.unit, one.totals.shape) != (other.norm_squared, other.unit, other.totals.shape):
        raise InvalidBallotError("Sums of ballots must have one shape, norm and privacy unit to be added.")
    return BallotSum(one.totals + other.totals, one.norm_squared, one.unit)


def write_sums(sums: Sequence[BallotSum], path: Path) -> None:
    """Write the private sums of all rounds as plain arrays to a new npz file that only its owner may read.

    Parameters
    ----------
    sums : sequence of BallotSum
        Of one shape and unit, the first round first.
    path : Path
        The file, which is not there yet.
    """
    unit = sums[0].unit
    with open_private(path) as file:
        np.savez_compressed(
            file,
            format=np.int64(1),
            totals=np.stack([one.totals for one in sums]),
            norm_squared=np.array([str(one.norm_squared) for one in sums]),
            unit=np.array([unit.name, unit.neighboring.value]),
        )


def cap_ballots(ballots: Ballots, confidences: npt.ArrayLike, cap: int) -> Ballots:
    """Return the most confident votes of each teacher, who abstains on all other queries.

    A teacher's votes depend on its own ballot and confidences only. Count them with `tally(..., cap=cap)`.

    Parameters
    ----------
    ballots : integer array of shape (teachers, queries)
        Class index, or −1 for an abstention.
    confidences : array of shape (teachers, queries)
        How sure each teacher is of each vote, on a scale of its own. Of equal ones the first query counts; one that is
        NaN is no vote.
    cap : int
        Most votes of one teacher.
    """
    cap = integer_at_least(cap, 1, "cap", "cap_ballots")
    sure = np.array(confidences, dtype=np.float64)
    ballots = np.asarray(ballots)
    if ballots.ndim != 2 or not np.issubdtype(ballots.dtype, np.integer) or sure.shape != ballots.shape:
        raise InvalidBallotError(
            "`ballots` of cap_ballots must be integers of shape (teachers, queries), with a confidence each. Got "
            f"shapes {ballots.shape} and {sure.shape}."
        )
    votes = np.where(np.isnan(sure), ABSTAIN, ballots)
    kept = np.lexsort((-sure, votes == ABSTAIN))[:, :cap]  # along each ballot; equal ones stay in their order
    capped = np.full_like(ballots, ABSTAIN)
    np.put_along_axis(capped, kept, np.take_along_axis(votes, kept, 1), 1)
    return capped


def cap_probabilities(probabilities: npt.ArrayLike, cap: int) -> Ballots:
    """Return each teacher's most probable classes as ballots, on the queries where it is most confident.

    Parameters
    ----------
    probabilities : array of shape (teachers, queries, classes)
        Class probabilities of each teacher; of equal ones the first class counts.
    cap : int
        Most votes of one teacher.
    """
    found = np.asarray(probabilities)
    if found.ndim != 3:
        raise InvalidBallotError(
            f"`probabilities` of cap_probabilities must have shape (teachers, queries, classes). Got {found.shape}."
        )
    return cap_ballots(found.argmax(axis=2).astype(np.int16), found.max(axis=2), cap)


def sum_of_products(
    weights: IntArray, vectors: IntArray, teachers: IntArray, *, norm: int, unit: PrivacyUnit = ONE_TEACHER
) -> BallotSum:
    """Add up ballots that are products of a weight for each class and a vector.

    Parameters
    ----------
    weights : integer array of shape (products, classes)
        How much each product counts for each class.
    vectors : integer array of shape (products, numbers)
        What is counted.
    teachers : integer array of shape (products,)
        Whose product it is; the ballot of a teacher is the sum of its products.
    norm : int
        Largest L2 norm that a ballot may have. The norms of one teacher's products must add up to no more.
    unit : PrivacyUnit
        Whose change moves at most one teacher's ballot.

    Raises
    ------
    InvalidBallotError
        If a ballot may be longer than that.
    """
    if integer_at_least(norm, 1, "norm", "sum_of_products") > _MOST_NORM:
        raise InvalidDataError(f"`norm` of sum_of_products must be at most {_MOST_NORM}. Got {norm}.")
    weights, vectors, teachers = (np.asarray(array) for array in (weights, vectors, teachers))
    _check_products(weights, vectors, teachers)
    weighted, numbers = weights.astype(np.float64), vectors.astype(np.float64)  # whole numbers below 2²⁴: exact
    # The comparison is false for NaN, so a ballot with NaN is refused.
    short = np.all(np.bincount(teachers, _norms(weighted, numbers)) <= norm)
    if not short or len(vectors) * norm >= _MOST_TOTAL:
        raise InvalidBallotError(
            f"The products of one teacher must have norms that add up to at most {norm}. A longer ballot was cast; "
            "scale the vectors down before they are rounded."
        )
    totals = weighted.T @ numbers  # exact below 2⁵³
    return BallotSum(totals.astype(np.int64), norm**2, unit)


def _norms(weights: FloatArray, vectors: FloatArray) -> FloatArray:
    """Return the norm of each product, rounded upward to whole numbers, the rounding of the root included."""
    squares = [np.einsum("ij,ij->i", rows, rows) for rows in (weights, vectors)]
    return np.ceil(np.sqrt(squares[0] * squares[1]) * _UPWARD)


def _check_products(weights: IntArray, vectors: IntArray, teachers: IntArray) -> None:
    integers = all(np.issubdtype(array.dtype, np.integer) for array in (weights, vectors, teachers))
    if not integers or weights.ndim != 2 or vectors.ndim != 2 or not len(weights) == len(vectors) == teachers.size:
        raise InvalidBallotError(
            "Ballots must be integers: weights of shape (products, classes), vectors of shape (products, numbers), and "
            f"teachers. Got shapes {weights.shape}, {vectors.shape} and {teachers.shape}."
        )
    for rows in (weights, vectors):
        if rows.size and max(int(rows.max()), -int(rows.min())) > _MOST_ENTRY:
            raise InvalidBallotError(f"The numbers of a ballot must be between -{_MOST_ENTRY} and {_MOST_ENTRY}.")
    if teachers.size and teachers.min() < 0:
        raise InvalidBallotError("Every product must have a teacher from 0 on.")
