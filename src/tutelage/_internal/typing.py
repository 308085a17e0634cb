"""Array aliases, each with its shape in a comment, and the base of objects that are never pickled."""

from typing import Any, ClassVar, NoReturn

import numpy as np
import numpy.typing as npt

from tutelage.exceptions import NotPublishableError

IntArray = npt.NDArray[np.integer[Any]]
FloatArray = npt.NDArray[np.float64]
Matrix = npt.NDArray[Any]  # (rows, features)
Ballots = npt.NDArray[np.int16]  # (teachers, queries): class index, or ABSTAIN

ABSTAIN = -1  # in ballots: this teacher has no opinion; in released labels: no answer was given


class NeverPickled:
    """Base class of objects that depend on private data: they are never pickled, nor copied for pickling."""

    __slots__ = ()
    _stored_by: ClassVar[str | None] = None  # the one way in which it may be stored

    def __reduce__(self) -> NoReturn:
        instead = "" if self._stored_by is None else f"; use `{self._stored_by}`"
        raise NotPublishableError(
            f"{type(self).__name__} is not pickled, so that private data cannot travel inside a saved object{instead}."
        )
