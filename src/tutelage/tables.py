"""Tables of any form as named columns whose cells keep their kinds; errors name files and columns and quote no cell."""

import csv
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from datetime import UTC, datetime, time, timedelta
from functools import partial
from math import isfinite
from numbers import Integral
from os import PathLike
from pathlib import Path
from sys import getsizeof
from typing import Any, NamedTuple, TypeVar, final

import numpy as np

from tutelage._internal import gate
from tutelage._internal.records import Names, by_identity
from tutelage._internal.typing import Array, Untyped, is_array, is_mapping
from tutelage._internal.validation import integer_at_least
from tutelage.exceptions import InvalidDataError

TABLE_FILES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt", ".txt.gz", ".parquet")
"""Endings of the files that `read_table` reads."""

Cells = Array
MOMENT = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d([.,]\d+)?)?(Z|[+-]\d\d(:?\d\d)?)?)?")
"""How csv files spell days and times."""
ROWS_AT_ONCE = 2**16
TEXT_TYPE = "text"
"""The type of columns whose cells are converted one by one."""
WRITTEN = "text of a csv file"
"""The type of columns of a csv file: each cell is text, and the public rows determine what it means."""
_EMPTY = "empty"  # and other types of columns
_SEVERAL = "of several types"
_MOMENT = "datetime"
# A number beyond the integers of a column, perhaps with one kind of mark between its digits; no time, no two numbers.
_LONG = re.compile(r"(?=(\D*+\d){19})\W*+\d++([\W_]?)(\d|\2)*+\W*")
_LEAST_LONG = 19  # characters
_CATEGORIES = "categories of "  # before the type of categories that are no text
TRUTH_TYPE = "boolean"
NUMBER_TYPES = frozenset({"integer", "float64", "float32"})
"""Types of numbers, in which a whole number up to 2**53 is the same."""
_MARKS = ",;\t|"  # between cells
# Bytes, at most, per character of a line of a csv file, while it is divided into cells.
_MEMORY_OF_LINE = 40
_MEMORY_OF_CELL = 8  # bytes, at least, besides what is in it
_MEMORY_OF_COLUMN = 64  # bytes, at least, besides its cells
_AT_ONCE = 2**20  # bytes of a csv file
# Bytes of a column that are read at once; without it, a column of a whole row group would be.
_BUFFER = 2**20
_ODD_MARK = r'[\r\n]|^ +"'
_PANDAS_INDEX = "__index_level_"
_TWICE = "The columns of the rows must have different names."
_COMPLEX: Any = (complex, np.complexfloating)
_FLOATING: Any = np.floating
# Types of columns by PyArrow's words, where these differ.
_WORDS = {
    "string": TEXT_TYPE,
    "double": "float64",
    "float": "float32",
    "bool": TRUTH_TYPE,
    "null": _EMPTY,
    "binary": "bytes",
}
_FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20].")  # also in full width
_Read = TypeVar("_Read")
# Types of columns by numpy's kinds of cells; others are called by the name of the type.
_KINDS = {
    "M": _MOMENT,
    "i": "integer",
    "u": "integer",
    "b": TRUTH_TYPE,
    "U": TEXT_TYPE,
    "T": TEXT_TYPE,
}
_arrow = Untyped("pyarrow")
_compute = Untyped("pyarrow.compute")
_csv = Untyped("pyarrow.csv")
_parquet = Untyped("pyarrow.parquet")
_types = Untyped("pyarrow.types")


