"""From a wished guarantee to teachers, noise and queries; reads public data only."""

from tutelage.planning.local_noise import local_gaussian_for
from tutelage.planning.planner import Option, Plan, PlanPoint, plan
from tutelage.planning.proxies import ProxyVotes, votes_of_public_teachers
from tutelage.planning.teacher_model import TeacherModel

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
