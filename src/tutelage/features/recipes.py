"""Feature maps that have done well, each learned from public rows in one call, and those that have a name."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.pipeline import Pipeline, make_pipeline

from tutelage._internal.names import Named
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.features.base import PublicRows, require_public
from tutelage.features.glyphs import GlyphGradients
from tutelage.features.images import image_features
from tutelage.features.learned import NeighborWhitening, PublicDiffusion, PublicPCA, PublicSteps
from tutelage.features.rowwise import finite_rows


def glyph_features(
    public: PublicRows, image_shape: tuple[int, int] = (28, 28), *, cell: int = 4, n_components: int = 64
) -> Pipeline:
    """Return features of images of characters in which a few examples of each suffice: one class, one direction.

    Stroke directions, their principal axes, the metric of neighbors, and the shape that the public images form, as a
    scikit-learn pipeline that is ready to transform. Some thousand public images are needed. The same map must be
    applied to private and public images.

    Parameters
    ----------
    public : PublicRows
        Public images, flattened; their largest value is taken for full ink.
    image_shape : tuple of two int
        Height and width, in pixels.
    cell : int
        Side of the cells in which stroke directions are counted, in pixels.
    n_components : int
        Number of principal axes.

    Raises
    ------
    InvalidParameterError
        If the rows were not declared public, or are too few for that number of components.
    InvalidDataError
        If they are no images of that shape, or all blank.
    """
    values = require_public(public, "glyph_features").values
    white = float(np.max(finite_rows(values, values.shape[-1], "glyph_features")))
    if white <= 0:
        raise InvalidDataError("The public images of glyph_features must not all be blank.")
    gradients = GlyphGradients(image_shape, white=white, cell=cell)
    rows = public.through(gradients)
    axes = PublicPCA.learn(rows, n_components)
    rows = rows.through(axes)
    metric = NeighborWhitening.learn(rows)
    return make_pipeline(gradients, axes, metric, PublicDiffusion.learn(rows.through(metric)))


_COMPONENTS = 64


class FeatureMaps(NamedTuple):
    """Feature maps of the teachers and of the student; None for the rows themselves."""

    teachers: Any | None
    student: Any | None


class Columns(NamedTuple):
    """How many columns, the first ones, are numbers, and how many, the last ones, are features of texts."""

    numbers: int
    features: int = 0


def _glyphs(public: PublicRows, components: int | None, image_shape: Sequence[int] | None, _: Columns) -> FeatureMaps:
    if image_shape is None or len(image_shape) != 2:
        raise InvalidParameterError(f"`image_shape` of the map glyphs must be [height, width]. Got {image_shape!r}.")
    features = glyph_features(public, (image_shape[0], image_shape[1]), n_components=components or _COMPONENTS)
    return FeatureMaps(features, features[:-1])  # a student could not separate what the last step merges


def _principal_axes(
    public: PublicRows, components: int | None, image_shape: Sequence[int] | None, _: Columns
) -> FeatureMaps:
    _refuse_image_shape(image_shape)
    axes = PublicPCA.learn(public, components or _COMPONENTS, whiten=True)
    return FeatureMaps(axes, axes)


def _steps(public: PublicRows, _: int | None, image_shape: Sequence[int] | None, columns: Columns) -> FeatureMaps:
    _refuse_image_shape(image_shape)
    steps = PublicSteps.learn(public, columns.numbers, n_features=columns.features)
    return FeatureMaps(steps, steps)


def _images(public: PublicRows, components: int | None, image_shape: Sequence[int] | None, _: Columns) -> FeatureMaps:
    shape = None if image_shape is None else tuple(image_shape)
    features = image_features(public, shape, n_components=components or 200)
    return FeatureMaps(features, features)


def _refuse_image_shape(image_shape: Sequence[int] | None) -> None:
    if image_shape is not None:
        raise InvalidParameterError("`image_shape` belongs to the maps `glyphs` and `images`. Leave it out.")


TABLE_MAP_OF_PEOPLE, IMAGE_MAP_OF_PEOPLE = "steps", "images"
"""The maps for tables and images where every person is a teacher, unless another one is named."""

# Names for configurations. Each takes public rows, a number of components (None for its default), the shape of
# images, and which columns are numbers and features.
FEATURE_MAPS: Mapping[str, Named[FeatureMaps]] = {
    "glyphs": Named(_glyphs, "for images of characters"),
    "images": Named(_images, "for small images of things: edges and brightness"),
    "pca": Named(_principal_axes, "principal axes of the public rows"),
    "steps": Named(_steps, "for tables: numbers as steps at public quantiles, categories as 0/1 columns"),
}
