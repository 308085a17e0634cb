"""Mechanisms with one fault each, all of which were found in public code or are one slip away from the right one.

They exist to test tests: `MechanismContract` must reject every one. Never release anything with them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np

from tutelage._internal.typing import ABSTAIN, FloatArray, IntArray
from tutelage.ballots import VoteHistogram
from tutelage.events import Composed, ConfidenceCheck, Event, NoisyArgmaxGaussian, Repeated
from tutelage.mechanisms import Mechanism, Release
from tutelage.noise import NoiseSource, SystemNoise
from tutelage.privacy import PrivacyUnit

_SIGMA, _THRESHOLD = 2.0, 6.0


@final
@dataclass(frozen=True)
class FaultyArgmax(Mechanism):
    """A noisy argmax that claims discrete Gaussian noise of σ = 2 and does something else."""

    # Returns labels from votes and a noise source.
    fault: Callable[[VoteHistogram, NoiseSource], IntArray]
    noises_votes_as_given = shows_every_answer = True

    def event_of_one(self, n_classes: int, unit: PrivacyUnit, *, simulated: bool) -> Event:
        """Return what answering one query is claimed to be."""
        return NoisyArgmaxGaussian(_SIGMA, n_classes, unit, simulated)

    def release(
        self, votes: VoteHistogram, noise: NoiseSource, predictions: FloatArray | None = None
    ) -> Release:
        """Answer every query, wrongly."""
        self.check(votes, predictions)
        return Release(self.fault(votes, noise), self.event(votes, simulated=noise.simulated))

    def __repr__(self) -> str:
        return f"FaultyArgmax({self.fault.__name__})"


@final
@dataclass(frozen=True)
class FaultyCheck(Mechanism):
    """A confident mechanism whose check or whose bookkeeping is wrong."""

    noise_on_check: bool  # whether the check is noisy, as claimed
    # Returns, from the mask of passed queries, how many checks and answers are reported.
    report: Callable[[np.ndarray], tuple[int, int]]
    noises_votes_as_given = shows_every_answer = True

    def event_of_one(self, n_classes: int, unit: PrivacyUnit, *, simulated: bool) -> Event:
        """Return what one query is claimed to be: a check and an answer."""
        check = ConfidenceCheck(_THRESHOLD, _SIGMA, n_classes, unit, simulated)
        return Composed((check, NoisyArgmaxGaussian(_SIGMA, n_classes, unit, simulated)))

    def release(
        self, votes: VoteHistogram, noise: NoiseSource, predictions: FloatArray | None = None
    ) -> Release:
        """Answer the queries that pass, wrongly."""
        self.check(votes, predictions)
        drawn = noise.discrete_gaussian(_SIGMA, (votes.n_queries,))
        passed = votes.counts.max(axis=1) + (drawn if self.noise_on_check else 0) >= _THRESHOLD
        answers = np.argmax(
            votes.counts + noise.discrete_gaussian(_SIGMA, votes.counts.shape), axis=1
        )
        one = self.event_of_one(votes.n_classes, votes.unit, simulated=noise.simulated)
        check, answer = one.events if isinstance(one, Composed) else (one, one)
        checks, answered = self.report(passed)
        event = Composed((Repeated(check, checks), Repeated(answer, answered)))
        return Release(np.where(passed, answers, ABSTAIN), event)

    def __repr__(self) -> str:
        return f"FaultyCheck({self.noise_on_check}, {self.report.__name__})"


def half_noise(votes: VoteHistogram, noise: NoiseSource) -> IntArray:
    """Draw with half the σ that is claimed: a forgotten factor 2."""
    return np.argmax(votes.counts + noise.discrete_gaussian(_SIGMA / 2, votes.counts.shape), axis=1)


def noise_of_0_7(votes: VoteHistogram, noise: NoiseSource) -> IntArray:
    """Draw with 0.7 of the σ that is claimed: a forgotten √2."""
    return np.argmax(
        votes.counts + noise.discrete_gaussian(0.7 * _SIGMA, votes.counts.shape), axis=1
    )


def noise_of_1_3(votes: VoteHistogram, noise: NoiseSource) -> IntArray:
    """Draw with 1.3 of the σ that is claimed: private, but not what the event says."""
    return np.argmax(
        votes.counts + noise.discrete_gaussian(1.3 * _SIGMA, votes.counts.shape), axis=1
    )


def inverse_scale(votes: VoteHistogram, noise: NoiseSource) -> IntArray:
    """Draw with 1/σ in place of σ: γ used as the scale."""
    return np.argmax(votes.counts + noise.discrete_gaussian(1 / _SIGMA, votes.counts.shape), axis=1)


def votes_in_reverse_order(votes: VoteHistogram, noise: NoiseSource) -> IntArray:
    """Reverse the order of the classes before the noise, so that a vote-dependent cost is of other counts."""
    return np.argmax(
        votes.counts[:, ::-1] + noise.discrete_gaussian(_SIGMA, votes.counts.shape), axis=1
    )


def no_noise(votes: VoteHistogram, noise: NoiseSource) -> IntArray:
    """Report the plurality itself."""
    return np.argmax(votes.counts, axis=1)


def noise_shared_by_classes(votes: VoteHistogram, noise: NoiseSource) -> IntArray:
    """Add one draw to all classes of a query, which changes nothing."""
    return np.argmax(votes.counts + noise.discrete_gaussian(_SIGMA, (votes.n_queries, 1)), axis=1)


def noise_shared_by_queries(votes: VoteHistogram, noise: NoiseSource) -> IntArray:
    """Add the same draws to every query."""
    return np.argmax(votes.counts + noise.discrete_gaussian(_SIGMA, votes.counts.shape[1:]), axis=1)


def noise_after_the_argmax(votes: VoteHistogram, noise: NoiseSource) -> IntArray:
    """Add noise to the winner's count only, once it has won."""
    winners = np.argmax(votes.counts, axis=1)
    noisy = votes.counts.copy()
    noisy[np.arange(votes.n_queries), winners] += noise.discrete_gaussian(
        _SIGMA, (votes.n_queries,)
    )
    return np.argmax(noisy, axis=1)


