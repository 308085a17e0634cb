"""Students as ONNX files, map and classifier in one graph, for programs without this package; needs the onnx extra."""

import warnings
from collections.abc import Callable, Sequence
from copy import copy
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
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
from tutelage._internal.outputs import claimed, form
from tutelage._internal.typing import FloatArray
from tutelage.exceptions import InvalidParameterError
from tutelage.features.base import parts_of
from tutelage.features.cells import UNKNOWN, code_of
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
from tutelage.features.public_numbers import DEPTH, PublicTrees
from tutelage.features.rowwise import EXACT_FLOAT64, distance_levels, projection
from tutelage.features.schema import Schema, code_by_value, edges_of
from tutelage.features.scored import BesideScores, ScoredRows
from tutelage.students.additive import AdditiveClassifier, TableOfEffects
from tutelage.students.additive_mean import AdditiveRegressor
from tutelage.students.forest import ForestStudent
from tutelage.students.noisy_sums import LEAST_CHANCE, NoisySumClassifier
from tutelage.tables import by_value

try:
    from onnx.numpy_helper import from_array
    from onnxruntime import InferenceSession
    from skl2onnx import convert_sklearn, get_model_alias, update_registered_converter
    from skl2onnx.algebra import onnx_ops
    from skl2onnx.algebra.onnx_operator import OnnxSubEstimator
    from skl2onnx.common.data_types import (
        DoubleTensorType,
        FloatTensorType,
        Int64TensorType,
        StringTensorType,
    )
    from skl2onnx.operator_converters.random_forest import convert_sklearn_random_forest_classifier
    from skl2onnx.sklapi import CastTransformer
except ModuleNotFoundError as error:  # pragma: no cover  an environment without the extra
    raise ModuleNotFoundError(
        f"ONNX files need their extra: {install('onnx')}.",
        name=error.name,
    ) from error

_ROWS = "rows"
# Codes of types in ONNX.
_FLOAT = 1
_INT64 = 7
_DOUBLE = 11
_MADE_UP = 256  # rows
_SAME = 0.99  # share of labels that must be the same
# Missing values.
_WITH_GAPS: tuple[type, ...] = (
    DecisionTreeClassifier,
    ExtraTreesClassifier,
    RandomForestClassifier,
)
_TREES: tuple[type, ...] = (*_WITH_GAPS, GradientBoostingClassifier)  # which round rows to 32 bits
_MISSING_TO_LEFT = "nodes_missing_value_tracks_true"
_ONNX = form("an ONNX student", lambda path: b"skl2onnx" in path.read_bytes()[:64])


