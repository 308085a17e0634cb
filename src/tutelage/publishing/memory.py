"""A publication is charged, drawn once, and remembered by public values only, for spending shows what is remembered."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tutelage.exceptions import InvalidDataError
from tutelage.ledger import Ledger
from tutelage.ledger.history import Published
from tutelage.neighboring import spelled_out


def publication_key(ledger: Ledger, about: dict[str, Any], queries: npt.ArrayLike) -> bytes:
    """Return the keyed hash under which a publication is remembered."""
    rows = np.asarray(queries)
    if rows.ndim == 0 or not len(rows):
        raise InvalidDataError("`queries` of a publication must hold the public rows that were asked. Got none.")
    return ledger.query_hashes(about, rows[None], former=spelled_out(about))[0]


def drawn_once(ledger: Ledger, event: Published, query: bytes, draw: Callable[[], int]) -> int:
    """Return what a publication that is not remembered yet comes to: charged first, then drawn, then stored."""
    remembered, reservation = ledger.reserve_new(event, [query])
    if reservation is None:  # another process was quicker
        return remembered[query][0]
    return ledger.settle(reservation, {query: (draw(),)}, event).labels[query][0]
