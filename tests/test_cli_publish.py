"""``tutelage publish``: from public votes to a proposal, from private votes to a number that may be published."""

import json
import shutil

import numpy as np
import pytest

from ledgers import reserve, settle
from test_cli import configure, refusal, succeeded, tutelage, write_people
from tutelage import ConfidentGNMax, GNMax, LabelingSession, Ledger, VoteHistogram
from tutelage.accounting import Accountant
from tutelage.events import NoisyArgmaxLaplace, Repeated
from tutelage.exceptions import InvalidDataError
from tutelage.noise import SystemNoise
from tutelage.privacy import ONE_TEACHER, round_up
from tutelage.publishing import propose as proposed
from tutelage.publishing import publish_epsilon
from tutelage.publishing import record as record_proposal
from tutelage.publishing.proof import read_claim, write_claim
from tutelage.reporting import read_card

pytestmark = pytest.mark.usefixtures("in_this_process")

AGREEING = np.repeat([[145, 4, 1], [149, 1, 0]], 20, axis=0)
LAPLACE = ("--mechanism", "lnmax", "--scale", "5")
PATIENT = ("--unit", "patient")
GAUSSIAN = ("--mechanism", "gnmax", "--sigma", "8")
TORN = np.repeat([[52, 49, 49], [51, 50, 49]], 20, axis=0)


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
    return tutelage(
        "publish", "test", "p.json", "rows.npz", *files, *mechanism, *options, cwd=folder
    )


def test_torn_votes_are_refused_and_no_count_is_printed(folder):
    propose(folder)
    label(folder, "torn.npz")
    result = put_to_the_test(folder, "torn.npz")
    assert result.returncode == 0
    assert "The test failed" in result.stdout
    assert "shortfall" not in result.stdout


def test_misuse_is_one_sentence(folder):
    np.savez(folder / "proxy.npz", votes=TORN)
    assert "data-independent" in refusal(propose(folder), code=1)
    (folder / "p.json").write_text('{"format": 1}')
    assert "Proposal" in refusal(put_to_the_test(folder), code=2)
    np.savez(folder / "proxy.npz", votes=AGREEING)
    VoteHistogram(AGREEING, 150).save(folder / "private.npz")
    private = ("publish", "propose", "private.npz", *LAPLACE, "--delta", "1e-5", "--ledger", "l.db")
    assert "private votes" in refusal(tutelage(*private, "--output", "q.json", cwd=folder), code=1)


@pytest.fixture
def project(tmp_path):
    """A run of 100 teachers whose ledger and proposal were made before it."""
    write_people(tmp_path, 1000)
    stored = 'delta = 1e-5\nledger = "l.db"\nproposal = "p.json"'
    changes = (
        ("n_teachers = 15", "n_teachers = 100"),
        ("sigma = 2.0", "sigma = 8.0"),
        ("delta = 1e-5", stored),
    )
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
    spent = card["budget"]["spent"]
    card = card["guarantee"]
    assert wanted < card["epsilon"]["epsilon"]
    assert (card["tested"] is not None) == passes
    if passes:
        assert card["tested"]["epsilon"] == pytest.approx(wanted)
    same = json.loads(
        succeeded(tutelage("run", "config.toml", "--overwrite", "--json", cwd=project)).stdout
    )
    assert same["guarantee"]["tested"] == card["tested"]
    assert same["budget"]["spent"] == spent


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
    path = tested / "card.json"
    card = json.loads((tested / "out" / "card.json").read_text())
    second, proposal = card["guarantee"]["tested"], card["guarantee"]["proposal"]
    lower = {"tested": {**second, "epsilon": 0.01}}
    bolder = {**lower, "proposal": {**proposal, "caps": [cap / 100 for cap in proposal["caps"]]}}
    ledger = ("--ledger", "l.db")
    for options, changes, said in (
        ((), lower, "states the second ε = 0.01, and what was released proves "),
        (ledger, bolder, "holds another proposal than the ledger recorded"),
        ((), {"tested": {**second, "delta": 1e-9}}, "states δ and order of the second ε as "),
        ((), {"proposal": None}, "the card holds no proposal"),
        (
            (),
            {"proposal": {**proposal, "chances": [*proposal["chances"][:-1], 1]}},
            "whose test is not in its event",
        ),
    ):
        path.write_text(json.dumps({**card, "guarantee": card["guarantee"] | changes}))
        made = tutelage("card", "card.json", "--output", "new", *options, cwd=tested)
        assert said in refusal(made, code=1), changes


@pytest.mark.rest
def test_a_run_does_not_claim_its_test_for_labels_that_it_was_not_about(tested):
    """Neither for more labels of its own, nor for those that another run asked for: nothing is spent."""
    project = tested
    filed, config = (
        (project / "out" / "card.json").read_bytes(),
        (project / "config.toml").read_text(),
    )

    def refused(text):
        before = spent(project)
        (project / "config.toml").write_text(text)
        said = refusal(tutelage("run", "config.toml", "--overwrite", cwd=project), code=1)
        assert spent(project) == before
        return said

    assert "must cover exactly the labels of its ledger" in refused(
        config.replace("queries = 40", "queries = 41")
    )
    other = config.replace("sigma = 8.0", "sigma = 60.0").replace('\nproposal = "p.json"', "")
    (project / "config.toml").write_text(other.replace('"out"', '"other"'))
    succeeded(tutelage("run", "config.toml", cwd=project))
    assert "The publication must cover all labels of the ledger" in refused(config)
    assert (project / "out" / "card.json").read_bytes() == filed


