"""Methods of noisy sums: people cast ballots of numbers, and a student follows from the sums."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, replace
from math import prod
from typing import Any, Self, final

import numpy as np

from tutelage._internal.records import by_identity
from tutelage._internal.typing import IntArray, Matrix, Private
from tutelage.accounting.filter import Accounting
from tutelage.ballots import BallotSum, Vector, add_sums, sum_of_cells, sum_of_products
from tutelage.events import Event
from tutelage.exceptions import InvalidParameterError
from tutelage.mechanisms import NoisySum
from tutelage.methods.base import Method, Needs
from tutelage.methods.over_releases import Turn
from tutelage.methods.requests import Asking, NoisedBallots, Outcome, Public, Request, Sizes
from tutelage.people.blocks import (
    People,
    PeopleBlock,
    SumOfBlocks,
    Vectors,
    WithProgress,
    require_finite,
)
from tutelage.people.memory import PeopleInMemory
from tutelage.privacy import NeighboringRelation, PrivacyUnit
from tutelage.students.stacking import joint_norm, numbers_of
from tutelage.teachers.vectors import sum_of_blocks

_ENTRIES_AT_ONCE = 2**20  # of ballots most of whose numbers are 0
_NUMBERS_AT_ONCE = 2**18  # of the ballots that stack: with a hundred classes one has thousands
# Noise of the number of people, in multiples of the noise on ballots: the number takes a hundredth of what they take.
_NOISE_OF_COUNT = 10.0
SumOf = Callable[[PeopleBlock, Vector], BallotSum]


@final
@by_identity
class PeopleReady(Private):
    """People with their rows, as the map, or the schema, shows them."""

    people: People
    vectors: Vectors = field(default_factory=Vectors)
    holdout: "PeopleReady | None" = None  # who cast ballots for a test report alone

    def __post_init__(self) -> None:
        # The rows of others were looked at when they were read.
        if isinstance(self.people, PeopleInMemory):
            require_finite(self.people.rows)

    def sum_of_ballots(
        self,
        form: Vector,
        sum_of: SumOfBlocks,
        shown: WithProgress,
    ) -> BallotSum:
        """Return the sum of the ballots of all people, also where there are none: that shows in no error."""
        if self.people.n_people == 0:
            nothing = np.zeros(form.shape, np.int64)
            return BallotSum(nothing, form.norm_squared, form.unit, form.nonnegative)
        return self.people.sum_of_ballots(sum_of, shown, self.vectors)

    def private_attributes(
        self, _outcome: Outcome, kept: Sequence[NoisedBallots], /
    ) -> dict[str, object]:
        """Return the private attributes of a fit: the sums of the ballots that the student follows from."""
        sums = list[BallotSum]()
        for answer in kept:
            if not isinstance(answer.request.ballot, _CountBallot):
                sums.append(answer.ballots)
        return {"ballots_": tuple(sums)}


class _CountBallot:
    """The ballot that is the number one."""

    def cast(
        self,
        prepared: PeopleReady,
        _request: Request,
        _places: IntArray,
        /,
    ) -> BallotSum:
        """Return the private number of people."""
        people = prepared.people
        return BallotSum(np.array([[people.n_people]]), 1, people.unit)


@final
@by_identity
class BallotOfRows:
    """A ballot that is cast from the rows of a person; public."""

    sum_of: SumOf  # private, of the people of a block

    def cast(
        self,
        prepared: PeopleReady,
        request: Request,
        _places: IntArray,
        /,
    ) -> BallotSum:
        """Return the private sum of all people's ballots."""
        form: Any = request.form

        def sum_of(blocks: Iterable[PeopleBlock], _: object) -> BallotSum:
            return sum_of_blocks(blocks, lambda block: self.sum_of(block, form))

        return prepared.sum_of_ballots(form, sum_of, lambda blocks, _: blocks)


