"""Transformers of scikit-learn, and encoders, as public feature maps."""

from typing import Any, cast

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.experimental import enable_iterative_imputer  # noqa: F401  makes IterativeImputer importable
from sklearn.feature_extraction.text import TfidfTransformer, TfidfVectorizer
from sklearn.feature_selection import SelectKBest
from sklearn.frozen import FrozenEstimator
from sklearn.impute import IterativeImputer, SimpleImputer
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
    StandardScaler,
)

from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.features import PublicEncoder, PublicRows, PublicScaling, PublicTransformer
from tutelage.features.base import features_of_private
from tutelage.features.columns import numbered_as, numbered_rows
from tutelage.features.fitted import _as_frame
from tutelage.students import load_student
from tutelage.students.store import write_student

RNG = np.random.default_rng(5)
ROWS = RNG.normal(size=(300, 20)) @ RNG.normal(size=(20, 20))
PUBLIC = PublicRows(ROWS, "three hundred made-up rows")


class Remembering(TransformerMixin, BaseEstimator):
    """Adds what it saw in earlier calls, as a running mean does."""

    def fit(self, X, y=None):
        self.seen_ = 0.0
        return self

    def transform(self, X):
        before = self.seen_
        self.seen_ = before + float(np.sum(X > 50))
        return X + before


class Centering(TransformerMixin, BaseEstimator):
    """Subtracts a mean over the rows of a call."""

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return X - X.mean(axis=0)


def doubled(X):
    return X * 2


# Learned from public rows, and from nothing else


@pytest.mark.parametrize(("transformer", "public", "message"), [
    (StandardScaler(), ROWS, "must be PublicRows"),
    (StandardScaler, PUBLIC, "must be a scikit-learn transformer.* Got StandardScaler"),
    (SelectKBest(k=2), PUBLIC, "fitting on the public rows without labels. It raised"),
])  # fmt: skip
def test_anything_else_is_refused(transformer, public, message):
    with pytest.raises(InvalidParameterError, match=message):
        PublicTransformer.learn(transformer, public)


# One person reaches one shard

ROW_BY_ROW: list[Any] = [  # test_feature_maps shows that they are
    OneHotEncoder(handle_unknown="ignore"),
    OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
    make_pipeline(SimpleImputer(missing_values=16.0), StandardScaler()),
    make_pipeline(Binarizer(), TfidfTransformer(sublinear_tf=True)),
    ColumnTransformer(
        [("a", StandardScaler(), [0, 1]), ("b", "passthrough", [2])],
        remainder=cast("Any", RobustScaler()),
    ),
]


class Derived(StandardScaler):
    """Could do anything."""


OTHERS = [
    Derived(),
    make_pipeline(StandardScaler(), PCA(2)),
    FunctionTransformer(np.abs),
    FeatureUnion([("a", StandardScaler()), ("b", Centering())]),
    ColumnTransformer([("a", StandardScaler(), [0]), ("b", PCA(1), [1, 2])]),
]


@pytest.mark.parametrize("transformer", [*ROW_BY_ROW, *OTHERS])
def test_only_known_transformers_are_taken_to_be_row_by_row(transformer):
    assert PublicTransformer.learn(transformer, PUBLIC).row_by_row == (transformer in ROW_BY_ROW)


@pytest.mark.parametrize(
    "transformer", [PCA(5), Centering(), FunctionTransformer(lambda X: X @ ROWS[:20])]
)
def test_a_false_claim_is_refused(transformer):
    with pytest.raises(
        InvalidParameterError, match="equal to the last bit, or leave `row_by_row` out"
    ):
        PublicTransformer.learn(transformer, PUBLIC, row_by_row=True)


def first_row_changed(features, holed=False) -> list[np.ndarray]:
    """Return the features of rows in 8 shards, and again after another first row."""
    X, width = ROWS[:40].copy(), features.transform(ROWS[:2]).shape[1]
    if holed:
        X[::3, 2] = np.nan
    other = X.copy()
    other[0] = 99.0
    return [
        features_of_private(features, rows, np.split(np.arange(40), 8), width)
        for rows in (X, other)
    ]


@pytest.mark.parametrize("transformer", [
    PCA(5),
    Centering(),
    make_pipeline(StandardScaler(), Remembering()),
    IterativeImputer(sample_posterior=True, max_iter=2, random_state=0),
], ids=["pca", "centering", "remembering", "random-stream"])  # fmt: skip
def test_a_row_moves_the_features_of_its_own_shard_only(transformer):
    holed = isinstance(transformer, IterativeImputer)  # each missing cell takes a random number
    before, after = first_row_changed(PublicTransformer.learn(transformer, PUBLIC), holed)
    assert not np.array_equal(before[:5], after[:5], equal_nan=True)
    assert before[5:].tobytes() == after[5:].tobytes()


def test_the_same_rows_in_other_shards_would_show_a_map_that_remembers():
    """The planted fault: an encoder breaks the promise of `PublicEncoder`, and the test above would notice."""
    before, after = first_row_changed(PublicEncoder(Remembering().fit(ROWS).transform, "kept"))
    assert before[5:].tobytes() != after[5:].tobytes()


