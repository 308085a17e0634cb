"""The entity: owns sensitive data; its votes and ballots leave it noised and in shares."""

import warnings
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final, cast, final

import msgspec
import numpy as np
import numpy.typing as npt

from tutelage._internal.releases import on_one_day
from tutelage._internal.typing import IntArray
from tutelage._internal.warned import warn
from tutelage.ballots import BallotSum
from tutelage.boundary import BatchBoundary
from tutelage.digests import canonical
from tutelage.events import Event, NoisySumGaussian, Repeated, SummedNoise
from tutelage.exceptions import (
    FederationError,
    InvalidBallotError,
    InvalidDataError,
    PreflightWarning,
    StaleBatchError,
)
from tutelage.ledger import Ledger
from tutelage.ledger.account import Reservation
from tutelage.ledger.beginning import Whom
from tutelage.noise import NoiseSource
from tutelage.partition import Shards, as_column, canonical_ids
from tutelage.people.memory import PeopleInMemory
from tutelage.preflight import Sight, warnings_of_columns
from tutelage.privacy import NeighboringRelation
from tutelage.tables import Table, as_table
from tutelage_consortium.batches import Batch
from tutelage_consortium.files import require_unused_path
from tutelage_consortium.home import Home
from tutelage_consortium.keys import Member, Role, names_of
from tutelage_consortium.mailbox import Mailbox, batch_status
from tutelage_consortium.messages import Header, Kind, seal, sealed_by
from tutelage_consortium.sums import Round, SharedSums, Sums

_VOTES, _KEYS = "votes", "keys.json"  # with the keys that the shares were first made for
_OF_PEOPLE = (
    NeighboringRelation.ADD_REMOVE_OR_CHANGE_ONE_ENTITY,
    NeighboringRelation.ADD_REMOVE_OR_CHANGE_WITHIN_SILO,
)


