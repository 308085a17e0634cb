"""The same rows in every form of a table give the same matrix."""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tutelage.exceptions import InvalidDataError
from tutelage.features import PublicColumns
from tutelage.features.cells import UNKNOWN
from tutelage.tables import read_table

duckdb, pandas, polars, pyarrow = map(
    pytest.importorskip, ("duckdb", "pandas", "polars", "pyarrow")
)
parquet = pytest.importorskip("pyarrow.parquet")

SIZES = ["large", "medium", "small"]


def made_up_rows(n: int = 500) -> dict[str, list[Any]]:
    """Return columns of every kind, some of whose cells are missing."""
    random = np.random.default_rng(0)

    def some(cells: list[Any]) -> list[Any]:
        return [None if random.uniform() < 0.1 else cell for cell in cells]

    start, seconds = datetime(1969, 12, 1, 8, 30, 0, 123456), random.integers(0, 10**9, n)
    return {
        "id": list(range(2**53 + 1, 2**53 + 1 + n)),
        "whole": some(random.integers(-5, 5, n).tolist()),
        "real": some(random.normal(size=n).tolist()),
        "maybe": some((random.uniform(size=n) < 0.5).tolist()),
        "text": some(random.choice(["Ulm", "Bonn, West", 'a "b"', "x;y|z", "Köln"], n).tolist()),
        "category": some(random.choice(["7", "b", "a"], n).tolist()),
        "size": some(random.choice(SIZES, n).tolist()),
        "day": some(
            [date(1960, 1, 1) + timedelta(days=int(days)) for days in random.integers(0, 30000, n)]
        ),
        "moment": some([start + timedelta(seconds=int(second)) for second in seconds]),
        "zoned": [
            (start + timedelta(seconds=int(second))).replace(tzinfo=UTC) for second in seconds
        ],
    }


ROWS = made_up_rows()


def as_pandas() -> Any:
    frame = pandas.DataFrame({**ROWS, "maybe": pandas.array(ROWS["maybe"], dtype="boolean")})
    frame["category"] = frame["category"].astype("category")
    frame["size"] = pandas.Categorical(frame["size"], SIZES, ordered=True)
    return frame


def as_polars() -> Any:
    return polars.DataFrame(
        ROWS, schema_overrides={"category": polars.Categorical, "size": polars.Enum(SIZES)}
    )


def as_arrow() -> Any:
    return pyarrow.Table.from_pandas(as_pandas())


def as_duckdb() -> Any:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("made_up", as_arrow())
    sizes = ", ".join(f"'{size}'" for size in SIZES)
    return connection.sql(f"SELECT * REPLACE (size::VARCHAR::ENUM({sizes}) AS size) FROM made_up")  # noqa: S608


def written(folder: Path, write: Callable[[Path], object], ending: str = "parquet") -> Any:
    write(folder / f"rows.{ending}")
    return read_table(folder / f"rows.{ending}")


FORMS: dict[str, Callable[[Path], Any]] = {
    "csv.gz": lambda folder: written(folder, partial(as_pandas().to_csv, index=False), "csv.gz"),
    "semicolons": lambda folder: written(
        folder, partial(as_pandas().to_csv, index=False, sep=";"), "csv"
    ),
    "csv of Polars": lambda folder: written(folder, as_polars().write_csv, "csv"),
    "Parquet of Polars": lambda folder: written(folder, as_polars().write_parquet),
    "Parquet in groups": lambda folder: written(
        folder, partial(parquet.write_table, as_arrow(), row_group_size=90)
    ),
    "pandas": lambda _: as_pandas(),
    "pandas on Arrow": lambda _: as_arrow().to_pandas(types_mapper=pandas.ArrowDtype),
    "Polars": lambda _: as_polars(),
    "lazy Polars": lambda _: as_polars().lazy(),
    "DuckDB": lambda _: as_duckdb(),
    "mapping": lambda _: ROWS,
}


@pytest.fixture(scope="module")
def learned() -> PublicColumns:
    return PublicColumns.learn(as_polars())


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_matrix_to_the_last_bit(form, learned, tmp_path):
    rows = FORMS[form](tmp_path)
    expected = learned.transform(as_polars())
    assert learned.transform(rows).tobytes() == expected.tobytes()
    own = PublicColumns.learn(rows)
    assert own.transform(rows).tobytes() == expected.tobytes()


def test_the_matrix_holds_what_the_rows_say(learned):
    matrix = learned.transform(ROWS)
    column = dict(zip((*learned.numbers, *learned.categorical), matrix.T, strict=True))
    days = [np.nan if day is None else (day - date(1970, 1, 1)).days for day in ROWS["day"]]
    np.testing.assert_array_equal(column["day"], days)
    np.testing.assert_allclose(column["real"], np.array(ROWS["real"], dtype=float), rtol=1e-12)
    assert column["maybe"].tolist() == [
        {None: 0, False: 1, True: 2}[truth] for truth in ROWS["maybe"]
    ]
    assert column["size"].tolist() == [
        0 if size is None else 1 + SIZES.index(size) for size in ROWS["size"]
    ]
    assert column["category"].tolist() == [
        [None, "7", "a", "b"].index(category) for category in ROWS["category"]
    ]


@pytest.mark.parametrize("order", [["low", "mid", "high"], ["high", "mid", "low"]])
def test_a_category_with_an_order_keeps_it_and_has_codes_for_the_public_ones_alone(order):
    cells = ["high", "low", None, "high"]
    frame = pandas.DataFrame({"level": pandas.Categorical(cells, order, ordered=True)})
    series = polars.Series(cells, dtype=polars.Enum(order))
    used = ["", *(level for level in order if level != "mid")]
    for rows in (frame, polars.DataFrame({"level": series})):
        columns = PublicColumns.learn(rows)
        assert np.asarray(columns.categories[0]).tolist() == used
        assert columns.transform({"level": ["mid", "high"]})[:, 0].tolist() == [
            UNKNOWN,
            used.index("high"),
        ]


def test_dates_are_days_in_utc_however_they_are_spelled():
    columns = PublicColumns.learn({"when": [date(1970, 1, 3), None]})
    cells = [
        "1969-12-31",
        "1970-01-02T12:00",
        "1970-01-02 01:00:00+01:00",
        datetime(1970, 1, 1, 6),
        date(1970, 1, 2),
    ]
    assert columns.transform({"when": cells})[:, 0].tolist() == [-1, 1.5, 1, 0.25, 1]
    assert columns.transform({"when": np.array(["1970-01-02", "NaT"], "M8[ns]")})[:1].tolist() == [
        [1]
    ]


@pytest.mark.parametrize("cell", ["Mrs Miller", 17, "2020-13-01"])
def test_private_cells_that_are_no_dates_are_refused_without_quoting_them(cell):
    columns = PublicColumns.learn({"when": [date(1970, 1, 3)]})
    with pytest.raises(InvalidDataError, match="Column 'when' must hold dates only") as caught:
        columns.transform({"when": [cell]})
    assert caught.value.__context__ is None
    assert str(cell) not in str(caught.value)


def test_a_query_that_fails_quotes_no_cell():
    relation = duckdb.sql(
        "SELECT name::INTEGER AS age FROM (VALUES ('1'), ('Mrs Miller')) AS people(name)"
    )
    with pytest.raises(
        InvalidDataError, match=r"The rows cannot be computed .*ConversionException"
    ) as caught:
        PublicColumns.learn({"age": [1]}).transform(relation)
    assert "Miller" not in str(caught.value)
    assert caught.value.__context__ is None
