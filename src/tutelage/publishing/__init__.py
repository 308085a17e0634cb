"""An ε of what was released that may be published although it rests on the votes; each road pays for itself."""

from tutelage.accounting import Proposal, SmoothPlan, choose_release, plan_smooth_release, propose
from tutelage.publishing.publish import publish
from tutelage.publishing.recording import record
from tutelage.publishing.smoothed import SmoothedPublication, publish_smoothed
from tutelage.publishing.tested import Publication, publish_epsilon, recalled_publication

__all__ = [
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
    "recalled_publication",
    "record",
]
