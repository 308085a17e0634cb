"""``tutelage run`` and ``audit`` where people vote on the public rows that are nearest to their own."""

import csv
import json
from functools import partial
from pathlib import Path

import pytest

from runs_of_people import CAPPED, NEAREST, configure_people, write_people
from test_cli import refusal, tutelage
from tutelage import VoteHistogram

pytestmark = pytest.mark.usefixtures("in_this_process", "repeatable")
configure = partial(configure_people, by=NEAREST)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_people(tmp_path)
    configure(tmp_path)
    return tmp_path


def run(folder: Path, *options: str) -> dict:
    result = tutelage("run", "config.toml", "--json", *options, cwd=folder)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_a_run_asks_every_public_row_and_its_card_says_how(folder):
    card = run(folder)
    assert card["mechanism"].startswith("CappedGNMax(sigma=")
    assert card["queries"] == card["answered"] == 200
    assert card["event"]["of"]["event"] == "CappedArgmaxGaussian"
    assert card["event"]["count"] == 1
    assert 1.9 < card["public_epsilon"] <= 2.0
    assert card["student_accuracy"] > 0.8
    assert (card["frontier"], card["teachers"]) == ([], None)  # how many people there are is private
    with (folder / "out" / "labels.csv").open() as file:
        assert {row["label"] for row in csv.DictReader(file)} == {"no", "yes"}
    votes = VoteHistogram.load(folder / "private-out" / "private-votes.npz")
    assert (votes.n_teachers, votes.cap) == (1500, 5)
    assert votes.counts.sum() == 7500


def test_nothing_that_may_be_published_says_how_many_people_there_are(folder):
    result = tutelage("run", "config.toml", cwd=folder)
    assert "not stated" in result.stdout
    for name in ("card.json", "card.md", "card.html"):
        text = (folder / "out" / name).read_text()
        assert "1500" not in text
        assert "1,500" not in text


def test_where_the_unit_is_a_row_the_card_says_how_many_there_are(folder):
    configure(folder, private='unit = "row"\nignore = ["patient"]')
    assert run(folder)["teachers"] == 3000


def test_more_queries_cost_nothing_and_the_run_warns_that_votes_may_be_gone(folder):
    configure(folder, public="queries = 150")
    spent = run(folder)["budget"]["spent"]
    configure(folder)
    again = tutelage("run", "config.toml", "--overwrite", cwd=folder)
    assert again.returncode == 0, again.stderr
    assert "150 queries were labeled before" in " ".join(again.stdout.split())
    assert "may be mostly noise" in again.stderr
    assert json.loads((folder / "out" / "card.json").read_text())["budget"]["spent"] == spent


def test_a_campaign_that_does_not_fit_is_refused_before_its_ledger_is_made(folder):
    configure(folder, more=CAPPED.format(0.5, 15), privacy="budget = 2.0")
    result = tutelage("run", "config.toml", cwd=folder)
    assert "has no room for this release" in refusal(result, result.returncode)
    assert not (folder / "private.csv.ledger").exists()


@pytest.mark.parametrize("more", ["", CAPPED.format(8.0, 15)])
def test_the_audit_measures_how_far_one_person_moves_the_counts(folder, more):
    privacy = "" if more else "epsilon = 2.0"
    configure(folder, privacy=privacy, more=more, public="queries = 190\nrounds = 2")
    result = tutelage("audit", "config.toml", "--draws", 2000, "--entities", 2, "--json", cwd=folder)
    assert result.returncode == 0, result.stderr
    checks = {one["check"]: one for one in json.loads(result.stdout)["checks"]}
    assert {checks[name]["verdict"] for name in ("noise as configured", "one person, one ballot")} == {"pass"}
    assert "up to 0.000" not in checks["one person, one ballot"]["reason"]
    assert not (folder / "private.csv.ledger").exists()


@pytest.mark.parametrize("accounting", ["renyi", "gaussian"])
def test_the_audit_looks_at_the_noise_that_the_budget_of_the_ledger_gives(folder, accounting):
    terms = ("--epsilon", 2, "--delta", 1e-5, "--neighbors", "entity", "--unit", "patient", "--accounting", accounting)
    assert tutelage("ledger", "init", "private.csv.ledger", *terms, cwd=folder).returncode == 0
    mechanism = run(folder)["mechanism"]
    configure(folder, privacy="")
    result = tutelage("audit", "config.toml", "--draws", 1000, "--entities", 1, "--json", cwd=folder)
    reasons = {one["check"]: one["reason"] for one in json.loads(result.stdout)["checks"]}
    assert reasons["ε as configured"].startswith(mechanism)
