"""Private rows to disjoint shards, one per teacher, so that one entity reaches one teacher only.

The shard of a row depends on its own entity id (or silo) and the key, on nothing else: adding, deleting or changing
one entity moves no other row. That locality is half of the sensitivity claim; `teachers` is the other half.
"""

import hashlib
import hmac
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from numbers import Integral
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tutelage._internal.records import by_identity
from tutelage._internal.typing import Array, IntArray, Mask, NeverPickled, is_array
from tutelage._internal.validation import hmac_key, integer_at_least
from tutelage.exceptions import InvalidDataError, OverlappingShardsError
from tutelage.privacy import NeighboringRelation, PrivacyUnit
from tutelage.tables import Table, is_missing

_WHOLE = re.compile(r"([+-]?)0*([0-9]+)(?:\.0*)?")


@final
@by_identity
class Shards(NeverPickled):
    """Which row goes to which teacher; private, because it says where a person's data lies.

    Parameters
    ----------
    assignment : integer array of shape (rows,)
        Shard index of each row.
    n_shards : int
        Number of shards, one per teacher, empty ones included.
    unit : PrivacyUnit
        Whose rows lie in one shard.
    people : array of shape (shards,) of strings, optional
        The entity of each shard, where each has one of its own.
    """

    assignment: IntArray = field(repr=False)
    n_shards: int
    unit: PrivacyUnit
    people: NDArray[np.object_] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        integer_at_least(self.n_shards, int(self.people is None), "n_shards", "Shards")
        assignment = np.asarray(self.assignment)
        if assignment.ndim != 1 or assignment.dtype.kind not in "iu":
            raise InvalidDataError(
                "`assignment` of Shards must be one shard index per row, as integers."
            )
        if np.any((assignment < 0) | (assignment >= self.n_shards)):
            raise InvalidDataError(
                f"`assignment` of Shards must hold indices from 0 to {self.n_shards - 1}."
            )
        # Arithmetic on a narrow type would wrap around to another shard.
        assignment = assignment.astype(np.int64)
        assignment.setflags(write=False)
        object.__setattr__(self, "assignment", assignment)

    @classmethod
    def of_rows(cls, n_rows: int, n_shards: int, *, key: bytes) -> "Shards":
        """Assign rows by their row number; the unit of privacy is one row.

        Row numbers are positions: use this only where a person has one row and which rows exist is public. Where
        people can be added or removed, or own several rows, use `of_entities`.

        Parameters
        ----------
        n_rows, n_shards : int
            Number of private rows and of teachers.
        key : bytes
            Key of the hash, at least 16 bytes; the same key gives the same shards.
        """
        integer_at_least(n_rows, 1, "n_rows", "Shards.of_rows")
        unit = PrivacyUnit("row", NeighboringRelation.CHANGE_ONE_ROW)
        return cls(_hash_to_shards(range(n_rows), n_shards, key), n_shards, unit)

    @classmethod
    def of_entities(
        cls,
        entity_ids: ArrayLike,
        n_shards: int,
        *,
        key: bytes,
        name: str = "entity",
    ) -> "Shards":
        """Assign each row by a keyed hash of its entity id; all rows of an entity meet in one shard.

        Parameters
        ----------
        entity_ids : array of shape (rows,) of integers or strings
            Whose row it is. Strings are compared after trimming blanks and Unicode normalization (NFC),
            and whole numbers by value.
        n_shards, key
            As for `of_rows`.
        name : str
            What an entity is, for reports: the column's name.
        """
        ids = canonical_ids(entity_ids)
        unit = PrivacyUnit(name, NeighboringRelation.ADD_REMOVE_OR_CHANGE_ONE_ENTITY)
        return cls(_hash_to_shards(ids, n_shards, key), n_shards, unit)

    @classmethod
    def of_single_people(
        cls, n_rows: int, entity_ids: ArrayLike | None = None, *, name: str = "entity"
    ) -> "Shards":
        """Give each entity, or each row where none are named, a shard of its own: for teachers without a model."""
        integer_at_least(n_rows, 1, "n_rows", "Shards.of_single_people")
        unit = unit_of_single_people(name, named=entity_ids is not None)
        if entity_ids is None:
            return cls(np.arange(n_rows), n_rows, unit)
        people, assignment = np.unique(canonical_ids(entity_ids), return_inverse=True)
        return cls(assignment, len(people), unit, people)

    @classmethod
    def of_silos(
        cls, silos: ArrayLike, entity_ids: ArrayLike | None = None, *, name: str = "entity"
    ) -> "Shards":
        """Give each silo (hospital, branch, device) its own teacher; an entity may have rows in one silo only.

        Which silos there are is public. Without `entity_ids`, the unit of privacy is one row.
        """
        labels, assignment = np.unique(canonical_ids(silos), return_inverse=True)
        relation = NeighboringRelation.ADD_REMOVE_OR_CHANGE_WITHIN_SILO
        if entity_ids is None:
            name = "row"
        else:
            _refuse_overlap(assignment, entity_ids)
        return cls(assignment, len(labels), PrivacyUnit(name, relation))

    @property
    def rows(self) -> list[IntArray]:
        """Row numbers of each shard, in ascending order; an empty shard has an empty array."""
        order = np.argsort(self.assignment, kind="stable")
        sizes = np.bincount(self.assignment, minlength=self.n_shards)
        return np.split(order, np.cumsum(sizes)[:-1])

    def only(self, people: Mask) -> "Shards":
        """Return the shards of some of the people, where each has one."""
        rows = people[self.assignment]
        new_numbers = np.cumsum(people) - 1
        ids = None if self.people is None else self.people[people]
        return Shards(new_numbers[self.assignment[rows]], int(people.sum()), self.unit, ids)

    def of_some(self, rows: Mask) -> "Shards":
        """Return the shards of all rows of some of the people; those of others are empty, or gone with the person."""
        if self.people is None:
            return replace(self, assignment=self.assignment[rows])
        have_rows = np.zeros(self.n_shards, bool)
        have_rows[self.assignment[rows]] = True
        return self.only(have_rows)

    def __repr__(self) -> str:
        # It is how many people there are.
        n_shards = self.n_shards if self.people is None else "<hidden>"
        return f"Shards(<assignment hidden>, n_shards={n_shards}, unit={self.unit.name!r})"


