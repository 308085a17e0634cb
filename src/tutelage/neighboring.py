"""What one person can change: the unit of privacy and the neighboring relation.

Whatever the relation, its consequence for the votes is the same and is all that the accounting uses: at most one
teacher's ballot changes, so one count falls by one, another rises by one, or a ballot turns from or into an
abstention and one count moves by one.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self, final

from tutelage.exceptions import InvalidDataError

KEY = "neighboring"  # of a relation in every file
_FORMER_KEY = "neighbouring"


@final
class NeighboringRelation(StrEnum):
    """When two private data sets count as neighbors. Files store the value, a code that never changes."""

    CHANGE_ONE_ROW = "row"
    ADD_REMOVE_OR_CHANGE_ONE_ENTITY = "entity"
    ADD_REMOVE_OR_CHANGE_WITHIN_SILO = "silo"
    CHANGE_ONE_BALLOT = "ballot"

    @property
    def sentence(self) -> str:
        """How neighboring data sets differ, for people; no file is read by it."""
        return _SENTENCES[self]

    @classmethod
    def _missing_(cls, value: object) -> "NeighboringRelation | None":
        """Read what earlier versions pickled."""
        return cls(_CODES[value]) if isinstance(value, str) and value in _CODES else None


_ROW, _ENTITY, _SILO, _BALLOT = NeighboringRelation
_SENTENCES = {
    _ROW: "one row has other contents; how many rows there are is public",
    _ENTITY: "one entity's rows are added, removed or have other contents",
    _SILO: "one entity's rows are added, removed or have other contents, all within one silo that has others; "
    "which silos there are is public",
    _BALLOT: "one teacher's ballots change arbitrarily",
}
# What files stored before there were codes: a name, or a sentence. It is history, so none of it is ever reworded.
_FORMER = {
    _ROW: ("CHANGE_ONE_ROW", "one row has other contents; how many rows there are is public"),
    _ENTITY: (
        "ADD_REMOVE_OR_CHANGE_ONE_ENTITY",
        "one entity's rows are added, removed or have other contents",
    ),
    _SILO: (
        "ADD_REMOVE_OR_CHANGE_WITHIN_SILO",
        "one entity's rows are added, removed or have other contents, all within one silo that has others; "
        "which silos there are is public",
    ),
    _BALLOT: ("CHANGE_ONE_BALLOT", "one teacher's ballots change arbitrarily"),
}
_CODES = {former: relation.value for relation, spellings in _FORMER.items() for former in spellings}


@final
@dataclass(frozen=True, slots=True)
class PrivacyUnit:
    """Whose influence an epsilon bounds.

    Parameters
    ----------
    name : str
        What one unit is, in the words of the data: ``"row"``, ``"patient_id"``, ``"one teacher's data"``.
    neighboring : NeighboringRelation
        How neighboring data sets differ.
    """

    name: str
    neighboring: NeighboringRelation

    def __str__(self) -> str:
        return f"'{self.name}' ({self.neighboring.sentence})"

    def as_dict(self) -> dict[str, str]:
        """Return the unit as plain values: its name, and the code of its relation."""
        return {"name": self.name, KEY: self.neighboring.value}

    @classmethod
    def from_dict(cls, record: Any, where: str = "a file") -> Self:
        """Return the unit that `as_dict` wrote, in this version or an earlier one.

        Raises
        ------
        InvalidDataError
            If it is no such record, or of a relation that this version does not know.
        """
        if not isinstance(record, dict) or set(record) != {"name", KEY} or type(record["name"]) is not str:
            raise InvalidDataError(f"The unit of privacy in {where} must be a text `name` and a `{KEY}`, nothing else.")
        return cls(record["name"], stored_relation(record[KEY], where))


# Their names are in files too, and ledgers compare them.
ONE_TEACHER = PrivacyUnit("one teacher's data", NeighboringRelation.CHANGE_ONE_BALLOT)
ONE_ENTITY = PrivacyUnit("one entity's whole data", NeighboringRelation.CHANGE_ONE_BALLOT)


def coded(record: Any) -> Any:
    """Return plain values of any version with codes for their relations, wherever in them they are.

    A relation that no version knew stays as it is, for its reader to refuse.

    Raises
    ------
    InvalidDataError
        If a record says twice what its relation is.
    """
    if isinstance(record, list):
        return [coded(value) for value in record]
    if not isinstance(record, dict):
        return record
    if KEY in record and _FORMER_KEY in record:
        raise InvalidDataError(f"A record must say once what neighbors are. Got `{KEY}` and `{_FORMER_KEY}`.")
    named = {KEY if name == _FORMER_KEY else name: value for name, value in record.items()}
    return {name: _code_of(value) if name == KEY else coded(value) for name, value in named.items()}


def spelled_out(record: Any) -> Any:
    """Return plain values with their relations spelled out, as versions before the codes wrote them."""
    if isinstance(record, list | tuple):
        return [spelled_out(value) for value in record]
    if not isinstance(record, dict):
        return record
    return {
        name: _FORMER[NeighboringRelation(value)][1] if name == KEY else spelled_out(value)
        for name, value in record.items()
    }


def former_name(relation: NeighboringRelation) -> str:
    """Return how consortia of format 1 store a relation."""
    return _FORMER[relation][0]


def stored_relation(value: object, where: str = "a file") -> NeighboringRelation:
    """Return the relation that is stored in `where`, by its code or as an earlier version spelled it.

    Raises
    ------
    InvalidDataError
        If this version knows no such relation.
    """
    code = _code_of(value)
    if code in list(NeighboringRelation):
        return NeighboringRelation(code)
    raise InvalidDataError(
        f"`{KEY}` in {where} must be one of {', '.join(NeighboringRelation)}; if a later version wrote the file, "
        "upgrade tutelage."
    )


def _code_of(value: Any) -> Any:
    return _CODES.get(value, value) if isinstance(value, str) else value
