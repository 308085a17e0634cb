"""A consortium in a folder, for tests: its members' homes, a mailbox, and computing parties as real processes."""

import os
import shutil
import signal
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from parties import BACKSTOP, Child, free_ports, record
from tutelage.ledger import Ledger
from tutelage.mechanisms import GNMax
from tutelage.privacy import NeighboringRelation, PrivacyUnit
from tutelage_consortium import (
    Aggregator,
    Batch,
    ComputingParty,
    Consortium,
    Entity,
    Home,
    Identity,
    Mailbox,
    Role,
)
from tutelage_consortium.computing_party import Computed
from tutelage_consortium.keys import Member
from tutelage_consortium.messages import Header, Kind, seal, unseal
from tutelage_consortium.mpc import Session
from tutelage_consortium.schemes import SharedVotes
from tutelage_consortium.sums import SharedSums

PATIENT = PrivacyUnit("patient", NeighboringRelation.ADD_REMOVE_OR_CHANGE_WITHIN_SILO)
PARTIES = ("left", "middle", "right")
CLASSES, TEACHERS = 3, 25


@dataclass(frozen=True)
class Members:
    """Where everybody's folder is, and what they agreed on."""

    folder: Path
    consortium: Consortium
    mailbox: Mailbox

    def copied(self, folder: Path) -> "Members":
        """Return the same members in a copy of their folder, as new processes find them."""
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        return Members(folder, self.consortium, Mailbox(folder / "mailbox"))

    def home(self, name: str) -> Home:
        return Home(self.folder / name)

    def ledger(self, name: str) -> Ledger:
        return Ledger.open(self.folder / name / "ledger")

    def member(self, name: str) -> Member:
        return next(member for member in self.consortium.members if member.name == name)

    def entity(self, name: str) -> Entity:
        return Entity(self.home(name), self.ledger(name))

    def aggregator(self) -> Aggregator:
        return Aggregator(self.home("aggregator"), self.ledger("aggregator"))

    def ask(self, queries: int, *, first: int = 0) -> Batch:
        rows = np.arange(first, first + queries, dtype=np.float64)[:, None]
        batch = self.aggregator().ask(rows, self.mailbox)
        assert batch is not None
        return batch

    def sealed(
        self, batch: Batch, kind: Kind, sender: str, recipient: str, payload: bytes
    ) -> bytes:
        """Return what a member may seal to another, of its own making."""
        header = Header.of(self.consortium, batch, kind, sender, recipient)
        return seal(self.home(sender).identity, self.member(recipient), header, payload)

    def opened(
        self, batch: Batch, sender: str, recipient: str, envelope: Any, kind: Kind = Kind.SHARES
    ) -> bytes:
        """Return what is in an envelope."""
        header = Header.of(self.consortium, batch, kind, sender, recipient)
        return unseal(self.home(recipient).identity, self.member(sender), header, envelope)

    def payloads(self, batch: Batch, name: str) -> list[bytes]:
        """Return what an entity sent to each of the computing parties, as all of them together would see it."""
        return [
            self.opened(batch, name, party, self.answer(batch, name, party)) for party in PARTIES
        ]

    def send(self, batch: Batch, name: str, ballots: np.ndarray) -> dict[str, bytes]:
        """Vote, and return what went into the mailbox."""
        self.entity(name).vote(batch, ballots, self.mailbox)
        return {party: self.answer(batch, name, party) for party in PARTIES}

    def put_answer(self, batch: Batch, sender: str, recipient: str, envelope: bytes) -> None:
        self.mailbox.answer(batch, self.member(sender), self.member(recipient)).put(envelope)

    def put_labels(self, batch: Batch, party: str, run: str, envelope: bytes) -> None:
        self.mailbox.put_labels(
            batch, self.member(party), self.consortium.aggregator, run, envelope
        )

    def labels(self, batch: Batch, party: str) -> list[tuple[str, bytes]]:
        return list(self.mailbox.labels(batch, self.member(party), self.consortium.aggregator))

    def place(self, batch: Batch, sender: str, recipient: str) -> Path:
        """Return where a member's answer to another lies."""
        return self.mailbox.answer(batch, self.member(sender), self.member(recipient)).path

    def answer(self, batch: Batch, sender: str, recipient: str) -> bytes:
        """Return what a member sent another, sealed."""
        envelope = self.mailbox.answer(
            batch, self.member(sender), self.member(recipient)
        ).envelope()
        assert envelope is not None
        return envelope


