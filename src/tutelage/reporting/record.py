"""The parts of a privacy card: public values only, each as its annotation says.

The annotations are the allow-list: in a value of any other type, private numbers could hide. A card is what its file
would be read as, so that both are checked by the same rule.
"""

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Annotated, Literal, NamedTuple, Self, final

from msgspec import Meta, field

from tutelage._internal.drawing import Bar, Bars, round_up, with_sign
from tutelage._internal.records import Entries, Hash, Names, plain
from tutelage.events import Event, event_from_dict
from tutelage.exceptions import (
    InvalidParameterError,
    NotPublishableError,
    UnsupportedEventError,
)
from tutelage.privacy import PrivacyUnit, PublicEpsilon
from tutelage.reporting.meaning import interval
from tutelage.reporting.measured import Measured, MeasuredErrors
from tutelage.reporting.part import MOST, Amount, Count, Part, Share

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
NOISE_FROM_SHARES = "noise-from-shares"  # the objection that several hospitals made the noise
_BLANK_LETTERS = "\u115f\u1160\u3164\uffa0"  # letters that show nothing
_LONGEST = 4000
_MOST_BARS = 12


@final
class Finding(Part, frozen=True):
    """One objection; public, because it is made of public settings only.

    Parameters
    ----------
    code : str
        The kind of objection, for machines: ``"delta-too-large"``.
    severity : {"warning", "danger"}
        Whether the guarantee or the student is weaker than it seems, or useless.
    reason : str
        The fault, why it matters, and the fix.
    """

    code: str
    severity: Literal["warning", "danger"]
    reason: str

    def __str__(self) -> str:
        """Return the fault alone, as the first page of a card and a screen show it."""
        return f"{self.severity.capitalize()}: {self.reason.partition('. ')[0].removesuffix('.')}."


