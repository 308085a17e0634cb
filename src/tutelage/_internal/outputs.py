"""Outputs: claimed by one process before they are computed, written whole, and never over what tutelage did not write.

Each output has a private folder beside it, ``private-NAME``, with the lock of the claim and what is being written. It
ends with the claim unless something private stays in it; where a process died, the next claim removes what it left. A
folder with files but without the file of the lock was not made here, and nothing in it is touched.
"""

import ctypes
import errno
import fcntl
import os
import shutil
import stat
import sys
import warnings
import zipfile
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile, mkdtemp
from typing import Any, BinaryIO, NamedTuple, final

from tutelage._internal.gate import AnyPath, user_path
from tutelage._internal.records import parse
from tutelage.exceptions import ConfigError, ExposedFileWarning, InvalidDataError

_LOCK = "made-by-tutelage"
_STAGING = "staging-"
_REPLACED = "replaced"
# Ends of the names of files that a ledger may have beside it.
OF_LEDGERS = ("-journal", "-wal", "-shm", ".turn")
_NO_FLAGS = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM, errno.EXDEV)
_MOST_READ = 2**28  # bytes of the largest file that is checked before it is replaced


class Form(NamedTuple):
    """A kind of file or folder, and what tells one that tutelage wrote."""

    name: str
    # Returns a path that was not written by tutelage, if there is one.
    fault: Callable[[Path], Path | None]


def form(name: str, is_own: Callable[[Path], bool]) -> Form:
    """Return a kind of file by a test of its content; what cannot be read was not written by tutelage."""

    def fault(path: Path) -> Path | None:
        with suppress(OSError, ValueError, RecursionError, zipfile.BadZipFile):
            if path.stat().st_size <= _MOST_READ and is_own(path):
                return None
        return path

    return Form(name, fault)


def json_form(name: str, kind: str, key: str = "file") -> Form:
    """Return the kind of JSON files that say that they are of this kind."""
    return form(
        name, lambda path: bool(parse(path.read_bytes(), kind, InvalidDataError(name), key))
    )


NEVER = Form("a new file", Path)  # the path itself is not replaced


def path_of(output: Path) -> Path:
    """Return where an output is: the folder with links followed, and its own name, which may itself be a link."""
    path = Path(os.path.abspath(output))  # noqa: PTH100  `resolve` would follow the last link too
    return Path(os.path.realpath(path.parent)) / path.name


def private_path(output: Path) -> Path:
    """Return the folder beside an output for what is the owner's alone."""
    return output.with_name(f"private-{output.name}")


def check_replaceable(output: Path, kind: Form, *, way_out: str, folder: bool = False) -> None:
    """Refuse an output that exists and was not written by tutelage, or that must not be made."""
    path = path_of(output)
    if not path.name:
        raise ConfigError(
            f"{output} cannot be written, because it is the root of the disk. To continue, {way_out}."
        )
    for suffix in OF_LEDGERS:
        ledger = path.name.removesuffix(suffix)
        if ledger not in ("", path.name) and os.path.lexists(path.with_name(ledger)):
            raise ConfigError(
                f"{output} is reserved for the ledger of that name. To continue, {way_out}."
            )
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    _check_kind(output, mode, way_out, folder=folder)
    if folder and (path.is_mount() or path.samefile(os.curdir)):
        raise ConfigError(
            f"{output} cannot be replaced, because it is the current folder or a mounted disk. To continue, {way_out}."
        )
    foreign = kind.fault(path)
    if foreign is None:
        return
    named = output
    as_kind = ""
    if folder:
        named = output / foreign.relative_to(path)
        as_kind = f" as {kind.name}"
    raise ConfigError(
        f"{named} would be replaced, but was not written here by tutelage{as_kind}, or has "
        f"changed since. Move it away, or {way_out}."
    )


def _check_kind(output: Path, mode: int, way_out: str, *, folder: bool) -> None:
    """Refuse a folder where a file is written, a file where a folder is, and a link."""
    is_folder = stat.S_ISDIR(mode)
    is_wanted = is_folder if folder else stat.S_ISREG(mode)
    if is_wanted:
        return
    wanted = "a folder" if folder else "a file"
    if stat.S_ISLNK(mode):
        present = "a link"
    elif is_folder:
        present = "a folder"
    else:
        present = f"not {wanted}"
    raise ConfigError(
        f"The output must be {wanted}, and {output} is {present}. To continue, {way_out}."
    )


