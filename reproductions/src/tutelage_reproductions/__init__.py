"""Recompute the tables and figures of the papers: ``tutelage reproduce NAME``."""

from tutelage_reproductions.record import Record, Row
from tutelage_reproductions.running import (
    NAMES,
    Refused,
    Reproduction,
    load,
    run,
    run_all,
    still_to_run,
)

__all__ = [
    "NAMES",
    "Record",
    "Refused",
    "Reproduction",
    "Row",
    "load",
    "run",
    "run_all",
    "still_to_run",
]
