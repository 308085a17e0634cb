"""``tutelage publish``: from public votes to a proposal, from private votes to a number that may be published."""

import json

import numpy as np
import pytest

from test_cli import configure, refusal, tutelage, write_rows
from tutelage.noise import SystemNoise
from tutelage.votes import VoteHistogram

pytestmark = pytest.mark.usefixtures("in_this_process")

AGREEING = np.repeat([[57, 4, 1], [61, 1, 0]], 20, axis=0)
TORN = np.repeat([[22, 20, 20], [21, 21, 20]], 20, axis=0)


@pytest.fixture
def folder(tmp_path):
    for name, counts in (("proxy", AGREEING), ("votes", AGREEING), ("torn", TORN)):
        np.savez(tmp_path / f"{name}.npz", votes=counts)
    np.savez(tmp_path / "rows.npz", X=np.arange(40.0)[:, None])
    made = tutelage(
        "ledger", "init", "l.db", "--epsilon", "20", "--delta", "1e-5", "--neighbours", "ballot", cwd=tmp_path
    )
    assert made.returncode == 0, made.stderr
    return tmp_path


def propose(folder, *options, mechanism=("--mechanism", "lnmax", "--scale", "5")):
    return tutelage(
        "publish", "propose", "proxy.npz", *mechanism, "--delta", "1e-5", "--output", "p.json", *options, cwd=folder
    )


def label(folder, votes="votes.npz", mechanism=("--mechanism", "lnmax", "--scale", "5")):
    files = ("--votes", votes, "--ledger", "l.db", "--output", "labels.csv")
    done = tutelage("label", "rows.npz", *files, *mechanism, cwd=folder)
    assert done.returncode == 0, done.stderr


def put_to_the_test(folder, votes="votes.npz", *options, mechanism=("--mechanism", "lnmax", "--scale", "5")):
    files = ("--votes", votes, "--ledger", "l.db")
    return tutelage("publish", "test", "p.json", "rows.npz", *files, *mechanism, *options, cwd=folder)


def test_from_public_votes_to_a_published_epsilon(folder):
    proposed = propose(folder, "--ledger", "l.db")
    assert proposed.returncode == 0, proposed.stderr
    assert "The test takes" in proposed.stdout
    wanted = json.loads((folder / "p.json").read_text())["epsilon"]
    assert "not answered" in refusal(put_to_the_test(folder), code=1)
    label(folder)
    found = json.loads(put_to_the_test(folder, "votes.npz", "--json").stdout)
    assert wanted < 0.8 * found["data_independent"]["epsilon"]
    assert found["passed"] == (found["published"]["epsilon"] == pytest.approx(wanted))  # one real test in 20 refuses
    again = put_to_the_test(folder)
    assert ("The test passed" in again.stdout) == found["passed"]
    assert json.loads(put_to_the_test(folder, "votes.npz", "--json").stdout) == found


def test_torn_votes_are_refused_and_no_count_is_printed(folder):
    propose(folder)
    label(folder, "torn.npz")
    result = put_to_the_test(folder, "torn.npz")
    assert result.returncode == 0
    assert "The test refused" in result.stdout
    assert "a smaller one was tested and refused" in result.stdout.replace("\n", " ")
    assert "shortfall" not in result.stdout


def test_a_confident_mechanism_counts_what_the_ledger_remembers(folder):
    mechanism = ("--mechanism", "confident", "--threshold", "58", "--sigma-threshold", "12", "--sigma", "7")
    assert propose(folder, mechanism=mechanism).returncode == 0
    label(folder, mechanism=mechanism)
    tested = put_to_the_test(folder, "votes.npz", "--json", mechanism=mechanism)
    assert tested.returncode == 0, tested.stderr
    assert json.loads(tested.stdout)["proposed"] > 0


