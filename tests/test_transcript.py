"""Everything that an outsider may see of a data set depends on public values and noisy results alone."""

import json
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from tutelage import GNMax, LabelingSession, Ledger, PATEClassifier, VoteHistogram
from tutelage._internal import days
from tutelage.ledger import data_digest
from tutelage.privacy import ONE_TEACHER
from tutelage.teachers import VectorBallots


@pytest.fixture
def clock(monkeypatch):
    """A clock that goes on by six hours whenever it is read, so that whoever reads it twice a release shows it."""
    read = [datetime(2031, 5, 17, 12, 30, 15, tzinfo=UTC)]

    def now():
        read.append(read[-1] + timedelta(hours=6))
        return read[-2]

    monkeypatch.setattr(days, "_now", now)
    return read


def ledger_of(path=None):
    terms = {"epsilon": 5.0, "delta": 1e-5, "unit": ONE_TEACHER}
    return Ledger.in_memory(**terms) if path is None else Ledger.create(path, **terms)


def test_all_entries_of_an_ask_have_the_day_on_which_it_began(clock):
    ledger = ledger_of()
    session = LabelingSession(VoteHistogram(np.array([[230, 15, 5]]), 250), GNMax(40.0), ledger)
    for number in range(6):
        session.ask(np.array([[float(number)]]))
    written = [entry["written"] for entry in ledger.export()]
    assert written[1::2] == written[2::2]  # of reservations, and of their answers
    assert sorted(set(written)) == ["2031-05-17", "2031-05-18", "2031-05-19"]
    assert ledger.state().opened == "2031-05-17"


def test_a_reservation_that_is_settled_on_another_day_does_not_show_it(clock):
    ledger, event = ledger_of(), GNMax(40.0).event_of_one(3, ONE_TEACHER, simulated=False)
    reservation = ledger.reserve(event, 1)
    clock.append(clock[-1] + timedelta(days=3))
    ledger.settle(reservation, {bytes(32): (1,)}, event)
    assert len({entry["written"] for entry in ledger.export()[1:]}) == 1


@pytest.mark.parametrize("changed", [False, True])
def test_every_release_leaves_the_same_trace_of_its_data(changed, tmp_path):
    traces = []
    for second in (np.eye(3), np.eye(3), np.eye(3) + changed, np.eye(3) - changed):
        ledger = ledger_of(tmp_path / f"{len(traces)}.ledger")
        for data in (np.eye(3), second, np.eye(3)):
            ledger.bind(data_digest(data), changed=True)
            ledger.reserve(GNMax(40.0).event_of_one(3, ONE_TEACHER, simulated=False), 1)
        traces.append(ledger.export())
    kinds = [[entry["kind"] for entry in trace] for trace in traces]
    assert kinds == [["opened", *["bound", "reserved"] * 3]] * 4
    fingerprints = [entry["fingerprint"] for trace in traces for entry in trace if entry["kind"] == "bound"]
    assert len(set(fingerprints)) == len(fingerprints)
    assert len({len(fingerprint) for fingerprint in fingerprints}) == 1


@pytest.mark.filterwarnings("ignore::tutelage.exceptions.BudgetContinuedWarning")
def test_a_fit_has_one_day_and_one_binding(clock, binary_rows, tmp_path):
    X, y = binary_rows
    ledger = tmp_path / "a.ledger"
    for rows, question in ((X, "first"), (X, "second"), (X[:300], "third")):
        model = PATEClassifier(
            teacher=VectorBallots(), ledger=ledger, budget=20.0, epsilon=1.0, data_changed=True, question=question
        ).fit(rows, y[: len(rows)], X_public=X[:60])
        entries = Ledger.open(ledger).export()
        last = max(place for place, entry in enumerate(entries) if entry["kind"] == "bound")
        assert {entry["written"] for entry in entries[last:]} == {model.day_} == {model.card().created}
    kinds = [entry["kind"] for entry in Ledger.open(ledger).export()]
    sums = VectorBallots().rounds
    assert kinds == ["opened", *["bound", *["reserved", "answered"] * sums] * 3]
    assert {len(batch.written) for batch in model.card().batches} == {len("2031-05-17")}


def test_a_student_is_saved_without_times_addresses_and_gaps(tmp_path, binary_rows, monkeypatch):
    import zipfile

    from sklearn.ensemble import RandomForestClassifier

    from tutelage.students import load_student, save_student

    X, y = binary_rows
    saved = []
    for name in ("one", "other"):
        student = RandomForestClassifier(10, random_state=0).fit(X, y)
        save_student(student, tmp_path / name)
        assert (load_student(tmp_path / name).predict(X) == student.predict(X)).all()
        saved.append((tmp_path / name).read_bytes())
        np.full(10**6, 7.0)  # other memory for the next one
    assert saved[0] == saved[1]
    with zipfile.ZipFile(tmp_path / "one") as archive:
        assert {part.date_time[0] for part in archive.infolist()} == {1980}
        assert "schema.json" in archive.namelist()
        assert json.loads(archive.read("schema.json"))["__id__"] < 10**6
