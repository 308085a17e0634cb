"""The pipeline of a configuration: the feature map, learned from its public rows, and the classifier."""

import warnings
from typing import Any

from sklearn.pipeline import make_pipeline

from tutelage.cli.config import RunConfig, build_student, build_teacher
from tutelage.cli.sources import RunData, pool_of
from tutelage.estimator import PATEClassifier
from tutelage.estimator.inputs import Caller
from tutelage.exceptions import ConfigError, PreflightWarning
from tutelage.features import PublicRows
from tutelage.features.named import FEATURE_MAPS, Columns
from tutelage.preflight import Words

_IN_TOML = Words(
    entity='set `entity = "{name}"` in [private]',
    of_array="store it as an array of its own, and name it as `entity` in [private]",
    row='set `unit = "row"` in [private]',
    insist="pass --insist to `tutelage run`, or set `insist = true` in [privacy]",
)


def learn_features(settings: RunConfig, data: RunData) -> Any:
    """Return the feature map of ``[features]``, if any, learned from public rows that are not kept for scoring."""
    section = settings.features_section
    if section is None:
        return None
    public = PublicRows(pool_of(settings, data), _source(settings))
    try:
        columns = Columns(len(data.numbers), 0 if data.columns is None else data.columns.n_text_features)
        return FEATURE_MAPS[section.map](public, section.components, section.image_shape, columns)
    except ValueError as error:  # about public rows and settings only
        raise ConfigError(f"[features] does not fit the public rows. {error}") from None


def describe_features(settings: RunConfig) -> str:
    """Return what a card says about the feature map."""
    section = settings.features_section
    if section is None:
        return "none"
    return f"{section.map}, learned from {_source(settings)}, published with the student"


def _source(settings: RunConfig) -> str:
    return settings.public.file or f"the public rows of {settings.dataset}"


def build_classifier(settings: RunConfig, data: RunData, **more: Any) -> PATEClassifier:
    """Return the classifier that a configuration describes, with the parameters that one verb adds."""
    features, private = learn_features(settings, data), settings.private
    classes: Any = data.classes
    question = settings.dataset if private is None else private.question
    if data.batches is not None:  # whose cells are made numbers and classes while they are read
        features = None if features is None else make_pipeline(data.columns, features)
        classes, question = data.batches.section.classes, data.batches.section.label
    if settings.tuning is not None:
        more |= {"tune": _settings(settings, data, features), "tune_share": settings.tuning.share}
    described: dict[str, Any] = {
        "n_teachers": settings.teachers.number,
        "mechanism": settings.mechanism,
        "student": build_student(settings),
        "features": features,
        "student_features": _student_features(settings, features),
        "classes": classes,
        "n_queries": settings.public.queries,
        "selection": None if settings.by_vectors else settings.public.selection,
        "rounds": settings.public.rounds,
        "unit": None if private is None else private.entity or private.unit,
        "insist": settings.privacy.insist,
        "question": question,
        "delta": settings.privacy.delta,
        "random_state": settings.teachers.seed,
        "n_jobs": settings.teachers.jobs,
    }
    model = PATEClassifier(build_teacher(settings.teachers), **described, **more)
    special = {} if private is None else {"entity_ids": private.entity, "silos": private.silo}
    named = {parameter: f"column '{name}'" for parameter, name in special.items()}
    apart = () if private is None else tuple(filter(None, (private.label, private.silo)))
    model._caller = Caller(_IN_TOML, data.columns, data.others, apart, named)
    return model


def _student_features(settings: RunConfig, features: Any) -> Any:
    return "rows" if settings.student.sees == "rows" else features


def _settings(settings: RunConfig, data: RunData, features: Any) -> list[dict[str, Any]]:
    """Return the parameters of each setting in ``[tuning]``."""
    found, section = list[dict[str, Any]](), settings.features_section
    for tried in settings.tried:
        learned = features if tried.features_section == section else learn_features(tried, data)
        found.append(
            {
                "teacher": build_teacher(tried.teachers),
                "student": build_student(tried),
                "features": learned,
                "student_features": _student_features(tried, learned),
            }
        )
    return found


def fit(model: PATEClassifier, settings: RunConfig, data: RunData) -> None:
    """Fit the classifier on the private rows, and on the public rows that are not kept for scoring."""
    X, y, given = _rows(data, len(pool_of(settings, data)))
    model.fit(X, y, **given)


def check(settings: RunConfig, data: RunData, **more: Any) -> None:
    """Refuse what `fit` would refuse, and warn of what it would warn of, before anything is planned or spent."""
    more |= {"epsilon": settings.privacy.epsilon, "budget": settings.privacy.budget, "ledger": settings.ledger}
    X, y, given = _rows(data, len(data.X_public))  # those that the student is scored on, too
    with warnings.catch_warnings():
        warnings.simplefilter("always", PreflightWarning)
        build_classifier(settings, data, **more).check(X, y, **given)


def _rows(data: RunData, n_public: int) -> tuple[Any, Any, dict[str, Any]]:
    """Return private rows and labels, and what else a fit takes, with so many public rows."""
    if data.batches is not None:
        section = data.batches.section
        public = data.batches.public.take(range(n_public))
        return data.batches.rows, section.label, {"X_public": public, "entity_ids": section.entity}
    given = {"entity_ids": data.entity_ids, "silos": data.silos, "whole_rows": data.whole_rows}
    return data.X_private, data.y_private, {"X_public": data.X_public[:n_public], **given}
