"""UCI Diabetes 130-US hospitals (Strack et al. 2014, CC BY 4.0): hospital stays, and who came back within 30 days.

The published table says of no stay which hospital it was in, and one patient may have many stays. `split_by_patient`
keeps each patient's stays together; a split by rows would test on patients that the model has seen.

PATE 2017, Appendix C, reports 93.94 % on 34,104 + 12,702 rows "balanced between the two output classes" of readmission.
There are 11,357 early readmissions, too few for that. But 46,806 is twice 23,403, the number of stays whose
`diabetesMed` is "No". ``tutelage reproduce diabetes`` asks for both.
"""

import csv
import gzip
import hashlib
import hmac
import io
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, final

import numpy as np
import numpy.typing as npt

from tutelage._internal.typing import FloatArray, IntArray
from tutelage._internal.validation import hmac_key, probability
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage_reproductions.datasets import releases

Label = Literal["readmitted", "diabetesMed"]

CLASSES = ("readmitted within 30 days", "readmitted later or not")
ROWS = 101_766
PATIENTS = 71_518
_ARCHIVE = releases.RemoteFile(
    "https://archive.ics.uci.edu/static/public/296/diabetes+130-us+hospitals+for+years+1999-2008.zip",
    None,
)
_FILE = "diabetic_data.csv"  # its name in UCI's archive
_SUBFOLDER = "diabetes130"
_NAMES = ("diabetes130.csv.gz", "diabetes130.csv", _FILE, f"{_FILE}.gz")
_SHA256 = "da21942c25a10a51a8842907ab01a8530b06232616b17d317441d592a20c4359"

_DOSES = ("No", "Down", "Steady", "Up")
DRUGS = (
    "metformin", "repaglinide", "nateglinide", "chlorpropamide", "glimepiride", "acetohexamide", "glipizide",
    "glyburide", "tolbutamide", "pioglitazone", "rosiglitazone", "acarbose", "miglitol", "troglitazone", "tolazamide",
    "examide", "citoglipton", "insulin", "glyburide-metformin", "glipizide-metformin", "glimepiride-pioglitazone",
    "metformin-rosiglitazone", "metformin-pioglitazone",
)  # fmt: skip
_NUMBERS = (
    "time_in_hospital", "num_lab_procedures", "num_procedures", "num_medications", "number_outpatient",
    "number_emergency", "number_inpatient", "number_diagnoses",
)  # fmt: skip
_ADMINISTRATIVE = ("admission_type_id", "discharge_disposition_id", "admission_source_id")
_CATEGORIES: Mapping[str, tuple[str, ...]] = {
    "gender": ("Female", "Male", "Unknown/Invalid"),
    "age": tuple(f"[{low}-{low + 10})" for low in range(0, 100, 10)),
    "A1Cresult": ("None", "Norm", ">7", ">8"),
    **dict.fromkeys(DRUGS, _DOSES),
    "change": ("No", "Ch"),
    "diabetesMed": ("No", "Yes"),
}
# PATE 2017 counts 18 features "to avoid features with missing values" and does not name them. These are complete: the
# eight counts, and of the rest what describes the stay, leaving out drugs that few patients take and max_glu_serum,
# which was measured in one stay of twenty.
FEATURES = (
    "gender",
    "age",
    *_ADMINISTRATIVE,
    *_NUMBERS,
    "A1Cresult",
    "metformin",
    "insulin",
    "change",
    "diabetesMed",
)
CATEGORICAL = ("gender", *_ADMINISTRATIVE)  # whose integers have no order
_READABLE = frozenset((*FEATURES, *DRUGS))
_READMITTED = {"<30": 0, ">30": 1, "NO": 1}
_CLASSES: Mapping[str, tuple[str, str]] = {
    "readmitted": CLASSES,
    "diabetesMed": ("no diabetes drug", "a diabetes drug"),
}
_DISCHARGE = "discharge_disposition_id"
_IDS = ("encounter_id", "patient_nbr")
# Died, or left for a hospice (UCI's IDS_mapping.csv). Strack et al. omit these stays: no patient returns from them.
NO_RETURN = (11, 13, 14, 19, 20, 21)
# Shares of class 0 in the stays that a patient can return from; the table is published, so they are.
SHARE_WITHIN_30_DAYS = 0.1139
SHARE_WITHOUT_DRUG = 0.2277
_SHARES: Mapping[tuple[str, ...], float] = {
    _CLASSES["readmitted"]: SHARE_WITHIN_30_DAYS,
    _CLASSES["diabetesMed"]: SHARE_WITHOUT_DRUG,
}


