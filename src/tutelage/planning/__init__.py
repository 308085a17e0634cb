"""Recommend a method, its settings and the accuracy to expect for a target (ε, δ), from public data only."""

from tutelage.planning.calibration import local_gaussian_for
from tutelage.planning.methods import DenseVotes, FewVotesOfPeople, PeopleBallots, Target
from tutelage.planning.planner import plan
from tutelage.planning.recommendation import Advice, Option, Plan, PlanPoint

__all__ = [
    "Advice",
    "DenseVotes",
    "FewVotesOfPeople",
    "Option",
    "PeopleBallots",
    "Plan",
    "PlanPoint",
    "Target",
    "local_gaussian_for",
    "plan",
]
