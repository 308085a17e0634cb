"""Released labels and public rows to a model; nothing here can hold a vote.

Networks need the torch extra and are loaded when they are first named.
"""

from typing import TYPE_CHECKING, Any

from tutelage.students.base import SemiSupervisedClassifier, fit_student
from tutelage.students.propagation import LabelPropagationStudent
from tutelage.students.registry import STUDENTS, default_student, student_named
from tutelage.students.selection import SELECTORS, selector_named
from tutelage.students.self_training import SelfTrainingStudent
from tutelage.students.store import load_student, save_student

if TYPE_CHECKING:
    from tutelage.students.networks import AdversarialStudent, ConsistencyStudent, NoisySelfTrainingStudent

__all__ = [
    "SELECTORS",
    "STUDENTS",
    "AdversarialStudent",
    "ConsistencyStudent",
    "LabelPropagationStudent",
    "NoisySelfTrainingStudent",
    "SelfTrainingStudent",
    "SemiSupervisedClassifier",
    "default_student",
    "fit_student",
    "load_student",
    "save_student",
    "selector_named",
    "student_named",
]
_NETWORKS = {"AdversarialStudent", "ConsistencyStudent", "NoisySelfTrainingStudent"}


def __getattr__(name: str) -> Any:
    if name in _NETWORKS:
        from tutelage.students import networks

        return getattr(networks, name)
    raise AttributeError(f"module 'tutelage.students' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
