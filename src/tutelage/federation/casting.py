"""Private rows of one entity to the sum of the ballots of its people, for one round."""

import numpy as np
import numpy.typing as npt

from tutelage._internal.typing import FloatArray, Matrix
from tutelage.ballots import BallotSum
from tutelage.exceptions import InvalidDataError
from tutelage.features.base import features_of_private, require_public_map
from tutelage.features.rowwise import finite_rows, number_rows
from tutelage.federation.consortium import Consortium, terms_of_sum
from tutelage.federation.sums import SumRound
from tutelage.partition import Shards
from tutelage.privacy import NeighboringRelation
from tutelage.teachers.blocks import PeopleBlock, blocks_of

_LARGEST = 1e100  # far beyond what an accepted map gives
_OF_PEOPLE = (
    NeighboringRelation.ADD_REMOVE_OR_CHANGE_ONE_ENTITY,
    NeighboringRelation.ADD_REMOVE_OR_CHANGE_WITHIN_SILO,
)


def ballots_of(
    consortium: Consortium, asked: SumRound, X: Matrix, y: npt.ArrayLike, entity_ids: npt.ArrayLike | None
) -> BallotSum:
    """Return the private sum of the ballots of one entity's people, as `Entity.cast` describes them."""
    _, teacher = terms_of_sum(consortium)
    rows, labels = np.asarray(X), np.asarray(y)
    if rows.ndim != 2 or len(rows) == 0 or labels.shape != (len(rows),):
        raise InvalidDataError(
            f"`X` must be private rows of shape (rows, columns), and `y` one class index for each. Got shapes "
            f"{rows.shape} and {labels.shape}."
        )
    if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= consortium.n_classes:
        raise InvalidDataError(f"`y` must hold class indices, integers from 0 to {consortium.n_classes - 1}.")
    people = _people(consortium, len(rows), entity_ids)
    rows = finite_rows(number_rows(rows, asked.columns, "the round").astype(np.float64), asked.columns, "the round")
    # From here on nothing may fail because of a row: whether a hospital answers would tell the aggregator of it.
    features = require_public_map(asked.features, "SumRound")

    def products_of(block: PeopleBlock) -> tuple[Matrix, Matrix]:
        each = np.arange(len(block.rows))[:, np.newaxis]
        vectors = _moderate(features_of_private(features, block.rows, each, len(asked.coef)))
        return vectors, _moderate(asked.student.residuals(vectors, block.labels))

    return teacher.cast(blocks_of(rows, labels, people.assignment), products_of, asked.radius, people.unit)


def _moderate(rows: Matrix) -> FloatArray:
    """Return rows with zeros in place of each that is not finite or too large to be multiplied."""
    return np.where((np.abs(rows) <= _LARGEST).all(axis=1, keepdims=True), rows, 0.0)


def _people(consortium: Consortium, rows: int, entity_ids: npt.ArrayLike | None) -> Shards:
    """Return whose row it is; the terms say whether that must be told."""
    relation, unit = consortium.unit.neighboring, consortium.unit.name
    if entity_ids is not None and relation is NeighboringRelation.CHANGE_ONE_ROW:
        raise InvalidDataError("`entity_ids` must be left out: the terms protect the contents of one row.")
    if entity_ids is None and relation in _OF_PEOPLE:
        raise InvalidDataError(f"`entity_ids` must say whose row it is: the terms protect one {unit}.")
    if entity_ids is not None and len(np.asarray(entity_ids)) != rows:
        raise InvalidDataError(f"`entity_ids` must hold one id for each of the {rows} rows.")
    return Shards.of_single_people(rows, entity_ids, name=unit)
