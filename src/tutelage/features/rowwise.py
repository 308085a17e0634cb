"""Arithmetic in which the features of a row cannot depend on the other rows of a call, not even in the last bit.

A matrix product adds in an order that depends on where a row lies and how many there are. So the factors here are
whole numbers whose sums floats hold exactly, which any order of addition gives alike; all else is done element by
element, or along one row.
"""

from collections.abc import Callable
from contextlib import suppress
from math import ceil, isqrt, sqrt

import numpy as np
from numpy.typing import ArrayLike

from tutelage._internal.threads import on_all_cores
from tutelage._internal.typing import FloatArray, IntArray, Matrix
from tutelage.exceptions import InvalidDataError, InvalidParameterError

EXACT_FLOAT32 = 2**24  # the type holds all integers up to here
EXACT_FLOAT64 = 2**53
# Times _LARGEST_WEIGHTS this is 2^53, up to which float64 holds all integers.
_LARGEST_VALUE = 2**24
_LARGEST_WEIGHTS = 2**29
BEYOND_PUBLIC = 16  # times the largest public value: what lies further out is moved here
_CHUNK = 256  # rows that are worked on at once by one thread; no result depends on it


def in_chunks(
    function: Callable[[Matrix], Matrix],
    X: Matrix,
    at_once: int = _CHUNK,
) -> Matrix:
    """Return `function` of all rows of `X`, some hundreds at a time on all processors."""
    starts = range(0, max(len(X), 1), at_once)
    parts = on_all_cores(lambda start: function(X[start : start + at_once]), starts)
    results = np.empty(0)
    for start, part in zip(starts, parts, strict=True):
        if start == 0:
            results = np.empty((len(X), *part.shape[1:]), part.dtype)
        results[start : start + at_once] = part
    return results


def number_rows(
    X: ArrayLike,
    n_features: int,
    owner: str,
) -> Matrix:
    """Return `X` as an array if its rows have that number of columns."""
    rows = np.asarray(X)
    if rows.dtype == object:  # numbers from a table that had text in other columns
        with suppress(TypeError, ValueError):
            rows = rows.astype(np.float64)
    are_numbers = rows.dtype.kind in "buif"
    if rows.ndim != 2 or rows.shape[1] != n_features or not are_numbers:
        raise InvalidDataError(
            f"X of {owner} must be numbers of shape (rows, {n_features}). Got {rows.dtype} of shape {rows.shape}."
        )
    return rows


def finite_rows(
    X: ArrayLike,
    n_features: int,
    owner: str,
) -> Matrix:
    """Return `X` as an array if its rows are that number of finite numbers; raise InvalidDataError otherwise."""
    rows = number_rows(X, n_features, owner)
    if rows.dtype.kind == "f" and not np.isfinite(rows).all():
        raise InvalidDataError(
            f"X of {owner} must hold finite numbers. Fill the missing ones first."
        )
    return rows


def reach_of(X: Matrix, center: FloatArray) -> float:
    """Return the largest distance from `center` in any column; 1 where there is none."""
    return float(np.abs(X - center).max()) or 1.0


def on_grid(
    X: Matrix,
    center: FloatArray,
    step: float,
    limit: int,
) -> FloatArray:
    """Return X − center in whole steps, at most `limit` of them either way."""
    with np.errstate(over="ignore"):  # what is infinite is at the limit
        steps = (X - center) / step
    np.rint(steps, out=steps)
    return np.clip(steps, -limit, limit, out=steps)


