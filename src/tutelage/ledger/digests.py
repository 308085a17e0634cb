"""Digests of rows that come some at a time: the same in whatever order, form and number at a time they come.

The digest of a table is the sum of the SHA-256 hashes of its rows, modulo 2²⁵⁶, hashed once more with the number of
rows. Nothing is kept of a row but its share of the sum, and a row that is there twice counts twice. Two data sets have
one digest by accident with probability 2⁻²⁵⁶. Somebody who chooses rows for it can find two that do, in about 2³² steps
(Wagner 2002, a generalized birthday problem). That does not attack a budget: an attacker who can choose the rows owns
the data and the ledger's file, and could as well make another ledger. The digest is there to find a mistake.
"""

import hashlib
import unicodedata
from collections.abc import Iterable
from contextlib import suppress
from math import isnan
from struct import Struct

import numpy as np
import numpy.typing as npt

from tutelage.tables import Cells, Table, by_value, spelled

_EXACT = 2**53  # whole numbers below are exact as 64-bit floats
_CELL = 16  # bytes
_NUMBER_FORM = Struct("<dQ")  # a number as 64-bit float, and its mark
_WORDS = 8  # of 32 bits, in a hash
_MODULUS = 2**256
_NUMBER = 1  # the mark of a number; an empty cell is zeros, and a text its hash
_AT_ONCE = 2**13  # rows

_Spelled = npt.NDArray[np.uint64]  # shape (cells, 2)


class RunningDigest:
    """The digest of the rows, or of the names of people, that were added so far; private."""

    def __init__(self) -> None:
        self._total = 0
        self._count = 0

    def add_table(self, table: Table) -> None:
        """Add the rows of a table, with all their columns in their order."""
        for part in table.parts(_AT_ONCE):
            self._add(row_hashes(part))

    def add_people(self, ids: Iterable[str]) -> None:
        """Add people, each once, by their `canonical_ids`."""
        self._add([hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest() for name in ids])

    def digest(self) -> bytes:
        """Return the digest."""
        return hashlib.sha256(self._count.to_bytes(8, "big") + self._total.to_bytes(4 * _WORDS, "big")).digest()

    def _add(self, hashes: list[bytes]) -> None:
        words = np.frombuffer(b"".join(hashes), dtype="<u4").reshape(-1, _WORDS).sum(axis=0, dtype=np.uint64)
        total = sum(word << (32 * place) for place, word in enumerate(words.tolist()))
        self._total, self._count = (self._total + total) % _MODULUS, self._count + len(hashes)


def row_hashes(table: Table) -> list[bytes]:
    """Return the hash of each row, with all columns in their order."""
    rows = np.empty((table.n_rows, len(table.columns), 2), dtype="<u8")
    for place, cells in enumerate(table.columns.values()):
        rows[:, place] = _cells(cells)
    whole, width = rows.data.cast("B"), _CELL * len(table.columns)
    return [hashlib.sha256(whole[at : at + width]).digest() for at in range(0, len(whole), width)]


def table_digest(table: Table) -> bytes:
    """Return the digest of the rows of a table: the same for a csv file, a Parquet file and a frame of equal cells."""
    running = RunningDigest()
    running.add_table(table)
    return running.digest()


def people_digest(ids: Iterable[str]) -> bytes:
    """Return the digest of people, each named once, by their `canonical_ids`."""
    running = RunningDigest()
    running.add_people(ids)
    return running.digest()


def _cells(cells: Cells) -> _Spelled:
    """Return the cells of a column as 16 bytes each, the same whatever type they have beside each other."""
    if isinstance(cells, list):
        return _texts(cells)
    if cells.dtype.kind == "f":
        return _numbers(cells)
    if cells.dtype.kind in "iu":
        found = _numbers(cells)
        large = np.flatnonzero((cells >= _EXACT) | (cells <= -_EXACT))
        found[large] = _texts([str(cell) for cell in cells[large].tolist()])
        return found
    if cells.dtype.kind in "bM":
        values, place = np.unique(cells, return_inverse=True)
        return _texts([spelled(value) for value in values.tolist()])[place]
    values = cells.tolist()
    return _texts(values if set(map(type, values)) == {str} else [spelled(value) for value in values])


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
