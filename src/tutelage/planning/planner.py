"""From a wished (ε, δ) to teachers, noise and queries, by public knowledge alone."""

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tutelage._typing import FloatArray
from tutelage._validation import integer_at_least, number_between, positive, probability
from tutelage.accounting import data_independent
from tutelage.accounting.curves import search_epsilon
from tutelage.accounting.data_independent import flatten
from tutelage.accounting.exact import ExactCosts
from tutelage.budget import PublicEpsilon, round_up
from tutelage.events import ConfidenceCheck, Repeated
from tutelage.exceptions import InvalidParameterError
from tutelage.lints import Finding, lint
from tutelage.mechanisms import ConfidentGNMax, ExponentialMax, GNMax, LNMax
from tutelage.neighboring import ONE_TEACHER, PrivacyUnit
from tutelage.planning.calibration import Planned, calibrated, scaled
from tutelage.planning.choices import (
    Choice,
    Wish,
    best_right,
    numbers_of_teachers,
    right_without_noise,
    what_would_help,
    with_checks,
    without_checks,
)
from tutelage.planning.expected_labels import Expected, expected_labels, expected_without_noise, typical_counts
from tutelage.planning.teacher_model import TeacherModel
from tutelage.progress import progress_bar
from tutelage.votes import VoteHistogram

if TYPE_CHECKING:
    from rich.table import Table

