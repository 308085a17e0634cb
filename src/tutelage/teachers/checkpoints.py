"""Results of finished teachers, on disk, so that a killed run resumes.

Files hold plain arrays and are read without running anything in them: a file from elsewhere can at worst be wrong.
They are private, like every ballot; the folder is readable by its owner only.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar, final

import joblib
import numpy as np
import sklearn
from sklearn.base import BaseEstimator

from tutelage._internal.files import read_arrays
from tutelage._internal.outputs import open_private
from tutelage._internal.typing import ABSTAIN, Ballots, IntArray, Matrix
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.partition import Shards

Product = TypeVar("Product")
_MOST_IDENTITY = 2**10  # bytes
_LIBRARIES = {"builtins", "numpy", "scipy", "sklearn", "torch", "typing", "abc", "tutelage"}  # told apart by version


class FileForm(Protocol[Product]):
    """How one teacher's product becomes a file, together with the identity of what made it."""

    suffix: ClassVar[str]

    def write(self, path: Path, product: Product, identity: str) -> None:
        """Write a file that only its owner may read."""

    def read(self, path: Path) -> tuple[Product, str]:
        """Return the product and its identity."""


@final
@dataclass(frozen=True, slots=True)
class BallotFile:
    """Ballots as npz."""

    suffix: ClassVar[str] = ".npz"
    n_queries: int
    n_classes: int

    def write(self, path: Path, product: Ballots, identity: str) -> None:
        """Write the ballots of one teacher."""
        with open_private(path) as file:
            np.savez(file, ballots=product, identity=np.array(identity))

    def read(self, path: Path) -> tuple[Ballots, str]:
        """Return the ballots of one teacher, and the identity of the teacher."""
        arrays = read_arrays(path)
        sound = arrays.form("ballots").shape == (self.n_queries,) and arrays.form("identity").nbytes <= _MOST_IDENTITY
        if not sound or not np.isin(arrays["ballots"], np.arange(ABSTAIN, self.n_classes)).all():
            raise InvalidDataError(f"{path} holds no ballots on {self.n_queries} queries.")
        return arrays["ballots"].astype(np.int16), str(arrays["identity"])


@final
class Checkpoints(Generic[Product]):
    """A folder with a file for each finished teacher."""

    def __init__(self, folder: str | Path | None, form: FileForm[Product], settings: object) -> None:
        self._folder, self._form = None if folder is None else Path(folder), form
        if self._folder is not None:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._settings = _digest((version("tutelage"), sklearn.__version__, settings))

    def identities(self, X: Matrix, y: IntArray, shards: Shards, seeds: Sequence[int]) -> list[str]:
        """Return a digest of everything that determines each teacher."""
        if self._folder is None:
            return [""] * shards.n_shards
        teachers = zip(shards.rows, seeds, strict=True)
        return [_digest((self._settings, X[rows], y[rows], seed)) for rows, seed in teachers]

    def resume(
        self, identities: Sequence[str], run: Callable[[list[int]], Iterable[tuple[int, Product]]]
    ) -> Iterator[tuple[int, Product]]:
        """Yield each teacher's number and product: those on file, then those that `run` makes, which are filed."""
        if self._folder is None:
            yield from run(list(range(len(identities))))
            return
        missing = []
        for number, identity in enumerate(identities):
            found = self._load(number, identity)
            if found is None:
                missing.append(number)
            else:
                yield number, found
        for number, product in run(missing):
            self._save(number, identities[number], product)
            yield number, product

    def _load(self, number: int, identity: str) -> Product | None:
        try:
            product, found = self._form.read(self._path(number))
        except (InvalidDataError, KeyError):
            return None  # absent or damaged: the teacher is trained again
        return product if found == identity else None

    def _save(self, number: int, identity: str, product: Product) -> None:
        path = self._path(number)
        part = path.with_suffix(".part")
        try:
            self._form.write(part, product, identity)
            part.replace(path)  # the file appears whole or not at all
        except OSError as error:
            part.unlink(missing_ok=True)
            raise OSError(error.errno, f"{error.strerror}; the teachers filed before are kept", str(path)) from None

    def _path(self, number: int) -> Path:
        return (self._folder or Path()) / f"teacher-{number:06d}{self._form.suffix}"


def source_of(*settings: object) -> tuple[str, ...]:
    """Return the source text of these functions and classes, their bases and their parts, for a digest of code."""
    kinds: dict[type | Callable[..., Any], None] = {}
    for setting in settings:
        kinds |= dict.fromkeys(_code_in(setting))
    try:
        return tuple(inspect.getsource(kind) for kind in kinds)
    except (OSError, TypeError):
        raise InvalidParameterError(
            "Checkpoints need code that can be compared with that of the next run, and here is a class or function in "
            "no file. Put it into a module, or leave `checkpoints` out."
        ) from None


def _code_in(setting: object) -> Iterator[type | Callable[..., Any]]:
    if isinstance(setting, partial):
        yield from _code_in(setting.func)
    elif inspect.ismethod(setting):
        yield from _code_in(setting.__func__)
    elif inspect.isfunction(setting):
        yield setting
    elif not isinstance(setting, str | int | float | None):
        kind = setting if isinstance(setting, type) else type(setting)
        yield from (base for base in kind.__mro__ if base.__module__.partition(".")[0] not in _LIBRARIES)
        if isinstance(setting, BaseEstimator):
            for part in setting.get_params(deep=False).values():
                yield from _code_in(part)
        if isinstance(setting, list | tuple):
            for part in setting:
                yield from _code_in(part)


def discard_checkpoints(folder: str | Path) -> None:
    """Delete what was kept of teachers in `folder`, if anything was, and the folder if nothing else is in it."""
    folder = Path(folder)
    if not folder.is_dir():
        return
    for suffix in ("npz", "safetensors", "part"):
        for file in folder.glob(f"teacher-[0-9]*.{suffix}"):
            file.unlink()
    if not any(folder.iterdir()):
        folder.rmdir()


def _digest(value: object) -> str:
    try:
        return str(joblib.hash(value))
    except Exception as error:  # whatever pickling raises, of its own kinds and of the values' own
        raise InvalidParameterError(
            "Checkpoints need settings that can be told apart from others, and these hold something without a name, "
            "such as a lambda; define it by `def` or as a class in a module."
        ) from error
