"""Sums of ballots over a public schema, one after another: each depends on those that were opened before.

A batch holds the sums that were opened, as whole numbers and nothing else. Each member lets the method ask again by
these, as after a crash of a fit (`tutelage.methods`), and so comes to the ballot that is asked next by itself.
"""

import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil, gcd, log, prod, sqrt
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, cast, final

import numpy as np
import numpy.typing as npt
from msgspec import Meta
from sklearn.pipeline import Pipeline

from tutelage._internal.records import by_identity, file_entries, frozen, record_in, sha256_of
from tutelage._internal.typing import IntArray
from tutelage._internal.validation import integer_at_least
from tutelage.boundary import BatchBoundary
from tutelage.digests import canonical
from tutelage.events import TIER_STEPS, Composed, Event, NoisySumGaussian, SummedNoise
from tutelage.exceptions import ForgedMessageError, InvalidParameterError
from tutelage.features.schema import Schema
from tutelage.ledger import Ledger
from tutelage.mechanisms import NoisySum
from tutelage.methods import METHODS, Method, Public
from tutelage.methods.needs import Offered, unmet
from tutelage.methods.report import layout_of_classes
from tutelage.methods.requests import Answer, Outcome, Reported, Request, run_steps
from tutelage.noise import NoiseSource
from tutelage.privacy import ONE_ENTITY
from tutelage.targets import Classes
from tutelage_consortium import sharing
from tutelage_consortium.batches import Batch
from tutelage_consortium.documents import MOST_PAYLOAD_BYTES
from tutelage_consortium.files import read_within
from tutelage_consortium.schemes import Draft, Expected, hashes_of, shares_of
from tutelage_consortium.terms import DEFAULT_METHOD, ConsortiumTerms

if TYPE_CHECKING:
    from tutelage.ballots import Vector
    from tutelage_consortium.mpc import Session

REHEARSAL = "rehearsal"  # with which the names of releases of made-up rows begin
_MOST_PEOPLE = 2**26  # of one hospital: sums of their ballots are exact
_FALSE_ALARM = 2.0**-40  # chance that honest ballots fail one projection: it is in no δ
_MOST = 2.0**50  # of a number of a sum: far beyond honest ones, and scores by it are finite


@final
@frozen
class _OpenedSum:
    """A noisy sum that was opened; public."""

    entities: tuple[str, ...]  # whose ballots are in it
    values: tuple[int, ...]


@final
@frozen
class _SumsSoFar:
    """A release so far; public, and all that a batch of a sum holds."""

    release: Annotated[str, Meta(min_length=1, max_length=100)]
    # About how many each hospital has.
    people: dict[str, Annotated[int, Meta(ge=1, le=_MOST_PEOPLE)]]
    # Of how many steps the ballots of each one's people are; empty if all are whole.
    steps: dict[str, Annotated[int, Meta(ge=1, le=TIER_STEPS)]]
    sums: tuple[_OpenedSum, ...] = ()

    def to_row(self) -> npt.NDArray[np.uint8]:
        """Return this as one row of bytes."""
        said = canonical(file_entries("opened sums", self))
        return np.frombuffer(said.encode(), dtype=np.uint8)[np.newaxis]

    def steps_of(self, entity: str | None) -> int:
        """Return the factor of an entity's ballots; of whole ballots if `entity` is None. It is 1 if all are whole."""
        if not self.steps:
            return 1
        # The smallest whole numbers that are to each other as the lengths: sums stay as small as they can.
        common = gcd(TIER_STEPS, *self.steps.values())
        return self.steps.get(entity or "", TIER_STEPS) // common


