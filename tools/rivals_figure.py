"""Draw the figure of README.md, accuracy against ε, from the record docs/results/rivals.json.

python tools/rivals_figure.py
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
SOURCES = {"Adult": "UCI Adult, 32,561 people", "Fashion-MNIST": "Fashion-MNIST, 60,000 images"}
EPSILONS = (0.1, 0.5, 1.0, 3.0)
OURS = "vector ballots"
_OTHERS_OF_OURS = ("capped votes of people", "votes, as documented")
_WIDTH, _HEIGHT, _DOTS_PER_INCH = 7.5, 3.1, 160
_COLORS = ("#0072B2", "#D55E00")  # of Okabe and Ito's palette, which the color-blind can tell apart
_ASIDE = 1.04  # each curve is moved by this factor, so that the intervals do not cover each other


class Point(NamedTuple):
    """A mean over runs and its 95 % confidence interval, in %."""

    method: str
    mean: float
    low: float
    high: float


def points(source: str, epsilon: float) -> tuple[Point, Point]:
    """Return the accuracy of vector ballots and of the best alternative on a data set at ε."""
    beginning = f"{source}, ε = {epsilon:g}: "
    found = list[Point]()
    for row in _rows():
        if row["name"].startswith(beginning) and row["interval"] is not None:
            method = row["name"].removeprefix(beginning).removesuffix(", %")
            found.append(Point(method, row["ours"], *row["interval"]))
    (ours,) = (one for one in found if one.method == OURS)
    others = [one for one in found if one.method not in (OURS, *_OTHERS_OF_OURS)]
    return ours, max(others, key=lambda one: one.mean)


def without_privacy(source: str) -> float:
    """Return the accuracy of the best model without privacy on a data set."""
    (found,) = (
        row["ours"] for row in _rows() if row["name"].startswith(f"{source}, without privacy: ")
    )
    return found


def _rows() -> list[dict[str, Any]]:
    record = ROOT / "docs" / "results" / "rivals.json"
    return json.loads(record.read_text(encoding="utf-8"))["rows"]


def main() -> None:
    """Draw one panel for each data set."""
    from matplotlib.figure import Figure  # the test of the numbers does not need it

    canvas = Figure(figsize=(_WIDTH, _HEIGHT), layout="constrained")
    for number, (axes, source) in enumerate(
        zip(canvas.subplots(1, len(SOURCES)), SOURCES, strict=True)
    ):
        axes.axhline(without_privacy(source), color="0.35", linestyle=":", label="without privacy")
        names = ("tutelage, default", "best alternative")
        for place, label in enumerate(names):
            curve = [points(source, epsilon)[place] for epsilon in EPSILONS]
            errors = ([one.mean - one.low for one in curve], [one.high - one.mean for one in curve])
            x = [epsilon * (_ASIDE if place else 1 / _ASIDE) for epsilon in EPSILONS]
            style = {
                "color": _COLORS[place],
                "linestyle": "--" if place else "-",
                "marker": "s" if place else "o",
            }
            axes.errorbar(
                x,
                [one.mean for one in curve],
                errors,
                label=label,
                capsize=3,
                markersize=5,
                **style,
            )
        axes.set(title=SOURCES[source], xlabel="ε at δ = 1e-5", xscale="log")
        axes.minorticks_off()
        axes.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
        axes.grid(alpha=0.3)
        if not number:
            axes.set_ylabel("accuracy, %")
            axes.legend(frameon=False, loc="lower right")
    canvas.savefig(ROOT / "docs" / "figures" / "rivals.png", dpi=_DOTS_PER_INCH)


if __name__ == "__main__":
    main()
