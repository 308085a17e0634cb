"""A computing party: it holds shares of numbers, and with two others computes an outcome that none of them sees.

A batch is computed in these steps. A party stores what it must not forget in its home before it goes on.

1. Open the shares that entities sealed for this party. If too few entities sent usable ones, stop.
2. Exchange statements: per entity, the name of its splitting and a hash of this party's shares of it, and the shares
   with which an earlier attempt began the batch, if a party remembers one.
3. Agree on the entities whose shares all three parties hold of one splitting, or on those of the earlier attempt
   (`_agreed_pins`). A batch is never computed with different votes.
4. Unless all three remember an earlier attempt, test on random projections that the values of each entity are not
   larger than honest ones can be, and leave out entities that fail. Each party stores its part of the seed first, so
   that another attempt makes the same test.
5. Store the agreed shares, and compare the name of this run: a hash of the batch, the agreed shares and the nonces.
6. Add the shares, compute shares of the outcome, and seal them for the aggregator.
"""

import hashlib
import secrets
from collections.abc import Callable
from itertools import compress
from typing import Annotated, Final, NamedTuple, cast, final

import msgspec
import numpy as np
from msgspec import Meta

from tutelage._internal.records import AnotherFormatError, Names, frozen, record_in, sha256_of
from tutelage.digests import canonical
from tutelage.exceptions import (
    FederationError,
    ForgedMessageError,
    InvalidDataError,
    PartyLostError,
    StaleBatchError,
)
from tutelage.signing import document
from tutelage_consortium.batches import Batch
from tutelage_consortium.consortium import Consortium
from tutelage_consortium.home import Home
from tutelage_consortium.keys import Role, host_and_port
from tutelage_consortium.mailbox import Mailbox
from tutelage_consortium.messages import Header, Kind, Opened, seal, unseal
from tutelage_consortium.mpc import Endpoint, Session, run_party
from tutelage_consortium.sharing import HEAD_BYTES, MODULUS, SPLIT_NAME_BYTES, ElementArray, decode

# A folder and a file in the home of a party: the shares with which a batch was begun (step 5).
_BEGUN, _AGREED = "computed", "entities.json"
# The same for this party's part of the seed of the test (step 4).
_TESTED, _SEED = "tested", "seed"
_MISSED = "its shares did not reach all computing parties in time, or do not belong together."


class _EntityShares(NamedTuple):
    """One entity's shares as one party holds them; private to it."""

    split: str  # random name of the splitting, the same at all three parties
    blocks: ElementArray  # (blocks, queries, classes) of residues, or (1, 1, numbers) of a sum
    digest: str  # of the whole payload: name of the splitting, salt and shares

    def __repr__(self) -> str:
        return f"EntityShares(<shares hidden: private>, split={self.split!r})"


# By entity: the name of its splitting, and the hash of the shares of the first, second and third party.
_Pins = dict[str, tuple[str, str, str, str]]


@frozen
class _Statement:
    """The statement of a party to the others about its shares; public.

    It hides the shares: each payload that is hashed holds `SALT_BYTES` that the entity drew for this party alone.
    """

    roster: str  # with whose keys this party opens and seals
    batch: str
    queries: str
    nonce: str
    # By entity: its splitting, and the hash of this party's shares of it.
    held: dict[str, tuple[str, str]]
    # With which an earlier attempt began the batch, if this party remembers one.
    begun: Annotated[_Pins, Meta(min_length=1)] | None


def _statement_of(
    consortium: Consortium,
    batch: Batch,
    held: dict[str, _EntityShares],
    begun: _Pins | None,
) -> bytes:
    """Return a statement of what a party holds."""
    statement = _Statement(
        roster=consortium.roster_hash,
        batch=batch.identifier,
        queries=batch.query_hash,
        nonce=secrets.token_hex(16),
        held={name: (shares.split, shares.digest) for name, shares in held.items()},
        begun=begun,
    )
    return document("statement", statement)


def _read_statement(message: bytes) -> _Statement:
    """Return what a party says it holds."""
    damaged = ForgedMessageError(
        "A computing party's statement is not in the form in which this version writes it."
    )
    try:
        return record_in(message, "statement", _Statement, damaged)
    except AnotherFormatError as error:
        raise ForgedMessageError(str(error)) from None


