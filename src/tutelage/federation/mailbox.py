"""Messages, the folder in which they lie, and the folder in which a member keeps what it must not forget.

Only the recipient reads a message, and knows whose it is and what it answers. An envelope is one line of JSON, the
header; 64 bytes of the sender's signature; and the sealed payload. In the mailbox every message has one place, is
written once and never half.
"""

import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import NamedTuple, Self, TypeVar, final

from tutelage._internal.outputs import sync
from tutelage._internal.records import made, named, parse, plain
from tutelage.digests import canonical
from tutelage.exceptions import (
    FederationError,
    ForgedMessageError,
    InvalidDataError,
    InvalidParameterError,
    StaleBatchError,
    shown,
)
from tutelage.federation.batches import Batch
from tutelage.federation.consortium import Consortium
from tutelage.federation.documents import (
    MOST_BYTES,
    MOST_HEADER_BYTES,
    MOST_PAYLOAD_BYTES,
    SIGNATURE_BYTES,
    hexadecimal,
    member_name,
    read_within,
    require_room,
    write_new,
    write_once,
)
from tutelage.federation.keys import Identity, Member, Role
from tutelage.federation.sharing import ELEMENT_BYTES

_CONTEXT = b"tutelage sealed message, format 1\0"
_RUN_DIGITS = 64
_named = partial(member_name, name="member", owner="Mailbox")
_BESIDE_LABELS = 2**20  # bytes of an envelope and of the names of the entities
_CONSORTIUM = "consortium.json"
_MOST_KEPT_BYTES = 2**31

Read = TypeVar("Read")


@final
class Kind(StrEnum):
    """Kinds of messages by content, sender and recipient."""

    SHARES = "shares"  # of noised votes, from an entity to a computing party
    LABELS = "labels"  # in shares, from a computing party to the aggregator
    BALLOTS = "ballots"  # perturbed one by one, from an entity to the aggregator


@final
@dataclass(frozen=True, slots=True)
class Header:
    """Subject of a message; public."""

    consortium: str
    batch: str
    query_hash: str
    kind: Kind
    sender: str
    recipient: str

    @classmethod
    def of(cls, consortium: Consortium, batch: Batch, kind: Kind, sender: str, recipient: str) -> Self:
        """Return the header of a message about `batch` from one member of `consortium` to another, by their names."""
        return cls(consortium.fingerprint, batch.identifier, batch.query_hash, kind, sender, recipient)

    def to_bytes(self) -> bytes:
        """Return the header as one line of canonical JSON."""
        return canonical(named("envelope", self)).encode() + b"\n"


@dataclass(frozen=True, slots=True)
class Opened:
    """The name of a computation, and whose votes are in it; sent with the share of a computing party."""

    run: str
    entities: tuple[str, ...]


def seal(identity: Identity, recipient: Member, header: Header, payload: bytes) -> bytes:
    """Encrypt `payload` to `recipient`, bound to `header`, and sign both; what comes out may travel over anything.

    Notes
    -----
    HPKE in base mode (RFC 9180) with the header as info, then Ed25519 over a fixed context, the header and the
    ciphertext. The header names the sender inside the seal as well, so that no member can sign another member's
    ciphertext as its own.
    """
    _require_named(identity.member, header.sender, "sender")
    _require_named(recipient, header.recipient, "recipient")
    if len(payload) > MOST_PAYLOAD_BYTES:
        raise InvalidDataError(f"A payload must be at most {MOST_PAYLOAD_BYTES} bytes. Split the batch.")
    line = header.to_bytes()
    ciphertext = recipient.seal(payload, line)
    return line + identity.sign(_CONTEXT + line + ciphertext) + ciphertext


def unseal(identity: Identity, sender: Member, expected: Header, envelope: bytes) -> bytes:
    """Return the payload of an envelope that is exactly what is expected."""
    _require_named(identity.member, expected.recipient, "recipient")
    return identity.unseal(sealed_by(sender, expected, envelope), expected.to_bytes())