@final
@by_identity
class Table:
    """Named columns.

    The cells of a column are an array, in which they keep their types. A list is text as a csv file has it, blanks
    trimmed, whose kind is found from the public rows.
    """

    source: str  # the file's name, for messages; empty for rows that come from no file
    columns: Mapping[str, Any] = field(repr=False)
    # Order of the categories, if any.
    levels: Mapping[str, Names] = field(default_factory=dict[str, Names], repr=False)
    # The type that a column has in the memory of a frame or in a file; without one, it is that of its cells.
    types: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    def __post_init__(self) -> None:
        columns = {**self.columns}
        types = {**self.types}
        for name, cells in columns.items():
            if isinstance(cells, list):
                columns[name] = np.array(cells, dtype=object)
                types[name] = WRITTEN
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "types", types)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self.columns.values())))

    def column(self, name: str) -> Cells:
        """Return the cells of column `name`; raise `InvalidDataError` if it does not exist."""
        if name not in self.columns:
            if not self.source:
                raise InvalidDataError(f"The table has no column '{name}'. Check the spelling.")
            # The columns it has are not listed: without a header they would be a person's cells.
            cells = "" if len(self.columns) > 1 else ", and are its cells separated by commas"
            raise InvalidDataError(
                f"{self.source} has no column '{name}'. Is its first line a header{cells}?"
            )
        return self.columns[name]

    def texts(self, name: str) -> list[str]:
        """Return the cells of column `name` as text, the same for every form of a table."""
        return [cell_text(cell) for cell in self.column(name).tolist()]

    def parts(self, at_once: int) -> Iterator["Table"]:
        """Yield the rows as tables of at most `at_once` rows, from top to bottom."""
        for start in range(0, self.n_rows, at_once):
            yield self.take(slice(start, start + at_once))

    def take(self, rows: Any) -> "Table":
        """Return the rows with these numbers, in this order; or those of a slice."""
        if not isinstance(rows, slice):
            rows = np.asarray(rows, dtype=int)
        columns = {name: cells[rows] for name, cells in self.columns.items()}
        return replace(self, columns=columns)

    def without(self, names: Collection[str]) -> "Table":
        """Return the other columns."""
        columns = {name: cells for name, cells in self.columns.items() if name not in names}
        return replace(self, columns=columns)

    def type_of(self, name: str) -> str:
        """Return the type of a column, in one word for the same type in all libraries."""
        kind = self.types.get(name) or _type_of_cells(self.column(name))
        return TEXT_TYPE if kind == WRITTEN else kind

    def rows(self) -> Array:
        """Return all cells as text, shape (rows, columns), as a csv file would have them: 1.0 where `texts` have 1."""
        columns = list[list[str]]()
        for name, cells in self.columns.items():
            texts = self.texts(name)
            if cells.dtype.kind == "f":
                texts = ["" if cell != cell else str(cell) for cell in cells.tolist()]  # NaN
            columns.append(texts)
        return np.array(columns, dtype=object).T


@final
@by_identity
class Batches:
    """Rows with named columns that need not fit into memory: each pass reads them again, some thousand at a time.

    `read_batches` makes it of a Parquet file. For a Dask DataFrame, `PATEClassifier.fit` does.
    """

    source: str  # the file's name, for messages; empty for rows that come from no file
    names: Names  # of all columns
    # Yields columns of these names as tables of at least one row, the same rows in the same order in every call.
    tables: Callable[[Sequence[str]], Iterator[Table]] = field(repr=False)

    def require(self, names: Sequence[str]) -> None:
        """Refuse names that no column has."""
        for name in names:
            if name not in self.names:
                raise InvalidDataError(
                    f"{self.source or 'The table'} has no column '{name}'. Check the spelling."
                )


# Files


def read_table(path: str | PathLike[str], like: object = None) -> Table:
    """Read a csv file or a Parquet file (``.parquet``).

    A csv file has a header row, is UTF-8, and is compressed if its name ends in ``.gz``. Cells are separated by ``,``,
    ``;``, ``|`` or tabs, whichever divides the header into most names. Each row is one line; for texts of several
    lines, use Parquet.

    Parameters
    ----------
    path : path-like
        The file.
    like : Table, DataFrame, DuckDB relation or mapping of names to cells, optional
        The public rows, if the file has private ones. Each private cell is then read by itself, as its public column
        determines: cells of a csv file stay text until they are converted one by one, and columns of a Parquet file
        must have the types of the public columns. No cell can choose how other people's cells are read.
    """
    path = gate.user_path(path)
    if path.suffix.lower() == ".parquet":
        table = _quietly(partial(_read_parquet, path), f"{path} is not a readable Parquet file")
    else:
        table = _quietly(partial(_read_csv, path), f"{path} is not a UTF-8 csv file")
    if like is None:
        return table
    public = as_table(like)
    if public is None:
        raise InvalidDataError(
            "`like` of read_table must be public rows with named columns: a table or a DataFrame. Got a "
            f"{type(like).__name__}."
        )
    # All dates count as declared, because a fit asks to declare them.
    require_same_types(table, public, public.columns, dates=public.columns)
    return table


