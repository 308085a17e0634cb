"""Base class of objects that depend on private data: they are never pickled, nor copied for pickling."""

from typing import ClassVar, NoReturn

from tutelage.exceptions import NotPublishableError


class NeverPickled:
    """Base of objects that must not travel inside a saved model."""

    __slots__ = ()
    _stored_by: ClassVar[str | None] = None  # the one way in which it may be stored

    def __reduce__(self) -> NoReturn:
        instead = "" if self._stored_by is None else f"; use `{self._stored_by}`"
        raise NotPublishableError(
            f"{type(self).__name__} is not pickled, so that private data cannot travel inside a saved object{instead}."
        )
