"""Features for ballots: bounded, of one row alone, and stretched where the noise allows it."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose

from tutelage.exceptions import InvalidParameterError
from tutelage.features import PublicKernel, PublicProjection, PublicRows, UnitBall, ballot_features
from tutelage.features.base import check_row_by_row
from tutelage.features.landmarks import _EXPLAINED, _LINEAR, _POWER, _SCALES, water_filling
from tutelage.features.rowwise import EXACT_FLOAT64, distance_levels


def public(n=300, columns=5, seed=0):
    rng = np.random.default_rng(seed)
    return PublicRows(rng.normal(size=(n, columns)) * np.arange(1, columns + 1), "made up")


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=12), st.floats(1e-4, 10))
def test_shares_are_those_of_reverse_water_filling(spread, variance):
    spread = np.array(spread)
    shares = water_filling(spread, variance)
    assert_allclose(shares.sum(), 1)
    assert np.all(shares >= 0)
    prior = _EXPLAINED * spread**_POWER / (spread**_POWER).sum()
    # The minimum of Σ 1/(1/τ² + h/v) on the simplex: equal gains where there is a share, smaller ones elsewhere.
    gain = 1 / (1 / prior + shares / variance)
    told = shares > 1e-9
    assert_allclose(gain[told], gain[told].max(), rtol=1e-6)
    assert np.all(gain[~told] <= gain[told].max() * (1 + 1e-6))


@pytest.mark.parametrize("noise", [1.0, 0.01])
def test_vectors_are_no_longer_than_one_whatever_the_row(noise):
    features = ballot_features(public(), noise=noise)
    rng = np.random.default_rng(1)
    for scale in (1e-9, 1, 1e9, 1e300):
        rows = features.transform(rng.normal(size=(50, 5)) * scale)
        assert np.linalg.norm(rows, axis=1).max() <= 1 + 1e-12


def test_a_row_has_the_same_vector_whatever_is_beside_it():
    rows = public()
    features: Any = ballot_features(rows, noise=0.01)
    check_row_by_row(features, rows.values)
    many = np.random.default_rng(2).normal(size=(1500, 5))
    alone = np.vstack([features.transform(many[i : i + 1]) for i in (0, 700, 1499)])
    assert np.array_equal(features.transform(many)[[0, 700, 1499]], alone)


def test_the_kernel_is_partly_nearness_and_partly_direction():
    rows = public()
    kernel = PublicKernel.learn(rows, 40)
    X, center = rows.values[:7], rows.values.mean(axis=0)
    landmarks = kernel.points * kernel.weights.step + kernel.center
    squared = ((X[:, None] - landmarks) ** 2).sum(axis=2)
    size = np.median(((landmarks - center) ** 2).sum(axis=1))
    near = np.mean([np.exp(-squared / (2 * (scale * kernel.distance) ** 2)) for scale in _SCALES], axis=0)
    direction = (X - center) @ (landmarks - center).T / size
    assert_allclose(kernel.transform(X), (1 - _LINEAR) * near + _LINEAR * direction, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("wrong", [{"noise": 0.0}, {"noise": np.nan}, {"noise": 1.0, "quantile": 1.5}])
def test_settings_that_mean_nothing_are_refused(wrong):
    with pytest.raises(InvalidParameterError):
        ballot_features(public(), **wrong)
    undeclared: Any = public().values
    with pytest.raises(InvalidParameterError, match="PublicRows"):
        ballot_features(undeclared, noise=0.1)
    with pytest.raises(InvalidParameterError):
        UnitBall(0.0).transform(np.ones((1, 2)))


EDGE = distance_levels(3, EXACT_FLOAT64)
SOUND: Any = {"center": np.zeros(3), "reach": 1.0, "points": np.full((2, 3), -EDGE), "distance": 1.0}


@pytest.mark.parametrize(("name", "value"), [
    *(("points", np.full((2, 3), value)) for value in (0.5, np.nan, EDGE + 1.0)),
    *(("points", np.ones(shape)) for shape in ((2, 4), 3)),
    *(("center", value) for value in (np.zeros((2, 3)), np.array([0, np.inf, 0]))),
    ("distance", 1e-200),
    ("reach", np.nan),
])  # fmt: skip
def test_a_kernel_takes_only_what_it_computes_exactly(name, value):
    sound = PublicKernel(**SOUND)
    assert sound.transform(np.ones((1, 3))).shape == (1, 2)
    with pytest.raises(InvalidParameterError):
        PublicKernel(**SOUND | {name: value})
    with pytest.raises(InvalidParameterError):
        sound.set_params(**{name: value}).transform(np.ones((1, 3)))


@pytest.mark.parametrize(
    ("size", "reach"), [(1e-310, 1.0), (1.0, 1e-320), (1e308, 1.0), (np.nan, 1.0), (1e-300, 1e-20)]
)
def test_a_projection_that_floats_do_not_hold_is_refused(size, reach):
    with pytest.raises(InvalidParameterError, match="projection must be finite"):
        PublicProjection(np.zeros(3), np.full((3, 2), size), reach).transform(np.ones((1, 3)))


@pytest.mark.rest
@given(arrays(np.float64, (5, 3), elements=st.floats(-1e60, 1e60)), st.floats(1e-60, 1e60))
def test_a_projection_of_any_size_gives_a_row_the_same_features_wherever_it_lies(directions, reach):
    directions = np.where(np.abs(directions) < 1e-60, 0, directions)
    rows = np.random.default_rng(0).normal(size=(9, 5)) * reach * 20
    transform = PublicProjection(np.zeros(5), directions, reach).transform
    whole = transform(rows)
    assert np.isfinite(whole).all()
    for order in (slice(None, None, -1), slice(1)):
        assert whole[order].tobytes() == transform(rows[order]).tobytes()
