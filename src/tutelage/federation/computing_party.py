"""A computing party: holds shares that mean nothing, and with two others computes labels that none of them sees."""

import hashlib
import json
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np

from tutelage.exceptions import (
    FederationError,
    ForgedMessageError,
    InvalidDataError,
    PartyLostError,
    QuorumError,
    StaleBatchError,
)
from tutelage.federation.members.consortium import Consortium
from tutelage.federation.members.home import Home
from tutelage.federation.members.keys import Member, Role
from tutelage.federation.messages.batches import Batch
from tutelage.federation.messages.envelopes import Header, Kind, seal, unseal
from tutelage.federation.messages.mailbox import Mailbox
from tutelage.federation.mpc import Endpoint, Session, run_party
from tutelage.federation.noise_shares import SharedMechanism, bit_length, projection_bound
from tutelage.federation.sharing import MODULUS, SPLIT_NAME_BYTES, decode
from tutelage.ledger.entries import canonical
from tutelage.mechanisms import ConfidentGNMax

_BEGUN = "computed"
_AGREED = "entities.json"


@final
@dataclass(frozen=True, slots=True)
class Computed:
    """How a computation went; public values only.

    Parameters
    ----------
    entities : tuple of str
        Whose votes are in the labels.
    left_out : dict of str to str
        Entities whose envelopes could not be used, and why; those that sent none are not named.
    queries : int
        Size of the batch.
    bytes_sent : int
        To the two other parties.
    """

    entities: tuple[str, ...]
    left_out: dict[str, str] = field(hash=False)
    queries: int
    bytes_sent: int


class _Shares(NamedTuple):
    """One entity's shares as this party holds them; private to it."""

    split: str
    blocks: Any  # object array (blocks, queries, classes) of residues


class _Share(NamedTuple):
    """One party's share of the labels, private, and what it took."""

    of: "_Agreed"
    labels: bytes
    bytes_sent: int


class _Agreed(NamedTuple):
    """What the three parties agreed to compute."""

    run: str
    splits: dict[str, str]


