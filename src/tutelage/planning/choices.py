"""The choices there are, how well each is expected to do, and what would have to change for a wish to come true."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, floor
from typing import final

from tutelage.mechanisms import ConfidentGNMax, ExponentialMax, GNMax, LNMax
from tutelage.neighboring import PrivacyUnit
from tutelage.planning.calibration import Planned, roughly_calibrated
from tutelage.planning.expected_labels import (
    Expected,
    TypicalVotes,
    expected_labels,
    expected_without_noise,
    typical_votes,
)
from tutelage.planning.teacher_model import TeacherModel

_STEPS = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)  # of the numbers of teachers, in every power of ten
_FEWEST = 5
_THRESHOLDS, _CHECK_SHARES = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9), (0.1, 0.25, 0.5)
_MOST_ASKED, _TRIES = 5, 6
_LARGEST_EPSILON, _MOST_FACTOR = 1e3, 1e6


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is wanted of which data; every field is public.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee.
    rows : int
        Number of private rows.
    answers : int
        How many labels are wanted.
    teachers : int or None
        Number of teachers, where it is not free.
    public_rows : int or None
        How many public rows there are to ask about; None for any number.
    unit : PrivacyUnit
        What moves one ballot.
    """

    epsilon: float
    delta: float
    rows: int
    answers: int
    teachers: int | None
    public_rows: int | None
    unit: PrivacyUnit


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One way to grant a wish, its noise by estimate.

    Parameters
    ----------
    teachers : int
        Number of teachers.
    mechanism : Mechanism
        How votes are released.
    asked : int
        Queries to ask, for as many answers as wished.
    expected : Expected
        What a query may expect.
    votes : TypicalVotes
        The votes that this rests on.
    """

    teachers: int
    mechanism: Planned
    asked: int
    expected: Expected
    votes: TypicalVotes


def numbers_of_teachers(wish: Wish, fewest_rows: float) -> list[int]:
    """Return the numbers of teachers to consider: round ones that leave each at least so many rows."""
    if wish.teachers is not None:
        return [wish.teachers]
    most = max(1, floor(wish.rows / fewest_rows))
    numbers = {int(step * 10**power) for power in range(len(str(most)) + 1) for step in _STEPS}
    return sorted(number for number in numbers if _FEWEST <= number <= most) or [most]


def without_checks(wish: Wish, model: TeacherModel, kind: type[GNMax | LNMax | ExponentialMax], n: int) -> Choice:
    """Return the choice of so many teachers whose answers are released by one noisy argmax each."""
    votes = typical_votes(model, n, wish.rows / n)
    mechanism = roughly_calibrated(kind(1.0), wish.epsilon, wish.delta, wish.answers, wish.unit)
    return Choice(
        teachers=n, mechanism=mechanism, asked=wish.answers, expected=expected_labels(mechanism, votes), votes=votes
    )


def with_checks(wish: Wish, model: TeacherModel, n: int) -> Choice | None:
    """Return the best Confident-GNMax of so many teachers that is expected to give as many answers; None if none is."""
    votes = typical_votes(model, n, wish.rows / n)
    thresholds = [round(share * n) for share in _THRESHOLDS if round(share * n) * model.classes > n]
    found = [
        choice
        for threshold in thresholds
        for share in _CHECK_SHARES
        if (choice := _checked(wish, votes, n, threshold, share)) is not None
    ]
    return max(found, key=lambda choice: choice.expected.right, default=None)


def _checked(wish: Wish, votes: TypicalVotes, n: int, threshold: int, share: float) -> Choice | None:
    """Return Confident-GNMax that spends a share of the cost on checks, asking until the answers are there."""
    most = _MOST_ASKED * wish.answers if wish.public_rows is None else wish.public_rows
    ratio = ((1 - share) / (2 * share)) ** 0.5  # σ₁/σ₂, for a check costs λ/2σ₁² and an answer λ/σ₂²
    asked = wish.answers
    for _ in range(_TRIES):
        mechanism = roughly_calibrated(
            ConfidentGNMax(threshold, ratio, 1.0), wish.epsilon, wish.delta, asked, wish.unit
        )
        expected = expected_labels(mechanism, votes)
        needed = ceil(wish.answers / max(expected.answered, 1e-9) - 1e-9)
        if needed > most:
            return None
        if needed <= asked:
            return Choice(teachers=n, mechanism=mechanism, asked=asked, expected=expected, votes=votes)
        asked = min(most, ceil(1.02 * needed))
    return None


def best_right(wish: Wish, model: TeacherModel, fewest_rows: float) -> float:
    """Return the largest expected share of right labels over the numbers of teachers, with Gaussian noise."""
    numbers = numbers_of_teachers(wish, fewest_rows)
    return max(without_checks(wish, model, GNMax, n).expected.right for n in numbers)


def what_would_help(wish: Wish, model: TeacherModel, goal: float, fewest_rows: float) -> list[str]:
    """Return changes of the wish that reach the goal, each by itself; none where the teachers themselves fall short."""

    def reaches(changed: Wish) -> bool:
        return best_right(changed, model, fewest_rows) >= goal

    found = []
    if answers := _largest(lambda k: reaches(replace(wish, answers=k)), wish.answers):
        found.append(f"at most {answers:,} {'queries' if answers > 1 else 'query'}")
    most = max(1.0, _LARGEST_EPSILON / wish.epsilon)
    if (factor := _smallest(lambda x: reaches(replace(wish, epsilon=wish.epsilon * x)), most)) is not None:
        found.append(f"ε of at least {wish.epsilon * factor:.3g}")
    if (factor := _smallest(lambda x: reaches(_larger(wish, x)), _MOST_FACTOR)) is not None:
        larger = _larger(wish, factor)
        rows, teachers = f"{larger.rows:,} rows", f"{larger.teachers or 0:,} teachers of as many rows each"
        found.append(f"at least {rows if larger.teachers is None else teachers}")
    return found


def right_without_noise(wish: Wish, model: TeacherModel, fewest_rows: float) -> float:
    """Return the largest expected share of right labels if there were no noise."""
    numbers = numbers_of_teachers(wish, fewest_rows)
    return max(expected_without_noise(typical_votes(model, n, wish.rows / n)) for n in numbers)


def _larger(wish: Wish, factor: float) -> Wish:
    """Return the wish with so many times the rows; where the number of teachers is fixed, of teachers like them."""
    if wish.teachers is None:
        return replace(wish, rows=ceil(wish.rows * factor))
    teachers = ceil(wish.teachers * factor)
    return replace(wish, rows=ceil(wish.rows * teachers / wish.teachers), teachers=teachers)


def _largest(holds: Callable[[int], bool], below: int) -> int:
    """Return the largest number from 1 to `below` that holds, 0 where 1 does not, for what holds less and less."""
    low, high = 0, below
    while high - low > max(1, low // 50):
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _smallest(holds: Callable[[float], bool], most: float) -> float | None:
    """Return about the smallest factor from 1 to `most` that holds, for what holds more and more; None if none does."""
    low, high = 1.0, 2.0
    while high <= most and not holds(high):
        low, high = high, 2 * high
    if high > most:
        return None
    while high / low > 1.02:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
