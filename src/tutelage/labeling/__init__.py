"""Public rows in, released labels out, and the ledger charged in between; at once or in rounds."""

from tutelage.labeling.rounds import AskedRounds, ask_in_rounds, even_rounds
from tutelage.labeling.session import LabelingSession, require_room

__all__ = ["AskedRounds", "LabelingSession", "ask_in_rounds", "even_rounds", "require_room"]
