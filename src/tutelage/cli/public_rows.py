"""Public rows as the command line asks them: the same row is the same query in every verb."""

from pathlib import Path

import numpy as np

from tutelage._files import name_in, read_arrays
from tutelage._typing import Matrix
from tutelage.exceptions import ConfigError, InvalidDataError
from tutelage.ledger.entries import canonical
from tutelage.tables import read_csv


def read_rows(path: Path, array: str | None, question: str) -> tuple[Matrix, str]:
    """Return public rows as they are asked, and the question with the names of their columns, where they have any.

    Parameters
    ----------
    path : path
        A csv file, or an npz file.
    array : str, optional
        Which array of an npz file.
    question : str
        What is voted on.

    Raises
    ------
    ConfigError
        If an array of a csv file is named.
    InvalidDataError
        If the file holds no such rows.
    """
    if path.suffix.lower() != ".csv":
        arrays = read_arrays(path)
        return arrays[name_in(arrays, path, array, "X")], question
    if array is not None:
        raise ConfigError("--public-array names an array of an npz file; a csv file has none. Leave it out.")
    table = read_csv(path)
    cells = np.array(list(table.columns.values()), dtype=object).T  # as text: a row is the same row in every file
    return cells, canonical([question, list(table.columns)])


def read_predictions(path: Path, array: str | None, rows: int) -> Matrix:
    """Return a student's probabilities from an npz file, one row per public row.

    Parameters
    ----------
    path : path
        The file.
    array : str, optional
        Which array.  By default the one called X, or the only one.
    rows : int
        Number of public rows.

    Raises
    ------
    InvalidDataError
        If it is not there, or no matrix of numbers with so many rows.
    """
    arrays = read_arrays(path)
    name = name_in(arrays, path, array, "X")
    form = arrays.form(name)
    if len(form.shape) != 2 or form.shape[0] != rows or form.dtype.kind not in "fiu":
        raise InvalidDataError(
            f"`predictions` must be numbers with one row per public row, {rows} x classes. Got {form.dtype} of shape "
            f"{form.shape} in {path}."
        )
    return arrays[name]
