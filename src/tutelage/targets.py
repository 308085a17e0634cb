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
from sklearn.metrics import average_precision_score
from sklearn.utils.multiclass import check_classification_targets

from tutelage._internal.records import by_identity, by_keywords, frozen
from tutelage._internal.typing import ABSTAIN, FloatArray, IntArray
from tutelage._internal.validation import problems_in
from tutelage.digests import canonical
from tutelage.exceptions import InvalidDataError, InvalidParameterError, Problem, quote
from tutelage.tables import by_value, cell_text, column_array, is_missing, is_number

STEPS = 2**16  # of the range of a number
_LARGEST = 2**53  # whole numbers are floats, too
_RECALL = re.compile(r"recall at (\d{1,2}(?:\.\d{1,6})?) %")
_LEAST_SHARE = 1e-6  # of a class
# Beyond which numbers are not classes, unless declared.
_MOST_NUMBERS, _FEWEST_ROWS_PER_NUMBER = 50, 10
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
        return (
            1 / (len(shares) * np.maximum(shares, _LEAST_SHARE))
            if self.given is None
            else self.given
        )

    def of_labels(self, labels: IntArray, classes: npt.NDArray[Any]) -> dict[Any, float]:
        """Return the weight of each class value, by released labels: class indices, or −1."""
        counts = np.maximum(np.bincount(labels[labels != ABSTAIN], minlength=len(classes)), 1)
        return dict(zip(classes.tolist(), self.of(counts / counts.sum()).tolist(), strict=True))


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
        known = ("accuracy", "balanced_accuracy", "average_precision")
        if not isinstance(self.name, str) or (self.name not in known and self._share == 0):
            raise InvalidParameterError(
                "goal",
                f"be {', '.join(known)}, or a recall such as recall at 5 %",
                quote(self.name),
            )

    @property
    def _share(self) -> float:
        """Share of the rows among which positive ones are searched; 0 for other goals."""
        return float(found[1]) / 100 if (found := _RECALL.fullmatch(self.name)) else 0.0

    @property
    def title(self) -> str:
        """Its name as it is printed."""
        return self.name.replace("_", " ")

    @property
    def ranks(self) -> bool:
        """Whether only the order of the rows counts, by the chance of the positive class."""
        return self._share > 0 or self.name == "average_precision"

    def reached(
        self, truth: IntArray, scores: FloatArray, sample_weight: npt.ArrayLike | None = None
    ) -> float:
        """Return how much of the goal chances of classes reach, shape (rows, classes): the largest is predicted.

        A ranking of rows of which none is positive reaches nothing.
        """
        weights = np.ones(len(truth)) if sample_weight is None else np.asarray(sample_weight)
        if not self.ranks:
            right = weights * (scores.argmax(axis=1) == truth)
            if self.name == "accuracy":
                return float(right.sum() / weights.sum())
            of_class = np.bincount(truth, weights)
            there = of_class > 0
            return float(np.mean(np.bincount(truth, right)[there] / of_class[there]))
        positive, score = truth == self.positive, scores[:, self.positive]
        if not (weights * positive).any():
            return 0.0
        if not self._share:
            return float(average_precision_score(positive, score, sample_weight=weights))
        # Of rows with equal scores, as large a share is positive as of all of them.
        _, group = np.unique(-score, return_inverse=True)
        rows, found = (np.cumsum(np.bincount(group, one)) for one in (weights, weights * positive))
        return float(np.interp(self._share * rows[-1], [0, *rows], [0, *found]) / found[-1])

    def without_model(self, truth: IntArray) -> float:
        """Return what one answer for all rows reaches: for accuracy, the most frequent class."""
        counts = np.bincount(truth, minlength=self.positive + 1)
        if self.name == "balanced_accuracy":
            return 1 / int(np.count_nonzero(counts))
        return self._share or float(
            (counts[self.positive] if self.ranks else counts.max()) / len(truth)
        )

    def weights(
        self, class_weight: Mapping[Any, float] | None, classes: npt.NDArray[Any]
    ) -> ClassWeights | None:
        """Return how much classes count, by the weights of some of them or else by the goal; None if alike."""
        if class_weight is None:
            return ClassWeights() if self.name == "balanced_accuracy" else None
        known = classes.tolist()
        if isinstance(class_weight, Mapping):  # a configuration names classes by text
            named = {_value(value): value for value in known}
            class_weight = {
                value if value in known else named.get(_value(value), value): weight
                for value, weight in class_weight.items()
            }
        good = isinstance(class_weight, Mapping) and all(value in known for value in class_weight)
        if not good or not all(
            isinstance(one, Real) and 0 < one < np.inf for one in class_weight.values()
        ):
            raise InvalidParameterError(
                "PATEClassifier.class_weight",
                "map class values to positive numbers, as in {'yes': 10}",
                quote(class_weight),
                "Each key must be one of the classes.",
            )
        return ClassWeights(np.array([float(class_weight.get(value, 1)) for value in known]))


