"""Checks of the private and public rows before the first release, for the data set owner only.

They read private rows without noise. So they end as errors, warnings or lines on standard error, never on a card.
"""

import re
import secrets
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field
from hashlib import blake2b
from itertools import islice
from math import log, log2, sqrt
from operator import eq
from typing import Any, NamedTuple, final

import numpy as np
from scipy import stats

from tutelage._internal.records import Names, by_identity
from tutelage._internal.typing import Array, FloatArray, Hidden, IntArray, Mask, Matrix
from tutelage.accounting.composition import continuous_gaussian_composition
from tutelage.exceptions import literal
from tutelage.features.cells import UNKNOWN
from tutelage.features.schema import Schema
from tutelage.partition import canonical_ids, folded_ids
from tutelage.tables import MOMENT, Cells, Table, by_value, cell_text

_FEWEST_PUBLIC_ROWS = 5
_FEWEST_ROWS_OF_CLASS = 3
_LARGE_SHARE = 0.1  # of the public rows
_BEYOND = 1.5  # times as many equal pairs as any two tables from different people have
_FEWEST_DISTINCT = 10  # rows that make two tables of the same rows no accident
_LEVEL = 0.01  # of each test whether so many rows alike are chance
_RARE = 0.01  # equal pairs
_CHUNK = 1024  # rows
# People who take part in a release where others cannot, by the standard deviation in ballots.
_FEWEST_PER_NOISE = 10

# Differences between private and public columns, or the last public rows and the others, that are worth a warning if
# they are significant. Numbers of alike and independent rows earn either warning in at most 1 of 100 cases.
_FACTOR = 2.0  # of all quartiles of sizes
_SPREAD = 8.0  # factor between quartiles
_MOST_FACTOR = 1e6  # that is stated
_OF_MISSING = 0.3  # share of the cells
_OF_CELLS = 0.5  # the same
_OF_LABELS = 0.2  # Kolmogorov's distance
_OF_COLUMN = 0.5  # the same
_FIRST_COLUMNS = 10  # by one of which a file is sorted
_NAMED = 3  # columns in one warning
_MOST_VALUES = 20  # of a column that is a copy of the label
# Chance brings mean and deviation of a million numbers this close to 0 and 1 in fewer than 1 of 100,000 columns.
_STANDARD = 1e-6

_WORDS_FOR_PEOPLE = {
    "account", "client", "customer", "email", "employee", "household", "member", "mrn", "participant", "patient",
    "person", "pid", "respondent", "ssn", "student", "subject", "uid", "user",
}  # fmt: skip
_WORDS_FOR_IDS = {"guid", "id", "ids", "uuid"}
_WORDS_IN_IDS = {"code", "key", "nbr", "no", "num", "number"}  # beside a word for people
_FEWEST_IDS = 10  # a column named like an id with fewer values may be a category
_MOST_ROWS_OF_ONE = 20  # on average
_MOST_ROWS_OF_ONE_UNNAMED = 3
_REPEATED_IDS = 0.1  # share of the rows whose cell is repeated
_LONGEST_ID = 40  # other cells are free text
_MOST_WORDS_OF_ID = 2
_NEARLY_ALL = 0.9
# Whole numbers that are ids: many values, each in a few rows, and either every number in use, or rows that share a
# number and agree in another column as the rows of one person do (sex, year of birth).
_FEWEST_NUMBERS = 100
_MOST_ROWS_OF_NUMBER = 10
_REPEATED_NUMBERS = 0.2
_FEWEST_NUMBERS_IN_USE = 200
_IN_USE = 0.9
_PAIRS = 2000
_FEWEST_PAIRS = 50
_AGREE = 0.995
_VARIES = 0.9
_LOOKED_AT = 2000  # cells, before all cells of a column are
TO_INSIST = "To continue anyway, pass $insist."
_UNIT = (
    "to protect all rows of one person together, name {} as $entity_ids; "
    "to protect each row alone, set $unit to 'row'."
)


