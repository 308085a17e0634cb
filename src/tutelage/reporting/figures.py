"""Empty figures, and how they are saved; needs the report extra."""

from pathlib import Path
from typing import TYPE_CHECKING

from tutelage.exceptions import InvalidParameterError

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

_PIXELS_PER_INCH = 160
# Okabe and Ito's palette, which color-blind readers can tell apart, and a light gray.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#C8C8C8")


def blank(width: float, height: float) -> "Canvas":
    """Return an empty figure of this size, in inches."""
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
