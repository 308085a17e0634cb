"""Students by name, and the default student."""

from importlib import import_module
from typing import Any

from tutelage.exceptions import InvalidParameterError
from tutelage.students.propagation import LabelPropagationStudent
from tutelage.students.self_training import SelfTrainingStudent

STUDENTS: dict[str, tuple[str, str]] = {  # module and class, loaded when named: networks need the torch extra
    "forest": ("sklearn.ensemble", "RandomForestClassifier"),
    "label-propagation": ("tutelage.students.propagation", "LabelPropagationStudent"),
    "self-training": ("tutelage.students.self_training", "SelfTrainingStudent"),
    "adversarial": ("tutelage.students.networks", "AdversarialStudent"),
    "consistency": ("tutelage.students.networks", "ConsistencyStudent"),
    "noisy-self-training": ("tutelage.students.networks", "NoisySelfTrainingStudent"),
}


def student_named(name: str, **parameters: Any) -> Any:
    """Return the student of this name with these settings.

    Raises
    ------
    InvalidParameterError
        If there is none; the message lists those that there are.
    """
    if name not in STUDENTS:
        raise InvalidParameterError(f"There is no student {name!r}. There are: {', '.join(STUDENTS)}.")
    module, kind = STUDENTS[name]
    return getattr(import_module(module), kind)(**parameters)


def default_student(*, public_features: bool) -> Any:
    """Return the student for rows of a kind: by neighbours where public features say what is near, else a forest.

    The forest has leaves as large as suits the noise of the labels; self-training on top of it did not pay on tables.

    Parameters
    ----------
    public_features : bool
        Whether the student sees features that were learned from public rows, rather than the rows of a table.
    """
    return LabelPropagationStudent() if public_features else SelfTrainingStudent(rounds=0)
