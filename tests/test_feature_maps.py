from functools import cache
from math import cos, hypot, pi, sqrt
from typing import Any

import numpy as np
import pytest
import skops.io
from scipy.ndimage import affine_transform
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import make_pipeline

from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.features import (
    DeskewedImages,
    GlyphGradients,
    NeighborWhitening,
    PublicDiffusion,
    PublicPCA,
    PublicRows,
    PublicScaling,
    PublicSteps,
    glyph_features,
    neighbor_covariance,
    rowwise,
)

DIGITS, LABELS = map(np.asarray, load_digits(return_X_y=True))
PUBLIC = PublicRows(DIGITS[:600], "the first 600 digits")
NOISE = np.random.default_rng(0).random((50, 8 * 8)) * 16
MAPS = {
    "scaled": lambda: PublicScaling.learn(PUBLIC),
    "deskewed": lambda: DeskewedImages((8, 8), white=16),
    "gradients": lambda: GlyphGradients((8, 8), white=16, cell=2),
    "steps": lambda: PublicSteps.learn(PUBLIC, 40),
    "pca": lambda: PublicPCA.learn(PUBLIC, 20),
    "whitened": lambda: NeighborWhitening.learn(PUBLIC),
    "diffusion": lambda: PublicDiffusion.learn(PUBLIC, 8, n_neighbors=5),
    "glyphs": lambda: glyph_features(PUBLIC, (8, 8), cell=2, n_components=20),
}
LEARNERS = {
    "PublicSteps": lambda rows: PublicSteps.learn(rows, 40),
    "PublicPCA": lambda rows: PublicPCA.learn(rows, 2),
    "neighbor_covariance": neighbor_covariance,
    "PublicDiffusion": lambda rows: PublicDiffusion.learn(rows, 2, n_neighbors=2),
    "glyph_features": lambda rows: glyph_features(rows, (8, 8), n_components=2),
}


made = cache(lambda name: MAPS[name]())


@pytest.fixture(params=MAPS)
def feature_map(request):
    return made(request.param)


# What one row can reach


def test_the_features_of_a_row_do_not_depend_on_the_others_in_any_bit(feature_map, monkeypatch):
    X = np.concatenate([DIGITS[600:1200], NOISE])
    whole = feature_map.transform(X)
    order = np.random.default_rng(1).permutation(len(X))
    assert np.array_equal(feature_map.transform(X[order]), whole[order])
    assert np.array_equal(feature_map.transform(np.delete(X, 3, axis=0)), np.delete(whole, 3, axis=0))
    changed = X.copy()
    changed[3] = 0
    assert np.array_equal(np.delete(feature_map.transform(changed), 3, axis=0), np.delete(whole, 3, axis=0))
    assert np.array_equal(np.concatenate([feature_map.transform(row[np.newaxis]) for row in X[:40]]), whole[:40])
    monkeypatch.setattr(rowwise, "_CHUNK", 7)
    assert np.array_equal(feature_map.transform(X), whole)


def test_a_fit_learns_nothing(feature_map):
    before = feature_map.transform(DIGITS[:20])
    feature_map.fit(DIGITS[:300] * 0.5, LABELS[:300])
    assert np.array_equal(feature_map.transform(DIGITS[:20]), before)


def test_clones_pipelines_and_files_keep_what_was_learned(feature_map):
    before = feature_map.transform(DIGITS[:20])
    stored = skops.io.dumps(feature_map)
    types = skops.io.get_untrusted_types(data=stored)
    assert all(name.startswith("tutelage.features.") for name in types)
    for copy in (clone(feature_map), make_pipeline(feature_map), skops.io.loads(stored, trusted=types)):
        assert np.array_equal(copy.transform(DIGITS[:20]), before)


def test_no_rows_have_no_features(feature_map):
    assert feature_map.transform(DIGITS[:0]).shape == (0, feature_map.transform(DIGITS[:1]).shape[1])


def test_rows_of_another_width_are_refused(feature_map):
    with pytest.raises(InvalidDataError, match=r"\(rows, 64\).* Got .*shape \(5, 63\)"):
        feature_map.transform(DIGITS[:5, :63])


@pytest.mark.parametrize("name", LEARNERS)
def test_nothing_is_learned_from_rows_that_nobody_declared_public(name):
    with pytest.raises(InvalidParameterError, match=f"{name} is learned from public rows only"):
        LEARNERS[name](DIGITS)


