"""The quality of a student on private rows, measured by noisy sums: their layouts, and the records made of them."""

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import ClassVar, Self, final

import numpy as np
from msgspec import structs

from tutelage._internal.records import Names, frozen
from tutelage._internal.typing import FloatArray, IntArray
from tutelage.reporting.intervals import (
    Interval,
    Variance,
    of_largest_distance,
    of_mean,
    of_ranking,
    of_ratio,
    of_share,
)
from tutelage.reporting.meaning import Z_95
from tutelage.reporting.part import MOST, Amount, Part, Share

__all__ = [
    "ClassMeasures",
    "ErrorMeasures",
    "Gap",
    "GroupMeasures",
    "Interval",
    "Measured",
    "MeasuredErrors",
    "ScoreBin",
]

UNIT = 4096  # how much a whole person counts in a cell, so that the means of several rows can be whole numbers
_TRIED = 33  # values within an interval
_NARROWING = 1.75  # of bins near 0 and 1; 1 would make them equally wide
_RATIO = 2.8  # between a share and its curve; at most √8, see `NumberLayout`


@final
@frozen
class ClassLayout:
    """Where the numbers of a noisy sum about a classifier are, and what one person counts in them.

    A person's ballot is the mean over the person's rows of one 1 in a table (group, class, predicted class), times
    `TABLE`, and of one 1 in the bins (group, class, bin of the score), times `BIN`, each rounded down. Rounded down,
    a mean of such rows has at most the length of one row.

    Parameters
    ----------
    groups : tuple of str
        The groups that are told apart; ``("",)`` for everybody together.
    classes : tuple of str
        The classes. With two, scores are those of the second.
    n_bins : int
        Bins of the score: an even number, or 0 for more than two classes.
    """

    groups: Names
    classes: Names
    n_bins: int = 0

    TABLE: ClassVar[int] = UNIT
    BIN: ClassVar[int] = 2896  # at most TABLE/√2: two thirds of the squared length are the table's

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of a ballot."""
        n_classes = len(self.classes)
        numbers = len(self.groups) * n_classes * (n_classes + self.n_bins)
        return 1, numbers

    @property
    def norm_squared(self) -> int:
        """The largest squared length of a ballot."""
        if not self.n_bins:
            return self.TABLE**2
        return self.TABLE**2 + self.BIN**2

    @property
    def edges(self) -> tuple[float, ...]:
        """Where bins of the score begin and end, n_bins + 1 numbers: narrow near 0 and 1, and with an edge at ½.

        With 10 bins, the lower half ends at 0.03, 0.10, 0.20, 0.34 and 0.50. A score on an edge is in the lower bin.
        """
        if not self.n_bins:
            return ()
        # Scores for a rare class are small. With bins of one width nearly all of them share one, and the AUC drops.
        n_lower = self.n_bins // 2
        lower = [(index / n_lower) ** _NARROWING / 2 for index in range(n_lower)]
        upper = [1 - edge for edge in reversed(lower)]
        return (*lower, 0.5, *upper)

    def table(self, values: IntArray) -> FloatArray:
        """Return the table in people, of shape (groups, classes, predicted classes)."""
        return self._parts(values)[0] / self.TABLE

    def bins(self, values: IntArray) -> FloatArray:
        """Return the bins in people, of shape (groups, classes, n_bins)."""
        return self._parts(values)[1] / self.BIN

    @property
    def n_cells(self) -> int:
        """Number of cells of the table, before the bins."""
        return len(self.groups) * len(self.classes) ** 2

    def _parts(self, values: IntArray) -> tuple[IntArray, IntArray]:
        n_classes = len(self.classes)
        table, bins = np.split(values.ravel(), [self.n_cells])
        shape = (len(self.groups), n_classes, self.n_bins)
        return table.reshape(-1, n_classes, n_classes), bins.reshape(shape)


@final
@frozen
class NumberLayout:
    """Where the numbers of a noisy sum about a regressor are, and what one person counts in them.

    A person's ballot is the mean of `entries` over the person's rows, times `UNIT`, rounded down, in the place of the
    person's group.

    Parameters
    ----------
    groups : tuple of str
        The groups that are told apart; ``("",)`` for everybody together.
    largest_error : float
        The error at which larger errors are clipped.
    low, high : float
        The declared range of the number.
    """

    groups: Names
    largest_error: float
    low: float
    high: float

    ENTRIES: ClassVar[int] = 6
    UNIT: ClassVar[int] = UNIT

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of a ballot."""
        return 1, len(self.groups) * self.ENTRIES

    @property
    def norm_squared(self) -> int:
        """The largest squared length of a ballot: four times that of one entry, see `entries`."""
        return 4 * UNIT**2

    def entries(self, errors: FloatArray, covered: FloatArray, targets: FloatArray) -> FloatArray:
        """Return the entries of rows, each in [0, 1] and together of squared length at most 4.

        Parameters
        ----------
        errors : array of float, shape (n_rows,)
            Prediction less target.
        covered : array of float, shape (n_rows,)
            1 where the target is within its prediction interval, else 0.
        targets : array of float, shape (n_rows,)
            The targets.

        Returns
        -------
        array of float, shape (n_rows, 6)
            One, the error and its curve, covered, the target and its curve.
        """
        error = np.minimum(np.abs(errors) / self.largest_error, 1.0)
        target = np.clip((targets - self.low) / (self.high - self.low), 0.0, 1.0)
        # x² + s²x²(1 − x)² is at most 1 for s² ≤ 8: it is 1 at x = 1, and its slope is 2x(1 + s²(1 − x)(1 − 2x)),
        # where (1 − x)(1 − 2x) ≥ −1/8. So the curve, from which the square is computed, costs no length.
        of_error = _RATIO * error * (1 - error)
        of_target = _RATIO * target * (1 - target)
        ones = np.ones_like(error)
        return np.column_stack(
            [
                ones,
                error,
                of_error,
                covered,
                target,
                of_target,
            ]
        )

    def sums(self, values: IntArray) -> FloatArray:
        """Return the sums of the entries in people, of shape (groups, 6)."""
        return values.reshape(-1, self.ENTRIES) / UNIT


