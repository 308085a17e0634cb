"""The entity: owns sensitive data; its teachers' votes leave it noised, and in shares or perturbed one by one."""

import secrets
from collections.abc import Callable
from typing import NamedTuple, cast, final

import numpy as np
import numpy.typing as npt

from tutelage._internal.days import on_one_day
from tutelage._internal.typing import ABSTAIN, Ballots, IntArray, Matrix
from tutelage.ballots import BallotSum
from tutelage.events import Event, Repeated, SummedNoise
from tutelage.exceptions import FederationError, InvalidDataError, StaleBatchError
from tutelage.federation import charges
from tutelage.federation.batches import Batch, write_reports
from tutelage.federation.casting import ballots_of
from tutelage.federation.consortium import Consortium, terms_of_sum
from tutelage.federation.costs import (
    SharedMechanism,
    event_of_query,
    event_of_rounds,
    require_size,
    share_sigmas,
)
from tutelage.federation.envelopes import Header, Kind, seal
from tutelage.federation.home import Home
from tutelage.federation.keys import Role
from tutelage.federation.mailbox import Mailbox, batch_status
from tutelage.federation.sharing import SALT_BYTES, SPLIT_NAME_BYTES, split
from tutelage.federation.sums import SumRound
from tutelage.ledger import Ledger
from tutelage.ledger.ledger import Reservation
from tutelage.mechanisms.local import LocalMechanism
from tutelage.noise import SystemNoise
from tutelage.votes import tally

_VOTES = "votes"


