"""Fixed features of small gray images of characters: upright strokes, described by their directions.

Directions of strokes, counted by cell, are what has long told handwritten characters apart [1]_; slant tells writers
apart, so it is taken out first [2]_. Nothing here is learned.

References
----------
.. [1] Dalal and Triggs, "Histograms of oriented gradients for human detection", CVPR 2005.
.. [2] LeCun, Bottou, Bengio and Haffner, "Gradient-based learning applied to document recognition", Proc. IEEE 86(11),
   1998, where the deskewed digits are.
"""

from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any, NamedTuple, final

import numpy as np
import numpy.typing as npt

from tutelage._internal.typing import FloatArray, Matrix
from tutelage._internal.validation import integer_at_least
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.features.base import PublicFeatureMap
from tutelage.features.rowwise import EXACT_FLOAT32, in_chunks, number_rows

_LEVELS = 255  # gray levels of full ink
_STEEPEST = 1.0  # shear, in columns per row: 45 degrees
_POOL = 2**14  # sum of a cell's weights, about
_LARGEST_CELL = 32  # in larger ones a pixel's share would round to nothing


@final
@dataclass(eq=False, repr=False)
class DeskewedImages(PublicFeatureMap):
    """Moves each image's ink to the middle and shears it upright.

    Rows of the image are moved sideways until ink's column no longer correlates with its row; the shear is at most
    45 degrees. Pixels between pixels are interpolated linearly, and what comes from outside is blank.

    Parameters
    ----------
    image_shape : tuple of two int
        Height and width, in pixels, at least 4.
    white : float
        Value of full ink: 255 for bytes, 1 for intensities. Values are clipped to [0, white].
    """

    image_shape: tuple[int, int] = (28, 28)
    _: KW_ONLY
    white: float = 255.0

    def __post_init__(self) -> None:
        _Frame.of(self.image_shape, self.white, type(self).__name__)

    @property
    def _n_features_out(self) -> int:
        return self.image_shape[0] * self.image_shape[1]

    def transform(self, X: npt.ArrayLike) -> Matrix:
        """Return the images upright, as float32 rows from 0 to 255; shape (rows, height · width)."""
        owner = type(self).__name__
        frame = _Frame.of(self.image_shape, self.white, owner)
        rows = frame.rows(X, owner)
        return in_chunks(lambda chunk: _upright(frame.images(chunk, owner)).reshape(len(chunk), frame.n_pixels), rows)


@final
@dataclass(eq=False, repr=False)
class GlyphGradients(PublicFeatureMap):
    """Histograms of stroke directions in the cells of an image, after it was set upright.

    A pixel's gradient counts for the directions less than one step away from its own, and for the cells around the
    pixel with a Gaussian weight. The square roots of all counts have length 1 together; a blank image gets zeros.

    Parameters
    ----------
    image_shape, white
        As for `DeskewedImages`.
    orientations : int
        Directions told apart, on the whole circle; even.
    cell : int
        Side of a cell, in pixels; at most 32.
    deskew : bool
        Set the image upright first.
    """

    image_shape: tuple[int, int] = (28, 28)
    _: KW_ONLY
    white: float = 255.0
    orientations: int = 12
    cell: int = 4
    deskew: bool = True

    def __post_init__(self) -> None:
        self._checked()

    @property
    def _n_features_out(self) -> int:
        return _cell_weights(self._checked().shape, self.cell).shape[1] * self.orientations

    def transform(self, X: npt.ArrayLike) -> Matrix:
        """Return float32 features: each direction's cells from left to right and top to bottom."""
        owner = type(self).__name__
        frame = self._checked()
        weights = _cell_weights(frame.shape, self.cell)

        def histograms(rows: Matrix) -> Matrix:
            images = frame.images(rows, owner)
            return _histograms(_upright(images) if self.deskew else images, weights, self.orientations)

        return in_chunks(histograms, frame.rows(X, owner))

    def directions(self) -> "Directions":
        """Return in which directions gradients are counted, and in which cells."""
        return Directions.of(_cell_weights(self._checked().shape, self.cell), self.orientations)

    def _checked(self) -> "_Frame":
        owner = type(self).__name__
        if integer_at_least(self.cell, 1, "cell", owner) > _LARGEST_CELL:
            raise InvalidParameterError(f"`cell` of {owner} must be at most {_LARGEST_CELL} pixels. Got {self.cell!r}.")
        if integer_at_least(self.orientations, 4, "orientations", owner) % 2:
            raise InvalidParameterError(f"`orientations` of {owner} must be even. Got {self.orientations!r}.")
        return _Frame.of(self.image_shape, self.white, owner)


@dataclass(frozen=True, slots=True)
class _Frame:
    shape: tuple[int, int]
    white: float

    @classmethod
    def of(cls, shape: Any, white: Any, owner: str) -> "_Frame":
        """Return the frame of images, or raise InvalidParameterError."""
        if not isinstance(shape, tuple | list) or len(shape) != 2:
            raise InvalidParameterError(f"`image_shape` of {owner} must be (height, width). Got {shape!r}.")
        height, width = (integer_at_least(side, 4, "image_shape", owner) for side in shape)
        if isinstance(white, bool) or not isinstance(white, Real) or not 0 < float(white) < np.inf:
            raise InvalidParameterError(f"`white` of {owner} must be a positive number. Got {white!r}.")
        return cls((height, width), float(white))

    @property
    def n_pixels(self) -> int:
        """Pixels of an image."""
        return self.shape[0] * self.shape[1]

    def rows(self, X: npt.ArrayLike, owner: str) -> Matrix:
        """Return images, flattened or not, as rows of numbers."""
        found = np.asarray(X)
        flat = found.reshape(len(found), -1) if found.ndim > 2 and found.shape[1:] == tuple(self.shape) else found
        return number_rows(flat, self.n_pixels, owner)

    def images(self, rows: Matrix, owner: str) -> Matrix:
        """Return the rows as float32 images in whole gray levels."""
        if rows.dtype.kind == "f" and np.isnan(rows).any():
            raise InvalidDataError(f"X of {owner} must hold gray values. Fill the missing pixels first.")
        levels = np.rint(np.clip(rows, 0, self.white, dtype=np.float64) * (_LEVELS / self.white))
        return levels.astype(np.float32).reshape(-1, *self.shape)


