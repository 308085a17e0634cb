"""Objections of a privacy officer: settings under which ε protects less than it seems, and useless students."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import final

from tutelage._internal.validation import (
    integer_at_least,
    number_between,
    number_of_votes,
    probability,
)
from tutelage.exceptions import InvalidParameterError
from tutelage.privacy import PrivacyUnit, PublicEpsilon, round_up
from tutelage.reporting.meaning import Verdict, bayes_factor, strength, verdict
from tutelage.reporting.record import NOISE_FROM_SHARES, Finding, Judged, Reached
from tutelage.reporting.render import number_of

_HUGE_EPSILON = 10.0
_LEAST_GAIN = 0.005  # about the standard error of a difference on 2,000 rows
_MOST_NAMED = 8  # classes in one finding
_PEOPLE_PER_TEACHER = 3  # exp(−3) is the share of shards that a keyed hash then leaves empty
_TUNED_ON = ("nothing", "public", "private")
_WORDS = {
    "stopping": ("fixed", "data-independent", "data-dependent"),
    "tuned_on": _TUNED_ON,
    "classes_from": ("declared", "public", "private"),
}
_LEAST = {"entities": 1, "teachers": 1, "classes": 2, "shares": 1, "public_overlap": 0}
# Findings that follow from the other values of a card, so that they are not taken from its file.
FROM_CARD = (
    "epsilon-large", "epsilon-too-large", "threshold-above-teachers", "threshold-passes-always", NOISE_FROM_SHARES,
    "lost-class", "no-better-than-majority", "no-better-than-public-labels",
)  # fmt: skip
# Findings about what ε does not count: however small it is, the guarantee is weak.
UNCOUNTED = (
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


def _finding(code: str, **values: object) -> Finding:
    """Return the finding of that code, with these values in its reason."""
    if code in _DANGERS:
        return Finding(code, "danger", _DANGERS[code].format(**values))
    return Finding(code, "warning", _WARNINGS[code].format(**values))


NOT_CHECKED = _finding("not-checked")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The settings of a release, and a student, that are to be judged; a field that is None is not.

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
    judged : Judged
        The student on public rows. It is judged by its goal, if that is not accuracy.

    Raises
    ------
    InvalidParameterError
        If a number is out of its range, or a word is not one of the words above.
    """

    epsilon: float | None = None
    delta: float | None = None
    unit: PrivacyUnit | None = None
    entities: int | None = None
    teachers: int | None = None
    classes: int | None = None
    threshold: float | None = None
    mechanism: str | None = None
    stopping: str | None = None
    tuned_on: str | None = None
    classes_from: str | None = None
    public_overlap: int | None = None
    insisted: bool = False
    shares: int | None = None
    judged: Judged = field(default_factory=Judged)

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            number = getattr(self, name)
            if number is not None:
                integer_at_least(number, least, name, "Case")
        for name, known in _WORDS.items():
            word = getattr(self, name)
            if word not in (None, *known):
                raise InvalidParameterError(
                    f"Case.{name}", f"be one of {', '.join(known)}", f"{word!r}"
                )
        if self.epsilon not in (None, inf):
            number_between(self.epsilon, 0, inf, "epsilon", "Case")
        if self.delta is not None:
            probability(self.delta, "delta", "Case")
        if self.threshold is not None:
            number_of_votes(self.threshold, "threshold", "Case")


def lint(case: Case) -> tuple[Finding, ...]:
    """Return the objections of a privacy officer.

    No finding quotes `entities` or `public_overlap`. A finding still reveals something about them, so if they were
    counted on private rows, only the data set owner may see it.
    """
    return (*_of_settings(case), *_of_student(case.judged))


def _of_settings(case: Case) -> Iterator[Finding]:
    """Yield objections to ε and δ, to teachers, to what ε does not count, and to what it presumes of hospitals."""
    if case.epsilon is not None and strength(case.epsilon, case.delta or 0.0) == "weak":
        code = "epsilon-too-large" if case.epsilon > _HUGE_EPSILON else "epsilon-large"
        yield _finding(code, meaning=_odds(case.epsilon, case.unit))
    if case.delta is not None and case.entities is not None and case.delta * case.entities >= 1:
        yield _finding("delta-too-large", delta=case.delta)
    yield from _of_teachers(case)
    if case.stopping == "data-dependent":
        yield _finding("stopped-by-votes")
    if case.tuned_on == "private":
        yield _finding("tuned-on-private")
    if case.public_overlap:
        yield _finding("public-overlaps-private")
    if case.insisted:
        yield _finding("refusals-overridden")
    if case.classes_from == "private":
        yield _finding("classes-from-private-labels")
    if case.shares is not None:
        yield _finding(NOISE_FROM_SHARES, shares=case.shares)


def _of_teachers(case: Case) -> Iterator[Finding]:
    """Yield objections to the number of teachers and the threshold of their votes."""
    if case.teachers is None:
        return
    if case.entities is not None and case.entities < _PEOPLE_PER_TEACHER * case.teachers:
        yield _finding("teachers-without-rows", least=_PEOPLE_PER_TEACHER)
    if case.threshold is None:
        return
    if case.threshold > case.teachers:
        yield _finding("threshold-above-teachers", threshold=case.threshold, teachers=case.teachers)
    elif (
        case.classes is not None
        and case.mechanism != "interactive"
        and case.threshold * case.classes <= case.teachers
    ):
        yield _finding(
            "threshold-passes-always",
            threshold=case.threshold,
            teachers=case.teachers,
            classes=case.classes,
        )


def _of_student(judged: Judged) -> Iterator[Finding]:
    """Yield objections to a student that is of no use."""
    lost = [
        f"{each.name} ({number_of(each.rows, 'row', 'rows')})"
        for each in judged.by_class
        if each.rows > each.right == 0
    ]
    if lost:
        names = ", ".join(lost[:_MOST_NAMED])
        if len(lost) > _MOST_NAMED:
            names += f" and {len(lost) - _MOST_NAMED:,} more"
        yield _finding("lost-class", lost=names)

    goals = judged.goals
    if judged.accuracy is not None and judged.majority is not None and not goals:
        goals = (Reached("accuracy", judged.accuracy, judged.public_labels, judged.majority),)
    for reached in goals:
        values = {"goal": reached.goal, "share": reached.student}
        if not is_worth(reached.student, reached.no_model):
            yield _finding("no-better-than-majority", majority=reached.no_model, **values)
        public = reached.public_labels
        if public is not None and not is_worth(reached.student, public):
            yield _finding("no-better-than-public-labels", public=public, **values)


def is_worth(student: float, without: float) -> bool:
    """Return whether a student is worth a release, by what is reached without one; plans and cards judge by it."""
    return student >= without + _LEAST_GAIN


def verdict_of(epsilon: PublicEpsilon, findings: Sequence[Finding]) -> Verdict:
    """Return the verdict on a guarantee, in view of the findings."""
    codes = tuple(finding.code for finding in findings if finding.code in UNCOUNTED)
    return verdict(epsilon, codes)


def _odds(epsilon: float, unit: PrivacyUnit | None) -> str:
    if epsilon == inf:
        return "ε is infinite: there is no guarantee."
    change = ""
    if unit is not None:
        change = f" ({unit.neighboring.sentence}; unit of privacy: {unit.name})"
    return (
        f"ε = {round_up(epsilon)}: an outcome may be up to {bayes_factor(epsilon)} times as likely as it is on "
        f"neighboring data{change}."
    )
