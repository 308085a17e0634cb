"""Private rows in blocks of whole people: a ballot must be seen whole to be measured."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, Self, final

import numpy as np
from numpy.typing import NDArray

from tutelage._internal.records import by_identity
from tutelage._internal.typing import IntArray, Matrix, NeverPickled, Private
from tutelage.ballots import BallotSum
from tutelage.exceptions import InvalidBallotError, InvalidDataError
from tutelage.features.base import FeatureMap
from tutelage.privacy import PrivacyUnit

_AT_ONCE = 2**13  # rows, about
_MOST_KEPT = 2**26  # numbers, 256 MiB


@final
@by_identity
class PeopleBlock(Private):
    """All rows of some people."""

    rows: Matrix
    labels: IntArray  # class index of each row
    people: IntArray  # whose row it is, in ascending order: numbers that no other block has
    # Index of the group of each row, where a test report tells groups apart.
    groups: IntArray | None = None

    @property
    def group_of_rows(self) -> IntArray:
        """Index of the group of each row, of one group of all people where groups are not told apart."""
        if self.groups is None:
            return np.zeros(len(self.labels), np.int64)
        return self.groups

    def only(self, kept: IntArray | slice) -> "PeopleBlock":
        """Return some of the rows."""
        groups = None if self.groups is None else self.groups[kept]
        return PeopleBlock(
            self.rows[kept],
            self.labels[kept],
            self.people[kept],
            groups,
        )


SumOfBlocks = Callable[[Iterable[PeopleBlock], "Vectors"], BallotSum]
# Returns the blocks with a progress bar to this many people.
WithProgress = Callable[[Iterable[PeopleBlock], int], Iterable[PeopleBlock]]


class People(Protocol):
    """People with private rows: in memory, read again in each pass, or on the workers of a cluster."""

    @property
    def unit(self) -> PrivacyUnit:
        """Whose rows belong together."""
        ...

    @property
    def n_people(self) -> int:
        """How many people there are; private, unless rows are the people."""
        ...

    @property
    def first_map(self) -> FeatureMap | None:
        """Map of the rows before the teachers see them, if any."""
        ...

    def digest(self) -> bytes:
        """Return the digest of the entities or, where none are named, of the rows with all their columns."""
        ...

    def ids(self) -> Sequence[str]:
        """Return the ids of all people, each once; none if a ledger cannot know them one by one."""
        ...

    def through(self, feature_map: FeatureMap | None, n_features: int, /) -> Self:
        """Return the people with their rows as a map shows them, which makes `n_features` numbers of a row."""
        ...

    def sum_of_ballots(
        self, sum_of: SumOfBlocks, with_progress: WithProgress, kept: "Vectors", /
    ) -> BallotSum:
        """Return the sum of the ballots of all people.

        `sum_of` depends on the rows of some people alone. Vectors may be `kept` of rows that are in this process.
        """
        ...


@final
class Vectors(NeverPickled):
    """The vectors of private rows, kept from one round to the next as far as there is room; private.

    They are rounded to seven digits, kept or not, which is far finer than the steps of ballots.
    """

    def __init__(self, most: int = _MOST_KEPT) -> None:
        self._features: object = None
        self._of_block = dict[int, NDArray[np.float32]]()
        self._most = most
        self._room = most

    def begin(self, features: object) -> None:
        """Forget the vectors of all other features."""
        if features is not self._features:
            self._features = features
            self._room = self._most
            self._of_block.clear()

    def of(self, block: PeopleBlock, make: Callable[[], Matrix]) -> Matrix:
        """Return the vectors of a block: no person is in two."""
        first = int(block.people[0])
        vectors = self._of_block.get(first)
        # Rows that were changed between two passes are refused at the end of this one.
        if vectors is None or len(vectors) != len(block.rows):
            vectors = make().astype(np.float32)
            if vectors.size <= self._room:
                self._room -= vectors.size
                self._of_block[first] = vectors
        return vectors.astype(np.float64)


def require_finite(rows: Matrix) -> None:
    """Refuse rows that cannot be cast, before the number of people is released, or anything else."""
    if rows.dtype.kind == "f" and not np.isfinite(rows).all():
        raise InvalidDataError(
            "The features of a private row are not finite. Fill missing values in a public map."
        )


def blocks_of(whole: PeopleBlock) -> Iterator[PeopleBlock]:
    """Yield rows that lie in any order in blocks of whole people."""
    people = whole.people
    order = np.argsort(people, kind="stable")
    numbers = people - people.min()
    last_rows = np.cumsum(np.bincount(numbers))
    block_of_row = last_rows[numbers[order]] // _AT_ONCE
    starts = np.flatnonzero(np.diff(block_of_row)) + 1
    for places in np.split(order, starts):
        yield whole.only(places)


def whole_people(parts: Iterable[PeopleBlock]) -> Iterator[PeopleBlock]:
    """Yield parts whose people follow each other in blocks of whole people: the last person of a part may go on."""
    waiting: list[PeopleBlock] = []  # of which the last person may go on
    for part in parts:
        is_one_person = bool(waiting) and part.people[-1] == waiting[-1].people[-1]
        waiting.append(part)
        if is_one_person:
            continue
        block = _concatenate(waiting)
        n_before_last = int(np.count_nonzero(block.people < block.people[-1]))
        if n_before_last:
            yield from blocks_of(block.only(slice(n_before_last)))
        waiting = [block.only(slice(n_before_last, None))]
    if waiting:
        yield from blocks_of(_concatenate(waiting))


def in_turn(blocks: Iterable[PeopleBlock]) -> Iterator[PeopleBlock]:
    """Yield the blocks, and refuse one whose people may be in another: a ballot of two parts would count twice."""
    last = -1
    for block in blocks:
        people = block.people
        if not len(people) or np.any(np.diff(people) < 0) or people[0] <= last:
            raise InvalidBallotError(
                "Every block of private rows must hold all rows of its people, in ascending order."
            )
        last = int(people[-1])
        yield block


def _concatenate(parts: list[PeopleBlock]) -> PeopleBlock:
    if len(parts) == 1:
        return parts[0]
    groups = [part.groups for part in parts if part.groups is not None]
    return PeopleBlock(
        np.concatenate([part.rows for part in parts]),
        np.concatenate([part.labels for part in parts]),
        np.concatenate([part.people for part in parts]),
        np.concatenate(groups) if groups else None,
    )