@final
class Entity:
    """An owner of data: answers batches of public queries as long as its own budget allows.

    Privacy: each entity adds its share of the noise before it splits its votes, so that nothing unnoised ever
    exists outside. The batch is spent from the entity's own ledger before any noise is drawn, and what was made for a
    batch is stored before it leaves: asked again, the same bytes leave again, never fresh noise.

    Parameters
    ----------
    home : Home
        The folder of an entity of a consortium.
    ledger : Ledger
        The budget of this entity's own data, of the unit that the terms protect. One that belongs to another member is
        refused (`LedgerMismatchError`).
    """

    def __init__(self, home: Home, ledger: Ledger) -> None:
        self._home = home
        self._member = home.member
        self.consortium: Final = home.consortium_as(Role.ENTITY)
        self._boundary = self.consortium.boundary(ledger, self._member)
        self._recipients: Final = self.consortium.computing_parties

    @on_one_day()
    def vote(self, batch: Batch, ballots: npt.ArrayLike, mailbox: Mailbox) -> bool:
        """Send the noised votes on a batch, in sealed shares; return whether they were made before and are sent again.

        Ballots given again are not used. A refusal spends nothing. A batch that was voted on, and whose envelopes are
        lost, is refused: fresh noise would be a second release.

        Parameters
        ----------
        batch : Batch
            The aggregator's queries.
        ballots : integer array of shape (teachers, queries)
            Class index per teacher of this entity and query, or −1 for an abstention; private.
        mailbox : Mailbox
            Folder that receives the envelopes after they are stored and their budget is spent.
        """
        votes = self.consortium.scheme
        if isinstance(votes, SharedSums):
            raise FederationError(
                "The terms are about sums of ballots. Use `cast` with the private rows."
            )
        self._require_current(batch)
        self.consortium.require_size(batch.n_queries)
        return self._answer(
            batch, mailbox, votes.check_ballots(ballots, batch.n_queries), votes.event_of(), None
        )

    @on_one_day()
    def cast(
        self,
        batch: Batch,
        X: Any,
        y: npt.ArrayLike,
        mailbox: Mailbox,
        *,
        entity_ids: npt.ArrayLike | None = None,
    ) -> bool:
        """Send the noised sum of this entity's ballots in one round, in sealed shares; return as `vote` does.

        A refusal spends nothing, for the same reasons as in `vote`, and the budget must allow this round and
        all rounds that are left. Before anything is spent, `PreflightWarning` tells the owner alone of columns that
        seem to be in other units or codes than the schema. Rows of people who withdrew are left out.

        Parameters
        ----------
        batch : Batch
            The round, as the aggregator announced it.
        X : table
            Private rows, with the named columns of the schema of the terms.
        y : integer array of shape (rows,)
            Class index of each row.
        mailbox : Mailbox
            Folder that receives the envelopes after they are stored and their budget is spent.
        entity_ids : array of shape (rows,), optional
            Whose row it is. It must be given where the terms protect people, and left out where they protect rows.
        """
        sums = self.consortium.sums()
        self._require_current(batch)
        self.consortium.require_size(1)
        asked = sums.round_of(batch)
        if self._member.name not in asked.opened.people:
            raise StaleBatchError(
                f"Release {asked.opened.release!r} was begun before {self._member.name} was a member. Nothing was "
                "spent. Take part in the next release."
            )
        self._home.require_known(asked.opened.people, asked.opened.steps)
        stay = None
        whom = None
        if entity_ids is not None:
            people = canonical_ids(entity_ids).tolist()
            stay, gone = self._boundary.ledger.register.not_withdrawn(people)
            whom = Whom.by_ids(people, gone)
        totals = ballots_of(sums, asked, X, y, entity_ids, stay).totals
        # Neither a warning nor a failure to find one may keep an answer back: that would tell the aggregator of a row.
        with suppress(Exception), warnings.catch_warnings():
            warnings.simplefilter("always", PreflightWarning)
            sight = sight_of(sums, X, np.asarray(y), entity_ids)
            for told in (*warnings_of_columns(sight), *sight.read_off()):
                warn(told, PreflightWarning)
        name = self._member.name
        ballots = totals * asked.opened.steps_of(name)
        return self._answer(
            batch, mailbox, ballots, sums.event_from(asked.number, name, asked.opened), whom
        )

    def _answer(
        self, batch: Batch, mailbox: Mailbox, ballots: IntArray, rest: Event, whom: Whom | None
    ) -> bool:
        """Pay for a batch once, store what is sent before it leaves, and send it; people of votes are not known."""
        name = f"{batch.identifier}-{batch.query_hash[:32]}"
        recipients = names_of(self._recipients)
        keys = canonical({member.name: member.sealing_key for member in self._recipients}).encode()
        # A withdrawal comes before the noise, or after it is stored.
        with self._boundary.turn(whom) as boundary:
            stored = self._home.read_kept(_VOTES, name, [*recipients, _KEYS])
            repeated = stored is not None
            reservation = self._reservation_of(
                boundary,
                batch,
                mailbox,
                rest,
            )
            if stored is None:
                if boundary.is_settled(batch):
                    raise StaleBatchError(
                        f"Batch {batch.identifier} was voted on before, and its shares are gone from {_VOTES}/. "
                        "Restore them; new ones would hold fresh noise, which is another release."
                    )
                asked = self.consortium.scheme.event_of(batch, self._member.name)
                if not _covers(reservation.event, asked):
                    raise StaleBatchError(
                        f"Batch {batch.identifier} was paid for as another sum than is asked for now, because the "
                        "program or the file of the method changed. Nothing was sent. Ask for a new release."
                    )

                def make_payloads(noise: NoiseSource) -> dict[str, bytes]:
                    payloads = self.consortium.scheme.payloads(ballots, reservation.event, noise)
                    return {**dict(zip(recipients, payloads, strict=True)), _KEYS: keys}

                store_first = partial(self._home.keep, _VOTES, name)
                stored, repeated = boundary.draw_once(
                    batch, reservation, make_payloads, store_first
                )
            boundary.settle_once(reservation, {}, Repeated(reservation.event, reservation.queries))
        before = msgspec.json.decode(stored[_KEYS], type=dict[str, str])
        if sum(before[member.name] != member.sealing_key for member in self._recipients) > 1:
            raise StaleBatchError(
                f"Batch {batch.identifier} was made for computing parties of which two or more have other keys now. "
                "Its shares are not sent to them: new parties could open what this hospital alone sent. Ask for a new "
                "release."
            )
        for member in self._recipients:
            self._send(batch, mailbox, member, stored[member.name])
        return repeated

    def _send(self, batch: Batch, mailbox: Mailbox, recipient: Member, payload: bytes) -> None:
        """Seal what was stored, unless it lies in the mailbox: what is sealed again has other bytes."""
        header = Header.of(
            self.consortium,
            batch,
            Kind.SHARES,
            self._member.name,
            recipient.name,
        )
        slot = mailbox.answer(batch, self._member, recipient)
        there = slot.envelope()
        if there is None:
            envelope = seal(self._home.identity, recipient, header, payload)
            try:
                slot.put(envelope)
                return
            except InvalidDataError:
                there = slot.envelope()
                if there is None:
                    raise
        sealed_by(self._member, header, there)  # by another process of this member

    def _require_current(self, batch: Batch) -> None:
        if batch.consortium != self.consortium.fingerprint:
            raise StaleBatchError(
                f"Batch {batch.identifier} is not for {self.consortium.name!r} in its present form."
            )

    def _reservation_of(
        self, boundary: BatchBoundary, batch: Batch, mailbox: Mailbox, rest: Event
    ) -> Reservation:
        """Return the one reservation for this batch: an earlier one, or a new one.

        Before anything is spent, votes that cannot be used or sent are refused, or if the budget does not allow the
        `rest` for each query: of a sum, all rounds from this one on.
        """
        known = boundary.reservation_of(batch)
        if known is not None:
            return known
        # The parties fixed whose votes count.
        computed = batch_status(self.consortium, mailbox, batch).computed
        if computed:
            raise StaleBatchError(
                f"Batch {batch.identifier} was computed already, without {self._member.name}: {', '.join(computed)} "
                "sent labels of it, and a batch is never computed with other votes. Nothing was spent. Vote on the "
                "next batch."
            )
        for party in self._recipients:
            require_unused_path(mailbox.answer(batch, self._member, party).path)
        boundary.account.require_room(rest, batch.n_queries)
        event = self.consortium.scheme.event_of(batch, self._member.name)
        return boundary.reserve_once(batch, event)


