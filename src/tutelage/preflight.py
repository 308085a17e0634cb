"""Checks of the private and public rows before the first release, for the data set owner only.

They read private rows without noise. So they end as errors, warnings or lines on standard error, never on a card.
"""

import re
import secrets
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field
from hashlib import blake2b
from math import log, log2, sqrt
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np
import scipy

from tutelage._internal.records import Names, by_identity
from tutelage._internal.typing import Array, FloatArray, Hidden, IntArray, Matrix
from tutelage.accounting.composition import most_shifts
from tutelage.exceptions import literal
from tutelage.features.cells import UNKNOWN
from tutelage.partition import canonical_ids, folded_ids
from tutelage.tables import MOMENT, Cells, Table, by_value, cell_text

if TYPE_CHECKING:
    from tutelage.features.schema import Schema

_LEAST_SHIFTS = 1e-12  # μ², for an ε that hardly any noise meets
_FEWEST_PUBLIC_ROWS = 5
_FEWEST_ROWS_OF_CLASS = 3
_LARGE_SHARE = 0.1  # of the public rows
_BEYOND = 1.5  # times as many equal pairs as any two tables from different people have
_FEWEST_DISTINCT = 10  # rows that make two tables of the same rows no accident
_LEVEL = 0.01  # of each test whether so many rows alike are chance
_RARE = 0.01  # equal pairs
_CHUNK = 1024  # rows

# Differences between private and public columns, or the last public rows and the others, that are worth a warning if
# they are significant. Numbers of alike and independent rows earn either warning in at most 1 of 100 cases.
_FACTOR = 2.0  # of all quartiles of sizes
_SPREAD = 8.0  # factor between quartiles
_MOST_FACTOR = 1e6  # that is stated
_OF_MISSING = 0.3  # share of the cells
_OF_CELLS = 0.5  # share of the cells
_OF_LABELS = 0.2  # Kolmogorov's distance
_OF_COLUMN = 0.5  # Kolmogorov's distance
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
    # Names of these two in the interface, where it has others.
    named: Mapping[str, str] = field(default_factory=dict[str, str])
    unit_is_row: bool = False  # whether the owner declared it
    noise: float | None = None  # standard deviation, in ballots
    n_people: int | None = None  # if these are only the first of more rows
    takes_empty: bool = True  # whether the teachers take empty cells as they are
    schema: "Schema | None" = None  # in place of public rows
    declared: "tuple[tuple[Schema, Table], ...]" = ()  # columns, and private rows with them
    # The column of the public rows of labels that the fit does not use.
    unused_labels: str | None = None

    @property
    def features(self) -> Names:
        """Names of the feature columns, in the order of the rows."""
        return (*self.numbers, *self.categories)

    def read_off(self) -> Iterator[str]:
        """Yield which columns of the schema, or range of the target, seem to be read off the private rows."""
        people: IntArray = np.arange(len(self.labels))
        if self.entity_ids is not None:
            _, people = np.unique(canonical_ids(self.entity_ids), return_inverse=True)
        findings = dict[str, str]()
        for schema, rows in self.declared:
            findings |= schema.read_off(rows, people)
        if findings:
            differences = _first_findings(findings, "")
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
    refusals = [*_hopeless(sight)]
    warnings = list[str]()
    for private, public in _rows_to_compare(sight):
        overlap, is_large = _overlap(sight, private, public)
        findings = refusals if is_large else warnings
        if overlap and overlap not in findings:
            findings.append(overlap)
    refusals += sight.read_off()
    warnings += [*_ids_as_features(sight), *warnings_of_columns(sight), *_rare_class(sight)]
    refusals = [literal(refusal) for refusal in refusals]
    warnings = [literal(warning) for warning in warnings]
    if sight.unused_labels is not None:
        warnings.append(
            f"Column '{literal(sight.unused_labels)}' of the public rows holds labels, and the student does not learn "
            "from them. If everyone may see these labels, name it as $y_public: the student then starts from a model "
            "of them, at no cost."
        )
    undecided = tuple(_undecided_unit(sight))
    if insist:
        return Found(undecided, (*refusals, *warnings))
    return Found((*undecided, *(f"{refusal} {TO_INSIST}" for refusal in refusals)), tuple(warnings))


