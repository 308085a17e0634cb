"""From a configuration and the rows that it names to a prepared release."""

import warnings
from typing import TYPE_CHECKING, Any

from tutelage._internal.records import Entries
from tutelage.cli.config import RunConfig, problems_of_names
from tutelage.cli.sources import Sources
from tutelage.exceptions import ConfigError, FewPublicRowsWarning, PreflightWarning
from tutelage.targets import Classes

if TYPE_CHECKING:
    from tutelage.estimator import PATEClassifier, PATERegressor
    from tutelage.methods.choice import Chooser
    from tutelage.release import PreparedRelease


def build_estimator(config: RunConfig, data: Sources) -> "PATEClassifier | PATERegressor":
    """Return the estimator that a configuration describes."""
    model = config.estimator()
    if config.schema is None:
        model.set_params(classes=data.classes, columns=data.kinds)
    return model


def arguments(config: RunConfig, data: Sources) -> Entries:
    """Return the rows of a run, as `prepare` takes them; refuse public labels that are not among declared classes."""
    scored = config.public.evaluate_last or 0
    found = {**data.private, "scored": scored}
    labels = data.labels
    if labels is not None and data.classes is not None:
        Classes(values=data.classes).read(labels).public(labels, len(labels), "label")
    if labels is not None and config.public.only_score:
        labels = labels.astype(object)
        labels[:-scored] = None
    if data.public is not None:
        found["X_public"] = data.public
        if config.method_meant.needs.start or scored or data.classes is None:
            found["y_public"] = data.label or labels
    return found


def prepare_release(
    config: RunConfig,
    data: Sources,
    choose: "Chooser | None" = None,
    *,
    progress: bool = False,
    **once: Any,
) -> "PreparedRelease":
    """Return the release of a configuration, checked; `once` holds arguments of `prepare` for this run alone."""
    model = build_estimator(config, data).set_params(progress=progress)
    once |= {
        "later": config.public.later,
        "tuned_on": config.privacy.tuned_on,
        "report": config.privacy.report,
        "holdout": config.privacy.holdout,
        "groups": config.target.groups,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("always", PreflightWarning)
        warnings.simplefilter("always", FewPublicRowsWarning)
        release = model.prepare(**arguments(config, data), choose=choose, **once)
    for problem in problems_of_names(release.public.classes.tolist()):
        raise ConfigError(
            f"{problem} Since [target] lists no classes, the labels of the public rows were taken."
        )
    return release