@final
@by_identity
class ClassCodes:
    """The classes of one fit, each label as the index of its class; public."""

    names: npt.NDArray[Any]
    origin: str
    question: Any
    places: Mapping[Any, int]  # class index of each label
    goal: Goal  # with its positive class
    weights: ClassWeights | None

    def private(self, labels: Any, /) -> IntArray:
        """Return the class index of each private label: of one that is equal or, without one, of the same value.

        Each cell is looked at by itself, as those of categories are: a reader of files may have made text of numbers,
        numbers of text, or 1.0 of 1 because of another cell.
        """
        values = labels if isinstance(labels, list) else labels.tolist()
        by_text = _by_text(self.places)
        try:
            found = np.fromiter(
                (self.places.get(value, -1) for value in values), dtype=np.int64, count=len(values)
            )
            for row in np.flatnonzero(found < 0):
                found[row] = by_text.get(_value(values[row]), -1)
        except Exception:
            # A label that has no hash, or of a class of somebody's own, whose error may quote it.
            found = np.array([-1])
        if np.any(found < 0):
            if any(map(is_missing, values)):
                raise InvalidDataError(MISSING_LABEL)
            declared = "public labels" if self.origin == "public" else "declared `classes`"
            cause = cause_of_unknown(
                {cell_text(one) for one in values if _value(one) not in by_text}, [*self.places]
            )
            raise InvalidDataError(
                f"The private labels hold a value that is not among the {declared}{cause}"
            )
        return found

    def public(self, labels: Any, n_rows: int, /, named: str = "y_public") -> IntArray:
        """Return the class index of each public row, or −1 where its label is missing; the label may be a class."""
        given = column_array(labels)
        cells = given if isinstance(given, np.ndarray) else np.asarray(given, dtype=object)
        if cells.shape != (n_rows,):
            raise InvalidDataError(
                f"`{named}` must have one label per public row, {n_rows}. Got shape {cells.shape}."
            )
        known = {**{name: place for place, name in enumerate(self.names.tolist())}, **self.places}
        by_text = _by_text(known)
        labeled = [one for one in cells.tolist() if not is_missing(one)]
        found = {one: known.get(one, by_text.get(_value(one), ABSTAIN)) for one in set(labeled)}
        if unknown := sorted(str(one) for one, place in found.items() if place == ABSTAIN):
            raise InvalidDataError(
                f"`{named}` holds {unknown[0]!r}, which is not among the classes. Correct it, or add it to `classes`."
            )
        return np.array(
            [ABSTAIN if is_missing(one) else found[one] for one in cells.tolist()], dtype=np.int64
        )

    def truth(self, labels: Any, n_rows: int, /) -> npt.NDArray[Any]:
        """Return the class of each public row by which a student is judged; refuse one without a label."""
        found = self.public(labels, n_rows, "y")
        if ABSTAIN in found:
            raise InvalidDataError(
                "`y` must have a label in every public row. Leave out rows without one."
            )
        return self.names[found]


