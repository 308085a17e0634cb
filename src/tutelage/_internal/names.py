"""Names for configurations and arguments: one record for teachers, students, selectors, maps and data sets."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Generic, TypeVar, final

Made = TypeVar("Made", covariant=True)


@final
@dataclass(frozen=True, slots=True)
class Named(Generic[Made]):
    """How to make what a name stands for, and when to choose it; called, it makes one."""

    make: Callable[..., Made]
    line: str  # the page that lists the names repeats it

    def __call__(self, *arguments: Any, **settings: Any) -> Made:
        return self.make(*arguments, **settings)


def loaded(module: str, name: str) -> Callable[..., Any]:
    """Return the callable of this name; its module, which may need an extra, is loaded when it is called."""
    return lambda *arguments, **settings: getattr(import_module(module), name)(*arguments, **settings)
