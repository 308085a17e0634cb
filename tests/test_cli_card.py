"""``tutelage card`` as a user meets it."""

import json
import re
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from test_card import Outline
from test_cli import configure, finished, folder, refusal, runs  # noqa: F401  fixtures
from tutelage import ConfidentGNMax, GNMax, LabelingSession, Ledger, SimulationNoise, VoteHistogram
from tutelage.events import NoisyArgmaxGaussian, PublicationTest, SummedNoise
from tutelage.privacy import ONE_TEACHER, round_up
from tutelage.reporting import read_card

NAMES = ["card.html", "card.json", "card.md"]
BUDGET = ("delta = 1e-5", "delta = 1e-5\nbudget = 60")


@pytest.fixture
def charged(tmp_path: Path) -> Path:
    """A folder with a ledger that two batches were charged to, by two mechanisms."""
    ledger = Ledger.create(tmp_path / "a.ledger", epsilon=2.0, delta=1e-5, unit=ONE_TEACHER)
    votes = VoteHistogram(np.random.default_rng(0).multinomial(250, [0.8, 0.15, 0.05], size=60), 250)
    X = np.arange(60.0)[:, None]
    LabelingSession(votes.first(40), GNMax(sigma=40), ledger).ask(X[:40])
    check = ConfidentGNMax(threshold=200, sigma_threshold=150, sigma_vote=40)
    LabelingSession(votes.select(np.arange(40, 60)), check, ledger).ask(X[40:])
    return tmp_path


def test_a_run_writes_all_three_forms_with_history_and_frontier(finished):  # noqa: F811
    out = finished / "out"
    assert sorted(path.name for path in out.glob("card.*")) == NAMES
    card = read_card(out / "card.json")
    assert [batch.queries for batch in card.batches] == [40]
    assert sum(batch.share for batch in card.batches) == pytest.approx(card.budget["spent"])
    assert [point.queries for point in card.frontier] == [10, 20, 40, 80, 160]
    costs = [point.epsilon.epsilon for point in card.frontier]
    assert costs == sorted(costs)
    assert costs[2] == pytest.approx(card.epsilon.epsilon)  # the release by itself is one point of its frontier
    assert [(entry.name, entry.rows) for entry in card.accuracy_by_class] == [
        (name, sum(line.endswith(f",{name}") for line in (finished / "public.csv").read_text().splitlines()[41:]))
        for name in ("no", "yes")
    ]
    assert card.student_accuracy == sum(entry.right for entry in card.accuracy_by_class) / card.evaluation_rows
    assert len(Outline((out / "card.html").read_text()).all("svg")) == 1


def test_what_the_people_say_is_added_to_the_card_of_a_run(called, finished):  # noqa: F811
    (finished / "said.toml").write_text('trust = "The hospital runs it."\nlegal = "Assessed."')
    said = ("--statements", "said.toml", "--state", "legal=Approved = yes.", "--state", "leaves-site=Labels.")
    assert "--ledger must name the ledger of out" in refusal(called("card", "out", *said, cwd=finished), 2)
    options = (*said, "--ledger", "private.csv.ledger")
    result = called("card", "out", *options, cwd=finished)
    assert result.returncode == 0, result.stderr
    assert "Not stated: title, private_data, controller, purpose, people," in result.stdout
    card = read_card(finished / "out" / "card.json")
    assert card.statements == {"trust": "The hospital runs it.", "legal": "Approved = yes.", "leaves_site": "Labels."}
    for form in ("card.md", "card.html"):
        assert "Approved = yes." in (finished / "out" / form).read_text()
    options = ("--state", "trust=Nobody.", "--ledger", "private.csv.ledger", "--json")
    again = called("card", "out/card.json", *options, cwd=finished)
    printed = json.loads(again.stdout)
    assert printed["statements"] == {"trust": "Nobody.", "legal": "Approved = yes.", "leaves_site": "Labels."}
    assert printed == json.loads((finished / "out" / "card.json").read_text())


