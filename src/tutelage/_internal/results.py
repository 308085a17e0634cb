"""A folder of results: written whole, and never over what was read or was not written there."""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import final

from tutelage.exceptions import ConfigError, InvalidDataError

_FORMAT = 1
_LIST = "written-files.json"
# Beside the others: a hash of private votes would tell whoever guesses them that the guess is right.
_PRIVATE_LIST = f"private-{_LIST}"
_BESIDE_LEDGERS = ("-journal", "-wal", "-shm")


def is_read(output: Path, inputs: Iterable[Path]) -> bool:
    """Whether a path leads to one of these files, to one in these folders, or to what SQLite puts beside a ledger."""
    kept: set[object] = set()
    for path in inputs:
        inside = path.rglob("*") if path.is_dir() else ()
        beside = (_with_suffix(path, suffix) for suffix in _BESIDE_LEDGERS)
        kept |= {_identity(each) for each in (path, *inside, *beside)}
    return _identity(output) in kept


@final
class ResultsFolder:
    """A folder of results with a list in it of what was written there: nothing else is ever replaced or removed.

    `way_out` ends a refusal after "or"; `own` tells a file that is on no list but was written by the caller.
    """

    def __init__(self, folder: Path, way_out: str, own: Callable[[Path], bool] = lambda _: False) -> None:
        self.path = folder
        self._way_out, self._own = way_out, own
        self._hashes = {**_read_list(folder / _LIST), **_read_list(folder / _PRIVATE_LIST)}

    def check(self, names: Iterable[str], inputs: Iterable[Path]) -> None:
        """Refuse, before anything is read, to replace what is read or what was not written here."""
        names, inputs = list(names), list(inputs)
        for name in (*names, _LIST, _PRIVATE_LIST):
            if is_read(self.path / name, inputs):
                raise ConfigError(f"{self.path / name} is read and would be replaced. Move it, or {self._way_out}.")
        foreign = [name for name in names if not self._may_replace(name)]
        if foreign:
            others = f" (and {', '.join(foreign[1:])})" * (len(foreign) > 1)
            raise ConfigError(
                f"{self.path / foreign[0]}{others} would be replaced, but was not written here by tutelage, or "
                f"has changed since. Move it away, or {self._way_out}."
            )

    def claim(self, name: str) -> None:
        """Note that `name` is going to be made here, and what is in it too."""
        with TemporaryDirectory(prefix="private-", dir=self.path) as staging:
            self._list({**self._hashes, name: []}, Path(staging))

    @contextmanager
    def replacing(self, *removed: str) -> Iterator[Path]:
        """Yield an empty folder; once the block ends well, its files replace those of their names, and `removed` go."""
        self.path.mkdir(parents=True, exist_ok=True)
        with blamed_on(self.path, self.path), TemporaryDirectory(prefix="private-", dir=self.path) as staging:
            part = Path(staging)
            yield part
            written = sorted(path.name for path in part.iterdir())
            self.check((*written, *removed), ())
            for name in {*removed} - {*written}:
                (self.path / name).unlink(missing_ok=True)
            # Each may have its old or its new content until all are in place, so that nothing is lost by a crash.
            hashes = {name: known for name, known in self._hashes.items() if os.path.lexists(self.path / name)}
            old = {name: _hash(self.path / name) for name in written if os.path.lexists(self.path / name)}
            new = {name: [_hash(part / name), *([old[name]] if name in old else [])] for name in written}
            self._list({**hashes, **new}, part)
            for name in written:
                (part / name).replace(self.path / name)

    def _may_replace(self, name: str) -> bool:
        path = self.path / name
        if not os.path.lexists(path):
            return True
        if not path.is_file():
            return path.is_dir() and self._hashes.get(name) == []
        return _hash(path) in self._hashes.get(name, ()) or self._own(path)

    def _list(self, hashes: dict[str, list[str]], staging: Path) -> None:
        """Write down what may have which content, public names apart from private ones."""
        for file, private in ((_LIST, False), (_PRIVATE_LIST, True)):
            named = {name: known for name, known in hashes.items() if name.startswith("private-") == private}
            if not named:
                (self.path / file).unlink(missing_ok=True)
                continue
            part = staging / file
            part.touch(mode=0o600 if private else 0o666)
            part.write_text(json.dumps({"format": _FORMAT, "sha256": named}, indent=1) + "\n", encoding="utf-8")
            part.replace(self.path / file)
        self._hashes = hashes


def _read_list(path: Path) -> dict[str, list[str]]:
    if not os.path.lexists(path):
        return {}
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        found, hashes = record["format"], record["sha256"]
        known = all(isinstance(one, str) for name, hashed in hashes.items() for one in (name, *hashed))
    except (OSError, ValueError, RecursionError, TypeError, KeyError, AttributeError):
        found, hashes, known = None, {}, False
    if type(found) is int and found > _FORMAT:
        raise InvalidDataError(f"{path} is of a later format than {_FORMAT}. Upgrade tutelage.")
    if not known:
        raise InvalidDataError(f"{path} is not a list of files that tutelage wrote. Move it away.")
    return {name: list(hashed) for name, hashed in hashes.items()}


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def blamed_on(output: Path, folder: Path) -> Iterator[None]:
    """Let what the system refuses in `folder` name what the user named, and not a file beside it."""
    try:
        yield
    except OSError as error:
        if error.filename is not None and folder not in Path(error.filename).parents:
            raise
        raise OSError(error.errno, error.strerror, str(output)) from None


def _identity(path: Path) -> object:
    """Return what is the same for every name of a file, also of one that is not there yet."""
    try:
        found = path.stat()
    except OSError:
        real = Path(os.path.realpath(path))
        return path if real.parent == real else (_identity(real.parent), real.name)
    return found.st_dev, found.st_ino


def _with_suffix(path: Path, suffix: str) -> Path:
    real = Path(os.path.realpath(path))
    return real.with_name(real.name + suffix) if real.name else real
