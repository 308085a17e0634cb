"""Public rows as the command line asks them: the same row is the same query in every verb."""

from pathlib import Path

import numpy as np

from tutelage._files import array_in, read_arrays
from tutelage._typing import Matrix
from tutelage.exceptions import ConfigError
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
        return read_array(path, array), question
    if array is not None:
        raise ConfigError("--public-array names an array of an npz file; a csv file has none. Leave it out.")
    table = read_csv(path)
    cells = np.array(list(table.columns.values()), dtype=object).T  # as text: a row is the same row in every file
    return cells, canonical([question, list(table.columns)])


def read_array(path: Path, name: str | None) -> Matrix:
    """Return one array of an npz file: the one named, the one called X, or the only one.

    Parameters
    ----------
    path : path
        The file.
    name : str, optional
        Which.

    Raises
    ------
    InvalidDataError
        If it is not there, or there are several and none is named.
    """
    return array_in(read_arrays(path), path, name, "X")
