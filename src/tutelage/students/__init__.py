"""Released labels and public rows to a model; nothing here can hold a vote.

ONNX files need the onnx extra, which is loaded when `export_onnx` is first named.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tutelage._internal.typing import Named, load_later
from tutelage.exceptions import InvalidParameterError
from tutelage.students.base import SemiSupervisedClassifier, fit_student
from tutelage.students.forest import ForestStudent
from tutelage.students.noisy_sums import Moments, NoisySumClassifier
from tutelage.students.propagation import LabelPropagationStudent
from tutelage.students.store import load_student

if TYPE_CHECKING:
    from tutelage.students.export import export_onnx

__all__ = [
    "ForestStudent",
    "LabelPropagationStudent",
    "Moments",
    "NoisySumClassifier",
    "SemiSupervisedClassifier",
    "export_onnx",
    "fit_student",
    "load_student",
]
STUDENTS: Mapping[str, Named[Any]] = {
    "forest": Named(
        load_later("sklearn.ensemble", "RandomForestClassifier"),
        "tables, and where there are many answers",
    ),
    "label-propagation": Named(
        LabelPropagationStudent,
        "rows of public features, in which near rows are mostly of one class",
    ),
}


def student_named(
    name: str,
    owner: str = "",
    **parameters: Any,
) -> Any:
    """Return the student of this name with these settings; `owner` is what has it as `student`, for errors.

    Raises
    ------
    InvalidParameterError
        If the name is unknown; the message lists the known names.
    """
    if name not in STUDENTS:
        raise InvalidParameterError(
            f"{owner}.student", f"be one of {', '.join(STUDENTS)}", f"{name!r}"
        )
    return STUDENTS[name](**parameters)


def __getattr__(name: str) -> Any:
    if name == "export_onnx":
        from tutelage.students.export import export_onnx

        return export_onnx
    raise AttributeError(f"module 'tutelage.students' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
