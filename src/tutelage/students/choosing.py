"""Students and selection rules by name, and the student where nobody chose one."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from tutelage.exceptions import InvalidParameterError
from tutelage.students.propagation import LabelPropagationStudent
from tutelage.students.selection import (
    BinaryExperts,
    FirstRows,
    LeastConfident,
    Medoids,
    QuerySelector,
    RandomRows,
    SiameseSimilarity,
    TypiClust,
)
from tutelage.students.self_training import SelfTrainingStudent

STUDENTS: dict[str, tuple[str, str]] = {  # module and class, loaded when named: networks need the torch extra
    "forest": ("sklearn.ensemble", "RandomForestClassifier"),
    "label-propagation": ("tutelage.students.propagation", "LabelPropagationStudent"),
    "self-training": ("tutelage.students.self_training", "SelfTrainingStudent"),
    "adversarial": ("tutelage.students.networks", "AdversarialStudent"),
    "consistency": ("tutelage.students.networks", "ConsistencyStudent"),
    "noisy-self-training": ("tutelage.students.networks", "NoisySelfTrainingStudent"),
}
SELECTORS: dict[str, Callable[[], QuerySelector]] = {
    "first": FirstRows,
    "random": RandomRows,
    "medoids": Medoids,
    "typiclust": TypiClust,
    "least-confident": LeastConfident,
    "binary-experts": BinaryExperts,
    "siamese": SiameseSimilarity,
}


def student_named(name: str, **parameters: Any) -> Any:
    """Return the student of this name.

    Parameters
    ----------
    name : str
        One of `STUDENTS`.
    **parameters
        Its settings.

    Raises
    ------
    InvalidParameterError
        If there is none; the message lists those that there are.
    """
    if name not in STUDENTS:
        raise InvalidParameterError(f"There is no student {name!r}. There are: {', '.join(STUDENTS)}.")
    module, kind = STUDENTS[name]
    return getattr(import_module(module), kind)(**parameters)


def selector_named(name: str) -> QuerySelector:
    """Return the rule of this name, with its default settings.

    Raises
    ------
    InvalidParameterError
        If there is none; the message lists those that there are.
    """
    if name not in SELECTORS:
        raise InvalidParameterError(
            f"There is no rule {name!r} to choose queries by. There are: {', '.join(SELECTORS)}. To choose by label, "
            "see `class_balanced`: the labels must be paid for first."
        )
    return SELECTORS[name]()


def default_student(*, public_features: bool) -> Any:
    """Return the student for rows of a kind: by neighbours where public features say what is near, else a forest.

    The forest has leaves as large as suits the noise of the labels; self-training on top of it did not pay on tables.

    Parameters
    ----------
    public_features : bool
        Whether the student sees features that were learned from public rows, rather than the rows of a table.
    """
    return LabelPropagationStudent() if public_features else SelfTrainingStudent(rounds=0)