def noise_on_the_first_class_only(votes: VoteHistogram, noise: NoiseSource) -> IntArray:
    """Forget the other classes."""
    noisy = votes.counts.copy()
    noisy[:, 0] += noise.discrete_gaussian(_SIGMA, (votes.n_queries,))
    return np.argmax(noisy, axis=1)


def ties_to_the_last_class(votes: VoteHistogram, noise: NoiseSource) -> IntArray:
    """Break ties the other way than the accounting assumes."""
    noisy = votes.counts + noise.discrete_gaussian(_SIGMA, votes.counts.shape)
    return votes.counts.shape[1] - 1 - np.argmax(noisy[:, ::-1], axis=1)


def other_kind_of_noise(votes: VoteHistogram, noise: NoiseSource) -> IntArray:
    """Draw Laplace noise of the scale that is claimed for a Gaussian."""
    return np.argmax(votes.counts + noise.discrete_laplace(_SIGMA, votes.counts.shape), axis=1)


def the_same_noise_every_time(votes: VoteHistogram, noise: NoiseSource) -> IntArray:
    """Draw from a seeded generator."""
    drawn = np.random.default_rng(0).integers(-3, 4, votes.counts.shape)
    return np.argmax(votes.counts + drawn, axis=1)


def noise_of_its_own(votes: VoteHistogram, noise: NoiseSource) -> IntArray:
    """Draw from an unvetted generator in place of the source."""
    return right(votes, SystemNoise())


def labels_from_one_on(votes: VoteHistogram, noise: NoiseSource) -> IntArray:
    """Count classes from one."""
    return right(votes, noise) + 1


def right(votes: VoteHistogram, noise: NoiseSource) -> IntArray:
    """Do what is claimed: a control that must be accepted."""
    return np.argmax(votes.counts + noise.discrete_gaussian(_SIGMA, votes.counts.shape), axis=1)


def abstains_on_ties(votes: VoteHistogram, noise: NoiseSource) -> IntArray:
    """Give no answer where the clean votes are tied, which tells that they are."""
    labels = np.argmax(votes.counts + noise.discrete_gaussian(_SIGMA, votes.counts.shape), axis=1)
    ordered = np.sort(votes.counts, axis=1)
    return np.where(ordered[:, -1] == ordered[:, -2], ABSTAIN, labels)


def no_noise_on_single_queries(votes: VoteHistogram, noise: NoiseSource) -> IntArray:
    """Draw for batches only."""
    return right(votes, noise) if votes.n_queries > 1 else no_noise(votes, noise)


