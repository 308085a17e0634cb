"""Tables of any form as named columns whose cells keep their kinds; errors name files and columns and quote no cell."""

import csv
import gzip
import re
import warnings
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, time
from io import TextIOWrapper
from itertools import chain
from math import isfinite
from numbers import Integral
from os import PathLike
from pathlib import Path
from sys import getsizeof
from typing import Any, TypeVar, final

import narwhals.stable.v2 as nw
import numpy as np
import numpy.typing as npt

from tutelage._internal.gate import (
    LARGEST,
    TABLE,
    free_memory,
    open_input,
    require_input,
    require_memory,
    unpacked,
    user_path,
)
from tutelage._internal.validation import integer_at_least
from tutelage.exceptions import InvalidDataError

TABLE_FILES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt", ".txt.gz", ".parquet")
"""Endings of the files that `read_table` reads."""

Cells = npt.NDArray[Any] | list[str]
MOMENT = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d([.,]\d+)?)?(Z|[+-]\d\d(:?\d\d)?)?)?")
"""How csv files spell days and times."""
_SEPARATORS = ",;\t|"
_MEMORY_OF_LINE = 40  # bytes, at most, per character of a line of a csv file, while it is divided into cells
_MEMORY_OF_CELL, _MEMORY_OF_COLUMN = 8, 64  # bytes, at least, besides what is in them
_MOST_KEPT = 2**16
_BUFFER = 2**20  # bytes of a column that are read at once; without it, a column of a whole row group would be
ROWS_AT_ONCE = 2**16
_PANDAS_INDEX = "__index_level_"
TEXT_TYPE = "text"
"""The type of columns whose cells are converted one by one."""
_EMPTY, _SEVERAL, _MOMENT = "empty", "of several types", "datetime"  # other types of columns
_ONE_TYPE = "Write both files with one type for the column."
_READ_AGAIN = (
    "Read the file with tutelage.tables.read_table(path, like=public), or with the public types, in pandas with "
    "read_csv(path, dtype=dict(public.dtypes))."
)
_Read = TypeVar("_Read")


