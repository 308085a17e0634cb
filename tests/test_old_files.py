"""Files that spell their relation out, written before there were codes: each opens, means the same, and costs nothing.

tests/golden/spelled-out was written by the last version without codes. No file in it is ever written anew.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from conftest import GOLDEN
from tutelage.accounting import Accountant, data_independent
from tutelage.events import NoisyArgmaxGaussian, NoisyArgmaxLaplace, Repeated, event_from_dict
from tutelage.exceptions import LedgerMismatchError
from tutelage.federation import Consortium
from tutelage.labeling import LabelingSession, require_room
from tutelage.ledger import Ledger
from tutelage.mechanisms import (
    ConfidentGNMax,
    ExponentialMax,
    GNMax,
    InteractiveGNMax,
    LNMax,
    MultiLabel,
    PermuteAndFlip,
)
from tutelage.privacy import ONE_TEACHER, NeighboringRelation, PrivacyUnit, coded
from tutelage.publishing import Proposal, SmoothPlan, publish_epsilon
from tutelage.publishing.claims import read_claim
from tutelage.publishing.proof import proved_card
from tutelage.publishing.publication import publish_smoothed
from tutelage.publishing.recording import record_of
from tutelage.reporting import read_card
from tutelage.votes import VoteHistogram

OLD = GOLDEN / "spelled-out"
EXPECTED = json.loads((OLD / "expected.json").read_text())
EVENTS = json.loads((OLD / "events.json").read_text())
PATIENT = PrivacyUnit("patient", NeighboringRelation.ADD_REMOVE_OR_CHANGE_ONE_ENTITY)
NAMES = ("row", "patient", "patient", "one teacher's data")  # of the units, in the order of the relations
ROWS = np.array([[1.5, 2.0], [0.0, -1.0]])
STUDENTS = np.array([[0.9, 0.1], [0.2, 0.8]])
COUNTS = np.array([[90, 10], [45, 55]])
FINDINGS = np.array([[90, 10], [45, 55], [30, 70], [99, 1], [0, 100], [60, 40]])
MECHANISMS = (
    LNMax(20.0),
    GNMax(40.0),
    ExponentialMax(20.0),
    PermuteAndFlip(20.0),
    ConfidentGNMax(60, 20, 20),
    InteractiveGNMax(50, 20, 20, 0.9),
    MultiLabel(GNMax(40.0), 3),
)


def copied(name: str, folder: Path) -> Ledger:
    return Ledger.open(shutil.copy(OLD / name, folder))


def session(mechanism, ledger: Ledger, unit: PrivacyUnit = PATIENT, question: str = "ill?") -> LabelingSession:
    counts = FINDINGS if isinstance(mechanism, MultiLabel) else COUNTS
    return LabelingSession(VoteHistogram(counts, 100, unit), mechanism, ledger, question=question)


def predictions(mechanism) -> np.ndarray | None:
    return STUDENTS if mechanism.takes_predictions else None


@pytest.mark.parametrize("known", EVENTS, ids=lambda known: f"{known['record']['event']}-{known['relation']}")
def test_an_event_is_of_the_same_unit_and_costs_the_same_to_the_last_digit(known):
    event = event_from_dict(known["record"])
    units = {part.event.unit.neighboring for part in event.flatten()}
    assert units == {NeighboringRelation[known["relation"]]}
    assert data_independent.epsilon(Repeated(event, 10), 1e-5).epsilon == known["epsilon"]


@pytest.mark.parametrize(("relation", "name"), list(zip(NeighboringRelation, NAMES, strict=True)))
def test_votes_are_of_the_same_unit(relation, name):
    votes = VoteHistogram.load(OLD / f"votes-{relation.name.lower().replace('_', '-')}.npz")
    assert votes.unit == PrivacyUnit(name, relation)
    assert votes.counts.tolist() == COUNTS.tolist()


def test_a_ledger_adds_up_and_goes_on(tmp_path):
    ledger, expected = copied("answers.ledger", tmp_path), EXPECTED["answers"]["state"]
    state = ledger.verify(expected["head"])
    assert state.as_dict() == coded(expected)
    opened = ledger.reserve(NoisyArgmaxGaussian(40.0, 2, PATIENT), 3, batch="open")  # the one that was interrupted
    assert ledger.state() == state
    ledger.settle(opened, {bytes(32): (1,)}, Repeated(opened.event, 3))
    session(GNMax(30.0), ledger).ask(ROWS)
    assert ledger.verify(expected["head"]).entries == state.entries + 3


@pytest.mark.parametrize(
    ("mechanism", "labels"), list(zip(MECHANISMS, EXPECTED["answers"]["labels"], strict=True)), ids=str
)
def test_a_remembered_answer_is_recognized_and_costs_nothing(mechanism, labels, tmp_path):
    ledger, student = copied("answers.ledger", tmp_path), predictions(mechanism)
    before, asked = ledger.state(), session(mechanism, ledger)
    one = mechanism.event_of_one(2, PATIENT, simulated=False)
    assert require_room(ledger, mechanism, one, ROWS, "ill?", student) == 0
    assert asked.affordable(ROWS, student) == 2
    for _ in range(2):
        release = asked.ask(ROWS, student)
        assert (release.labels.tolist(), release.cost) == (labels, 0.0)
    assert len(asked.released(ROWS, student).voted()) > 0
    assert ledger.state() == before


def test_another_question_row_or_setting_is_not_remembered(tmp_path):
    ledger = copied("answers.ledger", tmp_path)
    one = GNMax(40.0).event_of_one(2, PATIENT, simulated=False)
    assert require_room(ledger, GNMax(40.0), one, ROWS, "tall?") == 2
    assert require_room(ledger, GNMax(40.0), one, ROWS + 1, "ill?") == 2
    assert require_room(ledger, GNMax(41.0), one, ROWS, "ill?") == 2


@pytest.mark.parametrize("relation", [one for one in NeighboringRelation if one is not PATIENT.neighboring])
def test_a_ledger_of_one_relation_serves_no_other(relation, tmp_path):
    ledger = copied("answers.ledger", tmp_path)
    with pytest.raises(LedgerMismatchError, match="protects one 'patient'"):
        session(GNMax(40.0), ledger, PrivacyUnit("patient", relation)).ask(ROWS + 1)
    assert ledger.state().spent == EXPECTED["answers"]["state"]["spent"]


def test_a_noised_cost_is_remembered_and_means_the_same(tmp_path):
    ledger, expected = copied("smooth-plan.ledger", tmp_path), EXPECTED["smooth plan"]
    plan = SmoothPlan(**{**json.loads((OLD / "smooth-plan.json").read_text()), "unit": ONE_TEACHER})
    counts = np.repeat([[57, 4, 1], [40, 20, 2]], 100, axis=0)
    accountant = Accountant()
    accountant.add(Repeated(NoisyArgmaxLaplace(5.0, 3, ONE_TEACHER), 200), VoteHistogram(counts, 62))
    before = ledger.verify(expected["state"]["head"])
    ledger.record_proposal(record_of(plan))
    found = publish_smoothed(accountant, ledger, plan, np.arange(200.0))
    assert found.released == expected["released"]
    assert found.epsilon.epsilon == expected["epsilon"]
    assert found.data_independent.epsilon == expected["data_independent"]
    assert ledger.state() == before


def test_a_test_is_remembered_and_means_the_same(tmp_path):
    ledger, claim = copied("proposal.ledger", tmp_path), json.loads((OLD / "claim.json").read_text())
    proposal = Proposal.from_json((OLD / "proposal.json").read_text())
    assert proposal.unit == ONE_TEACHER
    assert proposal.epsilon == json.loads((OLD / "proposal.json").read_text())["epsilon"]
    accountant = Accountant()
    counts = np.repeat([[145, 4, 1], [149, 1, 0]], 20, axis=0)
    accountant.add(Repeated(NoisyArgmaxLaplace(5.0, 3, ONE_TEACHER), 40), VoteHistogram(counts, 150))
    before = ledger.verify(claim["ledger"])
    ledger.record_proposal(record_of(proposal))
    found = publish_epsilon(accountant, ledger, proposal, np.arange(40.0)[:, None])
    assert found.passed
    assert found.epsilon.epsilon == claim["sanitised"]["epsilon"]
    assert found.data_independent.epsilon == claim["data_independent"]["epsilon"]
    assert ledger.state() == before


def test_a_claim_is_proved_again(tmp_path):
    stored = json.loads((OLD / "claim.json").read_text())
    proved = read_claim(OLD / "claim.json", copied("proposal.ledger", tmp_path).history())
    assert proved.claim.sanitised is not None
    assert proved.claim.sanitised.epsilon == stored["sanitised"]["epsilon"]
    assert proved.claim.data_independent.epsilon == stored["data_independent"]["epsilon"]


def test_a_card_is_proved_again_and_means_the_same(tmp_path):
    stored, card = json.loads((OLD / "card.json").read_text()), read_card(OLD / "card.json")
    assert card.epsilon.unit == ONE_TEACHER
    for history in (None, copied("proposal.ledger", tmp_path).history()):
        proved = proved_card(card, "card.json", history)
        assert proved.epsilon.epsilon == stored["public_epsilon"]
        assert proved.sanitised is not None
        assert proved.sanitised.epsilon == stored["sanitised"]["epsilon"]


def test_a_consortium_has_the_fingerprint_that_its_members_agreed_on(tmp_path):
    consortium = Consortium.load(OLD / "consortium.json")
    assert consortium.unit == PrivacyUnit("patient", NeighboringRelation.ADD_REMOVE_OR_CHANGE_WITHIN_SILO)
    assert consortium.fingerprint == EXPECTED["consortium"]
    consortium.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (OLD / "consortium.json").read_bytes()
