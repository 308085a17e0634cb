"""Images as they are: arrays of height, width and channels."""

from math import cos, hypot, pi

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tutelage import PATEClassifier, SimulationNoise
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.features import EdgesAndLevels, PublicRows, image_features
from tutelage.students import load_student
from tutelage_reproductions.datasets import load_digits

pytestmark = pytest.mark.rest

DIGITS = load_digits()
PRIVATE, PUBLIC = (X.reshape(-1, 8, 8) for X in (DIGITS.X_train, DIGITS.X_test))
SHAPES = st.sampled_from([(5, 4), (4, 6, 1), (4, 5, 3)])


def histogram(image, cell, orientations=12):
    """Count gradient directions pixel by pixel."""
    height, width = image.shape
    rows, columns = round(height / cell), round(width / cell)
    counts = np.zeros((orientations, rows, columns))
    kernels = np.zeros((2, rows, columns, height, width))
    y, x = np.mgrid[:height, :width]
    for i in range(rows):
        for j in range(columns):
            middle_y, middle_x = (i + 0.5) * height / rows - 0.5, (j + 0.5) * width / columns - 0.5
            kernel = np.exp(
                -2 * ((y - middle_y) * rows / height) ** 2
                - 2 * ((x - middle_x) * columns / width) ** 2
            )
            kernels[0, i, j] = kernel / kernel.sum()
    for row in range(height):
        for column in range(width):
            across = (
                image[row, column + 1] - image[row, column - 1] if 0 < column < width - 1 else 0
            )
            down = image[row + 1, column] - image[row - 1, column] if 0 < row < height - 1 else 0
            for direction in range(orientations):
                angle = 2 * pi * direction / orientations
                along = across * cos(angle) + down * np.sin(angle)
                share = max(0.0, along - hypot(across, down) * cos(2 * pi / orientations))
                counts[direction] += share * kernels[0, :, :, row, column]
    return np.sqrt(counts / counts.sum()).ravel()


def fitted(X, X_public, **more):
    model = PATEClassifier(
        epsilon=8.0, classes=range(10), noise=SimulationNoise(0), random_state=0, **more
    )
    return model.fit(X, DIGITS.y_train, X_public=X_public)


@settings(max_examples=30)
@given(st.data())
def test_the_features_of_an_image_do_not_depend_on_others_in_any_bit(data):
    shape = data.draw(SHAPES)
    images = data.draw(hnp.arrays(np.float64, (7, *shape), elements=st.floats(-10, 300)))
    made = EdgesAndLevels(shape)
    whole = made.transform(images)
    assert (
        np.concatenate([made.transform(image[np.newaxis]) for image in images]).tobytes()
        == whole.tobytes()
    )
    assert made.transform(images.reshape(7, -1)).tobytes() == whole.tobytes()


def test_edges_are_of_the_mean_of_the_channels_and_levels_of_each():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (5, 8, 8, 3)).astype(np.uint8)
    found = EdgesAndLevels((8, 8, 3)).transform(images)
    edges = np.stack([histogram(np.rint(image), 4) for image in images.mean(axis=3)])
    assert np.allclose(found[:, :-192] ** 2, edges**2, atol=2e-4)
    pixels = images.reshape(5, 192).astype(float)
    assert np.allclose(found[:, -192:], pixels / np.linalg.norm(pixels, axis=1, keepdims=True))


FLAT = PublicRows(DIGITS.X_test, "flat")


@pytest.mark.parametrize(("public", "shape", "error", "message"), [
    (FLAT, None, InvalidParameterError, "must be the height and width of flattened"),
    (FLAT, (9, 9), InvalidDataError, r"\(rows, 81\)"),
    (PublicRows(np.zeros((9, 8, 8)), "black"), None, InvalidDataError, "not all black"),
    (PUBLIC, None, InvalidParameterError, "`X` of image_features must be PublicRows"),
])  # fmt: skip
def test_other_images_are_refused(public, shape, error, message):
    with pytest.raises(error, match=message):
        image_features(public, shape)


@pytest.mark.parametrize("shape", [8, (8, 8, 3, 1), (8.0, 8), (2, 8)])
def test_other_shapes_are_refused(shape):
    with pytest.raises(InvalidParameterError, match="`image_shape` of"):
        EdgesAndLevels(shape)


def test_images_go_in_and_labels_come_out(tmp_path):
    model = fitted(PRIVATE, PUBLIC)
    assert model.score(PUBLIC, DIGITS.y_test) > 0.85
    assert model.student_map_ is not None
    assert model.student_map_[0].image_shape == (8, 8)
    model.save(tmp_path / "results")
    loaded = load_student(tmp_path / "results" / "student.skops")
    for rows in (PUBLIC, DIGITS.X_test):
        assert np.array_equal(loaded.predict(rows), model.predict(PUBLIC))


def test_images_of_two_shapes_are_refused():
    for other in (PUBLIC.reshape(-1, 4, 16), DIGITS.X_test):
        with pytest.raises(
            InvalidDataError, match=r"Images must have shape.*in `X` and `X_public` alike"
        ):
            fitted(PRIVATE, other)
