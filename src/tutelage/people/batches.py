"""People whose rows are read in batches, once for every round, and are never in memory together."""

import hashlib
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Self, TypeVar, final

import numpy as np

from tutelage._internal.records import by_identity, by_keywords
from tutelage._internal.typing import IntArray, Mask, Matrix, Private
from tutelage.ballots import BallotSum
from tutelage.digests import RunningDigest
from tutelage.exceptions import InvalidDataError
from tutelage.features import PublicColumns
from tutelage.features.base import FeatureMap, features_of_private
from tutelage.features.columns import require_as_public
from tutelage.partition import canonical_ids
from tutelage.people.blocks import (
    PeopleBlock,
    SumOfBlocks,
    Vectors,
    WithProgress,
    require_finite,
    whole_people,
)
from tutelage.people.groups import Groups
from tutelage.privacy import PrivacyUnit
from tutelage.tables import Batches, Cells, Table

Result = TypeVar("Result")


@final
@by_identity
class _Batch(Private):
    """One batch."""

    table: Table
    block: PeopleBlock
    ids: Sequence[str]  # of people whose first row is here


@final
@by_keywords
class BatchReader:
    """How batches become rows as numbers, classes and people."""

    batches: Batches
    columns: PublicColumns
    like: Table  # the public rows, whose columns have the types that those of each batch must have
    label: str
    entity: str | None  # the column of ids; None if every row is a person
    check_rows: Callable[[Matrix], Matrix]  # refuses rows that the maps do not take
    encode_labels: Callable[[Cells], IntArray]  # returns the class index of each label
    groups: Groups | None = None  # that a test report tells apart

    @property
    def ballot_columns(self) -> Sequence[str]:
        """Names of the columns that ballots are cast from."""
        names = [*self.columns.names, self.label]
        if self.entity:
            names.append(self.entity)
        if self.groups is not None:
            names.append(self.groups.column)
        return list(dict.fromkeys(names))

    @property
    def digest_columns(self) -> Sequence[str]:
        """Names of the columns that tell the data set from others: all, unless people have ids."""
        if self.entity is None:
            return self.batches.names
        return self.ballot_columns

    def read(self, names: Sequence[str]) -> Iterator[_Batch]:
        """Yield the rows batch by batch, reading these columns."""
        n_people = 0
        last_id = ""
        for table in self.batches.tables(names):
            require_as_public(table, self.like, self.columns)
            rows = self.check_rows(np.asarray(self.columns.transform(table)))
            labels = self.encode_labels(table.column(self.label))
            is_first = np.ones(len(rows), dtype=bool)
            ids: list[str] = []
            if self.entity is not None:
                is_first, ids, last_id = _new_people(table.column(self.entity), last_id)
            people = n_people - 1 + np.cumsum(is_first)
            n_people = int(people[-1]) + 1
            groups = None
            if self.groups is not None:
                groups = self.groups.codes(table)
            yield _Batch(table, PeopleBlock(rows, labels, people, groups), ids)