@final
class ComputingParty:
    """One of three parties that add shares, compare them under multi-party computation, and open nothing but labels.

    What makes it private: this party's shares alone are uniformly random numbers, and so is everything that the others
    send it. Labels leave in shares too, sealed for the aggregator. Semi-honest security with an honest majority: two
    parties that pool what they have learn the noised totals (docs/federation.md says what that is worth).

    Parameters
    ----------
    home : Home
        Its folder.

    Raises
    ------
    FederationError
        If the home's member is no computing party of a consortium.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        self._consortium = home.consortium_as(Role.COMPUTING)
        self._mechanism = _shared(self._consortium)
        names = [party.name for party in self._consortium.computing_parties]
        self._place = names.index(home.identity.member.name)

    @property
    def consortium(self) -> Consortium:
        """The terms it computes under."""
        return self._consortium

    def compute(
        self, batch: Batch, mailbox: Mailbox, *, timeout: float = 600.0, transcript: Path | None = None
    ) -> Computed:
        """Compute the labels of a batch with the two other parties, and send the aggregator this party's share of them.

        The first computation of a batch fixes whose votes are in it; every later one uses the same shares, so that
        a batch has one outcome however often it is tried.

        Parameters
        ----------
        batch : Batch
            The aggregator's queries.
        mailbox : Mailbox
            Where envelopes lie.
        timeout : float
            Seconds to wait for the other parties to connect, and then for any message of theirs.
        transcript : path, optional
            File to write everything to that this party receives from the others, for an audit.

        Raises
        ------
        QuorumError
            If too few entities answered. Nothing was opened.
        PartyLostError
            If another party failed or fell silent. Nothing was opened; try again with the same files.
        StaleBatchError
            If this batch was begun with other votes than those at hand.
        FederationError
            If an entity's votes are larger than its teachers and noise can be. Nothing was opened.
        """
        held, left_out = self._held(batch, mailbox)
        me = self._home.identity

        async def body(session: Session) -> _Share | FederationError:
            try:
                agreed = await self._agree(session, batch, held, left_out)
                blocks = {name: held[name].blocks for name in agreed.splits}
                await self._refuse_oversized(session, blocks, batch.n_queries)
            except PartyLostError:
                raise
            except FederationError as refusal:  # all parties come to it; returned, so that none is taken for lost
                return refusal
            return _Share(agreed, await self._labels(session, blocks), session.bytes_sent)

        endpoints = [_endpoint(party) for party in self._consortium.computing_parties]
        found = run_party(self._place, endpoints, me.tls_key_pem, body, timeout=timeout, transcript=transcript)
        if isinstance(found, FederationError):
            raise found
        aggregator, entities = self._consortium.aggregator, sorted(found.of.splits)
        header = Header.of(self._consortium, batch, Kind.LABELS, me.member.name, aggregator.name)
        content = _as_json({"run": found.of.run, "entities": entities}) + b"\n" + found.labels
        mailbox.put_labels(batch, me.member.name, found.of.run, seal(me, aggregator, header, content))
        return Computed(tuple(entities), left_out, batch.n_queries, found.bytes_sent)

    def _held(self, batch: Batch, mailbox: Mailbox) -> tuple[dict[str, _Shares], dict[str, str]]:
        """Return the shares that this party can use, and why it cannot use others."""
        held, left_out, me = {}, {}, self._home.identity
        for entity in self._consortium.entities:
            header = Header.of(self._consortium, batch, Kind.SHARES, entity.name, me.member.name)
            try:
                envelope = mailbox.shares(batch, entity.name, me.member.name)
                if envelope is not None:
                    held[entity.name] = self._read(unseal(me, entity, header, envelope), batch.n_queries)
            except (FederationError, InvalidDataError) as error:
                left_out[entity.name] = str(error)
        return held, left_out

    def _read(self, payload: bytes, queries: int) -> _Shares:
        blocks = 2 if isinstance(self._mechanism, ConfidentGNMax) else 1
        shape = (blocks, queries, self._consortium.n_classes)
        return _Shares(payload[:SPLIT_NAME_BYTES].hex(), decode(payload[SPLIT_NAME_BYTES:], shape))

    async def _agree(
        self, session: Session, batch: Batch, held: dict[str, _Shares], left_out: dict[str, str]
    ) -> _Agreed:
        """Fix with the other parties, on every disk, whose votes are in the labels, before anything is computed."""
        begun = self._home.kept(_BEGUN, batch.identifier)
        mine = {
            "consortium": self._consortium.fingerprint,
            "batch": batch.identifier,
            "queries": batch.query_hash,
            "nonce": secrets.token_hex(16),
            "held": {name: shares.split for name, shares in held.items()},
            "begun": None if begun is None else json.loads(begun[_AGREED]),
        }
        everyones = [_statement(message) for message in await session.exchange(_as_json(mine))]
        splits = _common(everyones)
        if any(statement["held"].get(name) != split for statement in everyones for name, split in splits.items()):
            raise StaleBatchError(
                f"Batch {batch.identifier} was begun with votes that are no longer in the mailbox of every party. "
                "Restore them; a batch is never computed twice with different votes."
            )
        if len(splits) < self._consortium.quorum:
            raise QuorumError(_too_few(len(splits), self._consortium.quorum, left_out))
        if self._home.keep(_BEGUN, batch.identifier, {_AGREED: _as_json(splits)}) != {_AGREED: _as_json(splits)}:
            raise StaleBatchError(f"Batch {batch.identifier} was begun with other votes by another process. Try again.")
        nonces = [statement["nonce"] for statement in everyones]
        run = hashlib.sha256(_as_json([batch.identifier, splits, nonces])).hexdigest()
        if set(await session.exchange(run.encode())) != {run.encode()}:
            raise StaleBatchError("The parties do not agree on what they compute. Nothing was opened; try again.")
        return _Agreed(run, splits)

    async def _refuse_oversized(self, session: Session, blocks: dict[str, Any], queries: int) -> None:
        vectors = np.stack([votes.reshape(-1) for votes in blocks.values()])
        terms = self._consortium
        bound = projection_bound(self._mechanism, terms.honest, terms.teachers_per_entity, terms.n_classes, queries)
        found = await session.oversized(vectors, bound)
        names = [name for name, large in zip(blocks, found, strict=True) if large]
        if names:
            raise FederationError(
                f"Votes of {', '.join(names)} are larger than {self._consortium.teachers_per_entity} teachers and "
                "their noise come to. Nothing was opened, and the batch is refused; ask it anew without them."
            )

    async def _labels(self, session: Session, blocks: dict[str, Any]) -> bytes:
        terms, totals = self._consortium, np.stack(list(blocks.values())).sum(axis=0) % MODULUS
        entities, teachers = len(terms.entities), terms.teachers_per_entity
        bits = bit_length(self._mechanism, terms.honest, entities, teachers, terms.n_classes)
        if not isinstance(self._mechanism, ConfidentGNMax):
            return await session.labels(totals[0], bits, None)
        return await session.labels(totals[0], bits, (totals[1], int(np.ceil(self._mechanism.threshold))))


def _shared(terms: Consortium) -> SharedMechanism:
    if not isinstance(terms.mechanism, SharedMechanism):
        raise FederationError(
            f"Nothing is computed on shares with {type(terms.mechanism).__name__}, a local mechanism."
        )
    return terms.mechanism


def _as_json(content: object) -> bytes:
    return canonical(content).encode()


def _endpoint(party: Member) -> Endpoint:
    host, _, port = str(party.address).rpartition(":")
    return Endpoint(party.name, host.strip("[]"), int(port), str(party.certificate))


def _statement(message: bytes) -> dict[str, Any]:
    """Return what a party says it holds, if it is in the form in which parties say it."""
    try:
        found = json.loads(message)
        parts = [found["held"], {} if found["begun"] is None else found["begun"]]
        plain = all(isinstance(name, str) and isinstance(part[name], str) for part in parts for name in part)
        if plain and isinstance(found["nonce"], str):
            return found
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    raise ForgedMessageError("A computing party's statement is not in the form in which this version writes it.")


def _common(statements: list[dict[str, Any]]) -> dict[str, str]:
    """Return the entities and splittings to compute with: those once begun with, or those that all parties hold."""
    if any(len({statement[name] for statement in statements}) > 1 for name in ("consortium", "batch", "queries")):
        raise StaleBatchError("The computing parties are not at the same batch of the same consortium.")
    begun = [statement["begun"] for statement in statements if statement["begun"] is not None]
    if any(other != begun[0] for other in begun):
        raise StaleBatchError("The computing parties have begun this batch with different votes. Ask it anew.")
    if begun:
        return begun[0]
    first, *others = [statement["held"] for statement in statements]
    return {name: split for name, split in sorted(first.items()) if all(held.get(name) == split for held in others)}


def _too_few(found: int, quorum: int, left_out: dict[str, str]) -> str:
    reasons = "".join(f" {name} was left out: {reason}" for name, reason in sorted(left_out.items()))
    return (
        f"{found} entities answered in a form that all parties can use, and the terms ask for {quorum}, for which the "
        f"noise was sized. Nothing was opened. Wait for more, and try again.{reasons}"
    )
