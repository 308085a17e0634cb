"""Objections of a privacy officer: settings under which ε protects less than it seems, and useless students."""

from collections.abc import Sequence
from typing import Any, Literal, final

from tutelage._internal.records import frozen
from tutelage._internal.validation import integer_at_least, number_between, number_of_votes, probability
from tutelage.exceptions import InvalidParameterError, Problem
from tutelage.privacy import PrivacyUnit, PublicEpsilon, round_up
from tutelage.reporting.meaning import Verdict, bayes_factor, strength, verdict

_HUGE_EPSILON = 10.0
_LEAST_GAIN = 0.005  # about the standard error of a difference on 2,000 rows
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
    "lost-class", "no-better-than-majority", "no-better-than-public-labels",
)  # fmt: skip
# Findings about what ε does not count: however small it is, the guarantee is weak.
_UNCOUNTED = (
    "delta-too-large", "stopped-by-votes", "tuned-on-private", "public-overlaps-private", "refusals-overridden",
)  # fmt: skip
_DANGERS = {
    "epsilon-too-large": (
        "This guarantee protects almost no one. {meaning} Choose a smaller ε: add noise, or release less."
    ),
    "delta-too-large": (
        "δ = {delta:g} is at least 1/n for n people. Publishing all rows of one random person would satisfy "
        "the guarantee. Choose δ well below 1/n."
    ),
    "threshold-above-teachers": (
        "The threshold of {threshold:g} votes is above the {teachers:,} teachers. Only noise can pass the "
        "check, and every query spends budget. Choose a threshold below the number of teachers."
    ),
    "stopped-by-votes": (
        "A cost that depends on the votes decided when to stop. The number of labels reveals votes, and ε "
        "does not count this. Stop after a number of queries that is fixed in advance, or by the worst-case "
        "cost."
    ),
    "tuned-on-private": (
        "Settings were chosen on private data. Every look was a release that ε does not count. Choose "
        "settings on public data (tutelage plan), or spend budget on every try."
    ),
    "public-overlaps-private": (
        "Some public rows equal private rows. Public rows are not protected at all. Remove these rows from "
        "the public data."
    ),
    "refusals-overridden": (
        "The data set owner turned refusals off (`insist`). The checks that were turned off look for too few "
        "people, for ranges and categories that are read off private rows and, where there are public rows, "
        "for too few of them and for private rows among them. Repeat the release without `insist`."
    ),
}
_WARNINGS = {
    "epsilon-large": (
        "An attacker may guess right in more than 95 of 100 cases. {meaning} Choose a smaller ε: add noise, "
        "or release less."
    ),
    "teachers-without-rows": (
        "There are fewer than {least} people per teacher. At least one teacher in twenty has no row and "
        "abstains, and noise may outweigh the other teachers. Train fewer teachers."
    ),
    "threshold-passes-always": (
        "The threshold of {threshold:g} votes is at most {teachers:,}/{classes}. Some class always has so "
        "many if all teachers vote, so the check spends budget and rejects nothing. Raise the threshold, or "
        "use gnmax."
    ),
    "classes-from-private-labels": (
        "The class values were read from the private labels. ε does not count what they reveal: a class that "
        "only one person has reveals that person. Declare the classes from public knowledge."
    ),
    NOISE_FROM_SHARES: (
        "ε holds only if {shares} of the hospitals that took part keep their part of the noise secret, the "
        "three computing parties follow the protocol, and no two of them combine their data. Choose computing "
        "parties from different organizations, and name them on the card."
    ),
    "lost-class": (
        "The student labels no public row of these classes correctly: {lost}. Noise hides classes of few "
        "people. Merge the class with another, or use more people or a larger ε."
    ),
    "no-better-than-majority": (
        "The student gains less than half a point over naming one class for all rows. Its {goal} on the "
        "public labeled rows is {share:.2%}, and that of one class {majority:.2%}. Use more people or a "
        "larger ε, or another method."
    ),
    "no-better-than-public-labels": (
        "The student gains less than half a point over a model of public labels alone, which spends no "
        "budget. Its {goal} on the public labeled rows is {share:.2%}, and that of the other model "
        "{public:.2%}, which may be chance. Publish that model instead, or use more people or a larger ε."
    ),
    "not-checked": (
        "The settings were not checked. A ledger does not store whether settings were tuned on private rows, "
        "whether private rows are among the public data, or how many people there are."
    ),
}


