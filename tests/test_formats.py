"""Files of format 1 open, mean the same and cost nothing; another format is refused.

`python tests/test_formats.py` writes the golden files again. Once a version is released, it must not be run any more.
"""

import json
import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from ledgers import bind, edit, rechained, reserve, settle
from tutelage.accounting import Accountant
from tutelage.ballots import VoteHistogram
from tutelage.events import NoisyArgmaxLaplace, Repeated
from tutelage.exceptions import LedgerStorageError, TutelageError
from tutelage.features import PublicRows, PublicScaling
from tutelage.labeling import LabelingSession
from tutelage.ledger import Ledger
from tutelage.mechanisms import GNMax, LNMax
from tutelage.privacy import ONE_TEACHER
from tutelage.published import _budget_of
from tutelage.publishing import propose, publish_epsilon, record
from tutelage.publishing.proof import read_claim, write_claim
from tutelage.reporting import PrivacyCard, read_card
from tutelage.reporting.record import Guarantee, Proposed, ReleasePart, StudentPart, record_of
from tutelage.students import load_student
from tutelage.students.store import write_student
from tutelage_consortium import Consortium, Identity, Role

FORMAT_1 = Path(__file__).parent / "golden" / "format-1"
ROWS = np.arange(40.0)[:, None]
COUNTS = np.repeat([[145, 4, 1], [149, 1, 0]], 20, axis=0)
ONE = NoisyArgmaxLaplace(5.0, 3, ONE_TEACHER)
PUBLIC = np.array([[0.0, 1.0], [1.0, 0.0], [0.5, 2.0], [2.0, 0.5]])


def write(folder: Path) -> None:
    """Write one file of every kind, and what each of them says."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    votes, accountant = VoteHistogram(COUNTS, 150), Accountant()
    votes.save(folder / "votes.npz")
    accountant.add(Repeated(ONE, 40), votes)
    proposal = propose(accountant, 1e-5)
    ledger = Ledger.create(folder / "ledger", epsilon=60.0, delta=1e-5, unit=ONE_TEACHER)
    record(proposal, ledger)
    bind(ledger, b"digest of the rows")
    release = LabelingSession(votes, LNMax(5.0), ledger, question="ill?").ask(ROWS)
    published = publish_epsilon(accountant, ledger, proposal, ROWS)
    write_claim(folder / "claim.json", published, accountant, proposal, ledger)
    reserve(ledger, ONE, 2, batch="interrupted")
    ledger.register.publish(lambda _: "0" * 64)
    guarantee = Guarantee(
        epsilon=published.data_independent,
        event=record_of(accountant.event_at_limits()),
        tested=published.smaller,
        proposal=msgspec.convert(proposal.as_dict(), Proposed),
    )
    made = ReleasePart(
        mechanism="LNMax(scale=5.0)", noise_source="exact", queries=40, answered=40, teachers=150,
        classes=("a", "b", "c"), features=("age",), created="2026-01-01",
    )  # fmt: skip
    card = PrivacyCard(
        guarantee=guarantee,
        release=made,
        student=StudentPart(name="logistic regression"),
        budget=_budget_of(ledger.state()),
    )
    (folder / "card.json").write_text(json.dumps(card.as_dict(), indent=1))
    roles = [("north", Role.ENTITY), ("south", Role.ENTITY), ("lab", Role.AGGREGATOR)]
    members = [Identity.generate(name, role).member for name, role in roles]
    members += [
        Identity.generate(f"p{number}", Role.COMPUTING, f"127.0.0.1:{number}").member
        for number in (1, 2, 3)
    ]
    terms = {
        "name": "Two",
        "classes": ("0", "1", "2"),
        "mechanism": GNMax(8.0),
        "teachers_per_entity": 9,
        "unit": ONE_TEACHER,
    }
    consortium = Consortium(members=tuple(members), quorum=2, colluding=1, **terms)
    consortium.save(folder / "consortium.json")
    scaling = PublicScaling.learn(PublicRows(PUBLIC, "four rows"))
    student = make_pipeline(
        scaling, LogisticRegression().fit(scaling.transform(PUBLIC), [0, 1, 0, 1])
    )
    write_student(student, folder / "student.skops")
    says = {"state": ledger.state().as_dict(), "labels": release.labels.tolist()}
    says |= {
        "consortium": consortium.fingerprint,
        "student": student.predict_proba(PUBLIC).tolist(),
    }
    (folder / "expected.json").write_text(json.dumps(says))


def test_files_of_format_1_say_what_they_said(tmp_path):
    folder = Path(shutil.copytree(FORMAT_1, tmp_path / "copied"))
    expected = json.loads((folder / "expected.json").read_text())
    ledger, votes = Ledger.open(folder / "ledger"), VoteHistogram.load(folder / "votes.npz")
    state = ledger.verify(expected["state"]["head"])
    assert state.as_dict() == {**expected["state"], "so_far": pytest.approx(7.828624413861822)}
    assert (votes.counts.tolist(), votes.n_teachers, votes.unit) == (
        COUNTS.tolist(),
        150,
        ONE_TEACHER,
    )
    release = LabelingSession(votes, LNMax(5.0), ledger, question="ill?").ask(ROWS)
    assert (release.labels.tolist(), release.cost, ledger.state()) == (
        expected["labels"],
        0.0,
        state,
    )
    card, claim = (
        read_card(folder / "card.json"),
        read_claim(folder / "claim.json", ledger.history()),
    )
    assert card.as_dict() == json.loads((folder / "card.json").read_text())
    assert (card.epsilon, card.guarantee.tested) == (claim.epsilon, claim.tested)
    consortium = Consortium.load(folder / "consortium.json")
    assert consortium.fingerprint == expected["consortium"]
    assert load_student(folder / "student.skops").predict_proba(PUBLIC) == pytest.approx(
        np.array(expected["student"])
    )
    reserved = ledger.account.find("interrupted")
    assert reserved is not None
    settle(ledger, reserved, {bytes(32): (1,)}, Repeated(ONE, 2))
    ledger.withdraw(["17"])
    assert ledger.verify(state.head).entries == state.entries + 1


READERS = {
    "card.json": read_card,
    "claim.json": lambda path: read_claim(path, Ledger.open(path.parent / "ledger").history()),
    "consortium.json": Consortium.load,
    "votes.npz": VoteHistogram.load,
    "ledger": Ledger.open,
}


@pytest.mark.parametrize("name", READERS)
def test_another_format_is_refused(name, tmp_path):
    path = Path(shutil.copytree(FORMAT_1, tmp_path / "copied")) / name
    if name == "ledger":
        edit(path, "PRAGMA user_version = 2")
    elif name == "votes.npz":
        with np.load(path) as stored:
            np.savez(path, **{**stored, "format": np.int64(2)})
    else:
        path.write_text(
            json.dumps({**json.loads(path.read_text()), "format": 2}, separators=(",", ":"))
        )
    said = r"another (vote )?format \(2\); read it with the version of tutelage that made it"
    with pytest.raises(
        TutelageError, match=f"{said}, and never start a new" if name == "ledger" else said
    ):
        READERS[name](path)


def test_an_earlier_ledger_with_other_tables_is_not_called_tampered(tmp_path):
    path = Path(shutil.copytree(FORMAT_1, tmp_path / "copied")) / "ledger"
    rechained(path, {8: {"format": 4}})
    edit(path, "DROP TABLE checkpoint")
    with pytest.raises(
        LedgerStorageError, match=r"format \(4\); .* never start a new ledger for the same"
    ):
        Ledger.open(path)


if __name__ == "__main__":
    write(FORMAT_1)
