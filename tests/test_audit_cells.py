"""The audit of a cell in the file of private rows."""

import csv
from importlib.util import find_spec
from pathlib import Path

import pytest

import file_attack
from tutelage.audit import checklist
from tutelage.features import PublicColumns, Schema
from tutelage.tables import Table, read_table

pd = pytest.importorskip("pandas")


@pytest.fixture
def tables(tmp_path: Path) -> tuple[Table, Table]:
    public, private, _ = file_attack.write_files(tmp_path)
    return read_table(private), read_table(public)


def test_no_reader_lets_a_cell_change_other_people(tables):
    libraries = {"polars": "Polars", "pyarrow": "Parquet", "duckdb": "DuckDB", "pandas": "pandas"}
    assert {form for library, form in libraries.items() if find_spec(library)} <= set(
        checklist._readers()
    )
    private, public = tables
    found = checklist.check_cells(private, public, PublicColumns.learn(public))
    assert (found.verdict, found.private) == ("pass", True)
    assert "csv" in found.reason


def test_the_reader_that_old_pandas_was_is_caught(tables, monkeypatch):
    private, public = tables
    # The fault.
    monkeypatch.setattr("tutelage.features.columns.require_same_types", lambda *_, **__: None)
    # And what would hide it.
    monkeypatch.setattr("tutelage.features.cells.round_to_13_digits", lambda numbers: numbers)
    columns, by = PublicColumns.learn(public), {"pandas": file_attack.old_pandas}
    found = checklist.check_cells(private, public, columns, by=by)
    assert found.verdict == "fail"
    assert "column 'dose' changed the numbers of other people, read as pandas" in found.reason
    monkeypatch.undo()
    assert checklist.check_cells(private, public, columns, by=by).verdict == "pass"


def test_a_schema_is_checked_by_readers_with_options(tmp_path, monkeypatch):
    table = read_table(file_attack.write_files(tmp_path)[1])
    schema = Schema({"dose": (0.0, 200.0), "other": (0, 500)})
    by = {"pandas": checklist._readers()["pandas with decimal commas"]}
    assert checklist.check_cells(table, None, schema, by=by).verdict == "pass"
    monkeypatch.setattr("tutelage.features.schema.require_type", lambda *_, **__: None)  # the fault
    found = checklist.check_cells(table, None, schema, by=by)
    assert found.verdict == "fail"
    assert "column 'dose' changed the numbers of other people" in found.reason


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
