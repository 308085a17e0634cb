"""Keyed hashes of queries, to know them when they are asked again, and digests by which a ledger knows its data set.

Equal rows hash alike whatever their type: 1, 1.0 and a float32 one are the same cell. Without the key, the hash of a
query reveals nothing, not even to someone who guesses the row.

The digest of rows that come some at a time is the same in whatever order, form and number at a time they come: the sum
of the SHA-256 hashes of the rows, modulo 2²⁵⁶, hashed once more with their number. Nothing is kept of a row but its
share of the sum, and a row that is there twice counts twice. It is there to find mistakes: somebody who chooses rows
for it can find two data sets of one digest, in about 2³² steps (Wagner 2002), but could as well make another ledger.
"""

import hashlib
import hmac
import json
import secrets
import unicodedata
from collections.abc import Iterable, Mapping
from contextlib import suppress
from math import isnan, nan, prod
from numbers import Integral
from struct import Struct
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tutelage.exceptions import InvalidDataError
from tutelage.tables import Cells, Table, by_value, cell_text

_HEAP_TYPE = 1 << 9  # the flag of a class that is written in Python
_EXACT = 2**53  # whole numbers below are exact as 64-bit floats
_FLOAT_BYTES = 8
_SALT = 32  # hexadecimal digits
_WHOLE: Any = (bool, np.bool_, Integral)
_NUMBERS: Any = (*_WHOLE, float, np.floating)
_ARRAY: Any = np.ndarray
_CELL = 16  # bytes
_FLOAT_FORM = Struct("<cd")  # a tag, and a number as 64-bit float
_NUMBER_FORM = Struct("<dQ")  # a number as 64-bit float, and its mark
_HASH = 32  # bytes
_NUMBER = 1  # the mark of a number; an empty cell is zeros, and a text its hash
_AT_ONCE = 2**13  # rows

_Spelled = npt.NDArray[np.uint64]  # shape (cells, 2)


def canonical(content: Any) -> str:
    """Return plain values in their one spelling: JSON with sorted keys and no blanks."""
    return json.dumps(
        content,
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=True,
        allow_nan=False,
    )


def plain_settings(value: Any) -> Any:
    """Return settings as plain values: the same in every process, on every machine, under all versions of libraries.

    Raises `TypeError` for what has no such spelling: a function without a name, or a generator of random numbers.
    """
    if isinstance(value, np.generic):
        return repr(value.item())
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, np.ndarray):
        content = value.tobytes()
        if value.dtype == object:
            content = canonical([plain_settings(cell) for cell in value.ravel().tolist()]).encode()
        return ["array", value.dtype.str, list(value.shape), hashlib.sha256(content).hexdigest()]
    if isinstance(value, Mapping):
        return [
            "mapping",
            sorted([plain_settings(name), plain_settings(one)] for name, one in value.items()),
        ]
    if isinstance(value, list | tuple):
        return [plain_settings(one) for one in value]
    name = getattr(value, "__qualname__", None)
    if name is not None and "<" not in name and not hasattr(value, "__self__"):
        return f"{value.__module__}.{name}"
    kind = type(value)
    in_python = all(
        parent.__flags__ & _HEAP_TYPE for parent in kind.__mro__ if parent is not object
    )
    if (
        name is not None
        or not in_python
        or not (hasattr(value, "__dict__") or "__slots__" in vars(kind))
    ):
        raise TypeError  # what it does is not in attributes that can be read
    slots = (one for parent in kind.__mro__ for one in getattr(parent, "__slots__", ()))
    given = {one: getattr(value, one) for one in [*slots, *getattr(value, "__dict__", {})]}
    return [f"{kind.__module__}.{kind.__qualname__}", plain_settings(given)]


