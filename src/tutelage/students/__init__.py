"""Released labels and public data to a model; nothing here can hold a vote."""

from tutelage.students.store import load_student, save_student
from tutelage.students.supervised import fit_supervised

__all__ = ["fit_supervised", "load_student", "save_student"]
