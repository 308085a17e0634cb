"""Arrays in files that a user names: npy, or npz with a name."""

from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from tutelage._files import array_in, read_arrays
from tutelage.exceptions import ConfigError

_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read_array(path: Path, array: str | None, usual: str) -> Any:
    """Return the array of a npy or npz file, never unpickling; no memory is taken for more than a npy file holds.

    Parameters
    ----------
    path : path
        The file.
    array : str or None
        Which array of an npz file.
    usual : str
        The array to take if none is named and the file holds several.

    Raises
    ------
    ConfigError
        If it is missing or no npy file of plain numbers.
    InvalidDataError
        If it is no npz file of plain arrays, or holds no such array.
    """
    if path.suffix.lower() != ".npy":
        return array_in(read_arrays(path), path, array, usual)
    try:
        return _npy(path)
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist. Name a npy or npz file.") from None
    except Exception:  # the errors of numpy's parser on hostile input have no common base
        raise ConfigError(f"{path} is not a readable npy file of plain numbers. Write it with numpy.save.") from None


def _npy(path: Path) -> Any:
    with path.open("rb") as file:
        shape, _, dtype = _HEADERS[np.lib.format.read_magic(file)](file)
        if dtype.hasobject or not dtype.itemsize or prod(shape) * dtype.itemsize != path.stat().st_size - file.tell():
            raise ValueError
        file.seek(0)
        return np.load(file, allow_pickle=False)
