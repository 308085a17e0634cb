"""Bounded ballots and their sums: the sensitive heart of PATE, with guarded printing and plain-array storage.

A teacher votes on every query, on few of them, or casts an array of whole numbers of limited length; only counts and
sums go on. The bound is checked on the numbers of every ballot, so the sensitivity of a sum needs no other assumption.
"""

import math
import os
from collections.abc import Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import ArrayLike

from tutelage._internal.files import VOTES, ArrayForm, StoredArrays, name_in, read_arrays
from tutelage._internal.gate import user_path
from tutelage._internal.outputs import claim_output, open_private
from tutelage._internal.records import by_identity, frozen, settle
from tutelage._internal.typing import (
    ABSTAIN,
    Array,
    Ballots,
    FloatArray,
    IntArray,
    NeverPickled,
    Private,
)
from tutelage._internal.validation import ballots_between, integer_at_least
from tutelage.events import TIER_STEPS, Event, TierSteps
from tutelage.exceptions import InvalidBallotError, InvalidDataError
from tutelage.privacy import ONE_TEACHER, NeighboringRelation, PrivacyUnit

_FORMAT = 1
_MOST_ABOUT = 2**16  # bytes of whatever is said about the counts
_MOST_COUNTS = 2**28  # 2 GiB once they are 64-bit integers
_MOST_TEACHERS = 2**50  # counts and noise together stay far below the limit of 64-bit integers
_MOST_ENTRY = 2**24
_MOST_NORM = 2**30
_UPWARD = 1 + 2.0**-40  # many times the rounding of a few operations
_MOST_TOTAL = 2**53  # up to which sums of floats are exact, in which they are made


@final
@frozen
class OneHot:
    """The form of votes: a teacher votes for one class, on every query or, with a cap, on few of them; public."""

    n_classes: int
    unit: PrivacyUnit
    cap: int | None = None  # most votes of one teacher

    def holds(self, other: object) -> bool:
        """Return whether ballots of another form are no longer than those of this one."""
        if not isinstance(other, OneHot):
            return False
        if other.n_classes != self.n_classes or other.unit != self.unit:
            return False
        return self.cap is None or (other.cap is not None and other.cap <= self.cap)


@final
@frozen
class Vector:
    """The form of ballots of whole numbers of limited length; public."""

    shape: tuple[int, int]  # classes and numbers
    norm_squared: int  # the most, over all classes and numbers together
    unit: PrivacyUnit
    nonnegative: bool = False  # whether no number of a ballot is below 0
    tiers: TierSteps = ()  # of the people; the ballots are then in steps
    cap: ClassVar[None] = None

    def in_tiers(self, tiers: TierSteps) -> "Vector":
        """Return the form of the same ballots in steps, those of people in tiers shortened."""
        if not tiers:
            return self
        return replace(self, norm_squared=self.norm_squared * TIER_STEPS**2, tiers=tiers)

    def holds(self, other: object) -> bool:
        """Return whether ballots of another form are no longer than those of this one: only of the same."""
        return self == other


@final
@frozen
class Shortfall:
    """The form of a number of teachers by which releases miss what was proposed, which each moves by one; public."""

    unit: PrivacyUnit
    releases: Event
    cap: ClassVar[None] = None

    def holds(self, other: object) -> bool:
        """Return whether a number of another form is of the same releases."""
        return self == other


@final
@by_identity
class Missing(Private):
    """Such a number; private."""

    teachers: int
    form: Shortfall


