"""Released labels and public rows to a model; nothing here can hold a vote.

Names are loaded on first use: a command that checks a student's file needs no scikit-learn; ONNX and torch are extras.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tutelage._internal import on_first_use
from tutelage._internal.typing import Named, load_later
from tutelage.exceptions import InvalidParameterError

if TYPE_CHECKING:
    from tutelage.students.base import SemiSupervisedClassifier as SemiSupervisedClassifier
    from tutelage.students.base import fit_student as fit_student
    from tutelage.students.export import export_onnx as export_onnx
    from tutelage.students.forest import ForestStudent as ForestStudent
    from tutelage.students.networks.augmentation import ImageAugmentation as ImageAugmentation
    from tutelage.students.networks.consistency import ConsistencyStudent as ConsistencyStudent
    from tutelage.students.noisy_sums import Moments as Moments
    from tutelage.students.noisy_sums import NoisySumClassifier as NoisySumClassifier
    from tutelage.students.propagation import LabelPropagationStudent as LabelPropagationStudent
    from tutelage.students.store import load_student as load_student

_HOME = {
    "ConsistencyStudent": "networks.consistency",
    "ForestStudent": "forest",
    "ImageAugmentation": "networks.augmentation",
    "LabelPropagationStudent": "propagation",
    "Moments": "noisy_sums",
    "NoisySumClassifier": "noisy_sums",
    "SemiSupervisedClassifier": "base",
    "export_onnx": "export",
    "fit_student": "base",
    "load_student": "store",
}
__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]
STUDENTS: Mapping[str, Named[Any]] = {
    "forest": Named(
        load_later("sklearn.ensemble", "RandomForestClassifier"),
        "tables, and where there are many answers",
    ),
    "label-propagation": Named(
        load_later("tutelage.students.propagation", "LabelPropagationStudent"),
        "rows of public features, in which near rows are mostly of one class",
    ),
    "consistency": Named(
        load_later("tutelage.students.networks.consistency", "ConsistencyStudent"),
        "images, above all in color; it needs torch and minutes",
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


__getattr__, __dir__ = on_first_use(__name__, _HOME)
