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
    BEYOND_PUBLIC,
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
        n_votes = self.per_teacher()
        first_place = np.cumsum(n_votes) - n_votes
        rank = np.arange(len(self.teachers)) - first_place[self.teachers]
        most = np.broadcast_to(votes, n_votes.shape)
        return self.at(rank < most[self.teachers])

    def one_per_query(self) -> "FewVotes":
        """Return the first vote of each teacher on each query."""
        pairs = self.teachers * self.shape[1] + self.queries
        _, first = np.unique(pairs, return_index=True)
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
        if features is not None:
            features = require_public_map(features, "NearestQueries")
        self._features = features
        rows, labels = self._rows_and_labels(X, y, shards)
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
        if self._shards.people is None:
            return [str(number) for number in range(self._shards.n_shards)]
        return self._shards.people.tolist()

    @property
    def data_digest(self) -> bytes:
        """A digest of all rows, in their order, where names are numbers; private: the same number, the same teacher."""
        digest = hashlib.sha256(b"people")
        if self._shards.people is not None:
            return digest.digest()
        for part in (self._teachers, self._labels, self._rows):
            digest.update(f"{part.dtype.str}{part.shape}".encode())
            digest.update(np.ascontiguousarray(part).data)
        return digest.digest()

    def few_votes(self, X_public: Matrix) -> FewVotes:
        """Return the votes of every teacher, the nearest query first; ties go to the first query, then to the class."""
        if self._features is not None:
            X_public = np.asarray(self._features.transform(np.array(X_public)))
        public = finite_rows(X_public, self._rows.shape[1], "NearestQueries")
        k = min(self.cap, len(public))
        # places_and_distances: (rows, 2k); queries, distances, teachers, labels: (rows · k,)
        places_and_distances = in_chunks(_search(public, k), self._rows, _AT_ONCE)
        queries = places_and_distances[:, :k].astype(np.int64).ravel()
        distances = places_and_distances[:, k:].ravel()
        teachers = np.repeat(self._teachers, k)
        labels = np.repeat(self._labels, k)
        shape = self._shards.n_shards, len(public), self._n_classes
        votes = FewVotes(teachers, queries, labels, shape)
        # Where each teacher has one row, its votes are in order and differ.
        if np.all(np.diff(self._teachers) > 0):
            return votes
        order = np.lexsort((labels, queries, distances, teachers))
        return votes.at(order).one_per_query().first(self.cap)


def _search(public: Matrix, k: int) -> Callable[[Matrix], FloatArray]:
    """Return the search for the `k` nearest public rows: their places, and then their distances in whole numbers."""
    # public: (queries, features); rows: (rows, features); result: (rows, 2k)
    center = np.zeros(1)
    levels = distance_levels(public.shape[1], EXACT_FLOAT64)
    step = reach_of(public, center) * BEYOND_PUBLIC / levels
    search = nearest(on_grid(public, center, step, levels), k)

    def places_and_distances(rows: Matrix) -> FloatArray:
        neighbors = np.stack(search(on_grid(rows, center, step, levels)))
        # Along each row by distance and place; the search leaves ties in any order.
        order = np.lexsort(neighbors)
        places, distances = np.take_along_axis(neighbors, order[None], 2)
        return np.hstack([places, distances])

    return places_and_distances
