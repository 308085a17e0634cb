"""Hospital stays as numbers, by a recipe that looks at public rows only."""

import numpy as np
import numpy.typing as npt
from sklearn.preprocessing import StandardScaler

from tutelage_reproductions.datasets.diabetes import FEATURES

Numbers = npt.NDArray[np.float64]

_MOST = {"number_inpatient": 3, "number_emergency": 2, "number_outpatient": 2}  # earlier visits count up to here
_AS_THEY_ARE = (
    "age", "time_in_hospital", "num_medications", "number_diagnoses", "num_procedures", "num_lab_procedures",
    "diabetesMed",
)  # fmt: skip
_HOME = 1  # discharge_disposition_id
_OTHER_HOSPITALS = (2, 5, 9, 12, 15, 22, 28)
_EMERGENCY_ROOM = 7  # admission_source_id
_CHANGED = (1, 3)  # insulin "Down" and "Up"


class Encoder:
    """Sixteen columns of a stay, centered and scaled by the public rows. 0 is the average public patient.

    Parameters
    ----------
    X_public : integer array of shape (rows, 18)
        Public rows as `load_diabetes` returns them, without labels.
    """

    def __init__(self, X_public: npt.NDArray[np.int64]) -> None:
        self._scaler = StandardScaler().fit(_columns(X_public))

    def __call__(self, X: npt.NDArray[np.int64]) -> Numbers:
        """Return stays as numbers, shape (rows, 16)."""
        return np.asarray(self._scaler.transform(_columns(X)), dtype=np.float64)


def _columns(X: npt.NDArray[np.int64]) -> Numbers:
    column: dict[str, npt.NDArray[np.int64]] = {name: X[:, place] for place, name in enumerate(FEATURES)}
    discharge = column["discharge_disposition_id"]
    columns = [column[name] for name in _AS_THEY_ARE]
    columns += [np.minimum(column[name], most) for name, most in _MOST.items()]
    columns += [discharge != _HOME, np.isin(discharge, _OTHER_HOSPITALS)]
    columns += [column["admission_source_id"] == _EMERGENCY_ROOM, np.isin(column["insulin"], _CHANGED)]
    columns += [column[drug] > 0 for drug in ("A1Cresult", "metformin")]
    return np.stack(columns, axis=1).astype(np.float64)
