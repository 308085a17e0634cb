"""``tutelage run`` and ``audit`` where every person is a teacher, by votes on near rows or by a ballot of vectors."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from runs_of_people import CAPPED, NEAREST, VECTORS, configure_people
from test_card import put
from test_cli import FILES, refusal, succeeded, tutelage, write_people
from tutelage import VoteHistogram
from tutelage.accounting.data_independent import epsilon_if_added_or_removed
from tutelage.cli import run
from tutelage.cli.config import load_config
from tutelage.events import CappedArgmaxGaussian
from tutelage.methods import NoisyMoments
from tutelage.privacy import round_up
from tutelage.reporting import PrivacyCard, read_card

pytestmark = pytest.mark.usefixtures("in_this_process", "repeatable")
OVER = ("run", "config.toml", "--overwrite")
SILO = 'silo = "ward"\nentity = "patient"'


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_people(tmp_path, 2200, 180)
    return tmp_path


@pytest.fixture
def finished(runs, tmp_path):
    """A function that brings a finished run to the test's folder and returns its card; each kind runs once."""

    def bring(by: dict[str, str]) -> PrivacyCard:
        made = runs / by["name"]
        if not made.exists():
            made.mkdir()
            write_people(made, 2200, 180)
            configure_people(made, by)
            (made / "said.txt").write_text(tutelage("run", "config.toml", cwd=made).stdout)
        shutil.copytree(made, tmp_path, dirs_exist_ok=True)
        return read_card(tmp_path / "out" / "card.json")

    return bring


def labels_of(folder: Path) -> set[str]:
    labels = pd.read_csv(folder / "out" / "labels.csv")["label"]
    assert len(labels) == 120
    return set(labels)


def mechanism(name: str, settings: str) -> dict[str, str]:
    return {"method": f'mechanism = {{ name = "{name}", {settings} }}', "privacy": ""}


@pytest.mark.parametrize(("by", "sections", "said"), [
    (NEAREST, {"private": SILO}, "`silo` in [private] must be left out for CappedVotes"),
    (NEAREST, {"privacy": 'proposal = "p.json"'}, "p.json cannot be used: No such file"),
    (NEAREST, mechanism("gnmax", "sigma = 3.0, cap = 2"), "must be one of capped"),
    ({"name": "teacher-votes", "more": ""}, {"method": CAPPED.format(3.0, 2), "privacy": ""}, "for a `CappedGNMax`"),
    (VECTORS, {"method": "rounds = 0"}, "`rounds` of VectorBallots must be an integer >= 1"),
    (VECTORS, mechanism("noisy-sum", "sigma = 3.0"), "with the name noisy-sum needs `noise_multiplier`. Add it."),
])  # fmt: skip
def test_settings_that_mean_nothing_are_refused_in_one_sentence(by, sections, said, tmp_path):
    write_people(tmp_path)
    configure_people(tmp_path, by, **sections)
    result = tutelage("run", "config.toml", cwd=tmp_path)
    assert said in refusal(result, result.returncode)
    assert not (tmp_path / "private.csv.ledger").exists()


# Votes on the public rows that are nearest to a person's own


def test_a_run_asks_every_public_row_and_its_card_says_how(finished, tmp_path):
    card = finished(NEAREST)
    assert card.release.mechanism.startswith("CappedGNMax(sigma=")
    assert card.release.queries == card.release.answered == 120
    ((event, times),) = card.event.flatten()
    assert (type(event), times) == (CappedArgmaxGaussian, 1)
    assert 1.9 < card.epsilon.epsilon <= 2.0
    assert (card.student.judged.accuracy or 0) > 0.8
    # How many people there are is private.
    assert (card.budget.frontier, card.release.teachers) == ((), None)
    assert labels_of(tmp_path) == {"no", "yes"}
    assert "not stated" in (tmp_path / "said.txt").read_text()
    for name in ("card.json", "card.md", "card.html"):
        assert not re.search(r"\b1,?100\b", (tmp_path / "out" / name).read_text())
    (file,) = (tmp_path / "private-out").glob("private-votes-*.npz")
    votes = VoteHistogram.load(file)
    assert (votes.n_teachers, votes.cap, votes.counts.sum()) == (1100, 5, 5500)


def test_a_campaign_that_does_not_fit_is_refused_before_its_ledger_is_made(folder):
    configure_people(
        folder, NEAREST, method=CAPPED.format(0.5, 15), privacy="budget = 2.0", more=""
    )
    result = tutelage("run", "config.toml", cwd=folder)
    assert "has no room for this release" in refusal(result, result.returncode)
    assert not (folder / "private.csv.ledger").exists()


@pytest.mark.rest
@pytest.mark.parametrize(("by", "sections", "noise"), [
    (NEAREST, {"method": "n_queries = 110\nrounds = 2"}, "noise as configured"),
    (VECTORS, {}, "ε of a sum with little noise"),
], ids=["capped", "vectors"])  # fmt: skip
def test_the_audit_measures_how_far_one_person_moves_what_is_released(by, sections, noise, folder):
    configure_people(folder, by, **sections)
    result = succeeded(
        tutelage("audit", "config.toml", "--draws", 2000, "--entities", 2, "--json", cwd=folder)
    )
    checks = {one["check"]: one for one in json.loads(result.stdout)["checks"]}
    names = "noise as configured", noise, "one person, one ballot"
    assert {checks[name]["verdict"] for name in names} == {"pass"}
    assert "up to 0.000" not in checks["one person, one ballot"]["reason"]
    assert not (folder / "private.csv.ledger").exists()


