"""``tutelage card`` as a user meets it."""

import json
import re
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from ledgers import reserve, settle
from test_card import Outline, put
from test_cli import configure, finished, folder, refusal, runs, succeeded  # noqa: F401  fixtures
from tutelage import ConfidentGNMax, GNMax, LabelingSession, Ledger, VoteHistogram
from tutelage.events import NoisyArgmaxGaussian, PublicationTest, SummedNoise
from tutelage.privacy import ONE_TEACHER
from tutelage.published import _budget_of
from tutelage.reporting import read_card
from tutelage.reporting.record import STATEMENTS

BUDGET = ("delta = 1e-5", "delta = 1e-5\nbudget = 60")


@pytest.fixture
def charged(tmp_path: Path) -> Path:
    """A folder with a ledger that two batches were charged to, by two mechanisms."""
    ledger = Ledger.create(tmp_path / "a.ledger", epsilon=2.0, delta=1e-5, unit=ONE_TEACHER)
    votes = VoteHistogram(
        np.random.default_rng(0).multinomial(250, [0.8, 0.15, 0.05], size=60), 250
    )
    X = np.arange(60.0)[:, None]
    LabelingSession(votes.first(40), GNMax(sigma=40), ledger).ask(X[:40])
    check = ConfidentGNMax(threshold=200, sigma_threshold=150, sigma_vote=40)
    LabelingSession(votes.select(np.arange(40, 60)), check, ledger).ask(X[40:])
    return tmp_path


def test_what_the_people_say_is_added_to_the_card_of_a_run(called, finished):  # noqa: F811
    (finished / "said.toml").write_text('trust = "The hospital runs it."\nlegal = "Assessed."')
    said = (
        "--statements",
        "said.toml",
        "--state",
        "legal=Approved = yes.",
        "--state",
        "leaves-site=Labels.",
    )
    assert "--ledger must name the ledger of out" in refusal(
        called("card", "out", *said, cwd=finished), 2
    )
    options = (*said, "--ledger", "private.csv.ledger")
    assert (
        "21 of 24 statements are missing"
        in succeeded(called("card", "out", *options, cwd=finished)).stdout
    )
    card = read_card(finished / "out" / "card.json")
    assert card.statements == {
        "trust": "The hospital runs it.",
        "legal": "Approved = yes.",
        "leaves_site": "Labels.",
    }
    for form in ("card.md", "card.html"):
        assert "Approved = yes." in (finished / "out" / form).read_text()


ANSWERS = {
    "controller": "<script>alert(1)</script> A & B",
    "review_date": "yes",
    "trust": "The *hospital*.",
}


@pytest.fixture
def asked(called, monkeypatch):
    """A function that calls `tutelage card` in a terminal, where texts are typed in or a key ends the questions."""

    def ask(answer, *arguments, cwd):
        def typed():
            question = re.findall(r"\((\w+)\): State ", "".join(questions))[-1]
            return answer(question)

        questions: list[str] = []
        monkeypatch.setattr(
            "tutelage.cli.card.say", lambda text="", **_: questions.append(str(text))
        )
        monkeypatch.setattr("tutelage.cli.card.os.isatty", lambda _: True)
        monkeypatch.setattr("builtins.input", typed)
        return called("card", *arguments, cwd=cwd), "\n".join(questions)

    return ask


