"""From a configuration and the rows that it names to a prepared release."""

import warnings
from typing import Any

from tutelage.cli.config import RunConfig
from tutelage.cli.sources import Sources
from tutelage.cli.text import remark
from tutelage.estimator import PATEClassifier, PATERegressor
from tutelage.exceptions import FewPublicRowsWarning, PreflightWarning
from tutelage.methods.choice import Chooser
from tutelage.release import PreparedRelease
from tutelage.reporting.lints import Case, lint


def build_estimator(config: RunConfig, data: Sources) -> PATEClassifier | PATERegressor:
    """Return the estimator that a configuration describes."""
    model: Any = config.estimator()
    return model if config.schema is not None else model.set_params(classes=data.classes, columns=data.kinds)


def arguments(config: RunConfig, data: Sources) -> dict[str, Any]:
    """Return the rows of a run, as `prepare` takes them."""
    found = {**data.private, "scored": config.public.evaluate_last or 0}
    if data.public is not None:
        found["X_public"] = data.public
        if config.chosen.needs.start or found["scored"]:
            found["y_public"] = data.label or data.labels
    return found


def prepared(
    config: RunConfig, data: Sources, choose: Chooser | None = None, *, progress: bool = False, **once: Any
) -> PreparedRelease:
    """Return the release of a configuration, checked; `once` holds arguments of `prepare` for this run alone."""
    for one in lint(Case(tuned_on=config.privacy.tuned_on)):
        remark(f"warning: {one.severity.capitalize()}: {one.reason}")
    model = build_estimator(config, data).set_params(progress=progress)
    with warnings.catch_warnings():
        for told in (PreflightWarning, FewPublicRowsWarning):
            warnings.simplefilter("always", told)
        return model.prepare(**arguments(config, data), later=config.public.later, choose=choose, **once)
