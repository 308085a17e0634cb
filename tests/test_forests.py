from importlib import import_module
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier

from tutelage.partition import Shards
from tutelage.teachers import EstimatorTeachers, forests
from tutelage.teachers.forests import with_fast_forests

NODES = ("children_left", "children_right", "feature", "threshold", "value", "impurity", "n_node_samples")


def made_up(classes=2, missing=False, n_rows=130, dtype=np.float64):
    random = np.random.default_rng(classes)
    X = random.integers(0, 30, size=(n_rows, 7)).astype(dtype)
    y = (X[:, 0] + random.normal(0, 8, n_rows) > 15).astype(np.int64) + random.integers(0, classes - 1, n_rows)
    X[:, 5] = 3  # a constant feature
    if missing:
        X[random.random(X.shape) < 0.2] = np.nan
    return X, y


def assert_same_forest(quick, plain, queries):
    assert [tree.random_state for tree in quick.estimators_] == [tree.random_state for tree in plain.estimators_]
    for mine, theirs in zip(quick.estimators_, plain.estimators_, strict=True):
        for name in NODES:
            assert np.array_equal(getattr(mine.tree_, name), getattr(theirs.tree_, name), equal_nan=True)
    assert np.array_equal(quick.predict_proba(queries), plain.predict_proba(queries))
    assert np.array_equal(quick.predict(queries), plain.predict(queries))


def fitted_both(X, y, **parameters):
    plain = RandomForestClassifier(**{"n_estimators": 8, "random_state": 3, **parameters})
    quick = with_fast_forests(plain).fit(X, y)
    return quick, plain.fit(X, y)


COMMON = [
    {},
    {"criterion": "entropy"},
    {"criterion": "log_loss", "max_features": "log2"},
    {"max_depth": 2},
    {"min_samples_leaf": 4},
    {"min_samples_split": 20},
    {"bootstrap": False},
    {"max_features": None},
    {"max_features": 3, "min_impurity_decrease": 0.01},
    {"max_features": 0.5, "min_weight_fraction_leaf": 0.1},
    {"random_state": 2**32 - 1},
]


@pytest.mark.parametrize("parameters", COMMON, ids=str)
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("missing", [False, True])
def test_every_tree_is_the_one_that_scikit_learn_grows(parameters, classes, missing):
    X, y = made_up(classes, missing)
    quick, plain = fitted_both(X, y, **parameters)
    assert quick._is_quick
    assert_same_forest(quick, plain, made_up(classes, missing, 300)[0])


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8, bool])
def test_numbers_of_any_kind_come_out_alike(dtype):
    X, y = made_up(dtype=dtype)
    quick, plain = fitted_both(X, y)
    assert quick._is_quick
    assert_same_forest(quick, plain, X)
    assert_same_forest(quick, plain, np.asfortranarray(X))


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_few_rows_come_out_alike(rows):
    X, y = made_up()
    assert_same_forest(*fitted_both(X[:rows], y[:rows]), X)


def test_what_scikit_learn_says_of_a_fitted_forest_is_said_here_too():
    X, y = made_up(3)
    quick, plain = fitted_both(X, y)
    assert isinstance(quick, RandomForestClassifier)
    assert np.array_equal(quick.classes_, plain.classes_)
    assert np.array_equal(quick.feature_importances_, plain.feature_importances_)
    assert all(np.array_equal(*pair) for pair in zip(quick.estimators_samples_, plain.estimators_samples_, strict=True))
    one, other = quick.estimators_[0], plain.estimators_[0]
    assert vars(one).keys() == vars(other).keys()
    assert one.get_params() == other.get_params()
    assert np.array_equal(one.predict(X), other.predict(X))
    assert vars(plain).keys() <= vars(quick).keys()


RARE = [
    {"class_weight": "balanced"},
    {"class_weight": {0: 2.0, 1: 1.0}},
    {"max_leaf_nodes": 5},
    {"max_samples": 0.5},
    {"ccp_alpha": 0.01},
    {"oob_score": True, "n_estimators": 40},
    {"monotonic_cst": [1, 0, 0, 0, 0, 0, 0]},
    {"min_samples_leaf": 0.1},
    {"random_state": np.random.RandomState(3)},
]


@pytest.mark.parametrize("parameters", RARE, ids=lambda it: ", ".join(it))
def test_a_rare_parameter_is_left_to_scikit_learn(parameters):
    X, y = made_up()
    quick = with_fast_forests(RandomForestClassifier(**{"n_estimators": 5, "random_state": 3, **parameters}))
    assert not quick.fit(X, y)._is_quick
    if not isinstance(parameters.get("random_state"), np.random.RandomState):
        assert_same_forest(*fitted_both(X, y, **parameters), X)


@pytest.mark.parametrize("spoilt", [np.inf, 1e36, 1e300])
def test_unusual_rows_are_left_to_scikit_learn(spoilt):
    X, y = made_up()
    quick, plain = fitted_both(X, y)
    X[0, 0] = spoilt
    for forest in (quick, plain):
        if spoilt == 1e36:
            forest.fit(X, y)
        else:
            with pytest.raises(ValueError, match=r"infinity|too large"), np.errstate(over="ignore"):
                forest.fit(X, y)
    assert not quick._is_quick