def _covers(reserved: Event, asked: Event) -> bool:
    """Return whether the event reserved is the event asked for, or has more noise."""
    if reserved == asked:
        return True
    if not isinstance(reserved, SummedNoise) or not isinstance(asked, SummedNoise):
        return False
    given = reserved.event
    wanted = asked.event
    if not isinstance(given, NoisySumGaussian) or not isinstance(wanted, NoisySumGaussian):
        return False
    is_alike = reserved.shares == asked.shares and replace(wanted, sigma=given.sigma) == given
    return is_alike and given.sigma >= wanted.sigma


def ballots_of(
    sums: Sums,
    asked: Round,
    X: Any,
    y: npt.ArrayLike,
    entity_ids: npt.ArrayLike | None,
    stay: npt.NDArray[np.bool_] | None = None,
) -> BallotSum:
    """Return the private sum of one entity's ballots for one round, as `Entity.cast` says, from rows that `stay`."""
    n_classes = sums.terms.n_classes
    unit = sums.terms.unit
    labels = np.asarray(y)
    if as_table(X, sums.schema.names) is None:
        raise InvalidDataError(
            "`X` must have named columns, those of the schema of the terms. Pass a table or a dict."
        )
    ids = None if entity_ids is None else canonical_ids(entity_ids)
    rows = sums.schema.transform(sums.schema.table(X, ids))
    if len(rows) == 0 or labels.shape != (len(rows),):
        raise InvalidDataError(
            f"`X` must be private rows of shape (rows, columns), and `y` one class index for each. Got shapes "
            f"{rows.shape} and {labels.shape}."
        )
    if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= n_classes:
        raise InvalidDataError(f"`y` must hold class indices, integers from 0 to {n_classes - 1}.")
    if entity_ids is not None and unit.neighboring is NeighboringRelation.CHANGE_ONE_ROW:
        raise InvalidDataError(
            "`entity_ids` must be left out: the terms protect the contents of one row."
        )
    if entity_ids is None and unit.neighboring in _OF_PEOPLE:
        raise InvalidDataError(
            f"`entity_ids` must say whose row it is: the terms protect one {unit.name}."
        )
    if entity_ids is not None and len(np.asarray(entity_ids)) != len(rows):
        raise InvalidDataError(f"`entity_ids` must hold one id for each of the {len(rows)} rows.")
    people = Shards.of_single_people(len(rows), entity_ids, name=unit.name)
    if stay is not None:
        rows = rows[stay]
        labels = labels[stay]
        people = people.of_some(stay)
    # From here on nothing may fail because of a row: whether a hospital answers would tell the aggregator of it.
    cast_by = sums.method.prepare(sums.public(1), PeopleInMemory(rows, labels, people))
    places = np.zeros(1, dtype=np.int64)
    ballots = cast("BallotSum", asked.request.ballot.cast(cast_by, asked.request, places))
    if not asked.request.form.holds(ballots.form):
        raise InvalidBallotError("The ballots do not have the form that the request asks for.")
    return ballots


def sight_of(sums: Sums, X: Any, y: IntArray, entity_ids: npt.ArrayLike | None) -> Sight:
    """Return what the owner of rows is warned about, beside the schema."""
    nobody = np.empty((0, 0))
    table = cast("Table", as_table(X, sums.schema.columns))
    ids = None if entity_ids is None else as_column(entity_ids)
    return Sight(
        private=nobody,
        public=nobody,
        numbers=(),
        columns=table.columns,
        labels=y,
        n_classes=sums.terms.n_classes,
        entity_ids=ids,
        schema=sums.schema,
        declared=((sums.schema, table),),
    )