_BELOW_NOISELESS = 0.02  # the goal where none is named, and
_AS_GOOD = 0.01  # what more answers may cost where no number of them reaches it: shares of right labels
_QUERIES = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)  # tried where none are named
_WITHOUT_CHECKS = (GNMax, ExponentialMax, LNMax)  # the first is kept unless another is better by
_WORTH = 0.03  # this much, for a check prefers easy queries, from which there is less to learn
_MARGIN = 1.25
_FRONTIER: np.ndarray = np.geomspace(0.1, 10, 13)  # times the target ε
_ON_FRONTIER = 5
_SHOWN = 11
_NAMES = {GNMax: "gnmax", LNMax: "lnmax", ExponentialMax: "exponential", ConfidentGNMax: "confident"}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One number of teachers with the noise that keeps the target; all of it is public.

    Parameters
    ----------
    teachers : int
        Number of teachers n.
    rows_per_teacher : float
        Private rows over n.
    mechanism : Mechanism
        How votes are released, its noise in votes.
    queries : int
        Public rows to ask about.
    answers : float
        Expected number of labels.
    teacher_accuracy : float
        Expected accuracy of one teacher.
    right_without_noise : float
        Expected share of right labels if there were no noise.
    right : float
        Expected share of right labels.
    """

    teachers: int
    rows_per_teacher: float
    mechanism: Planned
    queries: int
    answers: float
    teacher_accuracy: float
    right_without_noise: float
    right: float

    def in_short(self) -> str:
        """Return the mechanism in one short line: threshold T, noise σ (of the check first) or b, all in votes."""
        match self.mechanism:
            case GNMax(sigma=sigma):
                return f"gnmax σ {sigma:.4g}"
            case ConfidentGNMax(threshold=threshold, sigma_threshold=check, sigma_vote=vote):
                return f"confident T {threshold:g} σ {check:.4g}/{vote:.4g}"
        return f"{_NAMES[type(self.mechanism)]} b {self.mechanism.scale:.4g}"

    def as_dict(self) -> dict[str, Any]:
        """Return the option as plain values, for JSON."""
        name = _NAMES[type(self.mechanism)]
        shown = {field: getattr(self, field) for field in self.__dataclass_fields__ if field != "mechanism"}
        return {**shown, "mechanism": {"name": name, **asdict(self.mechanism)}}


@final
@dataclass(frozen=True, slots=True)
class PlanPoint:
    """Expected share of right labels of so many teachers at an ε that is estimated to a few per cent."""

    teachers: int
    epsilon: float
    right: float


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to do for a wished guarantee, and what to expect of it.

    Parameters
    ----------
    target_epsilon : float
        The ε that was wished for.
    label_accuracy : float
        The share of right labels that was wished for.
    recommended : Option
        What to do.
    options : tuple of Option
        Other numbers of teachers, and the mechanisms that were compared, at the same ε and number of answers.
    epsilon : PublicEpsilon
        Proved ε of the recommended option, whatever the votes turn out to be.
    private_epsilon : float
        What the exact ε by the votes would be if the votes were as expected. It is computed from public assumptions;
        the same number of real votes must not be published.
    frontier : tuple of PlanPoint
        Accuracy against ε for several numbers of teachers.
    assumptions : tuple of str
        What the expectations rest on.
    obstacle : str or None
        Why the wish cannot be granted and what would make it possible, in one sentence; None where it can.
    findings : tuple of Finding
        What a privacy officer would object to.
    """

    target_epsilon: float
    label_accuracy: float
    recommended: Option
    options: tuple[Option, ...]
    epsilon: PublicEpsilon
    private_epsilon: float
    frontier: tuple[PlanPoint, ...]
    assumptions: tuple[str, ...]
    obstacle: str | None
    findings: tuple[Finding, ...]

    @property
    def possible(self) -> bool:
        """Whether the recommended option is expected to reach the wished share of right labels."""
        return self.obstacle is None

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as plain values, for JSON."""
        return {
            "possible": self.possible,
            "obstacle": self.obstacle,
            "target_epsilon": self.target_epsilon,
            "epsilon": self.epsilon.epsilon,
            "delta": self.epsilon.delta,
            "epsilon_method": self.epsilon.method,
            "private_epsilon_if_votes_are_as_expected": self.private_epsilon,
            "label_accuracy": self.label_accuracy,
            "recommended": self.recommended.as_dict(),
            "options": [option.as_dict() for option in self.options],
            "frontier": [{"teachers": p.teachers, "epsilon": p.epsilon, "right": p.right} for p in self.frontier],
            "assumptions": list(self.assumptions),
            "findings": [
                {"code": found.code, "severity": found.severity, "reason": found.reason} for found in self.findings
            ],
        }

    def as_table(self) -> "Table":
        """Return the options as a rich table, the recommended one in bold."""
        from rich.box import SIMPLE_HEAD
        from rich.table import Table

        title = f"ε = {round_up(self.target_epsilon):g} at δ = {self.epsilon.delta:g}, whatever the votes are"
        caption = (
            "Expected to be right: one teacher, all together without noise, the labels released. Threshold T and noise "
            "σ or b in votes; σ of the check, then of the answer."
        )
        table = Table(title=title, title_justify="left", caption=caption, caption_justify="left", box=SIMPLE_HEAD)
        table.padding, table.pad_edge = (0, 1, 0, 0), False
        for heading in ("teachers", "rows", "mechanism", "asked", "one", "all", "labels"):
            table.add_column(heading, justify="left" if heading == "mechanism" else "right", no_wrap=True)
        for option in _shown(self.options, self.recommended):
            table.add_row(
                f"{option.teachers:,}",
                f"{option.rows_per_teacher:,.4g}",
                option.in_short(),
                f"{option.queries:,}",
                f"{option.teacher_accuracy:.1%}",
                f"{option.right_without_noise:.1%}",
                f"{option.right:.1%}",
                style="bold" if option == self.recommended else None,
            )
        return table

    def as_config(self) -> str:
        """Return the sections of a configuration of ``tutelage run`` that this plan settles, as TOML."""
        settings = self.recommended.as_dict()["mechanism"]
        if "sigma_vote" in settings:
            settings["sigma"] = settings.pop("sigma_vote")
        lines = [f'name = "{settings.pop("name")}"', *(f"{name} = {value}" for name, value in settings.items())]
        return (
            f"[teachers]\nnumber = {self.recommended.teachers}\n\n[mechanism]\n" + "\n".join(lines) + "\n\n"
            f"[public]\nqueries = {self.recommended.queries}\n\n[privacy]\ndelta = {self.epsilon.delta}\n"
        )


def plan(
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
) -> Plan:
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
    model = _checked_model(model, classes)
    wish = _checked_wish(epsilon, delta, rows, classes, queries, public_rows, teachers, unit)
    fewest = float(classes)  # rows per teacher
    goal = _checked_goal(label_accuracy, wish, model, fewest)
    wish = _with_answers(wish, queries, model, goal, fewest)
    choices = [without_checks(wish, model, GNMax, n) for n in numbers_of_teachers(wish, fewest)]
    best = _best(choices)
    rivals = [without_checks(wish, model, kind, best.teachers) for kind in _WITHOUT_CHECKS[1:]]
    checked = with_checks(wish, model, best.teachers)
    rivals += [] if checked is None else [checked]
    better = max(rivals, key=lambda choice: choice.expected.right)
    reached = best.expected.right >= goal or better.expected.right < goal
    taken = best if reached and better.expected.right <= best.expected.right + _WORTH else better
    compared = [*choices, *rivals]
    bar = progress_bar(compared, "Noise", len(compared), shown=progress)
    options = tuple(_settled(wish, model, choice) for choice in bar)
    recommended = next(o for o in options if (o.teachers, type(o.mechanism)) == (taken.teachers, type(taken.mechanism)))
    one = recommended.mechanism.event_of_one(classes, unit, simulated=False)
    proved = data_independent.epsilon(Repeated(one, recommended.queries), delta)
    return Plan(
        target_epsilon=epsilon,
        label_accuracy=goal,
        recommended=recommended,
        options=options,
        epsilon=proved,
        private_epsilon=_by_expected_votes(recommended, taken, wish, classes),
        frontier=_frontier(wish, model, choices, best),
        assumptions=model.assumptions,
        obstacle=None if recommended.right >= goal else _obstacle(wish, model, recommended, goal, fewest),
        findings=_findings(recommended, proved, wish, classes),
    )


def _checked_model(model: TeacherModel | None, classes: int) -> TeacherModel:
    integer_at_least(classes, 2, "classes", "plan")
    if model is None:
        return TeacherModel.assumed(classes)
    if not isinstance(model, TeacherModel):
        raise InvalidParameterError(f"`model` of plan must be a TeacherModel. Got {type(model).__name__}.")
    if model.classes != classes:
        raise InvalidParameterError(f"`model` of plan is about {model.classes} classes. Got classes={classes}.")
    return model


def _checked_goal(label_accuracy: float | None, wish: Wish, model: TeacherModel, fewest: float) -> float:
    if label_accuracy is not None:
        return number_between(label_accuracy, 1 / model.classes, 1, "label_accuracy", "plan")
    return max(1 / model.classes, right_without_noise(wish, model, fewest) - _BELOW_NOISELESS)


def _checked_wish(
    epsilon: float,
    delta: float,
    rows: int,
    classes: int,
    queries: int | None,
    public_rows: int | None,
    teachers: int | None,
    unit: PrivacyUnit,
) -> Wish:
    rows = integer_at_least(rows, 2, "rows", "plan")
    for value, name in ((queries, "queries"), (public_rows, "public_rows"), (teachers, "teachers")):
        if value is not None:
            integer_at_least(value, 1, name, "plan")
    if rows < classes:
        raise InvalidParameterError(f"`rows` of plan must be at least one for each of {classes:,} classes. Got {rows}.")
    if teachers is not None and teachers > rows // classes:
        raise InvalidParameterError(
            f"`teachers` of plan must be at most {rows // classes:,}, so that {rows:,} rows give each one row of every "
            f"class. Got {teachers}."
        )
    if queries is not None and public_rows is not None and queries > public_rows:
        raise InvalidParameterError(f"`queries` of plan must be at most the {public_rows} public rows. Got {queries}.")
    return Wish(
        epsilon=positive(epsilon, "epsilon", "plan"),
        delta=probability(delta, "delta", "plan"),
        rows=rows,
        answers=queries or 1,
        teachers=teachers,
        public_rows=public_rows,
        unit=unit,
    )


def _with_answers(wish: Wish, queries: int | None, model: TeacherModel, goal: float, fewest: float) -> Wish:
    """Return the wish with its number of answers: the named one, the most that keep the goal, or the most as good."""
    if queries is not None:
        return wish
    tried = [k for k in _QUERIES if wish.public_rows is None or k <= wish.public_rows] or [wish.public_rows or 1]
    wishes = [replace(wish, answers=k) for k in tried]
    right = [best_right(changed, model, fewest) for changed in wishes]
    least = goal if max(right) >= goal else max(right) - _AS_GOOD
    return [changed for changed, share in zip(wishes, right, strict=True) if share >= least][-1]


def _best(choices: list[Choice]) -> Choice:
    """Return the choice that would do best if there were a quarter more noise, so as not to stand at an edge."""

    def with_more_noise(choice: Choice) -> float:
        return expected_labels(scaled(choice.mechanism, _MARGIN), choice.votes).right

    return max(choices, key=with_more_noise)


def _settled(wish: Wish, model: TeacherModel, choice: Choice) -> Option:
    """Return the choice with noise that is proved to keep the target."""
    mechanism = calibrated(choice.mechanism, wish.epsilon, wish.delta, choice.asked, wish.unit)
    expected: Expected = expected_labels(mechanism, choice.votes)
    size = wish.rows / choice.teachers
    return Option(
        teachers=choice.teachers,
        rows_per_teacher=size,
        mechanism=mechanism,
        queries=choice.asked,
        answers=expected.answered * choice.asked,
        teacher_accuracy=model.accuracy(size),
        right_without_noise=expected_without_noise(choice.votes),
        right=expected.right,
    )


def _by_expected_votes(option: Option, choice: Choice, wish: Wish, classes: int) -> float:
    votes = VoteHistogram(typical_counts(choice.votes), option.teachers, wish.unit)
    middles = np.arange(votes.n_queries + 1) - 0.5
    parts = []
    for part in flatten(option.mechanism.event_of_one(classes, wish.unit, simulated=False)):
        times = option.queries if isinstance(part.event, ConfidenceCheck) else max(1.0, option.answers)
        # Of all queries, each typical one stands for those around it; a check lets the easiest through.
        edges = np.clip(middles / (votes.n_queries - 1), 1 - times / option.queries, 1)
        parts.append((option.queries * np.diff(edges), ExactCosts(part.event, votes)))

    def total(orders: FloatArray) -> FloatArray:
        return np.sum([times @ costs.per_query(orders) for times, costs in parts], axis=0)

    return search_epsilon(total, wish.delta).epsilon


def _frontier(wish: Wish, model: TeacherModel, choices: list[Choice], best: Choice) -> tuple[PlanPoint, ...]:
    """Return points of a few numbers of teachers around the best, at a tenth to ten times the target."""
    middle, step = choices.index(best), max(1, len(choices) // (2 * _ON_FRONTIER))
    places = range(middle - step * (_ON_FRONTIER // 2), middle + step * (_ON_FRONTIER // 2) + 1, step)
    points = []
    for n in [choices[place].teachers for place in places if 0 <= place < len(choices)]:
        for epsilon in (wish.epsilon * _FRONTIER).tolist():
            choice = without_checks(replace(wish, epsilon=epsilon), model, GNMax, n)
            points.append(PlanPoint(n, epsilon, choice.expected.right))
    return tuple(points)


def _obstacle(wish: Wish, model: TeacherModel, option: Option, goal: float, fewest: float) -> str:
    who = f"{option.teachers:,} teachers of {option.rows_per_teacher:,.4g} rows"
    without = right_without_noise(wish, model, fewest)
    if without < goal:
        return (
            f"Even without noise such teachers would get at most {without:.1%} of the labels right, so {goal:.0%} is "
            "out of reach at any ε; it takes teachers that learn more from a row, by better public features, or a "
            "lower goal."
        )
    needed = "; or ".join(what_would_help(wish, model, goal, fewest)) or "better teachers"
    return (
        f"{wish.answers:,} answers at ε = {wish.epsilon:g} take so much noise ({option.in_short()}) that {who} get "
        f"{option.right:.1%} of the labels right and not {goal:.0%}; it would take {needed}."
    )


def _findings(option: Option, proved: PublicEpsilon, wish: Wish, classes: int) -> tuple[Finding, ...]:
    return lint(
        epsilon=proved.epsilon,
        delta=wish.delta,
        entities=wish.rows,
        teachers=option.teachers,
        classes=classes,
        threshold=getattr(option.mechanism, "threshold", None),
        stopping="fixed",
        tuned_on="public",
        mechanism=_NAMES[type(option.mechanism)],
    )


def _shown(options: tuple[Option, ...], recommended: Option) -> list[Option]:
    """Return the options of plain Gaussian noise whose teachers are about as many as recommended, and all others."""
    near = sorted(options, key=lambda option: abs(np.log(option.teachers / recommended.teachers)))[:_SHOWN]
    return [option for option in options if option in near or not isinstance(option.mechanism, GNMax)]
