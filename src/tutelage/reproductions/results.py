"""One page of all records: what was published, what came out here, where it falls short and why."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tutelage.exceptions import InvalidParameterError
from tutelage.reproductions.record import Record, Row
from tutelage.reproductions.registry import NAMES
from tutelage.reproductions.tables import asked, duration, interval, number, ours

ABOUT = """\
Tables and figures of the papers, recomputed, and what this project asks of itself. Each part is one command, `tutelage
reproduce NAME`; `tutelage reproduce --all --output FOLDER` makes all of them, and this page.

*Published* is what the paper prints, *asked* what this project set itself, *ours* what came out, with its 95 %
interval; notes say over what. Times are on the clock; whatever else the machine did is in them."""

_ARXIV = re.compile(r" \(arXiv:[^)]*\)")


def records_of(folder: Path) -> list[Record]:
    """Return the records that were saved in a folder, in the order of `NAMES`.

    Parameters
    ----------
    folder : path
        What `Record.save` wrote into.
    """
    return [Record.load(folder / f"{name}.json") for name in NAMES if (folder / f"{name}.json").is_file()]


def page(records: Sequence[Record], figures: Mapping[str, str]) -> str:
    """Return the page in Markdown.

    Parameters
    ----------
    records : sequence of Record
        At least one, in the order of `NAMES`.
    figures : mapping of str to str
        Links from the page to the figures of those records that have one, by their names.

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
