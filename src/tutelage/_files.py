"""Files: writing what only the owner may read, and reading arrays without ever running what a file holds."""

import os
import zipfile
import zlib
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from tutelage.exceptions import InvalidDataError

_MOST_BYTES = 2**31  # refuses a compressed bomb; 2 GiB holds 26 million queries of ten classes


def open_private(path: Path) -> BinaryIO:
    """Open `path` for writing bytes, replacing it, readable by its owner only."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def read_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Return the plain arrays of an npz file, never unpickling.

    Raises
    ------
    InvalidDataError
        If the file is missing, is no npz of plain arrays, or would unpack to more than 2 GiB.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(item.file_size for item in archive.infolist()) > _MOST_BYTES:
                raise InvalidDataError(f"{path} would unpack to more than {_MOST_BYTES} bytes. Split it.")
        with path.open("rb") as file, np.load(file, allow_pickle=False) as npz:
            arrays = {name: npz[name] for name in npz.files}
    except FileNotFoundError:
        raise InvalidDataError(f"{path} does not exist. Name an npz file.") from None
    except (OSError, zipfile.BadZipFile, zlib.error, ValueError, EOFError, RuntimeError, MemoryError) as error:
        if isinstance(error, InvalidDataError):
            raise
        arrays = {}
    if not arrays or not all(isinstance(array, np.ndarray) for array in arrays.values()):
        raise InvalidDataError(f"{path} is not a readable npz file of plain arrays. Write it with numpy.savez.")
    return arrays


def array_in(
    arrays: dict[str, npt.NDArray[Any]], path: str | os.PathLike[str], name: str | None, usual: str
) -> npt.NDArray[Any]:
    """Return one of the arrays of a file: the one named, the one of the usual name, or the only one.

    Raises
    ------
    InvalidDataError
        If it is not there, or there are several and none is named.
    """
    known = ", ".join(sorted(arrays))
    if name is not None and name not in arrays:
        raise InvalidDataError(f"{path} has no array '{name}'. It has: {known}.")
    if name is None and usual not in arrays and len(arrays) > 1:
        raise InvalidDataError(f"{path} holds several arrays, {known}; say which one, or call it '{usual}'.")
    return arrays[name or (usual if usual in arrays else known)]