def sealed_by(sender: Member, expected: Header, envelope: bytes) -> bytes:
    """Return the ciphertext of an envelope that its sender signed under the expected header; any member can."""
    _require_named(sender, expected.sender, "sender")
    if len(envelope) > MOST_BYTES:
        raise ForgedMessageError(f"A message from {sender.name} is longer than {MOST_BYTES} bytes, the most there is.")
    line = envelope[: envelope.find(b"\n", 0, MOST_HEADER_BYTES) + 1]
    body = envelope[len(line) :]
    if line != expected.to_bytes() or len(body) <= SIGNATURE_BYTES:
        raise _refusal(line, sender, expected)
    signature, ciphertext = body[:SIGNATURE_BYTES], body[SIGNATURE_BYTES:]
    if not sender.has_signed(_CONTEXT + line + ciphertext, signature):
        raise ForgedMessageError(f"A message was not signed by {sender.name}, or was damaged.")
    return ciphertext


def sent_by_entities(
    identity: Identity, consortium: Consortium, batch: Batch, mailbox: "Mailbox", read: Callable[[bytes], Read]
) -> tuple[dict[str, Read], dict[str, str]]:
    """Return what each entity sent this member about a batch, and why what others sent cannot be used."""
    found, left_out, me = dict[str, Read](), dict[str, str](), identity.member
    kind, party = (Kind.SHARES, me.name) if me.role is Role.COMPUTING else (Kind.BALLOTS, None)
    for entity in consortium.entities:
        header = Header.of(consortium, batch, kind, entity.name, me.name)
        try:
            envelope = mailbox.answer(batch, entity.name, party)
            if envelope is not None:
                found[entity.name] = read(unseal(identity, entity, header, envelope))
        except (FederationError, InvalidDataError) as error:
            left_out[entity.name] = str(error)
    return found, left_out


def _require_named(member: Member, name: str, role: str) -> None:
    if member.name != name:
        raise InvalidParameterError(f"`{role}` of the header must be {member.name!r}. Got {name!r}.")


def _refusal(line: bytes, sender: Member, expected: Header) -> ForgedMessageError:
    """Return why a message that begins with another line than the expected header is refused."""
    damaged = ForgedMessageError(f"A message from {sender.name} is damaged. It must be sent again.")
    try:
        content = plain(made(parse(line, "envelope", damaged), Header, damaged))
    except (ForgedMessageError, InvalidDataError) as error:
        if error is damaged:
            return damaged
        return ForgedMessageError(f"A message from {sender.name} cannot be read. {error}")
    for name, wanted in plain(expected).items():
        if (got := content[name]) != wanted:
            return ForgedMessageError(f"`{name}` of a message from {sender.name} must be {wanted}. Got {shown(got)}.")
    return damaged