def warnings_of_columns(sight: Sight) -> list[str]:
    """Return warnings about columns of the private rows, beside the public rows or the schema; none quotes a cell."""
    scaled = list[str]()
    unlike = dict[str, str]()
    if _comparable(sight):
        scaled = _scaled_by_private_rows(sight)
        unlike = _unlike_columns(sight, scaled)
    warnings = [
        *_odd_cells(sight, unlike),
        *_odd_columns(scaled, unlike),
        *_odd_ids(sight),
        *_copies_of_label(sight),
    ]
    if sight.schema is not None:
        beyond = sight.schema.beyond(sight.columns)
        if beyond:
            warnings.append(
                "Private rows seem to differ from the schema in units or codes. In the private rows, "
                f"{_first_findings(beyond)}. Use the units and codes of the schema, or correct the schema by what is "
                "known publicly."
            )
    return warnings


def least_noise(epsilon: float, delta: float) -> float:
    """Return about the least noise of one sum of ballots at (ε, δ), in ballots: one person moves it by two lengths."""
    return 2 / sqrt(most_shifts(epsilon, delta) or _LEAST_SHIFTS)


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
    names = _ids_among(sight.columns)
    if sight.n_people is not None and not names:
        yield (
            "Rows that are read in batches are not searched for ids. Choose the privacy unit: "
            f"{_UNIT.format('the column with ids')}"
        )
    for name in names:
        fix = _UNIT.format("this column")
        if name.startswith("column ") and name in sight.numbers:  # of an array
            fix = fix.replace("name this column", "pass this column by itself")
        yield (
            f"Column '{literal(name)}' of the private rows repeats as the id of a person does. Choose the privacy unit "
            f"now, because the ledger fixes it: {fix}"
        )


def _ids_as_features(sight: Sight) -> Iterator[str]:
    """Yield a warning for each id that the student would learn from, where each row is protected alone."""
    if not sight.unit_is_row:
        return
    for name in _ids_among(sight.columns):
        if name in sight.features:
            yield (
                f"Column '{name}' repeats as the id of a person does, and is a feature of the student, which becomes "
                "public. Leave the column out."
            )


def _rows_to_compare(sight: Sight) -> Iterator[tuple[Matrix, Matrix]]:
    """Yield private rows and the public rows that are there to learn from, only score, or have proposed the schema."""
    yield sight.private, sight.public
    if sight.scored is not None:
        yield sight.private, sight.scored
    for schema, rows in sight.declared:
        if schema.proposed_by.columns:
            yield schema.values(rows), schema.values(schema.proposed_by)


def _overlap(
    sight: Sight,
    private: Matrix,
    public: Matrix,
) -> tuple[str, bool]:
    """Return a sentence about public rows that are private rows, if any are, and whether they are a large share."""
    if private.shape[1:] != public.shape[1:] or not len(private) or not len(public):
        return "", False  # other columns are refused in words of their own
    key = secrets.token_bytes(32)
    of_private = hashes_of_numbers(private, key)
    of_public = hashes_of_numbers(public, key)
    names = None if sight.entity_ids is None else canonical_ids(sight.entity_ids).tolist()
    likeness = Likeness.of(of_private, names, of_public)
    are_distinct = len(set(of_private)) >= _FEWEST_DISTINCT
    are_same = are_distinct and Counter(of_private) == Counter(of_public)
    by_chance = likeness.is_chance
    if by_chance and likeness.across > 0 and likeness.among_private == 0:
        # With no private rows alike, a few equal ones pass any test of them. Cells that seldom agree tell more.
        by_chance = _equal_by_columns(private, public) >= _RARE
    if by_chance and not are_same:
        return "", False
    are_many = likeness.across >= _LARGE_SHARE * len(public)
    is_large = are_same or (are_many and likeness.excess > _BEYOND)
    share = "Many" if is_large else "Some"
    return (
        f"{share} public rows equal private rows in every feature column, while rows of different people are seldom "
        "equal. Public rows, and ranges and categories that they propose, are not protected: remove from them everyone "
        "whose rows are private. `tutelage audit` compares further.",
        is_large,
    )


def _equal_by_columns(private: Matrix, public: Matrix) -> float:
    """Return how many pairs of a private and a public row would be equal if columns had nothing to do with another."""
    n_pairs = len(private) * len(public)
    equal = float(n_pairs)
    for cells, of_public in zip(private.T, public.T, strict=True):
        values, codes = np.unique(np.concatenate([cells, of_public]), return_inverse=True)
        counts = [
            np.bincount(part, minlength=len(values)) for part in np.split(codes, [len(cells)])
        ]
        equal *= float(np.prod(counts, axis=0, dtype=np.float64).sum()) / n_pairs
        if equal < _RARE:
            break
    return equal


