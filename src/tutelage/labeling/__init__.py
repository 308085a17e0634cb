"""Labeling public rows: budget is spent from a ledger, then labels are released, at once or in rounds."""

from tutelage.labeling.rounds import AskedRounds, ask_in_rounds, even_rounds
from tutelage.labeling.session import LabelingSession, require_room
from tutelage.labeling.sums import BallotRounds, SumRelease, release_sum
from tutelage.labeling.tuning import Tuning

__all__ = [
    "AskedRounds",
    "BallotRounds",
    "LabelingSession",
    "SumRelease",
    "Tuning",
    "ask_in_rounds",
    "even_rounds",
    "release_sum",
    "require_room",
]
