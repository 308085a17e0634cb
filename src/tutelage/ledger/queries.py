"""Keyed hashes: of a query, to know it when it is asked again, and of a data set, so that a ledger knows its own.

Equal rows hash alike whatever their type: 1, 1.0 and a float32 one are the same cell. Without the key a hash says
nothing, not even to someone who guesses the row.
"""

import hashlib
import hmac
import unicodedata
from numbers import Integral, Real
from typing import Any

import numpy as np
import numpy.typing as npt

from tutelage.ledger.entries import canonical

_EXACT = 2**53  # whole numbers up to here are exact as 64-bit floats


def query_hashes(key: bytes, context: dict[str, Any], rows: npt.ArrayLike, *beside: npt.ArrayLike) -> list[bytes]:
    """Return one keyed hash per query, of its row, what stands beside it, and the context.

    Parameters
    ----------
    key : bytes
        The ledger's key.
    context : dict
        Plain values that all queries share: the mechanism.
    rows : array of shape (queries, ...)
        Public rows.
    *beside : arrays of shape (queries, ...)
        More public values that the answer depends on: the student's predictions.
    """
    prefix = canonical(context).encode()
    columns = [row_bytes(rows), *(row_bytes(column) for column in beside)]
    return [_keyed(key, b"query", prefix, *parts) for parts in zip(*columns, strict=True)]


def data_digest(*columns: npt.ArrayLike | None) -> bytes:
    """Return a digest of private rows, the same in whatever order they come; private itself.

    Parameters
    ----------
    *columns : arrays of shape (rows, ...), or None
        What belongs to the rows: features, labels, ids.
    """
    parts = [row_bytes(column) for column in columns if column is not None]
    present = bytes(column is not None for column in columns)
    rows = sorted(hashlib.sha256(_joined(*row)).digest() for row in zip(*parts, strict=True))
    return hashlib.sha256(present + b"".join(rows)).digest()


def fingerprint(key: bytes, digest: bytes) -> str:
    """Return the keyed fingerprint of a data set, which may be stored and shown."""
    return _keyed(key, b"data set", digest).hex()


def row_bytes(values: npt.ArrayLike) -> list[bytes]:
    """Return one string of bytes per row, equal for rows with equal cells and for no others."""
    array = values if isinstance(values, np.ndarray) else np.asarray(values)
    shape = str(array.shape[1:]).encode()
    if array.dtype == object and all(isinstance(cell, Real) for cell in array.flat) and array.size:
        array = np.asarray(array.tolist())
    if array.dtype.kind in "biuf" and not _too_large(array):
        numbers = array.astype("<f8") + 0.0  # −0.0 becomes 0.0
        numbers[np.isnan(numbers)] = np.nan  # one spelling of missing
        return [shape + row.tobytes() for row in np.ascontiguousarray(numbers)]
    cells = array.reshape(len(array), -1)
    return [shape + _joined(*(_cell(cell) for cell in row)) for row in cells.tolist()]


def _too_large(array: npt.NDArray[Any]) -> bool:
    whole = array.dtype.kind in "iu" and array.size > 0
    return whole and (int(array.max()) > _EXACT or int(array.min()) < -_EXACT)


def _cell(cell: object) -> bytes:
    if isinstance(cell, Integral) and abs(int(cell)) > _EXACT:
        return b"i" + str(int(cell)).encode()
    if isinstance(cell, Real):
        number = float(cell) + 0.0
        return b"f" + (b"nan" if np.isnan(number) else np.float64(number).astype("<f8").tobytes())
    if cell is None:
        return b"n"
    return b"s" + unicodedata.normalize("NFC", str(cell)).encode("utf-8", "surrogatepass")


def _joined(*parts: bytes) -> bytes:
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


def _keyed(key: bytes, *parts: bytes) -> bytes:
    return hmac.digest(key, _joined(*parts), hashlib.sha256)
