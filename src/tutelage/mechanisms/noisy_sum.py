"""Release the sum of bounded ballots through Gaussian noise, once."""

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar, NamedTuple, final

from tutelage import events
from tutelage._internal.typing import IntArray
from tutelage._internal.validation import positive
from tutelage.ballots import BallotSum
from tutelage.events import NoisySumGaussian
from tutelage.noise import NoiseSource


class ReleasedSum(NamedTuple):
    """The public outcome of one noisy sum."""

    values: IntArray  # shape (classes, numbers)
    event: NoisySumGaussian


@final
@dataclass(frozen=True, slots=True)
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

    key_name: ClassVar[str] = "noisy-sum:v1"
    noise_multiplier: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise_multiplier", positive(self.noise_multiplier, "noise_multiplier", "NoisySum"))

    def key(self) -> str:
        """Return what a ledger remembers a sum by."""
        return f"{self.key_name}(noise_multiplier={self.noise_multiplier!r})"

    def event(self, ballots: BallotSum, *, simulated: bool) -> NoisySumGaussian:
        """Return what releasing this sum is."""
        sigma = self.noise_multiplier * sqrt(ballots.norm_squared)
        return events.NoisySumGaussian(sigma, ballots.norm_squared, ballots.totals.size, ballots.unit, simulated)

    def release(self, ballots: BallotSum, noise: NoiseSource) -> ReleasedSum:
        """Return the sum with fresh `noise`; calling again is another release and costs again."""
        event = self.event(ballots, simulated=noise.simulated)
        drawn = noise.discrete_gaussian(event.sigma, ballots.totals.shape)
        return ReleasedSum(ballots.totals + drawn, event)
