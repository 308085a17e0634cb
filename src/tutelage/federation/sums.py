"""A round of a sum of ballots: the public map and the student so far, as the aggregator sends them to every hospital.

A round travels as a batch of one query, whose row is the bytes of the round. So all hospitals have the same features,
bit by bit, and every message is bound to them by the hash of the batch.
Only the maps of `tutelage.features.stored` are accepted.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from math import prod, sqrt
from typing import TYPE_CHECKING, Annotated, Any, Self, cast, final

import numpy as np
import numpy.typing as npt
from msgspec import Meta
from sklearn.pipeline import Pipeline

from tutelage._internal.records import made, named, parse
from tutelage._internal.typing import FloatArray, IntArray
from tutelage._internal.validation import integer_at_least
from tutelage.digests import canonical
from tutelage.events import Composed, Event, SummedNoise
from tutelage.exceptions import ForgedMessageError, InvalidParameterError
from tutelage.features.base import parts_of
from tutelage.features.rowwise import projector
from tutelage.features.stored import LARGEST, LEAST, arrays_of, map_of, names_of, require_moderate
from tutelage.federation import sharing
from tutelage.federation.batches import Batch, hash_of_rows, plain_rows
from tutelage.federation.documents import MOST_PAYLOAD_BYTES
from tutelage.federation.schemes import Draft, Shared, shares_of
from tutelage.ledger import Ledger
from tutelage.ledger.ledger import Reservation
from tutelage.mechanisms import NoisySum
from tutelage.methods.requests import Request
from tutelage.noise import NoiseSource
from tutelage.privacy import ONE_ENTITY
from tutelage.students import Moments, NoisySumClassifier
from tutelage.teachers import VectorBallots

if TYPE_CHECKING:
    from tutelage.ballots import Vector
    from tutelage.federation.mpc import Session

_MOST_HEADER_BYTES = 2**16
_MOST_PEOPLE = 2**26  # of one hospital: sums of their ballots are exact


@final
@dataclass(frozen=True, slots=True, eq=False)
class SumRound:
    """The ballot that every person is asked to cast: features of rows times the student's present errors; public."""

    features: Pipeline = field(repr=False)  # the map from rows to vectors of length at most one, from public rows
    seen: FloatArray = field(repr=False)  # the public rows through it, (public rows, numbers)
    earlier: tuple[Moments, ...] = field(repr=False)  # what was opened in the rounds before
    coef: FloatArray = field(repr=False)  # weights of the student of these rounds, (numbers, classes)
    radius: float  # longest product of features and error that is cast as it is
    people: int  # about how many cast ballots in the earlier round with the fewest; 0 in the first round

    @classmethod
    def following(
        cls, features: Pipeline, seen: FloatArray, earlier: tuple[Moments, ...], n_classes: int, people: int
    ) -> Self:
        """Return the round after those that were opened."""
        student = NoisySumClassifier().fit_moments(seen, earlier, n_rows=max(people, 1), classes=np.arange(n_classes))
        return cls(features, seen, earlier, student.coef_, student.radius(seen), people)

    @property
    def number(self) -> int:
        """Number of the round, from 0 on."""
        return len(self.earlier)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of its sum: classes and numbers."""
        return self.coef.T.shape

    @property
    def columns(self) -> int:
        """Number of columns of the rows that the map takes."""
        first: Any = self.features[0]
        return len(first.center)

    @property
    def landmarks(self) -> FloatArray:
        """Some of the public rows, but for rounding."""
        steps: list[Any] = parts_of(self.features)
        *scaled, kernel = steps[:-2]
        rows = kernel.points * kernel.weights.step + kernel.center
        return rows * scaled[0].deviation + scaled[0].center if scaled else rows

    @property
    def student(self) -> NoisySumClassifier:
        """The classifier so far, over features; its classes are class indices."""
        student = NoisySumClassifier()
        student.coef_, student.n_features_in_ = self.coef, len(self.coef)
        student.classes_, student.weights_ = np.arange(self.coef.shape[1]), 1.0
        return student

    @property
    def classifier(self) -> Pipeline:
        """The classifier so far, over rows; it may be published."""
        return Pipeline([*self.features.steps, ("classifier", self.student)])

    def to_row(self) -> npt.NDArray[np.uint8]:
        """Return the round as one row of bytes: a line of JSON, then plain 64-bit floats."""
        found = {"coef": self.coef, "radius": self.radius, "seen": self.seen}
        for number, moments in enumerate(self.earlier):
            found |= {f"round {number} {name}": value for name, value in moments._asdict().items()}
        found |= arrays_of(self.features)
        arrays = {name: np.asarray(value, dtype=np.float64) for name, value in found.items()}
        shapes = [(name, array.shape) for name, array in arrays.items()]
        header = _Header(self.people, names_of(self.features), shapes)
        body = b"".join(array.astype("<f8").tobytes() for array in arrays.values())
        return np.frombuffer(canonical(named("round", header)).encode() + b"\n" + body, dtype=np.uint8)[np.newaxis]

    @classmethod
    def of_row(cls, rows: npt.NDArray[Any]) -> Self:
        """Return the round that `to_row` wrote."""
        data = rows.tobytes() if rows.dtype == np.uint8 and rows.ndim == 2 and len(rows) == 1 else b""
        line, _, body = data.partition(b"\n")
        header = made(parse(line[:_MOST_HEADER_BYTES], "round", _damaged()), _Header, _damaged())
        try:
            arrays = _arrays(header.arrays, body)
            rounds = range(len([name for name in arrays if name.endswith(" values")]))
            parts = [[arrays[f"round {number} {part}"] for part in Moments._fields] for number in rounds]
            earlier = tuple(Moments(values, float(noise), float(radius)) for values, noise, radius in parts)
            features, coef = map_of(header.maps, arrays), arrays["coef"]
            projection: Any = features[-2]
            if coef.ndim != 2:
                raise _damaged()
            require_moderate(coef, (projection.directions.shape[1] + 1, coef.shape[-1]))
            projector(np.zeros(len(coef)), coef, 1.0)
            return cls(features, arrays["seen"], earlier, coef, float(arrays["radius"]), header.people)
        except (KeyError, TypeError, ValueError):
            raise _damaged() from None


@final
@dataclass(frozen=True, slots=True)
class OpenedSum:
    """A noisy sum that was opened; public."""

    entities: tuple[str, ...]  # whose ballots are in it
    values: tuple[int, ...]


@final
@dataclass(frozen=True, slots=True, eq=False)
class SchemaRound:
    """The sum that a method asks for after those that were opened, and the student so far; public."""

    earlier: tuple[OpenedSum, ...]
    request: Request  # the last one again where all were opened
    classifier: Pipeline = field(repr=False)

    @property
    def number(self) -> int:
        """Number of the round, from 0 on."""
        return len(self.earlier)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of its sum: classes and numbers."""
        return cast("Vector", self.request.form).shape

    def to_row(self) -> npt.NDArray[np.uint8]:
        """Return the round as one row of bytes: what was opened before it, as JSON."""
        said = canonical(named("opened sums", {"sums": self.earlier}))
        return np.frombuffer(said.encode(), dtype=np.uint8)[np.newaxis]


