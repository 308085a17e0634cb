"""The contract that every mechanism keeps, and the faulty mechanisms that do not."""

import numpy as np
import pytest

from tutelage import ConfidentGNMax, GNMax, InteractiveGNMax
from tutelage.exceptions import InvalidParameterError, TutelageError
from tutelage.mechanisms.registry import CENTRAL
from tutelage.testing import MechanismContract, label_law
from tutelage_consortium.local import LOCAL
from tutelage_reproductions.planted_faults import faulty_mechanisms, right_controls

LAW = "test_labels_follow_the_law_of_the_event"
# The first two are neighbors, so that what is drawn of one serves the tests of both; the slow audits try all. Noise of
# ×0.7 or ×1.3 is missed with a probability below 1e-4 (permute-and-flip: 2e-4).
TRIED = {"histograms": ((6, 5, 1), (5, 6, 1), (126, 124, 0)), "draws": 4_000}
SLOW_TO_DRAW = ("exponential", "permute-and-flip")
CONTRACT = [name for name in dir(MechanismContract) if name.startswith("test_")]


@pytest.fixture(autouse=True)
def _fewer_single_releases(monkeypatch):
    monkeypatch.setattr("tutelage.testing.contract._SINGLE_RELEASES", 200)


def suite(mechanism, name="Suite", **changes):
    return type(
        name, (MechanismContract,), {"mechanism": mechanism, "__module__": __name__, **changes}
    )


# Those that take predictions need a law of their own; it stands below.
for entry in CENTRAL.values():
    few_votes = entry.make_of_few_votes()
    if not few_votes.takes_predictions:
        name = f"Test{entry.kind.__name__}"
        globals()[name] = suite(few_votes, name, **TRIED)
        globals()[name].pytestmark = [pytest.mark.rest] * (entry.name in SLOW_TO_DRAW)


@pytest.mark.rest
class TestConfidentGNMaxThatAbstains(MechanismContract):
    mechanism = ConfidentGNMax(threshold=6.5, sigma_threshold=2.0, sigma_vote=2.0)


class TestInteractiveGNMaxOfAnUnsureStudent(MechanismContract):
    mechanism = InteractiveGNMax(threshold=2.5, sigma_threshold=2.0, sigma_vote=2.0, confidence=0.9)
    prediction = (0.7, 0.2, 0.1)
    histograms = ((6, 5, 1), (5, 6, 1), (1, 5, 6))
    draws = 4_000

    def law(self, counts):
        offsets = InteractiveGNMax.offsets(np.array(self.prediction), int(counts.sum()))
        return label_law(self.event_of_one(counts), counts, offsets)


class OfASureStudent(TestInteractiveGNMaxOfAnUnsureStudent):
    mechanism = InteractiveGNMax(threshold=2.5, sigma_threshold=2.0, sigma_vote=2.0, confidence=0.6)

    def law(self, counts):
        law = super().law(counts)
        law[0] += law[-1]  # where the check does not pass, the student is sure enough of class 0
        law[-1] = 0
        return law


def test_where_the_student_is_sure_its_guess_is_confirmed_by_the_law_of_the_check():
    getattr(OfASureStudent(), LAW)()


BACKWARDS = MechanismContract.histograms[::-1]  # most faults of the law show in the last ones


@pytest.mark.rest
@pytest.mark.parametrize(("mechanism", "by"), faulty_mechanisms(), ids=repr)
def test_the_contract_rejects_every_faulty_mechanism(mechanism, by):
    with pytest.raises((AssertionError, TutelageError, TypeError)):
        getattr(
            suite(mechanism, histograms=BACKWARDS if by == LAW else MechanismContract.histograms)(),
            by,
        )()


@pytest.mark.rest
@pytest.mark.parametrize("right", [suite(mechanism)() for mechanism in right_controls()])
@pytest.mark.parametrize("name", CONTRACT)
def test_the_contract_accepts_them_without_their_faults(right, name):
    getattr(right, name)()


@pytest.mark.rest
def test_a_suite_judges_each_mechanism_by_its_own_draws(monkeypatch):
    judged = suite(GNMax(2.0))()
    getattr(judged, LAW)()
    monkeypatch.setattr(
        type(judged), "mechanism", next(one for one, by in faulty_mechanisms() if by == LAW)
    )
    with pytest.raises((AssertionError, TutelageError, TypeError)):
        getattr(judged, LAW)()


def test_every_test_of_the_contract_rejects_something():
    assert {by for _, by in faulty_mechanisms()} == set(CONTRACT)


@pytest.mark.parametrize("value", [0, float("nan"), 1e300, "40", True])
@pytest.mark.parametrize(
    "entry", [*CENTRAL.values(), *LOCAL.values()], ids=lambda entry: entry.name
)
def test_every_setting_must_be_a_usable_number(entry, value):
    for place, setting in enumerate(entry.settings):
        given = [*entry.sharp]
        given[place] = value
        if (setting.name, value) != ("threshold", 0):
            with pytest.raises(InvalidParameterError) as refused:
                entry.kind(*given)
            assert refused.value.parameter == setting.parameter
