"""Features of small images of things: where edges run in which direction, and how bright each pixel is.

Directions of edges, counted by cell, are histograms of oriented gradients (Dalal and Triggs, "Histograms of oriented
gradients for human detection", CVPR 2005).
"""

from dataclasses import KW_ONLY
from math import prod
from typing import NamedTuple, final

import numpy as np
from numpy.typing import ArrayLike
from sklearn.pipeline import Pipeline

from tutelage._internal.records import settable
from tutelage._internal.typing import Array, FloatArray, Matrix
from tutelage._internal.validation import as_image_shape, integer_at_least
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.features.base import PublicFeatureMap, PublicRows, chain, require_public
from tutelage.features.learned import PublicPCA
from tutelage.features.rowwise import EXACT_FLOAT32, in_chunks, number_rows, unit_rows

LEVELS = 255  # of brightness
_CELL = 4  # side of a cell, in pixels
_ORIENTATIONS = 12  # directions told apart, on the whole circle
_POOL = 2**14  # sum of a cell's weights, about
_MOST_NUMBERS = 2**14  # of an image
_LEAST_SPREAD = 1 / 40  # of that along the first axis: an axis with less is mostly rounding


@final
@settable
class EdgesAndLevels(PublicFeatureMap):
    """Histograms of edge directions in the cells of an image, beside its pixels at length one.

    The edges are those of the mean of all channels. A pixel's gradient counts for the directions less than one step
    away from its own, and for the cells around the pixel with a Gaussian weight.

    Parameters
    ----------
    image_shape : tuple of two or three int
        Height and width, and the number of channels if there are several.
    white : float
        The largest value of a pixel: 255 for bytes, 1 for intensities. Values are clipped to [0, white].
    """

    image_shape: tuple[int, ...]
    _: KW_ONLY
    white: float = 255.0

    def __post_init__(self) -> None:
        shape = as_image_shape(self.image_shape, _CELL, "image_shape", "EdgesAndLevels")
        if prod(shape) > _MOST_NUMBERS:
            raise InvalidParameterError(
                "EdgesAndLevels.image_shape",
                f"have at most {_MOST_NUMBERS} numbers per image",
                f"{shape!r}",
                "Make the images smaller, or use PublicEncoder with a network trained on public images.",
            )

    @property
    def _n_features_out(self) -> int:
        directions = self.directions()
        n_cells = directions.weights.shape[1]
        return n_cells * 2 * len(directions.angles) + prod(self.image_shape)

    def transform(self, X: ArrayLike) -> FloatArray:
        """Return the features of images of shape (rows, *image_shape), which may be flattened."""
        n_pixels = prod(self.image_shape)
        rows = number_rows(flat_images(X, self.image_shape), n_pixels, "EdgesAndLevels")
        if rows.dtype.kind == "f" and np.isnan(rows).any():
            raise InvalidDataError(
                "X of EdgesAndLevels must hold numbers. Fill the missing pixels first."
            )
        directions = self.directions()
        height, width, n_channels = (*self.image_shape, 1)[:3]

        def features(chunk: Matrix) -> FloatArray:
            # chunk, levels: (images, pixels and channels); gray: (images, height, width)
            # Sums of whole levels, and of their squares, are exact, in whatever order they are added.
            values = np.clip(chunk, 0, self.white, dtype=np.float64)
            levels = np.rint(values * (LEVELS / self.white))
            total = levels.reshape(-1, height, width, n_channels).sum(axis=3)
            gray = np.rint(total / n_channels).astype(np.float32)
            edges = edge_histograms(gray, directions)
            return np.hstack([edges, unit_rows(levels)])

        return in_chunks(features, rows)

    def directions(self) -> "Directions":
        """Return in which directions gradients are counted, and in which cells."""
        height, width = self.image_shape[:2]
        return Directions.of((height, width), _CELL)