@final
@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Named columns.

    The cells of a column are an array, in which they keep their types, or text as a csv file has it, blanks trimmed,
    whose kind is found from the public rows.
    """

    source: str  # the file's name, for messages; empty for rows that come from no file
    columns: Mapping[str, Cells] = field(repr=False)
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)  # order of the categories, if any
    # The type that a column has in the memory of a frame or in a Parquet file; without one, it is that of its cells.
    types: Mapping[str, str] = field(default_factory=dict, repr=False)

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
            raise InvalidDataError(f"{self.source} has no column '{name}'. Is its first line a header{cells}?")
        return self.columns[name]

    def texts(self, name: str) -> list[str]:
        """Return the cells of column `name` as text, the same for every form of a table."""
        cells = self.column(name)
        return cells if isinstance(cells, list) else [spelled(cell) for cell in cells.tolist()]

    def parts(self, at_once: int) -> Iterator["Table"]:
        """Yield the rows as tables of at most `at_once` rows, from top to bottom."""
        for start in range(0, self.n_rows, at_once):
            columns = {name: cells[start : start + at_once] for name, cells in self.columns.items()}
            yield Table(self.source, columns, self.levels, self.types)

    def take(self, rows: Sequence[int] | npt.NDArray[np.integer]) -> "Table":
        """Return the rows with these numbers, in this order."""
        columns = {
            name: [cells[row] for row in rows] if isinstance(cells, list) else cells[np.asarray(rows, dtype=int)]
            for name, cells in self.columns.items()
        }
        return Table(self.source, columns, self.levels, self.types)

    def without(self, names: Collection[str]) -> "Table":
        """Return the other columns."""
        columns = {name: cells for name, cells in self.columns.items() if name not in names}
        levels = {name: self.levels[name] for name in self.levels if name in columns}
        return Table(self.source, columns, levels, self.types)

    def type_of(self, name: str) -> str:
        """Return the type of a column, in one word for the same type in all libraries."""
        cells = self.column(name)
        return self.types.get(name) or (TEXT_TYPE if isinstance(cells, list) else _type_of_cells(cells))

    def rows(self) -> npt.NDArray[Any]:
        """Return all cells as text, shape (rows, columns), as a csv file would have them: 1.0 where `texts` have 1."""
        written = []
        for name, cells in self.columns.items():
            texts = self.texts(name)
            if isinstance(cells, np.ndarray) and cells.dtype.kind == "f":
                texts = [str(cell) if text else text for cell, text in zip(cells.tolist(), texts, strict=True)]
            written.append(texts)
        return np.array(written, dtype=object).T


@final
@dataclass(frozen=True, slots=True, eq=False)
class Batches:
    """Rows with named columns that need not fit into memory: each pass reads them again, some thousand at a time.

    `read_batches` makes it of a Parquet file. For a Dask DataFrame, `PATEClassifier.fit` does.
    """

    source: str  # the file's name, for messages; empty for rows that come from no file
    names: tuple[str, ...]  # of all columns
    # Yields columns of these names as tables of at least one row, the same rows in the same order in every call.
    tables: Callable[[Sequence[str]], Iterator[Table]] = field(repr=False)

    def require(self, names: Sequence[str]) -> None:
        """Refuse names that no column has."""
        missing = [name for name in names if name not in self.names]
        if missing:
            raise InvalidDataError(f"{self.source or 'The table'} has no column '{missing[0]}'. Check the spelling.")


def read_batches(path: str | PathLike[str], *, rows_at_once: int = ROWS_AT_ONCE) -> Batches:
    """Return the rows of a Parquet file as batches: a file may be larger than memory (extra ``tables``).

    Parameters
    ----------
    path : path-like
        The file. Do not change it while a `fit` reads it; a fit notices that, and releases nothing more.
    rows_at_once : int
        Most rows of a batch. No result depends on it.
    """
    path = user_path(path)
    integer_at_least(rows_at_once, 1, "rows_at_once", "read_batches")
    unreadable = f"{path} is not a readable Parquet file"
    if path.suffix.lower() != ".parquet" and path.name.lower().endswith(TABLE_FILES):
        raise InvalidDataError(f"{unreadable}. For other tables, use read_table.")

    def opened(**options: Any) -> Any:
        parquet = _parquet_reader(path)
        # With `pre_buffer`, all that was read would stay in memory until the file is closed.
        return _quietly(lambda: parquet.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False, **options), unreadable)

    def tables(names: Sequence[str]) -> Iterator[Table]:
        from pyarrow import Table as ArrowTable

        with opened(read_dictionary=list(texts)) as file:
            batches = file.iter_batches(rows_at_once, columns=list(names))
            while (batch := _quietly(lambda: next(batches, None), unreadable)) is not None:
                if not batch.num_rows:
                    continue
                found = frame_table(ArrowTable.from_batches([batch]), texts=texts)
                columns = {name: found.columns[name] for name in names}
                yield Table(path.name, columns, found.levels, found.types)

    with opened() as file:
        names, texts = tuple(file.schema_arrow.names), _texts_in(file.schema_arrow)
        _check_parquet(path, names, file.metadata.num_rows)
    return Batches(path.name, names, tables)


def as_batches(rows: Any) -> Batches | None:
    """Return rows that come in batches: those of `read_batches`, or the partitions of a Dask DataFrame; else None."""
    if isinstance(rows, Batches):
        return rows
    if not nw.dependencies.is_dask_dataframe(rows):
        return None

    def tables(names: Sequence[str]) -> Iterator[Table]:
        some = rows[list(names)]
        for number in range(rows.npartitions):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a warning may quote a cell
                part = _quietly(lambda one=number: some.get_partition(one).compute(), "The rows cannot be computed")
            yield from frame_table(part).parts(ROWS_AT_ONCE)

    names = tuple(map(str, rows.columns))
    if len(set(names)) < len(names):
        raise InvalidDataError("The columns of the rows must have different names.")
    return Batches("", names, tables)


def read_table(path: str | PathLike[str], like: Any = None) -> Table:
    """Read a csv file (see `read_csv`) or a Parquet file (``.parquet``).

    Parameters
    ----------
    path : path-like
        The file.
    like : Table, DataFrame, DuckDB relation or mapping of names to cells, optional
        The public rows, if the file has private ones. Each private cell is then read by itself, as its public column
        determines: cells of a csv file stay text until they are converted one by one, and columns of a Parquet file
        must have the types of the public columns. No cell can choose how other people's cells are read.
    """
    path = user_path(path)
    table = _read_parquet(path) if path.suffix.lower() == ".parquet" else read_csv(path)
    if like is not None:
        public = as_table(like)
        if public is None:
            raise InvalidDataError(
                "`like` of read_table must be public rows with named columns: a table or a DataFrame. Got a "
                f"{type(like).__name__}."
            )
        require_same_types(table, public, public.columns)
    return table


def require_same_types(private: Table, public: Table, names: Iterable[str]) -> None:
    """Refuse private columns whose type a cell may have chosen: those that have another type than the public column.

    Readers choose the type of a column by all its cells, and the type decides how each cell is read. So the cell of one
    person could change the numbers of all others. Text as a csv file has it is read cell by cell, and safe.
    """
    for name in names:
        if name not in private.columns or name not in public.columns:
            continue  # which is refused, with advice, where the columns become numbers
        found = private.type_of(name)
        if isinstance(private.column(name), list) or found == _EMPTY:
            continue
        wanted = public.type_of(name)
        if found != wanted or found == _SEVERAL:
            where = f" of {private.source}" if private.source else ""
            advice = _ONE_TYPE if private.source else _READ_AGAIN
            differ = f"is {_in_words(found)} in the private rows and {_in_words(wanted)} in the public rows"
            if found == _SEVERAL:
                differ = f"has cells of several types{', in the public rows too' * (wanted == _SEVERAL)}"
            raise InvalidDataError(
                f"Column '{name}'{where} {differ}. One cell may have chosen this type, and with it how everybody's "
                f"cells were read. {advice}"
            )


def _in_words(kind: str) -> str:
    return kind.replace("float64", "float").replace("boolean", "truth values").replace(_MOMENT, "dates")


def read_csv(path: str | PathLike[str]) -> Table:
    """Read a csv file with a header row (UTF-8), compressed if its name ends in ``.gz``.

    Cells are separated by ``,``, ``;``, ``|`` or tabs, whichever divides the header into most names. Each row is one
    line; for texts of several lines, use Parquet.
    """
    path, unreadable = user_path(path), ""
    free, taken = free_memory(), 0
    try:
        with _opened(path) as file:
            lines = _divisible(file, path, free)
            first = next(lines, "")
            kept: dict[str, str] = {}  # equal cells as one object
            # Strict: an open quotation mark would swallow the lines below it, and with them other people.
            reader = csv.reader(chain([first], lines), delimiter=_separator(first), skipinitialspace=True, strict=True)
            header, columns = list[str](), list[list[str]]()
            for line, row in enumerate(reader, start=1):
                # Where marks are not doubled, one person's cell opens and another's closes; all between them would go.
                if reader.line_num > line:
                    raise InvalidDataError(
                        f"A quotation mark opens a cell on line {line} of {path.name} that does not end on that line. "
                        "Write each row on one line and double quotation marks inside cells, or use Parquet."
                    )
                if line == 1:
                    header = [name.strip() for name in row]
                    columns = [[] for _ in header]
                    taken = _MEMORY_OF_COLUMN * len(header)
                elif row and len(row) != len(header):
                    raise InvalidDataError(
                        f"Line {line} of {path.name} has {len(row)} cells, the header {len(header)}."
                    )
                elif row:
                    taken += _MEMORY_OF_CELL * len(row)
                    for column, cell in zip(columns, map(str.strip, row), strict=True):
                        known = kept.get(cell)
                        if known is None:
                            known = cell
                            taken += getsizeof(cell)
                            if len(kept) < _MOST_KEPT:
                                kept[cell] = cell
                        column.append(known)
                    require_memory(taken, path, free)
    except (UnicodeDecodeError, csv.Error, EOFError, zlib.error, gzip.BadGzipFile) as error:
        unreadable, header, columns = type(error).__name__, [], []
    except OSError as error:
        raise InvalidDataError(f"{path} cannot be read: {error.strerror}.") from None
    if unreadable:  # out here: a UnicodeDecodeError holds the bytes of the file
        cause = " Is a quotation mark open, or inside a cell without another one?" if unreadable == "Error" else ""
        raise InvalidDataError(f"{path} is not a UTF-8 csv file ({unreadable}).{cause}")
    if not columns or not columns[0]:
        raise InvalidDataError(f"{path} has no rows below its header.")
    _check_header(header, path)
    return Table(path.name, dict(zip(header, columns, strict=True)))


def _opened(path: Path) -> TextIOWrapper:
    file = open_input(path, TABLE)
    try:
        if path.suffix.lower() == ".gz":
            file = unpacked(file, path)
    except BaseException:
        file.close()
        raise
    return TextIOWrapper(file, newline="", encoding="utf-8-sig")


def _divisible(file: TextIOWrapper, path: Path, free: float) -> Iterator[str]:
    """Yield the lines; refuse one that takes too much memory, whatever its cells are, after reading its beginning."""
    most = int(min(free / _MEMORY_OF_LINE, LARGEST)) + 1
    while line := file.readline(most):
        require_memory(_MEMORY_OF_LINE * len(line), path, free)
        yield line


def _separator(header: str) -> str:
    """Return the separator that divides the header into most names, a comma if several do."""
    return max(_SEPARATORS, key=lambda mark: len(next(csv.reader([header], delimiter=mark, skipinitialspace=True), [])))


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


def _read_parquet(path: Path) -> Table:
    parquet = _parquet_reader(path)
    stated = _quietly(lambda: parquet.read_metadata(path), f"{path} is not a readable Parquet file")
    try:
        require_memory(_memory_stated(stated), path)
    except OSError as error:
        raise InvalidDataError(f"{path} cannot be read: {error.strerror}.") from None
    texts = _texts_in(stated.schema.to_arrow_schema())
    # Otherwise pyarrow would read columns from the names of the folders, such as year=2024.
    options = {"partitioning": None, "read_dictionary": list(texts)}
    rows = _quietly(lambda: parquet.read_table(path, **options), f"{path} is not a readable Parquet file")
    table = frame_table(rows, texts=texts)
    _check_parquet(path, tuple(table.columns), table.n_rows if table.columns else 0)
    return Table(path.name, table.columns, table.levels, table.types)


def _memory_stated(stated: Any) -> int:
    """Return how many bytes the columns of a Parquet file take, at least."""
    widths = [max(_MEMORY_OF_CELL, stated.schema.column(place).length) for place in range(stated.num_columns)]
    groups = map(stated.row_group, range(stated.num_row_groups))
    chunks = ((group.column(place), width) for group in groups for place, width in enumerate(widths))
    return sum(max(chunk.total_uncompressed_size, width * chunk.num_values) for chunk, width in chunks)


def _texts_in(schema: Any) -> dict[str, str]:
    """Return the columns of text and bytes, with their types; many cells of them may be stored as one."""
    words = (("string", TEXT_TYPE), ("binary", "bytes"))
    kinds = {field.name: str(field.type).removeprefix("large_").removesuffix("_view") for field in schema}
    return {name: dict(words)[kind] for name, kind in kinds.items() if kind in dict(words)}


def _parquet_reader(path: Path) -> Any:
    try:
        from pyarrow import parquet
    except ModuleNotFoundError:
        raise InvalidDataError(f"{path.name} needs pyarrow: pip install 'tutelage[tables]'.") from None
    try:
        require_input(path, LARGEST)
    except OSError as error:
        raise InvalidDataError(f"{path} cannot be read: {error.strerror}.") from None
    return parquet


def _check_parquet(path: Path, names: Collection[str], n_rows: int) -> None:
    if any(name.startswith(_PANDAS_INDEX) for name in names):
        raise InvalidDataError(f"{path} has an index among its columns. Write the file without it (index=False).")
    if not names or n_rows == 0:
        raise InvalidDataError(f"{path} has no rows.")


def as_table(rows: Any, names: Collection[str] | None = None) -> Table | None:
    """Return rows with named columns as a table: a frame of any library, or a mapping of names to cells.

    It has only the columns of these `names`, if given. None stands for rows whose columns have no names.
    """
    if isinstance(rows, Table):
        return rows
    if isinstance(rows, Mapping):
        needed = {name: cells for name, cells in rows.items() if names is None or name in names}
        return Table("", {str(name): _array(cells, str(name)) for name, cells in needed.items()})
    frame = of_narwhals(rows)
    return None if frame is rows else frame_table(frame, names)


def of_narwhals(rows: Any, *, allow_series: bool | None = None) -> Any:
    """Return a frame of any library as one of narwhals, and anything else as it is; refuse two columns of one name."""
    same_names = "The columns of the rows must have different names"
    return _quietly(lambda: nw.from_native(rows, pass_through=True, allow_series=allow_series), same_names)


def frame_table(rows: Any, names: Collection[str] | None = None, *, texts: Mapping[str, str] | None = None) -> Table:
    """Return a frame of any library that narwhals knows as a table.

    `texts` has the types of columns of PyArrow that are dictionaries here, but no categories.
    """
    texts = texts or {}
    frame = of_narwhals(rows)
    # The schema first: a DuckDB relation forgets the order of its categories when it is computed.
    schema = _quietly(frame.collect_schema, "The rows cannot be computed")
    if isinstance(frame, nw.LazyFrame):
        frame = _quietly(frame.collect, "The rows cannot be computed (DuckDB needs pyarrow)")
    levels = {str(name): tuple(kind.categories) for name, kind in schema.items() if isinstance(kind, nw.Enum)}
    columns, types = dict[str, Cells](), dict[str, str]()
    for series in frame.iter_columns():
        name = str(series.name)
        if names is None or name in names:
            unreadable = f"Column '{name}' cannot be read"
            read = _cells if name not in texts else lambda one: _arrow_texts(one.to_native())
            columns[name] = cells = _quietly(lambda one=series, read=read: read(one), unreadable)
            types[name] = texts.get(name) or _quietly(lambda one=series, its=cells: _type_of(one, its), unreadable)
            levels |= _arrow_levels(series, name)
    return Table("", columns, levels, types)


def _type_of(series: Any, cells: npt.NDArray[Any]) -> str:
    """Return the type of a column of a frame: types that hold the same values of other people's cells are one."""
    kind = series.dtype
    if kind == nw.Categorical:
        within = _type_of_categories(series)
        return TEXT_TYPE if within in (TEXT_TYPE, _EMPTY) else f"categories of {within}"
    if kind in (nw.String, nw.Enum):
        # Of a column of objects of pandas, narwhals looks at the first cells only.
        return _type_of_cells(cells) if str(getattr(series.to_native(), "dtype", "")) == "object" else TEXT_TYPE
    if kind.is_integer():
        return "integer"
    if kind == nw.Datetime:
        return f"{_MOMENT} in {kind.time_zone}" if kind.time_zone else _MOMENT
    if kind.is_float() or kind == nw.Boolean or kind == nw.Date or kind == nw.Decimal:
        return str(kind).partition("(")[0].lower()
    return _type_of_cells(cells)


