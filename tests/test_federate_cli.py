"""`tutelage federate`: a consortium by the command line, with files as transport."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from parties import free_ports
from test_cli import refusal, tutelage

pytestmark = pytest.mark.usefixtures("in_this_process")

HOSPITALS = [f"hospital-{number}" for number in range(3)]
PARTIES = ["left", "middle", "right"]
SECURE = 'teachers_per_entity = 10\ncolluding = 1\n[mechanism]\nname = "gnmax"\nsigma = 3.0\n'
HEAD = 'name = "H"\nclasses = 3\nquorum = 2\n'
LOCAL = '[mechanism]\nname = "k-randomized-response"\nepsilon = 9.0\n'


def run(*arguments: object) -> str:
    result = tutelage("federate", *arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout


def consortium(folder: Path, terms: str) -> Path:
    """Make keys and terms, let all join, and make their ledgers; return the mailbox."""
    names = HOSPITALS + ["aggregator"] + (PARTIES if "gnmax" in terms else [])
    for name in HOSPITALS:
        run("keygen", name, "--role", "entity", "--home", folder / name)
    for name, port in zip(PARTIES, free_ports(3), strict=True):
        if name in names:
            address = f"127.0.0.1:{port}"
            run("keygen", name, "--role", "computing", "--address", address, "--home", folder / name)
    run("keygen", "aggregator", "--role", "aggregator", "--home", folder / "aggregator")
    members = json.dumps([f"{name}/{name}.public.json" for name in names])
    unit = '[unit]\nname = "patient"\nneighbours = "silo"\n'
    (folder / "terms.toml").write_text(f'name = "H"\nclasses = 3\nquorum = 2\nmembers = {members}\n{terms}{unit}')
    agreed = json.loads(run("init", folder / "terms.toml", "--mailbox", folder / "mail", "--json"))
    for name in names:
        run("join", "--home", folder / name, "--mailbox", folder / "mail", "--fingerprint", agreed["fingerprint"])
        budget = ("--epsilon", 900, "--delta", 1e-5, "--neighbours", "silo", "--unit", "patient")
        assert tutelage("ledger", "init", folder / name / "ledger", *budget).returncode == 0
    return folder / "mail"


def as_member(folder: Path, name: str) -> tuple[object, ...]:
    return ("--home", folder / name, "--mailbox", folder / "mail", "--ledger", folder / name / "ledger")


def cast(folder: Path, name: str, ballots: np.ndarray) -> str:
    np.save(folder / name / "ballots.npy", ballots)
    return run("vote", folder / name / "ballots.npy", *as_member(folder, name))


def test_from_keys_to_labels_without_anybody_seeing_a_vote(tmp_path):
    mail = consortium(tmp_path, SECURE)
    labels = np.array([0, 1, 2, 2, 1])
    np.savez(tmp_path / "rows.npz", X=np.arange(5.0)[:, None])
    said = run("ask", tmp_path / "rows.npz", *as_member(tmp_path, "aggregator"))
    assert "asks 5 queries" in said
    for name in HOSPITALS:
        assert "on 5 of 5 queries went to left, middle, right" in cast(tmp_path, name, np.tile(labels, (10, 1)))
    command = [sys.executable, "-m", "tutelage", "federate", "compute", "--mailbox", mail, "--timeout", "60", "--home"]
    parties = [
        subprocess.Popen([*command, tmp_path / name], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for name in PARTIES
    ]
    for party in parties:
        out, err = party.communicate(timeout=90)
        assert (party.returncode, err) == (0, "")
        assert "Labels of 5 queries by 3 entities went, in shares, to the aggregator." in out
    output = ("--output", tmp_path / "labels.npz")
    assert "5 of 5 labels, by 3 entities" in run("collect", *as_member(tmp_path, "aggregator"), *output)
    with np.load(tmp_path / "labels.npz") as written:
        np.testing.assert_array_equal(written["labels"], labels)  # wrong once in 1e20
        assert written["rows"].shape == (5, 1)
    standing = json.loads(run("status", "--mailbox", mail, "--json"))["batches"][0]
    assert standing["answered"] == HOSPITALS
    assert standing["computed"] == PARTIES
    assert "Every row was answered before" in run("ask", tmp_path / "rows.npz", *as_member(tmp_path, "aggregator"))


def test_the_local_model_needs_no_computing_party_and_no_ledger_of_the_aggregator(tmp_path):
    mail = consortium(tmp_path, LOCAL)
    labels, aggregator = np.array([0, 1, 2, 2, 1]), ("--home", tmp_path / "aggregator", "--mailbox", mail)
    np.save(tmp_path / "rows.npy", np.arange(5.0)[:, None])
    run("ask", tmp_path / "rows.npy", *aggregator)
    for name in HOSPITALS:
        assert "went to aggregator" in cast(tmp_path, name, labels[None])
    found = json.loads(run("collect", *aggregator, "--output", tmp_path / "labels.npz", "--json"))
    assert found["entities"] == HOSPITALS
    assert (found["asked"], found["answered"], found["ledger"]) == (5, 5, None)
    assert "3 of 3; 2 needed" in run("status", "--mailbox", mail, "--home", tmp_path / HOSPITALS[0])


def test_joining_shows_the_terms_first_and_asks_for_their_fingerprint(tmp_path):
    mail = consortium(tmp_path, LOCAL)
    run("keygen", "late", "--role", "entity", "--home", tmp_path / "late")
    shown = tutelage("federate", "join", "--home", tmp_path / "late", "--mailbox", mail)
    assert shown.returncode == 1
    assert "Not joined yet" in shown.stdout
    fingerprint = json.loads(run("status", "--mailbox", mail, "--json"))["fingerprint"]
    assert fingerprint in shown.stdout
    wrong = tutelage("federate", "join", "--home", tmp_path / "late", "--mailbox", mail, "--fingerprint", "0" * 64)
    assert "not the one given" in refusal(wrong, 1)
    right = tutelage("federate", "join", "--home", tmp_path / "late", "--mailbox", mail, "--fingerprint", fingerprint)
    assert "does not name late" in refusal(right, 1)


@pytest.mark.parametrize(
    ("terms", "message", "code"),
    [
        ("name = ", "is no TOML file", 2),
        ('name = "H"\n', "missing", 2),
        (HEAD + 'members = "x"\n[mechanism]\n[unit]\n', "must be a list of", 2),
        (HEAD + 'members = ["x"]\n[mechanism]\n[unit]\n', "x does not exist", 1),
        (
            'name = "H"\nclasses = 3\nquorum = 2\nmembers = []\n[mechanism]\nname = "lnmax"\n[unit]\n',
            "must be one of",
            2,
        ),
        (
            'name = "H"\nclasses = 3\nquorum = 2\nmembers = []\n[mechanism]\nname = "gnmax"\n[unit]\n',
            "sigma missing",
            2,
        ),
        (HEAD + "members = []\nnoise = 1\n[mechanism]\n[unit]\n", "noise unknown", 2),
    ],
)
def test_terms_that_say_too_little_or_too_much_are_refused(terms, message, code, tmp_path):
    (tmp_path / "terms.toml").write_text(terms)
    result = tutelage("federate", "init", tmp_path / "terms.toml", "--mailbox", tmp_path / "mail")
    assert message in refusal(result, code)


def test_what_is_missing_or_ambiguous_is_one_sentence(tmp_path):
    mail = consortium(tmp_path, LOCAL)
    home, budget = ("--home", tmp_path / HOSPITALS[0], "--mailbox", mail), tmp_path / HOSPITALS[0] / "ledger"
    aggregator = ("--home", tmp_path / "aggregator", "--mailbox", mail)
    nothing = tutelage("federate", "vote", tmp_path / "b.npy", *home, "--ledger", budget)
    assert "--batch must name one batch; there is none" in refusal(nothing, 2)
    np.save(tmp_path / "rows.npy", np.arange(5.0)[:, None])
    for rows in (0, 10):
        np.save(tmp_path / "rows.npy", np.arange(5.0)[:, None] + rows)
        run("ask", tmp_path / "rows.npy", *aggregator)
    several = tutelage("federate", "vote", tmp_path / "b.npy", *home, "--ledger", budget)
    assert "there are 2" in refusal(several, 2)
    batch = json.loads(run("status", "--mailbox", mail, "--json"))["batches"][0]["batch"]
    named = ("vote", tmp_path / "b.npy", *home, "--ledger", budget, "--batch", batch[:6])
    assert "b.npy does not exist" in refusal(tutelage("federate", *named), 2)
    (tmp_path / "b.npy").write_bytes(b"\x80\x04pickle")
    assert "not a readable npy file" in refusal(tutelage("federate", *named), 2)
    nobody = tutelage("federate", "collect", *aggregator, "--output", tmp_path / "o.npz", "--batch", batch)
    assert "0 entities answered, and the terms ask for 2" in refusal(nobody, 1)
    paid = tutelage("federate", "ask", tmp_path / "rows.npy", *as_member(tmp_path, "aggregator"))
    assert "every entity keeps its own budget" in refusal(paid, 2)


def test_people_who_came_later_are_exposed_to_less_and_the_budget_forgets_nothing(tmp_path):
    mail, member = consortium(tmp_path, LOCAL), as_member(tmp_path, HOSPITALS[0])
    votes, data = tmp_path / HOSPITALS[0] / "ballots.npy", tmp_path / HOSPITALS[0] / "rows.csv"
    np.save(votes, np.zeros((1, 4), dtype=int))
    for number, text in enumerate(["a", "a", "ab"]):
        data.write_text(text)
        np.save(tmp_path / "rows.npy", np.arange(4.0)[:, None] + 10 * number)
        run("ask", tmp_path / "rows.npy", "--home", tmp_path / "aggregator", "--mailbox", mail)
        standing = json.loads(run("status", "--mailbox", mail, "--json"))["batches"]
        batch = next(each["batch"] for each in standing if not each["answered"])
        vote = ("vote", votes, *member, "--batch", batch, "--data", data)
        if number == 2:
            assert "ledger of another data set, or of an earlier state" in refusal(tutelage("federate", *vote), 1)
            vote = (*vote, "--data-changed")
        run(*vote)
    shown = tutelage("ledger", "exposure", tmp_path / HOSPITALS[0] / "ledger", "--json")
    first, second = json.loads(shown.stdout)
    assert (first["version"], first["queries"]) == (1, 12)
    assert (second["version"], second["queries"]) == (2, 4)
    assert 0 < second["epsilon"] < first["epsilon"] <= 900
    assert "version 2" in tutelage("ledger", "exposure", tmp_path / HOSPITALS[0] / "ledger").stdout


def test_a_full_budget_is_one_sentence_and_sends_nothing(tmp_path):
    mail = consortium(tmp_path, LOCAL)
    np.save(tmp_path / "rows.npy", np.arange(500.0)[:, None])
    run("ask", tmp_path / "rows.npy", "--home", tmp_path / "aggregator", "--mailbox", mail)
    said = cast(tmp_path, HOSPITALS[0], np.zeros((1, 500), dtype=int))
    answered = int(said.split(" on ")[1].split(" of ")[0].replace(",", ""))
    assert 1 <= answered < 500
    np.save(tmp_path / "rows.npy", np.arange(500.0)[:, None] + 1000)
    run("ask", tmp_path / "rows.npy", "--home", tmp_path / "aggregator", "--mailbox", mail)
    batches = json.loads(run("status", "--mailbox", mail, "--json"))["batches"]
    new = next(each["batch"] for each in batches if not each["answered"])
    votes = tmp_path / HOSPITALS[0] / "ballots.npy"
    result = tutelage("federate", "vote", votes, *as_member(tmp_path, HOSPITALS[0]), "--batch", new)
    assert "does not allow 1 more such queries" in refusal(result, 1)
    assert not (mail / "ballots" / new).exists()