def require_same_types(
    private: Table,
    public: Table,
    names: Iterable[str],
    *,
    dates: Collection[str] = (),
) -> None:
    """Refuse private columns whose type a cell may have chosen: those that have another type than the public column.

    `dates` are the columns that are declared to hold dates. See `require_type`.
    """
    advice = (
        "Read the file with tutelage.tables.read_table(path, like=public), or with the public types, in pandas with "
        "read_csv(path, dtype=dict(public.dtypes)), in which 'Int64' stands for whole numbers with empty cells."
    )
    for name in names:
        if name not in public.columns:
            continue
        wanted = public.type_of(name)
        require_type(private, name, {wanted}, f"{wanted} in the public rows", advice)
        if name in private.columns and name not in dates:
            _refuse_dates(private, name)


def require_type(
    private: Table,
    name: str,
    wanted: Collection[str],
    stated: str,
    advice: str,
) -> None:
    """Refuse a private column of a type that is not `wanted`, which its message calls `stated`; `advice` is for frames.

    Readers choose the type of a column by all its cells, and the type decides how each cell is read. So the cell of one
    person could change the numbers of all others. Text as a csv file has it is read cell by cell, and safe.
    """
    if name not in private.columns or private.types.get(name) == WRITTEN:
        return  # a missing one is refused, with advice, where the columns become numbers
    kind = private.type_of(name)
    if kind == TEXT_TYPE:
        cells = private.column(name).tolist()
        # Readers make equal cells one object. To compare ids runs no code of a cell's own class.
        different = dict(zip(map(id, cells), cells, strict=True)).values()
        texts = [cell for cell in different if isinstance(cell, str)]
        long = [text for text in texts if str.__len__(text) >= _LEAST_LONG]
        if any(map(_LONG.fullmatch, long)):
            # After such a number in the first row, pandas leaves empty cells of all others as they are written.
            how = "holds text, and a number of 19 digits or more"
            raise chosen_by_a_cell(private, name, how, advice)
    is_wanted = kind in wanted or kind.removeprefix(_CATEGORIES) in wanted
    if kind == _EMPTY or (_SEVERAL not in kind and is_wanted):
        return
    how = f"is {kind} in the private rows and {stated}"
    for word, plain in (("float64", "float"), ("boolean", "truth values"), (_MOMENT, "dates")):
        how = how.replace(word, plain)
    raise chosen_by_a_cell(private, name, how, advice)


def chosen_by_a_cell(
    private: Table,
    name: str,
    how: str,
    advice: str,
) -> InvalidDataError:
    """Return the error about a column whose type one cell may have chosen."""
    if private.source:
        advice = (
            "Name the csv file that it was made of, or write the file again from columns whose types you set, in "
            "pandas with dtype= of read_csv ('Int64' for whole numbers with empty cells)."
        )
    return InvalidDataError(
        f"{_title(private, name)} {how}. One cell may have chosen this type, and with it how everybody's cells were "
        f"read. {advice}"
    )


def _title(private: Table, name: str) -> str:
    if private.source:
        return f"Column '{name}' of {private.source}"
    return f"Column '{name}'"


def _refuse_dates(private: Table, name: str) -> None:
    """Refuse dates that a program has read: whether days or months come first may follow from one cell."""
    if private.type_of(name).removeprefix(_CATEGORIES).startswith("date"):
        raise InvalidDataError(
            f"{_title(private, name)} holds dates that a program has read. One cell may have chosen whether days or "
            "months come first in all of them. Read the csv file with tutelage.tables.read_table(path, like=public). "
            "If no cell has chosen the form of the dates, declare the column: "
            f"features=PublicColumns.learn(public, kinds={{'{name}': 'date'}}), or `{name} = \"date\"` in [columns]."
        )


