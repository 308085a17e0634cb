"""The mailbox: a folder in which every message has one place, is written once and never half."""

import re
import stat
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import NamedTuple, final

from tutelage._internal.gate import AnyPath
from tutelage._internal.records import Names, frozen, sha256_of
from tutelage.exceptions import (
    FederationError,
    ForgedMessageError,
    InvalidDataError,
    InvalidParameterError,
)
from tutelage.signing import document, require_hexadecimal
from tutelage_consortium.batches import Batch
from tutelage_consortium.consortium import Consortium
from tutelage_consortium.documents import (
    MOST_BYTES,
    MOST_LINE_BYTES,
    SIGNATURE_BYTES,
    SignedDocument,
)
from tutelage_consortium.files import matching_names, read_within, write_once
from tutelage_consortium.keys import Identity, Member, names_of
from tutelage_consortium.messages import Header, Kind, sealed_by
from tutelage_consortium.sharing import ELEMENT_BYTES

_RUN_DIGITS = 64
_BESIDE_LABELS = 2**20  # bytes of an envelope and of the names of the entities


@frozen
class _Accepted:
    """A roster that a member accepted."""

    roster_hash: str


@frozen
class _Collected:
    """A batch that the aggregator collected."""

    batch: str


@final
class Mailbox:
    """A folder that all members can reach, by network share, e-mail or sftp. It need not be trusted.

    Parameters
    ----------
    folder : path-like
        Where it lies; made when something is first written.

    Notes
    -----
    It holds these files; `<digest>` is a short hash of keys, so that new keys have a new place:

    - ``members/<name>.<digest>.json``: the public keys of a member
    - ``rosters/<number>.json``: a roster that was proposed
    - ``accepted/<number>/<name>.signature``: a member's acceptance of it
    - ``batches/<id>.<digest>.batch`` and ``.collected``: a batch, and that it is collected; keys of the aggregator
    - ``shares/<id>/<sender>.to-<recipient>.<digest>.sealed``: an entity's shares; keys of sender and recipient
    - ``labels/<id>/<sender>.to-<recipient>.<digest>.<run>.sealed``: a computing party's shares of the outcome, one file
      per run of the computation

    Writing the same bytes again changes nothing. Other bytes in the same place, damaged files and links are refused.
    """

    def __init__(self, folder: AnyPath) -> None:
        self.folder = Path(folder)

    def put_member(self, member: Member) -> None:
        """Write the public keys of a member, if they are not stored there."""
        path = self.folder / "members" / f"{member.name}.{_digest(member.fingerprint)}.json"
        if not path.exists():
            write_once(path, member.to_bytes())

    def members(self) -> list[Member]:
        """Return all public keys that are stored, the newest of each name last; other files are skipped.

        The order trusts the times of the files, which the owner of the folder can set. This chooses only which keys the
        coordinator proposes: members compare the words of the roster, a hash of all keys, before they accept it.
        """
        folder = self.folder / "members"
        found = list[tuple[int, Member]]()
        for name in matching_names(folder, r"[A-Za-z0-9_-]+\.[0-9a-f]{16}\.json"):
            with suppress(InvalidDataError, InvalidParameterError, OSError):
                found.append(((folder / name[0]).stat().st_mtime_ns, Member.load(folder / name[0])))
        return [member for _, member in sorted(found, key=lambda pair: pair[0])]

    def put_roster(self, consortium: Consortium) -> None:
        """Propose the terms with a roster; members compare its words before they accept it."""
        consortium.save(self.folder / "rosters" / f"{consortium.roster}.json")

    def newest_roster(self, least: int = 0) -> Consortium | None:
        """Return the newest roster that was proposed, from this number on, or None."""
        folder = self.folder / "rosters"
        numbers = {int(found[1]) for found in matching_names(folder, r"(0|[1-9][0-9]{0,8})\.json")}
        for number in sorted((one for one in numbers if one >= least), reverse=True):
            with suppress(InvalidDataError, InvalidParameterError):  # junk hides no roster
                roster = Consortium.load(folder / f"{number}.json")
                if roster.roster == number:
                    return roster
        return None

    def put_acceptance(self, identity: Identity, consortium: Consortium) -> None:
        """Sign a roster, so that all others see that this member has accepted it."""
        path = self._acceptance(identity.member, consortium)
        if not path.exists():
            signed = SignedDocument.sign(identity, _line_of_acceptance(consortium))
            write_once(path, signed.to_bytes())

    def names_of_accepting(self, consortium: Consortium) -> Names:
        """Return the names of the members that have signed this roster."""
        line = _line_of_acceptance(consortium)
        return tuple(
            member.name
            for member in consortium.members
            if _has_signed(member, line, self._acceptance(member, consortium))
        )

    def put_collected(self, identity: Identity, batch: Batch, consortium: Consortium) -> None:
        """Sign, as the aggregator, that a batch is collected, so that no member works on it again.

        With other keys, the aggregator finds neither the batch nor this file. Junk in its place is not overwritten:
        then members may compute the batch once more, with the same votes.
        """
        path = self.batch_path(batch.identifier, consortium).with_suffix(".collected")
        if not self.is_collected(batch.identifier, consortium):
            signed = SignedDocument.sign(identity, _line_of_collection(batch.identifier))
            with suppress(InvalidDataError):  # junk in its place must not stop a release
                write_once(path, signed.to_bytes())

    def is_collected(self, identifier: str, consortium: Consortium) -> bool:
        """Return whether the aggregator has signed that a batch is collected."""
        path = self.batch_path(identifier, consortium).with_suffix(".collected")
        return _has_signed(consortium.aggregator, _line_of_collection(identifier), path)

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
            for found in matching_names(self.folder / "batches", rf"([0-9a-f]{{32}})\.{key}\.batch")
        ]

    def answer(self, batch: Batch, sender: Member, recipient: Member) -> "_Slot":
        """Return the place of an entity's sealed shares for a computing party."""
        return _Slot(
            self.folder / "shares" / batch.identifier / f"{_between(sender, recipient)}.sealed"
        )

    def put_labels(
        self, batch: Batch, sender: Member, recipient: Member, run: str, envelope: bytes
    ) -> None:
        """Write a computing party's sealed shares of the labels that one run of the computation made."""
        name = f"{_between(sender, recipient)}.{require_hexadecimal(run, _RUN_DIGITS, 'run', 'Mailbox')}.sealed"
        write_once(self.folder / "labels" / batch.identifier / name, envelope)

    def labels(
        self, batch: Batch, sender: Member, recipient: Member
    ) -> Iterator[tuple[str, bytes]]:
        """Yield a computing party's runs and its sealed shares of the labels of each, in the order of the runs' names.

        Files of any other kind or name, and files longer than shares of this batch can be, are skipped.
        """
        # A batch of one query may be a sum of unknown length, so only the limit of all messages applies to it.
        most = (
            MOST_BYTES if batch.n_queries == 1 else ELEMENT_BYTES * batch.n_queries + _BESIDE_LABELS
        )
        folder = self.folder / "labels" / batch.identifier
        name = re.escape(_between(sender, recipient))
        for found in matching_names(folder, rf"{name}\.([0-9a-f]{{{_RUN_DIGITS}}})\.sealed"):
            if _size(folder / found[0]) <= most:
                yield found[1], read_within(folder / found[0], most)


