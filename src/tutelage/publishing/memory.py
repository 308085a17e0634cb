"""What a publication is remembered by: public values only, for what is remembered shows in what is spent."""

from typing import Any

import numpy as np
import numpy.typing as npt

from tutelage.exceptions import InvalidDataError
from tutelage.ledger import Ledger


def publication_key(ledger: Ledger, about: dict[str, Any], queries: npt.ArrayLike) -> bytes:
    """Return the keyed hash under which a publication is remembered.

    Parameters
    ----------
    ledger : Ledger
        Where.
    about : dict
        Plain public values: what was planned and released.
    queries : array of shape (queries, ...)
        The public rows that were asked, in that order.

    Raises
    ------
    InvalidDataError
        If there are no rows.
    """
    rows = np.asarray(queries)
    if rows.ndim == 0 or not len(rows):
        raise InvalidDataError("`queries` of a publication must hold the public rows that were asked. Got none.")
    return ledger.query_hashes(about, rows[None])[0]
