"""The audit of a cell in the file of private rows."""

import csv
import gzip
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import file_attack
from tutelage.audit import checklist
from tutelage.features import PublicColumns, Schema
from tutelage.features.columns import numbered_rows
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
    monkeypatch.setattr("tutelage.features.columns.require_same_types", lambda *_, **__: None)  # the fault
    monkeypatch.setattr("tutelage.features.cells.steady", lambda numbers: numbers)  # and what would hide it
    columns, by = PublicColumns.learn(public), {"pandas": file_attack.old_pandas}
    found = checklist.check_cells(private, public, columns, by=by)
    assert found.verdict == "fail"
    assert "column 'dose' changed the numbers of other people, read as pandas" in found.reason
    monkeypatch.undo()
    assert checklist.check_cells(private, public, columns, by=by).verdict == "pass"


def test_a_schema_is_checked_by_readers_with_options(tmp_path, monkeypatch):
    table = read_table(file_attack.write_files(tmp_path)[1])
    schema = Schema({"dose": (0.0, 200.0), "other": (0, 500)})
    by = {"pandas": checklist.readers()["pandas with decimal commas"]}
    assert checklist.check_cells(table, None, schema, by=by).verdict == "pass"
    monkeypatch.setattr("tutelage.features.schema.require_type", lambda *_, **__: None)  # the fault
    found = checklist.check_cells(table, None, schema, by=by)
    assert found.verdict == "fail"
    assert "column 'dose' changed the numbers of other people" in found.reason


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
    columns = PublicColumns.learn(Table("", {"seen": days}), kinds={"seen": "date"})  # who declares it, vouches for it
    found = checklist.check_cells(table, table, columns, by={"a frame": read})
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


PARTS = [*"09-.,_?'`\\%;|é𝟙١Z \t\r\n\0\x1f\u2028\u202e\ufeff", '"', '""', "1e", "e308", "nan", "inf", "0x1", "true"]
PARTS += ["2024-02-30", "31.12.2024", "T25:61", "e\u0301", "secret"]


def read_compressed(path: Path) -> Table:
    packed = path.with_suffix(".csv.gz")
    packed.write_bytes(gzip.compress(path.read_bytes(), 1))
    return read_table(packed)


FORMS = {**checklist.readers(), "csv.gz": read_compressed}


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_ten_thousand_hostile_cells_change_their_own_rows_or_are_refused_unquoted(form, monkeypatch):
    random, n = np.random.default_rng(0), 40
    days, numbers = random.integers(10, 29, n), random.normal(size=n)
    public = {
        "number": (texts := [f"{number:.3f}" for number in numbers]),
        "comma": [text.replace(".", ",") for text in texts],
        "seen": [f"2024-01-{day}" for day in days],
        "born": [f"{day}.07.1984" for day in days],
        "ward": random.choice(["north", "1", "true", "2024-01-01"], n).tolist(),
        "fit": random.choice(["true", "false"], n).tolist(),
    }
    table = Table("public.csv", public)
    columns = PublicColumns.learn(table, kinds={"comma": "decimal comma", "born": "dd.mm.yyyy"})
    cells = ["".join(random.choice(PARTS, n)) for n in random.integers(0, 5, 10_000 // len(FORMS) // len(public))]
    said = []

    def watched(*rows):
        try:
            return numbered_rows(*rows)
        except Exception as error:
            said.append(f"{error}{error.__context__}")
            raise

    monkeypatch.setattr(checklist, "_CELLS", cells)
    monkeypatch.setattr(checklist, "numbered_rows", watched)
    assert checklist.check_cells(table, table, columns, by={form: FORMS[form]}).verdict == "pass"
    assert not any("secret" in one for one in said)
