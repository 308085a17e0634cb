"""Tables and figures of the papers, each recomputed by one command: ``tutelage reproduce NAME``."""

from tutelage.reproductions.record import Record, Row
from tutelage.reproductions.registry import NAMES, Reproduction, load

__all__ = ["NAMES", "Record", "Reproduction", "Row", "load"]
