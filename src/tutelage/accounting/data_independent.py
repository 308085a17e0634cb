"""Costs that hold for every vote histogram, so they may be published.

`epsilon` takes the smallest of the theorems that apply. The choice looks at public parameters only, and each theorem
holds by itself, so the minimum does too. Proofs: docs/proofs/data_independent.md.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from math import fsum
from typing import NamedTuple, assert_never

import numpy as np

from tutelage._internal.typing import FloatArray
from tutelage._internal.validation import probability
from tutelage.accounting import argmax_bound, composition
from tutelage.accounting.rdp import DEFAULT_ORDERS, RenyiCurve, search_epsilon
from tutelage.events import (
    CERTAIN,
    CappedArgmaxGaussian,
    Check,
    Composed,
    ConfidenceCheck,
    Event,
    ExponentialArgmax,
    InteractiveCheck,
    NoisyArgmaxGaussian,
    NoisyArgmaxLaplace,
    NoisyBallot,
    NoisySumGaussian,
    PermuteAndFlipArgmax,
    PublicationTest,
    RandomizedResponse,
    Releases,
    Repeated,
    Single,
    SummedNoise,
    TruncatedGeometricResponse,
)
from tutelage.exceptions import UnsupportedEventError
from tutelage.privacy import PrivacyUnit, PublicEpsilon

# Per order: many times the rounding of the logarithms of chances, so that values err upward.
_ROUNDING = 1e-13

PureArgmax = NoisyArgmaxLaplace | ExponentialArgmax | PermuteAndFlipArgmax
_PureResponse = RandomizedResponse | TruncatedGeometricResponse
_Searched = NoisyArgmaxLaplace | NoisyArgmaxGaussian | CappedArgmaxGaussian | Check | SummedNoise
_OfBallots = NoisySumGaussian | NoisyArgmaxGaussian | CappedArgmaxGaussian
# A sum of ballots plus discrete Gaussian noise, or a function of it.
_IntegerGaussian = _OfBallots | NoisyBallot
_Candidate = tuple[float, str, float | None]  # ε, the method that proves it, and its order


def epsilon(event: Event, delta: float) -> PublicEpsilon:
    """Return the smallest proved ε of `event` at `delta` that does not depend on any vote."""
    probability(delta, "delta", "epsilon")
    releases = event.flatten()
    unit = _common_unit(releases)
    whole, distance = _drawn_whole(event, releases)
    delta_of_whole = composition.moved_delta(delta, distance)
    by_renyi = rdp(whole).to_epsilon(delta_of_whole)
    conversion = "Rényi composition, conversion of CKS 2020 Proposition 12"
    candidates: list[_Candidate] = [
        (by_renyi.epsilon, conversion, by_renyi.order),
        *_by_three_outcomes(whole, releases, delta_of_whole),
        *_by_exact_composition(releases, delta_of_whole),
        *_by_rounded_noise(releases, delta_of_whole, _squared_distance),
    ]
    epsilon_of_whole, method, order = min(candidates, key=lambda candidate: candidate[0])
    if distance:
        method += "; noise summed from shares"
    return PublicEpsilon(
        epsilon=composition.moved_epsilon(epsilon_of_whole, distance),
        delta=delta,
        unit=unit,
        method=method,
        order=order,
        simulated=event.is_simulated,
    )


def epsilon_if_added_or_removed(event: Event, delta: float) -> float:
    """Return the smallest proved ε of `event` at `delta` if one ballot is added or removed, and none is replaced.

    It does not depend on any vote, but it holds for fewer changes than `epsilon`: not for a replaced ballot, whatever
    the relation of the unit says. So it is a bare number that no card takes. Where a teacher has the rows of several
    people, a person who leaves replaces a ballot and removes none.
    """
    probability(delta, "delta", "epsilon_if_added_or_removed")
    releases = event.flatten()
    _common_unit(releases)
    parts = [(kind, times) for kind, times in releases if isinstance(kind, _OfBallots)]
    if len(parts) < len(releases):
        raise UnsupportedEventError(
            "The epsilon of an added or removed ballot is known for a NoisySumGaussian, CappedArgmaxGaussian and "
            "NoisyArgmaxGaussian only. Take `epsilon`, which holds for a replaced ballot too."
        )

    def cost(orders: FloatArray) -> FloatArray:
        total = np.zeros(len(orders))
        for kind, times in parts:
            total += times * _rdp_if_added(kind, orders)
        return total

    by_rounded_noise = _by_rounded_noise(releases, delta, _squared_distance_if_added)
    smallest = search_epsilon(cost, delta).epsilon
    for candidate, _, _ in by_rounded_noise:
        smallest = min(smallest, candidate)
    return smallest


def epsilon_at(event: Event, delta: float, order: float) -> float:
    """Return the worst-case ε of `event` at `delta` from its Rényi cost at one order, in milliseconds."""
    releases = event.flatten()
    _common_unit(releases)
    whole, distance = _drawn_whole(event, releases)
    curve = rdp_of_three_outcomes(whole, np.array([order]))
    delta_of_whole = composition.moved_delta(delta, distance)
    epsilon_of_whole = curve.to_epsilon(delta_of_whole).epsilon
    return composition.moved_epsilon(epsilon_of_whole, distance)


def mu_squared(event: Event) -> float:
    """Return the worst-case amount that `event` adds to the total μ² of Gaussian differential privacy; or ∞."""
    releases = event.flatten()
    _common_unit(releases)
    amounts = list[float]()
    for kind, times in releases:
        if not isinstance(kind, _IntegerGaussian):
            raise UnsupportedEventError(
                f"A budget with `accounting` gaussian holds integer Gaussian noise on sums of ballots only: NoisySum, "
                f"CappedGNMax, GNMax. Got a {type(kind).__name__}; spend it from a ledger with `accounting` renyi."
            )
        amount = composition.shift_mu_squared(kind.sigma, _squared_distance(kind))
        amounts.append(times * amount)
    return fsum(amounts)


def basic_epsilon(event: Event) -> PublicEpsilon:
    """Return the sum of the pure losses of all releases, T·ε, at δ = 0; `epsilon` is smaller at any δ worth naming."""
    releases = event.flatten()
    unit = _common_unit(releases)
    return PublicEpsilon(
        epsilon=fsum(times * _pure_loss(kind) for kind, times in releases),
        delta=0.0,
        unit=unit,
        method="basic composition of pure losses",
        simulated=event.is_simulated,
    )


def rdp(event: Event, orders: FloatArray = DEFAULT_ORDERS) -> RenyiCurve:
    """Return a bound on the Rényi divergence of `event` at each order that holds for all votes, in closed form."""
    # orders: (orders,)
    return _curve(event, orders, _rdp_of_one_release)


def rdp_of_three_outcomes(event: Event, orders: FloatArray) -> RenyiCurve:
    """Return the smaller bound that the three outcomes of a moved ballot give: docs/proofs/argmax_bound.md."""

    # orders: (orders,)
    def smaller_cost(release: Single, orders: FloatArray) -> FloatArray:
        by_search = [_rdp_by_search(release, order) for order in orders.tolist()]
        return np.minimum(np.array(by_search), _rdp_of_one_release(release, orders))

    return _curve(event, orders, smaller_cost)


def _curve(
    event: Event,
    orders: FloatArray,
    cost: Callable[[Single, FloatArray], FloatArray],
) -> RenyiCurve:
    """Return the sum of the costs of all releases at each order."""
    values = np.zeros(len(orders))
    for kind, times in event.flatten():
        values += times * cost(kind, orders)
    return RenyiCurve(orders, values)


def pure_dp_renyi(epsilon: float, orders: FloatArray) -> FloatArray:
    """Return the Rényi divergence of randomized response, the worst of all mechanisms with pure loss `epsilon`.

    Every pure ε-differentially private pair is a post-processing of this one (Kairouz, Oh and Viswanath 2015,
    arXiv:1311.0776v4; proof in docs/proofs/data_independent.md), so its divergence bounds theirs, and it lies below the
    λε²/2 behind Theorem 2 of PATE 2017.
    """
    # orders, returned: (orders,)
    # p^λ q^(1−λ) + q^λ p^(1−λ) = cosh((λ−½)ε)/cosh(ε/2) for p = e^ε/(1+e^ε), q = 1 − p. Written by the product formula
    # for a difference of cosh where it is close to 1, so that nothing cancels.
    small = np.minimum(orders * epsilon, 1.0)
    near_one: FloatArray = np.log1p(
        2
        * np.sinh(small / 2)
        * np.sinh(small * (1 - 1 / orders) / 2)
        / np.cosh(min(epsilon, 1) / 2)
    )
    far = np.logaddexp(orders * epsilon, (1 - orders) * epsilon)
    far = far - np.logaddexp(0, epsilon)
    log_moment = np.where(orders * epsilon < 1, near_one, far)
    return np.minimum(log_moment / (orders - 1), epsilon)


def _gaussian_rdp(sigma: float, squared_distance: int, orders: FloatArray) -> FloatArray:
    """Return the Rényi cost of Gaussian noise on integers that move by a distance.

    Discrete noise costs no more: Proposition 5 of Canonne, Kamath and Steinke 2020, arXiv:2004.00010v4.
    """
    # orders, returned: (orders,)
    return squared_distance * orders / (2 * sigma**2)


# One entity's own perturbed vote: the worst pair of votes dominates every other pair, so its divergence is the largest
# and its law composes, even if votes depend on earlier outcomes. Proofs: docs/proofs/local.md.


class _LossLaw(NamedTuple):
    """Privacy loss of one response: top − i·step with probability exp(log_mass[i]); −inf where it does not occur."""

    log_mass: FloatArray
    top: float
    step: float


def _loss_law(event: _PureResponse) -> _LossLaw:
    """Return the law of the privacy loss at the worst pair of votes."""
    match event:
        case RandomizedResponse(epsilon=epsilon, classes=classes):
            # Any two votes: kept, one of the classes that are neither vote, or the other vote.
            keep = -np.log1p((classes - 1) * np.exp(-epsilon))
            neither = -np.inf
            if classes > 2:
                neither = np.log(classes - 2) + keep - epsilon
            log_mass = np.array([keep, neither, keep - epsilon])
            return _LossLaw(log_mass, epsilon, epsilon)
        case TruncatedGeometricResponse(scale=scale, classes=classes):
            # The first class against the last.
            log_mass = -np.arange(classes) / scale - np.log1p(np.exp(-1 / scale))
            log_mass[1:-1] += np.log(-np.expm1(-1 / scale))
            return _LossLaw(log_mass, (classes - 1) / scale, 2 / scale)


def pure_epsilon(event: _PureResponse) -> float:
    """Return the largest privacy loss of one response, in nats."""
    return _loss_law(event).top


def response_rdp(event: _PureResponse, orders: FloatArray) -> FloatArray:
    """Return the largest Rényi divergence between the responses to any two votes, rounded upward."""
    # losses: (losses,); orders, returned: (orders,)
    law = _loss_law(event)
    losses = law.top - law.step * np.arange(len(law.log_mass))
    log_terms = law.log_mass[:, None] + losses[:, None] * (orders - 1)
    log_moments = np.logaddexp.reduce(log_terms, axis=0)
    return np.maximum(log_moments + _ROUNDING * orders, 0) / (orders - 1)


def response_composition(event: _PureResponse, count: int, delta: float) -> float:
    """Return the exact ε of `count` adaptive responses of one entity, rounded upward."""
    law = _loss_law(event)
    masses = np.exp(law.log_mass)
    return composition.lattice_composition(masses, law.top, law.step, count, delta)


def publication_test_rdp(event: PublicationTest, orders: FloatArray) -> FloatArray:
    """Return the largest Rényi divergence of the test between shortfalls that differ by one, either direction."""
    # log_chances: (2, shortfalls, 1), pass and fail; p, q: (2, shortfalls − 1, 1); orders, returned: (orders,)
    passing = np.array(event.chances)
    chances = np.stack([passing, CERTAIN - passing]) / CERTAIN
    log_chances = np.log(chances)[:, :, None]
    here = log_chances[:, :-1]
    there = log_chances[:, 1:]
    worst = list[FloatArray]()
    for p, q in ((here, there), (there, here)):
        log_moments = np.logaddexp.reduce(orders * p - (orders - 1) * q, axis=0)
        worst.append(log_moments.max(axis=0))
    largest = np.max(worst, axis=0) + _ROUNDING * orders
    return np.maximum(largest, 0) / (orders - 1)


def _common_unit(releases: list[Releases]) -> PrivacyUnit:
    """Return the unit of privacy of all releases."""
    unit = releases[0].event.unit
    if any(part.event.unit != unit for part in releases):
        raise UnsupportedEventError(
            "Releases with different units of privacy do not add up to one epsilon."
        )
    return unit


def _drawn_whole(event: Event, releases: list[Releases]) -> tuple[Event, float]:
    """Return the event with noise drawn whole instead of summed, and how far the two are apart."""
    distance = sum(times * composition.log_distance(kind) for kind, times in releases)
    if not distance:
        return event, 0.0
    parts = [Repeated(kind.without_shares(), times) for kind, times in releases]
    return Composed(tuple(parts)), distance


def _rdp_of_one_release(event: Single, orders: FloatArray) -> FloatArray:
    """Return a bound on the Rényi divergence of one release at each order, in closed form."""
    # orders, returned: (orders,)
    match event:
        case SummedNoise(event=whole):
            surcharge = composition.renyi_surcharge(composition.log_distance(event), orders)
            return _rdp_of_one_release(whole, orders) + surcharge
        case RandomizedResponse() | TruncatedGeometricResponse():
            by_pure_loss = pure_dp_renyi(pure_epsilon(event), orders)
            return np.minimum(response_rdp(event, orders), by_pure_loss)
        case ExponentialArgmax(scale=scale):
            # Its losses span 2/b at most, so D_λ ≤ λ(2/b)²/8: Dong, Durfee and Rogers 2020.
            by_range = orders / (2 * scale**2)
            return np.minimum(pure_dp_renyi(2 / scale, orders), by_range)
        case NoisyArgmaxLaplace(scale=scale) | PermuteAndFlipArgmax(scale=scale):
            return pure_dp_renyi(2 / scale, orders)
        case PublicationTest():
            return publication_test_rdp(event, orders)
        case ConfidenceCheck(sigma=sigma) | InteractiveCheck(sigma=sigma):
            return _gaussian_rdp(sigma, 1, orders)
        case NoisySumGaussian() | CappedArgmaxGaussian() | NoisyArgmaxGaussian() | NoisyBallot():
            return _gaussian_rdp(event.sigma, _squared_distance(event), orders)
        case _:
            assert_never(event)


def _squared_distance(event: _IntegerGaussian) -> int:
    """Return the squared distance that one replaced ballot moves the integers of `event`, over all its queries."""
    match event:
        case NoisySumGaussian():
            times = 2 if event.nonnegative else 4
            return times * event.norm_squared
        case CappedArgmaxGaussian(cap=cap):
            return 2 * cap
        case _:
            return 2


def _squared_distance_if_added(event: _IntegerGaussian) -> int:
    """Return the squared distance that one added or removed ballot moves the integers of `event`."""
    if isinstance(event, NoisySumGaussian):
        return event.norm_squared
    return _squared_distance(event) // 2


def _rdp_if_added(event: _OfBallots, orders: FloatArray) -> FloatArray:
    """Return the Rényi cost of one added or removed ballot, on each query an abstention or a single changed count."""
    # orders, returned: (orders,)
    changed = _squared_distance_if_added(event)
    in_closed_form = _gaussian_rdp(event.sigma, changed, orders)
    if isinstance(event, NoisySumGaussian):
        return in_closed_form
    by_search = [_gaussian_single(event.sigma, order) for order in orders.tolist()]
    return np.minimum(in_closed_form, changed * np.array(by_search))


def _pure_loss(event: Single) -> float:
    """Return the ε of one release at δ = 0."""
    if isinstance(event, PureArgmax):
        return 2 / event.scale
    if isinstance(event, _PureResponse):
        return pure_epsilon(event)
    raise UnsupportedEventError(
        f"No epsilon at δ = 0 is known for a {type(event).__name__}. Use `epsilon` with a δ above 0."
    )


# Kept where units and numbers of classes are not told apart.
_laplace_argmax = lru_cache(maxsize=2**14)(argmax_bound.laplace_argmax)
_gaussian_argmax = lru_cache(maxsize=2**14)(argmax_bound.gaussian_argmax)
_gaussian_single = lru_cache(maxsize=2**14)(argmax_bound.gaussian_check)


@lru_cache(maxsize=2**14)
def _rdp_by_search(event: Single, order: float) -> float:
    """Return a bound on the Rényi divergence of one release by the search over its three outcomes, or ∞."""
    match event:
        case NoisyArgmaxLaplace(scale=scale):
            return _laplace_argmax(scale, order)
        case NoisyArgmaxGaussian(sigma=sigma):
            return _gaussian_argmax(sigma, order)
        case CappedArgmaxGaussian(sigma=sigma, cap=cap):
            # Of the votes of both ballots, two make a swap and one makes a single change.
            swap = _gaussian_argmax(sigma, order)
            single = _gaussian_single(sigma, order)
            return cap * max(swap, 2 * single)
        case ConfidenceCheck(sigma=sigma) | InteractiveCheck(sigma=sigma):
            return argmax_bound.gaussian_check(sigma, order)
        case SummedNoise(event=whole):
            distance = composition.log_distance(event)
            surcharge = composition.renyi_surcharge(distance, np.array([order]))
            return _rdp_by_search(whole, order) + float(surcharge[0])
        case _:
            return np.inf


def _by_three_outcomes(
    event: Event,
    releases: list[Releases],
    delta: float,
) -> Iterator[_Candidate]:
    """Yield the bound that the three outcomes of a moved ballot give, if any release has them."""
    if not any(isinstance(kind, _Searched) for kind, _ in releases):
        return

    def cost(orders: FloatArray) -> FloatArray:
        return rdp_of_three_outcomes(event, orders).values

    value, order = search_epsilon(cost, delta)
    method = "Rényi divergence of three outcomes, conversion of CKS 2020 Proposition 12"
    yield value, method, order


def _by_rounded_noise(
    releases: list[Releases],
    delta: float,
    squared_distance: Callable[[_IntegerGaussian], int],
) -> Iterator[_Candidate]:
    """Yield the bound that applies where all noise is discrete Gaussian noise on sums of ballots."""
    shifts = list[tuple[float, int]]()
    for release, times in releases:
        kind = release.without_shares()
        if not isinstance(kind, _IntegerGaussian):
            return
        shifts.append((kind.sigma, times * squared_distance(kind)))
    value = composition.shifted_gaussian_composition(shifts, delta)
    yield value, "Gaussian differential privacy of discrete Gaussian noise", None


def _by_exact_composition(releases: list[Releases], delta: float) -> Iterator[_Candidate]:
    """Yield the exact compositions that apply: those for many answers of one and the same mechanism."""
    kind, *others = {kind.without_shares() for kind, _ in releases}
    if others:
        return

    count = sum(times for _, times in releases)
    if isinstance(kind, NoisyArgmaxGaussian | NoisyBallot):
        value = composition.gaussian_composition(kind.sigma, count, delta)
        yield value, "exact composition of discrete Gaussian noise", None
    if isinstance(kind, _PureResponse):
        value = response_composition(kind, count, delta)
        yield value, "exact composition of local responses", None
    if isinstance(kind, PureArgmax | _PureResponse):
        value = composition.pure_dp_composition(_pure_loss(kind), count, delta)
        yield value, "optimal composition of pure differential privacy (KOV 2015 Theorem 3.3)", None
