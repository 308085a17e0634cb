"""Students as ONNX files, map and classifier in one graph, for programs without this package; needs the onnx extra.

`_register_converters` at the end of this module tells skl2onnx, on import, how to convert the maps and students of
tutelage. Each converter mirrors the `transform` or `predict_proba` of its class.
"""

import warnings
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin, is_classifier
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.pipeline import Pipeline
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.validation import check_is_fitted

from tutelage._internal.extras import install
from tutelage._internal.gate import MODEL, read_input
from tutelage._internal.outputs import claim_output, form
from tutelage._internal.records import Entries
from tutelage._internal.typing import Array, FloatArray, IntArray
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.features.base import parts_of
from tutelage.features.cells import UNKNOWN, code_by_category
from tutelage.features.columns import PublicColumns
from tutelage.features.fitted import PublicTransformer
from tutelage.features.images import LEVELS, EdgesAndLevels
from tutelage.features.landmarks import PublicKernel, UnitBall
from tutelage.features.learned import (
    FURTHEST,
    PublicPCA,
    PublicProjection,
    PublicScaling,
    PublicSteps,
)
from tutelage.features.public_numbers import DEPTH, PublicSum
from tutelage.features.rowwise import EXACT_FLOAT64, distance_levels, projection_in_steps
from tutelage.features.schema import Schema, code_by_value, edges_of
from tutelage.features.scored import BesideScores, ScoredRows
from tutelage.reporting.evidence import MANIFEST_HASH, as_text
from tutelage.students.additive import AdditiveClassifier, TableOfEffects
from tutelage.students.additive_mean import AdditiveRegressor
from tutelage.students.base import steps_of
from tutelage.students.forest import ForestStudent
from tutelage.students.images import LEAST_VARIANCE, ImageNetwork, ImageStudent
from tutelage.students.noisy_sums import LEAST_CHANCE, NoisySumClassifier
from tutelage.students.store import load_with_evidence
from tutelage.tables import by_value

try:
    import onnx
    import onnxruntime
    import skl2onnx
    from google.protobuf.message import DecodeError
    from onnx.numpy_helper import from_array
    from skl2onnx.algebra import onnx_ops
    from skl2onnx.algebra.onnx_operator import OnnxSubEstimator
    from skl2onnx.common.data_types import (
        DoubleTensorType,
        FloatTensorType,
        Int64TensorType,
        StringTensorType,
    )
    from skl2onnx.sklapi import CastTransformer
except ModuleNotFoundError as error:  # pragma: no cover  an environment without the extra
    raise ModuleNotFoundError(
        f"ONNX files need their extra: {install('onnx')}.",
        name=error.name,
    ) from error

# The doors to functions without types.
_onnx: Any = onnx
_onnxruntime: Any = onnxruntime
_skl2onnx: Any = skl2onnx

_ROWS = "rows"
_EVIDENCE = "tutelage."  # before each key of evidence in the metadata
# Codes of types in ONNX.
_FLOAT = 1
_INT64 = 7
_DOUBLE = 11
_N_CHECK_ROWS = 256
_MIN_LABEL_AGREEMENT = 0.99  # between ONNX and Python, on those rows
# Models that take missing values: skl2onnx omits the direction that these take.
_NEEDS_MISSING_FIX: tuple[type, ...] = (
    DecisionTreeClassifier,
    ExtraTreesClassifier,
    RandomForestClassifier,
)
# Models that round rows to 32 bits.
_TREES: tuple[type, ...] = (*_NEEDS_MISSING_FIX, GradientBoostingClassifier)
_MISSING_TO_LEFT = "nodes_missing_value_tracks_true"
_ONNX = form("an ONNX student", lambda path: b"skl2onnx" in path.read_bytes()[:64])


