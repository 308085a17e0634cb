"""The terms file of a consortium: TOML, with everything that hospitals agree on but their keys."""

import secrets
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Literal

from msgspec import Meta
from msgspec.structs import replace

from tutelage._internal.records import Entries, plain
from tutelage.accounting.calibration import noise_within, repeated
from tutelage.accounting.filter import Accounting, limit_of
from tutelage.cli.config import Positive
from tutelage.cli.settings import Section, about, read_section
from tutelage.exceptions import ConfigError
from tutelage.features import Schema
from tutelage.federation.consortium import Consortium
from tutelage.federation.documents import member_name
from tutelage.federation.keys import Identity, Member, Role
from tutelage.mechanisms import NoisySum
from tutelage.privacy import NeighboringRelation, PrivacyUnit


class Protected(Section, frozen=True):
    """Whom the terms protect, and how much."""

    unit: Annotated[str, about("Whose rows are protected together, such as patient.")]
    epsilon: Annotated[float, Meta(gt=0), about("ε that each hospital may spend in all.")]
    delta: Annotated[float, Meta(gt=0, lt=1), about("δ of the whole budget.")]
    neighbors: Annotated[
        Literal["silo", "entity", "row"], about("silo: all rows of a person are in one hospital that has other people.")
    ] = "silo"
    releases: Annotated[Positive, about("Releases that share the budget.")] = 1


class TermsFile(Section, frozen=True):
    """The terms as their author writes them."""

    name: Annotated[str, about("Title of the consortium.")]
    classes: Annotated[list[str], Meta(min_length=2), about("Labels, spelled as in the tables.")]
    quorum: Annotated[Positive, about("Hospitals that must answer, or nothing is opened.")]
    hospitals: Annotated[dict[str, Positive], about("About how many people each hospital has; public.")]
    privacy: Protected
    parties: Annotated[dict[str, str], about("Three computing parties, and host:port where each listens.")]
    schema: Annotated[Entries, about("Range or categories of each column.")]
    method: Annotated[str | None, about("Method whose sums are opened; default: additive.")] = None
    coordinator: Annotated[str, about("Name of the member that asks, and receives the student.")] = "registry"
    colluding: Annotated[int, Meta(ge=0), about("Hospitals that may share what they know with the coordinator.")] = 1
    size_test: Annotated[bool, about("Test that no hospital sends more than its people can cast.")] = True
    identifier: str = ""

    @property
    def seats(self) -> dict[str, tuple[Role, str | None]]:
        """The role of each member, and the address of a computing party."""
        found: dict[str, tuple[Role, str | None]] = dict.fromkeys(self.hospitals, (Role.ENTITY, None))
        found |= {name: (Role.COMPUTING, address) for name, address in self.parties.items()}
        return {**found, self.coordinator: (Role.AGGREGATOR, None)}

    def numbered(self, identifier: str | None = None) -> "TermsFile":
        """Return the terms of one consortium, which no other one has."""
        return replace(self, identifier=identifier or secrets.token_hex(16))

    @classmethod
    def of(cls, terms: Any) -> "TermsFile":
        """Return the terms that a settings file or an invite holds."""
        return read_section(cls, terms, "the terms")

    def as_dict(self) -> Entries:
        """Return the terms as plain values."""
        return {name: value for name, value in plain(self).items() if value is not None}

    def draft(self) -> Consortium:
        """Return the agreement as if all members had keys; terms that no consortium can have are refused."""
        names = [*self.hospitals, *self.parties, self.coordinator]
        for name in names:
            member_name(name, "name", "a member in the terms")
        if len(set(names)) < len(names):
            raise ConfigError("No two members in [hospitals], [parties] and `coordinator` may have the same name.")
        return self.consortium([Identity.generate(name, *seat).member for name, seat in self.seats.items()], 0)

    def present(self, members: Sequence[Member]) -> dict[str, Member]:
        """Return the members with a seat in these terms, by name; of several keys, the last."""
        return {one.name: one for one in members if (one.role, one.address) == self.seats.get(one.name)}

    def consortium(self, members: Sequence[Member], roster: int) -> Consortium:
        """Return the agreement of these members."""
        seats = self.seats
        order = {name: place for place, name in enumerate(seats)}
        present = sorted((one for one in members if one.name in seats), key=lambda one: order[one.name])
        made = partial(
            Consortium,
            name=self.name,
            members=tuple(present),
            classes=tuple(self.classes),
            teachers_per_entity=1,
            quorum=self.quorum,
            colluding=self.colluding,
            unit=PrivacyUnit(self.privacy.unit, NeighboringRelation(self.privacy.neighbors)),
            people=tuple(self.hospitals[one.name] for one in present if one.role is Role.ENTITY),
            schema=Schema(self.schema),
            method=self.method,
            size_test=self.size_test,
            roster=roster,
            **({"identifier": self.identifier} if self.identifier else {}),
        )
        return made(mechanism=NoisySum(self._noise(made)))

    def _noise(self, made: Any) -> float:
        """Return the least noise at which the budget of a hospital holds all releases."""
        event_of = repeated(lambda noise: made(mechanism=NoisySum(noise)).scheme.event_of(), self.privacy.releases)
        limit = limit_of(self.privacy.epsilon, self.privacy.delta, Accounting.RENYI)
        return noise_within(limit, event_of)
