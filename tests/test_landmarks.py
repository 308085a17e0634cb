"""Features for ballots: bounded, of one row alone, and stretched where the noise allows it."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from tutelage.exceptions import InvalidParameterError
from tutelage.features import PublicRows, ballot_features
from tutelage.features.landmarks import _EXPLAINED, _POWER, _water_filling


def public(n=300, columns=5, seed=0):
    rng = np.random.default_rng(seed)
    return PublicRows(rng.normal(size=(n, columns)) * np.arange(1, columns + 1), "made up")


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=12), st.floats(1e-4, 10))
def test_shares_are_those_of_reverse_water_filling(spread, variance):
    spread = np.array(spread)
    shares = _water_filling(spread, variance)
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


def test_settings_that_mean_nothing_are_refused():
    undeclared: Any = public().values
    for rows, noise, quantile in (
        (public(), np.nan, 0.5),
        (public(), 1.0, 1.5),
        (undeclared, 1.0, 0.5),
    ):
        with pytest.raises(InvalidParameterError):
            ballot_features(rows, noise=noise, quantile=quantile)