def test_a_run_that_could_not_test_its_proposal_spends_nothing(project):
    (project / "l.db").unlink()
    assert "tutelage ledger init" in refusal(tutelage("run", "config.toml", cwd=project), code=2)
    init(project, "l.db", 9, "ballot")
    assert "this release another unit" in refusal(
        tutelage("run", "config.toml", cwd=project), code=1
    )
    (project / "l.db").unlink()
    init(project, "l.db", 4.5, "entity", *PATIENT)
    assert "does not hold this proposal" in refusal(
        tutelage("run", "config.toml", cwd=project), code=1
    )
    assert propose(project, mechanism=GAUSSIAN).returncode == 0
    assert "has no room for this release" in refusal(
        tutelage("run", "config.toml", cwd=project), code=1
    )
    assert spent(project) == 0


# Which claims of a test a ledger bears out

ON_CARD = ("card", "--ledger", "l.db", "--claim", "claim.json", "--output", "out")


@pytest.fixture
def claimed(folder):
    """A function that labels by given votes, tests a proposal that refuses one in 10⁶, and files the claim."""

    def claim(votes="votes.npz", mechanism=LAPLACE):
        succeeded(propose(folder, "--refusal", "1e-6", mechanism=mechanism))
        label(folder, votes, mechanism)
        succeeded(put_to_the_test(folder, votes, "--output", "claim.json", mechanism=mechanism))
        return folder

    return claim


@pytest.mark.rest
def test_an_epsilon_that_passed_its_test_stands_on_the_card_beside_the_other(claimed):
    made = claimed()
    succeeded(tutelage(*ON_CARD, cwd=made))
    card, claim = (
        read_card(made / "out" / "card.json"),
        json.loads((made / "claim.json").read_text()),
    )
    second = card.guarantee.tested
    assert second is not None
    assert second.epsilon == pytest.approx(json.loads((made / "p.json").read_text())["epsilon"])
    assert card.epsilon.epsilon == claim["data_independent"]["epsilon"] > second.epsilon
    assert (card.release.queries, [batch.queries for batch in card.budget.batches]) == (40, [40, 0])
    # As 8 is, and not 20, the budget.
    assert [finding.code for finding in card.findings] == ["not-checked", "epsilon-large"]
    # Interrupted, without an answer.
    reserve(Ledger.open(made / "l.db"), NoisyArgmaxLaplace(5.0, 3, ONE_TEACHER), 3)
    assert tutelage(*ON_CARD, cwd=made).returncode == 0


@pytest.mark.rest
def test_a_claim_does_not_cover_what_is_released_after_it(claimed):
    """Answers that a check allowed for and did not give pay for no later ones, either."""
    words = "--mechanism confident --threshold 120 --sigma-threshold 12 --sigma 12"
    options = words.split()
    made = claimed("torn.npz", options)
    assert tutelage(*ON_CARD, cwd=made).returncode == 0
    assert "Name that ledger with --ledger" in refusal(
        tutelage("card", "out", "--claim", "claim.json"), 2
    )
    votes = VoteHistogram(np.array([[52, 49, 49]]), 150)
    check = ConfidentGNMax(threshold=120, sigma_threshold=12, sigma_vote=12)
    release = LabelingSession(votes, check, Ledger.open(made / "l.db"), question="another").ask(
        np.array([[99.0]])
    )
    assert not release.answered.any()  # at 52 of 120 votes and σ = 12, with a chance below 10⁻⁷
    # The test is remembered, and too old.
    files = ("--votes", "votes.npz", "--ledger", "l.db", "--output", "claim.json")
    again = tutelage("publish", "test", "p.json", "rows.npz", *files, *options, cwd=made)
    for refused in (tutelage(*ON_CARD, cwd=made), again):
        assert "The publication must cover all labels of the ledger" in refusal(refused, 1)