def _read_csv(path: Path) -> Table:
    free = gate.free_memory()
    n_rows = 0
    most = int(min(free / _MEMORY_OF_LINE, gate.LARGEST)) + 1  # bytes of a line
    with gate.open_input(path, gate.TABLE) as compressed:
        file = compressed
        if path.suffix.lower() == ".gz":
            file = gate.unpack(compressed, path)
        block = file.readline(most)
        gate.require_memory(_MEMORY_OF_LINE * len(block), path, free)
        header, _, block = re.split(b"(\r\n|\r|\n|$)", block, maxsplit=1)
        names, mark = _header(header.decode("utf-8-sig"), path)
        columns: list[list[str]] = [[] for _ in names]
        taken = _MEMORY_OF_COLUMN * len(names)
        while block := block + file.read(_AT_ONCE):
            block += file.readline(most)  # to the end of a line
            gate.require_memory(taken + _MEMORY_OF_LINE * len(block), path, free)
            parts = _columns_of_lines(block, names, mark, n_rows, path)
            for cells, (texts, places) in zip(columns, parts, strict=True):
                taken += _MEMORY_OF_CELL * len(places) + sum(map(getsizeof, texts))
                gate.require_memory(taken, path, free)
                cells += texts[places].tolist()
            n_rows = len(columns[0])
            block = b""
    if not n_rows:
        raise InvalidDataError(f"{path} has no rows below its header.")
    arrays = {name: np.array(columns.pop(0), dtype=object) for name in names}
    return Table(path.name, arrays, types=dict.fromkeys(names, WRITTEN))


def _header(line: str, path: Path) -> tuple[list[str], str]:
    """Return the names of the columns, and the mark that divides the header into most of them."""

    def names_by(mark: str, *, strict: bool = False) -> list[str]:
        lines = csv.reader([line], delimiter=mark, skipinitialspace=True, strict=strict)
        return next(lines)

    mark = max(_MARKS, key=lambda mark: len(names_by(mark)))
    names = [name.strip() for name in names_by(mark, strict=True)]
    if not names:
        raise InvalidDataError(f"{path} has no rows below its header.")
    for number, name in enumerate(names, start=1):
        # Names are not quoted: without a header, they are a person's cells.
        if name == "" or name in names[: number - 1]:
            raise InvalidDataError(
                f"Column {number} of {path} has no name, or that of an earlier column. Name each column in the first "
                "line. If a column is an index that was saved with the table, leave it out (in pandas: index=False)."
            )
    return names, mark


def _columns_of_lines(
    block: bytes,
    names: list[str],
    mark: str,
    n_rows: int,
    path: Path,
) -> Iterator[tuple[Cells, Cells]]:
    """Yield, of each column of some lines below others, the different cells without blanks around them, and the places.

    A cell that goes on below its line is refused: where quotation marks are not doubled, one person's cell opens and
    another's closes, and all between them would go.
    """
    wrong = list[Any]()

    def skip(row: Any) -> str:
        if not wrong:
            wrong.append(row)
        return "skip"

    # All cells are text, so that none has a part in the choice of a type.
    texts = _arrow.dictionary(_arrow.int32(), _arrow.string())
    table = _csv.read_csv(
        # The line break keeps a byte order mark, which PyArrow removes at the start of any block.
        _arrow.BufferReader(b"\n" + block),
        _csv.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=names),
        _csv.ParseOptions(delimiter=mark, invalid_row_handler=skip),
        _csv.ConvertOptions(column_types=dict.fromkeys(names, texts)),
    )
    for row in wrong:
        number = n_rows + (row.number or 0)
        if re.search(r"[\r\n]", row.text.strip("\r\n")):
            raise _odd_mark(number, path)
        raise InvalidDataError(
            f"Row {number} of {path.name} has {row.actual_columns} cells, the header {row.expected_columns}."
        )
    for chunks in table.columns:
        column = chunks.combine_chunks()
        is_odd = _compute.match_substring_regex(column.dictionary, _ODD_MARK)
        odd = _compute.index(is_odd, True).as_py()
        if odd >= 0:
            row = _compute.index(column.indices, odd).as_py()
            raise _odd_mark(n_rows + row + 1, path)
        trimmed = _compute.utf8_trim_whitespace(column.dictionary)
        yield trimmed.to_numpy(zero_copy_only=False), column.indices.to_numpy()


