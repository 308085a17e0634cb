"""Maps of ballots as plain arrays, as a ledger keeps them: the same map on every machine.

All private rows go through a map together. A map that made the features of a row depend on other rows would let one
person change all ballots, and a map that failed on some rows would tell which rows there are. So only the steps that
`VectorBallots.features` makes are accepted, in that order, with arrays of matching shapes and numbers of moderate size.
Within these limits no number overflows and every product of matrices is exact: docs/proofs/ballots.md, claim 8.
"""

from io import BytesIO
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from tutelage._internal.typing import Array, FloatArray
from tutelage.exceptions import InvalidParameterError
from tutelage.features.base import PublicFeatureMap, chain, parts_of
from tutelage.features.landmarks import PublicKernel, UnitBall
from tutelage.features.learned import PublicProjection, PublicScaling
from tutelage.features.rowwise import projector

_STEPS: tuple[type[PublicFeatureMap], ...] = (
    PublicScaling,
    PublicKernel,
    PublicProjection,
    UnitBall,
)
# Scalars lie between the two, and entries of arrays between minus and plus the larger. Products of four still fit.
_LEAST, _LARGEST = 1e-60, 1e60


def map_to_bytes(features: Pipeline) -> bytes:
    """Return a map as the bytes of an npz file."""
    names = list[str]()
    arrays = dict[str, Any]()
    for place, step in enumerate(parts_of(features)):
        names.append(type(step).__name__)
        parameters: dict[str, Any] = step.__dict__
        for name, value in parameters.items():
            arrays[f"map {place} {name}"] = np.asarray(value, np.float64)
    file = BytesIO()
    np.savez(file, names=names, **arrays)
    return file.getvalue()


def map_from_bytes(content: bytes) -> Pipeline:
    """Return the map that `map_to_bytes` wrote; an unsound one is a ValueError, KeyError or InvalidParameterError."""
    with np.load(BytesIO(content), allow_pickle=False) as file:
        arrays: dict[str, Array] = {name: file[name] for name in file.files}
    names = arrays.pop("names").tolist()
    kinds = _STEPS[-len(names) :]  # with or without the first
    if len(names) < len(_STEPS) - 1 or [kind.__name__ for kind in kinds] != names:
        raise ValueError("other steps")
    landmarks, columns = arrays[f"map {len(names) - 3} points"].shape
    _, features = arrays[f"map {len(names) - 2} directions"].shape
    shapes: dict[str, dict[str, tuple[int, ...]]] = {
        "PublicScaling": {"center": (columns,), "deviation": (columns,)},
        "PublicKernel": {
            "center": (columns,),
            "reach": (),
            "points": (landmarks, columns),
            "distance": (),
        },
        "PublicProjection": {
            "center": (landmarks,),
            "directions": (landmarks, features),
            "reach": (),
        },
        "UnitBall": {"radius": (), "constant": ()},
    }
    steps: list[Any] = []
    for place, kind in enumerate(kinds):
        parameters = dict[str, Any]()
        for name, shape in shapes[kind.__name__].items():
            array = arrays[f"map {place} {name}"]
            _require_moderate(array, shape)
            parameters[name] = array
            if not shape:
                parameters[name] = float(array)
        steps.append(kind(**parameters))
    projection = steps[-2]
    projector(projection.center, projection.directions, projection.reach)
    return chain(*steps)


def _require_moderate(
    array: FloatArray,
    shape: tuple[int, ...],
) -> None:
    """Refuse an array of another shape, or with a number that is not finite or out of range."""
    if (
        array.shape != shape
        or not np.abs(array).max() <= _LARGEST
        or (not shape and array < _LEAST)
    ):
        raise InvalidParameterError(
            "the public map.parameters",
            "have the shape that the file gives, and finite numbers of moderate size",
        )