def _agreed_pins(statements: list[_Statement]) -> _Pins:
    """Return the shares to use: those a party remembers to have begun with, or those all hold of one splitting."""
    if len({(each.roster, each.batch, each.queries) for each in statements}) > 1:
        raise StaleBatchError(
            "The computing parties are not at the same batch and roster of the same consortium."
        )
    begun = [each.begun for each in statements if each.begun is not None]
    if any(other != begun[0] for other in begun):
        raise StaleBatchError(
            "The computing parties began this batch with different votes. Ask again with `new_batch=True`."
        )
    held = [each.held for each in statements]
    if not begun:
        pins: _Pins = {}
        for name in sorted(set(held[0]).intersection(*held[1:])):
            splits, digests = zip(*(mine[name] for mine in held), strict=True)
            if len(set(splits)) == 1:
                first, second, third = digests
                pins[name] = (splits[0], first, second, third)
        return pins
    for place, mine in enumerate(held):
        if any(mine.get(name) != (pin[0], pin[1 + place]) for name, pin in begun[0].items()):
            raise StaleBatchError(
                "This batch was begun with votes that are no longer in the mailbox of every party as they were. "
                "Restore them; a batch is never computed twice with different votes."
            )
    return begun[0]


class Computed(NamedTuple):
    """How a computation went; public values only."""

    entities: Names  # whose votes are in the labels
    # Entities whose envelopes could not be used, and why; not those that sent none.
    left_out: dict[str, str]
    bytes_sent: int  # to the two other parties


