"""Messages, the folder in which they lie, and the folder in which a member keeps what it must not forget.

Only the recipient reads a message, and knows whose it is and what it answers. An envelope is one line of JSON, the
header; 64 bytes of the sender's signature; and the sealed payload. In the mailbox every message has one place, is
written once and never half.
"""

import re
import secrets
import shutil
import stat
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from enum import StrEnum
from math import inf
from pathlib import Path
from typing import NamedTuple, Self, final

from tutelage._internal.gate import AnyPath
from tutelage._internal.outputs import sync
from tutelage._internal.records import Names, frozen, plain, record_in, sha256_of
from tutelage.exceptions import (
    FederationError,
    ForgedMessageError,
    InvalidDataError,
    InvalidParameterError,
    StaleBatchError,
    quote,
)
from tutelage.ledger.disk import hold_folder
from tutelage.signing import document, require_hexadecimal
from tutelage_consortium.batches import Batch
from tutelage_consortium.consortium import Consortium
from tutelage_consortium.documents import (
    MOST_BYTES,
    MOST_HEADER_BYTES,
    MOST_PAYLOAD_BYTES,
    SIGNATURE_BYTES,
    read_within,
    write_new,
    write_once,
)
from tutelage_consortium.keys import Identity, Member, Role, names_of
from tutelage_consortium.sharing import ELEMENT_BYTES

_CONTEXT = b"tutelage sealed message, format 1\0"
_RUN_DIGITS = 64
_ACCEPTS = b"tutelage accepted roster, format 1\0"
_COLLECTED = b"tutelage collected batch, format 1\0"
_BESIDE_LABELS = 2**20  # bytes of an envelope and of the names of the entities
_ROSTERS = "rosters"
_RETIRED = "retired-keys"
_MOST_KEPT_BYTES = 2**31


@final
class Kind(StrEnum):
    """Kinds of messages by content, sender and recipient."""

    SHARES = "shares"  # of noised votes, from an entity to a computing party
    LABELS = "labels"  # in shares, from a computing party to the aggregator


@final
@frozen
class Header:
    """Subject of a message; public."""

    consortium: str
    batch: str
    query_hash: str
    kind: Kind
    sender: str
    recipient: str

    @classmethod
    def of(
        cls, consortium: Consortium, batch: Batch, kind: Kind, sender: str, recipient: str
    ) -> Self:
        """Return the header of a message about `batch` from one member of `consortium` to another, by their names."""
        return cls(
            consortium.fingerprint, batch.identifier, batch.query_hash, kind, sender, recipient
        )

    def to_bytes(self) -> bytes:
        """Return the header as one line of canonical JSON."""
        return document("envelope", self)


@frozen
class Opened:
    """The name of a computation, and whose votes are in it; sent with the share of a computing party."""

    run: str
    entities: Names


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
        raise InvalidDataError(
            f"A payload must be at most {MOST_PAYLOAD_BYTES} bytes. Split the batch."
        )
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
        raise ForgedMessageError(
            f"A message from {sender.name} is longer than {MOST_BYTES} bytes, the limit."
        )
    line = envelope[: envelope.find(b"\n", 0, MOST_HEADER_BYTES) + 1]
    body = envelope[len(line) :]
    if line != expected.to_bytes() or len(body) <= SIGNATURE_BYTES:
        raise _refusal(line, sender, expected)
    signature = body[:SIGNATURE_BYTES]
    ciphertext = body[SIGNATURE_BYTES:]
    if not sender.has_signed(_CONTEXT + line + ciphertext, signature):
        raise ForgedMessageError(f"A message was not signed by {sender.name}, or was damaged.")
    return ciphertext


def _require_named(member: Member, name: str, role: str) -> None:
    """Refuse keys of another member than a header names."""
    if member.name != name:
        raise InvalidParameterError(f"the header.{role}", f"be {member.name!r}", f"{name!r}")