def _upright(images: Matrix) -> Matrix:
    _, height, _ = images.shape
    down, right, shear = _posture(images)
    lifted = _sampled(images.transpose(0, 2, 1), down[:, np.newaxis]).transpose(0, 2, 1)
    return _sampled(lifted, right[:, np.newaxis] + shear[:, np.newaxis] * _centered(height))


def _posture(images: Matrix) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return how far below and right of the middle the ink lies, and its columns per row.

    Sums of whole levels times half pixels are exact, in whatever order they are added.
    """
    _, height, width = images.shape
    y, x = np.broadcast_arrays(_centered(height)[:, np.newaxis], _centered(width))
    powers = np.stack([np.ones_like(y), y, x, y * y, y * x], axis=-1).reshape(height * width, 5)
    ink, sum_y, sum_x, sum_yy, sum_yx = (images.reshape(-1, height * width).astype(np.float64) @ powers).T
    mass = np.where(ink > 0, ink, 1)
    down, right = sum_y / mass, sum_x / mass
    spread = sum_yy / mass - down * down
    shear = (sum_yx / mass - down * right) / np.where(spread > 0.01, spread, np.inf)  # one line has no slant
    return down, right, np.clip(shear, -_STEEPEST, _STEEPEST)


def _centered(side: int) -> Matrix:
    return np.arange(side) - (side - 1) / 2


def _sampled(signals: Matrix, shift: FloatArray) -> Matrix:
    """Return each signal of shape (images, lines, n) read `shift` places further on, between places linearly."""
    n_images, n_lines, n = signals.shape
    padded = np.zeros((n_images, n_lines, 3 * n + 1), np.float32)
    padded[:, :, n : 2 * n] = signals
    shift = np.broadcast_to(np.clip(shift, -n, n), (n_images, n_lines))
    whole = np.floor(shift)
    part = (shift - whole).astype(np.float32)[:, :, np.newaxis]
    line_starts = np.arange(n_images * n_lines).reshape(n_images, n_lines) * (3 * n + 1)
    here = (line_starts + n + whole.astype(np.int64))[:, :, np.newaxis] + np.arange(n)
    flat = padded.ravel()
    return (1 - part) * flat[here] + part * flat[here + 1]


def _histograms(images: Matrix, weights: Matrix, orientations: int) -> Matrix:
    n_images = len(images)
    counts = np.empty((n_images, orientations, weights.shape[1]), np.float32)
    for direction, edges in enumerate(_edges(images, Directions.of(weights, orientations))):
        counts[:, direction] = edges.reshape(n_images, len(weights)) @ weights
    rows = counts.reshape(n_images, orientations * weights.shape[1])
    total = rows.sum(axis=1, keepdims=True, dtype=np.float64)
    return np.sqrt(rows / np.where(total > 0, total, 1)).astype(np.float32)


class Directions(NamedTuple):
    """In which directions gradients are counted, and how; `edge` is the cosine of one step between directions."""

    weights: Matrix  # of each pixel in each cell, in whole numbers; shape (pixels, cells)
    angles: FloatArray  # of one half of the circle
    edge: float
    scale: float

    @classmethod
    def of(cls, weights: Matrix, orientations: int) -> "Directions":
        """Return the scale at which sums of whole numbers stay exact."""
        edge = float(np.cos(2 * np.pi / orientations))
        largest = EXACT_FLOAT32 // int(weights.sum(axis=0).max())
        angles = 2 * np.pi * np.arange(orientations // 2) / orientations
        return cls(weights, angles, edge, float(largest / (np.sqrt(2) * _LEVELS * (1 - edge))))


def _edges(images: Matrix, by: Directions) -> list[Matrix]:
    """Return how much of each pixel's gradient points in each direction, in whole numbers.

    A gradient of length m at the angle t from a direction gives m · max(0, cos t − cos(one step)).
    """
    across, down = np.zeros_like(images), np.zeros_like(images)
    across[:, :, 1:-1] = images[:, :, 2:] - images[:, :, :-2]
    down[:, 1:-1] = images[:, 2:] - images[:, :-2]
    threshold = np.sqrt(across * across + down * down) * np.float32(by.edge * by.scale)
    along = [across * np.float32(by.scale * np.cos(a)) + down * np.float32(by.scale * np.sin(a)) for a in by.angles]
    return [np.rint(np.maximum(sign * part - threshold, 0)) for sign in (1, -1) for part in along]


def _cell_weights(shape: tuple[int, int], cell: int) -> Matrix:
    """Return the weight of each pixel in each cell, in whole numbers; shape (pixels, cells)."""
    height, width = (_gaussians(side, max(1, round(side / cell))) for side in shape)
    both = np.einsum("yi,xj->yxij", height, width).reshape(shape[0] * shape[1], -1)
    return np.rint(both * _POOL).astype(np.float32)


def _gaussians(side: int, n_cells: int) -> Matrix:
    width = side / n_cells
    middles = (np.arange(n_cells) + 0.5) * width - 0.5
    weights = np.exp(-0.5 * ((np.arange(side)[:, np.newaxis] - middles) / (width / 2)) ** 2)
    return weights / weights.sum(axis=0)