def _odd_cells(
    sight: Sight,
    unlike: Mapping[str, str],
) -> Iterator[str]:
    number_columns, code_columns = np.split(sight.private.T, [len(sight.numbers)])
    empty = list[str]()
    for name, cells in zip(sight.numbers, number_columns, strict=False):
        # Text has no NaN, and is refused later.
        if cells.dtype.kind == "f" and np.isnan(cells).any():
            empty.append(name)
    if empty and not sight.takes_empty:
        yield (
            f"Private rows have empty cells in: {', '.join(empty)}. Teachers that take missing values, as forests do, "
            "learn from them; for others, impute inside the model, so that each uses its own rows."
        )
    coded = zip(sight.categories, code_columns, strict=False)
    unknown = [name for name, codes in coded if UNKNOWN in codes and name not in unlike]
    if unknown:
        yield (
            f"Private rows have values that no public row has in: {', '.join(unknown)}. All such values are treated "
            "as one 'unknown' category. Add public rows that have them, or leave the column out."
        )


def _scaled_by_private_rows(sight: Sight) -> list[str]:
    """Return the number columns that have mean 0 and standard deviation 1, in the private rows or in all rows."""
    columns = zip(sight.numbers, sight.private.T, sight.public.T, strict=False)
    names = list[str]()
    for name, private, public in columns:
        if _is_standard(private) or _is_standard(np.concatenate([private, public])):
            names.append(name)
    return names


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


def _unlike_columns(
    sight: Sight,
    scaled: Collection[str],
) -> dict[str, str]:
    """Return how columns differ in the private rows from the public rows, the largest differences first."""
    n_tests = len(sight.features) + 2 * len(sight.numbers)  # three of numbers, one of categories
    level = _LEVEL / max(1, n_tests)
    findings = list[tuple[float, str, str]]()
    with np.errstate(all="ignore"):
        for place, name in enumerate(sight.features):
            private = _every_nth(sight.private[:, place])
            public = _every_nth(sight.public[:, place])
            compare = _unlike_numbers if name in sight.numbers else _unlike_codes
            difference = compare(private, public, level)
            if difference is not None and name not in scaled:
                findings.append((*difference, name))
    findings.sort(key=lambda finding: -finding[0])
    return {name: how for _, how, name in findings}


