"""The entity: owns sensitive data; its teachers' votes leave it noised, and in shares or perturbed one by one."""

import secrets
from collections.abc import Callable
from typing import Any, Final, NamedTuple, cast, final

import numpy as np
import numpy.typing as npt

from tutelage._internal.releases import on_one_day
from tutelage._internal.typing import ABSTAIN, Ballots, FloatArray, IntArray, Matrix
from tutelage.ballots import BallotSum
from tutelage.events import Event, Repeated, SummedNoise
from tutelage.exceptions import FederationError, InvalidDataError, StaleBatchError
from tutelage.features.base import features_of_private, require_public_map
from tutelage.features.rowwise import finite_rows, number_rows
from tutelage.federation import charges
from tutelage.federation.batches import Batch, write_reports
from tutelage.federation.consortium import Consortium, terms_of_sum
from tutelage.federation.costs import SharedMechanism, event_of_query, event_of_rounds, require_size, share_sigmas
from tutelage.federation.keys import Role
from tutelage.federation.mailbox import Header, Home, Kind, Mailbox, batch_status, seal
from tutelage.federation.sharing import SALT_BYTES, SPLIT_NAME_BYTES, split
from tutelage.federation.sums import SumRound
from tutelage.ledger import Ledger
from tutelage.ledger.ledger import Reservation
from tutelage.mechanisms.local import LocalMechanism
from tutelage.noise import SystemNoise
from tutelage.partition import Shards
from tutelage.privacy import NeighboringRelation
from tutelage.teachers.blocks import PeopleBlock, blocks_of
from tutelage.votes import tally

_VOTES = "votes"
_LARGEST = 1e100  # far beyond what an accepted map gives
_OF_PEOPLE = (NeighboringRelation.ADD_REMOVE_OR_CHANGE_ONE_ENTITY, NeighboringRelation.ADD_REMOVE_OR_CHANGE_WITHIN_SILO)


class Vote(NamedTuple):
    """Messages that an entity sends for one batch."""

    envelopes: dict[str, bytes]  # signed and sealed, by the recipient's name
    queries: int  # that were answered and spent; the first ones of the batch
    repeated: bool  # whether they were made before and are sent again; ballots given now were not used