def test_what_is_missing_is_asked_for_topic_by_topic(asked, finished):  # noqa: F811
    called_with = ("out", "--ledger", "private.csv.ledger", "--ask", "--state", "legal=Assessed.")
    made, said = asked(lambda topic: ANSWERS.get(topic, "  "), *called_with, cwd=finished)
    succeeded(made)
    assert re.findall(r"\((\w+)\): State .*\.", said) == [
        one for one in STATEMENTS if one != "legal"
    ]
    card = read_card(finished / "out" / "card.json")
    review = card.statements["review_date"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", review)
    assert f"Suggestion: {review} Type yes to use it." in said
    assert card.statements == {**ANSWERS, "review_date": review, "legal": "Assessed."}
    page = (finished / "out" / "card.html").read_text()
    assert "&lt;script&gt;alert(1)&lt;/script&gt; A &amp; B" in page
    assert "script" not in {tag for tag, _ in Outline(page).tags}
    assert "The \\*hospital\\*." in (finished / "out" / "card.md").read_text()
    again, said = asked(lambda _: "", *called_with, cwd=finished)
    succeeded(again)
    assert "1 of 20 (title)" in said
    assert read_card(finished / "out" / "card.json") == card


def test_a_card_that_is_replaced_keeps_its_statements_and_a_lost_signature_is_said(
    called,
    finished,  # noqa: F811
):
    succeeded(called("key", "officer", cwd=finished))
    signed = ("--state", "legal=Assessed.", "--sign", "officer.private.json")
    succeeded(called("card", "out", "--ledger", "private.csv.ledger", *signed))
    again = called("run", "config.toml", "--overwrite")
    assert "the card that is replaced was signed" in succeeded(again).stderr
    assert read_card(finished / "out" / "card.json").statements == {"legal": "Assessed."}


def test_an_answer_that_no_card_can_have_is_asked_for_again(asked, finished):  # noqa: F811
    typed = iter(["Good\x1b[31m", "\udcff", "x" * 4001, "-", "Yes", "Good"])
    made, said = asked(
        lambda _: next(typed, ""), "out", "--ledger", "private.csv.ledger", "--ask", cwd=finished
    )
    succeeded(made)
    assert said.count("(title)") == 1
    assert made.stderr.count("must ") == 5
    assert read_card(finished / "out" / "card.json").statements == {"title": "Good"}


@pytest.mark.parametrize(
    ("key", "code", "kept"), [(KeyboardInterrupt, 130, {}), (EOFError, 0, {"title": "A title"})]
)
def test_of_the_keys_that_end_the_questions_one_keeps_the_answers(asked, finished, key, code, kept):  # noqa: F811
    def answer(topic):
        if topic != "title":
            raise key
        return "A title"

    made, _ = asked(answer, "out", "--ledger", "private.csv.ledger", "--ask", cwd=finished)
    assert made.returncode == code
    assert ("no answer was kept, and the card was not changed" in made.stderr) == (not kept)
    assert read_card(finished / "out" / "card.json").statements == kept


def test_questions_need_a_terminal_and_the_ledger_before_the_first(called, asked, finished):  # noqa: F811
    assert refusal(called("card", "out", "--ask", cwd=finished), 2) == (
        "tutelage: --ask needs a terminal. Without one, use --state TOPIC=TEXT or --statements FILE."
    )
    made, said = asked(lambda _: "x", "out", "--ask", cwd=finished)
    assert "--ledger must name the ledger of out" in refusal(made, 2)
    assert "State" not in said


def test_what_a_ledger_saw_later_changes_the_card(called, folder):  # noqa: F811
    configure(folder, BUDGET, ("[output]", '[statements]\ntrust = "The hospital."\n[output]'))
    called("run", "config.toml", cwd=folder)
    first, ledger = (
        read_card(folder / "out" / "card.json"),
        Ledger.open(folder / "private.csv.ledger"),
    )

    def card_now():
        assert called("card", "out", "--ledger", "private.csv.ledger", cwd=folder).returncode == 0
        return read_card(folder / "out" / "card.json")

    assert card_now() == first
    assert first.statements == {"trust": "The hospital."}
    assert first.guarantee.alone is None
    # And killed before it was drawn.
    reserve(ledger, PublicationTest((2**59, 2**58), 4e-6, first.epsilon.unit), 1)
    now = card_now()
    assert (now.epsilon.epsilon, now.guarantee.alone) == (60.0, first.epsilon)
    assert (now.release, len(now.budget.batches)) == (first.release, 2)
    assert now.budget == _budget_of(
        ledger.history().before_releases.state, now.budget.batches, now.budget.frontier
    )
    reserve(ledger, SummedNoise(NoisyArgmaxGaussian(40.0, 3, ledger.unit, simulated=False), 5), 1)
    (found,) = (each for each in card_now().findings if "shares" in each.code)
    assert "only if 5 of the hospitals that took part" in found.reason
    reserve(ledger, PublicationTest((2**59, 2**58), 4e-6, first.epsilon.unit, simulated=True), 1)
    card_now()
    assert "NOT PRIVATE" in (folder / "out" / "card.md").read_text()


def test_a_ledger_alone_makes_a_card_on_which_the_publication_of_an_epsilon_is_no_query(
    called, charged
):
    publication = PublicationTest((2**59, 2**58), 1e-5, ONE_TEACHER)
    ledger = Ledger.open(charged / "a.ledger")
    settle(ledger, reserve(ledger, publication, 1), {bytes(32): (1,)}, publication)
    succeeded(called("card", "--ledger", "a.ledger", "--output", "out", cwd=charged))
    card = read_card(charged / "out" / "card.json")
    assert (card.epsilon.epsilon, card.epsilon.delta) == (2.0, 1e-5)
    assert card.release.queries == 60
    assert [(batch.queries, batch.checks > 0) for batch in card.budget.batches] == [
        (40, False),
        (20, True),
        (0, True),
    ]
    assert sum(batch.share for batch in card.budget.batches) == pytest.approx(ledger.state().spent)
    # The ledger does not store all settings.
    assert [one.code for one in card.findings] == ["not-checked"]
    assert str(2**58) not in (charged / "out" / "card.md").read_text()


def test_another_or_an_edited_ledger_is_refused(called, finished, charged):  # noqa: F811
    refused = called("card", "out", "--ledger", "a.ledger", cwd=finished)
    assert "a.ledger does not name out/manifest.json: the folder is of another ledger" in refusal(
        refused, 1
    )
    assert "another ledger" in refusal(
        called("card", "out/card.json", "--output", "new", "--ledger", "a.ledger"), 1
    )
    with sqlite3.connect(charged / "a.ledger") as file:
        file.execute(
            "UPDATE entries SET text = replace(text, '\"spent\":', '\"spent\": ') WHERE number = 1"
        )
    refused = called("card", "--ledger", "a.ledger", "--output", "cards", cwd=charged)
    assert "Entry 1" in refusal(refused, 1)


@pytest.mark.parametrize(("options", "code", "message"), [
    ((), 2, "Name the results folder of a run, a --ledger, or both."),
    (("--ledger", "new.ledger", "--output", "out"), 1, "contains no release yet"),
    (("--ledger", "a.ledger", "--output", "a.ledger"), 2, "The ledger must not be in the results folder"),
    ((".",), 1, "card.json cannot be read"),
    (("--ledger", "a.ledger", "--output", "out", "--state", "trust"), 2, "must be TOPIC=TEXT"),
    (("--ledger", "a.ledger", "--output", "out", "--state", "star=x"), 2, "Got 'star'"),
])  # fmt: skip
def test_wrong_calls_are_one_sentence_and_write_nothing(called, charged, options, code, message):
    Ledger.create(charged / "new.ledger", epsilon=2.0, delta=1e-5, unit=ONE_TEACHER)
    before = sorted(charged.iterdir())
    assert message in refusal(called("card", *options, cwd=charged), code)
    assert sorted(charged.iterdir()) == before


# What is edited, to what, and how a refusal of `tutelage card out` begins, which names both numbers.
EDITS = [
    (("guarantee", "epsilon", "epsilon"), 22.8581, " = 22.8581, and what was released proves 22.881"),
    (("guarantee", "epsilon", "delta"), 1e-9, " = 22.881, and what was released proves 30.5"),
    (("guarantee", "event", "of", "unit", "name"), "hospital", "another unit of privacy"),
    (("guarantee", "event", "of", "sigma"), 1.0, "states the budget = 22.881, and what was released proves 103.2"),
    (("budget", "remaining"), 5.0, "states spent + remaining as "),
    (("budget", "batches", 0, "answers"), 0.25, "states the sum of its batches as 0.25. By the spent share"),
    (("budget", "frontier", 4, "epsilon", "epsilon"), 0.01, "states for 160 queries an ε = 0.01, and"),
]  # fmt: skip
WITH_LEDGER = [
    (("guarantee", "event", "count"), 20, "does not fit its ledger"),
    (("budget", "entries"), 99, "states `entries` of the budget as 99. By its ledger, it is 5."),
    (("budget", "answers"), 2, "states `answers` of the budget as 2. By its ledger, it is 40."),
]


def test_no_edited_number_reaches_a_new_card(called, finished, monkeypatch):  # noqa: F811
    monkeypatch.chdir(finished)
    record, alone = json.loads((finished / "out" / "card.json").read_text()), finished / "card.json"
    for options, edits in (
        ((), EDITS),
        (("--ledger", "private.csv.ledger"), [*EDITS[:3], *WITH_LEDGER]),
    ):
        for place, value, said in edits:
            alone.write_text(json.dumps(put(record, place, value)))
            assert said in refusal(called("card", "card.json", "--output", "new", *options), 1), (
                place
            )
    assert not (finished / "new").exists()
    (finished / "out" / "card.json").write_text(alone.read_text())
    for options in ((), ("--ledger", "private.csv.ledger")):
        assert "card.json is not the file that manifest.json names" in refusal(
            called("card", "out", *options), 1
        )


def test_findings_that_follow_from_the_card_are_not_taken_from_its_file(called, finished):  # noqa: F811
    path = finished / "card.json"
    record = json.loads((finished / "out" / "card.json").read_text())
    (large,) = (one for one in record["findings"] if one["code"] == "epsilon-too-large")
    for findings in ([{**large, "reason": "Never mind."}], []):
        path.write_text(json.dumps({**record, "findings": findings}))
        assert called("card", "card.json", "--output", "new", cwd=finished).returncode == 0
        assert large in json.loads((finished / "new" / "card.json").read_text())["findings"]


@pytest.mark.rest
def test_a_card_with_an_epsilon_of_its_own_is_of_all_that_its_ledger_answered(called, folder):  # noqa: F811
    """The second run's labels may have been chosen by the first's: by themselves they have no guarantee."""
    configure(folder, BUDGET)
    called("run", "config.toml", cwd=folder)
    configure(folder, BUDGET, ("sigma = 2.0", "sigma = 30.0"))
    called("run", "config.toml", "--overwrite", cwd=folder)
    path = folder / "card.json"
    record = json.loads((folder / "out" / "card.json").read_text())
    assert record["guarantee"]["epsilon"]["epsilon"] == 60
    bare = put(
        put(record, ("guarantee", "epsilon", "epsilon"), 1.5),
        ("guarantee", "epsilon", "order"),
        None,
    )
    path.write_text(json.dumps({**bare, "findings": []}))
    refused = called(
        "card", "card.json", "--output", "new", "--ledger", "private.csv.ledger", cwd=folder
    )
    assert "The publication must cover all labels of the ledger" in refusal(refused, 1)
