"""The needs of a method, compared with what a fit has."""

from collections.abc import Iterator
from typing import NamedTuple

from tutelage.exceptions import Problem
from tutelage.methods.base import Method
from tutelage.students import NoisySumClassifier
from tutelage.students.base import weight_parameter
from tutelage.targets import Classes, Goal, Numbers, Target


class Offered(NamedTuple):
    """The things that a fit has for its method, and asks of it; public."""

    target: Target
    schema: bool = False  # a public schema in place of public rows
    batches: bool = False  # rows that are read in batches
    labels: bool = False  # of public rows
    silos: bool = False  # owners of rows
    name: bool = False  # of the release
    tiers: bool = False  # of people who ask for a smaller ε
    report: bool = False  # how good the student is on the people
    opened: bool = False  # sums of several owners, and nothing else


def unmet(method: Method, offered: Offered, owner: str) -> Iterator[Problem]:
    """Yield what a method needs and a fit does not have, or has and the method cannot use."""
    needs = method.needs
    kind = type(method).__name__
    if not isinstance(offered.target, needs.target):
        if needs.target is Numbers:
            found = f"{kind}, which predicts numbers"
            yield Problem(f"{owner}.method", "predict classes", found, "Use PATERegressor.")
        else:
            found = f"{kind}, which predicts classes"
            yield Problem(f"{owner}.method", "predict numbers", found, "Use PATEClassifier.")
        return
    if needs.public == "schema" and not offered.schema:
        yield Problem(f"{owner}.columns", f"be a Schema, because {kind} learns without public rows")
    if needs.public == "rows" and offered.schema:
        yield Problem(
            f"{owner}.method",
            "take a public schema, as Additive does",
            kind,
            "Leave it out for Additive.",
        )
    if offered.batches and not needs.batches:
        yield Problem(
            f"{owner}.method",
            "take rows in batches, as NoisyMoments does",
            kind,
            "Choose NoisyMoments, or load all rows into memory.",
        )
    if offered.labels and not needs.start:
        yield Problem(
            f"{owner}.fit.y_public",
            f"be left out for {kind}, which does not learn from public labels",
            fix="Leave it out, or use NoisyMoments.",
        )
    if offered.silos and not needs.shards:
        yield Problem(
            f"{owner}.fit.silos",
            f"be left out for {kind}, in which every person casts ballots and owners train no teachers",
            fix="Pass $entity_ids alone.",
        )
    if offered.name and needs.shards:
        yield Problem(
            f"{owner}.fit.release",
            f"be left out for {kind}: people have a budget of their own only if every person casts ballots",
            fix="Leave it out, or use a method in which every person does, such as NoisyMoments.",
        )
    if offered.tiers and not method.facts(None).of_sums:
        yield Problem(
            f"{owner}.fit.tiers",
            f"be left out for {kind}: people can ask for a smaller ε only where their ballots are summed",
            fix="Leave it out, or use a method of sums, such as NoisyMoments.",
        )
    if offered.report and (not needs.report or method.student is not None):
        yield Problem(
            f"{owner}.fit.report",
            f"be left out for {kind} with a student that learns from labels: only one that follows from sums is tested",
            fix="Leave it and $groups out, or use NoisyMoments or Additive without a `student`.",
        )
    if offered.opened and needs.student:
        yield Problem(
            f"{owner}.method",
            "release sums from which a student follows",
            f"{kind}, which asks for labels",
        )
    if isinstance(offered.target, Classes):
        yield from _unmet_by_student(method, offered.target, owner)


def _unmet_by_student(method: Method, target: Classes, owner: str) -> Iterator[Problem]:
    """Yield what a goal or class weights ask of the student and it does not have."""
    needs = method.needs
    goal = Goal(target.goal)
    kind = type(method).__name__
    student = method.student
    if student is None:
        student = NoisySumClassifier()
    if target.weight is not None or goal.name == "balanced_accuracy":
        takes_weights = needs.weights
        name = weight_parameter(student) if needs.student else None
        if name is not None:
            takes_weights = student.get_params()[name] is None
        if not takes_weights:
            parameter = "goal" if target.weight is None else "class_weight"
            yield Problem(
                f"{owner}.{parameter}",
                "come with a method or student that takes class weights: NoisyMoments, Additive, or a classifier with "
                "`class_weight`",
                f"{kind} and {type(student).__name__}",
                "Choose one, such as RandomForestClassifier(), and leave its own `class_weight` unset.",
            )
    if (goal.ranks or method.facts(None).predicts) and not hasattr(student, "predict_proba"):
        reason = f"{goal.title} ranks rows" if goal.ranks else "later rounds use its predictions"
        yield Problem(
            f"{kind}.student",
            f"have `predict_proba`, because {reason}",
            f"a {type(student).__name__}",
        )