@final
@by_identity
class Sight(Hidden):
    """The rows and settings of the next release, for its checks; private.

    If rows stay on the workers of a cluster, it is sent there without rows, and gets them there.
    """

    # Rows as numbers; of named columns first the numbers, then the codes of categories.
    private: Matrix
    public: Matrix  # that it learns from
    numbers: Names  # names of the columns of numbers
    columns: Mapping[str, Cells]  # all that may say whose row it is, features or not
    labels: Array
    n_classes: int
    scored: Matrix | None = None  # public rows that only score it
    categories: Names = ()
    entity_ids: Array | None = None
    silos: Array | None = None
    # By the interface, where it has other names for these two.
    named: Mapping[str, str] = field(default_factory=dict)
    unit_is_row: bool = False  # whether the owner declared it
    noise: float | None = None  # standard deviation, in ballots
    n_people: int | None = None  # if these are only the first of more rows
    takes_empty: bool = True  # whether the teachers take empty cells as they are
    schema: Schema | None = None  # in place of public rows
    declared: tuple[tuple[Schema, Table], ...] = ()  # columns, and private rows with them
    # The column of the public rows of labels that the fit does not use.
    unused_labels: str | None = None

    def read_off(self) -> Iterator[str]:
        """Yield which columns of the schema, or range of the target, seem to be read off the private rows."""
        ids = (
            np.arange(len(self.labels))
            if self.entity_ids is None
            else canonical_ids(self.entity_ids)
        )
        people = np.unique(ids, return_inverse=True)[1]
        found = dict[str, str]()
        for schema, rows in self.declared:
            found |= schema.read_off(rows, people)
        if found:
            differences = _first_of([f"'{name}' {how}" for name, how in found.items()], "; ")
            yield (
                "Ranges and categories are published, and ε does not count what they tell of private rows. They seem "
                f"to be read off private rows: {differences}. Write them by public knowledge: round numbers as ends, "
                "and all values that a form or a law allows, 'other' among them."
            )


class Found(NamedTuple):
    """Findings of the checks, one sentence or more each; for the data set owner only."""

    refusals: Names
    warnings: Names


def preflight(sight: Sight, *, insist: bool = False) -> Found:
    """Return reasons not to release, most of them warnings if the owner insists, and warnings; none quotes a cell.

    Parameters are written ``$insist``, as in a `Problem`.
    """
    undecided = list(_undecided_unit(sight))
    overlaps = dict(_overlap(sight, *rows) for rows in _compared(sight))
    found = [
        *_hopeless(sight),
        *(one for one, is_large in overlaps.items() if is_large),
        *sight.read_off(),
    ]
    refusals = [*map(literal, found)]
    found = [one for one, is_large in overlaps.items() if one and not is_large]
    found += [*_ids_as_features(sight), *told_of_columns(sight), *_rare_class(sight)]
    warned = [*map(literal, found)]
    if sight.unused_labels is not None:
        warned.append(
            f"Column '{literal(sight.unused_labels)}' of the public rows holds labels, and the student does not learn "
            "from them. If everyone may see these labels, name it as $y_public: the student then starts from a model "
            "of them, at no cost."
        )
    if insist:
        return Found(tuple(undecided), (*refusals, *warned))
    return Found((*undecided, *(f"{one} {TO_INSIST}" for one in refusals)), tuple(warned))


def told_of_columns(sight: Sight) -> list[str]:
    """Return warnings about columns of the private rows, beside the public rows or the schema; none quotes a cell."""
    scaled = list[str]()
    unlike = dict[str, str]()
    if _comparable(sight):
        scaled = _scaled_by_private_rows(sight)
        unlike = _unlike_columns(sight, scaled)
    warned = [
        *_odd_cells(sight, unlike),
        *_said_of(scaled, unlike),
        *_odd_ids(sight),
        *_copies_of_label(sight),
    ]
    beyond = {} if sight.schema is None else sight.schema.beyond(sight.columns)
    if beyond:
        differences = _first_of([f"column '{name}' {how}" for name, how in beyond.items()], "; ")
        warned.append(
            f"Private rows seem to differ from the schema in units or codes. In the private rows, {differences}. Use "
            "the units and codes of the schema, or correct the schema by what is known publicly."
        )
    return warned