@final
@frozen
class _Slot:
    """The place of one message."""

    path: Path

    def put(self, envelope: bytes) -> None:
        """Write the message."""
        write_once(self.path, envelope)

    def envelope(self) -> bytes | None:
        """Return the message, or None if there is none yet."""
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
    for batch in matching_names(shares, "[0-9a-f]{32}"):
        for sealed in matching_names(shares / batch[0], rf"{re.escape(sender)}\.to-.+\.sealed"):
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


def _line_of_acceptance(consortium: Consortium) -> bytes:
    return document("accepted roster", _Accepted(consortium.roster_hash))


def _line_of_collection(identifier: str) -> bytes:
    return document("collected batch", _Collected(identifier))


def _has_signed(member: Member, line: bytes, path: Path) -> bool:
    """Return whether a file is the signature of `member` over exactly this line, without a body."""
    try:
        signed = SignedDocument.from_bytes(read_within(path, MOST_LINE_BYTES + SIGNATURE_BYTES))
    except InvalidDataError:
        return False
    return signed.line == line and not signed.body and signed.is_signed_by(member)


def _digest(text: str) -> str:
    return sha256_of(text.encode())[:16]


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

    An entity has answered if this mailbox holds its shares for the `recipient`, or for all parties. The batch is
    complete if all parties finished one run of the computation, or if the aggregator signed that it is collected.
    """
    parties = consortium.computing_parties
    aggregator = consortium.aggregator
    recipients = parties if recipient is None else [recipient]
    entities = names_of(consortium.entities)
    lacking = {
        entity.name
        for entity in consortium.entities
        for party in recipients
        if not mailbox.answer(batch, entity, party).path.exists()
    }
    missing = tuple(name for name in entities if name in lacking)
    answered = tuple(name for name in entities if name not in lacking)
    runs: dict[str, set[str]] = {party.name: set() for party in parties}
    for party in parties:
        header = Header.of(
            consortium,
            batch,
            Kind.LABELS,
            party.name,
            aggregator.name,
        )
        for run, envelope in mailbox.labels(batch, party, aggregator):
            with suppress(FederationError, InvalidDataError):
                sealed_by(party, header, envelope)
                runs[party.name].add(run)
    computed = tuple(name for name, found in runs.items() if found)
    first, *others = runs.values()
    complete = bool(first.intersection(*others)) or mailbox.is_collected(
        batch.identifier, consortium
    )
    return BatchStatus(
        batch.identifier,
        batch.n_queries,
        answered,
        missing,
        computed,
        complete,
    )
