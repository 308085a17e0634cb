"""Report the class with the most votes after noise: the mechanisms of PATE (2017) and Scalable PATE (2018)."""

from dataclasses import dataclass
from typing import final

import numpy as np

from tutelage._typing import IntArray
from tutelage._validation import noise_scale
from tutelage.events import Event, NoisyArgmaxGaussian, NoisyArgmaxLaplace, Repeated
from tutelage.mechanisms.base import Mechanism, Release
from tutelage.noise import NoiseSource
from tutelage.votes import VoteHistogram


@final
@dataclass(frozen=True, slots=True)
class LNMax(Mechanism):
    """Release argmax_j (n_j + discrete Laplace noise); each answer is 2/scale-differentially private.

    Parameters
    ----------
    scale : float
        Scale b of the noise on each count, in votes; the paper's γ is 1/b, so γ = 0.05 is ``scale=20``.

    Notes
    -----
    One changed ballot moves one count down and another up by one, an L1 distance of 2 (Papernot et al. 2017, eq. 1
    and Theorem 2). The noise is integer-valued; ties after noise go to the lowest class index.
    """

    scale: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", noise_scale(self.scale, "scale", "LNMax"))

    def event(self, votes: VoteHistogram, *, simulated: bool) -> Event:
        """Return what answering all queries of `votes` is, reading its shape and unit only, never its counts."""
        one = NoisyArgmaxLaplace(self.scale, votes.n_classes, votes.unit, simulated)
        return Repeated(one, votes.n_queries)

    def release(self, votes: VoteHistogram, noise: NoiseSource) -> Release:
        """Answer every query of `votes` once with fresh `noise`; calling again is another release and costs again."""
        drawn = noise.discrete_laplace(self.scale, votes.counts.shape)
        return Release(_noisy_argmax(votes, drawn), self.event(votes, simulated=noise.simulated))


@final
@dataclass(frozen=True, slots=True)
class GNMax(Mechanism):
    """Release argmax_j (n_j + discrete Gaussian noise); each answer costs at most λ/sigma² at Rényi order λ.

    Parameters
    ----------
    sigma : float
        Parameter σ of the noise on each count, in votes.

    Notes
    -----
    One changed ballot moves one count down and another up by one, an L2 distance of √2 (Papernot et al. 2018,
    section 4.1). The noise is integer-valued; ties after noise go to the lowest class index.
    """

    sigma: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", noise_scale(self.sigma, "sigma", "GNMax"))

    def event(self, votes: VoteHistogram, *, simulated: bool) -> Event:
        """Return what answering all queries of `votes` is, reading its shape and unit only, never its counts."""
        one = NoisyArgmaxGaussian(self.sigma, votes.n_classes, votes.unit, simulated)
        return Repeated(one, votes.n_queries)

    def release(self, votes: VoteHistogram, noise: NoiseSource) -> Release:
        """Answer every query of `votes` once with fresh `noise`; calling again is another release and costs again."""
        drawn = noise.discrete_gaussian(self.sigma, votes.counts.shape)
        return Release(_noisy_argmax(votes, drawn), self.event(votes, simulated=noise.simulated))


def _noisy_argmax(votes: VoteHistogram, noise: IntArray) -> IntArray:
    """Return the first index of the largest noisy count of each query; the accounting assumes this tie-break."""
    return np.argmax(votes.counts + noise, axis=1)
