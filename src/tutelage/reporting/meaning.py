"""Meaning of ε and δ, in words and in the odds of a guess."""

import math
from typing import NamedTuple

from tutelage.privacy import NeighboringRelation, PublicEpsilon, round_up

_BEYOND_WORDS = 0.9995  # of 100 guesses, all but a twentieth of one
_WHOLE_NUMBERS = 0.99  # up to here, a bound is read aloud as a whole number of 100
_STRONG, _MODERATE = 0.75, 0.95  # right guesses: ε ≤ 1.09 and ε ≤ 2.94 for a small δ
_MOST_DECIMALS = 9
RULE = (
    "Rule: strong means at most 75 right guesses in 100, moderate at most 95, weak more than 95. An objection "
    "that ε is incomplete also makes it weak."
)
_CHANGES = {
    NeighboringRelation.CHANGE_ONE_ROW: "replacing one unit ({unit}) by another one. It does not cover adding or "
    "removing a unit, because the number of rows is public.",
    NeighboringRelation.ADD_REMOVE_OR_CHANGE_ONE_ENTITY: "changing, adding or removing one unit ({unit}) with all of "
    "its rows.",
    NeighboringRelation.ADD_REMOVE_OR_CHANGE_WITHIN_SILO: "changing, adding or removing one unit ({unit}) with all of "
    "its rows, within one hospital (silo). Which silos exist is public.",
    NeighboringRelation.CHANGE_ONE_BALLOT: "replacing the ballots of one unit ({unit}) by any other ballots.",
}
# Knowledge of an attacker, and the two versions they compare, in the user's word for the unit.
_ATTACKERS = {
    NeighboringRelation.CHANGE_ONE_ROW: "every {unit} except one, and considers two versions of it equally likely.",
    NeighboringRelation.ADD_REMOVE_OR_CHANGE_ONE_ENTITY: "every record except those of one {unit}, and considers two "
    "versions of these records equally likely. In one version, these records may be missing.",
    NeighboringRelation.ADD_REMOVE_OR_CHANGE_WITHIN_SILO: "every record except those of one {unit} in one silo, and "
    "considers two versions of these records equally likely. In one version, these records may be missing.",
    NeighboringRelation.CHANGE_ONE_BALLOT: "all private data except {unit}, and considers two versions of it equally "
    "likely.",
}


class Verdict(NamedTuple):
    """How strong a guarantee is, in one word, and what the word follows from."""

    word: str
    reason: str


def verdict(epsilon: PublicEpsilon, uncounted: tuple[str, ...] = ()) -> Verdict:
    """Return the verdict that `RULE` gives; `uncounted` are codes of objections to what ε does not count."""
    if epsilon.simulated:
        return Verdict("none", "The noise was simulated, so there is no guarantee.")
    if uncounted:
        return Verdict("weak", f"ε leaves something out: see the objections ({', '.join(uncounted)}).")
    right, most = right_guesses(epsilon.epsilon, epsilon.delta), _most(epsilon)
    if right <= _STRONG:
        return Verdict("strong", f"{most} is at most {100 * _STRONG:g}.")
    if right <= _MODERATE:
        return Verdict("moderate", f"{most} is at most {100 * _MODERATE:g}.")
    return Verdict("weak", f"{most} is more than {100 * _MODERATE:g}.")


def cases(epsilon: PublicEpsilon) -> str:
    """Return the largest share of right guesses in words, rounded upward: at most 63 of 100 cases."""
    most = _most(epsilon)
    return "up to 100 of 100 cases" if most == "100" else f"at most {most} of 100 cases"


def _most(epsilon: PublicEpsilon) -> str:
    right = right_guesses(epsilon.epsilon, epsilon.delta)
    if right > _BEYOND_WORDS:
        return "100"
    return f"{math.ceil(100 * right)}" if right <= _WHOLE_NUMBERS else percent(right)


