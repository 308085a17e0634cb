"""Faults in how rows reach teachers."""

from collections.abc import Callable

import numpy as np

from tutelage._internal.typing import Ballots, IntArray, Matrix
from tutelage.audit.overlap import entities_in_several_shards
from tutelage.audit.sensitivity import MakeBallots, audit_sensitivity
from tutelage.partition import Shards
from tutelage.privacy import ONE_TEACHER
from tutelage.teachers import ClassMeans, ensemble_of
from tutelage_reproductions.planted_faults.fault import Fault

_TEACHERS, _ROWS, _KEY = 8, 160, bytes(range(32))


def _made_up() -> tuple[Matrix, IntArray, IntArray, Matrix]:
    """Return rows, labels and ids of people with two rows each, and queries."""
    random = np.random.default_rng(7)
    X, queries = random.random((_ROWS, 3)) - 0.5, random.random((300, 3)) - 0.5
    # Hard enough for every row to matter.
    y = (X[:, 0] + random.random(_ROWS) > 0.5).astype(np.int64)
    return X, y, np.arange(_ROWS) // 2, queries


def keeps_sensitivity(make_ballots: MakeBallots) -> bool:
    """Return whether one changed or removed entity changes one teacher."""
    X, y, ids, _ = _made_up()
    return audit_sensitivity(make_ballots, X, y, ids, entities=2).passed


def keeps_people_together(partition: Callable[[IntArray], Shards]) -> bool:
    """Return whether all rows of everybody are in one shard."""
    _, _, ids, _ = _made_up()
    return entities_in_several_shards(partition(ids).assignment, ids) == 0


def _each_on(rows_of: Callable[[IntArray], list[IntArray]]) -> MakeBallots:
    """Return a pipeline whose teachers are trained on these rows each."""
    _, _, _, queries = _made_up()

    def make_ballots(X: Matrix, y: IntArray, ids: IntArray | None) -> Ballots:
        ballots = list[Ballots]()
        for rows in rows_of(np.arange(len(X)) if ids is None else ids):
            alone = Shards(np.zeros(len(rows), dtype=np.int64), 1, ONE_TEACHER)
            ballots.append(
                ensemble_of(ClassMeans(), n_classes=2, seed=0).fit_ballots(
                    X[rows], y[rows], alone, queries
                )
            )
        return np.concatenate(ballots)

    return make_ballots


def _by_person(ids: IntArray) -> Shards:
    return Shards.of_entities(ids, _TEACHERS, key=_KEY)


def _right(ids: IntArray) -> list[IntArray]:
    return _by_person(ids).rows


def _everything_to_all(ids: IntArray) -> list[IntArray]:
    return [np.arange(len(ids))] * _TEACHERS


def _with_the_next(ids: IntArray) -> list[IntArray]:
    shards = _right(ids)
    return [
        np.concatenate([shards[place], shards[(place + 1) % _TEACHERS]])
        for place in range(_TEACHERS)
    ]


def _resampled(ids: IntArray) -> list[IntArray]:
    random = np.random.default_rng(0)
    return [random.choice(len(ids), len(ids) // _TEACHERS) for _ in range(_TEACHERS)]


def _by_row(ids: IntArray) -> Shards:
    return Shards.of_rows(len(ids), _TEACHERS, key=_KEY)


SAME_SHARD = Fault(
    name="same shard to all teachers",
    planted="every teacher is trained on all rows",
    caught_by="audit_sensitivity",
    check=keeps_sensitivity,
    right=_each_on(_right),
    wrong=_each_on(_everything_to_all),
)
OVERLAPPING = Fault(
    name="overlapping shards",
    planted="every teacher also sees the next teacher's shard",
    caught_by="audit_sensitivity",
    check=keeps_sensitivity,
    right=_each_on(_right),
    wrong=_each_on(_with_the_next),
)
RESAMPLING = Fault(
    name="resampled shards",
    planted="every teacher draws rows from all of them, with replacement",
    caught_by="audit_sensitivity",
    check=keeps_sensitivity,
    right=_each_on(_right),
    wrong=_each_on(_resampled),
)
GROUP_SIZE = Fault(
    name="group size ignored",
    planted="people with two rows are partitioned by row",
    caught_by="entities_in_several_shards",
    check=keeps_people_together,
    right=_by_person,
    wrong=_by_row,
)
