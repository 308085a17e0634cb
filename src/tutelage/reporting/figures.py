"""Figures as plain numbers, and how they are drawn into files; drawing needs the report extra."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

from tutelage.exceptions import InvalidParameterError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

_INCHES = (7.5, 4.8)
_PIXELS_PER_INCH = 160
_DASHES = ("-", "--", "-.", ":")
# Okabe and Ito's palette, which the color-blind can tell apart.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One curve, or one cloud of points.

    Parameters
    ----------
    name : str
        What the legend says; nothing if it is empty.
    x, y : tuple of float
        Coordinates; none for an entry of the legend alone.
    interval : tuple of two tuples of float, optional
        Lower and upper ends of the confidence interval of each y.
    labels : tuple of str, optional
        What to write beside each point. Points with labels are not joined by a line.
    color : int, optional
        Which color of the palette. Default: by place among the series.
    dashes : int
        Which line, from 0 for a full one to 3.
    """

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    interval: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    labels: tuple[str, ...] = ()
    color: int | None = None
    dashes: int = 0


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Curves over one axis.

    Parameters
    ----------
    title, x_label, y_label : str
        What is shown, and in which unit.
    series : tuple of Series
        The curves.
    logarithmic : bool
        Whether the horizontal axis is.
    y_range : tuple of two float, optional
        Ends of the vertical axis.
    ticks : tuple of float
        What the horizontal axis is marked at. Default: where matplotlib marks it.
    legend_beside : bool
        Whether the legend stands beside the curves, where there is no room among them.
    """

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    logarithmic: bool = False
    y_range: tuple[float, float] | None = None
    ticks: tuple[float, ...] = ()
    legend_beside: bool = False

    def save(self, folder: Path, name: str) -> list[Path]:
        """Draw the figure into `folder` as png and svg, and return their paths.

        Raises
        ------
        InvalidParameterError
            If matplotlib is not installed.
        """
        canvas = blank(*_INCHES)
        axes = canvas.subplots()
        for number, series in enumerate(self.series):
            place = number if series.color is None else series.color
            _draw(axes, series, COLORS[place % len(COLORS)])
        axes.set(title=self.title, xlabel=self.x_label, ylabel=self.y_label)
        axes.set_xscale("log" if self.logarithmic else "linear")
        if self.y_range is not None:
            axes.set_ylim(self.y_range)
        if self.ticks:
            axes.minorticks_off()
            axes.set_xticks(self.ticks, [f"{tick:g}" for tick in self.ticks])
        axes.grid(alpha=0.3)
        if self.legend_beside:
            canvas.legend(frameon=False, fontsize=9, loc="outside right upper")
        else:
            axes.legend(frameon=False, fontsize=9, loc="lower right")
        return save(canvas, folder, name)


def blank(width: float, height: float) -> "Canvas":
    """Return an empty figure of this size, in inches.

    Raises
    ------
    InvalidParameterError
        If matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure as Canvas
    except ModuleNotFoundError:
        raise InvalidParameterError("Drawing needs matplotlib: pip install 'tutelage[report]'.") from None
    return Canvas(figsize=(width, height), layout="constrained")


def save(canvas: "Canvas", folder: Path, name: str) -> list[Path]:
    """Write a figure into `folder` as png and svg, and return their paths."""
    paths = [folder / f"{name}.{kind}" for kind in ("png", "svg")]
    for path in paths:
        canvas.savefig(path, dpi=_PIXELS_PER_INCH)
    return paths


def _draw(axes: "Axes", series: Series, color: str) -> None:
    style = "D" if series.labels else f"o{_DASHES[series.dashes]}"
    axes.plot(series.x, series.y, style, color=color, label=series.name or "_", markersize=4, linewidth=1.5)
    if series.interval is not None:
        axes.fill_between(series.x, *series.interval, color=color, alpha=0.15, linewidth=0)
    middle = (max(series.x, default=1) * min(series.x, default=1)) ** 0.5  # what lies beyond is labelled on its left
    for x, y, label in zip(series.x, series.y, series.labels, strict=False):
        side, across = ("right", -6) if x > middle else ("left", 6)
        place = {"xytext": (across, 5), "textcoords": "offset points", "horizontalalignment": side}
        axes.annotate(label, (x, y), fontsize=8, color=color, **place)
