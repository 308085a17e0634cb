"""What ε and δ mean, in words and in the odds of a guess."""

import math

from tutelage.privacy import NeighboringRelation, PublicEpsilon, round_up

_BEYOND_WORDS = 0.9995  # of 100 guesses, all but a twentieth of one
_MOST_DECIMALS = 9
_CHANGES = {
    NeighboringRelation.CHANGE_ONE_ROW: "one unit ({unit}) is replaced by another one. It says nothing about adding or "
    "removing one: how many rows there are is public.",
    NeighboringRelation.ADD_REMOVE_OR_CHANGE_ONE_ENTITY: "one unit ({unit}) is replaced, added or removed, with all of "
    "its rows.",
    NeighboringRelation.ADD_REMOVE_OR_CHANGE_WITHIN_SILO: "one unit ({unit}) within one silo is replaced, added or "
    "removed, with all of its rows. Which silos there are is public.",
    NeighboringRelation.CHANGE_ONE_BALLOT: "the ballots of one unit ({unit}) are replaced, by any others.",
}


def advantage(epsilon: float, delta: float) -> float:
    """Return the most by which any test can do better than guessing which of two neighbouring data sets was used.

    It is the largest sum of true positive and true negative rates less 1, (e^ε − 1 + 2δ)/(e^ε + 1), and bounds the
    advantage of every membership inference.

    Notes
    -----
    Kairouz, Oh and Viswanath 2015, arXiv:1311.0776v4, Theorem 2.1: an (ε, δ)-private test has error rates with
    FP + e^ε·FN ≥ 1 − δ and e^ε·FP + FN ≥ 1 − δ; adding both gives the bound.
    """
    return min(1.0, math.tanh(epsilon / 2) + 2 * delta * math.exp(-epsilon) / (1 + math.exp(-epsilon)))


def right_guesses(epsilon: float, delta: float) -> float:
    """Return the largest share of right guesses between two neighbouring data sets that are equally likely before."""
    return (1 + advantage(epsilon, delta)) / 2


def guarantee(epsilon: PublicEpsilon) -> str:
    """Return the guarantee as a term, ε rounded upward."""
    if epsilon.simulated:
        return "none"
    return f"({round_up(epsilon.epsilon)}, {epsilon.delta:g})-differential privacy"


def percent(share: float) -> str:
    """Return a share as a number of hundredths, rounded upward by one unit of its last digit at most; at most 100.

    Digits are shown until what is left to 100 has two of its own, so that rounding does not raise the odds.
    """
    return _percent(share)[0]


def odds(share: float) -> str:
    """Return a share and what is left of it, as hundredths that add up to 100: 73.2:26.8."""
    return ":".join(_percent(share))


def _percent(share: float) -> tuple[str, str]:
    digits = digits_for_bound(100 * share, 1, 100.0)
    right = min(100.0, round_up(100 * share, digits))
    return f"{right:.{digits}f}", f"{100 - right:.{digits}f}"


def likelihood(epsilon: PublicEpsilon, *, whole: bool) -> str:
    """Return the definition of the guarantee in a sentence; `whole` where it covers all that its ledger pays for."""
    if epsilon.simulated:
        return "Nothing is guaranteed: the noise can be replayed. The values say what real noise would have cost."
    outcome = "everything released through this ledger" if whole else "the labels of this release, the student"
    return (
        f"Any outcome ({outcome}, this card) is at most "
        f"e^{round_up(epsilon.epsilon, 2)} times as likely, plus {epsilon.delta:g}, as on neighbouring data, "
        "whatever else the observer knows."
    )


def guessing(epsilon: PublicEpsilon, *, whole: bool) -> str:
    """Return what the guarantee means to someone who guesses, in a worked sentence; `whole` as for `likelihood`."""
    if epsilon.simulated:
        return "Someone who knows the seed takes the noise away and sees the votes."
    right = right_guesses(epsilon.epsilon, epsilon.delta)
    if right > _BEYOND_WORDS:
        verdict = "the guarantee does not keep them from guessing right nearly always"
    else:
        cases = f"{percent(right)} of 100 such cases"
        verdict = f"they guess right in at most {cases}: odds of 50:50 become at most {odds(right)}"
    seen = "everything released through this ledger" if whole else "this release"
    return (
        f"Suppose an attacker knows all private data except one unit ({epsilon.unit.name}), and considers two versions "
        f"of it equally likely (50:50), one of which is true. After seeing {seen}, {verdict}."
    )


def neighbors(epsilon: PublicEpsilon) -> str:
    """Return for which change of the data ε holds, in a sentence."""
    if epsilon.simulated:
        return "No ε holds for any change of the data: the noise was simulated."
    return f"ε holds if {_CHANGES[epsilon.unit.neighboring].format(unit=epsilon.unit.name)}"


def if_added_or_removed(value: float, epsilon: PublicEpsilon) -> str:
    """Return the ε of fewer changes in a sentence that keeps it apart from the claim."""
    return (
        f"If units ({epsilon.unit.name}) are only added or removed and none is replaced, the labels and the student "
        f"satisfy ε = {round_up(value)} at the same δ. This is not the ε of this card: quote the larger one."
    )


def exception(delta: float) -> str:
    """Return what δ means in a sentence."""
    if delta == 0:
        return "δ = 0: the bound holds for every outcome, however unlikely."
    part = f"{math.floor(1 / delta + 1e-6):,}" if delta > 1e-12 else f"10^{math.floor(-math.log10(delta))}"
    return (
        f"δ = {delta:g}: on top of that factor, an outcome may be likelier by up to 1 in {part}. "
        "Read it as the chance that something comes out for which ε promises nothing."
    )


def bayes_factor(epsilon: float) -> str:
    """Return e^ε, rounded upward, as one reads it: 1.35, 149 or 3·10^43."""
    if epsilon < math.log(1e6):
        factor = math.exp(epsilon)
        return f"{round_up(factor, 2 if factor < 100 else 0):,.{2 if factor < 100 else 0}f}"
    power = math.floor(epsilon / math.log(10))
    leading = math.ceil(math.exp(epsilon - power * math.log(10)))
    return f"{leading}·10^{power}" if leading < 10 else f"1·10^{power + 1}"


def digits_for_bound(value: float, least: int, whole: float = 1.0) -> int:
    """Return with how many decimals a bound below `whole` is rounded upward, so that what is left of it survives.

    One unit of the last digit is at most a fiftieth of what is left: 99.82 of 100 becomes 99.823, not 99.9. At least
    `least` decimals are shown.
    """
    left = whole - value
    return least if left <= 0 else max(least, min(_MOST_DECIMALS, math.ceil(-math.log10(left / 50))))