@final
class ComputingParty:
    """One of three parties that add shares, compare them under multi-party computation, and open nothing but labels.

    Privacy, if all parties follow the protocol and at most one is curious (semi-honest, honest majority):

    - Labels: one party sees uniformly random numbers only. Two parties that pool their shares learn the noised totals
      (docs/howto/consortium.md says what that is worth).
    - Sums of ballots: nothing is compared; each party adds its shares and sends the aggregator its share of the total.
      Even two parties together see uniformly random numbers only.

    Parameters
    ----------
    home : Home
        The folder of a member that is a computing party of a consortium.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        self.consortium: Final = home.consortium_as(Role.COMPUTING)
        self._scheme: Final = self.consortium.scheme
        self._place = self.consortium.computing_parties.index(home.member)

    def compute(
        self,
        batch: Batch,
        mailbox: Mailbox,
        *,
        timeout: float = 600.0,
        listen: tuple[str, int] | None = None,
        waiting: Callable[[Names], object] | None = None,
    ) -> Computed:
        """Compute the labels of a batch, or the sum of its ballots, and send the aggregator this party's share of it.

        The first computation of a batch fixes whose votes are in it. Every later one uses the same shares, so that
        a batch has one outcome however often it is tried.

        Parameters
        ----------
        batch, mailbox : Batch and Mailbox
            The aggregator's queries, and where envelopes lie.
        timeout : float
            Seconds to wait for the other parties to connect, and then for any message of theirs.
        listen : tuple of str and int, optional
            Host and port to listen at, if they are not those of the terms: behind an address translation.
        waiting : function of a tuple of str, optional
            Called every two seconds while connecting, with the names of those that are still missing.

        Raises
        ------
        QuorumError
            If too few entities answered, without a wait for the others. Nothing was opened, whatever the error.
        PartyLostError
            If another party failed or fell silent: try again with the same files.
        """
        begun = None
        kept = self._home.read_kept(_BEGUN, batch.identifier, [_AGREED])
        if kept is not None:
            begun = msgspec.json.decode(kept[_AGREED], type=_Pins)
        held, left_out = self._usable_shares(batch, mailbox)
        # The other parties cannot add entities whose shares this party lacks.
        self.consortium.require_quorum(held, left_out)

        async def body(session: Session) -> tuple[str, Names, bytes, int] | FederationError:
            """Return the outcome, or a refusal that all parties reach: if it were raised, a party would seem lost."""
            try:
                run, entities = await self._agree(session, batch, begun, held, left_out)
                totals = np.stack([held[name].blocks for name in entities]).sum(axis=0) % MODULUS
                result = await self._scheme.result(session, totals)
            except PartyLostError:
                raise
            except FederationError as refusal:
                return refusal
            return run, entities, result, session.bytes_sent

        me = self._home.identity
        aggregator = self.consortium.aggregator
        parties = self.consortium.computing_parties
        endpoints = [
            Endpoint(each.name, *host_and_port(each.address), str(each.certificate))
            for each in parties
        ]
        outcome = run_party(
            self._place,
            endpoints,
            cast("bytes", me.tls_key_pem),
            body,
            timeout=timeout,
            listen=listen,
            waiting=waiting,
        )
        if isinstance(outcome, FederationError):
            raise outcome
        run, entities, result, bytes_sent = outcome
        header = Header.of(self.consortium, batch, Kind.LABELS, me.member.name, aggregator.name)
        content = document("opened", Opened(run, entities)) + result
        mailbox.put_labels(batch, me.member, aggregator, run, seal(me, aggregator, header, content))
        return Computed(entities, left_out, bytes_sent)

    def _usable_shares(
        self, batch: Batch, mailbox: Mailbox
    ) -> tuple[dict[str, _EntityShares], dict[str, str]]:
        """Return the shares that this party can use, and why it cannot use others."""
        expected = self._scheme.expected_shares(batch)
        me = self._home.identity
        held = dict[str, _EntityShares]()
        left_out = dict[str, str]()
        for entity in self.consortium.entities:
            header = Header.of(self.consortium, batch, Kind.SHARES, entity.name, me.member.name)
            try:
                envelope = mailbox.answer(batch, entity, me.member).envelope()
                if envelope is None:
                    continue
                payload = unseal(me, entity, header, envelope)
                split = payload[:SPLIT_NAME_BYTES].hex()
                blocks = decode(payload[HEAD_BYTES:], expected.shape)
                held[entity.name] = _EntityShares(split, blocks, sha256_of(payload))
            except (FederationError, InvalidDataError) as error:
                left_out[entity.name] = str(error)
        # A release of sums names the entities, with their numbers of people, with which it was begun.
        if expected.people is not None:
            self._home.require_known(expected.people, expected.steps or {})
            held = {name: shares for name, shares in held.items() if name in expected.people}
        return held, left_out

    async def _seed(self, session: Session, batch: Batch, pins: _Pins) -> bytes:
        """Return the common seed of the random projections by which shares are tested: the same in every attempt."""
        name = f"{batch.identifier}-{sha256_of(canonical(pins).encode())[:32]}"
        own = self._home.keep(_TESTED, name, {_SEED: secrets.token_bytes(32)})
        return hashlib.sha256(b"".join(await session.exchange(own[_SEED]))).digest()

    async def _agree(
        self,
        session: Session,
        batch: Batch,
        begun: _Pins | None,
        held: dict[str, _EntityShares],
        left_out: dict[str, str],
    ) -> tuple[str, Names]:
        """Do steps 2 to 5; return the name of the run and its entities, and add others to `left_out`, with reasons."""
        messages = await session.exchange(_statement_of(self.consortium, batch, held, begun))
        everyones = [_read_statement(message) for message in messages]
        pins = _agreed_pins(everyones)
        for each in everyones:
            for name in each.held.keys() - pins.keys() - left_out.keys():
                left_out[name] = _MISSED

        remembered = [each.begun is not None for each in everyones]
        bounds = self._scheme.expected_shares(batch).bounds
        # Values that all three remember were found to be small enough before they wrote them down.
        if bounds is not None and not all(remembered):
            self.consortium.require_quorum(pins, left_out)
            vectors = np.stack([held[name].blocks.reshape(-1) for name in pins])
            seed = await self._seed(session, batch, pins)
            is_oversized = await session.find_oversized(
                vectors, [bounds[name] for name in pins], seed
            )
            large = {*compress(pins, is_oversized)}
            left_out |= dict.fromkeys(
                large, "what it sent is larger than that of all its people or teachers can be."
            )
            # They passed in the earlier attempt: a party lost its seed, or does not keep to the protocol.
            if large and any(remembered):
                raise StaleBatchError(
                    f"Batch {batch.identifier} began with values that are too large. Ask it again."
                )
            pins = {name: pin for name, pin in pins.items() if name not in large}
        self.consortium.require_quorum(pins, left_out)

        begun_with = {_AGREED: canonical(pins).encode()}
        if self._home.keep(_BEGUN, batch.identifier, begun_with) != begun_with:
            raise StaleBatchError(
                f"Batch {batch.identifier} was begun with other votes by another process. Try again."
            )

        about = canonical([batch.identifier, pins, [each.nonce for each in everyones]])
        run = sha256_of(about.encode())
        if set(await session.exchange(run.encode())) != {run.encode()}:
            raise StaleBatchError(
                "The parties do not agree on what they compute. Nothing was opened; try again."
            )
        return run, tuple(pins)
