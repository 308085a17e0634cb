"""A publishable ε that depends on the votes; each method spends budget of its own."""

from tutelage.publishing.cost_envelope import PrivateReach, reach_of
from tutelage.publishing.proposal import Proposal, propose
from tutelage.publishing.publication import (
    Publication,
    SmoothedPublication,
    choose_release,
    publish,
    publish_epsilon,
    publish_smoothed,
    recalled_publication,
)
from tutelage.publishing.recording import record
from tutelage.publishing.smooth_plan import SmoothPlan, plan_smooth_release

__all__ = [
    "PrivateReach",
    "Proposal",
    "Publication",
    "SmoothPlan",
    "SmoothedPublication",
    "choose_release",
    "plan_smooth_release",
    "propose",
    "publish",
    "publish_epsilon",
    "publish_smoothed",
    "reach_of",
    "recalled_publication",
    "record",
]
