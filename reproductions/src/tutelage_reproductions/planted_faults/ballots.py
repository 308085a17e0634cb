"""Faults in how ballots of limited length are cast and counted."""

from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np

from tutelage import PATEClassifier, SimulationNoise
from tutelage._internal.typing import Matrix
from tutelage.audit import PrivateRows, check_fit
from tutelage.ballots import BallotSum, add_sums, tally_few
from tutelage.labeling import LabelingSession
from tutelage.ledger import Ledger
from tutelage.mechanisms import CappedGNMax, Release
from tutelage.partition import Shards
from tutelage.teachers import NearestQueries, NearestTeachers, VectorBallots
from tutelage_reproductions.planted_faults.fault import Fault

Cast = Callable[..., BallotSum]
Campaign = Callable[[NearestTeachers, CappedGNMax, Ledger, list[Matrix]], None]
_PEOPLE = 60
_CAST = VectorBallots.cast


def casts_one_ballot_per_person(cast: Cast) -> bool:
    """Return whether no person moves the sum of a round further than one ballot can."""
    random = np.random.default_rng(0)
    y = random.integers(0, 2, _PEOPLE)
    private = PrivateRows(4 * random.random((_PEOPLE, 3)) - 2 + y[:, None], y, np.arange(_PEOPLE))
    model = PATEClassifier(noise=SimulationNoise(0), random_state=0)
    with mock.patch.object(VectorBallots, "cast", cast):
        *_, moves = check_fit(
            model, private, 4 * random.random((80, 3)) - 1.5, draws=1_000, entities=6
        )
    return moves.verdict == "pass"


def keeps_its_cap_in_all_batches(campaign: Campaign) -> bool:
    """Return whether all votes of a campaign together are as few as its cap says."""
    random = np.random.default_rng(0)
    X, y = 4 * random.random((_PEOPLE, 2)) - 2, random.integers(0, 3, _PEOPLE)
    shards = Shards.of_single_people(_PEOPLE, np.arange(_PEOPLE), name="person")
    teachers = NearestQueries(2).fit(X, y, shards, n_classes=3)
    mechanism = CappedGNMax(sigma=20.0, cap=3)
    release = CappedGNMax.release
    numbers_of_votes = list[int]()

    def noting(self: CappedGNMax, votes: Any, *given: Any) -> Release:
        numbers_of_votes.append(int(votes.counts.sum()))
        return release(self, votes, *given)

    ledger = Ledger.in_memory(epsilon=20.0, delta=1e-5, unit=shards.unit)
    with mock.patch.object(CappedGNMax, "release", noting):
        campaign(teachers, mechanism, ledger, [4 * random.random((5, 2)) - 2 for _ in range(4)])
    return 0 < sum(numbers_of_votes) <= _PEOPLE * mechanism.cap


def _three_times_as_long(*cast: Any) -> BallotSum:
    honest = _CAST(*cast)
    return BallotSum(3 * honest.totals, honest.norm_squared, honest.unit)


def _in_two_teachers(*cast: Any) -> BallotSum:
    honest = _CAST(*cast)
    return add_sums(honest, honest)


def _in_a_session(
    teachers: NearestTeachers, mechanism: CappedGNMax, ledger: Ledger, batches: list[Matrix]
) -> None:
    session = LabelingSession(teachers, mechanism, ledger, noise=SimulationNoise(0))
    for X in batches:
        session.ask(X)


def _per_batch(
    teachers: NearestTeachers, mechanism: CappedGNMax, ledger: Ledger, batches: list[Matrix]
) -> None:
    ledger.account.reserve(mechanism.event_of_one(3, ledger.unit, simulated=True), 1)
    for X in batches:
        votes = teachers.few_votes(X).first(mechanism.cap)
        cast = votes.teachers, votes.queries, votes.labels
        counted = tally_few(*cast, shape=votes.shape, cap=mechanism.cap, unit=ledger.unit)
        mechanism.release(counted, SimulationNoise(0))


BALLOT_ABOVE_CAP = Fault(
    name="ballot above its cap",
    planted="ballots are three times as long as declared and are added up unchecked",
    caught_by="check_fit of tutelage audit",
    check=casts_one_ballot_per_person,
    right=_CAST,
    wrong=_three_times_as_long,
)
ROW_IN_TWO_TEACHERS = Fault(
    name="row that votes through two teachers",
    planted="every row is in the shards of two teachers, each with its own ballot",
    caught_by="check_fit of tutelage audit",
    check=casts_one_ballot_per_person,
    right=_CAST,
    wrong=_in_two_teachers,
)
CAP_PER_BATCH = Fault(
    name="cap counted per batch only",
    planted="people cast in every batch as many votes as the cap allows in total",
    caught_by="count of all votes that noise was added to in a campaign",
    check=keeps_its_cap_in_all_batches,
    right=_in_a_session,
    wrong=_per_batch,
)
