"""Fits without a ledger that share rows, in one process: their number and their total budget.

A ledger adds up whatever is released from a data set. Without one, a second fit of the same rows, manually or in
scikit-learn's searches and cross-validation, spends silently. So a process keeps keyed hashes of the rows that were
fitted without a ledger: 8 bytes for each different row, and for each different entity.
"""

import secrets
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple, final

import numpy as np
import numpy.typing as npt

from tutelage._internal.forks import BriefLock
from tutelage.accounting import data_independent
from tutelage.events import Composed, Event, Repeated
from tutelage.partition import canonical_ids

_Hashes = npt.NDArray[np.uint64]
_SHARED = 0.1  # of the smaller set: from there on two fits are taken to be of the same data


class Spent(NamedTuple):
    """Number and total ε of fits that share rows or an estimator; public."""

    fits: int
    unit: str
    epsilon: float


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Fits:
    """Fits that share rows or an estimator; private, because the hashes reveal their rows."""

    marks: frozenset[str]  # of estimators
    rows: _Hashes = field(repr=False)
    people: _Hashes = field(repr=False)
    queries: Counter[Event]
    units: frozenset[str]
    fits: int = 1

    def shares_with(self, other: "_Fits") -> bool:
        same = _overlap(self.rows, other.rows) or _overlap(self.people, other.people)
        return same or not self.marks.isdisjoint(other.marks)

    def joined_with(self, other: "_Fits") -> "_Fits":
        return _Fits(
            self.marks | other.marks,
            np.union1d(self.rows, other.rows),
            np.union1d(self.people, other.people),
            self.queries + other.queries,
            self.units | other.units,
            self.fits + other.fits,
        )


@final
class Refits:
    """The fits without a ledger of one process.

    Two fits belong together if more than a tenth of the rows of the smaller one, or of its entities, were in the other,
    or if they were of one estimator, its copies included; and so do all fits that are linked by others.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._groups: list[_Fits] = []
        self._lock = BriefLock()

    def count(
        self,
        mark: str,
        rows: Iterable[bytes],
        entity_ids: npt.ArrayLike | None,
        one: Event,
        queries: int,
        *,
        unit: str,
    ) -> None:
        """Count a fit, before its labels are drawn.

        `mark` is that of the estimator and its copies, `rows` are what each row is known by, `one` is the most that one
        query can be, of one teacher, and `unit` whom the fit protects.
        """
        people = set() if entity_ids is None else set(canonical_ids(entity_ids).tolist())
        hashes = (
            self._hashes(b"row", rows),
            self._hashes(b"person", (name.encode("utf-8", "surrogatepass") for name in people)),
        )
        fit = _Fits(frozenset([mark]), *hashes, Counter({one: queries}), frozenset([unit]))
        with self._lock:
            apart = [group for group in self._groups if not group.shares_with(fit)]
            for group in self._groups:
                if group not in apart:
                    fit = group.joined_with(fit)
            self._groups = [*apart, fit]

    def spent(self, mark: str, delta: float) -> Spent:
        """Return the worst-case ε at `delta` of all fits that belong together with the marked fit."""
        with self._lock:
            group = next(group for group in self._groups if mark in group.marks)
        event = Composed(tuple(Repeated(one, queries) for one, queries in group.queries.items()))
        # Protection of all rows of an entity covers each row. The reverse does not hold.
        unit = next(iter(group.units)) if len(group.units) == 1 else "row"
        return Spent(group.fits, unit, data_independent.epsilon(event, delta).epsilon)

    def _hashes(self, kind: bytes, values: Iterable[bytes]) -> _Hashes:
        digests = (blake2b(value, digest_size=8, key=self._key, person=kind).digest() for value in values)
        return np.unique(np.frombuffer(b"".join(digests), dtype=np.uint64))


def _overlap(known: _Hashes, new: _Hashes) -> bool:
    return len(np.intersect1d(known, new, assume_unique=True)) > _SHARED * min(len(known), len(new))


REFITS = Refits()
