"""Keyed hashes: of a query, to know it when it is asked again, and of a data set, so that a ledger knows its own.

Equal rows hash alike whatever their type: 1, 1.0 and a float32 one are the same cell. Without the key a hash reveals
nothing, not even to someone who guesses the row.
"""

import hashlib
import hmac
import secrets
import unicodedata
from numbers import Integral
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tutelage.exceptions import InvalidDataError
from tutelage.ledger.entries import canonical

_EXACT = 2**53  # whole numbers below are exact as 64-bit floats
_FLOAT_BYTES = 8
_SALT = 32  # hexadecimal digits
_WHOLE: Any = (bool, np.bool_, Integral)
_NUMBERS: Any = (*_WHOLE, float, np.floating)
_ARRAY: Any = np.ndarray


def query_hashes(key: bytes, context: dict[str, Any], rows: npt.ArrayLike, *beside: npt.ArrayLike) -> list[bytes]:
    """Return one keyed hash per query, of its row, what stands beside it, and the context."""
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


def fingerprint(key: bytes, digest: bytes, salt: str | None = None) -> str:
    """Return a salt and the keyed fingerprint of a data set: another one each time, equal data or not."""
    salt = secrets.token_hex(_SALT // 2) if salt is None else salt
    return salt + _keyed(key, b"data set", salt.encode(), digest).hex()


def is_fingerprint_of(digest: bytes, known: str, key: bytes) -> bool:
    """Return whether `known` is a fingerprint of that data set, which only the holder of the key can tell."""
    return hmac.compare_digest(fingerprint(key, digest, known[:_SALT]).encode(), known.encode())


def row_bytes(values: npt.ArrayLike) -> list[bytes]:
    """Return one string of bytes per row, equal for rows with equal cells and for no others.

    A cell is spelled by its own value, whatever stands beside it, so that a row is the same in every batch.
    """
    array = cast("npt.NDArray[Any]", values) if isinstance(values, np.ndarray) else np.asarray(values, dtype=object)
    if array.ndim == 0:
        raise InvalidDataError("Rows to be hashed must be an array with one entry per row. Got a single value.")
    shape = str(array.shape[1:]).encode()
    if _is_plain(array):
        return [shape + row for row in _plain_rows(array)]
    return [shape + b"".join(map(_cell, row)) for row in array.reshape(len(array), -1).tolist()]


def _is_plain(array: npt.NDArray[Any]) -> bool:
    """Return whether all cells are numbers that 64-bit floats hold exactly and below 2⁵³."""
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > _FLOAT_BYTES:
        return False
    with np.errstate(invalid="ignore"):
        return not np.any(np.abs(array[np.isfinite(array)].astype(np.float64)) >= _EXACT)


def _plain_rows(array: npt.NDArray[Any]) -> list[bytes]:
    """Return the result of `_cell` for every cell, row by row, at the speed of an array."""
    numbers = array.reshape(len(array), -1).astype("<f8") + 0.0  # −0.0 becomes 0.0
    numbers[np.isnan(numbers)] = np.nan  # one spelling of missing
    spelled = np.empty((*numbers.shape, 1 + _FLOAT_BYTES), dtype=np.uint8)
    spelled[..., 0] = ord("f")
    spelled[..., 1:] = np.ascontiguousarray(numbers).view(np.uint8).reshape(*numbers.shape, _FLOAT_BYTES)
    return [row.tobytes() for row in spelled]


def _cell(cell: Any) -> bytes:
    """Return one cell as a tag and its value; every spelling shows where it ends."""
    if cell is None:
        return b"n"
    if isinstance(cell, _NUMBERS) and type(cell) is not np.longdouble:
        if isinstance(cell, _WHOLE) or float(cell).is_integer():
            whole = int(cell)
            return b"i%d;" % whole if abs(whole) >= _EXACT else b"f" + np.array(whole, dtype="<f8").tobytes()
        return b"f" + np.array(np.nan if np.isnan(cell) else cell, dtype="<f8").tobytes()
    if isinstance(cell, str):
        return b"s" + _joined(unicodedata.normalize("NFC", cell).encode("utf-8", "surrogatepass"))
    if isinstance(cell, bytes):
        return b"b" + _joined(cell)
    if isinstance(cell, _ARRAY) and cell.ndim > 0:
        return b"a" + _joined(*row_bytes(cast("npt.NDArray[Any]", cell)[None]))
    raise InvalidDataError(
        f"Rows must hold numbers, text, or None. Got a cell of type {type(cell).__name__}; write it as one of these."
    )


def _joined(*parts: bytes) -> bytes:
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


def _keyed(key: bytes, *parts: bytes) -> bytes:
    return hmac.digest(key, _joined(*parts), hashlib.sha256)
