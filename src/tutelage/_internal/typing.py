"""Array aliases, each with its shape in a comment, objects that are never pickled, and names for configurations."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar, Generic, NoReturn, TypeGuard, TypeVar, final

import numpy as np
import numpy.typing as npt

from tutelage.exceptions import NotPublishableError

IntArray = npt.NDArray[np.integer[Any]]
FloatArray = npt.NDArray[np.float64]
Array = npt.NDArray[Any]  # of any shape
Mask = npt.NDArray[np.bool_]
Matrix = Array  # (rows, features)
Ballots = npt.NDArray[np.int16]  # (teachers, queries): class index, or ABSTAIN

Made = TypeVar("Made", covariant=True)

ABSTAIN = -1  # in ballots: this teacher has no opinion; in released labels: no answer was given


def is_array(value: object) -> TypeGuard[Array]:
    """Return whether a value is an array of numpy."""
    return isinstance(value, np.ndarray)


def is_mapping(value: object) -> TypeGuard[Mapping[object, Any]]:
    """Return whether a value is a mapping, of whatever to whatever."""
    return isinstance(value, Mapping)


def is_series(value: object) -> TypeGuard[list[Any] | tuple[Any, ...]]:
    """Return whether a value is a list or a tuple, of whatever."""
    return isinstance(value, list | tuple)


class NeverPickled:
    """Base class of objects that depend on private data: they are never pickled, nor copied for pickling."""

    __slots__ = ()
    _stored_by: ClassVar[str | None] = None  # the one way in which it may be stored

    def __reduce__(self) -> NoReturn:
        instead = "" if self._stored_by is None else f"; use `{self._stored_by}`"
        raise NotPublishableError(
            f"{type(self).__name__} is not pickled, so that private data cannot travel inside a saved object{instead}."
        )


class Hidden:
    """Base class of records that depend on private rows: none is shown. Their dataclasses have ``repr=False``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<private rows hidden>)"


class Private(Hidden, NeverPickled):
    """Base class of records that hold private rows: none is shown or pickled."""

    __slots__ = ()


@final
@dataclass(frozen=True, slots=True)
class Named(Generic[Made]):
    """How to make what a name stands for, and when to choose it; called, it makes one."""

    make: Callable[..., Made]
    line: str  # the page that lists the names repeats it

    def __call__(self, *arguments: Any, **settings: Any) -> Made:
        return self.make(*arguments, **settings)


@final
@dataclass(frozen=True, slots=True)
class Untyped:
    """A module of another library, which has no types and is imported when something in it is first used."""

    _name: str

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)


def load_later(module: str, name: str) -> Callable[..., Any]:
    """Return the callable of this name; its module, which may need an extra, is loaded when it is called."""

    def call(*arguments: object, **settings: object) -> Any:
        return getattr(import_module(module), name)(*arguments, **settings)

    return call
