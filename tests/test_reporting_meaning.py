"""What ε and δ are said to mean, against the worst pair of outcomes there is and fifty digits."""

import math
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf

from test_card import card
from tutelage.privacy import ONE_TEACHER, NeighboringRelation, PrivacyUnit, PublicEpsilon
from tutelage.reporting.lints import Case, lint, verdict_of
from tutelage.reporting.meaning import (
    RULE,
    _advantage,
    _right_guesses,
    bayes_factor,
    cases,
    percent,
    verdict,
)

EPSILONS = st.floats(0, 700)
DELTAS = st.floats(0, 1)


def worst_pair(epsilon: float, delta: float) -> tuple[list[Any], list[Any]]:
    """Return the two laws that every (ε, δ)-private pair is a blurred copy of (Kairouz, Oh and Viswanath 2015)."""
    e, d = mp.exp(mpf(epsilon)), mpf(delta)
    rare, often = (1 - d) / (1 + e), (1 - d) * e / (1 + e)
    return [d, often, rare, mpf(0)], [mpf(0), rare, often, d]


@given(EPSILONS, DELTAS)
def test_the_advantage_is_that_of_the_best_test_on_the_worst_pair(epsilon, delta):
    with mp.workdps(50):
        here, there = worst_pair(epsilon, delta)
        # The best test names the likelier one.
        best = sum(max(p - q, 0) for p, q in zip(here, there, strict=True))
        assert _advantage(epsilon, delta) == pytest.approx(float(best), abs=1e-12)
        assert _right_guesses(epsilon, delta) == pytest.approx(float((1 + best) / 2), abs=1e-12)


@given(EPSILONS)
def test_the_printed_factor_is_not_below_the_factor(epsilon):
    text = bayes_factor(epsilon)
    number, _, power = text.replace(",", "").partition("·10^")
    with mp.workdps(50):
        printed = mpf(number) * mpf(10) ** int(power or 0)
        exact = mp.exp(mpf(epsilon))
        assert exact * (1 - mpf(10) ** -12) <= printed <= max(2 * exact, exact + 1)


@given(st.floats(0, 1))
def test_printed_shares_are_rounded_upward_and_stay_shares(share):
    assert 100 * share <= float(percent(share)) + 1e-12
    assert float(percent(share)) <= 100


def test_the_sentence_to_read_aloud_gives_the_bound_of_the_worst_case():
    fair = card(PublicEpsilon(math.log(3), 0.0, ONE_TEACHER, "a theorem")).as_markdown()
    assert (
        "After seeing everything published here, they guess the true version in at most 75 of 100 cases."
        in fair
    )


@pytest.mark.parametrize("relation", NeighboringRelation)
def test_the_sentences_name_the_unit_in_the_words_of_the_user(relation):
    of_visits = PublicEpsilon(1.0, 0.0, PrivacyUnit("visit_id", relation), "a theorem")
    (aloud,) = re.findall(r"Suppose .*", card(of_visits).as_markdown())
    assert re.search(r" visit(?!_id)", aloud)
    ballots = (NeighboringRelation.CHANGE_ONE_ROW, NeighboringRelation.CHANGE_ONE_BALLOT)
    assert ("may be missing" in aloud) == (relation not in ballots)


@given(EPSILONS, DELTAS)
def test_cases_are_rounded_upward_by_less_than_one_and_the_verdict_follows_its_printed_rule(
    epsilon, delta
):
    said = PublicEpsilon(epsilon, delta, ONE_TEACHER, "a theorem")
    most, right = (
        re.search(r"([\d.]+) of 100 cases$", cases(said)),
        100 * _right_guesses(epsilon, delta),
    )
    assert most is not None
    assert 0 <= float(most[1]) - right + 1e-12 < 1 + 2e-12
    if 0 < delta < 1:
        assert (verdict(said).word == "weak") == bool(lint(Case(epsilon=epsilon, delta=delta)))
    assert verdict(said).word == (
        "strong" if right <= 75 else "moderate" if right <= 95 else "weak"
    )
    assert (
        "strong means at most 75 right guesses in 100, moderate at most 95, weak more than 95"
        in RULE
    )


def test_what_no_epsilon_counts_makes_a_verdict_weak_and_seeded_noise_makes_none():
    small = PublicEpsilon(0.1, 1e-9, ONE_TEACHER, "a theorem")
    assert (verdict(small).word, verdict(small, ("tuned-on-private",)).word) == ("strong", "weak")
    assert verdict(replace(small, simulated=True)).word == "none"
    found: tuple[dict[str, Any], ...] = (
        {"delta": 0.1, "entities": 100},
        {"stopping": "data-dependent"},
        {"public_overlap": 1},
    )
    for settings in found:
        assert verdict_of(small, lint(Case(**settings))).word == "weak"
    assert verdict_of(small, lint(Case(threshold=300, teachers=250))).word == "strong"
