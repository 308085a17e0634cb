"""The aggregator: asks public queries, receives labels or noisy sums, and sees no vote."""

from collections import defaultdict
from contextlib import suppress
from typing import Any, Final, NamedTuple, final

import msgspec
import numpy as np
import numpy.typing as npt

from tutelage._internal.records import Names, record_in
from tutelage._internal.typing import IntArray
from tutelage.digests import canonical
from tutelage.exceptions import (
    FederationError,
    ForgedMessageError,
    InvalidDataError,
    QuorumError,
    StaleBatchError,
)
from tutelage.ledger import Ledger
from tutelage_consortium.batches import Batch
from tutelage_consortium.files import require_unused_path
from tutelage_consortium.home import Home
from tutelage_consortium.keys import Role, names_of
from tutelage_consortium.mailbox import Mailbox, batch_status
from tutelage_consortium.messages import Header, Kind, Opened, unseal
from tutelage_consortium.sums import Round, SharedSums

_ASKED = "asked"
_BATCH = "batch"
_OPENED, _ENTITIES = "opened", "entities.json"  # where whose ballots are in a sum is kept


class Collected(NamedTuple):
    """The outcome of a batch; public."""

    labels: IntArray  # class index per query, or −1 where the mechanism abstained
    entities: Names  # whose votes are in them


class CollectedSum(NamedTuple):
    """The outcome of a round of a sum; public."""

    values: IntArray  # (classes, numbers), the noisy sum of all ballots
    entities: Names  # whose ballots are in it
    round: Round  # what follows: its `classifier` is the student so far


