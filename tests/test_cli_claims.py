"""From a test on the command line to the card: which claims a ledger bears out, and which it does not."""

import json
from pathlib import Path

import numpy as np
import pytest

from test_cli import refusal
from tutelage import ConfidentGNMax, GNMax, LabelingSession, Ledger, VoteHistogram
from tutelage.accounting import Accountant
from tutelage.events import NoisyArgmaxLaplace, Repeated
from tutelage.exceptions import InvalidDataError
from tutelage.privacy import ONE_TEACHER, round_up
from tutelage.publishing import propose, publish_epsilon, record
from tutelage.publishing.proof import read_claim, write_claim
from tutelage.reporting import read_card

AGREEING = np.repeat([[145, 4, 1], [149, 1, 0]], 20, axis=0)
TORN = np.repeat([[52, 49, 49], [51, 50, 49]], 20, axis=0)
LNMAX = ("--mechanism", "lnmax", "--scale", "5")
ON_CARD = ("card", "--ledger", "l.db", "--claim", "claim.json", "--output", "out")


@pytest.fixture
def tested(called, tmp_path):
    """A function that labels 40 rows by given votes, tests a proposal that refuses one in 10⁶, and files the claim."""

    def test(counts: np.ndarray = AGREEING, mechanism: tuple[str, ...] = LNMAX) -> Path:
        np.savez(tmp_path / "proxy.npz", votes=AGREEING)
        np.savez(tmp_path / "votes.npz", votes=counts)
        np.savez(tmp_path / "rows.npz", X=np.arange(40.0)[:, None])
        proposal = ("--delta", "1e-5", "--refusal", "1e-6", "--output", "p.json", "--ledger", "l.db")
        files = ("--votes", "votes.npz", "--ledger", "l.db")
        for call in (
            ("ledger", "init", "l.db", "--epsilon", "20", "--delta", "1e-5", "--neighbors", "ballot"),
            ("publish", "propose", "proxy.npz", *mechanism, *proposal),
            ("label", "rows.npz", *files, *mechanism, "--output", "labels.csv"),
            ("publish", "test", "p.json", "rows.npz", *files, *mechanism, "--output", "claim.json"),
        ):
            result = called(*call, cwd=tmp_path)
            assert result.returncode == 0, result.stderr
        return tmp_path

    return test


def test_an_epsilon_that_passed_its_test_stands_on_the_card_beside_the_other(called, tested):
    folder = tested()
    result = called(*ON_CARD, cwd=folder)
    assert result.returncode == 0, result.stderr
    card, claim = read_card(folder / "out" / "card.json"), json.loads((folder / "claim.json").read_text())
    assert card.sanitised is not None
    assert card.sanitised.epsilon == pytest.approx(json.loads((folder / "p.json").read_text())["epsilon"])
    assert card.epsilon.epsilon == claim["data_independent"]["epsilon"] > card.sanitised.epsilon
    assert (card.queries, [batch.queries for batch in card.batches]) == (40, [40, 0])
    assert card.findings is not None
    # As 8 is, and not 20, the budget.
    assert [finding.code for finding in card.findings] == ["not-checked", "epsilon-large"]
    assert "borne out by a private test that passed" in (folder / "out" / "card.md").read_text()


def test_after_a_refusal_the_card_has_one_epsilon(called, tested):
    folder = tested(TORN)
    assert json.loads((folder / "claim.json").read_text())["sanitised"] is None
    assert called(*ON_CARD, cwd=folder).returncode == 0
    card = read_card(folder / "out" / "card.json")
    assert card.sanitised is None
    assert card.epsilon.epsilon < 20


def test_a_batch_that_was_interrupted_gave_no_answer_and_spoils_no_claim(called, tested):
    folder = tested()
    Ledger.open(folder / "l.db").reserve(NoisyArgmaxLaplace(5.0, 3, ONE_TEACHER), 3)
    assert called(*ON_CARD, cwd=folder).returncode == 0


def test_a_claim_does_not_cover_what_is_released_after_it(called, tested):
    folder = tested()
    votes = VoteHistogram(np.array([[145, 4, 1]]), 150)
    LabelingSession(votes, GNMax(sigma=20), Ledger.open(folder / "l.db"), question="another").ask(np.array([[99.0]]))
    assert "The publication must cover all labels of the ledger" in refusal(called(*ON_CARD, cwd=folder), 1)
    files = ("--votes", "votes.npz", "--ledger", "l.db")
    # The test is remembered, and too old.
    again = called("publish", "test", "p.json", "rows.npz", *files, *LNMAX, "--output", "claim.json", cwd=folder)
    assert "The publication must cover all labels of the ledger" in refusal(again, 1)
    assert "The publication must cover all labels of the ledger" in refusal(called(*ON_CARD, cwd=folder), 1)


