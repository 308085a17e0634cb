"""Contract of mechanisms, as tests that its author can run."""

from collections import Counter
from collections.abc import Mapping
from itertools import combinations
from math import exp
from typing import ClassVar

import numpy as np

from tutelage._internal.typing import ABSTAIN, FloatArray, IntArray
from tutelage.accounting import data_independent
from tutelage.ballots import VoteHistogram
from tutelage.events import (
    CappedArgmaxGaussian,
    Check,
    Event,
    InteractiveCheck,
    Repeated,
    count_releases,
)
from tutelage.mechanisms import InteractiveGNMax, Mechanism, Release
from tutelage.noise import NoiseSource, SimulationNoise, SystemNoise
from tutelage.testing.laws import (
    at_least,
    at_most,
    frequencies_of,
    label_law,
    made_up_votes,
    p_value_of,
    rows_apart,
)

ALPHA = 1e-7  # chance that a right mechanism fails one comparison
_MOST_COMPARISONS = 500
_DELTAS = (1e-3, 0.03, 0.2)
_SIZES = (1, 2, 3, 7, 40, 150)
_SINGLE_RELEASES = 600

Counts = tuple[int, ...]  # of the classes


class MechanismContract:
    """Tests of a mechanism: inherit, name the mechanism, run pytest.

    Give it little noise, of about two votes: then one moved ballot shows, and faults do too. A correct mechanism fails
    with a probability below 1e-4; noise of ×0.7 or ×1.3 is detected. A suite cannot detect a fault in cases that
    it does not try; add `histograms` for whatever a mechanism treats in a way of its own.

    Attributes
    ----------
    mechanism : Mechanism
        The tested mechanism. If its event is not one of `tutelage.events`, or it returns classes of its own besides
        those voted for, define `law`.
    histograms : sequence of sequences of int
        Votes to try it on; near ties and near thresholds show most.
    prediction : sequence of float or None
        The student's probabilities of each query, for a mechanism that takes them.
    draws : int
        How often each histogram is released.

    Examples
    --------
    >>> from tutelage import GNMax
    >>> class TestGNMax(MechanismContract):
    ...     mechanism = GNMax(sigma=2.0)
    """

    mechanism: ClassVar[Mechanism]
    histograms: ClassVar[tuple[Counts, ...]] = (
        (6, 5, 1),
        (4, 4, 4),
        (1, 5, 6),
        (3, 0, 0),  # of one mind
        (126, 124, 0),  # many teachers
        (3, 4),
        (2, 3, 3, 1, 2, 3),
    )
    prediction: ClassVar[tuple[float, ...] | None] = None
    draws: ClassVar[int] = 5_000
    _releases: ClassVar[dict[object, tuple[Mechanism, Release]]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._releases = {}

    def law(self, counts: IntArray) -> FloatArray:
        """Return the probability of each class, and last of an abstention, for one query with these votes."""
        return label_law(self.event_of_one(counts), counts)

    def test_what_it_announces_has_a_cost_for_all_votes(self) -> None:
        """A ledger can reserve it."""
        event = self.event_of_one(np.array(self.histograms[0]))
        orders = np.array([1.5, 3.0, 30.0])
        costs = data_independent.rdp(event, orders).values
        assert np.all(np.isfinite(costs))
        assert np.all(costs > 0)

    def test_it_reports_what_it_runs(self) -> None:
        """In batches of every size: all checks, an answer for every answered row, and no more than announced."""
        for counts in self.histograms:
            for size in _SIZES:
                votes = self._votes(counts, size)
                release = self._release(votes, SystemNoise())
                announced = count_releases([self.mechanism.event(votes, simulated=False)])
                happened = count_releases([release.event])
                assert not happened - announced

                checks = _checks_in(announced)
                assert _checks_in(happened) == checks

                # A campaign may answer any number of queries.
                is_campaign = any(isinstance(event, CappedArgmaxGaussian) for event in announced)
                if not is_campaign:
                    answers = happened.total() - checks.total()
                    assert answers == release.voted.sum()

                if self.prediction is None:
                    assert not np.any(release.answered & ~release.voted)
                if not checks:
                    assert happened == announced

    def test_labels_are_classes_or_abstentions(self) -> None:
        """One label per query."""
        labels = self._labels(60, SystemNoise())
        assert labels.shape == (60,)
        assert labels.dtype.kind in "iu"
        assert labels.min() >= ABSTAIN
        assert labels.max() < len(self.histograms[1])

    def test_all_its_noise_comes_from_the_source(self) -> None:
        """The same seed gives the same labels, whatever was released before."""
        first = self._labels(300, SimulationNoise(1))
        self._labels(300, SimulationNoise(2))
        again = self._labels(300, SimulationNoise(1))
        assert np.array_equal(again, first)

    def test_every_release_draws_anew(self) -> None:
        """Two releases of near ties differ, and neither is one label throughout."""
        first = self._labels(500, SystemNoise())
        second = self._labels(500, SystemNoise())
        assert not np.array_equal(first, second)
        assert len(np.unique(first)) > 1

    def test_seeded_noise_is_told(self) -> None:
        """An event says whether its noise could be replayed."""
        votes = self._votes(self.histograms[0], 5)
        seeded = self._release(votes, SimulationNoise(0))
        fresh = self._release(votes, SystemNoise())
        assert seeded.event.is_simulated
        assert not fresh.event.is_simulated

    def test_its_fields_are_fixed_and_shown(self) -> None:
        """It can be compared, hashed and printed, and using it leaves it as it is."""
        before = repr(self.mechanism)
        self._labels(5, SystemNoise())
        assert repr(self.mechanism) == before
        assert " at 0x" not in before
        hash(self.mechanism)

    def test_labels_follow_the_law_of_the_event(self) -> None:
        """Neither too little noise nor too much, ties to the lowest class, on every histogram."""
        for counts in self.histograms:
            self._compare_with_law(counts, self._frequencies(counts, abstainers=0))

    def test_what_its_class_promises_is_true(self) -> None:
        """If it says so, noise is on the votes as given, and every answer that was drawn is shown.

        A class that is shown must be as frequent as the event makes it at these votes. Labels may be hidden after the
        noise, but not renamed.
        """
        for counts in self.histograms:
            release = self._first_release(counts)
            if self.mechanism.shows_every_answer is True:
                hidden = release.voted & ~release.answered
                assert not np.any(hidden), "an answer was drawn and not shown"
            if self.mechanism.noises_votes_as_given is True:
                votes = np.array(counts)
                law = label_law(self.event_of_one(votes), votes, self._offsets(counts))
                labels = np.where(release.voted, release.labels, ABSTAIN)
                frequencies = frequencies_of(labels, len(counts))
                shown = np.flatnonzero(frequencies[:-1]).tolist()
                _compare(counts, frequencies, {label: law[label] for label in shown})

    def test_abstaining_teachers_change_nothing_else(self) -> None:
        """The law of the labels depends on the number of cast ballots, unless a student expects that number."""
        if self.prediction is None:
            counts = self.histograms[0]
            self._compare_with_law(counts, self._frequencies(counts, abstainers=7))

    def test_a_query_by_itself_is_released_as_in_a_batch(self) -> None:
        """A batch of one follows the same law."""
        counts = self.histograms[0]
        votes = self._votes(counts, 1)
        labels = [self._release(votes, SystemNoise()).labels for _ in range(_SINGLE_RELEASES)]
        self._compare_with_law(counts, frequencies_of(np.concatenate(labels), len(counts)))

    def test_queries_do_not_share_noise(self) -> None:
        """Two rows of one batch agree as often as independent ones, however far apart they lie."""
        labels = self._first_release(self.histograms[1]).labels
        frequencies = np.bincount(labels + 1) / len(labels)
        by_chance = float(np.sum(frequencies**2))
        for first, lag in rows_apart(len(labels)):
            agreements = int(np.sum(labels[first] == labels[first + lag]))
            p_value = p_value_of(agreements, len(first), by_chance)
            assert p_value > ALPHA, f"rows {lag} apart share noise"

    def test_neighbors_are_as_close_as_it_claims(self) -> None:
        """No set of labels is more likely, on one histogram or on its neighbor, than the claimed (ε, δ) allows."""
        event = self.event_of_one(np.array(self.histograms[0]))
        claims = [(data_independent.epsilon(event, delta).epsilon, delta) for delta in _DELTAS]
        for counts in self.histograms[:2]:
            here = self._frequencies(counts)
            there = self._frequencies(_closest_neighbor(counts))
            for epsilon, delta in claims:
                assert not _refutes(here, there, epsilon, delta)
                assert not _refutes(there, here, epsilon, delta)

    def event_of_one(self, counts: IntArray) -> Event:
        """Return the most that one query is announced to be."""
        votes = self._votes(tuple(counts.tolist()), 1)
        event = self.mechanism.event_of_one(
            votes.n_classes,
            votes.unit,
            simulated=False,
        )
        if isinstance(event, Repeated) and event.count == 1:
            return event.event
        return event

    def _compare_with_law(self, counts: Counts, frequencies: IntArray) -> None:
        law = self.law(np.array(counts))
        _compare(counts, frequencies, dict(enumerate(law)))

    def _offsets(self, counts: Counts) -> IntArray | None:
        """Return the votes that the student expects, where a check compares the counts with them."""
        if self.prediction is None:
            return None
        for part in self.event_of_one(np.array(counts)).flatten():
            if isinstance(part.event, InteractiveCheck):
                return InteractiveGNMax.offsets(np.array(self.prediction), sum(counts))
        return None

    def _votes(
        self,
        counts: Counts,
        queries: int,
        abstainers: int = 0,
    ) -> VoteHistogram:
        teachers = sum(counts) + abstainers
        return made_up_votes(self.mechanism, counts, queries, teachers)

    def _release(self, votes: VoteHistogram, noise: NoiseSource) -> Release:
        predictions = None
        if self.prediction is not None:
            predictions = np.tile(self.prediction, (votes.n_queries, 1))
        return self.mechanism.release(votes, noise, predictions)

    def _labels(self, queries: int, noise: NoiseSource) -> IntArray:
        votes = self._votes(self.histograms[1], queries)
        return self._release(votes, noise).labels

    def _frequencies(self, counts: Counts, abstainers: int = 0) -> IntArray:
        """Return how often each class came out, and last how often there was no answer."""
        labels = self._first_release(counts, abstainers).labels
        return frequencies_of(labels, len(counts))

    def _first_release(self, counts: Counts, abstainers: int = 0) -> Release:
        """Return the release that all tests of a class compare with its law: most of their time is its noise."""
        setting = counts, abstainers, self.draws, self.prediction, id(self.mechanism)
        if setting not in self._releases:
            votes = self._votes(counts, self.draws, abstainers)
            release = self._release(votes, SystemNoise())
            # The mechanism is kept, so that no other one gets its id.
            self._releases[setting] = self.mechanism, release
        return self._releases[setting][1]


def _checks_in(events: Counter[Event]) -> Counter[Event]:
    return Counter({event: times for event, times in events.items() if isinstance(event, Check)})


def _compare(
    counts: Counts,
    frequencies: IntArray,
    law: Mapping[int, float],
) -> None:
    """Assert that each label is as frequent as its probability."""
    draws = int(frequencies.sum())
    for label, probability in law.items():
        p_value = p_value_of(int(frequencies[label]), draws, probability)
        assert p_value > ALPHA, f"label {label} of {counts} is not as frequent as its event says"


def _closest_neighbor(counts: Counts) -> Counts:
    """Return the neighbor whose first choice lost a vote to the second: where a moved ballot shows most."""
    first, second = np.argsort(-np.array(counts), kind="stable")[:2]
    neighbor = np.array(counts)
    neighbor[first] -= 1
    neighbor[second] += 1
    return tuple(neighbor.tolist())


def _refutes(
    here: IntArray,
    there: IntArray,
    epsilon: float,
    delta: float,
) -> bool:
    """Return whether the counts show P(S) > e^ε P′(S) + δ for some set S of labels, by Clopper-Pearson bounds."""
    # here, there: (classes and abstention,)
    level = ALPHA / _MOST_COMPARISONS
    n_here = int(here.sum())
    n_there = int(there.sum())
    for size in range(1, len(here)):
        for labels in combinations(range(len(here)), size):
            more = here[list(labels)].sum()
            less = there[list(labels)].sum()
            most = at_most(less, n_there, level)
            if at_least(more, n_here, level) > exp(epsilon) * most + delta:
                return True
    return False
