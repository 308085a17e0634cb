"""Find teachers, noise and queries for a target (ε, δ), from public knowledge alone."""

from collections.abc import Callable
from math import ceil, floor
from typing import NamedTuple

import numpy as np

from tutelage._internal.progress import progress_bar
from tutelage._internal.typing import FloatArray
from tutelage._internal.validation import integer_at_least, number_between, positive, probability
from tutelage.accounting import data_independent
from tutelage.accounting.exact import ExactCosts
from tutelage.accounting.rdp import search_epsilon
from tutelage.events import ConfidenceCheck, Repeated
from tutelage.exceptions import InvalidParameterError
from tutelage.mechanisms import ConfidentGNMax, ExponentialMax, GNMax, LNMax
from tutelage.planning.calibration import Planned, Sketch, calibrated, roughly_calibrated
from tutelage.planning.teacher_model import (
    TeacherModel,
    TypicalVotes,
    expected_labels,
    expected_without_noise,
    typical_counts,
    typical_votes,
)
from tutelage.planning.votes_plan import VotesOption, VotesPlan, VotesPoint
from tutelage.privacy import ONE_TEACHER, PrivacyUnit
from tutelage.reporting.lints import Finding, lint
from tutelage.votes import VoteHistogram

_BELOW_NOISELESS = 0.02  # the goal where none is named, and
_AS_GOOD = 0.01  # what more answers may cost where no number of them reaches it: shares of right labels
_QUERIES = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)  # tried where none are named
_STEPS = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)  # of the numbers of teachers, in every power of ten
_FEWEST = 5
_WORTH = 0.03  # GNMax is kept unless another is better by this much: a check prefers queries that teach less
_MARGIN = 1.25  # noise at which the number of teachers is chosen, so as not to stand at an edge
_THRESHOLDS, _CHECK_SHARES = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9), (0.1, 0.25, 0.5)
_MOST_ASKED, _TRIES = 5, 6
_LARGEST_EPSILON, _MOST_FACTOR = 1e3, 1e6
_FRONTIER: FloatArray = np.geomspace(0.1, 10, 13)  # times the target ε
_ON_FRONTIER = 5


def plan_votes(
    epsilon: float,
    delta: float,
    *,
    rows: int,
    classes: int,
    model: TeacherModel | None = None,
    queries: int | None = None,
    public_rows: int | None = None,
    teachers: int | None = None,
    label_accuracy: float | None = None,
    unit: PrivacyUnit = ONE_TEACHER,
    progress: bool = False,
) -> VotesPlan:
    """Recommend how many teachers, which noise and how many queries, for a target (ε, δ).

    It reads no private vote: teachers are what `model` says, which comes from public data or from an assumption. The ε
    is data-independent, so the guarantee does not rest on the model; only what to expect of the labels does.

    Parameters
    ----------
    epsilon, delta : float
        Target guarantee for all answers together.
    rows : int
        Number of private rows (of entities, where one entity has about one row).
    classes : int
        Number of classes.
    model : TeacherModel, optional
        How teachers vote, by their number of rows. Default: an assumption, which the plan states.
    queries : int, optional
        How many labels are wanted. Default: as many as keep `label_accuracy`.
    public_rows : int, optional
        How many public rows there are to ask about.
    teachers : int, optional
        Number of teachers, where it is given: ten hospitals are ten teachers.
    label_accuracy : float, optional
        Share of the released labels that should be right; a student by label propagation stands a tenth of them wrong.
        Default: two points below what such teachers would get right without noise.
    unit : PrivacyUnit
        Whom the guarantee is for.
    progress : bool
        Show a progress bar; a plan takes seconds.

    Raises
    ------
    InvalidParameterError
        If a number is out of range, or the model is none or of another number of classes.
    """
    target = _Target(
        model=_checked_model(model, classes),
        epsilon=positive(epsilon, "epsilon", "plan_votes"),
        delta=probability(delta, "delta", "plan_votes"),
        rows=integer_at_least(rows, 2, "rows", "plan_votes"),
        answers=_count(queries, "queries") or 1,
        teachers=_count(teachers, "teachers"),
        public_rows=_count(public_rows, "public_rows"),
    )
    _check_sizes(target, queries)
    goal = _checked_goal(label_accuracy, target)
    target = target if queries is not None else _with_answers(target, goal)
    options, recommended = _settled(target, *_compared(target, goal), progress=progress)
    one = recommended.mechanism.event_of_one(classes, unit, simulated=False)
    proved = data_independent.epsilon(Repeated(one, recommended.queries), target.delta)
    return VotesPlan(
        target_epsilon=epsilon,
        label_accuracy=goal,
        recommended=recommended,
        options=options,
        epsilon=proved,
        private_epsilon=_by_expected_votes(target, recommended, unit),
        frontier=_frontier(target, recommended.teachers),
        assumptions=target.model.assumptions,
        obstacle=None if recommended.right >= goal else _obstacle(target, recommended, goal),
        findings=_findings(target, recommended, proved.epsilon),
    )


