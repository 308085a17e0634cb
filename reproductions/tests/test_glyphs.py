"""Features of characters: strokes set upright, their directions, the metric of neighbors, and the walk among them."""

from functools import cache
from math import sqrt
from typing import Any

import numpy as np
import pytest
from scipy.ndimage import affine_transform
from scipy.spatial.distance import cdist
from sklearn.datasets import load_digits
from sklearn.neighbors import NearestNeighbors

from test_image_features import histogram
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.features import PublicRows, PublicScaling
from tutelage.features.base import check_row_by_row
from tutelage_reproductions.glyphs import (
    GlyphGradients,
    NeighborWhitening,
    PublicDiffusion,
    glyph_features,
    neighbor_covariance,
    upright,
)

DIGITS, LABELS = map(np.asarray, load_digits(return_X_y=True))
PUBLIC = PublicRows(DIGITS[:600], "the first 600 digits")
MAPS = {
    "gradients": lambda: GlyphGradients((8, 8), white=16, cell=2),
    "whitened": lambda: NeighborWhitening.learn(PUBLIC),
    "diffusion": lambda: PublicDiffusion.learn(PUBLIC, 8, n_neighbors=5),
    "glyphs": lambda: glyph_features(PUBLIC, (8, 8), cell=2, n_components=20),
}

made = cache(lambda name: MAPS[name]())


@pytest.mark.parametrize("name", MAPS)
def test_the_features_of_a_row_do_not_depend_on_the_others_in_any_bit(name):
    wild = np.random.default_rng(0).random((50, 64)) * 16
    X = np.concatenate(
        [
            DIGITS[600:1200],
            wild,
            [np.zeros(64), np.full(64, np.float64(1e300)), np.full(64, -1e300)],
        ]
    )
    whole, order = made(name).transform(X), np.random.default_rng(1).permutation(len(X))
    assert np.isfinite(whole).all()
    assert np.array_equal(made(name).transform(X[order]), whole[order])
    assert np.array_equal(
        np.concatenate([made(name).transform(row[np.newaxis]) for row in X[:40]]), whole[:40]
    )
    check_row_by_row(made(name), X)


def by_moments(image):
    """Deskew one image by its moments, through scipy's resampling."""
    height, width = image.shape
    y, x = np.mgrid[:height, :width]
    mass = image.sum()
    mean_y, mean_x = (image * y).sum() / mass, (image * x).sum() / mass
    spread = (image * (y - mean_y) ** 2).sum() / mass
    shear = (image * (y - mean_y) * (x - mean_x)).sum() / mass / spread if spread > 0.01 else 0.0
    matrix = np.array([[1, 0], [np.clip(shear, -1, 1), 1]])
    offset: Any = np.array([mean_y, mean_x]) - matrix @ [(height - 1) / 2, (width - 1) / 2]
    return affine_transform(image, matrix, offset, order=1, mode="grid-constant")


def glyph(shape, seed=0):
    """Return a slanted blurred stroke with some noise, in whole gray levels."""
    y, x = np.mgrid[: shape[0], : shape[1]]
    middle_y, middle_x = shape[0] * 0.4, shape[1] * 0.6
    stroke = np.exp(
        -((x - middle_x + 0.5 * (y - middle_y)) ** 2) / 3 - ((y - middle_y) * 3 / shape[0]) ** 4
    )
    return np.rint(255 * stroke * (0.5 + 0.5 * np.random.default_rng(seed).random(shape)))


@pytest.mark.parametrize("shape", [(28, 28), (8, 8), (12, 20), (20, 12), (5, 4)])
def test_deskewing_agrees_with_scipy(shape):
    images = np.stack([glyph(shape, seed) for seed in range(3)])
    for image, result in zip(images, upright(images.astype(np.float32)), strict=True):
        assert result == pytest.approx(by_moments(image), abs=1e-3)


@pytest.mark.parametrize("place", [(0, 0), (0, 27), (27, 27), (13, 3)])
def test_a_single_pixel_moves_to_the_middle(place):
    image = np.zeros((1, 28, 28), np.float32)
    image[0][place] = 200
    (result,) = upright(image)
    assert result[13:15, 13:15] == pytest.approx(np.full((2, 2), 50))
    assert result.sum() == pytest.approx(200)


@pytest.mark.parametrize(("shape", "cell"), [((28, 28), 4), ((8, 8), 2), ((9, 14), 4)])
def test_gradients_agree_with_counting_pixel_by_pixel(shape, cell):
    image = glyph(shape)
    found = GlyphGradients(shape, cell=cell).transform(image.reshape(1, -1))[0]
    assert found**2 == pytest.approx(histogram(by_moments(image), cell) ** 2, abs=2e-4)
    assert np.array_equal(
        GlyphGradients(shape, white=1.0, cell=cell).transform(image[np.newaxis] / 255)[0], found
    )