@pytest.mark.parametrize("name", sorted(LEARNERS.keys() - {"PublicSteps"}))
def test_missing_public_numbers_are_refused(name):
    rows = DIGITS[:50].copy()
    rows[7, 20] = np.nan
    with pytest.raises(InvalidDataError, match=f"X of {name}.* must hold finite numbers"):
        LEARNERS[name](PublicRows(rows, "digits with a hole"))


def test_steps_are_learned_from_the_numbers_that_are_there():
    holed = np.array([[np.nan, 7.0], [1.0, np.nan], [2.0, np.nan], [3.0, np.nan]])
    steps = PublicSteps.learn(PublicRows(holed, "holed"), 2, n_steps=3)
    assert steps.transform([[np.nan, np.nan], [0.0, 7.0], [3.0, 8.0]]).sum(axis=1).tolist() == [0, 1, 4]
    empty = PublicSteps.learn(PublicRows(np.full((3, 1), np.nan), "empty"), 1)
    assert empty.transform([[1.0], [np.nan]]).shape == (2, 0)
    with pytest.raises(InvalidDataError, match="no infinite number"):
        PublicSteps.learn(PublicRows(np.array([[np.inf], [1.0]]), "infinite"), 1)


@pytest.mark.parametrize("name", ["deskewed", "gradients", "pca", "whitened", "diffusion"])
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
    assert PublicSteps.learn(PublicRows(np.ones((3, 1)), "one value"), 1).transform([[0], [1]]).tolist() == [[0], [1]]
    with pytest.raises(InvalidDataError, match=r"categories of PublicSteps\.learn must be whole numbers"):
        PublicSteps.learn(PublicRows(public / 2, "halves"), 2)
    with pytest.raises(
        InvalidParameterError, match=r"`n_numbers` of PublicSteps must be at most the 3 columns\. Got 4"
    ):
        PublicSteps.learn(PublicRows(public, "four rows"), 4)


@pytest.mark.parametrize(
    "values",
    [
        np.arange(17, 91),
        [0.1, 0.3],
        np.round(np.random.default_rng(0).random(200) * 100, 2),
        np.random.default_rng(1).standard_normal(200),
        [0] * 9 + [114, 2174, 99999],
        [5.0],
        [1e17, 2e17, 3e17],
        [-1e308, 0, 1e308],
        [1e-300, 2e-300],
    ],
)
def test_no_step_stands_on_a_value_of_the_rows(values):
    column = np.array(values, dtype=float)
    steps = PublicSteps.learn(PublicRows(column[:, np.newaxis], "one column"), 1)
    digits = next((some for some in range(10) if np.array_equal(np.round(column, some), column)), None)
    for step in steps.steps[0]:
        assert not np.any(np.isclose(column / 4, step / 4, rtol=1e-12, atol=0))
        if digits is not None and abs(step) < 1e14:  # nor on one that has as many digits as the public ones
            assert not np.isclose(step, np.round(step, digits), rtol=1e-12, atol=0)
    for nudged in (np.nextafter(column, -np.inf), np.nextafter(column, np.inf)):
        assert np.array_equal(steps.transform(nudged[:, np.newaxis]), steps.transform(column[:, np.newaxis]))


def test_categories_of_very_few_rows_get_no_column():
    codes = np.repeat([0.0, 1.0, 2.0, 3.0], [1970, 10, 11, 9])[:, np.newaxis]
    assert PublicSteps.learn(PublicRows(codes, "2,000 rows"), 0).categories[0].tolist() == [0, 1, 2]
    few = np.repeat([0.0, 1.0, 2.0], [297, 2, 3])[:, np.newaxis]  # 3.02 rows are a hundredth
    assert PublicSteps.learn(PublicRows(few, "302 rows"), 0).categories[0].tolist() == [0]
    assert PublicSteps.learn(PublicRows(few[2:], "300 rows"), 0).categories[0].tolist() == [0, 2]


def test_public_rows_stay_public_through_a_map():
    rows = PUBLIC.through(PublicScaling(np.zeros(64), np.full(64, 16)))
    assert isinstance(rows, PublicRows)
    assert rows.source == PUBLIC.source
    assert np.array_equal(rows.values, PUBLIC.values / 16)


# Images of characters


def upright(image):
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


