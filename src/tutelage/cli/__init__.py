"""The command line: one file per verb."""

from tutelage.cli.app import main

__all__ = ["main"]
