"""Students as ONNX files, map and classifier in one graph, for programs without this package; needs the onnx extra."""

import warnings
from collections.abc import Callable
from copy import copy
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.pipeline import Pipeline
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.validation import check_is_fitted

from tutelage._internal.outputs import claimed, form
from tutelage._internal.typing import FloatArray
from tutelage.exceptions import InvalidParameterError
from tutelage.features.cells import code_of
from tutelage.features.columns import PublicColumns
from tutelage.features.fitted import PublicTransformer
from tutelage.features.images import EdgesAndLevels
from tutelage.features.landmarks import PublicKernel, UnitBall
from tutelage.features.learned import (
    FURTHEST,
    PublicPCA,
    PublicProjection,
    PublicScaling,
    PublicSteps,
)
from tutelage.features.rowwise import EXACT_FLOAT64, distance_levels, projection
from tutelage.students.forest import ForestStudent
from tutelage.students.noisy_sums import LEAST_CHANCE, NoisySumClassifier
from tutelage.tables import by_value

try:
    from onnx.numpy_helper import from_array
    from onnxruntime import InferenceSession
    from skl2onnx import convert_sklearn, update_registered_converter
    from skl2onnx._supported_operators import sklearn_operator_name_map
    from skl2onnx.algebra import onnx_ops
    from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType, Int64TensorType, StringTensorType
    from skl2onnx.operator_converters.decision_tree import convert_sklearn_decision_tree_classifier
    from skl2onnx.operator_converters.random_forest import convert_sklearn_random_forest_classifier
    from skl2onnx.sklapi import CastTransformer
except ModuleNotFoundError as error:  # pragma: no cover  an environment without the extra
    raise ModuleNotFoundError("ONNX files need their extra: pip install 'tutelage[onnx]'.", name=error.name) from error

_ROWS = "rows"
_FLOAT, _DOUBLE, _INT64 = 1, 11, 7  # codes of types in ONNX
_MADE_UP, _SAME = 256, 0.99  # rows, and the share of labels that must be the same
_TREES = (  # which round rows to 32 bits
    DecisionTreeClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    RandomForestClassifier,
)
Node = Any
_ONNX = form("an ONNX student", lambda path: b"skl2onnx" in path.read_bytes()[:64])


def export_onnx(student: Any, path: str | PathLike[str]) -> Path:
    """Write a fitted student with its feature map as an ONNX file, and return the path.

    The inputs are ``rows``, 64-bit floats of shape (rows, features); or, if the student knows its columns by name, one
    input per column of shape (rows, 1): 64-bit floats, or text for categories. The outputs are ``label`` and
    ``probabilities``.

    Parameters
    ----------
    student : scikit-learn classifier or pipeline
        A fitted student, for example ``load_student("results")``.
    path : path-like
        The file. One that is there already is replaced only if it is such a student.

    Raises
    ------
    InvalidParameterError
        If a part of the student has no form in ONNX, takes text, or predicts otherwise there. Nothing is written then.
    """
    parts = _parts(student)
    check_is_fitted(parts[-1])
    _refuse_texts(parts[0])
    strange = next((part for part in parts if not _has_form(part)), None)
    content = None if strange is not None or not is_classifier(parts[-1]) else _converted(parts)
    foreign = _transformers(student)
    if content is None:
        named = strange or (foreign[0] if foreign else parts[-1])
        raise InvalidParameterError(
            f"`student` of export_onnx must have a form in ONNX, and {type(named).__name__} has none. Publish "
            "student.skops, or choose another student or feature map."
        )
    if foreign and not _agrees(student, parts[0], content):
        raise InvalidParameterError(
            f"`student` of export_onnx must predict in ONNX as it does here, and with {type(foreign[0]).__name__} it "
            "does not. Publish student.skops, or choose another feature map."
        )
    with claimed(path, _ONNX) as output, output.written() as part:
        part.write_bytes(content)
    return Path(path)


