"""Real releases without public rows tell of one person: a lower bound of ε, beside the ε that is claimed.

    python benchmarks/audit_additive.py [--releases 500] [--fit]

Two neighboring data sets are released so many times each, with real noise; with `--fit` by whole fits with a ledger,
which take three times as long. The attacker of `sums` knows all other people, sees all noisy sums and takes the
likelihood ratio of both data sets: no statistic tells more. That of `student` sees the student and the number of people
alone: a linear statistic of all its numbers, trained on half of the releases. The bounds of both error rates (Clopper
and Pearson, 95 % together) bound the μ of Gaussian differential privacy from below, and this bounds ε. `distance` is ε
by how far the two data sets are apart in any release, without chance: a right claim is not below it.
"""

import argparse
import warnings
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from scipy.stats import norm
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from tutelage import PATEClassifier, PATERegressor, SystemNoise
from tutelage._internal.threads import _thread as worker_mark  # pyright: ignore[reportPrivateUsage]
from tutelage._internal.typing import IntArray
from tutelage.accounting import data_independent
from tutelage.accounting.composition import gaussian_dp_epsilon
from tutelage.boundary import Boundary
from tutelage.features import Schema
from tutelage.methods import additive, additive_mean, sums
from tutelage.methods.requests import Answer, run_steps
from tutelage.testing.laws import at_least, at_most

DELTA, LEVEL, OTHERS = 1e-5, 0.05, 100
SCHEMA = Schema({"u": ["a", "b", "c"], "v": ["a", "b", "c"]})
ROW, PERSON, REMOVED = RELATIONS = "row replaced", "person replaced", "person removed"
RELEASE, CAST, ENTRIES, NOISE = (
    Boundary.release, sums.BallotOfRows.cast, sums.sum_of_entries, SystemNoise.discrete_gaussian
)  # fmt: skip


class Bounds(NamedTuple):
    """What is claimed and what is shown, as μ."""

    claimed: float
    sums: float
    student: float
    distance: float


def sides(numbers: bool, relation: str) -> list[tuple[Any, Any, Any]]:
    """Return rows, labels and ids of two data sets: one person is at odds with all others, and alone in its bins."""
    here = ("c", 1.0)
    there = ("c", 0.0) if numbers else ("a", 1.0)
    found = list[tuple[Any, Any, Any]]()
    for (cell, label), rows in ((here, 1), (there, {ROW: 1, PERSON: 5, REMOVED: 0}[relation])):
        cells = np.repeat(["a", cell], [OTHERS, rows])
        ids = None if relation == ROW else [*map(str, range(OTHERS)), *["x"] * rows]
        labels = np.repeat([0.5 if numbers else 0.0, label], [OTHERS, rows])
        found.append((np.column_stack([cells, cells]), labels, ids))
    return found


