"""Array aliases; the comment after each gives its shape."""

from typing import Any

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.integer[Any]]
FloatArray = npt.NDArray[np.float64]
Matrix = npt.NDArray[Any]  # (rows, features)
Ballots = npt.NDArray[np.int16]  # (teachers, queries): class index, or ABSTAIN

ABSTAIN = -1  # in ballots: this teacher has no opinion; in released labels: no answer was given