def histogram(image, orientations, cell):
    """Count gradient directions pixel by pixel."""
    height, width = image.shape
    rows, columns = round(height / cell), round(width / cell)
    counts = np.zeros((orientations, rows, columns))
    kernels = np.zeros((2, rows, columns, height, width))
    y, x = np.mgrid[:height, :width]
    for i in range(rows):
        for j in range(columns):
            middle_y, middle_x = (i + 0.5) * height / rows - 0.5, (j + 0.5) * width / columns - 0.5
            kernel = np.exp(-2 * ((y - middle_y) * rows / height) ** 2 - 2 * ((x - middle_x) * columns / width) ** 2)
            kernels[0, i, j] = kernel / kernel.sum()
    for row in range(height):
        for column in range(width):
            across = image[row, column + 1] - image[row, column - 1] if 0 < column < width - 1 else 0
            down = image[row + 1, column] - image[row - 1, column] if 0 < row < height - 1 else 0
            for direction in range(orientations):
                angle = 2 * pi * direction / orientations
                along = across * cos(angle) + down * np.sin(angle)
                share = max(0.0, along - hypot(across, down) * cos(2 * pi / orientations))
                counts[direction] += share * kernels[0, :, :, row, column]
    return np.sqrt(counts / counts.sum()).ravel()


def glyph(shape, seed=0):
    """Return a slanted blurred stroke with some noise, in whole grey levels."""
    y, x = np.mgrid[: shape[0], : shape[1]]
    middle_y, middle_x = shape[0] * 0.4, shape[1] * 0.6
    stroke = np.exp(-((x - middle_x + 0.5 * (y - middle_y)) ** 2) / 3 - ((y - middle_y) * 3 / shape[0]) ** 4)
    return np.rint(255 * stroke * (0.5 + 0.5 * np.random.default_rng(seed).random(shape)))


@pytest.mark.parametrize("shape", [(28, 28), (8, 8), (12, 20), (20, 12), (5, 4)])
def test_deskewing_agrees_with_scipy(shape):
    images = np.stack([glyph(shape, seed) for seed in range(3)])
    results = DeskewedImages(shape).transform(images.reshape(3, -1)).reshape(images.shape)
    for image, result in zip(images, results, strict=True):
        assert result == pytest.approx(upright(image), abs=1e-3)


@pytest.mark.parametrize("seed", [0, 1])
def test_ink_is_centred_and_stands_upright(seed):
    result = DeskewedImages((28, 28)).transform(glyph((28, 28), seed).reshape(1, -1)).reshape(28, 28)
    y, x = np.mgrid[:28, :28] - 13.5
    mass = result.sum()
    assert (result * y).sum() / mass == pytest.approx(0, abs=0.1)
    assert (result * x).sum() / mass == pytest.approx(0, abs=0.1)
    assert (result * x * y).sum() / (result * y * y).sum() == pytest.approx(0, abs=0.02)


@pytest.mark.parametrize("place", [(0, 0), (0, 27), (27, 0), (27, 27), (13, 3)])
def test_a_single_pixel_moves_to_the_middle(place):
    image = np.zeros((28, 28))
    image[place] = 200
    result = DeskewedImages().transform(image.reshape(1, -1)).reshape(28, 28)
    assert result[13:15, 13:15] == pytest.approx(np.full((2, 2), 50))
    assert result.sum() == pytest.approx(200)


@pytest.mark.parametrize(
    ("shape", "orientations", "cell", "deskew"),
    [((28, 28), 12, 4, True), ((28, 28), 8, 7, False), ((8, 8), 12, 2, True), ((9, 14), 4, 4, False)],
)
def test_gradients_agree_with_counting_pixel_by_pixel(shape, orientations, cell, deskew):
    image = glyph(shape)
    gradients = GlyphGradients(shape, orientations=orientations, cell=cell, deskew=deskew)
    expected = histogram(upright(image) if deskew else image, orientations, cell)
    assert gradients.transform(image.reshape(1, -1))[0] ** 2 == pytest.approx(expected**2, abs=2e-4)


def test_gradients_have_length_one_and_do_not_depend_on_the_scale_of_grey():
    rows = np.stack([glyph((28, 28), seed).ravel() for seed in range(3)])
    features = GlyphGradients().transform(rows)
    assert np.linalg.norm(features, axis=1) == pytest.approx(np.ones(3))
    assert np.array_equal(GlyphGradients().transform(rows.astype(np.uint8)), features)
    assert np.array_equal(GlyphGradients(white=1.0).transform(rows / 255), features)