def _odd_mark(row: int, path: Path) -> InvalidDataError:
    return InvalidDataError(
        f"In row {row} of {path.name}, a quotation mark follows a blank, or opens a cell that does not end on that "
        "line. Write each row on one line, leave no blanks before cells, and double the quotation marks inside cells; "
        "or use Parquet."
    )


def _read_parquet(path: Path) -> Table:
    schema = _parquet_schema(path)
    with _parquet.ParquetFile(path, read_dictionary=_plain_texts(schema)) as file:
        needed = 0
        for place in range(file.metadata.num_columns):
            width = max(_MEMORY_OF_CELL, file.schema.column(place).length)
            for group in range(file.num_row_groups):
                chunk = file.metadata.row_group(group).column(place)
                needed += max(chunk.total_uncompressed_size, width * chunk.num_values)
        gate.require_memory(needed, path)
        return _parquet_table(file.read(), path, schema)


def _parquet_schema(path: Path) -> Any:
    """Return the columns of a Parquet file, and refuse one without rows."""
    with _parquet.ParquetFile(gate.require_input(path, gate.LARGEST)) as file:
        schema = file.schema_arrow
        n_rows = file.metadata.num_rows
    if any(name.startswith(_PANDAS_INDEX) for name in schema.names):
        raise InvalidDataError(
            f"{path} has an index among its columns. Write the file without it (index=False)."
        )
    if not schema.names or n_rows == 0:
        raise InvalidDataError(f"{path} has no rows.")
    return schema


def _plain_texts(schema: Any) -> list[str]:
    """Return the columns of text and bytes without categories, whose cells are stored one by one."""
    # Categories of bytes are of another type; those of text are text.
    names = list[str]()
    for column in schema:
        is_text = _type_of(column.type) in (TEXT_TYPE, "bytes")
        if is_text and not _types.is_dictionary(column.type):
            names.append(column.name)
    return names


def _parquet_table(
    rows: Any,
    path: Path,
    schema: Any,
) -> Table:
    columns = list[tuple[str, _ReadColumn]]()
    for name in rows.schema.names:
        kind = schema.field(name).type
        columns.append((name, partial(_arrow_column, rows.column(name), kind)))
    return _table(path.name, columns)


def read_batches(
    path: str | PathLike[str],
    *,
    rows_at_once: int = ROWS_AT_ONCE,
) -> Batches:
    """Return the rows of a Parquet file as batches: a file may be larger than memory.

    Parameters
    ----------
    path : path-like
        The file. Do not change it while a `fit` reads it; a fit notices that, and releases nothing more.
    rows_at_once : int
        Most rows of a batch. No result depends on it.
    """
    path = gate.user_path(path)
    integer_at_least(rows_at_once, 1, "rows_at_once", "read_batches")
    refusal = f"{path} is not a readable Parquet file"
    if path.suffix.lower() != ".parquet" and path.name.lower().endswith(TABLE_FILES):
        raise InvalidDataError(f"{refusal}. For other tables, use read_table.")
    schema = _quietly(partial(_parquet_schema, path), refusal)

    def open_file() -> Any:
        # With `pre_buffer`, all that was read would stay in memory until the file is closed.
        return _parquet.ParquetFile(
            gate.require_input(path, gate.LARGEST),
            read_dictionary=_plain_texts(schema),
            buffer_size=_BUFFER,
            pre_buffer=False,
        )

    def tables(names: Sequence[str]) -> Iterator[Table]:
        with _quietly(open_file, refusal) as file:
            batches = file.iter_batches(rows_at_once, columns=[*names])
            while True:
                batch = _quietly(partial(next, batches, None), refusal)
                if batch is None:
                    return
                if batch.num_rows:
                    rows = _arrow.Table.from_batches([batch])
                    yield _parquet_table(rows.select([*names]), path, schema)

    return Batches(path.name, tuple(schema.names), tables)