class Vote(NamedTuple):
    """Messages that an entity sends for one batch.

    Parameters
    ----------
    envelopes : dict of str to bytes
        Signed and sealed, by the recipient's name.
    queries : int
        Number of queries that were answered and spent; the first ones of the batch.
    repeated : bool
        Whether they were made before, and the same ones were sent again; ballots given now were not used.
    """

    envelopes: dict[str, bytes]
    queries: int
    repeated: bool


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
        self._consortium = home.consortium_as(Role.ENTITY)
        self._consortium.require_unit(ledger)
        charges.require_own(ledger, self._consortium, self._member, keys_changed=keys_changed)

    @property
    def consortium(self) -> Consortium:
        """The terms it votes under."""
        return self._consortium

    def bind(self, digest: bytes, *, changed: bool = False) -> None:
        """Tie this entity's ledger to its data, or check that it is still tied to them.

        A shard whose rows changed is trained again. The budget spent on its earlier and present people stays spent.

        Parameters
        ----------
        digest : bytes
            Of the private rows, `tutelage.ledger.data_digest` or a hash of their file; only a keyed hash of it is kept.
        changed : bool
            The data have changed (people came or left) and are still those of this budget. Without this, other data
            are refused (`LedgerMismatchError`).
        """
        self._ledger.bind(digest, changed=changed)

    @on_one_day()
    def vote(self, batch: Batch, ballots: npt.ArrayLike, mailbox: Mailbox) -> Vote:
        """Send sealed votes on a batch: noised and in shares, or perturbed one by one; the same ones if asked again.

        Parameters
        ----------
        batch : Batch
            The aggregator's queries.
        ballots : integer array of shape (teachers, queries)
            Class index per teacher of this entity and query, or −1 for an abstention; private. One row in the local
            model, without abstentions.
        mailbox : Mailbox
            Folder that receives the envelopes after they are stored and their budget is spent.

        Raises
        ------
        BudgetExceededError
            If the entity's own budget does not allow it: for the whole batch in the secure model, for one more query in
            the local one. Nothing was spent.
        InvalidDataError
            If the ballots do not fit the batch and the consortium's terms, or the mailbox cannot take the votes.
            Nothing was spent.
        StaleBatchError
            If the batch was computed without this entity, or is another consortium's: nothing was spent. If it was
            voted on already and what was sent is lost: fresh noise would be a second release.
        """
        checked = self._checked(batch, ballots)
        return self._answer(batch, mailbox, lambda paid: self._payloads(checked, paid.queries))

    @on_one_day()
    def cast(
        self,
        batch: Batch,
        X: Matrix,
        y: npt.ArrayLike,
        mailbox: Mailbox,
        *,
        entity_ids: npt.ArrayLike | None = None,
    ) -> Vote:
        """Send the sum of this entity's ballots in one round, noised and in shares; the same again if asked again.

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

        Raises
        ------
        BudgetExceededError
            If the entity's own budget does not allow this round and all rounds that are left. Nothing was spent.
        FederationError
            If the terms are about votes. Nothing was spent.
        InvalidDataError
            If the rows do not fit the round, or the mailbox cannot take the ballots. Nothing was spent.
        ForgedMessageError
            If the batch holds no round that fits the terms. Nothing was spent.
        StaleBatchError
            As for `vote`.
        """
        terms = self._consortium
        terms_of_sum(terms)
        self._require_current(batch)
        asked = SumRound.of(batch, terms)
        ballots = ballots_of(terms, asked, X, y, entity_ids)
        room = event_of_rounds(terms, asked.number)
        return self._answer(
            batch, mailbox, lambda paid: _shares_of_sum(ballots, cast("SummedNoise", paid.event)), room=room
        )

    def _answer(
        self,
        batch: Batch,
        mailbox: Mailbox,
        payloads: Callable[[Reservation], list[bytes]],
        *,
        room: Event | None = None,
    ) -> Vote:
        """Pay for a batch once, store what is sent for it before it leaves, and send it.

        The budget must have `room` for the whole that this is a part of.
        """
        name, recipients = f"{batch.identifier}-{batch.query_hash[:32]}", self._recipients()
        stored = self._home.kept(_VOTES, name, recipients)
        repeated = stored is not None
        if stored is None:
            reservation = self._reserved(batch, mailbox, room)
            if self._ledger.is_settled(reservation):
                raise StaleBatchError(
                    f"Batch {batch.identifier} was voted on before, and its envelopes are gone from {_VOTES}/. Restore "
                    "them; new ones would hold fresh noise, which is another release."
                )
            made = self._sealed(batch, payloads(reservation))
            stored = self._home.keep(_VOTES, name, made)
            repeated = stored != made  # another process was faster
        reservation = self._reserved(batch, mailbox, room)
        if not self._ledger.is_settled(reservation):
            self._ledger.settle(reservation, {}, Repeated(reservation.event, reservation.queries))
        for recipient, envelope in stored.items():
            if self._consortium.is_local:
                mailbox.put_ballots(batch, self._member.name, envelope)
            else:
                mailbox.put_shares(batch, self._member.name, recipient, envelope)
        return Vote(stored, reservation.queries, repeated)

    def _require_current(self, batch: Batch) -> None:
        if batch.consortium != self._consortium.fingerprint:
            raise StaleBatchError(f"Batch {batch.identifier} is not for {self._consortium.name!r} in its present form.")

    def _checked(self, batch: Batch, ballots: npt.ArrayLike) -> IntArray:
        if self._consortium.is_sum:
            raise FederationError("The terms are about sums of ballots. Use `cast` with the private rows.")
        self._require_current(batch)
        require_size(self._consortium, batch.n_queries)
        found = np.asarray(ballots)
        most = self._consortium.teachers_per_entity
        if found.ndim != 2 or not np.issubdtype(found.dtype, np.integer) or found.shape[1] != batch.n_queries:
            raise InvalidDataError(
                f"`ballots` must be whole numbers of shape (teachers, {batch.n_queries}), one column per query of the "
                f"batch. Got {found.dtype} of shape {found.shape}."
            )
        if not 1 <= len(found) <= most:
            teachers = "one teacher" if most == 1 else f"1 to {most} teachers"
            raise InvalidDataError(f"`ballots` must be of {teachers}, as the consortium's terms say. Got {len(found)}.")
        if found.min(initial=0) < ABSTAIN or found.max(initial=0) >= self._consortium.n_classes:
            raise InvalidDataError(f"A ballot must be {ABSTAIN} or a class index below {self._consortium.n_classes}.")
        if self._consortium.is_local and np.any(found == ABSTAIN):
            raise InvalidDataError("No ballot may abstain in the local model: silence is not perturbed, and tells.")
        return found.astype(np.int64)

    def _recipients(self) -> tuple[str, ...]:
        terms = self._consortium
        return tuple(member.name for member in ((terms.aggregator,) if terms.is_local else terms.computing_parties))

    def _reserved(self, batch: Batch, mailbox: Mailbox, room: Event | None) -> Reservation:
        """Return the one reservation for this batch: an earlier one, or a new one for as many queries as fit."""
        known = charges.reserved(self._ledger, self._consortium, batch, self._member)
        if known is not None:
            return known
        self._require_in_time(batch, mailbox)
        if room is not None:
            self._ledger.require(room, 1)
        queries = batch.n_queries
        if self._consortium.is_local:  # each answered query counts by itself; the first ones, whatever the ballots say
            queries = min(queries, max(1, self._ledger.fitting(event_of_query(self._consortium))))
        return charges.reserve(self._ledger, self._consortium, batch, self._member, queries)

    def _require_in_time(self, batch: Batch, mailbox: Mailbox) -> None:
        """Refuse, before anything is spent, votes that cannot be used or sent."""
        computed = batch_status(self._consortium, mailbox, batch).computed
        if computed:  # a party that signed labels has fixed, with the two others, whose votes are in them
            raise StaleBatchError(
                f"Batch {batch.identifier} was computed already, without {self._member.name}: {', '.join(computed)} "
                "sent labels of it, and a batch is never computed with other votes. Nothing was spent. Vote on the "
                "next batch."
            )
        parties = [] if self._consortium.is_local else self._recipients()
        mailbox.require_room_for_answer(batch, self._member.name, parties)

    def _sealed(self, batch: Batch, payloads: list[bytes]) -> dict[str, bytes]:
        terms = self._consortium
        kind = Kind.BALLOTS if terms.is_local else Kind.SHARES
        return {
            recipient: seal(
                self._home.identity,
                terms.member(recipient),
                Header.of(terms, batch, kind, self._member.name, recipient),
                payload,
            )
            for recipient, payload in zip(self._recipients(), payloads, strict=True)
        }

    def _payloads(self, ballots: IntArray, queries: int) -> list[bytes]:
        """Return what each recipient gets of votes."""
        mechanism = self._consortium.mechanism
        if isinstance(mechanism, LocalMechanism):
            reports = mechanism.perturb(ballots[:, :queries], self._consortium.n_classes, SystemNoise())
            return [write_reports(reports[0])]
        return self._shares(cast("SharedMechanism", mechanism), ballots)

    def _shares(self, mechanism: SharedMechanism, ballots: IntArray) -> list[bytes]:
        """Return one party's payload each: a name, random bytes, then its shares of every block."""
        terms, noise = self._consortium, SystemNoise()
        counts = tally(cast("Ballots", ballots), terms.n_classes, terms.unit).counts
        vote, *check = share_sigmas(mechanism, terms.honest)
        blocks = [counts + noise.discrete_gaussian(vote, counts.shape)]
        # One draw per query, the same for every class: the check compares the largest count plus one noise.
        blocks += [counts + noise.discrete_gaussian(sigma, (len(counts), 1)) for sigma in check]
        return _named(split(np.stack(blocks)))


def _shares_of_sum(ballots: BallotSum, paid: SummedNoise) -> list[bytes]:
    """Return one party's payload each, of the sum and this entity's share of the noise on each of its numbers."""
    noise = SystemNoise().discrete_gaussian(paid.sigma_of_share, ballots.totals.shape)
    return _named(split(ballots.totals + noise, summed=True))


def _named(shares: tuple[bytes, bytes, bytes]) -> list[bytes]:
    """Return the shares of one splitting, each after the name of the splitting and random bytes of its own."""
    name = secrets.token_bytes(SPLIT_NAME_BYTES)
    return [name + secrets.token_bytes(SALT_BYTES) + share for share in shares]