@final
class PeopleInBatches(Private):
    """People whose rows are read again for every round. See `tutelage.people.blocks.People`.

    All rows are read once at the beginning, and nothing is kept of the people but digests. The map makes `n_features`
    numbers of a public row. Rows or labels that are not what they must be, and rows of one person that lie apart, are
    refused; no message quotes one.
    """

    def __init__(
        self, reader: BatchReader, unit: PrivacyUnit, first_map: FeatureMap | None, n_features: int
    ) -> None:
        self.unit = unit
        self.first_map = first_map
        self.reader = reader
        self.n_people = 0
        reader.batches.require(reader.ballot_columns)
        # A keyed hash of 64 bits stands for a person. Two people with one hash are refused as one whose rows lie apart,
        # which happens once in 15,000 fits of fifty million people; one person is never taken for two.
        key = secrets.token_bytes(32)
        hashes = bytearray()
        digest = RunningDigest()
        seal = _Seal()
        for batch in reader.read(reader.digest_columns):
            if not self.n_people:
                self._first_rows = batch.table
            # Rows that the map does not take are refused before anything is spent; the rounds would find them too late.
            rows = batch.block.rows
            if first_map is not None:
                each_row = np.arange(len(rows))[:, np.newaxis]
                rows = features_of_private(first_map, rows, each_row, n_features)
            require_finite(rows)
            seal.add(batch)
            self.n_people = int(batch.block.people[-1]) + 1

            if reader.entity is None:
                digest.add_table(batch.table)
            digest.add_people(batch.ids)
            for name in batch.ids:
                hashes += hashlib.blake2b(_bytes(name), digest_size=8, key=key).digest()
        if not self.n_people:
            raise InvalidDataError(f"{reader.batches.source or 'The private table'} has no rows.")
        sorted_hashes = np.frombuffer(hashes, dtype=np.uint64)
        sorted_hashes.sort()
        if np.any(sorted_hashes[1:] == sorted_hashes[:-1]):
            raise InvalidDataError(
                "All rows of one person must follow each other where rows are read in batches. Sort the rows by "
                f"'{reader.entity}' and run again."
            )
        self.known_by = digest
        self._seal = seal.digest()

    def blocks(self) -> Iterator[PeopleBlock]:
        """Yield all rows, of whole people at a time; raise `InvalidDataError` where they are not those of before."""
        seal = _Seal()
        batches = self.reader.read(self.reader.ballot_columns)
        yield from whole_people(map(seal.add, batches))
        if seal.digest() != self._seal:
            raise rows_changed_error()

    def sum_of_ballots(
        self, sum_of: SumOfBlocks, with_progress: WithProgress, kept: Vectors, /
    ) -> BallotSum:
        """Return the sum of the ballots of all people."""
        return sum_of(with_progress(self.blocks(), self.n_people), kept)

    def look(self, at: Callable[[Table], Result]) -> Result:
        """Return what is seen in the first rows: something odd in all rows is likely to be in these."""
        return at(self._first_rows)

    def through(self, _feature_map: FeatureMap | None, _n_features: int, /) -> Self:
        """Return the people, whose rows went through the map when they were read."""
        return self

    def ids(self) -> Sequence[str]:
        """Return no ids: people whose rows are read in batches are not known one by one."""
        return ()

    def digest(self) -> bytes:
        """Return the digest of the entities or, where none are named, of the rows with all their columns."""
        return self.known_by.digest()


class _Seal:
    """The digest of batches in the order in which they come, however many rows are in each."""

    def __init__(self) -> None:
        # One digest each of rows, labels, people and ids.
        self._digests = [hashlib.sha256() for _ in range(4)]

    def add(self, batch: _Batch) -> PeopleBlock:
        """Add a batch, and return its rows."""
        block = batch.block
        *digests, digest_of_ids = self._digests
        for digest, part in zip(digests, (block.rows, block.labels, block.people), strict=True):
            digest.update(np.ascontiguousarray(part).data)
        for name in batch.ids:
            digest_of_ids.update(_bytes(name) + b"\0")
        return block

    def digest(self) -> bytes:
        return b"".join(digest.digest() for digest in self._digests)


def _new_people(cells: Cells, last_id: str) -> tuple[Mask, list[str], str]:
    """Return which rows are the first of a person, their ids, and the last id; `last_id` is of the batch before."""
    values = np.asarray(cells, dtype=object)
    # Refuses a cell that is no id, of each type that there is.
    cells_by_type: dict[type, object] = {type(cell): cell for cell in values.tolist()}
    canonical_ids([*cells_by_type.values()])

    starts = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))
    ids = canonical_ids(values[starts])  # of which two in a row may be spellings of one
    differs = ids != np.concatenate([[last_id], ids[:-1]])
    is_first = np.zeros(len(values), dtype=bool)
    is_first[starts[differs]] = True
    return is_first, ids[differs].tolist(), str(ids[-1])


def rows_changed_error() -> InvalidDataError:
    """Return the error if rows are not the ones that were read before."""
    return InvalidDataError(
        "The private rows, or their order, changed while they were read. Run again, with rows that stay as they are; "
        "of a Dask DataFrame, call `persist()`, or write it to a Parquet file first."
    )


def _bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogatepass")
