"""Recommend a method, its settings and the accuracy to expect for a target (ε, δ), from public data only."""

from tutelage.planning.calibration import local_gaussian_for
from tutelage.planning.methods import DenseVotes, FewVotesOfPeople, PeopleBallots, Wish
from tutelage.planning.planner import plan
from tutelage.planning.recommendation import Advice, Option, Plan, PlanPoint
from tutelage.planning.teacher_model import ProxyVotes, TeacherModel, votes_of_public_teachers
from tutelage.planning.votes_plan import VotesOption, VotesPlan, VotesPoint
from tutelage.planning.votes_planner import plan_votes

__all__ = [
    "Advice",
    "DenseVotes",
    "FewVotesOfPeople",
    "Option",
    "PeopleBallots",
    "Plan",
    "PlanPoint",
    "ProxyVotes",
    "TeacherModel",
    "VotesOption",
    "VotesPlan",
    "VotesPoint",
    "Wish",
    "local_gaussian_for",
    "plan",
    "plan_votes",
    "votes_of_public_teachers",
]
