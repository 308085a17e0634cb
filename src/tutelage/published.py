"""Published files of a fit: the privacy card, the released labels and the student, each from public values only."""

import csv
import re
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import astuple
from importlib.metadata import version
from itertools import starmap
from pathlib import Path
from typing import Any, NamedTuple

import numpy.typing as npt
from sklearn.base import is_classifier
from sklearn.pipeline import Pipeline, make_pipeline

from tutelage.accounting import data_independent
from tutelage.events import Composed, Event, NoisySumGaussian, Repeated
from tutelage.exceptions import InvalidDataError
from tutelage.features import Schema
from tutelage.ledger.history import History
from tutelage.noise import SystemNoise, known_noise
from tutelage.privacy import NeighboringRelation
from tutelage.reporting import Batch, ClassAccuracy, PrivacyCard
from tutelage.reporting.lints import lint
from tutelage.reporting.record import FrontierPoint, Influence, Reached, merged
from tutelage.students.store import write_student
from tutelage.tables import is_number
from tutelage.targets import Numbers

_MOST_BATCHES = 200
_FRONTIER = (1 / 4, 1 / 2, 1, 2, 4)  # each costs up to a second or so
_FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20].")  # also in full width


def is_formula(value: object) -> bool:
    """Return whether spreadsheets would compute a class value that is text."""
    return isinstance(value, str) and bool(_FORMULA.match(value)) and not is_number(value)


class Judged(NamedTuple):
    """The measured quality of a student on public labeled rows, if there were any."""

    accuracy: tuple[ClassAccuracy, ...] = ()
    by_public_labels: float | None = None  # accuracy of a model of public labels alone
    goals: tuple[Reached, ...] = ()  # if the goal is not accuracy

    @property
    def for_lint(self) -> dict[str, Any]:
        """Return what `lint` looks at."""
        accuracy, goals = ([astuple(entry) for entry in entries] for entries in (self.accuracy, self.goals))
        return {"accuracy": accuracy, "by_public_labels": self.by_public_labels, "goals": goals}


def card_of(model: Any, judged: Judged, features: Sequence[str], statements: dict[str, str]) -> PrivacyCard:
    """Return the card of a fitted estimator; `statements` are of the people behind the data, by topic."""
    accuracy = judged.accuracy
    release, mechanism, epsilon = model.release_, model.mechanism_, model.epsilon_
    history = model.open_ledger_.history().before_releases if hasattr(model, "open_ledger_") else None
    sanitised, event = None, release.event
    if model.publication_ is not None and history is not None:
        sanitised = model.publication_.smaller
        event = Composed((event, *model.open_ledger_.history().publications))
    evaluated = sum(entry.rows for entry in accuracy)
    noise, facts, classes = known_noise(model.noise, "card"), model.facts_, model.target_.names
    named = None if model.method is None else model.method.student
    taught = model.student_ if model.method_.student is None else model.method_.student
    frontier: tuple[FrontierPoint, ...] = ()
    if model.n_teachers_ is not None and not facts.of_sums:
        one = mechanism.event_of_one(len(classes), epsilon.unit, simulated=epsilon.simulated)
        frontier = frontier_of(one, len(release.labels), epsilon.delta)
    return PrivacyCard(
        epsilon=epsilon,
        if_added_or_removed=_if_added_or_removed(model),
        sanitised=sanitised,
        proposal=None if sanitised is None else model.proposal_.as_dict(),
        event=event,
        mechanism=str(mechanism),
        noise_source="OpenDP exact discrete samplers, operating system entropy"
        if isinstance(noise, SystemNoise)
        else type(noise).__name__,
        queries=len(release.labels),
        selection=facts.selection,
        answered=int(release.answered.sum()),
        teachers=model.n_teachers_,
        classes=() if isinstance(model.target_, Numbers) else tuple(str(value) for value in classes),
        features=tuple(features),
        feature_map=model.columns_.origin if isinstance(model.columns_, Schema) else _feature_map(model.student_map_),
        student=named if isinstance(named, str) else type(_final_step(taught)).__name__,
        student_accuracy=sum(entry.right for entry in accuracy) / evaluated if evaluated else None,
        evaluation_rows=evaluated,
        public_labels_accuracy=judged.by_public_labels,
        goals=judged.goals,
        class_weight={str(value): weight for value, weight in (model.class_weight_ or {}).items()},
        accuracy_by_class=accuracy,
        curves=tuple(getattr(model.student_, "curves", list)()),
        influences=tuple(starmap(Influence, getattr(model.student_, "influences", list)())),
        budget=(model.ledger_ if history is None else history.state).as_dict(),
        batches=() if history is None else batches_of(history),
        frontier=frontier,
        findings=lint(
            epsilon=epsilon.epsilon,
            delta=epsilon.delta,
            unit=epsilon.unit,
            entities=public_number_of_people(model),
            classes=len(classes),
            insisted=model.insisted_,
            classes_from=model.target_.origin,
            **facts.for_lint,
            **judged.for_lint,
        ),
        statements=statements,
        versions={name: version(name) for name in ("tutelage", "opendp", "scikit-learn", "numpy")},
        created=model.day_,
    )