class NoisySums(Method):
    """Methods that release noisy sums of vectors, from which a student follows in closed form."""

    __slots__ = ()
    needs = Needs(
        student=False,
        empty=True,
        start=True,
        weights=True,
        report=True,
        fewest=50,
        accounting=Accounting.GAUSSIAN,
    )

    def __post_init__(self) -> None:
        if self.mechanism is not None and not isinstance(self.mechanism, NoisySum):
            raise InvalidParameterError(
                f"{type(self).__name__}.mechanism",
                "be a NoisySum, because every ballot is a vector",
                f"a {type(self.mechanism).__name__}",
                "Leave it out to get the least noise that ε allows.",
            )

    @property
    def noise(self) -> float | None:
        """σ, in lengths of the longest ballot; None where it follows from the budget."""
        return None if self.mechanism is None else self.mechanism.noise_multiplier

    def with_noise(self, noise: float) -> Self:
        """Return the method with this noise."""
        return replace(self, mechanism=NoisySum(noise))  # type: ignore[type-var]

    def prepare(self, public: Public, people: People, /) -> PeopleReady:
        """Return the people, with their rows as the map, or the schema, shows them; private."""
        holdout = None
        if public.holdout and isinstance(people, PeopleInMemory):
            people, others = people.split(public.holdout)
            holdout = self._ready(public, others)
        return replace(self._ready(public, people), holdout=holdout)

    def _ready(self, public: Public, people: People) -> PeopleReady:
        return PeopleReady(people.through(public.teacher_map, public.teacher_rows.shape[-1]))

    def event_of_count(self, sizes: Sizes) -> list[Event]:
        """Return what the noisy number of people is, if that number is private."""
        if sizes.people_known or not count_is_private(sizes.unit):
            return []
        return [self._count.most(_form_of_count(sizes.unit), simulated=sizes.simulated)]

    def number_of_people(self, public: Public, *, earlier: bool = False) -> Asking[int | None]:
        """Return how many people there are; where that is private, about how many, unless it was never asked."""
        is_known = public.n_teachers is not None or not count_is_private(public.unit)
        if is_known and not earlier:
            return public.n_teachers or 0
        count = yield Request(
            mechanism=self._count,
            form=_form_of_count(public.unit),
            subject={"sum": [*subject_of(public), "people"]},
            ballot=_CountBallot(),
            total=self.event_of_one(public.sizes),
            earlier=earlier,
        )
        if count is None:
            return None
        return max(1, int(count.values[0, 0]))

    def turns(self, public: Public, about: list[object]) -> Asking[list[Turn]]:
        """Return the earlier releases of the question, the oldest first, and this one.

        All are asked by what the first release of the question learned from public rows, and are known by its name.
        """
        n_people = yield from self.number_of_people(public)
        counts = list[tuple[Public, int | None, bool]]()
        for name in public.earlier:
            release = replace(public, release=name)
            count = yield from self.number_of_people(release, earlier=True)
            counts.append((release, count, True))
        counts.append((public, n_people, False))

        turns = list[Turn]()
        learned_by = list[object]()  # the name of the first release
        for release, count, earlier in counts:
            if count is None:
                continue
            subject = subject_of(release)
            turns.append(Turn([*subject, count, *about, *learned_by], count, earlier))
            if not learned_by:
                learned_by = [{"learned": subject[-1]}]
        return turns

    @property
    def _count(self) -> NoisySum:
        return NoisySum(self.calibrated.noise_multiplier * _NOISE_OF_COUNT)


def _form_of_count(unit: PrivacyUnit) -> Vector:
    return Vector((1, 1), 1, unit)


