"""Shards to ballots: each teacher learns from its own shard and votes on public rows."""

from tutelage.teachers.base import TeacherEnsemble
from tutelage.teachers.checkpoints import discard_checkpoints
from tutelage.teachers.estimators import EstimatorTeachers

__all__ = ["EstimatorTeachers", "TeacherEnsemble", "discard_checkpoints"]
