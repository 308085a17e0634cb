"""Files as transport: a shared folder in which every message has one place, is written once and never half.

How far the batches of a consortium are is read off what lies there; nothing is opened.
"""

import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, final

from tutelage.exceptions import FederationError, ForgedMessageError, InvalidDataError
from tutelage.federation.batches import Batch
from tutelage.federation.consortium import Consortium
from tutelage.federation.documents import hexadecimal, member_name, read_within, require_room, write_once
from tutelage.federation.envelopes import MOST_BYTES, Header, Kind, sealed_by
from tutelage.federation.sharing import ELEMENT_BYTES

_RUN_DIGITS = 64
_BESIDE_LABELS = 2**20  # bytes of an envelope and of the names of the entities


@final
class Mailbox:
    """A folder that all members can reach, by network share, e-mail or sftp. It need not be trusted.

    Parameters
    ----------
    folder : path-like
        Where it lies; made when something is first written.

    Notes
    -----
    What lies where: ``consortium.json``, ``batches/<id>.batch``, ``shares/<id>/<entity>.to-<party>.sealed``,
    ``ballots/<id>/<entity>.sealed`` and ``labels/<id>/<party>.<run>.sealed``. Writing the same bytes again changes
    nothing; other bytes in the same place, and files that are missing, damaged or no plain files, are refused by
    `InvalidDataError` or `ForgedMessageError`. The bytes are opened and checked elsewhere: `Batch.from_bytes` and
    `envelopes.unseal`.
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

    def put_shares(self, batch: Batch, entity: str, party: str, envelope: bytes) -> None:
        """Lay down an entity's sealed shares for one computing party."""
        write_once(self._shares_path(batch, entity, party), envelope)

    def shares(self, batch: Batch, entity: str, party: str) -> bytes | None:
        """Return an entity's sealed shares for one computing party, or None if they are not sent yet."""
        return _message(self._shares_path(batch, entity, party))

    def put_ballots(self, batch: Batch, entity: str, envelope: bytes) -> None:
        """Lay down an entity's sealed ballots, perturbed one by one."""
        write_once(self._ballots_path(batch, entity), envelope)

    def ballots(self, batch: Batch, entity: str) -> bytes | None:
        """Return an entity's sealed ballots, or None if they are not sent yet."""
        return _message(self._ballots_path(batch, entity))

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

    def has_answered(self, batch: Batch, entity: str, parties: Sequence[str]) -> bool:
        """Return whether an entity has sent an envelope to every party, or its ballots if there are no parties."""
        return all(place.exists() for place in self._answer_paths(batch, entity, parties))

    def require_room_for_answer(self, batch: Batch, entity: str, parties: Sequence[str]) -> None:
        """Refuse, before anything is paid, to answer where an answer lies already or none can be written."""
        for path in self._answer_paths(batch, entity, parties):
            require_room(path)

    def require_room_for_batch(self, batch: Batch) -> None:
        """Refuse, before anything is paid, to announce a batch that lies there already or cannot be written."""
        require_room(self.batch_path(batch.identifier))

    def _answer_paths(self, batch: Batch, entity: str, parties: Sequence[str]) -> list[Path]:
        return [self._shares_path(batch, entity, party) for party in parties] or [self._ballots_path(batch, entity)]

    def _shares_path(self, batch: Batch, entity: str, party: str) -> Path:
        return self.folder / "shares" / batch.identifier / f"{_named(entity)}.to-{_named(party)}.sealed"

    def _ballots_path(self, batch: Batch, entity: str) -> Path:
        return self.folder / "ballots" / batch.identifier / f"{_named(entity)}.sealed"


def _named(member: str) -> str:
    return member_name(member, "member", "Mailbox")


def _message(path: Path) -> bytes | None:
    try:
        about = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(about.st_mode) or about.st_size > MOST_BYTES:
        raise ForgedMessageError(f"{path} is no plain file of at most {MOST_BYTES} bytes. It must be sent again.")
    return read_within(path, MOST_BYTES)


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
    found: list[BatchStatus] = []
    refused: dict[str, str] = {}
    for identifier in mailbox.batch_identifiers():
        try:
            batch = mailbox.batch(identifier, consortium)
        except (FederationError, InvalidDataError) as error:
            refused[identifier] = str(error)
        else:
            found.append(batch_status(consortium, mailbox, batch))
    return found, refused


def batch_status(consortium: Consortium, mailbox: Mailbox, batch: Batch) -> BatchStatus:
    """Return how far one batch is."""
    parties = [party.name for party in consortium.computing_parties]
    entities = {entity.name: mailbox.has_answered(batch, entity.name, parties) for entity in consortium.entities}
    answered = tuple(name for name, has_answered in entities.items() if has_answered)
    missing = tuple(name for name, has_answered in entities.items() if not has_answered)
    runs = _runs(consortium, mailbox, batch)
    computed = tuple(party for party in parties if runs[party])
    complete = bool(runs) and bool(set.intersection(*runs.values()))
    return BatchStatus(batch.identifier, batch.n_queries, answered, missing, computed, complete)


def _runs(consortium: Consortium, mailbox: Mailbox, batch: Batch) -> dict[str, set[str]]:
    """Return the computations of which each computing party signed labels; a file that it did not sign is skipped."""
    found: dict[str, set[str]] = {}
    for party in consortium.computing_parties:
        signed = found.setdefault(party.name, set())
        header = Header.of(consortium, batch, Kind.LABELS, party.name, consortium.aggregator.name)
        for run, envelope in mailbox.labels(batch, party.name):
            with suppress(FederationError, InvalidDataError):
                sealed_by(party, header, envelope)
                signed.add(run)
    return found