@final
class Mailbox:
    """A folder that all members can reach, by network share, e-mail or sftp. It need not be trusted.

    Parameters
    ----------
    folder : path-like
        Where it lies; made when something is first written.

    Notes
    -----
    It holds ``consortium.json``, ``batches/<id>.batch``, ``shares/<id>/<entity>.to-<party>.sealed``,
    ``ballots/<id>/<entity>.sealed`` and ``labels/<id>/<party>.<run>.sealed``. Writing the same bytes again changes
    nothing; other bytes in the same place, and files that are damaged or no plain files, are refused.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    @property
    def consortium_path(self) -> Path:
        """Where the agreement lies."""
        return self.folder / "consortium.json"

    def put_consortium(self, consortium: Consortium) -> None:
        """Lay down the agreement."""
        consortium.save(self.consortium_path)

    def consortium(self) -> Consortium:
        """Return the agreement as it lies there; compare its fingerprint with the others' before joining it."""
        return Consortium.load(self.consortium_path)

    def batch_path(self, identifier: str) -> Path:
        """Return where the batch of that identifier lies."""
        return self.folder / "batches" / f"{hexadecimal(identifier, 32, 'identifier', 'Mailbox')}.batch"

    def put_batch(self, batch: Batch) -> None:
        """Announce a batch of queries."""
        batch.save(self.batch_path(batch.identifier))

    def batch(self, identifier: str, consortium: Consortium) -> Batch:
        """Return the batch of that identifier, checked as by `Batch.from_bytes`, and against the name of its file."""
        found = Batch.load(self.batch_path(identifier), consortium)
        if found.identifier != identifier:
            raise ForgedMessageError(f"The file of batch {identifier} holds batch {found.identifier}.")
        return found

    def batch_identifiers(self) -> list[str]:
        """Return the identifiers of the batches that lie there, sorted; none is opened."""
        return [found[1] for found in _matches(self.folder / "batches", r"([0-9a-f]{32})\.batch")]

    def put_answer(self, batch: Batch, entity: str, party: str | None, envelope: bytes) -> None:
        """Lay down an entity's sealed shares for one computing party, or its sealed ballots where there is none."""
        write_once(self._answer_path(batch, entity, party), envelope)

    def answer(self, batch: Batch, entity: str, party: str | None) -> bytes | None:
        """Return what `put_answer` laid down, or None if it is not sent yet."""
        path = self._answer_path(batch, entity, party)
        try:
            about = path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not stat.S_ISREG(about.st_mode) or about.st_size > MOST_BYTES:
            raise ForgedMessageError(f"{path} is no plain file of at most {MOST_BYTES} bytes. It must be sent again.")
        return read_within(path, MOST_BYTES)

    def put_labels(self, batch: Batch, party: str, run: str, envelope: bytes) -> None:
        """Lay down a computing party's sealed shares of the labels, as one run of the computation made them."""
        name = f"{_named(party)}.{hexadecimal(run, _RUN_DIGITS, 'run', 'Mailbox')}.sealed"
        write_once(self.folder / "labels" / batch.identifier / name, envelope)

    def labels(self, batch: Batch, party: str) -> Iterator[tuple[str, bytes]]:
        """Yield a computing party's runs and its sealed shares of the labels of each, in the order of the runs' names.

        Files of any other kind or name, and files longer than shares of this batch can be, are skipped.
        """
        # One query may be a round of a sum: its row has a 64-bit weight for each number of the sum.
        numbers = batch.n_queries if batch.n_queries > 1 else batch.rows.nbytes // 8
        most = ELEMENT_BYTES * numbers + _BESIDE_LABELS
        folder = self.folder / "labels" / batch.identifier
        for found in _matches(folder, rf"{re.escape(_named(party))}\.([0-9a-f]{{{_RUN_DIGITS}}})\.sealed"):
            about = (folder / found[0]).lstat()
            if stat.S_ISREG(about.st_mode) and about.st_size <= most:
                yield found[1], read_within(folder / found[0], most)

    def require_room(self, batch: Batch, entity: str | None = None, parties: Sequence[str | None] = ()) -> None:
        """Refuse, before anything is paid, to announce a batch or answer where a file lies or none can be written."""
        answers = [self._answer_path(batch, str(entity), party) for party in parties]
        for path in answers or [self.batch_path(batch.identifier)]:
            require_room(path)

    def has_answered(self, batch: Batch, entity: str, parties: Sequence[str | None]) -> bool:
        """Return whether an entity has sent an envelope to every party, or its ballots to no party in particular."""
        return all(self._answer_path(batch, entity, party).exists() for party in parties)

    def _answer_path(self, batch: Batch, entity: str, party: str | None) -> Path:
        kind, to = ("ballots", "") if party is None else ("shares", f".to-{_named(party)}")
        return self.folder / kind / batch.identifier / f"{_named(entity)}{to}.sealed"


