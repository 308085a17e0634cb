"""The values of a privacy card: public values only, each checked for its type and range.

The annotations are the allow-list. In a field of any other type, private numbers could hide.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, is_dataclass
from functools import cache
from operator import add, sub
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, final, get_args, get_origin, get_type_hints

from tutelage._internal import drawing
from tutelage._internal.drawing import Bars
from tutelage._internal.records import Entries, Names, frozen
from tutelage.events import (
    Composed,
    Event,
    NoisyBallot,
    NoisySumGaussian,
    PublicationTest,
    RandomizedResponse,
    Repeated,
    Single,
    SummedNoise,
    TruncatedGeometricResponse,
)
from tutelage.exceptions import InvalidParameterError, NotPublishableError, Problem
from tutelage.privacy import NeighboringRelation, PublicEpsilon, round_up
from tutelage.reporting.lints import NOISE_FROM_SHARES, Finding
from tutelage.reporting.meaning import interval

# Statements that only the people behind the data can make, in their own words, for a card to quote: the topics
# of the first page, then those of the annex. A topic is in files, so it is never renamed.
FIRST_PAGE = {
    "title": "the name of this release",
    "private_data": "the private data and their source",
    "controller": "the organization that decides why and how the data are used",
    "purpose": "the purpose of this release",
    "people": "the people in the data, and their number if it may be public",
    "intended_use": "the intended use of the labels and the student",
    "excluded_use": "the uses that are excluded",
    "without_privacy": "the accuracy of a model without privacy on the same rows",
    "signed_by": "the name and role of the person who signs",
    "review_date": "the date of the next review",
}
STATEMENTS = {
    **FIRST_PAGE,
    "public_data": "the public rows or the schema, their source, and why they may be public",
    "collection": "why the private data were collected, on which legal basis, and how long they are kept",
    "leaves_site": "what leaves each site, and how",
    "trust": "who is trusted with what: data set owners, operators, other sites, cloud providers",
    "why_epsilon": "why this ε was chosen",
    "evidence": "independent evidence: audits, reviews and their results",
    "side_channels": "measures against side channels",
    "access": "how private files are secured, and who may read them",
    "withdrawal": "what happens if a site drops out or is dishonest, or a person withdraws consent",
    "overlap": "how private rows were searched for in the public data",
    "fairness": "which groups are served worse, and what was done about it",
    "other_releases": "other releases from the same private data",
    "legal": "the legal assessment: where it is kept, and its conclusion",
    "exit": "how the software was obtained and can be rebuilt, and which network it may reach",
}
NOT_RECORDED = "not stated"  # of what a ledger does not record; in files
_BLANK_LETTERS = "\u115f\u1160\u3164\uffa0"  # letters that show nothing
_LONGEST = 4000
_MOST = 1e15  # whole numbers up to it are floats exactly
_MOST_BARS = 12
_EVENTS = {*get_args(Single), Repeated, Composed}


_SIGNED = ("curves", "errors")  # their numbers may be below 0
_NEEDED = ("budget", "delta", "spent", "entries", "head")
# What the dictionaries of a card may contain: `LedgerState.as_dict`, and `tutelage.publishing.recording.record_of`.
_ENTRIES: dict[str, Entries] = {
    "budget": {
        "budget": float, "delta": float, "spent": float, "entries": int, "head": str, "remaining": float,
        "order": float, "unit": str, "neighboring": str, "opened": str, "accounting": str, "answers": int,
        "unsettled": int, "bound": bool, "simulated": bool, "cohorts": dict[str, float],
        "so_far": float,
        "raised": list[dict[str, float | str]],
    },
    "proposal": {
        "kind": str, "format": int, "epsilon": float, "delta": float, "order": float, "caps": list[float],
        "chances": list[int], "unit": dict[str, str],
    },
}  # fmt: skip


@final
@frozen
class Batch:
    """Budget that one batch of queries spent, by worst-case costs.

    Parameters
    ----------
    written : str
        UTC day of its release in ISO 8601.
    queries : int
        Number of queries; 0 for noisy sums, and for the publication of an ε.
    checks, answers : float
        What its checks or the publication, and what its labels or sums spent, as shares of the budget's ε.
    sums : int
        Number of noisy sums.
    """

    written: str
    queries: int
    checks: float
    answers: float
    sums: int = 0

    @property
    def share(self) -> float:
        """Spend of the whole batch, as a share of the budget's ε."""
        return self.checks + self.answers


