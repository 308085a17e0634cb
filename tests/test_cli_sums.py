"""``tutelage run`` and ``audit`` where every person casts a ballot of vectors."""

import csv
import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from runs_of_people import VECTORS, configure_people, write_people
from test_cli import ran, refusal, tutelage
from tutelage.accounting.data_independent import epsilon_if_added_or_removed
from tutelage.cli.config import load_config
from tutelage.privacy import round_up
from tutelage.reporting import read_card

pytestmark = pytest.mark.usefixtures("in_this_process", "repeatable")
configure = partial(configure_people, by=VECTORS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_people(tmp_path)
    configure(tmp_path)
    return tmp_path


def test_a_run_labels_every_public_row_and_its_card_says_how(folder):
    card = ran(folder)
    assert card["mechanism"].startswith("NoisySum(noise_multiplier=")
    assert card["queries"] == card["answered"] == 200
    assert card["student"] == "closed-form"
    assert card["student_accuracy"] > 0.85
    assert card["public_epsilon"] <= 2.0
    assert card["frontier"] == []
    with (folder / "out" / "labels.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 200
    assert {row["label"] for row in rows} == {"no", "yes"}
    # How many people there are is private: what the card says is the number that was released under noise.
    assert 0 < abs(card["teachers"] - 1500) < 300


@pytest.mark.parametrize(
    ("private", "public", "more", "people"),
    [
        ("", "", "", True),
        ("", "", '[mechanism]\nname = "noisy-sum"\nnoise_multiplier = 4.0', True),
        ("", "", '[mechanism]\nname = "gnmax"\nsigma = 4.0', False),
        ("", "", "[teachers]\nnumber = 20", False),
        ("", "queries = 20", "", False),
        ("", 'selection = "medoids"', "", False),
        ("", "rounds = 2", "", False),
        ('silo = "hospital"', "", "", False),
    ],
)
def test_people_cast_ballots_unless_a_setting_is_about_votes(folder, private, public, more, people):
    privacy = "delta = 1e-5" if "name" in more else "delta = 1e-5\nepsilon = 2.0"
    text = f"""
[private]
file = "private.csv"
label = "ill"
classes = ["no", "yes"]
{private}
[public]
file = "public.csv"
{public}
[privacy]
{privacy}
[output]
folder = "out"
{more}
"""
    (folder / "config.toml").write_text(text)
    settings = load_config(folder / "config.toml")
    assert settings.by_vectors is people
    assert settings.by_people is people
    assert settings.teachers.number == (20 if "number" in more else 250)


def test_runs_share_the_budget_and_each_keeps_to_its_epsilon(folder):
    configure(folder, privacy="epsilon = 1.0\nbudget = 3.0")
    first = ran(folder)
    assert 0.99 < first["public_epsilon"] <= 1.0
    assert first["budget"]["budget"] == 3.0
    (folder / "out").rename(folder / "first")
    configure(folder, privacy="epsilon = 1.0", parameters="parameters = { rounds = 1 }")
    second = ran(folder)
    assert second["public_epsilon"] == 3.0
    assert first["budget"]["spent"] < second["budget"]["spent"] < 3.0


def test_the_audit_measures_how_far_one_person_moves_the_sum(folder):
    result = tutelage("audit", "config.toml", "--draws", 5000, "--json", cwd=folder)
    assert result.returncode == 0, result.stderr
    checks = {one["check"]: one["verdict"] for one in json.loads(result.stdout)["checks"]}
    assert checks["noise as configured"] == "pass"
    assert checks["ε of a sum with little noise"] == "pass"
    assert checks["one person, one ballot"] == "pass"


def test_a_budget_that_is_kept_exactly_is_proved_again_from_the_card(folder):
    assert tutelage("run", "config.toml", cwd=folder).returncode == 0
    file = folder / "out" / "card.json"
    card = json.loads(file.read_text())
    assert 1.9996 <= card["public_epsilon"] <= 2.0
    assert card["budget"]["accounting"] == "gaussian"
    assert "order" not in card["budget"]
    for ledger in ([], ["--ledger", "private.csv.ledger"]):
        result = tutelage("card", "out", *ledger, cwd=folder)
        assert result.returncode == 0, result.stderr
        assert json.loads(file.read_text())["budget"] == card["budget"]
    for forged in ({"accounting": "exact"}, {"spent": 1.0, "remaining": 1.0}, {"budget": 1.0, "remaining": 0.0}):
        (folder / "card.json").write_text(json.dumps({**card, "budget": {**card["budget"], **forged}}))
        result = tutelage("card", "card.json", "--output", "new", cwd=folder)
        assert "card.json states" in refusal(result, 1)


def test_a_card_says_for_which_change_of_the_data_its_epsilon_holds(folder):
    shown = " ".join(tutelage("run", "config.toml", cwd=folder).stdout.split())
    card = read_card(folder / "out" / "card.json")
    fewer = card.if_added_or_removed or 0.0
    assert fewer == epsilon_if_added_or_removed(card.event, 1e-5)
    assert 0.4 * card.epsilon.epsilon < fewer < 0.5 * card.epsilon.epsilon
    claim = "ε limits the effect of changing, adding or removing one unit (patient) with all of its rows."
    beside = f"only joins or leaves, and none is changed, ε is {round_up(fewer)} at the same δ"
    for form in ("card.md", "card.html"):
        text = (folder / "out" / form).read_text()
        assert claim in text
        assert beside in text
        assert "This is not the ε of this card" in text
    assert f"ε if units only join or leave │ {round_up(fewer):.4f}: covers less, do not quote" in shown
    assert tutelage("card", "out", cwd=folder).returncode == 0
    assert read_card(folder / "out" / "card.json") == card
    assert tutelage("run", "config.toml", "--overwrite", cwd=folder).returncode == 0
    # After a second run its ε is that of the budget.
    assert read_card(folder / "out" / "card.json").if_added_or_removed is None


@pytest.mark.parametrize("changes", [{"epsilon_if_added_or_removed": 0.1}, {"public_epsilon": 2.0}])
def test_a_smaller_epsilon_of_fewer_changes_is_proved_again(changes, folder):
    assert tutelage("run", "config.toml", cwd=folder).returncode == 0
    card = json.loads((folder / "out" / "card.json").read_text())
    (folder / "card.json").write_text(json.dumps({**card, **changes}))
    result = tutelage("card", "card.json", "--output", "new", cwd=folder)
    assert "states if units are only added or removed an ε" in refusal(result, 1)


def test_the_private_sums_of_all_rounds_are_kept(folder):
    configure(folder, more="votes = true")
    assert tutelage("run", "config.toml", cwd=folder).returncode == 0
    with np.load(folder / "private-out" / "private-votes.npz") as stored:
        first, second = stored["totals"]
        assert not np.array_equal(first, second)
        assert stored["unit"].tolist() == ["patient", "entity"]