def _type_of_categories(series: Any) -> str:
    """Return the type of the categories: those of pandas and PyArrow may be of any, which their cells came from."""
    native = series.to_native()
    kind = getattr(native, "type", None) or getattr(getattr(native, "dtype", None), "pyarrow_dtype", None)
    if kind is not None:
        return TEXT_TYPE if "string" in str(kind.value_type) else str(kind.value_type)
    known = series.cat.get_categories()
    return _type_of(known, _cells(known))


def _type_of_cells(cells: npt.NDArray[Any]) -> str:
    """Return the type of the cells of an array; of objects, by those that are filled."""
    if cells.dtype.kind == "M":
        return _MOMENT
    if cells.dtype.kind in "iu":
        return "integer"
    if cells.dtype != object:
        return "boolean" if cells.dtype.kind == "b" else cells.dtype.name
    kinds = {type(cell) for cell in cells.tolist() if not is_missing(cell)}
    names = {_type_of_cell(kind) for kind in kinds}
    if names == {"integer", "float64"}:
        return "float64"
    return names.pop() if len(names) == 1 else _SEVERAL if names else _EMPTY


def _type_of_cell(kind: type) -> str:
    known = ((bool | np.bool_, "boolean"), (str, TEXT_TYPE), (Integral, "integer"), (datetime, _MOMENT))
    word = "float64" if kind is float else kind.__name__.lower()
    return next((name for of, name in known if issubclass(kind, of)), word)


