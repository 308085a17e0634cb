"""Named columns become numbers: what a column is follows from public rows, and a code from one cell alone."""

import io
from datetime import datetime, time
from typing import Any

import numpy as np
import pytest
from sklearn.compose import make_column_transformer
from sklearn.preprocessing import OneHotEncoder

from tutelage.exceptions import InvalidDataError
from tutelage.features import PublicColumns, PublicTransformer
from tutelage.features.cells import UNKNOWN
from tutelage.tables import Table, read_table

pandas = pytest.importorskip("pandas")
PUBLIC = Table("public.csv", {"age": ["31", "", "45"], "city": ["Ulm", "Bonn", "Ulm"]})


def test_codes_come_from_public_rows_only():
    columns = PublicColumns.learn(PUBLIC, ("age", "city"))
    private = Table("private.csv", {"city": ["Bonn", "Kiel"], "age": ["7", ""]})
    matrix = columns.transform(private)
    assert matrix[0].tolist() == [7, 0]
    assert np.isnan(matrix[1, 0])
    assert matrix[1, 1] == UNKNOWN
    assert (columns.numbers, columns.categorical) == (("age",), ("city",))
    assert "Kiel" not in str(columns.categories)


EMPTY = [None, float("nan"), np.float64("nan"), np.datetime64("NaT"), pandas.NA, "", " ", "?"]


@pytest.mark.parametrize("rows", [
    {"note": ["x", "y"], "city": np.array(["Ulm", "Bonn "]), "age": np.array([31, 7.5])},
    [[31, "Ulm"], [7.5, "Bonn"]],
    np.array([["31", "Ulm"], ["7.5", "Bonn"]]),
], ids=["mapping", "rows", "text"])  # fmt: skip
def test_columns_are_known_by_name_in_whatever_order_and_by_place_without_names(rows):
    columns = PublicColumns.learn(PUBLIC, ("age", "city"))
    assert columns.transform(rows).tolist() == [[31, 1], [7.5, 0]]


@pytest.mark.parametrize(
    ("cities", "code"), [(["Bonn", ""], 0), (["?", "Ulm"], 0), (["Bonn", "Ulm"], UNKNOWN)]
)
def test_an_empty_cell_is_the_same_however_it_is_spelled(cities, code):
    columns = PublicColumns.learn({"age": [1, 2], "city": cities})
    found = columns.transform({"age": EMPTY, "city": EMPTY})
    assert np.isnan(found[:, 0]).all()
    assert found[:, 1].tolist() == [code] * len(EMPTY)


def test_a_category_is_its_value_however_it_is_spelled():
    columns = PublicColumns.learn({"ward": ["02", "1", "None", "True"]})
    cells = [2, "02", 1, 1.0, np.float32(1), "1", "None", True, "true", None]
    assert columns.transform({"ward": cells})[:, 0].tolist() == [0, 0, 1, 1, 1, 1, 2, 3, 3, UNKNOWN]


def upcast(cells: list[Any]) -> list[Any]:
    """Return a private column as pandas has it, and as it writes it and reads it again."""
    series = pandas.Series(cells)
    file = io.StringIO()
    series.to_csv(file, index=False, header=["ward"])
    again = pandas.read_csv(io.StringIO(file.getvalue()), skip_blank_lines=False)["ward"]
    return [
        series.to_numpy(),
        again.to_numpy(),
        [line.strip('"') for line in file.getvalue().splitlines()[1:]],
    ]


@pytest.mark.parametrize(("public", "cells", "odd"), [
    (["1.0", "2.0", "x"], [1, 2, 1, 2], None),
    (["01", "02", "x"], ["01", "02", "01", "02"], "x"),
    (["true", "false", "x"], [True, False, True, False], "never"),
    (["2020-01-01", "2020-01-02", "x"], [datetime(2020, 1, 1), datetime(2020, 1, 2)] * 2, datetime(2020, 1, 1, 5)),
    (["0.5", "2", "x"], [0.5, 2, 0.5, 2], "x"),
])  # fmt: skip
def test_one_cell_of_one_person_moves_nobody_elses_code_or_text(public, cells, odd):
    table = Table("public.csv", {"ward": public})
    encoder = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["ward"]))
    for learned in (PublicColumns.learn(table), PublicTransformer.learn(encoder, table)):
        for forms in zip(upcast(cells), upcast([*cells[:-1], odd]), strict=True):
            before, after = (learned.transform({"ward": form})[:-1].tolist() for form in forms)
            assert before == after
            assert before[0] == before[2] != before[1]


@pytest.mark.parametrize(
    "cells", [[True, False], [datetime(2020, 2, 1)], [time(10)], np.array([True]), [16, None]]
)
def test_a_column_that_its_reader_made_something_else_of_is_refused(cells):
    columns = PublicColumns.learn({"smoker": ["yes", "no", "2020/02/01", "10:00", "0x10"]})
    with pytest.raises(
        InvalidDataError, match="Column 'smoker' holds no text, and the public rows do"
    ):
        columns.transform({"smoker": cells})
    assert columns.transform({"smoker": ["unknown", None]}).tolist() == [[UNKNOWN]] * 2


@pytest.mark.parametrize(("rows", "message"), [
    ({"age": [1], "City": ["Miller"]}, "no column 'city'. They need each of: age, city."),
    ({"age": [1, 2], "city": ["Miller"]}, "as many cells each"),
    ({"age": ["Miller"], "city": ["Ulm"]}, "Column 'age' holds text"),
    ([["Miller", 1, 2]], r"must have 2 columns, in this order: age, city. Got shape \(1, 3\)"),
])  # fmt: skip
def test_rows_that_lack_a_column_or_a_number_are_refused_by_its_name(rows, message):
    with pytest.raises(InvalidDataError, match=message) as caught:
        PublicColumns.learn(PUBLIC, ("age", "city")).transform(rows)
    assert "Miller" not in str(caught.value)
    assert caught.value.__context__ is None


@pytest.mark.parametrize(("content", "message"), [
    (b"", "no rows below its header"),
    (b"age,city\n31\n", "Row 1 of rows.csv has 1 cells, the header 2"),
    (b"age,age\n1,2\n", "Column 2 of .* has no name, or that of an earlier"),
    (b"name\nMrs Miller \xff\n", "not a UTF-8 csv file"),
])  # fmt: skip
def test_broken_csv_is_refused_in_one_sentence(content, message, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(content)
    with pytest.raises(InvalidDataError, match=message) as caught:
        read_table(path)
    assert "Miller" not in str(caught.value)
    assert caught.value.__context__ is None


NOTES = [f"note {number}" for number in range(100)]


@pytest.mark.parametrize("cells", [NOTES, [*NOTES[:26], *NOTES[:24], ""]])
def test_text_that_differs_in_most_public_rows_is_no_category(cells):
    with pytest.raises(
        InvalidDataError, match="Column 'notes' of the public rows holds text that differs in most"
    ):
        PublicColumns.learn({"notes": cells})


def test_numbers_with_commas_are_no_categories_however_few_differ():
    cells = ["1,5", "2"] * 60
    table = Table("public.csv", {"dose": cells, "day": ["03.01.1970"] * len(cells)})
    with pytest.raises(InvalidDataError, match="holds numbers with commas"):
        PublicColumns.learn(table)
    forms = PublicColumns.learn(table, kinds={"dose": "decimal comma", "day": "dd.mm.yyyy"})
    assert forms.transform({"dose": ["1,5", "?"], "day": ["1.2.1970", ""]})[0].tolist() == [1.5, 31]
