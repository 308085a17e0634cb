"""A chart of dots: one line per case, one kind of dot per method, beside a reference, over a logarithmic axis."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

from tutelage.figures import COLOURS, blank, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH, _LINE, _AROUND = 8.6, 0.36, 1.5  # inches
_MARKERS = ("o", "D", "s", "^", "v", "P")
_SIZE, _BAR = 6.5, 15.0


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Dots:
    """One method's value in each case.

    Parameters
    ----------
    name : str
        What the legend says.
    values : tuple of float or None
        One per case, from the top; None where there is none.
    """

    name: str
    values: tuple[float | None, ...]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DotChart:
    """Methods beside each other, case by case.

    Parameters
    ----------
    title, x_label : str
        What is shown, and in which unit.
    cases : tuple of str
        From the top.
    reference : Dots
        What the others are compared with, drawn as an upright bar.
    methods : tuple of Dots
        In the order of the legend.
    ticks : tuple of float
        What the axis is marked at.
    """

    title: str
    x_label: str
    cases: tuple[str, ...]
    reference: Dots
    methods: tuple[Dots, ...]
    ticks: tuple[float, ...]

    def save(self, folder: Path, name: str) -> list[Path]:
        """Draw the chart into `folder` as png and svg, and return their paths.

        Raises
        ------
        InvalidParameterError
            If matplotlib is not installed.
        """
        canvas = blank(_WIDTH, _AROUND + _LINE * len(self.cases))
        axes = canvas.subplots()
        for line in range(len(self.cases)):
            found = [value for dots in (self.reference, *self.methods) if (value := dots.values[line]) is not None]
            axes.plot([min(found), max(found)], [-line, -line], color="0.85", linewidth=2, zorder=1)
        _draw(axes, self.reference, "|", "black", _BAR)
        for number, dots in enumerate(self.methods):
            _draw(axes, dots, _MARKERS[number % len(_MARKERS)], COLOURS[number % len(COLOURS)], _SIZE)
        axes.set(title=self.title, xlabel=self.x_label, xscale="log", ylim=(0.6 - len(self.cases), 0.6))
        axes.minorticks_off()
        axes.set_xticks(self.ticks, [f"{tick:g}" for tick in self.ticks])
        axes.set_yticks([-line for line in range(len(self.cases))], list(self.cases))
        axes.grid(axis="x", alpha=0.3)
        canvas.legend(frameon=False, fontsize=9, loc="outside lower center", ncols=2)
        return save(canvas, folder, name)


def _draw(axes: "Axes", dots: Dots, marker: str, colour: str, size: float) -> None:
    places = [(value, -line) for line, value in enumerate(dots.values) if value is not None]
    x, y = zip(*places, strict=True) if places else ((), ())
    axes.plot(x, y, marker, color=colour, markersize=size, markeredgewidth=1.8, label=dots.name, zorder=2)
