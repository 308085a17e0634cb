"""Labeling public rows: budget is spent from a ledger, then labels are released, at once or in rounds."""

from tutelage.labeling.rounds import ask_in_rounds
from tutelage.labeling.session import LabelingSession
from tutelage.labeling.tuning import Tuning

__all__ = ["LabelingSession", "Tuning", "ask_in_rounds"]