@final
@frozen
class FrontierPoint:
    """The worst-case cost of a number of queries, released at once by the mechanism of the card.

    Parameters
    ----------
    queries : int
        Number of queries.
    epsilon : PublicEpsilon
        The cost, for all possible votes.
    """

    queries: int
    epsilon: PublicEpsilon


@final
@frozen
class ClassAccuracy:
    """Accuracy of the student on the public labeled rows of one class.

    Parameters
    ----------
    name : str
        The class.
    rows : int
        Number of public rows with this label.
    right : int
        Number of these rows that the student labels correctly.
    """

    name: str
    rows: int
    right: int

    @property
    def share(self) -> float:
        """Share of the rows that is right."""
        return self.right / self.rows

    @property
    def interval(self) -> tuple[float, float]:
        """Bounds of the share: Wilson's 95 % score interval."""
        return interval(self.right, self.rows)


@final
@frozen
class Reached:
    """How much of a goal is reached on the public labeled rows, as a share."""

    goal: str
    student: float
    public_labels: float | None  # by a model of public labels alone, if there is one
    no_model: float  # by one class for all rows


@final
@frozen
class Influence:
    """How far the cells of one column move the score of a class, in a student that is a table of effects."""

    column: str
    name: str  # of the class
    lowest: str  # cells with the smallest effect
    highest: str
    distance: float  # between both effects


@final
@frozen
class Curve:
    """The effects of the cells of one column, in a student that is a table of effects.

    Parameters
    ----------
    column, name : str
        The column, and the class whose score it moves, or the target.
    ordered : bool
        Whether the cells are intervals of a number, in order; otherwise they are categories.
    cells : list of str
        The cells in words.
    effects, noise : list of float
        The effect of each cell, and the half-width of its band: two standard deviations of the privacy noise.
    """

    column: str
    name: str
    ordered: bool
    cells: list[str]
    effects: list[float]
    noise: list[float]

    @property
    def lowest(self) -> float:
        """The lower end of all bands."""
        return min(map(sub, self.effects, self.noise))

    @property
    def highest(self) -> float:
        """The upper end of all bands."""
        return max(map(add, self.effects, self.noise))

    @property
    def bars(self) -> Bars:
        """The curve as bars for a terminal, one for neighboring cells with the same effect."""
        return drawing.bars_of_curve(self)


@final
@frozen
class Errors:
    """How wrong a student that predicts numbers is on public rows, in the unit of the number.

    Parameters
    ----------
    low, high : float
        The declared range of the number.
    rows : int
        Number of public rows.
    typical, of_mean : float
        Root of the mean squared error of the student, and of always predicting the mean of these rows.
    within : float
        Share of the rows between the predicted quantiles 0.1 and 0.9.
    of_public : float, optional
        Root of the mean squared error of a model of public targets alone.
    """

    low: float
    high: float
    rows: int
    typical: float
    of_mean: float
    within: float
    of_public: float | None = None

    @property
    def explained(self) -> float:
        """R²: the share of the variance that the student explains."""
        return 1 - (self.typical / self.of_mean) ** 2 if self.of_mean else 0.0


class Spending(NamedTuple):
    """A budget as it is printed: `spent` is rounded upward, and `left` is the rest, so that both add up."""

    budget: float
    spent: float
    left: float

    @classmethod
    def of(cls, budget: float, spent: float) -> "Spending":
        """Return the numbers to print."""
        whole = round_up(budget)
        used = min(whole, round_up(spent))
        return cls(whole, used, round(whole - used, 9))

    def __str__(self) -> str:
        return "all of it is spent" if not self.left else f"{self.spent:.10g} is spent"


_SUMS = ("queries", "checks", "answers", "sums")