def test_answers_that_were_allowed_for_and_not_given_cover_no_later_ones(called, tested):
    check = ConfidentGNMax(threshold=120, sigma_threshold=12, sigma_vote=12)
    options = ("--mechanism", "confident", "--threshold", "120", "--sigma-threshold", "12", "--sigma", "12")
    folder = tested(TORN, options)
    assert called(*ON_CARD, cwd=folder).returncode == 0
    votes = VoteHistogram(np.array([[52, 49, 49]]), 150)
    release = LabelingSession(votes, check, Ledger.open(folder / "l.db"), question="another").ask(np.array([[99.0]]))
    assert not release.answered.any()  # at 52 of 120 votes and σ = 12, with a chance below 10⁻⁷
    assert "The publication must cover all labels of the ledger" in refusal(called(*ON_CARD, cwd=folder), 1)


def test_a_claim_is_checked_with_the_ledger_that_paid(called, tested):
    folder = tested()
    claim = json.loads((folder / "claim.json").read_text())
    (folder / "other").mkdir()
    Ledger.create(folder / "other" / "l.db", epsilon=20, delta=1e-5, unit=ONE_TEACHER)
    votes = VoteHistogram(AGREEING, 150)
    LabelingSession(votes, GNMax(sigma=20), Ledger.open(folder / "other" / "l.db")).ask(np.arange(40.0)[:, None])
    elsewhere = called("card", "--ledger", "other/l.db", "--claim", "claim.json", "--output", "out", cwd=folder)
    assert "it is another ledger, or was rolled back" in refusal(elsewhere, 1)
    proposal, independent, tested_epsilon = claim["proposal"], claim["data_independent"], claim["sanitised"]
    whole, proposed = (f"proof gives {round_up(one['epsilon'])} at" for one in (independent, tested_epsilon))
    bolder = {**proposal, "caps": [cap / 2 for cap in proposal["caps"]]}
    first = Repeated(NoisyArgmaxLaplace(5.0, 3, ONE_TEACHER), 39).as_dict()
    for changes, message in (
        ({"proposal": {**proposal, "delta": 1e-6}}, "is not a claim"),  # its chances then promise too much
        ({"proposal": {**proposal, "chances": [*proposal["chances"][:-1], 1]}}, "does not hold the test"),
        ({"proposal": bolder}, "holds another proposal than the ledger recorded"),
        ({"proposal": {**proposal, "order": proposal["order"] + 1}}, "holds another proposal than the ledger recorded"),
        ({"data_independent": {**independent, "epsilon": 3.0}}, f"ε of 3 at δ = 1e-05, and its {whole}"),
        ({"data_independent": {**independent, "delta": 1e-4}}, "at δ = 0.0001, and its proof gives"),
        ({"sanitised": {**tested_epsilon, "epsilon": 0.001}}, f"ε of 0.001 at δ = 1e-05, and its {proposed}"),
        ({"labels": first}, "The publication must cover all labels of the ledger"),
        ({"ledger": "0" * 64}, "another ledger, or was rolled back"),
        ({"format": 2}, "has another format (2); read it with the version of tutelage that made it"),
        ({"sanitised": {**independent, "epsilon": float("nan")}}, "is not a claim"),
        ({"sanitised": {"epsilon": 1.0}}, "is not a claim"),
        ({"proposal": {}}, "is not a claim"),
    ):
        (folder / "claim.json").write_text(json.dumps({**claim, **changes}))
        assert message in refusal(called(*ON_CARD, cwd=folder), 1)
    (folder / "claim.json").write_text("[]")
    assert "is not a claim" in refusal(called(*ON_CARD, cwd=folder), 1)
    (folder / "claim.json").unlink()
    assert "cannot be read" in refusal(called(*ON_CARD, cwd=folder), 1)
    assert not (folder / "out").exists()