@final
@by_identity
class VoteHistogram(NeverPickled):
    """How many teachers voted for each class on each query; private.

    Parameters
    ----------
    counts : integer array of shape (queries, classes)
        n_j per query, in votes. A row may sum to less than `n_teachers` where teachers abstained.
    n_teachers : int
        Number of teachers entitled to vote.
    unit : PrivacyUnit
        Whose change moves at most one ballot. Default: one teacher's whole data.
    cap : int, optional
        Most votes of one teacher on all queries together. Default: one on every query.
    """

    _stored_by = "save(path)"
    counts: IntArray = field(repr=False)
    n_teachers: int
    unit: PrivacyUnit = ONE_TEACHER
    cap: int | None = None

    def __post_init__(self) -> None:
        integer_at_least(self.n_teachers, 1, "n_teachers", "VoteHistogram")
        if self.cap is not None:
            settle(self, "cap", integer_at_least, 1)
        settle(self, "counts", self._whole_counts)

    def _whole_counts(self, value: ArrayLike, _name: str, _owner: str) -> IntArray:
        """Return counts as 64-bit integers that cannot be changed, once they are possible votes."""
        counts = np.asarray(value)
        _check_counts(counts)
        counts = counts.astype(np.int64)
        if self.n_teachers > _MOST_TEACHERS:
            raise InvalidDataError(
                f"`n_teachers` must be at most {_MOST_TEACHERS}. Got {self.n_teachers}."
            )
        outside = np.any(counts < 0) or np.any(counts > self.n_teachers)
        if outside or np.any(counts.sum(axis=1) > self.n_teachers):
            raise InvalidDataError(
                f"Each query's vote counts must be >= 0 and sum to at most n_teachers={self.n_teachers}. "
                "Check the axis order (queries, classes) and the number of teachers."
            )
        if self.cap is not None and int(counts.sum()) > self.n_teachers * self.cap:
            raise InvalidDataError(
                f"Vote counts with `cap` = {self.cap} must add up to at most `cap` votes per teacher. Cap the ballots "
                "before they are counted."
            )
        counts.setflags(write=False)
        return counts

    @property
    def n_queries(self) -> int:
        """Number of queries voted on."""
        return self.counts.shape[0]

    @property
    def n_classes(self) -> int:
        """Number of classes, including those without votes."""
        return self.counts.shape[1]

    @property
    def form(self) -> OneHot:
        """The public form of the ballots."""
        return OneHot(self.n_classes, self.unit, self.cap)

    def distance_to(self, neighbor: "VoteHistogram") -> float:
        """Return how far a neighbor's counts are from these: on the worst query or, with a cap, on all in caps."""
        on_queries = np.abs(neighbor.counts - self.counts).sum(axis=1)
        if self.cap is None:
            return float(on_queries.max())
        return float(on_queries.sum()) / self.cap

    def first(self, queries: int) -> "VoteHistogram":
        """Return the histogram of the first `queries` queries, at least 1 and no more than there are."""
        integer_at_least(queries, 1, "queries", "VoteHistogram.first")
        if queries > self.n_queries:
            raise InvalidDataError(
                f"The histogram holds {self.n_queries} queries. Got a request for {queries}."
            )
        return self.select(np.arange(queries))

    def select(self, queries: Array) -> "VoteHistogram":
        """Return the histogram of the chosen queries, by a mask or by index: those that a mechanism answered."""
        queries = np.asarray(queries)
        fits = queries.dtype == bool and queries.shape == (self.n_queries,)
        if queries.dtype.kind in "iu" and queries.ndim == 1:
            fits = np.all((queries >= 0) & (queries < self.n_queries))
        if not fits:
            raise InvalidDataError(
                f"`queries` must be a mask of shape ({self.n_queries},) or indices below {self.n_queries}. "
                f"Got {queries.dtype} of shape {queries.shape}."
            )
        return replace(self, counts=self.counts[queries])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the private counts as plain arrays to an npz file that only its owner may read.

        A file that is there already is replaced only if it holds private votes or sums.
        """
        with claim_output(path, VOTES) as output, output.write() as part:
            self.write(part)

    def write(self, path: Path) -> None:
        """Write the same to a path at which nothing is yet."""
        capped = {} if self.cap is None else {"cap": np.int64(self.cap)}
        _write(path, self.unit, counts=self.counts, n_teachers=np.int64(self.n_teachers), **capped)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        array: str | None = None,
        n_teachers: int | None = None,
        n_queries: int | None = None,
    ) -> "VoteHistogram":
        """Read a histogram written by `save`, or a bare array of counts from any npz file; never unpickles.

        Parameters
        ----------
        path : path-like
            The npz file.
        array : str, optional
            Name of the array of counts, shape (queries, classes). Default: ``"counts"``, or the only array there is.
        n_teachers : int, optional
            Number of teachers, where the file does not say and not every row sums to it.
        n_queries : int, optional
            Number of queries that the votes must be about. Counts of another shape or type are never unpacked.
        """
        arrays = read_arrays(user_path(path))
        if "format" in arrays and array in (None, "counts"):
            votes = cls._from_own_format(arrays, path, n_queries)
            if n_teachers not in (None, votes.n_teachers):
                raise InvalidDataError(
                    f"{path} says it has {votes.n_teachers} teachers. Got n_teachers={n_teachers}."
                )
            return votes

        counts = _counts_in(arrays, name_in(arrays, path, array, "counts"), n_queries)
        if n_teachers is None:
            sums = np.unique(counts.sum(axis=1, dtype=np.int64))
            if sums.size != 1:
                raise InvalidDataError(
                    "The rows of the vote counts do not all sum to the same number of teachers; pass `n_teachers`."
                )
            n_teachers = int(sums[0])
        return cls(counts, n_teachers)

    @classmethod
    def _from_own_format(
        cls, arrays: StoredArrays, path: object, n_queries: int | None
    ) -> "VoteHistogram":
        try:
            if any(arrays.form(name).nbytes > _MOST_ABOUT for name in arrays if name != "counts"):
                raise ValueError
            number = int(arrays["format"])
            if number != _FORMAT:
                raise InvalidDataError(
                    f"{path} has another vote format ({number}); read it with the version of tutelage that made it."
                )
            name, relation = map(str, arrays["unit"])
            unit = PrivacyUnit(name, NeighboringRelation.of(relation, str(path)))
            cap = int(arrays["cap"]) if "cap" in arrays else None
            counts = _counts_in(arrays, "counts", n_queries)
            return cls(counts, int(arrays["n_teachers"]), unit, cap)
        except InvalidDataError:
            raise
        except (KeyError, TypeError, ValueError):
            raise InvalidDataError(
                f"{path} is not a complete vote file of format {_FORMAT}. Save it again."
            ) from None

    def __repr__(self) -> str:
        # Where the number of teachers is that of people, it is private too.
        of = f"teachers={self.n_teachers}" if self.cap is None else f"cap={self.cap}"
        return (
            f"VoteHistogram(<counts hidden: private votes>, queries={self.n_queries}, classes={self.n_classes}, {of}, "
            f"unit={self.unit.name!r})"
        )


def tally(
    ballots: Ballots,
    n_classes: int,
    unit: PrivacyUnit = ONE_TEACHER,
    *,
    cap: int | None = None,
) -> VoteHistogram:
    """Count ballots into a private vote histogram: n_j(x) = #{i : f_i(x) = j}.

    Parameters
    ----------
    ballots : integer array of shape (teachers, queries)
        Class index per teacher and query, or −1 for an abstention.
    n_classes : int
        Number of classes; classes without votes keep their zero column.
    unit : PrivacyUnit
        Whose change moves at most one ballot per query.
    cap : int, optional
        Most votes that one teacher may cast on all queries together.

    Raises
    ------
    InvalidBallotError
        If a teacher casts more.
    """
    integer_at_least(n_classes, 2, "n_classes", "tally")
    ballots = ballots_between(
        ballots,
        n_classes,
        "Ballots",
        "(teachers, queries)",
        InvalidDataError,
    )
    counts = np.stack([(ballots == label).sum(axis=0) for label in range(n_classes)], axis=1)
    if cap is not None:
        _check_cap((ballots != ABSTAIN).sum(axis=1), integer_at_least(cap, 1, "cap", "tally"))
    return VoteHistogram(counts, ballots.shape[0], unit, cap)


def tally_few(
    teachers: IntArray,
    queries: IntArray,
    labels: IntArray,
    *,
    shape: tuple[int, int, int],
    cap: int,
    unit: PrivacyUnit = ONE_TEACHER,
) -> VoteHistogram:
    """Count the votes of teachers that abstain on most queries: `tally` without a cell for every abstention.

    Parameters
    ----------
    teachers, queries, labels : integer arrays of shape (votes,)
        Teacher, query and class of each vote.
    shape : tuple of int
        Numbers of teachers, queries and classes.
    cap : int
        Most votes that one teacher may cast on all queries together.
    unit : PrivacyUnit
        Whose change moves at most one teacher's votes.

    Raises
    ------
    InvalidBallotError
        If a teacher casts more, or two on one query.
    """
    cap = integer_at_least(cap, 1, "cap", "tally_few")
    columns = [np.asarray(array) for array in (teachers, queries, labels)]
    for column in columns:
        fits = column.ndim == 1 and len(column) == len(columns[0])
        if not fits or column.dtype.kind not in "iu":
            raise InvalidBallotError(
                "Votes must be one teacher, one query and one class each, as integers."
            )
    for column, size in zip(columns, shape, strict=True):
        if np.any((column < 0) | (column >= size)):
            raise InvalidBallotError(
                "Votes must name a teacher, a query and a class from 0 on, below how many there are."
            )

    # Each of shape (votes,).
    of_teacher, on_query, for_class = (column.astype(np.int64) for column in columns)
    n_teachers, n_queries, n_classes = shape
    _check_cap(np.bincount(of_teacher, minlength=1), cap)
    if len(np.unique(of_teacher * n_queries + on_query)) < len(of_teacher):
        raise InvalidBallotError("A teacher must cast one vote on a query at most. One cast two.")
    counts = np.bincount(on_query * n_classes + for_class, minlength=n_queries * n_classes)
    return VoteHistogram(counts.reshape(n_queries, n_classes), n_teachers, unit, cap)


def _check_cap(cast: IntArray, cap: int) -> None:
    if np.any(cast > cap):
        raise InvalidBallotError(
            f"A teacher must cast at most `cap` = {cap} votes on all queries together. One cast more."
        )


def _counts_in(arrays: StoredArrays, name: str, n_queries: int | None) -> Array:
    form = arrays.form(name)
    _check_counts(form)
    if n_queries is not None and form.shape[0] != n_queries:
        raise InvalidDataError(
            f"{arrays.path} must hold votes on {n_queries} queries, one row per public row, in order. "
            f"Got {form.shape[0]}."
        )
    if math.prod(form.shape) > _MOST_COUNTS:
        raise InvalidDataError(
            f"{arrays.path} holds more than {_MOST_COUNTS} vote counts. Split it."
        )
    return arrays[name]


def _check_counts(counts: Array | ArrayForm) -> None:
    if len(counts.shape) != 2 or counts.shape[1] < 2:
        raise InvalidDataError(
            f"Vote counts must have shape (queries, classes) with at least 2 classes. Got shape {counts.shape}."
        )
    if counts.dtype.kind not in "iu":
        raise InvalidDataError(
            f"Vote counts must be integers: whole teachers vote. Got dtype {counts.dtype}."
        )


@final
@by_identity
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
    nonnegative : bool
        Whether no number of a ballot is below 0, which `sum_of_cells` checks.
    tiers : tuple
        Names of the tiers of the people, with the steps of each, as `NoisySumGaussian` has them.
    """

    totals: IntArray = field(repr=False)
    norm_squared: int
    unit: PrivacyUnit = ONE_TEACHER
    nonnegative: bool = False
    tiers: TierSteps = ()

    def __post_init__(self) -> None:
        integer_at_least(self.norm_squared, 1, "norm_squared", "BallotSum")
        settle(self, "totals", _whole_totals)

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return self.totals.shape[0]

    @property
    def form(self) -> Vector:
        """The public form of the ballots."""
        n_classes, numbers = self.totals.shape
        return Vector(
            (n_classes, numbers), self.norm_squared, self.unit, self.nonnegative, self.tiers
        )

    def distance_to(self, neighbor: "BallotSum") -> float:
        """Return how far the sum of a neighbor is from this one, in lengths of the longest ballot."""
        change = (neighbor.totals - self.totals).astype(np.float64)
        return float(np.linalg.norm(change)) / math.sqrt(self.norm_squared)

    def write(self, path: Path) -> None:
        """Write the sum as plain arrays to a new npz file that only its owner may read."""
        _write(path, self.unit, totals=self.totals, norm_squared=np.array(str(self.norm_squared)))

    def __repr__(self) -> str:
        return (
            f"BallotSum(<totals hidden: private ballots>, classes={self.n_classes}, numbers={self.totals.shape[1]}, "
            f"unit={self.unit.name!r})"
        )


