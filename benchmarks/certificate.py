"""How many rows of Adult are right and safe from liars, by the number of landmarks, and attacks on some of them.

    python benchmarks/certificate.py [--landmarks 1000 200 60] [--epsilon 1] [--seeds 5] [--attacked 0]

The private rows are the training rows of UCI Adult. Of its test rows, 5,000 drawn by the seed are scored, and the
others are public rows without labels. A row is safe from k people if its prediction survives them (`certified`). With
`--attacked 200`, so many rows of the first seed are attacked: liars move the real noisy sum, in whole steps, as far as
they can; toward another class by the prior at hand, toward another prior within reach, to both at once, against
all that was learned, and at random. The student is fitted again. A prediction that changes although it should survive
is an error. The ratio is one more than the certain number, over the number that the first of these attacks needs.
"""

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from tutelage import PATEClassifier, SimulationNoise
from tutelage._internal.typing import FloatArray, IntArray, Mask, Matrix
from tutelage.datasets import load_adult
from tutelage.methods import NoisyMoments
from tutelage.students import NoisySumClassifier
from tutelage.students.certificate import Certificate, priors_of
from tutelage.students.noisy_sums import Spectrum

LIARS = (1, 10, 50, 100)
SCORED = 5_000
STEPS = 2**27  # length of a ballot, in whole steps


class Fitted(NamedTuple):
    """A student, and the rows that it is scored on."""

    student: NoisySumClassifier
    moments: Any
    people: int
    public: Matrix  # as the student sees them
    scored: Matrix
    right: Mask
    liars: IntArray


def fit(landmarks: int, epsilon: float, seed: int) -> Fitted:
    """Return the student of a seed, with the rows that it is scored on."""
    adult = load_adult()
    order = np.random.default_rng(20 + seed).permutation(len(adult.X_public))
    scored = order[:SCORED]
    public = order[SCORED:]
    model = PATEClassifier(
        epsilon=epsilon,
        classes=[0, 1],
        method=NoisyMoments(n_landmarks=landmarks, rounds=1),
        noise=SimulationNoise(seed),
    )
    model.fit(adult.X_private, adult.y_private, X_public=adult.X_public[public])
    *maps, (_, student) = model.whole_student().steps
    maps += student.steps[:-1]

    def see(rows: Matrix) -> Matrix:
        for _, step in maps:
            rows = step.transform(rows)
        return rows

    rows = adult.X_public[scored]
    return Fitted(
        student[-1],
        model.moments_[0],
        len(adult.X_private),
        see(adult.X_public[public]),
        see(rows),
        model.predict(rows) == adult.y_public[scored],
        model.certified(rows),
    )


def directions_of(
    row: FloatArray, own: int, certificate: Certificate, rng: Any
) -> list[FloatArray]:
    """Return directions in which liars move the moments, shape (classes, features)."""
    axes, spread, around, seen, _ = certificate
    priors = np.stack([*priors_of(spread)])
    reached_at = certificate.distances_to(priors)
    variances = spread**2 * priors + around
    factors = spread * priors / variances
    order = np.argsort(reached_at)
    chosen = order[0]
    sign = np.array([1.0, -1.0]) * (1 if own else -1)

    def toward_class(prior: int) -> FloatArray:
        wanted = axes @ (factors[prior] * (row @ axes))
        return np.outer(sign, wanted) / np.linalg.norm(wanted)

    directions = [toward_class(chosen)]
    for prior in order[1:6]:
        # The surprise of the other prior falls, relative to that of the chosen one.
        gradient = (1 / variances[prior] - 1 / variances[chosen])[:, None] * seen
        toward_prior = -(axes @ gradient).T
        toward_prior /= np.linalg.norm(toward_prior)
        both = toward_class(prior) / np.sqrt(2) + toward_prior
        directions += [toward_prior, both, toward_class(prior)]
    directions.append(-(axes @ seen).T)
    directions += [*rng.normal(size=(2, 2, len(row)))]
    return directions


def attack(fitted: Fitted, n_rows: int) -> list[float]:
    """Return, of some rows, the certain number of liars over the number that the best attack needs."""
    rng = np.random.default_rng(0)
    certificate: Any = fitted.student.certificate_
    spectrum = Spectrum(certificate.spread[:, None], certificate.axes)
    moments = fitted.moments
    predicted = fitted.student.predict(fitted.scored)
    radius = moments.radius
    scale = STEPS / radius * fitted.people
    total = np.rint(moments.values * scale)

    def changes(place: int, direction: FloatArray, k: int) -> bool:
        """Return whether so many liars, who move the sum in this direction, change the prediction of a row."""
        lie = np.trunc(direction / np.linalg.norm(direction) * 2 * STEPS * k)
        lied = moments._replace(values=(total + lie) / scale)
        student = NoisySumClassifier().fit_moments(
            fitted.public, [lied], n_rows=fitted.people, classes=np.arange(2), spectrum=spectrum
        )
        return bool(student.predict(fitted.scored[[place]])[0] != predicted[place])

    ratios = list[float]()
    for place in rng.permutation(np.flatnonzero(fitted.liars))[:n_rows]:
        own = int(predicted[place])
        certain = int(fitted.liars[place])
        directions = directions_of(fitted.scored[place], own, certificate, rng)
        if any(changes(place, direction, certain) for direction in directions):
            raise AssertionError(f"Fewer than {certain + 1} liars changed a prediction.")
        ratios.append((certain + 1) / fewest(partial(changes, place, directions[0]), certain))
    return ratios


def fewest(changes: Any, certain: int) -> int:
    """Return how many liars an attack needs, which needs more the fewer there are."""
    low, high = certain, 2 * certain + 2
    while not changes(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if changes(middle) else (middle, high)
    return high


def with_interval(shares: Sequence[float]) -> str:
    """Return the mean of shares in %, with two standard errors."""
    error = 2 * np.std(shares, ddof=1) / np.sqrt(len(shares)) if len(shares) > 1 else np.nan
    return f"{100 * np.mean(shares):.1f} ± {100 * error:.1f}"


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--landmarks", type=int, nargs="+", default=[1000, 200, 60])
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--attacked", type=int, default=0)
    asked = parser.parse_args()
    console = Console(width=120)
    table = Table(
        title=f"UCI Adult, ε = {asked.epsilon:g}, one round, % of {SCORED:,} rows, mean ± 2 standard errors over "
        f"{asked.seeds} seeds"
    )
    headings = [f"right and safe from any {k}" for k in LIARS]
    for heading in ("landmarks", "right", *headings, "safe from any 10", "50"):
        table.add_column(heading)
    for landmarks in asked.landmarks:
        shares = list[list[float]]()
        for seed in range(asked.seeds):
            fitted = fit(landmarks, asked.epsilon, seed)
            safe = [fitted.right & (fitted.liars >= k) for k in LIARS]
            survived = [fitted.liars >= k for k in (10, 50)]
            shares.append([float(np.mean(rows)) for rows in (fitted.right, *safe, *survived)])
            if asked.attacked and seed == 0:
                ratios = attack(fitted, asked.attacked)
                console.print(
                    f"{landmarks} landmarks: {len(ratios)} rows attacked, no certain prediction changed; ratio: median "
                    f"{np.median(ratios):.3f}, least {min(ratios):.3f}"
                )
        table.add_row(
            str(landmarks), *(with_interval(column) for column in zip(*shares, strict=True))
        )
    console.print(table)


if __name__ == "__main__":
    main()
