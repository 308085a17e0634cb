"""Tiers of people who ask for a smaller ε than that of a release: who is in which."""

from collections.abc import Mapping
from typing import Any, cast, final

import numpy as np

from tutelage._internal.records import by_identity
from tutelage._internal.typing import Array, IntArray, Private
from tutelage._internal.validation import positive
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.tables import cell_text

__all__ = ["Tiers"]


@final
@by_identity
class Tiers(Private):
    """Tiers of people, each of whom is protected by the ε of their tier, where that is smaller than ε of the release.

    The ballots of a tier are shortened by a public factor before they are added up, so that one person of it moves each
    sum less. The ε of a tier holds, at the δ of the ledger, for everything that is released through the ledger; without
    a ledger, for the release. It protects whether a person is in the data, and so in this tier, and
    changes of the person's rows while the tier stays. If the tier changes, the ε of everybody holds.

    Parameters
    ----------
    column : array of shape (rows,) or str
        Tier of the person of each row, or the name of a column of `X`; private. All rows of a person have one tier.
    epsilons : mapping of str to float
        The ε of each tier, by its name; public. One that is not below the ε of everybody leaves ballots as they are.

    Raises
    ------
    InvalidParameterError
        If the names are not text, or an ε is not a number above 0.
    """

    column: Any
    epsilons: Mapping[str, float]

    def __post_init__(self) -> None:
        given: object = self.epsilons
        names = list[object]()
        if isinstance(given, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            names += cast("Mapping[object, object]", given)
        are_names = all(isinstance(name, str) and cell_text(name) == name for name in names)
        if not names or not are_names or "" in names:
            raise InvalidParameterError(
                "Tiers.epsilons",
                'give the ε of each tier by its name, as in {"careful": 0.3}',
                f"a {type(given).__name__}",
            )
        checked = {
            name: positive(value, "epsilons", "Tiers") for name, value in self.epsilons.items()
        }
        object.__setattr__(self, "epsilons", dict(sorted(checked.items())))

    def of_people(self, cells: Array, people: IntArray, n_people: int) -> IntArray:
        """Return the number of the tier of each person, in the order of the names, from the cell of each row.

        `people` says whose row it is, of `n_people` who each have one.
        """
        numbers = {name: number for number, name in enumerate(self.epsilons)}
        of_rows = np.array([numbers.get(cell_text(cell), -1) for cell in cells.tolist()], np.int64)
        if np.any(of_rows < 0):
            raise InvalidDataError(
                f"A private row has an empty tier, or one without an ε. The tiers are: {', '.join(numbers)}. Give "
                "every row one of them, or name the others in `tiers`."
            )
        of_people = np.zeros(n_people, np.int64)
        of_people[people] = of_rows
        if np.any(of_people[people] != of_rows):
            raise InvalidDataError(
                "A person has rows of two tiers. Give all rows of a person one tier: that with the smallest ε that the "
                "person asked for."
            )
        return of_people
