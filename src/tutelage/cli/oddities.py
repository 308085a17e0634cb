"""What a data scientist would want to know of the private cells before a run: said to the data's owner, never filed."""

from collections.abc import Iterator

import numpy as np

from tutelage._typing import Matrix
from tutelage.cli.sources import RunData
from tutelage.features import UNKNOWN


def oddities(data: RunData) -> Iterator[str]:
    """Yield what is odd about the private cells, by the names of public columns.

    It was read off private rows, and is therefore text and no `Finding`, which a card would take.

    Parameters
    ----------
    data : RunData
        The rows.
    """
    number_columns, code_columns = np.split(data.X_private.T, [len(data.numbers)])
    # Not strict: private rows of other columns than the public ones are refused later, in words of their own.
    empty = [name for name, cells in zip(data.numbers, number_columns, strict=False) if _has_empty(cells)]
    if empty:
        yield (
            f"Private rows have empty cells in: {', '.join(empty)}. Teachers that take missing values, as forests do, "
            "learn from them; for others, impute inside the model, so that each uses its own rows."
        )
    unknown = [name for name, cells in zip(data.texts, code_columns, strict=False) if UNKNOWN in cells]
    if unknown:
        yield (
            f"Private rows have values that no public row has in: {', '.join(unknown)}. Teachers see them all as one. "
            "Add public rows that have them, or leave the column out with `ignore`."
        )


def _has_empty(cells: Matrix) -> bool:
    return cells.dtype.kind == "f" and bool(np.isnan(cells).any())  # text has no NaN, and is refused later
