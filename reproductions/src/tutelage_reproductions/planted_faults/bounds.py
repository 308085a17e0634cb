"""Faults in the accounting: in the bounds of a release, in their composition, and in the step to (ε, δ)."""

from collections.abc import Callable
from decimal import Decimal, localcontext
from itertools import product
from math import log, log10

import numpy as np
from scipy import special, stats

from tutelage._internal.typing import FloatArray
from tutelage.accounting import Accountant, data_independent, pate_bounds
from tutelage.accounting.rdp import RenyiCurve, classic
from tutelage.audit.mechanism import Neighbors, audit_mechanism, claimed_epsilon
from tutelage.ballots import VoteHistogram
from tutelage.events import Event, NoisyArgmaxGaussian, NoisyArgmaxLaplace, Repeated
from tutelage.mechanisms import LNMax
from tutelage.privacy import ONE_TEACHER
from tutelage.testing.laws import label_law
from tutelage_reproductions.planted_faults.fault import Fault
from tutelage_reproductions.smooth_sensitivity import SmoothCosts

LogMoments = Callable[[FloatArray, float, FloatArray], FloatArray]
ManyAnswers = Callable[[Event, int, float], float]
Conversion = Callable[[RenyiCurve, float], float]
SmoothCost = Callable[[tuple[int, ...]], tuple[float, float]]

_TOLERANCE = 1e-9
_VOTES = ((2, 1), (2, 2), (3, 1, 0), (6, 0))
_DELTAS = (1e-6, 1e-3, 0.02)


def claims_no_less_than_shown(claim: Callable[[Event, float], float]) -> bool:
    """Return whether LNMax, released many times, keeps to the claimed ε."""
    mechanism, neighbors, delta = LNMax(1.0), Neighbors((4, 1), (3, 2)), 0.01
    claimed = claim(mechanism.event_of_one(2, ONE_TEACHER, simulated=False), delta)
    return audit_mechanism(
        mechanism, neighbors, delta=delta, draws=20_000, confidence=1 - 1e-6, claim=claimed
    ).passed


def moments_cover_the_truth(log_moments: LogMoments) -> bool:
    """Return whether no moment lies below that of any neighbor, by enumeration, where q makes the condition matter."""
    for counts, scale, moment in product(_VOTES, (0.4, 0.8, 1.0, 3.0), (1.0, 2.0, 3.0)):
        event = NoisyArgmaxLaplace(scale, len(counts), ONE_TEACHER)
        here = label_law(event, np.array(counts))[:-1]
        log_q = np.log(np.delete(here, int(np.argmax(counts))).sum(keepdims=True))
        worst = max(
            np.log(np.sum(here * (here / label_law(event, other)[:-1]) ** moment))
            for other in _moved(counts)
        )
        if not log_moments(log_q, scale, np.array([moment]))[0, 0] >= worst - _TOLERANCE:
            return False
    return True


def moments_are_those_of_theorem_3(log_moments: LogMoments) -> bool:
    """Return whether moments agree with the theorem in fifty digits, where its condition holds."""
    for q, gamma, moment in product(("1e-9", "0.01", "0.1"), ("0.05", "0.2", "0.5"), (1, 4, 8)):
        found = log_moments(np.array([log(float(q))]), 1 / float(gamma), np.array([float(moment)]))[
            0, 0
        ]
        if (
            not abs(found - _theorem_3(Decimal(q), Decimal(gamma), moment))
            <= 1e-9 * abs(found) + 1e-15
        ):
            return False
    return True


def conversion_covers_gaussian_noise(convert: Conversion) -> bool:
    """Return whether the ε of Gaussian noise by its Rényi curve is no smaller than its exact ε."""
    orders = 1 + np.geomspace(1e-2, 1e4, 400)
    for mu, delta in product((0.3, 1.0, 3.0), _DELTAS):
        epsilon = convert(RenyiCurve(orders, orders * mu**2 / 2), delta)
        exact = special.ndtr(mu / 2 - epsilon / mu) - np.exp(epsilon) * special.ndtr(
            -mu / 2 - epsilon / mu
        )
        if not exact <= delta * (1 + _TOLERANCE):
            return False
    return True


