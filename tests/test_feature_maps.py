from functools import cache

import numpy as np
import pytest
import skops.io
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline

from test_public_transformers import ROW_BY_ROW
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.features import (
    EdgesAndLevels,
    PublicPCA,
    PublicRows,
    PublicScaling,
    PublicSteps,
    PublicTransformer,
    Schema,
    ballot_features,
    image_features,
    rowwise,
)

DIGITS, LABELS = map(np.asarray, load_digits(return_X_y=True))
PUBLIC = PublicRows(DIGITS[:600], "the first 600 digits")
NOISE = np.random.default_rng(0).random((50, 8 * 8)) * 16
MAPS = {
    "scaled": lambda: PublicScaling.learn(PUBLIC),
    "steps": lambda: PublicSteps.learn(PUBLIC, 40),
    "pca": lambda: PublicPCA.learn(PUBLIC, 20),
    "edges": lambda: EdgesAndLevels((8, 8), white=16),
    "images": lambda: image_features(PUBLIC, (8, 8)),
    "vectors of ballots": lambda: ballot_features(PUBLIC, noise=0.01, n_landmarks=40),
    "schema": lambda: Schema({str(column): (0.0, 16.0) for column in range(64)}),
}
TRANSFORMED = {str(one): lambda one=one: PublicTransformer.learn(one, PUBLIC) for one in ROW_BY_ROW}
LEARNERS = {
    "PublicSteps": lambda rows: PublicSteps.learn(rows, 40),
    "PublicPCA": lambda rows: PublicPCA.learn(rows, 2),
    "PublicScaling": PublicScaling.learn,
}


made = cache(lambda name: (MAPS | TRANSFORMED)[name]())


@pytest.fixture(params=MAPS)
def feature_map(request):
    return made(request.param)


# What one row can reach


@pytest.mark.parametrize("name", [*MAPS, *TRANSFORMED])
def test_the_features_of_a_row_do_not_depend_on_the_others_in_any_bit(name, monkeypatch):
    feature_map = made(name)
    X = np.concatenate([DIGITS[600:1200], NOISE])
    whole = feature_map.transform(X)
    order = np.random.default_rng(1).permutation(len(X))
    assert np.array_equal(feature_map.transform(X[order]), whole[order])
    assert np.array_equal(
        np.concatenate([feature_map.transform(row[np.newaxis]) for row in X[:40]]), whole[:40]
    )
    monkeypatch.setattr(rowwise, "_CHUNK", 7)
    assert np.array_equal(feature_map.transform(X), whole)


def test_fits_clones_pipelines_and_files_keep_what_was_learned(feature_map):
    before = feature_map.transform(DIGITS[:20])
    feature_map.fit(DIGITS[:300] * 0.5, LABELS[:300])
    assert np.array_equal(feature_map.transform(DIGITS[:20]), before)
    stored = skops.io.dumps(feature_map)
    types = skops.io.get_untrusted_types(data=stored)
    assert all(name.startswith("tutelage.features.") for name in types)
    for copy in (
        clone(feature_map),
        make_pipeline(feature_map),
        skops.io.loads(stored, trusted=types),
    ):
        assert np.array_equal(copy.transform(DIGITS[:20]), before)
    with pytest.raises(InvalidDataError):
        feature_map.transform(DIGITS[:5, :63])


@pytest.mark.parametrize("name", LEARNERS)
def test_a_map_is_learned_from_finite_rows_that_are_declared_public(name):
    with pytest.raises(InvalidParameterError, match=f"{name} must be PublicRows"):
        LEARNERS[name](DIGITS)
    rows = DIGITS[:50].copy()
    rows[7, 20] = np.inf
    with pytest.raises(
        InvalidDataError, match=f"of {name}.* must hold (finite numbers|no infinite number)"
    ):
        LEARNERS[name](PublicRows(rows, "infinite"))


def test_steps_are_learned_from_the_numbers_that_are_there():
    holed = np.array([[np.nan, 7.0], [1.0, np.nan], [2.0, np.nan], [3.0, np.nan]])
    steps = PublicSteps.learn(PublicRows(holed, "holed"), 2, n_steps=3)
    assert steps.transform([[np.nan, np.nan], [0.0, 7.0], [3.0, 8.0]]).sum(axis=1).tolist() == [
        0,
        1,
        4,
    ]


@pytest.mark.parametrize("name", ["edges", "pca", "scaled"])
def test_missing_private_numbers_are_refused_without_saying_where(name):
    rows = DIGITS[:50].copy()
    rows[7, 20] = np.nan
    with pytest.raises(InvalidDataError, match="Fill the missing") as caught:
        made(name).transform(rows)
    assert not any(character.isdigit() for character in str(caught.value))


def test_steps_are_quantiles_and_codes_are_categories():
    public = np.array([[0, 0, 3], [1, 0, 5], [2, 0, 3], [3, 40, 3]])
    steps = PublicSteps.learn(PublicRows(public, "four rows"), 2, 2)
    # Below the quantiles 0 and ½ of the first column; most of the second is 0, so the step is below the others.
    assert [step.tolist() for step in steps.steps] == [[-0.5, 1.5], [19.5]]
    found = steps.transform([[1, 0, 5], [2, 19.4, 4], [-1, 41, 3], [np.nan, np.inf, np.nan]])
    assert found.tolist() == [[1, 0, 0, 0, 1], [1, 1, 0, 0, 0], [0, 0, 1, 1, 0], [0, 0, 1, 0, 0]]
    with pytest.raises(
        InvalidParameterError, match=r"of PublicSteps must be at most 3, the number of columns"
    ):
        PublicSteps.learn(PublicRows(public, "four rows"), 4)


@pytest.mark.parametrize("values", [
    np.arange(17, 91),
    [-1e308, 0, 1e308],
    [1e-300, 2e-300],
])  # fmt: skip
def test_no_step_stands_on_a_value_of_the_rows(values):
    column = np.array(values, dtype=float)
    steps = PublicSteps.learn(PublicRows(column[:, np.newaxis], "one column"), 1)
    for nudged in (np.nextafter(column, -np.inf), np.nextafter(column, np.inf)):
        assert np.array_equal(
            steps.transform(nudged[:, np.newaxis]), steps.transform(column[:, np.newaxis])
        )


def test_categories_of_very_few_rows_get_no_column():
    codes = np.repeat([0.0, 1.0, 2.0, 3.0], [1970, 10, 11, 9])[:, np.newaxis]
    assert PublicSteps.learn(PublicRows(codes, "2,000 rows"), 0).categories[0].tolist() == [0, 1, 2]


@pytest.mark.parametrize("whiten", [False, True])
def test_principal_axes_are_those_of_scikit_learn(whiten):
    expected = PCA(10, whiten=whiten, svd_solver="full").fit(DIGITS).transform(DIGITS)
    result = PublicPCA.learn(PublicRows(DIGITS, "all digits"), 10, whiten=whiten).transform(DIGITS)
    signs = np.sign((result * expected).sum(axis=0))
    assert result * signs == pytest.approx(expected, abs=1e-4)


def test_private_outliers_go_no_further_than_sixteen_times_the_public_range():
    pca = PublicPCA.learn(PublicRows(np.array([[-1.0, 0], [1, 0]]), "two points"), 1)
    assert np.abs(pca.transform([[1e300, 0]])) == pytest.approx(np.array([[16]]))