def _whole_totals(value: ArrayLike, _name: str, _owner: str) -> IntArray:
    """Return a sum as 64-bit integers that cannot be changed."""
    totals = np.asarray(value)
    if totals.ndim != 2 or totals.dtype.kind not in "iu":
        raise InvalidDataError(
            f"`totals` of BallotSum must be integers of shape (classes, numbers). Got {totals.dtype} of shape "
            f"{totals.shape}."
        )
    totals = totals.astype(np.int64)
    totals.setflags(write=False)
    return totals


def add_sums(one: BallotSum, other: BallotSum) -> BallotSum:
    """Return the sum of the ballots of two groups of teachers that have no person in common."""
    if one.form != other.form:
        raise InvalidBallotError(
            "Sums of ballots must have one shape, norm and privacy unit to be added."
        )
    return replace(one, totals=one.totals + other.totals)


def sum_of_tiers(sums: Sequence[BallotSum], tiers: TierSteps) -> BallotSum:
    """Return the sum of the ballots of all tiers in steps, the ballots of each shortened by a public factor.

    A ballot with k of 2¹⁰ steps is multiplied by k, and a whole one by 2¹⁰: no number is rounded, so the norm of a
    shortened ballot is at most k/2¹⁰ of the norm that all may have.
    """
    form = sums[0].form
    if any(part.form != form or part.tiers for part in sums) or len(sums) != len(tiers):
        raise InvalidBallotError("Every tier must have one sum of ballots, all of one form.")
    largest = sum(int(np.abs(part.totals).max(initial=0)) for part in sums)
    if largest >= _MOST_TOTAL:
        raise InvalidBallotError("The sum of the ballots of all tiers is too large.")
    totals = np.zeros(form.shape, np.int64)
    for part, (_, steps) in zip(sums, tiers, strict=True):
        totals += steps * part.totals
    scaled = form.in_tiers(tiers)
    return BallotSum(totals, scaled.norm_squared, form.unit, form.nonnegative, tiers)


