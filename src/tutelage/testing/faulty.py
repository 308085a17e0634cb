"""Mechanisms with one fault each, all of which were found in public code or are one slip away from the right one.

They exist to test tests: `MechanismContract` must reject every one. Never release anything with them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np

from tutelage._typing import ABSTAIN, FloatArray, IntArray
from tutelage.events import Composed, ConfidenceCheck, Event, NoisyArgmaxGaussian, Repeated
from tutelage.mechanisms import Mechanism, Release
from tutelage.neighboring import PrivacyUnit
from tutelage.noise import NoiseSource
from tutelage.votes import VoteHistogram

_SIGMA, _THRESHOLD = 2.0, 6.0


@final
@dataclass(frozen=True)
class FaultyArgmax(Mechanism):
    """A noisy argmax that claims discrete Gaussian noise of σ = 2 and does something else.

    Parameters
    ----------
    fault : callable
        Returns labels from counts and a noise source.
    """

    fault: Callable[[IntArray, NoiseSource], IntArray]

    def event_of_one(self, n_classes: int, unit: PrivacyUnit, *, simulated: bool) -> Event:
        """Return what answering one query is claimed to be."""
        return NoisyArgmaxGaussian(_SIGMA, n_classes, unit, simulated)

    def release(self, votes: VoteHistogram, noise: NoiseSource, predictions: FloatArray | None = None) -> Release:
        """Answer every query, wrongly."""
        self.check(votes, predictions)
        return Release(self.fault(votes.counts, noise), self.event(votes, simulated=noise.simulated))

    def __repr__(self) -> str:
        return f"FaultyArgmax({self.fault.__name__})"


@final
@dataclass(frozen=True)
class FaultyCheck(Mechanism):
    """A confident mechanism whose check or whose bookkeeping is wrong.

    Parameters
    ----------
    noise_on_check : bool
        Whether the check is noisy, as claimed.
    report : callable
        Returns, from the mask of passed queries, how many checks and answers are reported.
    """

    noise_on_check: bool
    report: Callable[[np.ndarray], tuple[int, int]]

    def event_of_one(self, n_classes: int, unit: PrivacyUnit, *, simulated: bool) -> Event:
        """Return what one query is claimed to be: a check and an answer."""
        check = ConfidenceCheck(_THRESHOLD, _SIGMA, n_classes, unit, simulated)
        return Composed((check, NoisyArgmaxGaussian(_SIGMA, n_classes, unit, simulated)))

    def release(self, votes: VoteHistogram, noise: NoiseSource, predictions: FloatArray | None = None) -> Release:
        """Answer the queries that pass, wrongly."""
        self.check(votes, predictions)
        drawn = noise.discrete_gaussian(_SIGMA, (votes.n_queries,))
        passed = votes.counts.max(axis=1) + (drawn if self.noise_on_check else 0) >= _THRESHOLD
        answers = np.argmax(votes.counts + noise.discrete_gaussian(_SIGMA, votes.counts.shape), axis=1)
        one = self.event_of_one(votes.n_classes, votes.unit, simulated=noise.simulated)
        check, answer = one.events if isinstance(one, Composed) else (one, one)
        checks, answered = self.report(passed)
        event = Composed((Repeated(check, checks), Repeated(answer, answered)))
        return Release(np.where(passed, answers, ABSTAIN), event)

    def __repr__(self) -> str:
        return f"FaultyCheck({self.noise_on_check}, {self.report.__name__})"


def half_noise(counts: IntArray, noise: NoiseSource) -> IntArray:
    """Draw with half the σ that is claimed: a forgotten factor 2."""
    return np.argmax(counts + noise.discrete_gaussian(_SIGMA / 2, counts.shape), axis=1)


def noise_of_0_7(counts: IntArray, noise: NoiseSource) -> IntArray:
    """Draw with 0.7 of the σ that is claimed: a forgotten √2."""
    return np.argmax(counts + noise.discrete_gaussian(0.7 * _SIGMA, counts.shape), axis=1)


def noise_of_1_3(counts: IntArray, noise: NoiseSource) -> IntArray:
    """Draw with 1.3 of the σ that is claimed: private, but not what the event says."""
    return np.argmax(counts + noise.discrete_gaussian(1.3 * _SIGMA, counts.shape), axis=1)


def inverse_scale(counts: IntArray, noise: NoiseSource) -> IntArray:
    """Draw with 1/σ in place of σ: γ taken for the scale."""
    return np.argmax(counts + noise.discrete_gaussian(1 / _SIGMA, counts.shape), axis=1)


def no_noise(counts: IntArray, noise: NoiseSource) -> IntArray:
    """Report the plurality itself."""
    return np.argmax(counts, axis=1)


def noise_shared_by_classes(counts: IntArray, noise: NoiseSource) -> IntArray:
    """Add one draw to all classes of a query, which changes nothing."""
    return np.argmax(counts + noise.discrete_gaussian(_SIGMA, (len(counts), 1)), axis=1)


def noise_shared_by_queries(counts: IntArray, noise: NoiseSource) -> IntArray:
    """Add the same draws to every query."""
    return np.argmax(counts + noise.discrete_gaussian(_SIGMA, counts.shape[1:]), axis=1)


def noise_after_the_argmax(counts: IntArray, noise: NoiseSource) -> IntArray:
    """Add noise to the winner's count only, once it has won."""
    winners = np.argmax(counts, axis=1)
    noisy = counts.copy()
    noisy[np.arange(len(counts)), winners] += noise.discrete_gaussian(_SIGMA, (len(counts),))
    return np.argmax(noisy, axis=1)


