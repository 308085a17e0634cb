"""Shards to ballots: each teacher learns from its own shard and votes on public rows."""

from tutelage.teachers.base import TeacherEnsemble
from tutelage.teachers.estimators import EstimatorTeachers

__all__ = ["EstimatorTeachers", "TeacherEnsemble"]
