"""Chains of feature maps that have done well, each learned from public rows in one call."""

import numpy as np
from sklearn.pipeline import Pipeline, make_pipeline

from tutelage.exceptions import InvalidDataError
from tutelage.features.base import PublicRows, require_public
from tutelage.features.glyphs import GlyphGradients
from tutelage.features.learned import NeighbourWhitening, PublicDiffusion, PublicPCA
from tutelage.features.rowwise import finite_rows


def glyph_features(
    public: PublicRows, image_shape: tuple[int, int] = (28, 28), *, cell: int = 4, n_components: int = 64
) -> Pipeline:
    """Return features of images of characters in which a few examples of each suffice: one class, one direction.

    Stroke directions, their principal axes, the metric of neighbours, and the shape that the public images form. Some
    thousand public images are needed. The same map must be applied to private and public images.

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

    Returns
    -------
    Pipeline
        A scikit-learn pipeline, ready to transform.

    Raises
    ------
    InvalidParameterError
        If the rows were not declared public, or are too few for so many components.
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
    metric = NeighbourWhitening.learn(rows)
    return make_pipeline(gradients, axes, metric, PublicDiffusion.learn(rows.through(metric)))
