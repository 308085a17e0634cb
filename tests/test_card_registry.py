"""A card as a draft entry of the Differential Privacy Deployments Registry."""

import json
from typing import Any

import pytest

from test_card import PATIENT, card, full_card
from test_cli_card import charged, refusal  # noqa: F401  the fixture
from tutelage.events import NoisyArgmaxGaussian, NoisyArgmaxLaplace, NoisyBallot, Repeated, SummedNoise
from tutelage.exceptions import InvalidParameterError, NotPublishableError
from tutelage.privacy import PublicEpsilon, round_up
from tutelage.reporting import registry_record
from tutelage.reporting.lints import lint
from tutelage.reporting.registry import TOPICS

# Sections, fields and choices of schemas/deployments-schema.yaml, which allows no others.
FIELDS: dict[str, set[str]] = {
    "basic": {
        "name", "data_curators", "intended_use", "data_product_type", "data_product_region", "description",
        "publication_date", "data_product_sector",
    },
    "dp_variant": {"variant_name", "data_domain", "unprotected_quantities"},
    "privacy_loss": {"privacy_unit", "privacy_unit_details", "privacy_parameters", "privacy_parameters_details"},
    "deployment_model": {
        "model_name", "model_name_details", "actors", "release_type", "release_type_details", "data_source_type",
        "data_source_type_details", "access_type", "access_type_details",
    },
    "accounting": {"post_processing", "composition"},
    "implementation": {"preprocessing_and_hyperparameter_tuning", "mechanisms", "justification"},
    "administrative": {"sources", "notes", "registry_authors"},
}  # fmt: skip
REQUIRED = {
    "name", "data_curators", "description", "intended_use", "data_product_type", "data_product_region",
    "publication_date",
}  # fmt: skip


def numbers(value: Any) -> set[float]:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    found: set[float] = {value} if isinstance(value, int | float) else set()
    return found.union(*map(numbers, inside)) if inside else found


@pytest.mark.parametrize("made", [card(), full_card()])
def test_an_entry_has_the_fields_of_the_registry_and_no_others(made):
    entry = registry_record(made)
    assert set(entry) == {"url_slug", "status", "tier", "deployment"}
    assert (entry["status"], entry["tier"]) == ("Draft", 2)
    found = entry["deployment"]
    assert set(found) == set(FIELDS)
    for name, fields in FIELDS.items():
        assert set(found[name]) <= fields, name
        texts = [value for field, value in found[name].items() if field != "privacy_parameters"]
        assert all(isinstance(text, str) or all(isinstance(one, str) for one in text) for text in texts)
    assert set(found["basic"]) >= REQUIRED
    assert found["administrative"]["registry_authors"]
    assert found["dp_variant"]["variant_name"] in ("Pure DP", "Approximate DP")
    assert found["basic"]["data_product_type"] in ("Machine learning model", "Dataset")
    assert found["deployment_model"]["model_name"] in ("Central", "Federated")
    assert found["deployment_model"]["release_type"] in ("One release", "Many releases")


def test_an_entry_holds_what_the_card_does_and_no_other_number():
    made = full_card()
    entry = registry_record(made)
    found = entry["deployment"]
    assert found["basic"]["data_curators"] == ["About controller: as agreed."]
    assert found["basic"]["publication_date"] == "2026-01-01"
    assert entry["url_slug"] == "about-title-as-agreed-2026"
    assert found["privacy_loss"]["privacy_parameters"] == {"epsilon": round_up(1.2345), "delta": 1e-5}
    assert found["privacy_loss"]["privacy_parameters"]["epsilon"] >= made.epsilon.epsilon
    assert found["deployment_model"]["release_type"] == "Many releases"
    assert numbers(entry) == {2, round_up(1.2345), 1e-5}


def test_what_nobody_stated_is_not_invented():
    basic = registry_record(card())["deployment"]["basic"]
    for field in ("name", "intended_use", "data_product_region"):
        assert basic[field] == "not stated"
    assert basic["data_curators"] == ["not stated"]


def test_pure_and_summed_noise_are_named():
    pure = registry_record(card(PublicEpsilon(1.0, 0.0, PATIENT, "a theorem")))
    assert pure["deployment"]["dp_variant"]["variant_name"] == "Pure DP"
    summed = registry_record(card(event=Repeated(SummedNoise(NoisyArgmaxGaussian(40.0, 2, PATIENT), 5), 3)))
    model = summed["deployment"]["deployment_model"]
    assert model["model_name"] == "Federated"
    assert "at least as many hospitals as the terms require are honest" in model["actors"]
    assert pure["deployment"]["deployment_model"]["actors"].startswith("Central: ")
    later = card(findings=lint(shares=3))  # of another release through the same ledger
    assert registry_record(later)["deployment"]["deployment_model"]["model_name"] == "Federated"
    local = registry_record(card(event=Repeated(NoisyBallot(2.0, 2, PATIENT), 3)))["deployment"]["deployment_model"]
    assert local["model_name"] == "Local"
    assert local["actors"].startswith("Local: each hospital randomizes its own votes")


def test_objections_are_registered():
    def details(findings):
        return registry_record(card(findings=findings))["deployment"]["privacy_loss"]["privacy_parameters_details"]

    assert "Objection (danger): δ = 0.01 is at least 1/n" in details(lint(delta=0.01, entities=100))
    assert details(()).endswith("Objections: none.")
    assert details(None).endswith("The settings were not checked for objections.")


def test_simulated_noise_and_an_unknown_date_are_refused():
    seeded = Repeated(NoisyArgmaxLaplace(20.0, 2, PATIENT, simulated=True), 5)
    simulated = card(PublicEpsilon(1.0, 1e-5, PATIENT, "a theorem", simulated=True), event=seeded)
    with pytest.raises(NotPublishableError, match="no deployment to register"):
        registry_record(simulated)
    with pytest.raises(InvalidParameterError, match="must begin with a date"):
        registry_record(card(created="yesterday"))


def test_the_command_writes_the_entry_and_names_what_it_lacks(called, charged):  # noqa: F811
    options = ("--ledger", "a.ledger", "--output", "out", "--registry", "entry.json")
    result = called("card", *options, "--state", "controller=A hospital", cwd=charged)
    assert result.returncode == 0, result.stderr
    assert "Registry entry, a draft: entry.json" in result.stdout
    lacking = [topic for topic in TOPICS if topic != "controller"]
    assert f"It lacks: {', '.join(lacking)}." in result.stdout
    entry = json.loads((charged / "entry.json").read_text())
    assert entry["deployment"]["basic"]["data_curators"] == ["A hospital"]
    assert entry["deployment"]["basic"]["data_product_type"] == "Dataset"
    assert called("card", *options, cwd=charged).returncode == 0  # the entry is replaced
    for name, said in (
        ("a.ledger", "a.ledger would be replaced"),
        (".", "The output must be a file, and . is a folder"),
        ("none/entry.json", "none/entry.json must be in a folder that exists"),
        ("out/card.json", "--registry must be outside the folder of the card"),
        ("new/card.md", "--registry must be outside the folder of the card"),
    ):
        folder = "new" if name.startswith("new") else "out"
        (charged / folder).mkdir(exist_ok=True)
        refused = called("card", "--ledger", "a.ledger", "--output", folder, "--registry", name, cwd=charged)
        assert said in refusal(refused, 2)
