"""A round of a sum of ballots: the public map and the student so far, as the aggregator sends them to every hospital.

A round travels as a batch of one query, whose row is the bytes of the round. So all hospitals have the same features,
bit by bit, and every message is bound to them by the hash of the batch.
Only the maps of `tutelage.features.stored` are accepted.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from math import prod, sqrt
from typing import Any, Self, final

import numpy as np
import numpy.typing as npt
from sklearn.pipeline import Pipeline

from tutelage._internal.typing import FloatArray, IntArray, Matrix
from tutelage.exceptions import ForgedMessageError
from tutelage.features.rowwise import projector
from tutelage.features.stored import LARGEST, LEAST, arrays_of, map_of, names_of, require_moderate
from tutelage.federation.batches import Batch
from tutelage.federation.consortium import Consortium, terms_of_sum
from tutelage.federation.costs import event_of_round
from tutelage.federation.documents import parse
from tutelage.ledger.entries import canonical
from tutelage.students import Moments, NoisySumClassifier

_FORMAT = 1
_MOST_HEADER_BYTES = 2**16
_MOST_AXES = 2


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
    def first(cls, consortium: Consortium, X_public: Matrix) -> Self:
        """Return the first round under terms of a sum, whose map is learned from public rows of numbers."""
        mechanism, teacher = terms_of_sum(consortium)
        features = teacher.features(
            X_public,
            n_classes=consortium.n_classes,
            n_people=sum(consortium.people),
            noise_multiplier=mechanism.noise_multiplier,
        )
        return cls._following(features, features.transform(X_public), (), consortium.n_classes, 0)

    @classmethod
    def _following(
        cls, features: Pipeline, seen: FloatArray, earlier: tuple[Moments, ...], n_classes: int, people: int
    ) -> Self:
        student = NoisySumClassifier().fit_moments(seen, earlier, n_rows=max(people, 1), classes=np.arange(n_classes))
        return cls(features, seen, earlier, student.coef_, student.radius(seen), people)

    @property
    def number(self) -> int:
        """Number of the round, from 0 on."""
        return len(self.earlier)

    @property
    def columns(self) -> int:
        """Number of columns of the rows that the map takes."""
        first: Any = self.features[0]
        return len(first.center)

    @property
    def student(self) -> NoisySumClassifier:
        """The classifier so far, over features; its classes are class indices."""
        student = NoisySumClassifier()
        student.coef_, student.n_features_in_ = self.coef, len(self.coef)
        student.classes_ = np.arange(self.coef.shape[1])
        return student

    @property
    def classifier(self) -> Pipeline:
        """The classifier so far, over rows; it may be published."""
        return Pipeline([*self.features.steps, ("classifier", self.student)])

    def after(self, total: IntArray, entities: Collection[str], consortium: Consortium) -> "SumRound":
        """Return the next round, or after the last one the final student: post-processing of what was opened.

        `total` is the noisy sum of this round, (classes, numbers), and `entities` are those whose ballots are in it.
        """
        _, teacher = terms_of_sum(consortium)
        people = consortium.people_of(entities)
        # Every entity that answered added a share of the noise, also those that are not counted on.
        noise = event_of_round(consortium, self.number, total.size).sigma_of_share * sqrt(len(entities))
        earlier = (*self.earlier, Moments.of_sum(total, noise, teacher.scale(self.radius) * people, self.radius))
        fewest = min(people, self.people or people)
        return self._following(self.features, self.seen, earlier, consortium.n_classes, fewest)

    def to_row(self) -> npt.NDArray[np.uint8]:
        """Return the round as one row of bytes: a line of JSON, then plain 64-bit floats."""
        found = {"coef": self.coef, "radius": self.radius, "seen": self.seen}
        for number, moments in enumerate(self.earlier):
            found |= {f"round {number} {name}": value for name, value in moments._asdict().items()}
        found |= arrays_of(self.features)
        arrays = {name: np.asarray(value, dtype=np.float64) for name, value in found.items()}
        shapes = [[name, list(array.shape)] for name, array in arrays.items()]
        maps = names_of(self.features)
        header = {"file": "round", "format": _FORMAT, "people": self.people, "maps": maps, "arrays": shapes}
        body = b"".join(array.astype("<f8").tobytes() for array in arrays.values())
        return np.frombuffer(canonical(header).encode() + b"\n" + body, dtype=np.uint8)[np.newaxis]

    @classmethod
    def of(cls, batch: Batch, consortium: Consortium) -> Self:
        """Return the round that a batch asks, after checking that it is one under these terms."""
        terms_of_sum(consortium)
        header, arrays = _read(batch)
        try:
            rounds = range(len([name for name in arrays if name.endswith(" values")]))
            parts = [[arrays[f"round {number} {part}"] for part in Moments._fields] for number in rounds]
            earlier = tuple(Moments(values, float(noise), float(radius)) for values, noise, radius in parts)
            features, coef = map_of(header["maps"], arrays), arrays["coef"]
            projection: Any = features[-2]
            if coef.ndim != 2 or not isinstance(header["maps"], list):
                raise _damaged()
            require_moderate(coef, (projection.directions.shape[1] + 1, coef.shape[-1]))
            projector(np.zeros(len(coef)), coef, 1.0)
            found = cls(features, arrays["seen"], earlier, coef, float(arrays["radius"]), header["people"])
        except (KeyError, TypeError, ValueError):
            raise _damaged() from None
        found._require_fit(consortium)
        return found

    def _require_fit(self, consortium: Consortium) -> None:
        _, teacher = terms_of_sum(consortium)
        numbers, classes = self.coef.shape if self.coef.ndim == 2 else (0, 0)
        fits = classes == consortium.n_classes and 0 < numbers <= teacher.n_landmarks + 1
        fits &= self.seen.ndim == 2 and self.seen.shape[1] == numbers and len(self.seen) > 0
        fits &= all(moments.values.shape == (classes, numbers) for moments in self.earlier)
        fits &= type(self.people) is int and 0 <= self.people <= sum(consortium.people)
        fits &= LEAST <= self.radius <= LARGEST and self.number < teacher.rounds
        kernel: Any = self.features[-3]
        # A hospital keeps one number per landmark and row of a block, which holds all rows of a person. With more
        # landmarks, whether it runs out of memory would tell how many rows it has.
        fits &= len(kernel.points) <= teacher.n_landmarks
        if not fits:
            raise _damaged()


def numbers_in(batch: Batch) -> int:
    """Return how many numbers the sum of a round has, classes times features."""
    _, arrays = _read(batch)
    if "coef" not in arrays:
        raise _damaged()
    return arrays["coef"].size


def _read(batch: Batch) -> tuple[dict[str, Any], dict[str, FloatArray]]:
    """Return the header of a round and its arrays, which are found to be finite."""
    if batch.rows.shape[0] != 1 or batch.rows.dtype != np.uint8 or batch.rows.ndim != 2:
        raise _damaged()
    data = batch.rows.tobytes()
    line = data[:_MOST_HEADER_BYTES].partition(b"\n")[0]
    header = parse(line, "round", _FORMAT, _damaged())
    body, arrays, start = data[len(line) + 1 :], {}, 0
    shapes = header.get("arrays")
    if not isinstance(shapes, list):
        raise _damaged()
    for entry in shapes:
        name, shape = entry if isinstance(entry, list) and len(entry) == 2 else (None, None)
        if not isinstance(name, str) or not isinstance(shape, list) or len(shape) > _MOST_AXES:
            raise _damaged()
        if not all(type(each) is int and each > 0 for each in shape):
            raise _damaged()
        stop = start + 8 * prod(shape)
        if stop > len(body):
            raise _damaged()
        arrays[name] = np.frombuffer(body[start:stop], dtype="<f8").astype(np.float64).reshape(shape)
        start = stop
    if start != len(body) or not all(np.isfinite(array).all() for array in arrays.values()):
        raise _damaged()
    return header, arrays


def _damaged() -> ForgedMessageError:
    return ForgedMessageError("A batch holds no round of a sum in the form in which this version writes it.")
