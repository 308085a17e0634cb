"""Methods: how private rows teach a student. Each is a public record and a generator of requests."""

from tutelage.methods.additive import Additive
from tutelage.methods.additive_mean import AdditiveMean
from tutelage.methods.base import Method, Needs
from tutelage.methods.capped_votes import CappedVotes
from tutelage.methods.noisy_moments import NoisyMoments
from tutelage.methods.requests import Outcome, Public, Request, Sizes
from tutelage.methods.sums import BallotOfRows, NoisySums, subject_of, sum_of_entries
from tutelage.methods.teacher_votes import TeacherVotes

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
