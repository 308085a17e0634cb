"""Write RESULTS.md, and the pages in docs/results, from the records there.

tutelage reproduce --all --keep --output docs/results
python tools/results.py

`python benchmarks/labels.py --folds 0` and `python benchmarks/packaged.py --folds` write the pages on benchmarks.
"""

from pathlib import Path

from tutelage_reproductions.page import page, page_of, records_of

ROOT = Path(__file__).parent.parent
RECORDS = ROOT / "docs" / "results"


def written() -> dict[Path, str]:
    """Return the pages."""
    records, files = records_of(RECORDS), {path.name for path in RECORDS.iterdir()}
    pages = {ROOT / "RESULTS.md": page(records, "docs/results/")}
    return pages | {RECORDS / f"{record.name}.md": page_of(record, files) for record in records}


if __name__ == "__main__":
    for path, text in written().items():
        path.write_text(text, encoding="utf-8")
