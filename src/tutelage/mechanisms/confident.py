"""Check the votes before answering: Confident-GNMax and Interactive-GNMax of Scalable PATE 2018.

Every query spends its check; only a query that passes also spends a label. The set of passed queries is released.
"""

from typing import ClassVar, final

import numpy as np

from tutelage._internal.records import frozen, settle
from tutelage._internal.typing import ABSTAIN, FloatArray, IntArray
from tutelage._internal.validation import noise_scale, number_of_votes, probability
from tutelage.ballots import VoteHistogram
from tutelage.events import (
    Composed,
    ConfidenceCheck,
    Event,
    InteractiveCheck,
    NoisyArgmaxGaussian,
    Repeated,
)
from tutelage.mechanisms.base import Mechanism, Release
from tutelage.mechanisms.noisy_argmax import noisy_argmax
from tutelage.noise import NoiseSource
from tutelage.privacy import PrivacyUnit


@frozen
class _WithThreshold(Mechanism):
    _check: ClassVar[type[ConfidenceCheck | InteractiveCheck]]
    threshold: float
    sigma_threshold: float
    sigma_vote: float

    def __post_init__(self) -> None:
        settle(self, "threshold", number_of_votes)
        settle(self, "sigma_threshold", noise_scale)
        settle(self, "sigma_vote", noise_scale)

    def event_of_one(self, n_classes: int, unit: PrivacyUnit, *, simulated: bool) -> Event:
        """Return the most that one query can be: a check and an answer."""
        check = self._check(
            self.threshold,
            self.sigma_threshold,
            n_classes,
            unit,
            simulated,
        )
        answer = NoisyArgmaxGaussian(self.sigma_vote, n_classes, unit, simulated)
        return Composed((check, answer))

    def _release(self, votes: VoteHistogram, offsets: IntArray, noise: NoiseSource) -> Release:
        """Check every query, where max_j (n_j − o_j) + Z ≥ T in whole votes, and answer those that pass."""
        # votes, offsets: (queries, classes); drawn, passed, labels: (queries,); counts: (queries that pass, classes)
        drawn = noise.discrete_gaussian(self.sigma_threshold, (votes.n_queries,))
        margins = (votes.counts - offsets).max(axis=1)
        passed = margins + drawn >= np.ceil(self.threshold)
        labels = np.full(votes.n_queries, ABSTAIN, np.int64)
        counts = votes.counts[passed]
        noise_of_answers = noise.discrete_gaussian(self.sigma_vote, counts.shape)
        labels[passed] = noisy_argmax(counts, noise_of_answers)

        of_one = self.event_of_one(votes.n_classes, votes.unit, simulated=noise.simulated)
        check, answer = of_one.flatten()
        # The events that were run, which are spent.
        checks = Repeated(check.event, votes.n_queries)
        answers = Repeated(answer.event, int(passed.sum()))
        return Release(labels, Composed((checks, answers)), by_vote=passed)


@final
@frozen
class ConfidentGNMax(_WithThreshold):
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

    key_name = "confident:v1"
    noises_votes_as_given = shows_every_answer = True
    _check = ConfidenceCheck

    def release(
        self, votes: VoteHistogram, noise: NoiseSource, predictions: FloatArray | None = None
    ) -> Release:
        """Check every query of `votes` and answer those that pass; calling again is another release and costs again."""
        self.check(votes, predictions)
        return self._release(votes, np.zeros_like(votes.counts), noise)


@final
@frozen
class InteractiveGNMax(_WithThreshold):
    """Ask the teachers only where they may contradict the student; confirm the student where it is sure.

    Where the votes, less those that the student's prediction accounts for, reach a threshold under noise, the teachers
    answer as in `GNMax`. Elsewhere the student's own class is returned if it is sure enough of it, at the price of the
    check alone; otherwise the query is abstained from.

    Parameters
    ----------
    threshold : float
        T: votes that some class must have, under noise, beyond the student's prediction of them.
    sigma_threshold, sigma_vote : float
        As for `ConfidentGNMax`.
    confidence : float
        The student's probability from which on its own class is confirmed, between 0 and 1.

    Notes
    -----
    Papernot et al. 2018, Algorithm 2. The predictions must come from public rows and released labels alone, for they
    enter the check as public values: `offsets` says which.
    """

    key_name = "interactive:v1"
    noises_votes_as_given = shows_every_answer = True
    _check = InteractiveCheck
    confidence: float

    def __post_init__(self) -> None:
        _WithThreshold.__post_init__(self)
        settle(self, "confidence", probability)

    @property
    def takes_predictions(self) -> bool:
        """Whether `release` needs the student's predictions: it does."""
        return True

    def release(
        self, votes: VoteHistogram, noise: NoiseSource, predictions: FloatArray | None = None
    ) -> Release:
        """Check every query of `votes` against the predictions, which are needed, and answer those that pass."""
        # votes, student: (queries, classes); is_sure, confirmed: (queries,)
        self.check(votes, predictions)
        student = np.asarray(predictions, np.float64)
        expected = self.offsets(student, votes.n_teachers)
        release = self._release(votes, expected, noise)
        is_sure = student.max(axis=1) > self.confidence
        confirmed = ~release.voted & is_sure
        release.labels[confirmed] = student[confirmed].argmax(axis=1)
        return release

    @staticmethod
    def offsets(predictions: FloatArray, n_teachers: int) -> IntArray:
        """Return the votes that the student expects, shape (queries, classes): what the accountant takes as offsets.

        Whole votes, so that the check compares integers and rounding cannot depend on the votes.
        """
        chances = np.asarray(predictions, np.float64)
        return np.rint(n_teachers * chances).astype(np.int64)
