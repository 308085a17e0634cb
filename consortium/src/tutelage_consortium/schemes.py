"""How a consortium answers: one object for each kind of terms, with everything that differs between the kinds.

Here is the one for votes; `sums` has the one for sums of ballots, with the same methods. Entities send shares, three
parties compute on their totals, and the aggregator opens one outcome.
"""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, log, sqrt
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast, final

import numpy as np
import numpy.typing as npt

from tutelage._internal.typing import ABSTAIN, Ballots, IntArray, Matrix
from tutelage._internal.validation import integer_at_least, probability
from tutelage.accounting import composition, data_independent
from tutelage.ballots import tally
from tutelage.boundary import BatchBoundary
from tutelage.events import Composed, Event, Repeated, SummedNoise
from tutelage.exceptions import (
    ForgedMessageError,
    InvalidDataError,
    InvalidParameterError,
    UnsupportedEventError,
)
from tutelage.ledger import Ledger
from tutelage.mechanisms import ConfidentGNMax, GNMax
from tutelage.noise import NoiseSource
from tutelage.privacy import PublicEpsilon
from tutelage_consortium import sharing
from tutelage_consortium.batches import Batch, hash_of_rows, plain_rows
from tutelage_consortium.documents import MOST_PAYLOAD_BYTES
from tutelage_consortium.keys import names_of
from tutelage_consortium.sharing import ELEMENT_BYTES, HEAD_BYTES, ElementArray
from tutelage_consortium.terms import ConsortiumTerms

if TYPE_CHECKING:
    from tutelage_consortium.mpc import Session

MOST_QUERIES, _MOST_CLASSES = 2**24, 2**16  # of what is compared in one message
_MOST_CELLS = 2**23  # of all entities together: 200 bytes of a computing party's memory each
_DOWNWARD = 1 - 1e-15  # covers the rounding of the noise that is left
# Chance that honest votes of one entity fail one projection: it is in no δ.
_FALSE_ALARM = 2.0**-100


class Draft(NamedTuple):
    """A batch that an aggregator can ask once those before it are collected."""

    name: str  # under which it is kept
    queries: int
    event: Event  # the most that each query is, with all batches after it
    # From the `Round` that the batch before it led to, or None.
    rows: Callable[[Any], Matrix]


class Expected(NamedTuple):
    """How an entity's shares of a batch must be, so that a computing party can use them."""

    shape: tuple[int, int, int]  # blocks, queries and classes, or numbers of a sum
    # By entity: what projections of its noised values stay below, if they are tested.
    bounds: dict[str, int] | None
    # Entities that a release was begun with, about how many people each has, and the steps of their ballots.
    people: dict[str, int] | None = None
    steps: dict[str, int] | None = None


def shares_of(values: IntArray, *, summed: bool = False) -> list[bytes]:
    """Return the shares of one splitting, each after the name of the splitting and random bytes of its own."""
    shares = sharing.split(values, summed=summed)
    name = secrets.token_bytes(sharing.SPLIT_NAME_BYTES)
    return [name + secrets.token_bytes(sharing.SALT_BYTES) + share for share in shares]


