"""Which ensemble a teacher is trained in."""

from typing import Any

from tutelage.teachers.base import TeacherRecipe, TrainableTeachers
from tutelage.teachers.estimators import EstimatorTeachers


def ensemble_of(
    teacher: Any, *, n_classes: int, seed: int, n_jobs: int | None = None, progress: bool = False
) -> TrainableTeachers:
    """Return untrained teachers: those that a recipe makes, or clones of a scikit-learn classifier.

    Parameters
    ----------
    teacher : TeacherRecipe or scikit-learn classifier
        What each teacher is.
    n_classes, seed, n_jobs, progress
        As in `TeacherRecipe.ensemble`.
    """
    if isinstance(teacher, TeacherRecipe):
        return teacher.ensemble(n_classes=n_classes, seed=seed, n_jobs=n_jobs, progress=progress)
    return EstimatorTeachers(teacher, n_classes=n_classes, seed=seed, n_jobs=n_jobs, progress=progress)
