"""Classes that several labels are merged into."""

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from tutelage.digests import canonical
from tutelage.exceptions import InvalidParameterError


def class_of(classes: Any) -> dict[Any, Any]:
    """Return the class of each label: of classes in a list the label itself, in a mapping those that list it.

    Raises
    ------
    InvalidParameterError
        If a mapping does not give each class a list of labels, each once, or its classes are of several types.
    """
    if not isinstance(classes, Mapping):
        return {label: label for label in np.asarray(classes).tolist()}
    lists = [labels if isinstance(labels, list | tuple) else [] for labels in classes.values()]
    merged = [label for labels in lists for label in labels]
    once = len(set(map(str, merged))) == len(merged) and all(isinstance(label, Hashable) for label in merged)
    # Numbers beside text would become text, and be found no more.
    if not (all(lists) and once and len(set(map(type, classes))) == 1):
        raise InvalidParameterError(
            "`classes`, as a mapping, must give each class, all text or all numbers, the list of its labels, each "
            "label once: {'yes': ['<30', '>30'], 'no': ['NO']}."
        )
    return {label: name for name, labels in classes.items() for label in labels}


def question_of(question: Any, classes: Any) -> Any:
    """Return the question as answers are remembered by it: labels merged in another way are another question."""
    if not isinstance(classes, Mapping):
        return question
    return canonical([question, {str(name): sorted(map(str, labels)) for name, labels in classes.items()}])
