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
where only a schema is public (`docs/results/packaged.md`). README.md sums them up.
Each line below an experiment is a loss: a result that is worse than published or misses a goal."""

_READING = """\
- *Published* is the number in the paper, *goal* what this project requires of itself, and *ours* our result, with its
  95 % interval. An ε is rounded up; a lower bound is rounded down.
- A *worst-case ε* holds for every possible set of votes and may be published. A *tested ε* may be published if its
  private test passes. A *vote-dependent ε*, such as an exact ε, is computed from the votes and is private. It is shown
  here only because the data behind these votes are public.
- Noise is simulated and all seeds are fixed, unless a page says otherwise.
- In 2018 the authors of PATE published the votes of 250 teachers on the first 9,000 test images of MNIST and on all
  test images of SVHN. test[9000:] are the other 1,000 test images of MNIST."""


def records_of(folder: Path) -> list[Record]:
    """Return the records that were saved in a folder, in the order of `NAMES`."""
    return [
        Record.load(folder / f"{name}.json")
        for name in NAMES
        if (folder / f"{name}.json").is_file()
    ]


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
        raise InvalidParameterError("page.records", "be at least one")
    entries = "\n".join(line for record in records for line in _entry(record, folder))
    parts = (f"# Results\n\n{ABOUT}", f"## By experiment\n\n{entries}", _total(records))
    return "\n\n".join((*parts, f"## How to read the numbers\n\n{_READING}")) + "\n"


def _entry(record: Record, folder: str) -> list[str]:
    about = VERDICTS[record.name]
    link = f"[{record.name}]({folder}{record.name}.md){' (quick form)' if record.quick else ''}"
    losses = (f"    - {loss}" for loss in _losses(record))
    return [f"- {link}: **{about.title}.** {_filled(about.verdict, record)}", *losses]


def _total(records: Sequence[Record]) -> str:
    total = sum(record.circumstances.seconds for record in records if record.circumstances)
    dates = sorted(record.circumstances.date for record in records if record.circumstances) or [""]
    days = " to ".join(dict.fromkeys((dates[0], dates[-1])))
    machines = sorted({_machine(record) for record in records})
    missing = [name for name in NAMES if name not in {record.name for record in records}]
    not_run = f" Not run: {', '.join(missing)}." if missing else ""
    return f"Total time: {duration(total)}, {days}, on {'; '.join(machines)}.{not_run}"


def _machine(record: Record) -> str:
    on = record.circumstances
    return f"{on.processor}, {on.python}" if on else "an unknown machine"


def _losses(record: Record) -> list[str]:
    """Return what falls short, and why; rows that share a reason are one entry."""
    reasons: dict[str, list[str]] = {}
    for row in record.rows:
        if row.falls_short:
            published = (
                [f"published {number(row.published)}"]
                if row.better and row.published is not None
                else []
            )
            wanted = [*published, *([f"goal {asked(row)}"] if asked(row) else [])]
            reasons.setdefault(row.why or "", []).append(
                f"*{row.name}*: {ours(row)} ({', '.join(wanted)})"
            )
    return [f"{'; '.join(rows)}. {why}".rstrip() for why, rows in reasons.items()]


def page_of(record: Record, files: Collection[str]) -> str:
    """Return the page of one record: verdict, figure, tables, losses, method; `files` are those that lie beside it."""
    about, on, name = VERDICTS[record.name], record.circumstances, record.name
    losses = "\n".join(f"- {loss}" for loss in _losses(record))
    method = (
        _filled(about.how, record)
        if about.fits(record)
        else "\n".join(f"- {note}" for note in record.notes)
    )
    origin = [
        f"{record.source}{' (quick form)' if record.quick else ''}",
        f"`tutelage reproduce {name}`",
        *([f"[all numbers]({name}.csv), [notes]({name}.json)"] if f"{name}.csv" in files else []),
        *([duration(on.seconds)] if on else []),
    ]
    parts = [
        f"# {about.title}",
        _filled(f"**{about.verdict}** {about.more}".strip(), record),
        " · ".join(origin),
        f"![{about.figure or about.title}]({name}.png)" if f"{name}.png" in files else "",
        *_tables(record, about),
        f"## Losses\n\n{losses}" if losses else "",
        f"## Method\n\n{method}" if method else "",
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
    down = list[Row]()
    for row in record.rows:
        found = re.search(about.across, row.name) if about.across else None
        if about.fits(record) and not re.search(about.shown, row.name):
            continue
        if found:
            name = row.name[: found.start()] + row.name[found.end() :]
            across.setdefault(name, {})[found[1]] = row
        else:
            down.append(row)
    columns = list(dict.fromkeys(column for cells in across.values() for column in cells))
    tables = list[str]()
    if across:
        rows = [
            (name, *(_cell(cells.get(column)) for column in columns))
            for name, cells in across.items()
        ]
        named = "".join(re.compile(about.across).groupindex)
        if any(row.published is not None for cells in across.values() for row in cells.values()):
            named = f"{named} (published)".strip()
        tables.append(_table((named, *columns), rows, "-" + "r" * len(columns)))
    return [*tables, _plain(down)] if down else tables


def _cell(row: Row | None) -> str:
    if row is None:
        return ""
    return ours(row) if row.published is None else f"{ours(row)} ({number(row.published)})"


def _plain(rows: Sequence[Row]) -> str:
    """Return rows as a table, without the columns that are empty."""
    heads = ("", "published", "goal", "ours", "95 % interval")
    cells = [_cells(row) for row in rows]
    kept = [place for place in range(len(heads)) if place == 0 or any(row[place] for row in cells)]
    return _table(
        [heads[place] for place in kept],
        [[row[place] for place in kept] for row in cells],
        "".join("-rrrr"[place] for place in kept),
    )


def _cells(row: Row) -> tuple[str, ...]:
    return row.name, number(row.published), asked(row), ours(row), interval(row)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], alignment: str) -> str:
    lines = [
        f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in (heads, *rows)
    ]
    rule = f"|{'|'.join('---:' if side == 'r' else '---' for side in alignment)}|"
    return "\n".join([lines[0], rule, *lines[1:]])


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
    if row.at_least is not None and row.at_most is not None:
        return f"{number(row.at_least)}–{number(row.at_most)}"
    limits = (("≥", row.at_least), ("≤", row.at_most))
    return "".join(f"{sign} {number(limit)}" for sign, limit in limits if limit is not None)


def interval(row: Row) -> str:
    """Return the confidence interval of a row."""
    return "" if row.interval is None else f"{number(row.interval[0])}–{number(row.interval[1])}"


def duration(seconds: float | None) -> str:
    """Return a time on the clock in the unit that suits it."""
    if seconds is None:
        return ""
    if seconds >= 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.1f} min" if seconds >= 90 else f"{seconds:.1f} s"
