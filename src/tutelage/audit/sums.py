"""Where every person is a teacher: whether one moves the sum of all ballots too far, and whether its noise is right.

The result depends on the private rows and is for the data set owner. It spends no budget, because nothing is released.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats
from sklearn.base import clone

from tutelage._internal.typing import IntArray, Matrix
from tutelage.audit.checklist import Checked, PrivateRows, sample_of
from tutelage.audit.mechanism import MechanismAudit, Neighbors, check_settings, claimed_epsilon, judged
from tutelage.audit.sensitivity import REMOVED, LearnsNothing, changes_of_one
from tutelage.ballots import BallotSum
from tutelage.estimator import PATEClassifier
from tutelage.exceptions import InvalidParameterError
from tutelage.ledger import Ledger
from tutelage.mechanisms import CappedGNMax, NoisySum
from tutelage.noise import NoiseSource, SimulationNoise, SystemNoise, known_noise
from tutelage.partition import Shards, as_column
from tutelage.privacy import round_up
from tutelage.students import NoisySumClassifier
from tutelage.teachers.blocks import PeopleBlock, PeopleInMemory

_CHECK = "one person, one ballot"
_BINS, _QUERIES, _LEAST_P = 20, 300, 1e-6
_SIGMA = 1000.0  # of the noise that is drawn: any scale will do, the sampler is the same
_INTERVALS, _REACH = 60, 4.0  # of what is seen of a sum, and how many standard deviations they go beyond both sums
_SHARP, _DELTA, _CONFIDENCE = NoisySum(1.5), 0.05, 1 - 1e-6  # with so little noise one ballot shows
_BALLOT = (3, -4)
_NOT_REPEATABLE = Checked(_CHECK, "fail", "The same rows gave another sum the second time.", private=True)


def check_noise_of_sum(*, draws: int = 40_000, noise: NoiseSource | None = None) -> Checked:
    """Draw the noise of a sum and compare it with the law that the accounting takes it to have."""
    drawn = (noise or SystemNoise()).discrete_gaussian(_SIGMA, (draws,))
    edges = np.rint(stats.norm.ppf(np.arange(1, _BINS) / _BINS) * _SIGMA) + 0.5
    expected = np.diff(stats.norm.cdf(edges / _SIGMA), prepend=0, append=1) * draws
    found = np.histogram(drawn, [-np.inf, *edges, np.inf])[0]
    shape = float(stats.chisquare(found, expected).pvalue)
    size = float((drawn / _SIGMA).astype(np.float64) @ (drawn / _SIGMA))
    spread = 2 * min(stats.chi2.cdf(size, draws), stats.chi2.sf(size, draws))
    p_value = min(shape, spread)
    verdict = "pass" if p_value > _LEAST_P else "fail"
    said = "is distributed as" if verdict == "pass" else "is not what"
    reason = f"Over {draws:,} draws, the noise of a sum {said} the accounting takes it to be (p = {p_value:.2g})."
    return Checked("noise as configured", verdict, reason)


def check_claim_of_sum(*, draws: int = 40_000) -> Checked:
    """Release a made-up sum and its neighbor with little noise, and compare what shows with the claimed ε."""
    found = audit_sum(_SHARP, _BALLOT, delta=_DELTA, draws=draws, confidence=_CONFIDENCE)
    reason = (
        f"{found.mechanism}: at δ = {_DELTA:g}, {2 * draws:,} releases of a sum show ε ≥ {found.lower_bound:.3f}; "
        f"claimed is {round_up(found.claim, 3):.3f}."
    )
    return Checked("ε of a sum with little noise", "pass" if found.passed else "fail", reason)


def audit_sum(
    mechanism: NoisySum,
    ballot: Sequence[int],
    *,
    delta: float,
    draws: int = 100_000,
    confidence: float = 0.999,
    claim: float | None = None,
    noise: NoiseSource | None = None,
) -> MechanismAudit:
    """Bound the ε of a noisy sum from below by telling a made-up ballot from its opposite.

    Releases are looked at along the line through both sums, on which the likelihood ratio depends alone, in intervals.

    Parameters
    ----------
    mechanism : NoisySum
        What is audited, as it is installed.
    ballot : sequence of int
        The only ballot of the one sum, as long as the mechanism allows; that of the other one is its opposite. No two
        sums of neighbors are farther apart.
    delta, draws, confidence, claim, noise
        As for `audit_mechanism`.
    """
    owner = "audit_sum"
    check_settings(None, delta, "release", draws, confidence, owner)
    along = np.array(ballot)
    if along.ndim != 1 or not np.issubdtype(along.dtype, np.integer) or not along.any():
        raise InvalidParameterError(f"`ballot` of {owner} must be whole numbers, not all of them 0. Got {ballot!r}.")
    norm_squared, source = int(along @ along), known_noise(noise, owner)
    # Every row of what is released at once is a sum of its own.
    sums = [BallotSum(np.tile(sign * along, (draws, 1)), norm_squared) for sign in (1, -1)]
    event = mechanism.event(sums[0], simulated=source.simulated)
    reach = norm_squared + _REACH * event.sigma * sqrt(norm_squared)
    inner = np.linspace(-reach, reach, _INTERVALS + 1)[1:-1]
    here, there = (np.digitize(mechanism.release(one, source).values @ along, inner)[:, np.newaxis] for one in sums)
    neighbors = Neighbors(tuple(along.tolist()), tuple((-along).tolist()))
    claim = claimed_epsilon(event, delta) if claim is None else claim
    return judged(mechanism, neighbors, (here, there), claim, delta, confidence)


def check_ballots(
    model: PATEClassifier, private: PrivateRows, X_public: npt.ArrayLike, *, entities: int = 4
) -> Checked:
    """Change and remove single people, cast all `VectorBallots` of each round again, and measure how far sums moved."""
    # The outcomes of earlier rounds are kept as they were: they are public.
    trial: Any = clone(model)
    trial.set_params(mechanism=NoisySum(1.0), epsilon=None, ledger=None, student=None, noise=SimulationNoise(0))
    trial.set_params(tune=None)  # the sums are of the same kind whatever is tried
    trial.fit(private.X, private.y, X_public=X_public, entity_ids=private.entity_ids)
    # The student that each round starts from, and where it shortens ballots, by the released outcomes alone.
    seen, moments = _vectors(trial, X_public), trial.moments_
    about: Any = {"n_rows": trial.n_teachers_, "classes": trial.classes_}
    students = [NoisySumClassifier().fit_moments(seen, moments[:number], **about) for number in range(len(moments))]
    totals = partial(_totals, trial, [(student, student.radius(seen)) for student in students])

    def length(moved: IntArray) -> float:
        return float(np.linalg.norm(moved.astype(np.float64))) / sqrt(trial.ballots_[0].norm_squared)

    if not np.array_equal(totals(private.X, private.y, private.entity_ids)[0], trial.ballots_[0].totals):
        return _NOT_REPEATABLE
    return _checked_moves(totals, length, "lengths of the longest ballot", private, entities)


def tried_on_few(
    model: PATEClassifier, private: PrivateRows, X_public: npt.ArrayLike, *, ledger: Ledger | None = None
) -> PATEClassifier:
    """Return a copy of a model of `NearestQueries`, fitted to a few rows, with simulated noise and a useless student.

    The noise depends on no row: it follows from `ledger`, an unused budget in memory, or else from the `epsilon`.
    """
    few, public = _few(private), np.asarray(X_public)[:_QUERIES]
    asked = min(model.n_queries or len(public), len(public))
    trial: Any = clone(model)
    trial.set_params(ledger=ledger, n_queries=asked, rounds=min(model.rounds, asked), student=LearnsNothing())
    trial.set_params(noise=SimulationNoise(0), checkpoints=None)
    return trial.fit(few.X, few.y, X_public=public, entity_ids=few.entity_ids)


def check_votes(model: PATEClassifier, private: PrivateRows, X_public: npt.ArrayLike, *, entities: int = 4) -> Checked:
    """Change and remove single people, let all vote again by `NearestQueries`, and measure how far the counts moved."""
    once: Any = clone(model)  # in one round, because later ones go by labels
    once.set_params(mechanism=CappedGNMax(1.0, model.teacher.cap), epsilon=None, rounds=1, selection=None)

    def totals(X: Matrix, y: Any, ids: Any) -> IntArray:
        trial: Any = tried_on_few(once, PrivateRows(X, y, ids), X_public)
        return trial.ballots_[0].counts[np.newaxis]

    def length(moved: IntArray) -> float:
        return float(np.abs(moved).sum()) / model.teacher.cap

    few = _few(private)
    return _checked_moves(totals, length, "times the cap on a person's votes", few, entities)


def _checked_moves(
    totals: Callable[[Matrix, Any, Any], IntArray],
    length: Callable[[IntArray], float],
    measured_in: str,
    private: PrivateRows,
    entities: int,
) -> Checked:
    """Return whether no person moves the totals of a round by more than 2 bounds if changed, or 1 if removed."""
    before = totals(private.X, private.y, private.entity_ids)
    if not np.array_equal(before, totals(private.X, private.y, private.entity_ids)):
        return _NOT_REPEATABLE
    furthest = {"changed": 0.0, "removed": 0.0}
    all_ids = None if private.entity_ids is None else as_column(private.entity_ids)
    for change, rows, labels, ids in changes_of_one(private.X, private.y, all_ids, entities):
        kind = "removed" if change == REMOVED else "changed"
        moved = max(length(of_round) for of_round in totals(rows, labels, ids) - before)
        furthest[kind] = max(furthest[kind], moved)
    passed = furthest["changed"] <= 2 and furthest["removed"] <= 1
    rounds = "1 round" if len(before) == 1 else f"{len(before)} rounds"
    reason = (
        f"In {rounds} one person moved the sum by up to {furthest['changed']:.3f} {measured_in} when changed, of 2 "
        f"allowed, and by up to {furthest['removed']:.3f} when removed, of 1 allowed."
    )
    if not passed:
        reason += " Features of one row depend on others, or a person casts several ballots: do not release with it."
    return Checked(_CHECK, "pass" if passed else "fail", reason, private=True)


def _few(private: PrivateRows) -> PrivateRows:
    rows = sample_of(np.arange(len(private.X)) if private.entity_ids is None else as_column(private.entity_ids))
    ids = None if private.entity_ids is None else as_column(private.entity_ids)[rows]
    return PrivateRows(private.X[rows], private.y[rows], ids)


def _totals(model: Any, students: list[tuple[NoisySumClassifier, float]], X: Matrix, y: Any, ids: Any) -> IntArray:
    """Return the sum of each round over rows as `fit` would cast them, with features and students that are known."""
    people = PeopleInMemory(X, np.searchsorted(model.classes_, y), Shards.of_single_people(len(X), ids))

    def cast(student: NoisySumClassifier, radius: float) -> IntArray:
        def products_of(block: PeopleBlock) -> tuple[Matrix, Matrix]:
            vectors = _vectors(model, block.rows)
            return vectors, student.residuals(vectors, block.labels)

        return model.teacher.cast(people.blocks(), products_of, radius, people.unit).totals

    return np.stack([cast(student, radius) for student, radius in students])


def _vectors(model: Any, X: npt.ArrayLike) -> Matrix:
    mapped = np.array(X) if model.features is None else model.features.transform(np.array(X))
    return model.student_[:-1].transform(mapped)
