"""A release: one folder of public files with a manifest of their hashes, published by one rename, named in a ledger.

No finer time than its day is published: it would tell how long the private rows took, and with it how many there are.
"""

import json
from collections.abc import Callable, Collection, Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Self, final

from tutelage._internal.gate import LARGEST, read_given, read_input, user_path
from tutelage._internal.outputs import (
    OF_LEDGERS,
    Claim,
    Form,
    claim_output,
    path_of,
    private_path,
    sync_all,
)
from tutelage._internal.records import (
    AnotherFormatError,
    Entries,
    Hash,
    as_record,
    file_entries,
    frozen,
    parse,
    record_in,
    sha256_of,
)
from tutelage.exceptions import ConfigError, InvalidDataError

MANIFEST = "manifest.json"
SIGNATURE = "manifest.signature.json"
SIGNATURE_KIND = "release signature"
HEAD_KIND = "ledger head"
CARD = ("card.json", "card.md", "card.html")
STUDENT_FILE = "student.skops"
RESULTS = (*CARD, "labels.csv", STUDENT_FILE)
# By a ledger, of a manifest's hash, given the head.
_Recording = Callable[[Callable[[str], str]], object]


_DAY: ContextVar[str | None] = ContextVar("day", default=None)


def today() -> str:
    """Return the UTC day on which the present release began, or the present day outside of a release."""
    return _DAY.get() or _now().date().isoformat()


@contextmanager
def on_one_day(day: str | None = None) -> Generator[None]:
    """Keep the day on which the block begins: all entries of a release get one date, even if midnight passes."""
    token = _DAY.set(day or today())
    try:
        yield
    finally:
        _DAY.reset(token)


def _now() -> datetime:
    return datetime.now(UTC)


@final
@frozen
class Manifest:
    """Content of a folder of results; public."""

    day: str  # of the release
    # The head of the ledger just before the entry that names this manifest, if there is a ledger.
    head: Hash | None
    recorded: bool  # whether there is such an entry
    sha256: dict[str, Hash]  # of each file, by name
    hash: str  # SHA-256 of the manifest itself

    @classmethod
    def read(cls, folder: Path, kind: str = "release") -> Self:
        """Return the manifest of a folder, before any file is compared with it."""
        path = folder / MANIFEST
        content = read_given(
            path, advice="Name a results folder, with all its files.", follow=False
        )
        damaged = InvalidDataError(
            f"{path} is not a manifest that tutelage wrote. Get the results folder again."
        )
        entries = parse(content, kind, damaged) | {"hash": sha256_of(content)}
        manifest = as_record(entries, cls, damaged)
        # A manifest names files in the folder itself, and not itself.
        foreign = any(
            Path(name).name != name or name in (MANIFEST, SIGNATURE) for name in manifest.sha256
        )
        if foreign or (manifest.recorded and manifest.head is None):
            raise damaged
        return manifest

    @classmethod
    def read_whole(cls, folder: Path) -> Self:
        """Return the manifest of a folder; refuse a folder in which a file is missing or is not that of the release."""
        manifest = cls.read(folder)
        for name in manifest.sha256:
            manifest.content(folder, name)
        return manifest

    def others(self, folder: Path) -> list[str]:
        """Return the names of what is in a folder besides the release and its signature."""
        return sorted(
            {path.name for path in folder.iterdir()} - {*self.sha256, MANIFEST, SIGNATURE}
        )

    def require_named(self, manifests: Collection[str], folder: Path, ledger: str) -> None:
        """Refuse a folder whose manifest is not among those that a ledger names."""
        if self.hash not in manifests:
            raise InvalidDataError(
                f"{ledger} does not name {folder / MANIFEST}: the folder is of another ledger, or was changed after it "
                "was released. Do not use it."
            )

    def content(self, folder: Path, name: str) -> bytes:
        """Return the bytes of a file; refuse those that are not of the release."""
        path = folder / name
        if name not in self.sha256:
            raise InvalidDataError(
                f"{folder / MANIFEST} names no {name}. Name the results folder of a run."
            )
        content = read_given(
            path, LARGEST, "Get the results folder again, with all its files.", follow=False
        )
        if sha256_of(content) != self.sha256[name]:
            raise InvalidDataError(
                f"{path} is not the file that {MANIFEST} names: it was changed, or is of another release. Get "
                "the folder again from its owner."
            )
        return content


