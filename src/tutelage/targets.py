"""Targets: what is learned of people, as declared, and how private and public labels become whole numbers."""

import re
import warnings
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import isfinite
from numbers import Integral, Real
from typing import Any, ClassVar, final

import numpy as np
import numpy.typing as npt

from tutelage._internal.records import by_identity, by_keywords, frozen
from tutelage._internal.typing import (
    ABSTAIN,
    Array,
    FloatArray,
    IntArray,
    Untyped,
    is_array,
    is_mapping,
    is_series,
)
from tutelage._internal.validation import problems_in
from tutelage.digests import canonical
from tutelage.exceptions import InvalidDataError, InvalidParameterError, Problem, quote
from tutelage.tables import by_value, cell_text, column_array, is_missing, is_number

STEPS = 2**16  # of the range of a number
_metrics = Untyped("sklearn.metrics")
_multiclass = Untyped("sklearn.utils.multiclass")
_REAL: Any = Real
_SEQUENCE: Any = Sequence
_LARGEST = 2**53  # whole numbers are floats, too
_RECALL = re.compile(r"recall at (\d{1,2}(?:\.\d{1,6})?) %")
_LEAST_SHARE = 1e-6  # of a class
# More different numbers than this are not classes, unless declared.
_MOST_NUMBERS = 50
_FEWEST_ROWS_PER_NUMBER = 10
MISSING_LABEL = (
    "The target must have a value in every private row. Some are missing; remove these rows."
)
_COMPARE = (
    ". Compare spelling, blanks and type: in Python, `set(y)` lists all values. A dictionary of `classes` merges "
    'labels, as in `{"other": [...]}`. Classes are published: add only public knowledge.'
)
_EMPTY = {"", "nan", "none", "null", "na", "n/a", "nat"}  # how files spell a missing label
_ONE_VALUE = Problem(
    "PATEClassifier.classes",
    "have another value in each class: 1, 1.0, '1' and True are one value, because a reader of files may choose "
    "between them for all cells by one",
    fix="Rename a class, or give these labels to one class.",
)
_LONG = Problem(
    "PATEClassifier.classes",
    "be at most 2**53 in size if they are numbers",
    fix="Write them as text.",
)
_UNLIKE = "y must hold one class value per row, all of one type."
NO_NUMBERS = (
    "{} must hold a finite number in every row. Remove rows without one, or write it as a number."
)


@final
@by_identity
class ClassWeights:
    """How much each class counts in predictions; public."""

    # For each class; without it, classes count as if they were equally frequent.
    given: FloatArray | None = None

    def of(self, shares: FloatArray) -> FloatArray:
        """Return the weight of each class, by the shares of the classes in what was released."""
        if self.given is not None:
            return self.given
        return 1 / (len(shares) * np.maximum(shares, _LEAST_SHARE))

    def of_labels(
        self,
        labels: IntArray,
        classes: Array,
    ) -> dict[Any, float]:
        """Return the weight of each class value, by released labels: class indices, or −1."""
        released = labels[labels != ABSTAIN]
        counts = np.maximum(np.bincount(released, minlength=len(classes)), 1)
        weights = self.of(counts / counts.sum())
        return dict(zip(classes.tolist(), weights.tolist(), strict=True))


