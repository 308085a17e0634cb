"""RESULTS.md and a page for each experiment as Markdown, and the numbers of a record as text."""

import math
import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from tutelage.exceptions import InvalidParameterError
from tutelage.privacy import round_up
from tutelage_reproductions.record import Record, Row
from tutelage_reproductions.running import NAMES
from tutelage_reproductions.verdicts import VERDICTS, Verdict

ABOUT = """\
Each experiment recomputes a table or figure of a paper, or tests a claim of this project.
`tutelage reproduce NAME` runs one. `tutelage reproduce --all --output FOLDER` runs all and writes these pages.
Benchmarks compare this project with other private methods where public rows have labels (`docs/results/labels.md`) and
where only a schema is public (`docs/results/packaged.md`); README.md sums them up. They list losses first."""

_READING = """\
- *Published* is the number in the paper, *goal* what this project requires of itself, and *ours* our result, with its
  95 % interval. An ε is rounded up; a lower bound is rounded down.
- A *worst-case ε* holds for every possible set of votes and may be published. A *tested ε* may be published if its
  private test passes. A *vote-dependent ε*, such as an exact ε, is computed from the votes and is private. It is shown
  here only because the data behind these votes are public.
- Noise is simulated, and seeds of partitions, models and noise are fixed, unless a note says otherwise.
- In 2018 the authors of PATE published the votes of 250 teachers on the first 9,000 test images of MNIST and on all
  test images of SVHN. test[9000:] are the other 1,000 test images of MNIST.
- *Time* is wall-clock time. Experiments that share networks show the time of their first training."""


def records_of(folder: Path) -> list[Record]:
    """Return the records that were saved in a folder, in the order of `NAMES`."""
    return [Record.load(folder / f"{name}.json") for name in NAMES if (folder / f"{name}.json").is_file()]


def page(records: Sequence[Record], folder: str = "") -> str:
    """Return the verdicts and what falls short in Markdown.

    Parameters
    ----------
    records : sequence of Record
        What it shows.
    folder : str
        Where the pages of the experiments lie, such as ``"docs/results/"``.

    Raises
    ------
    InvalidParameterError
        If there is no record.
    """
    if not records:
        raise InvalidParameterError("`records` of page must be at least one.")
    parts = (f"# Results\n\n{ABOUT}", _overview(records, folder), f"## How to read the numbers\n\n{_READING}")
    return "\n\n".join((*parts, _short(records, folder))) + "\n"


def _overview(records: Sequence[Record], folder: str) -> str:
    total = sum(record.circumstances.seconds for record in records if record.circumstances)
    rows = [
        (_link(record, folder), VERDICTS[record.name].title, _filled(VERDICTS[record.name].verdict, record))
        for record in records
    ]
    dates = sorted(record.circumstances.date for record in records if record.circumstances) or [""]
    days = " to ".join(dict.fromkeys((dates[0], dates[-1])))
    machines = sorted({_machine(record) for record in records})
    return (
        f"{_table(('experiment', 'what it shows', 'verdict'), rows, '---')}\n\n"
        f"Total time: {duration(total)}, {days}, on {'; '.join(machines)}.{_missing(records)}"
    )


def _link(record: Record, folder: str) -> str:
    return f"[{record.name}]({folder}{record.name}.md){' (quick form)' if record.quick else ''}"


def _missing(records: Sequence[Record]) -> str:
    there = {record.name for record in records}
    missing = [name for name in NAMES if name not in there]
    return f" Not run: {', '.join(missing)}." if missing else ""


def _machine(record: Record) -> str:
    on = record.circumstances
    return f"{on.processor}, {on.python}" if on else "an unknown machine"


def _short(records: Sequence[Record], folder: str) -> str:
    """Return what falls short; a reason that rows of one experiment share is said once."""
    rows = []
    for record in records:
        said = ""
        for row in record.rows:
            if row.falls_short:
                why = row.why or ""
                rows.append(
                    (_link(record, folder), row.name, *_values(row), "as above" if why and why == said else why)
                )
                said = why
    head = "## Where our results fall short"
    if not rows:
        return f"{head}\n\nEvery number is at least as good as published, and reaches its goal."
    return f"{head}\n\n{_table(('experiment', 'number', 'published', 'goal', 'ours', 'why'), rows, '--rrr-')}"


