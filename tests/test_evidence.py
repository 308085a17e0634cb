"""Evidence that machines read: in the student's file, by a policy, and as an entry for a registry."""

import json
import math
import re
import runpy
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from blobs import LABELS, PRIVATE, PUBLIC, TEST, TRUE
from conftest import REPOSITORY
from test_card_signature import ask
from test_cli_card import charged  # noqa: F401  a fixture
from tutelage import PATEClassifier, SimulationNoise
from tutelage._internal.records import sha256_of
from tutelage._internal.releases import MANIFEST, Manifest
from tutelage.cli.policy import Policy, broken_rules
from tutelage.cli.verify import VerifiedRelease
from tutelage.exceptions import ConfigError, InvalidDataError
from tutelage.methods import NoisyMoments
from tutelage.privacy import ONE_TEACHER
from tutelage.reporting import PrivacyCard, read_card
from tutelage.reporting.lints import UNCOUNTED
from tutelage.reporting.measured import ClassLayout, measured
from tutelage.reporting.record import Errors, Finding, Judged, Reached, StudentPart, TierPart
from tutelage.reporting.registry import _scalar, entry_of
from tutelage.signing import SigningKey
from tutelage.students import load_student
from tutelage.students.store import evidence_in, with_evidence

KEYS = (
    *("title", "day", "epsilon", "delta", "unit", "neighboring", "simulated"),
    *("ledger_head", "card_sha256", "file", "format"),
)
EXAMPLE = REPOSITORY / "examples" / "appetite.toml"
SAID = {
    "title": 'Wards: "north" – (1)',
    "controller": "Hospital",
    "purpose": "Triage.\nAt night.",
    "excluded_use": "Insurance.",
    "side_channels": "None known.",
}


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """The folder of a release with real noise, and its model."""
    model = PATEClassifier(
        epsilon=1.0, delta=1e-5, method=NoisyMoments(), classes=range(3), random_state=0
    )
    model.fit(PRIVATE, LABELS, X_public=PUBLIC)
    folder = tmp_path_factory.mktemp("released") / "out"
    return model.save(folder, model.card(TEST, TRUE, statements=SAID)), model


@pytest.fixture
def out(released: tuple[Path, Any], tmp_path: Path) -> Path:
    """A copy of that folder."""
    return shutil.copytree(released[0], tmp_path / "out")


@pytest.fixture
def card(released: tuple[Path, Any]) -> PrivacyCard:
    return read_card(released[0] / "card.json")


def refusal(result: Any, code: int) -> str:
    assert result.returncode == code, result.stderr
    return result.stderr.strip()


def stated_in(folder: Path) -> dict[str, Any]:
    return json.loads(zipfile.ZipFile(folder / "student.skops").read("release.json"))


def write_student(folder: Path, content: bytes) -> None:
    """Replace the student of a folder, and make a manifest to match."""
    (folder / "student.skops").write_bytes(content)
    record = json.loads((folder / MANIFEST).read_text())
    record["sha256"]["student.skops"] = sha256_of(content)
    (folder / MANIFEST).write_text(json.dumps(record))


def state(folder: Path, evidence: dict[str, Any]) -> None:
    write_student(folder, with_evidence((folder / "student.skops").read_bytes(), evidence))


def without_evidence(folder: Path) -> None:
    """Make the student's file one of an earlier version."""
    path = folder / "student.skops"
    parts = zipfile.ZipFile(path)
    with zipfile.ZipFile(folder.parent / "bare", "w") as bare:
        for name in set(parts.namelist()) - {"release.json"}:
            bare.writestr(name, parts.read(name))
    write_student(folder, (folder.parent / "bare").read_bytes())


