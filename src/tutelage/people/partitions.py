"""People whose rows are in a Dask DataFrame: ballots are summed where the partitions are, and only sums travel.

Dask's shuffle brings the rows of each person together. Every task is a function of its partition, so Dask may repeat
one whose worker died; and sums are of whole numbers, so that no result depends on partitions, workers or their order.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage._internal.records import by_identity, by_keywords
from tutelage._internal.threads import QUIET, on_all_cores
from tutelage._internal.typing import Hidden, IntArray, Private
from tutelage.ballots import BallotSum
from tutelage.digests import RunningDigest
from tutelage.exceptions import InvalidDataError, TutelageError
from tutelage.features.base import FeatureMap
from tutelage.partition import canonical_ids
from tutelage.people.batches import BatchReader, PeopleInBatches, changed
from tutelage.people.blocks import SumOfBlocks, Vectors, whole_people
from tutelage.privacy import PrivacyUnit
from tutelage.tables import ROWS_AT_ONCE, Batches, Table, as_table

_BUCKET = "__bucket_of_person__"
_BUCKETS = 16  # for each partition; few would leave some partitions empty
_ADDED_AT_ONCE = 8


@final
@by_identity
class _Found(Hidden):
    """Findings in some of the partitions, which travel to the others."""

    refusal: str = ""  # quotes no cell
    rows: int = 0
    hashes: int = 0  # the sum of the hashes of the rows, which detects a change
    buckets: frozenset[int] = frozenset()  # in which there are people
    n_people: int = 0
    digest: RunningDigest | None = None
    totals: IntArray | None = None
    norm_squared: int = 0

    @property
    def seal(self) -> tuple[int, int, frozenset[int], int]:
        """The findings that are equal whenever the same rows are read."""
        return self.rows, self.hashes, self.buckets, self.n_people


@final
@by_keywords
class PeopleInPartitions(Private):
    """People whose rows stay on the workers of Dask. See `tutelage.people.blocks.People`."""

    frame: Any
    reader: BatchReader
    unit: PrivacyUnit
    first_map: FeatureMap | None
    checked: _Found

    @classmethod
    def of(
        cls,
        frame: Any,
        reader: BatchReader,
        unit: PrivacyUnit,
        first_map: FeatureMap | None,
        n_features: int,
    ) -> "PeopleInPartitions":
        """Check all rows once; see `PeopleInBatches`."""
        reader.batches.require(reader.used)
        names = reader.batches.names if reader.entity is None else reader.used
        reader = replace(reader, batches=replace(reader.batches, names=tuple(names)))
        found = _over(frame[list(names)], reader, _checked, unit, first_map, n_features)
        if not found.rows:
            raise InvalidDataError("The private table has no rows.")
        return cls(frame=frame, reader=reader, unit=unit, first_map=first_map, checked=found)

    @property
    def n_people(self) -> int:
        """How many people there are."""
        return self.checked.n_people

    def through(self, _feature_map: FeatureMap | None, _n_features: int, /) -> "PeopleInPartitions":
        """Return the people, whose rows go through the map where they are."""
        return self

    def ids(self) -> Sequence[str]:
        """Return no ids: people on the workers of a cluster are not known one by one."""
        return ()

    def digest(self) -> bytes:
        """Return the digest of the entities or, where none are named, of the rows with all their columns."""
        return (self.checked.digest or RunningDigest()).digest()

    def look(self, at: Callable[[Table], Any]) -> Any:
        """Return what is seen in the first rows, where they are."""
        for part in self.frame[list(self.reader.batches.names)].to_delayed():
            seen = _computed(_delayed(_seen)(part, _delayed(at, traverse=False)))
            if seen is not None:
                return seen
        raise changed()

    def summed(self, sum_of: SumOfBlocks, _shown: object, _kept: object, /) -> BallotSum:
        """Return the sum of the ballots of all people; raise `InvalidDataError` where the rows are not those of before.

        Progress is what Dask's own dashboard shows.
        """
        found = _over(self.frame[list(self.reader.used)], self.reader, _cast, sum_of)
        if found.totals is None or found.seal != self.checked.seal:
            raise changed()
        return BallotSum(found.totals, found.norm_squared, self.unit)


def _over(frame: Any, reader: BatchReader, work: Callable[..., _Found], *settings: Any) -> _Found:
    """Return what `work` finds in all partitions, with all rows of each person in one of them."""
    n_buckets = _BUCKETS * frame.npartitions
    if reader.entity is not None:
        numbers = frame[reader.entity].map_partitions(_buckets, n_buckets, meta=(_BUCKET, "int64"))
        frame = frame.assign(**{_BUCKET: numbers}).shuffle(_BUCKET, ignore_index=True)
    shared = _delayed((reader, n_buckets, work, settings), traverse=False)
    found = [_delayed(_in_partition)(part, shared) for part in frame.to_delayed()]
    while len(found) > 1:
        groups = [found[at : at + _ADDED_AT_ONCE] for at in range(0, len(found), _ADDED_AT_ONCE)]
        found = [_delayed(_added)(group) for group in groups]
    whole: _Found = _computed(found[0])
    if whole.refusal:
        raise InvalidDataError(whole.refusal)
    return whole


def _delayed(what: Any, **options: Any) -> Any:
    from dask.delayed import delayed

    return delayed(what, pure=False, **options)


def _computed(task: Any) -> Any:
    with QUIET:  # a warning may quote a cell, or tell how large something is
        try:
            return task.compute()
        except Exception as error:
            kind = type(error).__name__
    raise InvalidDataError(f"The rows cannot be computed ({kind}).")


# On the workers. Nothing here raises: Dask would write to a log what the work had failed on.


def _buckets(ids: Any, n_buckets: int) -> Any:
    """Return a number for each row that all rows of one person have."""
    pandas: Any = import_module("pandas")
    try:
        _, buckets, codes = _people_in(ids, n_buckets)
        found = buckets[codes]
    except Exception:  # whatever they are, it is refused as soon as it is a table
        found = np.zeros(len(ids), dtype=np.int64)
    return pandas.Series(found, index=ids.index, name=_BUCKET)


def _people_in(ids: Any, n_buckets: int) -> tuple[npt.NDArray[np.object_], IntArray, IntArray]:
    """Return the canonical ids in a column, their buckets, and which of them each row has, if any."""
    pandas: Any = import_module("pandas")
    codes, spelled = pandas.factorize(ids)
    names = canonical_ids(np.asarray(spelled, dtype=object))
    return names, (pandas.util.hash_array(names) % n_buckets).astype(np.int64), codes


def _in_partition(
    rows: Any, shared: tuple[BatchReader, int, Callable[..., _Found], tuple[Any, ...]]
) -> _Found:
    with QUIET:  # and in one thread, because other partitions have their own
        return next(on_all_cores(partial(_found, *shared), [rows]))


def _found(
    reader: BatchReader,
    n_buckets: int,
    work: Callable[..., _Found],
    settings: tuple[Any, ...],
    rows: Any,
) -> _Found:
    pandas: Any = import_module("pandas")
    if not len(rows):
        return _Found()
    try:
        buckets = frozenset[int]()
        # By the ids that are here: whatever they were when Dask shuffled, they count.
        if reader.entity is not None:
            names, found, codes = _people_in(rows[reader.entity], n_buckets)
            buckets = frozenset(found.tolist())
            rows = rows.iloc[
                np.argsort(np.unique(names, return_inverse=True)[1][codes], kind="stable")
            ]
        rows = rows.drop(columns=_BUCKET, errors="ignore")
        hashes = int(
            pandas.util.hash_pandas_object(rows[list(reader.used)], index=False).to_numpy().sum()
        )
        table: Any = as_table(rows)

        def tables(some: Sequence[str]) -> Iterator[Table]:
            return table.without(table.columns.keys() - set(some)).parts(ROWS_AT_ONCE)

        made = work(replace(reader, batches=Batches("", reader.batches.names, tables)), *settings)
        return replace(made, rows=len(rows), hashes=hashes, buckets=buckets)
    except TutelageError as error:
        return _Found(str(error))
    except Exception as error:
        return _Found(f"The rows cannot be computed ({type(error).__name__}).")


def _checked(
    reader: BatchReader, unit: PrivacyUnit, first_map: FeatureMap | None, n_features: int
) -> _Found:
    people = PeopleInBatches(reader, unit, first_map, n_features)
    return _Found(n_people=people.n_people, digest=people.known_by)


def _cast(reader: BatchReader, sum_of: SumOfBlocks) -> _Found:
    n_people = 0

    def parts() -> Iterator[Any]:
        nonlocal n_people
        for read in reader.read(reader.used):
            n_people = int(read.block.people[-1]) + 1
            yield read.block

    found = sum_of(whole_people(parts()), Vectors(most=0))
    return _Found(n_people=n_people, totals=found.totals, norm_squared=found.norm_squared)


def _seen(rows: Any, at: Callable[[Table], Any]) -> Any:
    with QUIET, suppress(Exception):  # these rows were checked: then they changed, as `look` says
        table = as_table(rows.head(ROWS_AT_ONCE))
        return at(table) if table is not None and table.n_rows else None
    return None


def _added(some: Iterable[_Found]) -> _Found:
    """Return what was found in several partitions together; people who are in two of them are refused."""
    some = list(some)
    if refusals := sorted(one.refusal for one in some if one.refusal):
        return _Found(refusals[0])
    buckets = frozenset[int]().union(*(one.buckets for one in some))
    if len(buckets) < sum(len(one.buckets) for one in some):
        return _Found(
            "Dask did not bring all rows of each person together. Try another of its ways to shuffle."
        )
    digest = RunningDigest()
    for one in some:
        if one.digest is not None:
            digest.add_digest(one.digest)
    totals = [one.totals for one in some if one.totals is not None]
    return _Found(
        rows=sum(one.rows for one in some),
        hashes=sum(one.hashes for one in some) % 2**64,
        buckets=buckets,
        n_people=sum(one.n_people for one in some),
        digest=digest,
        totals=np.sum(totals, axis=0) if totals else None,
        norm_squared=max(one.norm_squared for one in some),
    )
