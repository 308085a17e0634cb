"""Figures as plain numbers, and how they are drawn into files; drawing needs the report extra."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from tutelage.exceptions import InvalidParameterError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

_INCHES = (7.5, 4.8)
_WIDE = 10.0
_PIXELS_PER_INCH = 160
_DASHES = ("-", "--", "-.", ":")
# Okabe and Ito's palette, which color-blind readers can tell apart, and a light gray.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#C8C8C8")


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
        Style of the line, from 0 (solid) to 3 (dotted).
    markers : bool
        Whether each point has a marker.
    bars : bool
        Whether the interval is drawn as bars instead of a band.
    """

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    interval: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    labels: tuple[str, ...] = ()
    color: int | None = None
    dashes: int = 0
    markers: bool = True
    bars: bool = False


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
    legend_below : bool
        Whether the legend is below the axes, for figures without room among the curves.
    """

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    logarithmic: bool = False
    y_range: tuple[float, float] | None = None
    ticks: tuple[float, ...] = ()
    legend_below: bool = False

    def save(self, folder: Path, name: str) -> list[Path]:
        """Draw the figure into `folder` as png and svg, and return their paths.

        Raises
        ------
        InvalidParameterError
            If matplotlib is not installed.
        """
        canvas = blank(*_INCHES)
        axes = canvas.subplots()
        self.draw(axes)
        if self.legend_below:
            canvas.legend(frameon=False, fontsize=9, loc="outside lower center", ncols=2)
        else:
            axes.legend(frameon=False, fontsize=9, loc="lower right")
        return save(canvas, folder, name)

    def draw(self, axes: "Axes") -> None:
        """Draw everything but the legend."""
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


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Panels:
    """Figures side by side, over the same axes.

    Parameters
    ----------
    title : str
        What all of them show.
    figures : tuple of Figure
        One for each panel, row by row.
    columns : int
        Number of panels in a row.
    height : float
        Height in inches.
    """

    title: str
    figures: tuple[Figure, ...]
    columns: int
    height: float = _INCHES[1]

    def save(self, folder: Path, name: str) -> list[Path]:
        """Draw the panels into `folder` as png and svg, and return their paths.

        Raises
        ------
        InvalidParameterError
            If matplotlib is not installed.
        """
        canvas = blank(_WIDE, self.height)
        rows = -(-len(self.figures) // self.columns)
        grid = canvas.subplots(rows, self.columns, sharex=True, sharey=True, squeeze=False)
        for axes, figure in zip(grid.flat, self.figures, strict=False):
            figure.draw(axes)
            axes.label_outer()
            if any(series.name for series in figure.series):
                axes.legend(frameon=False, fontsize=9, loc="best")
        for unused in grid.flat[len(self.figures) :]:
            unused.set_axis_off()
        canvas.suptitle(self.title)
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
        raise InvalidParameterError(
            "figure.path", "be left out without matplotlib", fix="Type: pip install matplotlib."
        ) from None
    return Canvas(figsize=(width, height), layout="constrained")


def save(canvas: "Canvas", folder: Path, name: str) -> list[Path]:
    """Write a figure into `folder` as png and svg, and return their paths."""
    paths = [folder / f"{name}.{kind}" for kind in ("png", "svg")]
    for path in paths:
        canvas.savefig(path, dpi=_PIXELS_PER_INCH)
    return paths


def _draw(axes: "Axes", series: Series, color: str) -> None:
    from matplotlib.patheffects import withStroke

    marker = "o" if series.markers else "none"
    line = _DASHES[series.dashes]
    if series.labels:
        marker, line = "D", "none"
    style: dict[str, Any] = {
        "label": series.name or "_",
        "marker": marker,
        "linestyle": line,
        "color": color,
        "markersize": 4,
        "linewidth": 1.5,
    }
    if series.interval is not None and series.bars:
        below, above = (
            [abs(y - end) for y, end in zip(series.y, ends, strict=True)]
            for ends in series.interval
        )
        axes.errorbar(series.x, series.y, (below, above), capsize=3, elinewidth=1, **style)
    else:
        axes.plot(series.x, series.y, **style)
        if series.interval is not None:
            axes.fill_between(series.x, *series.interval, color=color, alpha=0.15, linewidth=0)
    # A point beyond it is labeled on its left.
    middle = (max(series.x, default=1) * min(series.x, default=1)) ** 0.5
    for x, y, label in zip(series.x, series.y, series.labels, strict=False):
        side, offset = ("right", (-6, 5)) if x > middle else ("left", (6, -11))
        text = axes.annotate(
            label,
            (x, y),
            xytext=offset,
            textcoords="offset points",
            horizontalalignment=side,
            fontsize=8,
            color=color,
        )
        text.set_path_effects([withStroke(linewidth=3, foreground="white")])  # readable over lines
