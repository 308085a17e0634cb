"""Where data sets come from: the folders that are searched, and downloads that are checked by their SHA-256."""

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pooch

from tutelage.exceptions import InvalidDataError

VARIABLE = "TUTELAGE_DATA"
SYSTEM_FOLDER = Path("/usr/share/datasets")  # where Debian's dataset-* packages put their files


class RemoteFile(NamedTuple):
    """A file on the web; without a SHA-256, its content is checked once it is read."""

    url: str
    sha256: str | None

    @property
    def name(self) -> str:
        """The file's name without its address."""
        return self.url.rpartition("/")[2]


def search_places(folder: str | Path | None, subfolder: str = "") -> list[Path]:
    """Return where to look: `folder` alone, or without one ``$TUTELAGE_DATA``, the cache and Debian's folder.

    Folders with the data set's name come first, because others may have other files of these names.
    """
    named = os.environ.get(VARIABLE)
    usual = (*((named,) if named else ()), pooch.os_cache("tutelage"), SYSTEM_FOLDER)
    folders = [Path(place) for place in (usual if folder is None else (folder,))]
    return [*(place / subfolder for place in folders if subfolder), *folders]


def first_complete(names: Iterable[str], places: Iterable[Path]) -> list[Path]:
    """Return the paths of all files of these names in the first place that has all; none if no place has."""
    for place in places:
        paths = [place / name for name in names]
        if all(path.is_file() for path in paths):
            return paths
    return []


def find(name: str) -> Path:
    """Return the path of a file that cannot be fetched; raise InvalidDataError if no folder has it."""
    places = search_places(None)
    found = first_complete([name], places)
    if not found:
        searched = ", ".join(map(str, places))
        raise InvalidDataError(
            f"{name} is in none of {searched}. Put it into one, or name its folder in {VARIABLE}."
        )
    return found[0]


def obtain(
    files: Sequence[RemoteFile],
    subfolder: str,
    folder: str | Path | None,
    *,
    download: bool,
    otherwise: str = "",
) -> list[Path]:
    """Return the paths of files, found in one place or downloaded into `subfolder` of `folder` or of the cache.

    Raises
    ------
    InvalidDataError
        If they are not found, and may not or cannot be downloaded, or what came is not what was published. `otherwise`
        names another file that would do.
    """
    places = search_places(folder, subfolder)
    if found := first_complete([file.name for file in files], places):
        return found
    if not download:
        names = ", ".join(file.name for file in files)
        raise InvalidDataError(
            f"None of {', '.join(map(str, places))} holds {names}{otherwise and f', or {otherwise}'}. Put them into "
            f"one, name theirs in {VARIABLE}, or pass `download=True`."
        )
    target = (pooch.os_cache("tutelage") if folder is None else Path(folder)) / subfolder
    pooch.get_logger().setLevel("WARNING")
    try:
        return [Path(pooch.retrieve(file.url, file.sha256, file.name, target)) for file in files]
    except (OSError, ValueError) as error:  # of the web, or of a checksum
        raise InvalidDataError(
            f"The download into {target} failed: {error} Put the files there manually."
        ) from None


def check(content: Any, sha256: str, what: str, owner: str) -> None:
    """Raise InvalidDataError unless these bytes, or this array in C order, have the checksum of a data set."""
    if hashlib.sha256(content).hexdigest() != sha256:
        raise InvalidDataError(
            f"{what} is not {owner}'s: its SHA-256 differs. Keep each data set in its own folder."
        )
