"""Private rows that are read in batches: the same ballots, the same ledger, the same refusals as in memory."""

import hashlib
import os
import pickle
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.naive_bayes import GaussianNB

from conftest import FITS_AGAIN
from processes import surroundings
from tutelage import Ledger, PATEClassifier, SimulationNoise
from tutelage.digests import RunningDigest
from tutelage.exceptions import InvalidBallotError, InvalidDataError, InvalidParameterError
from tutelage.methods import NoisyMoments, TeacherVotes
from tutelage.people import partitions
from tutelage.people.blocks import PeopleBlock, Vectors
from tutelage.preflight import Found
from tutelage.privacy import round_up
from tutelage.tables import Table, as_table, read_batches, read_table

duckdb, pandas, polars = map(pytest.importorskip, ("duckdb", "pandas", "polars"))
pytestmark = [
    FITS_AGAIN,
    pytest.mark.filterwarnings("ignore::tutelage.exceptions.BudgetContinuedWarning"),
]

rest = partial(pytest.param, marks=pytest.mark.rest)


def table_digest(table: Table) -> bytes:
    return RunningDigest().add_table(table).digest()


SIZES = ["large", "medium", "small"]
ROWS, MOST_ROWS_OF_ONE = 600, 4


def made_up(n: int, seed: int) -> Any:
    random = np.random.default_rng(seed)
    dose, ward = random.integers(0, 40, n) / 8, random.choice(["north", "south", "east"], n)
    left, age = (
        [
            None if missing else int(cell)
            for cell, missing in zip(cells, random.random(n) < 0.1, strict=True)
        ]
        for cells in (range(n), random.integers(18, 99, n))
    )
    person = np.repeat(np.arange(n), random.integers(1, MOST_ROWS_OF_ONE, n))[:n]
    return polars.DataFrame(
        {
            "dose": dose,
            "age": age,
            "ward": ward.tolist(),
            "size": polars.Series(random.choice(SIZES, n).tolist(), dtype=polars.Enum(SIZES)),
            "fit": (random.random(n) < 0.5).tolist(),
            "note": left,
            "person": [f"p{number}" for number in person],
            "ill": np.where(dose + (ward == "north") + random.random(n) > 3, "yes", "no").tolist(),
        }
    )


PRIVATE = made_up(ROWS, seed=0)
PUBLIC = made_up(200, seed=1).drop("note")
IDS = ["person", None]


def model(**changes: Any) -> PATEClassifier:
    settings: dict[str, Any] = {"epsilon": 2.0, "random_state": 0, "noise": SimulationNoise(0)}
    settings |= {"method": NoisyMoments(n_landmarks=30), "classes": ["no", "yes"]}
    return PATEClassifier(**settings | changes)


def fitted(rows: Any, ids: str | None = None, label: str = "ill", **changes: Any) -> Any:
    X_public: Any = PUBLIC if ids else PUBLIC.drop("person")
    if type(rows).__module__.startswith("dask"):
        X_public = X_public.to_pandas()  # frames of pandas have other types where cells are missing
    return model(**{"unit": None if ids else "row", **changes}).fit(
        rows, label, X_public=X_public, entity_ids=ids
    )