@final
class Aggregator:
    """The member that asks for labels: it announces signed batches.

    A batch is spent from the aggregator's ledger before it is announced, once, however often its computation is tried;
    a row that was answered is never asked again.

    Parameters
    ----------
    home : Home
        The folder of the aggregator of a consortium.
    ledger : Ledger
        The consortium's budget for everything that is ever opened, of the unit that the terms protect. One that belongs
        to another member is refused (`LedgerMismatchError`).
    """

    def __init__(self, home: Home, ledger: Ledger) -> None:
        self._home = home
        self.consortium: Final = home.consortium_as(Role.AGGREGATOR)
        self._boundary = self.consortium.boundary(ledger, home.member)

    def ask(
        self, rows: npt.ArrayLike, mailbox: Mailbox, *, new_batch: bool = False
    ) -> Batch | None:
        """Announce the rows that have no label yet as one batch, and spend its budget; return it, or None if all have.

        A refusal spends nothing. A repeated call after a crash announces the same batch.

        Parameters
        ----------
        rows : array of shape (queries, ...)
            Public rows.
        mailbox : Mailbox
            Where the announcement goes.
        new_batch : bool
            Replace a batch of the same rows that can no longer be computed: the new batch spends budget again.
        """
        if isinstance(self.consortium.scheme, SharedSums):
            raise FederationError(
                "The terms are about sums of ballots. Use `ask_sum` with the name of a release."
            )
        asked = np.asarray(rows)
        if asked.ndim == 0 or len(asked) == 0:
            raise InvalidDataError(
                f"`rows` must hold at least one public row. Got shape {asked.shape}."
            )
        # Of two processes, the second finds what the first one announced.
        with self._boundary.turn():
            return self._announce(asked, mailbox, new_batch=new_batch)

    def ask_sum(self, release: str, mailbox: Mailbox, *, new_batch: bool = False) -> Batch | None:
        """Announce the first sum of a release that is not collected yet, and spend its budget; otherwise as `ask`."""
        self.consortium.sums()
        with self._boundary.turn():
            return self._announce(release, mailbox, new_batch=new_batch)

    def final_round(self, release: str) -> Round:
        """Return what follows the last sum of a release: its `classifier` is the final student."""
        self.consortium.sums()
        earlier = self._earlier(self.consortium.scheme.drafts(release, self._boundary)[-1].name)
        if not earlier:
            raise StaleBatchError(
                f"Release {release!r} is not complete. Ask for its sums, and collect them."
            )
        return self._following(earlier[-1])

    def _announce(self, asked: Any, mailbox: Mailbox, *, new_batch: bool) -> Batch | None:
        before = None
        for draft in self.consortium.scheme.drafts(asked, self._boundary):
            earlier = self._earlier(draft.name)
            if earlier and self._boundary.is_settled(earlier[-1]):
                before = earlier[-1]
                # Again, because a process may have died before it did this.
                mailbox.put_collected(self._home.identity, before, self.consortium)
                continue
            self.consortium.require_size(draft.queries)
            if new_batch or not earlier:
                # Without room, no batch is begun.
                self._boundary.account.require_room(draft.event, draft.queries)
                row = draft.rows(before and self._following(before))
                made = Batch.make(self._home.identity, self.consortium, row).to_bytes()
                self._home.keep(_ASKED, f"{draft.name}-{len(earlier)}", {_BATCH: made})
                earlier = self._earlier(draft.name)  # with what was kept first
            batch = earlier[-1]
            if self._boundary.reservation_of(batch) is None:
                require_unused_path(mailbox.batch_path(batch.identifier, self.consortium))
                self._boundary.reserve_once(batch, self.consortium.scheme.event_of(batch))
            mailbox.put_batch(batch, self.consortium)
            return batch
        return None

    def _earlier(self, name: str) -> list[Batch]:
        """Return the batches that were asked for a draft, signed by the present keys."""
        found: list[Batch] = []
        while True:
            kept = self._home.read_kept(_ASKED, f"{name}-{len(found)}", [_BATCH])
            if kept is None:
                return found
            asked = Batch.from_bytes(kept[_BATCH], self.consortium, own=True)
            found.append(asked.signed_by(self._home.identity))

    def collect(self, batch: Batch, mailbox: Mailbox) -> Collected:
        """Return the labels of a batch, recombined from the computing parties' shares.

        If they are not complete, `QuorumError`.
        """
        if isinstance(self.consortium.scheme, SharedSums):
            raise FederationError("The terms are about sums of ballots. Use `collect_sum`.")
        found, entities = self._opened_together(batch, mailbox)
        return Collected(self._settle(batch, found, mailbox), entities)

    def collect_sum(self, batch: Batch, mailbox: Mailbox) -> CollectedSum:
        """Return the noisy sum of one round, added up from the computing parties' shares, and the student so far."""
        self.consortium.sums().round_of(batch)
        opened, entities = self._opened_together(batch, mailbox)
        self._home.keep(_OPENED, batch.identifier, {_ENTITIES: canonical(entities).encode()})
        return CollectedSum(self._settle(batch, opened, mailbox), entities, self._following(batch))

    def _following(self, batch: Batch) -> Round:
        """Return what follows a collected round."""
        kept = self._home.read_kept(_OPENED, batch.identifier, [_ENTITIES])
        if kept is None:
            raise StaleBatchError(
                f"The list of hospitals in batch {batch.identifier} is missing. Collect it again."
            )
        sums = self.consortium.sums()
        entities = msgspec.json.decode(kept[_ENTITIES], type=list[str])
        asked = sums.round_of(batch)
        return sums.round_after(asked, self._stored_outcome(batch, asked.shape), entities)

    def _opened_together(self, batch: Batch, mailbox: Mailbox) -> tuple[IntArray, Names]:
        """Return what the parties' shares of any one computation open to, and whose answers are in it."""
        terms = self.consortium
        contradiction = None
        runs = self._answers(batch, mailbox)
        parties = names_of(terms.computing_parties)
        for run, shares in runs.items():
            if len(shares) < len(parties):
                continue
            try:
                opened = terms.scheme.open_outcome([shares[party] for party in parties], batch)
            except ForgedMessageError as error:
                contradiction = error
            else:
                return opened, run.entities
        if contradiction is not None:
            raise contradiction
        computed = batch_status(terms, mailbox, batch).computed
        missing = [name for name in parties if name not in computed]
        who = "they sent labels of different computations"
        if missing:
            who = f"{', '.join(missing)} sent none"
        raise QuorumError(
            "The labels of this batch are not complete: all computing parties must send labels of one computation, but "
            f"{who}. Let {', '.join(parties)} run `tutelage consortium serve` at the same time."
        )

    def _answers(self, batch: Batch, mailbox: Mailbox) -> dict[Opened, dict[str, bytes]]:
        """Return the share of each party for each computation, where it can be opened."""
        me = self._home.identity
        found = defaultdict[Opened, dict[str, bytes]](dict)
        for party in self.consortium.computing_parties:
            header = Header.of(self.consortium, batch, Kind.LABELS, party.name, me.member.name)
            for _, envelope in mailbox.labels(batch, party, me.member):
                damaged = ForgedMessageError(f"A share of {party.name} is damaged.")
                with suppress(ForgedMessageError, InvalidDataError):
                    head, _, share = unseal(me, party, header, envelope).partition(b"\n")
                    run = record_in(head, "opened", Opened, damaged)
                    found[run][party.name] = share
        return found

    def _settle(self, batch: Batch, outcome: IntArray, mailbox: Mailbox) -> IntArray:
        """Charge the ledger for what was opened, once, and return the outcome that counts."""
        reservation = self._boundary.reservation_of(batch)
        if reservation is None:
            raise StaleBatchError(
                f"Batch {batch.identifier} is not in this ledger. Name the one it was asked with."
            )
        scheme = self.consortium.scheme
        answers = map(tuple, outcome.reshape(batch.n_queries, -1).tolist())
        hashes = scheme.hashes(self._boundary.ledger, batch)
        self._boundary.settle_once(
            reservation,
            dict(zip(hashes, answers, strict=True)),
            scheme.event_of_outcome(outcome, batch),
        )
        mailbox.put_collected(self._home.identity, batch, self.consortium)
        return self._stored_outcome(batch, outcome.shape)

    def _stored_outcome(self, batch: Batch, shape: tuple[int, ...]) -> IntArray:
        """Return the answers that count."""
        hashes = self.consortium.scheme.hashes(self._boundary.ledger, batch)
        remembered = self._boundary.account.recall(hashes)
        return np.array([remembered[query] for query in hashes], dtype=np.int64).reshape(shape)