@final
@frozen
class Goal:
    """A measure by which a student is judged, a number from 0 to 1; public.

    Balanced accuracy is the mean over classes of the share of their rows that is right. Recall at k % is the share of
    the positive rows that is among the k % of rows with the largest chance of being positive.
    """

    name: str = "accuracy"
    positive: int = 1  # index of the positive class, where rows are ranked

    def __post_init__(self) -> None:
        names = ("accuracy", "balanced_accuracy", "average_precision")
        name: Any = self.name
        if not isinstance(name, str) or (name not in names and self._share == 0):
            raise InvalidParameterError(
                "goal",
                f"be {', '.join(names)}, or a recall such as recall at 5 %",
                quote(name),
            )

    @property
    def _share(self) -> float:
        """Share of the rows among which positive ones are searched; 0 for other goals."""
        recall = _RECALL.fullmatch(self.name)
        if recall is None:
            return 0.0
        return float(recall[1]) / 100

    @property
    def title(self) -> str:
        """Its name as it is printed."""
        return self.name.replace("_", " ")

    @property
    def ranks(self) -> bool:
        """Whether only the order of the rows counts, by the chance of the positive class."""
        return self._share > 0 or self.name == "average_precision"

    def score(
        self,
        truth: IntArray,
        chances: FloatArray,
        sample_weight: npt.ArrayLike | None = None,
    ) -> float:
        """Return how much of the goal chances of classes reach, shape (rows, classes): the largest is predicted.

        A ranking of rows of which none is positive reaches nothing.
        """
        # truth, weights: (rows,)
        weights = np.ones(len(truth))
        if sample_weight is not None:
            weights = np.asarray(sample_weight)
        if not self.ranks:
            right = weights * (chances.argmax(axis=1) == truth)
            if self.name == "accuracy":
                return float(right.sum() / weights.sum())
            rows_of_class = np.bincount(truth, weights)
            right_of_class = np.bincount(truth, right)
            occurs = rows_of_class > 0
            return float(np.mean(right_of_class[occurs] / rows_of_class[occurs]))
        is_positive = truth == self.positive
        chance = chances[:, self.positive]
        positive = weights * is_positive
        if not positive.any():
            return 0.0
        if not self._share:
            precision = _metrics.average_precision_score
            return float(precision(is_positive, chance, sample_weight=weights))
        # Of rows with equal scores, as large a share is positive as of all of them.
        _, group = np.unique(-chance, return_inverse=True)
        rows_so_far = np.cumsum(np.bincount(group, weights))
        positive_so_far = np.cumsum(np.bincount(group, positive))
        limit = float(self._share * rows_so_far[-1])
        rows = np.array([0, *rows_so_far], np.float64)
        positive = np.array([0, *positive_so_far], np.float64)
        positive_found = np.interp(limit, rows, positive)
        return float(positive_found / positive_so_far[-1])

    def without_model(self, truth: IntArray) -> float:
        """Return what one answer for all rows reaches: for accuracy, the most frequent class."""
        counts = np.bincount(truth, minlength=self.positive + 1)
        if self.name == "balanced_accuracy":
            return 1 / int(np.count_nonzero(counts))
        if self._share:
            return self._share
        if self.ranks:
            return float(counts[self.positive] / len(truth))
        return float(counts.max() / len(truth))

    def weights(
        self,
        class_weight: Mapping[object, float] | None,
        classes: Array,
    ) -> ClassWeights | None:
        """Return how much classes count, by the weights of some of them or else by the goal; None if alike."""
        if class_weight is None:
            return ClassWeights() if self.name == "balanced_accuracy" else None
        known = classes.tolist()
        weights: object = class_weight
        if is_mapping(weights):
            by_text = {_value(name): name for name in known}
            weight_of = dict[object, Any]()
            for name, weight in weights.items():
                if name not in known:  # a configuration names classes by text
                    name = by_text.get(_value(name), name)
                weight_of[name] = weight
            weights = weight_of
            are_classes = all(name in known for name in weight_of)
            if are_classes and all(
                isinstance(weight, _REAL) and 0 < weight < np.inf for weight in weight_of.values()
            ):
                return ClassWeights(np.array([float(weight_of.get(name, 1)) for name in known]))
        raise InvalidParameterError(
            "PATEClassifier.class_weight",
            "map class values to positive numbers, as in {'yes': 10}",
            quote(weights),
            "Each key must be one of the classes.",
        )