def _write(path: Path, unit: PrivacyUnit, **arrays: Any) -> None:
    with open_private(path) as file:
        words = np.array([unit.name, unit.neighboring.value])
        np.savez_compressed(file, format=np.int64(_FORMAT), unit=words, **arrays)


def cap_ballots(ballots: Ballots, confidences: ArrayLike, cap: int) -> Ballots:
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
    sure = np.array(confidences, np.float64)
    ballots = np.asarray(ballots)
    if ballots.ndim != 2 or ballots.dtype.kind not in "iu" or sure.shape != ballots.shape:
        raise InvalidBallotError(
            "`ballots` of cap_ballots must be integers of shape (teachers, queries), with a confidence each. Got "
            f"shapes {ballots.shape} and {sure.shape}."
        )
    votes = np.where(np.isnan(sure), ABSTAIN, ballots)
    # surest: (teachers, cap). Along each ballot; equal ones stay in their order.
    surest = np.lexsort((-sure, votes == ABSTAIN))[:, :cap]
    capped = np.full_like(ballots, ABSTAIN)
    np.put_along_axis(capped, surest, np.take_along_axis(votes, surest, 1), 1)
    return capped


def sum_of_products(
    weights: IntArray,
    vectors: IntArray,
    teachers: IntArray,
    *,
    norm: int,
    unit: PrivacyUnit = ONE_TEACHER,
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
        raise InvalidDataError(
            f"`norm` of sum_of_products must be at most {_MOST_NORM}. Got {norm}."
        )
    weights = np.asarray(weights)
    vectors = np.asarray(vectors)
    teachers = np.asarray(teachers)
    _check_products(weights, vectors, teachers)

    # Whole numbers below 2²⁴: exact.
    weighted = weights.astype(np.float64)
    numbers = vectors.astype(np.float64)
    # The comparison is false for NaN, so a ballot with NaN is refused.
    is_short = np.all(np.bincount(teachers, _norms(weighted, numbers)) <= norm)
    if not is_short or len(vectors) * norm >= _MOST_TOTAL:
        raise InvalidBallotError(
            f"The products of one teacher must have norms that add up to at most {norm}. A longer ballot was cast; "
            "scale the vectors down before they are rounded."
        )
    totals = weighted.T @ numbers  # exact below 2⁵³
    return BallotSum(totals.astype(np.int64), norm**2, unit)


def sum_of_cells(
    people: IntArray,
    cells: IntArray,
    numbers: IntArray,
    n_rows: IntArray,
    form: Vector,
) -> BallotSum:
    """Add up ballots most of whose numbers are 0: of each person, the mean of its rows, rounded toward 0.

    Each entry, of arrays of shape (entries,), says whose it is, its place among all numbers, what a row has there, and
    how many rows the person has. A ballot is refused that is longer than its form allows, or has a number below 0 where
    the form has none.
    """
    size = math.prod(form.shape)
    if np.any((cells < 0) | (cells >= size) | (people < 0) | (n_rows < 1)):
        raise InvalidBallotError(
            "Entries of ballots must have a place, a person from 0 on, and at least one row."
        )

    distinct = people * size + cells
    sizes = np.abs(numbers)
    places = None
    if np.any(distinct[1:] <= distinct[:-1]):
        # Entries of one person in one place are one number of the ballot.
        distinct, first, places = np.unique(distinct, return_index=True, return_inverse=True)
        people = people[first]
        cells = cells[first]
        n_rows = n_rows[first]
        sizes = np.bincount(places, weights=sizes)
    # Limits that no number of rows or people in one block reaches: a person with many must not stop all others.
    largest = float(sizes.max(initial=0))
    n_people = people.max(initial=0) + 1
    most = max(form.norm_squared, n_people * math.sqrt(form.norm_squared))
    # The comparison is false for NaN, so a ballot with NaN is refused.
    if not largest < _MOST_TOTAL or most >= _MOST_TOTAL:
        raise InvalidBallotError(
            "Ballots are too large to be added up exactly. Cast fewer at once, or in coarser steps."
        )

    sums = numbers
    if places is not None:
        sums = np.bincount(places, weights=numbers, minlength=len(distinct))
    sums = sums.astype(np.int64, copy=False)
    ballots = sums
    if n_rows.max(initial=1) > 1:
        ballots = np.sign(sums) * (np.abs(sums) // n_rows)
    # Floats hold sums of squares exactly up to 2⁵³, and one beyond that stays beyond.
    squares = np.bincount(people - people[:1].sum(), weights=ballots.astype(np.float64) ** 2)
    if np.any(squares > form.norm_squared) or (form.nonnegative and np.any(ballots < 0)):
        raise InvalidBallotError(
            f"A ballot is too long, beyond a squared norm of {form.norm_squared}, or has a negative number that its "
            "form does not allow."
        )

    totals = np.bincount(cells, weights=ballots, minlength=size).astype(np.int64)
    return BallotSum(totals.reshape(form.shape), form.norm_squared, form.unit, form.nonnegative)


def _norms(weights: FloatArray, vectors: FloatArray) -> FloatArray:
    """Return the norm of each product, rounded upward to whole numbers, the rounding of the root included."""
    # weights: (products, classes); vectors: (products, numbers)
    weights_squared = np.einsum("ij,ij->i", weights, weights)
    vectors_squared = np.einsum("ij,ij->i", vectors, vectors)
    return np.ceil(np.sqrt(weights_squared * vectors_squared) * _UPWARD)


def _check_products(weights: IntArray, vectors: IntArray, teachers: IntArray) -> None:
    are_integers = all(array.dtype.kind in "iu" for array in (weights, vectors, teachers))
    are_tables = weights.ndim == vectors.ndim == 2
    if not are_integers or not are_tables or not len(weights) == len(vectors) == teachers.size:
        raise InvalidBallotError(
            "Ballots must be integers: weights of shape (products, classes), vectors of shape (products, numbers), and "
            f"teachers. Got shapes {weights.shape}, {vectors.shape} and {teachers.shape}."
        )
    for rows in (weights, vectors):
        if rows.min(initial=0) < -_MOST_ENTRY or rows.max(initial=0) > _MOST_ENTRY:
            raise InvalidBallotError(
                f"The numbers of a ballot must be between -{_MOST_ENTRY} and {_MOST_ENTRY}."
            )
    if np.any(teachers < 0):
        raise InvalidBallotError("Every product must have a teacher from 0 on.")
