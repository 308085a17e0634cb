"""UCI Adult (Becker and Kohavi 1996, CC BY 4.0) with the split of PATE 2017, Appendix C.

All columns that are used are bundled; `load_adult` can also read the files as UCI distributes them. The bundle is
rebuilt by tools/build_adult.py.
"""

import csv
from collections.abc import Iterable
from io import TextIOWrapper
from pathlib import Path
from typing import final

import numpy as np

from tutelage._internal.gate import open_input
from tutelage._internal.records import by_identity
from tutelage._internal.typing import Array, IntArray
from tutelage.exceptions import InvalidDataError
from tutelage.tables import Table

BUNDLE = Path(__file__).with_name("adult.npz")
CLASSES = ("<=50K", ">50K")
_PRIVATE_ROWS = 32_561
PUBLIC_ROWS = 16_281
EVALUATION_ROWS = 11_282
# The other columns are codes.
NUMBERS = ("age", "education-num", "capital-gain", "capital-loss", "hours-per-week")
# Codes: the bundle has numbers alone.
EDUCATION_BY_NUMBER = (15, 11, 14, 8, 7, 12, 2, 9, 3, 1, 6, 5, 0, 10, 4, 13)

# The columns and categories that UCI publishes with the data, in its own order; "?" is its mark for unknown.
_CATEGORIES_IN_ORDER = {
    "workclass": (
        "Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov Without-pay Never-worked ?"
    ),
    "education": (
        "Bachelors Some-college 11th HS-grad Prof-school Assoc-acdm Assoc-voc 9th 7th-8th 12th Masters 1st-4th 10th "
        "Doctorate 5th-6th Preschool"
    ),
    "marital-status": (
        "Married-civ-spouse Divorced Never-married Separated Widowed Married-spouse-absent Married-AF-spouse"
    ),
    "occupation": (
        "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty Handlers-cleaners "
        "Machine-op-inspct Adm-clerical Farming-fishing Transport-moving Priv-house-serv Protective-serv Armed-Forces ?"
    ),
    "relationship": "Wife Own-child Husband Not-in-family Other-relative Unmarried",
    "race": "White Asian-Pac-Islander Amer-Indian-Eskimo Other Black",
    "sex": "Female Male",
    "native-country": (
        "United-States Cambodia England Puerto-Rico Canada Germany Outlying-US(Guam-USVI-etc) India Japan Greece South "
        "China Cuba Iran Honduras Philippines Italy Poland Jamaica Vietnam Mexico Portugal Ireland France "
        "Dominican-Republic Laos Ecuador Taiwan Haiti Columbia Hungary Guatemala Nicaragua Scotland Thailand "
        "Yugoslavia El-Salvador Trinadad&Tobago Peru Hong Holand-Netherlands ?"
    ),
    "income": " ".join(CLASSES),
}
_CATEGORIES = {name: words.split() for name, words in _CATEGORIES_IN_ORDER.items()}
COLUMNS = (
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship", "race",
    "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country", "income",
)  # fmt: skip
# Appendix C counts 13 features of UCI's 14 without naming them. The one left out here is fnlwgt, the census bureau's
# sampling weight, which describes the survey and not the person.
BUNDLED = tuple(column for column in COLUMNS if column != "fnlwgt")
FEATURES = BUNDLED[:-1]


