"""Report the class with the most votes after noise: PATE (2017), Scalable PATE (2018), capped votes, other noise."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import fields
from typing import ClassVar, final

import numpy as np

from tutelage._internal.records import frozen, settle
from tutelage._internal.typing import FloatArray, IntArray
from tutelage._internal.validation import integer_at_least, noise_scale
from tutelage.ballots import VoteHistogram
from tutelage.events import (
    CappedArgmaxGaussian,
    Event,
    ExponentialArgmax,
    NoisyArgmaxGaussian,
    NoisyArgmaxLaplace,
    PermuteAndFlipArgmax,
)
from tutelage.mechanisms.base import Mechanism, Release
from tutelage.noise import NoiseSource
from tutelage.privacy import PrivacyUnit


@frozen
class _ReportsWinner(Mechanism):
    """Reports one class for every query; the first field is the noise, and the event has the same fields."""

    _event: ClassVar[Callable[..., Event]]

    def __post_init__(self) -> None:
        settle(self, fields(self)[0].name, noise_scale)

    def release(
        self, votes: VoteHistogram, noise: NoiseSource, predictions: FloatArray | None = None
    ) -> Release:
        """Answer every query of `votes` once with fresh `noise`; calling again is another release and costs again."""
        self.check(votes, predictions)
        labels = self._labels(votes.counts, noise)
        return Release(labels, self.event(votes, simulated=noise.simulated))

    def event_of_one(self, n_classes: int, unit: PrivacyUnit, *, simulated: bool) -> Event:
        """Return the most that answering one query can be."""
        settings = [getattr(self, field.name) for field in fields(self)]
        return self._event(*settings, n_classes, unit, simulated)

    @abstractmethod
    def _labels(self, counts: IntArray, noise: NoiseSource) -> IntArray:
        """Return the winner of each query under fresh noise."""


@final
@frozen
class LNMax(_ReportsWinner):
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

    key_name = "lnmax:v1"
    noises_votes_as_given = shows_every_answer = True
    _event = NoisyArgmaxLaplace
    scale: float

    def _labels(self, counts: IntArray, noise: NoiseSource) -> IntArray:
        return noisy_argmax(counts, noise.discrete_laplace(self.scale, counts.shape))


@frozen
class _Gaussian(_ReportsWinner):
    sigma: float

    def _labels(self, counts: IntArray, noise: NoiseSource) -> IntArray:
        return noisy_argmax(counts, noise.discrete_gaussian(self.sigma, counts.shape))


@final
@frozen
class GNMax(_Gaussian):
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

    key_name = "gnmax:v1"
    noises_votes_as_given = shows_every_answer = True
    _event = NoisyArgmaxGaussian


@final
@frozen
class CappedGNMax(_Gaussian):
    """Release argmax_j (n_j + discrete Gaussian noise) of teachers that vote on at most `cap` of all queries.

    All answers together cost about cap times one answer of `GNMax`, however many queries there are.

    Parameters
    ----------
    sigma : float
        Parameter σ of the noise on each count, in votes.
    cap : int
        Most votes of one teacher, on all queries together.

    Notes
    -----
    The votes must say that they keep to the cap (`VoteHistogram.cap`). Where a teacher abstains is private. The noise
    is integer-valued; ties after noise go to the lowest class index. Proof: docs/proofs/ballots.md.
    """

    key_name = "capped:v1"
    noises_votes_as_given = shows_every_answer = True
    _event = CappedArgmaxGaussian
    cap: int

    def __post_init__(self) -> None:
        _ReportsWinner.__post_init__(self)
        settle(self, "cap", integer_at_least, 1)


@final
@frozen
class ExponentialMax(_ReportsWinner):
    """Release class j with probability ∝ exp(n_j/scale), the exponential mechanism; each answer is 2/scale-private.

    Parameters
    ----------
    scale : float
        Scale b, in votes: one vote changes the odds by e^(1/b).

    Notes
    -----
    One changed ballot changes the log odds of two classes by 2/b at most, so losses span 2/b (bounded range: Dong,
    Durfee and Rogers 2020, arXiv:1909.13830), which composes better than Laplace noise of the same pure loss.
    """

    key_name = "exponential:v1"
    noises_votes_as_given = shows_every_answer = True
    _event = ExponentialArgmax
    scale: float

    def _labels(self, counts: IntArray, noise: NoiseSource) -> IntArray:
        return noise.gumbel_argmax(counts, self.scale)


@final
@frozen
class PermuteAndFlip(_ReportsWinner):
    """Release argmax_j (n_j + exponential noise), permute-and-flip; each answer is 2/scale-differentially private.

    Parameters
    ----------
    scale : float
        Scale b of the noise on each count, in votes.

    Notes
    -----
    It is right at least as often as the exponential mechanism of the same scale (McKenna and Sheldon 2020,
    arXiv:2010.12603), but its losses have no bounded range, so that many labels compose worse.
    """

    key_name = "permute-and-flip:v1"
    noises_votes_as_given = shows_every_answer = True
    _event = PermuteAndFlipArgmax
    scale: float

    def _labels(self, counts: IntArray, noise: NoiseSource) -> IntArray:
        return noise.exponential_argmax(counts, self.scale)


def noisy_argmax(counts: IntArray, noise: IntArray) -> IntArray:
    """Return the first index of the largest noisy count of each query; the accounting assumes this tie-break."""
    # counts, noise: (queries, classes); returned: (queries,)
    return np.argmax(counts + noise, axis=1)
