"""The agreement of the members of a consortium, as plain values: who they are, and how a query is answered."""

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Integral
from typing import Any, cast

from tutelage._internal.records import file_entries, sha256_of
from tutelage.digests import canonical
from tutelage.events import settings_of
from tutelage.exceptions import InvalidParameterError
from tutelage.features.schema import Schema
from tutelage.privacy import NeighboringRelation, PrivacyUnit
from tutelage.signing import require_hexadecimal
from tutelage_consortium.keys import Member, Role, names_of

DEFAULT_METHOD = "additive"
_ROSTER = ("members", "people", "steps", "roster")
_CONSONANTS = "bdfghjklmnprstvz"
_VOWELS = "aiou"


@dataclass(frozen=True, kw_only=True)
class ConsortiumTerms:
    """The values of a `Consortium`, which documents them and checks what depends on its mechanism."""

    name: str
    members: tuple[Member, ...]
    classes: tuple[str, ...]
    mechanism: Any  # GNMax, ConfidentGNMax or NoisySum
    teachers_per_entity: int
    quorum: int
    colluding: int
    unit: PrivacyUnit
    people: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    schema: Schema | None = None
    method: str | None = None
    method_hash: str | None = None
    size_test: bool = True
    report: bool = False
    roster: int = 0  # how often members, keys, addresses or numbers of people were amended
    identifier: str = field(default_factory=lambda: secrets.token_hex(16))

    def __post_init__(self) -> None:
        for name in ("members", "people", "steps", "classes"):
            if getattr(self, name):
                object.__setattr__(self, name, tuple(getattr(self, name)))
        if self.schema is not None:
            object.__setattr__(self, "schema", _as_stored(self.schema))
        if self.method is not None:
            _check_text(self.method, "method")
        if self.method == DEFAULT_METHOD:  # one agreement, however it is written
            object.__setattr__(self, "method", None)
        require_hexadecimal(self.identifier, 32, "identifier", "Consortium")
        _check_text(self.name, "name")
        unit = cast("object", self.unit)
        if not isinstance(unit, PrivacyUnit) or not isinstance(
            cast("object", unit.neighboring), NeighboringRelation
        ):
            raise InvalidParameterError(
                "Consortium.unit", "be a PrivacyUnit", f"{type(self.unit).__name__}"
            )
        _check_text(self.unit.name, "unit")
        _check_members(self.members)
        for label in self.classes:
            _check_text(label, "classes")
        if len(set(self.classes)) != len(self.classes):
            raise InvalidParameterError("Consortium.classes", "list each label once")

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.classes)

    @property
    def entities(self) -> tuple[Member, ...]:
        """The members that hold private rows."""
        return self._with(Role.ENTITY)

    @property
    def people_at(self) -> dict[str, int]:
        """About how many people each entity has, by its name, where the terms say it."""
        return dict(zip(names_of(self.entities), self.people, strict=False))

    @property
    def steps_at(self) -> dict[str, int]:
        """Of how many steps the ballots of each entity's people are, by its name; empty if all are whole."""
        return dict(zip(names_of(self.entities), self.steps, strict=False))

    @property
    def computing_parties(self) -> tuple[Member, ...]:
        """The three members that compute on shares, in party order."""
        return self._with(Role.COMPUTING)

    @property
    def aggregator(self) -> Member:
        """The member that asks and receives the labels."""
        return self._with(Role.AGGREGATOR)[0]

    @property
    def honest(self) -> int:
        """Number of answering entities whose noise no group of colluding members can subtract."""
        return self.quorum - self.colluding

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the terms without the roster, 64 hexadecimal digits: what every message and ledger entry names.

        Members, their keys and addresses, and how many people they have, with ballots of what length, can be amended;
        the terms stay the same.
        """
        terms = {name: value for name, value in self.as_dict().items() if name not in _ROSTER}
        return sha256_of(b"tutelage terms\0" + canonical(terms).encode())

    @cached_property
    def roster_hash(self) -> str:
        """SHA-256 of the terms and the roster, 64 hexadecimal digits."""
        return sha256_of(b"tutelage consortium\0" + canonical(self.as_dict()).encode())

    @cached_property
    def words(self) -> str:
        """Six words that stand for the terms and the roster, to compare by telephone.

        Each stands for 16 bits (proquints, arXiv:0901.4016). Two rosters with the same words take about 2⁴⁸ hashes to
        find, and each takes a tenth of a second and 32 MB (scrypt, RFC 7914).
        """
        digest = hashlib.scrypt(
            bytes.fromhex(self.roster_hash),
            salt=b"tutelage words",
            n=2**15,
            r=8,
            p=1,
            maxmem=2**26,
        )
        return " ".join(_word(int.from_bytes(digest[at : at + 2], "big")) for at in range(0, 12, 2))

    def as_dict(self) -> dict[str, Any]:
        """Return the agreement as plain values, with the format of its file."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        for name in ("method", "method_hash", "report", "steps"):
            if not values[name]:  # a field with its default value is not written
                del values[name]
        mechanism = {"kind": type(self.mechanism).__name__, **settings_of(self.mechanism)}
        return file_entries("consortium", values | {"mechanism": mechanism})

    def _with(self, role: Role) -> tuple[Member, ...]:
        return tuple(member for member in self.members if member.role is role)


def _word(bits: int) -> str:
    """Return 16 bits as a word: consonant, vowel, consonant, vowel, consonant."""
    letters = ((_CONSONANTS, 4), (_VOWELS, 2), (_CONSONANTS, 4), (_VOWELS, 2), (_CONSONANTS, 4))
    word = ""
    for alphabet, width in reversed(letters):
        bits, place = divmod(bits, 2**width)
        word = alphabet[place] + word
    return word


def _as_stored(schema: object) -> Schema:
    """Return a schema as its file has it: columns in the order of their names, and ranges as numbers of Python."""
    if not isinstance(schema, Schema):
        raise InvalidParameterError(
            "Consortium.schema", "be a Schema", f"a {type(schema).__name__}"
        )
    kinds = dict(zip(schema.names, schema.ordered, strict=True))

    def plain(end: Any) -> int | float:
        return int(end) if isinstance(end, Integral) else float(end)  # which stand for other bins

    return Schema(
        {
            name: [*map(plain if kinds[name] else str, schema.columns[name])]
            for name in sorted(kinds)
        }
    )


def _check_text(value: object, name: str) -> None:
    if not isinstance(value, str) or not 1 <= len(value) <= 200 or not value.isprintable():
        raise InvalidParameterError(
            f"Consortium.{name}", "be text of 1 to 200 printable characters"
        )


def _check_members(members: Sequence[object]) -> None:
    found = [member for member in members if isinstance(member, Member)]
    if len(found) != len(members):
        raise InvalidParameterError("Consortium.members", "contain only Member objects")
    columns = {
        # Some file systems do not tell cases apart.
        "name": [member.name.casefold() for member in found],
        "key": [key for member in found for key in (member.signing_key, member.sealing_key)],
        "address": [member.address for member in found if member.address],
        "certificate": [member.certificate for member in found if member.certificate],
    }
    for what, values in columns.items():
        if len(set(values)) != len(values):
            raise InvalidParameterError("Consortium.members", f"each have a different {what}")
