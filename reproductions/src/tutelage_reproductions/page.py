"""How records are written: their numbers, and one page of all, with where ours falls short and why."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tutelage.exceptions import InvalidParameterError
from tutelage.privacy import round_up
from tutelage_reproductions.record import Record, Row
from tutelage_reproductions.running import NAMES

ABOUT = """\
Tables and figures of the papers, recomputed, and what this project asks of itself. Each part is one command, `tutelage
reproduce NAME`; `tutelage reproduce --all --output FOLDER` makes all of them, and this page.

*Published* is what the paper prints, *asked* what this project set itself, *ours* what came out, with its 95 %
interval; notes say over what. Times are on the clock; whatever else the machine did is in them."""

_ARXIV = re.compile(r" \(arXiv:[^)]*\)")


def records_of(folder: Path) -> list[Record]:
    """Return the records that were saved in a folder, in the order of `NAMES`."""
    return [Record.load(folder / f"{name}.json") for name in NAMES if (folder / f"{name}.json").is_file()]


def page(records: Sequence[Record], figures: Mapping[str, str]) -> str:
    """Return the page in Markdown.

    Raises
    ------
    InvalidParameterError
        If there is no record.
    """
    if not records:
        raise InvalidParameterError("`records` of page must be at least one.")
    parts = [f"# Results\n\n{ABOUT}", _overview(records), _short(records)]
    parts += [_part(record, figures.get(record.name)) for record in records]
    return "\n\n".join(parts) + "\n"


def _overview(records: Sequence[Record]) -> str:
    total = sum(record.circumstances.seconds for record in records if record.circumstances)
    rows = [_overview_row(record) for record in records]
    dates = sorted(record.circumstances.date for record in records if record.circumstances) or [""]
    days = " to ".join(dict.fromkeys((dates[0], dates[-1])))
    machines = sorted({_machine(record) for record in records})
    return (
        f"{_table(('', 'of', 'rows', 'short', 'time', 'commit'), rows, '--rrr-')}\n\n"
        f"All together: {duration(total)}, {days}, on {'; '.join(machines)}.{_missing(records)}"
    )


def _missing(records: Sequence[Record]) -> str:
    there = {record.name for record in records}
    missing = [name for name in NAMES if name not in there]
    return f" Not run: {', '.join(missing)}." if missing else ""


def _overview_row(record: Record) -> tuple[str, ...]:
    short = sum(row.falls_short for row in record.rows)
    on = record.circumstances
    return (
        f"[{record.name}](#{record.name})",
        f"{_ARXIV.sub('', record.source)}{' (quick form)' if record.quick else ''}",
        str(len(record.rows)),
        str(short or ""),
        duration(on.seconds) if on else "",
        on.commit or on.tutelage if on else "",
    )


def _machine(record: Record) -> str:
    on = record.circumstances
    return f"{on.processor}, {on.python}" if on else "a machine that was not written down"


def _short(records: Sequence[Record]) -> str:
    rows = [
        (f"[{record.name}](#{record.name})", row.name, *_values(row), row.why or "")
        for record in records
        for row in record.rows
        if row.falls_short
    ]
    head = "## Where ours falls short"
    if not rows:
        return f"{head}\n\nNowhere: every number below is as good as published, and as asked."
    return f"{head}\n\n{_table(('', 'number', 'published', 'asked', 'ours', 'why'), rows, '--rrr-')}"


def _part(record: Record, figure: str | None) -> str:
    form = ", in its quick form" if record.quick else ""
    drawn = [] if figure is None else [f"![{record.name}]({figure})"]
    heads = ("", "published", "asked", "ours", "95 % interval", "time")
    table = _table(heads, (_cells(row) for row in record.rows), "-rrrrr")
    reasons = [f"- *{row.name}*: {row.why}" for row in record.rows if row.why and not row.falls_short]
    notes = "\n".join([*(f"- {note}" for note in record.notes), *reasons])
    return "\n\n".join([f"## {record.name}", f"{record.source}{form}.", *drawn, table, notes])


def _cells(row: Row) -> tuple[str, ...]:
    return (row.name, *_values(row), interval(row), duration(row.seconds))


def _values(row: Row) -> tuple[str, str, str]:
    return number(row.published), asked(row), ours(row)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], alignment: str) -> str:
    rule = ["---:" if side == "r" else "---" for side in alignment]
    lines = [heads, rule, *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines)


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
