"""The public map of a round, as a hospital accepts it from the aggregator.

A map that made the features of a row depend on other rows would let one person change all ballots, and a map that
failed on some rows would tell which rows a hospital has. So only the steps that `VectorBallots.features` makes are
accepted, in that order, with arrays of matching shapes and numbers of moderate size. Within these limits no number
overflows and every product of matrices is exact: docs/proofs/ballots.md, claim 8.
"""

from collections.abc import Mapping

import numpy as np
from sklearn.pipeline import Pipeline, make_pipeline

from tutelage._internal.typing import FloatArray
from tutelage.exceptions import InvalidParameterError
from tutelage.features import PublicFeatureMap, PublicKernel, PublicProjection, PublicScaling, UnitBall
from tutelage.features.rowwise import projector

# Scalars lie between the two, and entries of arrays between minus and plus the larger. Products of four still fit.
LEAST, LARGEST = 1e-60, 1e60
_STEPS: tuple[type[PublicFeatureMap], ...] = (PublicScaling, PublicKernel, PublicProjection, UnitBall)


def map_of(names: list[str], arrays: Mapping[str, FloatArray], coef: FloatArray) -> Pipeline:
    """Return the map of these steps for a student with weights `coef`; raise ValueError or KeyError if it is unsound.

    `arrays` are finite; those of the map are named by the place of the step and its parameter.
    """
    kinds = _STEPS[-len(names) :]
    if [kind.__name__ for kind in kinds] != names or len(kinds) not in (len(_STEPS) - 1, len(_STEPS)):
        raise ValueError("other steps")
    landmarks, columns = arrays[f"map {len(names) - 3} points"].shape
    shapes = _shapes(columns, landmarks, len(coef) - 1)
    steps = []
    for place, kind in enumerate(kinds):
        found = {name: arrays[f"map {place} {name}"] for name in shapes[kind.__name__]}
        for name, shape in shapes[kind.__name__].items():
            _require(found[name], shape)
        steps.append(kind(**{name: array if array.ndim else float(array) for name, array in found.items()}))
    _require(coef, coef.shape)
    projection = steps[-2]
    projector(projection.center, projection.directions, projection.reach)
    projector(np.zeros(len(coef)), coef, 1.0)
    return make_pipeline(*steps)


def _shapes(columns: int, landmarks: int, features: int) -> dict[str, dict[str, tuple[int, ...]]]:
    return {
        "PublicScaling": {"center": (columns,), "deviation": (columns,)},
        "PublicKernel": {"center": (columns,), "reach": (), "points": (landmarks, columns), "distance": ()},
        "PublicProjection": {"center": (landmarks,), "directions": (landmarks, features), "reach": ()},
        "UnitBall": {"radius": (), "constant": ()},
    }


def _require(array: FloatArray, shape: tuple[int, ...]) -> None:
    if array.shape != shape or np.abs(array).max() > LARGEST or (not shape and array < LEAST):
        raise InvalidParameterError("A parameter of a public map has another shape, or is out of range.")