def test_a_later_ledger_brings_the_budget_of_a_card_up_to_date(called, folder):  # noqa: F811
    configure(folder, BUDGET)
    called("run", "config.toml", cwd=folder)
    first = read_card(folder / "out" / "card.json")
    configure(folder, BUDGET, ("sigma = 2.0", "sigma = 3.0"))
    called("run", "config.toml", "--overwrite", cwd=folder)
    first.save(folder / "later")
    assert called("card", "later", "--ledger", "private.csv.ledger", cwd=folder).returncode == 0
    now = read_card(folder / "later" / "card.json")
    ledger = Ledger.open(folder / "private.csv.ledger").history().before_releases.state
    assert (now.alone, now.mechanism, now.queries) == (first.epsilon, first.mechanism, first.queries)
    assert now.budget["spent"] > first.budget["spent"]
    assert len(now.batches) == 2
    assert now.budget == ledger.as_dict()
    assert now.epsilon == ledger.guarantee()
    assert not first.covers_ledger
    page = (folder / "later" / "card.md").read_text()
    assert "After seeing everything ever released from this budget," in page
    assert f"ε = {round_up(first.epsilon.epsilon)}" not in page.split("## Annex: the differential privacy guarantee")[0]
    assert "| ε of this release by itself |" in page
    assert {finding.code for finding in now.findings or ()} >= {"epsilon-too-large"}
    assert called("card", "later", "--ledger", "private.csv.ledger", cwd=folder).returncode == 0
    assert read_card(folder / "later" / "card.json") == now


def test_what_a_ledger_saw_later_changes_the_card(called, folder):  # noqa: F811
    configure(folder, BUDGET)
    called("run", "config.toml", cwd=folder)
    first, ledger = read_card(folder / "out" / "card.json"), Ledger.open(folder / "private.csv.ledger")

    def card_now():
        assert called("card", "out", "--ledger", "private.csv.ledger", cwd=folder).returncode == 0
        return read_card(folder / "out" / "card.json")

    assert card_now() == first
    assert first.alone is None
    ledger.reserve(PublicationTest((2**59, 2**58), 4e-6, first.epsilon.unit), 1)  # and killed before it was drawn
    now = card_now()
    assert (now.epsilon.epsilon, now.alone) == (60.0, first.epsilon)
    ledger.reserve(SummedNoise(NoisyArgmaxGaussian(40.0, 3, ledger.unit, simulated=False), 5), 1)
    assert "noise-from-shares" not in {finding.code for finding in first.findings or ()}
    for _ in range(2):
        (found,) = (each for each in card_now().findings or () if "shares" in each.code)
        assert "only if 5 of the hospitals that took part" in found.reason
    ledger.reserve(PublicationTest((2**59, 2**58), 4e-6, first.epsilon.unit, simulated=True), 1)
    card_now()
    assert "NOT PRIVATE" in (folder / "out" / "card.md").read_text()


def test_a_ledger_alone_makes_a_card_of_everything_released(called, charged):
    result = called("card", "--ledger", "a.ledger", "--output", "out", cwd=charged)
    assert result.returncode == 0, result.stderr
    card, ledger = read_card(charged / "out" / "card.json"), Ledger.open(charged / "a.ledger").state()
    assert (card.epsilon.epsilon, card.epsilon.delta) == (2.0, 1e-5)
    assert (card.queries, card.answered, card.teachers) == (60, None, None)
    assert sum(batch.share for batch in card.batches) == pytest.approx(ledger.spent)
    assert [batch.checks > 0 for batch in card.batches] == [False, True]
    assert re.search(r"\d+ × NoisyArgmaxGaussian\(sigma=40.0, classes=3\)", card.mechanism)
    assert "20 × ConfidenceCheck(threshold=200.0, sigma=150.0, classes=3)" in card.mechanism
    text = (charged / "out" / "card.md").read_text()
    assert card.budget["head"] in text
    assert ledger.entries == card.budget["entries"] + 1  # which names the folder
    assert [one.code for one in card.findings or ()] == ["not-checked"]  # the ledger does not store all settings
    assert "| Objections | not checked (warning): see the annex |" in text
    assert called("card", "out", "--ledger", "a.ledger", cwd=charged).returncode == 0
    assert read_card(charged / "out" / "card.json").findings == card.findings


