"""Rows from a csv file, as text, with errors that name files and columns but never quote a cell."""

import csv
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from tutelage.exceptions import InvalidDataError


@final
@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Named columns of text cells, blanks trimmed.

    Parameters
    ----------
    source : str
        The file's name, for messages.
    columns : dict of str to list of str
        Cells per column, top to bottom.
    """

    source: str
    columns: dict[str, list[str]] = field(repr=False)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self.columns.values())))

    def column(self, name: str) -> list[str]:
        """Return the cells of column `name`, or raise `InvalidDataError` where there is none."""
        if name not in self.columns:
            # The columns it has are not listed: without a header they would be a person's cells.
            cells = "" if len(self.columns) > 1 else ", and are its cells separated by commas"
            raise InvalidDataError(f"{self.source} has no column '{name}'. Is its first line a header{cells}?")
        return self.columns[name]


def read_csv(path: Path) -> Table:
    """Read a comma-separated file with a header row (UTF-8).

    Raises
    ------
    InvalidDataError
        If the file is missing, empty, not UTF-8, or a row has another number of cells than the header.
    """
    unreadable = ""
    try:
        with path.open(newline="", encoding="utf-8-sig") as lines:
            reader = csv.reader(lines, skipinitialspace=True)
            header = [name.strip() for name in next(reader, [])]
            rows = []
            for row in reader:
                if row and len(row) != len(header):
                    raise InvalidDataError(
                        f"Line {reader.line_num} of {path.name} has {len(row)} cells, the header {len(header)}."
                    )
                if row:
                    rows.append([cell.strip() for cell in row])
    except OSError as error:
        raise InvalidDataError(f"{path} cannot be read: {error.strerror}.") from None
    except (UnicodeDecodeError, csv.Error) as error:
        unreadable, header, rows = type(error).__name__, [], []
    if unreadable:  # out here: a UnicodeDecodeError holds the bytes of the file
        raise InvalidDataError(f"{path} is not a UTF-8 csv file ({unreadable}).")
    if not rows:
        raise InvalidDataError(f"{path} has no rows below its header.")
    _check_header(header, path)
    return Table(path.name, dict(zip(header, map(list, zip(*rows, strict=True)), strict=True)))


def _check_header(header: list[str], path: Path) -> None:
    """Refuse columns without a name of their own, quoting none: without a header they are a person's cells."""
    if header[0] == "" and "" not in header[1:]:
        raise InvalidDataError(
            f"The first column of {path} has no name. Is it an index that was saved with the table? Write the file "
            "without it (in pandas: index=False), or name it."
        )
    for number, name in enumerate(header, start=1):
        if name == "":
            raise InvalidDataError(f"Column {number} of {path} has no name. The header must name every column.")
        if name in header[: number - 1]:
            first = header.index(name) + 1
            raise InvalidDataError(f"Columns {first} and {number} of {path} have the same name. Rename one of them.")


def is_number(text: str) -> bool:
    """Return whether a cell reads as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