def export_onnx(student: object, path: str | PathLike[str]) -> Path:
    """Write a fitted student with its feature map as an ONNX file, and return the path.

    The inputs are ``rows``, 64-bit floats of shape (rows, features); or, if the student knows its columns by name, one
    input per column of shape (rows, 1): 64-bit floats, or text for categories. The outputs are ``label`` and
    ``probabilities``; of an `AdditiveRegressor` its predictions, as ``variable``.

    From a results folder, the file also states ε, δ and the hashes of card and manifest in its metadata.

    Parameters
    ----------
    student : str or Path, scikit-learn classifier, AdditiveRegressor or pipeline
        The results folder of a release, or a fitted student.
    path : path-like
        The file. One that is there already is replaced only if it is such a student.

    Raises
    ------
    InvalidParameterError
        If a part of the student has no form in ONNX, takes text, or predicts otherwise there. Nothing is written then.
    InvalidDataError
        If there is no student at the path, or an earlier version wrote it, which stated no ε in it.
    """
    evidence = Entries()
    if isinstance(student, str | Path):
        folder = student
        student, evidence = load_with_evidence(folder)
        if MANIFEST_HASH not in evidence or len(evidence) == 1:
            raise InvalidDataError(
                f"{folder} is no results folder whose student states its ε. For a file without ε, pass "
                "load_student(…)."
            )
    parts = _parts(student)
    last = parts[-1]
    if not isinstance(last, ImageNetwork):  # which is made of a student that was fitted
        check_is_fitted(last)
    _refuse_texts(parts[0])
    fitted = _fitted_transformers(student)
    unsupported = [part for part in parts if not _can_convert(part)]
    content = None
    if not unsupported and (is_classifier(last) or isinstance(last, AdditiveRegressor)):
        content = _graph_of(parts, evidence)
    if content is None:
        # The likeliest cause: a part without a converter, else a foreign transformer, else the student itself.
        blamed = [*unsupported, *fitted, last][0]
        raise InvalidParameterError(
            "export_onnx.student",
            "have only parts that ONNX supports",
            f"a {type(blamed).__name__}",
            "Publish student.skops, or choose another student or feature map.",
        )
    # The test suite compares our own maps; foreign transformers are compared here.
    if fitted and not _agrees(student, parts[0], content):
        raise InvalidParameterError(
            "export_onnx.student",
            "predict the same in ONNX as in Python",
            f"other predictions with {type(fitted[0]).__name__}",
            "Publish student.skops, or choose another feature map.",
        )
    with claim_output(path, _ONNX) as output, output.write() as file:
        file.write_bytes(content)
    return Path(path)


def _parts(student: object) -> list[object]:
    """Return maps and classifier one after another, transformers of scikit-learn as what was fitted."""
    if isinstance(student, Pipeline):
        parts = list[object]()
        for _, step in steps_of(student):
            parts += _parts(step)
        return parts
    if isinstance(student, PublicTransformer) and not student.kinds:
        return _parts(student.fitted)
    if isinstance(student, ForestStudent):
        check_is_fitted(student)
        forest: Any = copy(student.estimator_)
        forest.classes_ = student.classes_[np.asarray(forest.classes_, dtype=np.int64)]
        student = forest
    if isinstance(student, ImageStudent):
        check_is_fitted(student)
        return [student.network()]
    if isinstance(student, _TREES):
        return [CastTransformer(dtype=np.float32), student]
    return [student]


def _refuse_texts(first: object) -> None:
    """Refuse texts: the words that ONNX finds in them are not always those of Python."""
    texts: Sequence[str] = ()
    if isinstance(first, PublicColumns):
        texts = first.text_names
    elif isinstance(first, PublicTransformer):
        texts = first.names
    if texts:
        raise InvalidParameterError(
            "export_onnx.student",
            "not take text or frames, because ONNX splits text into words differently than Python",
            f"columns {', '.join(texts)}",
            "Publish student.skops, or leave these columns out.",
        )


def _fitted_transformers(student: object) -> list[object]:
    """Return what was fitted of each transformer of scikit-learn."""
    if not isinstance(student, Pipeline):
        return []
    return [step.fitted for _, step in steps_of(student) if isinstance(step, PublicTransformer)]


