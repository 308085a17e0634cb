"""The idx format in which MNIST is published: a magic number, big-endian sizes, then unsigned bytes."""

import gzip
import math
import zlib
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from tutelage.exceptions import InvalidDataError

MOST_BYTES = 2**30  # refuses a compressed bomb; the images of MNIST take 47 million
_MOST_DIMENSIONS = 4  # rows of colour images
_UNSIGNED_BYTE = b"\0\0\x08"
_GZIP = b"\x1f\x8b"
_BLOCK = 2**20


def read_idx(path: Path, most: int = MOST_BYTES) -> npt.NDArray[np.uint8]:
    """Return the array of an idx file, plain or compressed with gzip, in the shape that the file states.

    Memory grows with what the file turns out to hold, never with what its header claims.
    """
    try:
        with path.open("rb") as file:
            compressed = file.read(len(_GZIP)) == _GZIP
            file.seek(0)
            if not compressed:
                return _parse(file, path, most)
            with gzip.GzipFile(fileobj=file) as unpacked:
                return _parse(unpacked, path, most)
    except (OSError, EOFError, zlib.error):
        raise InvalidDataError(f"{path} is missing or damaged. Fetch it again.") from None


def _parse(file: BinaryIO | gzip.GzipFile, path: Path, most: int) -> npt.NDArray[np.uint8]:
    magic = file.read(4)
    dimensions = magic[-1] if magic else 0
    if magic[:3] != _UNSIGNED_BYTE or not 1 <= dimensions <= _MOST_DIMENSIONS:
        raise InvalidDataError(
            f"{path} must be an idx file of unsigned bytes, which begins with 00000801 to 0000080{_MOST_DIMENSIONS}. "
            f"Got {magic.hex() or 'an empty file'}."
        )
    sizes = file.read(4 * dimensions)
    if len(sizes) < 4 * dimensions:
        raise InvalidDataError(f"{path} is cut short within its dimensions. Fetch it again.")
    shape = tuple(np.frombuffer(sizes, ">u4").tolist())
    stated = math.prod(shape)
    if stated > most:
        raise InvalidDataError(f"{path} would unpack to more than {most} bytes, the most that is read of it.")
    content = _read_at_most(file, stated + 1)
    if len(content) != stated:
        fault = "is cut short" if len(content) < stated else "goes on after its last row"
        raise InvalidDataError(f"{path} {fault}: its dimensions {shape} take {stated} bytes. Fetch it again.")
    try:
        return np.frombuffer(content, np.uint8).reshape(shape)
    except ValueError:  # nothing at all, spread over more than an index can count
        raise InvalidDataError(f"{path} states dimensions that no array can have. Fetch it again.") from None


def _read_at_most(file: BinaryIO | gzip.GzipFile, count: int) -> bytearray:
    content = bytearray()
    while block := file.read(min(_BLOCK, count - len(content))):
        content += block
    return content
