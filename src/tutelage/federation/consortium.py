"""Terms that the members of a consortium agree on before the first query: who they are, and how a query is answered."""

import hashlib
import os
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self, final

from tutelage._internal.validation import integer_at_least
from tutelage.events import settings_of
from tutelage.exceptions import (
    FederationError,
    InvalidDataError,
    InvalidParameterError,
    LedgerMismatchError,
    QuorumError,
)
from tutelage.federation.documents import MOST_BYTES_OF_A_DOCUMENT, hexadecimal, listed, parse, read_within, write_once
from tutelage.federation.keys import Member, Role
from tutelage.federation.sharing import PARTIES
from tutelage.ledger import Ledger
from tutelage.ledger.entries import canonical
from tutelage.mechanisms import ConfidentGNMax, GNMax, NoisySum
from tutelage.mechanisms.local import LocalMechanism
from tutelage.mechanisms.registry import FEDERATED
from tutelage.privacy import ONE_ENTITY, NeighboringRelation, PrivacyUnit
from tutelage.teachers import VectorBallots

_FORMAT = 1
_OF_SUMS = {"teacher", "people"}  # entries of terms of sums of ballots only
_MOST_CLASSES = 2**20
_MOST_TEACHERS = 2**30  # counts and noise together stay below the 2^40 that can be shared
_MOST_PEOPLE = 2**26  # of one hospital: sums of their ballots are exact

FederatedMechanism = GNMax | ConfidentGNMax | NoisySum | LocalMechanism
_BY_NAME: dict[str, type[FederatedMechanism]] = {
    kind.__name__: kind for kind in (*(entry.kind for entry in FEDERATED.values()), NoisySum)
}
_WHY_NOT = {
    "LNMax": " Shares of Laplace noise have no exact sampler here.",
    "InteractiveGNMax": " No member has a student's predictions to check the shared votes against.",
}


