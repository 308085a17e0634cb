"""The audit of a cell in the file of private rows."""

import csv
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import file_attack
from tutelage.audit import checklist
from tutelage.features import PublicColumns
from tutelage.tables import Table, read_table

pd = pytest.importorskip("pandas")


@pytest.fixture
def tables(tmp_path: Path) -> tuple[Table, Table]:
    public, private, _ = file_attack.write_files(tmp_path)
    return read_table(private), read_table(public)


def test_no_reader_lets_a_cell_change_other_people(tables):
    libraries = {"polars": "Polars", "pyarrow": "Parquet", "duckdb": "DuckDB", "pandas": "pandas"}
    assert {form for library, form in libraries.items() if find_spec(library)} <= set(checklist.readers())
    private, public = tables
    found = checklist.check_cells(private, public, PublicColumns.learn(public))
    assert (found.verdict, found.private) == ("pass", True)
    assert "csv" in found.reason


def test_the_reader_that_old_pandas_was_is_caught(tables, monkeypatch):
    private, public = tables
    monkeypatch.setattr("tutelage.features.columns.require_same_types", lambda *_: None)  # the fault
    monkeypatch.setattr("tutelage.features.cells._steady", lambda numbers: numbers)  # and what would hide it
    columns, by = PublicColumns.learn(public), {"pandas": file_attack.old_pandas}
    found = checklist.check_cells(private, public, columns, by=by)
    assert found.verdict == "fail"
    assert "column 'dose' changed the numbers of other people, read as pandas" in found.reason
    monkeypatch.undo()
    assert checklist.check_cells(private, public, columns, by=by).verdict == "pass"


def test_dates_in_the_format_of_the_first_cell_are_caught():
    def read(path):
        frame = pd.read_csv(path)
        form = "%Y-%m-%d"
        if "." in str(frame["seen"][0]):  # the others would be read in the order of the first
            frame["seen"], form = [str(text).replace("-", ".") for text in frame["seen"]], "mixed"
        frame["seen"] = pd.to_datetime(frame["seen"], format=form, errors="coerce", dayfirst=form == "mixed")
        return frame

    days = [f"2024-0{1 + row % 9}-0{1 + row % 7}" for row in range(60)]
    table = Table("", {"seen": np.array(days, dtype=object)})
    found = checklist.check_cells(table, table, PublicColumns.learn(Table("", {"seen": days})), by={"a frame": read})
    assert found.verdict == "fail"


def test_a_reader_that_lets_one_mark_open_and_another_close_a_cell_is_caught():
    def read(path):
        with path.open(newline="") as file:
            header, *rows = csv.reader(file)  # rows of several lines are not refused
        return Table("", {name: [row[place] for row in rows] for place, name in enumerate(header)})

    notes = [("ok", "ill", "fine")[row % 3] for row in range(60)]
    table = Table("", {"age": [str(20 + row) for row in range(60)], "note": notes})
    columns = PublicColumns.learn(table)
    found = checklist.check_cells(table, table, columns, by={"csv": read})
    assert found.verdict == "fail"
    assert "column 'note'" in found.reason
    assert checklist.check_cells(table, table, columns, by={"csv": read_table}).verdict == "pass"