def _parts(student: Any) -> list[Any]:
    """Return maps and classifier one after another, transformers of scikit-learn as what was fitted."""
    if isinstance(student, Pipeline):
        return [part for _, step in student.steps for part in _parts(step)]
    if isinstance(student, PublicTransformer) and not student.kinds:
        return _parts(student.fitted)
    if isinstance(student, ForestStudent):
        check_is_fitted(student)
        inner = copy(student.estimator_)
        inner.classes_ = student.classes_[np.asarray(inner.classes_, dtype=np.int64)]
        return [CastTransformer(dtype=np.float32), inner]
    return [CastTransformer(dtype=np.float32), student] if isinstance(student, _TREES) else [student]


def _refuse_texts(first: Any) -> None:
    """Refuse texts: the words that ONNX finds in them are not always those of Python."""
    named = isinstance(first, PublicTransformer)
    texts = first.text_names if isinstance(first, PublicColumns) else first.names if named else ()
    if texts:
        raise InvalidParameterError(
            f"`student` of export_onnx must not take text or frames: ONNX does not divide texts into words as Python "
            f"does. It takes {', '.join(texts)}. Publish student.skops, or leave these columns out."
        )


def _transformers(student: Any) -> list[Any]:
    """Return what was fitted of each transformer of scikit-learn."""
    steps = [step for _, step in student.steps] if isinstance(student, Pipeline) else []
    return [step.fitted for step in steps if isinstance(step, PublicTransformer)]


def _agrees(student: Any, first: Any, content: bytes) -> bool:
    """Return whether a graph predicts as the student does, on made-up rows."""
    rng = np.random.default_rng(0)

    def cells(known: Any) -> Any:
        numbers = (rng.random(_MADE_UP) - 0.5) * np.resize([0.1, 1.0, 10.0, 100.0], _MADE_UP)
        numbers[::2] = np.rint(numbers[::2])
        return numbers if known is None else rng.choice([*known.tolist(), "no category"], _MADE_UP)

    if isinstance(first, PublicColumns):
        rows: Any = {name: cells(known) for name, known in zip(first.names, first.categories, strict=True)}
        inputs = {name: column[:, np.newaxis] for name, column in rows.items()}
        inputs = {
            name: column if column.dtype.kind == "f" else column.astype(object) for name, column in inputs.items()
        }
    else:
        rows = np.stack([cells(None) for _ in range(first.n_features_in_)], axis=1)
        inputs = {_ROWS: rows}
    try:
        expected = student.predict_proba(rows) if hasattr(student, "predict_proba") else None
        labels = student.predict(rows)
        found: Any = InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, inputs)
    except Exception:  # a transformer may refuse what is made up
        return False
    same = float(np.mean(np.asarray(found[0]).astype(labels.dtype) == labels)) >= _SAME
    return same and (expected is None or np.allclose(found[1], expected, atol=1e-4))


def _has_form(part: Any) -> bool:
    # Trees that split by categories would be written as if they split by size.
    return type(part) in sklearn_operator_name_map and not np.any(getattr(part, "is_categorical_", None))


def _converted(parts: list[Any]) -> bytes | None:
    """Return the graph of all parts; None where a part cannot be converted, or not run."""
    whole = Pipeline([(str(number), part) for number, part in enumerate(parts)])
    settings = {id(parts[-1]): {"zipmap": False}}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about what the libraries will rename
            model: Any = convert_sklearn(whole, initial_types=_inputs(parts[0]), options=settings)
        _restore_names(model.graph, [name for name, _ in _inputs(parts[0])])
        content: bytes = model.SerializeToString()
        InferenceSession(content, providers=["CPUExecutionProvider"])
    except Exception:  # whatever the two libraries raise about a graph that they do not take
        return None
    return content


def _restore_names(graph: Any, columns: list[str]) -> None:
    """Name the inputs as the columns: the library puts underscores where other characters are not letters."""
    names = {given.name: column for given, column in zip(graph.input, columns, strict=True)}
    for given in graph.input:
        given.name = names[given.name]
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]


def _inputs(first: Any) -> list[tuple[str, Any]]:
    if not isinstance(first, PublicColumns):
        return [(_ROWS, DoubleTensorType([None, getattr(first, "n_features_in_", None)]))]
    kinds = dict.fromkeys(first.categorical, StringTensorType)
    return [(name, kinds.get(name, DoubleTensorType)([None, 1])) for name in first.names]


