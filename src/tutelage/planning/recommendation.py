"""The result of planning, as plain values, a table, sentences and a configuration."""

import json
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, final

from msgspec import structs

from tutelage._internal.drawing import Bar, Bars, escape
from tutelage._internal.records import Entries, Names, frozen
from tutelage.exceptions import InvalidParameterError, literal
from tutelage.methods import Method
from tutelage.planning.methods import Target
from tutelage.planning.references import Guess
from tutelage.planning.trials import Safety
from tutelage.privacy import PublicEpsilon, round_up
from tutelage.reporting.lints import Case, lint
from tutelage.reporting.record import Finding
from tutelage.reporting.render import render
from tutelage.targets import Goal

if TYPE_CHECKING:
    from rich.table import Table

OWN_LABELS = "public-labels"
STAND_IN = "stand-in"
DECLARED = "declared-accuracy"
NOTHING = "nothing"
HEADINGS = ("method", "settings", "proved ε", "interval", "expected")
_EVIDENCE = {
    OWN_LABELS: "Whole runs were tried on the labeled public rows. The interval assumes that private rows are similar.",
    STAND_IN: "Whole runs were tried on the stand-in. How much the private rows differ from it is unknown.",
    DECLARED: "No labels were given. The accuracy follows from the one that was declared and from other data sets.",
    NOTHING: (
        "This is no prediction for your data, because only sizes are known. The interval spans what other data sets "
        "reached with as much noise per class, and classes are assumed to be equally frequent. Pass labeled public "
        "rows or a stand-in for a prediction. With a schema in place of public rows, there is nothing to plan: start "
        "`tutelage run` straight away, without [method]."
    ),
}
_LEAST_PRINTED = 0.0005  # a gain below this is printed as 0.0 points


@final
@frozen
class Option:
    """One method with its noise, proved ε and expected accuracy; public."""

    method: Method
    epsilon: PublicEpsilon  # proved, for any private rows
    # Accuracy of the student on rows like the public ones, or what it reaches of another goal.
    expected: float
    low: float  # bounds for nine of ten runs; 0 and 1 after a short trial
    high: float
    in_full: bool  # whether the method was tried in full
    # Whether nothing was tried, and the bounds are too far apart for a prediction.
    rough: bool = False

    @property
    def claim(self) -> str:
        """The proved ε, rounded upward."""
        return f"{round_up(self.epsilon.epsilon):.10g}"

    def cells(self) -> Names:
        """Return the cells of a table under `HEADINGS`."""
        settings = [f"{name} {value}" for name, value in settings_of(self.method).items()]
        interval = "short trial only"
        if self.in_full:
            interval = f"{self.low:.0%} to {self.high:.0%}"
        expected = "unknown" if self.rough else f"{self.expected:.1%}"
        return self.method.title, ", ".join(settings) or "default", self.claim, interval, expected

    def as_dict(self) -> Entries:
        """Return the option as plain values, for JSON."""
        return {
            "method": self.method.title,
            "settings": settings_of(self.method),
            "noise": self.method.noise,
            "epsilon": self.epsilon.epsilon,
            "expected": self.expected,
            "interval": [self.low, self.high] if self.in_full else None,
        }


@final
@frozen
class PlanPoint:
    """The expected accuracy at another ε."""

    epsilon: float
    expected: float


@final
@frozen
class Advice:
    """The expected accuracy with twice as much of something: public rows, people, or ε."""

    doubled: str
    expected: float


