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
from collections.abc import Iterable
from contextlib import suppress
from math import isnan, nan, prod
from numbers import Integral
from struct import Struct
from typing import Any, Self, SupportsFloat, SupportsInt

import numpy as np
import numpy.typing as npt

from tutelage._internal.typing import Array, is_array, is_mapping, is_series
from tutelage.exceptions import InvalidDataError
from tutelage.tables import Cells, Table, by_value, cell_text

_HEAP_TYPE = 1 << 9  # the flag of a class that is written in Python
_EXACT = 2**53  # whole numbers below are exact as 64-bit floats
_FLOAT_BYTES = 8
_SALT = 32  # hexadecimal digits
_CODE = 16  # bytes of a cell in a running digest
_FLOAT_FORM = Struct("<cd")  # a tag, and a number as 64-bit float
_NUMBER_FORM = Struct("<dQ")  # a number as 64-bit float, and its mark
_HASH = 32  # bytes
_NUMBER = 1  # the mark of a number; an empty cell is zeros, and a text its hash
_AT_ONCE = 2**13  # rows
_WHOLE: tuple[type[SupportsInt], ...] = (bool, np.bool_, Integral)
_FLOAT: tuple[type[SupportsFloat], ...] = (float, np.floating)

_Codes = npt.NDArray[np.uint64]  # shape (cells, 2)


def canonical(content: object) -> str:
    """Return plain values in their one spelling: JSON with sorted keys and no blanks."""
    return json.dumps(
        content,
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=True,
        allow_nan=False,
    )


def plain_settings(value: object) -> Any:
    """Return settings as plain values: the same in every process, on every machine, under all versions of libraries.

    Raises `TypeError` for what has no such spelling: a function without a name, or a generator of random numbers.
    """
    if issubclass(type(value), np.generic):
        return repr(np.asarray(value).item())
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if is_array(value):
        content = value.tobytes()
        if value.dtype == object:
            content = canonical(plain_settings(value.ravel().tolist())).encode()
        return [
            "array",
            value.dtype.str,
            [*value.shape],
            hashlib.sha256(content).hexdigest(),
        ]
    if is_mapping(value):
        entries = list[list[Any]]()
        for name, setting in value.items():
            entries.append([plain_settings(name), plain_settings(setting)])
        return ["mapping", sorted(entries)]
    if is_series(value):
        return [plain_settings(item) for item in value]
    return _plain_object(value)


def _plain_object(value: object) -> str | list[object]:
    """Return the name of a function or class, or the class and the attributes of an object."""
    name: str | None = getattr(value, "__qualname__", None)
    if name is not None and "<" not in name and not hasattr(value, "__self__"):
        return f"{value.__module__}.{name}"
    kind: type[object] = type(value)
    parents = [parent for parent in kind.__mro__ if parent is not object]
    in_python = all(parent.__flags__ & _HEAP_TYPE for parent in parents)
    has_attributes = hasattr(value, "__dict__") or "__slots__" in vars(kind)
    if name is not None or not in_python or not has_attributes:
        raise TypeError  # what it does is not in attributes that can be read
    attributes = list[str]()
    for parent in parents:
        attributes += getattr(parent, "__slots__", ())
    attributes += getattr(value, "__dict__", {})
    settings = {attribute: getattr(value, attribute) for attribute in attributes}
    return [f"{kind.__module__}.{kind.__qualname__}", plain_settings(settings)]


def query_hashes(
    key: bytes,
    context: dict[str, object],
    rows: npt.ArrayLike,
    *beside: npt.ArrayLike,
) -> list[bytes]:
    """Return one keyed hash per query, of its row, what stands beside it, and the context."""
    prefix = canonical(context).encode()
    columns = [row_bytes(column) for column in (rows, *beside)]
    queries = zip(*columns, strict=True)
    return [_keyed_hash(key, b"query", prefix, *query) for query in queries]


def data_digest(*columns: npt.ArrayLike | None) -> bytes:
    """Return a digest of the columns of private rows, the same in whatever order they come; private itself."""
    present = bytes(column is not None for column in columns)
    parts = [row_bytes(column) for column in columns if column is not None]
    rows = zip(*parts, strict=True)
    hashes = [hashlib.sha256(with_lengths(*row)).digest() for row in rows]
    return hashlib.sha256(present + b"".join(sorted(hashes))).digest()