@final
class Claim:
    """An output that no other process can claim at the same time."""

    def __init__(self, output: Path, kind: Form, *, way_out: str, folder: bool) -> None:
        self.path = output
        named = output if output.name not in ("", "..") else path_of(output)
        self.private = private_path(named)
        self._target = path_of(output)
        self._kind = kind
        self._way_out = way_out
        self._is_folder = folder

    def check(self) -> None:
        """Refuse what must not be replaced."""
        check_replaceable(self.path, self._kind, way_out=self._way_out, folder=self._is_folder)

    @contextmanager
    def write(self) -> Generator[Path]:
        """Yield a path to write to, a new folder or no file yet; it takes the output's place if the block ends well."""
        with self._staging() as staging:
            part = staging / self._target.name
            if self._is_folder:
                part.mkdir()
            yield part
            self.check()
            sync_all(part)
            self._place(part)

    @contextmanager
    def add_file(self, name: str, kind: Form, *, private: bool = False) -> Generator[Path]:
        """Yield a path to write to, which becomes a file of the output's folder or, if `private`, of the one beside."""
        folder = self.private if private else self._target
        with self._staging() as staging:
            check_replaceable(folder / name, kind, way_out=self._way_out)
            yield staging / name
            sync_all(staging / name)
            (staging / name).replace(folder / name)
            sync(folder)

    def _place(self, part: Path) -> None:
        target = self._target
        if not os.path.lexists(target):
            _move(part, target)
        elif not self._is_folder or not any(target.iterdir()):
            part.replace(target)
        elif _exchange(part, target):
            # The folder was written to since it was checked.
            if self._kind.fault(part) is not None and _exchange(part, target):
                self.check()
        else:
            replaced = self.private / _REPLACED
            target.rename(replaced)
            if self._kind.fault(replaced) is not None:  # written to since it was checked
                replaced.rename(target)
                self.check()
            part.rename(target)
            replaced.rename(part)
        sync(target.parent)

    @contextmanager
    def _staging(self) -> Generator[Path]:
        """Yield a folder to write in; what the system refuses there names what the user named."""
        staging = None
        try:
            staging = Path(mkdtemp(prefix=_STAGING, dir=self.private))
            yield staging
        except OSError as error:
            if error.filename is not None and self.private not in Path(error.filename).parents:
                raise
            raise OSError(error.errno, error.strerror, str(self.path)) from None
        finally:
            if staging is not None:
                shutil.rmtree(staging, ignore_errors=True)

    def recover(self) -> None:
        """Undo an interrupted replacement, refuse what must not be replaced, and remove what a killed process left."""
        replaced = self.private / _REPLACED
        is_own = os.path.lexists(replaced) and self._kind.fault(replaced) is None
        if is_own and not os.path.lexists(self._target):
            replaced.rename(self._target)
        self.check()
        self.clean()
        if not os.path.lexists(replaced):
            return
        if not is_own:
            raise ConfigError(
                f"{replaced} may be all that is left of earlier results, whose replacement was interrupted. Move it "
                f"away, or {self._way_out}."
            )
        # Deleted in part under its own name, it would no longer be of its kind.
        replaced.rename(self.private / f"{_STAGING}{_REPLACED}")
        self.clean()

    def clean(self) -> None:
        """Remove what a killed process was writing."""
        for left in self.private.glob(f"{_STAGING}*"):
            shutil.rmtree(left, ignore_errors=True)


@contextmanager
def claim_output(
    output: AnyPath, kind: Form, *, folder: bool = False, checked: bool = True, way_out: str = ""
) -> Generator[Claim]:
    """Hold an output for this process until the block ends, after refusing one that must not be replaced.

    `way_out` is the advice of a refusal; unless `checked`, only the private folder is claimed.
    """
    output = user_path(output)
    advice = way_out or f"name another {'folder' if folder else 'file'}"
    claim = Claim(output, kind, way_out=advice, folder=folder)
    if not folder and not path_of(output).parent.is_dir():
        raise ConfigError(f"{output} must be in a folder that exists. To continue, {advice}.")
    lock = _lock(claim.private, output, advice)
    try:
        if checked:
            claim.recover()
        else:
            claim.clean()
        yield claim
    finally:
        with suppress(OSError):
            if [path.name for path in claim.private.iterdir()] == [_LOCK]:
                (claim.private / _LOCK).unlink()
                claim.private.rmdir()
        os.close(lock)


