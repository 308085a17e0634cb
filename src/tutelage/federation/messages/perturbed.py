"""Perturbed ballots as they travel: 64-bit integers, little-endian, of the queries that an entity takes part in."""

from math import ceil

import numpy as np

from tutelage._typing import ABSTAIN, IntArray
from tutelage.exceptions import ForgedMessageError
from tutelage.mechanisms.local import ClassResponse, LocalGaussian, LocalMechanism

_BYTES = 8


def write_reports(reports: IntArray) -> bytes:
    """Return one entity's reports on the first queries of a batch, shape (queries,) or (queries, classes), as bytes."""
    return np.ascontiguousarray(reports, dtype="<i8").tobytes()


def read_reports(payload: bytes, mechanism: LocalMechanism, queries: int, classes: int) -> IntArray:
    """Return one entity's reports on all queries of a batch, as `decode` takes them."""
    per_query = classes if isinstance(mechanism, LocalGaussian) else 1
    low, high = _range(mechanism, classes)
    found = len(payload) // (_BYTES * per_query)
    if len(payload) != found * _BYTES * per_query or not 1 <= found <= queries:
        raise ForgedMessageError("An entity's ballots do not fit the batch. It must send them again.")
    values = np.frombuffer(payload, dtype="<i8").astype(np.int64)
    if np.any(values < low) or np.any(values > high):
        raise ForgedMessageError("An entity's ballots hold what its mechanism does not report. It is left out.")
    if isinstance(mechanism, LocalGaussian):
        reports = np.zeros((queries, classes), dtype=np.int64)
        reports[:found] = values.reshape(found, classes)
    else:
        reports = np.full(queries, ABSTAIN, dtype=np.int64)
        reports[:found] = values
    return reports


def _range(mechanism: LocalMechanism, classes: int) -> tuple[int, int]:
    """Return the least and the largest report: of noise, what it passes with a chance below 1e-300."""
    if isinstance(mechanism, ClassResponse):
        return 0, mechanism.channel(classes).shape[1] - 1
    reach = ceil(1 + 40 * mechanism.sigma) if isinstance(mechanism, LocalGaussian) else 0
    return -reach, reach