class _Graph:
    """Operators of one version of ONNX; numbers in them have 64 bits."""

    def __init__(self, version: int) -> None:
        self.version = version

    def __getattr__(self, name: str) -> Callable[..., Node]:
        kind = getattr(onnx_ops, f"Onnx{name}")
        return lambda *inputs, **settings: kind(*inputs, **{"op_version": self.version, **settings})

    def number(self, node: Node) -> Node:
        return self.Cast(node, to=_DOUBLE)

    def sums(self, rows: Node) -> Node:
        return self.ReduceSum(rows, np.array([1]), keepdims=1)

    def on_grid(self, rows: Node, center: FloatArray, step: float, limit: int) -> Node:
        steps = self.Round(self.Div(self.Sub(rows, _row(center)), _row(step)))
        return self.Clip(steps, np.array(-limit, np.float64), np.array(limit, np.float64))


def _columns(part: PublicColumns, graph: _Graph, *cells: Node) -> Node:
    of = dict(zip(part.names, cells, strict=True))
    codes = [
        _codes(graph, of[name], known)
        for name, known in zip(part.names, part.categories, strict=True)
        if known is not None
    ]
    return graph.Concat(*(of[name] for name in part.numbers), *codes, axis=1)


def _codes(graph: _Graph, cells: Node, known: Any) -> Node:
    codes = code_of(known)
    spellings = {text: float(codes[by_value(text)]) for text in known.tolist()}
    spellings |= {text: float(code) for text, code in codes.items()}
    spellings |= {f"{text}.0": float(code) for text, code in codes.items() if text.lstrip("-").isdigit()}
    spellings |= {text.lower(): float(code) for text, code in codes.items() if text in ("True", "False")}
    keys, values = list(spellings), list(spellings.values())
    code = graph.LabelEncoder(cells, keys_strings=keys, values_floats=values, default_float=-1.0, op_version=2)
    return graph.number(code)


def _scaled(part: PublicScaling, graph: _Graph, rows: Node) -> Node:
    deviation = np.where(part.deviation > 0, part.deviation, np.inf)
    scaled = graph.Div(graph.Sub(rows, _row(part.center)), _row(deviation))
    return graph.Clip(scaled, np.array(-FURTHEST), np.array(FURTHEST))


def _projected(part: PublicProjection, graph: _Graph, rows: Node) -> Node:
    by = projection(part.directions, part.reach)
    on = graph.on_grid(rows, part.center, by.step, by.limit)
    return graph.Mul(graph.MatMul(on, by.weights), _row(by.scale))


def _alike(part: PublicKernel, graph: _Graph, rows: Node) -> Node:
    by = part.weights
    on = graph.on_grid(rows, part.center, by.step, distance_levels(len(part.center), EXACT_FLOAT64))
    products, lengths = graph.MatMul(on, np.ascontiguousarray(part.points.T)), (part.points**2).sum(axis=1)
    distances = graph.Add(graph.Sub(_row(lengths), graph.Mul(products, _row(2))), graph.sums(graph.Mul(on, on)))
    found = graph.Mul(products, _row(by.linear / by.size))
    for width in by.widths:
        gaussian = graph.Exp(graph.Div(distances, _row(-2 * width**2)))
        found = graph.Add(found, graph.Mul(gaussian, _row(by.gaussian)))
    return found


def _in_ball(part: UnitBall, graph: _Graph, rows: Node) -> Node:
    lengths = graph.Div(graph.Sqrt(graph.sums(graph.Mul(rows, rows))), _row(part.radius))
    scaled = graph.Div(rows, graph.Mul(graph.Max(lengths, _row(1)), _row(part.radius)))
    constant = graph.Add(graph.Mul(lengths, _row(0)), _row(part.constant))
    return graph.Div(graph.Concat(scaled, constant, axis=1), _row(np.sqrt(1 + part.constant**2)))