def test_the_brightest_image_stays_exact():
    checks = np.indices((28, 28)).sum(axis=0) // 2 % 2 * 255
    gradients = GlyphGradients(cell=28, deskew=False)
    assert np.linalg.norm(gradients.transform(checks.reshape(1, -1))) == pytest.approx(1)


@pytest.mark.parametrize("level", [0, 255])
def test_an_image_without_edges_has_finite_features(level):
    rows = np.full((3, 784), level, dtype=np.uint8)
    assert np.array_equal(GlyphGradients(deskew=False).transform(rows), np.zeros((3, 12 * 49)))
    assert np.isfinite(GlyphGradients().transform(rows)).all()
    assert np.array_equal(DeskewedImages().transform(rows), rows)


def test_blank_and_wild_images_go_through_the_whole_recipe():
    rows = np.stack([np.zeros(64), np.full(64, 16), np.full(64, np.inf), np.full(64, -1e300)])
    assert np.isfinite(made("glyphs").transform(rows)).all()


@pytest.mark.parametrize("shape", [28, (28,), (28, 28, 1), (28, 3), (28.0, 28)])
def test_what_is_no_shape_of_an_image_is_refused(shape):
    for kind in (DeskewedImages, GlyphGradients):
        with pytest.raises(InvalidParameterError, match=f"`image_shape` of {kind.__name__} must be"):
            kind(shape)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("white", 0),
        ("white", np.nan),
        ("white", "255"),
        ("orientations", 7),
        ("orientations", 2),
        ("cell", 0),
        ("cell", 33),
    ],
)
def test_other_parameters_of_gradients_out_of_range_are_refused(name, value):
    with pytest.raises(InvalidParameterError, match=f"`{name}` of GlyphGradients must be"):
        GlyphGradients(**{name: value})


def accuracy(features):
    """Return how often the nearest of class means, learned from 60 digits, is right on the last 597."""
    known, queries = features.transform(DIGITS[600:660]), features.transform(DIGITS[1200:])
    means = np.stack([known[LABELS[600:660] == label].mean(axis=0) for label in range(10)])
    return np.mean(cdist(queries, means).argmin(axis=1) == LABELS[1200:])


def test_nearest_class_means_do_better_on_gradients_than_on_pixels_and_best_on_the_recipe():
    pixels = accuracy(PublicScaling(np.zeros(64), np.full(64, 16)))
    gradients = accuracy(GlyphGradients((8, 8), white=16, cell=2, deskew=False))
    recipe = accuracy(glyph_features(PublicRows(DIGITS[:600], "digits"), (8, 8), cell=2))
    assert pixels < gradients < recipe
    assert recipe > 0.9


# Learned maps


def signs(one, other):
    return np.sign((one * other).sum(axis=0))


@pytest.mark.parametrize("whiten", [False, True])
def test_principal_axes_are_those_of_scikit_learn(whiten):
    expected = PCA(10, whiten=whiten, svd_solver="full").fit(DIGITS).transform(DIGITS)
    result = PublicPCA.learn(PublicRows(DIGITS, "all digits"), 10, whiten=whiten).transform(DIGITS)
    assert result * signs(result, expected) == pytest.approx(expected, abs=1e-4)


def test_axes_without_variance_are_zero_when_whitened():
    flat = np.column_stack([DIGITS[:100, 20], np.ones((100, 3))])
    result = PublicPCA.learn(PublicRows(flat, "flat"), 3, whiten=True).transform(flat)
    assert np.abs(result).max() < 10


def test_private_outliers_go_no_further_than_sixteen_times_the_public_range():
    pca = PublicPCA.learn(PublicRows(np.array([[-1.0, 0], [1, 0]]), "two points"), 1)
    assert np.abs(pca.transform([[1e300, 0]])) == pytest.approx(np.array([[16]]))


def test_whitening_makes_the_covariance_of_neighbors_the_identity():
    covariance = neighbor_covariance(PUBLIC, n_neighbors=5, shrinkage=0.3).matrix
    directions = NeighborWhitening.learn(PUBLIC, n_neighbors=5, shrinkage=0.3).directions
    assert directions.T @ covariance @ directions == pytest.approx(np.eye(64), abs=1e-9)


def test_the_covariance_of_neighbors_is_that_of_their_differences():
    rows = np.random.default_rng(5).random((80, 3))
    _, found = NearestNeighbors(n_neighbors=5).fit(rows).kneighbors(rows)
    differences = np.concatenate([rows - rows[found[:, rank]] for rank in range(1, 5)])
    expected = differences.T @ differences / len(differences) / 2
    result = neighbor_covariance(PublicRows(rows, "random"), n_neighbors=4, shrinkage=0.1).matrix
    assert result == pytest.approx(expected + 0.1 * np.trace(expected) / 3 * np.eye(3), rel=1e-3)