@final
class ClassMeasures(Part, frozen=True):
    """How well a student recognizes one class.

    Parameters
    ----------
    name : str
        The class.
    share : Interval, optional
        Share of all people that are of this class.
    recall, precision : Interval, optional
        Share of the people of this class that are predicted as it, and share of those predicted as it that are of it.
        None if the noise is too large for an estimate.
    """

    name: str
    share: Interval | None
    recall: Interval | None
    precision: Interval | None


@final
class ScoreBin(Part, frozen=True):
    """People whose score for the second class is in one bin.

    Parameters
    ----------
    low, high : float
        Ends of the bin.
    share : Interval, optional
        Share of these people that are of the second class. A calibrated student has it between both ends. None if
        the noise is too large for an estimate.
    """

    low: Share
    high: Share
    share: Interval | None


@final
class GroupMeasures(Part, frozen=True, kw_only=True):
    """The measured quality of a classifier on the people of one group.

    Each measure is None if the noise is too large for an estimate.

    Parameters
    ----------
    group : str
        The group; empty for everybody.
    people : Interval
        Their number. The interval has no width if it is exact.
    accuracy, balanced_accuracy : Interval, optional
        Share of people whose class is predicted, and the mean of the recalls of all classes.
    by_class : tuple of ClassMeasures
        Each class.
    auc : Interval, optional
        Area under the ROC curve of the binned scores; for two classes.
    calibration : tuple of ScoreBin
        Each bin of the score; for two classes.
    """

    group: str
    people: Interval
    accuracy: Interval | None
    balanced_accuracy: Interval | None
    by_class: tuple[ClassMeasures, ...]
    auc: Interval | None = None
    calibration: tuple[ScoreBin, ...] = ()

    @property
    def majority(self) -> Interval | None:
        """Share of the class that is the most frequent one by its estimate."""
        shares = [entry.share for entry in self.by_class if entry.share is not None]
        return max(shares, key=lambda share: share.value, default=None)