def few_take_part(
    taking_part: Mask,
    mechanism: Any,
    release: str | None,
) -> str | None:
    """Return a reason not to begin a release with a name, if hardly anybody has budget for it; for the owner only."""
    noise = noise_of(mechanism)
    if (
        noise is None
        or taking_part.all()
        or np.count_nonzero(taking_part) >= _FEWEST_PER_NOISE * noise
    ):
        return None
    return (
        f"Too few people take part in {release}: the budget of the others is spent, and those who are new are hardly "
        "more than the noise. Their budget would be spent for nothing. Wait until more people have come, or raise "
        "the budget with `tutelage ledger raise`."
    )


def noise_of(mechanism: Any) -> float | None:
    """Return the noise of a mechanism, in ballots, if it has one standard deviation."""
    for name in ("noise_multiplier", "sigma"):
        if hasattr(mechanism, name):
            return float(getattr(mechanism, name))
    return None


def least_noise(epsilon: float, delta: float) -> float:
    """Return about the least noise of one sum of ballots at (ε, δ), in ballots."""
    low = 1e-3  # noise in votes, of which one person moves two by one
    high = 1e6
    while high > low * 1.01:
        middle = sqrt(low * high)
        if continuous_gaussian_composition(middle, 1, delta) <= epsilon:
            high = middle
        else:
            low = middle
    return high * sqrt(2)  # a ballot moves by two lengths, a vote by √2


def _hopeless(sight: Sight) -> Iterator[str]:
    if len(sight.public) < _FEWEST_PUBLIC_ROWS and sight.schema is None:
        yield (
            f"There are too few public rows ({len(sight.public)}). With fewer than {_FEWEST_PUBLIC_ROWS}, the student "
            "cannot learn anything, and the budget would be spent for nothing. Add public rows; several hundred are "
            "best."
        )
    if sight.noise is None:
        return
    people = sight.n_people or len(sight.private)
    if sight.n_people is None and sight.entity_ids is not None:
        people = len(np.unique(canonical_ids(sight.entity_ids)))
    if people < sight.noise:
        yield (
            f"The noise (standard deviation {sight.noise:.3g} ballots) is larger than all ballots together: there are "
            "too few people for this guarantee, and the student would learn nothing. Use more people, or a larger ε."
        )


def _undecided_unit(sight: Sight) -> Iterator[str]:
    if sight.entity_ids is not None or sight.unit_is_row:
        return
    found = ids_among(sight.columns)
    if sight.n_people is not None and not found:
        yield (
            "Rows that are read in batches are not searched for ids. Choose the privacy unit: "
            f"{_UNIT.format('the column with ids')}"
        )
    for name in found:
        fix = _UNIT.format("this column")
        if name.startswith("column ") and name in sight.numbers:  # of an array
            fix = fix.replace("name this column", "pass this column by itself")
        yield (
            f"Column '{literal(name)}' of the private rows repeats as the id of a person does. Choose the privacy unit "
            f"now, because the ledger fixes it: {fix}"
        )


def _ids_as_features(sight: Sight) -> Iterator[str]:
    """Yield a warning for each id that the student would learn from, where each row is protected alone."""
    for name in ids_among(sight.columns) if sight.unit_is_row else ():
        if name in (*sight.numbers, *sight.categories):
            yield (
                f"Column '{name}' repeats as the id of a person does, and is a feature of the student, which becomes "
                "public. Leave the column out."
            )


def _compared(sight: Sight) -> Iterator[tuple[Matrix, Matrix]]:
    """Yield private rows and the public rows that are there to learn from, only score, or have proposed the schema."""
    yield sight.private, sight.public
    if sight.scored is not None:
        yield sight.private, sight.scored
    for schema, rows in sight.declared:
        if schema.proposed_by.columns:
            yield schema.values(rows), schema.values(schema.proposed_by)