@final
@by_identity
class ClassCodes:
    """The classes of one fit, each label as the index of its class; public."""

    names: Array
    origin: str
    question: object
    places: Mapping[Any, int]  # class index of each label
    goal: Goal  # with its positive class
    weights: ClassWeights | None

    def private(self, labels: Any, /) -> IntArray:
        """Return the class index of each private label: of one that is equal or, without one, of the same value.

        Each cell is looked at by itself, as those of categories are: a reader of files may have made text of numbers,
        numbers of text, or 1.0 of 1 because of another cell.
        """
        values = labels
        if not isinstance(labels, list):
            values = labels.tolist()
        by_text = _by_text(self.places)
        try:
            codes = np.array([self.places.get(value, -1) for value in values], dtype=np.int64)
            for row in np.flatnonzero(codes < 0):
                codes[row] = by_text.get(_value(values[row]), -1)
        except Exception:
            # A label that has no hash, or of a class of somebody's own, whose error may quote it.
            codes = np.array([-1])
        if np.all(codes >= 0):
            return codes
        if any(is_missing(value) for value in values):
            raise InvalidDataError(MISSING_LABEL)
        declared = "public labels" if self.origin == "public" else "declared `classes`"
        unknown = {cell_text(value) for value in values if _value(value) not in by_text}
        cause = _cause_of_unknown(unknown, [*self.places])
        raise InvalidDataError(
            f"The private labels hold a value that is not among the {declared}{cause}"
        )

    def public(
        self,
        labels: object,
        n_rows: int,
        /,
        named: str = "y_public",
    ) -> IntArray:
        """Return the class index of each public row, or −1 where its label is missing; the label may be a class."""
        column = column_array(labels)
        cells = column if is_array(column) else np.asarray(column, dtype=object)
        if cells.shape != (n_rows,):
            raise InvalidDataError(
                f"`{named}` must have one label per public row, {n_rows}. Got shape {cells.shape}."
            )
        places = {name: place for place, name in enumerate(self.names.tolist())}
        places |= self.places
        by_text = _by_text(places)
        code_of = dict[object, int]()
        unknown = list[str]()
        for label in {label for label in cells.tolist() if not is_missing(label)}:
            code = places.get(label, by_text.get(_value(label), ABSTAIN))
            if code == ABSTAIN:
                unknown.append(str(label))
            code_of[label] = code
        if unknown:
            raise InvalidDataError(
                f"`{named}` holds {min(unknown)!r}, which is not among the classes. Correct it, or add it to `classes`."
            )
        codes = np.full(n_rows, ABSTAIN, dtype=np.int64)
        for row, label in enumerate(cells.tolist()):
            if not is_missing(label):
                codes[row] = code_of[label]
        return codes

    def truth(self, labels: object, n_rows: int, /) -> Array:
        """Return the class of each public row by which a student is judged; refuse one without a label."""
        codes = self.public(labels, n_rows, "y")
        if ABSTAIN in codes:
            raise InvalidDataError(
                "`y` must have a label in every public row. Leave out rows without one."
            )
        return self.names[codes]