# Rows in memory


def as_batches(rows: Any) -> Batches | None:
    """Return rows that come in batches, which are those of `read_batches`; else None.

    A Dask DataFrame has batches where its partitions are (`tutelage.people.partitions`), and here only their names.
    """
    if isinstance(rows, Batches):
        return rows
    if not _library(rows).startswith("dask") or not hasattr(rows, "get_partition"):
        return None
    names = tuple(map(str, rows.columns))
    if len(set(names)) < len(names):
        raise InvalidDataError(_TWICE)
    return Batches("", names, _no_tables)


def _no_tables(_names: Sequence[str]) -> Iterator[Table]:
    return iter(())


def as_table(
    rows: object,
    names: Collection[str] | None = None,
) -> Table | None:
    """Return rows with named columns as a table: a frame of any library that exports to Arrow, or a mapping to cells.

    It has only the columns of these `names`, if given. None stands for rows whose columns have no names.
    """
    if isinstance(rows, Table):
        return rows
    if is_mapping(rows):
        columns = dict[str, Cells]()
        for name in rows:
            if names is None or name in names:
                columns[str(name)] = _array(rows[name], str(name))
        return Table("", columns)
    if _is_frame(rows):
        return _frame_table(rows, names)
    return None


def is_lazy(rows: object) -> bool:
    """Return whether rows are computed again, perhaps in another order, whenever they are looked at."""
    if not _is_frame(rows):
        return False
    in_memory = _library(rows) in ("polars", "pyarrow") or hasattr(rows, "iloc")
    return not in_memory or _computing_method(rows) is not None


def column_array(values: Any) -> Any:
    """Return a column of a DataFrame library as an array; anything else as it is."""
    if _is_frame(values):
        columns = [*_frame_table(values).columns.values()]
        return columns[0] if len(columns) == 1 else values
    refusal = "A column cannot be read"
    if _library(values) == "pandas" and hasattr(values, "iloc"):
        return _quietly(partial(_pandas_column, values), refusal).cells
    if isinstance(values, _arrow.Array):
        values = [values]
    elif not hasattr(values, "__arrow_c_stream__"):
        return values
    return _quietly(lambda: _arrow_column(_arrow.chunked_array(values)), refusal).cells


def _library(rows: object) -> str:
    names = [kind.__module__.lstrip("_").partition(".")[0] for kind in type(rows).__mro__]
    return "pandas" if "pandas" in names else names[0]


def _is_frame(rows: object) -> bool:
    exports = hasattr(type(rows), "__arrow_c_stream__") or _computing_method(rows) is not None
    return hasattr(type(rows), "columns") and exports


def _computing_method(rows: object) -> str | None:
    """Return the name of the method that computes rows, if they are not in memory."""
    for name in ("collect", "compute"):
        if hasattr(type(rows), name):
            return name
    return None


def _frame_table(
    rows: Any,
    names: Collection[str] | None = None,
) -> Table:
    refusal = "The rows cannot be computed"
    method = _computing_method(rows)
    if method is not None:
        rows = _quietly(getattr(rows, method), refusal)
    columns = list[tuple[str, _ReadColumn]]()
    if _library(rows) == "pandas":
        for place, name in enumerate(rows.columns):
            columns.append((str(name), partial(_pandas_column, rows.iloc[:, place])))
        return _table("", columns, names)
    in_order = _library(rows) == "duckdb"  # all its categories
    frame = _quietly(partial(_arrow.table, rows), refusal)
    for name, values in zip(frame.schema.names, frame.columns, strict=True):
        columns.append((name, partial(_arrow_column, values, in_order=in_order)))
    return _table("", columns, names)


class _Column(NamedTuple):
    cells: Cells
    type: str
    order: Names = ()  # of the categories, if they have one


_ReadColumn = Callable[[], _Column]