def _agrees(
    student: Any,
    first: Any,
    content: bytes,
) -> bool:
    """Return whether a graph predicts as the student does, on made-up rows."""
    rng = np.random.default_rng(0)
    if isinstance(first, PublicColumns):
        rows: Any = {}
        inputs = dict[str, Array]()
        for name, known in zip(first.names, first.categories, strict=True):
            rows[name] = _made_up_cells(rng, known)
            inputs[name] = rows[name][:, None]
    else:
        columns = [_made_up_cells(rng) for _ in range(first.n_features_in_)]
        rows = np.stack(columns, axis=1)
        inputs = {_ROWS: rows}
    chances: Array | None = None
    try:
        if hasattr(student, "predict_proba"):
            chances = student.predict_proba(rows)
        labels: Array = student.predict(rows)
        session = _onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        outputs = session.run(None, inputs)
    except Exception:  # a transformer may refuse what is made up
        return False
    if np.mean(np.asarray(outputs[0]).astype(labels.dtype) == labels) < _MIN_LABEL_AGREEMENT:
        return False
    return chances is None or np.allclose(outputs[1], chances, atol=1e-4)


def _made_up_cells(rng: np.random.Generator, known: Array | None = None) -> Array:
    """Return made-up cells of a column: numbers, or known categories and an unknown one."""
    numbers = (rng.random(_N_CHECK_ROWS) - 0.5) * np.resize([0.1, 1.0, 10.0, 100.0], _N_CHECK_ROWS)
    numbers[::2] = np.rint(numbers[::2])
    if known is None:
        return numbers
    categories = np.array([*known.tolist(), "no category"], object)
    return rng.choice(categories, _N_CHECK_ROWS)


def _can_convert(part: object) -> bool:
    """Return whether a part can be converted to ONNX."""
    try:
        _skl2onnx.get_model_alias(type(part))
    except RuntimeError:  # there is none
        return False
    # Trees that split by categories would be written as if they split by size.
    return not np.any(getattr(part, "is_categorical_", None))


def metadata_of(path: str | PathLike[str]) -> dict[str, str]:
    """Return the evidence in the metadata of an ONNX file, unchecked."""
    try:
        model = _onnx.load_model_from_string(read_input(path, MODEL))
    except OSError as error:
        raise InvalidDataError(f"{path} cannot be read: {error.strerror}.") from None
    except DecodeError:
        raise InvalidDataError(f"{path} is not an ONNX file.") from None
    entries = dict[str, str]()
    for entry in model.metadata_props:
        if entry.key in entries:
            raise InvalidDataError(f"{path} has two values of {entry.key!r}. Export it again.")
        entries[entry.key] = entry.value
    return {
        key.removeprefix(_EVIDENCE): value
        for key, value in entries.items()
        if key.startswith(_EVIDENCE)
    }


def _graph_of(parts: list[object], evidence: Entries) -> bytes | None:
    """Return the graph of all parts with its evidence; None where a part cannot be converted, or not run."""
    whole = Pipeline([(str(number), part) for number, part in enumerate(parts)])
    inputs = _inputs(parts[0])
    last = parts[-1]
    options = dict[int, dict[str, bool]]()
    if is_classifier(last):
        options[id(last)] = {"zipmap": False}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about what the libraries will rename
            model = _skl2onnx.convert_sklearn(whole, initial_types=inputs, options=options)
        _restore_names(model.graph, [name for name, _ in inputs])
        if isinstance(last, _NEEDS_MISSING_FIX):
            _set_missing_directions(model.graph, getattr(last, "estimators_", [last]))
        for key, value in evidence.items():
            model.metadata_props.add(key=_EVIDENCE + key, value=as_text(value))
        content: bytes = model.SerializeToString()
        _onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    except Exception:  # whatever the two libraries raise about a graph that they do not take
        return None
    return content


def _restore_names(graph: Any, columns: list[str]) -> None:
    """Name the inputs as the columns: the library puts underscores where other characters are not letters."""
    names = dict[str, str]()
    for graph_input, column in zip(graph.input, columns, strict=True):
        names[graph_input.name] = column
        graph_input.name = column
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]


def _set_missing_directions(graph: Any, trees: Iterable[Any]) -> None:
    """Set the direction of missing values at all nodes of all trees, which skl2onnx omits."""
    to_left = list[int]()
    for tree in trees:
        to_left += [int(goes_left) for goes_left in tree.tree_.missing_go_to_left]
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name == _MISSING_TO_LEFT and to_left:
                attribute.ints[:] = to_left


