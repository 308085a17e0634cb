"""Sums of a release with a name, averaged with the same sums of earlier releases of its question.

All are released anyway, so that an average costs nothing. It is by 1/variance. Ballots of later sums follow from the
sums before, and so differ from release to release: on average, they say what their average start gets wrong.
"""

from collections import defaultdict
from collections.abc import Generator
from dataclasses import dataclass
from math import sqrt
from typing import Any, NamedTuple, final

from tutelage._internal.typing import Matrix
from tutelage.ballots import Vector
from tutelage.digests import data_digest
from tutelage.events import Event
from tutelage.mechanisms import NoisySum
from tutelage.methods.requests import Answer, Request


@final
class Average:
    """An average over releases, weighted by the square of the size of each: by 1/variance, at equal noise."""

    def __init__(self) -> None:
        self.answers = list[Matrix]()  # all that were averaged, whole numbers
        self._total: Any = 0.0
        self._weight = 0.0

    def with_sum(self, values: Matrix, sigma: float, n: float) -> tuple[Matrix, float]:
        """Return the average with one more sum of size `n`, as such a sum, and the deviation of its noise."""
        self._total, self._weight = self._total + n * values, self._weight + n * n
        is_only = self._weight == n * n  # then the numbers stay whole
        return values if is_only else self._total * (n / self._weight), sigma * n / sqrt(self._weight)

    def with_mean(self, values: Any, n: float) -> Any:
        """Return the average with one more value that belongs to such a sum."""
        self._total, self._weight = self._total + n * n * values, self._weight + n * n
        return values if self._weight == n * n else self._total / self._weight


class Summed(NamedTuple):
    """A sum, averaged over releases; public."""

    values: Matrix
    sigma: float  # of its noise
    turn: "Turn"  # by which the next sum is known: its ballots follow from this one


@final
@dataclass(frozen=True, slots=True)
class Turn:
    """A release, as far as its sums are known; public."""

    subject: list[Any]  # by which its next sum is known
    n: int  # about how many people its sums are over
    earlier: bool = False  # whether its sums are recalled, and not asked for

    def asked(
        self,
        mechanism: NoisySum,
        form: Vector,
        ballot: Any,
        average: Average,
        *,
        size: float | None = None,
        total: Event | None = None,
    ) -> Generator[Request, Answer | None, Summed | None]:
        """Ask for a sum, or recall it, and return its average with those before; None where it has no answer.

        `size` is by default the number of people.
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
            return None
        sigma = answer.sigma or mechanism.most(form, simulated=False).sigma
        average.answers.append(answer.values.reshape(form.shape))
        values, sigma = average.with_sum(average.answers[-1], sigma, size or self.n)
        # By whole numbers: those of an average may have other last digits on another machine.
        known = data_digest(*average.answers).hex()
        return Summed(values, sigma, Turn([*self.subject, known], self.n, self.earlier))


Past = defaultdict[str, Average]  # by the name of what is averaged