@final
@by_keywords
class Classes:
    """Classes as a target: their values, if they are declared, and what a student is judged by; public."""

    values: Any = None  # a sequence, or a mapping from each class to the labels that it merges
    goal: str = "accuracy"
    weight: Mapping[Any, float] | None = None
    question: object = ""

    def problems(self) -> Iterator[Problem]:
        """Yield problems of what is declared."""
        if self.values is not None:
            yield from self._problems_of_values()
        for problem in problems_in(partial(Goal, self.goal)):
            yield problem._replace(name="PATEClassifier.goal")

    def _problems_of_values(self) -> Iterator[Problem]:
        if isinstance(self.values, str) or not hasattr(self.values, "__len__"):
            yield Problem(
                "PATEClassifier.classes",
                "be a list of class values, or a mapping",
                quote(self.values),
            )
            return
        names: list[object] = [*self.values]
        labels = names
        if isinstance(self.values, Mapping):
            problems = [*problems_in(self.class_of)]
            yield from problems
            labels = [] if problems else [*self.class_of()]
        if len(names) == 1:
            yield Problem(
                "PATEClassifier.classes", "list at least two class values, which are public"
            )
        if len({repr(name) for name in names}) < len(names):
            yield Problem("PATEClassifier.classes", "list each class value once")
        # Numbers would become text.
        n_texts = sum(isinstance(name, str) for name in names)
        if 0 < n_texts < len(names):
            yield Problem("PATEClassifier.classes", "be all text or all numbers")
        for label in labels:
            if isinstance(label, Integral) and abs(int(label)) > _LARGEST:
                yield _LONG
                return

    def class_of(self) -> dict[object, Any]:
        """Return the class of each label: of classes in a list the label itself, in a mapping those that list it.

        Raises
        ------
        InvalidParameterError
            If a mapping does not give each class a list of labels, each once, or its classes are of several types.
        """
        classes = self.values
        if not is_mapping(classes):
            return {label: label for label in np.asarray(classes).tolist()}
        class_of = dict[object, Any]()
        n_labels = 0
        fits = True
        for name, labels in classes.items():
            if is_series(labels) and labels and all(isinstance(one, Hashable) for one in labels):
                n_labels += len(labels)
                class_of |= dict.fromkeys(labels, name)
            else:
                fits = False
        texts = {str(label) for label in class_of}
        once = len(class_of) == len(texts) == n_labels  # 1 equals True
        # Numbers beside text would become text, and be found no more.
        kinds = {type(name) for name in classes}
        if not (fits and once and len(kinds) == 1):
            raise InvalidParameterError(
                "PATEClassifier.classes",
                "map each class to a list of labels, each label once, as in {'yes': ['<30', '>30'], 'no': ['NO']}",
                fix="Classes must be all text or all numbers.",
            )
        return class_of

    @property
    def is_declared(self) -> bool:
        """Whether the class values do not follow from labels."""
        return self.values is not None

    @property
    def question_key(self) -> object:
        """The question as answers are remembered by it: labels merged in another way are another question."""
        if not is_mapping(self.values):
            return self.question
        classes = {str(name): sorted(map(str, labels)) for name, labels in self.values.items()}
        return canonical([self.question, classes])

    def merged_labels(self, labels: Any) -> object:
        """Return the class of each label, where a mapping merges labels."""
        if not isinstance(self.values, Mapping):
            return labels
        cells = np.asarray(labels)
        codes = self.read(labels)
        if cells.ndim == 1 or (cells.ndim == 2 and cells.shape[1] == 1):
            return codes.names[codes.private(cells.ravel())]
        return labels

    def check(self, labels: Array) -> None:
        """Refuse labels that are not classes, such as the numbers of a regression; no message quotes one."""
        complaint = ""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about the number of classes: see below
                _multiclass.check_classification_targets(labels)
        except Exception as error:  # such as one of a label, which may quote it
            complaint = str(error)
            if not complaint.startswith(("Unknown label type:", "You appear")):
                complaint = _UNLIKE
        are_many = False
        if not complaint and self.values is None and labels.dtype.kind in "iuf":
            n_numbers = len(np.unique(labels))
            are_rare = n_numbers * _FEWEST_ROWS_PER_NUMBER > len(labels)
            are_many = n_numbers > _MOST_NUMBERS and are_rare
        if are_many or "continuous" in complaint:
            raise InvalidDataError(
                "Unknown label type: y holds many different numbers, as the target of a regression does. Sort them "
                "into classes first, or declare each class in `classes`."
            )
        if complaint:
            raise InvalidDataError(complaint)

    def read(self, labels: Any, of_public: Any = None) -> ClassCodes:
        """Return the classes as declared, or as public labels or, without these, private labels have them."""
        origin = "declared"
        if self.values is not None:
            in_order: Array = np.asarray([*self.values] if is_mapping(self.values) else self.values)
            names: Array = np.unique(in_order)
        else:
            if of_public is None:
                origin = "private"
                names = np.unique(labels)
            else:
                origin = "public"
                names = _whole(np.unique(of_public))
            in_order = names
        if len(names) < 2:
            raise InvalidDataError(
                "The target must have at least 2 classes. Got one class; declare all with `classes`."
            )
        positive = np.searchsorted(names, in_order[1:2])[0]
        goal = Goal(self.goal, int(positive))
        if goal.ranks and len(names) != 2:
            raise InvalidParameterError(
                "PATEClassifier.goal",
                f"be accuracy or balanced_accuracy, because {goal.title} needs exactly two classes",
                fix="Merge classes in $classes, or choose another goal.",
            )
        places = {name: place for place, name in enumerate(names.tolist())}
        if self.values is not None:
            places = {label: places[name] for label, name in self.class_of().items()}
        if _share_a_value(places):
            raise InvalidParameterError(*_ONE_VALUE)
        return ClassCodes(
            names=names,
            origin=origin,
            question=self.question_key,
            places=places,
            goal=goal,
            weights=goal.weights(self.weight, names),
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """A number as a target, between two ends by public knowledge; its labels are steps from one to the other."""

    low: float
    high: float
    question: object = ""
    is_declared: ClassVar[bool] = True
    origin: ClassVar[str] = "declared"
    weights: ClassVar[ClassWeights | None] = None

    @classmethod
    def between(cls, ends: Any, question: object) -> "Numbers":
        """Return the numbers between a lowest and a highest one; refuse what is no such range."""
        if not _is_range(ends):
            raise InvalidParameterError(
                "PATERegressor.target_range",
                "be the lowest and the highest possible value, as in [0, 100]",
                quote(ends),
                "Take both from public knowledge, not from private rows.",
            )
        low, high = ends
        if low < -_LARGEST or high > _LARGEST:
            raise InvalidParameterError("PATERegressor.target_range", "be between -2**53 and 2**53")
        return cls(low=_plain_number(low), high=_plain_number(high), question=question)

    @property
    def names(self) -> Array:
        """The ends of the range."""
        return np.array([self.low, self.high])

    def check(self, labels: object) -> None:
        """Refuse nothing more than `merged_labels` does."""

    def read(
        self,
        _labels: object,
        _of_public: object = None,
    ) -> "Numbers":
        """Return the range, which follows from no label."""
        return self

    def private(self, labels: object, /) -> IntArray:
        """Return numbers as whole steps of the range; those beyond its ends count as these."""
        return self._steps(numbers_of(labels))

    merged_labels = private

    def public(self, labels: object, n_rows: int, /) -> IntArray:
        """Return the numbers of public rows as whole steps of the range."""
        numbers = numbers_of(labels, "y_public")
        if len(numbers) != n_rows:
            raise InvalidDataError(
                f"`y_public` must have one number per public row, {n_rows}. Got {len(numbers)}."
            )
        return self._steps(numbers)

    def _steps(self, numbers: FloatArray) -> IntArray:
        within = np.clip(numbers, self.low, self.high) - self.low
        return np.rint(within / (self.high - self.low) * STEPS).astype(np.int64)


def _is_range(ends: Any) -> bool:
    if not isinstance(ends, _SEQUENCE) or len(ends) != 2:
        return False
    are_numbers = all(isinstance(end, int | float | np.number) for end in ends)
    return are_numbers and bool(ends[0] < ends[1])


def _plain_number(end: float | Integral) -> int | float:
    return int(end) if isinstance(end, Integral) else float(end)


def _whole(values: Array) -> Array:
    """Return numbers as whole ones if all are: a missing label made floats of them."""
    if values.dtype.kind == "f" and np.all(values % 1 == 0):
        return values.astype(np.int64)
    return values


def _value(label: object) -> str:
    """Return a label by its value, or as it is spelled where a float would have other digits."""
    text = cell_text(label)
    is_long = is_number(text) and not abs(float(text)) <= _LARGEST
    return text if is_long or "_" in text else by_value(label)


def _by_text(places: Mapping[Any, int]) -> dict[str, int]:
    """Return the class index of each label by its value; an empty one is no label."""
    by_text = {_value(label): place for label, place in places.items()}
    by_text.pop("", None)
    return by_text


def _share_a_value(classes: Mapping[Any, Any]) -> bool:
    """Return whether labels of two classes are equal to a reader that makes numbers of text or of truth values.

    The cell of one person can make it do so with all others.
    """
    class_of = dict[str, object]()
    numbers = {"True": "1", "False": "0"}
    for label, name in classes.items():
        value = _value(label)
        value = numbers.get(value, value)
        if class_of.setdefault(value, name) != name:
            return True
    return False


def _cause_of_unknown(
    unknown: Iterable[str],
    classes: list[object],
) -> str:
    """Return the end of a refusal of private labels that are not classes: the likely mistake, without a label."""
    texts = {text.strip().casefold() for text in unknown}
    if not texts.isdisjoint(_EMPTY):
        return ": some labels are missing. Remove these rows, or declare a class for them."
    if texts <= {str(value).casefold() for value in classes}:
        return ": some labels differ from a class by capital letters or blanks only. Use one spelling for both."
    are_whole = all(isinstance(value, int) for value in classes)
    numbers = [_number(text) for text in texts]
    if None in numbers:
        if are_whole and set(numbers) == {None}:
            return ": they are text, and `classes` are whole numbers. List the text itself in `classes`."
        return _COMPARE
    if any(number != round(number) for number in numbers if number is not None):
        return ": some are numbers with fractions, which cannot be classes. Group them into classes first."
    if not are_whole:
        return ": they are numbers, and `classes` are text. List the numbers in `classes`."
    return _COMPARE


def _number(text: str) -> float | None:
    """Return the finite number that a text spells, if it does."""
    with suppress(ValueError):
        number = float(text)
        return number if isfinite(number) else None
    return None


Target = Classes | Numbers
"""Classes or numbers, as declared."""
Encoding = ClassCodes | Numbers
"""How the labels of one fit become whole numbers."""


def numbers_of(cells: object, named: str = "The target") -> FloatArray:
    """Return targets as numbers; refuse any cell that is not a number, without quoting it."""
    # An error, such as one that a cell raises, may quote the cell.
    with suppress(Exception), np.errstate(all="ignore"):
        column = np.asarray(column_array(cells))
        has_dates = column.dtype.kind in "cmM"
        if column.dtype == object:
            has_dates = any(isinstance(cell, np.datetime64 | np.timedelta64) for cell in column)
        numbers = column.astype(np.float64)
        if not has_dates and numbers.ndim == 1 and np.all(np.isfinite(numbers)):
            return numbers
    raise InvalidDataError(NO_NUMBERS.format(named))