class Directions(NamedTuple):
    """In which directions gradients are counted, and how; `edge` is the cosine of one step between directions."""

    weights: Matrix  # of each pixel in each cell, in whole numbers; shape (pixels, cells)
    angles: FloatArray  # of one half of the circle
    edge: float
    scale: float  # at which sums of whole numbers stay exact

    @classmethod
    def of(cls, shape: tuple[int, int], cell: int) -> "Directions":
        """Return the directions for images of this height and width, and cells with a side of so many pixels."""
        height, width = shape
        rows = _gaussians(height, max(1, round(height / cell)))
        columns = _gaussians(width, max(1, round(width / cell)))
        weights = np.rint(np.kron(rows, columns) * _POOL).astype(np.float32)
        edge = float(np.cos(2 * np.pi / _ORIENTATIONS))
        largest_sum = EXACT_FLOAT32 // int(weights.sum(axis=0).max())
        longest = np.sqrt(2) * LEVELS * (1 - edge)
        angles = 2 * np.pi * np.arange(_ORIENTATIONS // 2) / _ORIENTATIONS
        return cls(weights, angles, edge, float(largest_sum / longest))


def edge_histograms(images: Matrix, by: Directions) -> Matrix:
    """Return each direction's cells of gray images in whole levels: square roots of counts, at length one together.

    A gradient of length m at the angle t from a direction gives m · max(0, cos t − cos(one step)), in whole numbers.
    """
    # images, across, down: (images, height, width); counts: (images, cells) of each direction
    across = np.zeros_like(images)
    across[:, :, 1:-1] = images[:, :, 2:] - images[:, :, :-2]
    down = np.zeros_like(images)
    down[:, 1:-1] = images[:, 2:] - images[:, :-2]
    length = np.sqrt(across * across + down * down)
    threshold = length * np.float32(by.edge * by.scale)
    counts = list[Matrix]()
    for size in (by.scale, -by.scale):
        for angle in by.angles:
            along = across * np.float32(size * np.cos(angle))
            along = along + down * np.float32(size * np.sin(angle))
            edges = np.rint(np.maximum(along - threshold, 0))
            edges = edges.reshape(len(images), len(by.weights))
            counts.append(edges @ by.weights)
    rows = np.hstack(counts)
    total = rows.sum(axis=1, keepdims=True, dtype=np.float64)
    shares = rows / np.where(total > 0, total, 1)
    return np.sqrt(shares).astype(np.float32)


def _gaussians(side: int, n_cells: int) -> Matrix:
    """Return the weight of each pixel in each cell along one side, shape (pixels, cells)."""
    width = side / n_cells
    middles = (np.arange(n_cells) + 0.5) * width - 0.5
    distances = np.arange(side)[:, None] - middles
    weights = np.exp(-0.5 * (distances / (width / 2)) ** 2)
    return weights / weights.sum(axis=0)


def image_features(
    public: PublicRows,
    image_shape: tuple[int, ...] | None = None,
    *,
    n_components: int = 200,
) -> Pipeline:
    """Return features of small images of things, such as clothes: principal axes of edge directions and brightness.

    Parameters
    ----------
    public : PublicRows
        Public images of shape (rows, height, width) or (rows, height, width, channels), or flattened. Their largest
        value counts as white.
    image_shape : tuple of int, optional
        Height and width, and channels, of flattened images.
    n_components : int
        Number of principal axes. Axes along which the public images hardly vary are left out.
    """
    values = require_public(public, "image_features").values
    if image_shape is None:
        if values.ndim not in (3, 4):
            raise InvalidParameterError(
                "image_features.image_shape", "be the height and width of flattened images", "None"
            )
        image_shape = values.shape[1:]
    shape = tuple(image_shape)
    white = float(np.max(values))
    if not 0 < white < np.inf:
        raise InvalidDataError(
            "The public images of image_features must be finite, and not all black."
        )
    edges = EdgesAndLevels(shape, white=white)
    rows = PublicRows(flat_images(values, shape), public.source).through(edges)
    integer_at_least(n_components, 1, "n_components", "image_features")
    axes = PublicPCA.learn(rows, min(n_components, *rows.values.shape))
    spread = axes.transform(rows.values).std(axis=0)
    kept = spread >= _LEAST_SPREAD * spread.max()
    directions = axes.directions[:, kept]
    return chain(edges, PublicPCA(axes.center, directions, axes.reach))


def flat_images(X: ArrayLike, image_shape: tuple[int, ...]) -> Array:
    """Return images of this shape as rows of numbers, and anything else as it is."""
    rows = np.asarray(X)
    if rows.ndim > 2 and rows.shape[1:] == tuple(image_shape):
        return rows.reshape(len(rows), -1)
    return rows