@patch.object(worker_mark, "is_worker", True, create=True)  # no pool for a hundred rows
def audited(
    numbers: bool, relation: str, epsilon: float, releases: int, *, fit: bool = False
) -> Bounds:
    """Release both data sets so many times each, attack what comes out, and bound μ from below."""
    model: Any = PATERegressor(epsilon=epsilon, target_range=(0, 1), delta=DELTA, columns=SCHEMA)
    model = (
        model
        if numbers
        else PATEClassifier(epsilon=epsilon, classes=[0, 1], delta=DELTA, columns=SCHEMA)
    )
    data, intending, tape = sides(numbers, relation), model, list[Any]()
    wholes = [
        intending.prepare(rows, labels, entity_ids=ids, insist=True) for rows, labels, ids in data
    ]
    people = [whole.method.prepare(whole.public, whole.people) for whole in wholes]
    ratios, shown, distance = np.zeros((2, releases)), [list[Any](), list[Any]()], 0.0

    def fitted(side: int) -> tuple[Any, Any]:
        def release(boundary: Boundary, request: Any) -> Answer:
            tape.append((request, RELEASE(boundary, request)))
            return tape[-1][1]

        rows, labels, ids = data[side]
        with patch.object(Boundary, "release", release):
            model.fit(rows, labels, entity_ids=ids, insist=True)
        return model.student_, model.n_teachers_

    def released(side: int) -> tuple[Any, Any]:
        def answer_to(request: Any) -> Answer:
            drawn = request.mechanism.release(
                request.ballot.cast(people[side], request, None), SystemNoise()
            )
            tape.append((request, Answer(drawn.values.reshape(1, -1), drawn.event, 0.0)))
            return tape[-1][1]

        steps = wholes[side].method.steps(wholes[side].public)
        outcome = run_steps(steps, answer_to, lambda asked: asked.make())
        return outcome.student, outcome.n_teachers

    for number in range(2 * releases):
        side, moved = number % 2, 0.0
        tape.clear()
        student, n_people = (fitted if fit else released)(side)
        for request, answer in tape:
            here, there = (request.ballot.cast(one, request, None).totals.ravel() for one in people)
            sigma = request.mechanism.most(request.form, simulated=False).sigma
            away = (there - here) / sigma
            ratios[side, number // 2] += (answer.values.ravel() - (here + there) / 2) @ away / sigma
            moved += away @ away
        distance = max(distance, moved)
        more = (getattr(student, one, []) for one in ("below_", "parts_"))
        shown[side].append(
            np.hstack(
                [np.ravel(one) for one in (student.intercept_, *student.effects_, *more, n_people)]
            )
        )
    claimed = data_independent.mu_squared(wholes[0].method.event(wholes[0].public.sizes))
    return Bounds(
        claimed**0.5,
        least_mu(*ratios),
        least_mu(*of_students(*map(np.array, shown))),
        distance**0.5,
    )


def of_students(here: Any, there: Any) -> tuple[Any, Any]:
    """Return a linear statistic of the second half of the releases, trained on the first: positive is `there`."""
    half = len(here) // 2
    train = np.concatenate([here[:half], there[:half]])
    scale = train.std(axis=0) + 1e-9
    trained: Any = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
    trained.fit(train / scale, np.repeat([0, 1], half))
    statistic = trained.decision_function
    return statistic(here[half:] / scale), statistic(there[half:] / scale)


def least_mu(here: Any, there: Any) -> float:
    """Return the μ that statistics show at least, which are positive rather where `there` was released."""
    right = at_least(np.sum(there > 0), len(there), LEVEL / 2)
    wrong = at_most(np.sum(here > 0), len(here), LEVEL / 2)
    return max(0.0, float(norm.ppf(right) - norm.ppf(wrong)))


def doubled(self: Any, prepared: Any, request: Any, places: Any) -> Any:
    """Cast ballots that count twice, which the form does not allow."""
    honest = CAST(self, prepared, request, places)
    return replace(honest, totals=honest.totals * (2 if request.form.nonnegative else 1))


def half_as_noisy(self: SystemNoise, sigma: float, shape: tuple[int, ...]) -> IntArray:
    """Draw with half of sigma."""
    return NOISE(self, sigma / 2, shape)


def charged_as_counts(event: Any) -> int:
    """Charge any sum as one of counts, which a replaced row moves less."""
    return 2 * event.norm_squared


def row_by_row(entries: Any, block: Any, form: Any) -> Any:
    """Let each row cast a ballot, whoever it belongs to."""
    return ENTRIES(entries, replace(block, people=np.arange(len(block.rows))), form)


FAULTS: dict[str, tuple[str, list[tuple[Any, str, Any]]]] = {
    "half the noise": (ROW, [(SystemNoise, "discrete_gaussian", half_as_noisy)]),
    "counts twice as long": (ROW, [(sums.BallotOfRows, "cast", doubled)]),
    "each row a person": (
        PERSON,
        [(module, "sum_of_entries", row_by_row) for module in (additive, additive_mean)],
    ),
    "all sums charged as counts": (
        ROW,
        [(data_independent, "_squared_distance", charged_as_counts)],
    ),
}


def line(
    numbers: bool, relation: str, fault: str, epsilon: float, releases: int, *, fit: bool = False
) -> str:
    """Return a line of the table."""
    with ExitStack() as planted:
        for one in FAULTS[fault][1] if fault else []:
            planted.enter_context(patch.object(*one))
        found = audited(numbers, relation, epsilon, releases, fit=fit)
    shown = [f"{gaussian_dp_epsilon(mu, DELTA):.2f}" for mu in found]
    return (
        f"| {' | '.join(['number' if numbers else 'class', relation, fault or 'none', *shown])} |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--releases", type=int, default=500, help="of each side; half as many with a planted fault"
    )
    parser.add_argument("--fit", action="store_true", help="whole fits")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    cases = [(relation, "", 4.0) for relation in RELATIONS] + [(ROW, "", 20.0), (ROW, "", 1.0)]
    cases += [(relation, fault, 4.0) for fault, (relation, _) in FAULTS.items()]
    print(
        "| target | neighbors | planted fault | claimed ε | `sums` | `student` | `distance` |",
        "|---" * 7 + "|",
        sep="\n",
    )
    for relation, fault, epsilon in cases:
        releases = given.releases // 2 if fault else given.releases
        for numbers in (False, True):
            print(line(numbers, relation, fault, epsilon, releases, fit=given.fit), flush=True)


if __name__ == "__main__":
    main()