@final
@frozen
class Plan:
    """A recommended method for a target ε, with the expected accuracy of the student.

    Parameters
    ----------
    target : Target
        The target and the sizes.
    evidence : str
        Source of the prediction: ``"public-labels"``, ``"stand-in"``, ``"declared-accuracy"`` or ``"nothing"``.
    majority : float or None
        What one class for all rows reaches of the goal, if known: of accuracy the share of the most frequent class.
    alone : Guess or None
        The same of a model of the public labels alone, and its interval, if the run can start from them.
    options : tuple of Option
        All methods that were compared, the most accurate one first.
    best : Option
        The most accurate option that keeps ε, among those that were tried in full.
    recommended : Option or None
        The option to use: the best one. None if no method is expected to beat the majority class and public labels
        alone by half a point, beyond what chance explains.
    undecided : bool
        Whether no option is recommended, but a small gain over public labels is expected or, without these, trials
        had too few people to tell what yours would add: you decide.
    asked : Option or None
        The option with the settings that the caller asked about, if any. It is compared, and never recommended.
    curve : tuple of PlanPoint
        Expected accuracy of the best option against ε.
    advice : tuple of Advice
        Expected accuracy with twice as much of something.
    goal : str
        What the student is judged by, and all numbers are of: ``"accuracy"`` or ``"balanced_accuracy"``.
    reach : float or None
        How much of the goal was asked for.
    liars : int or None
        How many people could cast whatever they like, if this was asked.
    safety : tuple of Safety
        What stays right then, by the number of landmarks.
    """

    target: Target
    evidence: str
    options: tuple[Option, ...]
    best: Option
    recommended: Option | None
    curve: tuple[PlanPoint, ...]
    advice: tuple[Advice, ...]
    reach: float | None
    majority: float | None = None
    alone: Guess | None = None
    undecided: bool = False
    asked: Option | None = None
    goal: str = "accuracy"
    liars: int | None = None
    safety: tuple[Safety, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Objections that a privacy officer could raise."""
        target = self.target
        case = Case(
            epsilon=self.best.epsilon.epsilon,
            delta=target.delta,
            unit=target.unit,
            entities=target.people,
            classes=target.classes,
            tuned_on="public",
        )
        return lint(case)

    @property
    def possible(self) -> bool:
        """Whether the recommended option is expected to be useful, and to reach the goal if there is one."""
        return self.obstacle is None

    @property
    def obstacle(self) -> str | None:
        """Why the target is not expected to be reached and what helps, or why you decide; None if it is."""
        best = self.best
        with_epsilon = f"With ε = {self.target.epsilon:.10g} and {self.target.people:,} people"
        if self.recommended is None:
            rival = f"the majority class ({self.majority:.1%})"
            instead = "Release nothing"
            if self.alone is not None and self.alone.expected > (self.majority or 0):
                rival = f"a model of the public labels alone ({self.alone.expected:.1%})"
                instead = "Use that model, which costs no ε"
            if self.undecided and self.alone is not None:
                gain = best.expected - max(self.alone.expected, self.majority or 0)
                return (
                    f"{with_epsilon}, a release is expected to beat {rival} by about {100 * gain:.1f} points: too "
                    "little, or too uncertain, for a recommendation. You decide whether to spend the ε."
                )
            if self.undecided:
                return (
                    f"{with_epsilon}, trials cannot tell whether a release would beat {rival}. They saw no clear "
                    "gain, but with far fewer people: what so many more would add is unknown. You decide whether to "
                    "spend the ε."
                )
            return (
                f"{with_epsilon}, no method is expected to beat {rival} by more than chance: the best student is "
                f"expected to reach {self._share(best.expected)}. {instead}, or ask for more. {self._what_would_help()}"
            )
        if self.reach is not None and best.expected < self.reach:
            return (
                f"{with_epsilon}, the student is expected to reach {self._share(best.expected)} and not "
                f"{self.reach:.1%}; {self._what_would_reach(self.reach)}."
            )
        return None

    def _share(self, share: float) -> str:
        return f"{share:.1%} {Goal(self.goal).title}"

    def parameters(self, *, despite_plan: bool = False) -> Entries:
        """Return the parameters of `PATEClassifier` for the recommended option, ε and δ included.

        Parameters
        ----------
        despite_plan : bool
            Take the best option if none is recommended.

        Raises
        ------
        InvalidParameterError
            If no option is recommended, and `despite_plan` is not set.
        """
        if self.recommended is None and not despite_plan:
            raise InvalidParameterError(
                "Plan.parameters.despite_plan",
                "be True to continue, because the plan recommends no release",
                fix=literal(self.obstacle),
            )
        parameters: Entries = {
            "method": replace(self.best.method, mechanism=None),  # pyright: ignore[reportArgumentType]
            "epsilon": self.target.epsilon,
            "delta": self.target.delta,
        }
        if self.goal != "accuracy":
            parameters["goal"] = self.goal
        return parameters

    def sentences(self) -> Names:
        """Return the recommendation, what it rests on, and what would help, in a few sentences."""
        best = self.recommended
        asked = self.asked
        sentences = list[str]()
        if self.obstacle is not None:
            sentences.append(self.obstacle)
        if best is not None:
            sentences.append(f"Use {best.method.title}. {self._of_student(best)}.")
            sentences.append(
                f"The proved worst-case ε is {best.claim} at δ = {self.target.delta:.10g}."
            )
            sentences += self._of_report(best)
        if asked is not None and asked != best:
            too_much = ""
            if asked.epsilon.epsilon > self.target.epsilon:
                too_much = f", more than the target ε = {self.target.epsilon:.10g}"
            sentences.append(
                f"With the settings that you named ({asked.method.title}), the student is expected to reach "
                f"{self._share(asked.expected)}. They cost ε = {asked.claim}{too_much}."
            )
        sentences.append(_EVIDENCE[self.evidence])
        if self.safety:
            sentences.append(self._of_safety())
        if best is not None and not best.rough:
            sentences.append(self._what_would_help())
        return tuple(sentences)

    def _of_student(self, best: Option) -> str:
        """Return how accurate the student of an option is expected to be, beside what costs no privacy."""
        is_tried = self.evidence in (OWN_LABELS, STAND_IN)
        where = "in nine of ten runs" if is_tried else "on other data sets"
        interval = f"{best.low:.0%} to {best.high:.0%}"
        if best.rough:
            text = f"The student is right on {interval} of the rows {where}; how accurate it is on yours is unknown"
        else:
            reached = self._share(best.expected)
            text = f"The student is expected to reach {reached} on rows like the public ones ({interval} {where})"
        if self.majority is not None:
            text += f"; always naming the same class reaches {self.majority:.1%}"
        if self.alone is not None:
            text += f", and a model of the public labels alone {self.alone.expected:.1%}"
        return text

    def _of_safety(self) -> str:
        """Return what it costs to be safe from liars."""
        shares = [
            f"with {one.n_landmarks:,} landmarks, {one.right:.1%} of predictions are right and {one.safe:.1%} (± "
            f"{200 * one.error:.1f} points) stay so"
            for one in self.safety
        ]
        return (
            f"If any {self.liars:,} people cast whatever they like: {'; '.join(shares)}. That needs one round of "
            "ballots, and public labels that only score."
        )

    def _of_report(self, best: Option) -> list[str]:
        """Return what the test report will know."""
        of_all, of_tenth = (
            self.target.half_width_of_report(best.method, best.expected, share)
            for share in (1, 0.1)
        )
        if of_all is None:
            return []
        text = f"The test report will state the accuracy to within {100 * of_all:.1f} points"
        if of_tenth is not None:
            text += f", and that of a tenth of the people to within {100 * of_tenth:.1f}"
        return [f"{text}."]

    def _what_would_help(self) -> str:
        """Return what doubling something would come to; a gain too small to print is not a measurement of none."""
        sentences = list[str]()
        for advice in self.advice:
            gain = ", no gain was seen."
            if advice.expected - self.best.expected >= _LEAST_PRINTED:
                gain = f": {advice.expected:.1%}."
            sentences.append(f"With twice the {advice.doubled}{gain}")
        return " ".join(sentences)

    def _what_would_reach(self, share: float) -> str:
        """Return the ε of the curve that reaches so much of the goal, or that none does."""
        larger = (point for point in self.curve if point.epsilon > self.target.epsilon)
        reached = [point.epsilon for point in larger if point.expected >= share]
        if reached:
            return f"an ε of about {min(reached):g} would do"
        most = self.curve[-1]
        even = f"even at ε = {most.epsilon:g} it is {most.expected:.1%}"
        return f"{even}: more people, better features or a lower `reach` would help"

    def as_dict(self) -> Entries:
        """Return the plan as plain values, for JSON."""
        return {
            "version": 4,
            "possible": self.possible,
            "obstacle": self.obstacle,
            "target_epsilon": self.target.epsilon,
            "delta": self.target.delta,
            "people": self.target.people,
            "public_rows": self.target.public_rows,
            "classes": self.target.classes,
            "evidence": self.evidence,
            "majority": self.majority,
            "public_labels_alone": self.alone and self.alone._asdict(),
            "goal": self.goal,
            "reach": self.reach,
            "recommended": self.recommended and self.recommended.as_dict(),
            "undecided": self.undecided,
            "asked": self.asked and self.asked.as_dict(),
            "options": [option.as_dict() for option in self.options],
            "liars": self.liars,
            "safety": [one._asdict() for one in self.safety],
            "curve": [asdict(point) for point in self.curve],
            "if_doubled": [asdict(advice) for advice in self.advice],
            "findings": [structs.asdict(finding) for finding in self.findings],
        }

    def as_table(self) -> "Table":
        """Return the options as a rich table, the recommended one in bold."""
        from rich.box import SIMPLE_HEAD
        from rich.table import Table

        title = (
            f"target: ε = {self.target.epsilon:.10g} at δ = {self.target.delta:.10g}, worst case"
        )
        table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
        table.padding = (0, 1, 0, 0)
        table.pad_edge = False
        for heading in HEADINGS:
            is_text = heading in ("method", "settings")
            table.add_column(
                heading, justify="left" if is_text else "right", no_wrap=heading == "method"
            )
        for option in self.options:
            style = "bold" if option == self.recommended else None
            table.add_row(*option.cells(), style=style)
        for cells in self.without_release():
            table.add_row(*cells)
        return table

    def without_release(self) -> list[Names]:
        """Return the cells of a table under `HEADINGS` for what needs no release."""
        rows = list[Names]()
        alone = self.alone
        if alone is not None:
            interval = f"{alone.low:.0%} to {alone.high:.0%}"
            rows.append(
                ("public labels alone", "no release", "0", interval, f"{alone.expected:.1%}")
            )
        if self.majority is not None:
            rows.append(("majority class", "no release", "0", "", f"{self.majority:.1%}"))
        return rows

    @property
    def bars(self) -> Bars:
        """The accuracy to expect at other ε with the recommended method, below what needs no release."""
        shares = {
            "public labels alone": self.alone and self.alone.expected,
            "majority class": self.majority,
        }
        if not self.best.rough:
            shares |= {f"ε = {point.epsilon:.3g}": point.expected for point in self.curve}
        bars = [
            Bar(name, share, f"{share:.1%}") for name, share in shares.items() if share is not None
        ]
        title = f"Expected {Goal(self.goal).title} of the student, with the recommended method"
        return Bars(title, "ε", "Expected", bars, whole=1.0)

    def __html__(self) -> str:
        """Return what notebooks show."""
        return f"<p>{escape(' '.join(self.sentences()))}</p>{self.bars.__html__()}"

    _repr_html_ = __html__

    def as_html(self) -> str:
        """Return the plan as one HTML file, with the accuracy to expect at other ε."""
        return render("plan.jinja", "html", plan=self, headings=HEADINGS)

    def as_config(self) -> str:
        """Return the sections of a configuration of ``tutelage run`` that this plan settles, as TOML."""
        if self.recommended is None and not self.undecided:
            return ""
        privacy = f"[privacy]\nepsilon = {self.target.epsilon}\ndelta = {self.target.delta}\n"
        sections = [_section_of(self.best.method), privacy]
        if self.goal != "accuracy":
            sections.insert(0, f'# In [target]: goal = "{self.goal}"\n')
        return "\n".join(sections)


def settings_of(method: Method) -> Entries:
    """Return the settings of a method that differ from the defaults, but for mechanism and student."""
    settings = Entries()
    for field in fields(method):  # type: ignore[arg-type]
        value = getattr(method, field.name)
        if field.name not in ("mechanism", "student") and value != field.default:
            settings[field.name] = _in_words(value)
    return settings


def _section_of(method: Method) -> str:
    """Return the section ``[method]`` of a configuration, without the noise."""
    settings = {"name": method.name, **settings_of(method)}
    if method.student is not None:
        settings["student"] = _in_words(method.student)
    lines = [f"{name} = {json.dumps(value)}\n" for name, value in settings.items()]
    return "".join(["[method]\n", *lines])


def _in_words(value: object) -> str | int | float:
    """Return a setting as a configuration has it: an object by its name."""
    if isinstance(value, str | int | float):
        return value
    kind = type(value)
    public = kind.__module__.partition("._")[0]
    if public.startswith("sklearn."):
        return f"{public}.{kind.__name__}"
    return kind.__name__