@final
@dataclass(frozen=True, eq=False)
class SharedVotes:
    """Teachers vote on queries, and each query gets a label or none: counts are compared in shares and never opened."""

    # Counts and noise together stay below the 2^40 that can be shared.
    most_teachers: ClassVar[int] = 2**30
    terms: ConsortiumTerms
    mechanism: GNMax | ConfidentGNMax

    def drafts(self, asked: Any, boundary: BatchBoundary) -> list[Draft]:
        """Return one batch of the rows without an answer in the ledger, equal ones once."""
        hashes = hashes_of(asked, self.terms, boundary.ledger)
        answered = boundary.account.recall(hashes)
        places = dict[bytes, int]()  # of the first row of each query
        for place, query in enumerate(hashes):
            if query not in answered:
                places.setdefault(query, place)
        rows = asked[[*places.values()]]
        if not len(rows):
            return []
        plain = plain_rows(rows)

        def rows_after(_before: object) -> Matrix:
            return plain

        return [Draft(hash_of_rows(plain), len(plain), self.event_of(), rows_after)]

    def check_ballots(self, ballots: npt.ArrayLike, queries: int) -> IntArray:
        """Return one entity's ballots on a batch, which the terms allow."""
        given = np.asarray(ballots)
        most = self.terms.teachers_per_entity
        if (
            given.ndim != 2
            or not np.issubdtype(given.dtype, np.integer)
            or given.shape[1] != queries
        ):
            raise InvalidDataError(
                f"`ballots` must be whole numbers of shape (teachers, {queries}), one column per query of the "
                f"batch. Got {given.dtype} of shape {given.shape}."
            )
        if not 1 <= len(given) <= most:
            teachers = "one teacher" if most == 1 else f"1 to {most} teachers"
            raise InvalidDataError(
                f"`ballots` must be of {teachers}, as the consortium's terms say. Got {len(given)}."
            )
        if given.min(initial=0) < ABSTAIN or given.max(initial=0) >= self.terms.n_classes:
            raise InvalidDataError(
                f"A ballot must be {ABSTAIN} or a class index below {self.terms.n_classes}."
            )
        return given.astype(np.int64)

    @cached_property
    def sigmas(self) -> tuple[float, ...]:
        """The parameter σ/√h of one entity's discrete Gaussians: of its votes, then of its check if there is one."""
        return tuple(part.sigma_of_share for part in reversed(self.parts()))

    def parts(self) -> list[SummedNoise]:
        """Return the events of one query, its check first, for an observer of labels and abstentions only.

        A colluding member knows its own share of noise and can subtract it. So every entity adds discrete Gaussians of
        parameter σ/√h, where h entities are counted on to be honest; what more than h add only hides more. Proofs:
        docs/proofs/summed_noise.md.
        """
        whole = self.mechanism.event_of_one(
            self.terms.n_classes,
            self.terms.unit,
            simulated=False,
        )
        return [SummedNoise(part.event, self.terms.honest) for part in whole.flatten()]  # type: ignore[arg-type]

    def event_of(self, batch: Batch | None = None, entity: str | None = None) -> Event:  # noqa: ARG002
        """Return the largest event of one query, for the people of every entity."""
        parts = self.parts()
        return parts[0] if len(parts) == 1 else Composed(tuple(parts))

    def fits(self, queries: int) -> bool:
        """Return whether shares fit a message, and counts with noise the numbers that can be compared."""
        cells = len(self.sigmas) * self.terms.n_classes * queries
        return (
            HEAD_BYTES + ELEMENT_BYTES * cells <= MOST_PAYLOAD_BYTES
            and self.terms.n_classes <= _MOST_CLASSES
            and len(self.terms.entities) * cells <= _MOST_CELLS
            and self.bits(queries) <= sharing.MOST_BITS
        )

    def bits(self, queries: int) -> int:
        """Return L such that every number that is compared lies in [−2^(L−1), 2^(L−1)).

        Compared are differences of two noised totals, and a noised total and the threshold. The range is that of votes
        which pass the test of `projection_bound`, honest or not: outside it a comparison is no bit, and what is opened
        would say more than a label. An entity with a number beyond twice the bound passes each of forty projections
        with probability ½ at most: two of the coefficients −1, 0, 1 would have to keep one and the same sum within the
        bound. So it passes with 2⁻⁴⁰.
        """
        total = 2 * len(self.terms.entities) * self.projection_bound(queries)
        return max(2 * total, total + abs(self._threshold or 0)).bit_length() + 1

    @property
    def _threshold(self) -> int | None:
        return (
            ceil(self.mechanism.threshold) if isinstance(self.mechanism, ConfidentGNMax) else None
        )

    def projection_bound(self, queries: int) -> int:
        """Return what a projection of one entity's noised votes on coefficients −1, 0, 1 stays below, if it is honest.

        The coefficients are independent, ±1 with probability ¼ each. docs/proofs/summed_noise.md has the proof.
        """
        teachers = self.terms.teachers_per_entity
        classes = self.terms.n_classes
        vote, *check = self.sigmas
        parts = 2 + 2 * len(check)
        tail = log(2 * parts / _FALSE_ALARM)
        counts = teachers * sqrt((1 + len(check)) * queries / 2)
        noise = vote * sqrt(classes * queries)
        # All classes of a query share the check's noise: their coefficients add up first.
        common = [
            sigma * sqrt(classes / 2 * (queries + 2 * sqrt(queries * tail) + 2 * tail))
            for sigma in check
        ]
        return ceil((counts + noise + sum(common)) * sqrt(2 * tail))

    def expected_shares(self, batch: Batch) -> Expected:
        """Return what shares of votes must be like."""
        bounds = dict.fromkeys(
            names_of(self.terms.entities), self.projection_bound(batch.n_queries)
        )
        return Expected((len(self.sigmas), batch.n_queries, self.terms.n_classes), bounds)

    def payloads(self, ballots: IntArray, reserved: Event, noise: NoiseSource) -> list[bytes]:  # noqa: ARG002
        """Return shares of the vote counts with fresh noise, for the check too if there is one."""
        counts = tally(cast("Ballots", ballots), self.terms.n_classes, self.terms.unit).counts
        vote, *check = self.sigmas
        blocks = [counts + noise.discrete_gaussian(vote, counts.shape)]
        # One draw per query, the same for every class: the check compares the largest count plus one noise.
        blocks += [counts + noise.discrete_gaussian(sigma, (len(counts), 1)) for sigma in check]
        return shares_of(np.stack(blocks))

    async def result(self, session: "Session", totals: ElementArray) -> bytes:
        """Return one party's shares of 1 + the winning class of each query, or of 0."""
        _, queries, _ = totals.shape
        return await session.labels(totals, self.bits(queries), self._threshold)

    def open_outcome(self, shares: Sequence[bytes], batch: Batch) -> IntArray:
        """Return the label of each query from all parties' shares."""
        found = sharing.recombine(shares, (batch.n_queries,))
        if found.min(initial=0) < 0 or found.max(initial=0) > self.terms.n_classes:
            raise ForgedMessageError(
                "The computing parties' shares do not add up to labels. Let them compute it again."
            )
        return found - 1

    def event_of_outcome(self, outcome: IntArray, batch: Batch) -> Event:
        """Return the event of these labels: a check for every query, an answer for those that passed it."""
        *check, answer = self.parts()
        if not check:
            return Repeated(answer, batch.n_queries)
        return Composed(
            (Repeated(check[0], batch.n_queries), Repeated(answer, int(np.sum(outcome != ABSTAIN))))
        )

    def hashes(self, ledger: Ledger, batch: Batch) -> list[bytes]:
        """Return what a ledger remembers the label of each query by."""
        return hashes_of(batch.rows, self.terms, ledger)