def _inputs(first: object) -> list[tuple[str, object]]:
    """Return the name and the type of each input of the graph."""
    if not isinstance(first, PublicColumns | Schema):
        n_features = getattr(first, "n_features_in_", None)
        return [(_ROWS, DoubleTensorType([None, n_features]))]
    inputs = list[tuple[str, object]]()
    for name in first.names:
        kind = StringTensorType if name in first.categorical else DoubleTensorType
        inputs.append((name, kind([None, 1])))
    return inputs


class _Node:
    """A value of a graph, with the operators of Python on 64-bit floats.

    CamelCase attributes create operators of ONNX: `node.Max(x)` is `OnnxMax(node, x)`. snake_case methods are helpers.
    """

    def __init__(self, node: object, version: int) -> None:
        self.node = node
        self.version = version

    def __getattr__(self, name: str) -> Callable[..., "_Node"]:
        operator = getattr(onnx_ops, f"Onnx{name}")

        def apply(*others: object, **settings: object) -> _Node:
            values = (self, *others)
            inputs = [value.node if isinstance(value, _Node) else value for value in values]
            settings.setdefault("op_version", self.version)
            return _Node(operator(*inputs, **settings), self.version)

        return apply

    def __add__(self, value: "_Value") -> "_Node":
        return self.Add(_constant_row(value))

    def __sub__(self, value: "_Value") -> "_Node":
        return self.Sub(_constant_row(value))

    def __mul__(self, value: "_Value") -> "_Node":
        return self.Mul(_constant_row(value))

    def __truediv__(self, value: "_Value") -> "_Node":
        return self.Div(_constant_row(value))

    def __matmul__(self, weights: FloatArray) -> "_Node":
        return self.MatMul(np.ascontiguousarray(weights))

    def sums(self) -> "_Node":
        return self.ReduceSum(np.array([1]), keepdims=1)

    def on_grid(
        self,
        center: FloatArray,
        step: float,
        limit: int,
    ) -> "_Node":
        steps = ((self - center) / step).Round()
        return steps.within(-float(limit), float(limit))

    def within(self, low: float, high: float) -> "_Node":
        return self.Clip(np.array(low), np.array(high))


_Value = _Node | npt.ArrayLike


def _constant_row(values: _Value) -> _Node | Array:
    """Return constants as one row, of 64 bits unless they have 32."""
    if isinstance(values, _Node):
        return values
    if getattr(values, "dtype", None) != np.float32:
        values = np.asarray(values, np.float64)
    return np.atleast_2d(values)


def _side_by_side(columns: Sequence[_Node]) -> _Node:
    return columns[0].Concat(*columns[1:], axis=1)


def _public_columns_to_onnx(part: PublicColumns, *cells: _Node) -> _Node:
    cells_of = dict(zip(part.names, cells, strict=True))
    columns = [cells_of[name] for name in part.numbers]
    for of_column, texts in zip(cells, part.categories, strict=True):
        if texts is not None:
            columns.append(_encode(of_column, texts.tolist(), code_by_category(texts)))
    return _side_by_side(columns)


def _schema_to_onnx(part: Schema, *cells: _Node) -> _Node:
    bins = list[_Node]()
    columns = zip(cells, part.columns.values(), part.ordered, strict=True)
    for of_column, column, is_range in columns:
        if is_range:
            bins.append(_interval(of_column, edges_of(column)))
        else:
            codes = code_by_value(column)
            bins.append(_encode(of_column, column, codes, unknown=len(column)))
    return _side_by_side(bins)


def _interval(cells: _Node, edges: FloatArray) -> _Node:
    is_above = cells.GreaterOrEqual(_constant_row(edges[1:])).Cast(to=_DOUBLE)
    is_empty = cells.IsNaN().Cast(to=_DOUBLE)
    return is_above.sums() + is_empty * len(edges)