def test_misuse_is_one_sentence(folder):
    np.savez(folder / "proxy.npz", votes=TORN)
    nothing = propose(folder)
    assert "data-independent" in refusal(nothing, code=1)
    (folder / "p.json").write_text('{"format": 1}')
    assert "Proposal" in refusal(put_to_the_test(folder), code=2)
    (folder / "p.json").unlink()
    assert "p.json" in refusal(put_to_the_test(folder), code=2)
    np.savez(folder / "proxy.npz", votes=AGREEING)
    assert "margin" in refusal(propose(folder, "--margin", "0.5"), code=2)
    VoteHistogram(AGREEING, 62).save(folder / "private.npz")
    private = ("publish", "propose", "private.npz", "--mechanism", "lnmax", "--scale", "5", "--delta", "1e-5")
    assert "private votes" in refusal(tutelage(*private, "--output", "q.json", cwd=folder), code=1)
    assert "--output" in refusal(propose(folder, "--output", "proxy.npz"), code=2)


def test_a_proposal_beyond_the_ledgers_delta_is_refused_when_it_is_made(folder):
    assert "delta" in refusal(propose(folder, "--ledger", "l.db", "--delta", "1e-4"), code=1)


def test_a_proposal_for_another_unit_is_refused(folder):
    tutelage("ledger", "init", "m.db", "--epsilon", "20", "--delta", "1e-5", "--neighbours", "entity", cwd=folder)
    propose(folder, "--ledger", "m.db")
    assert "Propose anew" in refusal(put_to_the_test(folder), code=2)


@pytest.fixture
def project(tmp_path):
    """A run of 100 teachers whose ledger and proposal were made before it."""
    write_rows(tmp_path / "private.csv", 2400, 1, extra={"patient": [f"p{row // 2}" for row in range(2400)]})
    write_rows(tmp_path / "public.csv", 120, 2)
    stored = 'delta = 1e-5\nledger = "l.db"\nproposal = "p.json"'
    changes = (("number = 15", "number = 100"), ("sigma = 2.0", "sigma = 8.0"), ("delta = 1e-5", stored))
    configure(tmp_path, *changes)
    np.savez(tmp_path / "proxy.npz", votes=np.repeat([[82, 18], [92, 8]], 20, axis=0))
    budget = ("--epsilon", "9", "--delta", "1e-5", "--neighbours", "entity", "--unit", "patient")
    assert tutelage("ledger", "init", "l.db", *budget, cwd=tmp_path).returncode == 0
    proposed = propose(tmp_path, "--ledger", "l.db", mechanism=("--mechanism", "gnmax", "--sigma", "8"))
    assert proposed.returncode == 0, proposed.stderr
    return tmp_path


@pytest.mark.parametrize("passes", [True, False])
def test_a_run_tests_its_proposal_and_files_both_numbers(project, monkeypatch, passes):
    monkeypatch.setattr(SystemNoise, "happens", lambda self, chance: passes)
    done = tutelage("run", "config.toml", "--json", cwd=project)
    assert done.returncode == 0, done.stderr
    card, wanted = json.loads(done.stdout), json.loads((project / "p.json").read_text())["epsilon"]
    assert wanted < card["public_epsilon"]
    assert (card["sanitised"] is not None) == passes
    if passes:
        assert card["sanitised"]["epsilon"] == pytest.approx(wanted)
    again = tutelage("run", "config.toml", "--overwrite", "--json", cwd=project)
    assert again.returncode == 0, again.stderr
    same = json.loads(again.stdout)
    assert same["sanitised"] == card["sanitised"]
    assert same["budget"]["spent"] == card["budget"]["spent"]


def test_a_run_that_could_not_test_its_proposal_spends_nothing(project):
    (project / "l.db").unlink()
    assert "tutelage ledger init" in refusal(tutelage("run", "config.toml", cwd=project), code=2)
    tutelage("ledger", "init", "l.db", "--epsilon", "9", "--delta", "1e-5", "--neighbours", "ballot", cwd=project)
    assert "Propose anew" in refusal(tutelage("run", "config.toml", cwd=project), code=2)
    (project / "l.db").unlink()
    budget = ("--epsilon", "3.5", "--delta", "1e-5", "--neighbours", "entity", "--unit", "patient")
    tutelage("ledger", "init", "l.db", *budget, cwd=project)
    assert "does not allow" in refusal(tutelage("run", "config.toml", cwd=project), code=1)
    shown = json.loads(tutelage("ledger", "show", "l.db", "--json", cwd=project).stdout)
    assert shown["spent"] == 0