class _Target(NamedTuple):
    """What is asked for, and what is known of the teachers; unchecked, so that a search can vary it."""

    epsilon: float
    delta: float
    rows: int
    answers: int
    teachers: int | None
    public_rows: int | None
    model: TeacherModel

    def numbers(self) -> list[int]:
        """Return the numbers of teachers to consider: round ones that leave each at least a row per class."""
        if self.teachers is not None:
            return [self.teachers]
        most = max(1, floor(self.rows / self.model.classes))
        numbers = {int(step * 10**power) for power in range(len(str(most)) + 1) for step in _STEPS}
        return sorted(number for number in numbers if _FEWEST <= number <= most) or [most]

    def votes(self, n: int) -> TypicalVotes:
        """Return the votes to expect of n teachers."""
        return typical_votes(self.model, n, self.rows / n)

    def sketch(self, kind: type[Planned]) -> Sketch:
        """Return a mechanism that answers every query, its noise by estimate."""
        return roughly_calibrated(Sketch(kind, (1.0,), self.answers), self.epsilon, self.delta)

    def right(self, sketch: Sketch, n: int) -> float:
        """Return the expected share of right labels of n teachers."""
        return expected_labels(sketch, self.votes(n)).right

    def best_right(self, **changed: float) -> float:
        """Return the largest expected share of right labels over the numbers of teachers, with Gaussian noise."""
        target = self._replace(**changed)
        plain = target.sketch(GNMax)
        return max(target.right(plain, n) for n in target.numbers())

    def right_without_noise(self) -> float:
        """Return the largest expected share of right labels if there were no noise."""
        return max(expected_without_noise(self.votes(n)) for n in self.numbers())


def _checked_model(model: TeacherModel | None, classes: int) -> TeacherModel:
    integer_at_least(classes, 2, "classes", "plan_votes")
    if model is None:
        return TeacherModel.assumed(classes)
    if not isinstance(model, TeacherModel):
        raise InvalidParameterError(f"`model` of plan_votes must be a TeacherModel. Got {type(model).__name__}.")
    if model.classes != classes:
        raise InvalidParameterError(f"`model` of plan_votes is about {model.classes} classes. Got classes={classes}.")
    return model


def _count(value: int | None, name: str) -> int | None:
    return None if value is None else integer_at_least(value, 1, name, "plan_votes")


def _check_sizes(target: _Target, queries: int | None) -> None:
    rows, classes, public_rows = target.rows, target.model.classes, target.public_rows
    if rows < classes:
        raise InvalidParameterError(
            f"`rows` of plan_votes must be at least one for each of {classes:,} classes. Got {rows}."
        )
    if target.teachers is not None and target.teachers > rows // classes:
        raise InvalidParameterError(
            f"`teachers` of plan_votes must be at most {rows // classes:,}, so that {rows:,} rows give each one row of "
            f"every class. Got {target.teachers}."
        )
    if queries is not None and public_rows is not None and queries > public_rows:
        raise InvalidParameterError(
            f"`queries` of plan_votes must be at most the {public_rows} public rows. Got {queries}."
        )


def _checked_goal(label_accuracy: float | None, target: _Target) -> float:
    chance = 1 / target.model.classes
    if label_accuracy is not None:
        return number_between(label_accuracy, chance, 1, "label_accuracy", "plan_votes")
    return max(chance, target.right_without_noise() - _BELOW_NOISELESS)