def column_array(values: Any) -> Any:
    """Return a column of a DataFrame library as an array; anything else as it is."""
    series = of_narwhals(values, allow_series=True)
    if isinstance(series, nw.Series):
        return _cells(series)
    if isinstance(series, nw.DataFrame):
        columns = list(frame_table(series).columns.values())
        return columns[0] if len(columns) == 1 else values
    return values


def _cells(series: Any) -> npt.NDArray[Any]:
    """Return the cells of a column: numbers, truth values and dates as such, the others as objects."""
    kind, complete = series.dtype, not series.null_count()
    if kind == nw.Datetime:
        return series.to_numpy().astype("datetime64[us]")
    if kind == nw.Date or kind.is_float() or (complete and (kind.is_integer() or kind == nw.Boolean)):
        return series.to_numpy()
    native = series.to_native()
    if kind == nw.String and hasattr(native, "dictionary_encode"):
        return _arrow_texts(native.dictionary_encode())
    # As a list: the arrays of some libraries fill empty cells of categories with another category.
    cells = series.to_list()
    if kind in (nw.Categorical, nw.Enum):
        cells = [None if is_missing(cell) else spelled(cell) for cell in cells]
    return np.fromiter(cells, dtype=object, count=len(cells))


def _arrow_texts(dictionaries: Any) -> npt.NDArray[Any]:
    """Return text of PyArrow, equal cells as one object: that is fast to make and to look up."""
    found = [np.empty(0, dtype=object)]
    for chunk in dictionaries.chunks:
        texts = np.array([*chunk.dictionary.to_pylist(), None], dtype=object)
        found.append(texts[chunk.indices.fill_null(-1).to_numpy(zero_copy_only=False)])  # the last one is no text
    return np.concatenate(found)


