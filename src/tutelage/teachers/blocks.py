"""Private rows in blocks of whole people: a ballot must be seen whole to be measured."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, final

import numpy as np

from tutelage._internal.typing import IntArray, Matrix, NeverPickled
from tutelage.ballots import BallotSum
from tutelage.exceptions import InvalidBallotError, InvalidDataError
from tutelage.features.base import FeatureMap
from tutelage.partition import Shards
from tutelage.privacy import PrivacyUnit

_AT_ONCE = 2**13  # rows, about
_MOST_KEPT = 2**24  # numbers, 128 MiB


class PeopleBlock(NamedTuple):
    """All rows of some people."""

    rows: Matrix
    labels: IntArray  # class index of each row
    people: IntArray  # whose row it is, in ascending order: numbers that no other block has

    def __repr__(self) -> str:
        return "PeopleBlock(<private rows hidden>)"

    def only(self, kept: IntArray | slice) -> "PeopleBlock":
        """Return some of the rows."""
        return PeopleBlock(self.rows[kept], self.labels[kept], self.people[kept])


class PrivatePeople(Protocol):
    """Private rows: in memory, read again in each pass, or on the workers of a cluster."""

    @property
    def unit(self) -> PrivacyUnit:
        """Whose rows belong together."""
        ...

    @property
    def n_people(self) -> int:
        """How many people there are."""
        ...

    @property
    def first_map(self) -> FeatureMap | None:
        """Map of the rows before the teachers see them, if any."""
        ...

    def summed(self, sum_of: "SumOfBlocks", shown: "Shown", kept: "Vectors", /) -> BallotSum:
        """Return the sum of the ballots of all people.

        `sum_of` is a function of the rows of some people alone. Vectors may be kept of rows that are in this process.
        """
        ...


SumOfBlocks = Callable[[Iterable[PeopleBlock], "Vectors"], BallotSum]
Shown = Callable[[Iterable[PeopleBlock], int], Iterable[PeopleBlock]]  # with a progress bar to this many people


@final
@dataclass(frozen=True, slots=True, eq=False)
class PeopleInMemory:
    """Private rows as the teachers see them, and whose they are."""

    rows: Matrix = field(repr=False)
    labels: IntArray = field(repr=False)
    shards: Shards  # one per person
    first_map: None = None

    def __post_init__(self) -> None:
        require_finite(self.rows)

    @property
    def unit(self) -> PrivacyUnit:
        """Whose rows belong together."""
        return self.shards.unit

    @property
    def n_people(self) -> int:
        """How many people there are."""
        return self.shards.n_shards

    def blocks(self) -> Iterator[PeopleBlock]:
        """Yield all rows, of whole people at a time."""
        return blocks_of(self.rows, self.labels, self.shards.assignment)

    def summed(self, sum_of: SumOfBlocks, shown: Shown, kept: "Vectors") -> BallotSum:
        """Return the sum of the ballots of all people."""
        return sum_of(shown(self.blocks(), self.n_people), kept)


@final
class Vectors(NeverPickled):
    """The vectors of private rows, kept from one round to the next as far as there is room; private."""

    def __init__(self, most: int = _MOST_KEPT) -> None:
        self._features: object = None
        self._of_block = dict[int, Matrix]()
        self._most = self._room = most

    def begin(self, features: object) -> None:
        """Forget the vectors of all other features."""
        if features is not self._features:
            self._features, self._room = features, self._most
            self._of_block.clear()

    def of(self, block: PeopleBlock, make: Callable[[], Matrix]) -> Matrix:
        """Return the vectors of a block: no person is in two."""
        first = int(block.people[0])
        found = self._of_block.get(first)
        if found is None:
            found = make()
            if found.size <= self._room:
                self._room -= found.size
                self._of_block[first] = found
        return found


def require_finite(rows: Matrix) -> None:
    """Refuse rows that cannot be cast, before the number of people is released, or anything else."""
    if rows.dtype.kind == "f" and not np.isfinite(rows).all():
        raise InvalidDataError("The features of a private row are not finite. Fill missing values in a public map.")


def blocks_of(rows: Matrix, labels: IntArray, people: IntArray) -> Iterator[PeopleBlock]:
    """Yield rows that lie in any order in blocks of whole people."""
    order = np.argsort(people, kind="stable")
    ends = np.cumsum(np.bincount(people - people.min()))
    block_of_row = ends[people[order] - people.min()] // _AT_ONCE
    for block in np.split(order, np.flatnonzero(np.diff(block_of_row)) + 1):
        yield PeopleBlock(rows[block], labels[block], people[block])


def whole_people(parts: Iterable[PeopleBlock]) -> Iterator[PeopleBlock]:
    """Yield parts whose people follow each other in blocks of whole people: the last person of a part may go on."""
    held: list[PeopleBlock] = []
    for part in parts:
        goes_on = bool(held) and part.people[-1] == held[-1].people[-1]
        held.append(part)
        if not goes_on:
            whole = _joined(held)
            last = int(np.searchsorted(whole.people, whole.people[-1]))
            yield from blocks_of(*whole.only(slice(last))) if last else ()
            held = [whole.only(slice(last, None))]
    if held:
        yield from blocks_of(*_joined(held))


def in_turn(blocks: Iterable[PeopleBlock]) -> Iterator[PeopleBlock]:
    """Yield the blocks, and refuse one whose people may be in another: a ballot of two parts would count twice."""
    last = -1
    for block in blocks:
        if not len(block.people) or np.any(np.diff(block.people) < 0) or block.people[0] <= last:
            raise InvalidBallotError(
                "Every block of private rows must hold all rows of its people, in ascending order."
            )
        last = int(block.people[-1])
        yield block


def _joined(parts: list[PeopleBlock]) -> PeopleBlock:
    return parts[0] if len(parts) == 1 else PeopleBlock(*map(np.concatenate, zip(*parts, strict=True)))