def merged(batches: Sequence[Batch], most: int) -> tuple[Batch, ...]:
    """Return at most `most` batches with the same sums: batches next in time are merged, each named by its last."""
    groups = min(len(batches), most)
    found = list[Batch]()
    for number in range(groups):
        first = len(batches) * number // groups
        part = batches[first : len(batches) * (number + 1) // groups]
        sums = (sum(getattr(one, name) for one in part) for name in _SUMS)
        found.append(Batch(part[-1].written, *sums))
    return tuple(found)


def check_statements(statements: dict[str, str]) -> None:
    """Refuse a statement on an unknown topic, and one that is empty or too long."""
    for topic, text in statements.items():
        if topic not in STATEMENTS:
            raise InvalidParameterError(
                Problem("the card.statements", f"have only these topics: {', '.join(STATEMENTS)}", f"{topic!r}")
            )
        if not any(one.isalnum() and one not in _BLANK_LETTERS for one in text) or len(text) > _LONGEST:
            raise InvalidParameterError(
                Problem(
                    f"the statements.{topic}",
                    f"be text of at most {_LONGEST:,} characters, with a letter or digit",
                    f"{len(text):,} characters",
                )
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class CardRecord:
    """The values of a card, as `PrivacyCard` describes them."""

    epsilon: PublicEpsilon
    sanitised: PublicEpsilon | None = None
    proposal: Entries | None = None
    alone: PublicEpsilon | None = None
    if_added_or_removed: float | None = None
    event: Event
    mechanism: str
    noise_source: str
    queries: int
    answered: int | None
    teachers: int | None
    selection: str = "as given"
    classes: Names
    features: Names
    feature_map: str = "none"
    student: str
    student_accuracy: float | None
    evaluation_rows: int
    public_labels_accuracy: float | None = None
    goals: tuple[Reached, ...] = ()
    class_weight: dict[str, float] = field(default_factory=dict)
    accuracy_by_class: tuple[ClassAccuracy, ...] = ()
    influences: tuple[Influence, ...] = ()
    curves: tuple[Curve, ...] = ()
    errors: tuple[Errors, ...] = ()
    budget: Entries
    batches: tuple[Batch, ...] = ()
    frontier: tuple[FrontierPoint, ...] = ()
    findings: tuple[Finding, ...] | None = None
    statements: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    created: str

    def __post_init__(self) -> None:
        for name, hint in _hints(CardRecord).items():
            check_public(getattr(self, name), hint, name)
        budget = self.budget
        for name in _NEEDED:
            if name not in budget:
                raise InvalidParameterError(Problem("a card.budget", f"have an entry `{name}`"))
            _check_range(budget[name], f"budget[{name!r}]")
        if not budget["budget"] > 0 or not re.fullmatch("[0-9a-f]{64}", budget["head"]):
            raise InvalidParameterError(
                Problem("a card.budget", "have a `budget` above 0 and a `head` of 64 hexadecimal digits")
            )
        _check_range(self.student_accuracy, "student_accuracy", 1)
        _check_range(self.public_labels_accuracy, "public_labels_accuracy", 1)
        for goal in self.goals:
            for share in (goal.student, goal.public_labels, goal.no_model):
                _check_range(share, "goals", 1)
        _check_range(self.if_added_or_removed, "if_added_or_removed", self.epsilon.epsilon)
        _check_range(self.answered, "answered", self.queries)
        for entry in self.accuracy_by_class:
            _check_range(entry.right, "accuracy_by_class.right", entry.rows)
        for one in self.curves:
            if not len(one.cells) == len(one.effects) == len(one.noise) > 0 <= min(one.noise):
                raise InvalidParameterError(
                    Problem("a card.curves", "have one effect and one noise for each cell, and no negative noise")
                )
        for one in self.errors:
            for name in ("rows", "typical", "of_mean", "of_public"):
                _check_range(getattr(one, name), f"errors.{name}")
            _check_range(one.within, "errors.within", 1)
        check_statements(self.statements)
        self._check_costs()
        if self.event.is_simulated and not self.epsilon.simulated:
            raise NotPublishableError("The event was made with simulated noise, so its epsilon must be marked so too.")

    def _check_costs(self) -> None:
        """Refuse costs in the wrong field, or about another unit of privacy."""
        first = self.alone or self.epsilon
        second = self.sanitised
        always = [self.epsilon, first, *(point.epsilon for point in self.frontier)]
        if any(cost.output_dependent for cost in always):
            raise NotPublishableError(
                "`epsilon`, `alone` and `frontier` of a card must be worst-case ε. Put an ε that holds only for what "
                "was released into `sanitised`."
            )
        if second is not None and (not second.output_dependent or second.epsilon >= first.epsilon):
            raise NotPublishableError(
                "`sanitised` of a card must be an ε that holds only for what was released, below the worst-case ε. "
                "Leave `sanitised` out, or put the smaller worst-case ε into `epsilon`."
            )
        entity = self.epsilon.unit.neighboring is NeighboringRelation.ADD_REMOVE_OR_CHANGE_ONE_ENTITY
        if self.if_added_or_removed is not None and not entity:
            raise NotPublishableError(
                "`if_added_or_removed` of a card needs a unit of privacy that may be added and removed. Leave it out."
            )
        costs = always if second is None else [*always, second]
        if len({(cost.unit, cost.simulated) for cost in costs}) > 1:
            raise NotPublishableError(
                "`sanitised`, `alone` and `frontier` of a card must be about the same unit of privacy as its "
                "`epsilon`, and simulated only where that is."
            )
        for cost in costs:
            _check_range(cost.delta, "delta", 1)

    @property
    def missing(self) -> Names:
        """Topics without a statement."""
        return tuple(topic for topic in STATEMENTS if topic not in self.statements)

    @property
    def covers_ledger(self) -> bool:
        """Whether `epsilon` bounds everything that is ever released through the ledger, not only this release."""
        return self.epsilon.epsilon >= self.budget["budget"] and self.epsilon.delta >= self.budget["delta"]

    @property
    def whole_budget(self) -> PublicEpsilon:
        """The guarantee once all of the budget is spent."""
        return PublicEpsilon(self.budget["budget"], self.budget["delta"], self.epsilon.unit, "budget")

    @property
    def model(self) -> str:
        """The deployment model: "central", "federated" if hospitals add up noise, "local" if each randomizes votes."""
        parts = [part.event for part in self.event.flatten()]
        if any(isinstance(part, RandomizedResponse | TruncatedGeometricResponse | NoisyBallot) for part in parts):
            return "local"
        found = any(one.code == NOISE_FROM_SHARES for one in self.findings or ())
        return "federated" if found or any(isinstance(part, SummedNoise) for part in parts) else "central"

    @property
    def of_ledger(self) -> bool:
        """Whether the card was made of a ledger alone, which records no student."""
        return self.student == NOT_RECORDED

    @property
    def releases_sums(self) -> bool:
        """Whether noisy sums of ballots were released, and no votes on single rows."""
        return all(isinstance(part.event.without_shares(), NoisySumGaussian) for part in self.event.flatten())

    @property
    def sums(self) -> int:
        """How many noisy sums were released."""
        return self._times(NoisySumGaussian)

    @property
    def tests(self) -> int:
        """How many tests of a smaller ε were released."""
        return self._times(PublicationTest)

    def _times(self, kind: type[Event]) -> int:
        parts = self.event.flatten()
        return sum(part.times for part in parts if isinstance(part.event.without_shares(), kind))

    @property
    def spending(self) -> Spending:
        """The budget as every page prints it."""
        return Spending.of(self.budget["budget"], self.budget["spent"])

    @property
    def usage(self) -> str:
        """How ε, what is spent of a budget of which some is left, and the ε of what was released so far differ."""
        spending = self.spending
        so_far = self.budget.get("so_far")
        if not spending.left or self.epsilon.simulated:
            return ""
        of = "Everything released from this budget" if self.covers_ledger else "This release"
        said = f"{of}: ε = {round_up(self.epsilon.epsilon):.4f}. "
        said += f"It used {spending.spent:.4f} of the budget of {spending.budget:.10g}."
        if so_far is None or so_far >= spending.budget:
            return said
        return f"{said} If you stop here because of what you saw, quote {round_up(so_far):.4f}."

    @property
    def spent_on_checks(self) -> float:
        """What checks and publications spent, as it is printed."""
        return min(self.spending.spent, round_up(sum(batch.checks for batch in self.batches)))

    @property
    def bars(self) -> list[tuple[Batch, float]]:
        """The batches, merged to at most 12, each with its share as it is printed; they add up to what is spent."""
        shown = merged(self.batches, _MOST_BARS)
        spent = self.spending.spent
        until = 0.0
        told = 0.0
        found = list[tuple[Batch, float]]()
        for batch in shown:
            until += batch.share
            upto = spent if batch is shown[-1] else min(spent, round_up(until))
            found.append((batch, round(upto - told, 9)))
            told = upto
        return found

    @property
    def majority_share(self) -> float | None:
        """Share of the most frequent class among the public labeled rows; None if there are no such rows."""
        rows = sum(entry.rows for entry in self.accuracy_by_class)
        return max(entry.rows for entry in self.accuracy_by_class) / rows if rows else None


_hints = cache(get_type_hints)


def check_public(value: Any, hint: Any, where: str, *, ranged: bool = True) -> None:
    """Refuse a value that its annotation does not allow, however deeply nested; numbers are from 0 on if `ranged`."""
    options = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    kind = type(value)
    if kind is not NoneType and any(isinstance(one, type) and issubclass(one, Event) for one in options):
        if kind not in _EVENTS:
            raise _refusal(where, "takes the events of `tutelage.events` only", value)
        options, ranged = (kind,), False  # an event checks its ranges itself
    chosen = next((one for one in options if kind is _type_of(one) or (one is float and kind is int)), None)
    if chosen is None:
        takes = " or ".join("None" if one is NoneType else _type_of(one).__name__ for one in options)
        raise _refusal(where, f"takes {takes} only", value)
    if kind is str and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise InvalidParameterError(
            Problem(f"a card.{where}", "be text that UTF-8 can encode", fix="It has lone surrogates.")
        )
    if kind is float and not math.isfinite(value):
        raise InvalidParameterError(Problem(f"a card.{where}", "be a finite number", f"{value!r}"))
    if ranged:
        _check_range(value, where)
    for name, part, of_part in _parts(value, chosen, where):
        check_public(part, of_part, name, ranged=ranged and where not in _ENTRIES and where not in _SIGNED)


def _parts(value: Any, hint: Any, where: str) -> list[tuple[str, object, Any]]:
    """Return what a value of that annotation holds: the place, the value and the annotation of each part."""
    if type(value) is dict:
        known = _ENTRIES.get(where) or dict.fromkeys(value, get_args(hint)[1])
        for name, part in value.items():
            check_public(name, str, f"{where} keys")
            if name not in known:
                raise _refusal(where, f"takes only {', '.join(known)}", part)
        return [(f"{where}[{name!r}]", part, known[name]) for name, part in value.items()]
    if type(value) in (tuple, list):
        return [(f"{where}[{number}]", part, get_args(hint)[0]) for number, part in enumerate(value)]
    if is_dataclass(value):
        return [(f"{where}.{name}", getattr(value, name), part) for name, part in _hints(type(value)).items()]
    return []


def _type_of(hint: Any) -> type:
    origin = get_origin(hint) or hint
    return str if origin is Literal else origin  # `Finding` checks which word it is


def _check_range(value: object, where: str, most: float = _MOST) -> None:
    """Refuse a number that is not from 0 to `most`; other values pass."""
    if type(value) in (float, int) and not 0 <= value <= most:  # type: ignore[operator]
        raise InvalidParameterError(Problem(f"a card.{where}", f"be from 0 to {most:g}"))


def _refusal(where: str, takes: str, value: object) -> NotPublishableError:
    return NotPublishableError(
        f"`{where}` of a card {takes}. Got a {type(value).__name__}, which may depend on the private votes."
    )