def test_the_publication_of_an_epsilon_is_counted_and_is_no_query(called, charged):
    publication = PublicationTest((2**59, 2**58), 1e-5, ONE_TEACHER)
    ledger = Ledger.open(charged / "a.ledger")
    ledger.settle(ledger.reserve(publication, 1), {bytes(32): (1,)}, publication)
    assert called("card", "--ledger", "a.ledger", "--output", "out", cwd=charged).returncode == 0
    card = read_card(charged / "out" / "card.json")
    assert (card.queries, [batch.queries for batch in card.batches]) == (60, [40, 20, 0])
    assert card.batches[-1].answers == 0
    assert card.batches[-1].checks > 0
    assert "1 × PublicationTest" in card.mechanism
    assert [point.queries for point in card.frontier] == [15, 30, 60, 120, 240]
    assert card.frontier[2].epsilon.epsilon < 5  # of what was asked last, not of the publication
    assert "publishing ε" in (charged / "out" / "card.html").read_text()
    assert str(2**58) not in (charged / "out" / "card.md").read_text()


def test_simulated_answers_make_a_card_that_is_not_private(called, charged):
    votes = VoteHistogram(np.array([[230, 15, 5]]), 250)
    session = LabelingSession(votes, GNMax(40), Ledger.open(charged / "a.ledger"), noise=SimulationNoise(0))
    session.ask(np.array([[99.0]]))
    assert called("card", "--ledger", "a.ledger", "--output", "out", cwd=charged).returncode == 0
    assert "NOT PRIVATE" in (charged / "out" / "card.html").read_text()
    assert read_card(charged / "out" / "card.json").noise_source == "simulated from a seed"


def test_another_or_an_edited_ledger_is_refused(called, finished, charged):  # noqa: F811
    refused = called("card", "out", "--ledger", "a.ledger", cwd=finished)
    assert "a.ledger does not name out/manifest.json: the folder is of another ledger" in refusal(refused, 1)
    alone = called("card", "out/card.json", "--output", "new", "--ledger", "a.ledger")
    assert "another ledger" in refusal(alone, 1)
    with sqlite3.connect(charged / "a.ledger") as file:
        file.execute("UPDATE entries SET text = replace(text, '\"spent\":', '\"spent\": ') WHERE number = 1")
    refused = called("card", "--ledger", "a.ledger", "--output", "cards", cwd=charged)
    assert "Entry 1" in refusal(refused, 1)


def test_an_unused_ledger_has_nothing_to_tell(called, tmp_path):
    Ledger.create(tmp_path / "new.ledger", epsilon=2.0, delta=1e-5, unit=ONE_TEACHER)
    refused = called("card", "--ledger", "new.ledger", "--output", "out", cwd=tmp_path)
    assert "contains no release yet" in refusal(refused, 1)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ((), 2, "Name the results folder of a run, a --ledger, or both."),
        (("--ledger", "a.ledger"), 2, "Name the folder to write to with --output."),
        (("--ledger", "a.ledger", "--output", "a.ledger"), 2, "The output must be a folder, and a.ledger is not"),
        (("none",), 1, "none cannot be read"),
        ((".",), 1, "card.json cannot be read"),
        (("--ledger", "a.ledger", "--output", "out", "--state", "trust"), 2, "must be TOPIC=TEXT"),
        (("--ledger", "a.ledger", "--output", "out", "--state", "star=x"), 2, "has no topic 'star'"),
        (("--ledger", "a.ledger", "--output", "out", "--statements", "none.toml"), 2, "cannot be read"),
    ],
)
def test_wrong_calls_are_one_sentence_and_write_nothing(called, charged, options, code, message):
    before = sorted(charged.iterdir())
    assert message in refusal(called("card", *options, cwd=charged), code)
    assert sorted(charged.iterdir()) == before


def edited(record, path, value):
    """Return a JSON value with one entry, named by its path, replaced by a value or by a function of the old one."""
    changed = json.loads(json.dumps(record))
    at = changed
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value(at[path[-1]]) if callable(value) else value
    return changed


