"""Terms that the members of a consortium agree on before the first query, and the one decision how it is answered."""

from bisect import bisect_left
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self, final

from tutelage._internal.gate import AnyPath
from tutelage._internal.records import as_record, parse, settle
from tutelage._internal.validation import integer_at_least
from tutelage.boundary import BatchBoundary
from tutelage.digests import canonical
from tutelage.exceptions import (
    FederationError,
    InvalidDataError,
    InvalidParameterError,
    LedgerMismatchError,
    QuorumError,
)
from tutelage.ledger import Ledger
from tutelage.mechanisms import ConfidentGNMax, GNMax, NoisySum
from tutelage.privacy import ONE_ENTITY
from tutelage.tables import by_value
from tutelage_consortium.batches import Batch
from tutelage_consortium.files import join_names, read_within, write_once
from tutelage_consortium.keys import Member, Role
from tutelage_consortium.schemes import MOST_QUERIES, SharedVotes
from tutelage_consortium.sharing import PARTIES
from tutelage_consortium.sums import SharedSums, Sums, hash_of_method
from tutelage_consortium.terms import ConsortiumTerms

_MOST_CLASSES = 2**20

_Scheme = SharedVotes | SharedSums
# The one decision how a consortium answers. Everything that depends on it is in these classes.
_SCHEMES: Mapping[type[Any], type[_Scheme]] = {
    GNMax: SharedVotes,
    ConfidentGNMax: SharedVotes,
    NoisySum: SharedSums,
}
_BY_NAME = {kind.__name__: kind for kind in _SCHEMES}
_WHY_NOT = {
    "LNMax": "Shares of Laplace noise have no exact sampler here.",
    "InteractiveGNMax": "No member has a student's predictions to check the shared votes against.",
}


