"""The privacy card: what was protected, how, and at which cost; as pages and as a file that can be read again."""

import json
from pathlib import Path
from typing import TypeVar, final

import msgspec
from msgspec import field, structs

from tutelage._internal.drawing import round_up
from tutelage._internal.gate import AnyPath, read_given, user_path
from tutelage._internal.records import Entries, Names, file_entries, parse, plain
from tutelage._internal.releases import CARD, claimed_folder, publish_folder
from tutelage.events import (
    Event,
    NoisyBallot,
    NoisySumGaussian,
    PublicationTest,
    RandomizedResponse,
    SummedNoise,
    TruncatedGeometricResponse,
    event_from_dict,
)
from tutelage.exceptions import (
    InvalidDataError,
    InvalidParameterError,
    NotPublishableError,
    TutelageError,
)
from tutelage.privacy import NeighboringRelation, PublicEpsilon
from tutelage.reporting.lints import NOT_CHECKED, verdict_of
from tutelage.reporting.record import (
    MOST,
    NOISE_FROM_SHARES,
    NOT_RECORDED,
    STATEMENTS,
    BudgetPart,
    Finding,
    Guarantee,
    Part,
    ReleasePart,
    StudentPart,
    check_statements,
    record_of,
)
from tutelage.reporting.render import Form, render

_Read = TypeVar("_Read")
_KIND = "card"


