"""Check that one entity changes the ballots of one teacher only: the assumption behind every epsilon.

The pipeline is run again on data in which one entity was changed or removed, and the ballots are compared bit for bit.
The result depends on the private rows and is for the data set owner. It spends no budget, because nothing is released.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, final

import numpy as np
import numpy.typing as npt

from tutelage._internal.progress import progress_bar
from tutelage._internal.records import Names, frozen
from tutelage._internal.typing import Array, Ballots, Mask, Matrix
from tutelage._internal.validation import integer_at_least
from tutelage.exceptions import InvalidDataError
from tutelage.partition import Shards, as_column
from tutelage.teachers import ensemble_of

_Ids = Array | None
MakeBallots = Callable[[Matrix, Array, _Ids], npt.ArrayLike]

LABELS = "labels changed"
SWAPPED = "rows swapped for others"
FAR = "rows far away"
REMOVED = "removed"
_BEYOND = 10  # times the span of a column, past its largest value
_FEW = 0.2  # of the teachers: a fault that reaches more of them runs over all rows


class SensitivityTrial(NamedTuple):
    """One change of one entity."""

    change: str
    teachers_changed: int


@final
@frozen
class SensitivityAudit:
    """Effect of single changed entities on the teachers; for the owner of the rows."""

    teachers: int
    unit: str  # that was changed: "entity" or "row"
    repeatable: bool  # whether the same data gave the same ballots twice
    trials: tuple[SensitivityTrial, ...]

    @property
    def most_changed(self) -> int:
        """The largest number of teachers that one entity changed."""
        return max((trial.teachers_changed for trial in self.trials), default=0)

    @property
    def passed(self) -> bool:
        """Whether the pipeline repeats itself, no entity changed two teachers, and some entity changed one."""
        return self.repeatable and self.most_changed == 1

    @property
    def reasons(self) -> Names:
        """Problems, their likely cause and the fix; empty if there are none."""
        if not self.repeatable:
            return (
                "The same data gave other ballots the second time. Seed the partition and the teachers, and use no "
                "random stream that they share; noise belongs behind the votes.",
            )
        if self.most_changed == 0:
            return (
                "No change moved any ballot, so nothing was shown. Ask about more public rows, or try more entities.",
            )
        if self.most_changed == 1:
            return ()
        return tuple(self._causes())

    def worst(self, change: str) -> int:
        """Return the largest number of teachers that this kind of change reached; 0 where it was not tried."""
        changed = [trial.teachers_changed for trial in self.trials if trial.change == change]
        return max(changed, default=0)

    def _causes(self) -> Iterator[str]:
        label = self.worst(LABELS)
        removed = self.worst(REMOVED)
        rows = max(self.worst(SWAPPED), self.worst(FAR))
        yield f"One {self.unit} changed the ballots of {self.most_changed:,} of {self.teachers:,} teachers, not one."
        if min(label, rows) > 1:
            yield _SHARED if self._is_many(min(label, rows)) else _SEVERAL_SHARDS
        if rows > 1 and (label <= 1 or self._is_many(rows) > self._is_many(label)):
            yield _STATISTIC
        if label > 1 and (rows <= 1 or self._is_many(label) > self._is_many(rows)):
            yield _BY_LABEL
        if removed > max(1, label, rows) and not self._is_many(max(label, rows)):
            yield _BY_POSITION

    def _is_many(self, teachers: int) -> bool:
        return teachers > max(2, _FEW * self.teachers)


_SHARED = (
    "Label and features of one reach many: teachers train on the same rows, resample from all of them, or share a "
    "model, a validation set or early stopping. Give each teacher its own shard and nothing else."
)
_SEVERAL_SHARDS = (
    "A few teachers see the same rows or people: an entity has rows in several shards, or shards overlap. Partition by "
    "the id of the entity (Shards.of_entities), each row once."
)
_STATISTIC = (
    "The features of one reach others: a scaler, vocabulary, projection or choice of features is fitted over all "
    "private rows. Fit it on public rows, or inside each teacher (make_pipeline)."
)
_BY_LABEL = (
    "The label of one reaches others: shards are stratified by label, or class weights, label statistics or a "
    "validation set are shared. Use nothing that reads the labels of other shards."
)
_BY_POSITION = (
    "Removing one reaches others: shards depend on position, size or a shuffle of all rows, so that later rows move. "
    "Partition by a keyed hash of the id (Shards.of_entities)."
)


def audit_sensitivity(
    make_ballots: MakeBallots,
    X: npt.ArrayLike,
    y: npt.ArrayLike,
    entity_ids: npt.ArrayLike | None = None,
    *,
    entities: int = 4,
    random_state: int = 0,
    progress: bool = False,
) -> SensitivityAudit:
    """Change and remove single entities, run the pipeline again, and count the teachers whose ballots differ.

    Parameters
    ----------
    make_ballots : callable
        ``make_ballots(X, y, entity_ids)`` runs everything from private rows to ballots, preprocessing and partition
        included, and returns them in the shape (teachers, queries), on the same public queries every time.
    X, y : arrays of shape (rows, ...) and (rows,)
        Private rows and labels; a part of them will do, of whole entities.
    entity_ids : array of shape (rows,), optional
        Whose row it is. Without it the unit is one row, how many rows there are is public, and none is removed.
    entities : int
        How many are tried, drawn at random; each costs three or four runs.
    random_state : int
        Of the choice of entities.
    progress : bool
        Show a progress bar.
    """
    rows = np.asarray(X)
    labels = np.asarray(y)
    ids: _Ids = None
    if entity_ids is not None:
        ids = as_column(entity_ids)
    if rows.ndim == 0 or len(rows) < 2 or labels.shape != rows.shape[:1]:
        raise InvalidDataError(
            f"X and y must have one entry per private row, of two at least. Got shapes {rows.shape} and {labels.shape}."
        )
    if ids is not None and ids.shape != labels.shape:
        raise InvalidDataError(
            f"`entity_ids` must have one id per row. Got shape {ids.shape} for {len(rows)} rows."
        )
    integer_at_least(entities, 1, "entities", "audit_sensitivity")
    everything = np.ones(len(rows), dtype=bool)

    def cast(
        rows: Matrix,
        labels: Array,
        kept: Mask,
    ) -> Ballots:
        # Copies: a pipeline that scales in place would hand its scale on to the next run.
        own_ids = None if ids is None else ids[kept]
        ballots = np.asarray(make_ballots(rows.copy(), labels.copy(), own_ids))
        if ballots.ndim < 2 or ballots.dtype.kind not in "iu" or ballots.size == 0:
            raise InvalidDataError(
                f"`make_ballots` must return integers of shape (teachers, queries). Got {ballots.dtype} of shape "
                f"{ballots.shape}."
            )
        return ballots.astype(np.int16)

    before = cast(rows, labels, everything)
    again = cast(rows, labels, everything)
    changes = [*changes_of_one(rows, labels, ids, entities, random_state)]
    bar = progress_bar(changes, "one entity changed", len(changes), shown=progress)
    trials = list[SensitivityTrial]()
    for change, new_rows, new_labels, kept in bar:
        after = cast(new_rows, new_labels, kept)
        trials.append(SensitivityTrial(change, n_differing(before, after)))
    return SensitivityAudit(
        teachers=len(before),
        unit="row" if ids is None else "entity",
        repeatable=n_differing(before, again) == 0,
        trials=tuple(trials),
    )


def n_differing(before: Ballots, after: Ballots) -> int:
    """Return how many teachers vote otherwise."""
    if before.shape != after.shape:
        # There are other teachers, or other queries, so all of them differ.
        return max(len(before), len(after))
    return int((before != after).reshape(len(before), -1).any(axis=1).sum())


def changes_of_one(
    rows: Matrix,
    labels: Array,
    ids: _Ids,
    entities: int,
    random_state: int = 0,
) -> Iterator[tuple[str, Matrix, Array, Mask]]:
    """Yield what was done to one entity, rows and labels after it, and which rows are left."""
    random = np.random.default_rng(random_state)
    names = np.arange(len(rows))
    if ids is not None:
        names = np.array([str(name) for name in ids.tolist()])
    distinct = np.unique(names)
    everything = np.ones(len(rows), dtype=bool)
    classes, places = np.unique(labels, return_inverse=True)
    next_labels = classes[(places + 1) % len(classes)]
    for name in random.permutation(distinct)[: min(entities, len(distinct) - 1)]:
        own = names == name
        yield LABELS, rows, np.where(own, next_labels, labels), everything

        strangers = random.choice(np.flatnonzero(~own), int(own.sum()))
        swapped = rows.copy()
        swapped[own] = rows[strangers]
        yield SWAPPED, swapped, labels, everything

        if rows.dtype.kind in "fiu":
            moved = rows.copy()
            moved[own] = _far_row(rows)
            yield FAR, moved, labels, everything
        if ids is not None:
            yield REMOVED, rows[~own], labels[~own], ~own


def _far_row(rows: Matrix) -> Array:
    """Return a row far beyond all others, as far as the type reaches."""
    kind = rows.dtype
    largest = np.finfo(kind).max if kind.kind == "f" else np.iinfo(kind).max
    low = np.nanmin(rows, axis=0)
    high = np.nanmax(rows, axis=0)
    far = high + _BEYOND * (high.astype(np.float64) - low + 1)
    return np.minimum(far, largest).astype(kind)


_KEY = bytes(range(32))


def ballots_of_teachers(
    teacher: Any,
    n_teachers: int,
    X_public: npt.ArrayLike,
    *,
    n_classes: int,
) -> MakeBallots:
    """Return the pipeline of teachers on a keyed partition, by entity where there are ids.

    Parameters
    ----------
    teacher : TeacherRecipe or scikit-learn classifier
        What each teacher is.
    n_teachers : int
        How many.
    X_public : array of shape (queries, features)
        What they are asked.
    n_classes : int
        Number of classes; labels are the integers below it.
    """
    queries = np.asarray(X_public)

    def make_ballots(
        X: Matrix,
        y: Array,
        entity_ids: _Ids,
    ) -> Ballots:
        if entity_ids is None:
            shards = Shards.of_rows(len(X), n_teachers, key=_KEY)
        else:
            shards = Shards.of_entities(entity_ids, n_teachers, key=_KEY)
        teachers = ensemble_of(teacher, n_classes=n_classes, seed=0)
        return teachers.fit_ballots(X, y, shards, queries.copy())

    return make_ballots
