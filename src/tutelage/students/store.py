"""A student on disk in skops format, which is read without running code from the file."""

from pathlib import Path
from typing import Any

import skops.io

from tutelage.exceptions import InvalidDataError

# What skops does not vouch for by itself although scikit-learn's own tree models need it.
_TRUSTED = ("sklearn.tree._tree.Tree",)


def save_student(student: Any, path: Path) -> None:
    """Write a fitted scikit-learn estimator; it holds public rows and released labels only, so it may be published."""
    skops.io.dump(student, path)


def load_student(path: Path, trusted: tuple[str, ...] = ()) -> Any:
    """Read a student written by `save_student`.

    Parameters
    ----------
    path : path
        The skops file.
    trusted : tuple of str
        Further type names that the caller vouches for.

    Raises
    ------
    InvalidDataError
        If the file holds a type that nobody vouched for; nothing of it has been run.
    """
    unknown = set(skops.io.get_untrusted_types(file=path)) - {*_TRUSTED, *trusted}
    if unknown:
        raise InvalidDataError(
            f"{path} holds types that are not known to be safe: {', '.join(sorted(unknown))}. If you trust where the "
            "file comes from, name them in `trusted`."
        )
    return skops.io.load(path, trusted=[*_TRUSTED, *trusted])