def _stepped(part: PublicSteps, graph: _Graph, rows: Node) -> Node:
    steps, codes = [list(part.steps), list(part.categories)]
    compared = []
    for kind, values, first in (("GreaterOrEqual", steps, 0), ("Equal", codes, len(steps))):
        if values:
            places = np.repeat(np.arange(first, first + len(values)), [len(each) for each in values])
            compared.append(getattr(graph, kind)(graph.Gather(rows, places, axis=1), _row(np.concatenate(values))))
    numbers = [graph.number(one) for one in compared]
    if part.features:
        places = len(steps) + len(codes) + np.arange(part.features)
        numbers.append(graph.Mul(graph.Gather(rows, places, axis=1), _row(part.factor)))
    return graph.Concat(*numbers, axis=1)


def _edges_and_levels(part: EdgesAndLevels, graph: _Graph, rows: Node) -> Node:
    height, width, channels = (*part.image_shape, 1)[:3]
    white = np.array(part.white)
    levels = graph.Round(graph.Mul(graph.Clip(rows, np.array(0.0), white), _row(255 / part.white)))
    of_channel = [
        graph.Gather(levels, np.arange(place, height * width * channels, channels), axis=1) for place in range(channels)
    ]
    gray = of_channel[0]
    for other in of_channel[1:]:
        gray = graph.Add(gray, other)
    gray = graph.Round(graph.Div(gray, _row(channels)))
    lengths = graph.Sqrt(graph.sums(graph.Mul(levels, levels)))
    lengths = graph.Where(graph.Greater(lengths, _row(0)), lengths, _row(1))
    return graph.Concat(_edge_histograms(part, graph, gray), graph.Div(levels, lengths), axis=1)


def _edge_histograms(part: EdgesAndLevels, graph: _Graph, gray: Node) -> Node:
    """Return the histograms of gray images, with the numbers of 32 bits that they have here."""
    height, width = part.image_shape[:2]
    pixels = np.arange(height * width).reshape(height, width)

    def difference(axis: int) -> Node:
        after, before = (np.roll(pixels, shift, axis).ravel() for shift in (-1, 1))
        inside = np.zeros((height, width))
        inside[(slice(None), slice(1, -1)) if axis else slice(1, -1)] = 1
        differs = graph.Sub(graph.Gather(gray, after, axis=1), graph.Gather(gray, before, axis=1))
        return graph.Cast(graph.Mul(differs, _row(inside.ravel())), to=_FLOAT)

    across, down = difference(1), difference(0)
    weights, angles, edge, scale = part.directions()
    length = graph.Sqrt(graph.Add(graph.Mul(across, across), graph.Mul(down, down)))
    threshold = graph.Mul(length, _single(edge * scale))
    counts = []
    for sign in (1, -1):
        for angle in angles:
            along = graph.Add(
                graph.Mul(across, _single(scale * np.cos(angle))), graph.Mul(down, _single(scale * np.sin(angle)))
            )
            above = graph.Sub(graph.Mul(along, _single(sign)), threshold)
            counts.append(graph.MatMul(graph.Round(graph.Max(above, _single(0))), weights))
    counted = graph.number(graph.Concat(*counts, axis=1))
    total = graph.sums(counted)
    total = graph.Where(graph.Greater(total, _row(0)), total, _row(1))
    return graph.number(graph.Cast(graph.Sqrt(graph.Div(counted, total)), to=_FLOAT))


def _single(value: float) -> Any:
    return np.array([[value]], dtype=np.float32)


_MAPS: dict[type, Callable[..., Node]] = {
    PublicColumns: _columns,
    PublicScaling: _scaled,
    PublicSteps: _stepped,
    PublicProjection: _projected,
    PublicPCA: _projected,
    PublicKernel: _alike,
    EdgesAndLevels: _edges_and_levels,
    UnitBall: _in_ball,
}


def _row(values: Any) -> FloatArray:
    return np.atleast_2d(np.asarray(values, dtype=np.float64))


def _shape_of_map(operator: Any) -> None:
    operator.outputs[0].type = DoubleTensorType([None, None])


def _convert_map(scope: Any, operator: Any, container: Any) -> None:
    part, graph = operator.raw_operator, _Graph(container.target_opset)
    made = _MAPS[type(part)](part, graph, *operator.inputs)
    graph.Identity(made, output_names=operator.outputs[:1]).add_to(scope, container)


def _type_of(classes: Any) -> Any:
    return StringTensorType if classes.dtype.kind in "UOS" else Int64TensorType


