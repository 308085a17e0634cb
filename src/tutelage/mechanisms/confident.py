"""Check the votes before answering: Confident-GNMax and Interactive-GNMax of Scalable PATE 2018.

Every query pays for its check; only a query that passes pays for an answer. Which queries passed is released.
"""

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt

from tutelage._internal.typing import ABSTAIN, FloatArray, IntArray
from tutelage._internal.validation import noise_scale, number_of_votes, probability
from tutelage.events import Check, Composed, ConfidenceCheck, Event, InteractiveCheck, NoisyArgmaxGaussian, Repeated
from tutelage.mechanisms.base import Mechanism, Release
from tutelage.mechanisms.noisy_argmax import noisy_argmax
from tutelage.noise import NoiseSource
from tutelage.privacy import PrivacyUnit
from tutelage.votes import VoteHistogram


@final
@dataclass(frozen=True, slots=True)
class ConfidentGNMax(Mechanism):
    """Answer as `GNMax` does, but only where the noisy plurality reaches a threshold; elsewhere abstain.

    Parameters
    ----------
    threshold : float
        T: votes that the plurality, under its own noise, must reach. Choose it without looking at the votes.
    sigma_threshold : float
        Parameter σ₁ of the noise of the check, in votes.
    sigma_vote : float
        Parameter σ₂ of the noise on each count of an answer, in votes.

    Notes
    -----
    Papernot et al. 2018, Algorithm 1. The check costs λ/2σ₁² at most, whether it passes or not; an answer λ/σ₂². The
    threshold is a number of votes, not a share: teachers that do not vote make it harder to reach and cost nothing.
    """

    key_name: ClassVar[str] = "confident:v1"
    noises_votes_as_given = shows_every_answer = True
    threshold: float
    sigma_threshold: float
    sigma_vote: float

    def __post_init__(self) -> None:
        _check_fields(self)

    def event_of_one(self, n_classes: int, unit: PrivacyUnit, *, simulated: bool) -> Event:
        """Return the most that one query can be: a check and an answer."""
        check = ConfidenceCheck(self.threshold, self.sigma_threshold, n_classes, unit, simulated)
        return Composed((check, NoisyArgmaxGaussian(self.sigma_vote, n_classes, unit, simulated)))

    def release(self, votes: VoteHistogram, noise: NoiseSource, predictions: FloatArray | None = None) -> Release:
        """Check every query of `votes` and answer those that pass; calling again is another release and costs again."""
        self.check(votes, predictions)
        passed = _passes(votes, np.zeros_like(votes.counts), self.threshold, self.sigma_threshold, noise)
        labels = _answer_where(passed, votes, self.sigma_vote, noise)
        check = ConfidenceCheck(self.threshold, self.sigma_threshold, votes.n_classes, votes.unit, noise.simulated)
        return Release(labels, _as_it_happened(check, self.sigma_vote, passed), by_vote=passed)


@final
@dataclass(frozen=True, slots=True)
class InteractiveGNMax(Mechanism):
    """Ask the teachers only where they may contradict the student; confirm the student where it is sure.

    Where the votes, less those that the student's prediction accounts for, reach a threshold under noise, the teachers
    answer as in `GNMax`. Elsewhere the student's own class is returned if it is sure enough of it, at the price of the
    check alone; otherwise the query is abstained from.

    Parameters
    ----------
    threshold : float
        T: votes that some class must have, under noise, beyond the student's prediction of them.
    sigma_threshold : float
        Parameter σ₁ of the noise of the check, in votes.
    sigma_vote : float
        Parameter σ₂ of the noise on each count of an answer, in votes.
    confidence : float
        The student's probability from which on its own class is confirmed, between 0 and 1.

    Notes
    -----
    Papernot et al. 2018, Algorithm 2. The predictions must come from public rows and released labels alone, for they
    enter the check as public values: `offsets` says which.
    """

    key_name: ClassVar[str] = "interactive:v1"
    noises_votes_as_given = shows_every_answer = True
    threshold: float
    sigma_threshold: float
    sigma_vote: float
    confidence: float

    def __post_init__(self) -> None:
        _check_fields(self)
        object.__setattr__(self, "confidence", probability(self.confidence, "confidence", "InteractiveGNMax"))

    @property
    def takes_predictions(self) -> bool:
        """Whether `release` needs the student's predictions: it does."""
        return True

    def event_of_one(self, n_classes: int, unit: PrivacyUnit, *, simulated: bool) -> Event:
        """Return the most that one query can be: a check and an answer."""
        check = InteractiveCheck(self.threshold, self.sigma_threshold, n_classes, unit, simulated)
        return Composed((check, NoisyArgmaxGaussian(self.sigma_vote, n_classes, unit, simulated)))

    def release(self, votes: VoteHistogram, noise: NoiseSource, predictions: FloatArray | None = None) -> Release:
        """Check every query of `votes` against the predictions, which are needed, and answer those that pass."""
        self.check(votes, predictions)
        student = np.asarray(predictions, dtype=np.float64)
        offsets = self.offsets(student, votes.n_teachers)
        passed = _passes(votes, offsets, self.threshold, self.sigma_threshold, noise)
        labels = _answer_where(passed, votes, self.sigma_vote, noise)
        confirmed = ~passed & (student.max(axis=1) > self.confidence)
        labels[confirmed] = student[confirmed].argmax(axis=1)
        check = InteractiveCheck(self.threshold, self.sigma_threshold, votes.n_classes, votes.unit, noise.simulated)
        return Release(labels, _as_it_happened(check, self.sigma_vote, passed), by_vote=passed)

    @staticmethod
    def offsets(predictions: FloatArray, n_teachers: int) -> IntArray:
        """Return the votes that the student expects, shape (queries, classes): what the accountant takes as offsets.

        Whole votes, so that the check compares integers and rounding cannot depend on the votes.
        """
        return np.rint(n_teachers * np.asarray(predictions, dtype=np.float64)).astype(np.int64)


def _check_fields(mechanism: ConfidentGNMax | InteractiveGNMax) -> None:
    owner = type(mechanism).__name__
    checks = ("threshold", number_of_votes), ("sigma_threshold", noise_scale), ("sigma_vote", noise_scale)
    for name, check in checks:
        object.__setattr__(mechanism, name, check(getattr(mechanism, name), name, owner))


def _passes(
    votes: VoteHistogram, offsets: IntArray, threshold: float, sigma: float, noise: NoiseSource
) -> npt.NDArray[np.bool_]:
    """Return where max_j (n_j − o_j) + Z ≥ T, in whole votes; shape (queries,)."""
    drawn = noise.discrete_gaussian(sigma, (votes.n_queries,))
    return (votes.counts - offsets).max(axis=1) + drawn >= np.ceil(threshold)


def _answer_where(passed: npt.NDArray[np.bool_], votes: VoteHistogram, sigma: float, noise: NoiseSource) -> IntArray:
    labels = np.full(votes.n_queries, ABSTAIN, dtype=np.int64)
    counts = votes.counts[passed]
    labels[passed] = noisy_argmax(counts, noise.discrete_gaussian(sigma, counts.shape))
    return labels


def _as_it_happened(check: Check, sigma: float, passed: npt.NDArray[np.bool_]) -> Event:
    """Return a check for every query and an answer for those that passed: what was run, so what is paid."""
    answer = NoisyArgmaxGaussian(sigma, check.classes, check.unit, check.simulated)
    return Composed((Repeated(check, len(passed)), Repeated(answer, int(passed.sum()))))
