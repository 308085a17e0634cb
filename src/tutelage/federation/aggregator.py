"""The aggregator: asks public queries, receives labels or perturbed ballots, and sees no vote."""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, final

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
from tutelage.federation.consortium import Consortium, terms_of_sum
from tutelage.federation.costs import event_of_query, event_of_round, event_of_rounds, require_size
from tutelage.federation.envelopes import Header, Kind, unseal
from tutelage.federation.home import Home
from tutelage.federation.keys import Role
from tutelage.federation.mailbox import Mailbox, batch_status
from tutelage.federation.sharing import added, recombine
from tutelage.federation.sums import SumRound
from tutelage.ledger import Ledger
from tutelage.ledger.entries import canonical
from tutelage.ledger.ledger import Reservation
from tutelage.mechanisms import ConfidentGNMax
from tutelage.mechanisms.local import Decoder, LocalMechanism, decode

_ASKED = "asked"
_BATCH = "batch"
_OPENED, _ENTITIES = "opened", "entities.json"  # where whose ballots are in a sum is kept


class Asked(NamedTuple):
    """Result of asking about rows.

    Parameters
    ----------
    batch : Batch or None
        What was announced; None where every row had been answered before, or every round of a sum is collected.
    new : int
        How many of the rows it holds; of a sum, 1 for a round.
    """

    batch: Batch | None
    new: int


class Collected(NamedTuple):
    """The outcome of a batch; public.

    Parameters
    ----------
    labels : integer array of shape (queries,)
        Class index, or −1 where the mechanism, or every entity, abstained.
    entities : tuple of str
        Whose votes are in them.
    left_out : dict of str to str
        Local model: entities whose ballots could not be used, and why.
    """

    labels: IntArray
    entities: tuple[str, ...]
    left_out: dict[str, str]