@final
@by_keywords
class Classes:
    """Classes as a target: their values, if they are declared, and what a student is judged by; public."""

    values: Any = None  # a sequence, or a mapping from each class to the labels that it merges
    goal: str = "accuracy"
    weight: Mapping[Any, float] | None = None
    question: Any = ""

    def problems(self) -> Iterator[Problem]:
        """Yield problems of what is declared."""
        if self.values is not None and (
            isinstance(self.values, str) or not hasattr(self.values, "__len__")
        ):
            yield Problem(
                "PATEClassifier.classes",
                "be a list of class values, or a mapping",
                quote(self.values),
            )
        elif self.values is not None:
            labels = self.values
            if isinstance(labels, Mapping):
                problems = [*problems_in(self.class_of)]
                yield from problems
                labels = () if problems else self.class_of()
            names = [*self.values]
            if len(names) == 1:
                yield Problem(
                    "PATEClassifier.classes", "list at least two class values, which are public"
                )
            if len(set(map(repr, names))) < len(names):
                yield Problem("PATEClassifier.classes", "list each class value once")
            # Numbers would become text.
            if 0 < sum(isinstance(name, str) for name in names) < len(names):
                yield Problem("PATEClassifier.classes", "be all text or all numbers")
            if any(isinstance(label, Integral) and abs(int(label)) > _LARGEST for label in labels):
                yield _LONG
        yield from (
            one._replace(name="PATEClassifier.goal")
            for one in problems_in(partial(Goal, self.goal))
        )

    def class_of(self) -> dict[Any, Any]:
        """Return the class of each label: of classes in a list the label itself, in a mapping those that list it.

        Raises
        ------
        InvalidParameterError
            If a mapping does not give each class a list of labels, each once, or its classes are of several types.
        """
        classes = self.values
        if not isinstance(classes, Mapping):
            return {label: label for label in np.asarray(classes).tolist()}
        lists = [labels if isinstance(labels, list | tuple) else [] for labels in classes.values()]
        merged = [label for labels in lists for label in labels]
        once = len(set(map(str, merged))) == len(merged) and all(
            isinstance(label, Hashable) for label in merged
        )
        once = once and len(set(merged)) == len(merged)  # 1 equals True
        # Numbers beside text would become text, and be found no more.
        if not (all(lists) and once and len(set(map(type, classes))) == 1):
            raise InvalidParameterError(
                "PATEClassifier.classes",
                "map each class to a list of labels, each label once, as in {'yes': ['<30', '>30'], 'no': ['NO']}",
                fix="Classes must be all text or all numbers.",
            )
        return {label: name for name, labels in classes.items() for label in labels}

    @property
    def is_declared(self) -> bool:
        """Whether the class values do not follow from labels."""
        return self.values is not None

    @property
    def question_key(self) -> Any:
        """The question as answers are remembered by it: labels merged in another way are another question."""
        if not isinstance(self.values, Mapping):
            return self.question
        return canonical(
            [
                self.question,
                {str(name): sorted(map(str, labels)) for name, labels in self.values.items()},
            ]
        )

    def merged(self, labels: Any) -> Any:
        """Return the class of each label, where a mapping merges labels."""
        if not isinstance(self.values, Mapping):
            return labels
        cells, codes = np.asarray(labels), self.read(labels)
        is_column = cells.ndim == 1 or (cells.ndim == 2 and cells.shape[1] == 1)
        return codes.names[codes.private(cells.ravel())] if is_column else labels

    def check(self, labels: npt.NDArray[Any]) -> None:
        """Refuse labels that are not classes, such as the numbers of a regression; no message quotes one."""
        regression, complaint = False, ""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about the number of classes: see below
                check_classification_targets(labels)
        except Exception as error:  # such as one of a label, which may quote it
            complaint = (
                str(error)
                if str(error).startswith(("Unknown label type:", "You appear"))
                else _UNLIKE
            )
        if not complaint and self.values is None and labels.dtype.kind in "iuf":
            different = len(np.unique(labels))
            regression = different > _MOST_NUMBERS and different * _FEWEST_ROWS_PER_NUMBER > len(
                labels
            )
        if regression or "continuous" in complaint:
            raise InvalidDataError(
                "Unknown label type: y holds many different numbers, as the target of a regression does. Sort them "
                "into classes first, or declare each class in `classes`."
            )
        if complaint:
            raise InvalidDataError(complaint)

    def read(self, labels: Any, of_public: Any = None) -> ClassCodes:
        """Return the classes as declared, or as public labels or, without these, private labels have them."""
        if self.values is None:
            names = found = np.unique(labels) if of_public is None else _whole(np.unique(of_public))
        else:
            named = np.asarray(
                list(self.values) if isinstance(self.values, Mapping) else self.values
            )
            names, found = np.unique(named), named
        if len(names) < 2:
            raise InvalidDataError(
                "The target must have at least 2 classes. Got one class; declare all with `classes`."
            )
        goal = Goal(self.goal, int(np.searchsorted(names, found[1])))
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
            origin="declared"
            if self.values is not None
            else "private"
            if of_public is None
            else "public",
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
    question: Any = ""
    is_declared: ClassVar[bool] = True
    origin: ClassVar[str] = "declared"
    weights: ClassVar[ClassWeights | None] = None

    @classmethod
    def between(cls, ends: Any, question: Any) -> "Numbers":
        """Return the numbers between a lowest and a highest one; refuse what is no such range."""
        is_pair = isinstance(ends, Sequence) and not isinstance(ends, str) and len(ends) == 2
        if not (
            is_pair
            and all(isinstance(end, int | float | np.number) for end in ends)
            and ends[0] < ends[1]
        ):
            raise InvalidParameterError(
                "PATERegressor.target_range",
                "be the lowest and the highest possible value, as in [0, 100]",
                quote(ends),
                "Take both from public knowledge, not from private rows.",
            )
        low, high = (int(end) if isinstance(end, Integral) else float(end) for end in ends)
        if low < -_LARGEST or high > _LARGEST:
            raise InvalidParameterError("PATERegressor.target_range", "be between -2**53 and 2**53")
        return cls(low=low, high=high, question=question)

    @property
    def names(self) -> npt.NDArray[Any]:
        """The ends of the range."""
        return np.array([self.low, self.high])

    def merged(self, labels: Any) -> IntArray:
        """Return numbers as whole steps of the range; those beyond its ends count as these."""
        return self.private(labels)

    def check(self, labels: Any) -> None:
        """Refuse nothing more than `merged` does."""

    def read(self, _labels: Any, _of_public: Any = None) -> "Numbers":
        """Return the range, which follows from no label."""
        return self

    def private(self, labels: Any, /) -> IntArray:
        """Return numbers as whole steps of the range; those beyond its ends count as these."""
        return self._steps(numbers_of(labels))

    def public(self, labels: Any, n_rows: int, /) -> IntArray:
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