@final
@dataclass(frozen=True, slots=True, eq=False)
class HospitalStays:
    """Hospital stays of diabetic patients, one a row, and a label: whether the patient was readmitted within 30 days.

    Parameters
    ----------
    X : int64 array of shape (rows, features)
        Features; numbers as they are, categories as indices, UCI's ids as they are.
    y : int64 array of shape (rows,)
        Labels: indices into `classes`.
    patients : int64 array of shape (rows,)
        Whose stay it is (``patient_nbr``), to partition by; never a feature.
    encounters : int64 array of shape (rows,)
        Unique number of the stay (``encounter_id``); never a feature.
    feature_names : tuple of str
        The columns.
    classes : tuple of str
        Class names in label order.
    """

    X: npt.NDArray[np.int64]
    y: npt.NDArray[np.int64]
    patients: npt.NDArray[np.int64]
    encounters: npt.NDArray[np.int64]
    feature_names: tuple[str, ...] = FEATURES
    classes: tuple[str, ...] = CLASSES

    def select(self, rows: IntArray | npt.NDArray[np.bool_]) -> "HospitalStays":
        """Return the stays of these row numbers, or where this mask holds."""
        return replace(
            self,
            X=self.X[rows],
            y=self.y[rows],
            patients=self.patients[rows],
            encounters=self.encounters[rows],
        )

    def __len__(self) -> int:
        return len(self.y)

    def __repr__(self) -> str:
        return f"HospitalStays(<{len(self)} rows hidden>)"


@final
@dataclass(frozen=True, slots=True, eq=False)
class DiabetesSplit:
    """Hospital stays split by patient: no patient is in two parts.

    Parameters
    ----------
    private : HospitalStays
        What teachers learn from.
    public : HospitalStays
        What may be asked about; its labels are for evaluation only.
    test : HospitalStays
        What the student is scored on.
    """

    private: HospitalStays
    public: HospitalStays
    test: HospitalStays


def load_diabetes(
    folder: str | Path | None = None,
    *,
    download: bool = False,
    label: Label = "readmitted",
    features: Sequence[str] | None = None,
) -> HospitalStays:
    """Return UCI Diabetes 130-US hospitals: 101,766 stays of 71,518 patients, 11,357 readmitted within 30 days.

    Read is UCI's ``diabetic_data.csv``, also compressed with gzip or named ``diabetes130.csv``, or its archive, in
    `folder` or in ``diabetes130`` there. Its lines are compared with a checksum, whatever ends them.

    Parameters
    ----------
    folder : path-like, optional
        The only folder to search; see `load_mnist`.
    download : bool
        Fetch UCI's archive if no file is found, into ``diabetes130`` in `folder` or, without one, in the cache.
    label : {"readmitted", "diabetesMed"}
        What is to be predicted: readmission within 30 days (class 0) or not, or no drug against diabetes (class 0) or
        any.
    features : sequence of str, optional
        Which columns, of `FEATURES` and `DRUGS`, in this order. Default: `FEATURES` without the label.

    Raises
    ------
    InvalidDataError
        If the file is not found or cannot be downloaded, or is not this data set.
    InvalidParameterError
        If there is no such label or column, a column is named twice, or the label is among the features.

    References
    ----------
    Strack, DeShazo, Gennings, Olmo, Ventura, Cios and Clore, Impact of HbA1c measurement on hospital readmission rates,
    BioMed Research International 2014.
    """
    features = _chosen(label, features)
    places = releases.search_places(folder, _SUBFOLDER)
    found = next(
        (path for name in _NAMES for path in releases.first_complete([name], places)), None
    )
    path = (
        found
        or releases.obtain([_ARCHIVE], _SUBFOLDER, folder, download=download, otherwise=_FILE)[0]
    )
    try:
        table = _unpacked(path).replace(b"\r\n", b"\n").rstrip(b"\n") + b"\n"
    except (OSError, EOFError, KeyError, StopIteration, zlib.error, zipfile.BadZipFile):
        raise InvalidDataError(
            f"{path} cannot be read, or is damaged. Remove it, and fetch it again."
        ) from None
    releases.check(table, _SHA256, str(path), "UCI Diabetes")
    header, *rows = csv.reader(io.StringIO(table.decode("ascii")))
    words = dict(zip(header, zip(*rows, strict=True), strict=True))
    encounters, patients, *X, y = (
        _numbers(name, words[name]) for name in (*_IDS, *features, label)
    )
    return HospitalStays(np.stack(X, axis=1), y, patients, encounters, features, _CLASSES[label])


