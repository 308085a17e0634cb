"""Faults in when and for what a ledger is charged."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import final

import numpy as np

from tutelage._internal.typing import FloatArray, IntArray, Matrix
from tutelage.ballots import VoteHistogram
from tutelage.events import Event, NoisyArgmaxGaussian
from tutelage.labeling import LabelingSession
from tutelage.ledger import Ledger
from tutelage.mechanisms import Mechanism, Release
from tutelage.mechanisms.noisy_argmax import noisy_argmax
from tutelage.noise import NoiseSource, SimulationNoise
from tutelage.privacy import ONE_TEACHER, PrivacyUnit
from tutelage.students.selection import PublicKnowledge, class_balanced
from tutelage_reproductions.planted_faults.fault import Fault

Ask = Callable[["Watched", VoteHistogram, Ledger, Matrix], object]
_SIGMA, _QUERIES, _PER_CLASS = 5.0, 40, 3


@final
@dataclass(frozen=True)
class Watched(Mechanism):
    """A right noisy argmax that notes, whenever it draws, for how many queries, and what was spent by then."""

    ledger: Ledger = field(repr=False)
    # Pairs of queries and budget spent, one per draw.
    drawn: list[tuple[int, float]] = field(default_factory=list, repr=False)

    def event_of_one(self, n_classes: int, unit: PrivacyUnit, *, simulated: bool) -> Event:
        """Return what answering one query is."""
        return NoisyArgmaxGaussian(_SIGMA, n_classes, unit, simulated)

    def release(
        self, votes: VoteHistogram, noise: NoiseSource, predictions: FloatArray | None = None
    ) -> Release:
        """Note and answer."""
        self.check(votes, predictions)
        self.drawn.append((votes.n_queries, self.ledger.state().spent))
        labels = noisy_argmax(votes.counts, noise.discrete_gaussian(_SIGMA, votes.counts.shape))
        return Release(labels, self.event(votes, simulated=noise.simulated))


def _asked(ask: Ask) -> tuple[Watched, Ledger]:
    random = np.random.default_rng(3)
    votes = VoteHistogram(random.multinomial(60, [0.5, 0.3, 0.2], _QUERIES), 60)
    ledger = Ledger.in_memory(epsilon=20.0, delta=1e-5, unit=ONE_TEACHER)
    mechanism = Watched(ledger)
    ask(mechanism, votes, ledger, np.arange(2.0 * _QUERIES).reshape(_QUERIES, 2))
    return mechanism, ledger


def debits_before_it_draws(ask: Ask) -> bool:
    """Return whether something was spent before any noise was drawn."""
    mechanism, _ = _asked(ask)
    return len(mechanism.drawn) > 0 and all(spent > 0 for _, spent in mechanism.drawn)


def pays_for_all_that_it_sees(ask: Ask) -> bool:
    """Return whether as many queries were charged as were answered under noise."""
    mechanism, ledger = _asked(ask)
    return sum(charge.queries for charge in ledger.history().charges) >= sum(
        queries for queries, _ in mechanism.drawn
    )


def _in_a_session(mechanism: Watched, votes: VoteHistogram, ledger: Ledger, X: Matrix) -> IntArray:
    return LabelingSession(votes, mechanism, ledger, noise=SimulationNoise(0)).ask(X).labels


def _debit_afterwards(
    mechanism: Watched, votes: VoteHistogram, ledger: Ledger, X: Matrix
) -> IntArray:
    release = mechanism.release(votes, SimulationNoise(0))
    ledger.account.reserve(
        mechanism.event_of_one(votes.n_classes, votes.unit, simulated=True), len(X)
    )
    return release.labels


def _balanced_of(labels: IntArray, X: Matrix) -> IntArray:
    known = PublicKnowledge(X=X, labels=labels, asked=np.ones(len(X), dtype=np.bool_))
    return class_balanced(known, _PER_CLASS, seed=0)


def _balanced_of_all(
    mechanism: Watched, votes: VoteHistogram, ledger: Ledger, X: Matrix
) -> IntArray:
    return _balanced_of(_in_a_session(mechanism, votes, ledger, X), X)


def _balanced_at_a_discount(
    mechanism: Watched, votes: VoteHistogram, ledger: Ledger, X: Matrix
) -> IntArray:
    kept = _balanced_of(mechanism.release(votes, SimulationNoise(0)).labels, X)
    ledger.account.reserve(
        mechanism.event_of_one(votes.n_classes, votes.unit, simulated=True), len(kept)
    )
    return kept


DEBIT_AFTERWARDS = Fault(
    name="debit after the release",
    planted="the ledger is debited after the noise is drawn",
    caught_by="ledger read at the moment of the draw",
    check=debits_before_it_draws,
    right=_in_a_session,
    wrong=_debit_afterwards,
)
BALANCE_AT_A_DISCOUNT = Fault(
    name="classes balanced by labels that were not charged",
    planted="all labels are read, and only those of the balanced subset are charged",
    caught_by="comparison of queries drawn and queries charged",
    check=pays_for_all_that_it_sees,
    right=_balanced_of_all,
    wrong=_balanced_at_a_discount,
)