def test_the_file_of_a_student_states_its_release_and_still_loads(called, released, card):
    folder, model = released
    stated = stated_in(folder)
    assert set(stated) == set(KEYS)
    assert stated == {
        "file": "release evidence",
        "format": 1,
        "title": SAID["title"],
        "day": model.day_,
        "epsilon": model.epsilon_.epsilon,
        "delta": 1e-5,
        "unit": "row",
        "neighboring": "row",
        "simulated": False,
        "ledger_head": card.budget.head,
        "card_sha256": sha256_of((folder / "card.json").read_bytes()),
    }
    assert np.array_equal(load_student(folder).predict(TEST), model.predict(TEST))
    done = called("card", folder, "--check")
    assert done.returncode == 0, done.stderr
    assert "out agrees with its manifest. No signature was checked" in done.stdout


@pytest.mark.parametrize("key", KEYS)
def test_each_changed_or_missing_entry_is_named(key, called, out):
    stated = stated_in(out)
    number = isinstance(stated[key], float)
    state(out, stated | {key: stated[key] * (1 - 1e-12) if number else "0" * 64})
    said = refusal(called("card", out, "--check"), 1)
    names = {"card_sha256": "another card.json", "format": "another format"}
    assert names.get(key, f"states `{key}` = ") in said
    del stated[key]
    state(out, stated)
    said = refusal(called("card", out, "--check"), 1)
    assert names.get(key, "another format") in said or f"does not state `{key}`" in said


def test_an_entry_that_is_none_of_evidence_and_one_that_cannot_be_read_are_refused(called, out):
    state(out, stated_in(out) | {"epsilon_of_friends": 0.1})
    said = refusal(called("card", out, "--check"), 1)
    assert "states `epsilon_of_friends`, which is not part of evidence" in said
    state(out, {"epsilon": [1.0]})
    said = refusal(called("card", out, "--check"), 1)
    assert "release.json in" in said
    with (
        zipfile.ZipFile(out / "student.skops", "a") as archive,
        pytest.warns(UserWarning, match="Duplicate"),
    ):
        archive.writestr("release.json", json.dumps(stated_in(out)))
    for content in ((out / "student.skops").read_bytes(), b"PK"):
        with pytest.raises(InvalidDataError, match="cannot be read"):
            evidence_in(content, "a file")


def test_the_student_of_another_release_is_refused_also_before_the_card_is_changed(called, out):
    other = PATEClassifier(
        epsilon=20.0, method=NoisyMoments(), classes=range(3), noise=SimulationNoise(0)
    )
    folder = other.fit(PRIVATE, LABELS, X_public=PUBLIC).save(out.parent / "other")
    write_student(out, (folder / "student.skops").read_bytes())
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    for options in (["--check"], ["--policy", EXAMPLE], ["--state", "legal=Assessed."]):
        said = refusal(called("card", out, *options), 1)
        assert "is the student of another card.json" in said
        assert "states `simulated` = 'true', but card.json has 'false'" in said
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_a_statement_changes_the_evidence_with_the_card(called, out, released):
    assert called("card", out, "--state", "title=Another").returncode == 0
    assert stated_in(out)["title"] == "Another"
    assert stated_in(out)["card_sha256"] == Manifest.read_whole(out).sha256["card.json"]
    assert zipfile.ZipFile(out / "student.skops").testzip() is None
    assert np.array_equal(load_student(out).predict(TEST), released[1].predict(TEST))
    assert called("card", out, "--check").returncode == 0


def test_a_signature_covers_the_evidence(called, out):
    SigningKey.generate("officer").save(out.parent / "keys")
    private, public = (
        out.parent / "keys" / f"officer.{kind}.json" for kind in ("private", "public")
    )
    changed = called("card", out, "--state", "legal=Assessed.", "--sign", private)
    assert changed.returncode == 0, changed.stderr
    (out.parent / "p.toml").write_text('largest_epsilon = 1\nlargest_delta = 1e-5\nunits = ["row"]')
    done = called("card", out, "--verify", public, "--policy", out.parent / "p.toml")
    assert done.returncode == 0, done.stderr
    assert "is the release that officer signed" in done.stdout
    assert "keeps all rules" in done.stdout
    state(out, stated_in(out) | {"epsilon": 0.1})
    assert "changed after officer signed it" in refusal(called("card", out, "--verify", public), 1)


