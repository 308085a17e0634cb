"""Shards to ballots: each teacher learns from its own shard and votes on public rows.

Networks need the torch extra and are loaded when they are first named.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tutelage._internal import on_first_use
from tutelage._internal.typing import Named
from tutelage.teachers.base import TeacherRecipe, TrainableTeachers
from tutelage.teachers.closed_form import ClassMeans, HeadTeachers, Ridge
from tutelage.teachers.estimators import EstimatorTeachers, ensemble_of
from tutelage.teachers.external import CallableTeachers, RecordedTeachers
from tutelage.teachers.nearest import NearestQueries, NearestTeachers
from tutelage.teachers.statistics import PrivateStatistics
from tutelage.teachers.vectors import VectorBallots

if TYPE_CHECKING:
    from tutelage.teachers.networks import Network, NetworkTeachers

__all__ = [
    "CallableTeachers",
    "ClassMeans",
    "EstimatorTeachers",
    "HeadTeachers",
    "NearestQueries",
    "NearestTeachers",
    "Network",
    "NetworkTeachers",
    "PrivateStatistics",
    "RecordedTeachers",
    "Ridge",
    "TrainableTeachers",
    "VectorBallots",
    "ensemble_of",
]
# Names for configurations besides the classifiers of scikit-learn.
TEACHERS: Mapping[str, Named[TeacherRecipe]] = {
    "ClassMeans": Named(ClassMeans, "a handful of rows per class"),
    "Ridge": Named(Ridge, "more rows than features, or few features"),
}
# They load PyTorch, which is an extra.
__getattr__, __dir__ = on_first_use(
    __name__, {"Network": "networks", "NetworkTeachers": "networks"}
)