def _table(
    source: str,
    columns: Iterable[tuple[str, _ReadColumn]],
    names: Collection[str] | None = None,
) -> Table:
    cells = dict[str, Cells]()
    orders = dict[str, Names]()
    kinds = dict[str, str]()
    for name, read in columns:
        if name in cells:
            raise InvalidDataError(_TWICE)
        if names is None or name in names:
            column = _quietly(read, f"Column '{name}' cannot be read")
            cells[name] = column.cells
            kinds[name] = column.type
            if column.order:
                orders[name] = column.order
    return Table(source, cells, orders, kinds)


def _pandas_column(series: Any) -> _Column:
    """Return a column of pandas. For objects and categories, PyArrow would look for a type that fits all cells."""
    if series.dtype == object or series.dtype.kind == "c":  # PyArrow has no complex numbers
        cells = series.to_numpy(dtype=object)
        return _Column(cells, _type_of_cells(cells))
    if not hasattr(series.dtype, "categories"):
        return _arrow_column(_arrow.table({"": series}).column(0))
    categories = [*series.cat.categories]
    kind = _type_of_categories(_type_of_cells(np.array(categories, dtype=object)))
    order = categories if series.cat.ordered else ()
    cells = _cells_of_codes(categories, series.cat.codes.to_numpy())
    return _Column(cells, kind, tuple(map(cell_text, order)))


def _arrow_column(
    values: Any,
    kind: Any = None,
    *,
    in_order: bool = False,
) -> _Column:
    """Return a column of PyArrow: numbers, truth values and dates as such, the others as objects.

    Its `kind` is that of the values, unless they are coded because each different text of a file is stored once.
    """
    if kind is None:
        kind = values.type
    name = _type_of(kind)
    is_coded = _types.is_dictionary(values.type)
    if name == TEXT_TYPE and not is_coded:
        values = values.cast(_arrow.large_string()).dictionary_encode()
        is_coded = True
    if is_coded:
        parts = [np.empty(0, dtype=object)]
        for chunk in values.chunks:
            codes = chunk.indices.cast(_arrow.int64()).fill_null(-1).to_numpy()
            parts.append(_cells_of_codes(chunk.dictionary.to_pylist(), codes))
        order = ()
        has_order = _types.is_dictionary(kind) and (in_order or kind.ordered)
        if has_order and values.num_chunks > 0:
            order = values.unify_dictionaries().chunk(0).dictionary.to_pylist()
        return _Column(np.concatenate(parts), name, tuple(map(cell_text, order)))
    is_filled = not values.null_count
    if _types.is_timestamp(kind) or _types.is_date(kind):
        cells = values.to_numpy().astype("datetime64[us]")
    elif _types.is_floating(kind) or (is_filled and name in ("integer", TRUTH_TYPE)):
        cells = values.to_numpy()
    else:
        cells = np.fromiter(values.to_pylist(), dtype=object, count=len(values))
    return _Column(cells, name)


def _cells_of_codes(categories: list[Any], codes: Array) -> Cells:
    """Return the cell of each code; -1 stands for an empty one."""
    cells = [cell if isinstance(cell, str | bytes) else cell_text(cell) for cell in categories]
    return np.array([*cells, None], dtype=object)[codes]


def _type_of(kind: Any) -> str:
    """Return a type of PyArrow in one word: types that hold the same values of other people's cells are one."""
    if _types.is_dictionary(kind):
        return _type_of_categories(_type_of(kind.value_type))
    if _types.is_timestamp(kind):
        return f"{_MOMENT} in {kind.tz}" if kind.tz else _MOMENT
    if _types.is_decimal(kind):
        return str(kind)  # the first cells may have chosen how many digits the others keep
    if _types.is_integer(kind):
        return "integer"
    word = re.sub("^large_|[^a-z].*", "", str(kind))
    return _WORDS.get(word, word)


def _type_of_categories(kind: str) -> str:
    return TEXT_TYPE if kind in (TEXT_TYPE, _EMPTY) else f"{_CATEGORIES}{kind}"


def _type_of_cells(cells: Cells) -> str:
    """Return the type of the cells of an array; of objects, by those that are filled."""
    if cells.dtype != object:
        return _KINDS.get(cells.dtype.kind, cells.dtype.name)
    filled: list[object] = [cell for cell in cells.tolist() if not is_missing(cell)]
    names = {_type_of_cell(kind) for kind in set(map(type, filled))}
    if names == {"integer", "float64"}:
        return "float64"
    if not names:
        return _EMPTY
    return names.pop() if len(names) == 1 else _SEVERAL