def test_a_student_without_evidence_beside_a_card_of_this_version_is_refused(called, out):
    without_evidence(out)
    assert "states no ε, although this version" in refusal(called("card", out, "--check"), 1)


def test_a_student_of_an_earlier_version_opens_and_is_said_to_state_nothing(
    called, out, released, monkeypatch
):
    without_evidence(out)
    monkeypatch.setattr("tutelage.cli.verify.version", lambda _: "9.0")
    assert np.array_equal(load_student(out).predict(TEST), released[1].predict(TEST))
    done = called("card", out, "--check")
    assert done.returncode == 0
    assert "student.skops states no ε, because an earlier version wrote it." in done.stdout
    assert called("card", out, "--state", "legal=Assessed.").returncode == 0
    assert stated_in(out)["epsilon"] == released[1].epsilon_.epsilon


@pytest.mark.rest
def test_an_onnx_file_states_its_release_until_card_or_student_change(called, out, released):
    onnx: Any = pytest.importorskip("onnx")
    runtime: Any = pytest.importorskip("onnxruntime")
    pytest.importorskip("skl2onnx")
    from tutelage.students import export_onnx

    file = export_onnx(out, out.parent / "a.onnx")
    session = runtime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    assert np.mean(session.run(["label"], {"rows": TEST})[0] == released[1].predict(TEST)) > 0.99
    found = session.get_modelmeta().custom_metadata_map
    assert set(found) == {f"tutelage.{key}" for key in (*KEYS, "manifest_sha256")}
    assert float(found["tutelage.epsilon"]) == released[1].epsilon_.epsilon
    assert found["tutelage.manifest_sha256"] == sha256_of((out / MANIFEST).read_bytes())
    done = called("card", out, "--onnx", file)
    assert done.returncode == 0
    assert "a.onnx states this release." in done.stdout

    model = onnx.load(str(file))
    (entry,) = [one for one in model.metadata_props if one.key == "tutelage.epsilon"]
    entry.value = "0.1"
    onnx.save(model, str(out.parent / "less.onnx"))
    said = refusal(called("card", out, "--onnx", out.parent / "less.onnx"), 1)
    assert "less.onnx states `epsilon` = '0.1', but card.json has '0.9999" in said
    model.metadata_props.add(key="tutelage.epsilon", value="1.0")
    onnx.save(model, str(out.parent / "less.onnx"))
    said = refusal(called("card", out, "--onnx", out.parent / "less.onnx"), 1)
    assert "less.onnx has two values of 'tutelage.epsilon'" in said
    bare = export_onnx(load_student(out), out.parent / "bare.onnx")
    assert "evidence of another format" in refusal(called("card", out, "--onnx", bare), 1)
    (out.parent / "no.onnx").write_bytes(b"\xff\xff")
    said = refusal(called("card", out, "--onnx", out.parent / "no.onnx"), 1)
    assert "no.onnx is not an ONNX file" in said
    said = refusal(called("card", out, "--onnx", out.parent / "none.onnx"), 1)
    assert "none.onnx cannot be read" in said

    assert called("card", out, "--state", "legal=Assessed.").returncode == 0
    said = refusal(called("card", out, "--onnx", file), 1)
    assert "was exported from another release, or from this one before it was changed" in said
    without_evidence(out)
    for path in (out, out / "student.skops"):
        with pytest.raises(InvalidDataError, match="no results folder whose student states its ε"):
            export_onnx(path, file)


ALLOWED = Policy(largest_epsilon=1.0, largest_delta=1e-5, units=("row",))


def rules_broken(
    card: PrivacyCard, recipient: str | None = None, outdated: str = "", **changes: Any
) -> list[str]:
    policy = structs.replace(ALLOWED, **changes)
    return [*broken_rules(policy, VerifiedRelease(card, "", outdated), recipient)]


def of_guarantee(card: PrivacyCard, **changes: Any) -> PrivacyCard:
    return structs.replace(card, guarantee=structs.replace(card.guarantee, **changes))


