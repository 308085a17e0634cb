"""Teachers at different owners: entities vote, three parties compute, one aggregator learns labels and no vote."""

from tutelage.federation.aggregator import Aggregator, Asked, Collected
from tutelage.federation.batches import Batch
from tutelage.federation.computing_party import Computed, ComputingParty
from tutelage.federation.consortium import Consortium
from tutelage.federation.entity import Entity, Vote
from tutelage.federation.home import Home
from tutelage.federation.keys import Identity, Member, Role
from tutelage.federation.mailbox import Mailbox

__all__ = [
    "Aggregator",
    "Asked",
    "Batch",
    "Collected",
    "Computed",
    "ComputingParty",
    "Consortium",
    "Entity",
    "Home",
    "Identity",
    "Mailbox",
    "Member",
    "Role",
    "Vote",
]
