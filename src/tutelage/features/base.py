"""Public feature maps, and the only rows that one may be learned from.

A statistic over all private rows (a mean, a vocabulary, a principal axis) would let one person move every teacher. So
a map here holds everything it knows in its constructor: it was given as a public parameter, or it was learned by a
``learn`` that takes `PublicRows` and nothing else. Its ``fit`` learns nothing, wherever a pipeline calls it.
"""

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import field
from typing import Any, Protocol, Self, TypeVar, cast, final

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.pipeline import Pipeline

from tutelage._internal.fitting import scikit_learn
from tutelage._internal.records import by_identity
from tutelage._internal.threads import QUIET
from tutelage._internal.typing import Array, FloatArray, IntArray, Matrix, is_array
from tutelage.exceptions import InvalidDataError, InvalidParameterError

_ROWS_TRIED = 512
# Of the largest feature: networks round by some 1e-6, and statistics over rows differ by far more.
_ROUNDING = 1e-3
_Result = TypeVar("_Result")


@final
@by_identity
class PublicRows:
    """Rows that their owner declares public. The people they describe get no protection.

    Parameters
    ----------
    values : array of shape (rows, ...)
        The rows; or texts, of shape (rows,).
    source : str
        Where they come from, for reports: ``"MNIST test images 0 to 8999"``.
    """

    values: Array = field(repr=False)
    source: str

    def __post_init__(self) -> None:
        values = np.asarray(self.values)
        are_rows = values.ndim >= 2 or _are_texts(values)
        if not are_rows or len(values) == 0:
            raise InvalidDataError(
                f"PublicRows must hold at least one row of features. Got shape {values.shape}."
            )
        object.__setattr__(self, "values", values)

    def __len__(self) -> int:
        return len(self.values)

    def through(self, feature_map: "FeatureMap") -> "PublicRows":
        """Return the features of these rows, public like the rows and the map; another map is refused."""
        public_map = require_public_map(feature_map, "PublicRows.through")
        return PublicRows(public_map.transform(self.values), self.source)


def _are_texts(values: Array) -> bool:
    """Return whether an array holds one text per row."""
    if values.ndim != 1:
        return False
    if values.dtype != object:
        return values.dtype.kind in "UT"
    return all(isinstance(cell, str) for cell in values.tolist())


class FeatureMap(Protocol):
    """A fixed function of one row: it may be applied to private rows without any cost, and published."""

    def transform(self, X: Array) -> Matrix:
        """Return the features of each row, shape (rows, features); most maps refuse all but finite numbers."""
        ...