def same(one: Any, other: Any) -> bool:
    sums = zip(one.ballots_, other.ballots_, strict=True)
    return (
        all(np.array_equal(a.totals, b.totals) for a, b in sums)
        and np.array_equal(one.student_[-1].coef_, other.student_[-1].coef_)
        and one.n_teachers_ == other.n_teachers_
        and one.epsilon_ == other.epsilon_
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    PRIVATE.write_parquet(tmp_path / "rows.parquet", row_group_size=250)
    return tmp_path / "rows.parquet"


@pytest.fixture(scope="module")
def in_memory() -> dict[str | None, Any]:
    return {ids: fitted(PRIVATE, ids) for ids in IDS}


# The same result


@pytest.mark.parametrize("ids", IDS)
@pytest.mark.parametrize("rows_at_once", [rest(3), 100])
def test_batches_of_any_size_cast_the_ballots_of_rows_in_memory(file, in_memory, ids, rows_at_once):
    assert same(fitted(read_batches(file, rows_at_once=rows_at_once), ids), in_memory[ids])


def unsorted(npartitions: int) -> Any:
    """Return the rows in an order in which those of a person lie apart, as Dask has them."""
    dask = pytest.importorskip("dask.dataframe")
    order = np.random.default_rng(3).permutation(ROWS)
    return dask.from_pandas(PRIVATE[order].to_pandas(), npartitions=npartitions)


@pytest.mark.parametrize("cluster", [rest(True), False])
@pytest.mark.parametrize("ids", IDS)
def test_dask_casts_the_ballots_of_rows_in_memory_and_only_sums_come_back(
    cluster, ids, in_memory, request, monkeypatch
):
    if cluster:
        request.getfixturevalue("dask_client")
    monkeypatch.setattr(partitions, "ROWS_AT_ONCE", 100)
    received, computed = list[Any](), partitions._compute
    monkeypatch.setattr(
        partitions, "_compute", lambda task: received.append(computed(task)) or received[-1]
    )
    assert same(fitted(unsorted(4), ids), in_memory[ids])
    checked, look, *sums = received
    assert {type(one) for one in (checked, *sums)} == {partitions._Findings}
    assert isinstance(look, Found)
    assert len(pickle.dumps(received)) < 10_000  # bytes; the rows take ten times as many
    assert "person" not in pickle.dumps(received).decode("latin-1")


@pytest.mark.rest
def test_sums_are_the_same_if_a_worker_of_dask_dies_in_the_middle(
    in_memory, tmp_path, dask_client, monkeypatch
):
    computed, dead = tmp_path / "computed", tmp_path / "dead"
    computed.mkdir()

    def dying(part: Any) -> Any:
        (computed / uuid.uuid4().hex).touch()
        if len(list(computed.iterdir())) > 6:
            with suppress(FileExistsError):
                dead.touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGKILL)
        return part

    monkeypatch.setattr(dask_client.cluster.scheduler, "allowed_failures", 3)
    frame = unsorted(4)
    assert same(fitted(frame.map_partitions(dying, meta=frame), "person"), in_memory["person"])
    assert dead.exists()


def test_rows_of_one_person_in_two_partitions_are_refused_whatever_they_were_shuffled_by(
    monkeypatch,
):
    monkeypatch.setattr(
        partitions, "_buckets", lambda ids, n: ids.str.len() * 0 + np.arange(len(ids)) % n
    )
    with pytest.raises(InvalidDataError, match="together"):
        fitted(unsorted(3), "person")


def test_rows_of_dask_that_change_between_the_rounds_are_refused(tmp_path):
    rows = unsorted(2).map_partitions(
        lambda part: part.assign(dose=np.random.default_rng().random(len(part)))
    )
    with pytest.raises(InvalidDataError, match="changed while they were read"):
        fitted(rows, ledger=tmp_path / "a.ledger", noise=None)
    assert not (tmp_path / "a.ledger").exists()


