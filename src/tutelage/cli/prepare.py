"""From a configuration and the rows that it names to a prepared release."""

import warnings
from typing import Any

import numpy as np

from tutelage.cli.config import RunConfig
from tutelage.cli.sources import Sources
from tutelage.cli.text import remark
from tutelage.cli.words import on_command_line
from tutelage.estimator import PATEClassifier, PATERegressor
from tutelage.exceptions import ConfigError, FewPublicRowsWarning, PreflightWarning, TutelageError
from tutelage.features.columns import numbered_rows
from tutelage.methods.choice import Chooser
from tutelage.preflight import sorted_by
from tutelage.release import PreparedRelease
from tutelage.reporting.lints import lint


def n_pool(config: RunConfig, data: Sources) -> int:
    """Return how many public rows features, choice of queries and student may see: those not kept for scoring."""
    return data.n_public - (config.public.evaluate_last or 0)


def check_public_rows(config: RunConfig, data: Sources) -> bool:
    """Refuse to keep all public rows for the score; return whether those kept are unlike the others, and warn of it."""
    last = config.public.evaluate_last
    if last is None:
        return False
    if last >= data.n_public:
        raise ConfigError(f"`evaluate_last` in [public] must be less than the {data.n_public} public rows. Got {last}.")
    if data.labels is None or config.public.later:
        return False
    if data.columns is None:
        columns = {str(place): cells for place, cells in enumerate(data.public.T)}
    else:
        columns = dict(zip(data.columns.get_feature_names_out(), data.columns.transform(data.public).T, strict=True))
    doubts = [*sorted_by(columns, np.asarray(data.labels).astype(str), last)]
    for doubt in doubts:
        remark(f"warning: {doubt}")
    return bool(doubts)


def learn_features(config: RunConfig, data: Sources) -> Any:
    """Return the feature map that [features] names, learned from public rows that are not kept for scoring."""
    name = config.features.map
    if name is None:
        return None
    public = numbered_rows(data.public_rows(slice(n_pool(config, data))), data.columns)
    section = config.features
    try:
        return public.feature_map(
            name, source=source_of(config), components=section.components, image_shape=section.image_shape
        )
    except ValueError as error:  # about public rows and settings only
        said = " ".join(error.said(on_command_line)) if isinstance(error, TutelageError) else str(error)
        raise ConfigError(f"[features] does not fit the public rows. {said}") from None


def source_of(config: RunConfig) -> str:
    """Return where the public rows are from."""
    return config.public.file or f"the public rows of {config.dataset}"


def build_estimator(config: RunConfig, data: Sources) -> PATEClassifier | PATERegressor:
    """Return the estimator that a configuration describes."""
    model: Any = config.estimator()
    if isinstance(model, PATEClassifier):
        model.set_params(features=learn_features(config, data), classes=data.classes)
    return model.set_params(columns=config.schema or data.columns)


def arguments(config: RunConfig, data: Sources) -> dict[str, Any]:
    """Return the rows of a run, as `fit` takes them."""
    found = dict(data.private)
    if data.public is None:
        return found
    pool = n_pool(config, data)
    found["X_public"] = data.public_rows(slice(pool))
    if config.chosen.needs.start:
        found["y_public"] = data.label or (None if data.labels is None else data.labels[:pool])
    if pool < data.n_public:
        found["scored"] = data.public_rows(slice(pool, None))
    return found


def prepared(
    config: RunConfig, data: Sources, choose: Chooser | None = None, *, progress: bool = False, **once: Any
) -> PreparedRelease:
    """Return the release of a configuration, checked; `once` holds arguments of `fit` for this run alone."""
    for one in lint(tuned_on=config.privacy.tuned_on):
        remark(f"warning: {one.severity.capitalize()}: {one.reason}")
    model = build_estimator(config, data).set_params(progress=progress)
    with warnings.catch_warnings():
        for told in (PreflightWarning, FewPublicRowsWarning):
            warnings.simplefilter("always", told)
        return model.prepare(**arguments(config, data), choose=choose, **once)
