"""Recommend teachers, noise and queries for a target (ε, δ), from public data only."""

from tutelage.planning.calibration import local_gaussian_for
from tutelage.planning.options import Option, Plan, PlanPoint
from tutelage.planning.planner import plan
from tutelage.planning.teacher_model import ProxyVotes, TeacherModel, votes_of_public_teachers

__all__ = [
    "Option",
    "Plan",
    "PlanPoint",
    "ProxyVotes",
    "TeacherModel",
    "local_gaussian_for",
    "plan",
    "votes_of_public_teachers",
]