class CollectedSum(NamedTuple):
    """The outcome of a round of a sum; public.

    Parameters
    ----------
    values : integer array of shape (classes, numbers)
        The noisy sum of all ballots.
    entities : tuple of str
        Whose ballots are in it.
    round : SumRound
        What follows: its `classifier` is the student so far.
    rounds_left : int
        How many rounds are still to be asked; after the last one the student is final.
    """

    values: IntArray
    entities: tuple[str, ...]
    round: SumRound
    rounds_left: int


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
        self._consortium = terms = home.consortium_as(Role.AGGREGATOR)
        if (ledger is None) != terms.is_local:
            raise InvalidParameterError(
                "`ledger` of Aggregator must be None in the local model, where every entity keeps its own budget."
                if terms.is_local
                else "`ledger` of Aggregator must be a Ledger: in the secure model, labels are spent from it. Got None."
            )
        if ledger is not None:
            terms.require_unit(ledger)
            charges.require_own(ledger, terms, self._member, keys_changed=keys_changed)

    @property
    def consortium(self) -> Consortium:
        """The terms it asks under."""
        return self._consortium

    def ask(self, rows: npt.ArrayLike, mailbox: Mailbox, *, new_batch: bool = False) -> Asked:
        """Announce the rows that have no label yet as one batch, and spend its budget.

        Parameters
        ----------
        rows : array of shape (queries, ...)
            Public rows.
        mailbox : Mailbox
            Where the announcement goes.
        new_batch : bool
            Replace a batch of the same rows that can no longer be computed: the new batch spends budget again.

        Raises
        ------
        BudgetExceededError
            If they do not all fit. Nothing was spent and nothing announced; the same holds for the next.
        InvalidDataError
            If the rows are no plain array, or more than can be computed at once; if the mailbox cannot take the batch,
            or holds it already and it was paid from another ledger.
        """
        if self._consortium.is_sum:
            return self._ask_round(rows, mailbox, new_batch=new_batch)
        asked = self._unanswered(np.asarray(rows))
        if not len(asked):
            return Asked(None, 0)
        require_size(self._consortium, len(asked))
        if self._ledger is not None and new_batch:
            self._ledger.require(event_of_query(self._consortium), len(asked))  # before another batch takes its place
        draft = Batch.make(self._home.identity, self._consortium, asked)
        return self._announced(self._kept(draft.query_hash, lambda: draft, new_batch=new_batch), mailbox)

    def _announced(self, batch: Batch, mailbox: Mailbox) -> Asked:
        if self._ledger is not None and self._reserved(batch) is None:
            mailbox.require_room_for_batch(batch)
            charges.reserve(self._ledger, self._consortium, batch, self._member, batch.n_queries)
        mailbox.put_batch(batch)
        return Asked(batch, batch.n_queries)

    def _ask_round(self, rows: npt.ArrayLike, mailbox: Mailbox, *, new_batch: bool) -> Asked:
        """Announce the first round of a sum over the features of these rows that is not collected yet."""
        terms, (_, teacher) = self._consortium, terms_of_sum(self._consortium)
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
            batch = self._kept(name, lambda earlier=before: self._draft(plain, earlier), new_batch=new_batch)
            return self._announced(batch, mailbox)
        return Asked(None, 0)

    def _draft(self, rows: npt.NDArray[Any], before: Batch | None) -> Batch:
        """Return the round that follows a collected one, or the first."""
        terms = self._consortium
        asked = SumRound.first(terms, rows) if before is None else self._following(before)
        return Batch.make(self._home.identity, terms, asked.to_row())

    def collect(self, batch: Batch, mailbox: Mailbox, *, decoder: Decoder | None = None) -> Collected:
        """Return the labels of a batch: recombined from the computing parties' shares, or decoded from ballots.

        Parameters
        ----------
        batch, mailbox : Batch and Mailbox
            What was asked, and where the answers lie.
        decoder : Decoder, optional
            How perturbed ballots become labels, in the local model. Default: as for `mechanisms.local.decode`.

        Raises
        ------
        QuorumError
            If too few entities answered, or a computing party has not.
        ForgedMessageError
            If an answer is not what its sender signed, or the shares do not fit each other.
        """
        if self._consortium.is_sum:
            raise FederationError("The terms are about sums of ballots. Use `collect_sum`.")
        if isinstance(self._consortium.mechanism, LocalMechanism):
            return self._decoded(self._consortium.mechanism, batch, mailbox, decoder)
        if decoder is not None:
            raise InvalidParameterError("`decoder` is for the local model. Leave it out.")
        return self._recombined(batch, mailbox)

    def collect_sum(self, batch: Batch, mailbox: Mailbox) -> CollectedSum:
        """Return the noisy sum of one round, added up from the computing parties' shares, and the student so far.

        Parameters
        ----------
        batch, mailbox : Batch and Mailbox
            The round, and where the answers lie.

        Raises
        ------
        FederationError
            If the terms are about votes.
        QuorumError
            If a computing party has not answered.
        ForgedMessageError
            If an answer is not what its sender signed.
        """
        _, teacher = terms_of_sum(self._consortium)
        asked = SumRound.of(batch, self._consortium)
        shape = asked.coef.T.shape
        opened, entities = self._opened_together(batch, mailbox, lambda shares: added(shares, shape))
        self._home.keep(_OPENED, batch.identifier, {_ENTITIES: canonical(entities).encode()})
        event = event_of_round(self._consortium, asked.number, opened.size)
        self._settle(batch, [tuple(opened.ravel().tolist())], event)
        following = self._following(batch)
        return CollectedSum(self._values(batch, shape), entities, following, teacher.rounds - following.number)

    def _following(self, batch: Batch) -> SumRound:
        """Return what follows a collected round."""
        kept = self._home.kept(_OPENED, batch.identifier, [_ENTITIES])
        if kept is None:
            raise StaleBatchError(
                f"Whose ballots are in batch {batch.identifier} is not known any more. Collect it again."
            )
        asked = SumRound.of(batch, self._consortium)
        return asked.after(self._values(batch, asked.coef.T.shape), json.loads(kept[_ENTITIES]), self._consortium)

    def _values(self, batch: Batch, shape: tuple[int, ...]) -> IntArray:
        return np.array(self._remembered(batch)[0], dtype=np.int64).reshape(shape)

    def _reserved(self, batch: Batch) -> Reservation | None:
        return self._ledger and charges.reserved(self._ledger, self._consortium, batch, self._member)

    def is_collected(self, batch: Batch) -> bool:
        """Return whether the ledger has the labels of a batch; in the local model nothing is known of that."""
        reservation = self._reserved(batch)
        return self._ledger is not None and reservation is not None and self._ledger.is_settled(reservation)

    def _kept(self, name: str, draft: Callable[[], Batch], *, new_batch: bool) -> Batch:
        """Return the last batch of that name, so that a repeated call after a crash announces that batch."""
        earlier = self._earlier(name)
        if earlier and not new_batch:
            return earlier[-1]
        kept = self._home.keep(_ASKED, f"{name}-{len(earlier)}", {_BATCH: draft().to_bytes()})
        return Batch.from_bytes(kept[_BATCH], self._consortium)

    def _earlier(self, name: str) -> list[Batch]:
        found: list[Batch] = []
        while (kept := self._home.kept(_ASKED, f"{name}-{len(found)}", [_BATCH])) is not None:
            found.append(Batch.from_bytes(kept[_BATCH], self._consortium))
        return found

    def _unanswered(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if rows.ndim == 0 or len(rows) == 0:
            raise InvalidDataError(f"`rows` must hold at least one public row. Got shape {rows.shape}.")
        if self._ledger is None:
            return rows
        hashes = self._hashes(self._ledger, rows)
        answered, fresh = self._ledger.recall(hashes), {}
        for place, query in enumerate(hashes):
            if query not in answered:
                fresh.setdefault(query, place)
        return rows[list(fresh.values())]

    def _queries_of(self, ledger: Ledger, batch: Batch) -> list[bytes]:
        """Return what the ledger knows the queries by; of a round, whose row is long, the hash stands for the row."""
        if not self._consortium.is_sum:
            return self._hashes(ledger, batch.rows)
        return self._hashes(ledger, np.frombuffer(bytes.fromhex(batch.query_hash), dtype=np.uint8)[np.newaxis])

    def _hashes(self, ledger: Ledger, rows: npt.NDArray[Any]) -> list[bytes]:
        return ledger.query_hashes({"consortium": self._consortium.fingerprint}, rows)

    def _recombined(self, batch: Batch, mailbox: Mailbox) -> Collected:
        def opened_labels(shares: Sequence[bytes]) -> IntArray:
            opened = recombine(shares, (batch.n_queries,))
            if opened.min(initial=0) < 0 or opened.max(initial=0) > self._consortium.n_classes:
                raise ForgedMessageError("The computing parties' shares make no labels. Let them compute it again.")
            return opened - 1

        found, entities = self._opened_together(batch, mailbox, opened_labels)
        happened = self._happened(len(found), int(np.sum(found != ABSTAIN)))
        self._settle(batch, [(label,) for label in found.tolist()], happened)
        remembered = [answer[0] for answer in self._remembered(batch)]
        return Collected(np.array(remembered, dtype=np.int64), entities, {})

    def _opened_together(
        self, batch: Batch, mailbox: Mailbox, opening: Callable[[Sequence[bytes]], IntArray]
    ) -> tuple[IntArray, tuple[str, ...]]:
        """Return what the parties' shares open to, and whose answers are in it."""
        contradiction = None
        for answers in self._whole_runs(batch, mailbox):
            shares = [answers[party.name].share for party in self._consortium.computing_parties]
            try:
                return opening(shares), next(iter(answers.values())).entities
            except ForgedMessageError as error:
                contradiction = error
        if contradiction is not None:
            raise contradiction
        parties = [party.name for party in self._consortium.computing_parties]
        computed = batch_status(self._consortium, mailbox, batch).computed
        missing = [name for name in parties if name not in computed]
        who = f"{', '.join(missing)} sent none" if missing else "they sent labels of different computations"
        raise QuorumError(
            "The labels of this batch are not complete: all computing parties must have sent theirs of one and the "
            f"same computation, and {who}. Let {', '.join(parties)} run `tutelage federate compute` at the same time."
        )

    def _whole_runs(self, batch: Batch, mailbox: Mailbox) -> list[dict[str, "_Answer"]]:
        """Return what the parties sent, by computation, where it is of all of them; any one will do, by name."""
        runs: dict[tuple[str, tuple[str, ...]], dict[str, _Answer]] = {}
        for answer in self._opened(batch, mailbox):
            runs.setdefault((answer.run, answer.entities), {})[answer.party] = answer
        return [run for run in runs.values() if len(run) == len(self._consortium.computing_parties)]

    def _opened(self, batch: Batch, mailbox: Mailbox) -> list["_Answer"]:
        """Return the answers that can be opened; other files are ignored."""
        me, terms = self._home.identity, self._consortium
        found = []
        for party in terms.computing_parties:
            header = Header.of(terms, batch, Kind.LABELS, party.name, me.member.name)
            for _, envelope in mailbox.labels(batch, party.name):
                with suppress(ForgedMessageError, InvalidDataError):
                    found.append(_Answer.read(party.name, unseal(me, party, header, envelope)))
        return found

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
        if self._ledger is None:
            return []
        hashes = self._queries_of(self._ledger, batch)
        remembered = self._ledger.recall(hashes)
        return [remembered[query] for query in hashes]

    def _happened(self, queries: int, answered: int) -> Event:
        """Return a check for every query, and an answer for those that passed it, or for all."""
        one = event_of_query(self._consortium)
        if not isinstance(self._consortium.mechanism, ConfidentGNMax):
            return Repeated(one, queries)
        check, answer = (part.event for part in one.flatten())
        return Composed((Repeated(check, queries), Repeated(answer, answered)))

    def _decoded(self, mechanism: LocalMechanism, batch: Batch, mailbox: Mailbox, decoder: Decoder | None) -> Collected:
        me, terms = self._home.identity, self._consortium
        reports, left_out = {}, {}
        for entity in terms.entities:
            header = Header.of(terms, batch, Kind.BALLOTS, entity.name, me.member.name)
            try:
                envelope = mailbox.ballots(batch, entity.name)
                if envelope is not None:
                    payload = unseal(me, entity, header, envelope)
                    reports[entity.name] = read_reports(payload, mechanism, batch.n_queries, terms.n_classes)
            except (FederationError, InvalidDataError) as error:
                left_out[entity.name] = str(error)
        terms.require_quorum(reports, left_out)
        labels = decode(np.stack(list(reports.values())), mechanism, terms.n_classes, decoder)
        return Collected(labels, tuple(reports), left_out)


class _Answer(NamedTuple):
    """The message of one computing party: its share of the labels of one run."""

    party: str
    run: str
    entities: tuple[str, ...]
    share: bytes

    @classmethod
    def read(cls, party: str, payload: bytes) -> "_Answer":
        head, _, share = payload.partition(b"\n")
        try:
            found = json.loads(head)
            run, entities = found["run"], tuple(found["entities"])
            if isinstance(run, str) and all(isinstance(name, str) for name in entities):
                return cls(party, run, entities, share)
        except (ValueError, KeyError, TypeError, RecursionError):
            pass
        raise ForgedMessageError(f"The labels of {party} are not in the form in which this version writes them.")