def _with_answers(target: _Target, goal: float) -> _Target:
    """Return the target with the most answers that keep the goal, or with the most that are about as good as any."""
    most = target.public_rows
    tried = [k for k in _QUERIES if most is None or k <= most] or [most or 1]
    right = {k: target.best_right(answers=k) for k in tried}
    best = max(right.values())
    least = goal if best >= goal else best - _AS_GOOD
    return target._replace(answers=max(k for k in tried if right[k] >= least))


def _compared(target: _Target, goal: float) -> tuple[list[tuple[Sketch, int]], tuple[Sketch, int]]:
    """Return mechanisms to compare, each with a number of teachers, and the pair to recommend."""
    numbers, plain = target.numbers(), target.sketch(GNMax)
    best = max(numbers, key=lambda n: target.right(plain.scaled(_MARGIN), n))
    rivals = [target.sketch(ExponentialMax), target.sketch(LNMax), *_with_check(target, best)]
    better = max(rivals, key=lambda rival: target.right(rival, best))
    right, more = target.right(plain, best), target.right(better, best)
    keeps = (right >= goal or more < goal) and more <= right + _WORTH
    return [*((plain, n) for n in numbers), *((rival, best) for rival in rivals)], (plain if keeps else better, best)


def _with_check(target: _Target, n: int) -> list[Sketch]:
    """Return the best Confident-GNMax that is expected to give as many answers, if there is one."""
    votes = target.votes(n)
    thresholds = [round(share * n) for share in _THRESHOLDS if round(share * n) * target.model.classes > n]
    tried = (_enough_asked(target, votes, threshold, share) for threshold in thresholds for share in _CHECK_SHARES)
    found = [sketch for sketch in tried if sketch is not None]
    return [max(found, key=lambda sketch: expected_labels(sketch, votes).right)] if found else []


def _enough_asked(target: _Target, votes: TypicalVotes, threshold: int, share: float) -> Sketch | None:
    """Return Confident-GNMax that spends a share of the cost on checks, asking until the answers are there."""
    most = _MOST_ASKED * target.answers if target.public_rows is None else target.public_rows
    ratio = ((1 - share) / (2 * share)) ** 0.5  # σ₁/σ₂, for a check costs λ/2σ₁² and an answer λ/σ₂²
    asked = target.answers
    for _ in range(_TRIES):
        sketch = Sketch(ConfidentGNMax, (ratio, 1.0), asked, threshold)
        sketch = roughly_calibrated(sketch, target.epsilon, target.delta)
        needed = ceil(target.answers / max(expected_labels(sketch, votes).answered, 1e-9) - 1e-9)
        if needed > most:
            return None
        if needed <= asked:
            return sketch
        asked = min(most, ceil(1.02 * needed))
    return None


def _settled(
    target: _Target, compared: list[tuple[Sketch, int]], taken: tuple[Sketch, int], *, progress: bool
) -> tuple[tuple[VotesOption, ...], VotesOption]:
    """Return the options with proved noise, and the one that is taken."""
    sketches = list(dict.fromkeys(sketch for sketch, _ in compared))
    bar = progress_bar(sketches, "Noise", len(sketches), shown=progress)
    settled = {sketch: calibrated(sketch, target.epsilon, target.delta) for sketch in bar}
    options = tuple(_option(target, settled[sketch], n) for sketch, n in compared)
    return options, options[compared.index(taken)]


def _option(target: _Target, sketch: Sketch, n: int) -> VotesOption:
    votes, size = target.votes(n), target.rows / n
    expected = expected_labels(sketch, votes)
    return VotesOption(
        teachers=n,
        rows_per_teacher=size,
        mechanism=sketch.mechanism(),
        queries=sketch.queries,
        answers=expected.answered * sketch.queries,
        teacher_accuracy=target.model.accuracy(size),
        right_without_noise=expected_without_noise(votes),
        right=expected.right,
    )


def _by_expected_votes(target: _Target, option: VotesOption, unit: PrivacyUnit) -> float:
    votes = VoteHistogram(typical_counts(target.votes(option.teachers)), option.teachers, unit)
    middles = np.arange(votes.n_queries + 1) - 0.5
    parts = []
    for part in option.mechanism.event_of_one(votes.n_classes, unit, simulated=False).flatten():
        times = option.queries if isinstance(part.event, ConfidenceCheck) else max(1.0, option.answers)
        # Of all queries, each typical one stands for those around it; a check lets the easiest through.
        edges = np.clip(middles / (votes.n_queries - 1), 1 - times / option.queries, 1)
        parts.append((option.queries * np.diff(edges), ExactCosts(part.event, votes)))

    def total(orders: FloatArray) -> FloatArray:
        return np.sum([times @ costs.per_query(orders) for times, costs in parts], axis=0)

    return search_epsilon(total, target.delta).epsilon