def projection_in_steps(
    directions: FloatArray,
    reach: float,
) -> tuple[float, int, FloatArray, float]:
    """Return how rows are projected: in whole steps, at most so many either way, times whole weights, times a scale."""
    # directions, weights: (columns, features)
    step = reach * BEYOND_PUBLIC / _LARGEST_VALUE
    with np.errstate(all="ignore"):  # what does not come out finite is refused
        largest = np.abs(directions).sum(axis=0).max() or 1.0
        # Rounding adds some.
        unit = largest / (_LARGEST_WEIGHTS - len(directions))
        weights = np.rint(directions / unit)
        sums = np.abs(weights).sum(axis=0)
        units = (step, unit, step * unit)
        least = np.finfo(np.float64).smallest_normal
        are_normal = least <= min(units) and max(units) < np.inf
        # Otherwise products could be rounded, or floats hold a unit with fewer digits or not at all.
        if not are_normal or not sums.max() <= _LARGEST_WEIGHTS:
            raise InvalidParameterError(
                "Projection.matrix",
                "be finite and neither too large nor too small for exact 64-bit sums, and so must $reach",
                fix="Scale the columns to similar sizes.",
            )
    return step, _LARGEST_VALUE, weights, step * unit


def projector(
    center: FloatArray,
    directions: FloatArray,
    reach: float,
) -> Callable[[Matrix], Matrix]:
    """Return the function X ↦ (X − center) · directions to about six digits of `reach`."""
    step, limit, weights, scale = projection_in_steps(directions, reach)

    def project(X: Matrix) -> Matrix:
        return on_grid(X, center, step, limit) @ weights * scale

    return project


def distance_levels(n_features: int, exact: int) -> int:
    """Return the largest integer q such that squared distances between rows from −q to q stay within `exact`."""
    return isqrt(exact // (4 * n_features))


def squared_distances(X: Matrix, points: Matrix) -> Matrix:
    """Return the exact squared distances between rows of whole numbers within `distance_levels`."""
    # X: (rows, columns); points: (points, columns); distances: (rows, points)
    distances = X @ (-2 * points.T)
    distances += (points**2).sum(axis=1)
    distances += (X**2).sum(axis=1, keepdims=True)
    return distances


def nearest(
    points: Matrix,
    k: int,
) -> Callable[[Matrix], tuple[IntArray, Matrix]]:
    """Return the search for the `k` nearest of `points`: X ↦ indices and squared distances, in ascending order.

    The points stand in about √n groups. The k nearest lie in the k groups that come nearest, so that a partial sort
    sees few of all distances.
    """
    # points: (points, columns). Point i stands in group i mod n_groups.
    n_groups = max(ceil(sqrt(len(points))), k)
    depth = ceil(len(points) / n_groups)
    factors = np.zeros((points.shape[1], depth * n_groups), points.dtype)
    factors[:, : len(points)] = -2 * points.T
    squares = np.full(depth * n_groups, np.inf, points.dtype)  # no point stands there
    squares[: len(points)] = (points**2).sum(axis=1)

    def search(X: Matrix) -> tuple[IntArray, Matrix]:
        # X: (rows, columns); table: (rows, depth, groups); indices, distances: (rows, k)
        table = X @ factors
        table += squares
        table = table.reshape(len(X), depth, n_groups)
        nearest_in_group = table.min(axis=1)
        groups = np.argpartition(nearest_in_group, k - 1, axis=1)[:, None, :k]
        distances = np.take_along_axis(table, groups, axis=2)
        distances = distances.reshape(len(X), depth * k)
        indices = np.arange(depth)[:, None] * n_groups + groups
        indices = indices.reshape(len(X), depth * k)
        best = np.argpartition(distances, k - 1, axis=1)[:, :k]
        order = np.take_along_axis(distances, best, 1).argsort(axis=1, kind="stable")
        best = np.take_along_axis(best, order, 1)
        distances = np.take_along_axis(distances, best, 1)
        indices = np.take_along_axis(indices, best, 1)
        lengths = (X**2).sum(axis=1, keepdims=True)
        return indices, distances + lengths

    return search


def unit_rows(X: Matrix) -> Matrix:
    """Return the rows at length 1; rows of zeros stay."""
    lengths = np.sqrt((X * X).sum(axis=1, keepdims=True))
    return X / np.where(lengths > 0, lengths, 1)