class PublicFeatureMap(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base of all public maps, yours too: a scikit-learn transformer whose ``fit`` learns nothing.

    Subclasses define ``transform`` and keep what they know in constructor parameters, so that a clone, a pipeline and a
    file keep it too. The features of a row are to depend on that row alone: no statistic over the rows of a call. A map
    of your own sees the private rows of one shard at a time, in a copy that is thrown away, so that no row reaches
    another teacher.
    With a property ``_n_features_out``, as scikit-learn's transformers have it, the features get names.
    """

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002  scikit-learn's signature
        """Return the map unchanged: whatever it knows was public before."""
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def get_feature_names_out(self, input_features: Sequence[str] | None = None) -> Any:
        """Return a name for each feature; None, for numbers in place of names, where their count is not known."""
        if not hasattr(self, "_n_features_out"):
            return None
        mixin: Any = super()
        return mixin.get_feature_names_out(input_features)

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """Return the parameters, of arrays only their shapes: what a map learned may be the public rows themselves."""
        parameters = cast("dict[str, object]", self.get_params(deep=False))
        parts = list[str]()
        for name, value in parameters.items():
            text = repr(value)
            if is_array(value):
                text = f"<array of shape {value.shape}>"
            parts.append(f"{name}={text}")
        return f"{type(self).__name__}({', '.join(parts)})"[:N_CHAR_MAX]


def require_public_map(features: object, owner: str, name: str = "features") -> FeatureMap:
    """Return `features` if it is a map whose ``fit`` learns nothing, or a plain pipeline of such; refuse all others."""
    for part in parts_of(features):
        is_public = isinstance(part, PublicFeatureMap) and type(part).fit is PublicFeatureMap.fit
        if not is_public:
            raise InvalidParameterError(
                f"{owner}.{name}",
                "be a public feature map or a pipeline of such maps, so that it cannot learn from private rows",
                f"a {type(part).__name__}",
                "To fit a transformer on public rows, use PublicTransformer.learn(transformer, PublicRows(...)). "
                "A map of your own must subclass PublicFeatureMap and keep its `fit`.",
            )
    return cast("FeatureMap", features)


def chain(*feature_maps: object) -> Any:
    """Return the pipeline of these maps, one after the other; None stands for no map."""
    steps = list[Any]()
    for feature_map in feature_maps:
        if feature_map is not None:
            steps += parts_of(feature_map)
    return scikit_learn.pipeline.make_pipeline(*steps)


def parts_of(features: object) -> list[Any]:
    """Return the steps of a plain pipeline, or the map itself."""
    if type(features) is not Pipeline:
        return [features]
    steps: list[tuple[str, Any]] = cast("Any", features).steps
    return [step for _, step in steps]


def check_row_by_row(features: FeatureMap, X_public: Array) -> None:
    """Refuse a map that, on public rows, gives a row other features when other rows are beside it.

    A map through which rows of several shards go together must agree to the last bit, or one person would move several
    teachers. Any other map sees one shard at a time and may round differently: a larger difference there is no leak,
    but teachers and student would see different features. The first few hundred rows are tried.
    """
    rows = X_public[:_ROWS_TRIED]
    with np.errstate(all="ignore"):  # a map that divides by a spread warns about a single row
        together = np.asarray(features.transform(np.array(rows)))
        upside_down = features.transform(np.array(rows[::-1]))[::-1]
        first = features.transform(np.array(rows[:1]))
        third = features.transform(np.array(rows[: max(1, len(rows) // 3)]))
    exactly = takes_rows_together(features)
    fix = "Use no random numbers, and no statistics over the rows of a call."
    if exactly:
        fix = "Make the features of each row equal to the last bit, or leave `row_by_row` out."
    for trial in (upside_down, first, third):
        if not _agree(np.asarray(trial), together[: len(trial)], exactly=exactly):
            raise InvalidParameterError(
                "PATEClassifier.features",
                "give a row the same features, whatever other rows are transformed with it",
                fix=fix,
            )


def _agree(trial: Array, expected: Array, *, exactly: bool) -> bool:
    if trial.shape != expected.shape:
        return False
    are_numbers = trial.dtype.kind in "buif" and expected.dtype.kind in "buif"
    if exactly or not are_numbers:
        return trial.tobytes() == expected.tobytes()
    size = float(np.max(np.abs(expected), initial=0.0, where=np.isfinite(expected)))
    return np.allclose(trial, expected, rtol=_ROUNDING, atol=_ROUNDING * size, equal_nan=True)


def features_of_private(
    features: FeatureMap,
    X: Array,
    shards: Iterable[IntArray],
    n_features: int,
) -> Matrix:
    """Return the features of private rows, as one that never saw rows of two shards at once would give them.

    Maps whose features of a row depend on no other row, to the last bit, take all rows in one call: those of this
    package, and those that state it by `row_by_row`. Any other map sees one shard at a time. It is copied for each
    shard and thrown away, so that it keeps nothing for the next, unless all its parts are known to keep nothing. Of an
    error only its type comes out, and no warning. `shards` are the row numbers of each shard, and `n_features` the
    number of features of a public row; a map that makes another number of private ones is refused.
    """
    parts = parts_of(features)
    apart = 0  # how many parts, the first ones, see one shard at a time
    for number, part in enumerate(parts, 1):
        if not takes_rows_together(part):
            apart = number
    rows: Matrix | None = np.array(X)
    if apart:
        rows = _shard_by_shard(parts[:apart], rows, shards)
    if rows is None or (apart == len(parts) and rows.shape[1] != n_features):
        raise InvalidDataError(
            f"The feature map must make {n_features} numbers of each private row, as it does of public ones."
        )
    if apart == len(parts):
        return rows
    return _quietly(lambda: _through(deepcopy(parts[apart:]), rows))


def _shard_by_shard(
    parts: Sequence[FeatureMap],
    X: Matrix,
    shards: Iterable[IntArray],
) -> FloatArray | None:
    """Return the features of the rows of each shard; None if a map does not make the same numbers of all of them."""
    are_reusable = keeps_nothing(parts)
    places = [rows for rows in shards if len(rows)]

    def features_of_shards() -> list[Matrix]:
        features = list[Matrix]()
        for rows in places:
            fresh = parts if are_reusable else deepcopy(parts)
            features.append(_through(fresh, X[rows]))
        return features

    features = _quietly(features_of_shards)
    shapes = {part.shape[1:] for part in features}
    are_numbers = all(part.dtype.kind in "buif" for part in features)
    are_rows = [len(shape) for shape in shapes] == [1]
    if not are_rows or not are_numbers or [*map(len, features)] != [*map(len, places)]:
        return None
    # All features are float64, whatever the map makes of the first shard.
    whole = np.empty((len(X), *shapes.pop()))
    for part, rows in zip(features, places, strict=True):
        whole[rows] = part
    return whole


def _through(parts: Sequence[FeatureMap], rows: Matrix) -> Matrix:
    for part in parts:
        rows = np.asarray(part.transform(rows))
    return rows


def keeps_nothing(parts: Sequence[object]) -> bool:
    """Return whether maps are known to keep nothing of the rows that they transform."""
    return all(_is_ours(part) and getattr(part, "keeps_nothing", lambda: True)() for part in parts)


def _is_ours(part: object) -> bool:
    return type(part).__module__.startswith("tutelage.features.")


def _quietly(work: Callable[[], _Result]) -> _Result:
    """Return what a feature map makes of private rows; an error is told by its type alone."""
    interrupted = False
    kind = ""
    try:
        # scikit-learn's own check of parameters in each call would take longer than a single row.
        with QUIET, scikit_learn.config_context(skip_parameter_validation=True):
            return work()
    except KeyboardInterrupt:
        interrupted = True
    except BaseException as error:  # compiled extensions panic with exceptions of their own
        kind = type(error).__name__
    if interrupted:
        raise KeyboardInterrupt
    raise InvalidDataError(
        f"The feature map raised {kind} on private rows. Its message may quote them and is withheld; apply it to "
        "public rows to read it."
    )


def takes_rows_together(features: object) -> bool:
    """Return whether the features of a row depend on no other row, to the last bit: by proof, or as a user states."""
    return all(_is_ours(part) and getattr(part, "row_by_row", True) for part in parts_of(features))


def require_public(rows: object, owner: str) -> PublicRows:
    """Return `rows` if they were declared public."""
    if not isinstance(rows, PublicRows):
        raise InvalidParameterError(
            f"{owner}.X",
            "be PublicRows, because a statistic of private rows would let one person change every teacher",
            f"a {type(rows).__name__}",
            'If these rows are public, pass PublicRows(X, source="...").',
        )
    return rows
