"""Release the sum of bounded ballots through Gaussian noise, once."""

from math import prod, sqrt
from typing import NamedTuple, final

from tutelage._internal.records import frozen, settle
from tutelage._internal.typing import IntArray
from tutelage._internal.validation import positive
from tutelage.ballots import BallotSum, Vector
from tutelage.events import NoisySumGaussian
from tutelage.exceptions import InvalidParameterError
from tutelage.noise import NoiseSource


class _ReleasedSum(NamedTuple):
    """The public outcome of one noisy sum."""

    values: IntArray  # shape (classes, numbers)
    event: NoisySumGaussian
    by_vote: None = None

    @property
    def answers(self) -> list[tuple[int, ...]]:
        """Return all numbers of the sum, as a ledger remembers them."""
        return [tuple(self.values.ravel().tolist())]


@final
@frozen
class NoisySum:
    """Release the sum of all ballots plus discrete Gaussian noise on each of its numbers.

    Parameters
    ----------
    noise_multiplier : float
        σ of the noise, in lengths of the longest ballot that is allowed.

    Notes
    -----
    One changed ballot moves the sum by two such lengths at most, one that is added or removed by one. The noise is
    integer-valued. Proof: docs/proofs/ballots.md.
    """

    key_name = "noisy-sum:v1"
    noise_multiplier: float

    def __post_init__(self) -> None:
        settle(self, "noise_multiplier", positive)

    def key(self) -> str:
        """Return what a ledger remembers a sum by."""
        return f"{self.key_name}(noise_multiplier={self.noise_multiplier!r})"

    def most(self, form: object, *, simulated: bool) -> NoisySumGaussian:
        """Return what releasing a sum of ballots of this form is; other forms have no theorem."""
        if not isinstance(form, Vector):
            raise InvalidParameterError(
                "NoisySum.ballots",
                "be vectors of limited length, because votes would need one sum per query",
                fix="For votes, use GNMax or another Mechanism.",
            )
        sigma = self.noise_multiplier * sqrt(form.norm_squared)
        return NoisySumGaussian(
            sigma,
            form.norm_squared,
            prod(form.shape),
            form.unit,
            simulated,
            form.nonnegative,
            form.tiers,
        )

    def check(self, _ballots: BallotSum, _predictions: object = None, /) -> None:
        """Raise what `release` would refuse: nothing of a sum."""

    def release(
        self, ballots: BallotSum, noise: NoiseSource, _predictions: object = None, /
    ) -> _ReleasedSum:
        """Return the sum with fresh `noise`; calling again is another release and costs again."""
        event = self.most(ballots.form, simulated=noise.simulated)
        # ballots.totals, drawn: (classes, numbers)
        drawn = noise.discrete_gaussian(event.sigma, ballots.totals.shape)
        return _ReleasedSum(ballots.totals + drawn, event)
