"""People whose rows are read in batches, once for every round, and are never in memory together."""

import hashlib
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self, final

import numpy as np
import numpy.typing as npt

from tutelage._internal.typing import IntArray, Matrix
from tutelage.digests import RunningDigest
from tutelage.exceptions import InvalidDataError
from tutelage.features import PublicColumns
from tutelage.features.base import FeatureMap, features_of_private
from tutelage.partition import canonical_ids
from tutelage.privacy import PrivacyUnit
from tutelage.tables import Batches, Cells, Table, require_same_types
from tutelage.teachers.blocks import PeopleBlock, require_finite, whole_people

_HASH_BYTES = 8  # per person, while the rows are read for the first time


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BatchReader:
    """How batches become rows as numbers, classes and people."""

    batches: Batches
    columns: PublicColumns
    like: Table  # the public rows, whose columns have the types that those of each batch must have
    label: str
    entity: str | None  # the column that says whose row it is; None where every row is a person
    checked: Callable[[Matrix], Matrix]  # refuses rows that the maps do not take
    encoded: Callable[[Cells], IntArray]  # returns the class index of each label

    def people(self, unit: PrivacyUnit, first_map: FeatureMap | None, n_features: int) -> "PeopleInBatches":
        """Read all rows once, and return the people, of whom nothing but a digest is kept.

        The map makes `n_features` numbers of a public row. Rows or labels that are not what they must be, and rows of
        one person that lie apart, are refused; no message quotes one.
        """
        self.batches.require(self.used)
        digest, seal, apart = RunningDigest(), _Seal(), _RowsApart()
        first: _Read | None = None
        for read in self.read(self.batches.names if self.entity is None else self.used):
            first = first or read
            # Rows that the map does not take are refused before anything is spent; the rounds would find them too late.
            rows = read.block.rows
            if first_map is not None:
                rows = features_of_private(first_map, rows, np.arange(len(rows))[:, np.newaxis], n_features)
            require_finite(rows)
            seal.add(read)
            if self.entity is None:
                digest.add_table(read.table)
            else:
                digest.add_people(read.ids.tolist())
                apart.add(read.ids.tolist())
        if first is None:
            raise InvalidDataError(f"{self.batches.source or 'The private table'} has no rows.")
        apart.check(self.entity)
        return PeopleInBatches(
            reader=self,
            unit=unit,
            n_people=seal.n_people,
            first_map=first_map,
            known_by=digest.digest(),
            seal=seal.digest(),
            first_rows=first.table,
        )

    @property
    def used(self) -> Sequence[str]:
        """Names of the columns that ballots are cast from."""
        return list(dict.fromkeys([*self.columns.names, self.label, *filter(None, [self.entity])]))

    def read(self, names: Sequence[str]) -> Iterator["_Read"]:
        """Yield the rows batch by batch, reading these columns."""
        n_people, last = 0, ""
        for table in self.batches.tables(names):
            require_same_types(table, self.like, self.columns.names)
            rows = self.checked(np.asarray(self.columns.transform(table)))
            labels = self.encoded(table.column(self.label))
            is_first, ids = np.ones(len(rows), dtype=bool), np.array([], dtype=str)
            if self.entity is not None:
                is_first, ids, last = _new_people(table.column(self.entity), last)
            people = n_people - 1 + np.cumsum(is_first)
            n_people = int(people[-1]) + 1
            yield _Read(table, PeopleBlock(rows, labels, people), ids)


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PeopleInBatches:
    """People whose rows are read again for every round; private. See `tutelage.teachers.blocks.PrivatePeople`."""

    reader: BatchReader = field(repr=False)
    unit: PrivacyUnit
    n_people: int = field(repr=False)
    first_map: FeatureMap | None
    known_by: bytes = field(repr=False)  # digest of the rows or people in any order, for the ledger
    seal: bytes = field(repr=False)  # digest of the rows as they were read, by which a change is seen
    first_rows: Table = field(repr=False)  # of the first batch

    def blocks(self) -> Iterator[PeopleBlock]:
        """Yield all rows, of whole people at a time; raise `InvalidDataError` where they are not those of before."""
        seal = _Seal()

        def parts() -> Iterator[PeopleBlock]:
            for read in self.reader.read(self.reader.used):
                seal.add(read)
                yield read.block

        yield from whole_people(parts())
        if seal.digest() != self.seal:
            raise InvalidDataError(
                "The private rows, or their order, changed while they were read. Run again, with rows that stay as "
                "they are; of a Dask DataFrame, call `persist()`, or write it to a Parquet file first."
            )

    def people(self, _first_map: FeatureMap | None, _n_features: int, /) -> Self:
        """Return the people as the map shows them, through which the rows went already."""
        return self

    def digest(self) -> bytes:
        """Return the digest of the entities or, where none are named, of the rows with all their columns."""
        return self.known_by


class _Read(NamedTuple):
    """One batch."""

    table: Table
    block: PeopleBlock
    ids: npt.NDArray[np.str_]  # of people whose first row is here

    def __repr__(self) -> str:
        return "_Read(<private rows hidden>)"


class _Seal:
    """The digest of batches in the order in which they come, however many rows are in each."""

    def __init__(self) -> None:
        self.n_people = 0
        self._hashes = [hashlib.sha256() for _ in range(len(PeopleBlock._fields) + 1)]

    def add(self, read: _Read) -> None:
        self.n_people = int(read.block.people[-1]) + 1
        for running, values in zip(self._hashes, read.block, strict=False):
            running.update(np.ascontiguousarray(values).data)
        self._hashes[-1].update("".join(f"{name}\0" for name in read.ids.tolist()).encode("utf-8", "surrogatepass"))

    def digest(self) -> bytes:
        return b"".join(running.digest() for running in self._hashes)


class _RowsApart:
    """Finds people whose rows do not follow each other, who would cast two ballots.

    A keyed hash of 64 bits stands for a person. Two people with one hash are refused as one whose rows lie apart, which
    happens once in 15,000 fits of fifty million people; the other mistake, one person taken for two, cannot happen.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._hashes = bytearray()

    def add(self, ids: Sequence[str]) -> None:
        for name in ids:
            text = name.encode("utf-8", "surrogatepass")
            self._hashes += hashlib.blake2b(text, digest_size=_HASH_BYTES, key=self._key).digest()

    def check(self, entity: str | None) -> None:
        found = np.frombuffer(self._hashes, dtype=np.uint64)
        found.sort()
        if np.any(found[1:] == found[:-1]):
            raise InvalidDataError(
                f"All rows of one person must follow each other where rows are read in batches. Sort the rows by "
                f"'{entity}' and run again."
            )


def _new_people(cells: Cells, last: str) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.str_], str]:
    """Return which rows are the first of a person, the ids of these, and the last id; `last` is that of before."""
    values = np.asarray(cells, dtype=object)
    canonical_ids(list({type(cell): cell for cell in values.tolist()}.values()))  # refuses what is no id
    starts = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))
    ids = canonical_ids(values[starts])  # of which two in a row may be spellings of one
    differs = ids != np.concatenate([[last], ids[:-1]])
    is_first = np.zeros(len(values), dtype=bool)
    is_first[starts[differs]] = True
    return is_first, ids[differs], str(ids[-1])
