"""A plan for publishing a noised data-dependent cost: every number of it fixed in advance, by public votes alone.

The released value is the private cost, a margin, and Gaussian noise scaled by the smooth sensitivity. The margin makes
the value an ε by itself: no confidence interval, and no second release of the scale. Proof:
reproductions/docs/proofs/smooth_sensitivity.md, sections 3 and 4.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import expm1, inf, isfinite, sinh, sqrt
from typing import NamedTuple, final

import numpy as np

from tutelage._internal.typing import FloatArray
from tutelage._internal.validation import positive, probability
from tutelage.accounting import Accountant
from tutelage.accounting.rdp import RenyiCurve
from tutelage.exceptions import InvalidParameterError, NothingToGainError
from tutelage.noise import NoiseSource
from tutelage.privacy import PublicEpsilon
from tutelage_reproductions.smooth_sensitivity import SmoothCosts, most_sensitive

CLAIMED = 0.9  # share of δ that the noised cost is claimed at; the rest: the worst-case ε, instead
RESOLUTION = 1024  # steps of the grid in one standard deviation of the smallest noise
# Of the private cost to the grid, and of sums before it, in standard deviations.
_ROUNDING = 2 / RESOLUTION
_MOST_ORDER = 1000.0  # up to which the grid is fine enough
# Into which the ratio of two scales is divided; the bounds over them are 1 % above the supremum at most.
_CELLS = 128
_LEDGER_WEIGHT = 0.25  # what a nat charged to the ledger weighs, against one of the published ε
# Of the smooth sensitivity of the public votes: private votes may be that much less sensitive.
_LEAST_SHARE = 0.25
_ORDERS: FloatArray = 1 + np.geomspace(1, 64, 25)
_SMOOTHNESS: FloatArray = np.geomspace(2e-3, 0.4, 22)
_NOISE: FloatArray = np.geomspace(0.5, 40, 30)


class Margin(NamedTuple):
    """Margin to be added to a cost noised by s nats for it to bound a cost again: square·s² + linear·s + fixed."""

    square: float
    linear: float
    fixed: float

    def of(self, deviation: float) -> float:
        """Return the part that depends on the noise, in nats."""
        return self.square * deviation**2 + self.linear * deviation


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SmoothPlan:
    """How a data-dependent cost will be noised and published; public, to be fixed before the labels are asked.

    Parameters
    ----------
    delta : float
        δ of the whole claim.
    order : float
        Rényi order λ > 1 at which costs are added.
    smoothness : float
        β: one changed teacher changes the scale of the noise by a factor e^β at most.
    noise : float
        Standard deviation of the noise, as a multiple of the smooth sensitivity.
    least, most : float
        What the smooth sensitivity is raised to where it is smaller, and what it cannot exceed, in nats.
    """

    delta: float
    order: float
    smoothness: float
    noise: float
    least: float
    most: float

    def __post_init__(self) -> None:
        probability(self.delta, "delta", "SmoothPlan")
        for name in ("smoothness", "noise", "least", "most"):
            positive(getattr(self, name), name, "SmoothPlan")
        if not (
            1 < self.order <= _MOST_ORDER
            and self.least <= self.most
            and isfinite(self.margin.fixed)
        ):
            raise InvalidParameterError(
                "SmoothPlan.order",
                "be above 1 and at most 1000, with $least <= $most and a $smoothness far below 1/(2·order)",
                fix="Plan with `plan_smooth_release`.",
            )

    @property
    def margin(self) -> Margin:
        """Addition of the noise to the cost."""
        return margin_of(self.order, self.smoothness, self.noise)

    @property
    def grid(self) -> float:
        """Nats in one step of the released whole number."""
        return self.noise * self.least / RESOLUTION

    def deviation(self, smooth_sensitivity: float) -> float:
        """Return the standard deviation of the noise in nats; as private as its argument."""
        return self.noise * max(smooth_sensitivity, self.least)

    def epsilon(self, released: int, before: float = 0.0) -> float:
        """Return the ε that a released whole number is worth, labels and release together.

        `before` is the Rényi cost at `order` of what else was published, in nats.
        """
        cost = max(0.0, released * self.grid) + self.margin.fixed + before
        found = RenyiCurve(np.array([self.order]), np.array([cost])).to_epsilon(
            CLAIMED * self.delta
        )
        return found.epsilon + 1e-9

    @property
    def shift(self) -> float:
        """Most by which one unit moves the released number, in standard deviations of the smaller of the two noises."""
        margin, widest = self.margin, self.noise * self.most
        shift = 1 / self.noise + _ROUNDING + margin.linear * expm1(self.smoothness)
        return (shift + margin.square * widest * expm1(2 * self.smoothness)) * (1 + 1e-9)


def plan_smooth_release(
    proxy: Accountant, delta: float, *, ledger_order: float | None = None
) -> SmoothPlan:
    """Return a plan under which votes like the public ones would have about the smallest ε to publish.

    If that is not below the data-independent ε, `NothingToGainError` is raised.

    Parameters
    ----------
    proxy : Accountant
        The planned releases, each at its limit, added with *public* votes in place of the private ones: from teachers
        trained on public data, or made up. The plan reveals them.
    delta : float
        δ of the whole claim, in (0, 1).
    ledger_order : float, optional
        Rényi order at which the ledger keeps its limit, `LedgerState.order`: the release is then one that it can hold.
    """
    probability(delta, "delta", "plan_smooth_release")
    published = proxy.data_independent(delta)
    found = [
        best
        for order in _ORDERS.tolist()
        if (best := _best_at(proxy, order, delta, ledger_order or order, published)) is not None
    ]
    if not found:
        raise NothingToGainError(
            f"Votes like these bear no smaller epsilon than the data-independent one, {published}. Publish that one."
        )
    return min(found, key=lambda candidate: candidate[0])[1]


def _best_at(
    proxy: Accountant, order: float, delta: float, ledger_order: float, published: PublicEpsilon
) -> tuple[float, SmoothPlan] | None:
    """Return the best plan at one order and its weight, if it is to publish less than the data-independent ε."""
    costs, most = SmoothCosts(proxy, order), most_sensitive(proxy, order)
    bare = float(RenyiCurve(np.array([order]), np.array([costs.cost()])).at(CLAIMED * delta)[0])
    best, at = None, np.array([ledger_order])
    for smoothness in _SMOOTHNESS[1 / (2 * max(order, ledger_order)) > _SMOOTHNESS].tolist():
        sensitivity = costs.smooth_sensitivity(smoothness)
        for noise in _NOISE.tolist():
            margin = margin_of(order, smoothness, noise)
            epsilon = bare + margin.of(noise * sensitivity) + margin.fixed
            if epsilon >= published.epsilon or (best is not None and epsilon >= best[0]):
                continue
            least = _LEAST_SHARE * sensitivity
            plan = SmoothPlan(
                delta=delta,
                order=order,
                smoothness=smoothness,
                noise=noise,
                least=least,
                most=max(most, least),
            )
            weight = epsilon + _LEDGER_WEIGHT * float(
                noised_cost_rdp(plan.shift, smoothness, at)[0]
            )
            if best is None or weight < best[0]:
                best = weight, plan
    return best


@lru_cache(maxsize=1024)
def margin_of(order: float, smoothness: float, noise: float) -> Margin:
    """Return what has to be added to a noised cost for its value to bound the cost of labels and release."""
    moment, shift = order - 1, 1 / noise + _ROUNDING
    none = Margin(inf, inf, inf)
    # square = μ/2 + 2λ sinh²(β)·square²
    quadratic = 4 * order * moment * sinh(smoothness) ** 2
    if quadratic > 1 or order * -expm1(-2 * smoothness) >= 1:
        return none
    square = moment / (1 + sqrt(1 - quadratic))
    ratio = np.exp(np.linspace(-smoothness, smoothness, 2 * _CELLS + 1))
    low, high = ratio[:-1], ratio[1:]
    # min(u, 1) at most; λu² − μ at least.
    smaller, least = np.minimum(high, 1.0), 1 + order * (low**2 - 1)
    weakest, strongest = (moment + order * square * (ends**2 - 1) for ends in (low, high))
    below = least + np.where(low < 1, (1 - high) * weakest, -(high - 1) * strongest)
    if weakest[0] < 0 or np.any(below <= 0):
        return none
    linear = shift * float(np.max(smaller * strongest / below))
    moved = shift * smaller + linear * np.maximum(1 - low, high - 1)
    change = (order * np.log(ratio) - np.log1p(order * np.expm1(2 * np.log(ratio))) / 2) / moment
    fixed = float(np.max(np.maximum(change[:-1], change[1:]) + order * moved**2 / (2 * least)))
    return Margin(square, linear, fixed)


def noised_cost_rdp(shift: float, smoothness: float, orders: FloatArray) -> FloatArray:
    """Return the largest Rényi divergence between Gaussians, one unit moving means by `shift` and scales by e^β.

    Below the (μ, μe^{2β}/σ² + (βμ − ½ ln(1−2μβ))/(μ−1)) of Scalable PATE 2018 for the same noise.
    """
    rest = 1 + orders * np.expm1(-2 * smoothness)
    finite = rest > 0
    safe = np.where(finite, rest, 1.0)
    moved = orders * (shift * np.exp(-smoothness)) ** 2 / (2 * safe)
    widened = -(orders * smoothness + np.log(safe) / 2) / (orders - 1)
    return np.where(finite, moved + np.maximum(widened, 0) + 1e-13 * orders / (orders - 1), np.inf)


def noised(costs: SmoothCosts, plan: SmoothPlan, noise: NoiseSource) -> int:
    """Return the private cost with its margin and noise, on the public grid."""
    deviation = plan.deviation(costs.smooth_sensitivity(plan.smoothness))
    raised = np.ceil((costs.cost() + plan.margin.of(deviation)) / plan.grid)
    return int(raised) + int(noise.discrete_gaussian(deviation / plan.grid, (1,))[0])
