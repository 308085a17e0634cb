"""A publishable ε that depends on the votes: proposed on public votes, tested on the private ones."""

from tutelage.publishing.cost_envelope import reach_of
from tutelage.publishing.proposal import Proposal, propose
from tutelage.publishing.publication import publish_epsilon
from tutelage.publishing.recording import record

__all__ = [
    "Proposal",
    "propose",
    "publish_epsilon",
    "reach_of",
    "record",
]
