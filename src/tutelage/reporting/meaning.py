"""Meaning of ε and δ, in the odds of a guess; printed bounds are rounded upward."""

import math
from typing import NamedTuple

from tutelage.privacy import PublicEpsilon, printed_up, round_up

_BEYOND_WORDS = 0.9995  # of 100 guesses, all but a twentieth of one
_WHOLE_NUMBERS = 0.99  # up to here, a bound is read aloud as a whole number of 100
# The most right guesses of each strength: ε ≤ 1.09 and ε ≤ 2.94 for a small δ. Beyond them, a guarantee is weak.
_STRENGTHS = (("strong", 0.75), ("moderate", 0.95))
_MOST_DECIMALS = 9
Z_95 = 1.96  # of a 95 % interval
RULE = (
    "Rule: strong means at most 75 right guesses in 100, moderate at most 95, weak more than 95 or an objection that "
    "ε leaves something out."
)


class Verdict(NamedTuple):
    """How strong a guarantee is, in one word, and the reason where it is not the number of right guesses."""

    word: str
    reason: str


def verdict(epsilon: PublicEpsilon, uncounted: tuple[str, ...] = ()) -> Verdict:
    """Return the verdict that `RULE` gives; `uncounted` are codes of objections to what ε does not count."""
    if epsilon.simulated:
        return Verdict("none", "The noise was simulated, so there is no guarantee.")
    if uncounted:
        return Verdict("weak", "An objection says that ε leaves something out.")
    return Verdict(strength(epsilon.epsilon, epsilon.delta), "")


def strength(epsilon: float, delta: float) -> str:
    """Return how strong a guarantee is by its right guesses alone: strong, moderate or weak."""
    right = _right_guesses(epsilon, delta)
    for word, most in _STRENGTHS:
        if right <= most:
            return word
    return "weak"


def claim(epsilon: PublicEpsilon) -> str:
    """Return an ε with its δ, rounded upward."""
    return f"ε = {round_up(epsilon.epsilon)} at δ = {printed_up(epsilon.delta, '.10g')}"


def cases(epsilon: PublicEpsilon) -> str:
    """Return the largest share of right guesses in words, rounded upward: at most 63 of 100 cases."""
    most = guesses(epsilon.epsilon, epsilon.delta)
    if most == "100":
        return "up to 100 of 100 cases"
    return f"at most {most} of 100 cases"


def guesses(epsilon: float, delta: float) -> str:
    """Return the largest number of right guesses in 100, rounded upward; the one rounding of all pages and screens."""
    right = _right_guesses(epsilon, delta)
    if right > _BEYOND_WORDS:
        return "100"
    if right > _WHOLE_NUMBERS:
        return percent(right)
    return f"{math.ceil(100 * right)}"


def _advantage(epsilon: float, delta: float) -> float:
    """Return the most by which any test can do better than guessing which of two neighboring data sets was used.

    It is the largest sum of true positive and true negative rates less 1, (e^ε − 1 + 2δ)/(e^ε + 1), and bounds the
    advantage of every membership inference.

    Notes
    -----
    Kairouz, Oh and Viswanath 2015, arXiv:1311.0776v4, Theorem 2.1: an (ε, δ)-private test has error rates with
    FP + e^ε·FN ≥ 1 − δ and e^ε·FP + FN ≥ 1 − δ; adding both gives the bound.
    """
    return min(
        1.0, math.tanh(epsilon / 2) + 2 * delta * math.exp(-epsilon) / (1 + math.exp(-epsilon))
    )


def points(epsilon: PublicEpsilon) -> str:
    """Return the advantage in percentage points, rounded upward."""
    return percent(_advantage(epsilon.epsilon, epsilon.delta))


def _right_guesses(epsilon: float, delta: float) -> float:
    """Return the largest share of right guesses between two neighboring data sets that are equally likely before."""
    return (1 + _advantage(epsilon, delta)) / 2


def percent(share: float) -> str:
    """Return a share as a number of hundredths, rounded upward by one unit of its last digit at most; at most 100.

    Digits are shown until what is left to 100 has two of its own, so that rounding does not raise the odds.
    """
    left = 100 - 100 * share
    digits = 1
    if left > 0:
        digits = max(1, min(_MOST_DECIMALS, math.ceil(-math.log10(left / 50))))
    return f"{min(100.0, round_up(100 * share, digits)):.{digits}f}"


def one_in(delta: float) -> str:
    """Return a δ above 0 in words, rounded upward: 1 in 100,000, or at most 1 in 33."""
    if delta <= 1e-12:
        return f"at most 1 in 10^{math.floor(-math.log10(delta))}"
    most = math.floor(1 / delta + 1e-6)
    if math.isclose(delta * most, 1):
        return f"1 in {most:,}"
    return f"at most 1 in {most:,}"


def bayes_factor(epsilon: float) -> str:
    """Return e^ε, rounded upward, as one reads it: 1.35, 149 or 3·10^43."""
    if epsilon < math.log(1e6):
        factor = math.exp(epsilon)
        digits = 2 if factor < 100 else 0
        return f"{round_up(factor, digits):,.{digits}f}"
    power = math.floor(epsilon / math.log(10))
    leading = math.ceil(math.exp(epsilon - power * math.log(10)))
    if leading >= 10:
        return f"1·10^{power + 1}"
    return f"{leading}·10^{power}"


def interval(right: int, rows: int) -> tuple[float, float]:
    """Return Wilson's 95 % score interval of a share that was counted on rows."""
    share = right / rows
    middle = (share + Z_95**2 / (2 * rows)) / (1 + Z_95**2 / rows)
    half = (
        Z_95
        * math.sqrt(share * (1 - share) / rows + Z_95**2 / (4 * rows**2))
        / (1 + Z_95**2 / rows)
    )
    return max(0.0, middle - half), min(1.0, middle + half)
