"""Feature maps that have done well, each learned from public rows in one call, and those that have a name."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tutelage._internal.names import Named
from tutelage.exceptions import InvalidParameterError
from tutelage.features.base import PublicRows
from tutelage.features.images import image_features
from tutelage.features.learned import PublicPCA, PublicSteps

_COMPONENTS = 64


class FeatureMaps(NamedTuple):
    """Feature maps of the teachers and of the student; None for the rows themselves."""

    teachers: Any | None
    student: Any | None


class Columns(NamedTuple):
    """How many columns, the first ones, are numbers, and how many, the last ones, are features of texts."""

    numbers: int
    features: int = 0


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
        raise InvalidParameterError("`image_shape` belongs to the map `images`. Leave it out.")


TABLE_MAP_OF_PEOPLE, IMAGE_MAP_OF_PEOPLE = "steps", "images"
"""The maps for tables and images where every person is a teacher, unless another one is named."""

# Names for configurations. Each takes public rows, a number of components (None for its default), the shape of
# images, and which columns are numbers and features.
FEATURE_MAPS: Mapping[str, Named[FeatureMaps]] = {
    "images": Named(_images, "for small images of things: edges and brightness"),
    "pca": Named(_principal_axes, "principal axes of the public rows"),
    "steps": Named(_steps, "for tables: numbers as steps at public quantiles, categories as 0/1 columns"),
}