EDITS = [  # what is edited, to what, and how a refusal of `tutelage card out` begins, which names both numbers
    (("public_epsilon",), 0.0001, " = 0.0001, and what was released proves 22.881"),
    (("public_epsilon",), lambda epsilon: epsilon * 0.999, " = 22.8581, and what was released proves 22.881"),
    (("delta",), 1e-9, " = 22.881, and what was released proves 30.5"),
    (("epsilon_order",), 50.0, "states ε by order 50 = 22.881, and what was released proves 500."),
    (("unit",), "hospital", "another unit of privacy"),
    (("event", "of", "sigma"), 1.0, "states the budget = 22.881, and what was released proves 103.2"),
    (("event", "count"), 80, "states the budget = 22.881, and what was released proves 45.762"),
    (("budget", "budget"), 3.0, "states a budget that no ledger can have"),
    (("budget", "budget"), 15.0, "states the budget = 15, and what was released proves "),
    (("budget", "spent"), 0.5, "states the spent share = 0.5"),
    (("budget", "remaining"), 5.0, "states spent + remaining as "),
    (("batches", 0, "answers"), 0.25, "states the sum of its batches as 0.25. By the spent share of the budget"),
    (("frontier", 0, "epsilon"), 0.01, "states for 10 queries an ε = 0.01, and"),
    (("frontier", 4, "epsilon"), 0.01, "states for 160 queries an ε = 0.01, and"),
    (("student_accuracy",), 0.999, "states `student_accuracy` as 0.999. By its classes, it is "),
    (("evaluation_rows",), 500, "states `evaluation_rows` as 500. By its classes, it is 80."),
]  # fmt: skip
WITH_LEDGER = [
    (("event", "count"), 20, "does not fit its ledger"),
    (("event", "of", "sigma"), 4.0, "does not fit its ledger"),
    (("budget", "entries"), 99, "states `entries` of the budget as 99. By its ledger, it is 4."),
    (("budget", "budget"), 100.0, "states `budget` of the budget as 100.0. By its ledger, it is 22.88"),
    (("budget", "answers"), 2, "states `answers` of the budget as 2. By its ledger, it is 40."),
]


def test_no_edited_number_reaches_a_new_card(called, finished, monkeypatch):  # noqa: F811
    monkeypatch.chdir(finished)
    path, alone = finished / "out" / "card.json", finished / "card.json"
    text = path.read_text()
    record, written = json.loads(text), [(finished / "out" / name).read_bytes() for name in NAMES[::2]]
    for options, edits in (((), EDITS), (("--ledger", "private.csv.ledger"), [*EDITS[:5], *WITH_LEDGER])):
        for place, value, said in edits:
            for file in (path, alone):
                file.write_text(json.dumps(edited(record, place, value)))
            # Whatever the number, the folder is not that of its manifest; by itself, the card does not add up.
            assert "card.json is not the file that manifest.json names" in refusal(called("card", "out", *options), 1)
            assert said in refusal(called("card", "card.json", "--output", "new", *options), 1), place
    assert written == [(finished / "out" / name).read_bytes() for name in NAMES[::2]]
    assert not (finished / "new").exists()
    path.write_text(text)
    assert called("card", "out").returncode == 0
    assert json.loads(path.read_text()) == record


def test_findings_that_follow_from_the_card_are_not_taken_from_its_file(called, finished):  # noqa: F811
    path = finished / "card.json"
    record = json.loads((finished / "out" / "card.json").read_text())
    (large,) = (one for one in record["findings"] if one["code"] == "epsilon-too-large")
    for findings in ([], [{**large, "reason": "Never mind."}], None):
        path.write_text(json.dumps({**record, "findings": findings}))
        assert called("card", "card.json", "--output", "new", cwd=finished).returncode == 0
        assert large in json.loads((finished / "new" / "card.json").read_text())["findings"]


def test_a_card_with_an_epsilon_of_its_own_is_of_all_that_its_ledger_answered(called, folder):  # noqa: F811
    """The second run's labels may have been chosen by the first's: by themselves they have no guarantee."""
    configure(folder, BUDGET)
    called("run", "config.toml", cwd=folder)
    configure(folder, BUDGET, ("sigma = 2.0", "sigma = 30.0"))
    called("run", "config.toml", "--overwrite", cwd=folder)
    path = folder / "card.json"
    record = json.loads((folder / "out" / "card.json").read_text())
    assert record["public_epsilon"] == 60
    bare = {"public_epsilon": 1.5, "epsilon_order": None, "findings": []}
    path.write_text(json.dumps({**record, **bare}))
    refused = called("card", "card.json", "--output", "new", "--ledger", "private.csv.ledger", cwd=folder)
    assert "The publication must cover all labels of the ledger" in refusal(refused, 1)