def _lock(private: Path, output: Path, advice: str) -> int:
    """Make the private folder, and return the descriptor of the lock in it."""
    while True:
        try:
            lock = _open_lock(private, output, advice)
        except FileNotFoundError:  # another process ended its claim in between
            continue
        except OSError as error:
            raise ConfigError(
                f"{output} cannot be written, because no folder can be made beside it: {error.strerror}. To continue, "
                f"{advice}."
            ) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(lock), (private / _LOCK).stat()):
                return lock
        except FileNotFoundError:  # the lock of a claim that just ended
            pass
        except OSError as error:
            os.close(lock)
            sentences = f"No file can be locked in {private.parent}: {error.strerror}. To continue, {advice}."
            if error.errno in (errno.EAGAIN, errno.EACCES):
                sentences = f"Another process is writing {output}. Nothing was spent. Wait until it ends, or {advice}."
            raise ConfigError(sentences) from None
        os.close(lock)


def _open_lock(private: Path, output: Path, advice: str) -> int:
    """Make the private folder, refuse one that is not the user's or was not made here, and open the lock in it."""
    private.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        private.mkdir(mode=0o700)
    state = private.lstat()
    is_mine = state.st_uid == os.geteuid() and not is_exposed(state)
    if not stat.S_ISDIR(state.st_mode) or not (is_mine or warned_of_disk(private)):
        raise ConfigError(
            f"{private} must belong to you and have mode 700, because it holds private files of {output}. Run "
            f"`chmod 700` on it, or {advice}."
        )
    names = [path.name for path in private.iterdir()]
    if names and _LOCK not in names:
        raise ConfigError(
            f"{private} has files and was not made by tutelage, which keeps private files of {output} there. "
            f"Move it away, or {advice}."
        )
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(private / _LOCK, flags, 0o600)


def is_exposed(state: os.stat_result) -> bool:
    """Return whether other accounts than the owner's may use a file or folder."""
    return bool(state.st_mode & 0o077)


def warned_of_disk(path: Path) -> bool:
    """Return whether the disk of a private file keeps no permissions, so that `chmod` is of no use; warn if so."""
    with TemporaryFile(dir=path.parent) as closed:
        state = os.fstat(closed.fileno())
    if state.st_uid == os.geteuid() and not is_exposed(state):
        return False
    disk = next(folder for folder in path.resolve().parents if folder.is_mount())
    warnings.warn(
        f"{path} is private, but the disk at {disk} does not keep file permissions, so all accounts of this machine "
        "may read it. Mount that disk for yourself alone, with the options `uid` and `umask=077`, or use another disk.",
        ExposedFileWarning,
        stacklevel=2,
    )
    return True


def open_private(path: Path) -> BinaryIO:
    """Open `path` for writing bytes, replacing it, readable by its owner only."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def sync(path: Path) -> None:
    """Put a file, or the names in a folder, on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some disks sync files only.
        if not path.is_dir() or error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def sync_all(part: Path) -> None:
    """Put a file, or a folder with all that is in it, on the disk."""
    for each in (*part.rglob("*"), part):
        sync(each)


def _move(part: Path, target: Path) -> None:
    """Give a file or folder its name, never over a file that was made meanwhile."""
    if not part.is_dir():
        try:
            os.link(part, target)
        except OSError:  # the name is taken, or a disk without hard links
            if os.path.lexists(target):
                raise FileExistsError(
                    errno.EEXIST, os.strerror(errno.EEXIST), str(target)
                ) from None
        else:
            return
    part.rename(target)  # refused where a folder with files is there


def put_new(part: Path, target: Path) -> None:
    """Give a file its only name, never over another."""
    if not _rename(part, target, 4 if sys.platform == "darwin" else 1):
        _move(part, target)
        part.unlink(missing_ok=True)


def _exchange(one: Path, other: Path) -> bool:
    return _rename(one, other, 2)


def _rename(one: Path, other: Path, flags: int) -> bool:
    """Rename with flags; return whether the system and the disk can."""
    library: Any = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(one), os.fsencode(other)
    try:
        if sys.platform == "darwin":
            done = library.renamex_np(*names, flags)
        else:
            done = library.renameat2(-100, names[0], -100, names[1], flags)
    except AttributeError:
        return False
    if done != 0 and ctypes.get_errno() not in _NO_FLAGS:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(other))
    return done == 0