def advantage(epsilon: float, delta: float) -> float:
    """Return the most by which any test can do better than guessing which of two neighboring data sets was used.

    It is the largest sum of true positive and true negative rates less 1, (e^ε − 1 + 2δ)/(e^ε + 1), and bounds the
    advantage of every membership inference.

    Notes
    -----
    Kairouz, Oh and Viswanath 2015, arXiv:1311.0776v4, Theorem 2.1: an (ε, δ)-private test has error rates with
    FP + e^ε·FN ≥ 1 − δ and e^ε·FP + FN ≥ 1 − δ; adding both gives the bound.
    """
    return min(1.0, math.tanh(epsilon / 2) + 2 * delta * math.exp(-epsilon) / (1 + math.exp(-epsilon)))


def right_guesses(epsilon: float, delta: float) -> float:
    """Return the largest share of right guesses between two neighboring data sets that are equally likely before."""
    return (1 + advantage(epsilon, delta)) / 2


def guarantee(epsilon: PublicEpsilon) -> str:
    """Return the guarantee as a term, ε rounded upward."""
    if epsilon.simulated:
        return "none"
    return f"({round_up(epsilon.epsilon)}, {epsilon.delta:.10g})-differential privacy"


def percent(share: float) -> str:
    """Return a share as a number of hundredths, rounded upward by one unit of its last digit at most; at most 100.

    Digits are shown until what is left to 100 has two of its own, so that rounding does not raise the odds.
    """
    digits = digits_for_bound(100 * share, 1, 100.0)
    return f"{min(100.0, round_up(100 * share, digits)):.{digits}f}"


def likelihood(epsilon: PublicEpsilon, parts: str, *, whole: bool) -> str:
    """Return the definition of the guarantee in a sentence, for the parts of a release or for the `whole` ledger."""
    if epsilon.simulated:
        return "Nothing is guaranteed, because anyone who knows the seed can repeat the noise."
    outcome = "everything released through this ledger" if whole else f"{parts} and this card"
    return (
        f"The probability of any outcome ({outcome}) is at most e^{round_up(epsilon.epsilon, 2)} times its "
        f"probability if one unit were different, plus {epsilon.delta:.10g}. This holds whatever else the attacker "
        "knows."
    )


def guessing(epsilon: PublicEpsilon, *, whole: bool) -> str:
    """Return what the guarantee means to someone who guesses, for reading aloud; `whole` as for `likelihood`."""
    if epsilon.simulated:
        return "This release protects no one: anyone who knows the seed can remove the noise and see the votes."
    seen = "everything ever released from this budget" if whole else "everything published here"
    unit = epsilon.unit
    known = _ATTACKERS[unit.neighboring].format(unit=unit.name.removesuffix("_id") or unit.name)
    return (
        f"Suppose an attacker knows {known} After seeing {seen}, they guess the true version in {cases(epsilon)}. "
        "A coin toss is right in 50."
    )


def neighbors(epsilon: PublicEpsilon) -> str:
    """Return for which change of the data ε holds, in a sentence."""
    if epsilon.simulated:
        return "No ε holds for any change of the data: the noise was simulated."
    return f"ε limits the effect of {_CHANGES[epsilon.unit.neighboring].format(unit=epsilon.unit.name)}"


def if_added_or_removed(value: float, epsilon: PublicEpsilon) -> str:
    """Return the ε of fewer changes in a sentence that keeps it apart from the claim."""
    return (
        f"If one unit ({epsilon.unit.name}) only joins or leaves, and none is changed, ε is {round_up(value)} at the "
        "same δ. This is not the ε of this card. Quote the larger ε."
    )


def one_in(delta: float) -> str:
    """Return a δ above 0 in words, rounded upward: 1 in 100,000, or at most 1 in 33."""
    if delta <= 1e-12:
        return f"at most 1 in 10^{math.floor(-math.log10(delta))}"
    most = math.floor(1 / delta + 1e-6)
    return f"1 in {most:,}" if math.isclose(delta * most, 1) else f"at most 1 in {most:,}"


def exception(delta: float) -> str:
    """Return what δ means in a sentence."""
    if delta == 0:
        return "δ = 0: the bound holds for every outcome."
    return (
        f"δ = {delta:.10g} is {one_in(delta)}. Think of it as the probability of an outcome for which ε "
        "guarantees nothing."
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