@pytest.mark.parametrize(("kept", "broken", "said"), [
    ({"largest_epsilon": 1.0}, {"largest_epsilon": 0.999}, "ε is 0.9999"),
    ({"largest_delta": 1e-5}, {"largest_delta": math.nextafter(1e-5, 0)}, "δ is 1e-05, and at most"),
    ({"units": ("a", "row")}, {"units": ("rows",)}, "The unit of privacy is 'row', which is not among rows."),
    ({"neighboring": ("row",)}, {"neighboring": ("entity", "silo")}, "is row, which is not among entity, silo."),
    ({"least": {"accuracy": 0.5}}, {"least": {"accuracy": 0.9999}}, "The accuracy may be as low as"),
    ({"statements": ("purpose",)}, {"statements": ("purpose", "legal")}, "The card has no statement on legal."),
    ({"recipients": ("A", "B")}, {"recipients": ("A",)}, "'B' is not among the recipients"),
])  # fmt: skip
def test_each_rule_is_kept_and_broken(kept, broken, said, card):
    assert rules_broken(card, "B", **kept) == []
    (sentence,) = rules_broken(card, "B", **broken)
    assert said in sentence


def test_what_is_not_stated_is_broken_and_printed_digits_do_not_count(card):
    assert "Add --recipient" in rules_broken(card, recipients=("A",))[0]
    for goal in ("average precision", "r_squared"):
        assert rules_broken(card, least={goal: 0.0}) == [
            f"The card states no {goal}, and at least 0.0 is needed."
        ]
    unmeasured = structs.replace(card, student=StudentPart(name="a student"))
    assert "states no accuracy" in rules_broken(unmeasured, least={"accuracy": 0.0})[0]
    hair = replace(card.epsilon, epsilon=1.00000001)
    assert f"{hair.epsilon:.4f}" == "1.0000"
    above = of_guarantee(card, epsilon=hair)
    assert rules_broken(above) == ["ε is 1.00000001, and at most 1.0 is allowed."]
    assert rules_broken(above, largest_epsilon=hair.epsilon) == []


def test_the_largest_claim_counts_and_a_tested_one_never_helps(card):
    larger = replace(card.epsilon, epsilon=3.0)
    of_tier = TierPart("few", 0.5, replace(card.epsilon, epsilon=0.5, delta=1e-3))
    in_tiers = structs.replace(card, budget=structs.replace(card.budget, tiers=(of_tier,)))
    assert rules_broken(in_tiers) == ["δ is 0.001, and at most 1e-05 is allowed."]
    tested = replace(card.epsilon, epsilon=0.1, output_dependent=True)
    assert "ε is 3.0" in rules_broken(of_guarantee(card, alone=larger))[0]
    assert "ε is 3.0" in rules_broken(of_guarantee(card, epsilon=larger, alone=card.epsilon))[0]
    assert "ε is 3.0" in rules_broken(of_guarantee(card, epsilon=larger, tested=tested))[0]


def test_an_epsilon_that_does_not_hold_breaks_every_policy(card):
    simulated = of_guarantee(card, epsilon=replace(card.epsilon, simulated=True))
    simulated = structs.replace(simulated, budget=structs.replace(card.budget, frontier=()))
    assert rules_broken(simulated) == ["The noise was simulated, so the card guarantees nothing."]
    for code in (*UNCOUNTED, "not-checked"):
        finding = Finding(code, "danger", "Settings were chosen on votes. Stop.")
        objected = structs.replace(card, findings=(finding,))
        assert "The card objects to its ε. Danger: Settings" in rules_broken(objected)[0]
    mild = structs.replace(card, findings=(Finding("epsilon-large", "warning", "It is."),))
    assert rules_broken(mild) == []
    later = rules_broken(card, outdated="no longer holds")
    assert later == ["There are later releases, and the ε of the card no longer holds."]


