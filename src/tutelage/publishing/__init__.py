"""A publishable ε that depends on the votes: proposed on public votes, tested on the private ones."""

from tutelage.publishing.cost_envelope import PrivateReach, reach_of
from tutelage.publishing.proposal import Proposal, propose
from tutelage.publishing.publication import Publication, publish_epsilon
from tutelage.publishing.recording import record

__all__ = [
    "PrivateReach",
    "Proposal",
    "Publication",
    "propose",
    "publish_epsilon",
    "reach_of",
    "record",
]
