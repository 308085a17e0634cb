"""The terms file of a consortium: TOML, with everything that hospitals agree on but their keys."""

import secrets
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, Literal

from msgspec import Meta, field
from msgspec.structs import replace

from tutelage._internal.records import Entries, plain
from tutelage.accounting.calibration import noise_within, repeated_event
from tutelage.accounting.filter import Accounting, Filter, limit_of
from tutelage.cli.config import Positive
from tutelage.cli.settings import Section, read_section
from tutelage.events import TIER_STEPS, Event
from tutelage.exceptions import ConfigError
from tutelage.features import Schema
from tutelage.mechanisms import NoisySum
from tutelage.privacy import NeighboringRelation, PrivacyUnit
from tutelage.signing import require_name
from tutelage_consortium.consortium import Consortium
from tutelage_consortium.keys import Identity, Member, Role

_COARSE = (1, 4, 16, 64)
_Seat = tuple[Role, str | None]


class _Protected(Section, frozen=True):
    """Whom the terms protect, and how much.

    Attributes
    ----------
    unit
        Whose rows are protected together, such as patient.
    epsilon
        ε that each hospital may spend in all.
    delta
        δ of the whole budget.
    neighbors
        silo: all rows of a person are in one hospital that has other people.
    releases
        Releases that share the budget.
    """

    unit: str
    epsilon: Annotated[float, Meta(gt=0)]
    delta: Annotated[float, Meta(gt=0, lt=1)]
    neighbors: Literal["silo", "entity", "row"] = "silo"
    releases: Positive = 1