@final
@by_identity
class AdultSplit:
    """UCI Adult as PATE 2017 splits it: the training file is private, the test file is public.

    Parameters
    ----------
    X_private, y_private : integer arrays of shape (32561, 13) and (32561,)
        Sensitive rows and their labels: indices into `classes`.
    X_public : integer array of shape (16281, 13)
        Public inputs; the paper queries the first 500 and evaluates on the last 11,282.
    y_public : integer array of shape (16281,)
        Labels of the public rows, for evaluation only.
    feature_names : tuple of str
        The 13 columns.
    classes : tuple of str
        Class names in label order.
    numbers : tuple of str
        Columns that hold numbers; the others hold codes of categories.
    """

    X_private: IntArray
    y_private: IntArray
    X_public: IntArray
    y_public: IntArray
    feature_names: tuple[str, ...] = FEATURES
    classes: tuple[str, ...] = CLASSES
    numbers: tuple[str, ...] = NUMBERS

    @property
    def kinds(self) -> dict[str, str | list[str]]:
        """The kind of each column, as `PublicColumns.learn` takes it: of categories, their codes."""
        kinds = dict[str, str | list[str]]()
        for name in self.feature_names:
            kinds[name] = "number"
            if name in _CATEGORIES:
                n_codes = len(_CATEGORIES[name])
                kinds[name] = [str(code) for code in range(n_codes)]
        return kinds

    def tables(self) -> tuple[Table, Table]:
        """Return the private and the public rows with named columns, among them ``income``, the class."""
        private = self._table(self.X_private, self.y_private)
        return private, self._table(self.X_public, self.y_public)

    def _table(self, rows: IntArray, labels: IntArray) -> Table:
        named = zip(self.feature_names, rows.T, strict=True)
        columns: dict[str, Array] = dict(named)
        classes = np.array(self.classes, dtype=object)
        columns["income"] = classes[labels]
        return Table("", columns)


def load_adult(folder: str | Path | None = None) -> AdultSplit:
    """Return UCI Adult, categories mapped to integers, split as in PATE 2017, Appendix C.

    Parameters
    ----------
    folder : path-like, optional
        Folder with UCI's own ``adult.data`` and ``adult.test``. Default: the bundled copy.

    Raises
    ------
    InvalidDataError
        If a file is missing, or is not the Adult data.
    """
    train, test = _read_bundle() if folder is None else _read_uci(Path(folder))
    if (len(train), len(test)) != (_PRIVATE_ROWS, PUBLIC_ROWS):
        raise InvalidDataError(
            f"Adult has {_PRIVATE_ROWS} training and {PUBLIC_ROWS} test rows. Got {len(train)} and {len(test)}."
        )
    return AdultSplit(
        train[:, :-1],
        train[:, -1],
        test[:, :-1],
        test[:, -1],
    )


def parse(lines: Iterable[str], *, skip_rows: int = 0) -> IntArray:
    """Return Adult records in comma-separated text as integers, shape (rows, 14): features, and last the label."""
    codes = dict[str, dict[str, int]]()
    for name, categories in _CATEGORIES.items():
        codes[name] = {value: code for code, value in enumerate(categories)}
    records = list[list[int]]()
    for number, row in enumerate(csv.reader(lines, skipinitialspace=True)):
        if number < skip_rows or not row or row[0].startswith("|"):
            continue
        values = [value.strip() for value in row]
        try:
            values[-1] = values[-1].rstrip(".")
            record = [
                codes[name][value] if name in codes else int(value)
                for name, value in zip(COLUMNS, values, strict=True)
                if name in BUNDLED
            ]
        except (KeyError, ValueError):
            raise InvalidDataError(
                f"Line {number + 1} is not an Adult record of {len(COLUMNS)} columns."
            ) from None
        records.append(record)
    table = np.array(records, dtype=np.int64)
    return table.reshape(-1, len(BUNDLED))


def _read_bundle() -> tuple[IntArray, IntArray]:
    with np.load(BUNDLE, allow_pickle=False) as file:
        arrays = {name: column.astype(np.int64) for name, column in file.items()}
    parts = list[IntArray]()
    for part in ("train", "test"):
        number = arrays[f"{part}/education-num"]
        arrays[f"{part}/education"] = np.array(EDUCATION_BY_NUMBER)[number - 1]
        columns = [arrays[f"{part}/{name}"] for name in BUNDLED]
        parts.append(np.stack(columns, axis=1))
    return parts[0], parts[1]


def _read_uci(folder: Path) -> tuple[IntArray, IntArray]:
    tables = list[IntArray]()
    for name in ("adult.data", "adult.test"):
        path = folder / name
        if not path.is_file():
            raise InvalidDataError(f"{path} does not exist. Unpack UCI's Adult archive there.")
        with TextIOWrapper(open_input(path), newline="") as lines:
            tables.append(parse(lines))
    return tables[0], tables[1]
