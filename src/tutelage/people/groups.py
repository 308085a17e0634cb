"""The groups of people that a test report tells apart: the values of one column, which are public."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tutelage._internal.typing import IntArray
from tutelage.exceptions import InvalidParameterError, literal, quote
from tutelage.features.schema import Schema
from tutelage.tables import Table, as_table, by_value, cell_text

Grouping = str | Mapping[str, Sequence[Any]] | None
"""The column of the groups, or that column with its values."""
OTHER = "other"
_MOST = 20  # groups: of more, each has few people


class Groups(NamedTuple):
    """A column, and the values that are groups of their own; public."""

    column: str
    values: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the groups, which say the column; the last one is that of all other values."""
        return tuple(f"{self.column} = {value}" for value in (*self.values, OTHER))

    def codes(self, table: Table, people: npt.ArrayLike | None = None) -> IntArray:
        """Return the group of each row; private. `people` are the canonical ids of the rows.

        The column is read as one of a schema: a column is refused of which one cell may have chosen the type, and with
        it the groups of all others.
        """
        table.column(self.column)  # refuses a table without it
        schema = Schema({self.column: [*self.values]})
        return schema.transform(schema.table(table, people))[:, 0].astype(np.int64)


def groups_from(given: Grouping, schema: Schema | None, X_public: object, owner: str) -> Groups:
    """Return the groups as they are given, or as the schema or the public rows show them."""
    name = f"{owner}.fit.groups"
    column: object = given
    values: Sequence[object] = ()
    if isinstance(given, Mapping) and len(given) == 1:
        [(column, values)] = given.items()
    if not isinstance(column, str) or isinstance(values, str):
        raise InvalidParameterError(
            name, "be the name of a column, or a mapping of that name to its values", quote(given)
        )
    if not isinstance(given, Mapping):
        values = _public_values(column, schema, X_public)
    texts = {by_value(value): cell_text(value) for value in values}
    texts.pop("", None)
    texts.pop(OTHER, None)
    if not 1 <= len(texts) <= _MOST:
        raise InvalidParameterError(
            name,
            f"have 1 to {_MOST} public values",
            f"{len(texts)} for {literal(repr(column))}",
            literal(f"Name a public column, or list the values of {column!r}."),
        )
    return Groups(column, tuple(texts.values()))


def _public_values(column: str, schema: Schema | None, X_public: object) -> Sequence[object]:
    """Return the values of a column that everyone may know; none where it is not among public columns."""
    if schema is not None:
        return schema.columns[column] if column in schema.categorical else ()
    table = as_table(X_public)
    if table is None or column not in table.columns:
        return ()
    cells: list[object] = np.asarray(table.column(column), dtype=object).tolist()
    return sorted({cell_text(cell) for cell in cells})
