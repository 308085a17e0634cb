"""What one person writes into a cell of a file changes the numbers of that person and of nobody else."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import csv as arrow_csv

import file_attack
from tutelage import PATEClassifier, SimulationNoise
from tutelage.exceptions import FewPublicRowsWarning, InvalidDataError
from tutelage.features import PublicColumns, Schema
from tutelage.features.columns import numbered_rows
from tutelage.partition import canonical_ids
from tutelage.tables import as_table, read_batches, read_table

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
duckdb = pytest.importorskip("duckdb")

READERS: dict[str, Callable[[Path], Any]] = {
    "pandas": pandas.read_csv,
    "pandas on Arrow": lambda path: pandas.read_csv(path, dtype_backend="pyarrow"),
    "Polars": lambda path: polars.read_csv(path, infer_schema_length=None),
    "PyArrow": arrow_csv.read_csv,
    "DuckDB": lambda path: duckdb.read_csv(str(path), sample_size=-1),
}
ROWS = 30
FEATURES = ["number", "age", "ward", "seen", "fit"]
CELLS = {"number": "?", "age": "3.5", "ward": "7", "seen": "03.04.2024", "fit": "maybe"}


def written(path: Path, **changed: str) -> Path:
    """Write rows, the cells of the first person changed."""
    random = np.random.default_rng(0)
    lines = ["number,age,ward,seen,fit,ill"]
    for row in range(ROWS):
        cells = {
            "number": f"{random.random():.16f}",
            "age": str(random.integers(18, 90)),
            "ward": random.choice(["north", "south"]),
            "seen": f"2024-0{random.integers(1, 10)}-0{random.integers(1, 10)}",
            "fit": random.choice(["true", "false"]),
        }
        cells |= changed if row == 0 else {}
        lines.append(",".join([*cells.values(), "yes" if row % 3 else "no"]))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def files(tmp_path):
    return written(tmp_path / "public.csv"), tmp_path / "private.csv"


@pytest.mark.parametrize(("reader", "column"), [
    ("pandas", "number"), ("pandas", "age"), ("pandas on Arrow", "fit"), ("Polars", "age"), ("Polars", "fit"),
    ("PyArrow", "seen"), ("PyArrow", "number"), ("DuckDB", "seen"),
])  # fmt: skip
def test_a_frame_whose_column_got_another_type_is_refused_with_the_way_out(reader, column, files):
    public, private = files
    X_public, table = READERS[reader](public), as_table(READERS[reader](public))
    assert table is not None
    # Dates that a reader made of text are refused, unless they are declared.
    kinds = {"seen": "date"} if table.type_of("seen").startswith("date") else {}
    declared = PublicColumns.learn(X_public, FEATURES, kinds)
    if kinds:
        with pytest.raises(InvalidDataError, match=r"Column 'seen' holds dates .*declare the column"):
            numbered_rows(READERS[reader](written(private)), X_public, PublicColumns.learn(X_public, FEATURES))
    numbered_rows(READERS[reader](written(private)), X_public, declared)
    with pytest.raises(InvalidDataError, match=rf"^Column '{column}' is .*read_table\(path, like=public\)") as caught:
        numbered_rows(READERS[reader](written(private, **{column: CELLS[column]})), X_public, declared)
    assert CELLS[column] not in str(caught.value).replace(f"'{column}'", "")


@pytest.mark.parametrize(
    ("reader", "cell"), [*((reader, "?") for reader in READERS), ("pandas", ""), ("Polars", "nan")]
)
def test_a_file_read_like_the_public_rows_keeps_everybody_else_bit_for_bit(reader, cell, files):
    public, private = files
    X_public = READERS[reader](public)
    before, after = (
        numbered_rows(read_table(written(private, **changed), like=X_public), X_public, None)
        for changed in ({}, {"number": cell, "age": cell})
    )
    assert before is not None
    assert after is not None
    assert before.private[1:].tobytes() == after.private[1:].tobytes()
    assert before.public.tobytes() == after.public.tobytes()


@pytest.mark.filterwarnings("default::tutelage.exceptions.FewPublicRowsWarning")
@pytest.mark.parametrize("read", [read_table, read_batches])
def test_a_parquet_file_needs_the_types_of_the_public_rows(read, files, tmp_path):
    public, private = files
    model = PATEClassifier(epsilon=1.0, classes=["no", "yes"], noise=SimulationNoise(0))
    for name, changed in (("public", {}), ("same", {}), ("other", {"number": "?"})):
        rows = polars.read_csv(written(private, **changed), infer_schema_length=None)
        rows.write_parquet(tmp_path / f"{name}.parquet")
    X_public = read_table(tmp_path / "public.parquet")
    with pytest.warns(FewPublicRowsWarning):
        model.fit(read(tmp_path / "same.parquet"), "ill", X_public=X_public)
    with pytest.raises(InvalidDataError, match=r"'number' of other\.parquet is text in the private rows and float"):
        model.fit(read(tmp_path / "other.parquet"), "ill", X_public=X_public)
    with pytest.raises(InvalidDataError, match="Column 'number' of other"):
        read_table(tmp_path / "other.parquet", like=X_public)
    with pytest.raises(InvalidDataError, match="is float in the private rows and text in the public rows"):
        read_table(tmp_path / "same.parquet", like=read_table(public))


def test_objects_of_several_types_are_refused_beyond_the_first_cells():
    # pandas reads large files in parts, and makes numbers of the cells of a part if all of them are numbers.
    X_public = pandas.DataFrame({"code": ["a", "b"] * 200})
    private = pandas.DataFrame({"code": pandas.Series(["a"] * 300 + [7] * 100, dtype=object)})
    with pytest.raises(InvalidDataError, match="Column 'code' is of several types in the private rows and text in"):
        numbered_rows(private, X_public, None)
    assert numbered_rows(private[:300], X_public, None) is not None


def test_types_that_no_cell_of_another_person_reads_anew_are_taken():
    # Times have more than 18 digits, but are no number that a reader could take for one.
    stamps, codes = ["2024-01-02 10:00:00.123456", "2024-03-04 10:00:00.654321"] * 30, [1, 2] * 30
    frame = pandas.DataFrame({"seen": stamps, "code": codes, "well": [True, False] * 30})
    assert numbered_rows(frame[["seen"]], frame[["seen"]], None) is not None
    with pytest.raises(InvalidDataError, match="holds text, and a number of 19 digits or more"):
        numbered_rows(frame.assign(seen="12 345 678 901 234 567 890")[["seen"]], frame[["seen"]], None)
    # Categories of numbers and of truth values are those that the plain column has.
    schema = Schema({"code": ["1", "2"], "well": ["True", "False"]})
    plain, categories = (schema.transform(schema.table(rows)) for rows in (frame, frame.astype("category")))
    assert plain.tobytes() == categories.tobytes()
    with pytest.raises(InvalidDataError, match="Column 'code' holds floats with fractions or empty cells"):
        schema.table(frame.assign(code=[1, None] * 30).astype("category"))


def test_a_matrix_of_text_is_refused():
    texts = np.array([["0.1", "2"], ["0.3", "4"]] * 20)
    model = PATEClassifier(epsilon=1.0, classes=[0, 1])
    for rows in (texts, texts.astype(object), texts.tolist()):
        with pytest.raises(InvalidDataError, match="X must hold numbers"):
            model.fit(rows, [0, 1] * 20, X_public=np.zeros((20, 2)))


def test_ids_are_the_same_people_as_integers_and_as_text():
    text = [" 017", "17", "+17", "-017", "-0", "0", "00", "17a", "017a", "1.0"]
    assert canonical_ids(text).tolist() == ["17", "17", "17", "-17", "0", "0", "0", "17a", "017a", "1"]
    assert canonical_ids([int(each) for each in text[:7]]).tolist() == canonical_ids(text[:7]).tolist()


# The attack, from the file to the student


def test_the_attack_through_a_frame_is_refused_and_fails_through_the_file(tmp_path):
    public_file, *sides = file_attack.write_files(tmp_path)
    public = file_attack.old_pandas(public_file)
    assert np.isfinite(file_attack.shown(file_attack.old_pandas(sides[0]), public, SimulationNoise(0)))
    with pytest.raises(InvalidDataError, match="Column 'dose' is text in the private rows and float in the public"):
        file_attack.shown(file_attack.old_pandas(sides[1]), public, SimulationNoise(0))
    same, other = (file_attack.shown(read_table(side, like=public), public, SimulationNoise(0)) for side in sides)
    assert abs(same - other) < 0.02  # one of 400 rows lost a number


@pytest.mark.slow
def test_real_fits_show_no_more_than_the_claim(tmp_path):
    """A true bound is exceeded with probability 0.001."""
    public_file, *sides = file_attack.write_files(tmp_path)
    public = file_attack.old_pandas(public_file)
    found = [np.array([file_attack.shown(read_table(side, like=public), public) for _ in range(500)]) for side in sides]
    assert file_attack.lower_bound(found) < file_attack.EPSILON


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_a_cell_that_opens_with_a_mark_never_reaches_another_row(ending, tmp_path):
    lines = ["id,age,note,ill", *(f"{row},{20 + row},fine,no" for row in range(40))]
    lines[31] = '30,50,5ft 11",no'  # somebody's ordinary cell, from a writer that does not double marks
    path = tmp_path / "private.csv"
    path.write_text(ending.join(lines), newline="")
    assert read_table(path).n_rows == 40
    lines[11] = '10,30,",no'
    path.write_text(ending.join(lines), newline="")
    with pytest.raises(InvalidDataError, match=r"In row 11 of private\.csv, a quotation mark .*Parquet"):
        read_table(path)


@pytest.mark.parametrize("first", ["1", "1234567"])
def test_a_row_is_read_alike_wherever_a_block_of_the_file_begins(first, tmp_path, monkeypatch):
    monkeypatch.setattr("tutelage.tables._AT_ONCE", 16)
    (path := tmp_path / "private.csv").write_text(f"id,age\n{first},2\n" + "\ufeff3,4\n" * 9, encoding="utf-8")
    assert set(read_table(path).texts("id")[1:]) == {"\ufeff3"}
