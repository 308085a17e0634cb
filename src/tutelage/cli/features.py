"""The feature map that a configuration describes, learned from its public rows."""

from collections.abc import Callable
from typing import Any, NamedTuple

from tutelage.cli.config import FeaturesSection, RunConfig
from tutelage.cli.sources import RunData, pool_of
from tutelage.exceptions import ConfigError
from tutelage.features import PublicPCA, PublicRows, PublicSteps, glyph_features


class FeatureMaps(NamedTuple):
    """What teachers see instead of the rows, and what the student does."""

    teachers: Any | None
    student: Any | None


def learn_features(settings: RunConfig, data: RunData) -> FeatureMaps:
    """Return the feature maps of ``[features]``, or none where there is no such section.

    Parameters
    ----------
    settings : RunConfig
        The configuration.
    data : RunData
        Its public rows, but for those kept for scoring.

    Raises
    ------
    ConfigError
        If the map does not fit the rows.
    """
    if settings.features is None:
        return FeatureMaps(None, None)
    public = PublicRows(pool_of(settings, data), _source(settings))
    try:
        return _MAPS[settings.features.map](public, settings.features, data)
    except ValueError as error:  # about public rows and settings only
        raise ConfigError(f"[features] does not fit the public rows. {error}") from None


def describe_features(settings: RunConfig) -> str:
    """Return what a card says about the feature map."""
    if settings.features is None:
        return "none"
    return f"{settings.features.map}, learned from {_source(settings)}, part of the student and published with it"


def _source(settings: RunConfig) -> str:
    return settings.public.file or f"the public rows of {settings.dataset}"


def _glyphs(public: PublicRows, section: FeaturesSection, _data: RunData) -> FeatureMaps:
    if section.image_shape is None or len(section.image_shape) != 2:
        raise ConfigError(f"`image_shape` in [features] must be [height, width]. Got {section.image_shape!r}.")
    height, width = section.image_shape
    features = glyph_features(public, (height, width), n_components=section.components)
    return FeatureMaps(features, features[:-1])  # what the last step glues together, a student could not tell apart


def _principal_axes(public: PublicRows, section: FeaturesSection, _data: RunData) -> FeatureMaps:
    _refuse_image_shape(section)
    axes = PublicPCA.learn(public, section.components, whiten=True)
    return FeatureMaps(axes, axes)


def _steps(public: PublicRows, section: FeaturesSection, data: RunData) -> FeatureMaps:
    _refuse_image_shape(section)
    steps = PublicSteps.learn(public, len(data.numbers))
    return FeatureMaps(steps, steps)


def _refuse_image_shape(section: FeaturesSection) -> None:
    if section.image_shape is not None:
        raise ConfigError("`image_shape` in [features] belongs to the map `glyphs`. Leave it out.")


_MAPS: dict[str, Callable[[PublicRows, FeaturesSection, RunData], FeatureMaps]] = {
    "glyphs": _glyphs,
    "pca": _principal_axes,
    "steps": _steps,
}