def _encode(
    cells: _Node,
    known: Sequence[str],
    codes: dict[str, int],
    unknown: float = UNKNOWN,
) -> _Node:
    spellings = {text: codes[by_value(text)] for text in known} | codes
    for text, code in codes.items():
        if text.lstrip("-").isdigit():
            spellings[f"{text}.0"] = code
        if text in ("True", "False"):
            spellings[text.lower()] = code
    encoded = cells.LabelEncoder(
        keys_strings=list(spellings),
        values_floats=[float(code) for code in spellings.values()],
        default_float=float(unknown),
        op_version=2,
    )
    return encoded.Cast(to=_DOUBLE)


def _scaling_to_onnx(part: PublicScaling, rows: _Node) -> _Node:
    deviation = np.where(part.deviation > 0, part.deviation, np.inf)
    scaled = (rows - part.center) / deviation
    return scaled.within(-FURTHEST, FURTHEST)


def _projection_to_onnx(part: PublicProjection, rows: _Node) -> _Node:
    step, limit, weights, scale = projection_in_steps(part.directions, part.reach)
    products = rows.on_grid(part.center, step, limit) @ weights
    return products * scale


def _kernel_to_onnx(part: PublicKernel, rows: _Node) -> _Node:
    linear, gaussian, widths = part.weights
    levels = distance_levels(len(part.center), EXACT_FLOAT64)
    on_grid = rows.on_grid(part.center, part.step, levels)
    products = on_grid @ part.points.T
    distances = products * -2 + (part.points**2).sum(axis=1) + (on_grid * on_grid).sums()
    kernel = products * linear
    for width in widths:
        kernel = kernel + (distances / (-2 * width**2)).Exp() * gaussian
    return kernel


def _unit_ball_to_onnx(part: UnitBall, rows: _Node) -> _Node:
    lengths = (rows * rows).sums().Sqrt() / part.radius
    scaled = rows / (lengths.Max(_constant_row(1)) * part.radius)
    constant = lengths * 0 + part.constant
    return _side_by_side([scaled, constant]) / np.sqrt(1 + part.constant**2)


def _steps_to_onnx(part: PublicSteps, rows: _Node) -> _Node:
    steps = list(part.steps)
    categories = list(part.categories)
    features = list[_Node]()
    if steps:
        cells = _repeated_columns(rows, 0, steps)
        is_reached = cells.GreaterOrEqual(_constant_row(np.concatenate(steps)))
        features.append(is_reached.Cast(to=_DOUBLE))
    if categories:
        cells = _repeated_columns(rows, len(steps), categories)
        is_equal = cells.Equal(_constant_row(np.concatenate(categories)))
        features.append(is_equal.Cast(to=_DOUBLE))
    if part.features:
        places = len(steps) + len(categories) + np.arange(part.features)
        features.append(rows.Gather(places, axis=1) * part.factor)
    return _side_by_side(features)


def _repeated_columns(
    rows: _Node,
    first: int,
    values: Sequence[Array],
) -> _Node:
    """Return the columns from the first one on, each as many times as it is compared with values."""
    columns = np.arange(first, first + len(values))
    times = [len(of_column) for of_column in values]
    return rows.Gather(np.repeat(columns, times), axis=1)


def _edges_and_levels_to_onnx(part: EdgesAndLevels, rows: _Node) -> _Node:
    height, width, channels = (*part.image_shape, 1)[:3]
    levels = (rows.within(0.0, part.white) * (LEVELS / part.white)).Round()
    pixels = levels.Reshape(np.array([-1, height * width, channels]))
    means = pixels.ReduceSum(np.array([2]), keepdims=0) / channels
    edges = _edge_histograms(part, means.Round().Cast(to=_FLOAT))
    lengths = (levels * levels).sums().Sqrt()  # of whole numbers: 0, or at least 1
    return _side_by_side([edges, levels / lengths.Max(_constant_row(1))])