@pytest.mark.rest
def test_a_claim_is_checked_with_the_ledger_that_paid(claimed):
    made = claimed()
    claim = json.loads((made / "claim.json").read_text())
    (made / "other").mkdir()
    Ledger.create(made / "other" / "l.db", epsilon=20, delta=1e-5, unit=ONE_TEACHER)
    votes = VoteHistogram(AGREEING, 150)
    LabelingSession(votes, GNMax(sigma=20), Ledger.open(made / "other" / "l.db")).ask(
        np.arange(40.0)[:, None]
    )
    elsewhere = tutelage(
        "card", "--ledger", "other/l.db", "--claim", "claim.json", "--output", "out", cwd=made
    )
    assert "it is another ledger, or was rolled back" in refusal(elsewhere, 1)
    proposal, independent, tested_epsilon = (
        claim["proposal"],
        claim["data_independent"],
        claim["tested"],
    )
    whole, proposed = (
        f"proof gives {round_up(one['epsilon'])} at" for one in (independent, tested_epsilon)
    )
    bolder = {**proposal, "caps": [cap / 2 for cap in proposal["caps"]]}
    first = Repeated(NoisyArgmaxLaplace(5.0, 3, ONE_TEACHER), 39).as_dict()
    for changes, message in (
        # Its chances then promise too much.
        ({"proposal": {**proposal, "delta": 1e-6}}, "is not a claim"),
        (
            {"proposal": {**proposal, "chances": [*proposal["chances"][:-1], 1]}},
            "does not hold the test",
        ),
        ({"proposal": bolder}, "holds another proposal than the ledger recorded"),
        (
            {"data_independent": {**independent, "epsilon": 3.0}},
            f"ε of 3 at δ = 1e-05, and its {whole}",
        ),
        (
            {"tested": {**tested_epsilon, "epsilon": 0.001}},
            f"ε of 0.001 at δ = 1e-05, and its {proposed}",
        ),
        ({"labels": first}, "The publication must cover all labels of the ledger"),
        ({"ledger": "0" * 64}, "another ledger, or was rolled back"),
    ):
        (made / "claim.json").write_text(json.dumps({**claim, **changes}))
        assert message in refusal(tutelage(*ON_CARD, cwd=made), 1)
    (made / "claim.json").unlink()
    assert "cannot be read" in refusal(tutelage(*ON_CARD, cwd=made), 1)
    assert not (made / "out").exists()


def test_of_two_tests_of_one_proposal_the_claim_is_that_of_the_last(tmp_path):
    """A claim of the first, which passed, edited to cover the labels of the second, which was refused."""
    one, path = NoisyArgmaxLaplace(5.0, 3, ONE_TEACHER), tmp_path / "claim.json"

    def released(counts: np.ndarray) -> Accountant:
        accountant = Accountant()
        accountant.add(Repeated(one, len(counts)), VoteHistogram(counts, 150))
        return accountant

    def paid(start: int) -> None:
        answers = {bytes([start + number]) * 32: (0,) for number in range(40)}
        settle(ledger, reserve(ledger, one, 40), answers, Repeated(one, 40))

    ledger = Ledger.create(tmp_path / "l.db", epsilon=60.0, delta=1e-5, unit=ONE_TEACHER)
    first, both = released(AGREEING), released(np.vstack([AGREEING, TORN]))
    proposal = proposed(first, 5e-6, refusal=1e-6)
    record_proposal(proposal, ledger)
    paid(0)
    passed = publish_epsilon(first, ledger, proposal, np.arange(40.0)[:, None])
    assert passed.passed
    write_claim(path, passed, first, proposal, ledger)
    claim = json.loads(path.read_text())
    paid(100)
    refused = publish_epsilon(both, ledger, proposal, np.arange(80.0)[:, None])
    assert not refused.passed
    whole = {**claim["data_independent"], "epsilon": refused.data_independent.epsilon}
    tested = {**claim["tested"], "epsilon": 2 * claim["tested"]["epsilon"]}
    edits = {
        "labels": both.event_at_limits().as_dict(),
        "ledger": ledger.state().head,
        "data_independent": whole,
    }
    path.write_text(json.dumps({**claim, **edits, "tested": tested}))
    with pytest.raises(InvalidDataError, match="remembers that it was refused"):
        read_claim(path, ledger.history())
    write_claim(path, refused, both, proposal, ledger)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tested": tested}))
    with pytest.raises(InvalidDataError, match="its proposal proves none"):
        read_claim(path, ledger.history())


@pytest.mark.rest
def test_a_card_is_brought_up_to_date_again_after_labels_that_came_later(claimed):
    made = claimed()
    assert tutelage(*ON_CARD, cwd=made).returncode == 0
    second = read_card(made / "out" / "card.json").guarantee.tested
    votes = VoteHistogram(np.array([[145, 4, 1]]), 150)
    LabelingSession(votes, GNMax(sigma=20), Ledger.open(made / "l.db"), question="another").ask(
        np.array([[99.0]])
    )
    succeeded(tutelage("card", "out", "--ledger", "l.db", cwd=made))
    card = read_card(made / "out" / "card.json")
    assert (card.epsilon.epsilon, card.guarantee.tested) == (20, second)
    record = json.loads((made / "out" / "card.json").read_text())
    alone = record["guarantee"]["alone"]
    assert alone["epsilon"] < 20
    bare = record["guarantee"] | {"epsilon": alone, "tested": None, "proposal": None}
    (made / "card.json").write_text(json.dumps(record | {"guarantee": bare}))
    for known in ((), ("--ledger", "l.db")):  # the first ε would then leave out what came later
        refused = tutelage("card", "card.json", *known, "--output", "other", cwd=made)
        assert "By its budget, it is 20" in refusal(refused, 1)
