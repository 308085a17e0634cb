"""Guarded values, and refusals of public parameters."""

import copy
import json
import logging
import pickle

import numpy as np
import pytest

from tutelage import GNMax, PrivateEpsilon, PublicEpsilon
from tutelage._internal.validation import integer_at_least, probability
from tutelage.exceptions import InvalidParameterError, NotPublishableError
from tutelage.privacy import ONE_TEACHER

SECRET = PrivateEpsilon(0.98765, 43.21, 1e-5, ONE_TEACHER, "a theorem")


def test_no_way_of_printing_shows_the_value(caplog):
    logging.getLogger("test").warning("cost %s", SECRET)
    for shown in (repr([SECRET]), f"{SECRET}", caplog.text):
        assert "0.98" not in shown
        assert "43.2" not in shown
        assert "reveal" in shown


@pytest.mark.parametrize("leak", [
    float, pickle.dumps, copy.copy, copy.deepcopy, lambda secret: f"{secret:.2f}", lambda secret: secret < 1,
    lambda secret: secret + 1, json.dumps, vars,
])  # fmt: skip
def test_it_cannot_be_used_by_accident(leak):
    with pytest.raises((NotPublishableError, TypeError)):
        leak(SECRET)


def test_it_is_no_public_epsilon_and_opens_on_purpose_only():
    assert (SECRET.reveal(), SECRET.reveal_order()) == (0.98765, 43.21)
    assert PrivateEpsilon(0.98765, 43.21, 1e-5, ONE_TEACHER, "a theorem") != SECRET


@pytest.mark.parametrize("value", [1.0040000001, 2.3e-9, 123456.789, float("inf")])
def test_a_public_epsilon_is_a_number_that_is_printed_upward(value):
    epsilon = PublicEpsilon(value, 1e-5, ONE_TEACHER, "a theorem")
    for spec in (".2f", ".0f", "g", ".3g", "12.4f", ".2e", "+.1f"):
        assert value <= float(format(epsilon, spec)) <= value * 1.2 + 1
    assert float(epsilon) == value
    assert sorted([epsilon, PublicEpsilon(0.0, 1e-5, ONE_TEACHER, "a theorem")])[-1] is epsilon
    assert epsilon == PublicEpsilon(value, 1e-5, ONE_TEACHER, "a theorem")
    with pytest.raises(NotPublishableError):
        epsilon.__lt__(SECRET)  # type: ignore[arg-type]


def test_a_public_epsilon_prints_in_one_short_line():
    assert (
        repr(PublicEpsilon(0.999994595220534, 1e-5, ONE_TEACHER, "a theorem")) == "1.0 (δ = 1e-05)"
    )
    seeded = PublicEpsilon(1.5, 1e-6, ONE_TEACHER, "a theorem", simulated=True)
    assert repr(seeded) == "1.5 (δ = 1e-06) (simulated noise: not private)"


@pytest.mark.parametrize(("spec", "printed"), [
    (",.2f", "1,234.57"), (".1%", "123456.2%"), ("9<9.1f", "1234.6999"), ("", "ε = 1234.5613 at δ = 1e-05"),
])  # fmt: skip
def test_every_format_of_floats_prints_a_public_epsilon_upward(spec, printed):
    assert format(PublicEpsilon(1234.561234, 1e-5, ONE_TEACHER, "a theorem"), spec) == printed
    assert (
        float(format(PublicEpsilon(1.2341e300, 1e-5, ONE_TEACHER, "a theorem"), ".4g")) == 1.235e300
    )


def said(check, *arguments: object) -> str:
    with pytest.raises(InvalidParameterError) as refused:
        check(*arguments)
    return str(refused.value)


@pytest.mark.parametrize(
    "private", [np.array([[59, 1], [3, 57]]), [59, 57], {"Anna Meier": 59}, "59" * 100], ids=type
)
def test_what_may_be_rows_or_votes_is_not_quoted(private):
    for check, arguments in (
        (integer_at_least, (private, 1, "n", "x")),
        (probability, (private, "p", "x")),
    ):
        assert said(check, *arguments).endswith(f"Got a {type(private).__name__}.")
    assert said(GNMax, private).endswith(f"Got a {type(private).__name__}.")
