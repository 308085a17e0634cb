import copy
import json
import logging
import pickle

import pytest

from tutelage import PrivateEpsilon, PublicEpsilon
from tutelage.exceptions import NotPublishableError
from tutelage.privacy import ONE_TEACHER

SECRET = PrivateEpsilon(0.98765, 43.21, 1e-5, ONE_TEACHER, "a theorem")


def test_no_way_of_printing_shows_the_value(caplog):
    logging.getLogger("test").warning("cost %s", SECRET)
    for shown in (repr(SECRET), str(SECRET), f"{SECRET}", repr([SECRET]), caplog.text):
        assert "0.98" not in shown
        assert "43.2" not in shown
        assert "reveal" in shown


@pytest.mark.parametrize(
    "leak",
    [
        float, pickle.dumps, copy.copy, copy.deepcopy, lambda secret: f"{secret:.2f}", lambda secret: secret < 1,
        lambda secret: secret + 1, json.dumps, vars,
    ],
)  # fmt: skip
def test_it_cannot_be_used_by_accident(leak):
    with pytest.raises((NotPublishableError, TypeError)):
        leak(SECRET)


def test_it_is_no_public_epsilon_and_opens_on_purpose_only():
    assert not isinstance(SECRET, PublicEpsilon)
    assert (SECRET.reveal(), SECRET.reveal_order()) == (0.98765, 43.21)
    assert PrivateEpsilon(0.98765, 43.21, 1e-5, ONE_TEACHER, "a theorem") != SECRET


def test_a_public_epsilon_prints_rounded_up():
    assert str(PublicEpsilon(3.34141, 1e-5, ONE_TEACHER, "a theorem")) == "ε = 3.3415 at δ = 1e-05"
