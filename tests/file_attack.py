"""One person's cell in a csv file that moves everybody: the attack on a fit through the reader of a frame.

pandas before 3.1 reads numbers by its own rule, which differs from that of Python in the last bit. But if one cell of a
column is "?", the column stays text, and Python reads the numbers later. All rows here have one such number, on which
a step of the features would stand.
"""

import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from tutelage.estimator import PATEClassifier

_ROWS, _PUBLIC = 400, 60


def old_float(text: str) -> float:
    """Return a number as pandas before 3.1 read it: all digits first, then one division."""
    whole, _, part = text.partition(".")
    return int(whole + part) / float(10 ** len(part))


def old_pandas(path: Path) -> Any:
    """Return a csv file as a frame of pandas; numbers as old pandas read them, unless one cell is none."""
    import pandas as pd

    frame = pd.read_csv(path)
    if tuple(map(int, pd.__version__.split(".")[:2])) >= (3, 1) and frame["dose"].dtype.kind == "f":
        frame["dose"] = [old_float(text) for text in pd.read_csv(path, dtype=str)["dose"]]
    return frame


def drifting() -> str:
    """Return a number that old pandas read as a larger one than Python does."""
    import pandas as pd

    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "numbers.csv"
        texts = [f"{random.uniform(50, 100):.16g}" for _ in range(20_000)]
        path.write_text("dose\n" + "\n".join(texts))
        found = old_pandas(path)["dose"]
    assert isinstance(found, pd.Series)
    return next(text for text, number in zip(texts, found, strict=True) if number > float(text))


def write_files(folder: Path) -> tuple[Path, Path, Path]:
    """Write public rows, and private ones without and with a cell of one person that is no number."""
    number = drifting()
    others = [
        number if row % 2 else str(round(float(number) - 1 - row / 7, 3)) for row in range(_PUBLIC)
    ]
    public = folder / "public.csv"
    public.write_text(
        "dose,other\n" + "".join(f"{dose},{row % 7}\n" for row, dose in enumerate(others))
    )
    sides = []
    for name, first in (("as-it-is.csv", number), ("one-cell.csv", "?")):
        doses = [first] + [number] * (_ROWS - 1)
        lines = [
            f"{dose},{row % 7},{'yes' if row % 10 else 'no'}\n" for row, dose in enumerate(doses)
        ]
        sides.append(folder / name)
        sides[-1].write_text("dose,other,ill\n" + "".join(lines))
    return public, *sides


def shown(private: Any, public: Any, noise: Any) -> float:
    """Return what the student makes of the number that all private rows have, in one fit."""
    model = PATEClassifier(epsilon=1.0, classes=["no", "yes"], noise=noise)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(private, "ill", X_public=public)
        likely = model.predict_proba(public)[:, 1]
    return float(likely[1::2].mean() - likely[::2].mean())