def no_noise_where_teachers_agree(votes: VoteHistogram, noise: NoiseSource) -> IntArray:
    """Leave a unanimous vote as it is, which tells that it was one."""
    agreed = votes.counts.max(axis=1) == votes.counts.sum(axis=1)
    return np.where(agreed, no_noise(votes, noise), right(votes, noise))


def less_noise_for_many_classes(votes: VoteHistogram, noise: NoiseSource) -> IntArray:
    """Draw with less noise where there are more than three classes."""
    sigma = _SIGMA if votes.counts.shape[1] <= 3 else _SIGMA / 2
    return np.argmax(votes.counts + noise.discrete_gaussian(sigma, votes.counts.shape), axis=1)


def less_noise_for_many_teachers(votes: VoteHistogram, noise: NoiseSource) -> IntArray:
    """Draw with less noise where there are more than a hundred teachers."""
    sigma = _SIGMA if votes.n_teachers <= 100 else _SIGMA / 10
    return np.argmax(votes.counts + noise.discrete_gaussian(sigma, votes.counts.shape), axis=1)


def noise_on_the_first_three_classes_only(votes: VoteHistogram, noise: NoiseSource) -> IntArray:
    """Forget the classes beyond the third."""
    noisy = votes.counts.copy()
    noisy[:, :3] += noise.discrete_gaussian(_SIGMA, votes.counts[:, :3].shape)
    return np.argmax(noisy, axis=1)


