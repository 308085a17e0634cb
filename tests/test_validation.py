"""Refusals of public parameters: an example only where it fits, a bound only where there is one."""

import math

import numpy as np
import pytest

from tutelage import GNMax
from tutelage._internal.validation import integer_at_least, number_between, probability
from tutelage.exceptions import InvalidParameterError


def said(check, *arguments: object) -> str:
    with pytest.raises(InvalidParameterError) as refused:
        check(*arguments)
    return str(refused.value)


@pytest.mark.parametrize("name", ["delta", "--delta"])
def test_an_example_of_delta_is_given_for_delta(name):
    assert said(probability, 0, name, "plan") == (
        f"`{name}` of plan must lie strictly between 0 and 1, for example 1e-5. Got 0."
    )


def test_a_confidence_is_given_no_example_of_delta():
    message = said(probability, 1.0, "confidence", "audit_law")
    assert message == "`confidence` of audit_law must lie strictly between 0 and 1. Got 1.0."


def test_a_number_without_upper_end_must_be_finite():
    assert said(number_between, math.inf, 0, math.inf, "epsilon", "lint") == (
        "`epsilon` of lint must be a number, at least 0 and finite. Got inf."
    )
    assert said(number_between, 2, 0, 1, "alpha", "x") == (
        "`alpha` of x must be a number, at least 0 and below 1. Got 2."
    )
    assert number_between(1e300, 0, math.inf, "epsilon", "lint") == 1e300


@pytest.mark.parametrize("private", [np.array([[59, 1], [3, 57]]), [59, 57], {"Anna Meier": 59}, "59" * 100], ids=type)
def test_what_may_be_rows_or_votes_is_not_quoted(private):
    for check, arguments in ((integer_at_least, (private, 1, "n", "x")), (probability, (private, "p", "x"))):
        assert said(check, *arguments).endswith(f"Got a {type(private).__name__}.")
    assert said(GNMax, private).endswith(f"Got a {type(private).__name__}.")