def sum_of_entries(
    entries: Callable[[PeopleBlock], tuple[IntArray, IntArray]], block: PeopleBlock, form: Vector
) -> BallotSum:
    """Return the sum of one ballot per person, the mean of its rows, whose cells and numbers are `entries`."""
    per_row = entries(block.only(slice(0, 1)))[0].size
    at_once = max(1, _ENTRIES_AT_ONCE // per_row)
    return _sum_of_parts(
        block, at_once, lambda part: _sum_of_part(entries, block.only(part), at_once, form)
    )


def _sum_of_parts(
    block: PeopleBlock, at_once: int, sum_of: Callable[[IntArray], BallotSum]
) -> BallotSum:
    """Return the sum over parts of about so many rows, which are given by number; each person is in one part."""
    starts = _first_rows(block.people)
    begins_part = np.diff(starts // at_once) > 0
    first, *others = np.split(np.arange(len(block.people)), starts[1:][begins_part])
    total = sum_of(first)
    for part in others:
        total = add_sums(total, sum_of(part))
    return total


def _sum_of_part(
    entries: Callable[[PeopleBlock], tuple[IntArray, IntArray]],
    block: PeopleBlock,
    at_once: int,
    form: Vector,
) -> BallotSum:
    # people: (rows,); cells, numbers: (rows, ...); person, cell, sums: (entries,)
    people = block.people - block.people.min()
    n_cells = prod(form.shape)
    has_several = np.any(np.diff(people) == 0)
    parts = list[tuple[IntArray, IntArray, IntArray]]()
    # One person may have any number of rows.
    for start in range(0, len(people), at_once):
        some = slice(start, start + at_once)
        cells, numbers = entries(block.only(some))
        person = np.repeat(people[some], cells[0].size)
        cell = cells.ravel()
        sums = numbers.ravel()
        # Of a person with many rows, many entries are in one cell.
        if has_several:
            names, places = np.unique(person * n_cells + cell, return_inverse=True)
            person, cell = np.divmod(names, n_cells)
            # The sums are of whole numbers, far below 2⁵³.
            sums = np.bincount(places, weights=sums).astype(np.int64)
        parts.append((person, cell, sums))
    person, cell, sums = map(np.concatenate, zip(*parts, strict=True))
    n_rows = np.bincount(people)[person]
    return sum_of_cells(person, cell, sums, n_rows, form)


def form_of_joint(n_weights: int, unit: PrivacyUnit) -> Vector:
    """Return the form of ballots of gradient and Gram matrix (`tutelage.students.stacking`)."""
    return Vector((1, numbers_of(n_weights)), joint_norm(n_weights) ** 2, unit)


def sum_of_joint(
    ballots_of: Callable[[Matrix, IntArray], IntArray],
    n_weights: int,
    seen: Matrix,
    block: PeopleBlock,
    unit: PrivacyUnit,
) -> BallotSum:
    """Return the sum of such ballots of the people of a block, whose rows are `seen`; some rows at a time.

    The ballot of a person is the mean of those of the person's rows, in whole numbers.
    """
    at_once = max(1, _NUMBERS_AT_ONCE // numbers_of(n_weights))

    def sum_of(part: IntArray) -> BallotSum:
        # part, person: (rows,); ballots: (rows, numbers); sums, means: (people, numbers)
        starts = _first_rows(block.people[part])
        if len(starts) == len(part) <= at_once:
            return sum_of_means(ballots_of(seen[part], block.labels[part]))
        n_rows = np.diff(starts, append=len(part))
        person = np.repeat(np.arange(len(starts)), n_rows)
        sums = np.zeros((len(starts), numbers_of(n_weights)), np.int64)
        # One person may have any number of rows, so a block of people is divided by rows.
        for start in range(0, len(part), at_once):
            rows = part[start : start + at_once]
            of_rows = person[start : start + at_once]
            first = _first_rows(of_rows)
            ballots = ballots_of(seen[rows], block.labels[rows])
            sums[of_rows[first]] += np.add.reduceat(ballots, first, axis=0)
        return sum_of_means(np.rint(sums / n_rows[:, None]).astype(np.int64))

    def sum_of_means(means: IntArray) -> BallotSum:
        return sum_of_products(
            np.ones((len(means), 1), np.int64),
            means,
            np.arange(len(means)),
            norm=joint_norm(n_weights),
            unit=unit,
        )

    return _sum_of_parts(block, at_once, sum_of)


def _first_rows(people: IntArray) -> IntArray:
    """Return the first row of each person, whose rows follow each other."""
    return np.flatnonzero(np.diff(people, prepend=-1))


def subject_of(public: Public) -> list[object]:
    """Return question, class values and the name of the release, if any: the beginning of the name of every sum."""
    subject = [public.question, *(str(value) for value in public.classes.tolist())]
    if public.holdout:
        subject.append({"holdout": public.holdout})
    if public.release is not None:
        subject.append({"release": public.release})
    return subject


def count_is_private(unit: PrivacyUnit) -> bool:
    """Return whether the number of people is private."""
    return unit.neighboring is not NeighboringRelation.CHANGE_ONE_ROW