@final
@by_identity
class Round:
    """The sum that is asked for after those that were opened, and the student so far; public."""

    opened: _SumsSoFar
    request: Request  # the last one again where all were opened
    classifier: Pipeline = field(repr=False)
    report: Reported | None = None  # on the student, where its sum was opened

    @property
    def number(self) -> int:
        """Number of the round, from 0 on."""
        return len(self.opened.sums)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of its sum: classes and numbers."""
        return cast("Vector", self.request.form).shape


@final
@dataclass(frozen=True, eq=False)
class Sums:
    """The sums that a method asks for under the terms of a consortium, one after another; public."""

    terms: ConsortiumTerms
    mechanism: NoisySum

    @cached_property
    def method(self) -> Method:
        """The method whose sums are opened."""
        name = DEFAULT_METHOD if self.terms.method is None else self.terms.method
        if name not in METHODS:
            raise InvalidParameterError(
                "Consortium.method", f"be one of {', '.join(METHODS)}", f"{name!r}"
            )
        kind: Any = METHODS[name]
        return kind(mechanism=self.mechanism)

    @property
    def schema(self) -> Schema:
        """The columns that the members agreed on."""
        return cast("Schema", self.terms.schema)

    def public(self, people: int) -> Public:
        """Return all that the method may look at: the schema and what the members agreed on."""
        nobody = np.empty((0, len(self.schema.names)))
        classes = np.array(self.terms.classes)
        return Public(
            rows=nobody,
            teacher_rows=nobody,
            student_rows=nobody,
            classes=classes,
            question="",
            unit=self.terms.unit,
            simulated=False,
            n_teachers=people,
            seed=0,
            schema=self.schema,
            report=layout_of_classes(self.terms.classes) if self.terms.report else None,
            agreed=True,
        )

    @property
    def events(self) -> tuple[SummedNoise, ...]:
        """The most that opening the sum of each round is, for people whose ballots are whole."""
        return self._events_for(None, self.beginning_of("all"))

    def _events_for(self, entity: str | None, opened: _SumsSoFar) -> tuple[SummedNoise, ...]:
        whole = self.method.event(replace(self.public(1).sizes, people_known=True))
        return tuple(
            self._event_of_shares(
                part.event,
                opened,
                entity,
            )
            for part in whole.flatten()
            for _ in range(part.times)
        )

    def event_from(
        self, first: int, entity: str | None = None, opened: _SumsSoFar | None = None
    ) -> Event:
        """Return the most that opening the sums of a round and of all rounds after it is, for the people of an entity.

        Without an entity, it is for people whose ballots are whole; without sums that were opened, by the terms.
        """
        return Composed(self._events_for(entity, opened or self.beginning_of("all"))[first:])

    def event_asked(self, asked: Round, entity: str | None = None) -> SummedNoise:
        """Return the event of opening the sum that is asked for; its entity is as in `event_from`."""
        return self.event_of_request(
            asked.request,
            asked.opened,
            entity,
        )

    def event_of_request(
        self, request: Request, opened: _SumsSoFar, entity: str | None = None
    ) -> SummedNoise:
        """Return the event of a sum that is asked for by what was opened; its entity is as in `event_from`."""
        whole = request.mechanism.most(request.form, simulated=False)
        return self._event_of_shares(whole, opened, entity)

    def _event_of_shares(self, whole: Event, opened: _SumsSoFar, entity: str | None) -> SummedNoise:
        event = cast("NoisySumGaussian", whole)
        in_steps = replace(
            event,
            sigma=event.sigma * opened.steps_of(None),
            norm_squared=event.norm_squared * opened.steps_of(entity) ** 2,
        )
        return SummedNoise(in_steps, self.terms.honest)

    def round_of(self, batch: Batch) -> Round:
        """Return the round that a batch asks, after checking that it is one under these terms."""
        row = b""
        if batch.rows.dtype == np.uint8 and batch.rows.ndim == 2:
            row = batch.rows.tobytes()
        opened = record_in(row, "opened sums", _SumsSoFar, _refusal())
        if len(opened.sums) >= len(self.events) or not opened.people:
            raise _refusal()
        return self._after(opened)

    def round_after(self, asked: Round, total: IntArray, entities: Collection[str]) -> Round:
        """Return the next round; after the last sum the last round again, with the final student.

        `total` is the noisy sum of the round that was `asked`, (classes, numbers), and `entities` are those whose
        ballots are in it.
        """
        last = _OpenedSum(tuple(entities), tuple(total.ravel().tolist()))
        return self._after(replace(asked.opened, sums=(*asked.opened.sums, last)))

    def _after(self, opened: _SumsSoFar) -> Round:
        """Return the round that is asked after what was opened."""
        try:
            asked, outcome = self.driven(opened)
        except (ValueError, ArithmeticError):
            raise _refusal() from None
        classifier = Pipeline([("schema", self.schema), ("classifier", outcome.student)])
        place = min(len(opened.sums), len(asked) - 1)
        report = None
        if outcome.report is not None and len(opened.sums) == len(self.events):
            # The ballots alone: they do not stand for the people of hospitals that did not answer.
            scale = _scale_of(opened.sums[-1], opened) * opened.steps_of(None)
            report = outcome.report._replace(
                values=np.rint(outcome.report.values / scale).astype(np.int64),
                sigma=outcome.report.sigma / scale,
                n_people=None,
            )
        return Round(
            opened,
            asked[place],
            classifier,
            report,
        )

    def driven(self, opened: _SumsSoFar) -> tuple[list[Request], Outcome]:
        """Let the method ask by what was opened; sums that were not count as zeros, of which it learns nothing."""
        asked = list[Request]()
        left = [*opened.sums]

        def answer_to(request: Request) -> Answer:
            asked.append(request)
            event = self.event_of_request(request, opened)
            if left:
                return _answer(left.pop(0), opened, event)
            return Answer(np.zeros((1, event.variables), dtype=np.int64), event, 0.0)

        steps = self.method.steps(self.public(sum(opened.people.values())))
        return asked, run_steps(steps, answer_to, lambda one: one.make())

    def first_round(self, release: str) -> Round:
        """Return the first round of a release of all present members."""
        return self._after(self.beginning_of(release))

    def beginning_of(self, release: str) -> _SumsSoFar:
        """Return a release of all present members of which nothing is opened."""
        return _SumsSoFar(
            release,
            self.terms.people_at,
            self.terms.steps_at,
        )


@final
@dataclass(frozen=True, eq=False)
class SharedSums:
    """People cast ballots by a schema, computing parties add them, and only sums with noise are opened."""

    most_teachers: ClassVar[int] = 1
    terms: ConsortiumTerms
    mechanism: NoisySum

    def __post_init__(self) -> None:
        terms = self.terms
        entities = len(terms.entities)
        if terms.schema is None:
            raise InvalidParameterError(
                "Consortium.schema", "be a Schema if $mechanism is a NoisySum", "None"
            )
        if len(terms.people) != entities:
            raise InvalidParameterError(
                "Consortium.people",
                f"have {entities} numbers, one for each entity",
                f"{len(terms.people)}",
            )
        for number in terms.people:
            if integer_at_least(number, 1, "people", "Consortium") > _MOST_PEOPLE:
                raise InvalidParameterError(
                    "Consortium.people", f"be at most {_MOST_PEOPLE} per entity"
                )
        if len(terms.steps) not in (0, entities) or not all(
            integer_at_least(steps, 1, "steps", "Consortium") <= TIER_STEPS for steps in terms.steps
        ):
            raise InvalidParameterError(
                "Consortium.steps",
                f"be left out, or have {entities} numbers from 1 to {TIER_STEPS}, one for each entity",
            )
        if terms.unit == ONE_ENTITY:
            raise InvalidParameterError(
                "Consortium.unit",
                "be a person or a row if $mechanism is a NoisySum, because every person casts a ballot",
            )
        offered = Offered(
            Classes(values=terms.classes), schema=True, report=terms.report, opened=True
        )
        InvalidParameterError.raise_for(unmet(self.sums.method, offered, "Consortium"))
        if terms.method is not None:
            self._check_requests()

    def _check_requests(self) -> None:
        """Refuse a method that asks for other sums than it says, as far as they can be seen beforehand."""
        begun = self.sums.beginning_of("check")
        asked, _ = self.sums.driven(begun)
        fits = len(asked) == len(self.sums.events)
        for request, event in zip(asked, self.sums.events, strict=False):
            one = _gaussian_of(self.sums.event_of_request(request, begun))
            most = _gaussian_of(event)
            fits &= one.norm_squared <= most.norm_squared and one.dimension <= most.dimension
        if not fits:
            name = type(self.sums.method).__name__
            raise InvalidParameterError(
                "Consortium.method",
                "ask for the sums that its `event_of_one` has",
                f"{name}, which does not",
            )

    @cached_property
    def sums(self) -> Sums:
        """The sums that are opened."""
        return Sums(self.terms, self.mechanism)

    def event_of(self, batch: Batch | None = None, entity: str | None = None) -> Event:
        """Return the event of opening the sum of the round in a batch; at most, of all rounds.

        Its entity is as in `Sums.event_from`.
        """
        if batch is None:
            return self.sums.event_from(0, entity)
        return self.sums.event_asked(self.sums.round_of(batch), entity)

    def fits(self, queries: int) -> bool:
        """Return whether it is one round, whose sum fits a message, and the bounds the numbers that can be tested."""
        events = self.sums.events
        people = max(self.terms.people)
        largest = max(_bound_of_projection(people, one) for one in events)
        if self.terms.size_test and largest.bit_length() >= sharing.MOST_TESTED_BITS:
            return False
        numbers = max(one.variables for one in events)
        size = sharing.HEAD_BYTES + sharing.ELEMENT_BYTES * numbers
        return queries <= 1 and size <= MOST_PAYLOAD_BYTES

    def drafts(self, asked: Any, boundary: BatchBoundary) -> list[Draft]:  # noqa: ARG002
        """Return all rounds of the release that is named; there are no rows to ask about."""

        def row_after(last: Round | None) -> npt.NDArray[np.uint8]:
            return (last or self.sums.first_round(asked)).opened.to_row()

        rounds = range(len(self.sums.events))
        name = sha256_of(f"{self.terms.fingerprint} {asked}".encode())
        return [
            Draft(f"{name}-{number}", 1, self.sums.event_from(number), row_after)
            for number in rounds
        ]

    def hashes(self, ledger: Ledger, batch: Batch) -> list[bytes]:
        """Return what a ledger remembers a sum by: the hash of the round, whose row is long."""
        row = np.frombuffer(bytes.fromhex(batch.query_hash), dtype=np.uint8)[np.newaxis]
        return hashes_of(row, self.terms, ledger)

    def event_of_outcome(self, outcome: IntArray, batch: Batch) -> Event:  # noqa: ARG002
        """Return the event of the sum of a batch, whatever it is."""
        return self.event_of(batch)

    def payloads(self, ballots: IntArray, reserved: Event, noise: NoiseSource) -> list[bytes]:
        """Return shares of the sum of one entity's ballots with the noise that was paid for."""
        sigma = cast("SummedNoise", reserved).sigma_of_share
        return shares_of(ballots + noise.discrete_gaussian(sigma, ballots.shape), summed=True)

    def expected_shares(self, batch: Batch) -> Expected:
        """Return what shares of a sum must be like, whose length is at most that of all ballots one after another."""
        asked = self.sums.round_of(batch)
        opened = asked.opened
        bounds = None
        if self.terms.size_test:
            bounds = {
                name: _bound_of_projection(number, self.sums.event_asked(asked, name))
                for name, number in opened.people.items()
            }
        return Expected((1, 1, prod(asked.shape)), bounds, opened.people, opened.steps)

    async def result(self, session: "Session", totals: sharing.ElementArray) -> bytes:  # noqa: ARG002
        """Return one party's share of the sum."""
        return sharing.encode(totals)

    def open_outcome(self, shares: Sequence[bytes], batch: Batch) -> IntArray:
        """Return the noisy sum, (classes, numbers)."""
        return sharing.open_sum(shares, self.sums.round_of(batch).shape)


