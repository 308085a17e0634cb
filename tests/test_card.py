import json

import pytest

from tutelage.budget import PrivateEpsilon, PublicEpsilon, round_up
from tutelage.events import Composed, NoisyArgmaxLaplace, Repeated
from tutelage.exceptions import NotPublishableError
from tutelage.neighboring import NeighboringRelation, PrivacyUnit
from tutelage.report import PrivacyCard

BUDGET = {"budget": 3.0, "delta": 1e-5, "spent": 2.5, "remaining": 0.5, "entries": 3, "head": "ab" * 32}
PATIENT = PrivacyUnit("patient_id", NeighboringRelation.ADD_REMOVE_OR_CHANGE_ONE_ENTITY)


def card(epsilon=None, **changes) -> PrivacyCard:
    epsilon = epsilon or PublicEpsilon(11.40896, 1e-5, PATIENT, "a theorem")
    values = {
        "event": Repeated(NoisyArgmaxLaplace(20.0, 2, PATIENT), 500), "mechanism": "LNMax(scale=20.0)",
        "noise_source": "exact", "queries": 500, "answered": 480, "teachers": 250, "classes": ("no", "a | b"),
        "features": ("age", "dose"), "student": "forest", "student_accuracy": 0.8346, "evaluation_rows": 11_282,
        "versions": {"tutelage": "1"}, "budget": BUDGET,
        "created": "2026-01-01T00:00:00+00:00", **changes,
    }  # fmt: skip
    return PrivacyCard(epsilon=epsilon, **values)


def test_the_json_card_names_everything_an_officer_asks_for(tmp_path):
    path, _ = card().save(tmp_path)
    filed = json.loads(path.read_text())
    expected = {
        "public_epsilon": 11.40896, "delta": 1e-5, "queries": 500, "answered": 480, "teachers": 250,
        "mechanism": "LNMax(scale=20.0)", "unit": "patient_id", "student_accuracy": 0.8346, "private": True,
    }  # fmt: skip
    assert {name: filed[name] for name in expected} == expected
    assert filed["neighbouring"] == str(PATIENT.neighboring)
    assert filed["event"]["of"]["unit"]["name"] == "patient_id"


def test_the_readable_card_rounds_epsilon_up_and_says_what_it_means(tmp_path):
    _, path = card().save(tmp_path)
    text = path.read_text()
    assert "(11.409, 1e-05)-differential privacy" in text
    assert "at most e^11.41 times as likely, plus 1e-05" in text
    assert "83.46% on 11,282 public rows" in text
    assert "a \\| b" in text
    assert "## What is not protected" in text
    assert "anonym" not in text


def test_of_very_many_columns_the_readable_card_shows_some():
    many = card(features=tuple(f"pixel {number}" for number in range(784)))
    assert "pixel 39, … (784 in all)" in many.as_markdown()
    assert "pixel 40" not in many.as_markdown()
    assert len(many.as_dict()["features"]) == 784


def test_an_unmeasured_student_is_said_to_be_unmeasured():
    unmeasured = card(student_accuracy=None, evaluation_rows=0)
    assert "not measured" in unmeasured.as_markdown()
    assert unmeasured.as_dict()["student_accuracy"] is None


def test_simulated_noise_marks_both_forms_as_not_private():
    seeded = Repeated(NoisyArgmaxLaplace(20.0, 2, PATIENT, simulated=True), 5)
    simulated = card(PublicEpsilon(1.0, 1e-5, PATIENT, "a theorem", simulated=True), event=seeded)
    assert "differential privacy" not in simulated.as_markdown()
    assert "may be published" not in simulated.as_markdown()
    with pytest.raises(NotPublishableError, match="must be marked so too"):
        card(event=Composed((seeded,)))
    assert simulated.as_dict()["private"] is False
    assert "NOT PRIVATE" in simulated.as_markdown()


@pytest.mark.parametrize("epsilon", [PrivateEpsilon(0.55, 12.0, 1e-5, PATIENT, "exact"), 0.55])
def test_a_card_takes_no_private_value(epsilon):
    with pytest.raises(NotPublishableError, match="PublicEpsilon only"):
        card(epsilon)


def test_printed_epsilons_are_never_below_the_value():
    for value in (0.12341, 2.00000000001, 11.4089999, 1e-9, 3.0):
        assert value <= round_up(value) <= value + 1.1e-4
        assert value <= round_up(value, 2) <= value + 1.1e-2
    assert round_up(float("inf")) == float("inf")
