"""The disk of a ledger: exclusive locks, space for the labels of reserved queries, and a held folder."""

import errno
import fcntl
import os
import re
import shutil
import struct
import sys
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import final
from weakref import finalize

from psutil import disk_partitions

from tutelage.exceptions import LedgerStorageError

TRUST_LOCKS = "TUTELAGE_TRUST_LOCKS"
_MOUNTS = Path("/proc/self/mounts")  # psutil prefers /etc/mtab, which may be older than the mounts
_ESCAPED = re.compile(rb"\\([0-7]{3})")  # blanks are spelled \040
# Locks of these reach other machines late, or not at all; SQLite's own manual warns of them.
_SHARED = frozenset({
    "9p", "afs", "ceph", "cifs", "davfs", "glusterfs", "lustre", "ncpfs", "nfs", "nfs4", "prl_fs", "smb3", "smbfs",
    "vboxsf",
})  # fmt: skip
_LOCAL_FUSE = frozenset({"fuse.ext2", "fuse.ntfs-3g", "fuse.fuse-overlayfs", "fuse.lxcfs"})
# Hash, number and frame of an answer, and each of its labels, in pages that are half full.
_BYTES_PER_ANSWER, _BYTES_PER_LABEL = 128, 16
_PAGE = 4096
_CHUNK = 2**20
_PAGES_BESIDE = 16  # the entry, the checkpoint, and inner pages of the tables


def check_locks(folder: Path) -> None:
    """Refuse a folder whose file locks may not exclude other processes: two of them could spend one budget twice."""
    if os.environ.get(TRUST_LOCKS) == "1":
        return
    try:
        kind = _file_system(folder.resolve())
        if kind in _SHARED or (kind.startswith("fuse.") and kind not in _LOCAL_FUSE):
            disk = f"a {kind} file system"
        elif _locks_exclude(folder):
            return
        else:
            disk = "a file system whose locks do not exclude other processes"
    except OSError as error:
        raise LedgerStorageError(
            f"No file can be made and locked in {folder}: {error.strerror}."
        ) from None
    raise LedgerStorageError(
        f"{folder} lies on {disk}, where several processes could spend one budget twice. Put the ledger on a local "
        f"disk; if you know that file locks work between all machines that use it, set {TRUST_LOCKS}=1."
    )


def _file_system(folder: Path) -> str:
    """Return the type of the file system that holds a folder, or "" where the system does not tell."""
    nearest = ""
    depth = -1
    for point, kind in _mounts():
        # The last of equal ones hides the others.
        if folder.is_relative_to(point) and len(point.parts) >= depth:
            nearest = kind
            depth = len(point.parts)
    return nearest


def _mounts() -> Iterator[tuple[Path, str]]:
    """Yield the folder and type of each mount, as the kernel knows them where it tells."""
    if not _MOUNTS.exists():
        for mounted in disk_partitions(all=True):
            yield Path(mounted.mountpoint), mounted.fstype
        return
    for line in _MOUNTS.read_bytes().split(b"\n"):
        columns = line.split(b" ")
        if len(columns) < 3:
            continue
        point = _ESCAPED.sub(lambda digits: bytes([int(digits[1], 8)]), columns[1])
        yield Path(os.fsdecode(point)), os.fsdecode(columns[2])


def _locks_exclude(folder: Path) -> bool:
    """Return whether a second lock on a file is refused while there is a first one."""
    if sys.platform != "linux" or not os.access(folder, os.W_OK):
        return True
    whole = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    with (
        TemporaryFile(dir=folder) as first,
        open(f"/proc/self/fd/{first.fileno()}", "r+b") as second,  # noqa: PTH123
    ):
        fcntl.fcntl(first, fcntl.F_OFD_SETLK, whole)
        try:
            fcntl.fcntl(second, fcntl.F_OFD_SETLK, whole)
        except OSError as error:
            return error.errno in (errno.EAGAIN, errno.EACCES)
    return False


@final
class DiskSpace:
    """Disk space that is reserved for the answers of one batch, until it is freed, forgotten, or the process ends."""

    def __init__(self, ledger: Path, queries: int, labels: int) -> None:
        growth = queries * (_BYTES_PER_ANSWER + labels * _BYTES_PER_LABEL) + _PAGES_BESIDE * _PAGE
        # Every answer may land on a page of its own, and the journal keeps each page that changes.
        present = ledger.stat().st_size if ledger.exists() else 0
        journal = min(present + growth, (2 * queries + _PAGES_BESIDE) * (_PAGE + 8))
        try:
            self._file = TemporaryFile(dir=ledger.parent)  # noqa: SIM115
            finalize(self, self._file.close)
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._file.fileno(), 0, growth + journal)
            else:  # macOS has no such call
                for start in range(0, growth + journal, _CHUNK):
                    os.write(self._file.fileno(), bytes(min(_CHUNK, growth + journal - start)))
        except OSError as error:
            raise LedgerStorageError(
                f"The disk of {ledger} has no room for {queries:,} answers ({error.strerror}). Nothing was spent; make "
                "room."
            ) from None

    def free(self) -> None:
        """Give the space back to the disk, for the answers."""
        self._file.truncate(0)  # closing it would not do where a forked process holds the file too


@contextmanager
def hold_folder(folder: Path, unfinished: str) -> Generator[None]:
    """Hold a folder while something is made in it, so that other processes that make something there wait.

    Files that match the pattern `unfinished` are removed first, because the process that made them is dead. A disk
    that cannot lock folders is not held, and nothing is removed there.
    """
    with ExitStack() as held:
        with suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
            held.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            for left in folder.glob(unfinished):
                if left.is_dir():
                    shutil.rmtree(left)
                else:
                    left.unlink()
        yield
