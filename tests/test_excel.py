"""Excel files are tables like others."""

import zipfile
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tutelage.exceptions import InvalidDataError
from tutelage.features import PublicColumns
from tutelage.tables import read_csv, read_table

pytest.importorskip("python_calamine")

WORKBOOK = (
    '<workbook xmlns="{main}" xmlns:r="{office}"><sheets><sheet name="a" sheetId="1" r:id="r1"/></sheets></workbook>'
)
RELATIONS = (
    '<Relationships xmlns="{package}"><Relationship Id="r1" Type="{office}/{kind}" Target="{to}"/></Relationships>'
)
SHEET = '<worksheet xmlns="{main}"><sheetData>{rows}</sheetData></worksheet>'
NAMES = {
    "main": "http://schemas.openxmlformats.org/spreadsheetml/2006/main",
    "office": "http://schemas.openxmlformats.org/officeDocument/2006/relationships",
    "package": "http://schemas.openxmlformats.org/package/2006/relationships",
}


def cell(value: Any, place: str) -> str:
    if value is None:
        return f'<c r="{place}"/>'
    if isinstance(value, bool):
        return f'<c r="{place}" t="b"><v>{int(value)}</v></c>'
    if isinstance(value, date):
        return f'<c r="{place}" t="d"><v>{value.isoformat()}</v></c>'
    if isinstance(value, str):
        return f'<c r="{place}" t="inlineStr"><is><t xml:space="preserve">{value}</t></is></c>'
    return f'<c r="{place}"><v>{value!r}</v></c>'


def write(path: Path, rows: list[list[Any]]) -> Path:
    """Write rows as the first sheet of an Excel file."""
    lines = ""
    for number, row in enumerate(rows, start=1):
        cells = (cell(value, f"{chr(65 + column)}{number}") for column, value in enumerate(row))
        lines += f'<row r="{number}">{"".join(cells)}</row>'
    files = {
        "_rels/.rels": RELATIONS.format(**NAMES, kind="officeDocument", to="xl/workbook.xml"),
        "xl/workbook.xml": WORKBOOK.format(**NAMES),
        "xl/_rels/workbook.xml.rels": RELATIONS.format(**NAMES, kind="worksheet", to="worksheets/sheet1.xml"),
        "xl/worksheets/sheet1.xml": SHEET.format(**NAMES, rows=lines),
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


ROWS: list[list[Any]] = [
    ["age", "dose", "zip", "ill", "seen", "note"],
    [39, 0.5, "01067", True, datetime(2024, 1, 2), "a"],
    [50, None, "89073", False, None, None],
    [61, 2.0, "01067", True, datetime(2023, 12, 31), "b"],
]


def test_an_excel_file_is_the_csv_file_of_the_same_rows(tmp_path):
    table = read_table(write(tmp_path / "rows.xlsx", ROWS))
    csv = tmp_path / "rows.csv"
    csv.write_text(
        "age,dose,zip,ill,seen,note\n39,0.5,01067,True,2024-01-02,a\n50,,89073,False,,\n61,2.0,01067,True,2023-12-31,b\n"
    )
    other = read_csv(csv)
    assert table.source == "rows.xlsx"
    assert [table.texts(name) for name in ("age", "zip", "ill", "seen", "note")] == [
        other.texts(name) for name in ("age", "zip", "ill", "seen", "note")
    ]
    assert table.rows()[:, :3].tolist() == other.rows()[:, :3].tolist()
    names = ["age", "dose", "ill", "seen", "note"]
    columns = PublicColumns.learn(other, names)
    assert PublicColumns.learn(table, names).kinds == columns.kinds
    assert columns.transform(table).tobytes() == columns.transform(other).tobytes()
    # Excel says what a csv file leaves open: a code is text.
    assert PublicColumns.learn(table, ["zip"]).kinds == {"zip": ["01067", "89073"]}


def test_whole_numbers_are_integers_unless_one_is_missing(tmp_path):
    table = read_table(write(tmp_path / "rows.xlsx", [["a", "b"], [1.0, 1.0], [2.0, None]]))
    assert np.asarray(table.column("a")).dtype == np.int64
    assert np.asarray(table.column("b")).dtype == np.float64


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([["age"]], "has no rows below its header"),
        ([], "has no rows below its header"),
        ([["age", None], [1, 2]], "Column 2 of .* has no name"),
        ([["age", "age"], [1, 2]], "have the same name"),
    ],
)
def test_sheets_that_are_no_tables_are_refused(rows, message, tmp_path):
    with pytest.raises(InvalidDataError, match=message):
        read_table(write(tmp_path / "rows.xlsx", rows))


def test_other_files_are_refused_in_one_sentence(tmp_path):
    path = tmp_path / "rows.xlsx"
    with pytest.raises(InvalidDataError, match="No such file"):
        read_table(path)
    path.write_text("Mrs Miller")
    with pytest.raises(InvalidDataError, match=r"is not an Excel file \(\w+Error\)") as caught:
        read_table(path)
    assert "Miller" not in str(caught.value)