def page_of(record: Record, files: Collection[str]) -> str:
    """Return the page of one record: verdict, figure, tables and notes; `files` are those that lie beside it."""
    about, on, name = VERDICTS[record.name], record.circumstances, record.name
    origin = [
        f"{record.source}{' (quick form)' if record.quick else ''}",
        f"`tutelage reproduce {name}`",
        *([f"[all numbers (csv)]({name}.csv)"] if f"{name}.csv" in files else []),
        *([f"{duration(on.seconds)}, commit {on.commit or on.tutelage}"] if on else []),
    ]
    parts = [
        f"# {about.title}",
        _filled(f"**{about.verdict}** {about.more}".strip(), record),
        " · ".join(origin),
        f"![{about.figure or about.title}]({name}.png)" if f"{name}.png" in files else "",
        *_tables(record, about),
        _notes(record),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _filled(text: str, record: Record) -> str:
    """Return a text with the numbers of a record, or what is known of one that lacks them."""
    if not VERDICTS[record.name].fits(record):
        return "There is no verdict: the record lacks numbers of the full form."
    rows = {row.name: row for row in record.rows}

    def value(found: re.Match[str]) -> str:
        name, _, kind = found[1].partition("|")
        return number(rows[name].published) if kind else ours(rows[name])

    return re.sub(r"\{([^}]+)\}", value, text)


def _tables(record: Record, about: Verdict) -> list[str]:
    """Return the rows whose names differ in one part as a table with a column for each, and the others as they are."""
    across: dict[str, dict[str, Row]] = {}
    down = []
    for row in record.rows:
        found = re.search(about.across, row.name) if about.across else None
        if found:
            name = row.name[: found.start()] + row.name[found.end() :]
            across.setdefault(name, {})[found[1]] = row
        elif re.search(about.shown, row.name):
            down.append(row)
    columns = list(dict.fromkeys(column for cells in across.values() for column in cells))
    tables = []
    if across:
        rows = [(name, *(_cell(cells.get(column)) for column in columns)) for name, cells in across.items()]
        named = "".join(re.compile(about.across).groupindex)
        tables.append(_table((named, *columns), rows, "-" + "r" * len(columns)))
        if any(row.published is not None for cells in across.values() for row in cells.values()):
            tables.append("Published numbers are in parentheses.")
    return [*tables, _plain(down)] if down else tables


def _cell(row: Row | None) -> str:
    if row is None:
        return ""
    return ours(row) if row.published is None else f"{ours(row)} ({number(row.published)})"


def _plain(rows: Sequence[Row]) -> str:
    """Return rows as a table, without the columns that are empty."""
    heads = ("", "published", "goal", "ours", "95 % interval", "time")
    cells = [_cells(row) for row in rows]
    kept = [place for place in range(len(heads)) if place == 0 or any(row[place] for row in cells)]
    return _table(
        [heads[place] for place in kept],
        [[row[place] for place in kept] for row in cells],
        "".join("-rrrrr"[place] for place in kept),
    )


def _notes(record: Record) -> str:
    """Return the notes, and the reasons of rows that do not fall short; a reason is said once."""
    reasons: dict[str, list[str]] = {}
    for row in record.rows:
        if row.why and not row.falls_short:
            reasons.setdefault(row.why, []).append(row.name)
    shared = [f"- {_named(rows)}: {why}" for why, rows in reasons.items()]
    return "\n".join([*(f"- {note}" for note in record.notes), *shared])


def _named(rows: Sequence[str]) -> str:
    first = f"*{rows[0]}*"
    return first if len(rows) == 1 else f"{first} and {len(rows) - 1} more"


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
    """Return what this project requires of a row."""
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