@final
@frozen
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
                raise InvalidParameterError(Problem(f"Finding.{name}", "be text", f"a {kind}"))
        if self.severity not in _SEVERITIES:
            raise InvalidParameterError(Problem("Finding.severity", "be 'warning' or 'danger'"))

    def __str__(self) -> str:
        """Return the fault alone, as the first page of a card and a screen show it."""
        return f"{self.severity.capitalize()}: {self.reason.partition('. ')[0].removesuffix('.')}."

    @classmethod
    def of(cls, code: str, **values: Any) -> "Finding":
        """Return the finding of that code, with these values in its reason."""
        if code in _DANGERS:
            return cls(code, "danger", _DANGERS[code].format(**values))
        return cls(code, "warning", _WARNINGS[code].format(**values))


NOT_CHECKED = Finding.of("not-checked")


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
    by_public_labels: float | None = None,
    goals: Sequence[tuple[str, float, float | None, float]] = (),
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
    by_public_labels : float, optional
        Share of these rows that a model of public labels alone labels correctly.
    goals : sequence of (goal, student, public labels, no model)
        What is reached of a goal other than accuracy, which the student is then not judged by.

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
            raise InvalidParameterError(Problem(f"lint.{name}", f"be one of {', '.join(known)}", f"{word!r}"))
    found = list[Finding]()

    def objects(code: str, **values: Any) -> None:
        found.append(Finding.of(code, **values))

    if epsilon is not None and strength(epsilon, delta or 0.0) == "weak":
        code = "epsilon-too-large" if epsilon > _HUGE_EPSILON else "epsilon-large"
        objects(code, meaning=_odds(epsilon, unit))
    if delta is not None and entities is not None and delta * entities >= 1:
        objects("delta-too-large", delta=delta)
    if teachers is not None and entities is not None and entities < _PEOPLE_PER_TEACHER * teachers:
        objects("teachers-without-rows", least=_PEOPLE_PER_TEACHER)
    if threshold is not None and teachers is not None:
        if threshold > teachers:
            objects("threshold-above-teachers", threshold=threshold, teachers=teachers)
        elif classes is not None and mechanism != "interactive" and threshold * classes <= teachers:
            objects("threshold-passes-always", threshold=threshold, teachers=teachers, classes=classes)
    if stopping == "data-dependent":
        objects("stopped-by-votes")
    if tuned_on == "private":
        objects("tuned-on-private")
    if public_overlap:
        objects("public-overlaps-private")
    if insisted:
        objects("refusals-overridden")
    if classes_from == "private":
        objects("classes-from-private-labels")
    if shares is not None:
        objects(NOISE_FROM_SHARES, shares=shares)
    lost = [
        f"{name} ({rows:,} {'row' if rows == 1 else 'rows'})" for name, rows, right in accuracy if rows > right == 0
    ]
    if lost:
        more = f" and {len(lost) - _MOST_NAMED:,} more" if len(lost) > _MOST_NAMED else ""
        objects("lost-class", lost=", ".join(lost[:_MOST_NAMED]) + more)
    rows = sum(n for _, n, _ in accuracy)
    right = sum(n for _, _, n in accuracy)
    most = max((n for _, n, _ in accuracy), default=0)
    if rows and not goals:
        goals = [("accuracy", right / rows, by_public_labels, most / rows)]
    for goal, share, public, majority in goals:
        if not is_worth(share, majority):
            objects("no-better-than-majority", goal=goal, share=share, majority=majority)
        if public is not None and not is_worth(share, public):
            objects("no-better-than-public-labels", goal=goal, share=share, public=public)
    return tuple(found)


def is_worth(student: float, without: float) -> bool:
    """Return whether a student is worth a release, by what is reached without one; plans and cards judge by it."""
    return student >= without + _LEAST_GAIN


def verdict_of(epsilon: PublicEpsilon, findings: Sequence[Finding] | None) -> Verdict:
    """Return the verdict on a guarantee, in view of the findings."""
    return verdict(epsilon, tuple(one.code for one in findings or () if one.code in _UNCOUNTED))


def _odds(epsilon: float, unit: PrivacyUnit | None) -> str:
    if epsilon == float("inf"):
        return "ε is infinite: there is no guarantee."
    changed = "" if unit is None else f" ({unit.neighboring.sentence}; unit of privacy: {unit.name})"
    return (
        f"ε = {round_up(epsilon)}: an outcome may be up to {bayes_factor(epsilon)} times as likely as it is on "
        f"neighboring data{changed}."
    )