def _shape_of_sums(operator: Any) -> None:
    classes = operator.raw_operator.classes_
    operator.outputs[0].type = _type_of(classes)([None])
    operator.outputs[1].type = DoubleTensorType([None, len(classes)])


def _convert_sums(scope: Any, operator: Any, container: Any) -> None:
    part, graph = operator.raw_operator, _Graph(container.target_opset)
    scores = graph.MatMul(operator.inputs[0], part.coef_)
    chances = graph.Max(graph.Add(scores, _row(1 / len(part.classes_))), _row(LEAST_CHANCE))
    best = graph.ArgMax(scores, axis=1, keepdims=0)
    classes = part.classes_.astype(str) if part.classes_.dtype.kind in "UOS" else part.classes_.astype(np.int64)
    label = graph.Reshape(graph.ArrayFeatureExtractor(classes, best), np.array([-1]), output_names=operator.outputs[:1])
    label.add_to(scope, container)
    graph.Div(chances, graph.sums(chances), output_names=operator.outputs[1:]).add_to(scope, container)


class _Exact:
    """A container of nodes, for trees that are written as scikit-learn compares in them.

    skl2onnx writes boosted histograms with 32-bit thresholds, where rows that scikit-learn tells apart may be equal,
    and with truth values that newer versions of onnx refuse. It does not write where other trees send missing values.
    """

    def __init__(self, container: Any, missing: list[int] | None = None) -> None:
        self._container, self._missing = container, missing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._container, name)

    def add_node(self, *names: Any, **settings: Any) -> None:
        """Add a node."""
        left = "nodes_missing_value_tracks_true"
        if left in settings:
            settings[left] = self._missing or [int(one) for one in settings[left]]
            arrays = {name: value for name, value in settings.items() if getattr(value, "dtype", None) == np.float64}
            as_tensors = {f"{name}_as_tensor": from_array(value) for name, value in arrays.items()}
            settings = {name: value for name, value in settings.items() if name not in arrays} | as_tensors
        self._container.add_node(*names, **settings)


def _convert_boosting(scope: Any, operator: Any, container: Any) -> None:
    convert_sklearn_random_forest_classifier(scope, operator, _Exact(container), op_version=3)


def _convert_forest(scope: Any, operator: Any, container: Any) -> None:
    convert_sklearn_random_forest_classifier(scope, operator, _Exact(container, _missing_to_left(operator)))


def _convert_tree(scope: Any, operator: Any, container: Any) -> None:
    convert_sklearn_decision_tree_classifier(scope, operator, _Exact(container, _missing_to_left(operator)))


def _missing_to_left(operator: Any) -> list[int]:
    """Return which nodes of all trees send missing values to the left."""
    trees = getattr(operator.raw_operator, "estimators_", [operator.raw_operator])
    return [int(one) for one in np.concatenate([tree.tree_.missing_go_to_left for tree in trees])]


def _shape_of_trees(operator: Any) -> None:
    classes = operator.raw_operator.classes_
    operator.outputs[0].type = _type_of(classes)([None])
    operator.outputs[1].type = FloatTensorType([None, len(classes)])  # whatever the rows are


for _kind in _MAPS:
    update_registered_converter(_kind, f"Tutelage{_kind.__name__}", _shape_of_map, _convert_map)
update_registered_converter(
    NoisySumClassifier,
    "TutelageNoisySumClassifier",
    _shape_of_sums,
    _convert_sums,
    options={"zipmap": [False], "nocl": [True, False], "output_class_labels": [False, True]},
)
for _kind, _convert in (
    (DecisionTreeClassifier, _convert_tree),
    (ExtraTreesClassifier, _convert_forest),
    (HistGradientBoostingClassifier, _convert_boosting),
    (RandomForestClassifier, _convert_forest),
):
    # The options are those of skl2onnx, by their possible values.
    flags = ("decision_leaf", "decision_path", "nocl", "output_class_labels", "raw_scores")
    update_registered_converter(
        _kind,
        sklearn_operator_name_map[_kind],
        _shape_of_trees,
        _convert,
        options={"zipmap": [True, False, "columns"], **{flag: [True, False] for flag in flags}},
    )