def test_the_accuracy_that_counts_is_the_lower_end_of_its_interval(card):
    on_public = structs.replace(card.student.judged, on_people=None)
    card = structs.replace(card, student=structs.replace(card.student, judged=on_public))
    low, high = card.student.judged.accuracy_interval or (0, 0)
    assert low < (card.student.judged.accuracy or 0) < high
    assert rules_broken(card, least={"accuracy": low}) == []
    assert rules_broken(card, least={"accuracy": math.nextafter(low, 1)}) != []
    errors = (Errors(0.0, 1.0, 10, 0.5, 1.0, 0.8),)
    goals = (Reached("balanced accuracy", 0.7, None, 0.5),)
    judged = structs.replace(
        card, student=StudentPart(name="x", judged=Judged(errors=errors, goals=goals))
    )
    assert rules_broken(judged, least={"r_squared": 0.75, "balanced accuracy": 0.7}) == []
    assert len(rules_broken(judged, least={"r_squared": 0.76, "balanced accuracy": 0.71})) == 2


def test_the_accuracy_of_a_test_report_counts_by_the_lower_end_of_its_interval(card):
    layout = ClassLayout(("",), ("no", "yes"))
    values = np.array([700, 100, 50, 150]) * layout.TABLE
    people: Any = measured(values, 20.0 * layout.TABLE, layout, 1000)
    of_report = structs.replace(
        card, student=StudentPart(name="x", judged=Judged(on_people=people))
    )
    low = people.groups[0].accuracy.low
    assert 0.7 < low < 0.85
    assert rules_broken(of_report, least={"accuracy": low}) == []
    assert rules_broken(of_report, least={"accuracy": math.nextafter(low, 1)}) != []
    assert rules_broken(of_report, least={"balanced accuracy": 0.9}) != []


def test_a_policy_is_a_file_and_its_answer_an_exit_code(called, out):
    lower = out.parent / "p.toml"
    lower.write_text(EXAMPLE.read_text().replace("0.75", "0.6"))
    kept = called("card", out, "--policy", lower, "--recipient", "Sampletown University")
    assert kept.returncode == 0, kept.stderr
    assert "The release keeps all rules of the policy." in kept.stdout
    said = refusal(called("card", out, "--policy", EXAMPLE, "--recipient", "A broker"), 3)
    assert re.sub(r"as low as 0\.\d+", "as low as LOW", said).splitlines() == [
        "tutelage: The accuracy may be as low as LOW, and at least 0.75 is needed.",
        "tutelage: 'A broker' is not among the recipients in the policy.",
    ]


@pytest.mark.parametrize(("text", "said"), [
    ("largest_epsilon = 1.0\nlargest_delta = 1e-5", "needs `units`"),
    (EXAMPLE.read_text().replace("largest_delta", "largest_dleta"), "`largest_dleta` is not a setting"),
    (EXAMPLE.read_text().replace('"purpose"', '"porpoise"'), "Got 'porpoise'"),
    (EXAMPLE.read_text().replace("0.75", "75"), "`accuracy` in [least] must be"),
    (EXAMPLE.read_text().replace("[least]", 'neighboring = ["all"]\n[least]'), "one of ballot, entity, row, silo"),
    ('largest_epsilon = 1.0\nlargest_delta = 0\nunits = ["row"]', "--recipient needs `recipients`"),
])  # fmt: skip
def test_a_policy_with_a_mistake_is_refused(text, said, called, out):
    (out.parent / "p.toml").write_text(text)
    options = ("--policy", out.parent / "p.toml", "--recipient", "Sampletown University")
    assert said in refusal(called("card", out, *options), 2)


def test_checks_take_no_option_that_changes_a_card(called, out):
    said = refusal(called("card", out, "--check", "--state", "legal=Assessed."), 2)
    assert "change no card. Leave out the options that do" in said


def test_a_recipient_needs_a_policy():
    with pytest.raises(ConfigError, match="--recipient needs --policy"):
        Policy.read(None, "B")


