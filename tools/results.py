"""Write RESULTS.md: every record in docs/results as one page, published numbers beside ours.

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
    figures = {path.stem: path.relative_to(ROOT).as_posix() for path in RECORDS.glob("*.png")}
    return page(records_of(RECORDS), figures)


if __name__ == "__main__":
    PAGE.write_text(written(), encoding="utf-8")
