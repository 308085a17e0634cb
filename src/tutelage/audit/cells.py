"""Whether one cell in a file of private rows changes the numbers of other people, through any reader.

A cell of one person is changed in a copy of the file, and the copy is read again. The result depends on the private
rows and is for the data set owner. It spends no budget, because nothing is released.
"""

import csv
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from tutelage._internal.typing import Matrix
from tutelage.audit.checklist import Checked
from tutelage.features import PublicColumns
from tutelage.features.named import numbered_rows
from tutelage.tables import Table, read_table

_CHECK = "one cell in the file"
_ROWS = 200
_COLUMNS = 12
_CELLS = ("", "?", " ", "1e308", "0.12345678901234567", "03.04.2024", '"', "nan", "7", "true")
_CSV = "csv"
_MARK = "\ue000"  # written as a quotation mark that is not doubled
Reader = Callable[[Path], Any]


def readers() -> dict[str, Reader]:
    """Return how files are read: by this package, and by each library that is installed."""

    def through_parquet(path: Path) -> Any:
        import_module("pyarrow.parquet").write_table(of["PyArrow"](path), path.with_suffix(".parquet"))
        return read_table(path.with_suffix(".parquet"))

    of: dict[str, Reader] = {
        "PyArrow": lambda path: import_module("pyarrow.csv").read_csv(path),
        "Parquet": through_parquet,
        "pandas": lambda path: import_module("pandas").read_csv(path),
        "Polars": lambda path: import_module("polars").read_csv(path, infer_schema_length=None),
        "DuckDB": lambda path: import_module("duckdb").read_csv(str(path), sample_size=-1).to_arrow_table(),
    }
    needed = {"PyArrow": ["pyarrow"], "Parquet": ["pyarrow"], "DuckDB": ["duckdb", "pyarrow"]}
    installed = {name for name in of if all(find_spec(one) for one in needed.get(name, [name.lower()]))}
    return {_CSV: read_table} | {name: read for name, read in of.items() if name in installed}


def check_cells(
    private: Table, public: Table, columns: PublicColumns, *, by: Mapping[str, Reader] | None = None
) -> Checked:
    """Change cells of the first person in a copy of the file, one at a time, and compare everybody else bit for bit.

    Parameters
    ----------
    private, public : Table
        The rows; several hundred of each are used.
    columns : PublicColumns
        What the columns are.
    by : mapping of names to functions of paths, optional
        How the files are read. Default: `readers`.

    Returns
    -------
    Checked
        It passes if each changed file is refused, or gives everybody else the same numbers.
    """
    by = readers() if by is None else by
    with tempfile.TemporaryDirectory(prefix="private-") as folder:
        for form, read in by.items():
            column = _moved(read, private, public, columns, Path(folder), marks=form == _CSV)
            if column is not None:
                reason = (
                    f"A cell of column '{column}' changed the numbers of other people, read as {form}. Do not release "
                    "with this reader: one person could change all ballots."
                )
                return Checked(_CHECK, "fail", reason, private=True)
    reason = (
        f"Cells of the first person were changed in a copy of the file, in {len(_CELLS)} ways, and read as "
        f"{', '.join(by)}. Each copy was refused, or gave everybody else the same numbers, bit for bit."
    )
    return Checked(_CHECK, "pass", reason, private=True)


def _moved(
    read: Reader, private: Table, public: Table, columns: PublicColumns, folder: Path, *, marks: bool
) -> str | None:
    """Return a column in which a changed cell of the first row changes another row, if there is one.

    With `marks`, also in a file whose writer does not double quotation marks: one opens a cell of the first row, and
    one closes a cell of the last row.
    """
    names = list(columns.names)
    tables = [table.take(range(min(_ROWS, table.n_rows))) for table in (private, public)]
    rows, others = ([list(row) for row in zip(*map(table.texts, names), strict=True)] for table in tables)
    seen = read(_written(folder / "public.csv", names, others))

    def numbers(cells: list[list[str]]) -> Matrix | None:
        """Return the numbers of everybody but the first person; None if the file is refused."""
        path = _written(folder / "rows.csv", names, cells)
        found = None
        # A library may refuse the file too.
        with suppress(Exception):
            found = numbered_rows(read(path), seen, columns)
        return None if found is None else found.private[1:]

    # The same rows, but the cell: what it does to itself does not matter.
    before = numbers(rows)
    for place, name in enumerate(names[:_COLUMNS]):
        if marks:
            closed = [*rows[:-1], [*rows[-1][:place], rows[-1][place] + _MARK, *rows[-1][place + 1 :]]]
            opened = [[*rows[0][:place], _MARK, *rows[0][place + 1 :]], *closed[1:]]
            one, other = numbers(closed), numbers(opened)
            if one is not None and other is not None and not np.array_equal(_bits(one), _bits(other)):
                return name
        for cell in _CELLS:
            after = numbers([[*rows[0][:place], cell, *rows[0][place + 1 :]], *rows[1:]])
            if before is None:
                before = after
            elif after is not None and not np.array_equal(_bits(before), _bits(after)):
                return name
    return None


def _bits(numbers: Matrix) -> Matrix:
    return np.ascontiguousarray(numbers, dtype=np.float64).view(np.uint64)


def _written(path: Path, names: list[str], rows: list[list[str]]) -> Path:
    text = StringIO(newline="")
    csv.writer(text).writerows([names, *([" ".join(cell.splitlines()) for cell in row] for row in rows)])
    path.write_text(text.getvalue().replace(_MARK, '"'), encoding="utf-8", newline="")
    return path