def noise_on_the_first_class_only(counts: IntArray, noise: NoiseSource) -> IntArray:
    """Forget the other classes."""
    noisy = counts.copy()
    noisy[:, 0] += noise.discrete_gaussian(_SIGMA, (len(counts),))
    return np.argmax(noisy, axis=1)


def ties_to_the_last_class(counts: IntArray, noise: NoiseSource) -> IntArray:
    """Break ties the other way than the accounting assumes."""
    noisy = counts + noise.discrete_gaussian(_SIGMA, counts.shape)
    return counts.shape[1] - 1 - np.argmax(noisy[:, ::-1], axis=1)


def other_kind_of_noise(counts: IntArray, noise: NoiseSource) -> IntArray:
    """Draw Laplace noise of the scale that is claimed for a Gaussian."""
    return np.argmax(counts + noise.discrete_laplace(_SIGMA, counts.shape), axis=1)


def noise_of_its_own(counts: IntArray, noise: NoiseSource) -> IntArray:
    """Draw from a seeded generator of its own, the same every time."""
    drawn = np.random.default_rng(0).integers(-3, 4, counts.shape)
    return np.argmax(counts + drawn, axis=1)


def abstains_on_ties(counts: IntArray, noise: NoiseSource) -> IntArray:
    """Give no answer where the clean votes are tied, which tells that they are."""
    labels = np.argmax(counts + noise.discrete_gaussian(_SIGMA, counts.shape), axis=1)
    ordered = np.sort(counts, axis=1)
    return np.where(ordered[:, -1] == ordered[:, -2], ABSTAIN, labels)


def as_it_happened(passed: np.ndarray) -> tuple[int, int]:
    """Report every check and every answer: the one that is right."""
    return len(passed), int(passed.sum())


def checks_of_answers_only(passed: np.ndarray) -> tuple[int, int]:
    """Report no check for a query that was abstained from."""
    return int(passed.sum()), int(passed.sum())


def expected_answers(passed: np.ndarray) -> tuple[int, int]:
    """Report a planned number of answers in place of those given."""
    return len(passed), len(passed) // 4


def no_checks(passed: np.ndarray) -> tuple[int, int]:
    """Report the answers only."""
    return 0, int(passed.sum())


def faulty_mechanisms() -> list[Mechanism]:
    """Return one mechanism per fault."""
    draws = [
        half_noise,
        noise_of_0_7,
        noise_of_1_3,
        inverse_scale,
        no_noise,
        noise_shared_by_classes,
        noise_shared_by_queries,
        noise_after_the_argmax,
        noise_on_the_first_class_only,
        ties_to_the_last_class,
        other_kind_of_noise,
        noise_of_its_own,
        abstains_on_ties,
    ]
    checks = [FaultyCheck(True, report) for report in (checks_of_answers_only, expected_answers, no_checks)]
    return [*map(FaultyArgmax, draws), FaultyCheck(False, as_it_happened), *checks]