def _frontier(target: _Target, best: int) -> tuple[VotesPoint, ...]:
    """Return points of a few numbers of teachers around the best, at a tenth to ten times the target."""
    numbers = target.numbers()
    middle, step = numbers.index(best), max(1, len(numbers) // (2 * _ON_FRONTIER))
    reach = step * (_ON_FRONTIER // 2)
    places = [place for place in range(middle - reach, middle + reach + 1, step) if 0 <= place < len(numbers)]
    epsilons = (target.epsilon * _FRONTIER).tolist()
    sketches = {epsilon: target._replace(epsilon=epsilon).sketch(GNMax) for epsilon in epsilons}
    return tuple(
        VotesPoint(numbers[place], epsilon, target.right(sketch, numbers[place]))
        for place in places
        for epsilon, sketch in sketches.items()
    )


def _findings(target: _Target, option: VotesOption, epsilon: float) -> tuple[Finding, ...]:
    return lint(
        epsilon=epsilon,
        delta=target.delta,
        entities=target.rows,
        teachers=option.teachers,
        classes=target.model.classes,
        threshold=option.mechanism.threshold if isinstance(option.mechanism, ConfidentGNMax) else None,
        stopping="fixed",
        tuned_on="public",
        mechanism=option.entry.name,
    )


def _obstacle(target: _Target, option: VotesOption, goal: float) -> str:
    without = target.right_without_noise()
    if without < goal:
        return (
            f"Even without noise such teachers would get at most {without:.1%} of the labels right, so {goal:.0%} is "
            "out of reach at any ε; it takes teachers that learn more from a row, by better public features, or a "
            "lower goal."
        )
    needed = "; or ".join(_what_would_help(target, goal)) or "better teachers"
    return (
        f"{target.answers:,} answers at ε = {target.epsilon:g} take so much noise ({option.in_short()}) that "
        f"{option.teachers:,} teachers of {option.rows_per_teacher:,.4g} rows get {option.right:.1%} of the labels "
        f"right and not {goal:.0%}; it would take {needed}."
    )


def _what_would_help(target: _Target, goal: float) -> list[str]:
    """Return changes of the target that reach the goal, each by itself."""

    def reaches(**changed: float) -> bool:
        return target.best_right(**changed) >= goal

    def larger(factor: float) -> dict[str, int]:
        """Return `factor` times the rows, or as many more teachers of the same size if their number is fixed."""
        if target.teachers is None:
            return {"rows": ceil(target.rows * factor)}
        teachers = ceil(target.teachers * factor)
        return {"rows": ceil(target.rows * teachers / target.teachers), "teachers": teachers}

    found = []
    if answers := _largest(lambda k: reaches(answers=k), target.answers):
        found.append(f"at most {answers:,} {'queries' if answers > 1 else 'query'}")
    most = max(1.0, _LARGEST_EPSILON / target.epsilon)
    if factor := _smallest(lambda x: reaches(epsilon=target.epsilon * x), most):
        found.append(f"ε of at least {target.epsilon * factor:.3g}")
    if factor := _smallest(lambda x: reaches(**larger(x)), _MOST_FACTOR):
        wanted = larger(factor)
        rows, teachers = f"{wanted['rows']:,} rows", f"{wanted.get('teachers', 0):,} teachers of as many rows each"
        found.append(f"at least {rows if target.teachers is None else teachers}")
    return found


def _largest(holds: Callable[[int], bool], below: int) -> int:
    """Return the largest number from 1 to `below` that holds, 0 where 1 does not, for what holds less and less."""
    low, high = 0, below
    while high - low > max(1, low // 50):
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _smallest(holds: Callable[[float], bool], most: float) -> float | None:
    """Return about the smallest factor from 1 to `most` that holds, for what holds more and more; None if none does."""
    low, high = 1.0, 2.0
    while high <= most and not holds(high):
        low, high = high, 2 * high
    if high > most:
        return None
    while high / low > 1.02:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
