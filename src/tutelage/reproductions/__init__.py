"""Tables and figures of the papers, each recomputed by one command: ``tutelage reproduce NAME``."""

from tutelage.reproductions.record import Record, Row
from tutelage.reproductions.registry import NAMES, Reproduction, load
from tutelage.reproductions.running import Refused, run, run_all, still_to_run

__all__ = ["NAMES", "Record", "Refused", "Reproduction", "Row", "load", "run", "run_all", "still_to_run"]
