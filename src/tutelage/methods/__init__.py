"""Methods: how private rows teach a student. Each is a public record and a generator of requests."""

from tutelage.exceptions import InvalidParameterError
from tutelage.mechanisms import GNMax
from tutelage.methods.additive import Additive
from tutelage.methods.additive_mean import AdditiveMean
from tutelage.methods.base import Method, Needs
from tutelage.methods.capped_votes import CappedVotes
from tutelage.methods.noisy_moments import NoisyMoments
from tutelage.methods.requests import Outcome, Public, Request, Sizes
from tutelage.methods.sums import BallotOfRows, NoisySums, subject_of, sum_of_entries
from tutelage.methods.teacher_votes import TeacherVotes
from tutelage.teachers import ensemble_of

__all__ = [
    "Additive",
    "AdditiveMean",
    "BallotOfRows",
    "CappedVotes",
    "Method",
    "Needs",
    "NoisyMoments",
    "NoisySums",
    "Outcome",
    "Public",
    "Request",
    "Sizes",
    "TeacherVotes",
    "subject_of",
    "sum_of_entries",
]
METHODS: dict[str, type[Method]] = {
    kind.name: kind for kind in (NoisyMoments, CappedVotes, TeacherVotes, Additive)
}


def proposals(
    people: int,
    sizes: Sizes,
    *,
    named: bool,
) -> list[Method]:
    """Return the settings that a plan tries; for a release with a name, only those in which people cast ballots."""
    kinds = (kind for kind in METHODS.values() if not (named and kind.needs.shards))
    return [method for kind in kinds for method in kind.proposals(people, sizes)]


def require_trials(method: Method) -> None:
    """Refuse settings that cannot be tried on public rows."""
    name = type(method).__name__
    if method.needs.public == "schema":
        raise InvalidParameterError(
            "plan.method",
            "be one that uses public rows, because a plan tries it on them",
            name,
            "Train without a plan.",
        )
    if not method.needs.student and method.student is not None:
        raise InvalidParameterError(
            f"{name}.student", "be left out for a plan, which tries only the student in closed form"
        )
    if not isinstance(method, TeacherVotes):
        return
    if method.rounds > 1 or method.rule.needs_answers or method.rule.needs_student:
        raise InvalidParameterError(
            "TeacherVotes.rounds",
            "be 1 for a plan, and $selection must be a rule that needs no labels, such as 'first' or 'medoids'",
        )
    if not isinstance(method.mechanism, GNMax | None):
        raise InvalidParameterError(
            "TeacherVotes.mechanism",
            "be a GNMax for a plan",
            type(method.mechanism).__name__,
            "Leave it out to get the least noise that ε allows.",
        )
    # Refuses what cannot be trained, such as recorded votes.
    ensemble_of(method.teacher, n_classes=2, seed=0)