def compositions_hold(epsilon_of: ManyAnswers) -> bool:
    """Return whether many answers on a tie of two classes keep to (ε, δ), by their exact binomial laws."""
    for sigma, count, delta in product((40.0,), (1, 100), (1e-6, 0.02)):
        event = NoisyArgmaxGaussian(sigma, 2, ONE_TEACHER)
        epsilon = epsilon_of(event, count, delta)
        here, there = (label_law(event, np.array(counts))[0] for counts in ((100, 100), (101, 99)))
        wins = np.arange(count + 1)
        more, less = (stats.binom.pmf(wins, count, chance) for chance in (there, here))
        if not np.maximum(more - np.exp(epsilon) * less, 0).sum() <= delta * (1 + _TOLERANCE):
            return False
    return True


def smooth_sensitivity_is_smooth(smooth_cost: SmoothCost) -> bool:
    """Return whether the smooth sensitivity beside a cost covers every step of the cost, and is smooth."""
    found = {counts: smooth_cost(counts) for counts in _all_votes()}
    for counts, others in _steps().items():
        cost, smooth = found[counts]
        for other_cost, other_smooth in (found[other] for other in others):
            if (
                smooth < abs(cost - other_cost) - _TOLERANCE
                or smooth > np.exp(_BETA) * other_smooth + _TOLERANCE
            ):
                return False
    return True


def _moved(counts: tuple[int, ...]) -> list[np.ndarray]:
    ways = [(a, b) for a, b in product(range(len(counts)), repeat=2) if a != b and counts[a] > 0]
    step = np.eye(len(counts), dtype=np.int64)
    return [np.array(counts) - step[source] + step[target] for source, target in ways]


def _theorem_3(q: Decimal, gamma: Decimal, moment: int) -> float:
    """Return the smaller of Theorems 2 and 3 of PATE 2017, arXiv:1610.05755v4."""
    with localcontext() as context:
        context.prec = 50
        kept = (1 - q) * ((1 - q) / (1 - (2 * gamma).exp() * q)) ** moment
        dependent = (kept + q * (2 * gamma * moment).exp()).ln()
        return float(min(dependent, 2 * gamma**2 * moment * (moment + 1)))


def _half_the_loss(event: Event, delta: float) -> float:
    return claimed_epsilon(event, delta) / 2


def _guarded_at_a_half(log_q: FloatArray, scale: float, moments: FloatArray) -> FloatArray:
    gamma, q = 1 / scale, np.exp(log_q)[:, None]
    independent = 2 * gamma**2 * moments * (moments + 1)
    inside = (1 - q) * ((1 - q) / (1 - np.exp(2 * gamma) * q)) ** moments + q * np.exp(
        2 * gamma * moments
    )
    return np.where((q < 0.5) & (inside > 0), np.minimum(np.log(inside), independent), independent)


def _without_the_logarithm(log_q: FloatArray, scale: float, moments: FloatArray) -> FloatArray:
    gamma = 1 / scale
    inside = np.expm1(pate_bounds.log_moments(log_q, scale, moments)) + 1
    return np.minimum(inside, 2 * gamma**2 * moments * (moments + 1))


def _moments_from_zero(log_q: FloatArray, scale: float, moments: FloatArray) -> FloatArray:
    return pate_bounds.log_moments(log_q, scale, moments - 1)


def _converted(curve: RenyiCurve, delta: float) -> float:
    return curve.to_epsilon(delta, classic).epsilon


def _with_a_plus(curve: RenyiCurve, delta: float) -> float:
    return max(0.0, float(np.min(curve.values + log(delta) / (curve.orders - 1))))


def _by_base_ten(curve: RenyiCurve, delta: float) -> float:
    return max(0.0, float(np.min(curve.values - log10(delta) / (curve.orders - 1))))


def _delta_in_all(event: Event, count: int, delta: float) -> float:
    return data_independent.epsilon(Repeated(event, count), delta).epsilon


def _delta_for_each(event: Event, count: int, delta: float) -> float:
    return count * data_independent.epsilon(event, delta).epsilon


_TEACHERS, _BETA, _SCALE, _MOMENT = 7, 0.2, 0.5, 4.0


def _all_votes() -> list[tuple[int, ...]]:
    return [votes for votes in product(range(_TEACHERS + 1), repeat=3) if sum(votes) == _TEACHERS]


def _steps() -> dict[tuple[int, ...], list[tuple[int, ...]]]:
    return {votes: [tuple(other.tolist()) for other in _moved(votes)] for votes in _all_votes()}


