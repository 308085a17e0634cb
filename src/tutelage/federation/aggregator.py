"""The aggregator: asks public queries, receives labels or perturbed ballots, and sees no vote."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, cast, final

import numpy as np
import numpy.typing as npt

from tutelage._internal.typing import ABSTAIN, IntArray
from tutelage.events import Composed, Event, Repeated
from tutelage.exceptions import (
    FederationError,
    ForgedMessageError,
    InvalidDataError,
    InvalidParameterError,
    QuorumError,
    StaleBatchError,
)
from tutelage.federation import charges
from tutelage.federation.batches import Batch, hash_of_rows, plain_rows, read_reports
from tutelage.federation.consortium import terms_of_sum
from tutelage.federation.costs import event_of_query, event_of_round, event_of_rounds, require_size
from tutelage.federation.keys import Role
from tutelage.federation.mailbox import Header, Home, Kind, Mailbox, batch_status, unseal
from tutelage.federation.sharing import added, recombine
from tutelage.federation.sums import SumRound
from tutelage.ledger import Ledger
from tutelage.ledger.entries import canonical
from tutelage.ledger.ledger import Reservation
from tutelage.mechanisms import ConfidentGNMax
from tutelage.mechanisms.local import Decoder, LocalMechanism, decode

_ASKED, _BATCH = "asked", "batch"
_OPENED, _ENTITIES = "opened", "entities.json"  # where whose ballots are in a sum is kept


class Asked(NamedTuple):
    """Result of asking about rows."""

    batch: Batch | None  # announced; None where every row had been answered before, or every round is collected
    new: int  # how many of the rows it holds; of a sum, 1 for a round


class Collected(NamedTuple):
    """The outcome of a batch; public."""

    labels: IntArray  # class index per query, or −1 where the mechanism, or every entity, abstained
    entities: tuple[str, ...]  # whose votes are in them
    left_out: dict[str, str]  # local model: entities whose ballots could not be used, and why


class CollectedSum(NamedTuple):
    """The outcome of a round of a sum; public."""

    values: IntArray  # (classes, numbers), the noisy sum of all ballots
    entities: tuple[str, ...]  # whose ballots are in it
    round: SumRound  # what follows: its `classifier` is the student so far
    rounds_left: int  # after the last one the student is final


@final
class Aggregator:
    """The member that asks for labels: it announces signed batches, and spends from its ledger in the secure model.

    In the secure model a batch is spent from the aggregator's ledger before it is announced, once, however often its
    computation is tried; a row that was answered is never asked again. In the local model every entity keeps a budget
    of its own and the aggregator needs none.

    Parameters
    ----------
    home : Home
        The folder of the aggregator of a consortium.
    ledger : Ledger or None
        The consortium's budget for everything that is ever opened, of the unit that the terms protect; None in the
        local model. One that belongs to another member is refused (`LedgerMismatchError`).
    keys_changed : bool
        The ledger is this aggregator's own and was used with earlier keys of it.
    """

    def __init__(self, home: Home, ledger: Ledger | None, *, keys_changed: bool = False) -> None:
        self._home, self._ledger, self._member = home, ledger, home.identity.member
        terms = home.consortium_as(Role.AGGREGATOR)
        self.consortium: Final = terms
        if (ledger is None) != terms.is_local:
            raise InvalidParameterError(
                "`ledger` of Aggregator must be None in the local model, where every entity keeps its own budget."
                if terms.is_local
                else "`ledger` of Aggregator must be a Ledger: in the secure model, labels are spent from it. Got None."
            )
        if ledger is not None:
            terms.require_unit(ledger)
            charges.require_own(ledger, terms, self._member, keys_changed=keys_changed)

    def ask(self, rows: npt.ArrayLike, mailbox: Mailbox, *, new_batch: bool = False) -> Asked:
        """Announce the rows that have no label yet as one batch, and spend its budget; a refusal spends nothing.

        Parameters
        ----------
        rows : array of shape (queries, ...)
            Public rows.
        mailbox : Mailbox
            Where the announcement goes.
        new_batch : bool
            Replace a batch of the same rows that can no longer be computed: the new batch spends budget again.
        """
        if self.consortium.is_sum:
            return self._ask_round(rows, mailbox, new_batch=new_batch)
        asked = np.asarray(rows)
        if asked.ndim == 0 or len(asked) == 0:
            raise InvalidDataError(f"`rows` must hold at least one public row. Got shape {asked.shape}.")
        if self._ledger is not None:
            hashes = self._ledger.query_hashes({"consortium": self.consortium.fingerprint}, asked)
            answered, fresh = self._ledger.recall(hashes), {}
            for place, query in enumerate(hashes):
                if query not in answered:
                    fresh.setdefault(query, place)
            asked = asked[list(fresh.values())]
        if not len(asked):
            return Asked(None, 0)
        require_size(self.consortium, len(asked))
        if self._ledger is not None and new_batch:
            self._ledger.require(event_of_query(self.consortium), len(asked))  # before another batch takes its place
        draft = Batch.make(self._home.identity, self.consortium, asked)
        return self._announced(draft.query_hash, lambda: draft, mailbox, new_batch=new_batch)

    def _ask_round(self, rows: npt.ArrayLike, mailbox: Mailbox, *, new_batch: bool) -> Asked:
        """Announce the first round of a sum over the features of these rows that is not collected yet."""
        terms, (_, teacher) = self.consortium, terms_of_sum(self.consortium)
        require_size(terms, 1)
        plain, before = plain_rows(rows), None
        for number in range(teacher.rounds):
            name = f"{hash_of_rows(plain)}-{number}"
            kept = self._earlier(name)
            if kept and self.is_collected(kept[-1]):
                before = kept[-1]
                continue
            if self._ledger is not None and (new_batch or not kept):
                self._ledger.require(event_of_rounds(terms, number), 1)  # nothing is begun in vain

            def draft(before: Batch | None = before) -> Batch:
                asked = SumRound.first(terms, plain) if before is None else self._following(before)
                return Batch.make(self._home.identity, terms, asked.to_row())

            return self._announced(name, draft, mailbox, new_batch=new_batch)
        return Asked(None, 0)

    def _announced(self, name: str, draft: Callable[[], Batch], mailbox: Mailbox, *, new_batch: bool) -> Asked:
        """Announce the last batch of that name, so that a repeated call after a crash announces that batch."""
        earlier = self._earlier(name)
        if earlier and not new_batch:
            batch = earlier[-1]
        else:
            kept = self._home.keep(_ASKED, f"{name}-{len(earlier)}", {_BATCH: draft().to_bytes()})
            batch = Batch.from_bytes(kept[_BATCH], self.consortium)
        if self._ledger is not None and self._reserved(batch) is None:
            mailbox.require_room(batch)
            charges.reserve(self._ledger, self.consortium, batch, self._member, batch.n_queries)
        mailbox.put_batch(batch)
        return Asked(batch, batch.n_queries)

    def _earlier(self, name: str) -> list[Batch]:
        found: list[Batch] = []
        while (kept := self._home.kept(_ASKED, f"{name}-{len(found)}", [_BATCH])) is not None:
            found.append(Batch.from_bytes(kept[_BATCH], self.consortium))
        return found

    def collect(self, batch: Batch, mailbox: Mailbox, *, decoder: Decoder | None = None) -> Collected:
        """Return the labels of a batch: recombined from the computing parties' shares, or decoded from ballots.

        Where too few answered, `QuorumError`.

        Parameters
        ----------
        batch, mailbox : Batch and Mailbox
            What was asked, and where the answers lie.
        decoder : Decoder, optional
            How perturbed ballots become labels, in the local model. Default: as for `mechanisms.local.decode`.
        """
        terms = self.consortium
        if terms.is_sum:
            raise FederationError("The terms are about sums of ballots. Use `collect_sum`.")
        if isinstance(terms.mechanism, LocalMechanism):
            return self._decoded(terms.mechanism, batch, mailbox, decoder)
        if decoder is not None:
            raise InvalidParameterError("`decoder` is for the local model. Leave it out.")

        def opened(shares: Sequence[bytes]) -> IntArray:
            found = recombine(shares, (batch.n_queries,))
            if found.min(initial=0) < 0 or found.max(initial=0) > terms.n_classes:
                raise ForgedMessageError(
                    "The computing parties' shares do not add up to labels. Let them compute it again."
                )
            return found - 1

        found, entities = self._opened_together(batch, mailbox, opened)
        happened: Event = Repeated(event_of_query(terms), len(found))
        if isinstance(terms.mechanism, ConfidentGNMax):  # a check for every query, an answer for those that passed it
            check, answer = (part.event for part in event_of_query(terms).flatten())
            happened = Composed((Repeated(check, len(found)), Repeated(answer, int(np.sum(found != ABSTAIN)))))
        self._settle(batch, [(label,) for label in found.tolist()], happened)
        remembered = [answer[0] for answer in self._remembered(batch)]
        return Collected(np.array(remembered, dtype=np.int64), entities, {})

    def collect_sum(self, batch: Batch, mailbox: Mailbox) -> CollectedSum:
        """Return the noisy sum of one round, added up from the computing parties' shares, and the student so far."""
        _, teacher = terms_of_sum(self.consortium)
        asked = SumRound.of(batch, self.consortium)
        shape = asked.coef.T.shape
        opened, entities = self._opened_together(batch, mailbox, lambda shares: added(shares, shape))
        self._home.keep(_OPENED, batch.identifier, {_ENTITIES: canonical(entities).encode()})
        event = event_of_round(self.consortium, asked.number, opened.size)
        self._settle(batch, [tuple(opened.ravel().tolist())], event)
        values, following = self._values(batch, shape), self._following(batch)
        return CollectedSum(values, entities, following, teacher.rounds - following.number)

    def _following(self, batch: Batch) -> SumRound:
        """Return what follows a collected round."""
        kept = self._home.kept(_OPENED, batch.identifier, [_ENTITIES])
        if kept is None:
            raise StaleBatchError(f"The list of hospitals in batch {batch.identifier} is missing. Collect it again.")
        asked = SumRound.of(batch, self.consortium)
        return asked.after(self._values(batch, asked.coef.T.shape), json.loads(kept[_ENTITIES]), self.consortium)

    def _values(self, batch: Batch, shape: tuple[int, ...]) -> IntArray:
        return np.array(self._remembered(batch)[0], dtype=np.int64).reshape(shape)

    def _reserved(self, batch: Batch) -> Reservation | None:
        return self._ledger and charges.reserved(self._ledger, self.consortium, batch, self._member)

    def is_collected(self, batch: Batch) -> bool:
        """Return whether the ledger has the labels of a batch; in the local model nothing is known of that."""
        reservation = self._reserved(batch)
        return self._ledger is not None and reservation is not None and self._ledger.is_settled(reservation)

    def _opened_together(
        self, batch: Batch, mailbox: Mailbox, opening: Callable[[Sequence[bytes]], IntArray]
    ) -> tuple[IntArray, tuple[str, ...]]:
        """Return what the parties' shares of any one computation open to, and whose answers are in it."""
        contradiction, runs = None, {}
        for party, run, share in self._answers(batch, mailbox):
            runs.setdefault(run, {})[party] = share
        parties = [party.name for party in self.consortium.computing_parties]
        for (_, entities), shares in runs.items():
            if len(shares) == len(parties):
                try:
                    return opening([shares[party] for party in parties]), entities
                except ForgedMessageError as error:
                    contradiction = error
        if contradiction is not None:
            raise contradiction
        computed = batch_status(self.consortium, mailbox, batch).computed
        missing = [name for name in parties if name not in computed]
        who = f"{', '.join(missing)} sent none" if missing else "they sent labels of different computations"
        raise QuorumError(
            "The labels of this batch are not complete: all computing parties must have sent theirs of one and the "
            f"same computation, and {who}. Let {', '.join(parties)} run `tutelage federate compute` at the same time."
        )

    def _answers(self, batch: Batch, mailbox: Mailbox) -> Iterator[tuple[str, tuple[str, tuple[str, ...]], bytes]]:
        """Yield the party, the computation with its entities, and the share, where it can be opened."""
        me, terms = self._home.identity, self.consortium
        for party in terms.computing_parties:
            header = Header.of(terms, batch, Kind.LABELS, party.name, me.member.name)
            for _, envelope in mailbox.labels(batch, party.name):
                with suppress(ForgedMessageError, InvalidDataError, ValueError, KeyError, TypeError, RecursionError):
                    head, _, share = unseal(me, party, header, envelope).partition(b"\n")
                    found = json.loads(head)
                    run, entities = found["run"], tuple(found["entities"])
                    if all(isinstance(name, str) for name in (run, *entities)):
                        yield party.name, (run, entities), share

    def _queries_of(self, ledger: Ledger, batch: Batch) -> list[bytes]:
        """Return what the ledger knows the queries by; of a round, whose row is long, the hash stands for the row."""
        rows = batch.rows
        if self.consortium.is_sum:
            rows = np.frombuffer(bytes.fromhex(batch.query_hash), dtype=np.uint8)[np.newaxis]
        return ledger.query_hashes({"consortium": self.consortium.fingerprint}, rows)

    def _settle(self, batch: Batch, answers: Sequence[tuple[int, ...]], happened: Event) -> None:
        """Charge the ledger for what was answered, once."""
        ledger, reservation = self._ledger, self._reserved(batch)
        if ledger is None or reservation is None:
            raise StaleBatchError(f"Batch {batch.identifier} is not in this ledger. Name the one it was asked with.")
        if not ledger.is_settled(reservation):
            hashes = self._queries_of(ledger, batch)
            ledger.settle(reservation, dict(zip(hashes, answers, strict=True)), happened)

    def _remembered(self, batch: Batch) -> list[tuple[int, ...]]:
        """Return the answers that count."""
        ledger = cast("Ledger", self._ledger)
        hashes = self._queries_of(ledger, batch)
        remembered = ledger.recall(hashes)
        return [remembered[query] for query in hashes]

    def _decoded(self, mechanism: LocalMechanism, batch: Batch, mailbox: Mailbox, decoder: Decoder | None) -> Collected:
        me, terms = self._home.identity, self.consortium
        reports, left_out = {}, {}
        for entity in terms.entities:
            header = Header.of(terms, batch, Kind.BALLOTS, entity.name, me.member.name)
            try:
                envelope = mailbox.answer(batch, entity.name, None)
                if envelope is not None:
                    payload = unseal(me, entity, header, envelope)
                    reports[entity.name] = read_reports(payload, mechanism, batch.n_queries, terms.n_classes)
            except (FederationError, InvalidDataError) as error:
                left_out[entity.name] = str(error)
        terms.require_quorum(reports, left_out)
        labels = decode(np.stack(list(reports.values())), mechanism, terms.n_classes, decoder)
        return Collected(labels, tuple(reports), left_out)
