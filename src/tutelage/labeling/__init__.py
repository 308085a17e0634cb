"""Labeling public rows: budget is spent from a ledger, then labels are released, at once or in rounds."""

from tutelage.labeling.rounds import AskedRounds, ask_in_rounds
from tutelage.labeling.session import LabelingSession
from tutelage.labeling.tuning import Tuning

__all__ = ["AskedRounds", "LabelingSession", "Tuning", "ask_in_rounds"]
