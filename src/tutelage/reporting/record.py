"""The values of a privacy card: public values only, each checked for type and range."""

from dataclasses import dataclass, field, fields
from types import NoneType
from typing import Any

from tutelage.events import (
    Event,
    NoisyBallot,
    NoisySumGaussian,
    RandomizedResponse,
    SummedNoise,
    TruncatedGeometricResponse,
)
from tutelage.exceptions import InvalidParameterError, NotPublishableError
from tutelage.privacy import NeighboringRelation, PublicEpsilon
from tutelage.reporting.evidence import Batch, ClassAccuracy, FrontierPoint, Spending
from tutelage.reporting.lints import NOISE_FROM_SHARES, Finding
from tutelage.reporting.publishable import (
    check_all,
    check_budget,
    check_kinds,
    check_number,
    check_proposal,
    check_public,
    check_table,
)

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
    "public_data": "the public rows, their source, and why they may be public",
    "collection": "why the private data were collected, on which legal basis, and how long they are kept",
    "leaves_site": "what leaves each site, and how",
    "trust": "who is trusted with what: data set owners, operators, other sites, cloud providers",
    "why_epsilon": "why this ε was chosen",
    "evidence": "independent evidence: audits, reviews and their results",
    "side_channels": "measures against side channels",
    "access": "how private files are secured, and who may read them",
    "withdrawal": "what happens if a site drops out or is dishonest, or a person withdraws consent",
    "overlap": "how private rows were searched for among the public rows",
    "fairness": "which groups are served worse, and what was done about it",
    "other_releases": "other releases from the same private data",
    "legal": "the legal assessment: where it is kept, and its conclusion",
    "exit": "how the software was obtained and can be rebuilt; which network it may reach",
}
_LONGEST = 4000
# A field of another type could contain a list of private numbers.
_KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("mechanism", "noise_source", "selection", "feature_map", "student", "created"), (str,)),
    **dict.fromkeys(("queries", "evaluation_rows"), (int,)),
    **dict.fromkeys(("answered", "teachers"), (int, NoneType)),
    **dict.fromkeys(("student_accuracy", "if_added_or_removed"), (float, int, NoneType)),
    **dict.fromkeys(("sanitised", "alone"), (PublicEpsilon, NoneType)),
}
_TUPLES: dict[str, type] = {
    "classes": str, "features": str, "accuracy_by_class": ClassAccuracy, "batches": Batch, "frontier": FrontierPoint,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class CardRecord:
    """The values of a card, as `PrivacyCard` describes them."""

    epsilon: PublicEpsilon
    sanitised: PublicEpsilon | None = None
    proposal: dict[str, Any] | None = None
    alone: PublicEpsilon | None = None
    if_added_or_removed: float | None = None
    event: Event
    mechanism: str
    noise_source: str
    queries: int
    answered: int | None
    teachers: int | None
    selection: str = "as given"
    classes: tuple[str, ...]
    features: tuple[str, ...]
    feature_map: str = "none"
    student: str
    student_accuracy: float | None
    evaluation_rows: int
    accuracy_by_class: tuple[ClassAccuracy, ...] = ()
    budget: dict[str, Any]
    batches: tuple[Batch, ...] = ()
    frontier: tuple[FrontierPoint, ...] = ()
    findings: tuple[Finding, ...] | None = None
    statements: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    created: str

    def __post_init__(self) -> None:
        check_kinds(self.epsilon, (PublicEpsilon,), "epsilon")
        for item in fields(self):
            check_public(getattr(self, item.name), item.name)
        for name, kinds in _KINDS.items():
            check_kinds(getattr(self, name), kinds, name)
        if not isinstance(self.event, Event):
            raise NotPublishableError(f"`event` of a card must be an Event. Got a {type(self.event).__name__}.")
        for name, kind in _TUPLES.items():
            check_all(getattr(self, name), (kind,), name)
        if self.findings is not None:
            check_all(self.findings, (Finding,), "findings")
        check_budget(self.budget)
        check_proposal(self.proposal)
        check_table(self.statements, (str,), "statements")
        check_table(self.versions, (str,), "versions")
        for name in ("queries", "answered", "teachers", "evaluation_rows"):
            check_number(getattr(self, name), name)
        check_number(self.student_accuracy, "student_accuracy", 1)
        check_number(self.if_added_or_removed, "if_added_or_removed", self.epsilon.epsilon)
        if self.answered is not None:
            check_number(self.answered, "answered", self.queries)
        for entry in self.accuracy_by_class:
            check_number(entry.right, "accuracy_by_class.right", entry.rows)
        for cost in (self.epsilon, self.sanitised, self.alone, *(point.epsilon for point in self.frontier)):
            if cost is not None:
                check_number(cost.delta, "delta", 1)
        for topic, text in self.statements.items():
            if topic not in STATEMENTS:
                raise InvalidParameterError(
                    f"`statements` of a card has no topic {topic!r}. Topics: {', '.join(STATEMENTS)}."
                )
            if not text.strip() or len(text) > _LONGEST:
                raise InvalidParameterError(
                    f"The statement {topic!r} must be text of 1 to {_LONGEST:,} characters. Got {len(text):,}."
                )
        self._check_costs()
        if self.event.is_simulated and not self.epsilon.simulated:
            raise NotPublishableError("The event was made with simulated noise, so its epsilon must be marked so too.")

    def _check_costs(self) -> None:
        """Refuse costs in the wrong field, or about another unit of privacy."""
        always = [
            self.epsilon,
            *([] if self.alone is None else [self.alone]),
            *(point.epsilon for point in self.frontier),
        ]
        if any(cost.output_dependent for cost in always):
            raise NotPublishableError(
                "`epsilon`, `alone` and `frontier` of a card must be worst-case, for every outcome. An ε that holds "
                "for the outcome at hand goes into `sanitised`."
            )
        first, second = self.epsilon if self.alone is None else self.alone, self.sanitised
        if second is not None and (not second.output_dependent or second.epsilon >= first.epsilon):
            raise NotPublishableError(
                "`sanitised` of a card must be an ε that holds for the outcome at hand, and smaller than the one that "
                "always holds. Leave it out, or put the smaller one that always holds into `epsilon`."
            )
        entity = self.epsilon.unit.neighboring is NeighboringRelation.ADD_REMOVE_OR_CHANGE_ONE_ENTITY
        if self.if_added_or_removed is not None and not entity:
            raise NotPublishableError(
                "`if_added_or_removed` of a card needs a unit of privacy that may be added and removed. Leave it out."
            )
        about = {(cost.unit, cost.simulated) for cost in (*always, *([] if second is None else [second]))}
        if len(about) > 1:
            raise NotPublishableError(
                "`sanitised`, `alone` and `frontier` of a card must be about the same unit of privacy as its "
                "`epsilon`, and simulated only where that is."
            )

    @property
    def covers_ledger(self) -> bool:
        """Whether `epsilon` bounds everything that is ever released through the ledger, not only this release."""
        return self.epsilon.epsilon >= self.budget["budget"] and self.epsilon.delta >= self.budget["delta"]

    @property
    def model(self) -> str:
        """The deployment model: "central", "federated" if hospitals add up noise, "local" if each randomizes votes."""
        parts = [part.event for part in self.event.flatten()]
        if any(isinstance(part, RandomizedResponse | TruncatedGeometricResponse | NoisyBallot) for part in parts):
            return "local"
        found = any(one.code == NOISE_FROM_SHARES for one in self.findings or ())
        return "federated" if found or any(isinstance(part, SummedNoise) for part in parts) else "central"

    @property
    def releases_sums(self) -> bool:
        """Whether noisy sums of ballots were released, and no votes on single rows."""
        return all(isinstance(part.event.without_shares(), NoisySumGaussian) for part in self.event.flatten())

    @property
    def sums(self) -> int:
        """How many noisy sums this release consists of."""
        return sum(part.times for part in self.event.flatten()) if self.releases_sums else 0

    @property
    def outcome(self) -> str:
        """The parts of this release, in words."""
        return "the noisy sums, the student, its labels" if self.releases_sums else "the labels, the student"

    @property
    def spending(self) -> Spending:
        """The budget as every page prints it."""
        return Spending.of(self.budget["budget"], self.budget["spent"])

    @property
    def majority_share(self) -> float | None:
        """Share of the most frequent class among the public labeled rows; None if there are no such rows."""
        rows = sum(entry.rows for entry in self.accuracy_by_class)
        return max(entry.rows for entry in self.accuracy_by_class) / rows if rows else None
