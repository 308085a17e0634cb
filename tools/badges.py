"""Draw the badges of README.md from facts of this repository: pyproject.toml and the records in docs/results.

python tools/badges.py
"""

import json
import tomllib
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "figures" / "badges"
# Pixels; letters are stretched to what is reckoned for them, whatever the font.
_HEIGHT, _MARGIN, _LETTER = 20, 7, 6.6
_GREEN, _BLUE, _GREY, _RED = "#2e7d32", "#1565c0", "#555", "#b71c1c"


def badge(name: str, value: str, color: str) -> str:
    """Return an svg of two fields, `name` on gray and `value` on `color`."""
    title = f"{escape(name)}: {escape(value)}"
    size = f'width="{_width(name) + _width(value)}" height="{_HEIGHT}"'
    return f"""<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{title}">
<title>{title}</title>
<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">
{_field(name, 0, _GREY)}
{_field(value, _width(name), color)}
</g>
</svg>
"""


def _field(text: str, left: int, color: str) -> str:
    inner = _width(text) - 2 * _MARGIN
    return (
        f'<rect x="{left}" width="{_width(text)}" height="{_HEIGHT}" fill="{color}"/>'
        f'<text x="{left + _MARGIN}" y="{_HEIGHT - 6}" textLength="{inner}">{escape(text)}</text>'
    )


def _width(text: str) -> int:
    return 2 * _MARGIN + round(_LETTER * len(text))


def badges() -> dict[str, str]:
    """Return the badges by file name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    drawn = {
        "python.svg": badge("Python", project["requires-python"].replace(">=", "≥ "), _BLUE),
        "license.svg": badge("license", project["license"], _BLUE),
    }
    record = ROOT / "docs" / "results" / "planted-faults.json"
    if record.is_file():
        drawn["planted-faults.svg"] = _planted_faults(
            json.loads(record.read_text(encoding="utf-8"))["rows"]
        )
    return drawn


def _planted_faults(rows: list[dict[str, Any]]) -> str:
    (found,) = [row for row in rows if row["name"].startswith("caught of ")]
    caught = int(found["ours"])
    planted = int(found["at_least"])
    color = _GREEN if caught == planted else _RED
    return badge("planted faults caught", f"{caught} of {planted}", color)


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, drawing in badges().items():
        (FOLDER / name).write_text(drawing, encoding="utf-8")
