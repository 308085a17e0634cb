"""The gate through which every file passes that is read: what kind it is, how large, and how much memory it will take.

Each refusal is an `OSError`, whose `strerror` ends the sentence "PATH cannot be read: …".
"""

import errno
import gzip
import io
import os
import stat
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import BinaryIO, Never

import psutil

from tutelage.exceptions import InvalidDataError, InvalidParameterError

try:
    import resource
except ModuleNotFoundError:  # on Windows
    resource = None

# Most bytes of each kind of file.
DOCUMENT = 2**24  # such as a configuration, a card, a claim or a key
TABLE = 2**33  # or an archive of arrays
LARGEST = 2**42  # that is read in parts
MODEL = 2**31  # that is read whole
AnyPath = str | PathLike[str]
_UNPACKED_SMALL = 2**25
_UNPACKED_TIMES = 40
_CHUNK = 2**20
_SHARE_OF_MEMORY = 0.75


def user_path(path: AnyPath | None, name: str = "A path") -> Path:
    """Return a path with ``~`` as the home folder; refuse what would be taken for something else than a file."""
    text = os.fspath(path) if isinstance(path, str | PathLike) else ""
    fix = ""
    if text.startswith((":memory:", "file:")):
        fix = "For a ledger that is not stored, use Ledger.in_memory()."
    if fix or not text or "\0" in text:
        raise InvalidParameterError(name, "be the path of a file or folder", repr(text), fix)
    try:
        full = Path(text).expanduser()
    except RuntimeError:
        raise InvalidParameterError(
            name,
            "not begin with '~' here, because no home folder is known",
            repr(text),
            "Write the full path.",
        ) from None
    if full == Path(full.anchor or "/"):
        raise InvalidParameterError(name, "not be the root folder", repr(text))
    return full


def open_input(path: AnyPath, most: int = DOCUMENT, *, follow: bool = True) -> io.BufferedReader:
    """Return a regular file of at most `most` bytes, opened; nothing is waited for and no device is read."""
    full = user_path(path)
    flags = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    if not follow:
        flags |= os.O_NOFOLLOW
    file = open(full, "rb", opener=lambda path, mode: os.open(path, mode | flags))  # noqa: SIM115  Path.open takes no opener
    try:
        state = os.fstat(file.fileno())
        if not stat.S_ISREG(state.st_mode):
            _refuse(errno.EINVAL, "it is a pipe, a device or a socket, and a file is needed", full)
        if state.st_size > most:
            reason = f"it is larger than {most / 2**20:.3g} MiB"
            if most >= 2**30:
                reason = f"it is larger than {most / 2**30:g} GiB"
            if most == TABLE:
                reason += ". Split it, or read a Parquet file in batches"
            _refuse(errno.EFBIG, reason, full)
    except BaseException:
        file.close()
        raise
    return file


def require_input(path: AnyPath, most: int = DOCUMENT) -> Path:
    """Return the path of a file that `open_input` would open, for readers that open it themselves."""
    open_input(path, most).close()
    return user_path(path)


def read_input(path: AnyPath, most: int = DOCUMENT, *, follow: bool = True) -> bytes:
    """Return the bytes of a regular file, no link unless `follow`; one that grows while it is read is cut."""
    with open_input(path, most, follow=follow) as file:
        return file.read(min(most, os.fstat(file.fileno()).st_size))


def read_given(
    path: AnyPath, most: int = DOCUMENT, advice: str = "", *, follow: bool = True
) -> bytes:
    """Return the bytes of a file as `read_input` does; refuse one that cannot be read in words, with advice."""
    try:
        return read_input(path, most, follow=follow)
    except OSError as error:
        cause = f"{path} cannot be read: {error.strerror}. {advice}"
        raise InvalidDataError(cause.rstrip()) from None


def read_text(path: AnyPath) -> str:
    """Return the text of a file in UTF-8, without a byte order mark; raise UnicodeDecodeError if it is not UTF-8."""
    return read_input(path).decode("utf-8-sig")


def unpack(file: BinaryIO, path: Path) -> gzip.GzipFile:
    """Return the content of a gzip file; refuse one that unpacks to many times its size."""
    most = max(_UNPACKED_SMALL, _UNPACKED_TIMES * os.fstat(file.fileno()).st_size)
    size = 0
    content = gzip.GzipFile(fileobj=file)
    for part in iter(lambda: content.read(_CHUNK), b""):
        size += len(part)
        if size > most:
            _refuse(errno.EFBIG, f"it unpacks to more than {most} bytes; unpack it first", path)
    content.seek(0)
    return content


def require_memory(needed: int, path: AnyPath, free: float | None = None) -> None:
    """Refuse a file whose content takes more memory than most of what is free, or was before a part of it was read."""
    if free is None:
        free = free_memory()
    if needed > _SHARE_OF_MEMORY * free:
        gib = f"{needed / 2**30:.1f} GiB of memory, and {free / 2**30:.1f} are free"
        reason = f"its content takes at least {gib}. Use fewer rows"
        if os.fspath(path).endswith(".parquet"):
            reason += ", or read it in batches"
        _refuse(errno.ENOMEM, reason, path)


def free_memory() -> float:
    """Return the bytes of memory that this process may still take; infinity where the system does not tell."""
    free = float("inf")
    with suppress(OSError, psutil.Error):
        free = float(psutil.virtual_memory().available)
        if resource is None:
            return free
        most = resource.getrlimit(resource.RLIMIT_AS)[0]
        if most >= 0:
            free = min(free, max(most - psutil.Process().memory_info().vms, 0))
    return free


def _refuse(number: int, reason: str, path: AnyPath) -> Never:
    raise OSError(number, reason, os.fspath(path))