def _refusal(line: bytes, sender: Member, expected: Header) -> ForgedMessageError:
    """Return why a message that begins with another line than the expected header is refused."""
    damaged = ForgedMessageError(f"A message from {sender.name} is damaged. It must be sent again.")
    try:
        content = plain(record_in(line, "envelope", Header, damaged))
    except (ForgedMessageError, InvalidDataError) as error:
        if error is damaged:
            return damaged
        return ForgedMessageError(f"A message from {sender.name} cannot be read. {error}")
    for name, wanted in plain(expected).items():
        if (got := content[name]) != wanted:
            return ForgedMessageError(
                f"`{name}` of a message from {sender.name} must be {wanted}. Got {quote(got)}."
            )
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
    It holds ``members/<name>.<keys>.json``, ``rosters/<number>.json``, ``accepted/<number>/<name>.signature``,
    ``batches/<id>.<key>.batch`` and ``.collected``, and messages
    ``<kind>/<id>/<sender>.to-<recipient>.<keys>.sealed``. `<keys>` are of both ends: who has new keys is sent the same
    again. Writing the same bytes again changes nothing; other
    bytes in the same place, and files that are damaged or no plain files, are refused.
    """

    def __init__(self, folder: AnyPath) -> None:
        self.folder = Path(folder)

    def put_member(self, member: Member) -> None:
        """Lay down the public keys of a member, if they do not lie there."""
        path = self.folder / "members" / f"{member.name}.{_digest(member.fingerprint)}.json"
        if not path.exists():
            write_once(path, member.to_bytes())

    def members(self) -> list[Member]:
        """Return all public keys that lie there, the newest of each name last; what is no member is skipped."""
        folder = self.folder / "members"
        found = list[tuple[int, Member]]()
        for name in _matches(folder, r"[A-Za-z0-9_-]+\.[0-9a-f]{16}\.json"):
            with suppress(InvalidDataError, InvalidParameterError, OSError):
                found.append(((folder / name[0]).stat().st_mtime_ns, Member.load(folder / name[0])))
        return [member for _, member in sorted(found, key=lambda pair: pair[0])]

    def put_roster(self, consortium: Consortium) -> None:
        """Propose the terms with a roster; members compare its words before they accept it."""
        consortium.save(self.folder / "rosters" / f"{consortium.roster}.json")

    def newest_roster(self, least: int = 0) -> Consortium | None:
        """Return the newest roster that was proposed, from this number on, or None."""
        folder = self.folder / "rosters"
        numbers = {int(found[1]) for found in _matches(folder, r"(0|[1-9][0-9]{0,8})\.json")}
        for number in sorted((one for one in numbers if one >= least), reverse=True):
            with suppress(InvalidDataError, InvalidParameterError):  # junk hides no roster
                if (found := Consortium.load(folder / f"{number}.json")).roster == number:
                    return found
        return None

    def put_acceptance(self, identity: Identity, consortium: Consortium) -> None:
        """Sign a roster, so that all others see that this member has accepted it."""
        path = self._acceptance(identity.member, consortium)
        if not path.exists():
            write_once(path, identity.sign(_ACCEPTS + bytes.fromhex(consortium.roster_hash)))

    def accepted(self, consortium: Consortium) -> Names:
        """Return the names of the members that have signed this roster."""
        said = _ACCEPTS + bytes.fromhex(consortium.roster_hash)
        signed = [
            one
            for one in consortium.members
            if _has_signed(one, said, self._acceptance(one, consortium))
        ]
        return tuple(names_of(signed))

    def put_collected(self, identity: Identity, batch: Batch, consortium: Consortium) -> None:
        """Sign, as the aggregator, that a batch is collected: whatever keys members have later, none works on it."""
        path = self.batch_path(batch.identifier, consortium).with_suffix(".collected")
        if not self.is_collected(batch.identifier, consortium):
            with suppress(InvalidDataError):  # junk in its place must not stop a release
                write_once(path, identity.sign(_COLLECTED + bytes.fromhex(batch.identifier)))

    def is_collected(self, identifier: str, consortium: Consortium) -> bool:
        """Return whether the aggregator has signed that a batch is collected."""
        path = self.batch_path(identifier, consortium).with_suffix(".collected")
        return _has_signed(consortium.aggregator, _COLLECTED + bytes.fromhex(identifier), path)

    def _acceptance(self, member: Member, consortium: Consortium) -> Path:
        return self.folder / "accepted" / f"{consortium.roster}" / f"{member.name}.signature"

    def batch_path(self, identifier: str, consortium: Consortium) -> Path:
        """Return where the batch of that identifier lies, as the aggregator signs it with its present keys."""
        key = _digest(consortium.aggregator.signing_key)
        return (
            self.folder
            / "batches"
            / f"{require_hexadecimal(identifier, 32, 'identifier', 'Mailbox')}.{key}.batch"
        )

    def put_batch(self, batch: Batch, consortium: Consortium) -> None:
        """Announce a batch of queries."""
        batch.save(self.batch_path(batch.identifier, consortium))

    def batch(self, identifier: str, consortium: Consortium) -> Batch:
        """Return the batch of that identifier, checked as by `Batch.from_bytes`, and against the name of its file."""
        found = Batch.load(self.batch_path(identifier, consortium), consortium)
        if found.identifier != identifier:
            raise ForgedMessageError(
                f"The file of batch {identifier} holds batch {found.identifier}."
            )
        return found

    def batch_identifiers(self, consortium: Consortium) -> list[str]:
        """Return the identifiers of the batches that lie there, sorted; none is opened."""
        key = _digest(consortium.aggregator.signing_key)
        return [
            found[1]
            for found in _matches(self.folder / "batches", rf"([0-9a-f]{{32}})\.{key}\.batch")
        ]

    def answer(self, batch: Batch, sender: Member, recipient: Member) -> "Slot":
        """Return where an entity's sealed shares for a computing party lie."""
        return Slot(
            self.folder / "shares" / batch.identifier / f"{_between(sender, recipient)}.sealed"
        )

    def put_labels(
        self, batch: Batch, sender: Member, recipient: Member, run: str, envelope: bytes
    ) -> None:
        """Lay down a computing party's sealed shares of the labels, as one run of the computation made them."""
        name = f"{_between(sender, recipient)}.{require_hexadecimal(run, _RUN_DIGITS, 'run', 'Mailbox')}.sealed"
        write_once(self.folder / "labels" / batch.identifier / name, envelope)

    def labels(
        self, batch: Batch, sender: Member, recipient: Member
    ) -> Iterator[tuple[str, bytes]]:
        """Yield a computing party's runs and its sealed shares of the labels of each, in the order of the runs' names.

        Files of any other kind or name, and files longer than shares of this batch can be, are skipped.
        """
        # One query may be a round of a sum, whose numbers are known from its row alone.
        most = (
            MOST_BYTES if batch.n_queries == 1 else ELEMENT_BYTES * batch.n_queries + _BESIDE_LABELS
        )
        folder = self.folder / "labels" / batch.identifier
        name = re.escape(_between(sender, recipient))
        for found in _matches(folder, rf"{name}\.([0-9a-f]{{{_RUN_DIGITS}}})\.sealed"):
            if _size(folder / found[0]) <= most:
                yield found[1], read_within(folder / found[0], most)


