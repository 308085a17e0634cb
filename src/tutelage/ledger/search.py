"""Search for ledgers: all in a folder, in the homes of hospitals in it too, whatever their names; and copies of one.

Copies have the same first entry, which holds a commitment to a key of its own. A copy whose newest entry is an entry of
the ledger adds nothing to the ledger. Otherwise one of them was used without the other, and what both spent
is in neither: no two reservations are the same entry, even of the same release.
"""

import os
import stat
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import final

from tutelage.exceptions import (
    LedgerError,
    LedgerMismatchError,
    LedgerMissingError,
    LedgerStorageError,
    LedgerTamperedError,
)
from tutelage.ledger.entries import Entry
from tutelage.ledger.store import Store, is_beside_ledger
from tutelage.ledger.transaction import Transaction

# Paths, and of each what is another if it is replaced or written to.
_Files = dict[str, tuple[int, ...]]
_NAME_AT_HOME = "ledger"  # of the file in the home of a member of a consortium
_SUFFIX = ".ledger"
_PAGE = 4096  # bytes, of which every ledger is a multiple
_TIMEOUT = 60.0


def ledgers_in(folder: Path) -> list[Path]:
    """Return the files of ledgers in a folder and in the homes of members in it, each file once; damaged ones too."""
    return _ledgers_of(_all_in(folder))


def ledgers_near(file: Path) -> list[Path]:
    """Return the other ledgers in the folder of one, which may not exist yet, and in homes beside its own."""
    file = file.resolve()
    return [path for path in _ledgers_of(_all_near(file)) if path != file]


def _all_near(file: Path) -> _Files:
    near = _all_in(file.parent)
    if file.name == _NAME_AT_HOME:
        near |= _all_in(file.parent.parent)
    return near


def _all_in(folder: Path) -> _Files:
    """Return all that is in a folder."""
    found = _Files()
    with suppress(OSError), os.scandir(folder) as entries:  # it is not there, or may not be listed
        for entry in entries:
            with suppress(OSError):  # a link that leads nowhere
                state = entry.stat()
                found[entry.path] = state.st_dev, state.st_ino, state.st_ctime_ns
    return found


def _ledgers_of(paths: Collection[str]) -> list[Path]:
    """Return those of these files that are ledgers, and the ledgers of those folders that are homes."""
    found = set[Path]()
    for path in map(Path, paths):
        # Links that lead nowhere or in a circle, and files of another kind, are passed over.
        with suppress(OSError, LedgerError):
            state = path.stat()
            if stat.S_ISDIR(state.st_mode):
                path /= _NAME_AT_HOME
                state = path.stat()
            if not stat.S_ISREG(state.st_mode) or is_beside_ledger(path.name):
                continue
            if path.suffix != _SUFFIX:
                if state.st_size % _PAGE:
                    continue
                Store(path, timeout=_TIMEOUT, read_only=True)  # raises where it is none
            found.add(path.resolve())
    return sorted(found)


@final
class Copies:
    """Copies of a ledger near its file, if it has one."""

    def __init__(self, file: Path | None, opening: Entry) -> None:
        self.newest = dict[Path | None, Entry]()  # entry of each, when it was looked at last
        self._file = file
        self._opening = opening
        # The files near the ledger when copies were looked for.
        self._all = _Files()
        self._known = dict[Path, Store]()

    def look(self) -> None:
        """Look at the copies that there are now. Call it in no transaction: see `BriefLock`."""
        self.newest = dict[Path | None, Entry]()
        if self._file is None or not self._file.exists():
            return
        present = _all_near(self._file)
        changed = present.items() - self._all.items()
        for path in _ledgers_of(dict(changed)):
            self._known.pop(path, None)
            if path == self._file:
                continue
            # A damaged file is passed over; one that is locked is not.
            with suppress(LedgerStorageError, LedgerTamperedError):
                is_writable = os.access(path.parent, os.W_OK)
                store = Store(path, timeout=_TIMEOUT, read_only=not is_writable)
                with store.transaction() as read:
                    if read.opening() == self._opening:
                        self._known[path] = store
        self._all = present
        for store in self._known.values():
            with suppress(LedgerMissingError), store.transaction() as read:
                self.newest[store.path] = read.last()

    def check(self, read: Transaction) -> None:
        """Refuse to draw through a ledger that is not all that was done through its copies."""
        for path, newest in self.newest.items():
            if read.hash_of(newest.number) != newest.hash:
                raise LedgerMismatchError(
                    f"{path} is a copy of this ledger that was used without it, so this one does not hold all that was "
                    "spent. Nothing was released. If it took the place of this one, name it as the ledger. If both "
                    "were used, their budgets add up: `tutelage ledger list` prints the sum."
                )
