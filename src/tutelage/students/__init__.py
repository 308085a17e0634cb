"""Released labels and public rows to a model; nothing here can hold a vote."""

from tutelage.students.base import SemiSupervisedClassifier
from tutelage.students.fitting import fit_student
from tutelage.students.store import load_student, save_student

__all__ = ["SemiSupervisedClassifier", "fit_student", "load_student", "save_student"]