def fingerprint(
    key: bytes,
    digest: bytes,
    salt: str | None = None,
) -> str:
    """Return a salt and the keyed fingerprint of a data set: another one each time, equal data or not."""
    if salt is None:
        salt = secrets.token_hex(_SALT // 2)
    return salt + _keyed_hash(key, b"data set", salt.encode(), digest).hex()


def keyed_name(
    key: bytes,
    kind: str,
    name: str,
) -> str:
    """Return a name of this kind as only the holder of the ledger's key can spell it."""
    return _keyed_hash(key, kind.encode(), name.encode()).hex()


def is_fingerprint_of(
    digest: bytes,
    known: str,
    key: bytes,
) -> bool:
    """Return whether `known` is a fingerprint of that data set, which only the holder of the key can tell."""
    salt = known[:_SALT]
    expected = fingerprint(key, digest, salt)
    return hmac.compare_digest(expected.encode(), known.encode())


def row_bytes(values: npt.ArrayLike) -> list[bytes]:
    """Return one string of bytes per row, equal for rows with equal cells and for no others, in every batch."""
    array = values if is_array(values) else np.asarray(values, dtype=object)
    if array.ndim == 0:
        raise InvalidDataError(
            "Rows to be hashed must be an array with one entry per row. Got a single value."
        )
    shape = str(array.shape[1:]).encode()
    flat = array.reshape(len(array), prod(array.shape[1:]))  # (rows, cells of a row)
    if not _are_exact_floats(flat):
        return [shape + b"".join(map(_cell_bytes, row)) for row in flat.tolist()]
    # As `_cell_bytes` does, at the speed of an array; −0.0 becomes 0.0.
    numbers = flat.astype("<f8") + 0.0
    numbers[np.isnan(numbers)] = np.nan  # one spelling of missing
    content = np.ascontiguousarray(numbers).view(np.uint8)
    spelling = np.empty((*numbers.shape, 1 + _FLOAT_BYTES), dtype=np.uint8)
    spelling[..., 0] = ord("f")
    spelling[..., 1:] = content.reshape(*numbers.shape, _FLOAT_BYTES)
    return [shape + row.tobytes() for row in spelling]


def _are_exact_floats(cells: Array) -> bool:
    """Return whether 64-bit floats hold all cells exactly."""
    if cells.dtype.kind not in "biuf" or cells.dtype.itemsize > _FLOAT_BYTES:
        return False
    finite = cells[np.isfinite(cells)].astype(np.float64)
    return not np.any(np.abs(finite) >= _EXACT)


def _cell_bytes(cell: object) -> bytes:
    """Return one cell as a tag and its value; every spelling shows where it ends."""
    if cell is None:
        return b"n"
    if isinstance(cell, _WHOLE):
        return _whole_bytes(int(cell))
    if isinstance(cell, _FLOAT) and type(cell) is not np.longdouble:
        number = float(cell)
        if number.is_integer():
            return _whole_bytes(int(number))
        return _FLOAT_FORM.pack(b"f", nan if isnan(number) else number)
    if isinstance(cell, str):
        normal = unicodedata.normalize("NFC", cell)
        return b"s" + with_lengths(normal.encode("utf-8", "surrogatepass"))
    if isinstance(cell, bytes):
        return b"b" + with_lengths(cell)
    if is_array(cell) and cell.ndim > 0:
        return b"a" + with_lengths(*row_bytes(np.expand_dims(cell, 0)))
    raise InvalidDataError(
        f"Rows must hold numbers, text, or None. Got a cell of type {type(cell).__name__}; write it as one of these."
    )


def _whole_bytes(number: int) -> bytes:
    if abs(number) >= _EXACT:
        return b"i%d;" % number
    return _FLOAT_FORM.pack(b"f", number)


def with_lengths(*parts: bytes) -> bytes:
    """Return the parts one after the other, each after its length."""
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


def _keyed_hash(key: bytes, *parts: bytes) -> bytes:
    return hmac.digest(key, with_lengths(*parts), hashlib.sha256)


class RunningDigest:
    """The digest of the rows, or of the names of people, that were added so far; private."""

    def __init__(self) -> None:
        self._total = 0
        self._count = 0

    def add_table(self, table: Table) -> Self:
        """Add the rows of a table, with all their columns in their order."""
        width = _CODE * len(table.columns)
        for part in table.parts(_AT_ONCE):
            codes = np.empty((part.n_rows, len(part.columns), 2), dtype="<u8")
            for place, cells in enumerate(part.columns.values()):
                codes[:, place] = _column_codes(cells)
            content = codes.data.cast("B")
            starts = range(0, len(content), width)
            self._add(content[start : start + width] for start in starts)
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
        count = self._count.to_bytes(8, "big")
        total = self._total % 2 ** (8 * _HASH)
        return hashlib.sha256(count + total.to_bytes(_HASH, "big")).digest()

    def _add(self, items: Iterable[bytes | memoryview]) -> None:
        for item in items:
            hashed = hashlib.sha256(item).digest()
            self._total += int.from_bytes(hashed, "little")
            self._count += 1


def _column_codes(cells: Cells) -> _Codes:
    """Return the cells of a column as 16 bytes each, the same whatever type they have beside each other."""
    if cells.dtype.kind == "f":
        return _number_codes(cells)
    if cells.dtype.kind in "iu":
        codes = _number_codes(cells)
        large = np.flatnonzero((cells >= _EXACT) | (cells <= -_EXACT))
        digits = [str(cell) for cell in cells[large].tolist()]
        codes[large] = _text_codes(digits)
        return codes
    if cells.dtype.kind in "bM":
        values, places = np.unique(cells, return_inverse=True)
        texts = [cell_text(value) for value in values.tolist()]
        return _text_codes(texts)[places]
    texts = cells.tolist()
    if set(map(type, texts)) != {str}:
        texts = [cell_text(cell) for cell in texts]
    return _text_codes(texts)


def _number_codes(numbers: npt.NDArray[np.generic]) -> _Codes:
    codes = np.full((len(numbers), 2), _NUMBER, dtype="<u8")
    values = numbers.astype("<f8") + 0.0  # −0.0 becomes 0.0
    codes[:, 0] = values.view("<u8")
    codes[np.isnan(values)] = 0
    return codes


def _text_codes(texts: list[str]) -> _Codes:
    different = dict.fromkeys(texts)
    place_of = {text: place for place, text in enumerate(different)}
    content = b"".join(map(_text_code, place_of))
    codes = np.frombuffer(content, dtype="<u8").reshape(-1, 2)  # (different texts, 2)
    places = [place_of[text] for text in texts]
    return codes[places]


def _text_code(text: str) -> bytes:
    """Return a text as 16 bytes: those of the number that it spells, if it does."""
    text = by_value(text)
    with suppress(ValueError):
        number = float(text or "nan") + 0.0  # −0.0 becomes 0.0
        if isnan(number):
            return bytes(_CODE)
        if abs(number) < _EXACT or not text.lstrip("+-").isdigit():
            return _NUMBER_FORM.pack(number, _NUMBER)
    normal = unicodedata.normalize("NFC", text).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(normal, digest_size=_CODE).digest()