@final
@dataclass(frozen=True, kw_only=True)
class Consortium(ConsortiumTerms):
    """The agreement that every member holds a copy of; public.

    Parameters
    ----------
    name : str
        What people call it.
    members : tuple of Member
        Two or more entities, one aggregator, and three computing parties in party order.
    classes : tuple of str
        Labels as the tables of the hospitals spell them; ballots and labels are indices of these.
    mechanism : GNMax, ConfidentGNMax or NoisySum
        How a query is answered. Noise is in votes of the whole consortium for the first two, in lengths of the longest
        ballot for a sum.
    teachers_per_entity : int
        The most ballots that one entity casts per query; 1 for a sum.
    quorum : int
        Entities that must answer a batch before anything of it is opened.
    colluding : int
        Entities that may pool what they know of their own noise; the noise of the other ``quorum - colluding`` alone
        is as strong as the mechanism says. 1 covers each entity that looks at the labels on its own.
    unit : PrivacyUnit
        Whose change moves one ballot of one entity.
    people : tuple of int, optional
        At most about how many people each entity has, in the order of the entities, for a sum only. They are public,
        decide how fine the bins are, how far the others stand for entities that miss a sum, and what the test of sizes
        accepts: agree on round numbers that no entity exceeds.
    steps : tuple of int, optional
        Length of the ballots of each entity's people, in steps of 1/1,024 of a whole ballot, in the order of the
        entities, for a sum only. Default: whole ballots. An entity with shorter ones spends less of its own budget.
    schema : Schema, optional
        The columns, for a sum only.
    method : str, optional
        Name of the method whose sums are opened, for a sum only. Default: ``"additive"``, three sums for an additive
        model (`tutelage.methods.Additive`).
    method_hash : str, optional
        SHA-256 of the file of another method, which must be the same at all members. Default: that of the file here.
    size_test : bool
        Whether the computing parties test that no entity's sum is larger than its people's ballots can be. Two parties
        that pool what they have then learn forty random sums of each entity's noised numbers, and nothing without it.
    report : bool
        Whether a last sum says how good the student is on the people of all hospitals, for a sum only. It is a part of
        the budget.
    roster : int
        How often members, their keys or addresses, `people` or `steps` were amended. The terms stay the same.
    identifier : str
        32 hexadecimal digits. Default: random.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.mechanism) not in _SCHEMES:
            kind = type(self.mechanism).__name__
            raise InvalidParameterError(
                "Consortium.mechanism",
                f"be one of {', '.join(_BY_NAME)}",
                f"{kind}",
                _WHY_NOT.get(kind, ""),
            )
        self._check_numbers_and_roles()
        files = None
        if isinstance(self.scheme, SharedSums):  # which checks the terms as it is made
            if self.method is not None:
                files = hash_of_method(self.sums().method)
        elif any((self.schema, self.people, self.steps, self.method, self.report)):
            raise InvalidParameterError(
                "Consortium.people",
                "be left out unless $mechanism is a NoisySum, and so must $steps, $schema, $method and $report",
            )
        if files is not None and self.method_hash not in (None, files):
            raise InvalidParameterError(
                "Consortium.method",
                "have one file for all members",
                fix="Get the file of the coordinator.",
            )
        if files != self.method_hash:
            object.__setattr__(self, "method_hash", files)

    @cached_property
    def scheme(self) -> _Scheme:
        """Everything that differs between votes and sums."""
        return _SCHEMES[type(self.mechanism)](self, self.mechanism)

    def sums(self) -> Sums:
        """Return the sums that the terms are about; terms of votes are refused."""
        if not isinstance(self.scheme, SharedSums):
            raise FederationError(
                f"The terms of {self.name!r} ask for votes, not for sums of ballots."
            )
        return self.scheme.sums

    def most_queries(self) -> int:
        """Return how many queries a batch can hold: what is compared and what is sent grows with their number."""
        return bisect_left(
            range(1, MOST_QUERIES + 1), 1, key=lambda queries: not self.scheme.fits(queries)
        )

    def require_size(self, queries: int) -> None:
        """Refuse a batch of more than `most_queries` queries."""
        if not self.scheme.fits(queries):
            most = self.most_queries()
            raise InvalidDataError(
                f"A batch under these terms can hold {most:,} queries at most. Got {queries:,}. Ask fewer at once."
                if most
                else "Under these terms not one query can be computed: there are too many classes, columns or people, "
                "or noise, threshold or teachers are too many votes for the numbers that are compared. Agree on others."
            )

    def require_quorum(self, answered: Collection[str], left_out: Mapping[str, str]) -> None:
        """Refuse to open anything where too few entities answered, naming those that did not or were left out."""
        if len(answered) >= self.quorum:
            return
        silent = [
            entity.name for entity in self.entities if entity.name not in {*answered, *left_out}
        ]
        missing = (
            f" No answer from {join_names(silent)}: let more entities run `tutelage consortium serve`."
            * bool(silent)
        )
        reasons = "".join(
            f" {name} was left out: {reason}" for name, reason in sorted(left_out.items())
        )
        raise QuorumError(
            f"{len(answered)} of {len(self.entities)} entities answered in a form that can be used, and the terms ask "
            f"for {self.quorum}. Nothing was opened.{missing}{reasons}"
        )

    def boundary(self, ledger: Ledger, member: Member) -> BatchBoundary:
        """Return where a member pays for batches; refuse a ledger of another unit than the terms, or another member.

        A ledger that names no owner becomes that of the first payer.
        """
        if ledger.unit != self.unit:
            raise LedgerMismatchError(
                f"The ledger protects one {ledger.unit}, the consortium one {self.unit}."
            )
        charges = (
            charge.reserved.content.get("batch", "").split("/")
            for charge in ledger.history().charges
        )
        owners = {parts[3] for parts in charges if len(parts) == 4 and parts[0] == self.fingerprint}
        others = {*owners, ledger.owner or member.name} - {member.name}
        if others:
            raise LedgerMismatchError(
                f"{ledger.path or 'The ledger in memory'} is the ledger of {join_names(sorted(others))}, not of "
                f"{member.name}. Nothing was spent. Name the ledger of {member.name}."
            )

        def name_of(batch: Batch) -> str:
            """Return terms and rows too, so that no other batch is ever taken for this one."""
            return f"{self.fingerprint}/{batch.identifier}/{batch.query_hash}/{member.name}"

        return BatchBoundary(ledger, name_of)

    def save(self, path: AnyPath) -> None:
        """Write the agreement to a JSON file; another agreement is never overwritten."""
        write_once(Path(path), canonical(self.as_dict()).encode() + b"\n")

    @classmethod
    def load(cls, path: AnyPath) -> Self:
        """Read what `save` wrote, checking every value."""
        damaged = InvalidDataError(f"{path} is no complete consortium file. Get it again.")
        content = parse(read_within(Path(path)), "consortium", damaged)
        try:
            kind = _BY_NAME.get(content["mechanism"].pop("kind"))
            mechanism = kind and kind(**content["mechanism"])
        except (KeyError, TypeError, AttributeError):
            raise damaged from None
        if {*content, "method", "method_hash", "report", "steps"} != set(cls.__dataclass_fields__):
            raise damaged
        if mechanism is None:
            raise InvalidParameterError("Consortium.mechanism", f"be one of {', '.join(_BY_NAME)}")
        return as_record({**content, "mechanism": mechanism}, cls, damaged)

    def _check_numbers_and_roles(self) -> None:
        checks = (
            ("teachers_per_entity", 1, _SCHEMES[type(self.mechanism)].most_teachers),
            ("quorum", 1, len(self.entities)),
            ("colluding", 0, len(self.entities)),
        )
        for name, least, most in checks:
            settle(self, name, integer_at_least, least)
            value = getattr(self, name)
            if value > most:
                raise InvalidParameterError(f"Consortium.{name}", f"be at most {most}", f"{value}")
        if self.unit == ONE_ENTITY and self.teachers_per_entity > 1:
            raise InvalidParameterError(
                "Consortium.unit",
                f"be a person or a row, because one entity's whole data changes {self.teachers_per_entity} ballots",
                fix="Set $unit to what the rows are about, or $teachers_per_entity to 1.",
            )
        if self.honest < 1:
            raise InvalidParameterError(
                "Consortium.colluding",
                "be below $quorum",
                f"{self.colluding}, with a quorum of {self.quorum}",
            )
        if not 2 <= len(set(map(by_value, self.classes))) == self.n_classes <= _MOST_CLASSES:
            raise InvalidParameterError(
                "Consortium.classes",
                f"be 2 to {_MOST_CLASSES} labels, all of different values",
                f"{self.n_classes} labels",
            )
        for role, least, most in (
            (Role.ENTITY, 2, len(self.members)),
            (Role.AGGREGATOR, 1, 1),
            (Role.COMPUTING, PARTIES, PARTIES),
        ):
            found = len(self._with(role))
            if not least <= found <= most:
                wanted = f"{least}" if least == most else f"{least} or more"
                raise InvalidParameterError(
                    "Consortium.members", f"include {wanted} with the role {role.value}", f"{found}"
                )