def test_other_inputs_are_left_to_scikit_learn():
    X, y = made_up()
    quick, plain = fitted_both(X, y)
    assert_same_forest(quick, plain, X.tolist())
    with pytest.raises(ValueError, match="expecting 7 features"):
        quick.predict(X[:, :3])
    weights = np.arange(len(y)) % 3
    assert_same_forest(quick.fit(X, y, weights), plain.fit(X, y, weights), X)
    assert_same_forest(quick.fit(X.tolist(), y), plain.fit(X.tolist(), y), X)
    assert not quick._is_quick
    assert quick.fit(X, y)._is_quick


def test_a_parameter_out_of_range_is_refused_as_by_scikit_learn():
    X, y = made_up()
    unusable: list[dict[str, Any]] = [
        {"n_estimators": 0},
        {"max_depth": 0},
        {"criterion": "nonsense"},
        {"bootstrap": 2},
    ]
    for parameters in unusable:
        with pytest.raises(ValueError, match=f"The {next(iter(parameters))!r} parameter"):
            with_fast_forests(RandomForestClassifier(random_state=0, **parameters)).fit(X, y)


@settings(max_examples=60)
@given(
    X=hnp.arrays(np.float64, (25, 3), elements=st.one_of(st.floats(-4, 4, width=16), st.just(np.nan))),
    y=hnp.arrays(np.int64, 25, elements=st.integers(0, 3)),
    seed=st.integers(0, 2**32 - 1),
    bootstrap=st.booleans(),
    depth=st.one_of(st.none(), st.integers(1, 4)),
)
def test_whatever_the_rows_the_trees_are_the_same(X, y, seed, bootstrap, depth):
    both = fitted_both(X, y, n_estimators=3, random_state=seed, bootstrap=bootstrap, max_depth=depth)
    assert_same_forest(*both, X)


class Missing:
    """A module without anything in it."""


class BiasedBuilder:
    """A builder that grows stumps."""

    def __init__(self, *arguments):
        *most, _depth, decrease = arguments
        self.builder = import_module("sklearn.tree._tree").DepthFirstTreeBuilder(*most, 1, decrease)

    def build(self, *arguments):
        return self.builder.build(*arguments)


class RaisingBuilder:
    """A builder whose arguments have changed."""

    def __init__(self, splitter):
        raise AssertionError


@pytest.fixture
def fresh_guard():
    """Let this process compare itself with scikit-learn again, before and after."""
    forests._agrees_with_sklearn.cache_clear()
    forests._private_parts.cache_clear()
    yield
    forests._agrees_with_sklearn.cache_clear()
    forests._private_parts.cache_clear()


def missing_module(name):
    raise ImportError(name)


@pytest.mark.parametrize("builder", [BiasedBuilder, RaisingBuilder, None])
def test_where_the_builder_differs_raises_or_is_gone_scikit_learn_does_everything(builder, fresh_guard, monkeypatch):
    if builder is None:
        monkeypatch.setattr(forests, "import_module", missing_module)
    else:
        parts = {**forests._private_parts(), "builder": builder}
        monkeypatch.setattr(forests, "_private_parts", lambda: parts)
    X, y = made_up()
    quick, plain = fitted_both(X, y)
    assert not quick._is_quick
    monkeypatch.undo()
    assert_same_forest(quick, plain, X)


def test_a_parameter_that_is_not_known_here_leaves_everything_to_scikit_learn(fresh_guard, monkeypatch):
    monkeypatch.setattr(forests, "_PARAMETERS", forests._PARAMETERS - {"max_depth"})
    assert not with_fast_forests(RandomForestClassifier(2, random_state=0)).fit(*made_up())._is_quick


def votes(estimator, **options):
    X, y = made_up(3, missing=True, n_rows=400)
    shards = Shards.of_rows(len(y), 6, key=b"a key of 32 bytes for the tests.")
    return EstimatorTeachers(estimator, n_classes=3, seed=2, **options).fit_ballots(X, y, shards, X[:100])


@pytest.mark.parametrize(
    "estimator", [RandomForestClassifier(5), make_pipeline(SimpleImputer(), RandomForestClassifier(5))], ids=str
)
def test_votes_are_those_of_scikit_learn(estimator, monkeypatch):
    grown = []
    monkeypatch.setattr(forests, "_grow", lambda *given, grow=forests._grow: (grown.append(1), grow(*given)))
    assert forests._agrees_with_sklearn()
    grown.clear()
    quick = votes(estimator)
    assert len(grown) == 6
    assert np.array_equal(quick, votes(estimator, fast_forests=False))
    assert len(grown) == 6


def test_only_forests_are_replaced():
    tree, forest = DecisionTreeClassifier(), RandomForestClassifier(7)
    assert with_fast_forests(tree) is tree

    class Mine(RandomForestClassifier):
        pass

    mine = Mine()
    assert with_fast_forests(mine) is mine
    pipeline = make_pipeline(SimpleImputer(), forest)
    assert with_fast_forests(pipeline)[-1].get_params() == forest.get_params()
    assert pipeline[-1] is forest