def _edge_histograms(part: EdgesAndLevels, gray: _Node) -> _Node:
    """Return the histograms of gray images, with the numbers of 32 bits that they have here."""
    pixels = np.arange(np.prod(part.image_shape[:2])).reshape(part.image_shape[:2])

    def difference(axis: int) -> _Node:
        places = np.moveaxis(pixels, axis, 0)
        # At the edge of an image, the pixel itself.
        after = places.copy()
        after[1:-1] = places[2:]
        before = places.copy()
        before[1:-1] = places[:-2]
        places_after = np.moveaxis(after, 0, axis).ravel()
        places_before = np.moveaxis(before, 0, axis).ravel()
        return gray.Gather(places_after, axis=1) - gray.Gather(places_before, axis=1)

    across = difference(1)
    down = difference(0)
    weights, angles, edge, scale = part.directions()
    threshold = (across * across + down * down).Sqrt() * np.float32(edge * scale)
    along = list[_Node]()
    for angle in angles:
        to_right = across * np.float32(scale * np.cos(angle))
        along.append(to_right + down * np.float32(scale * np.sin(angle)))
    counts = list[_Node]()
    for sign in (1, -1):
        for slope in along:
            strength = slope * np.float32(sign) - threshold
            counts.append(strength.Max(_constant_row(np.float32(0))).Round() @ weights)
    histograms = _side_by_side(counts).Cast(to=_DOUBLE)
    shares = histograms / histograms.sums().Max(_constant_row(1))
    return shares.Sqrt().Cast(to=_FLOAT).Cast(to=_DOUBLE)


def _through(feature_map: object, rows: _Node) -> _Node:
    for part in parts_of(feature_map):
        rows = _MAPS[type(part)](part, rows)
    return rows


def _scored_rows_to_onnx(part: ScoredRows, rows: _Node) -> _Node:
    model = part.model
    seen = rows
    if part.seen_by is not None:
        seen = _through(part.seen_by, rows)
    # As in `PublicModel.scores`: a linear model takes the mapped rows, trees the original ones.
    of_linear, of_trees = model.sharpness
    scores = list[_Node]()
    if model.linear is not None:
        scores.append((_projection_to_onnx(model.linear, seen) + model.offsets) * of_linear)
    if model.trees is not None:
        probabilities = OnnxSubEstimator(
            model.trees,
            rows.node,
            op_version=rows.version,
            options={"zipmap": False},
        )[1]
        scores.append(_Node(probabilities, rows.version).Cast(to=_DOUBLE).Log() * of_trees)
    total = scores[0]
    for more in scores[1:]:
        total = total + more
    sharpened = total.Exp()
    places = np.eye(model.n_classes)[model.present]
    probabilities = (sharpened / sharpened.sums()) @ places
    logarithms = probabilities.Max(_constant_row(LEAST_CHANCE)).Log()
    centered = logarithms - logarithms.sums() / model.n_classes
    return _side_by_side([seen, centered])


def _beside_scores_to_onnx(part: BesideScores, rows: _Node) -> _Node:
    scores = rows.Slice(
        np.array([-part.n_scores]),
        np.array([np.iinfo(np.int64).max]),
        np.array([1]),
    )
    return _side_by_side([_through(part.features, rows), scores])


_MAPS: dict[type, Callable[..., _Node]] = {
    PublicColumns: _public_columns_to_onnx,
    Schema: _schema_to_onnx,
    PublicScaling: _scaling_to_onnx,
    PublicSteps: _steps_to_onnx,
    PublicProjection: _projection_to_onnx,
    PublicPCA: _projection_to_onnx,
    PublicKernel: _kernel_to_onnx,
    EdgesAndLevels: _edges_and_levels_to_onnx,
    UnitBall: _unit_ball_to_onnx,
    ScoredRows: _scored_rows_to_onnx,
    BesideScores: _beside_scores_to_onnx,
}


def _sums_to_onnx(part: NoisySumClassifier, rows: _Node) -> tuple[_Node, ...]:
    scores = rows @ part.coef_
    chances = (scores + 1 / len(part.classes_)).Max(_constant_row(LEAST_CHANCE))
    return _label_and_probabilities(part.classes_, chances * part.weights_)