def _arrow_levels(series: Any, name: str) -> dict[str, tuple[str, ...]]:
    """Return the order of an ordered category of PyArrow, which narwhals does not tell from others."""
    native = series.to_native()
    if not getattr(getattr(native, "type", None), "ordered", False) or not native.chunks:
        return {}
    return {name: tuple(map(spelled, native.unify_dictionaries().chunk(0).dictionary.to_pylist()))}


def _array(cells: Any, name: str) -> npt.NDArray[Any]:
    found = column_array(cells)
    found = found if isinstance(found, np.ndarray) else np.asarray(found, dtype=object)
    if found.ndim != 1:
        raise InvalidDataError(f"Column '{name}' must hold one cell per row. Got shape {found.shape}.")
    if found.dtype.kind == "M":
        return found.astype("datetime64[us]")
    return found if found.dtype.kind in "biuf" else found.astype(object)


def _quietly(read: Callable[[], _Read], refusal: str) -> _Read:
    """Return what `read` returns; its errors may quote cells, so only their type is told."""
    kind = ""
    try:
        return read()
    except Exception as error:
        kind = type(error).__name__
    raise InvalidDataError(f"{refusal} ({kind}).")


def is_number(text: str) -> bool:
    """Return whether a cell reads as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def is_missing(cell: Any) -> bool:
    """Return whether a cell is empty: None, NaN, NaT or blank text."""
    if cell is None or (isinstance(cell, str) and not cell.strip()):
        return True
    try:
        return bool(cell != cell)  # NaN, NaT
    except TypeError:  # pandas.NA does not say whether it differs from itself
        return True
    except Exception:  # a cell that is an array, or of a class of somebody's own, whose error may quote it
        return False


def spelled(cell: Any) -> str:
    """Return a cell as text: an empty one as none, and whole numbers and days in one way."""
    if isinstance(cell, str):
        return cell.strip()
    if is_missing(cell):
        return ""
    if isinstance(cell, datetime) and cell.tzinfo is None and cell.time() == time():
        return str(cell.date())
    # A column of whole numbers that has an empty cell is one of floats to pandas: 39 comes as 39.0.
    return str(int(cell) if isinstance(cell, float | np.floating) and float(cell).is_integer() else cell)


def by_value(cell: Any) -> str:
    """Return a cell as one text for all spellings and types of its value: 1, 1.0 and "01"; True and "true"; a moment.

    Libraries change the type of a whole column because of a single cell in it, and with the type how all are spelled.
    """
    text = spelled(cell)
    if text.casefold() in ("true", "false"):
        return text.capitalize()
    try:
        if MOMENT.fullmatch(text):
            moment = datetime.fromisoformat(text)
            return spelled(moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None))
        number = float(text)
    except (OverflowError, ValueError):
        return text
    return str(int(number)) if isfinite(number) and number.is_integer() else repr(number)