def public_number_of_people(model: Any) -> int | None:
    """Return the number of rows if it is public, or the noisy number of people that a sum of ballots released."""
    rows = model.n_private_rows_
    return model.n_teachers_ if rows is None and model.facts_.teachers is None else rows


def accuracy_by_class(
    classes: npt.NDArray[Any], predicted: npt.NDArray[Any], truth: npt.NDArray[Any]
) -> tuple[ClassAccuracy, ...]:
    """Return how many public rows of each class are right."""
    places = [(str(value), truth == value) for value in classes]
    return tuple(ClassAccuracy(name, int(rows.sum()), int((predicted == truth)[rows].sum())) for name, rows in places)


def joined(*parts: Any) -> Any:
    """Return maps and a student, those that are not None, as one estimator."""
    given = [part for part in parts if part is not None]
    if len(given) == 1:
        return given[0]
    # Copies of maps that give arrays whatever scikit-learn's `set_output` says: so the student was fitted.
    maps = [hasattr(part, "set_output") and not is_classifier(part) for part in given]
    pairs = zip(given, maps, strict=True)
    return make_pipeline(*(deepcopy(one).set_output(transform="default") if is_map else one for one, is_map in pairs))


def write_results(folder: Path, model: Any, card: PrivacyCard, student: Any) -> None:
    """Write what may be published into an empty folder: card, student and labels."""
    odd = [value for value in model.target_.names.tolist() if is_formula(value)]
    if odd:
        raise InvalidDataError(
            f"A spreadsheet would run the class value {odd[0]!r} in labels.csv as a formula. Rename it before you fit."
        )
    card.write(folder)
    write_student(student, folder / "student.skops")
    with (folder / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["public_row", "label"])
        release = model.release_
        for row, label, answered in zip(model.queries_, release.labels, release.answered, strict=True):
            writer.writerow([row, model.target_.names[label] if answered else ""])


def batches_of(history: History) -> tuple[Batch, ...]:
    """Return what each batch of a ledger took; of very many, neighbors in time are put together."""
    batches = []
    for charge in history.charges:
        share = history.limit.share(charge.cost)
        checks = share * history.share_of_checks(charge)
        parts = [part.event.without_shares() for part in charge.event.flatten()]
        sums = charge.queries if all(isinstance(part, NoisySumGaussian) for part in parts) else 0
        written, queries = charge.reserved.content["written"], 0 if sums else charge.queries
        batches.append(Batch(written, queries, checks, share - checks, sums))
    return merged(batches, _MOST_BATCHES)


def frontier_of(one: Event, queries: int, delta: float) -> tuple[FrontierPoint, ...]:
    """Return what other numbers of queries would cost by themselves, every one of them answered."""
    numbers = sorted({max(1, round(queries * factor)) for factor in _FRONTIER})
    return tuple(FrontierPoint(number, data_independent.epsilon(Repeated(one, number), delta)) for number in numbers)


def _if_added_or_removed(model: Any) -> float | None:
    """Return the ε of people who join or leave, where each casts one ballot and their number is private."""
    private_number = model.epsilon_.unit.neighboring is NeighboringRelation.ADD_REMOVE_OR_CHANGE_ONE_ENTITY
    released = model.facts_.teachers is None and model.n_teachers_ is not None and private_number
    if not released or model.epsilon_ == model.ledger_.guarantee():
        return None
    return data_independent.epsilon_if_added_or_removed(model.release_.event, model.epsilon_.delta)


def _final_step(student: Any) -> Any:
    return student[-1] if isinstance(student, Pipeline) else student


def _feature_map(feature_map: Any) -> str:
    if feature_map is None:
        return "none"
    steps = [step for _, step in feature_map.steps] if isinstance(feature_map, Pipeline) else [feature_map]
    return f"{', '.join(type(step).__name__ for step in steps)}, published with the student"