def hash_of_method(method: Method) -> str:
    """Return the SHA-256 of the files of a method: a hospital's ε counts on the noise of others, who must have them."""
    found = list[bytes]()
    for kind in type(method).__mro__:
        if kind.__module__.partition(".")[0] in ("tutelage", "builtins", "abc"):
            continue
        names = [getattr(sys.modules.get(kind.__module__), "__file__", None)]
        names += [
            one.__code__.co_filename for one in vars(kind).values() if isinstance(one, FunctionType)
        ]
        path = next((name for name in names if name and Path(name).is_file()), None)
        if path is None:
            raise InvalidParameterError(
                "Consortium.method", "be written in a file, which all members have"
            )
        found += read_within(Path(path)).splitlines()  # however a line ends there
    return sha256_of(b"\n".join(found))


def _answer(one: _OpenedSum, opened: _SumsSoFar, event: SummedNoise) -> Answer:
    """Return a sum as if all people had cast whole ballots: those of the hospitals that did stand for all."""
    known = {*one.entities} & opened.people.keys()
    if not known or len(one.entities) != len(known) or len(one.values) != event.variables:
        raise _refusal()
    scale = _scale_of(one, opened)
    values = np.rint(np.array(one.values, dtype=np.float64) * scale)
    if not np.abs(values).max() <= _MOST:
        raise _refusal()
    return Answer(values.astype(np.int64)[np.newaxis], event, 0.0, noise_of(event, known) * scale)


def _scale_of(one: _OpenedSum, opened: _SumsSoFar) -> float:
    """Return what a sum is multiplied by to stand for whole ballots of the people of all hospitals."""
    in_it = sum(opened.people[name] * opened.steps_of(name) for name in one.entities)
    return sum(opened.people.values()) / in_it


def _bound_of_projection(people: int, event: SummedNoise) -> int:
    """Return what a projection of the noised sum of so many people's ballots stays below, if they are honest."""
    noise = event.sigma_of_share * sqrt(event.variables)
    longest = sqrt(_gaussian_of(event).norm_squared / 2)
    return ceil((people * longest + noise) * sqrt(2 * log(4 / _FALSE_ALARM)))


def _gaussian_of(event: SummedNoise) -> NoisySumGaussian:
    return cast("NoisySumGaussian", event.event)


def noise_of(event: SummedNoise, entities: Collection[str]) -> float:
    """Return σ of the noise of all entities that answered: each added a share, also those that are not counted on."""
    return event.sigma_of_share * sqrt(len(entities))


def _refusal() -> ForgedMessageError:
    return ForgedMessageError(
        "A batch holds no sums that could have been opened under these terms."
    )
