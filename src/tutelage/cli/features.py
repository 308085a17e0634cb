"""The feature map that a configuration describes, learned from its public rows."""

from collections.abc import Callable
from typing import Any, NamedTuple

from tutelage.cli.config import FeaturesSection, RunConfig
from tutelage.exceptions import ConfigError
from tutelage.features import PublicPCA, PublicRows, glyph_features


class FeatureMaps(NamedTuple):
    """What teachers see instead of the rows, and what the student does."""

    teachers: Any | None
    student: Any | None


def learn_features(settings: RunConfig, X_public: Any) -> FeatureMaps:
    """Return the feature maps of ``[features]``, or none where there is no such section.

    Parameters
    ----------
    settings : RunConfig
        The configuration.
    X_public : array of shape (public rows, features)
        All public rows.

    Raises
    ------
    ConfigError
        If the map does not fit the rows.
    """
    if settings.features is None:
        return FeatureMaps(None, None)
    try:
        return _MAPS[settings.features.map](PublicRows(X_public, _source(settings)), settings.features)
    except ValueError as error:  # about public rows and settings only
        raise ConfigError(f"[features] does not fit the public rows. {error}") from None


def describe_features(settings: RunConfig) -> str:
    """Return what a card says about the feature map."""
    if settings.features is None:
        return "none"
    return f"{settings.features.map}, learned from {_source(settings)}, part of the student and published with it"


def _source(settings: RunConfig) -> str:
    return settings.public.file or f"the public rows of {settings.dataset}"


def _glyphs(public: PublicRows, section: FeaturesSection) -> FeatureMaps:
    if section.image_shape is None or len(section.image_shape) != 2:
        raise ConfigError(f"`image_shape` in [features] must be [height, width]. Got {section.image_shape!r}.")
    height, width = section.image_shape
    features = glyph_features(public, (height, width), n_components=section.components)
    return FeatureMaps(features, features[:-1])  # what the last step glues together, a student could not tell apart


def _principal_axes(public: PublicRows, section: FeaturesSection) -> FeatureMaps:
    if section.image_shape is not None:
        raise ConfigError("`image_shape` in [features] belongs to the map `glyphs`. Leave it out.")
    axes = PublicPCA.learn(public, section.components, whiten=True)
    return FeatureMaps(axes, axes)


_MAPS: dict[str, Callable[[PublicRows, FeaturesSection], FeatureMaps]] = {"glyphs": _glyphs, "pca": _principal_axes}
