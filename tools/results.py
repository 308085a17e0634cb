"""Write RESULTS.md from the records in docs/results.

tutelage reproduce --all --keep --output docs/results
python tools/results.py
"""

from pathlib import Path

from tutelage_reproductions.page import page, records_of

ROOT = Path(__file__).parent.parent
RECORDS = ROOT / "docs" / "results"
PAGE = ROOT / "RESULTS.md"


def written() -> str:
    """Return the page."""
    return page(records_of(RECORDS), {path.name: path.relative_to(ROOT).as_posix() for path in RECORDS.iterdir()})


if __name__ == "__main__":
    PAGE.write_text(written(), encoding="utf-8")