def test_later_releases_of_the_ledger_break_a_policy(called, charged):  # noqa: F811
    units = json.dumps([ONE_TEACHER.name])
    limits = f"largest_epsilon = 60.0\nlargest_delta = 1e-5\nunits = {units}"
    (charged / "p.toml").write_text(limits)
    made = called("card", "--ledger", "a.ledger", "--output", "out", cwd=charged)
    assert made.returncode == 0, made.stderr
    said = refusal(called("card", "out", "--policy", "p.toml", cwd=charged), 3)
    assert said.count("\n") == 0
    assert "The card objects to its ε." in said
    ask(charged, noise=SimulationNoise(0))
    said = refusal(
        called("card", "out", "--ledger", "a.ledger", "--policy", "p.toml", cwd=charged), 3
    )
    assert "There are later releases, and the ε of the card no longer holds" in said


# The fields of github.com/opendp/deployments-registry-data at 3e9c812a924cf01d228f26f6c462c59c391c3f2a,
# schemas/deployments-schema.yaml, with "!" at those that are required. All of the 41 published entries fit them.
TEXT, NUMBER = {"type": "string"}, {"type": "number"}
TEXTS = {"type": "array", "items": TEXT, "minItems": 1}


def of(*values: str) -> dict[str, Any]:
    return {"enum": [*values]}


def fields(**each: Any) -> dict[str, Any]:
    required = [name.removesuffix("_") for name in each if name.endswith("_")]
    properties = {name.removesuffix("_"): kind for name, kind in each.items()}
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "required": required,
    }


SCHEMA = fields(
    url_slug_=TEXT,
    status_=of(
        "Converted", "Draft", "Pending", "Changes Required", "Approved", "Approved (Update Requested)",
        "Approved (Pending)",
    ),
    tier_={"enum": [1, 2, 3]},
    deployment_=fields(
        basic_=fields(
            name_=TEXT, data_curators_=TEXTS, intended_use_=TEXT, data_product_region_=TEXT, description_=TEXT,
            data_product_type_=of(
                "Summary statistics", "Machine learning model", "Dataset", "Synthetic data", "Interactive API",
                "SQL queries",
            ),
            publication_date_={"type": "string", "format": "date"},
            data_product_sector=of("Technology", "Healthcare", "Education", "Government", "Energy", "Finance"),
        ),
        dp_variant=fields(
            variant_name=of("Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP", "Custom"),
            data_domain=TEXT, unprotected_quantities=TEXT,
        ),
        privacy_loss=fields(
            privacy_unit=TEXT, privacy_unit_details=TEXT, privacy_parameters_details={},
            privacy_parameters=fields(epsilon=NUMBER, delta={"type": ["number", "string"]}, rho=NUMBER),
        ),
        deployment_model=fields(
            model_name=of("Local", "Central", "Shuffle", "Federated", "Varies"), model_name_details=TEXT, actors=TEXT,
            release_type=of("One release", "Many releases"), release_type_details=TEXT,
            data_source_type=of("Static", "Dynamic"), data_source_type_details={},
            access_type=of("Interactive", "Non-interactive"), access_type_details=TEXT,
        ),
        accounting=fields(post_processing=TEXT, composition=TEXT),
        implementation=fields(preprocessing_and_hyperparameter_tuning=TEXT, mechanisms=TEXT, justification=TEXT),
        administrative=fields(sources=TEXT, notes=TEXT, registry_authors_=TEXTS),
    ),
)  # fmt: skip


