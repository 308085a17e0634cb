"""Warnings that point at the line of the caller, however deep in the package they are found."""

import contextlib
import inspect
import os
import warnings
from pathlib import Path

_PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"


def warn(text: str, category: type[Warning]) -> None:
    """Warn at the line that called the package, outside of it and of the decorators that wrap its functions."""
    frame = inspect.currentframe()
    level = 1
    while frame is not None and frame.f_code.co_filename.startswith(
        (_PACKAGE, contextlib.__file__)
    ):
        frame = frame.f_back
        level += 1
    warnings.warn(text, category, stacklevel=level)