class TermsFile(Section, frozen=True):
    """The terms as their author writes them.

    Attributes
    ----------
    name
        Title of the consortium.
    classes
        Labels, spelled as in the tables.
    quorum
        Hospitals that must answer, or nothing is opened.
    hospitals
        About how many people each hospital has; public.
    privacy
        Whom the terms protect.
    parties
        Three computing parties, and host:port where each listens.
    schema
        Range or categories of each column.
    method
        Method whose sums are opened; default: additive.
    coordinator
        Name of the member that asks, and receives the student.
    colluding
        Hospitals that may share what they know with the coordinator.
    size_test
        Test that no hospital sends more than its people can cast.
    report
        Whether a last sum says how good the student is on the people of all hospitals.
    epsilons
        A smaller ε than that of [privacy], for all people of a hospital.
    identifier
        Tells a consortium from others with the same terms; not in the file of an author.
    """

    name: str
    classes: Annotated[list[str], Meta(min_length=2)]
    quorum: Positive
    hospitals: dict[str, Positive]
    privacy: _Protected
    parties: dict[str, str]
    schema: Entries
    method: str | None = None
    coordinator: str = "registry"
    colluding: Annotated[int, Meta(ge=0)] = 1
    size_test: bool = True
    report: bool = False
    epsilons: dict[str, Annotated[float, Meta(gt=0)]] = field(default_factory=dict)
    identifier: str = ""

    @property
    def seats(self) -> dict[str, _Seat]:
        """The role of each member, and the address of a computing party."""
        found: dict[str, _Seat] = dict.fromkeys(self.hospitals, (Role.ENTITY, None))
        found |= {name: (Role.COMPUTING, address) for name, address in self.parties.items()}
        found[self.coordinator] = (Role.AGGREGATOR, None)
        return found

    def with_identifier(self, identifier: str | None = None) -> "TermsFile":
        """Return the terms of one consortium, which no other one has."""
        return replace(self, identifier=identifier or secrets.token_hex(16))

    @classmethod
    def of(cls, terms: Any) -> "TermsFile":
        """Return the terms that a settings file or an invite holds."""
        return read_section(cls, terms, "the terms")

    def as_dict(self) -> Entries:
        """Return the terms as plain values."""
        return {name: value for name, value in plain(self).items() if value is not None}

    def epsilon_of(self, member: str) -> float:
        """Return the ε that a member may spend in all."""
        return self.epsilons.get(member, self.privacy.epsilon)

    def draft(self) -> Consortium:
        """Return the agreement as if all members had keys; terms that no consortium can have are refused."""
        names = [*self.hospitals, *self.parties, self.coordinator]
        for name in names:
            require_name(name, "a member in the terms")
        if len(set(names)) < len(names):
            raise ConfigError(
                "No two members in [hospitals], [parties] and `coordinator` may have the same name."
            )
        for name, epsilon in self.epsilons.items():
            if name not in self.hospitals or epsilon >= self.privacy.epsilon:
                raise ConfigError(
                    f"[epsilons] must give hospitals an ε below {self.privacy.epsilon:g}, that of [privacy]. Got "
                    f"{epsilon:g} for {name!r}."
                )
        agreed = self.consortium(
            [Identity.generate(name, *seat).member for name, seat in self.seats.items()], 0
        )
        agreed.require_size(1)
        return agreed

    def present(self, members: Sequence[Member]) -> dict[str, Member]:
        """Return the members with a seat in these terms, by name; of several keys, the last."""
        return {
            one.name: one for one in members if (one.role, one.address) == self.seats.get(one.name)
        }

    def consortium(self, members: Sequence[Member], roster: int) -> Consortium:
        """Return the agreement of these members."""
        by_name = {one.name: one for one in members}
        present = [by_name[name] for name in self.seats if name in by_name]
        hospitals = [one.name for one in present if one.role is Role.ENTITY]
        made = partial(
            Consortium,
            name=self.name,
            members=tuple(present),
            classes=tuple(self.classes),
            teachers_per_entity=1,
            quorum=self.quorum,
            colluding=self.colluding,
            unit=PrivacyUnit(self.privacy.unit, NeighboringRelation(self.privacy.neighbors)),
            people=tuple(self.hospitals[name] for name in hospitals),
            schema=Schema(self.schema),
            method=self.method,
            size_test=self.size_test,
            report=self.report,
            roster=roster,
            identifier=self.identifier or secrets.token_hex(16),
        )
        mechanism = NoisySum(self._noise(made))
        if not self.epsilons.keys() & {*hospitals}:
            return made(mechanism=mechanism)

        def event_of(steps: int) -> Event:
            alike = made(mechanism=mechanism, steps=(steps,) * len(hospitals))
            return alike.scheme.event_of(None, hospitals[0])

        steps = [self._steps(name, event_of) for name in hospitals]
        # The coarser the steps, the smaller the sums, whose size must be tested.
        for coarse in _COARSE:
            rounded = tuple(each - each % coarse for each in steps)
            if all(rounded):
                agreed = made(mechanism=mechanism, steps=rounded)
                if agreed.most_queries():
                    return agreed
        raise ConfigError(
            "[epsilons] needs larger sums than can be tested with so many people and columns. State fewer, or leave "
            "[epsilons] out."
        )

    def _steps(self, hospital: str, event_of: Callable[[int], Event]) -> int:
        """Return of how many steps the ballots of a hospital's people are, so that its budget holds all releases."""
        if hospital not in self.epsilons:
            return TIER_STEPS
        limit = self._limit(self.epsilons[hospital])
        releases = self.privacy.releases
        steps = bisect_right(
            range(1, TIER_STEPS + 1),
            limit.capacity,
            key=lambda steps: releases * limit.cost(event_of(steps)),
        )
        if steps == 0:
            raise ConfigError(
                f"ε of {hospital!r} in [epsilons] must be larger: a ballot has {TIER_STEPS} steps, and one of them "
                "already takes more. Leave out this hospital, or raise its ε."
            )
        return steps

    def _limit(self, epsilon: float) -> Filter:
        return limit_of(epsilon, self.privacy.delta, Accounting.RENYI)

    def _noise(self, made: Any) -> float:
        """Return the least noise at which the budget of a hospital holds all releases."""
        event_of = repeated_event(
            lambda noise: made(mechanism=NoisySum(noise)).scheme.event_of(), self.privacy.releases
        )
        return noise_within(self._limit(self.privacy.epsilon), event_of)
