"""Public feature maps: what turns private values into numbers may be learned from public rows only.

A category list, a mean or a vocabulary fitted over all private rows would let one person move every teacher. So the
type and the categories of each column are read off the public table, and a private value that it does not have gets
the code −1.
"""

from contextlib import suppress
from dataclasses import dataclass
from itertools import compress
from typing import Any, final

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.preprocessing import OrdinalEncoder

from tutelage._typing import Matrix
from tutelage.exceptions import InvalidDataError
from tutelage.tables import Table

UNKNOWN = -1  # code of a category that no public row has


@final
@dataclass(frozen=True, slots=True, eq=False)
class PublicColumns:
    """The meaning of each feature column, learned from a public table.

    Parameters
    ----------
    names : tuple of str
        Feature columns in order.
    numeric : tuple of bool
        Which of them hold numbers in every public row that is not empty.
    encoder : ColumnTransformer or None
        Maps text columns to integer codes; None where there are none. It is fitted on public rows only, so it may be
        published with the student.
    """

    names: tuple[str, ...]
    numeric: tuple[bool, ...]
    encoder: ColumnTransformer | None

    @classmethod
    def learn(cls, public: Table, names: tuple[str, ...]) -> "PublicColumns":
        """Read the type and the categories of each column of `names` off the `public` table.

        Raises
        ------
        InvalidDataError
            If a column is missing.
        """
        numeric = tuple(_all_numbers(public.column(name)) for name in names)
        if all(numeric):
            return cls(names, numeric, None)
        text = [index for index, is_number in enumerate(numeric) if not is_number]
        categories: Any = [sorted(set(public.column(names[index]))) for index in text]
        codes = OrdinalEncoder(
            categories=categories,
            handle_unknown="use_encoded_value",
            unknown_value=UNKNOWN,
            dtype=np.float64,
        )
        numbers = [index for index, is_number in enumerate(numeric) if is_number]
        encoder = ColumnTransformer([("numbers", "passthrough", numbers), ("codes", codes, text)])
        unfitted = cls(names, numeric, None)
        return cls(names, numeric, encoder.fit(unfitted.values(public)))

    @property
    def numbers(self) -> tuple[str, ...]:
        """Names of the number columns, which come first in `matrix`."""
        return tuple(compress(self.names, self.numeric))

    @property
    def texts(self) -> tuple[str, ...]:
        """Names of the text columns, whose codes come after them."""
        return tuple(name for name in self.names if name not in self.numbers)

    def values(self, table: Table) -> Matrix:
        """Return the columns as a matrix of numbers and, in text columns, strings; empty numbers become NaN.

        Parameters
        ----------
        table : Table
            Public or private rows.

        Raises
        ------
        InvalidDataError
            If a column is missing, or holds text where the public rows hold numbers; no value is quoted.
        """
        kinds = zip(self.names, self.numeric, strict=True)
        columns = [_numbers(table, name) if is_number else table.column(name) for name, is_number in kinds]
        dtype = np.float64 if all(self.numeric) else object
        return np.array(columns, dtype=dtype).T.reshape(table.n_rows, len(self.names))

    def matrix(self, table: Table) -> Matrix:
        """Return a matrix of shape (rows, features): first the number columns, then the codes of the text columns."""
        values = self.values(table)
        encoded: Any = values if self.encoder is None else self.encoder.transform(values)
        return np.asarray(encoded, dtype=np.float64)


def _all_numbers(values: list[str]) -> bool:
    filled = [value for value in values if value]
    return bool(filled) and all(_is_number(value) for value in filled)


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def _numbers(table: Table, name: str) -> list[float]:
    cells = table.column(name)
    with suppress(ValueError):
        return [float(cell) if cell else np.nan for cell in cells]
    # Out here: Python's own error, which quotes the cell, would be carried along as the context.
    raise InvalidDataError(
        f"Column '{name}' of {table.source} holds text, but only numbers in the public rows. Clean the column, or "
        "leave it out with `ignore`."
    )
