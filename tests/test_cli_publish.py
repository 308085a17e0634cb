"""``tutelage publish``: from public votes to a proposal, from private votes to a number that may be published."""

import json
import shutil

import numpy as np
import pytest

from test_cli import configure, refusal, succeeded, tutelage, write_people
from tutelage.ballots import VoteHistogram
from tutelage.noise import SystemNoise

pytestmark = pytest.mark.usefixtures("in_this_process")

AGREEING = np.repeat([[57, 4, 1], [61, 1, 0]], 20, axis=0)
LAPLACE = ("--mechanism", "lnmax", "--scale", "5")
PATIENT = ("--unit", "patient")
GAUSSIAN = ("--mechanism", "gnmax", "--sigma", "8")
TORN = np.repeat([[22, 20, 20], [21, 21, 20]], 20, axis=0)


@pytest.fixture
def folder(tmp_path):
    for name, counts in (("proxy", AGREEING), ("votes", AGREEING), ("torn", TORN)):
        np.savez(tmp_path / f"{name}.npz", votes=counts)
    np.savez(tmp_path / "rows.npz", X=np.arange(40.0)[:, None])
    init(tmp_path, "l.db", 20, "ballot")
    return tmp_path


def init(folder, name, epsilon, neighbors, *unit):
    terms = ("--epsilon", epsilon, "--delta", "1e-5", "--neighbors", neighbors, *unit)
    succeeded(tutelage("ledger", "init", name, *terms, cwd=folder))


def spent(folder):
    return json.loads(tutelage("ledger", "show", "l.db", "--json", cwd=folder).stdout)["spent"]


def propose(folder, *options, ledger="l.db", mechanism=LAPLACE):
    files = ("--ledger", ledger, "--delta", "1e-5", "--output", "p.json")
    return tutelage("publish", "propose", "proxy.npz", *mechanism, *files, *options, cwd=folder)


def label(folder, votes="votes.npz", mechanism=LAPLACE):
    files = ("--votes", votes, "--ledger", "l.db", "--output", "labels.csv")
    succeeded(tutelage("label", "rows.npz", *files, *mechanism, cwd=folder))


def put_to_the_test(folder, votes="votes.npz", *options, mechanism=LAPLACE):
    files = ("--votes", votes, "--ledger", "l.db")
    return tutelage("publish", "test", "p.json", "rows.npz", *files, *mechanism, *options, cwd=folder)


def test_torn_votes_are_refused_and_no_count_is_printed(folder):
    propose(folder)
    label(folder, "torn.npz")
    result = put_to_the_test(folder, "torn.npz")
    assert result.returncode == 0
    assert "The test failed" in result.stdout
    assert "a smaller one was tested and refused" in result.stdout.replace("\n", " ")
    assert "shortfall" not in result.stdout


def test_misuse_is_one_sentence(folder):
    np.savez(folder / "proxy.npz", votes=TORN)
    assert "data-independent" in refusal(propose(folder), code=1)
    (folder / "p.json").write_text('{"format": 1}')
    assert "Proposal" in refusal(put_to_the_test(folder), code=2)
    np.savez(folder / "proxy.npz", votes=AGREEING)
    VoteHistogram(AGREEING, 62).save(folder / "private.npz")
    private = ("publish", "propose", "private.npz", *LAPLACE, "--delta", "1e-5", "--ledger", "l.db")
    assert "private votes" in refusal(tutelage(*private, "--output", "q.json", cwd=folder), code=1)


@pytest.fixture
def project(tmp_path):
    """A run of 100 teachers whose ledger and proposal were made before it."""
    write_people(tmp_path, 1000)
    stored = 'delta = 1e-5\nledger = "l.db"\nproposal = "p.json"'
    changes = (("n_teachers = 15", "n_teachers = 100"), ("sigma = 2.0", "sigma = 8.0"), ("delta = 1e-5", stored))
    configure(tmp_path, *changes)
    np.savez(tmp_path / "proxy.npz", votes=np.repeat([[82, 18], [92, 8]], 20, axis=0))
    init(tmp_path, "l.db", 9, "entity", *PATIENT)
    succeeded(propose(tmp_path, mechanism=GAUSSIAN))
    return tmp_path


