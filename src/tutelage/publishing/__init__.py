"""A publishable ε that depends on the votes: proposed on public votes, tested on the private ones.

Names are loaded on first use: to prove a card takes no scikit-learn.
"""

from typing import TYPE_CHECKING

from tutelage._internal import on_first_use

if TYPE_CHECKING:
    from tutelage.publishing.cost_envelope import reach_of as reach_of
    from tutelage.publishing.proposal import Proposal as Proposal
    from tutelage.publishing.proposal import propose as propose
    from tutelage.publishing.publication import publish_epsilon as publish_epsilon
    from tutelage.publishing.recording import record as record

_HOME = {
    "Proposal": "proposal",
    "propose": "proposal",
    "publish_epsilon": "publication",
    "reach_of": "cost_envelope",
    "record": "recording",
}
__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]

__getattr__, __dir__ = on_first_use(__name__, _HOME)