@final
@dataclass(frozen=True, kw_only=True)
class Consortium:
    """The agreement that every member holds a copy of; public.

    Parameters
    ----------
    name : str
        What people call it.
    members : tuple of Member
        Two or more entities, one aggregator and, for a secure mechanism, three computing parties in party order.
    n_classes : int
        Number of classes.
    mechanism : GNMax, ConfidentGNMax, NoisySum or a local mechanism
        How a query is answered. Noise is in votes of the whole consortium for the first two, in lengths of the longest
        ballot for a sum, in an entity's own vote for a local one.
    teachers_per_entity : int
        The most ballots that one entity casts per query; 1 for a local mechanism and for a sum.
    quorum : int
        Entities that must answer a batch before anything of it is opened.
    colluding : int
        Entities that may pool what they know of their own noise; the noise of the other ``quorum - colluding`` alone
        is as strong as the mechanism says. 1 covers each entity that looks at the labels on its own. 0 for a local
        mechanism, where every entity's noise protects it whatever the others do.
    unit : PrivacyUnit
        Whose change moves one ballot of one entity.
    teacher : VectorBallots, optional
        What every person casts, for a sum only.
    people : tuple of int, optional
        About how many people each entity has, in the order of the entities, for a sum only. These numbers are public:
        where the number of people is private, each entity agrees on a round one. They scale the student and do not
        affect privacy.
    identifier : str
        32 hexadecimal digits. Default: random.
    """

    name: str
    members: tuple[Member, ...]
    n_classes: int
    mechanism: FederatedMechanism
    teachers_per_entity: int
    quorum: int
    colluding: int
    unit: PrivacyUnit
    teacher: VectorBallots | None = None
    people: tuple[int, ...] = ()
    identifier: str = field(default_factory=lambda: secrets.token_hex(16))

    def __post_init__(self) -> None:
        object.__setattr__(self, "members", tuple(self.members))
        object.__setattr__(self, "people", tuple(self.people))
        hexadecimal(self.identifier, 32, "identifier", "Consortium")
        _check_text(self.name, "name")
        if not isinstance(self.unit, PrivacyUnit) or not isinstance(self.unit.neighboring, NeighboringRelation):
            raise InvalidParameterError(f"`unit` of Consortium must be a PrivacyUnit. Got {type(self.unit).__name__}.")
        _check_text(self.unit.name, "unit")
        _check_members(self.members)
        if type(self.mechanism) not in _BY_NAME.values():
            kind = type(self.mechanism).__name__
            raise InvalidParameterError(
                f"`mechanism` of Consortium must be one of {', '.join(_BY_NAME)}. Got {kind}.{_WHY_NOT.get(kind, '')}"
            )
        self._check_numbers_and_roles()
        self._check_ballots()

    @property
    def entities(self) -> tuple[Member, ...]:
        """The members that hold private rows."""
        return self._with(Role.ENTITY)

    @property
    def computing_parties(self) -> tuple[Member, ...]:
        """The three members that compute on shares, in party order; none for a local mechanism."""
        return self._with(Role.COMPUTING)

    @property
    def aggregator(self) -> Member:
        """The member that asks and receives the labels."""
        return self._with(Role.AGGREGATOR)[0]

    @property
    def honest(self) -> int:
        """Number of answering entities whose noise no group of colluding members can subtract."""
        return self.quorum - self.colluding

    @property
    def is_local(self) -> bool:
        """Whether each entity perturbs its own vote and nothing is computed on shares."""
        return isinstance(self.mechanism, LocalMechanism)

    @property
    def is_sum(self) -> bool:
        """Whether people cast ballots of vectors, and only their noisy sums are opened."""
        return isinstance(self.mechanism, NoisySum)

    def people_of(self, entities: Collection[str]) -> int:
        """Return about how many people these entities have together."""
        return sum(number for entity, number in zip(self.entities, self.people, strict=True) if entity.name in entities)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of everything agreed, 64 hexadecimal digits: what every message names and all members compare."""
        return hashlib.sha256(b"tutelage consortium\0" + canonical(self.as_dict()).encode()).hexdigest()

    def member(self, name: str) -> Member:
        """Return the member called `name`."""
        for member in self.members:
            if member.name == name:
                return member
        raise InvalidParameterError(f"No member of {self.name!r} has the name {name!r}.")

    def as_dict(self) -> dict[str, Any]:
        """Return the agreement as plain values, with the format of its file."""
        content = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in _OF_SUMS}
        content["members"] = [member.as_dict() for member in self.members]
        content["mechanism"] = {"kind": type(self.mechanism).__name__, **settings_of(self.mechanism)}
        content["unit"] = self.unit.as_dict()
        if self.teacher is not None:
            content |= {"teacher": asdict(self.teacher), "people": list(self.people)}
        return {"file": "consortium", "format": _FORMAT, **content}

    def require_unit(self, ledger: Ledger) -> None:
        """Refuse a ledger that protects another unit than these terms."""
        if ledger.unit != self.unit:
            raise LedgerMismatchError(f"The ledger protects one {ledger.unit}, the consortium one {self.unit}.")

    def require_quorum(self, answered: Collection[str], left_out: Mapping[str, str]) -> None:
        """Refuse to open anything where too few entities answered, naming those that did not or were left out."""
        if len(answered) >= self.quorum:
            return
        silent = [entity.name for entity in self.entities if entity.name not in {*answered, *left_out}]
        missing = f" No answer from {listed(silent)}: let more entities run `tutelage federate vote`." * bool(silent)
        reasons = "".join(f" {name} was left out: {reason}" for name, reason in sorted(left_out.items()))
        raise QuorumError(
            f"{len(answered)} of {len(self.entities)} entities answered in a form that can be used, and the terms ask "
            f"for {self.quorum}. Nothing was opened.{missing}{reasons}"
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the agreement to a JSON file; another agreement is never overwritten."""
        write_once(Path(path), canonical(self.as_dict()).encode() + b"\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote, checking every value."""
        damaged = InvalidDataError(f"{path} is no complete consortium file. Get it again.")
        document = read_within(Path(path), MOST_BYTES_OF_A_DOCUMENT)
        content = parse(document, "consortium", _FORMAT, damaged)
        mechanism, of_sum = content.get("mechanism"), _OF_SUMS & set(content)
        if set(content) != set(cls.__dataclass_fields__) - _OF_SUMS | of_sum or len(of_sum) == 1:
            raise damaged
        if not all(isinstance(content[name], list) for name in {"members", "people"} & set(content)):
            raise damaged
        if not isinstance(mechanism, dict) or not isinstance(mechanism.get("kind"), str):
            raise damaged
        kind = _BY_NAME.get(mechanism.pop("kind"))
        if kind is None:
            raise InvalidParameterError(f"`mechanism` of Consortium must be one of {', '.join(_BY_NAME)}.")
        content["members"] = tuple(Member.from_dict(member) for member in content["members"])
        content["unit"] = PrivacyUnit.from_dict(content["unit"], str(path))
        try:
            content["mechanism"] = kind(**mechanism)
            if of_sum:
                content["teacher"] = VectorBallots(**content["teacher"])
        except TypeError:
            raise damaged from None
        return cls(**content)

    def _with(self, role: Role) -> tuple[Member, ...]:
        return tuple(member for member in self.members if member.role is role)

    def _check_numbers_and_roles(self) -> None:
        checks = (
            ("n_classes", 2, _MOST_CLASSES),
            ("teachers_per_entity", 1, 1 if self.is_local or self.is_sum else _MOST_TEACHERS),
            ("quorum", 1, len(self.entities)),
            ("colluding", 0, 0 if self.is_local else len(self.entities)),
        )
        for name, least, most in checks:
            value = integer_at_least(getattr(self, name), least, name, "Consortium")
            if value > most:
                what = " with a local mechanism" if self.is_local else ""
                raise InvalidParameterError(f"`{name}` of Consortium{what} must be at most {most}. Got {value}.")
            object.__setattr__(self, name, value)
        if self.unit == ONE_ENTITY and self.teachers_per_entity > 1:
            raise InvalidParameterError(
                f"`unit` of Consortium must be whose change moves one ballot; one entity's whole data moves "
                f"all {self.teachers_per_entity}. Name whom its rows are about, or take one teacher per entity."
            )
        if self.honest < 1:
            raise InvalidParameterError(
                f"`colluding` of Consortium must be below `quorum`. Got {self.colluding} of {self.quorum}."
            )
        needed = 0 if self.is_local else PARTIES
        for role, least, most in (
            (Role.ENTITY, 2, len(self.members)),
            (Role.AGGREGATOR, 1, 1),
            (Role.COMPUTING, needed, needed),
        ):
            found = len(self._with(role))
            if not least <= found <= most:
                wanted = f"{least}" if least == most else f"{least} or more"
                raise InvalidParameterError(
                    f"`members` of Consortium with {type(self.mechanism).__name__} must have the role {role.value} "
                    f"{wanted} times. Got {found}."
                )

    def _check_ballots(self) -> None:
        if not self.is_sum:
            if self.teacher is not None or self.people:
                raise InvalidParameterError("`teacher` and `people` of Consortium are for a NoisySum. Leave them out.")
            return
        if not isinstance(self.teacher, VectorBallots):
            raise InvalidParameterError(
                f"`teacher` of Consortium must be VectorBallots for a NoisySum. Got a {type(self.teacher).__name__}."
            )
        if len(self.people) != len(self.entities):
            raise InvalidParameterError(
                f"`people` of Consortium must hold one number per entity, {len(self.entities)}. Got {len(self.people)}."
            )
        for number in self.people:
            if integer_at_least(number, 1, "people", "Consortium") > _MOST_PEOPLE:
                raise InvalidParameterError(f"`people` of Consortium must be at most {_MOST_PEOPLE} per entity.")
        if self.unit == ONE_ENTITY:
            raise InvalidParameterError(
                "`unit` of Consortium must be a person or a row for a NoisySum: one entity's whole data cast a ballot "
                "for each of its people."
            )


def terms_of_sum(consortium: Consortium) -> tuple[NoisySum, VectorBallots]:
    """Return what terms say of a sum; terms of votes are refused."""
    if not isinstance(consortium.mechanism, NoisySum) or consortium.teacher is None:
        raise FederationError(f"The terms of {consortium.name!r} are about votes, and not about sums of ballots.")
    return consortium.mechanism, consortium.teacher


def _check_text(value: object, name: str) -> None:
    if not isinstance(value, str) or not 1 <= len(value) <= 200 or not value.isprintable():
        raise InvalidParameterError(f"`{name}` of Consortium must be 1 to 200 printable characters.")


def _check_members(members: Sequence[object]) -> None:
    found = [member for member in members if isinstance(member, Member)]
    if len(found) != len(members):
        raise InvalidParameterError("`members` of Consortium must all be of type Member.")
    columns = {
        "name": [member.name.casefold() for member in found],  # some file systems do not tell cases apart
        "key": [key for member in found for key in (member.signing_key, member.sealing_key)],
        "address": [member.address for member in found if member.address is not None],
        "certificate": [member.certificate for member in found if member.certificate is not None],
    }
    for what, values in columns.items():
        if len(set(values)) != len(values):
            raise InvalidParameterError(f"No two members of a Consortium may share a {what}. Two of these do.")