def _matches(folder: Path, pattern: str) -> list[re.Match[str]]:
    try:
        names = sorted(path.name for path in folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [found for name in names if (found := re.fullmatch(pattern, name))]


class BatchStatus(NamedTuple):
    """How far one batch is; public."""

    batch: str
    queries: int
    answered: tuple[str, ...]
    missing: tuple[str, ...]
    computed: tuple[str, ...]
    complete: bool


def consortium_status(consortium: Consortium, mailbox: Mailbox) -> tuple[list[BatchStatus], dict[str, str]]:
    """Return how far every genuine batch in the mailbox is, and by identifier why others are refused."""
    found, refused = list[BatchStatus](), dict[str, str]()
    for identifier in mailbox.batch_identifiers():
        try:
            found.append(batch_status(consortium, mailbox, mailbox.batch(identifier, consortium)))
        except (FederationError, InvalidDataError) as error:
            refused[identifier] = str(error)
    return found, refused


def batch_status(consortium: Consortium, mailbox: Mailbox, batch: Batch) -> BatchStatus:
    """Return how far one batch is; labels that a party did not sign count as none."""
    names, parties = ([each.name for each in some] for some in (consortium.entities, consortium.computing_parties))
    answered = tuple(name for name in names if mailbox.has_answered(batch, name, parties or [None]))
    runs: dict[str, set[str]] = {party: set() for party in parties}
    for party in consortium.computing_parties:
        header = Header.of(consortium, batch, Kind.LABELS, party.name, consortium.aggregator.name)
        for run, envelope in mailbox.labels(batch, party.name):
            with suppress(FederationError, InvalidDataError):
                sealed_by(party, header, envelope)
                runs[party.name].add(run)
    missing = tuple(name for name in names if name not in answered)
    computed = tuple(party for party in parties if runs[party])
    complete = bool(runs) and bool(set.intersection(*runs.values()))
    return BatchStatus(batch.identifier, batch.n_queries, answered, missing, computed, complete)


@final
class Home:
    """The folder of one member on its own machine; nothing in it is for others.

    Parameters
    ----------
    path : path-like
        A folder that holds one private key file, as `Identity.save` writes it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        keys = sorted(self._path.glob("*.private.json"))
        if len(keys) != 1:
            raise FederationError(
                f"{self._path} must hold one private key file, NAME.private.json. It holds {len(keys)}. Make one with "
                "`tutelage federate keygen`."
            )
        self.identity = Identity.load(keys[0])

    def join(self, consortium: Consortium, fingerprint: str) -> None:
        """Take part in `consortium`, as found in the mailbox, from now on, and in no other.

        `fingerprint` is that of the terms as the members read it to each other, not taken from the mailbox.
        """
        if consortium.fingerprint != "".join(fingerprint.split()).lower():
            raise FederationError(
                f"The consortium's terms have the fingerprint {consortium.fingerprint}, not the one given. Do not join "
                "before all members read the same one to each other."
            )
        if self.identity.member not in consortium.members:
            raise FederationError(
                f"The consortium does not name {self.identity.member.name} with the keys of this folder. Send its "
                "public key file to the author of the terms."
            )
        joined = self._path / _CONSORTIUM
        if not joined.exists():
            consortium.save(joined)
        elif self.consortium().fingerprint != consortium.fingerprint:
            raise FederationError(f"{self._path} has joined another consortium. Use a folder of its own for each.")

    def consortium(self) -> Consortium:
        """Return the consortium that was joined."""
        joined = self._path / _CONSORTIUM
        if not joined.exists():
            raise FederationError(f"{self._path} has joined no consortium yet. Run `tutelage federate join`.")
        return Consortium.load(joined)

    def consortium_as(self, role: Role) -> Consortium:
        """Return the consortium that was joined, once this member is found to have `role` in it, with these keys."""
        consortium, member = self.consortium(), self.identity.member
        if member not in consortium.members:
            raise FederationError(f"The keys in {self._path} are not those that {member.name} joined with.")
        if member.role is not role:
            articles = {Role.ENTITY: "an entity", Role.COMPUTING: "a computing party"}
            is_, needed = (articles.get(each, "the aggregator") for each in (member.role, role))
            raise FederationError(f"{member.name} is {is_}, and this is for {needed}.")
        return consortium

    def kept(self, kind: str, batch: str, names: Collection[str]) -> dict[str, bytes] | None:
        """Return what `keep` stored under these names, or None where nothing was; other content is refused."""
        folder = self._path / kind / batch
        if not folder.exists():
            return None
        found = {path.name: path for path in folder.iterdir()} if folder.is_dir() else {}
        if set(found) != set(names):
            raise StaleBatchError(
                f"{folder} does not contain the stored content. Restore it from a copy; it cannot be created again."
            )
        return {name: read_within(path, _MOST_KEPT_BYTES) for name, path in found.items()}

    def keep(self, kind: str, batch: str, files: dict[str, bytes]) -> dict[str, bytes]:
        """Store files of a batch by name, all of them or none, on the disk before this returns.

        Content that was stored first stays: an earlier or a racing process's files are returned, where it came first.
        """
        final_place = self._path / kind / batch
        final_place.parent.mkdir(mode=0o700, exist_ok=True)
        draft = final_place.with_name(f".{batch}.{secrets.token_hex(8)}")
        draft.mkdir(mode=0o700)
        try:
            for name, content in files.items():
                write_new(draft / name, content, 0o600)
            sync(draft)
            draft.rename(final_place)  # refused where a folder with files is there already
        except OSError:
            shutil.rmtree(draft, ignore_errors=True)
            if not final_place.is_dir():
                raise
        sync(final_place.parent)
        stored = self.kept(kind, batch, files)
        if stored is None:
            raise StaleBatchError(f"The stored state of batch {batch} is gone.")
        return stored