@final
class Entity:
    """An owner of data: answers batches of public queries as long as its own budget allows.

    Privacy: in the secure model each entity adds its share of the noise before it splits its votes, so
    that nothing unnoised ever exists outside; in the local model each ballot is perturbed by itself. The batch is spent
    from the entity's own ledger before any noise is drawn, and what was made for a batch is stored before it leaves:
    asked again, the same bytes leave again, never fresh noise.

    Parameters
    ----------
    home : Home
        The folder of an entity of a consortium.
    ledger : Ledger
        The budget of this entity's own data, of the unit that the terms protect. One that belongs to another member is
        refused (`LedgerMismatchError`).
    keys_changed : bool
        The ledger is this entity's own and was used with earlier keys of it.
    """

    def __init__(self, home: Home, ledger: Ledger, *, keys_changed: bool = False) -> None:
        self._home, self._ledger, self._member = home, ledger, home.identity.member
        terms = home.consortium_as(Role.ENTITY)
        self.consortium: Final = terms
        terms.require_unit(ledger)
        charges.require_own(ledger, terms, self._member, keys_changed=keys_changed)
        # Where the answers go: each computing party's name and member, or the aggregator's under None.
        parties = [(party.name, party) for party in terms.computing_parties]
        self._recipients = parties or [(None, terms.aggregator)]

    def bind(self, digest: bytes, *, changed: bool = False) -> None:
        """Tie this entity's ledger to its data, or check that it is still tied to them.

        `digest` is of the private rows, `tutelage.ledger.digests.data_digest` or a hash of their file; only a keyed
        hash of it is kept. Other data are refused (`LedgerMismatchError`), unless they are said to have `changed`:
        people came or left. The budget spent on earlier and present people stays spent.
        """
        self._ledger.bind(digest, changed=changed)

    @on_one_day()
    def vote(self, batch: Batch, ballots: npt.ArrayLike, mailbox: Mailbox) -> Vote:
        """Send sealed votes on a batch: noised and in shares, or perturbed one by one; the same ones if asked again.

        A refusal spends nothing. A batch that was voted on, and whose envelopes are lost, is refused: fresh
        noise would be a second release.

        Parameters
        ----------
        batch : Batch
            The aggregator's queries.
        ballots : integer array of shape (teachers, queries)
            Class index per teacher of this entity and query, or −1 for an abstention; private. One row in the local
            model, without abstentions.
        mailbox : Mailbox
            Folder that receives the envelopes after they are stored and their budget is spent.
        """
        terms = self.consortium
        if terms.is_sum:
            raise FederationError("The terms are about sums of ballots. Use `cast` with the private rows.")
        self._require_current(batch)
        require_size(terms, batch.n_queries)
        votes = _checked(terms, batch.n_queries, np.asarray(ballots))
        mechanism = terms.mechanism

        def payloads(paid: Reservation) -> list[bytes]:
            if isinstance(mechanism, LocalMechanism):
                reports = mechanism.perturb(votes[:, : paid.queries], terms.n_classes, SystemNoise())
                return [write_reports(reports[0])]
            return _shares_of_votes(terms, votes)

        return self._answer(batch, mailbox, payloads)

    @on_one_day()
    def cast(
        self, batch: Batch, X: Matrix, y: npt.ArrayLike, mailbox: Mailbox, *, entity_ids: npt.ArrayLike | None = None
    ) -> Vote:
        """Send the sum of this entity's ballots in one round, noised and in shares; the same again if asked again.

        A refusal spends nothing, for the same reasons as in `vote`, and the budget must allow this round and
        all rounds that are left.

        Parameters
        ----------
        batch : Batch
            The round, as the aggregator announced it.
        X : array of shape (rows, columns)
            Private rows, in the columns of the public ones.
        y : integer array of shape (rows,)
            Class index of each row.
        mailbox : Mailbox
            Folder that receives the envelopes after they are stored and their budget is spent.
        entity_ids : array of shape (rows,), optional
            Whose row it is. It must be given where the terms protect people, and left out where they protect rows.
        """
        terms_of_sum(self.consortium)
        self._require_current(batch)
        asked = SumRound.of(batch, self.consortium)
        ballots = ballots_of(self.consortium, asked, X, y, entity_ids)

        def payloads(paid: Reservation) -> list[bytes]:
            sigma = cast("SummedNoise", paid.event).sigma_of_share
            noise = SystemNoise().discrete_gaussian(sigma, ballots.totals.shape)
            return _named(split(ballots.totals + noise, summed=True))

        return self._answer(batch, mailbox, payloads, room=event_of_rounds(self.consortium, asked.number))

    def _answer(
        self,
        batch: Batch,
        mailbox: Mailbox,
        payloads: Callable[[Reservation], list[bytes]],
        *,
        room: Event | None = None,
    ) -> Vote:
        """Pay for a batch once if there is `room` for the whole, store what is sent before it leaves, and send it."""
        name = f"{batch.identifier}-{batch.query_hash[:32]}"
        stored = self._home.kept(_VOTES, name, [member.name for _, member in self._recipients])
        repeated = stored is not None
        if stored is None:
            reservation = self._reserved(batch, mailbox, room)
            if self._ledger.is_settled(reservation):
                raise StaleBatchError(
                    f"Batch {batch.identifier} was voted on before, and its envelopes are gone from {_VOTES}/. Restore "
                    "them; new ones would hold fresh noise, which is another release."
                )
            made, kind = {}, Kind.BALLOTS if self.consortium.is_local else Kind.SHARES
            for (_, member), payload in zip(self._recipients, payloads(reservation), strict=True):
                header = Header.of(self.consortium, batch, kind, self._member.name, member.name)
                made[member.name] = seal(self._home.identity, member, header, payload)
            stored = self._home.keep(_VOTES, name, made)
            repeated = stored != made  # another process was faster
        reservation = self._reserved(batch, mailbox, room)
        if not self._ledger.is_settled(reservation):
            self._ledger.settle(reservation, {}, Repeated(reservation.event, reservation.queries))
        for party, member in self._recipients:
            mailbox.put_answer(batch, self._member.name, party, stored[member.name])
        return Vote(stored, reservation.queries, repeated)

    def _require_current(self, batch: Batch) -> None:
        if batch.consortium != self.consortium.fingerprint:
            raise StaleBatchError(f"Batch {batch.identifier} is not for {self.consortium.name!r} in its present form.")

    def _reserved(self, batch: Batch, mailbox: Mailbox, room: Event | None) -> Reservation:
        """Return the one reservation for this batch: an earlier one, or a new one for as many queries as fit.

        Before anything is spent, votes that cannot be used or sent are refused.
        """
        known = charges.reserved(self._ledger, self.consortium, batch, self._member)
        if known is not None:
            return known
        computed = batch_status(self.consortium, mailbox, batch).computed
        if computed:  # a party that signed labels has fixed, with the two others, whose votes are in them
            raise StaleBatchError(
                f"Batch {batch.identifier} was computed already, without {self._member.name}: {', '.join(computed)} "
                "sent labels of it, and a batch is never computed with other votes. Nothing was spent. Vote on the "
                "next batch."
            )
        mailbox.require_room(batch, self._member.name, [party for party, _ in self._recipients])
        if room is not None:
            self._ledger.require(room, 1)
        queries = batch.n_queries
        if self.consortium.is_local:  # each answered query counts by itself; the first ones, whatever the ballots say
            queries = min(queries, max(1, self._ledger.fitting(event_of_query(self.consortium))))
        return charges.reserve(self._ledger, self.consortium, batch, self._member, queries)