@final
class Gap(Part, frozen=True):
    """The largest difference between any two of the groups whose measure is not hidden by the noise.

    Parameters
    ----------
    measure : str
        The measure that differs: accuracy, or recall of a class.
    highest, lowest : str
        The groups with the highest and the lowest estimate.
    distance : Interval
        The largest difference. Its interval covers all pairs of these groups at once.
    """

    measure: str
    highest: str
    lowest: str
    distance: Interval


@final
class Measured(Part, frozen=True, kw_only=True):
    """The quality of a classifier on private rows, from noisy sums.

    Parameters
    ----------
    groups : tuple of GroupMeasures
        Everybody, and then each group if groups are told apart.
    gaps : tuple of Gap
        The largest differences between groups.
    holdout : float
        Share of the people that the student was not trained on.
    optimism : float, optional
        The most by which the accuracy of people that it was trained on may exceed that of others.
    """

    groups: tuple[GroupMeasures, ...]
    gaps: tuple[Gap, ...] = ()
    holdout: Share = 0.0
    optimism: Amount | None = None

    def with_optimism(self, most_on_others: Callable[[float], float]) -> Self:
        """Return it with its optimism, by the largest share of errors on people who had no part."""
        accuracy = self.groups[0].accuracy
        if accuracy is None:
            return self
        worst = _largest_rise(most_on_others, 1 - accuracy.high, 1 - accuracy.low)
        return structs.replace(self, optimism=worst)


@final
class ErrorMeasures(Part, frozen=True, kw_only=True):
    """The measured errors of a regressor on the people of one group, in the unit of the number.

    Each measure is None if the noise is too large for an estimate.

    Parameters
    ----------
    group : str
        The group; empty for everybody.
    people : Interval
        Their number. The interval has no width if it is exact.
    mean_absolute, root_mean_square : Interval, optional
        Mean absolute error, and root of the mean squared error; larger errors are clipped.
    covered : Interval, optional
        Share of the people whose number is within its prediction interval.
    r_squared : Interval, optional
        R²: the share of the variance that the student explains.
    """

    group: str
    people: Interval
    mean_absolute: Interval | None
    root_mean_square: Interval | None
    covered: Interval | None
    r_squared: Interval | None


@final
class MeasuredErrors(Part, frozen=True, kw_only=True):
    """The quality of a regressor on private rows, from noisy sums.

    Parameters
    ----------
    groups : tuple of ErrorMeasures
        Everybody, and then each group if groups are told apart.
    largest_error : float
        The error at which larger errors were clipped.
    holdout : float
        Share of the people that the student was not trained on.
    optimism : float, optional
        The most by which the mean absolute error of people that it was trained on may be below that of others.
    """

    groups: tuple[ErrorMeasures, ...]
    largest_error: Amount
    holdout: Share = 0.0
    optimism: Amount | None = None

    def with_optimism(self, most_on_others: Callable[[float], float]) -> Self:
        """Return it with its optimism, by the largest mean error on people who had no part."""
        error = self.groups[0].mean_absolute
        if error is None:
            return self
        low = min(1.0, error.low / self.largest_error)
        high = min(1.0, error.high / self.largest_error)
        worst = _largest_rise(most_on_others, low, high)
        return structs.replace(self, optimism=self.largest_error * worst)


def _largest_rise(most_on_others: Callable[[float], float], low: float, high: float) -> float:
    """Return the largest rise of a share of errors that is anywhere in its interval."""
    tried: list[float] = np.linspace(low, high, _TRIED).tolist()
    return max(most_on_others(share) - share for share in tried)


def expected_half_width(
    accuracy: float, sigma: float, layout: ClassLayout, n_people: float, *, exact: bool
) -> float | None:
    """Return half the width of the interval to expect for the accuracy of so many people; None if it is hidden.

    `sigma` is the deviation of the noise of each number, and `exact` says whether the number of people is public.
    """
    n_classes = len(layout.classes)
    n_wrong = n_classes * (n_classes - 1)
    hits = np.full(n_classes, accuracy * n_people / n_classes)
    misses = np.full(n_wrong, (1 - accuracy) * n_people / n_wrong)
    known = round(n_people) if exact else None
    expected = of_share(hits, misses, sigma / layout.TABLE, known)
    return None if expected is None else (expected.high - expected.low) / 2