def _unpacked(path: Path) -> bytes:
    """Return the table in a file: plain, compressed, or in UCI's archive."""
    content = path.read_bytes()
    if zipfile.is_zipfile(path):
        archive = zipfile.ZipFile(io.BytesIO(content))
        return archive.read(next(name for name in archive.namelist() if name.endswith(_FILE)))
    return gzip.decompress(content) if path.suffix == ".gz" else content


def _numbers(name: str, words: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return a column as numbers: counts and ids as they are, and categories as indices."""
    codes = (
        _READMITTED
        if name == "readmitted"
        else {word: code for code, word in enumerate(_CATEGORIES.get(name, ()))}
    )
    return np.array([codes[word] for word in words] if codes else words, dtype=np.int64)


def split_by_patient(
    stays: HospitalStays,
    *,
    key: bytes,
    public: float = 0.15,
    test: float = 0.2,
    balanced: bool = True,
) -> DiabetesSplit:
    """Deal patients to a private, a public and a test part, so that all stays of a patient meet in one.

    The part of a stay depends on its patient and the key alone, and whether it is kept on itself and the key: adding or
    removing a patient moves no other patient. Stays that end in death or a hospice are left out.

    Parameters
    ----------
    stays : HospitalStays
        All stays.
    key : bytes
        Key of the hash, at least 16 bytes; the same key gives the same split. Take another key for the shards.
    public, test : float
        Expected share of the patients in these parts; the rest is private.
    balanced : bool
        Keep a stay of the larger class only with the chance that gives both classes the same expected size. The chance
        comes from the published share of the smaller class, not from the rows, so sizes are equal up to chance.

    Raises
    ------
    InvalidParameterError
        If the key is short, a share is not between 0 and 1, nothing is left to be private, or the stays are without
        ``discharge_disposition_id``.
    """
    probability(public, "public", "split_by_patient")
    probability(test, "test", "split_by_patient")
    if public + test >= 1:
        raise InvalidParameterError(
            "split_by_patient.public",
            "sum with $test to less than 1, to leave private rows",
            f"{public} and {test}",
        )
    key = hmac_key(key, "split_by_patient")
    if balanced and stays.classes not in _SHARES:
        raise InvalidParameterError(
            "split_by_patient.balanced",
            (
                "be False for labels of your own: the share of each class must be published, and only those of "
                "load_diabetes are"
            ),
        )
    if _DISCHARGE not in stays.feature_names:
        raise InvalidParameterError(
            "split_by_patient.stays",
            f"have the column {_DISCHARGE}, which says who died",
            fix="Load it as a feature.",
        )
    kept = ~np.isin(stays.X[:, stays.feature_names.index(_DISCHARGE)], NO_RETURN)
    if balanced:
        share = _SHARES[stays.classes]
        chance = share / (1 - share)
        kept &= (stays.y == 0) | (_drawn(key, "stay", stays.encounters) < chance)
    stays = stays.select(kept)
    place = _drawn(key, "patient", stays.patients)
    in_test, in_public = place < test, (place >= test) & (place < test + public)
    return DiabetesSplit(
        stays.select(~in_test & ~in_public), stays.select(in_public), stays.select(in_test)
    )


def _chosen(label: str, features: Sequence[str] | None) -> tuple[str, ...]:
    if label not in _CLASSES:
        raise InvalidParameterError(
            "load_diabetes.label", f"be one of {', '.join(_CLASSES)}", f"{label!r}"
        )
    if features is None:
        return tuple(name for name in FEATURES if name != label)
    unknown = [name for name in features if name not in _READABLE]
    if unknown or label in features or len(set(features)) < len(features):
        raise InvalidParameterError(
            "load_diabetes.features",
            "be names in FEATURES or DRUGS of this module, each once and without the label",
            f"{list(features)!r}",
        )
    return tuple(features)


def _drawn(key: bytes, what: str, ids: IntArray) -> FloatArray:
    """Return HMAC-SHA-256(key, what and id) as a number in [0, 1) for each id."""
    values, inverse = np.unique(ids, return_inverse=True)
    words = (
        hmac.digest(key, f"{what} {value}".encode(), hashlib.sha256)[:6]
        for value in values.tolist()
    )
    numbers = np.fromiter(
        (int.from_bytes(word, "big") for word in words), dtype=np.float64, count=len(values)
    )
    return (numbers / 2**48)[inverse]
