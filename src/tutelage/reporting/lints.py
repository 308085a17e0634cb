"""Objections of a privacy officer: settings under which ε protects less than it seems, and useless students."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, final

from tutelage._internal.validation import integer_at_least, number_between, number_of_votes, probability
from tutelage.exceptions import InvalidParameterError
from tutelage.privacy import PrivacyUnit, PublicEpsilon, round_up
from tutelage.reporting.meaning import Verdict, bayes_factor, verdict

LARGE_EPSILON, _HUGE_EPSILON = 5.0, 10.0
_MOST_NAMED = 8  # classes in one finding
_PEOPLE_PER_TEACHER = 3  # exp(−3) is the share of shards that a keyed hash then leaves empty
_SEVERITIES = ("warning", "danger")
NOISE_FROM_SHARES = "noise-from-shares"
TUNED_ON = ("nothing", "public", "private")
_WORDS = {
    "stopping": ("fixed", "data-independent", "data-dependent"),
    "tuned_on": TUNED_ON,
    "classes_from": ("declared", "public", "private"),
}
_LEAST = {"entities": 1, "teachers": 1, "classes": 2, "shares": 1, "public_overlap": 0}
# Findings that follow from the other values of a card, so that they are not taken from its file.
FROM_CARD = (
    "epsilon-large", "epsilon-too-large", "threshold-above-teachers", "threshold-passes-always", NOISE_FROM_SHARES,
    "lost-class", "no-better-than-majority",
)  # fmt: skip
# Findings about what ε does not count: however small it is, the guarantee is weak.
_UNCOUNTED = (
    "delta-too-large", "stopped-by-votes", "tuned-on-private", "public-overlaps-private", "refusals-overridden",
)  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class Finding:
    """One objection; public, because it is made of public settings only.

    Parameters
    ----------
    code : str
        The kind of objection, for machines: ``"delta-too-large"``.
    severity : {"warning", "danger"}
        Whether the guarantee or the student is weaker than it seems, or useless.
    reason : str
        The fault, why it matters, and the fix.

    Raises
    ------
    InvalidParameterError
        If it is not made of text, or of another severity. The message never shows the value.
    """

    code: str
    severity: Literal["warning", "danger"]
    reason: str

    def __post_init__(self) -> None:
        for name in ("code", "severity", "reason"):
            if type(getattr(self, name)) is not str:
                kind = type(getattr(self, name)).__name__
                raise InvalidParameterError(f"`{name}` of Finding must be text. Got a {kind}.")
        if self.severity not in _SEVERITIES:
            raise InvalidParameterError("`severity` of Finding must be warning or danger.")


NOT_CHECKED = Finding(
    "not-checked",
    "warning",
    "The settings were not checked. A ledger does not store whether settings were tuned on private rows, whether "
    "public rows are private, or how many people there are.",
)


def lint(
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    unit: PrivacyUnit | None = None,
    entities: int | None = None,
    teachers: int | None = None,
    classes: int | None = None,
    threshold: float | None = None,
    stopping: str | None = None,
    tuned_on: str | None = None,
    public_overlap: int | None = None,
    insisted: bool = False,
    classes_from: str | None = None,
    mechanism: str | None = None,
    shares: int | None = None,
    accuracy: Sequence[tuple[str, int, int]] = (),
) -> tuple[Finding, ...]:
    """Return the objections of a privacy officer; a parameter that is None is not judged.

    No finding quotes `entities` or `public_overlap`. A finding still reveals something about them, so if they were
    counted on private rows, only the data set owner may see it.

    Parameters
    ----------
    epsilon, delta, unit : float, float, PrivacyUnit, optional
        The guarantee; ε is in nats, and infinite without one.
    entities, teachers, classes : int, optional
        Number of units of privacy behind the private rows, of teachers and of classes.
    threshold, mechanism : float, str, optional
        T of a mechanism that checks before it answers, in votes, and its name on the command line. The check of
        ``"interactive"`` is on votes beyond those expected.
    stopping : {"fixed", "data-independent", "data-dependent"}, optional
        The rule that ended the queries: a fixed number, the worst-case cost, or a cost that depends on the votes.
    tuned_on, classes_from : str, optional
        The data on which the settings were chosen, and from which the class values come: public or private.
    public_overlap, insisted : int, bool, optional
        Number of public rows that equal a private row, and whether the owner turned the refusals of the rows off.
    shares : int, optional
        Number of hospitals whose noise ε counts, if the noise of several hospitals was summed.
    accuracy : sequence of (class, rows, right), optional
        Public labeled rows of each class, and how many of them the student labels correctly.

    Raises
    ------
    InvalidParameterError
        If a number is out of its range, or a word is not one of the words above.
    """
    numbers = (entities, teachers, classes, shares, public_overlap)
    for (name, least), number in zip(_LEAST.items(), numbers, strict=True):
        if number is not None:
            integer_at_least(number, least, name, "lint")
    if epsilon not in (None, float("inf")):
        number_between(epsilon, 0, float("inf"), "epsilon", "lint")
    if delta is not None:
        probability(delta, "delta", "lint")
    if threshold is not None:
        number_of_votes(threshold, "threshold", "lint")
    for (name, known), word in zip(_WORDS.items(), (stopping, tuned_on, classes_from), strict=True):
        if word is not None and word not in known:
            raise InvalidParameterError(f"`{name}` of lint must be one of {', '.join(known)}. Got {word!r}.")
    findings = [
        _of_epsilon(epsilon, unit),
        _of_delta(delta, entities),
        _of_teachers(teachers, entities),
        _of_threshold(threshold, teachers, classes, mechanism),
        _DATA_DEPENDENT_STOPPING if stopping == "data-dependent" else None,
        _PRIVATE_TUNING if tuned_on == "private" else None,
        _PUBLIC_IS_PRIVATE if public_overlap else None,
        _OVERRIDDEN if insisted else None,
        _CLASSES_FROM_PRIVATE if classes_from == "private" else None,
        _of_shares(shares),
        _of_lost_classes(accuracy),
        _of_majority(accuracy),
    ]
    return tuple(finding for finding in findings if finding is not None)


def verdict_of(epsilon: PublicEpsilon, findings: Sequence[Finding] | None) -> Verdict:
    """Return the verdict on a guarantee, in view of the findings."""
    return verdict(epsilon, tuple(one.code for one in findings or () if one.code in _UNCOUNTED))


def _of_epsilon(epsilon: float | None, unit: PrivacyUnit | None) -> Finding | None:
    if epsilon is None:
        return None
    if epsilon == float("inf"):
        meaning = "ε is infinite: there is no guarantee."
    else:
        changed = "" if unit is None else f" ({unit.neighboring.sentence}; unit of privacy: {unit.name})"
        meaning = (
            f"ε = {round_up(epsilon)}: an outcome may be up to {bayes_factor(epsilon)} times as likely as it is on "
            f"neighboring data{changed}."
        )
    if epsilon > _HUGE_EPSILON:
        reason = (
            f"{meaning} This guarantee protects almost no one. Ask fewer queries, add noise, or train more teachers."
        )
        return Finding("epsilon-too-large", "danger", reason)
    if epsilon > LARGE_EPSILON:
        return Finding("epsilon-large", "warning", f"{meaning} Ask fewer queries, add noise, or train more teachers.")
    return None


def _of_delta(delta: float | None, entities: int | None) -> Finding | None:
    if delta is None or entities is None or delta * entities < 1:
        return None
    reason = (
        f"δ = {delta:g} is at least 1/n for n people: publishing all rows of one random person would satisfy the "
        "guarantee. Choose δ well below 1/n."
    )
    return Finding("delta-too-large", "danger", reason)


def _of_teachers(teachers: int | None, entities: int | None) -> Finding | None:
    if teachers is None or entities is None or entities >= _PEOPLE_PER_TEACHER * teachers:
        return None
    reason = (
        f"There are fewer than {_PEOPLE_PER_TEACHER} people per teacher: at least one teacher in twenty has no row and "
        "abstains, and noise may outweigh the other teachers. Train fewer teachers."
    )
    return Finding("teachers-without-rows", "warning", reason)


def _of_threshold(
    threshold: float | None, teachers: int | None, classes: int | None, mechanism: str | None
) -> Finding | None:
    if threshold is None or teachers is None:
        return None
    if threshold > teachers:
        reason = (
            f"The threshold of {threshold:g} votes is above the {teachers:,} teachers: only noise can pass the check, "
            "and every query spends budget. Choose a threshold below the number of teachers."
        )
        return Finding("threshold-above-teachers", "danger", reason)
    if classes is not None and mechanism != "interactive" and threshold * classes <= teachers:
        reason = (
            f"The threshold of {threshold:g} votes is at most {teachers:,}/{classes}, which some class always has if "
            "all teachers vote: the check spends budget and rejects nothing. Raise the threshold, or use gnmax."
        )
        return Finding("threshold-passes-always", "warning", reason)
    return None


def _of_shares(shares: int | None) -> Finding | None:
    if shares is None:
        return None
    reason = (
        f"Each hospital adds a part of the noise. ε holds only if {shares} of the hospitals that took part keep their "
        "part secret, the three computing parties follow the protocol, and no two of them combine their data. Choose "
        "computing parties from different organizations, and name them on the card."
    )
    return Finding(NOISE_FROM_SHARES, "warning", reason)


def _of_lost_classes(accuracy: Sequence[tuple[str, int, int]]) -> Finding | None:
    lost = [(name, rows) for name, rows, right in accuracy if rows and not right]
    if not lost:
        return None
    shown = ", ".join(f"{name} ({rows:,} {'row' if rows == 1 else 'rows'})" for name, rows in lost[:_MOST_NAMED])
    more = f" and {len(lost) - _MOST_NAMED:,} more" if len(lost) > _MOST_NAMED else ""
    reason = (
        f"The student labels no public row of these classes correctly: {shown}{more}. Few teachers know a rare class, "
        "and noise outvotes them. Ask about more rows of the class, or merge it with another class."
    )
    return Finding("lost-class", "warning", reason)


def _of_majority(accuracy: Sequence[tuple[str, int, int]]) -> Finding | None:
    rows, right = sum(rows for _, rows, _ in accuracy), sum(right for _, _, right in accuracy)
    most = max((rows for _, rows, _ in accuracy), default=0)
    if not rows or right > most:
        return None
    reason = (
        f"The student labels {right / rows:.2%} of the public labeled rows correctly, and always naming the majority "
        f"class {most / rows:.2%}. The student is useless. Ask more queries, add less noise, or train other teachers."
    )
    return Finding("no-better-than-majority", "warning", reason)


_DATA_DEPENDENT_STOPPING = Finding(
    "stopped-by-votes",
    "danger",
    "A cost that depends on the votes decided when to stop: the number of labels reveals votes, and ε does not count "
    "this. Stop after a number of queries that is fixed in advance, or by the worst-case cost.",
)
_PRIVATE_TUNING = Finding(
    "tuned-on-private",
    "danger",
    "Settings were chosen by private votes or private accuracy: every look was a release that ε does not count. Choose "
    "settings on public data (tutelage plan), or spend budget on every try.",
)
_PUBLIC_IS_PRIVATE = Finding(
    "public-overlaps-private",
    "danger",
    "Some public rows equal private rows: public rows are not protected at all, and teachers have seen their labels. "
    "Remove these rows from the public data.",
)
_OVERRIDDEN = Finding(
    "refusals-overridden",
    "danger",
    "The data set owner turned refusals off (`insist`). The checks that were turned off look for private rows among "
    "the public rows, and for too few people or public rows. Repeat the release without `insist`.",
)
_CLASSES_FROM_PRIVATE = Finding(
    "classes-from-private-labels",
    "warning",
    "The class values were read from the private labels, and ε does not count what they reveal: a class that only one "
    "person has reveals that person. Declare the classes from public knowledge.",
)