def measured(values: IntArray, sigma: float, layout: ClassLayout, n_people: int | None) -> Measured:
    """Return the quality that a noisy sum of ballots measures, with intervals.

    Parameters
    ----------
    values : array of int
        The released numbers.
    sigma : float
        Standard deviation of the noise of each number.
    layout : ClassLayout
        Where the numbers are.
    n_people : int or None
        Number of people that cast a ballot; None if it is private.
    """
    table = layout.table(values)
    bins = layout.bins(values)
    groups = [_of_group("", table, bins, sigma, layout, n_people)]
    gaps = list[Gap]()
    if len(layout.groups) > 1:
        for index, name in enumerate(layout.groups):
            part = slice(index, index + 1)
            groups.append(_of_group(name, table[part], bins[part], sigma, layout, None))
        gaps = _gaps(table, sigma / layout.TABLE, layout)
    return Measured(groups=tuple(groups), gaps=tuple(gaps))


def _of_group(
    name: str,
    table: FloatArray,
    bins: FloatArray,
    sigma: float,
    layout: ClassLayout,
    n_people: int | None,
) -> GroupMeasures:
    noise = sigma / layout.TABLE
    right = np.eye(len(layout.classes), dtype=bool)
    by_class = list[ClassMeasures]()
    for index, label in enumerate(layout.classes):
        is_other = ~right[index]
        hits = table[:, index, index]
        recall = of_share(hits, table[:, index, is_other], noise)
        precision = of_share(hits, table[:, is_other, index], noise)
        share = of_share(table[:, index], table[:, is_other], noise, n_people)
        by_class.append(ClassMeasures(label, share, recall, precision))
    accuracy = of_share(table[:, right], table[:, ~right], noise, n_people)
    # The sum of the same bin in several groups is a bin with more noise.
    of_bins = sigma / layout.BIN * math.sqrt(len(bins))
    negatives = bins.sum(axis=0)[0]
    positives = bins.sum(axis=0)[-1]
    calibration = list[ScoreBin]()
    for index in range(layout.n_bins):
        part = slice(index, index + 1)
        share = of_share(positives[part], negatives[part], of_bins)
        low = layout.edges[index]
        high = layout.edges[index + 1]
        calibration.append(ScoreBin(low, high, share))
    return GroupMeasures(
        group=name,
        people=_people(float(table.sum()), noise * math.sqrt(table.size), n_people),
        accuracy=accuracy,
        balanced_accuracy=of_mean([entry.recall for entry in by_class]),
        by_class=tuple(by_class),
        auc=of_ranking(negatives, positives, of_bins),
        calibration=tuple(calibration),
    )


def _gaps(table: FloatArray, noise: float, layout: ClassLayout) -> list[Gap]:
    """Return the largest differences between groups: in accuracy and, of two classes, in the recall of the second."""
    right = np.eye(len(layout.classes), dtype=bool)
    measures = {
        "accuracy": [(part[right], part[~right]) for part in table],
    }
    if len(layout.classes) == 2:
        measure = f"recall of {layout.classes[1]}"
        measures[measure] = [(part[1, 1:], part[1, :1]) for part in table]
    n_pairs = math.comb(len(table), 2)
    # All intervals of pairs are right at once in 95 % of cases (Bonferroni).
    z = NormalDist().inv_cdf(1 - 0.025 / n_pairs)
    gaps = list[Gap]()
    for measure, parts in measures.items():
        known = list[tuple[str, Interval]]()
        for name, (hits, misses) in zip(layout.groups, parts, strict=True):
            share = of_share(hits, misses, noise, z=z)
            if share is not None:
                known.append((name, share))
        if len(known) < 2:
            continue
        known.sort(key=lambda entry: entry[1].value)
        distance = of_largest_distance([share for _, share in known])
        if distance is not None:
            gaps.append(Gap(measure, known[-1][0], known[0][0], distance))
    return gaps


def _people(count: float, noise: float, exact: int | None) -> Interval:
    half = Z_95 * noise
    if exact is not None:
        count = float(exact)
        half = 0.0
    return Interval(*(min(max(end, 0.0), MOST) for end in (count, count - half, count + half)))


