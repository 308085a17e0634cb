"""An ε of what was released that may be published although it rests on the votes; each road pays for itself."""

from tutelage.publishing.cost_envelope import PrivateReach, reach_of
from tutelage.publishing.proposal import Proposal, propose
from tutelage.publishing.publish import choose_release, publish
from tutelage.publishing.recording import record
from tutelage.publishing.smooth_plan import SmoothPlan, plan_smooth_release
from tutelage.publishing.smoothed import SmoothedPublication, publish_smoothed
from tutelage.publishing.tested import Publication, publish_epsilon, recalled_publication

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