def _overlap(sight: Sight, private: Matrix, public: Matrix) -> tuple[str, bool]:
    """Return a sentence about public rows that are private rows, if any are, and whether they are a large share."""
    if private.shape[1:] != public.shape[1:] or not len(private) or not len(public):
        return "", False  # other columns are refused in words of their own
    key = secrets.token_bytes(32)
    rows = hashes_of_numbers(private, key)
    others = hashes_of_numbers(public, key)
    names = None if sight.entity_ids is None else canonical_ids(sight.entity_ids).tolist()
    alike = Likeness.of(rows, names, others)
    same = (
        len(rows) == len(others)
        and len(set(rows)) >= _FEWEST_DISTINCT
        and Counter(rows) == Counter(others)
    )
    by_chance = alike.is_chance
    if by_chance and alike.across > 0 and alike.among_private == 0:
        # With no private rows alike, a few equal ones pass any test of them. Cells that seldom agree tell more.
        by_chance = _equal_by_columns(private, public) >= _RARE
    if by_chance and not same:
        return "", False
    beyond = alike.excess > _BEYOND
    is_large = same or (beyond and alike.across >= _LARGE_SHARE * len(public))
    share = "Many" if is_large else "Some"
    return (
        f"{share} public rows equal private rows in every feature column, while rows of different people are seldom "
        "equal. Public rows, and ranges and categories that they propose, are not protected: remove from them everyone "
        "whose rows are private. `tutelage audit` compares further.",
        is_large,
    )


def _equal_by_columns(private: Matrix, public: Matrix) -> float:
    """Return how many pairs of a private and a public row would be equal if columns had nothing to do with another."""
    pairs = float(len(private) * len(public))
    for one, other in zip(private.T, public.T, strict=True):
        values, cells = np.unique(np.concatenate([one, other]), return_inverse=True)
        counts = (np.bincount(part, minlength=len(values)) for part in np.split(cells, [len(one)]))
        pairs *= float(np.prod(list(counts), axis=0, dtype=np.float64).sum()) / (
            len(one) * len(other)
        )
        if pairs < _RARE:
            break
    return pairs


def _odd_cells(sight: Sight, told: Mapping[str, str]) -> Iterator[str]:
    number_columns, code_columns = np.split(sight.private.T, [len(sight.numbers)])
    numbers = zip(sight.numbers, number_columns, strict=False)
    # Text has no NaN, and is refused later.
    empty = [name for name, cells in numbers if cells.dtype.kind == "f" and np.isnan(cells).any()]
    if empty and not sight.takes_empty:
        yield (
            f"Private rows have empty cells in: {', '.join(empty)}. Teachers that take missing values, as forests do, "
            "learn from them; for others, impute inside the model, so that each uses its own rows."
        )
    coded = zip(sight.categories, code_columns, strict=False)
    unknown = [name for name, cells in coded if UNKNOWN in cells and name not in told]
    if unknown:
        yield (
            f"Private rows have values that no public row has in: {', '.join(unknown)}. All such values are treated "
            "as one 'unknown' category. Add public rows that have them, or leave the column out."
        )


def _scaled_by_private_rows(sight: Sight) -> list[str]:
    """Return the number columns that have mean 0 and standard deviation 1, in the private rows or in all rows."""
    columns = zip(sight.numbers, sight.private.T, sight.public.T, strict=False)
    return [
        name
        for name, *parts in columns
        if _is_standard(parts[0]) or _is_standard(np.concatenate(parts))
    ]


def _is_standard(cells: FloatArray) -> bool:
    filled = cells[np.isfinite(cells)]
    if len(filled) < _FEWEST_DISTINCT:
        return False
    with np.errstate(all="ignore"):  # cells of any size
        center = filled.mean()
        deviation = filled.std()
    ways = np.sqrt([1.0, len(filled) / (len(filled) - 1)])  # to divide
    is_standard = abs(center) < _STANDARD and np.abs(deviation * ways - 1).min() < _STANDARD
    # Codes such as −1 and 1 may be balanced.
    return bool(is_standard and np.any(filled != np.rint(filled)))