@final
class PrivacyCard(Part, frozen=True, kw_only=True):
    """The privacy card of a release, in public values only; `tutelage.published.card_of` makes it.

    Parameters
    ----------
    guarantee : Guarantee
        The ε that is published, and what it is of.
    release : ReleasePart
        How the release was made.
    student : StudentPart
        The student, and how good it is.
    budget : BudgetPart
        The state of the ledger after the release.
    findings : tuple of Finding
        The objections of `tutelage.reporting.lints.lint`.
    statements : dict of str to str
        The statements of the people behind the data, by the topics of `STATEMENTS`: public text.

    Raises
    ------
    NotPublishableError
        If a value is of a type that may depend on the private votes: a `PrivateEpsilon`, votes, any array. If an ε
        that holds only for the outcome at hand is anywhere but in `tested`, or is not the smaller one.
    InvalidParameterError
        If a number is not finite or out of range.
    """

    guarantee: Guarantee
    release: ReleasePart
    student: StudentPart
    budget: BudgetPart
    findings: tuple[Finding, ...] = (NOT_CHECKED,)
    statements: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for part in structs.fields(PrivacyCard):
            value = getattr(self, part.name)
            read = _as_read(value, part.type, part.name)
            if read != value:
                raise NotPublishableError(
                    f"`{part.name}` of a card must be of its own types, and finite."
                )
            structs.force_setattr(self, part.name, read)  # without subclasses of text and mappings
        if record_of(self.event) != self.guarantee.event:
            raise NotPublishableError(
                "`guarantee.event` of a card takes the record of an event only."
            )
        self._check_costs()
        self._check_counts()
        check_statements(self.statements)

    def _check_costs(self) -> None:
        """Refuse costs in the wrong field, or about another unit of privacy."""
        stated = self.guarantee
        first = stated.alone or stated.epsilon
        second = stated.tested
        always = [stated.epsilon, first, *(point.epsilon for point in self.budget.frontier)]
        if any(cost.output_dependent for cost in always):
            raise NotPublishableError(
                "`epsilon`, `alone` and `frontier` of a card must be worst-case ε. Put an ε that holds only for what "
                "was released into `tested`."
            )
        if second is not None and (not second.output_dependent or second.epsilon >= first.epsilon):
            raise NotPublishableError(
                "`tested` of a card must be an ε that holds only for what was released, below the worst-case ε. "
                "Leave `tested` out, or put the smaller worst-case ε into `epsilon`."
            )
        relation = stated.epsilon.unit.neighboring
        may_be_added = relation is NeighboringRelation.ADD_REMOVE_OR_CHANGE_ONE_ENTITY
        if stated.if_added_or_removed is not None and not may_be_added:
            raise NotPublishableError(
                "`if_added_or_removed` of a card needs a unit of privacy that may be added and removed. Leave it out."
            )

        tiers = [tier.epsilon for tier in self.budget.tiers]
        if any(cost.output_dependent or cost.epsilon > stated.epsilon.epsilon for cost in tiers):
            raise NotPublishableError(
                "`tiers` of a card must have worst-case ε, none above the ε of everybody."
            )
        costs = [*always, *tiers]
        if second is not None:
            costs.append(second)
        if len({(cost.unit, cost.simulated) for cost in costs}) > 1:
            raise NotPublishableError(
                "`tested`, `alone` and `frontier` of a card must be about the same unit of privacy as its "
                "`epsilon`, and simulated only where that is."
            )
        if self.event.is_simulated and not stated.epsilon.simulated:
            raise NotPublishableError(
                "The event was made with simulated noise, so its epsilon must be marked so too."
            )
        for cost in costs:
            _check_range("epsilon", cost.epsilon)
            _check_range("delta", cost.delta, 1)
            _check_range("order", cost.order)
        _check_range("if_added_or_removed", stated.if_added_or_removed, stated.epsilon.epsilon)

    def _check_counts(self) -> None:
        """Refuse counts that are larger than what they are part of, and curves without one effect for each cell."""
        _check_range("answered", self.release.answered, self.release.queries)
        for entry in self.student.judged.by_class:
            _check_range("by_class.right", entry.right, entry.rows)
        for curve in self.student.curves:
            is_whole = len(curve.cells) == len(curve.effects) == len(curve.noise) > 0
            if not is_whole or min(curve.noise) < 0:
                raise InvalidParameterError(
                    "the curves of a card",
                    "have one effect and one noise for each cell, and no negative noise",
                )

    @property
    def event(self) -> Event:
        """The event that `epsilon` is of."""
        return event_from_dict(self.guarantee.event)

    @property
    def epsilon(self) -> PublicEpsilon:
        """The publishable guarantee."""
        return self.guarantee.epsilon

    @property
    def claims(self) -> tuple[PublicEpsilon, ...]:
        """The worst-case guarantees of what was released; the largest of them is what a limit must allow."""
        claims = [self.epsilon, *(tier.epsilon for tier in self.budget.tiers)]
        if self.guarantee.alone is not None:
            claims.append(self.guarantee.alone)
        return tuple(claims)

    @property
    def missing(self) -> Names:
        """Topics without a statement."""
        return tuple(topic for topic in STATEMENTS if topic not in self.statements)

    @property
    def covers_ledger(self) -> bool:
        """Whether `epsilon` bounds everything that is ever released through the ledger, not only this release."""
        return (
            self.epsilon.epsilon >= self.budget.budget and self.epsilon.delta >= self.budget.delta
        )

    @property
    def model(self) -> str:
        """The deployment model: "central", "federated" if hospitals add up noise, "local" if each randomizes votes."""
        parts = [part.event for part in self.event.flatten()]
        local = RandomizedResponse | TruncatedGeometricResponse | NoisyBallot
        if any(isinstance(part, local) for part in parts):
            return "local"
        has_shares = any(isinstance(part, SummedNoise) for part in parts)
        if has_shares or any(finding.code == NOISE_FROM_SHARES for finding in self.findings):
            return "federated"
        return "central"

    @property
    def of_ledger(self) -> bool:
        """Whether the card was made of a ledger alone, which records no student."""
        return self.student.name == NOT_RECORDED

    @property
    def releases_sums(self) -> bool:
        """Whether noisy sums of ballots were released, and no votes on single rows."""
        return all(
            isinstance(part.event.without_shares(), NoisySumGaussian)
            for part in self.event.flatten()
        )

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
    def usage(self) -> str:
        """How ε, what is spent of a budget of which some is left, and the ε of what was released so far differ."""
        spending = self.budget.spending
        so_far = self.budget.so_far
        if not spending.left or self.epsilon.simulated:
            return ""
        of = "Everything released from this budget" if self.covers_ledger else "This release"
        text = f"{of}: ε = {round_up(self.epsilon.epsilon):.4f}. "
        text += f"It used {spending.spent:.4f} of the budget of {spending.budget:.10g}."
        if so_far is not None and so_far < spending.budget:
            text += f" If you stop here because of what you saw, quote {round_up(so_far):.4f}."
        return text

    def as_dict(self) -> Entries:
        """Return the card as plain JSON-ready values."""
        return file_entries(_KIND, self)

    def as_markdown(self) -> str:
        """Return the card as Markdown."""
        return self._render("card.jinja", "markdown")

    def as_html(self) -> str:
        """Return the card as one self-contained HTML file: it runs no script and loads nothing."""
        return self._render("card.jinja", "html")

    def __html__(self) -> str:
        """Return what notebooks show: the first page."""
        return self._render("first.jinja", "html")

    _repr_html_ = __html__

    def _render(self, template: str, form: Form) -> str:
        judged = verdict_of(self.epsilon, self.findings)
        whole = PublicEpsilon(self.budget.budget, self.budget.delta, self.epsilon.unit, "budget")
        return render(template, form, card=self, topics=STATEMENTS, verdict=judged, whole=whole)

    def save(self, folder: AnyPath) -> tuple[Path, Path, Path]:
        """Write ``card.json``, ``card.md`` and ``card.html`` with their manifest as a folder and return their paths.

        Only an empty folder or an earlier card is replaced. The results of a run are refused.
        """
        folder = Path(folder)
        claiming = claimed_folder(folder, CARD, "name another `folder`")
        with claiming as claim, publish_folder(claim, self.budget.head) as part:
            self.write(part)
        as_json, as_markdown, as_html = (folder / name for name in CARD)
        return as_json, as_markdown, as_html

    def write(self, folder: Path) -> None:
        """Write the three files of the card into a folder that has none of them."""
        text = json.dumps(self.as_dict(), indent=2, ensure_ascii=False, allow_nan=False)
        contents = (f"{text}\n", self.as_markdown(), self.as_html())
        for name, content in zip(CARD, contents, strict=True):
            (folder / name).write_text(content, encoding="utf-8")


