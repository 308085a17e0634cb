"""Teachers at different owners: entities vote, three parties compute, one aggregator learns labels and no vote.

Names are loaded on first use, so that who receives labels loads nothing that holds a vote.
"""

from typing import TYPE_CHECKING

from tutelage._internal import on_first_use

if TYPE_CHECKING:
    from tutelage_consortium.aggregator import Aggregator as Aggregator
    from tutelage_consortium.batches import Batch as Batch
    from tutelage_consortium.computing_party import ComputingParty as ComputingParty
    from tutelage_consortium.consortium import Consortium as Consortium
    from tutelage_consortium.entity import Entity as Entity
    from tutelage_consortium.home import Home as Home
    from tutelage_consortium.keys import Identity as Identity
    from tutelage_consortium.keys import Role as Role
    from tutelage_consortium.mailbox import Mailbox as Mailbox

_HOME = {
    "Aggregator": "aggregator",
    "Batch": "batches",
    "ComputingParty": "computing_party",
    "Consortium": "consortium",
    "Entity": "entity",
    "Identity": "keys",
    "Role": "keys",
    "Home": "home",
    "Mailbox": "mailbox",
}
__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]

__getattr__, __dir__ = on_first_use(__name__, _HOME)