def noise_drawn_for_half_of_the_queries(votes: VoteHistogram, noise: NoiseSource) -> IntArray:
    """Use every draw twice, once in each half of the batch."""
    drawn = noise.discrete_gaussian(_SIGMA, (-(-votes.n_queries // 2), votes.counts.shape[1]))
    return np.argmax(votes.counts + np.concatenate([drawn, drawn])[: votes.n_queries], axis=1)


def noise_shared_by_neighboring_queries(votes: VoteHistogram, noise: NoiseSource) -> IntArray:
    """Use every draw twice, for two queries in a row."""
    drawn = noise.discrete_gaussian(_SIGMA, (votes.n_queries // 2 + 1, votes.counts.shape[1]))
    return np.argmax(votes.counts + np.repeat(drawn, 2, axis=0)[1 : votes.n_queries + 1], axis=1)


def classes_without_votes_left_out(votes: VoteHistogram, noise: NoiseSource) -> IntArray:
    """Add noise to the classes that somebody voted for, as counting without a list of classes does."""
    drawn = votes.counts + noise.discrete_gaussian(_SIGMA, votes.counts.shape)
    return np.argmax(np.where(votes.counts > 0, drawn, np.iinfo(np.int64).min), axis=1)


def abstains_without_a_quorum(votes: VoteHistogram, noise: NoiseSource) -> IntArray:
    """Give no answer where not every teacher voted, which tells that one did not."""
    return np.where(votes.counts.sum(axis=1) == votes.n_teachers, right(votes, noise), ABSTAIN)


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


def no_answers_in_small_batches(passed: np.ndarray) -> tuple[int, int]:
    """Report answers in large batches only, and have them given back in small ones."""
    return len(passed), int(passed.sum()) if len(passed) > 100 else 0


@final
@dataclass(frozen=True)
class Untold(Mechanism):
    """A right argmax whose event says of seeded noise that it was real, or is of a kind without a cost."""

    costs: bool  # whether its event has a cost

    def event_of_one(self, n_classes: int, unit: PrivacyUnit, *, simulated: bool) -> Event:
        """Return what answering one query is claimed to be."""
        return (
            NoisyArgmaxGaussian(_SIGMA, n_classes, unit, simulated=False) if self.costs else Event()
        )

    def release(
        self, votes: VoteHistogram, noise: NoiseSource, predictions: FloatArray | None = None
    ) -> Release:
        """Answer every query."""
        self.check(votes, predictions)
        return Release(right(votes, noise), self.event(votes, simulated=noise.simulated))


@final
@dataclass(frozen=True)
class Hiding(Mechanism):
    """An argmax that hides answers of class 0 after it drew them, and promises to show every answer."""

    shows_every_answer = True

    def event_of_one(self, n_classes: int, unit: PrivacyUnit, *, simulated: bool) -> Event:
        """Return what answering one query is."""
        return NoisyArgmaxGaussian(_SIGMA, n_classes, unit, simulated)

    def release(
        self, votes: VoteHistogram, noise: NoiseSource, predictions: FloatArray | None = None
    ) -> Release:
        """Answer every query, and show some of the answers."""
        drawn = right(votes, noise)
        every = np.ones(votes.n_queries, dtype=np.bool_)
        return Release(
            np.where(drawn == 0, ABSTAIN, drawn),
            self.event(votes, simulated=noise.simulated),
            by_vote=every,
        )


@final
@dataclass
class Changing(Mechanism):
    """An argmax with less noise after every release."""

    sigma: float  # parameter σ of the next release

    def event_of_one(self, n_classes: int, unit: PrivacyUnit, *, simulated: bool) -> Event:
        """Return what answering one query is, this time."""
        return NoisyArgmaxGaussian(self.sigma, n_classes, unit, simulated)

    def release(
        self, votes: VoteHistogram, noise: NoiseSource, predictions: FloatArray | None = None
    ) -> Release:
        """Answer every query, and change."""
        drawn = noise.discrete_gaussian(self.sigma, votes.counts.shape)
        release = Release(
            np.argmax(votes.counts + drawn, axis=1), self.event(votes, simulated=noise.simulated)
        )
        self.sigma *= 0.999
        return release


@final
class SinglePrecisionNoise:
    """Laplace noise of single precision, whose digits give away the count beneath (Mironov 2012)."""

    simulated = True

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def discrete_laplace(self, scale: float, shape: tuple[int, ...]) -> IntArray:
        """Draw numbers that are no integers, by the inverse of the distribution function."""
        centred = self._generator.random(shape, dtype=np.float32) - np.float32(0.5)
        size = np.log1p(-2 * np.abs(centred) * np.float32(1 - 2**-20))
        return -np.float32(scale) * np.sign(centred) * size  # type: ignore[return-value]


_BY_LAW = (
    half_noise,
    noise_of_0_7,
    noise_of_1_3,
    inverse_scale,
    noise_shared_by_classes,
    noise_after_the_argmax,
    noise_on_the_first_class_only,
    ties_to_the_last_class,
    other_kind_of_noise,
    no_noise_where_teachers_agree,
    less_noise_for_many_classes,
    less_noise_for_many_teachers,
    noise_on_the_first_three_classes_only,
    classes_without_votes_left_out,
)
_BY_OTHERS = {
    "test_neighbors_are_as_close_as_it_claims": (half_noise, no_noise, inverse_scale),
    "test_every_release_draws_anew": (no_noise, the_same_noise_every_time, noise_shared_by_queries),
    "test_queries_do_not_share_noise": (
        noise_drawn_for_half_of_the_queries,
        noise_shared_by_neighboring_queries,
    ),
    "test_a_query_by_itself_is_released_as_in_a_batch": (no_noise_on_single_queries,),
    "test_abstaining_teachers_change_nothing_else": (abstains_without_a_quorum,),
    "test_all_its_noise_comes_from_the_source": (noise_of_its_own,),
    "test_labels_are_classes_or_abstentions": (labels_from_one_on,),
    "test_it_reports_what_it_runs": (abstains_on_ties,),
    "test_what_its_class_promises_is_true": (votes_in_reverse_order,),
}
_REPORTS = checks_of_answers_only, expected_answers, no_checks, no_answers_in_small_batches


def faulty_mechanisms() -> list[tuple[Mechanism, str]]:
    """Return mechanisms with one fault each, and the test of `MechanismContract` that must reject it."""
    return [
        *((FaultyArgmax(fault), "test_labels_follow_the_law_of_the_event") for fault in _BY_LAW),
        *((FaultyArgmax(fault), name) for name, faults in _BY_OTHERS.items() for fault in faults),
        (FaultyCheck(False, as_it_happened), "test_labels_follow_the_law_of_the_event"),
        *((FaultyCheck(True, report), "test_it_reports_what_it_runs") for report in _REPORTS),
        (Untold(costs=True), "test_seeded_noise_is_told"),
        (Untold(costs=False), "test_what_it_announces_has_a_cost_for_all_votes"),
        (Hiding(), "test_what_its_class_promises_is_true"),
        (Changing(_SIGMA), "test_its_fields_are_fixed_and_shown"),
    ]


def right_controls() -> list[Mechanism]:
    """Return what the faulty mechanisms would be without their faults; the contract must accept them."""
    return [FaultyArgmax(right), FaultyCheck(True, as_it_happened)]