@final
class BatchCost(Part, frozen=True):
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
    queries: Count
    checks: Amount
    answers: Amount
    sums: Count = 0

    @property
    def share(self) -> float:
        """Spend of the whole batch, as a share of the budget's ε."""
        return self.checks + self.answers

    @classmethod
    def merge(cls, batches: Sequence[Self], most: int) -> tuple[Self, ...]:
        """Return at most `most` batches with the same sums: neighbors in time are one, named by its last."""
        groups = min(len(batches), most)
        ends = [len(batches) * number // groups for number in range(1, groups + 1)]
        merged = list[Self]()
        start = 0
        for end in ends:
            part = batches[start:end]
            merged.append(
                cls(
                    written=part[-1].written,
                    queries=sum(batch.queries for batch in part),
                    checks=sum(batch.checks for batch in part),
                    answers=sum(batch.answers for batch in part),
                    sums=sum(batch.sums for batch in part),
                )
            )
            start = end
        return tuple(merged)


@final
class FrontierPoint(Part, frozen=True):
    """The worst-case cost of a number of queries, released at once by the mechanism of the card.

    Parameters
    ----------
    queries : int
        Number of queries.
    epsilon : PublicEpsilon
        The cost, for all possible votes.
    """

    queries: Count
    epsilon: PublicEpsilon


@final
class ClassAccuracy(Part, frozen=True):
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
    rows: Count
    right: Count

    @property
    def share(self) -> float:
        """Share of the rows that is right."""
        return self.right / self.rows

    @property
    def interval(self) -> tuple[float, float]:
        """Bounds of the share: Wilson's 95 % score interval."""
        return interval(self.right, self.rows)


@final
class Reached(Part, frozen=True):
    """How much of a goal is reached on the public labeled rows, as a share."""

    goal: str
    student: Share
    public_labels: Share | None  # by a model of public labels alone, if there is one
    no_model: Share  # by one class for all rows


@final
class Survived(Part, frozen=True):
    """Share of the public labeled rows whose predictions no 10, and no 50, liars can change."""

    ten: Share
    fifty: Share


@final
class Influence(Part, frozen=True):
    """How far the cells of one column move the score of a class, in a student that is a table of effects."""

    column: str
    name: str  # of the class
    lowest: str  # cells with the smallest effect
    highest: str
    distance: Amount  # between both effects


@final
class Curve(Part, frozen=True):
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
        bands = zip(self.effects, self.noise, strict=True)
        return min(effect - noise for effect, noise in bands)

    @property
    def highest(self) -> float:
        """The upper end of all bands."""
        bands = zip(self.effects, self.noise, strict=True)
        return max(effect + noise for effect, noise in bands)

    @property
    def bars(self) -> Bars:
        """The curve as bars for a terminal, one for neighboring cells with the same effect."""
        bars = list[Bar]()
        cells = zip(self.cells, self.effects, self.noise, strict=True)
        alike_by = itemgetter(1, 2) if self.ordered else itemgetter(0, 1, 2)
        for (*_, effect, noise), alike in groupby(cells, alike_by):
            names = [name for name, *_ in alike]
            name = names[0]
            if len(names) > 1:
                name = f"{name.split(' to ')[0]} to {names[-1].split(' to ')[-1]}"
            bars.append(Bar(name, effect, f"{with_sign(effect)} ± {noise:.2g}", noise))
        return Bars(f"{self.column}: effect on {self.name}", self.column, "Effect", bars)


@final
class Errors(Part, frozen=True):
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
    rows: Count
    typical: Amount
    of_mean: Amount
    within: Share
    of_public: Amount | None = None

    @property
    def r_squared(self) -> float:
        """R²: the share of the variance that the student explains."""
        if not self.of_mean:
            return 0.0
        return 1 - (self.typical / self.of_mean) ** 2


@final
class Raised(Part, frozen=True):
    """A raise of the budget, as in the ledger."""

    before: Amount
    epsilon: Amount
    delta: Share
    by: str
    why: str
    written: str


@final
class Proposed(Part, frozen=True):
    """The record of a proposal, as in the ledger."""

    kind: str
    format: int
    epsilon: Amount
    delta: Share
    order: Amount
    caps: tuple[Amount, ...]
    chances: tuple[int, ...]
    unit: PrivacyUnit


@final
class Guarantee(Part, frozen=True, kw_only=True):
    """The ε that is published, and the event that it is of.

    Parameters
    ----------
    epsilon : PublicEpsilon
        The publishable guarantee.
    event : dict
        The record of the event that ε is of: `recorded`.
    tested : PublicEpsilon, optional
        A second, smaller ε that was computed from the votes, and that noise or a private test made publishable. It
        is shown beside the first ε and never instead of it.
    proposal : Proposed, optional
        The proposal that proves `tested`.
    alone : PublicEpsilon, optional
        ε of this release by itself, if `epsilon` covers everything released through the ledger. `tested` is then
        of this release too.
    if_added_or_removed : float, optional
        ε of this release, at the δ of `epsilon`, if units are only added or removed; for releases in which each unit
        casts one ballot and the number of units is private. It covers fewer changes than `epsilon`.
    """

    epsilon: PublicEpsilon
    event: Entries
    tested: PublicEpsilon | None = None
    proposal: Proposed | None = None
    alone: PublicEpsilon | None = None
    if_added_or_removed: Amount | None = None


@final
class ReleasePart(Part, frozen=True, kw_only=True):
    """How a release was made.

    Parameters
    ----------
    mechanism : str
        The mechanism in words, with its parameters.
    noise_source : str
        The source of the noise.
    queries : int
        Queries asked.
    answered, teachers : int or None
        Queries with a label, and teachers that could vote; None if the number was not recorded.
    selection : str
        How the queries were chosen among the public rows.
    classes : tuple of str
        The declared classes.
    features : tuple of str
        The columns of a row, in the order of the student; numbers for columns without names.
    feature_map : str
        The map from columns to the input of the student, and the rows it was learned from; "none" if there is no map.
    versions : dict of str to str
        Versions of the software.
    created : str
        UTC day of the release in ISO 8601.
    """

    mechanism: str
    noise_source: str
    queries: Count
    answered: Count | None
    teachers: Count | None
    selection: str = "as given"
    classes: Names = ()
    features: Names = ()
    feature_map: str = "none"
    versions: dict[str, str] = field(default_factory=dict)
    created: str


@final
class Judged(Part, frozen=True, kw_only=True):
    """The measured quality of a student, on public rows and on the people, as far as it was measured.

    Parameters
    ----------
    by_class : tuple of ClassAccuracy
        The accuracy by class, on labeled rows.
    public_labels : float, optional
        Accuracy, on the same rows, of a model of public labels alone, which costs nobody any privacy.
    goals : tuple of Reached
        How much of the goal is reached on the same rows, if the goal is not accuracy.
    errors : tuple of Errors
        How wrong a student that predicts numbers is.
    survived : Survived, optional
        Share of predictions that 10, and 50, lying people cannot change, if the student has a certificate.
    on_people, errors_on_people : Measured or MeasuredErrors, optional
        The test report: its quality on the people themselves, by a noisy sum.
    """

    by_class: tuple[ClassAccuracy, ...] = ()
    public_labels: Share | None = None
    goals: tuple[Reached, ...] = ()
    errors: tuple[Errors, ...] = ()
    survived: Survived | None = None
    on_people: Measured | None = None
    errors_on_people: MeasuredErrors | None = None

    @property
    def rows(self) -> int:
        """Number of labeled rows."""
        return sum(entry.rows for entry in self.by_class)

    @property
    def accuracy(self) -> float | None:
        """Share of the labeled rows that the student labels correctly; None if there are no such rows."""
        if not self.rows:
            return None
        return sum(entry.right for entry in self.by_class) / self.rows

    @property
    def accuracy_interval(self) -> tuple[float, float] | None:
        """Bounds of the accuracy: Wilson's 95 % score interval; None if there are no labeled rows."""
        if not self.rows:
            return None
        return interval(sum(entry.right for entry in self.by_class), self.rows)

    @property
    def majority(self) -> float | None:
        """Share of the most frequent class among the labeled rows; None if there are no such rows."""
        if not self.rows:
            return None
        return max(entry.rows for entry in self.by_class) / self.rows


@final
class StudentPart(Part, frozen=True, kw_only=True):
    """The student, and how good it is.

    Parameters
    ----------
    name : str
        The estimator of the student.
    class_weight : dict of str to float
        How much each class counts in predictions; empty if classes count alike.
    judged : Judged
        Its quality on public rows.
    influences : tuple of Influence
        The columns that move scores furthest, if the student is a table of effects.
    curves : tuple of Curve
        The effects of these columns, at most six, to be drawn.
    """

    name: str
    class_weight: dict[str, Amount] = field(default_factory=dict)
    judged: Judged = Judged()
    influences: tuple[Influence, ...] = ()
    curves: tuple[Curve, ...] = ()


@final
class TierPart(Part, frozen=True):
    """People who asked for a smaller ε, and what they have.

    Parameters
    ----------
    name : str
        Their tier.
    length : float
        Length of their ballots, as a share of that of other ballots.
    epsilon : PublicEpsilon
        Their guarantee, of the same releases as the ε of the card.
    """

    name: str
    length: Share
    epsilon: PublicEpsilon


@final
class BudgetPart(Part, frozen=True, kw_only=True, omit_defaults=True):
    """The state of the ledger after the release, by the names of `LedgerState`, and what was spent on.

    Parameters
    ----------
    batches : tuple of BatchCost
        The releases that spent the budget so far, in order.
    frontier : tuple of FrontierPoint
        The costs of other numbers of queries, at the δ of the card's ε.
    tiers : tuple of TierPart
        The tiers of people, if they have any.
    """

    budget: Annotated[float, Meta(gt=0, le=MOST)]
    delta: Share
    spent: Amount
    entries: Count
    head: Hash
    remaining: Amount | None = None
    order: Amount | None = None
    accounting: str | None = None
    unit: str | None = None
    neighboring: str | None = None
    opened: str | None = None
    answers: Count | None = None
    unsettled: Count | None = None
    bound: bool | None = None
    simulated: bool | None = None
    # Not `dict[str, Amount]`: an empty one of that type would be written, and is not in files.
    cohorts: dict[str, Amount] = field(default_factory=dict)
    so_far: Amount | None = None
    raised: tuple[Raised, ...] = ()
    batches: tuple[BatchCost, ...] = ()
    frontier: tuple[FrontierPoint, ...] = ()
    tiers: tuple[TierPart, ...] = ()

    @property
    def spending(self) -> "_Spending":
        """The budget as every page prints it."""
        whole = round_up(self.budget)
        used = min(whole, round_up(self.spent))
        return _Spending(whole, used, round(whole - used, 9))

    @property
    def spent_on_checks(self) -> float:
        """What checks and publications spent, as it is printed."""
        return min(self.spending.spent, round_up(sum(batch.checks for batch in self.batches)))

    @property
    def bars(self) -> list[tuple[BatchCost, float]]:
        """The batches, merged to at most 12, each with its share as it is printed; they add up to what is spent."""
        batches = BatchCost.merge(self.batches, _MOST_BARS)
        spent = self.spending.spent
        exact = 0.0
        before = 0.0
        bars = list[tuple[BatchCost, float]]()
        for batch in batches:
            exact += batch.share
            after = spent if batch is batches[-1] else min(spent, round_up(exact))
            bars.append((batch, round(after - before, 9)))
            before = after
        return bars


class _Spending(NamedTuple):
    """A budget as it is printed: `spent` is rounded upward, and `left` is the rest, so that both add up."""

    budget: float
    spent: float
    left: float

    def __str__(self) -> str:
        return f"{self.spent:.10g} is spent" if self.left else "all of it is spent"


def check_statements(statements: dict[str, str]) -> None:
    """Refuse a statement on an unknown topic, and one that is empty or too long."""
    for topic, text in statements.items():
        if topic not in STATEMENTS:
            raise InvalidParameterError(
                "the card.statements",
                f"have only these topics: {', '.join(STATEMENTS)}",
                f"{topic!r}",
            )
        is_blank = not any(sign.isalnum() and sign not in _BLANK_LETTERS for sign in text)
        if is_blank or len(text) > _LONGEST:
            raise InvalidParameterError(
                f"the statements.{topic}",
                f"be text of at most {_LONGEST:,} characters, with a letter or digit",
                f"{len(text):,} characters",
            )


def record_of(event: Event) -> Entries:
    """Return the record of an event, for a card; refuse events that `tutelage.events` does not know."""
    refusal = NotPublishableError("A card takes the events of `tutelage.events` only.")
    try:
        record = plain(event.as_dict())
        known = event_from_dict(record)
    except (AttributeError, TypeError, UnsupportedEventError):
        raise refusal from None
    if known != event:
        raise refusal
    return record
