"""Rows with named columns, and texts, which are a column by themselves."""

from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from tutelage.exceptions import InvalidDataError
from tutelage.tables import Cells, Table, as_table, column_array, spelled

TEXT = "text"
"""The name of a column of texts that come without one."""


def named_cells(rows: Any, names: Collection[str] | None = None) -> Table | None:
    """Return rows with named columns as a table, and texts as a table of one column; None for anything else."""
    table = as_table(rows, names)
    if table is not None:
        return table
    cells = column_array(rows)
    if isinstance(cells, list | tuple) and cells and isinstance(cells[0], str):
        cells = np.array(cells, dtype=object)
    if not isinstance(cells, np.ndarray) or cells.ndim != 1 or cells.dtype.kind not in "OUT":
        return None
    cells = cells.astype(object)
    return Table("", {TEXT: cells}) if any(isinstance(cell, str) for cell in cells.tolist()) else None


def as_texts(cells: Cells) -> npt.NDArray[Any]:
    """Return the cells of a column as texts; an empty one is blank."""
    values = cells if isinstance(cells, list) else cells.tolist()
    return np.array([spelled(cell) for cell in values], dtype=object)


def only_texts(rows: Any) -> npt.NDArray[Any]:
    """Return the texts of rows that have no other column."""
    table = named_cells(rows)
    if table is None or len(table.columns) != 1:
        raise InvalidDataError(
            "Rows of a map of texts must be texts: a list, an array or a column of them. Got "
            f"{'a ' + type(rows).__name__ if table is None else f'{len(table.columns)} columns'}."
        )
    return as_texts(next(iter(table.columns.values())))