def read_card(path: AnyPath) -> PrivacyCard:
    """Return the card that `PrivacyCard.save` wrote as JSON.

    Parameters
    ----------
    path : path-like
        ``card.json``.

    Raises
    ------
    InvalidDataError
        If the file is missing, larger than 16 MiB, or not a card; the message names the entry.
    """
    path = user_path(path)
    damaged = InvalidDataError(
        f"{path} is not a JSON file of a card, with finite numbers. Name a card.json."
    )
    stored = read_given(path, advice="Name a card.json.")
    try:
        content = parse(stored.decode("utf-8-sig"), _KIND, damaged)
    except UnicodeDecodeError:
        raise damaged from None
    try:
        return _card_in(content)
    except TutelageError as error:
        raise InvalidDataError(f"{path} is not a privacy card: {error}") from None


def _card_in(content: object) -> PrivacyCard:
    """Return the card of what a file holds; what is read is what would be written."""
    card = _as_read(content, PrivacyCard, "")
    if plain(card) != content:
        raise InvalidDataError(
            "it holds entries that a card does not have, or leaves out ones that it has."
        )
    return card


def _check_range(name: str, value: float | None, most: float = MOST) -> None:
    if value is not None and not 0 <= value <= most:
        raise InvalidParameterError(f"a card.{name}", f"be from 0 to {most:g}")


def _as_read(value: object, kind: type[_Read], where: str) -> _Read:
    """Return a value as its file would be read; refuse other types and ranges, by the place and without the value."""
    try:
        return msgspec.json.decode(msgspec.json.encode(value), type=kind)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, TutelageError):
            raise error.__cause__ from None
        problem, _, place = str(error).partition(" - at `$")
        where = (where + place.removesuffix("`")).removeprefix(".") or "card"
    except UnicodeEncodeError:
        problem = "Expected text without lone surrogates"
    except (TypeError, ValueError, RecursionError):
        problem = "Expected other types, got one that JSON does not have"
    if ", got " in problem or "unknown field" in problem:
        raise NotPublishableError(
            f"`{where}` of a card takes public values of its own types only. Another may depend on the private votes."
        )
    if not problem.startswith(("Expected", "Object missing")):
        problem = (
            "Expected a value that is known; if a later version wrote the file, upgrade tutelage"
        )
    raise InvalidParameterError(f"the {where} of a card", f"fit its form ({problem})")