@pytest.mark.parametrize(("transformer", "kept"), [
    (make_pipeline(StandardScaler(), PCA(2)), True),
    (FunctionTransformer(np.log1p), True),
    (FunctionTransformer(doubled), False),
    (make_pipeline(FunctionTransformer(np.frompyfunc(float, 1, 1)), StandardScaler()), False),
    (PCA(2, random_state=np.random.RandomState(0)), False),
])  # fmt: skip
def test_only_parts_of_known_libraries_are_not_copied(transformer, kept):
    with np.errstate(all="ignore"):
        assert PublicTransformer.learn(transformer, PUBLIC).keeps_nothing() is kept


@pytest.mark.parametrize("changed", [lambda X: X[:, :2], lambda X: X[:-1], lambda X: X.astype(str)])
def test_private_rows_of_another_form_are_refused(changed):
    encoder = PublicEncoder(lambda X: X, "no weights")
    encoder.transform = lambda X: changed(X) if np.abs(X).max() > 50 else X  # type: ignore[method-assign]
    X = ROWS[:6].copy()
    X[3] = 12_345.0
    maps: list[Any] = [encoder, make_pipeline(encoder, PublicScaling(np.zeros(20), np.ones(20)))]
    for each in maps:
        with pytest.raises(InvalidDataError, match="must make 20 numbers of each private row"):
            features_of_private(each, X, np.split(np.arange(6), 3), 20)


def test_nothing_stays_fitted_to_rows_that_nobody_can_see():
    fitted = PCA(2).fit(ROWS)
    parts = [FrozenEstimator(fitted), FunctionTransformer(fitted.transform)]
    for part in [*parts, *(make_pipeline(StandardScaler(), part) for part in parts)]:
        with pytest.raises(InvalidParameterError, match="keeps an earlier fit"):
            PublicTransformer.learn(part, PUBLIC)


def test_a_saved_map_opens_and_a_function_of_ones_own_for_those_who_vouch_for_it(tmp_path):
    columns = PublicTransformer.learn(column_transformer(), people(80, 0))
    write_student(columns, tmp_path / "columns.skops")
    loaded = load_student(tmp_path / "columns.skops")
    assert np.array_equal(loaded.transform(people(9, 1)), columns.transform(people(9, 1)))
    write_student(PublicEncoder(doubled, "no weights"), tmp_path / "map.skops")
    with pytest.raises(InvalidDataError, match=r"not known to be safe: .*doubled"):
        load_student(tmp_path / "map.skops")
    name = f"{doubled.__module__}.doubled"
    assert np.array_equal(
        load_student(tmp_path / "map.skops", trusted=(name,)).transform(ROWS), 2 * ROWS
    )


# Rows with named columns


def people(n, seed):
    rng = np.random.default_rng(seed)
    notes, wards = rng.choice(["old and free", "young and busy"], n), rng.choice(["A", "B", "C"], n)
    return {
        "age": rng.normal(50, 20, n).round(),
        "note": notes.astype(object),
        "ward": wards.astype(object),
    }


def column_transformer():
    return ColumnTransformer(
        [
            ("numbers", StandardScaler(), ["age"]),
            ("words", TfidfVectorizer(), "note"),
            ("codes", OneHotEncoder(handle_unknown="ignore"), ["ward"]),
        ]
    )


def test_no_kind_of_a_column_follows_from_private_cells():
    learned = PublicTransformer.learn(column_transformer(), people(80, 0))
    rows = {"age": ["7", ""], "note": [None, 3], "ward": [1, None]}
    with pytest.raises(InvalidDataError, match="Column 'age' holds text"):
        learned.transform({**rows, "age": ["Miller", "7"]})
    known, found = (
        _as_frame(each, learned.kinds, learned.library).dtypes for each in (people(3, 1), rows)
    )
    assert found.tolist() == known.tolist()
    with pytest.raises(InvalidDataError, match="no column 'ward'"):
        learned.transform({name: cells for name, cells in rows.items() if name != "ward"})


@pytest.mark.rest
def test_each_private_row_of_a_frame_is_taken_by_itself():
    """A transformer that looks across rows sees one at a time, whoever they are about."""
    rows, public = people(40, 1), people(80, 0)
    remembering = make_pipeline(
        column_transformer(), FunctionTransformer(np.asarray), Remembering()
    )
    learned = PublicTransformer.learn(remembering, public)
    other = {**rows, "age": rows["age"].copy()}
    other["age"][0] = 1e6
    before, after = (numbered_as(numbered_rows(public, learned), X)[0] for X in (rows, other))
    assert not np.array_equal(before[0], after[0])
    assert before[1:].tobytes() == after[1:].tobytes()


# Encoders


def test_an_encoder_is_a_function_whose_source_is_stated():
    encoder: Any = clone(PublicEncoder(lambda X: csr_array(X[:, :2]), "no weights at all"))
    assert np.array_equal(encoder.transform(ROWS), ROWS[:, :2])
    for parameter, encode, source in (
        ("source", doubled, " "),
        ("encode", StandardScaler().fit(ROWS), "x"),
    ):
        with pytest.raises(InvalidParameterError) as refused:
            PublicEncoder(encode, source)  # type: ignore[arg-type]
        assert refused.value.parameter == parameter