def _foreign(folder: Path, names: Collection[str], kind: str) -> Path | None:
    """Return a file in a folder that has another name than these, or that its manifest does not account for."""
    paths = sorted(folder.iterdir())
    if not paths:
        return None
    try:
        manifest = Manifest.read(folder, kind)
    except AnotherFormatError:
        raise
    except InvalidDataError:
        others = [path for path in paths if path.name != MANIFEST]
        return others[0] if others else folder / MANIFEST

    for path in paths:
        if path.is_symlink() or not path.is_file():
            return path
        if path.name == MANIFEST:
            continue
        if path.name == SIGNATURE:
            is_own = signed_manifest(path) == manifest.hash
        else:
            is_own = path.name in names and manifest.sha256.get(path.name) == _hash(path)
        if not is_own:
            return path
    return None


def read_signature(path: Path, kind: str = SIGNATURE_KIND, values: Any = str) -> Entries:
    """Return what a signature file says; whether it is genuine is not checked."""
    damaged = InvalidDataError(f"{path} is not a {kind}. Sign again.")
    data = read_given(path, advice="Sign with --sign.", follow=False)
    content = file_entries(kind, record_in(data, kind, dict[str, values], damaged))
    if data != signature_text(content).encode():
        raise damaged
    return content


def signature_text(content: Entries) -> str:
    """Return the one spelling of a signature file."""
    return json.dumps(content, indent=1) + "\n"


def signed_manifest(path: Path) -> object:
    """Return the hash of the manifest that a signature file is of, unchecked; None if it is not such a file."""
    with suppress(InvalidDataError):
        return read_signature(path).get("manifest")


def _hash(path: Path) -> str:
    return sha256_of(read_input(path, LARGEST, follow=False))


def claimed_folder(
    folder: Path,
    names: Collection[str],
    way_out: str,
    *,
    ledger: Path | None = None,
    kind: str = "release",
) -> AbstractContextManager[Claim]:
    """Hold a folder for this process; refuse one with other files than these, or than its manifest accounts for."""
    folder = user_path(folder)
    if ledger is not None:
        results = path_of(folder)
        budget = path_of(ledger)
        of_ledger = [budget.with_name(budget.name + suffix) for suffix in ("", *OF_LEDGERS)]
        if {results, private_path(results)} & {
            *of_ledger,
            *budget.parents,
        } or budget in results.parents:
            raise ConfigError(
                "The ledger must not be in the results folder or at its path, because the folder is replaced and "
                f"shared. Got {ledger}. Move it, or {way_out}."
            )
    what = "card" if {*names} == {*CARD} else kind
    form = Form(f"part of a {what}", partial(_foreign, names=frozenset(names), kind=kind))
    return claim_output(folder, form, folder=True, way_out=way_out)


@contextmanager
def publish_folder(
    claim: Claim,
    head: str | None = None,
    record: _Recording | None = None,
    *,
    kind: str = "release",
) -> Generator[Path]:
    """Yield an empty folder; if the block ends well, it gets a manifest and takes the place of the claimed folder.

    `record` is `Register.publish` of the ledger, which decides on the head; without it, `head` is that of the ledger.
    """
    with claim.write() as part:
        yield part
        hashes = {path.name: _hash(path) for path in sorted(part.iterdir())}

        def write(head: str | None) -> str:
            content = {
                "day": today(),
                "head": head,
                "recorded": record is not None,
                "sha256": hashes,
            }
            text = (json.dumps(file_entries(kind, content), indent=1) + "\n").encode()
            (part / MANIFEST).write_bytes(text)
            sync_all(part)  # before the ledger names it
            return sha256_of(text)

        if record is None:
            write(head)
        else:
            record(write)