def export_onnx(student: Any, path: str | PathLike[str]) -> Path:
    """Write a fitted student with its feature map as an ONNX file, and return the path.

    The inputs are ``rows``, 64-bit floats of shape (rows, features); or, if the student knows its columns by name, one
    input per column of shape (rows, 1): 64-bit floats, or text for categories. The outputs are ``label`` and
    ``probabilities``; of an `AdditiveRegressor` its predictions, as ``variable``.

    Parameters
    ----------
    student : scikit-learn classifier, AdditiveRegressor or pipeline
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
    learned = is_classifier(parts[-1]) or isinstance(parts[-1], AdditiveRegressor)
    content = _converted(parts) if strange is None and learned else None
    foreign = _transformers(student)
    if content is None:
        named = strange or (foreign[0] if foreign else parts[-1])
        raise InvalidParameterError(
            "export_onnx.student",
            "have only parts that ONNX supports",
            f"a {type(named).__name__}",
            "Publish student.skops, or choose another student or feature map.",
        )
    if foreign and not _agrees(student, parts[0], content):
        raise InvalidParameterError(
            "export_onnx.student",
            "predict the same in ONNX as in Python",
            f"other predictions with {type(foreign[0]).__name__}",
            "Publish student.skops, or choose another feature map.",
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
        student = inner
    if isinstance(student, _TREES):
        return [CastTransformer(dtype=np.float32), student]
    return [student]


def _refuse_texts(first: Any) -> None:
    """Refuse texts: the words that ONNX finds in them are not always those of Python."""
    texts = ()
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


def _transformers(student: Any) -> list[Any]:
    """Return what was fitted of each transformer of scikit-learn."""
    steps = student.steps if isinstance(student, Pipeline) else []
    return [step.fitted for _, step in steps if isinstance(step, PublicTransformer)]


def _agrees(student: Any, first: Any, content: bytes) -> bool:
    """Return whether a graph predicts as the student does, on made-up rows."""
    rng = np.random.default_rng(0)

    def cells(known: Any = None) -> Any:
        numbers = (rng.random(_MADE_UP) - 0.5) * np.resize([0.1, 1.0, 10.0, 100.0], _MADE_UP)
        numbers[::2] = np.rint(numbers[::2])
        if known is None:
            return numbers
        return rng.choice(np.array([*known.tolist(), "no category"], object), _MADE_UP)

    if isinstance(first, PublicColumns):
        rows: Any = {
            name: cells(known) for name, known in zip(first.names, first.categories, strict=True)
        }
        inputs = {name: column[:, None] for name, column in rows.items()}
    else:
        rows = np.stack([cells() for _ in range(first.n_features_in_)], axis=1)
        inputs = {_ROWS: rows}
    try:
        expected = student.predict_proba(rows) if hasattr(student, "predict_proba") else None
        labels = student.predict(rows)
        found: Any = InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, inputs)
    except Exception:  # a transformer may refuse what is made up
        return False
    same = np.asarray(found[0]).astype(labels.dtype) == labels
    if np.mean(same) < _SAME:
        return False
    return expected is None or np.allclose(found[1], expected, atol=1e-4)


def _has_form(part: Any) -> bool:
    try:
        get_model_alias(type(part))
    except RuntimeError:  # there is none
        return False
    # Trees that split by categories would be written as if they split by size.
    return not np.any(getattr(part, "is_categorical_", None))


def _converted(parts: list[Any]) -> bytes | None:
    """Return the graph of all parts; None where a part cannot be converted, or not run."""
    whole = Pipeline([(str(number), part) for number, part in enumerate(parts)])
    inputs = _inputs(parts[0])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about what the libraries will rename
            options = {id(parts[-1]): {"zipmap": False}} if is_classifier(parts[-1]) else {}
            model: Any = convert_sklearn(
                whole,
                initial_types=inputs,
                options=options,
            )
        _restore_names(model.graph, [name for name, _ in inputs])
        _send_missing(model.graph, parts[-1])
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


def _send_missing(graph: Any, part: Any) -> None:
    """Write which nodes of all trees send missing values to the left, which the library leaves out."""
    trees = getattr(part, "estimators_", [part]) if isinstance(part, _WITH_GAPS) else []
    to_left = [int(one) for tree in trees for one in tree.tree_.missing_go_to_left]
    for attribute in (each for node in graph.node for each in node.attribute):
        if attribute.name == _MISSING_TO_LEFT and to_left:
            attribute.ints[:] = to_left


def _inputs(first: Any) -> list[tuple[str, Any]]:
    if not isinstance(first, PublicColumns | Schema):
        return [(_ROWS, DoubleTensorType([None, getattr(first, "n_features_in_", None)]))]
    kinds = dict.fromkeys(first.categorical, StringTensorType)
    return [(name, kinds.get(name, DoubleTensorType)([None, 1])) for name in first.names]


class _Node:
    """A value of a graph, with the operators of ONNX as methods, and those of numpy for numbers."""

    def __init__(self, node: Any, version: int) -> None:
        self.node = node
        self.version = version

    def __getattr__(self, kind: str) -> Callable[..., "_Node"]:
        def apply(*others: Any, **settings: Any) -> _Node:
            inputs = [one.node if isinstance(one, _Node) else one for one in (self, *others)]
            made = getattr(onnx_ops, f"Onnx{kind}")(
                *inputs,
                **{"op_version": self.version, **settings},
            )
            return _Node(made, self.version)

        return apply

    def __add__(self, other: Any) -> "_Node":
        return self.Add(_row(other))

    def __sub__(self, other: Any) -> "_Node":
        return self.Sub(_row(other))

    def __mul__(self, other: Any) -> "_Node":
        return self.Mul(_row(other))

    def __truediv__(self, other: Any) -> "_Node":
        return self.Div(_row(other))

    def __matmul__(self, other: Any) -> "_Node":
        return self.MatMul(np.ascontiguousarray(other))

    def sums(self) -> "_Node":
        return self.ReduceSum(np.array([1]), keepdims=1)

    def on_grid(
        self,
        center: FloatArray,
        step: float,
        limit: int,
    ) -> "_Node":
        return ((self - center) / step).Round().within(-float(limit), float(limit))

    def within(self, low: float, high: float) -> "_Node":
        return self.Clip(np.array(low), np.array(high))


def _row(values: Any) -> Any:
    """Return constants as one row, of 64 bits unless they have 32."""
    if isinstance(values, _Node):
        return values
    if getattr(values, "dtype", None) != np.float32:
        values = np.asarray(values, np.float64)
    return np.atleast_2d(values)


def _columns(part: PublicColumns, *cells: _Node) -> _Node:
    of = dict(zip(part.names, cells, strict=True))
    columns = [of[name] for name in part.numbers]
    for cell, texts in zip(cells, part.categories, strict=True):
        if texts is not None:
            columns.append(_codes(cell, texts.tolist(), code_of(texts)))
    return columns[0].Concat(*columns[1:], axis=1)


def _bins(part: Schema, *cells: _Node) -> _Node:
    found = list[_Node]()
    for one, column, is_range in zip(cells, part.columns.values(), part.ordered, strict=True):
        if is_range:
            found.append(_interval(one, edges_of(column)))
        else:
            found.append(_codes(one, column, code_by_value(column), len(column)))
    return found[0].Concat(*found[1:], axis=1)


def _interval(cells: _Node, edges: FloatArray) -> _Node:
    above = cells.GreaterOrEqual(_row(edges[1:])).Cast(to=_DOUBLE).sums()
    return above + cells.IsNaN().Cast(to=_DOUBLE) * len(edges)


def _codes(
    cells: _Node,
    known: Sequence[str],
    codes: dict[str, int],
    unknown: float = UNKNOWN,
) -> _Node:
    spellings = {text: codes[by_value(text)] for text in known} | dict(codes)
    spellings |= {f"{text}.0": code for text, code in codes.items() if text.lstrip("-").isdigit()}
    spellings |= {text.lower(): code for text, code in codes.items() if text in ("True", "False")}
    keys = list(spellings)
    values = [float(code) for code in spellings.values()]
    code = cells.LabelEncoder(
        keys_strings=keys,
        values_floats=values,
        default_float=float(unknown),
        op_version=2,
    )
    return code.Cast(to=_DOUBLE)


def _scaled(part: PublicScaling, rows: _Node) -> _Node:
    scaled = (rows - part.center) / np.where(part.deviation > 0, part.deviation, np.inf)
    return scaled.within(-FURTHEST, FURTHEST)


def _projected(part: PublicProjection, rows: _Node) -> _Node:
    by = projection(part.directions, part.reach)
    return (rows.on_grid(part.center, by.step, by.limit) @ by.weights) * by.scale


def _alike(part: PublicKernel, rows: _Node) -> _Node:
    by = part.weights
    on = rows.on_grid(part.center, by.step, distance_levels(len(part.center), EXACT_FLOAT64))
    products = on @ part.points.T
    distances = products * -2 + (part.points**2).sum(axis=1) + (on * on).sums()
    found = products * (by.linear / by.size)
    for width in by.widths:
        found = found + (distances / (-2 * width**2)).Exp() * by.gaussian
    return found


def _in_ball(part: UnitBall, rows: _Node) -> _Node:
    lengths = (rows * rows).sums().Sqrt() / part.radius
    scaled = rows / (lengths.Max(_row(1)) * part.radius)
    return scaled.Concat(lengths * 0 + part.constant, axis=1) / np.sqrt(1 + part.constant**2)


def _stepped(part: PublicSteps, rows: _Node) -> _Node:
    steps, codes = [list(part.steps), list(part.categories)]
    found = []
    for kind, values, first in (("GreaterOrEqual", steps, 0), ("Equal", codes, len(steps))):
        if values:
            places = np.repeat(
                np.arange(first, first + len(values)), [len(each) for each in values]
            )
            compared = getattr(rows.Gather(places, axis=1), kind)(_row(np.concatenate(values)))
            found.append(compared.Cast(to=_DOUBLE))
    if part.features:
        places = len(steps) + len(codes) + np.arange(part.features)
        found.append(rows.Gather(places, axis=1) * part.factor)
    return found[0].Concat(*found[1:], axis=1)


def _edges_and_levels(part: EdgesAndLevels, rows: _Node) -> _Node:
    height, width, channels = (*part.image_shape, 1)[:3]
    seen = rows.within(0.0, part.white)
    levels = (seen * (LEVELS / part.white)).Round()
    pixels = levels.Reshape(np.array([-1, height * width, channels]))
    gray = (pixels.ReduceSum(np.array([2]), keepdims=0) / channels).Round().Cast(to=_FLOAT)
    lengths = (levels * levels).sums().Sqrt()  # of whole numbers: 0, or at least 1
    return _edge_histograms(part, gray).Concat(levels / lengths.Max(_row(1)), axis=1)


def _edge_histograms(part: EdgesAndLevels, gray: _Node) -> _Node:
    """Return the histograms of gray images, with the numbers of 32 bits that they have here."""
    pixels = np.arange(np.prod(part.image_shape[:2])).reshape(part.image_shape[:2])

    def difference(axis: int) -> _Node:
        places = np.moveaxis(pixels, axis, 0)
        both = places.copy(), places.copy()  # at the edge of an image, the pixel itself
        both[0][1:-1] = places[2:]
        both[1][1:-1] = places[:-2]
        after, before = (gray.Gather(np.moveaxis(one, 0, axis).ravel(), axis=1) for one in both)
        return after - before

    across = difference(1)
    down = difference(0)
    weights, angles, edge, scale = part.directions()
    threshold = (across * across + down * down).Sqrt() * np.float32(edge * scale)
    along = [
        across * np.float32(scale * np.cos(a)) + down * np.float32(scale * np.sin(a))
        for a in angles
    ]
    edges = [one * np.float32(sign) - threshold for sign in (1, -1) for one in along]
    first, *others = (one.Max(_row(np.float32(0))).Round() @ weights for one in edges)
    counted = first.Concat(*others, axis=1).Cast(to=_DOUBLE)
    shares = counted / counted.sums().Max(_row(1))
    return shares.Sqrt().Cast(to=_FLOAT).Cast(to=_DOUBLE)


def _through(feature_map: Any, rows: _Node) -> _Node:
    for part in parts_of(feature_map):
        rows = _MAPS[type(part)](part, rows)
    return rows


def _scored(part: ScoredRows, rows: _Node) -> _Node:
    model = part.model
    seen = rows if part.seen_by is None else _through(part.seen_by, rows)
    if model.linear is not None:
        scores = _projected(model.linear, seen) + model.offsets
    else:
        chances = OnnxSubEstimator(
            model.trees,
            rows.node,
            op_version=rows.version,
            options={"zipmap": False},
        )[1]
        scores = _Node(chances, rows.version).Cast(to=_DOUBLE).Log()
    each = (scores * model.sharpness).Exp()
    places = np.eye(model.n_classes)[model.present]
    chances = (each / each.sums()) @ places
    logarithms = chances.Max(_row(LEAST_CHANCE)).Log()
    return seen.Concat(logarithms - logarithms.sums() / model.n_classes, axis=1)


def _beside(part: BesideScores, rows: _Node) -> _Node:
    scores = rows.Slice(
        np.array([-part.n_scores]),
        np.array([np.iinfo(np.int64).max]),
        np.array([1]),
    )
    return _through(part.features, rows).Concat(scores, axis=1)


_MAPS: dict[type, Callable[..., _Node]] = {
    PublicColumns: _columns,
    Schema: _bins,
    PublicScaling: _scaled,
    PublicSteps: _stepped,
    PublicProjection: _projected,
    PublicPCA: _projected,
    PublicKernel: _alike,
    EdgesAndLevels: _edges_and_levels,
    UnitBall: _in_ball,
    ScoredRows: _scored,
    BesideScores: _beside,
}


def _by_sums(part: NoisySumClassifier, rows: _Node) -> tuple[_Node, ...]:
    scores = rows @ part.coef_
    chances = (scores + 1 / len(part.classes_)).Max(_row(LEAST_CHANCE))
    return _chosen(part, chances * part.weights_)


def _by_effects(part: AdditiveClassifier, bins: _Node) -> tuple[_Node, ...]:
    return _chosen(part, _totals(part, bins).Softmax(axis=1))


def _by_numbers(part: AdditiveRegressor, bins: _Node) -> _Node:
    found = _totals(part, bins)
    low, high = part.range_
    if part.public_ is not None:
        found = found.Add(_of_trees(bins, part.public_) * np.array([part.part_ * (high - low)]))
    return _flat(found.within(low, high))


def _totals(part: TableOfEffects, bins: _Node) -> _Node:
    """Return the sums of the effects of each row."""
    sizes = np.array([len(effects) for effects in part.effects_])
    places = bins.Max(_row(0)).Min(_row(sizes - 1)) + (np.cumsum(sizes) - sizes)
    effects = _Node(np.concatenate(part.effects_), bins.version).Gather(
        places.Cast(to=_INT64),
        axis=0,
    )
    return effects.ReduceSum(np.array([1]), keepdims=0) + part.intercept_


def _of_trees(bins: _Node, trees: PublicTrees) -> _Node:
    """Return the number from 0 to 1 that trees of public rows expect of each row, shape (rows, 1)."""
    first = np.arange(len(trees.below)) * trees.below.shape[1]
    arrays = trees.feature, trees.threshold, trees.below + first[:, None], trees.value
    feature, threshold, below, value = (_Node(one.ravel(), bins.version) for one in arrays)
    nodes = (bins.sums() * np.zeros(len(first))).Cast(to=_INT64).Add(first)
    for _ in range(DEPTH):
        above = bins.GatherElements(feature.Gather(nodes), axis=1).Greater(threshold.Gather(nodes))
        nodes = below.Gather(nodes).Add(above.Cast(to=_INT64))
    found = value.Gather(nodes).sums() + np.array([trees.base])
    return found.within(0.0, 1.0)


def _chosen(part: Any, chances: _Node) -> tuple[_Node, ...]:
    """Return the label and the probabilities of each row, by numbers that are in proportion to these."""
    classes = part.classes_.astype(str if part.classes_.dtype.kind in "UOS" else np.int64)
    labels = _Node(classes, chances.version).ArrayFeatureExtractor(
        chances.ArgMax(axis=1, keepdims=0)
    )
    return _flat(labels), chances / chances.sums()


def _flat(values: _Node) -> _Node:
    return values.Reshape(np.array([-1]))


_FORMS: dict[type, Callable[..., _Node | tuple[_Node, ...]]] = {
    **_MAPS,
    NoisySumClassifier: _by_sums,
    AdditiveClassifier: _by_effects,
    AdditiveRegressor: _by_numbers,
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
    chance = DoubleTensorType if type(part) in _FORMS else FloatTensorType
    operator.outputs[0].type = label([None])
    operator.outputs[1].type = chance([None, len(classes)])


def _convert(scope: Any, operator: Any, container: Any) -> None:
    part = operator.raw_operator
    inputs = [_Node(given, container.target_opset) for given in operator.inputs]
    found = _FORMS[type(part)](part, *inputs)
    outputs = [found] if isinstance(found, _Node) else found
    for one, output in zip(outputs, operator.outputs, strict=True):
        one.Identity(output_names=[output]).node.add_to(scope, container)


class _Exact:
    """A container of nodes, for boosted histograms that compare as scikit-learn does.

    skl2onnx writes them with 32-bit thresholds, where rows that scikit-learn tells apart may be equal, and with truth
    values that newer versions of onnx refuse.
    """

    def __init__(self, container: Any) -> None:
        self._container = container

    def __getattr__(self, name: str) -> Any:
        return getattr(self._container, name)

    def add_node(self, *names: Any, **settings: Any) -> None:
        """Add a node."""
        arrays = [
            name for name, value in settings.items() if getattr(value, "dtype", None) == np.float64
        ]
        tensors = {f"{name}_as_tensor": from_array(settings.pop(name)) for name in arrays}
        settings[_MISSING_TO_LEFT] = [int(one) for one in settings[_MISSING_TO_LEFT]]
        self._container.add_node(*names, **settings, **tensors)


def _convert_boosting(scope: Any, operator: Any, container: Any) -> None:
    convert_sklearn_random_forest_classifier(
        scope,
        operator,
        _Exact(container),
        op_version=3,
    )


# The options are those of skl2onnx, by their possible values.
_FLAGS = {key: [True, False] for key in ("zipmap", "nocl", "output_class_labels", "raw_scores")}
_CONVERTERS = dict.fromkeys(_FORMS, _convert) | {HistGradientBoostingClassifier: _convert_boosting}
for _kind, _converter in _CONVERTERS.items():
    _options = _FLAGS if issubclass(_kind, ClassifierMixin) else None
    update_registered_converter(
        _kind,
        f"Tutelage{_kind.__name__}",
        _set_types,
        _converter,
        options=_options,
    )
