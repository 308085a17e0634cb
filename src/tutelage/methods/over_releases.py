"""Sums of a release with a name, averaged with the same sums of earlier releases of its question.

All are released anyway, so that an average costs nothing. It is by 1/variance. Ballots of later sums follow from the
sums before, and so differ from release to release: on average, they say what their average start gets wrong.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import sqrt
from typing import Any, NamedTuple, TypeVar, final

from tutelage._internal.typing import Matrix
from tutelage.ballots import Vector
from tutelage.digests import data_digest
from tutelage.events import Event
from tutelage.mechanisms import NoisySum
from tutelage.methods.requests import Asking, Ballot, Request, Result

_Number = TypeVar("_Number", float, Matrix)


@final
class Average:
    """An average over releases, weighted by the square of the size of each: by 1/variance, at equal noise."""

    def __init__(self) -> None:
        self.answers = list[Matrix]()  # all that were averaged, whole numbers
        self._total: Any = 0.0
        self._sizes = 0.0
        self._weight = 0.0

    def with_sum(
        self,
        values: Matrix,
        sigma: float,
        n: float,
    ) -> tuple[Matrix, float]:
        """Return the average with one more sum of size `n`, as such a sum, and the deviation of its noise."""
        self._total += n * values
        self._sizes += n
        self._weight += n * n
        mean = values  # of the only sum: the numbers stay whole
        if self._weight != n * n:
            mean = self._total * (n / self._weight)
        return mean, sigma * n / sqrt(self._weight)

    def ballots_of_one(self, n: float) -> float:
        """Return by how many ballots a person moves the average, as a sum of size `n`, with a ballot in every sum."""
        return n * self._sizes / self._weight

    def part_of_last(self, n: float) -> float:
        """Return the part of the last sum, of size `n`, in the average as a sum of this size."""
        return n * n / self._weight

    def with_mean(self, value: _Number, n: float) -> _Number:
        """Return the average with one more value that belongs to such a sum."""
        self._total += n * n * value
        self._weight += n * n
        if self._weight == n * n:
            return value
        return self._total / self._weight


class AveragedSum(NamedTuple):
    """A sum, averaged over releases; public."""

    values: Matrix
    sigma: float  # of its noise
    turn: "Turn"  # by which the next sum is known: its ballots follow from this one


class _NoAnswerError(Exception):
    """An earlier release has no answer to one of its requests."""


class Turn(NamedTuple):
    """A release, as far as its sums are known; public."""

    subject: list[object]  # by which its next sum is known
    n: int  # about how many people its sums are over
    earlier: bool = False  # whether its sums are recalled, and not asked for

    def ask(
        self,
        mechanism: NoisySum,
        form: Vector,
        ballot: Ballot,
        average: Average,
        *,
        size: float | None = None,
        total: Event | None = None,
    ) -> Asking[AveragedSum]:
        """Ask for a sum, or recall it, and return its average with those before.

        `size` is by default the number of people. A sum of an earlier release that has no answer is a `_NoAnswerError`.
        """
        answer = yield Request(
            mechanism=mechanism,
            form=form,
            subject={"sum": self.subject},
            ballot=ballot,
            earlier=self.earlier,
            total=None if self.earlier else total,
        )
        if answer is None:
            raise _NoAnswerError
        sigma = answer.sigma or mechanism.most(form, simulated=False).sigma
        released = answer.values.reshape(form.shape)
        average.answers.append(released)
        values, sigma = average.with_sum(released, sigma, size or self.n)

        # The digest is of whole numbers: an average may have other last digits on another machine.
        known = data_digest(*average.answers).hex()
        return AveragedSum(
            values,
            sigma,
            Turn([*self.subject, known], self.n, self.earlier),
        )


Past = defaultdict[str, Average]  # by the name of what is averaged


def newest(
    turns: Sequence[Turn], result_of: Callable[[Turn, Past], Asking[Result]]
) -> Asking[Result]:
    """Ask for the sums of one release after the other, and return the result of the newest that has all answers."""
    past = Past(Average)
    result = None
    for turn in turns:
        with suppress(_NoAnswerError):
            result = yield from result_of(turn, past)
    return result  # type: ignore[return-value]  this release is the last, and has all
