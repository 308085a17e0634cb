"""Files as transport: a shared folder in which every message has one place, is written once and never half.

How far the batches of a consortium are is read off what lies there; nothing is opened.
"""

import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, final

from tutelage.exceptions import FederationError, ForgedMessageError, InvalidDataError
from tutelage.federation.batches import Batch
from tutelage.federation.consortium import Consortium
from tutelage.federation.documents import hexadecimal, member_name, read_within, require_room, write_once
from tutelage.federation.envelopes import MOST_BYTES, Header, Kind, sealed_by
from tutelage.federation.sharing import ELEMENT_BYTES

_RUN_DIGITS = 64
_named = partial(member_name, name="member", owner="Mailbox")
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
    found: list[BatchStatus] = []
    refused: dict[str, str] = {}
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
