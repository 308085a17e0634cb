"""Results of finished teachers, on disk, so that a killed run resumes.

Files hold plain arrays and are read without running anything in them: a file from elsewhere can at worst be wrong.
They are private, like every ballot; the folder is readable by its owner only.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, Protocol, cast, final

import joblib
import numpy as np
import sklearn
from sklearn.base import BaseEstimator

from tutelage._internal.files import read_arrays
from tutelage._internal.outputs import open_private
from tutelage._internal.records import frozen
from tutelage._internal.typing import ABSTAIN, Ballots, is_series
from tutelage.exceptions import InvalidDataError, InvalidParameterError, TeacherTrainingError
from tutelage.teachers.base import Own
from tutelage.teachers.parallel import Results

_MOST_IDENTITY = 2**10  # bytes
# Libraries that are identified by their versions.
_LIBRARIES = {"builtins", "numpy", "scipy", "sklearn", "torch", "typing", "abc", "tutelage"}
_Code = type | Callable[..., object]


class FileForm(Protocol):
    """How one teacher's product becomes a file, together with the identity of what made it."""

    suffix: ClassVar[str]

    def write(self, path: Path, product: Any, identity: str) -> None:
        """Write a file that only its owner may read."""

    def read(self, path: Path) -> tuple[Any, str]:
        """Return the product and its identity."""
        ...


@final
@frozen
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
        has_form = (
            arrays.form("ballots").shape == (self.n_queries,)
            and arrays.form("identity").nbytes <= _MOST_IDENTITY
        )
        if not has_form or not np.isin(arrays["ballots"], np.arange(ABSTAIN, self.n_classes)).all():
            raise InvalidDataError(f"{path} holds no ballots on {self.n_queries} queries.")
        return arrays["ballots"].astype(np.int16), str(arrays["identity"])


def resume(
    folder: str | Path | None,
    form: FileForm,
    settings: Callable[[], object],
    own: Own,
    n_teachers: int,
    run: Callable[[Sequence[int]], Results],
) -> Results:
    """Yield each teacher's number and product: those on file in `folder`, then those that `run` makes, which are filed.

    The error of a lost teacher is not filed: a later call trains that teacher again. A file is known by a digest of all
    that determines the teacher: the settings, and its `own` rows, labels and seed.
    """
    if folder is None:
        yield from run(range(n_teachers))
        return
    home = Path(folder)
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    shared = _digest((version("tutelage"), sklearn.__version__, settings()))
    identities = [_digest((shared, *own(number))) for number in range(n_teachers)]
    paths = [home / f"teacher-{number:06d}{form.suffix}" for number in range(n_teachers)]
    missing: list[int] = []
    for number, identity in enumerate(identities):
        product = None
        identity_on_file = ""
        # Absent or damaged: the teacher is trained again.
        with suppress(InvalidDataError, KeyError):
            product, identity_on_file = form.read(paths[number])
        if identity_on_file == identity:
            yield number, product
        else:
            missing.append(number)
    for number, product in run(missing):
        if isinstance(product, TeacherTrainingError):
            yield number, product
            continue
        part = paths[number].with_suffix(".part")
        try:
            form.write(part, product, identities[number])
            part.replace(paths[number])  # the file appears whole or not at all
        except OSError as error:
            part.unlink(missing_ok=True)
            reason = f"{error.strerror}; the teachers filed before are kept"
            raise OSError(error.errno, reason, str(paths[number])) from None
        yield number, product


def source_of(*settings: object) -> tuple[str, ...]:
    """Return the source text of these functions and classes, their bases and their parts, for a digest of code."""
    sources: dict[_Code, str] = {}
    try:
        for setting in settings:
            for code in _code_in(setting):
                if code not in sources:
                    sources[code] = inspect.getsource(code)
    except (OSError, TypeError):
        raise InvalidParameterError(
            "PATEClassifier.fit.checkpoints",
            "be left out if a class or function is in no file, because later runs could not compare its code",
            fix="Move it into a module.",
        ) from None
    return tuple(sources.values())


def _code_in(setting: object) -> Iterator[_Code]:
    """Yield each class or function that a setting consists of, except those known by a version."""
    if isinstance(setting, partial):
        yield from _code_in(setting.func)
    elif inspect.ismethod(setting):
        yield from _code_in(setting.__func__)
    elif inspect.isfunction(setting):
        yield setting
    elif not isinstance(setting, str | int | float | None):
        kind = setting if isinstance(setting, type) else type(setting)
        for base in kind.__mro__:
            if base.__module__.partition(".")[0] not in _LIBRARIES:
                yield base
        for part in _parts_of(setting):
            yield from _code_in(part)


def _parts_of(setting: object) -> Iterable[object]:
    if isinstance(setting, BaseEstimator):
        return cast("Any", setting).get_params(deep=False).values()
    if is_series(setting):
        return setting
    return ()


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
            "PATEClassifier.fit.checkpoints",
            "be left out if a setting has no name, such as a lambda, because later runs could not recognize it",
            fix="Define it with `def`, or as a class in a module.",
        ) from error