def _every_nth(cells: Array) -> Array:
    """Return some of the cells, evenly spaced."""
    return cells[:: max(1, len(cells) // _LOOKED_AT)]


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
    is_empty = np.isnan(private)
    is_empty_in_public = np.isnan(public)
    more = np.mean(is_empty) - np.mean(is_empty_in_public)
    if abs(more) >= _OF_MISSING and _differ(is_empty, is_empty_in_public, level):
        return log2(_MOST_FACTOR), f"has missing cells far {'more' if more > 0 else 'less'} often"
    private = private[~is_empty]
    public = public[~is_empty_in_public]
    sizes = np.abs(private[private != 0])
    public_sizes = np.abs(public[public != 0])
    if len(sizes) and len(public_sizes):
        factors = _quartiles(sizes) / _quartiles(public_sizes)
        is_far = factors.min() >= _FACTOR or factors.max() <= 1 / _FACTOR
        if is_far and _differ(sizes, public_sizes, level):
            return _times("is", factors[1], "as large")
    if not len(private) or not len(public) or not _differ(private, public, level):
        return None
    low, middle, high = _quartiles(private)
    public_low, _, public_high = _quartiles(public)
    if not public.min() <= middle <= public.max():
        return log2(_SPREAD), "lies mostly outside the range of the public rows"
    factor = (high - low) / (public_high - public_low)
    if 0 < factor < np.inf and not 1 / _SPREAD < factor < _SPREAD:
        return _times("varies", factor, "as much")
    return None


def _unlike_codes(
    private: FloatArray,
    public: FloatArray,
    level: float,
) -> tuple[float, str] | None:
    # A public cell that is the only one of its category shows how often another row brings a category of its own.
    _, places, counts = np.unique(public, return_inverse=True, return_counts=True)
    is_unknown = private == UNKNOWN
    is_alone = counts[places] == 1
    more = float(is_unknown.mean() - is_alone.mean())
    if more >= _OF_CELLS and _differ(is_unknown, is_alone, level):
        return log2(_MOST_FACTOR), "mostly has categories that no public row has"
    return None


def _quartiles(numbers: FloatArray) -> FloatArray:
    return np.quantile(numbers, (0.25, 0.5, 0.75), method="lower")


def _differ(
    sample: Array,
    other: Array,
    level: float,
    least: float = 0.0,
) -> bool:
    """Return whether the distributions of two samples are not the same, and their distance is at least `least`."""
    test: Any = scipy.stats.ks_2samp(sample, other, method="asymp")
    # Massart 1990, Corollary 1, for each sample: within these bounds of its own distribution, at half of the level.
    bound = sqrt(log(4 / level) / 2) * (1 / sqrt(len(sample)) + 1 / sqrt(len(other)))
    return bool(test.statistic > max(bound, least))


def _times(
    verb: str,
    factor: float,
    rest: str,
) -> tuple[float, str]:
    """Return the size of a factor, in doublings, and a description to two digits."""
    doublings = log2(_MOST_FACTOR)
    if 0 < factor < np.inf:
        doublings = min(abs(log2(factor)), doublings)
    rounded = f"{float(f'{2**doublings:.2g}'):,.10g}"
    times = f"{rounded} times" if factor > 1 else f"1/{rounded}"
    return doublings, f"{verb} about {times} {rest}"


def _odd_columns(
    scaled: Sequence[str],
    unlike: Mapping[str, str],
) -> Iterator[str]:
    if scaled:
        yield (
            f"Private rows, alone or with public rows, have mean 0 and standard deviation 1 in: {_first_of(scaled)}. "
            "A scaler seems to have been fitted on private rows, and ε does not count it. Pass the rows without "
            "scaling, or scale by `PublicScaling` or `PublicTransformer`, which learn from public rows."
        )
    if unlike:
        yield (
            "Private rows seem to differ from public rows in units or codes. In the private rows, "
            f"{_first_findings(unlike)}. Use the same units and codes in both, or public rows that are like the "
            "private rows."
        )


def _first_findings(
    findings: Mapping[str, str],
    word: str = "column ",
) -> str:
    return _first_of([f"{word}'{name}' {how}" for name, how in findings.items()], "; ")


def _first_of(names: Sequence[str], comma: str = ", ") -> str:
    shortened = [*names[:_NAMED]]
    if len(names) > _NAMED:
        shortened.append(f"and {len(names) - _NAMED} more")
    return comma.join(shortened)


def warnings_of_order(
    columns: Mapping[str, Array],
    labels: Array | None,
    last: int,
) -> Iterator[str]:
    """Yield a warning if the last of the public rows differ from the others, as those of a sorted file do."""
    samples = dict[str, tuple[Array, float]]()
    if labels is not None:
        samples["label"] = (labels, _OF_LABELS)
    for name in [*columns][:_FIRST_COLUMNS]:
        samples[f"column '{name}'"] = (columns[name], _OF_COLUMN)
    names = list[str]()
    for name, (cells, least) in samples.items():
        _, codes = np.unique(cells, return_inverse=True)
        if _differ(codes[:-last], codes[-last:], _LEVEL / len(samples), least):
            names.append(name)
    if names:
        yield (
            f"The last {last:,} public rows, which score the student, differ from the other public rows in: "
            f"{_first_of(names)}. The file seems to be sorted. Shuffle its rows once, unless the last rows are meant "
            "to differ, as later ones do."
        )


def _rare_class(sight: Sight) -> Iterator[str]:
    if sight.n_people is not None or sight.n_classes == 1:
        return  # the first rows may be of one class, and a number is none
    _, counts = np.unique(sight.labels, return_counts=True)
    if len(counts) < sight.n_classes or counts.min() < _FEWEST_ROWS_OF_CLASS:
        yield (
            f"A class has fewer than {_FEWEST_ROWS_OF_CLASS} private rows. The student will hardly predict it. "
            "Merge it with another class in `classes`, or remove it and its rows."
        )


def _copies_of_label(sight: Sight) -> Iterator[str]:
    """Yield a warning about columns that say the label, or the number to predict, of every row that is looked at."""
    features = sight.features if sight.schema is None else sight.schema.names
    labels: list[Any] = _every_nth(sight.labels).tolist()
    of_classes = sight.n_classes > 1
    if of_classes and min(Counter(labels).values(), default=0) < _FEWEST_ROWS_OF_CLASS:
        return  # a column may be like them by chance
    copies = list[str]()
    for name in features:
        if name not in sight.columns:
            continue
        cells = _comparable_cells(_every_nth(sight.columns[name]))
        pairs = set(zip(cells, labels, strict=True))
        is_copy = all(by_value(cell) == by_value(label) for cell, label in pairs)
        has_one_label = len(dict(pairs)) == len(pairs)  # each value
        if is_copy or (of_classes and has_one_label and len(pairs) <= _MOST_VALUES):
            copies.append(name)
    if copies:
        yield (
            f"In the private rows, these columns say what is to be predicted, as copies do: {_first_of(copies)}. A "
            "student that learns from such a column is of no use where what it predicts is not known yet. Leave the "
            "column out."
        )


def _odd_ids(sight: Sight) -> Iterator[str]:
    for name, column in (("entity_ids", sight.entity_ids), ("silos", sight.silos)):
        if column is not None and _differ_by_spelling_only(column):
            yield (
                f"Some values of {sight.named.get(name, f'`{name}`')} differ only by case, by width or by "
                "invisible characters. They count as different, so that one person may count as several. "
                "If they mean the same, write them in one way."
            )


def _differ_by_spelling_only(column: Array) -> bool:
    """Return whether some ids differ in a way that a person would not read as a difference."""
    ids = np.unique(canonical_ids(column))
    return len(np.unique(folded_ids(ids))) < len(ids)


def like_ids(columns: Mapping[str, Cells]) -> list[str]:
    """Return the names of the columns that may say whose row it is, and of one that is named so without repeating."""
    ids = {named_like_id(columns), *_ids_among(columns)}
    return [name for name in columns if name in ids]


def named_like_id(columns: Mapping[str, Cells]) -> str | None:
    """Return a column named like "patient_nbr": two such words are hardly a cell of a file without a header."""
    for name in columns:
        words = _words_of(name)
        of_people = words - _WORDS_FOR_IDS - _WORDS_IN_IDS
        is_plain = re.fullmatch("[A-Za-z_ -]+", name)
        if is_plain and of_people and of_people < words and of_people <= _WORDS_FOR_PEOPLE:
            return name
    return None


def _words_of(name: str) -> set[str]:
    spaced = re.sub(r"([a-z])([A-Z])", r"\1 \2", name)
    return set(re.findall(r"[a-z]+", spaced.lower()))


def _ids_among(columns: Mapping[str, Cells]) -> list[str]:
    """Return the names of the columns that may say whose row it is, by name, form and values."""
    return [name for name in columns if _may_be_ids(name, columns)]


def _may_be_ids(name: str, columns: Mapping[str, Cells]) -> bool:
    cells = columns[name]
    n_rows = len(cells)
    some_values = set(_comparable_cells(_every_nth(cells)))
    if n_rows < _FEWEST_IDS or len(some_values) < _FEWEST_IDS:
        return False
    words = _words_of(name)
    most = 0
    if words & _WORDS_FOR_PEOPLE or (words and words <= _WORDS_FOR_IDS):
        most = _MOST_ROWS_OF_ONE
    elif words & _WORDS_FOR_IDS:
        most = _MOST_ROWS_OF_ONE_UNNAMED  # of a hospital, perhaps
    if most:
        n_values = len(set(_comparable_cells(cells)))
        return n_rows > n_values >= _FEWEST_IDS and n_values * most > n_rows
    numbers = _whole_numbers(cells)
    if numbers is None:
        return _are_codes(cells)
    return _are_ids(name, numbers, columns)


def _are_codes(cells: Cells) -> bool:
    """Return whether most cells are short texts with letters, as codes and names are, and many are repeated."""
    if cells.dtype.kind not in "OU":
        return False
    texts = [cell_text(cell) for cell in cells.tolist()]
    n_rows = len(texts)
    rows_of = Counter(texts)
    if not n_rows > len(rows_of) >= n_rows / _MOST_ROWS_OF_ONE_UNNAMED:
        return False
    repeated = 0
    codes = 0
    for text, rows in rows_of.items():
        if rows > 1:
            repeated += rows
        is_short = len(text) <= _LONGEST_ID and len(text.split()) <= _MOST_WORDS_OF_ID
        has_letters = any(map(str.isalpha, text))
        if is_short and has_letters and not MOMENT.fullmatch(text):
            codes += rows
    return repeated >= _REPEATED_IDS * n_rows and codes > _NEARLY_ALL * n_rows


def _whole_numbers(cells: Cells) -> IntArray | None:
    """Return cells as whole numbers, if all of them are, and enough of them can differ."""
    if cells.dtype.kind in "OU":
        try:
            cells = cells.astype(np.float64)
        except Exception:
            # Text, a number beyond all floats, or whatever a class of somebody's own raises.
            return None
    if cells.dtype.kind not in "iuf" or not len(cells):
        return None
    span = float(cells.max()) - float(cells.min())  # NaN where a cell is empty
    least = max(_FEWEST_NUMBERS, len(cells) / _MOST_ROWS_OF_NUMBER) - 1
    if least <= span < 2**53 and np.array_equal(cells, np.rint(cells)):
        return cells.astype(np.int64)
    return None


def _are_ids(
    name: str,
    numbers: IntArray,
    columns: Mapping[str, Cells],
) -> bool:
    values, places, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    n_rows = len(numbers)
    n_values = len(values)
    repeated = float(counts[counts > 1].sum()) / n_rows
    if n_values < _FEWEST_NUMBERS or n_values * _MOST_ROWS_OF_NUMBER < n_rows:
        return False
    if repeated < _REPEATED_NUMBERS:
        return False
    in_use = n_values / (float(values[-1]) - float(values[0]) + 1)
    if n_values >= _FEWEST_NUMBERS_IN_USE and in_use >= _IN_USE and repeated >= _NEARLY_ALL:
        return True
    order = np.argsort(places, kind="stable")
    first = np.flatnonzero(np.diff(places[order]) == 0)
    first = first[:: max(1, len(first) // _PAIRS)]
    if len(first) < _FEWEST_PAIRS:
        return False
    rows = order[first]
    near = order[first + 1]
    far = np.roll(near, len(first) // 2)
    for column, cells in columns.items():
        if column == name or _agreement(cells, rows, near) < _AGREE:
            continue
        if _agreement(cells, rows, far) < _VARIES:
            return True
    return False


def _agreement(
    cells: Cells,
    rows: IntArray,
    others: IntArray,
) -> float:
    """Return how often the cells of two rows are equal."""
    pairs = zip(_comparable_cells(cells[rows]), _comparable_cells(cells[others]), strict=True)
    return sum(cell == other for cell, other in pairs) / len(rows)


def _comparable_cells(cells: Cells) -> list[Any]:
    """Return cells as a list; objects as texts, as not all of them can be compared or have a hash."""
    values = cells.tolist()
    if cells.dtype == object:
        return [cell_text(cell) for cell in values]
    return values


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
        n_private = len(private)
        n_public = len(public)
        private_rows = Counter(private)
        public_rows = Counter(public)
        entities = private_rows
        if names is not None:
            entities = Counter(row for row, _ in set(zip(private, names, strict=True)))
        across = sum(times for row, times in public_rows.items() if row in entities)
        among_private = sum(times for row, times in private_rows.items() if entities[row] > 1)
        # From the equal pairs within each of them, by Cauchy and Schwarz: Σ p_v q_v ≤ √(Σ p_v² · Σ q_v²).
        most = _rate_at_most(public_rows, n_public) * _rate_at_most(entities, n_private)
        pairs = sum(times * entities[row] for row, times in public_rows.items())
        excess = pairs / (n_public * n_private) / sqrt(most)
        is_likely = True
        if across > 0:
            alike = across + among_private
            chance = scipy.stats.hypergeom.sf(across - 1, n_public + n_private, alike, n_public)
            is_likely = chance > _LEVEL
        return cls(across, among_private, excess, bool(is_likely and excess <= 1))


def _rate_at_most(times: Counter[bytes], rows: int) -> float:
    """Return an upper confidence bound on how often two of the rows are alike, from a Poisson number of pairs."""
    possible = rows * (rows - 1) / 2
    if not possible:
        return 1.0
    pairs = sum(count * (count - 1) // 2 for count in times.values())
    return min(1.0, float(scipy.stats.chi2.ppf(1 - _LEVEL, 2 * (pairs + 1))) / 2 / possible)


def hashes_of_numbers(
    rows: Array,
    key: bytes,
    steps: FloatArray | None = None,
) -> list[bytes]:
    """Return the hash of each row of numbers, in whole steps where there are steps."""
    flat = rows.reshape(len(rows), -1)
    hashes = list[bytes]()
    for start in range(0, len(flat), _CHUNK):
        numbers = flat[start : start + _CHUNK].astype(np.float64)
        if steps is not None:
            numbers = np.rint(numbers / steps)
        numbers += 0.0  # −0 becomes 0
        numbers[np.isnan(numbers)] = np.nan  # of one spelling
        hashes += [blake2b(row.tobytes(), key=key).digest() for row in numbers]
    return hashes
