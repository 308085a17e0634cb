"""The limits that a data set owner sets to releases, as a file, and the rules among them that a card breaks."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

from msgspec import Meta, field
from typer import Exit

from tutelage.cli.settings import Section, read_section, read_settings
from tutelage.cli.text import complain, say
from tutelage.cli.verify import VerifiedRelease
from tutelage.exceptions import ConfigError
from tutelage.privacy import NeighboringRelation
from tutelage.reporting import PrivacyCard
from tutelage.reporting.lints import NOT_CHECKED, UNCOUNTED
from tutelage.reporting.record import STATEMENTS, Share

if TYPE_CHECKING:
    from tutelage.reporting.intervals import Interval

_BROKEN = 3  # exit code
_ACCURACY = "accuracy"
_R_SQUARED = "r_squared"
_Epsilon = Annotated[float, Meta(gt=0)]


class Policy(Section, frozen=True):
    """The limits of a data set owner. A fact that a card does not state breaks its rule.

    Parameters
    ----------
    largest_epsilon, largest_delta : float
        Limits of the largest ε and δ that the card claims.
    units : tuple of str
        Names of the units of privacy that are allowed.
    neighboring : tuple of NeighboringRelation
        Codes of the neighboring relations that are allowed; all, if it is left out.
    least : dict of str to float
        The smallest share of each goal, as the card names it. Of accuracy on public rows, and of every measure of the
        test report, the lower end of the 95 % interval counts.
    recipients : tuple of str
        Who may get a release.
    statements : tuple of str
        Topics on which the card must have a statement.
    """

    largest_epsilon: _Epsilon
    largest_delta: Share
    units: tuple[str, ...]
    neighboring: tuple[NeighboringRelation, ...] = tuple(NeighboringRelation)
    least: dict[str, Share] = field(default_factory=dict)
    recipients: tuple[str, ...] | None = None
    statements: tuple[str, ...] = ()

    @classmethod
    def read(cls, file: Path | None, recipient: str | None) -> Self | None:
        """Return the policy in a file, if there is one."""
        if file is None:
            if recipient is not None:
                raise ConfigError(
                    "--recipient needs --policy, which names who may get the release."
                )
            return None
        policy = read_section(cls, read_settings(file), str(file))
        if recipient is not None and policy.recipients is None:
            raise ConfigError(f"--recipient needs `recipients` in {file}. Add them.")
        for topic in policy.statements:
            if topic not in STATEMENTS:
                raise ConfigError(
                    f"`statements` in {file} must be among {', '.join(STATEMENTS)}. Got {topic!r}."
                )
        return policy


def require_allowed(policy: Policy, checked: VerifiedRelease, recipient: str | None) -> None:
    """Print a sentence for each rule that a release breaks and end with an exit code of its own, if there is one."""
    broken = [*broken_rules(policy, checked, recipient)]
    for sentence in broken:
        complain(sentence)
    if broken:
        raise Exit(_BROKEN)
    say("The release keeps all rules of the policy.")


def broken_rules(policy: Policy, checked: VerifiedRelease, recipient: str | None) -> Iterator[str]:
    """Yield a sentence for each rule that a release breaks."""
    card = checked.card
    if checked.outdated:
        yield f"There are later releases, and the ε of the card {checked.outdated}."
    if card.epsilon.simulated:
        yield "The noise was simulated, so the card guarantees nothing."
    for finding in card.findings:
        if finding.code in (*UNCOUNTED, NOT_CHECKED.code):
            yield f"The card objects to its ε. {finding}"
    # Compared as they are: printed ones are rounded.
    epsilon = max(claim.epsilon for claim in card.claims)
    delta = max(claim.delta for claim in card.claims)
    if not epsilon <= policy.largest_epsilon:
        yield f"ε is {epsilon!r}, and at most {policy.largest_epsilon!r} is allowed."
    if not delta <= policy.largest_delta:
        yield f"δ is {delta!r}, and at most {policy.largest_delta!r} is allowed."
    unit = card.epsilon.unit
    if unit.name not in policy.units:
        yield f"The unit of privacy is {unit.name!r}, which is not among {', '.join(policy.units)}."
    if unit.neighboring not in policy.neighboring:
        yield f"The neighboring relation is {unit.neighboring!s}, which is not among {', '.join(policy.neighboring)}."
    for goal, least in policy.least.items():
        reached = _share_of_goal(card, goal)
        if reached is None:
            yield f"The card states no {goal}, and at least {least!r} is needed."
        elif not reached >= least:
            yield f"The {goal} may be as low as {reached!r}, and at least {least!r} is needed."
    if policy.recipients is not None and recipient is None:
        yield "No recipient is named, and the policy lists who may get a release. Add --recipient."
    elif policy.recipients is not None and recipient not in policy.recipients:
        yield f"{recipient!r} is not among the recipients in the policy."
    for topic in policy.statements:
        if topic not in card.statements:
            yield f"The card has no statement on {topic}."


def _share_of_goal(card: PrivacyCard, goal: str) -> float | None:
    """Return the smallest share of a goal that fits what was measured; None if it was not measured."""
    judged = card.student.judged
    shares = [one.student for one in judged.goals if one.goal == goal]
    if goal == _R_SQUARED:
        shares += [one.r_squared for one in judged.errors]
    if goal == _ACCURACY and judged.accuracy_interval is not None:
        shares.append(judged.accuracy_interval[0])
    measured: dict[str, Interval | None] = {}
    if judged.on_people is not None:
        people = judged.on_people.groups[0]
        measured = {_ACCURACY: people.accuracy, "balanced accuracy": people.balanced_accuracy}
    elif judged.errors_on_people is not None:
        measured = {_R_SQUARED: judged.errors_on_people.groups[0].r_squared}
    found = measured.get(goal)
    if found is not None:
        shares.append(found.low)
    return min(shares, default=None)
