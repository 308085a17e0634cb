"""The one rule by which the parameters of a `PATEClassifier` are short for a method."""

from dataclasses import asdict
from typing import Any

from sklearn.ensemble import RandomForestClassifier

from tutelage.exceptions import InvalidParameterError, Problem, shown
from tutelage.mechanisms import Mechanism
from tutelage.methods.additive import Additive
from tutelage.methods.base import Method
from tutelage.methods.capped_votes import CappedVotes
from tutelage.methods.noisy_moments import NoisyMoments
from tutelage.methods.teacher_votes import TeacherVotes
from tutelage.teachers import NearestQueries, VectorBallots

DEFAULTS: dict[str, Any] = dict.fromkeys(
    ("teacher", "n_teachers", "mechanism", "student", "n_queries", "selection", "rounds")
)


def method_for(
    method: Method | None,
    *,
    by_votes: bool = False,
    by_schema: bool = False,
    owner: str = "PATEClassifier",
    **shortcuts: Any,
) -> Method:
    """Return a method that is given, or the one that shortcuts stand for; `by_votes` says that votes are meant.

    Without a teacher, people cast vectors, unless a shortcut is about votes on single rows. Then forests vote.
    """
    given = {name: value for name, value in shortcuts.items() if value is not None}
    if method is not None:
        if not isinstance(method, Method):
            raise InvalidParameterError(
                Problem("method", "be a method of tutelage.methods, such as NoisyMoments()", shown(method))
            )
        if given:
            raise _set_twice(owner, next(iter(given)), "method", method)
        return method
    if by_schema and not by_votes and given.keys() <= {"mechanism", "student"}:
        return Additive(**given)
    teacher, mechanism = given.pop("teacher", None), given.get("mechanism")
    about_votes = given.keys() - {"mechanism", "student", "rounds"}
    if teacher is None:
        if not (by_votes or about_votes or isinstance(mechanism, Mechanism)):
            return NoisyMoments(**given)
        teacher = RandomForestClassifier()
    if isinstance(teacher, VectorBallots):
        if unused := sorted(about_votes - {"n_teachers"}):
            raise InvalidParameterError(
                Problem(
                    f"PATEClassifier.{unused[0]}",
                    "be left out, because NoisyMoments (`VectorBallots`) labels all public rows at once",
                )
            )
        if "rounds" in given:
            raise _set_twice(owner, "rounds", "teacher", teacher)
        given.pop("n_teachers", None)
        return NoisyMoments(**asdict(teacher), **given)
    if isinstance(teacher, NearestQueries):
        given.pop("n_teachers", None)
        return CappedVotes(votes=teacher.cap, **given)
    return TeacherVotes(teacher=teacher, **given)


def _set_twice(owner: str, name: str, by: str, record: Any) -> InvalidParameterError:
    """Return the refusal of a parameter beside another one that sets it."""
    return InvalidParameterError(
        Problem(
            f"{owner}.{name}",
            f"be left out, because ${by} already sets it",
            fix=f"Change it in {type(record).__name__}.",
        )
    )