def test_what_was_read_of_a_file_does_not_stay_in_memory(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    noise = np.random.default_rng(0).normal(size=(4, 400_000))  # numbers that hardly compress
    polars.DataFrame(dict(zip("abcd", noise, strict=True))).write_parquet(
        tmp_path / "a.parquet", row_group_size=20_000
    )
    before, most = arrow.total_allocated_bytes(), 0
    for _ in read_batches(tmp_path / "a.parquet", rows_at_once=5_000).tables("abcd"):
        most = max(most, arrow.total_allocated_bytes() - before)
    assert most < (tmp_path / "a.parquet").stat().st_size / 2


# A person casts one ballot


def test_a_person_whose_rows_lie_apart_is_refused_and_not_named(tmp_path):
    path, ledger = tmp_path / "rows.parquet", tmp_path / "a.ledger"
    polars.concat([PRIVATE, PRIVATE[:1]]).write_parquet(path)
    with pytest.raises(InvalidDataError, match="must follow each other") as caught:
        fitted(read_batches(path, rows_at_once=100), "person", ledger=ledger, noise=None)
    assert PRIVATE["person"][0] not in str(caught.value)
    assert not ledger.exists()


def test_blocks_of_parts_of_people_are_found(file, monkeypatch):
    monkeypatch.setattr("tutelage.people.batches.whole_people", lambda parts: parts)
    with pytest.raises(InvalidBallotError, match="all rows of its people"):
        fitted(read_batches(file, rows_at_once=10), "person")


@pytest.mark.parametrize(
    ("change", "ids"), [("order", "person"), ("cell", None), ("fewer", None), ("person", "person")]
)
def test_rows_that_change_while_they_are_read_are_refused_before_anything_is_released(
    file, tmp_path, ids, change
):
    changed = {
        "order": PRIVATE.with_columns(polars.col("dose").reverse()),
        "cell": PRIVATE.with_columns(dose=polars.Series([0.3, *PRIVATE["dose"][1:]])),
        "fewer": PRIVATE[:-1],
        "person": PRIVATE.with_columns(person=polars.Series(map(str, range(ROWS)))),
    }[change]
    changed.write_parquet(tmp_path / "changed.parquet")
    before, after, ledger = (
        read_batches(file),
        read_batches(tmp_path / "changed.parquet"),
        tmp_path / "a.ledger",
    )
    parts = iter([before])  # and the others from then on

    def changing(names: Any) -> Iterator[Table]:
        return next(parts, after).tables(names)

    with pytest.raises(InvalidDataError, match="changed while they were read") as refused:
        fitted(replace(before, tables=changing), ids, ledger=ledger, noise=None)
    # Refused before its first reservation.
    spent = Ledger.open(ledger).state().spent if ledger.exists() else 0
    assert (f"ε = {round_up(spent):.4f} of the budget was spent before" in str(refused.value)) == (
        spent > 0
    )
    assert spent < 0.1 if ids else spent == 0  # how many people there are was released already


def test_vectors_kept_of_a_row_that_is_gone_are_made_anew():
    """So the sum of the round is formed, and refused because rows changed."""
    kept = Vectors()
    for n_rows in (3, 2):
        rows = np.eye(n_rows)
        block = PeopleBlock(rows, np.zeros(n_rows, dtype=int), np.zeros(n_rows, dtype=int))
        assert kept.of(block, lambda rows=rows: rows).shape == rows.shape


# A fit that is killed


def fit_and_die(batch: int, rows: str, ledger: str) -> None:
    """Fit in batches and end this process, as if it were killed, at the batch of this number."""
    batches, left = read_batches(rows, rows_at_once=150), [batch]

    def dying(names: Any) -> Iterator[Table]:
        for table in batches.tables(names):
            left[0] -= 1
            if left[0] == 0:
                os._exit(9)
            yield table

    fitted(replace(batches, tables=dying), "person", ledger=ledger, noise=None)


# Of four in each: in the first round, when people were counted and nothing was summed, and in the second.
@pytest.mark.rest
@pytest.mark.parametrize("batch", [6, 11])
def test_a_fit_that_was_killed_spends_nothing_twice(tmp_path, batch):
    file = tmp_path / "rows.parquet"
    PRIVATE.write_parquet(file)
    (tmp_path / "elsewhere").mkdir()
    whole = fitted(
        read_batches(file), "person", ledger=tmp_path / "elsewhere" / "a.ledger", noise=None
    ).ledger_.spent
    ledger = tmp_path / "killed.ledger"
    call = "import sys, test_large; test_large.fit_and_die(int(sys.argv[1]), *sys.argv[2:])"
    command = [sys.executable, "-c", call, str(batch), str(file), str(ledger)]
    assert subprocess.run(command, env=surroundings(), check=False).returncode == 9
    assert 0 < Ledger.open(ledger).state().spent < (0.1 if batch == 6 else whole)
    found = fitted(read_batches(file), "person", ledger=ledger, noise=None)
    assert found.ledger_.spent == pytest.approx(whole, rel=1e-9)
    assert found.ledger_.spent <= 2.0


# Refusals


@pytest.mark.parametrize(("column", "cell", "said"), [
    ("ill", "maybe", "not among the declared `classes`. Compare spelling, blanks and type"),
    ("ill", None, "must have a value in every private row"),
    ("person", "", "An id in 'person' of rows.parquet is empty|An id is empty"),
    ("dose", "much", "is text in the private rows and float in the public rows"),
])  # fmt: skip
def test_what_is_refused_in_memory_is_refused_and_not_quoted(tmp_path, column, cell, said):
    cells: list[Any] = PRIVATE[column].cast(polars.String).to_list()
    cells[377] = cell
    path = tmp_path / "rows.parquet"
    PRIVATE.with_columns(polars.Series(column, cells)).write_parquet(path)
    dask = pytest.importorskip("dask.dataframe")
    for rows in (
        read_batches(path, rows_at_once=100),
        read_table(path),
        dask.from_pandas(pandas.read_parquet(path)),
    ):
        with pytest.raises(InvalidDataError, match=said) as caught:
            fitted(rows, "person")
        assert not cell or cell not in str(caught.value)


def test_batches_need_names_classes_and_a_teacher_that_can_read_them(file):
    batches, one = read_batches(file), model()
    other = PATEClassifier(classes=["no", "yes"], method=TeacherVotes(GaussianNB()))
    for asked, given_rows, said in (
        (other, {}, "must take rows in batches.*load all rows into memory"),
        (model(classes=None), {"X_public": PUBLIC.drop("ill")}, "must list all class values"),
        (one, {"y": PRIVATE["ill"]}, "must be the name of a column"),
        (one, {"X_public": np.eye(3)}, "`X_public` of PATEClassifier.fit must have named columns"),
    ):
        with pytest.raises(InvalidParameterError, match=said):
            asked.fit(batches, **{"y": "ill", "X_public": PUBLIC, **given_rows})
    with pytest.raises(InvalidDataError, match=r"rows\.parquet has no column 'sick'"):
        one.fit(batches, "sick", X_public=PUBLIC)


def test_a_file_that_holds_no_rows_is_refused(tmp_path):
    (tmp_path / "broken.parquet").write_text("no table")
    PRIVATE[:0].write_parquet(tmp_path / "empty.parquet")
    for name, said in (
        ("broken", "not a readable Parquet file"),
        ("empty", "has no rows"),
        ("none", "No such file"),
    ):
        with pytest.raises(InvalidDataError, match=said):
            read_batches(tmp_path / f"{name}.parquet")


def test_an_error_of_dask_is_not_quoted():
    dask = pytest.importorskip("dask.dataframe")

    def fail(part: Any) -> Any:
        raise ValueError("patient 4711")

    meta = PRIVATE.to_pandas()
    frame = dask.from_pandas(meta, npartitions=2).map_partitions(fail, meta=meta)
    with pytest.raises(InvalidDataError, match=r"cannot be computed \(ValueError\)"):
        fitted(frame)


# The digest


def by_hand(rows: list[tuple[Any, ...]]) -> bytes:
    """Return the digest of rows, cell by cell and without arrays."""
    total = 0
    for row in rows:
        spelled = b""
        for cell in row:
            if cell is None or cell == "":
                spelled += bytes(16)
            elif isinstance(cell, str):
                spelled += hashlib.blake2b(cell.encode(), digest_size=16).digest()
            else:
                spelled += np.array([cell], "<f8").tobytes() + (1).to_bytes(8, "little")
        total += int.from_bytes(hashlib.sha256(spelled).digest(), "little")
    return hashlib.sha256(
        len(rows).to_bytes(8, "big") + (total % 2**256).to_bytes(32, "big")
    ).digest()


CELLS = st.tuples(st.one_of(st.none(), st.integers(-5, 5)), st.sampled_from(["", "a", "b", "é"]))


@given(
    st.lists(CELLS, min_size=1, max_size=12), st.integers(1, 5), st.randoms(use_true_random=False)
)
def test_the_digest_is_the_sum_of_the_hashes_of_the_rows(rows, at_once, random):
    def table(some: list[Any]) -> Table:
        numbers, texts = zip(*some, strict=True)
        return Table("", {"n": np.array(numbers, dtype=object), "t": list(texts)})

    expected = by_hand(rows)
    assert table_digest(table(rows)) == expected
    random.shuffle(rows)
    running = RunningDigest()
    for part in table(rows).parts(at_once):
        running.add_table(part)
    assert running.digest() == expected
    # A row that is there twice does not cancel out, and every row counts.
    for other in ([*rows, rows[0], rows[0]], rows[1:], [*rows[1:], (7, "a")]):
        if other:
            assert table_digest(table(other)) != expected


def test_the_digest_is_that_of_the_cells_in_every_form(tmp_path):
    frame = PRIVATE.with_columns(
        size=PRIVATE["size"].cast(str), large=polars.Series(2**53 + np.arange(ROWS))
    )
    frame = frame.drop("fit")  # polars writes true, and Python True
    frame.write_csv(tmp_path / "rows.csv")
    frame.write_parquet(tmp_path / "rows.parquet")
    tables = [read_table(tmp_path / f"rows.{form}") for form in ("csv", "parquet")]
    frames = (frame, frame.to_pandas(), frame.to_arrow(), duckdb.sql("FROM frame"))
    tables += [found for rows in frames if (found := as_table(rows))]
    assert (len(tables), len({table_digest(table) for table in tables})) == (6, 1)
    moved = frame.with_columns(
        large=polars.Series([2**53 + ROWS, *(2**53 + np.arange(1, ROWS)).tolist()])
    )
    assert table_digest(as_table(moved)) != table_digest(tables[0])  # type: ignore[arg-type]