def _type_of_cell(kind: type[object]) -> str:
    if issubclass(kind, bool | np.bool_):
        return TRUTH_TYPE
    if issubclass(kind, str):
        return TEXT_TYPE
    if issubclass(kind, Integral):
        return "integer"
    if issubclass(kind, datetime):
        return _MOMENT
    return "float64" if kind is float else kind.__name__.lower()


def _array(cells: object, name: str) -> Cells:
    column = column_array(cells)
    array = column if is_array(column) else np.asarray(column, dtype=object)
    if array.ndim != 1:
        raise InvalidDataError(
            f"Column '{name}' must hold one cell per row. Got shape {array.shape}."
        )
    if array.dtype.kind == "M":
        return array.astype("datetime64[us]")
    return array if array.dtype.kind in "biuf" else array.astype(object)


def _quietly(read: Callable[[], _Read], refusal: str) -> _Read:
    """Return what `read` returns. Its errors may quote cells, so only their type is told, and what the gate says."""
    try:
        return read()
    except InvalidDataError:
        raise
    except Exception as error:
        cause = f"{refusal} ({type(error).__name__})"
        if isinstance(error, OSError) and error.filename is not None:
            name = str(error.filename)
            if refusal.startswith(name):
                cause = f"{name} cannot be read: {error.strerror}"
    raise InvalidDataError(f"{cause}.")


def is_number(text: str) -> bool:
    """Return whether a cell reads as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def is_formula(value: object) -> bool:
    """Return whether spreadsheets would compute a class value that is text."""
    return isinstance(value, str) and bool(_FORMULA.match(value)) and not is_number(value)


def is_missing(cell: object) -> bool:
    """Return whether a cell is empty: None, NaN, NaT or blank text."""
    if cell is None or (isinstance(cell, str) and not cell.strip()):
        return True
    try:
        return bool(cell != cell)  # NaN, NaT
    except TypeError:  # pandas.NA does not say whether it differs from itself
        return True
    except Exception:
        # A cell that is an array, or of a class of somebody's own, whose error may quote it.
        return False


def cell_text(cell: Any) -> str:
    """Return a cell as text: an empty one as none, and whole numbers and days in one way."""
    try:
        if isinstance(cell, str):
            return str.strip(cell)
        if is_missing(cell):
            return ""
        # Beside a complex number all cells of a column are complex, so real ones are spelled as such.
        if isinstance(cell, _COMPLEX) and not cell.imag:
            cell = cell.real
        # A number of less precision is spelled shorter than in a column of such numbers.
        if isinstance(cell, _FLOATING):
            cell = float(cell)
        if isinstance(cell, timedelta):  # of whatever library
            return str(timedelta(cell.days, cell.seconds, cell.microseconds))
        if isinstance(cell, datetime) and cell.tzinfo is None and cell.time() == time():
            return str(cell.date())
        if isinstance(cell, float) and cell.is_integer():
            # A column of whole numbers that has an empty cell is one of floats to pandas: 39 comes as 39.0.
            cell = int(cell)
        return str.strip(str(cell))
    except Exception:
        # A whole number of too many digits, or a class of somebody's own, whose error may quote it.
        return ""


def by_value(cell: object) -> str:
    """Return a cell as one text for all spellings and types of its value: 1, 1.0 and "01"; True and "true"; a moment.

    Libraries change the type of a whole column because of a single cell in it, and with the type how all are spelled.
    """
    text = cell_text(cell)
    if text.casefold() in ("true", "false"):
        return text.capitalize()
    try:
        if MOMENT.fullmatch(text):
            moment = datetime.fromisoformat(text)
            if moment.tzinfo is not None:
                moment = moment.astimezone(UTC).replace(tzinfo=None)
            return cell_text(moment)
        number = float(text)
    except (OverflowError, ValueError):
        return text
    return str(int(number)) if isfinite(number) and number.is_integer() else repr(number)