@final
@frozen
class Slot:
    """The place of one message."""

    path: Path

    def put(self, envelope: bytes) -> None:
        """Lay the message down."""
        write_once(self.path, envelope)

    def envelope(self) -> bytes | None:
        """Return what was laid down, or None if nothing was yet."""
        try:
            size = _size(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if size > MOST_BYTES:
            raise ForgedMessageError(
                f"{self.path} is no plain file of at most {MOST_BYTES} bytes. It must be sent again."
            )
        return read_within(self.path, MOST_BYTES)


def sizes_of_answers(mailbox: Mailbox, sender: str) -> dict[str, list[float]]:
    """Return the bytes of what lies there as sealed answers of a member, by batch; whose they are is not checked."""
    sizes = defaultdict[str, list[float]](list)
    shares = mailbox.folder / "shares"
    for batch in _matches(shares, "[0-9a-f]{32}"):
        for sealed in _matches(shares / batch[0], rf"{re.escape(sender)}\.to-.+\.sealed"):
            with suppress(OSError):
                size = _size(shares / batch[0] / sealed[0])
                if size <= MOST_BYTES:
                    sizes[batch[0]].append(size)
    return dict(sizes)


def _between(sender: Member, recipient: Member) -> str:
    """Return the name of messages from one member with its present keys to another with its own."""
    return (
        f"{sender.name}.to-{recipient.name}.{_digest(sender.signing_key + recipient.sealing_key)}"
    )


def _size(path: Path) -> float:
    """Return the bytes of a plain file, and infinity for a link, a folder or a device."""
    about = path.lstat()
    return about.st_size if stat.S_ISREG(about.st_mode) else inf


def _has_signed(member: Member, message: bytes, path: Path) -> bool:
    """Return whether a file holds a member's signature of a message."""
    try:
        return member.has_signed(message, read_within(path, SIGNATURE_BYTES))
    except InvalidDataError:
        return False


def _digest(text: str) -> str:
    return sha256_of(text.encode())[:16]


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
    answered: Names
    missing: Names
    computed: Names
    complete: bool


def consortium_status(
    consortium: Consortium, mailbox: Mailbox
) -> tuple[list[BatchStatus], dict[str, str]]:
    """Return how far every genuine batch in the mailbox is, and by identifier why others are refused."""
    found = list[BatchStatus]()
    refused = dict[str, str]()
    for identifier in mailbox.batch_identifiers(consortium):
        try:
            found.append(batch_status(consortium, mailbox, mailbox.batch(identifier, consortium)))
        except (FederationError, InvalidDataError) as error:
            refused[identifier] = str(error)
    return found, refused


def batch_status(
    consortium: Consortium, mailbox: Mailbox, batch: Batch, recipient: Member | None = None
) -> BatchStatus:
    """Return how far one batch is; labels that a party did not sign count as none.

    The hospitals that have answered are known from what lies in this mailbox for one `recipient`, or for all of them.
    """
    parties = consortium.computing_parties
    aggregator = consortium.aggregator
    recipients = parties if recipient is None else [recipient]
    entities = names_of(consortium.entities)
    lacking = {
        one.name
        for one in consortium.entities
        for each in recipients
        if not mailbox.answer(batch, one, each).path.exists()
    }
    missing = tuple(name for name in entities if name in lacking)
    answered = tuple(name for name in entities if name not in lacking)
    runs: dict[str, set[str]] = {party.name: set() for party in parties}
    for party in parties:
        header = Header.of(consortium, batch, Kind.LABELS, party.name, aggregator.name)
        for run, envelope in mailbox.labels(batch, party, aggregator):
            with suppress(FederationError, InvalidDataError):
                sealed_by(party, header, envelope)
                runs[party.name].add(run)
    computed = tuple(name for name, found in runs.items() if found)
    complete = bool(set.intersection(*runs.values())) or mailbox.is_collected(
        batch.identifier, consortium
    )
    return BatchStatus(batch.identifier, batch.n_queries, answered, missing, computed, complete)


@final
class Home:
    """The folder of one member on its own machine; nothing in it is for others.

    Parameters
    ----------
    path : path-like
        A folder that holds one private key file, as `Identity.save` writes it.
    """

    def __init__(self, path: AnyPath) -> None:
        self._path = Path(path)
        keys = sorted(self._path.glob("*.private.json"))
        if len(keys) != 1:
            raise FederationError(
                f"{self._path} must hold one private key file, NAME.private.json. It holds {len(keys)}. To "
                "replace a lost key, type `tutelage consortium join INVITE --home HOME --new-keys`; for a coordinator, "
                "`tutelage consortium new TERMS --home HOME`."
            )
        self.identity = Identity.load(keys[0])
        self.member = self.identity.member

    @staticmethod
    def retire_keys(path: Path) -> None:
        """Move the keys of a home away, so that new ones can be made; stores and ledger stay."""
        retired = path / _RETIRED / secrets.token_hex(4)
        retired.mkdir(mode=0o700, parents=True)
        for kind in ("private", "public"):
            for file in path.glob(f"*.{kind}.json"):
                file.rename(retired / file.name)

    def join(self, consortium: Consortium, words: str) -> None:
        """Take part in `consortium` as this roster says, from now on; in another folder, in another consortium.

        `words` are its six words as the members read them to each other, not taken from the mailbox.
        """
        if consortium.words != " ".join(words.lower().split()):
            raise FederationError(
                f"`words` must be the six words of the roster that was proposed, {consortium.words!r}. They are not. "
                "Do not accept it before all members read the same ones to each other."
            )
        before = self.joined()
        if before is not None:
            if before.roster_hash == consortium.roster_hash:
                return
            if before.fingerprint != consortium.fingerprint:
                raise FederationError(
                    f"{self._path} has joined another consortium. Use a folder of its own for each."
                )
            if consortium.roster <= before.roster:
                raise FederationError(
                    f"`roster` of the consortium must be above {before.roster}, the number of the roster that "
                    f"{self.member.name} has accepted. Got {consortium.roster}. An older one is never taken "
                    "back."
                )
        if self.member not in consortium.members:
            raise FederationError(
                f"The consortium does not name {self.member.name} with the keys of this folder. The "
                "coordinator must propose a roster that does."
            )
        consortium.save(self._path / _ROSTERS / f"{consortium.roster}.json")

    def consortium(self) -> Consortium:
        """Return the consortium that was joined, with the roster that was accepted last."""
        joined = self.joined()
        if joined is None:
            raise FederationError(
                f"{self._path} has joined no consortium yet. Run `tutelage consortium serve`."
            )
        return joined

    def joined(self) -> Consortium | None:
        """Return the same, or None before any was joined."""
        numbers = [int(found[1]) for found in _matches(self._path / _ROSTERS, r"(\d{1,9})\.json")]
        return Consortium.load(self._path / _ROSTERS / f"{max(numbers)}.json") if numbers else None

    def require_known(self, people: Mapping[str, int]) -> None:
        """Refuse numbers of people that are not those of a roster that this member accepted."""
        for path in (self._path / _ROSTERS).glob("*.json"):
            if people == Consortium.load(path).people_at:
                return
        raise StaleBatchError(
            f"A release began with other hospitals or numbers of people than any roster "
            f"that {self.member.name} has accepted. Nothing was spent. Ask for a new release."
        )

    def consortium_as(self, role: Role) -> Consortium:
        """Return the consortium that was joined, once this member is found to have `role` in it, with these keys."""
        consortium = self.consortium()
        member = self.member
        if member not in consortium.members:
            raise FederationError(
                f"The keys in {self._path} are not those that {member.name} joined with."
            )
        if member.role is not role:
            articles = {Role.ENTITY: "an entity", Role.COMPUTING: "a computing party"}
            is_, needed = (articles.get(each, "the aggregator") for each in (member.role, role))
            raise FederationError(f"{member.name} is {is_}, but only {needed} can do this.")
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
        with hold_folder(final_place.parent, ".*"):
            draft = final_place.with_name(f".{batch}.{secrets.token_hex(8)}")
            draft.mkdir(mode=0o700)
            try:
                for name, content in files.items():
                    write_new(draft / name, content)
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