def measured_errors(
    values: IntArray, sigma: float, layout: NumberLayout, n_people: int | None
) -> MeasuredErrors:
    """Return the errors that a noisy sum of ballots measures, with intervals.

    Parameters
    ----------
    values : array of int
        The released numbers.
    sigma : float
        Standard deviation of the noise of each number.
    layout : NumberLayout
        Where the numbers are.
    n_people : int or None
        Number of people that cast a ballot; None if it is private.
    """
    sums = layout.sums(values)
    noise = sigma / UNIT
    together = noise * math.sqrt(len(sums))
    groups = [_errors("", sums.sum(axis=0), together, layout, n_people)]
    if len(layout.groups) > 1:
        for name, part in zip(layout.groups, sums, strict=True):
            groups.append(_errors(name, part, noise, layout, None))
    return MeasuredErrors(groups=tuple(groups), largest_error=layout.largest_error)


def _errors(
    name: str,
    sums: FloatArray,
    noise: float,
    layout: NumberLayout,
    n_people: int | None,
) -> ErrorMeasures:
    ones, error, error_curve, covered, target, target_curve = map(float, sums)
    people = ones if n_people is None else float(n_people)
    of_people = noise**2 if n_people is None else 0.0

    def of_sum(
        top: float,
        length: float,
        squares: float,
        largest: float,
        shift: float = 0.0,
    ) -> Interval | None:
        """Return the interval of the mean of x in [0, 1], where E[x²] ≤ squares + largest·E[x].

        The noise of the top is `length` of a cell's, and `shift` times that of the ones.
        """
        sampled = max(people, 0.0)
        of_noise = noise**2 * length + of_people * shift**2
        variance = Variance(
            of_noise + sampled * squares,
            sampled * largest - 2 * of_people * shift,
            of_people - sampled,
        )
        return of_ratio(top, people, variance)

    square = of_sum(error - error_curve / _RATIO, 1 + _RATIO**-2, 0.0, 1.0)
    absolute = None
    variance = None
    if square is not None:
        absolute = of_sum(error, 1.0, max(square.high, (error / people) ** 2), 0.0)
        # The variance is the mean of (x − m)² for the mean m, and larger by (m − estimate)² for its estimate.
        middle = min(max(target / people, 0.0), 1.0)
        top = (1 - 2 * middle) * target - target_curve / _RATIO + middle**2 * people
        length = (1 - 2 * middle) ** 2 + _RATIO**-2
        variance = of_sum(top, length, 0.0, max(middle, 1 - middle) ** 2, middle**2)
    return ErrorMeasures(
        group=name,
        people=_people(ones, noise, n_people),
        mean_absolute=_apply(lambda share: layout.largest_error * share, absolute),
        root_mean_square=_apply(lambda share: layout.largest_error * math.sqrt(share), square),
        covered=of_sum(covered, 1.0, 0.0, 1.0),
        r_squared=_explained(square, variance, layout),
    )


def _apply(increasing: Callable[[float], float], share: Interval | None) -> Interval | None:
    """Return the interval of an increasing function of a share."""
    if share is None:
        return None
    return Interval(increasing(share.value), increasing(share.low), increasing(share.high))


def _explained(
    square: Interval | None, variance: Interval | None, layout: NumberLayout
) -> Interval | None:
    """Return R² from the mean squared error and the variance, as shares of their largest values."""
    if square is None or variance is None or square.value == 0 or variance.low == 0:
        return None
    unit = layout.largest_error / (layout.high - layout.low)
    ratio = square.value / variance.value * unit**2
    # The intervals of both logarithms are combined, as those of two independent estimates.
    above = math.hypot(
        math.log(square.high / square.value),
        math.log(variance.value / variance.low),
    )
    lowest = 0.0
    if square.low > 0:
        below = math.hypot(
            math.log(square.value / square.low),
            math.log(variance.high / variance.value),
        )
        lowest = ratio * math.exp(-below)
    highest = ratio * math.exp(min(above, 50.0))
    return Interval(
        max(1 - ratio, -MOST),
        max(1 - highest, -MOST),
        max(1 - lowest, -MOST),
    )
