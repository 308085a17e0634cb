"""Classes that several labels are merged into."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tutelage.exceptions import InvalidParameterError
from tutelage.ledger.entries import canonical


def class_of(classes: Any) -> dict[Any, Any]:
    """Return the class of each label: of classes in a list the label itself, in a mapping those that list it.

    Raises
    ------
    InvalidParameterError
        If a mapping does not give each class a list of labels, each once.
    """
    if not isinstance(classes, Mapping):
        return {label: label for label in np.asarray(classes).tolist()}
    lists = [labels for labels in classes.values() if isinstance(labels, list | tuple) and len(labels)]
    found = {label: name for name, labels in classes.items() for label in labels} if len(lists) == len(classes) else {}
    if not found or len({str(label) for label in found}) < sum(map(len, lists)):
        raise InvalidParameterError(
            "`classes`, as a mapping, must give each class the list of its labels, each label once: "
            "{'yes': ['<30', '>30'], 'no': ['NO']}."
        )
    return found


def question_of(question: Any, classes: Any) -> Any:
    """Return the question as answers are remembered by it: labels merged in another way are another question."""
    if not isinstance(classes, Mapping):
        return question
    return canonical([question, {str(name): sorted(map(str, labels)) for name, labels in classes.items()}])