def test_a_claim_needs_its_ledger_and_a_file_of_its_own(called, tested):
    folder = tested()
    assert called("card", "--ledger", "l.db", "--output", "out", cwd=folder).returncode == 0
    alone = called("card", "out", "--claim", "claim.json", cwd=folder)
    assert "Name it with --ledger" in refusal(alone, 2)
    assert called("card", "out", *ON_CARD[1:], cwd=folder).returncode == 0
    assert read_card(folder / "out" / "card.json").sanitised is not None
    files = ("--votes", "votes.npz", "--ledger", "l.db")
    over = called("publish", "test", "p.json", "rows.npz", *files, *LNMAX, "--output", "votes.npz", cwd=folder)
    assert "votes.npz would be replaced, but was not written here by tutelage" in refusal(over, 2)


def test_a_test_that_was_refused_is_not_turned_into_one_that_passed(called, tested):
    folder = tested(TORN)
    claim, proposal = json.loads((folder / "claim.json").read_text()), json.loads((folder / "p.json").read_text())
    stated = {**claim["data_independent"], "epsilon": proposal["epsilon"]}
    (folder / "claim.json").write_text(json.dumps({**claim, "passed": True, "sanitised": stated}))
    assert "the ledger remembers that it was refused" in refusal(called(*ON_CARD, cwd=folder), 1)
    (folder / "claim.json").write_text(json.dumps({**claim, "sanitised": stated}))
    assert "its proposal proves none" in refusal(called(*ON_CARD, cwd=folder), 1)


def test_of_two_tests_of_one_proposal_the_claim_is_that_of_the_last(tmp_path):
    """A claim of the first, which passed, edited to cover the labels of the second, which was refused."""
    one, path = NoisyArgmaxLaplace(5.0, 3, ONE_TEACHER), tmp_path / "claim.json"

    def released(counts: np.ndarray) -> Accountant:
        accountant = Accountant()
        accountant.add(Repeated(one, len(counts)), VoteHistogram(counts, 150))
        return accountant

    def paid(start: int) -> None:
        answers = {bytes([start + number]) * 32: (0,) for number in range(40)}
        ledger.settle(ledger.reserve(one, 40), answers, Repeated(one, 40))

    ledger = Ledger.create(tmp_path / "l.db", epsilon=60.0, delta=1e-5, unit=ONE_TEACHER)
    first, both = released(AGREEING), released(np.vstack([AGREEING, TORN]))
    proposal = propose(first, 5e-6, refusal=1e-6)
    record(proposal, ledger)
    paid(0)
    passed = publish_epsilon(first, ledger, proposal, np.arange(40.0)[:, None])
    assert passed.passed
    write_claim(path, passed, first, proposal, ledger)
    claim = json.loads(path.read_text())
    paid(100)
    refused = publish_epsilon(both, ledger, proposal, np.arange(80.0)[:, None])
    assert not refused.passed
    whole = {**claim["data_independent"], "epsilon": refused.data_independent.epsilon}
    sanitised = {**claim["sanitised"], "epsilon": 2 * claim["sanitised"]["epsilon"]}
    edits = {"labels": both.charged().as_dict(), "ledger": ledger.state().head, "data_independent": whole}
    path.write_text(json.dumps({**claim, **edits, "sanitised": sanitised}))
    with pytest.raises(InvalidDataError, match="remembers that it was refused"):
        read_claim(path, ledger.history())


def test_a_card_is_brought_up_to_date_again_after_labels_that_came_later(called, tested):
    folder = tested()
    assert called(*ON_CARD, cwd=folder).returncode == 0
    second = read_card(folder / "out" / "card.json").sanitised
    votes = VoteHistogram(np.array([[145, 4, 1]]), 150)
    LabelingSession(votes, GNMax(sigma=20), Ledger.open(folder / "l.db"), question="another").ask(np.array([[99.0]]))
    for _ in range(2):
        result = called("card", "out", "--ledger", "l.db", cwd=folder)
        assert result.returncode == 0, result.stderr
        card = read_card(folder / "out" / "card.json")
        assert (card.epsilon.epsilon, card.sanitised) == (20, second)
    record = json.loads((folder / "out" / "card.json").read_text())
    assert record["alone"]["epsilon"] < 20
    alone = {"public_epsilon": record["alone"]["epsilon"], "epsilon_order": record["alone"]["order"]}
    (folder / "card.json").write_text(json.dumps({**record, **alone, "sanitised": None, "proposal": None}))
    for known in ((), ("--ledger", "l.db")):  # the first ε would then leave out what came later
        refused = called("card", "card.json", *known, "--output", "other", cwd=folder)
        assert "By its budget, it is 20" in refusal(refused, 1)