def test_an_entry_fits_the_registry_and_marks_what_only_people_know(called, out):
    file = out.parent / "hospital_wards_2026.yaml"
    done = called("card", out, "--registry", file)
    assert done.returncode == 0, done.stderr
    text = file.read_text()
    entry = yaml.safe_load(text)
    jsonschema.validate(entry, SCHEMA)
    day = read_card(out / "card.json").release.created
    assert text.startswith(f"url_slug: wards-north-1--hospital-{day[:4]}\n")
    deployment = entry["deployment"]
    assert deployment["basic"] == {
        "name": SAID["title"],
        "data_curators": ["Hospital"],
        "intended_use": "Triage.\nAt night.\n\nExcluded: Insurance.",
        "data_product_type": "Machine learning model",
        "data_product_region": "",
        "description": deployment["basic"]["description"],
        "publication_date": day,
    }
    assert deployment["privacy_loss"]["privacy_unit"] == "row"
    assert deployment["privacy_loss"]["privacy_parameters"] == {
        "epsilon": stated_in(out)["epsilon"],
        "delta": 1e-5,
    }
    assert deployment["deployment_model"]["model_name"] == "Central"
    assert sha256_of((out / "card.json").read_bytes()) in deployment["administrative"]["notes"]
    assert deployment["implementation"]["mechanisms"].endswith("\n\nSide channels: None known.")
    for blank in ("data_product_region: '' # TODO", "# data_product_sector: TODO", "- '' # TODO"):
        assert blank in text
    assert called("card", out, "--registry", file).returncode == 0
    file.write_text("mine")
    assert "was not written here by tutelage" in refusal(called("card", out, "--registry", file), 2)
    said = refusal(called("card", out, "--registry", out.parent / "An entry.yaml"), 2)
    assert "lowercase letters" in said


def test_an_entry_says_that_noise_was_simulated_and_what_epsilon_leaves_out(card):
    simulated = of_guarantee(card, epsilon=replace(card.epsilon, simulated=True, delta=0.0))
    finding = Finding(UNCOUNTED[0], "danger", "δ is too large. Lower it.")
    budget = structs.replace(card.budget, frontier=())
    odd = structs.replace(simulated, findings=(finding,), budget=budget)
    loss = yaml.safe_load(entry_of(odd, ""))["deployment"]
    assert loss["privacy_loss"]["privacy_parameters"] == {"epsilon": card.epsilon.epsilon}
    assert loss["dp_variant"]["variant_name"] == "Pure DP"
    details = loss["privacy_loss"]["privacy_parameters_details"]
    assert "The noise was simulated" in details
    assert "δ is too large" in details


@given(st.text(st.characters(exclude_categories=["Cs"])), st.floats(0, 1e300, allow_subnormal=True))
def test_texts_and_numbers_of_an_entry_are_read_as_they_are(text, number):
    read = yaml.safe_load
    assert read(f"key: {_scalar(text)}") == {"key": text}
    assert read(f"key: {_scalar(number)}") == {"key": number}


def test_a_bill_of_materials_has_what_pip_reports():
    def item(name: str, digit: str, needs: list[str] | None = None, **metadata: Any):
        return {
            "metadata": {"name": name, "version": "1.0", "requires_dist": needs or [], **metadata},
            "download_info": {"archive_info": {"hashes": {"sha256": 64 * digit}}},
            "requested": name == "tutelage",
        }

    items = [
        item("b.Part", "b", license="text " * 40, classifier=["License :: OSI Approved :: X"]),
        item(
            "tutelage", "a", ["B-part>=1", "c; extra == 'x'", "d"], license_expression="Apache-2.0"
        ),
        item("c", "c", ["b_part; python_version < '2'"], license="Y"),
    ]
    bom = runpy.run_path(str(REPOSITORY / "tools" / "sbom.py"))["bom_of"](
        {"install": items}, "2026-01-01T00:00:00+00:00"
    )
    assert (bom["bomFormat"], bom["specVersion"]) == ("CycloneDX", "1.6")
    assert bom["metadata"]["component"] == {
        "type": "library",
        "bom-ref": "pkg:pypi/tutelage@1.0",
        "name": "tutelage",
        "version": "1.0",
        "purl": "pkg:pypi/tutelage@1.0",
        "hashes": [{"alg": "SHA-256", "content": 64 * "a"}],
        "licenses": [{"expression": "Apache-2.0"}],
    }
    found = [(one["purl"], one["licenses"][0]["license"]["name"]) for one in bom["components"]]
    assert found == [("pkg:pypi/b-part@1.0", "X"), ("pkg:pypi/c@1.0", "Y")]
    assert {one["ref"]: one["dependsOn"] for one in bom["dependencies"]} == {
        "pkg:pypi/b-part@1.0": [],
        "pkg:pypi/c@1.0": [],
        "pkg:pypi/tutelage@1.0": ["pkg:pypi/b-part@1.0"],
    }
