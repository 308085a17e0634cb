"""People whose rows are in a Dask DataFrame: ballots are summed where the partitions are, and only sums travel.

Dask's shuffle brings the rows of each person together. Every task is a function of its partition, so Dask may repeat
one whose worker died; and sums are of whole numbers, so that no result depends on partitions, workers or their order.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any, TypeVar, final

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
from tutelage.people.batches import BatchReader, PeopleInBatches, rows_changed_error
from tutelage.people.blocks import PeopleBlock, SumOfBlocks, Vectors, whole_people
from tutelage.privacy import PrivacyUnit
from tutelage.tables import ROWS_AT_ONCE, Batches, Table, as_table

_BUCKET = "__bucket_of_person__"
_BUCKETS = 16  # for each partition; few would leave some partitions empty
_ADDED_AT_ONCE = 8

Sight = TypeVar("Sight")
# Objects of libraries that are extras.
_DaskFrame = Any
_Task = Any
_Pandas = Any


@final
@by_identity
class _Findings(Hidden):
    """Findings in some of the partitions, which travel to the others."""

    refusal: str = ""  # quotes no cell
    rows: int = 0
    hashes: int = 0  # the sum of the hashes of the rows, which detects a change
    buckets: frozenset[int] = frozenset()  # in which there are people
    n_people: int = 0
    digest: RunningDigest | None = None
    totals: IntArray | None = None
    norm_squared: int = 0
    nonnegative: bool = True  # whether no number of a ballot is below 0

    @property
    def seal(self) -> tuple[int, int, frozenset[int], int]:
        """The findings that are equal whenever the same rows are read."""
        return self.rows, self.hashes, self.buckets, self.n_people


_Work = Callable[..., _Findings]


@final
@by_keywords
class PeopleInPartitions(Private):
    """People whose rows stay on the workers of Dask. See `tutelage.people.blocks.People`."""

    frame: _DaskFrame
    reader: BatchReader
    unit: PrivacyUnit
    first_map: FeatureMap | None
    findings: _Findings

    @classmethod
    def of(
        cls,
        frame: _DaskFrame,
        reader: BatchReader,
        unit: PrivacyUnit,
        first_map: FeatureMap | None,
        n_features: int,
    ) -> "PeopleInPartitions":
        """Check all rows once; see `PeopleInBatches`."""
        reader.batches.require(reader.ballot_columns)
        names = reader.digest_columns
        reader = replace(reader, batches=replace(reader.batches, names=tuple(names)))
        findings = _over_partitions(
            frame[list(names)],
            reader,
            _check_people,
            unit,
            first_map,
            n_features,
        )
        if not findings.rows:
            raise InvalidDataError("The private table has no rows.")
        return cls(frame=frame, reader=reader, unit=unit, first_map=first_map, findings=findings)

    @property
    def n_people(self) -> int:
        """How many people there are."""
        return self.findings.n_people

    def through(self, _feature_map: FeatureMap | None, _n_features: int, /) -> "PeopleInPartitions":
        """Return the people, whose rows go through the map where they are."""
        return self

    def ids(self) -> Sequence[str]:
        """Return no ids: people on the workers of a cluster are not known one by one."""
        return ()

    def digest(self) -> bytes:
        """Return the digest of the entities or, where none are named, of the rows with all their columns."""
        return (self.findings.digest or RunningDigest()).digest()

    def look(self, at: Callable[[Table], Sight]) -> Sight:
        """Return what is seen in the first rows, where they are."""
        for part in self.frame[list(self.reader.batches.names)].to_delayed():
            sight = _compute(_task_of(_look)(part, _task_of(at, traverse=False)))
            if sight is not None:
                return sight
        raise rows_changed_error()

    def sum_of_ballots(
        self, sum_of: SumOfBlocks, _with_progress: object, _kept: object, /
    ) -> BallotSum:
        """Return the sum of the ballots of all people; raise `InvalidDataError` where the rows are not those of before.

        Progress is what Dask's own dashboard shows.
        """
        frame = self.frame[list(self.reader.ballot_columns)]
        findings = _over_partitions(frame, self.reader, _cast, sum_of)
        if findings.totals is None or findings.seal != self.findings.seal:
            raise rows_changed_error()
        return BallotSum(findings.totals, findings.norm_squared, self.unit, findings.nonnegative)


def _over_partitions(
    frame: _DaskFrame, reader: BatchReader, work: _Work, *settings: object
) -> _Findings:
    """Return the findings of `work` in all partitions, with all rows of each person in one of them."""
    n_buckets = _BUCKETS * frame.npartitions
    if reader.entity is not None:
        buckets = frame[reader.entity].map_partitions(_buckets, n_buckets, meta=(_BUCKET, "int64"))
        frame = frame.assign(**{_BUCKET: buckets}).shuffle(_BUCKET, ignore_index=True)
    shared = _task_of((reader, n_buckets, work, settings), traverse=False)
    tasks = [_task_of(_in_partition)(part, shared) for part in frame.to_delayed()]
    while len(tasks) > 1:
        starts = range(0, len(tasks), _ADDED_AT_ONCE)
        tasks = [_task_of(_merge)(tasks[first : first + _ADDED_AT_ONCE]) for first in starts]
    findings: _Findings = _compute(tasks[0])
    if findings.refusal:
        raise InvalidDataError(findings.refusal)
    return findings


def _task_of(value: object, **options: bool) -> _Task:
    return import_module("dask.delayed").delayed(value, pure=False, **options)


def _compute(task: _Task) -> Any:
    with QUIET:  # a warning may quote a cell, or tell how large something is
        try:
            return task.compute()
        except Exception as error:
            kind = type(error).__name__
    raise InvalidDataError(f"The rows cannot be computed ({kind}).")


# On the workers. Nothing here raises: Dask would write to a log what the work had failed on.


def _buckets(ids: _Pandas, n_buckets: int) -> _Pandas:
    """Return a number for each row that all rows of one person have."""
    pandas = _pandas()
    try:
        _, buckets, codes = _people_in(ids, n_buckets)
        bucket_of_row = buckets[codes]
    except Exception:  # whatever they are, it is refused as soon as it is a table
        bucket_of_row = np.zeros(len(ids), dtype=np.int64)
    return pandas.Series(bucket_of_row, index=ids.index, name=_BUCKET)


def _people_in(
    ids: _Pandas, n_buckets: int
) -> tuple[npt.NDArray[np.object_], npt.NDArray[np.int64], IntArray]:
    """Return the canonical ids in a column, their buckets, and which of them each row has, if any."""
    pandas = _pandas()
    codes, spellings = pandas.factorize(ids)
    names = canonical_ids(np.asarray(spellings, dtype=object))
    buckets = pandas.util.hash_array(names) % n_buckets
    return names, buckets.astype(np.int64), codes


def _in_partition(
    rows: _Pandas, shared: tuple[BatchReader, int, _Work, tuple[object, ...]]
) -> _Findings:
    with QUIET:  # and in one thread, because other partitions have their own
        return next(on_all_cores(partial(_findings_in, *shared), [rows]))


def _findings_in(
    reader: BatchReader,
    n_buckets: int,
    work: _Work,
    settings: tuple[object, ...],
    rows: _Pandas,
) -> _Findings:
    if not len(rows):
        return _Findings()
    try:
        buckets = frozenset[int]()
        # People are told apart by the ids that are here, whatever these were when Dask shuffled.
        if reader.entity is not None:
            names, bucket_of_name, codes = _people_in(rows[reader.entity], n_buckets)
            buckets = frozenset(bucket_of_name.tolist())
            _, person_of_name = np.unique(names, return_inverse=True)
            rows = rows.iloc[np.argsort(person_of_name[codes], kind="stable")]
        rows = rows.drop(columns=_BUCKET, errors="ignore")
        hashes = _pandas().util.hash_pandas_object(rows[list(reader.ballot_columns)], index=False)
        table: Any = as_table(rows)

        def tables(names: Sequence[str]) -> Iterator[Table]:
            return table.without(table.columns.keys() - set(names)).parts(ROWS_AT_ONCE)

        reader = replace(reader, batches=Batches("", reader.batches.names, tables))
        findings = work(reader, *settings)
        return replace(
            findings, rows=len(rows), hashes=int(hashes.to_numpy().sum()), buckets=buckets
        )
    except TutelageError as error:
        return _Findings(str(error))
    except Exception as error:
        return _Findings(f"The rows cannot be computed ({type(error).__name__}).")


def _check_people(
    reader: BatchReader, unit: PrivacyUnit, first_map: FeatureMap | None, n_features: int
) -> _Findings:
    people = PeopleInBatches(reader, unit, first_map, n_features)
    return _Findings(n_people=people.n_people, digest=people.known_by)


def _cast(reader: BatchReader, sum_of: SumOfBlocks) -> _Findings:
    n_people = 0

    def parts() -> Iterator[PeopleBlock]:
        nonlocal n_people
        for batch in reader.read(reader.ballot_columns):
            n_people = int(batch.block.people[-1]) + 1
            yield batch.block

    ballots = sum_of(whole_people(parts()), Vectors(most=0))
    return _Findings(
        n_people=n_people,
        totals=ballots.totals,
        norm_squared=ballots.norm_squared,
        nonnegative=ballots.nonnegative,
    )


def _look(rows: _Pandas, at: Callable[[Table], Sight]) -> Sight | None:
    with QUIET, suppress(Exception):  # these rows were checked: then they changed, as `look` says
        table = as_table(rows.head(ROWS_AT_ONCE))
        if table is not None and table.n_rows:
            return at(table)
    return None


def _merge(parts: Sequence[_Findings]) -> _Findings:
    """Return the findings in several partitions together; people who are in two of them are refused."""
    refusals = sorted(part.refusal for part in parts if part.refusal)
    if refusals:
        return _Findings(refusals[0])
    buckets = frozenset[int]().union(*(part.buckets for part in parts))
    if len(buckets) < sum(len(part.buckets) for part in parts):
        return _Findings(
            "Dask did not bring all rows of each person together. Try another of its ways to shuffle."
        )
    digest = RunningDigest()
    totals = None
    for part in parts:
        if part.digest is not None:
            digest.add_digest(part.digest)
        if part.totals is not None:
            totals = part.totals if totals is None else totals + part.totals
    return _Findings(
        rows=sum(part.rows for part in parts),
        hashes=sum(part.hashes for part in parts) % 2**64,
        buckets=buckets,
        n_people=sum(part.n_people for part in parts),
        digest=digest,
        totals=totals,
        norm_squared=max(part.norm_squared for part in parts),
        nonnegative=all(part.nonnegative for part in parts),
    )


def _pandas() -> _Pandas:
    return import_module("pandas")