AnyRound = SumRound | SchemaRound


class SharedSums(Shared[NoisySum]):
    """People cast ballots of vectors in rounds; computing parties add them, and only sums with noise are opened."""

    @property
    def teacher(self) -> VectorBallots:
        """The ballots that every person casts."""
        return cast("VectorBallots", self.terms.teacher)

    def check_ballots(self) -> None:
        """Refuse terms that do not say what people cast, or how many people there are."""
        terms, entities = self.terms, len(self.terms.entities)
        if terms.schema is None and not isinstance(terms.teacher, VectorBallots):
            raise InvalidParameterError(
                "`teacher` of Consortium must be VectorBallots for a NoisySum without a `schema`. Got a "
                f"{type(terms.teacher).__name__}."
            )
        if len(terms.people) != entities:
            raise InvalidParameterError(
                f"`people` of Consortium must hold one number per entity, {entities}. Got {len(terms.people)}."
            )
        for number in terms.people:
            if integer_at_least(number, 1, "people", "Consortium") > _MOST_PEOPLE:
                raise InvalidParameterError(f"`people` of Consortium must be at most {_MOST_PEOPLE} per entity.")
        if terms.unit == ONE_ENTITY:
            raise InvalidParameterError(
                "`unit` of Consortium must be a person or a row for a NoisySum: one entity's whole data cast a ballot "
                "for each of its people."
            )

    @property
    def events(self) -> tuple[SummedNoise, ...]:
        """The most that opening the sum of each round is."""
        numbers = self.teacher.most_numbers(self.terms.n_classes)
        return tuple(self.event_of_round(number, numbers) for number in range(self.teacher.rounds))

    def event_of_round(self, number: int, numbers: int) -> SummedNoise:
        """Return the event of opening the sum of one round: its noisy numbers, within its share of the budget."""
        noise = self.mechanism.noise_multiplier
        return SummedNoise(self.teacher.event_of_round(noise, number, numbers, self.terms.unit), self.terms.honest)

    def event_from(self, first: int) -> Event:
        """Return the most that opening the sums of a round and of all rounds after it is."""
        return Composed(self.events[first:])

    def event_of(self, batch: Batch | None = None) -> Event:
        """Return the event of opening the sum of the round in a batch; at most, of all rounds."""
        return self.event_from(0) if batch is None else self.event_asked(self.round_of(batch))

    def event_asked(self, asked: Any) -> SummedNoise:
        """Return the event of opening the sum of one round."""
        return self.event_of_round(asked.number, asked.coef.size)

    def fits(self, queries: int) -> bool:
        """Return whether it is one round, whose sum fits a message."""
        numbers = max(one.variables for one in self.events)
        return queries <= 1 and sharing.HEAD_BYTES + sharing.ELEMENT_BYTES * numbers <= MOST_PAYLOAD_BYTES

    def round_of(self, batch: Batch) -> AnyRound:
        """Return the round that a batch asks, after checking that it is one under these terms."""
        found, teacher = SumRound.of_row(batch.rows), self.teacher
        numbers, classes = found.coef.shape
        fits = classes == self.terms.n_classes and 0 < numbers <= teacher.n_landmarks + 1
        fits &= found.seen.ndim == 2 and found.seen.shape[1] == numbers and len(found.seen) > 0
        fits &= all(moments.values.shape == (classes, numbers) for moments in found.earlier)
        fits &= found.people <= sum(self.terms.people)
        fits &= LEAST <= found.radius <= LARGEST and found.number < teacher.rounds
        kernel: Any = found.features[-3]
        # A hospital keeps one number per landmark and row of a block, which holds all rows of a person. With more
        # landmarks, whether it runs out of memory would tell how many rows it has.
        fits &= len(kernel.points) <= teacher.n_landmarks
        if not fits:
            raise _damaged()
        return found

    def round_after(self, asked: Any, total: IntArray, entities: Collection[str]) -> AnyRound:
        """Return the next round, or after the last one the final student: post-processing of what was opened.

        `total` is the noisy sum of the round that was `asked`, (classes, numbers), and `entities` are those whose
        ballots are in it.
        """
        people, noise = self.people_of(entities), noise_of(self.event_asked(asked), entities)
        opened = Moments.of_sum(total, noise, self.teacher.scale(asked.radius) * people, asked.radius)
        fewest, earlier = min(people, asked.people or people), (*asked.earlier, opened)
        return SumRound.following(asked.features, asked.seen, earlier, self.terms.n_classes, fewest)

    def people_of(self, entities: Collection[str]) -> int:
        """Return about how many people these entities have."""
        pairs = zip(self.terms.entities, self.terms.people, strict=True)
        return sum(number for entity, number in pairs if entity.name in entities)

    def drafts(self, rows: npt.NDArray[Any], ledger: Ledger | None) -> list[Draft]:  # noqa: ARG002
        """Return all rounds over the features of public rows, from a map that is learned from these rows."""
        plain, people, noise = plain_rows(rows), sum(self.terms.people), self.mechanism.noise_multiplier

        def row_after(last: SumRound | None) -> npt.NDArray[np.uint8]:
            if last is None:
                classes = self.terms.n_classes
                features = self.teacher.features(plain, n_classes=classes, n_people=people, noise_multiplier=noise)
                last = SumRound.following(features, features.transform(plain), (), classes, 0)
            return last.to_row()

        return self._drafts(hash_of_rows(plain), row_after)

    def _drafts(self, name: str, row_after: Callable[[Any], npt.NDArray[Any]]) -> list[Draft]:
        rounds = range(len(self.events))
        return [Draft(f"{name}-{number}", 1, self.event_from(number), row_after) for number in rounds]

    def hashes(self, ledger: Ledger, batch: Batch) -> list[bytes]:
        """Return what a ledger remembers a sum by: the hash of the round, whose row is long."""
        return self._hashes(ledger, np.frombuffer(bytes.fromhex(batch.query_hash), dtype=np.uint8)[np.newaxis])

    def payloads(self, ballots: IntArray, paid: Reservation, noise: NoiseSource) -> list[bytes]:
        """Return shares of the sum of one entity's ballots with the noise that was paid for."""
        sigma = cast("SummedNoise", paid.event).sigma_of_share
        return shares_of(ballots + noise.discrete_gaussian(sigma, ballots.shape), summed=True)

    def shape(self, batch: Batch) -> tuple[int, int, int]:
        """Return the shape of the numbers of a sum."""
        return 1, 1, prod(self.round_of(batch).shape)

    async def result(self, session: "Session", totals: sharing.ElementArray) -> bytes:  # noqa: ARG002
        """Return one party's share of the sum."""
        return sharing.encode(totals)

    def opened(self, shares: Sequence[bytes], batch: Batch) -> IntArray:
        """Return the noisy sum, (classes, numbers)."""
        return sharing.added(shares, self.round_of(batch).shape)


def noise_of(event: SummedNoise, entities: Collection[str]) -> float:
    """Return σ of the noise of all entities that answered: each added a share, also those that are not counted on."""
    return event.sigma_of_share * sqrt(len(entities))


@dataclass(frozen=True, slots=True)
class _Header:
    people: Annotated[int, Meta(ge=0)]
    maps: list[str]
    arrays: list[tuple[str, Annotated[tuple[Annotated[int, Meta(gt=0)], ...], Meta(max_length=2)]]]


def _arrays(shapes: list[tuple[str, tuple[int, ...]]], body: bytes) -> dict[str, FloatArray]:
    """Return the arrays of a round by name, which are found to be finite."""
    arrays, start = dict[str, FloatArray](), 0
    for name, shape in shapes:
        stop = start + 8 * prod(shape)
        arrays[name] = np.frombuffer(body[start:stop], dtype="<f8").astype(np.float64).reshape(shape)
        start = stop
    if start != len(body) or not all(np.isfinite(array).all() for array in arrays.values()):
        raise _damaged()
    return arrays


def _damaged() -> ForgedMessageError:
    return ForgedMessageError("A batch holds no round of a sum in the form in which this version writes it.")
