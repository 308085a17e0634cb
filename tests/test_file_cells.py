"""What one person writes into a cell of a file changes the numbers of that person and of nobody else."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import file_attack
from test_cell_roads import READERS, pandas
from tutelage import PATEClassifier, SimulationNoise
from tutelage.exceptions import FewPublicRowsWarning, InvalidDataError
from tutelage.features import PublicColumns, Schema
from tutelage.features.columns import numbered_as, numbered_rows
from tutelage.partition import canonical_ids
from tutelage.tables import read_batches, read_table

ROWS = 30
FEATURES = ["number", "age", "ward", "seen", "fit"]
CELLS = {"number": "?", "age": "3.5", "ward": "7", "seen": "03.04.2024", "fit": "maybe"}


def written(path: Path, **changed: str) -> Path:
    """Write rows, the cells of the first person changed."""
    lines = ["number;age;ward;seen;fit;ill"]
    for row in range(ROWS):
        cells = {
            "number": f"{1 / (row + 3):.16f}",
            "age": str(18 + row),
            "ward": "north" if row % 4 else "south",
            "seen": f"2024-01-{row + 1:02}",
            "fit": "true" if row % 2 else "false",
        }
        cells |= changed if row == 0 else {}
        lines.append(";".join([*cells.values(), "yes" if row % 3 else "no"]))
    path.write_text("\n".join(lines) + "\n")
    return path


def read(reader: str, path: Path) -> Any:
    return READERS[reader](path.read_text())


@pytest.mark.parametrize(("reader", "column"), [
    ("pandas", "number"), ("pandas", "age"), ("Polars", "age"), ("Polars", "fit"), ("PyArrow", "seen"),
    ("DuckDB", "seen"),
])  # fmt: skip
def test_a_frame_whose_column_got_another_type_is_refused_with_the_way_out(
    reader, column, tmp_path
):
    X_public = read(reader, written(tmp_path / "rows.csv"))
    # Dates that a reader made of text are refused, unless they are declared.
    kinds = {"seen": "date"} if column == "seen" else {}
    declared = PublicColumns.learn(X_public, FEATURES, kinds)
    if kinds:
        with pytest.raises(
            InvalidDataError, match=r"Column 'seen' holds dates .*declare the column"
        ):
            numbered_as(numbered_rows(X_public, PublicColumns.learn(X_public, FEATURES)), X_public)
    numbered_as(numbered_rows(X_public, declared), X_public)
    with pytest.raises(
        InvalidDataError, match=rf"^Column '{column}' is .*read_table\(path, like=public\)"
    ) as caught:
        numbered_as(
            numbered_rows(X_public, declared),
            read(reader, written(tmp_path / "rows.csv", **{column: CELLS[column]})),
        )
    assert CELLS[column] not in str(caught.value).replace(f"'{column}'", "")


@pytest.mark.parametrize(
    ("reader", "cell"),
    [
        ("pandas", "?"),
        ("Polars", "?"),
        ("PyArrow", "?"),
        ("DuckDB", "?"),
        ("pandas", ""),
        ("Polars", "nan"),
    ],
)
def test_a_file_read_like_the_public_rows_keeps_everybody_else_bit_for_bit(reader, cell, tmp_path):
    X_public = read(reader, written(tmp_path / "public.csv"))
    sides: Any = [
        numbered_as(
            numbered_rows(X_public),
            read_table(written(tmp_path / "rows.csv", **changed), like=X_public),
        )
        for changed in ({}, {"number": cell, "age": cell})
    ]
    (before, _), (after, _) = sides
    assert before[1:].tobytes() == after[1:].tobytes()


@pytest.mark.filterwarnings("default::tutelage.exceptions.FewPublicRowsWarning")
@pytest.mark.parametrize("reader", [read_table, read_batches])
def test_a_parquet_file_needs_the_types_of_the_public_rows(reader, tmp_path):
    model = PATEClassifier(epsilon=1.0, classes=["no", "yes"], noise=SimulationNoise(0))
    for name, changed in (("same", {}), ("other", {"number": "?"})):
        read("Polars", written(tmp_path / "rows.csv", **changed)).write_parquet(
            tmp_path / f"{name}.parquet"
        )
    same, other = (reader(tmp_path / f"{name}.parquet") for name in ("same", "other"))
    X_public = read_table(tmp_path / "same.parquet")
    with pytest.warns(FewPublicRowsWarning):
        model.fit(same, "ill", X_public=X_public)
    with pytest.raises(
        InvalidDataError, match=r"'number' of other\.parquet is text in the private rows and float"
    ):
        model.fit(other, "ill", X_public=X_public)
    with pytest.raises(InvalidDataError, match="Column 'number' of other"):
        read_table(tmp_path / "other.parquet", like=X_public)
    with pytest.raises(
        InvalidDataError, match="is float in the private rows and text in the public rows"
    ):
        read_table(tmp_path / "same.parquet", like=read_table(tmp_path / "rows.csv"))


def test_objects_of_several_types_are_refused_beyond_the_first_cells():
    # pandas reads large files in parts, and makes numbers of the cells of a part if all of them are numbers.
    X_public = pandas.DataFrame({"code": ["a", "b"] * 200})
    private = pandas.DataFrame({"code": pandas.Series(["a"] * 300 + [7] * 100, dtype=object)})
    for public in (X_public, private):
        with pytest.raises(
            InvalidDataError, match="Column 'code' is of several types in the private rows and"
        ):
            numbered_as(numbered_rows(public), private)
    assert numbered_as(numbered_rows(X_public), private[:300])[1] is not None


def test_types_that_no_cell_of_another_person_reads_anew_are_taken():
    # Times have more than 18 digits, but are no number that a reader could take for one.
    frame = pandas.DataFrame(
        {"seen": ["2024-01-02 10:00:00.123456", "2024-03-04 10:00:00.654321"] * 30}
    )
    assert numbered_as(numbered_rows(frame), frame)[1] is not None
    with pytest.raises(InvalidDataError, match="holds text, and a number of 19 digits or more"):
        numbered_as(numbered_rows(frame), frame.assign(seen="12 345 678 901 234 567 890"))
    # Categories of numbers and of truth values are those that the plain column has.
    frame = pandas.DataFrame({"code": [1, 2] * 30, "well": [True, False] * 30})
    schema = Schema({"code": ["1", "2"], "well": ["True", "False"]})
    plain, categories = (
        schema.transform(schema.table(rows)) for rows in (frame, frame.astype("category"))
    )
    assert plain.tobytes() == categories.tobytes()
    with pytest.raises(
        InvalidDataError, match="Column 'code' holds floats with fractions or empty cells"
    ):
        schema.table(frame.assign(code=[1, None] * 30).astype("category"))


def test_a_matrix_of_text_is_refused():
    texts = np.array([["0.1", "2"], ["0.3", "4"]] * 20)
    for rows in (texts, texts.astype(object), texts.tolist()):
        with pytest.raises(InvalidDataError, match="X must hold numbers"):
            PATEClassifier(epsilon=1.0, classes=[0, 1]).fit(
                rows, [0, 1] * 20, X_public=np.zeros((20, 2))
            )


def test_ids_are_the_same_people_as_integers_and_as_text():
    text = [" 017", "17", "+17", "-017", "-0", "0", "00", "17a", "017a", "1.0"]
    expected = "17 17 17 -17 0 0 0 17a 017a 1"
    assert canonical_ids(text).tolist() == expected.split()
    whole = [int(each) for each in text[:7]]
    assert canonical_ids(whole).tolist() == canonical_ids(text[:7]).tolist()


# The attack, from the file to the student


def test_the_attack_through_a_frame_is_refused_and_fails_through_the_file(tmp_path):
    public_file, *sides = file_attack.write_files(tmp_path)
    public = file_attack.old_pandas(public_file)
    assert np.isfinite(
        file_attack.shown(file_attack.old_pandas(sides[0]), public, SimulationNoise(0))
    )
    with pytest.raises(
        InvalidDataError, match="Column 'dose' is text in the private rows and float in the public"
    ):
        file_attack.shown(file_attack.old_pandas(sides[1]), public, SimulationNoise(0))
    same, other = (
        file_attack.shown(read_table(side, like=public), public, SimulationNoise(0))
        for side in sides
    )
    assert abs(same - other) < 0.02  # one of 400 rows lost a number


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_a_cell_that_opens_with_a_mark_never_reaches_another_row(ending, tmp_path):
    lines = ["id,age,note,ill", *(f"{row},{20 + row},fine,no" for row in range(40))]
    # Somebody's ordinary cell, from a writer that does not double marks.
    lines[31] = '30,50,5ft 11",no'
    path = tmp_path / "private.csv"
    path.write_text(ending.join(lines), newline="")
    assert read_table(path).n_rows == 40
    lines[11] = '10,30,",no'
    path.write_text(ending.join(lines), newline="")
    with pytest.raises(
        InvalidDataError, match=r"In row 11 of private\.csv, a quotation mark .*Parquet"
    ):
        read_table(path)


@pytest.mark.parametrize("first", ["1", "1234567"])
def test_a_row_is_read_alike_wherever_a_block_of_the_file_begins(first, tmp_path, monkeypatch):
    monkeypatch.setattr("tutelage.tables._AT_ONCE", 16)
    (path := tmp_path / "private.csv").write_text(
        f"id,age\n{first},2\n" + "\ufeff3,4\n" * 9, encoding="utf-8"
    )
    assert set(read_table(path).texts("id")[1:]) == {"\ufeff3"}