def unit_of_single_people(name: str, *, named: bool) -> PrivacyUnit:
    """Return the unit of privacy where every person is a teacher: one entity, or one row where none are named."""
    if named:
        return PrivacyUnit(name, NeighboringRelation.ADD_REMOVE_OR_CHANGE_ONE_ENTITY)
    return PrivacyUnit("row", NeighboringRelation.CHANGE_ONE_ROW)


def _refuse_overlap(assignment: ArrayLike, entity_ids: ArrayLike) -> None:
    """Raise OverlappingShardsError, without saying which, if some entity has rows in two shards."""
    assignment = np.asarray(assignment)
    ids = canonical_ids(entity_ids)
    if ids.shape != assignment.shape:
        raise InvalidDataError(
            f"`entity_ids` must have one id per row. Got {ids.shape[0]} ids for {assignment.shape[0]} rows."
        )
    _, first_rows, entities = np.unique(ids, return_index=True, return_inverse=True)
    shard_of_entity = assignment[first_rows]
    if np.any(shard_of_entity[entities] != assignment):
        raise OverlappingShardsError(
            "An entity has rows in more than one shard, so one person could move several votes. Partition by the "
            "entity id, or merge the shards that share people."
        )


def _hash_to_shards(ids: Iterable[object], n_shards: int, key: bytes) -> IntArray:
    """Map each id to HMAC-SHA-256(key, id) mod n_shards; 128 bits make the bias of the modulus negligible."""
    integer_at_least(n_shards, 1, "n_shards", "Shards")
    key = hmac_key(key, "Shards")

    def shard(entity: object) -> int:
        digest = hmac.digest(key, str(entity).encode("utf-8", "surrogatepass"), hashlib.sha256)
        return int.from_bytes(digest[:16], "big") % n_shards

    return np.fromiter(map(shard, ids), np.int64)


def as_column(values: ArrayLike | Sequence[object]) -> Array:
    """Return `values` as an array whose cells keep their types; NumPy would turn [1.5, "a"] into strings."""
    if is_array(values):
        return values
    return np.asarray(values, object)


def canonical_ids(values: ArrayLike | Sequence[object], what: str = "An id") -> NDArray[np.object_]:
    """Return integers or strings as strings in one spelling, so that 17, "17", "17.0" and " 017" are the same entity.

    A reader of files makes integers of a column only if every cell is one, so the cell of one person must not decide
    whether "17" and "017" are two people; and Dask makes texts of objects. Type and spelling do not matter here.

    They are objects, or each would take as much memory as the longest. No message shows an id, and `what` says where
    they are from.
    """
    array = as_column(values)
    if array.ndim != 1:
        raise InvalidDataError(
            f"Ids must form one column, one id per row. Got shape {array.shape}."
        )
    ids: list[str] = []
    for value in array.tolist():
        if isinstance(value, bool) or not isinstance(value, Integral | str):
            raise InvalidDataError(
                f"{what} is of type {type(value).__name__}. Ids must be integers or strings; floating-point and "
                "missing ids do not name an entity."
            )
        ids.append(_canonical_id(str(value)))
    if "" in ids:
        raise InvalidDataError(
            f"{what} is empty. Give every row an id, or drop the rows whose owner is unknown."
        )
    return np.array(ids, object)


def ids_in(table: Table, name: str) -> NDArray[np.object_]:
    """Return a column of ids in one spelling; fractions, which may have lost digits, are refused."""
    cells = table.column(name).tolist()
    for row, cell in enumerate(cells):
        if is_missing(cell):
            cells[row] = ""
    return canonical_ids(cells, f"An id in '{name}' of {table.source or 'the private rows'}")


def _canonical_id(text: str) -> str:
    text = unicodedata.normalize("NFC", text).strip().rstrip("\0")
    whole = _WHOLE.fullmatch(text)
    if whole is None:
        return text
    sign, digits = whole.groups()
    if sign == "-" and digits != "0":
        return f"-{digits}"
    return digits


def folded_ids(ids: NDArray[np.object_]) -> NDArray[np.object_]:
    """Return canonical ids as a person would read them, to find those that may mean one entity.

    Without case, width, invisible characters and inner blanks.
    """
    different_ids, places = np.unique(ids, return_inverse=True)
    return np.array([_as_read(text) for text in different_ids.tolist()], object)[places]


def _as_read(text: str) -> str:
    visible = [letter for letter in text if unicodedata.category(letter) not in ("Cf", "Cc")]
    caseless = unicodedata.normalize("NFKC", "".join(visible)).casefold()
    words = unicodedata.normalize("NFKC", caseless).split()
    return _canonical_id(" ".join(words))