@pytest.mark.parametrize("passes", [True, pytest.param(False, marks=pytest.mark.rest)])
def test_a_run_tests_its_proposal_and_files_both_numbers(project, monkeypatch, passes):
    monkeypatch.setattr(SystemNoise, "happens", lambda self, chance: passes)
    done = succeeded(tutelage("run", "config.toml", "--json", cwd=project))
    card, wanted = json.loads(done.stdout), json.loads((project / "p.json").read_text())["epsilon"]
    assert wanted < card["public_epsilon"]
    assert (card["sanitised"] is not None) == passes
    if passes:
        assert card["sanitised"]["epsilon"] == pytest.approx(wanted)
    same = json.loads(succeeded(tutelage("run", "config.toml", "--overwrite", "--json", cwd=project)).stdout)
    assert same["sanitised"] == card["sanitised"]
    assert same["budget"]["spent"] == card["budget"]["spent"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture
def tested(runs, project, monkeypatch):
    """A project whose run passed its test; it runs once for a module."""
    monkeypatch.setattr(SystemNoise, "happens", lambda self, chance: True)
    if not list(runs.iterdir()):
        succeeded(tutelage("run", "config.toml", cwd=project))
        shutil.copytree(project, runs, dirs_exist_ok=True)
    shutil.rmtree(project)
    return shutil.copytree(runs, project)


@pytest.mark.rest
def test_the_second_epsilon_on_the_card_of_a_run_is_proved_again(tested):
    project = tested
    path = project / "card.json"
    card = json.loads((project / "out" / "card.json").read_text())
    second, proposal = card["sanitised"], card["proposal"]
    assert proposal == {"kind": "proposal", **json.loads((project / "p.json").read_text())}
    lower = {"sanitised": {**second, "epsilon": 0.01}}
    bolder = {**lower, "proposal": {**proposal, "caps": [cap / 100 for cap in proposal["caps"]]}}
    ledger = ("--ledger", "l.db")
    for options, changes, said in (
        ((), lower, "states the second ε = 0.01, and what was released proves "),
        (ledger, bolder, "holds another proposal than the ledger recorded"),
        ((), {"sanitised": {**second, "delta": 1e-9}}, "states δ and order of the second ε as "),
        ((), {"proposal": None}, "the card holds no proposal"),
        ((), {"proposal": {**proposal, "chances": [*proposal["chances"][:-1], 1]}}, "whose test is not in its event"),
    ):
        path.write_text(json.dumps({**card, **changes}))
        new = ("--output", "new")
        assert said in refusal(tutelage("card", "card.json", *new, *options, cwd=project), code=1), changes


@pytest.mark.rest
def test_a_run_does_not_claim_its_test_for_labels_that_it_was_not_about(tested):
    """Neither for more labels of its own, nor for those that another run asked for: nothing is spent."""
    project = tested
    filed, config = (project / "out" / "card.json").read_bytes(), (project / "config.toml").read_text()

    def refused(text):
        before = spent(project)
        (project / "config.toml").write_text(text)
        said = refusal(tutelage("run", "config.toml", "--overwrite", cwd=project), code=1)
        assert spent(project) == before
        return said

    assert "must cover exactly the labels of its ledger" in refused(config.replace("queries = 40", "queries = 41"))
    other = config.replace("sigma = 8.0", "sigma = 60.0").replace('\nproposal = "p.json"', "")
    (project / "config.toml").write_text(other.replace('"out"', '"other"'))
    succeeded(tutelage("run", "config.toml", cwd=project))
    assert "The publication must cover all labels of the ledger" in refused(config)
    assert (project / "out" / "card.json").read_bytes() == filed


def test_a_run_that_could_not_test_its_proposal_spends_nothing(project):
    (project / "l.db").unlink()
    assert "tutelage ledger init" in refusal(tutelage("run", "config.toml", cwd=project), code=2)
    init(project, "l.db", 9, "ballot")
    assert "this release another unit" in refusal(tutelage("run", "config.toml", cwd=project), code=1)
    (project / "l.db").unlink()
    init(project, "l.db", 4.5, "entity", *PATIENT)
    assert "does not hold this proposal" in refusal(tutelage("run", "config.toml", cwd=project), code=1)
    assert propose(project, mechanism=GAUSSIAN).returncode == 0
    assert "has no room for this release" in refusal(tutelage("run", "config.toml", cwd=project), code=1)
    assert spent(project) == 0