def _as_published(counts: tuple[int, ...]) -> tuple[float, float]:
    """Return the cost and its smooth sensitivity as `tutelage.publishing` computes them."""
    votes, released = VoteHistogram(np.array([counts]), _TEACHERS), Accountant()
    released.add(NoisyArgmaxLaplace(_SCALE, len(counts), votes.unit), votes)
    costs = SmoothCosts(released, _MOMENT + 1)
    return costs.cost(), costs.smooth_sensitivity(_BETA)


def _of_unsorted_counts(counts: tuple[int, ...]) -> tuple[float, float]:
    """Return the cost, and max e^{−βd} · the largest step at distance d (Nissim et al. 2007) of a wrong one."""
    local = {
        votes: max(abs(_cost_as_if_sorted(votes) - _cost_as_if_sorted(other)) for other in others)
        for votes, others in _steps().items()
    }
    smooth = max(
        float(np.exp(-_BETA * np.abs(np.subtract(votes, counts)).sum() / 2)) * step
        for votes, step in local.items()
    )
    return _cost_of_the_plurality(counts), smooth


def _cost_behind(winner: int, counts: tuple[int, ...]) -> float:
    """Return the moment by Lemma 4 and Theorem 3 of PATE 2017 if the class `winner` has the plurality."""
    behind = (counts[winner] - np.delete(counts, winner)) / _SCALE
    log_q = np.minimum(np.logaddexp.reduce(np.log(np.maximum(2 + behind, 1e-9) / 4) - behind), 0)
    return float(pate_bounds.log_moments(np.array([log_q]), _SCALE, np.array([_MOMENT]))[0, 0])


def _cost_of_the_plurality(counts: tuple[int, ...]) -> float:
    return _cost_behind(int(np.argmax(counts)), counts)


def _cost_as_if_sorted(counts: tuple[int, ...]) -> float:
    return _cost_behind(0, counts)


FORGOTTEN_TWO = Fault(
    name="factor 2 forgotten",
    planted="each label is charged for one changed count instead of two",
    caught_by="audit_mechanism of LNMax",
    check=claims_no_less_than_shown,
    right=claimed_epsilon,
    wrong=_half_the_loss,
)
GUARD_AT_A_HALF = Fault(
    name="Theorem 3 used up to q = 1/2",
    planted="the condition q < 1/2 of the published script",
    caught_by="enumeration of all neighbors",
    check=moments_cover_the_truth,
    right=pate_bounds.log_moments,
    wrong=_guarded_at_a_half,
)
MISSING_LOGARITHM = Fault(
    name="logarithm missing",
    planted="the moment is used instead of its logarithm",
    caught_by="Theorem 3 in fifty digits",
    check=moments_are_those_of_theorem_3,
    right=pate_bounds.log_moments,
    wrong=_without_the_logarithm,
)
MOMENTS_FROM_ZERO = Fault(
    name="l + 1 used as l",
    planted="moments are counted from zero",
    caught_by="enumeration of all neighbors",
    check=moments_cover_the_truth,
    right=pate_bounds.log_moments,
    wrong=_moments_from_zero,
)
SIGN_OF_LOG_DELTA = Fault(
    name="sign of ln δ",
    planted="ε = α/l + ln(δ)/l",
    caught_by="exact ε of Gaussian noise",
    check=conversion_covers_gaussian_noise,
    right=_converted,
    wrong=_with_a_plus,
)
DELTA_PER_QUERY = Fault(
    name="δ of each query used as the total δ",
    planted="ε of one label times their number, at the same δ",
    caught_by="exact composition of labels on a tie",
    check=compositions_hold,
    right=_delta_in_all,
    wrong=_delta_for_each,
)
UNSORTED_VOTES = Fault(
    name="smooth sensitivity of unsorted counts",
    planted="the first class is used as the plurality",
    caught_by="definition of smooth sensitivity, on all votes of seven teachers",
    check=smooth_sensitivity_is_smooth,
    right=_as_published,
    wrong=_of_unsorted_counts,
)
BASE_TEN = Fault(
    name="logarithm to base ten",
    planted="log10(1/δ) in the conversion",
    caught_by="exact ε of Gaussian noise",
    check=conversion_covers_gaussian_noise,
    right=_converted,
    wrong=_by_base_ten,
)
