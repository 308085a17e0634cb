"""The aggregator: asks public queries, receives labels or perturbed ballots, and sees no vote."""

import json
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
from tutelage.federation.batches import Batch, read_reports
from tutelage.federation.consortium import Consortium
from tutelage.federation.costs import event_of_query, require_size
from tutelage.federation.envelopes import Header, Kind, unseal
from tutelage.federation.home import Home
from tutelage.federation.keys import Role
from tutelage.federation.mailbox import Mailbox, batch_status
from tutelage.federation.sharing import recombine
from tutelage.ledger import Ledger
from tutelage.ledger.ledger import Reservation
from tutelage.mechanisms import ConfidentGNMax
from tutelage.mechanisms.local import Decoder, LocalMechanism, decode

_ASKED = "asked"
_BATCH = "batch"


class Asked(NamedTuple):
    """What became of rows that were asked about.

    Parameters
    ----------
    batch : Batch or None
        What was announced; None where every row had been answered before.
    new : int
        How many of the rows it holds.
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


@final
class Aggregator:
    """Who wants labels: announces signed batches of public queries, and keeps the budget of the secure model.

    In the secure model a batch is charged to the aggregator's ledger before it is announced, once, however often its
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
                else "`ledger` of Aggregator must be a Ledger: the secure model pays for what is opened. Got None."
            )
        if ledger is not None:
            terms.require_unit(ledger)
            charges.require_own(ledger, terms, self._member, keys_changed=keys_changed)

    @property
    def consortium(self) -> Consortium:
        """The terms it asks under."""
        return self._consortium

    def ask(self, rows: npt.ArrayLike, mailbox: Mailbox, *, anew: bool = False) -> Asked:
        """Announce those of the rows that were not answered yet, as one batch that is paid for.

        Parameters
        ----------
        rows : array of shape (queries, ...)
            Public rows.
        mailbox : Mailbox
            Where the announcement goes.
        anew : bool
            Replace a batch of the same rows that can no longer be computed: a new one, which is paid for again.

        Raises
        ------
        BudgetExceededError
            If they do not all fit. Nothing was spent and nothing announced; the same holds for the next.
        InvalidDataError
            If the rows are no plain array, or more than can be computed at once; if the mailbox cannot take the batch,
            or holds it already and it was paid from another ledger.
        """
        asked = self._unanswered(np.asarray(rows))
        if not len(asked):
            return Asked(None, 0)
        require_size(self._consortium, len(asked))
        if self._ledger is not None and anew:
            self._ledger.require(event_of_query(self._consortium), len(asked))  # before another batch takes its place
        batch = self._kept(Batch.make(self._home.identity, self._consortium, asked), anew=anew)
        if self._ledger is not None and self._reserved(batch) is None:
            mailbox.require_room_for_batch(batch)
            charges.reserve(self._ledger, self._consortium, batch, self._member, batch.n_queries)
        mailbox.put_batch(batch)
        return Asked(batch, batch.n_queries)

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
        if isinstance(self._consortium.mechanism, LocalMechanism):
            return self._decoded(self._consortium.mechanism, batch, mailbox, decoder)
        if decoder is not None:
            raise InvalidParameterError("`decoder` is for the local model. Leave it out.")
        return self._recombined(batch, mailbox)

    def _reserved(self, batch: Batch) -> Reservation | None:
        return self._ledger and charges.reserved(self._ledger, self._consortium, batch, self._member)

    def is_collected(self, batch: Batch) -> bool:
        """Return whether the ledger has the labels of a batch; in the local model nothing is known of that."""
        reservation = self._reserved(batch)
        return self._ledger is not None and reservation is not None and self._ledger.is_settled(reservation)

    def _kept(self, draft: Batch, *, anew: bool) -> Batch:
        """Return the last batch of the draft's rows, so that asking again after a crash announces and pays for that."""
        earlier = []
        while (kept := self._home.kept(_ASKED, f"{draft.query_hash}-{len(earlier)}", [_BATCH])) is not None:
            earlier.append(Batch.from_bytes(kept[_BATCH], self._consortium))
        if earlier and not anew:
            return earlier[-1]
        kept = self._home.keep(_ASKED, f"{draft.query_hash}-{len(earlier)}", {_BATCH: draft.to_bytes()})
        return Batch.from_bytes(kept[_BATCH], self._consortium)

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

    def _hashes(self, ledger: Ledger, rows: npt.NDArray[Any]) -> list[bytes]:
        return ledger.query_hashes({"consortium": self._consortium.fingerprint}, rows)

    def _recombined(self, batch: Batch, mailbox: Mailbox) -> Collected:
        contradiction = None
        for answers in self._whole_runs(batch, mailbox):
            shares = [answers[party.name].share for party in self._consortium.computing_parties]
            try:
                opened = recombine(shares, (batch.n_queries,))
                if opened.min(initial=0) < 0 or opened.max(initial=0) > self._consortium.n_classes:
                    raise ForgedMessageError("The computing parties' shares make no labels. Let them compute it again.")
            except ForgedMessageError as error:
                contradiction = error
                continue
            return Collected(self._settled(batch, opened - 1), next(iter(answers.values())).entities, {})
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
        """Return the answers that open; anything else that lies beside them is nobody's."""
        me, terms = self._home.identity, self._consortium
        found = []
        for party in terms.computing_parties:
            header = Header.of(terms, batch, Kind.LABELS, party.name, me.member.name)
            for _, envelope in mailbox.labels(batch, party.name):
                with suppress(ForgedMessageError, InvalidDataError):
                    found.append(_Answer.read(party.name, unseal(me, party, header, envelope)))
        return found

    def _settled(self, batch: Batch, labels: IntArray) -> IntArray:
        """Return the labels that count, with the ledger charged for what was answered."""
        ledger, reservation = self._ledger, self._reserved(batch)
        if ledger is None or reservation is None:
            raise StaleBatchError(f"Batch {batch.identifier} is not in this ledger. Name the one it was asked with.")
        hashes = self._hashes(ledger, batch.rows)
        if not ledger.is_settled(reservation):
            answers = {query: (label,) for query, label in zip(hashes, labels.tolist(), strict=True)}
            ledger.settle(reservation, answers, self._happened(len(labels), int(np.sum(labels != ABSTAIN))))
        remembered = ledger.recall(hashes)
        return np.array([remembered[query][0] for query in hashes], dtype=np.int64)

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
    """What one computing party sent: its share of the labels of one run."""

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