def hashes_of(rows: Matrix, terms: ConsortiumTerms, ledger: Ledger) -> list[bytes]:
    """Return what a ledger remembers the outcome of each row under these terms by."""
    return ledger.account.keys({"consortium": terms.fingerprint}, rows)


def epsilon_if_fewer_honest(
    votes: SharedVotes,
    actually_honest: int,
    answers: int,
    delta: float,
) -> PublicEpsilon:
    """Return the ε of the labels if fewer entities kept their noise to themselves than it was sized for.

    `votes` is the `scheme` of a consortium. Noise of parameter σ·√(j/h) is left; the rest is known to the colluders,
    who subtract it.
    """
    answers = integer_at_least(answers, 1, "answers", "epsilon_if_fewer_honest")
    left = _events_left(votes, actually_honest, "epsilon_if_fewer_honest")
    return data_independent.epsilon(
        Repeated(Composed(tuple(left)) if len(left) > 1 else left[0], answers), delta
    )


def epsilon_for_two_computing_parties(
    votes: SharedVotes,
    actually_honest: int,
    answers: int,
    delta: float,
) -> PublicEpsilon:
    """Return the ε for two computing parties that pool what they have: together they see the noised totals.

    All m noisy counts of a query are a vector Gaussian mechanism: λ/σ² and the exact composition of discrete Gaussian
    noise bound it. The smaller cost of three outcomes does not, because it covers the label alone.
    """
    owner = "epsilon_for_two_computing_parties"
    if isinstance(votes.mechanism, ConfidentGNMax):
        raise UnsupportedEventError(
            "Nothing is guaranteed against two colluding computing parties of a ConfidentGNMax: the noise of its check "
            "is equal for all classes of a query, so they see the differences of the votes. Take a GNMax, or make sure "
            "that no two of the three collude."
        )
    probability(delta, "delta", owner)
    answers = integer_at_least(answers, 1, "answers", owner)
    (one,) = _events_left(votes, actually_honest, owner)
    apart = answers * composition.log_distance(one)
    at = composition.moved_delta(delta, apart)
    whole = Repeated(one.event, answers)
    value, order = data_independent.rdp(whole).to_epsilon(at)
    method = "Rényi composition, conversion of CKS 2020 Proposition 12"
    exact = composition.gaussian_composition(
        one.event.sigma,
        answers,
        at,
    )
    if exact < value:
        value = exact
        method = "exact composition of discrete Gaussian noise"
        order = None
    value = composition.moved_epsilon(value, apart)
    return PublicEpsilon(
        value, delta, votes.terms.unit, f"{method}; all noisy counts are seen", order
    )


def _events_left(votes: SharedVotes, actually_honest: int, owner: str) -> list[SummedNoise]:
    """Return the events of one query if only the noise of `actually_honest` entities is unknown to everyone else."""
    j = integer_at_least(actually_honest, 1, "actually_honest", owner)
    honest = votes.terms.honest
    if j > honest:
        raise InvalidParameterError(
            f"{owner}.actually_honest",
            f"be at most {honest}, the number of entities that the terms assume to be honest",
            f"{j}",
        )
    factor = sqrt(j / honest) * _DOWNWARD
    return [
        SummedNoise(replace(part.event, sigma=part.event.sigma * factor), j)
        for part in votes.parts()
    ]
