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
    for shown in (repr(SECRET), str(SECRET), f"{SECRET}", repr([SECRET]), caplog.text):
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
    assert not isinstance(SECRET, PublicEpsilon)
    assert (SECRET.reveal(), SECRET.reveal_order()) == (0.98765, 43.21)
    assert PrivateEpsilon(0.98765, 43.21, 1e-5, ONE_TEACHER, "a theorem") != SECRET


def said(check, *arguments: object) -> str:
    with pytest.raises(InvalidParameterError) as refused:
        check(*arguments)
    return str(refused.value)


@pytest.mark.parametrize("private", [np.array([[59, 1], [3, 57]]), [59, 57], {"Anna Meier": 59}, "59" * 100], ids=type)
def test_what_may_be_rows_or_votes_is_not_quoted(private):
    for check, arguments in ((integer_at_least, (private, 1, "n", "x")), (probability, (private, "p", "x"))):
        assert said(check, *arguments).endswith(f"Got a {type(private).__name__}.")
    assert said(GNMax, private).endswith(f"Got a {type(private).__name__}.")
