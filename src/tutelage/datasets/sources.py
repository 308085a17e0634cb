"""Where files of data are looked for, and how they are fetched when the caller asks for it."""

import hashlib
import http.client
import os
import tempfile
import urllib.request
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from tutelage.exceptions import InvalidDataError

VARIABLE = "TUTELAGE_DATA"
SYSTEM_FOLDER = Path("/usr/share/datasets")  # where Debian's dataset-* packages put their files
_TIMEOUT_SECONDS = 60
_BLOCK = 2**20


@final
@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file on the web, and what tells whether one got it."""

    url: str
    size: int
    sha256: str

    @property
    def name(self) -> str:
        """The file's name without its address."""
        return self.url.rpartition("/")[2]


def cache_folder() -> Path:
    """Return the folder for what was downloaded: ``tutelage`` in ``$XDG_CACHE_HOME``, or else in ``~/.cache``."""
    home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG specification asks to ignore a relative path.
    return (home if home.is_absolute() else Path.home() / ".cache") / "tutelage"


def search_folders(folder: str | Path | None) -> tuple[Path, ...]:
    """Return the folders to search: `folder` alone, or without one ``$TUTELAGE_DATA``, the cache and Debian's."""
    if folder is not None:
        return (Path(folder),)
    named = os.environ.get(VARIABLE)
    return (*((Path(named),) if named else ()), cache_folder(), SYSTEM_FOLDER)


def first_complete(places: Iterable[Path], files: Sequence[Sequence[str]]) -> tuple[Path, ...]:
    """Return the paths of `files` in the first of `places` that has all of them; none if no place has."""
    for place in places:
        spellings = ([place / name for name in names if (place / name).is_file()] for names in files)
        found = tuple(paths[0] for paths in spellings if paths)
        if len(found) == len(files):
            return found
    return ()


def not_found(name: str, files: str, folders: Iterable[Path], subfolders: Iterable[str], fix: str) -> InvalidDataError:
    """Return the error that says which files of the data set `name` were looked for, and where."""
    searched = ", ".join(str(folder) for folder in folders)
    return InvalidDataError(
        f"{name} was not found: no folder of {searched}, nor {' or '.join(subfolders)} in one of them, holds {files}. "
        f"{fix}"
    )


def fetch(remote: RemoteFile, folder: Path) -> Path:
    """Return the path of `remote` in `folder`, downloaded unless it lies there already.

    A file appears under its name only when it is whole and its checksum is right.
    """
    path = folder / remote.name
    if path.is_file():
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as workspace:
            partial = Path(workspace) / remote.name
            if _download(remote, partial) != remote.sha256:
                raise InvalidDataError(
                    f"{remote.url} is not the file that was published: its SHA-256 differs. It was thrown away; put "
                    f"the right {remote.name} into {folder}."
                )
            partial.replace(path)
    except (OSError, http.client.HTTPException) as error:
        raise InvalidDataError(
            f"{remote.url} could not be downloaded into {folder} ({error}). Put {remote.name} there by hand."
        ) from None
    return path


def _download(remote: RemoteFile, partial: Path) -> str:
    digest = hashlib.sha256()
    left = remote.size
    # Only the addresses in this package come here, and the checksum decides over what they send.
    with urllib.request.urlopen(remote.url, timeout=_TIMEOUT_SECONDS) as reply, partial.open("wb") as file:  # noqa: S310
        while block := reply.read(min(_BLOCK, left)):
            file.write(block)
            digest.update(block)
            left -= len(block)
    return digest.hexdigest()