def _network_to_onnx(part: ImageNetwork, rows: _Node) -> tuple[_Node, ...]:
    # In single precision, as torch computes it. images: (rows, channels, height, width)
    shape = (*part.image_shape, 1)[:3]
    images = rows.Cast(to=_FLOAT).Reshape(np.array([-1, *shape])).Transpose(perm=[0, 3, 1, 2])
    images = images - _mean_of_each(images, part.n_features_in_)
    variance = _mean_of_each(images.Mul(images), part.n_features_in_)
    images = images / (variance + np.float32(LEAST_VARIANCE)).Sqrt()
    for number, one in enumerate(part.convolutions):
        if one.halves:
            # Named, or the library would pass on the places of the largest as well.
            only = [f"halved{number}"]
            images = images.MaxPool(kernel_shape=[2, 2], strides=[2, 2], output_names=only)
        sides = [*one.weights.shape[2:]]
        pads = [side // 2 for side in sides] * 2
        changed = images.Conv(one.weights, one.bias, kernel_shape=sides, pads=pads)
        images = (changed + images if one.beside else changed).Relu()
    means = images.GlobalAveragePool().Reshape(np.array([-1, part.weights.shape[1]]))
    scores = means @ part.weights.T + part.bias
    return _label_and_probabilities(part.classes_, scores.Cast(to=_DOUBLE).Softmax(axis=1))


def _mean_of_each(images: _Node, n_numbers: int) -> _Node:
    """Return the mean of the numbers of each image, shape (rows, 1, 1, 1)."""
    return images.ReduceSum(np.array([1, 2, 3]), keepdims=1) / np.float32(n_numbers)


def _effects_to_onnx(part: AdditiveClassifier, bins: _Node) -> tuple[_Node, ...]:
    return _label_and_probabilities(part.classes_, _totals(part, bins).Softmax(axis=1))


def _regressor_to_onnx(part: AdditiveRegressor, bins: _Node) -> _Node:
    expected = _totals(part, bins)
    low, high = part.range_
    if part.public_ is not None:
        of_trees = _shares_by_trees(bins, part.public_)
        expected = expected.Add(of_trees * np.array([part.part_ * (high - low)]))
    return _flat(expected.within(low, high))


def _totals(part: TableOfEffects, bins: _Node) -> _Node:
    """Return the sums of the effects of each row."""
    sizes = np.array([len(effects) for effects in part.effects_])
    firsts = np.cumsum(sizes) - sizes
    known = bins.Max(_constant_row(0)).Min(_constant_row(sizes - 1))
    places = known + firsts
    totals = _sum_of_entries(places, np.concatenate(part.effects_)) + part.intercept_
    for pair in part.pairs_:
        # The place of a cell is a sum of two numbers, one by the bin of each column.
        first, second = pair.columns
        numbers: list[IntArray] = [np.zeros(size, np.int64) for size in sizes]
        numbers[first] = pair.shape[1] * pair.cells[0]
        numbers[second] = pair.cells[1]
        cell = _sum_of_entries(places, np.concatenate(numbers)[:, None])
        totals = totals.Add(_sum_of_entries(cell, pair.effects))
    return totals


def _sum_of_entries(places: _Node, table: Array) -> _Node:
    """Return the sum of the entries of a table at the places of each row."""
    effects = _Node(table, places.version).Gather(places.Cast(to=_INT64), axis=0)
    return effects.ReduceSum(np.array([1]), keepdims=0)


def _shares_by_trees(bins: _Node, trees: PublicSum) -> _Node:
    """Return the number from 0 to 1 that trees of public rows expect of each row, shape (rows, 1)."""

    def numbers_of_nodes(numbers: Array) -> _Node:
        return _Node(numbers.ravel(), bins.version)

    # below[t, n] is the left child of node n in tree t, the right one is next to it, and a leaf is its own left child.
    first = np.arange(len(trees.below)) * trees.below.shape[1]
    feature = numbers_of_nodes(trees.feature)
    threshold = numbers_of_nodes(trees.threshold)
    below = numbers_of_nodes(trees.below + first[:, None])
    value = numbers_of_nodes(trees.value)
    # All trees at their roots, shape (rows, trees). `Add`, not +, which would make floats of these indices.
    nodes = (bins.sums() * np.zeros(len(first))).Cast(to=_INT64).Add(first)
    for _ in range(DEPTH):
        compared = bins.GatherElements(feature.Gather(nodes), axis=1)
        is_above = compared.Greater(threshold.Gather(nodes))
        nodes = below.Gather(nodes).Add(is_above.Cast(to=_INT64))
    n_columns = len(trees.effects)
    n_bins: int = trees.effects.shape[1]
    places = bins.Min(_constant_row(n_bins - 1)) + np.arange(n_columns) * n_bins
    effects = numbers_of_nodes(trees.effects).Gather(places.Cast(to=_INT64))
    shares = value.Gather(nodes).sums() + effects.sums() + np.array([trees.base])
    return shares.within(0.0, 1.0)


def _label_and_probabilities(classes: Array, chances: _Node) -> tuple[_Node, ...]:
    """Return the label and the probabilities of each row, by numbers that are in proportion to these."""
    kind = str if classes.dtype.kind in "UOS" else np.int64
    likeliest = chances.ArgMax(axis=1, keepdims=0)
    labels = _Node(classes.astype(kind), chances.version).ArrayFeatureExtractor(likeliest)
    return _flat(labels), chances / chances.sums()


def _flat(values: _Node) -> _Node:
    return values.Reshape(np.array([-1]))


_CONVERSIONS: dict[type, Callable[..., _Node | tuple[_Node, ...]]] = {
    **_MAPS,
    NoisySumClassifier: _sums_to_onnx,
    ImageNetwork: _network_to_onnx,
    AdditiveClassifier: _effects_to_onnx,
    AdditiveRegressor: _regressor_to_onnx,
}


def _set_types(operator: Any) -> None:
    """Name the types and shapes of what a part gives."""
    part = operator.raw_operator
    classes = getattr(part, "classes_", None)
    if classes is None:
        shape = [None] if isinstance(part, AdditiveRegressor) else [None, None]
        operator.outputs[0].type = DoubleTensorType(shape)
        return
    label = StringTensorType if classes.dtype.kind in "UOS" else Int64TensorType
    chance = DoubleTensorType if type(part) in _CONVERSIONS else FloatTensorType
    operator.outputs[0].type = label([None])
    operator.outputs[1].type = chance([None, len(classes)])


def _convert_part(
    scope: object,
    operator: Any,
    container: Any,
) -> None:
    part = operator.raw_operator
    inputs = [_Node(variable, container.target_opset) for variable in operator.inputs]
    outputs = _CONVERSIONS[type(part)](part, *inputs)
    if isinstance(outputs, _Node):
        outputs = (outputs,)
    for output, variable in zip(outputs, operator.outputs, strict=True):
        last: Any = output.Identity(output_names=[variable]).node
        last.add_to(scope, container)


class _DoubleThresholdContainer:
    """A container of nodes, for boosted histograms that compare as scikit-learn does.

    skl2onnx writes them with 32-bit thresholds, where rows that scikit-learn tells apart may be equal, and with truth
    values that newer versions of onnx refuse.
    """

    def __init__(self, container: Any) -> None:
        self._container = container

    def __getattr__(self, name: str) -> object:
        return getattr(self._container, name)

    def add_node(self, *names: object, **settings: Any) -> None:
        """Add a node."""
        for name, value in [*settings.items()]:
            if getattr(value, "dtype", None) == np.float64:
                settings[f"{name}_as_tensor"] = from_array(settings.pop(name))
        settings[_MISSING_TO_LEFT] = [int(to_left) for to_left in settings[_MISSING_TO_LEFT]]
        self._container.add_node(*names, **settings)


def _convert_boosting(
    scope: object,
    operator: object,
    container: object,
) -> None:
    _skl2onnx.operator_converters.random_forest.convert_sklearn_random_forest_classifier(
        scope,
        operator,
        _DoubleThresholdContainer(container),
        op_version=3,
    )


def _register_converters() -> None:
    # Options of skl2onnx, with their possible values.
    flags = {key: [True, False] for key in ("zipmap", "nocl", "output_class_labels", "raw_scores")}
    converters = dict.fromkeys(_CONVERSIONS, _convert_part)
    for kind, converter in {
        **converters,
        HistGradientBoostingClassifier: _convert_boosting,
    }.items():
        _skl2onnx.update_registered_converter(
            kind,
            f"Tutelage{kind.__name__}",
            _set_types,
            converter,
            options=flags if issubclass(kind, ClassifierMixin) else None,
        )


_register_converters()