def accuracy(features):
    """Return how often the nearest of class means, learned from 60 digits, is right on the last 597."""
    known, queries = features.transform(DIGITS[600:660]), features.transform(DIGITS[1200:])
    means = np.stack([known[LABELS[600:660] == label].mean(axis=0) for label in range(10)])
    return np.mean(cdist(queries, means).argmin(axis=1) == LABELS[1200:])


def test_nearest_class_means_do_better_on_the_recipe_than_on_pixels():
    pixels = accuracy(PublicScaling(np.zeros(64), np.full(64, 16)))
    recipe = accuracy(glyph_features(PUBLIC, (8, 8), cell=2))
    assert max(0.9, pixels) < recipe


def test_whitening_makes_the_covariance_of_neighbors_the_identity():
    covariance = neighbor_covariance(PUBLIC, n_neighbors=5, shrinkage=0.3)
    directions = NeighborWhitening.learn(PUBLIC, n_neighbors=5, shrinkage=0.3).directions
    assert directions.T @ covariance @ directions == pytest.approx(np.eye(64), abs=1e-9)


def test_the_covariance_of_neighbors_is_that_of_their_differences():
    rows = np.random.default_rng(5).random((80, 3))
    _, found = NearestNeighbors(n_neighbors=5).fit(rows).kneighbors(rows)
    differences = np.concatenate([rows - rows[found[:, rank]] for rank in range(1, 5)])
    expected = differences.T @ differences / len(differences) / 2
    result = neighbor_covariance(PublicRows(rows, "random"), n_neighbors=4, shrinkage=0.1)
    assert result == pytest.approx(expected + 0.1 * np.trace(expected) / 3 * np.eye(3), rel=1e-3)


def walk_by_hand(rows, k, n_modes, n_steps):
    """Return the diffusion map of a few rows from dense matrices."""
    squares = cdist(rows, rows, "sqeuclidean")
    order = np.argsort(squares, axis=1)[:, 1:]
    graph = np.zeros_like(squares)
    for row, others in enumerate(order):
        near = squares[row, others]
        weights = np.maximum(1 - near[:k] / near[k], 1e-6)
        graph[row, others[:k]] = weights / weights.sum()
    graph = graph + graph.T
    degrees = graph.sum(axis=1)
    values, vectors = np.linalg.eigh(graph / np.sqrt(np.outer(degrees, degrees)))
    modes = (vectors / np.sqrt(degrees / degrees.sum())[:, np.newaxis])[:, ::-1][:, 1 : n_modes + 1]
    return modes * values[::-1][1 : n_modes + 1] ** n_steps


def test_diffusion_is_the_spectrum_of_a_random_walk_and_places_rows_among_their_neighbors():
    rows, query = np.split(np.random.default_rng(6).random((90, 3)), [80])
    diffusion = PublicDiffusion.learn(PublicRows(rows, "random"), 4, n_neighbors=6, n_steps=3)
    places = walk_by_hand(rows, 6, 4, 3)
    assert diffusion.places @ diffusion.places.T == pytest.approx(
        places @ places.T, rel=0.02, abs=0.05
    )
    squares = cdist(query, rows, "sqeuclidean")
    for row, result in zip(squares, diffusion.transform(query), strict=True):
        *near, furthest = np.argsort(row)[:7]
        place = ((1 - row[near] / row[furthest])[:, np.newaxis] * diffusion.places[near]).sum(
            axis=0
        )
        assert result == pytest.approx(place / sqrt(place @ place), abs=0.02)


@pytest.mark.parametrize(
    ("error", "message", "learn"),
    [
        (
            InvalidParameterError,
            "`n_components` of .* must be",
            lambda it: PublicDiffusion.learn(it, 9, n_neighbors=2),
        ),
        (
            InvalidParameterError,
            "`n_neighbors` of .* must be",
            lambda it: PublicDiffusion.learn(it, 2, n_neighbors=9),
        ),
        (
            InvalidParameterError,
            "`n_neighbors` of .* must be",
            lambda it: neighbor_covariance(it, n_neighbors=10),
        ),
        (InvalidParameterError, "must be PublicRows", lambda it: glyph_features(it.values, (8, 8))),
        (
            InvalidDataError,
            "must not all be blank",
            lambda it: glyph_features(PublicRows(0 * it.values, ""), (8, 8)),
        ),
        (
            InvalidDataError,
            "Fill the missing",
            lambda it: GlyphGradients((8, 8)).transform(it.values * np.nan),
        ),
        (
            InvalidParameterError,
            "`cell` of GlyphGradients must be",
            lambda _: GlyphGradients(cell=33),
        ),
    ],
)
def test_more_than_public_rows_can_tell_is_refused(error, message, learn):
    with pytest.raises(error, match=message):
        learn(PublicRows(DIGITS[:10], "ten digits"))
