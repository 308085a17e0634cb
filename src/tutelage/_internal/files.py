"""Files: writing what only the owner may read, and reading arrays without ever running what a file holds."""

import io
import math
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple, final

import numpy as np
import numpy.typing as npt

from tutelage._internal import outputs
from tutelage._internal.gate import TABLE, AnyPath, open_input, require_memory
from tutelage.exceptions import InvalidDataError

Array = npt.NDArray[Any]
_MOST_BYTES = 2**31  # of one array; 2 GiB holds 26 million queries of ten classes
_MOST_HEADER = 10_000  # bytes, what numpy itself accepts
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
VOTES = outputs.form(  # of `VoteHistogram.save` or `BallotSum.write`
    "private votes",
    lambda path: {"format.npy", "unit.npy"} <= set(zipfile.ZipFile(path).namelist()),
)
_UNREADABLE = (
    OSError,
    zipfile.BadZipFile,
    zlib.error,
    ValueError,
    EOFError,
    RuntimeError,
    NotImplementedError,
)


class ArrayForm(NamedTuple):
    """Shape and type of a stored array, as its header states them."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Bytes that the array takes."""
        return math.prod(self.shape) * self.dtype.itemsize


@final
class StoredArrays(Mapping[str, Array]):
    """The plain arrays of an npz file, each unpacked when it is asked for and not before."""

    def __init__(self, path: Path, forms: dict[str, ArrayForm]) -> None:
        self.path = path
        self._forms = forms
        self._unpacked: dict[str, Array] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._forms)

    def __len__(self) -> int:
        return len(self._forms)

    def __contains__(self, name: object) -> bool:
        return name in self._forms

    def form(self, name: str) -> ArrayForm:
        """Return the shape and type of an array without unpacking it."""
        return self._forms[name]

    def __getitem__(self, name: str) -> Array:
        if name not in self._unpacked:
            self._unpacked[name] = self._read(name)
        return self._unpacked[name]

    def _read(self, name: str) -> Array:
        form = self._forms[name]
        try:
            require_memory(form.nbytes, self.path)
            with open_input(self.path, TABLE) as file, np.load(file, allow_pickle=False) as npz:
                stored: object = npz[name]
        except (*_UNREADABLE, KeyError, MemoryError):
            raise _no_arrays(self.path) from None
        array: Array = np.asarray(stored)
        if array is not stored or (array.shape, array.dtype) != form:
            raise _no_arrays(self.path)  # replaced since its headers were read
        return array


def read_arrays(path: Path) -> StoredArrays:
    """Return the plain arrays of an npz file, never unpickling; only their headers are read yet."""
    try:
        with open_input(path, TABLE) as file, zipfile.ZipFile(file) as archive:
            forms = dict[str, ArrayForm]()
            for item in archive.infolist():
                with archive.open(item) as packed:
                    forms[item.filename.removesuffix(".npy")] = _form_in(packed, item.file_size)
    except FileNotFoundError:
        raise InvalidDataError(f"{path} does not exist. Name an npz file.") from None
    except OSError as error:
        raise InvalidDataError(f"{path} cannot be read: {error.strerror}.") from None
    except _UNREADABLE:
        forms = {}
    if not forms:
        raise _no_arrays(path) from None
    for name, form in forms.items():
        if form.nbytes > _MOST_BYTES:
            raise InvalidDataError(
                f"{path} would unpack to more than {_MOST_BYTES} bytes, by '{name}'. Split it."
            )
    return StoredArrays(path, forms)


def rows_in(path: Path, *columns: str | None) -> StoredArrays:
    """Return the arrays of a file: `X`, rows of numbers, and columns beside it; nothing is unpacked before it fits."""
    arrays = read_arrays(path)
    for name in ("X", *columns):
        if name is None:
            continue
        if name not in arrays:
            raise InvalidDataError(
                f"{path.name} has no array '{name}'. It has: {', '.join(arrays)}."
            )
        shape = arrays.form(name).shape
        axes = ("rows", "features") if name == "X" else ("rows",)
        if len(shape) != len(axes):
            wanted = str(axes).replace("'", "")
            raise InvalidDataError(
                f"Array '{name}' of {path.name} must have shape {wanted}. Got {shape}."
            )
        if shape[0] != arrays.form("X").shape[0]:
            raise InvalidDataError(
                f"Arrays '{name}' and 'X' of {path.name} must have equally many rows."
            )
    if arrays.form("X").dtype.kind not in "biuf":
        raise InvalidDataError(f"Array 'X' of {path.name} must hold numbers.")
    return arrays


def _form_in(file: IO[bytes], size: int) -> ArrayForm:
    """Return the form of an npy file of `size` bytes, which must be that array and no more, and need no unpickling."""
    start = io.BytesIO(file.read(_MOST_HEADER))  # a header may itself claim to be of gigabytes
    try:
        version = np.lib.format.read_magic(start)
        shape, _, dtype = _HEADERS[version](start)
    except Exception:  # whatever numpy's reader raises of a header that is none
        raise ValueError from None
    form = ArrayForm(shape, dtype)
    # Of strings of no length, a file of no length holds any number.
    sound = not dtype.hasobject and dtype.itemsize > 0 and min(shape, default=0) >= 0
    if not sound or start.tell() + form.nbytes != size:
        raise ValueError
    return form


def _no_arrays(path: Path) -> InvalidDataError:
    return InvalidDataError(
        f"{path} is not a readable npz file of plain arrays. Write it with numpy.savez."
    )


def name_in(arrays: Mapping[str, Array], path: AnyPath, name: str | None, usual: str) -> str:
    """Return which array of a file is meant: the one named, the one of the usual name, or the only one."""
    known = ", ".join(sorted(arrays))
    if name is not None:
        if name not in arrays:
            raise InvalidDataError(f"{path} has no array '{name}'. It has: {known}.")
        return name
    if usual in arrays:
        return usual
    if len(arrays) > 1:
        raise InvalidDataError(
            f"{path} holds several arrays, {known}; say which one, or call it '{usual}'."
        )
    return known