def query_hashes(
    key: bytes,
    context: dict[str, Any],
    rows: npt.ArrayLike,
    *beside: npt.ArrayLike,
) -> list[bytes]:
    """Return one keyed hash per query, of its row, what stands beside it, and the context."""
    prefix = canonical(context).encode()
    columns = map(row_bytes, [rows, *beside])
    return [_keyed(key, b"query", prefix, *parts) for parts in zip(*columns, strict=True)]


def data_digest(*columns: npt.ArrayLike | None) -> bytes:
    """Return a digest of the columns of private rows, the same in whatever order they come; private itself."""
    present = bytes(column is not None for column in columns)
    parts = [row_bytes(column) for column in columns if column is not None]
    rows = sorted(hashlib.sha256(_joined(*row)).digest() for row in zip(*parts, strict=True))
    return hashlib.sha256(present + b"".join(rows)).digest()


def fingerprint(key: bytes, digest: bytes, salt: str | None = None) -> str:
    """Return a salt and the keyed fingerprint of a data set: another one each time, equal data or not."""
    if salt is None:
        salt = secrets.token_hex(_SALT // 2)
    return salt + _keyed(key, b"data set", salt.encode(), digest).hex()


def keyed_name(key: bytes, kind: str, name: str) -> str:
    """Return a name of this kind as only the holder of the ledger's key can spell it."""
    return _keyed(key, kind.encode(), name.encode()).hex()


def is_fingerprint_of(digest: bytes, known: str, key: bytes) -> bool:
    """Return whether `known` is a fingerprint of that data set, which only the holder of the key can tell."""
    return hmac.compare_digest(fingerprint(key, digest, known[:_SALT]).encode(), known.encode())


def row_bytes(values: npt.ArrayLike) -> list[bytes]:
    """Return one string of bytes per row, equal for rows with equal cells and for no others, in every batch."""
    array: Any = values if isinstance(values, np.ndarray) else np.asarray(values, dtype=object)
    if array.ndim == 0:
        raise InvalidDataError(
            "Rows to be hashed must be an array with one entry per row. Got a single value."
        )
    shape = str(array.shape[1:]).encode()
    flat = array.reshape(len(array), prod(array.shape[1:]))
    is_plain = array.dtype.kind in "biuf" and array.dtype.itemsize <= _FLOAT_BYTES
    if not is_plain or np.any(np.abs(flat[np.isfinite(flat)].astype(np.float64)) >= _EXACT):
        return [shape + b"".join(map(_cell, row)) for row in flat.tolist()]
    # As `_cell` does, at the speed of an array; −0.0 becomes 0.0.
    numbers = flat.astype("<f8") + 0.0
    numbers[np.isnan(numbers)] = np.nan  # one spelling of missing
    spelling = np.empty((*numbers.shape, 1 + _FLOAT_BYTES), dtype=np.uint8)
    spelling[..., 0] = ord("f")
    spelling[..., 1:] = (
        np.ascontiguousarray(numbers).view(np.uint8).reshape(*numbers.shape, _FLOAT_BYTES)
    )
    return [shape + row.tobytes() for row in spelling]


def _cell(cell: Any) -> bytes:
    """Return one cell as a tag and its value; every spelling shows where it ends."""
    if cell is None:
        return b"n"
    if isinstance(cell, _NUMBERS) and type(cell) is not np.longdouble:
        if isinstance(cell, _WHOLE) or float(cell).is_integer():
            whole = int(cell)
            return b"i%d;" % whole if abs(whole) >= _EXACT else _FLOAT_FORM.pack(b"f", whole)
        return _FLOAT_FORM.pack(b"f", nan if isnan(cell) else cell)
    if isinstance(cell, str):
        return b"s" + _joined(unicodedata.normalize("NFC", cell).encode("utf-8", "surrogatepass"))
    if isinstance(cell, bytes):
        return b"b" + _joined(cell)
    if isinstance(cell, _ARRAY) and cell.ndim > 0:
        return b"a" + _joined(*row_bytes(np.expand_dims(cell, 0)))
    raise InvalidDataError(
        f"Rows must hold numbers, text, or None. Got a cell of type {type(cell).__name__}; write it as one of these."
    )


def _joined(*parts: bytes) -> bytes:
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


def _keyed(key: bytes, *parts: bytes) -> bytes:
    return hmac.digest(key, _joined(*parts), hashlib.sha256)


class RunningDigest:
    """The digest of the rows, or of the names of people, that were added so far; private."""

    def __init__(self) -> None:
        self._total = 0
        self._count = 0

    def add_table(self, table: Table) -> Self:
        """Add the rows of a table, with all their columns in their order."""
        width = _CELL * len(table.columns)
        for part in table.parts(_AT_ONCE):
            rows = np.empty((part.n_rows, len(part.columns), 2), dtype="<u8")
            for place, cells in enumerate(part.columns.values()):
                rows[:, place] = _cells(cells)
            whole = rows.data.cast("B")
            self._add(whole[at : at + width] for at in range(0, len(whole), width))
        return self

    def add_people(self, ids: Iterable[str]) -> Self:
        """Add people, each once, by their `canonical_ids`."""
        self._add(name.encode("utf-8", "surrogatepass") for name in ids)
        return self

    def add_digest(self, other: "RunningDigest") -> None:
        """Add all that was added to another digest."""
        self._total += other._total
        self._count += other._count

    def digest(self) -> bytes:
        """Return the digest."""
        total = self._total % 2 ** (8 * _HASH)
        return hashlib.sha256(
            self._count.to_bytes(8, "big") + total.to_bytes(_HASH, "big")
        ).digest()

    def _add(self, items: Iterable[bytes | memoryview]) -> None:
        for item in items:
            self._total += int.from_bytes(hashlib.sha256(item).digest(), "little")
            self._count += 1


def table_digest(table: Table) -> bytes:
    """Return the digest of the rows of a table: the same for a csv file, a Parquet file and a frame of equal cells."""
    return RunningDigest().add_table(table).digest()


def _cells(cells: Cells) -> _Spelled:
    """Return the cells of a column as 16 bytes each, the same whatever type they have beside each other."""
    if cells.dtype.kind == "f":
        return _numbers(cells)
    if cells.dtype.kind in "iu":
        found = _numbers(cells)
        large = np.flatnonzero((cells >= _EXACT) | (cells <= -_EXACT))
        found[large] = _texts([str(cell) for cell in cells[large].tolist()])
        return found
    if cells.dtype.kind in "bM":
        values, place = np.unique(cells, return_inverse=True)
        return _texts([cell_text(value) for value in values.tolist()])[place]
    values = cells.tolist()
    if set(map(type, values)) != {str}:
        values = [cell_text(value) for value in values]
    return _texts(values)


def _numbers(numbers: npt.NDArray[np.generic]) -> _Spelled:
    found = np.full((len(numbers), 2), _NUMBER, dtype="<u8")
    values = numbers.astype("<f8") + 0.0  # −0.0 becomes 0.0
    found[:, 0] = values.view("<u8")
    found[np.isnan(values)] = 0
    return found


def _texts(texts: list[str]) -> _Spelled:
    place_of = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    each = np.frombuffer(b"".join(map(_text, place_of)), dtype="<u8").reshape(-1, 2)
    return each[np.fromiter(map(place_of.__getitem__, texts), dtype=np.int64, count=len(texts))]


def _text(text: str) -> bytes:
    """Return a text as 16 bytes: those of the number that it spells, if it does."""
    text = by_value(text)
    with suppress(ValueError):
        number = float(text or "nan") + 0.0  # −0.0 becomes 0.0
        if isnan(number):
            return bytes(_CELL)
        if abs(number) < _EXACT or not text.lstrip("+-").isdigit():
            return _NUMBER_FORM.pack(number, _NUMBER)
    normal = unicodedata.normalize("NFC", text).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(normal, digest_size=_CELL).digest()
