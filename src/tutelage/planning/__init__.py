"""Recommend a method, its settings and the accuracy to expect for a target (ε, δ), from public data only."""

from tutelage.planning.planned import Planned
from tutelage.planning.planner import plan
from tutelage.planning.recommendation import Option, Plan

__all__ = ["Option", "Plan", "Planned", "plan"]
