"""Features of small images of things: where edges run in which direction, and how bright each pixel is."""

from dataclasses import KW_ONLY, dataclass
from math import prod
from typing import Any, final

import numpy as np
import numpy.typing as npt
from sklearn.pipeline import Pipeline, make_pipeline

from tutelage._internal.typing import FloatArray, Matrix
from tutelage._internal.validation import integer_at_least
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.features.base import PublicFeatureMap, PublicRows, require_public
from tutelage.features.glyphs import GlyphGradients
from tutelage.features.learned import PublicPCA
from tutelage.features.rowwise import in_chunks, number_rows, unit_rows

_LEVELS = 255  # of brightness
_MOST_NUMBERS = 2**14  # of an image
_LEAST_SPREAD = 1 / 40  # of that along the first axis: an axis with less is mostly rounding


@final
@dataclass(eq=False, repr=False)
class EdgesAndLevels(PublicFeatureMap):
    """Histograms of edge directions in the cells of an image, beside its pixels at length one.

    The edges are those of `GlyphGradients`, of the mean of all channels; images are not set upright.

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
        shape = self.image_shape
        if not isinstance(shape, tuple | list) or len(shape) not in (2, 3):
            raise InvalidParameterError(
                f"`image_shape` of EdgesAndLevels must be (height, width) or (height, width, channels). Got {shape!r}."
            )
        for side in shape:
            integer_at_least(side, 1, "image_shape", "EdgesAndLevels")
        if prod(shape) > _MOST_NUMBERS:
            raise InvalidParameterError(
                f"`image_shape` of EdgesAndLevels must be at most {_MOST_NUMBERS} numbers in all. Got {shape!r}. Make "
                "the images smaller, or use a network that was trained on public images: PublicEncoder."
            )
        self.edges()

    @property
    def _n_features_out(self) -> int:
        return self.edges()._n_features_out + prod(self.image_shape)

    def transform(self, X: npt.ArrayLike) -> FloatArray:
        """Return the features of images of shape (rows, *image_shape), which may be flattened."""
        rows = number_rows(flat_images(X, tuple(self.image_shape)), prod(self.image_shape), "EdgesAndLevels")
        if rows.dtype.kind == "f" and np.isnan(rows).any():
            raise InvalidDataError("X of EdgesAndLevels must hold numbers. Fill the missing pixels first.")
        return in_chunks(self._features, rows)

    def _features(self, rows: Matrix) -> FloatArray:
        # Sums of squares of whole levels are exact, in whatever order they are added.
        levels = np.rint(np.clip(rows, 0, self.white, dtype=np.float64) * (_LEVELS / self.white))
        channels = levels.reshape(len(rows), -1, *self.image_shape[2:3] or (1,))
        gray = sum(channels[:, :, channel] for channel in range(channels.shape[2])) / channels.shape[2]
        return np.hstack([np.asarray(self.edges().transform(gray)), unit_rows(levels)])

    def edges(self) -> GlyphGradients:
        """Return the map of gray images to histograms of edge directions."""
        height, width = self.image_shape[:2]
        return GlyphGradients((height, width), white=float(_LEVELS), deskew=False)


def image_features(
    public: PublicRows, image_shape: tuple[int, ...] | None = None, *, n_components: int = 200
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

    Raises
    ------
    InvalidParameterError
        If the images were not declared public, or flattened images come without their shape.
    InvalidDataError
        If they are not images of that shape, or all black.
    """
    values = require_public(public, "image_features").values
    if image_shape is None and values.ndim not in (3, 4):
        raise InvalidParameterError(
            "`image_shape` of image_features must be the height and width of flattened images. Got None."
        )
    shape = values.shape[1:] if image_shape is None else tuple(image_shape)
    white = float(np.max(values))
    if not 0 < white < np.inf:
        raise InvalidDataError("The public images of image_features must be finite, and not all black.")
    edges = EdgesAndLevels(shape, white=white)
    rows = PublicRows(flat_images(values, shape), public.source).through(edges)
    integer_at_least(n_components, 1, "n_components", "image_features")
    axes = PublicPCA.learn(rows, min(n_components, *rows.values.shape))
    spread = axes.transform(rows.values).std(axis=0)
    kept = spread >= _LEAST_SPREAD * spread.max()
    return make_pipeline(edges, PublicPCA(axes.center, axes.directions[:, kept], axes.reach))


def flat_images(X: Any, image_shape: tuple[int, ...]) -> Any:
    """Return images of this shape as rows of numbers, and anything else as it is."""
    rows = np.asarray(X)
    return rows.reshape(len(rows), -1) if rows.ndim > 2 and rows.shape[1:] == tuple(image_shape) else X
