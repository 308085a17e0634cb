"""A release is one folder: what is signed, verified and loaded is all of it, and of one run."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from test_cli import configure, refusal, write_people
from tutelage import Ledger, PATEClassifier, SimulationNoise
from tutelage.exceptions import ConfigError, InvalidDataError
from tutelage.signing import SigningKey
from tutelage.students import load_student

BUDGET = ("delta = 1e-5", "delta = 1e-5\nbudget = 90")
OTHER = ("sigma = 2.0", "sigma = 9.0")
SIGNED = ("card", "out", "--sign", "keys/officer.private.json")
VERIFIED = ("card", "out", "--verify", "keys/officer.public.json")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A configuration to run, and the keys of a signer."""
    write_people(tmp_path)
    configure(tmp_path, BUDGET)
    SigningKey.generate("officer").save(tmp_path / "keys")
    return tmp_path


def other_run(project: Path, called: Callable, name: str) -> bytes:
    """Return a file of another release of the same people."""
    configure(project, BUDGET, OTHER, ('folder = "out"', 'folder = "other"'))
    assert called("run", "config.toml").returncode == 0
    return (project / "other" / name).read_bytes()


@pytest.mark.parametrize(
    "name", ["student.skops", "labels.csv", "card.json", "card.md", "card.html"]
)
@pytest.mark.parametrize("signed", [True, False])
def test_a_file_of_another_release_is_not_signed_verified_or_loaded(name, signed, project, called):
    assert called("run", "config.toml", cwd=project).returncode == 0
    if signed:
        assert called(*SIGNED).returncode == 0
        assert called(*VERIFIED, "--ledger", "private.csv.ledger").returncode == 0
    other = other_run(project, called, name)
    assert other != (project / "out" / name).read_bytes()
    (project / "out" / name).write_bytes(other)
    for call in (VERIFIED,) if signed else (SIGNED,):
        assert f"out/{name} is not the file that manifest.json names" in refusal(called(*call), 1)
    checked = called("ledger", "verify", "private.csv.ledger", "--release", "out")
    assert f"out/{name} is not the file that manifest.json names" in refusal(checked, 1)
    with pytest.raises(
        InvalidDataError, match=r"is of another release\. Get the folder again from its owner"
    ):
        load_student(project / "out")


def test_an_accuracy_that_was_typed_into_a_card_is_not_signed(project, called):
    """By itself it adds up: nothing else on the card tells how many rows of each class were right."""
    assert called("run", "config.toml", cwd=project).returncode == 0
    path = project / "out" / "card.json"
    card = json.loads(path.read_text())
    for one in card["student"]["judged"]["by_class"]:
        one["right"] = one["rows"]
    path.write_text(json.dumps(card))
    refused = called(*SIGNED)
    assert refused.returncode != 0
    assert "out/card.json is not the file that manifest.json names" in refusal(refused, 1)


@pytest.mark.parametrize("name", ["student.skops", "labels.csv", "card.md", "manifest.json"])
def test_a_folder_without_one_of_its_files_is_no_release(name, project, called):
    assert called("run", "config.toml", cwd=project).returncode == 0
    assert called(*SIGNED).returncode == 0
    (project / "out" / name).unlink()
    assert f"{name} cannot be read" in refusal(called(*VERIFIED), 1)
    with pytest.raises(InvalidDataError, match=f"{name} cannot be read"):
        load_student(project / "out")


def test_a_folder_that_its_ledger_does_not_name_is_no_release(project, called):
    """An attacker who replaces a file can compute the manifest again, but not the entry of the ledger."""
    assert called("run", "config.toml", cwd=project).returncode == 0
    shutil.copytree(project / "out", project / "before")
    ledger = ("--ledger", "private.csv.ledger")
    said = called("ledger", "verify", "private.csv.ledger", "--release", "out").stdout
    assert "It names the release in out, of 2" in said
    manifest = project / "out" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"day": "2', '"day": "1'))
    assert called(*SIGNED).returncode == 0
    for call in (
        (*VERIFIED, *ledger),
        ("ledger", "verify", "private.csv.ledger", "--release", "out"),
    ):
        assert "private.csv.ledger does not name out/manifest.json" in refusal(called(*call), 1)
    assert "does not name out/manifest.json" in refusal(
        called("card", "out", "--state", "legal=Yes.", *ledger), 1
    )
    checked = called("ledger", "verify", "private.csv.ledger", "--release", "before", "--json")
    assert json.loads(checked.stdout)["verified"]


def test_the_ledger_names_every_release_before_it_is_published(project, called):
    ledger = project / "private.csv.ledger"
    assert called("run", "config.toml", cwd=project).returncode == 0
    record = json.loads((project / "out" / "manifest.json").read_text())
    *before, last = Ledger.open(ledger).export()
    assert (last["kind"], record["head"], record["recorded"]) == (
        "released",
        before[-1]["hash"],
        True,
    )
    assert last["spent"] == before[-1]["spent"]
    # The same labels, a folder of its own.
    assert called("run", "config.toml", "--overwrite").returncode == 0
    kinds = [entry["kind"] for entry in Ledger.open(ledger).export()]
    assert kinds[len(before) :] == ["released", "bound", "released"]
    assert called("ledger", "verify", ledger, "--release", "out").returncode == 0


def test_a_release_from_python_is_named_by_its_ledger_if_it_has_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, y = np.random.default_rng(0).normal(size=(400, 3)), np.arange(400) % 2
    for file in (None, tmp_path / "a.ledger"):
        model = PATEClassifier(
            epsilon=2.0, ledger=file, noise=SimulationNoise(0), classes=[0, 1], random_state=0
        )
        model.fit(X, y, X_public=X[:100])
        assert model.save("results") == model.save("results")
        folder = tmp_path / "results"
        record = json.loads((folder / "manifest.json").read_text())
        assert record["recorded"] == (file is not None)
        assert load_student(folder).predict(X).tolist() == model.predict(X).tolist()
    assert [one["kind"] for one in Ledger.open(tmp_path / "a.ledger").export()][-2:] == [
        "released",
        "released",
    ]
    with pytest.raises(ConfigError, match="The ledger must not be in the results folder"):
        model.save(tmp_path)
    (tmp_path / "results" / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"results/notes\.txt would be replaced"):
        model.save("results")
    assert (tmp_path / "results" / "notes.txt").read_text() == "mine"
