"""Write the table of README.md: tutelage and the best alternative, by what is public, from the files in docs/results.

    python tools/comparison.py

The rows are in the order of the largest loss.
"""

import csv
import re
from collections import defaultdict
from pathlib import Path
from statistics import fmean

from rivals_figure import points

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "results"
EPSILON = 1.0
AVERAGE_PRECISION = ("Lending club", "Adult, 5 % rich", "Crashes")
KINDS = ("labels", "rows", "schema")  # that are public
OF_RIVALS = ("Adult", "Fashion-MNIST", "AG News", "SMS spam", "Diabetes", "MNIST")
NAMES = {
    "Adult": "UCI Adult",
    "Adult, alike": "UCI Adult",
    "Adult, over fifty": "UCI Adult, public rows of people over fifty",
    "Adult, half rich": "UCI Adult, half of the public rows rich",
    "Adult, 5 % rich": "UCI Adult, 5 % rich, average precision",
    "Lending club": "Bad loans, 5 %, average precision",
    "Crashes": "Deadly crashes, 4.5 %, average precision",
    "Species": "Small animals of 29 species",
    "MNIST": "MNIST, 60,000 images",
}
# By data and kind: the best alternative, and tutelage.
Table = dict[str, dict[str, tuple[float, float]]]


def means(name: str) -> dict[str, dict[str, float]]:
    """Return the mean over splits of each method on each data set, at the ε of the table or without a release."""
    found = defaultdict[str, dict[str, list[float]]](lambda: defaultdict(list))
    with (RESULTS / f"{name}.csv").open(encoding="utf-8", newline="") as lines:
        for line in csv.DictReader(lines):
            if float(line["epsilon"]) in (0.0, EPSILON):
                measure = "average_precision" if line["data"] in AVERAGE_PRECISION else "accuracy"
                found[line["data"]][line["method"]].append(float(line[measure]))
    most = {data: max(map(len, methods.values())) for data, methods in found.items()}
    # A method that was measured on fewer splits than the others is left out.
    return {
        data: {method: fmean(each) for method, each in methods.items() if len(each) == most[data]}
        for data, methods in found.items()
    }


def table() -> Table:
    """Return the numbers of README.md."""
    made: Table = defaultdict(dict)
    for source in OF_RIVALS:
        ours, other = points(source, EPSILON)
        made[NAMES.get(source, source)]["rows"] = other.mean, ours.mean
    for kind, name, method in (
        (KINDS[0], "labels", "ballots with labels"),
        (KINDS[2], "packaged", "tutelage"),
    ):
        for data, methods in means(name).items():
            others = [
                mean
                for other, mean in methods.items()
                if other not in (method, "ballots") and "told" not in other
            ]
            shown = (
                "MNIST, 20,000 images"
                if (name, data) == ("labels", "MNIST")
                else NAMES.get(data, data)
            )
            made[shown][kind] = max(others), methods[method]
    return made


def lines() -> list[str]:
    """Return the table in Markdown."""
    found = table()

    def worst(data: str) -> float:
        return min(ours - other for other, ours in found[data].values())

    heads = [
        "| |" + "".join(f" {kind}: best alternative | tutelage |" for kind in KINDS),
        "|---" * 7 + "|",
    ]
    rows = list[str]()
    for data in sorted(found, key=worst):
        cells = [found[data].get(kind) for kind in KINDS]
        rows.append(
            f"| {data} |"
            + "".join(
                " | |" if cell is None else f" {cell[0]:.1f} | {cell[1]:.1f} |" for cell in cells
            )
        )
    return [*heads, *rows]


def main() -> None:
    """Replace the table in README.md."""
    page = ROOT / "README.md"
    text = page.read_text(encoding="utf-8")
    shown = "\n".join(lines())
    page.write_text(
        re.sub(
            r"^\| \|.*?(?=\n\n)", lambda _: shown, text, count=1, flags=re.MULTILINE | re.DOTALL
        ),
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