@pytest.mark.rest
def test_the_audit_looks_at_the_noise_that_the_budget_of_the_ledger_gives(finished, tmp_path):
    made = finished(NEAREST).release.mechanism
    configure_people(tmp_path, NEAREST, privacy="")
    result = tutelage(
        "audit", "config.toml", "--draws", 1000, "--entities", 1, "--json", cwd=tmp_path
    )
    reasons = {one["check"]: one["reason"] for one in json.loads(result.stdout)["checks"]}
    assert reasons["ε as configured"].startswith(made)


# Ballots of vectors


def test_a_run_labels_every_public_row_by_sums_and_its_card_says_how(finished, tmp_path):
    card = finished(VECTORS)
    assert card.release.mechanism.startswith("NoisySum(noise_multiplier=")
    assert card.release.queries == card.release.answered == 120
    assert (card.student.name, card.budget.frontier) == ("LogisticRegression", ())
    assert (card.student.judged.accuracy or 0) > 0.85
    assert 1.9996 <= card.epsilon.epsilon <= 2.0
    assert labels_of(tmp_path) == {"no", "yes"}
    # How many people there are is private: what the card says is the number that was released under noise.
    assert 0 < abs((card.release.teachers or 0) - 1100) < 300


def test_people_cast_ballots_unless_a_method_is_named(tmp_path):
    rest = '[privacy]\nepsilon = 2.0\n[output]\nfolder = "out"\n'
    (tmp_path / "config.toml").write_text(
        FILES.format(private='silo = "hospital"', public="") + rest
    )
    settings = load_config(tmp_path / "config.toml")
    assert settings.method is None
    assert settings.method_meant == NoisyMoments()
    assert str(run._feature_map(settings)).startswith("steps, learned from")


def test_a_budget_that_is_kept_exactly_is_proved_again_from_the_card(finished, tmp_path):
    budget = finished(VECTORS).budget
    assert budget.accounting == "gaussian"
    for ledger in ((), ("--ledger", "private.csv.ledger")):
        succeeded(tutelage("card", "out", *ledger, cwd=tmp_path))
        assert read_card(tmp_path / "out" / "card.json").budget == budget


FEWER = "states if units are only added or removed an ε"


@pytest.mark.parametrize(("changes", "said"), [
    ({("budget", "accounting"): "exact"}, "card.json states"),
    ({("budget", "spent"): 1.0, ("budget", "remaining"): 1.0}, "card.json states"),
    ({("guarantee", "if_added_or_removed"): 0.1}, FEWER),
    ({("guarantee", "epsilon", "epsilon"): 2.0}, FEWER),
])  # fmt: skip
def test_an_edited_budget_or_epsilon_of_fewer_changes_is_found(changes, said, finished, tmp_path):
    edited = finished(VECTORS).as_dict()
    for place, value in changes.items():
        edited = put(edited, place, value)
    (tmp_path / "card.json").write_text(json.dumps(edited))
    assert said in refusal(tutelage("card", "card.json", "--output", "new", cwd=tmp_path), 1)


def test_a_card_says_for_which_change_of_the_data_its_epsilon_holds(finished, tmp_path):
    finished(VECTORS)
    card = read_card(tmp_path / "out" / "card.json")
    fewer = card.guarantee.if_added_or_removed or 0.0
    assert fewer == epsilon_if_added_or_removed(card.event, 1e-5)
    assert 0.4 * card.epsilon.epsilon < fewer < 0.5 * card.epsilon.epsilon
    for form in ("card.md", "card.html"):
        text = " ".join((tmp_path / "out" / form).read_text().split())
        assert (
            f"For adding or removing one unit (patient), ε is {round_up(fewer)} at the same δ"
            in text
        )
        assert "is not the one of this card. Quote the larger ε." in text
    assert (
        f"{round_up(fewer):.4f}: not the published guarantee" in (tmp_path / "said.txt").read_text()
    )


def test_the_private_sums_of_all_rounds_are_kept_and_an_empty_cell_is_no_warning(folder):
    lines = (folder / "private.csv").read_text().splitlines()
    lines[1] = lines[1][lines[1].index(",") :]
    (folder / "private.csv").write_text("\n".join(lines) + "\n")
    configure_people(folder, VECTORS, more="votes = true")
    result = succeeded(tutelage("run", "config.toml", cwd=folder))
    assert "empty cells" not in result.stderr
    files = sorted(
        (folder / "private-out").glob("private-votes-*.npz"),
        key=lambda file: int(file.stem.split("-")[-1]),
    )
    count, *_, joint = map(np.load, files)
    assert len(files) == 4
    assert count["totals"].tolist() == [[1100]]
    # Of three scores and two classes, gradient and Gram matrix.
    assert joint["totals"].shape == (1, 20)
