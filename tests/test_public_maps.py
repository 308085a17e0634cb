"""Claim 8 of docs/proofs/ballots.md: an accepted map takes each row by itself, and makes vectors of length one."""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.pipeline import Pipeline, make_pipeline

from tutelage._internal.typing import FloatArray
from tutelage.exceptions import InvalidParameterError
from tutelage.features import (
    PublicKernel,
    PublicProjection,
    PublicScaling,
    UnitBall,
    landmarks,
    rowwise,
)
from tutelage.features.stored import map_from_bytes, map_to_bytes

ROWS = 515  # more than are worked on at once


def accepted(*steps) -> Pipeline:
    """Return the map of these steps, as a fit makes it of what its ledger keeps."""
    return map_from_bytes(map_to_bytes(make_pipeline(*steps)))


def levels_of(columns: int) -> int:
    return rowwise.distance_levels(columns, landmarks.EXACT_FLOAT64)


def map_from(seed: int, columns: int, sizes: tuple[float, float, float]) -> Pipeline:
    """Return an accepted map whose whole numbers come as near to their limits as they may."""
    rng, levels = np.random.default_rng(seed), levels_of(columns)
    points = rng.integers(-levels, levels + 1, (7, columns))
    points[0], points[1] = levels, -levels
    scaling, direction, reach = sizes
    return accepted(
        PublicScaling(rng.normal(size=columns), np.abs(rng.normal(size=columns)) * scaling),
        PublicKernel(rng.normal(size=columns), 3.0, points.astype(float), 2.0),
        PublicProjection(rng.normal(size=7), np.abs(rng.normal(size=(7, 5))) * direction, reach),
        UnitBall(direction, 0.3),
    )


def rows_from(seed: int, columns: int) -> FloatArray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(ROWS, columns)) * rng.choice([1e-300, 1e-3, 1, 30, 1e300], (ROWS, 1))


def exact(numbers: FloatArray) -> Any:
    """Return whole numbers as integers of Python, of which no sum is rounded."""
    return numbers.astype(int).astype(object)


def whole(rows: FloatArray, center: FloatArray, step: float, limit: int) -> Any:
    """Return rows in whole steps from a center, as integers of Python."""
    with np.errstate(over="ignore"):
        return exact(np.clip(np.rint((rows - center) / step), -limit, limit))


def likeness(made: Pipeline, X: FloatArray) -> FloatArray:
    """Return how alike rows are to landmarks by the formulas of the proof, with its whole numbers as Python's."""
    scaling, kernel = made.steps[0][1], made.steps[1][1]
    levels = levels_of(X.shape[1])
    step = kernel.reach / levels
    z = whole(scaling.transform(X), kernel.center, step, levels)
    p = exact(kernel.points)
    inner, of_points = z.dot(p.T), (p * p).sum(axis=1)
    distances = (z * z).sum(axis=1)[:, np.newaxis] + of_points - 2 * inner
    size = max(float(np.median(of_points.astype(float))), 1.0)
    wide = np.exp(distances.astype(float) / (-2 * (2.0 * kernel.distance / step) ** 2))
    return 0.25 * ((wide * wide) ** 2 + wide) + inner.astype(float) * (0.5 / size)


def vectors(made: Pipeline, alike: FloatArray) -> FloatArray:
    """Return what the last two steps make of it, row by row, with whole numbers as Python's."""
    projection, ball = made.steps[2][1], made.steps[3][1]
    step = projection.reach * 16 / 2**24
    unit = np.abs(projection.directions).sum(axis=0).max() / (
        rowwise._LARGEST_WEIGHTS - len(projection.directions)
    )
    weights = exact(np.rint(projection.directions / unit))
    sums = whole(alike, projection.center, step, 2**24).dot(weights).astype(float)
    return np.vstack([ball.transform(row[np.newaxis]) for row in sums * (step * unit)])


@settings(max_examples=15)
@given(
    st.integers(0, 10**6),
    st.integers(1, 40),
    st.tuples(*[st.sampled_from([1e-50, 0.03, 1.0, 1e50])] * 3),
)
def test_an_accepted_map_makes_of_each_row_what_exact_arithmetic_makes_of_it_alone(
    seed, columns, sizes
):
    made, X = map_from(seed, columns, sizes), rows_from(seed, columns)
    alike, found = made[:2].transform(X), made.transform(X)
    assert np.isfinite(found).all()
    np.testing.assert_array_equal(alike, likeness(made, X))
    # Two zeros are equal, whatever their signs: nothing that follows tells them apart.
    np.testing.assert_array_equal(found, vectors(made, alike))


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(1, 300), st.integers(-60, 60), st.floats(1e-60, 1e3))
def test_a_vector_is_no_longer_than_one_up_to_rounding(seed, features, power, constant):
    rng = np.random.default_rng(seed)
    ball = UnitBall(10.0**power, constant)
    rows = (
        rng.normal(size=(6, features))
        * ball.radius
        * np.array([[1e-130], [1e-3], [0.1], [1], [3], [1e60]])
    )
    rows[3] /= np.linalg.norm(rows[3] / ball.radius)
    for vector in ball.transform(rows).tolist():
        squared = sum(Fraction(number) ** 2 for number in vector)
        assert squared <= (1 + Fraction(features + 8, 2**53)) ** 2


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(1, 70))
def test_an_exponential_does_not_depend_on_the_numbers_beside_it(seed, count):
    """The one assumption of the proof on what is not exact."""
    rng = np.random.default_rng(seed)
    numbers = -rng.random(count) * rng.choice([1, 700, 745])
    found = np.exp(numbers)
    others = np.where(
        rng.random(count) < 0.5, numbers, rng.choice([-1e300, -745.0, -708.5, -5e-324, 0.0], count)
    )
    np.testing.assert_array_equal(np.exp(others)[others == numbers], found[others == numbers])
    np.testing.assert_array_equal([np.exp(numbers[i:])[0] for i in range(count)], found)


def steps_of() -> tuple[Any, ...]:
    return tuple(step for _, step in map_from(0, 3, (1.0, 1.0, 1.0)).steps)


def unsound_maps() -> Iterator[tuple[Any, ...]]:
    scaling, kernel, projection, ball = steps_of()
    points, directions = kernel.points, projection.directions
    wrong = {  # values of one parameter of a map
        (0, "center"): [np.zeros((ROWS, 3)), np.full(3, np.nan)],
        (1, "points"): [points + 0.3, points + 1, points[:, :2]],  # off the grid, and beyond it
        (1, "distance"): [1e-200, -1.0],
        (1, "reach"): [5e-324, 1e300],
        (2, "center"): [np.zeros((ROWS, 7))],
        (2, "directions"): [directions * 1e-310, directions * 1e200, directions[:2]],
        (3, "radius"): [1e-320],
        (3, "constant"): [1e200],
    }
    for (place, name), values in wrong.items():
        for value in values:
            steps = steps_of()
            setattr(steps[place], name, value)
            yield steps
    yield kernel, projection
    yield projection, kernel, ball
    yield kernel, projection, projection, ball
    yield kernel, scaling, projection, ball


@pytest.mark.parametrize("steps", list(unsound_maps()))
def test_an_unsound_map_is_never_applied(steps):
    assert len(accepted(*steps_of()[1:])) == 3  # and one without a scaling is
    with pytest.raises((ValueError, KeyError, InvalidParameterError)):
        accepted(*steps)