def found(
    folder: Path, mechanism: Any = None, *, entities: int = 4, epsilon: float = 20.0, **terms: Any
) -> Members:
    """Make keys for everybody, agree on terms, join, and open ledgers."""
    names = [f"hospital-{number}" for number in range(entities)]
    identities = [Identity.generate(name, Role.ENTITY) for name in names]
    addresses = [f"127.0.0.1:{port}" for port in free_ports(3)]
    pairs = zip(PARTIES, addresses, strict=True)
    identities += [Identity.generate(name, Role.COMPUTING, address) for name, address in pairs]
    identities.append(Identity.generate("aggregator", Role.AGGREGATOR))
    agreed = {
        "name": "Hospitals", "classes": tuple(map(str, range(CLASSES))), "mechanism": mechanism or GNMax(8.0),
        "teachers_per_entity": TEACHERS, "quorum": 3, "colluding": 1, "unit": PATIENT,
    } | terms  # fmt: skip
    consortium = Consortium(members=tuple(identity.member for identity in identities), **agreed)
    for identity in identities:
        home = folder / identity.member.name
        home.mkdir(parents=True)
        identity.save(home)
        Home(home).join(consortium, consortium.words)
        if identity.member.role is not Role.COMPUTING:
            owner = identity.member.name
            Ledger.create(
                home / "ledger", epsilon=epsilon, delta=1e-5, unit=consortium.unit, owner=owner
            )
    return Members(folder, consortium, Mailbox(folder / "mailbox"))


def unanimous(labels: np.ndarray) -> np.ndarray:
    """Return ballots of one entity whose teachers all agree."""
    return np.tile(labels, (TEACHERS, 1))


class Computing(Child):
    """One computing party at work; `killed` for one that is killed before its first label.

    It ends with what it computed, or the error that it raised.
    """

    def __init__(self, members: Members, name: str, batch: Batch, **options: Any) -> None:
        super().__init__(
            _compute, members.folder / name, members.mailbox.folder, batch.identifier, options
        )

    def outcome(self) -> Computed:
        if isinstance(found := self.ended(), Exception):
            raise found
        return found


def compute(members: Members, batch: Batch, **options: Any) -> list[Any]:
    """Let all three parties compute a batch; return what each came to: a Computed, or the error that it raised."""
    running = [Computing(members, name, batch, **options) for name in PARTIES]
    return [party.ended() for party in running]


def all_ended(members: Members, batch: Batch, kind: type = Computed, **options: Any) -> list[Any]:
    """Let all three parties compute a batch, and return what each came to, once it is of this kind."""
    outcomes = compute(members, batch, **options)
    assert {type(one) for one in outcomes} == {kind}, outcomes
    return outcomes


_DEATHS: dict[object, tuple[tuple[type, str], ...]] = {
    True: ((SharedVotes, "result"), (SharedSums, "result")),
    "agreeing": ((Session, "exchange"),),
}


def _compute(
    pipe: Connection, home: Path, mailbox: Path, identifier: str, options: dict[str, Any]
) -> None:
    try:
        party, box = ComputingParty(Home(home)), Mailbox(mailbox)
        batch = box.batch(identifier, party.consortium)
        if "records" in options:
            record(options["records"] / home.name)
        if options.get("killed"):
            for where, what in _DEATHS[options["killed"]]:
                setattr(where, what, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
        pipe.send(party.compute(batch, box, timeout=options.get("timeout", BACKSTOP)))
    except Exception as error:
        pipe.send(error)
