"""Measure one data set of `tutelage reproduce rivals` again, and write its rows into the record.

python tools/rivals_rows.py Diabetes [--ours]

Rows are written as soon as they are measured. The notes of the record say which commit measured them. Install Opacus
and diffprivlib first: the rows of a missing library are kept.
"""

import argparse
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from tutelage_reproductions.record import Record, Row, commit
from tutelage_reproductions.rivals import rows_of, splits_of
from tutelage_reproductions.rivals_data import SOURCES

RECORDS = Path(__file__).parent.parent / "docs" / "results"


def with_rows(record: Record, rows: Iterable[Row]) -> Record:
    """Return a record in which rows replace those of the same name.

    Parameters
    ----------
    record : Record
        With a row of each name.
    rows : iterable of Row
        The new ones.
    """
    new = {row.name: row for row in rows}
    if missing := new.keys() - {row.name for row in record.rows}:
        raise SystemExit(
            f"The record has no row {min(missing)!r}. Run `tutelage reproduce rivals`."
        )
    return replace(record, rows=tuple(new.get(row.name, row) for row in record.rows))


def main() -> None:
    """Measure, and write the record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", choices=[source.name for source in SOURCES])
    parser.add_argument("--ours", action="store_true", help="measure the methods of tutelage only")
    parser.add_argument("--records", type=Path, default=RECORDS)
    asked = parser.parse_args()
    (source,) = (source for source in SOURCES if source.name == asked.source)
    path = asked.records / "rivals.json"
    which = f"{'Methods of tutelage' if asked.ours else 'All methods'} on {source.name}"
    note = f"{which} were measured again on {datetime.now(UTC).date()}, commit {commit()}."
    for row in rows_of(splits_of(source, source.folds, download=False), ours=asked.ours):
        record = with_rows(Record.load(path), [row])
        others = [old for old in record.notes if not old.startswith(f"{which} were measured again")]
        replace(record, notes=(*others, note)).save(asked.records)
        print(f"{row.name}: {row.ours:.2f} {row.interval}", flush=True)


if __name__ == "__main__":
    main()
