"""How the numbers of a row are written, on a terminal and in a page."""

import math

from tutelage.budget import round_up
from tutelage.reproductions.record import Row


def number(value: float | None) -> str:
    """Return a number with three significant digits, or two after the point where it is larger; empty for none."""
    if value is None:
        return ""
    if not math.isfinite(value) or abs(value) >= 1000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) >= 1 else f"{value:.3g}"


def ours(row: Row) -> str:
    """Return the value of a row; a cost is rounded upward and a lower bound downward, so that what is written holds."""
    if not (row.better == "lower" or row.is_lower_bound) or not 0 < row.ours < 1000:
        return number(row.ours)
    digits = 3 if row.ours >= 1 else 2 - math.floor(math.log10(row.ours))
    held = -round_up(-row.ours, digits) if row.is_lower_bound else round_up(row.ours, digits)
    return f"{held:.{digits}f}"


def asked(row: Row) -> str:
    """Return what this project asks of a row."""
    limits = (("≥", row.at_least), ("≤", row.at_most))
    return ", ".join(f"{sign} {number(limit)}" for sign, limit in limits if limit is not None)


def interval(row: Row) -> str:
    """Return the confidence interval of a row."""
    return "" if row.interval is None else f"{number(row.interval[0])} – {number(row.interval[1])}"


def duration(seconds: float | None) -> str:
    """Return a time on the clock in the unit that suits it."""
    if seconds is None:
        return ""
    if seconds >= 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.1f} min" if seconds >= 90 else f"{seconds:.1f} s"