def _checked(terms: Consortium, queries: int, ballots: npt.NDArray[Any]) -> IntArray:
    most = terms.teachers_per_entity
    if ballots.ndim != 2 or not np.issubdtype(ballots.dtype, np.integer) or ballots.shape[1] != queries:
        raise InvalidDataError(
            f"`ballots` must be whole numbers of shape (teachers, {queries}), one column per query of the "
            f"batch. Got {ballots.dtype} of shape {ballots.shape}."
        )
    if not 1 <= len(ballots) <= most:
        teachers = "one teacher" if most == 1 else f"1 to {most} teachers"
        raise InvalidDataError(f"`ballots` must be of {teachers}, as the consortium's terms say. Got {len(ballots)}.")
    if ballots.min(initial=0) < ABSTAIN or ballots.max(initial=0) >= terms.n_classes:
        raise InvalidDataError(f"A ballot must be {ABSTAIN} or a class index below {terms.n_classes}.")
    if terms.is_local and np.any(ballots == ABSTAIN):
        raise InvalidDataError(
            "No ballot may abstain in the local model: an abstention gets no noise, so it would reveal the vote."
        )
    return ballots.astype(np.int64)


def _shares_of_votes(terms: Consortium, ballots: IntArray) -> list[bytes]:
    counts, noise = tally(cast("Ballots", ballots), terms.n_classes, terms.unit).counts, SystemNoise()
    vote, *check = share_sigmas(cast("SharedMechanism", terms.mechanism), terms.honest)
    blocks = [counts + noise.discrete_gaussian(vote, counts.shape)]
    # One draw per query, the same for every class: the check compares the largest count plus one noise.
    blocks += [counts + noise.discrete_gaussian(sigma, (len(counts), 1)) for sigma in check]
    return _named(split(np.stack(blocks)))


def _named(shares: tuple[bytes, bytes, bytes]) -> list[bytes]:
    """Return the shares of one splitting, each after the name of the splitting and random bytes of its own."""
    name = secrets.token_bytes(SPLIT_NAME_BYTES)
    return [name + secrets.token_bytes(SALT_BYTES) + share for share in shares]


def ballots_of(
    consortium: Consortium, asked: SumRound, X: Matrix, y: npt.ArrayLike, entity_ids: npt.ArrayLike | None
) -> BallotSum:
    """Return the private sum of the ballots of one entity's people for one round, as `Entity.cast` describes them."""
    _, teacher = terms_of_sum(consortium)
    rows, labels = np.asarray(X), np.asarray(y)
    if rows.ndim != 2 or len(rows) == 0 or labels.shape != (len(rows),):
        raise InvalidDataError(
            f"`X` must be private rows of shape (rows, columns), and `y` one class index for each. Got shapes "
            f"{rows.shape} and {labels.shape}."
        )
    if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= consortium.n_classes:
        raise InvalidDataError(f"`y` must hold class indices, integers from 0 to {consortium.n_classes - 1}.")
    relation, unit = consortium.unit.neighboring, consortium.unit.name
    if entity_ids is not None and relation is NeighboringRelation.CHANGE_ONE_ROW:
        raise InvalidDataError("`entity_ids` must be left out: the terms protect the contents of one row.")
    if entity_ids is None and relation in _OF_PEOPLE:
        raise InvalidDataError(f"`entity_ids` must say whose row it is: the terms protect one {unit}.")
    if entity_ids is not None and len(np.asarray(entity_ids)) != len(rows):
        raise InvalidDataError(f"`entity_ids` must hold one id for each of the {len(rows)} rows.")
    people = Shards.of_single_people(len(rows), entity_ids, name=unit)
    rows = finite_rows(number_rows(rows, asked.columns, "the round").astype(np.float64), asked.columns, "the round")
    # From here on nothing may fail because of a row: whether a hospital answers would tell the aggregator of it.
    features = require_public_map(asked.features, "SumRound")

    def products_of(block: PeopleBlock) -> tuple[Matrix, Matrix]:
        each = np.arange(len(block.rows))[:, np.newaxis]
        vectors = _moderate(features_of_private(features, block.rows, each, len(asked.coef)))
        return vectors, _moderate(asked.student.residuals(vectors, block.labels))

    return teacher.cast(blocks_of(rows, labels, people.assignment), products_of, asked.radius, people.unit)


def _moderate(rows: Matrix) -> FloatArray:
    """Return rows with zeros in place of each that is not finite or too large to be multiplied."""
    return np.where((np.abs(rows) <= _LARGEST).all(axis=1, keepdims=True), rows, 0.0)