def test_neighbors_tell_the_spread_within_classes_without_labels():
    rng = np.random.default_rng(3)
    classes = rng.integers(0, 2, 400)
    rows = rng.random((400, 2)) * [1, 4] + classes[:, np.newaxis] * [30, 0]
    across, along = np.diag(neighbor_covariance(PublicRows(rows, "two bars"), n_neighbors=100, shrinkage=1e-9).matrix)
    assert 0.5 / 12 < across < 1 / 12 < along < 16 / 12
    assert rows[:, 0].var() > 200


def test_the_nearest_points_are_those_of_a_full_search():
    rng = np.random.default_rng(8)
    points, rows = (rng.integers(-40, 40, (count, 6)).astype(np.float32) for count in (501, 70))
    expected = np.sort(cdist(rows, points, "sqeuclidean"), axis=1)
    for k in (1, 9, 23, 24, 500):
        indices, distances = rowwise.nearest(points, k)(rows)
        assert np.array_equal(distances, expected[:, :k])
        assert np.array_equal(((rows[:, np.newaxis] - points[indices]) ** 2).sum(axis=2), distances)
        assert all(len(set(row)) == k for row in indices.tolist())


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
    assert diffusion.places @ diffusion.places.T == pytest.approx(places @ places.T, rel=0.02, abs=0.05)
    squares = cdist(query, rows, "sqeuclidean")
    for row, result in zip(squares, diffusion.transform(query), strict=True):
        *near, furthest = np.argsort(row)[:7]
        place = ((1 - row[near] / row[furthest])[:, np.newaxis] * diffusion.places[near]).sum(axis=0)
        assert result == pytest.approx(place / sqrt(place @ place), abs=0.02)


def test_diffusion_gathers_separate_groups():
    rng = np.random.default_rng(2)
    rows = rng.random((180, 2)) + np.repeat([[0, 0], [50, 50], [50, 0]], 60, axis=0)
    places = PublicDiffusion.learn(PublicRows(rows, "three squares"), 2, n_neighbors=5).transform(rows)
    groups = places.reshape(3, 60, 2)
    assert groups.std(axis=1).max() < 1e-3
    assert cdist(groups[:, 0], groups[:, 0])[np.triu_indices(3, 1)].min() > 0.5


def test_public_rows_that_coincide_can_be_learned_from():
    rows = np.repeat(DIGITS[:20], 10, axis=0)
    assert np.isfinite(PublicDiffusion.learn(PublicRows(rows, "repeated"), 5).transform(rows)).all()
    with pytest.raises(InvalidDataError, match="must differ from their neighbors"):
        neighbor_covariance(PublicRows(rows, "repeated"), n_neighbors=5)


def test_learning_twice_gives_the_same_map():
    for name in ("pca", "glyphs"):
        assert MAPS[name]().transform(DIGITS[:50]) == pytest.approx(made(name).transform(DIGITS[:50]), abs=1e-6)


@pytest.mark.parametrize(
    ("name", "learn"),
    [
        ("n_components", lambda rows: PublicPCA.learn(rows, 11)),
        ("n_components", lambda rows: PublicPCA.learn(rows, 0)),
        ("n_components", lambda rows: PublicDiffusion.learn(rows, 9, n_neighbors=2)),
        ("n_neighbors", lambda rows: PublicDiffusion.learn(rows, 2, n_neighbors=9)),
        ("n_steps", lambda rows: PublicDiffusion.learn(rows, 2, n_neighbors=2, n_steps=-1)),
        ("n_neighbors", lambda rows: neighbor_covariance(rows, n_neighbors=10)),
        ("shrinkage", lambda rows: neighbor_covariance(rows, n_neighbors=2, shrinkage=0)),
    ],
)
def test_more_than_public_rows_can_tell_is_refused(name, learn):
    with pytest.raises(InvalidParameterError, match=f"`{name}` of .* must be"):
        learn(PublicRows(DIGITS[:10], "ten digits"))


def test_blank_public_images_are_refused():
    with pytest.raises(InvalidDataError, match="must not all be blank"):
        glyph_features(PublicRows(np.zeros((100, 64)), "blank"), (8, 8))