def _whole(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return numbers as whole ones if all are: a missing label made floats of them."""
    return (
        values.astype(np.int64) if values.dtype.kind == "f" and np.all(values % 1 == 0) else values
    )


def _value(label: Any) -> str:
    """Return a label by its value, or as it is spelled where a float would have other digits."""
    text = cell_text(label)
    is_long = is_number(text) and not abs(float(text)) <= _LARGEST
    return text if is_long or "_" in text else by_value(label)


def _by_text(places: Mapping[Any, int]) -> dict[str, int]:
    """Return the class index of each label by its value; an empty one is no label."""
    found = {_value(label): place for label, place in places.items()}
    found.pop("", None)
    return found


def _share_a_value(classes: Mapping[Any, Any]) -> bool:
    """Return whether labels of two classes are equal to a reader that makes numbers of text or of truth values.

    The cell of one person can make it do so with all others.
    """
    found = dict[str, Any]()
    for label, name in classes.items():
        value = {"True": "1", "False": "0"}.get(_value(label), _value(label))
        if found.setdefault(value, name) != name:
            return True
    return False


def cause_of_unknown(unknown: Iterable[str], classes: list[Any]) -> str:
    """Return the end of a refusal of private labels that are not classes: the likely mistake, without a label."""
    left = {text.strip() for text in unknown}
    if any(text.casefold() in _EMPTY for text in left):
        return ": some labels are missing. Remove these rows, or declare a class for them."
    spellings = {str(value) for value in classes}
    if left <= spellings or {text.casefold() for text in left} <= {
        text.casefold() for text in spellings
    }:
        return ": some labels differ from a class by capital letters or blanks only. Use one spelling for both."
    numbers = [_number(text) for text in left]
    whole_classes = all(isinstance(value, int) for value in classes)
    if None in numbers:
        if whole_classes and set(numbers) == {None}:
            return ": they are text, and `classes` are whole numbers. List the text itself in `classes`."
        return _COMPARE
    if any(number != round(number) for number in numbers if number is not None):
        return ": some are numbers with fractions, which cannot be classes. Group them into classes first."
    if not whole_classes:
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


def numbers_of(cells: Any, named: str = "The target") -> FloatArray:
    """Return targets as numbers; refuse any cell that is not a number, without quoting it."""
    found = None
    # Such as one of a cell, which may quote it.
    with suppress(Exception), np.errstate(all="ignore"):
        given = np.asarray(column_array(cells))
        dated = given.dtype == object and any(
            isinstance(one, np.datetime64 | np.timedelta64) for one in given
        )
        # Dates are not numbers.
        found = None if dated or given.dtype.kind in "cmM" else given.astype(np.float64)
    if found is None or found.ndim != 1 or not np.all(np.isfinite(found)):
        raise InvalidDataError(NO_NUMBERS.format(named))
    return found
