"""The needs of methods: one record for each method, and one function that compares it with what a fit has."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

from tutelage.accounting.filter import Accounting
from tutelage.exceptions import Problem
from tutelage.students import NoisySumClassifier
from tutelage.students.base import weight_parameter
from tutelage.targets import Classes, Goal, Numbers, Target

if TYPE_CHECKING:
    from tutelage.methods.base import Method


class Needs(NamedTuple):
    """The things that a method asks of a fit, and further ones that it can use; public.

    Attributes
    ----------
    target : Classes or Numbers
        What it predicts.
    public : {"rows", "schema", "either"}
        Whether it takes public rows, or a public schema in their place.
    shards : bool
        Whether teachers are trained, each on a shard of the rows. Otherwise every person casts ballots.
    student : bool
        Whether a student learns from released labels. Otherwise it follows from what is released.
    batches : bool
        Whether rows may be read in batches.
    empty : bool
        Whether cells of a table may be empty.
    start : bool
        Whether it can start from labels of public rows.
    weights : bool
        Whether the student that follows from what is released predicts by class weights.
    fewest : int
        Public rows below which a warning is due.
    accounting : Accounting
        How the cost is proved, if the ledger is of this release alone.
    """

    target: type[Classes] | type[Numbers] = Classes
    public: Literal["rows", "schema", "either"] = "rows"
    shards: bool = False
    student: bool = True
    batches: bool = False
    empty: bool = False
    start: bool = False
    weights: bool = False
    fewest: int = 0
    accounting: Accounting = Accounting.RENYI


class Offered(NamedTuple):
    """The things that a fit has for its method, and asks of it; public."""

    target: Target
    schema: bool = False  # a public schema in place of public rows
    batches: bool = False  # rows that are read in batches
    labels: bool = False  # of public rows
    silos: bool = False  # owners of rows
    name: bool = False  # of the release
    opened: bool = False  # sums of several owners, and nothing else


def unmet(
    method: "Method",
    offered: Offered,
    owner: str,
) -> Iterator[Problem]:
    """Yield what a method needs and a fit does not have, or has and the method cannot use."""
    needs = method.needs
    kind = type(method).__name__
    if not isinstance(offered.target, needs.target):
        if needs.target is Numbers:
            yield Problem(
                f"{owner}.method",
                "predict classes",
                f"{kind}, which predicts numbers",
                "Use PATERegressor.",
            )
        else:
            yield Problem(
                f"{owner}.method",
                "predict numbers",
                f"{kind}, which predicts classes",
                "Use PATEClassifier.",
            )
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
    if offered.opened and needs.student:
        yield Problem(
            f"{owner}.method",
            "release sums from which a student follows",
            f"{kind}, which asks for labels",
        )
    if isinstance(offered.target, Classes):
        yield from _unmet_by_student(method, offered.target, owner)


def _unmet_by_student(
    method: "Method",
    target: Classes,
    owner: str,
) -> Iterator[Problem]:
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