def _unlike_columns(sight: Sight, told: Collection[str]) -> dict[str, str]:
    """Return how columns differ in the private rows from the public rows, the largest differences first."""
    names = (*sight.numbers, *sight.categories)
    n_tests = len(names) + 2 * len(sight.numbers)  # three of numbers, one of categories
    level = _LEVEL / max(1, n_tests)
    parts = (
        rows[:: max(1, len(rows) // _LOOKED_AT), : len(names)].T
        for rows in (sight.private, sight.public)
    )
    found = list[tuple[float, str, str]]()
    with np.errstate(all="ignore"):
        for name, private, public in zip(names, *parts, strict=True):
            unlike = _unlike_numbers if name in sight.numbers else _unlike_codes
            how = unlike(private, public, level)
            if how is not None and name not in told:
                found.append((*how, name))
    found.sort(key=lambda one: -one[0])
    return {name: how for _, how, name in found}


def _comparable(sight: Sight) -> bool:
    for rows in sight.private, sight.public:
        if not len(rows) or rows.dtype.kind not in "biuf":
            return False
    return sight.private.shape[1:] == sight.public.shape[1:]


def _unlike_numbers(
    private: FloatArray,
    public: FloatArray,
    level: float,
) -> tuple[float, str] | None:
    """Return the size of the difference, in doublings, and its description; None without a large one."""
    empty = np.isnan(private)
    of_public = np.isnan(public)
    more = np.mean(empty) - np.mean(of_public)
    if abs(more) >= _OF_MISSING and _differ(empty, of_public, level):
        return log2(_MOST_FACTOR), f"has missing cells far {'more' if more > 0 else 'less'} often"
    one = private[~empty]
    other = public[~of_public]
    sizes = np.abs(one[one != 0]), np.abs(other[other != 0])
    if all(map(len, sizes)):
        factors = np.divide(*map(_quartiles, sizes))
        is_far = factors.min() >= _FACTOR or factors.max() <= 1 / _FACTOR
        if is_far and _differ(*sizes, level):
            return _times("is", factors[1], "as large")
    if not len(one) or not len(other) or not _differ(one, other, level):
        return None
    low, middle, high = _quartiles(one)
    of_low, _, of_high = _quartiles(other)
    if not other.min() <= middle <= other.max():
        return log2(_SPREAD), "lies mostly outside the range of the public rows"
    factor = (high - low) / (of_high - of_low)
    if 0 < factor < np.inf and not 1 / _SPREAD < factor < _SPREAD:
        return _times("varies", factor, "as much")
    return None


def _unlike_codes(
    private: FloatArray,
    public: FloatArray,
    level: float,
) -> tuple[float, str] | None:
    # A public cell that is the only one of its category shows how often another row brings a category of its own.
    _, place, times = np.unique(public, return_inverse=True, return_counts=True)
    unknown = private == UNKNOWN
    alone = times[place] == 1
    if np.mean(unknown) - np.mean(alone) >= _OF_CELLS and _differ(unknown, alone, level):
        return log2(_MOST_FACTOR), "mostly has categories that no public row has"
    return None


def _quartiles(numbers: FloatArray) -> FloatArray:
    return np.quantile(numbers, (0.25, 0.5, 0.75), method="lower")


def _differ(
    one: Array,
    other: Array,
    level: float,
    least: float = 0.0,
) -> bool:
    """Return whether the distributions of two samples are not the same, and their distance is at least `least`."""
    tested: Any = stats.ks_2samp(one, other, method="asymp")
    # Massart 1990, Corollary 1, for each sample: within these bounds of its own distribution, at half of the level.
    bound = sqrt(log(4 / level) / 2) * (1 / sqrt(len(one)) + 1 / sqrt(len(other)))
    return bool(tested.statistic > max(bound, least))


def _times(verb: str, factor: float, rest: str) -> tuple[float, str]:
    """Return the size of a factor, in doublings, and a description to two digits."""
    doublings = log2(_MOST_FACTOR)
    if 0 < factor < np.inf:
        doublings = min(abs(log2(factor)), doublings)
    rounded = f"{float(f'{2**doublings:.2g}'):,.10g}"
    times = f"{rounded} times" if factor > 1 else f"1/{rounded}"
    return doublings, f"{verb} about {times} {rest}"


def _said_of(scaled: Sequence[str], unlike: Mapping[str, str]) -> Iterator[str]:
    if scaled:
        yield (
            f"Private rows, alone or with public rows, have mean 0 and standard deviation 1 in: {_first_of(scaled)}. "
            "A scaler seems to have been fitted on private rows, and ε does not count it. Pass the rows without "
            "scaling, or scale by `PublicScaling` or `PublicTransformer`, which learn from public rows."
        )
    if unlike:
        differences = _first_of([f"column '{name}' {how}" for name, how in unlike.items()], "; ")
        yield (
            f"Private rows seem to differ from public rows in units or codes. In the private rows, {differences}. "
            "Use the same units and codes in both, or public rows that are like the private rows."
        )


def _first_of(names: Sequence[str], comma: str = ", ") -> str:
    found = [*names[:_NAMED]]
    if len(names) > _NAMED:
        found.append(f"and {len(names) - _NAMED} more")
    return comma.join(found)


def sorted_by(
    columns: Mapping[str, Array],
    labels: Array | None,
    last: int,
) -> Iterator[str]:
    """Yield a warning if the last of the public rows differ from the others, as those of a sorted file do."""
    named = [] if labels is None else [("label", labels, _OF_LABELS)]
    named += [
        (f"column '{name}'", cells, _OF_COLUMN)
        for name, cells in islice(columns.items(), _FIRST_COLUMNS)
    ]
    found = list[str]()
    for name, cells, least in named:
        codes = np.unique(cells, return_inverse=True)[1]
        if _differ(codes[:-last], codes[-last:], _LEVEL / len(named), least):
            found.append(name)
    if found:
        yield (
            f"The last {last:,} public rows, which score the student, differ from the other public rows in: "
            f"{_first_of(found)}. The file seems to be sorted. Shuffle its rows once, unless the last rows are meant "
            "to differ, as later ones do."
        )


def _rare_class(sight: Sight) -> Iterator[str]:
    if sight.n_people is not None or sight.n_classes == 1:
        return  # the first rows may be of one class, and a number is none
    counts = np.unique(sight.labels, return_counts=True)[1]
    if len(counts) < sight.n_classes or counts.min() < _FEWEST_ROWS_OF_CLASS:
        yield (
            f"A class has fewer than {_FEWEST_ROWS_OF_CLASS} private rows. The student will hardly predict it. "
            "Merge it with another class in `classes`, or remove it and its rows."
        )


def _copies_of_label(sight: Sight) -> Iterator[str]:
    """Yield a warning about columns that say the label, or the number to predict, of every row that is looked at."""
    names = (*sight.numbers, *sight.categories) if sight.schema is None else sight.schema.names
    found = list[str]()
    looked = slice(None, None, max(1, len(sight.labels) // _LOOKED_AT))
    labels = sight.labels[looked].tolist()
    of_classes = sight.n_classes > 1
    if of_classes and min(Counter(labels).values(), default=0) < _FEWEST_ROWS_OF_CLASS:
        return  # a column may be like them by chance
    for name in filter(sight.columns.__contains__, names):
        pairs = {*zip(_comparable_cells(sight.columns[name][looked]), labels, strict=True)}
        is_copy = all(by_value(cell) == by_value(label) for cell, label in pairs)
        if is_copy or (of_classes and len(dict(pairs)) == len(pairs) <= _MOST_VALUES):
            found.append(name)
    if found:
        yield (
            f"In the private rows, these columns say what is to be predicted, as copies do: {_first_of(found)}. A "
            "student that learns from such a column is of no use where what it predicts is not known yet. Leave the "
            "column out."
        )


def _odd_ids(sight: Sight) -> Iterator[str]:
    for name, column in (("entity_ids", sight.entity_ids), ("silos", sight.silos)):
        if column is not None and differ_by_spelling_only(column):
            yield (
                f"Some values of {sight.named.get(name, f'`{name}`')} differ only by case, by width or by "
                "invisible characters. They count as different, so that one person may count as several. "
                "If they mean the same, write them in one way."
            )


def differ_by_spelling_only(column: Array) -> bool:
    """Return whether some ids differ in a way that a person would not read as a difference."""
    ids = np.unique(canonical_ids(column))
    return len(np.unique(folded_ids(ids))) < len(ids)


def like_ids(columns: Mapping[str, Cells]) -> list[str]:
    """Return the names of the columns that may say whose row it is, and of one that is named so without repeating."""
    found = {named_like_id(columns), *ids_among(columns)}
    return [name for name in columns if name in found]


def named_like_id(columns: Mapping[str, Cells]) -> str | None:
    """Return a column named like "patient_nbr": two such words are hardly a cell of a file without a header."""
    for name in columns:
        words = _words_of(name)
        others = words - _WORDS_FOR_IDS - _WORDS_IN_IDS
        if (
            re.fullmatch("[A-Za-z_ -]+", name)
            and others
            and others < words
            and others <= _WORDS_FOR_PEOPLE
        ):
            return name
    return None


def _words_of(name: str) -> set[str]:
    return set(re.findall(r"[a-z]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower()))


def ids_among(columns: Mapping[str, Cells]) -> list[str]:
    """Return the names of the columns that may say whose row it is, by name, form and values."""
    return [name for name in columns if _may_be_ids(name, columns)]


def _may_be_ids(name: str, columns: Mapping[str, Cells]) -> bool:
    cells = columns[name]
    n_rows = len(cells)
    looked = cells[:: max(1, n_rows // _LOOKED_AT)]
    if n_rows < _FEWEST_IDS or len(set(_comparable_cells(looked))) < _FEWEST_IDS:
        return False
    words = _words_of(name)
    most = 0
    if words & _WORDS_FOR_PEOPLE or (words and words <= _WORDS_FOR_IDS):
        most = _MOST_ROWS_OF_ONE
    elif words & _WORDS_FOR_IDS:
        most = _MOST_ROWS_OF_ONE_UNNAMED  # of a hospital, perhaps
    if most:
        values = len(set(_comparable_cells(cells)))
        return n_rows > values >= _FEWEST_IDS and values * most > n_rows
    numbers = _whole_numbers(cells)
    return _are_codes(cells) if numbers is None else _are_ids(name, numbers, columns)


def _are_codes(cells: Cells) -> bool:
    """Return whether most cells are short texts with letters, as codes and names are, and many are repeated."""
    if cells.dtype.kind not in "OU":
        return False
    texts = [cell_text(cell) for cell in cells.tolist()]
    times = Counter(texts)
    if not len(texts) > len(times) >= len(texts) / _MOST_ROWS_OF_ONE_UNNAMED:
        return False
    repeated = sum(number for number in times.values() if number > 1)
    short = [
        text
        for text in texts
        if len(text) <= _LONGEST_ID and len(text.split()) <= _MOST_WORDS_OF_ID
    ]
    codes = sum(any(map(str.isalpha, text)) and not MOMENT.fullmatch(text) for text in short)
    return repeated >= _REPEATED_IDS * len(texts) and codes > _NEARLY_ALL * len(texts)


def _whole_numbers(cells: Cells) -> IntArray | None:
    """Return cells as whole numbers, if all of them are, and enough of them can differ."""
    found = np.asarray(cells)
    if found.dtype.kind in "OU":
        try:
            found = found.astype(np.float64)
        except Exception:
            # Text, a number beyond all floats, or whatever a class of somebody's own raises.
            return None
    if found.dtype.kind not in "iuf" or not len(found):
        return None
    span = float(found.max()) - float(found.min())  # NaN where a cell is empty
    least = max(_FEWEST_NUMBERS, len(found) / _MOST_ROWS_OF_NUMBER) - 1
    if not least <= span < 2**53 or (
        found.dtype.kind == "f" and not np.array_equal(found, np.rint(found))
    ):
        return None
    return found.astype(np.int64)


def _are_ids(name: str, numbers: IntArray, columns: Mapping[str, Cells]) -> bool:
    values, place, times = np.unique(numbers, return_inverse=True, return_counts=True)
    n_rows = len(numbers)
    repeated = float(times[times > 1].sum()) / n_rows
    if (
        len(values) < _FEWEST_NUMBERS
        or len(values) * _MOST_ROWS_OF_NUMBER < n_rows
        or repeated < _REPEATED_NUMBERS
    ):
        return False
    in_use = len(values) / (float(values[-1]) - float(values[0]) + 1)
    if len(values) >= _FEWEST_NUMBERS_IN_USE and in_use >= _IN_USE and repeated >= _NEARLY_ALL:
        return True
    order = np.argsort(place, kind="stable")
    first = np.flatnonzero(place[order][1:] == place[order][:-1])
    first = first[:: max(1, len(first) // _PAIRS)]
    if len(first) < _FEWEST_PAIRS:
        return False
    rows = order[first]
    near = order[first + 1]
    far = np.roll(near, len(first) // 2)
    for other, cells in columns.items():
        if (
            other != name
            and _agree(cells, rows, near) >= _AGREE
            and _agree(cells, rows, far) < _VARIES
        ):
            return True
    return False


def _agree(cells: Cells, rows: IntArray, others: IntArray) -> float:
    """Return how often the cells of two rows are equal."""
    return sum(map(eq, _comparable_cells(cells[rows]), _comparable_cells(cells[others]))) / len(
        rows
    )


def _comparable_cells(cells: Cells) -> list[Any]:
    """Return cells as a list; objects as texts, as not all of them can be compared or have a hash."""
    values = cells.tolist()
    return [*map(cell_text, values)] if cells.dtype == object else values


@final
class Likeness(NamedTuple):
    """How many rows are alike, and how many pairs of rows of different people."""

    across: int  # public rows like a private one
    among_private: int  # private rows like one of another entity
    # The rate of equal pairs across, as a multiple of the most that two independent tables have.
    excess: float
    is_chance: bool  # whether chance explains the public rows that are like private ones

    @classmethod
    def of(
        cls,
        private: list[bytes],
        names: list[str] | None,
        public: list[bytes],
    ) -> "Likeness":
        """Count rows, given as hashes; an entity, or without names a row, has one row of each value.

        Chance explains public rows that are like private ones if private rows of different entities are alike about as
        often, by Fisher's exact test, and no more pairs are alike across than the two kinds of rows allow: copies among
        the private rows excuse nothing by themselves.
        """
        repeated = Counter(private)
        asked = Counter(public)
        owners = repeated
        if names is not None:
            owners = Counter(row for row, _ in set(zip(private, names, strict=True)))
        across = sum(times for row, times in asked.items() if row in owners)
        among_private = sum(times for row, times in repeated.items() if owners[row] > 1)
        # From the equal pairs within each of them, by Cauchy and Schwarz: Σ p_v q_v ≤ √(Σ p_v² · Σ q_v²).
        most = _rate_at_most(asked, len(public)) * _rate_at_most(owners, len(private))
        pairs = sum(times * owners[row] for row, times in asked.items())
        excess = pairs / (len(public) * len(private)) / sqrt(most)
        likely = True
        if across > 0:
            rows = len(public) + len(private)
            likely = (
                stats.hypergeom.sf(across - 1, rows, across + among_private, len(public)) > _LEVEL
            )
        return cls(across, among_private, excess, bool(likely and excess <= 1))


def _rate_at_most(times: Counter[bytes], rows: int) -> float:
    """Return an upper confidence bound on how often two of the rows are alike, from a Poisson number of pairs."""
    possible = rows * (rows - 1) / 2
    if not possible:
        return 1.0
    pairs = sum(count * (count - 1) // 2 for count in times.values())
    return min(1.0, float(stats.chi2.ppf(1 - _LEVEL, 2 * (pairs + 1))) / 2 / possible)


def hashes_of_numbers(
    rows: Array,
    key: bytes,
    steps: FloatArray | None = None,
) -> list[bytes]:
    """Return the hash of each row of numbers, in whole steps where there are steps."""
    flat = rows.reshape(len(rows), -1)
    found = []
    for start in range(0, len(flat), _CHUNK):
        numbers = flat[start : start + _CHUNK].astype(np.float64)
        if steps is not None:
            numbers = np.rint(numbers / steps)
        numbers += 0.0  # −0 becomes 0
        numbers[np.isnan(numbers)] = np.nan  # of one spelling
        found += [blake2b(row.tobytes(), key=key).digest() for row in numbers]
    return found
