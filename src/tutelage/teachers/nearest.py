"""Teachers without a model: each person votes its label on the few public queries that are nearest to its own rows."""

import hashlib
from collections.abc import Callable
from typing import Final, final

import numpy as np
from numpy.typing import ArrayLike

from tutelage._internal.records import by_identity, frozen, settle
from tutelage._internal.typing import FloatArray, IntArray, Mask, Matrix, Private
from tutelage._internal.validation import integer_at_least
from tutelage.exceptions import InvalidDataError
from tutelage.features.base import FeatureMap, require_public_map
from tutelage.features.rowwise import (
    EXACT_FLOAT64,
    distance_levels,
    finite_rows,
    in_chunks,
    nearest,
    on_grid,
    reach_of,
)
from tutelage.partition import Shards
from tutelage.teachers.base import Ensemble

_BEYOND_PUBLIC = 16  # times the largest public value: what lies further out is moved here
_AT_ONCE = 64  # rows: their distances to thousands of queries stay in a core's cache


@final
@by_identity
class FewVotes(Private):
    """Votes of teachers that abstain on most queries, those of each teacher in its order of preference."""

    teachers: IntArray  # of each vote, in ascending order
    queries: IntArray
    labels: IntArray
    shape: tuple[int, int, int]  # numbers of teachers, queries and classes

    def per_teacher(self) -> IntArray:
        """Return how many votes each teacher casts."""
        return np.bincount(self.teachers, minlength=self.shape[0])

    def first(self, votes: ArrayLike) -> "FewVotes":
        """Return the first votes of each teacher, as many as given: one number, or one per teacher."""
        cast = self.per_teacher()
        place = np.arange(len(self.teachers)) - (np.cumsum(cast) - cast)[self.teachers]
        return self.at(place < np.broadcast_to(votes, cast.shape)[self.teachers])

    def one_per_query(self) -> "FewVotes":
        """Return the first vote of each teacher on each query."""
        _, first = np.unique(self.teachers * self.shape[1] + self.queries, return_index=True)
        return self.at(np.sort(first))

    def at(self, places: Mask | IntArray) -> "FewVotes":
        """Return the votes at these places, or where a mask says so."""
        return FewVotes(
            self.teachers[places], self.queries[places], self.labels[places], self.shape
        )


@final
@frozen
class NearestQueries:
    """Every person votes its label on the few public queries that are nearest to its rows, and abstains on the others.

    Nothing is trained, so a person can be a teacher. A teacher of few votes costs little: `CappedGNMax` releases them,
    and `CappedVotes(cap)` chooses its noise.

    Parameters
    ----------
    cap : int
        Most votes of one person on the queries of one batch. The cap of the mechanism counts the votes of all batches.

    Notes
    -----
    Privacy: a vote depends on the rows of its own person and on public rows. Distances are computed in
    whole numbers (`tutelage.features.rowwise`), so that no other row moves them, not even in the last bit.
    """

    cap: int

    def __post_init__(self) -> None:
        settle(self, "cap", integer_at_least, 1)

    def fit(
        self,
        X: Matrix,
        y: IntArray,
        shards: Shards,
        *,
        n_classes: int,
        features: FeatureMap | None = None,
    ) -> "NearestTeachers":
        """Return the teachers, who keep the rows; each is a shard, as of `Shards.of_single_people`.

        They see queries through `features`, through which `X` went already.
        """
        return NearestTeachers(self.cap, X, y, shards, n_classes=n_classes, features=features)


@final
class NearestTeachers(Ensemble):
    """People who vote on the nearest queries; `NearestQueries.fit` makes them."""

    def __init__(
        self,
        cap: int,
        X: Matrix,
        y: IntArray,
        shards: Shards,
        *,
        n_classes: int,
        features: FeatureMap | None = None,
    ) -> None:
        super().__init__(n_classes)
        self._features = (
            None if features is None else require_public_map(features, "NearestQueries")
        )
        rows, labels = self._checked(X, y, shards)
        if rows.ndim != 2:
            raise InvalidDataError(f"`X` must have shape (rows, features). Got shape {rows.shape}.")
        rows = finite_rows(rows, rows.shape[1], "NearestQueries")
        by_teacher = np.argsort(shards.assignment, kind="stable")
        self.cap: Final = cap
        self._unit = shards.unit
        self._shards = shards
        self._rows = rows[by_teacher]
        self._labels = labels[by_teacher]
        self._teachers = shards.assignment[by_teacher]

    @property
    def names(self) -> list[str]:
        """Ids of the teachers, where each is one person, and otherwise their numbers; private."""
        people = self._shards.people
        return list(map(str, range(self._shards.n_shards))) if people is None else people.tolist()

    @property
    def data_digest(self) -> bytes:
        """A digest of all rows, in their order, where names are numbers; private: the same number, the same teacher."""
        digest = hashlib.sha256(b"people")
        if self._shards.people is None:
            for part in (self._teachers, self._labels, self._rows):
                digest.update(f"{part.dtype.str}{part.shape}".encode())
                digest.update(np.ascontiguousarray(part).data)
        return digest.digest()

    def few_votes(self, X_public: Matrix) -> FewVotes:
        """Return the votes of every teacher, the nearest query first; ties go to the first query, then to the class."""
        seen = (
            X_public
            if self._features is None
            else np.asarray(self._features.transform(np.array(X_public)))
        )
        public = finite_rows(seen, self._rows.shape[1], "NearestQueries")
        k = min(self.cap, len(public))
        found = in_chunks(_search(public, k), self._rows, _AT_ONCE)
        queries = found[:, :k].astype(np.int64).ravel()
        teachers = np.repeat(self._teachers, k)
        labels = np.repeat(self._labels, k)
        votes = FewVotes(
            teachers, queries, labels, (self._shards.n_shards, len(public), self._n_classes)
        )
        if np.all(np.diff(self._teachers) > 0):  # each has one row
            return votes  # what is below would come to the same
        order = np.lexsort((labels, queries, found[:, k:].ravel(), teachers))
        return votes.at(order).one_per_query().first(self.cap)


def _search(public: Matrix, k: int) -> Callable[[Matrix], FloatArray]:
    """Return the search for the `k` nearest public rows: their places, and then their distances in whole numbers."""
    center = np.zeros(1)
    levels = distance_levels(public.shape[1], EXACT_FLOAT64)
    step = reach_of(public, center) * _BEYOND_PUBLIC / levels
    search = nearest(on_grid(public, center, step, levels), k)

    def found(rows: Matrix) -> FloatArray:
        both = np.stack(search(on_grid(rows, center, step, levels)))
        # Along each row by distance and place; the search leaves ties in any order.
        order = np.lexsort(both)
        places, distances = np.take_along_axis(both, order[None], 2)
        return np.hstack([places, distances])

    return found
