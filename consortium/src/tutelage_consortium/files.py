"""Files of a consortium: written once and whole, and read within a limit."""

import os
import re
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tutelage._internal.gate import read_input
from tutelage._internal.outputs import put_new, sync
from tutelage.exceptions import InvalidDataError
from tutelage.ledger.disk import hold_folder

MOST_BYTES_OF_A_DOCUMENT = 2**22  # a consortium of a thousand members takes 300 kB
_MOST_LISTED = 10


def join_names(names: Sequence[str]) -> str:
    """Return names for a sentence; of many, the first ten and how many more there are."""
    more = f" and {len(names) - _MOST_LISTED:,} more" * (len(names) > _MOST_LISTED)
    return f"{', '.join(names[:_MOST_LISTED])}{more}"


def write_again(path: Path, data: bytes) -> None:
    """Write a file for its owner alone, in place of what was there."""
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)
    write_new(part, data)
    part.replace(path)


def write_once(path: Path, data: bytes) -> None:
    """Write `data` to `path` so that no reader ever sees a part of it; other bytes are never overwritten."""
    part = _part_of(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Parts of this name only: others may be written on other machines.
        with hold_folder(path.parent, f".{path.name}.*.part"):
            write_new(part, data, 0o644)
            try:
                put_new(part, path)
            except FileExistsError:
                with suppress(InvalidDataError):
                    if read_within(path, len(data)) == data:
                        return
                raise InvalidDataError(
                    f"{path} already exists with other content and is never overwritten. If it is damaged or foreign, "
                    "remove it and repeat the command."
                ) from None
        with suppress(OSError):  # the new name survives a power cut, where the system can make it
            sync(path.parent)
    except OSError as error:
        raise InvalidDataError(f"{path} cannot be written: {error.strerror}.") from None
    finally:
        with suppress(OSError):
            part.unlink()


def require_unused_path(path: Path) -> None:
    """Refuse a path at which a file lies already, or nothing can be written; the folder is made if it is missing."""
    if os.path.lexists(path):
        raise InvalidDataError(
            f"{path} already exists, but its budget was not spent from this ledger. Nothing was spent. Use the home "
            "folder and the ledger that the file was made with; remove the file only if another person put it there."
        )
    probe = _part_of(path)
    try:
        write_new(probe, b"", 0o644)
        probe.unlink(missing_ok=True)
    except OSError as error:
        raise InvalidDataError(
            f"{path} cannot be written: {error.strerror}. Nothing was spent."
        ) from None


def write_new(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write `data` to a file that is not there yet, with these permissions, through to the disk; make its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def read_within(path: Path, most: int = MOST_BYTES_OF_A_DOCUMENT) -> bytes:
    """Return the bytes of the plain file at `path`, of at most `most` bytes; a pipe is not waited for."""
    if "\0" in str(path):
        raise InvalidDataError(f"{str(path)!r} is no path of a file: it holds a null character.")
    try:
        return read_input(path, most)
    except FileNotFoundError:
        raise InvalidDataError(f"{path} does not exist.") from None
    except OSError as error:
        raise InvalidDataError(f"{path} cannot be read: {error.strerror}.") from None


def _part_of(path: Path) -> Path:
    return path.parent / f".{path.name}.{secrets.token_hex(8)}.part"


def matching_names(folder: Path, pattern: str) -> list[re.Match[str]]:
    """Return the matches of a pattern with whole names of what lies in a folder, sorted; none if there is no folder."""
    try:
        names = sorted(path.name for path in folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    matches = (re.fullmatch(pattern, name) for name in names)
    return [match for match in matches if match is not None]
