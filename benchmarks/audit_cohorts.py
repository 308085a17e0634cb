"""Releases with names tell of one person who is in three of them: a lower bound of ε, beside that of the ledger.

    python -m benchmarks.audit_cohorts [--fits 1000]

A new ledger gets three named releases, each a whole fit of `Additive`, so many times with each of two data sets. They
differ in one person, who comes with the first release and stays, is alone in its bins, and is of a class at odds with
all others; more people come with each release. The attacker of `sums` knows all others, sees the noisy sums of all
three releases, and takes the likelihood ratio of both data sets; that of `student` sees the three students and the
noisy numbers of people. `audit_additive.py` says more on both, and on `distance`. Noise is simulated, with another seed
for each release.
"""

import argparse
import warnings
from contextlib import ExitStack
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from benchmarks.audit_additive import DELTA, PERSON, RELEASE, SCHEMA, least_mu, of_students, sides
from tutelage import Ledger, PATEClassifier, SimulationNoise
from tutelage._internal.threads import _thread as worker_mark  # pyright: ignore[reportPrivateUsage]
from tutelage.accounting.composition import gaussian_dp_epsilon
from tutelage.boundary import Boundary
from tutelage.ledger.transaction import Transaction
from tutelage.methods.requests import Answer
from tutelage.privacy import NeighboringRelation, PrivacyUnit

EPSILON, RELEASES, NEWCOMERS = 4.0, 3, 20
UNIT = PrivacyUnit("entity", NeighboringRelation.ADD_REMOVE_OR_CHANGE_ONE_ENTITY)


def no_cohorts(_: Transaction) -> dict[str, int]:
    """Return that no cohort came before."""
    return {}


def forget(*_: object) -> None:
    """Add nobody."""


# With each fault, the number of releases that the budget of a person is divided among.
FAULTS: dict[str, tuple[int, list[tuple[Any, str, Any]]]] = {
    "": (RELEASES, []),
    "forgets who came": (
        1,
        [(Transaction, "cohorts", no_cohorts), (Transaction, "add_people", forget)],
    ),
}


class Bounds(NamedTuple):
    """What the ledger claims, and what is shown, as ε."""

    claimed: float
    sums: float
    student: float
    distance: float


@patch.object(worker_mark, "is_worker", True, create=True)  # no pool for a hundred rows
def audited(fault: str, fits: int) -> Bounds:
    """Make the three releases so many times with each data set, attack what comes out, and bound ε from below."""
    shares, planted = FAULTS[fault]
    both = [
        [_with_newcomers(one, release) for release in range(RELEASES)]
        for one in sides(False, PERSON)
    ]
    ratios, shown, distance = np.zeros((2, fits)), [list[Any](), list[Any]()], 0.0
    with ExitStack() as faults:
        for one in planted:
            faults.enter_context(patch.object(*one))
        for number in range(2 * fits):
            side, ledger = (
                number % 2,
                Ledger.in_memory(epsilon=EPSILON, delta=DELTA, unit=UNIT, accounting="gaussian"),
            )
            seen, moved = list[Any](), 0.0
            for release in range(RELEASES):
                noise = SimulationNoise(RELEASES * number + release)
                model: Any = PATEClassifier(
                    columns=SCHEMA,
                    classes=[0, 1],
                    budget=EPSILON,
                    releases=shares,
                    ledger=ledger,
                    noise=noise,
                )
                given = {"release": f"release {release}", "insist": True}
                people, tape = (
                    [_prepared(model, data[release], given) for data in both],
                    list[tuple[Any, Answer]](),
                )

                def recorded(
                    boundary: Boundary, request: Any, *, tape: Any = tape, mine: Any = people[side]
                ) -> Answer:
                    tape.append((request, RELEASE(boundary, request)))
                    cast, expected = (
                        boundary.noised[-1].ballots,
                        request.ballot.cast(mine, request, None),
                    )
                    # Everybody takes part.
                    np.testing.assert_array_equal(cast.totals, expected.totals)
                    return tape[-1][1]

                with patch.object(Boundary, "release", recorded):
                    rows, labels, ids = both[side][release]
                    model.fit(rows, labels, entity_ids=ids, **given)
                for request, answer in tape:
                    here, there = (
                        request.ballot.cast(one, request, None).totals.ravel() for one in people
                    )
                    sigma = request.mechanism.most(request.form, simulated=True).sigma
                    away = (there - here) / sigma
                    ratios[side, number // 2] += (
                        (answer.values.ravel() - (here + there) / 2) @ away / sigma
                    )
                    moved += away @ away
                seen += [
                    np.ravel(one) for one in (model.student_.intercept_, *model.student_.effects_)
                ]
                seen.append(np.array([model.n_teachers_]))
            shown[side].append(np.hstack(seen))
            distance = max(distance, moved)
    found = least_mu(*ratios), least_mu(*of_students(*map(np.array, shown))), distance**0.5
    return Bounds(EPSILON, *(gaussian_dp_epsilon(mu, DELTA) for mu in found))


def _with_newcomers(data: Any, release: int) -> tuple[Any, Any, list[str]]:
    """Return rows, labels and ids of a data set with the people who came since the first release."""
    (rows, labels, ids), more = data, release * NEWCOMERS
    return (
        np.vstack([rows, np.full((more, rows.shape[1]), "a")]),
        np.concatenate([labels, np.zeros(more)]),
        [*ids, *(f"new {number}" for number in range(more))],
    )


def _prepared(model: PATEClassifier, data: Any, given: dict[str, Any]) -> Any:
    rows, labels, ids = data
    whole = model.prepare(rows, labels, entity_ids=ids, **given)
    return whole.method.prepare(whole.public, whole.people)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fits", type=int, default=1000, help="of each side, of three releases")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    print(
        "| planted fault | claimed ε | `sums` | `student` | `distance` |",
        "|---" * 5 + "|",
        sep="\n",
    )
    for fault in FAULTS:
        print(
            f"| {' | '.join([fault or 'none', *(f'{one:.2f}' for one in audited(fault, given.fits))])} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
