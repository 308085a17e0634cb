import threading

import numpy as np
import pytest

from tutelage import GNMax, LabelingSession, Ledger, SimulationNoise
from tutelage._internal.typing import ABSTAIN
from tutelage.exceptions import (
    InvalidDataError,
    InvalidParameterError,
    TeacherLostWarning,
    TeacherTrainingError,
)
from tutelage.privacy import ONE_TEACHER
from tutelage.teachers import CallableTeachers, RecordedTeachers

TEXTS = np.array(["win cash now", "see you at six", "free cash", "lunch?"])
BALLOTS = np.array([[1, 0, 1, 0], [1, 0, ABSTAIN, 0], [0, 0, 1, 1]])


def voting(*words):
    return lambda texts: [int(any(word in text for word in words)) for text in texts]


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_callables_vote_in_a_session(n_jobs):
    voters = [voting(word) for word in ("win", "cash", "free")]
    teachers = CallableTeachers(voters, n_classes=2, unit=ONE_TEACHER, max_workers=n_jobs)
    assert teachers.ballots(TEXTS).tolist() == [[1, 0, 0, 0], [1, 0, 1, 0], [0, 0, 1, 0]]
    ledger = Ledger.in_memory(epsilon=100.0, delta=1e-5, unit=ONE_TEACHER)
    session = LabelingSession(teachers, GNMax(0.3), ledger, noise=SimulationNoise(0))
    assert session.ask(TEXTS).labels.tolist() == [1, 0, 1, 0]
    assert session.ask(TEXTS[::-1]).cost == 0


@pytest.mark.parametrize("answer", [[0, 1], [0, 1, 2, 0], [0.0, 1.0, 0.0, 1.0], None])
def test_a_teacher_whose_answer_is_no_ballot_abstains(answer):
    teachers = CallableTeachers(
        [voting("win"), lambda texts: answer], n_classes=2, unit=ONE_TEACHER
    )
    with pytest.warns(TeacherLostWarning, match="At least one teacher abstains"):
        assert teachers.ballots(TEXTS).tolist() == [voting("win")(TEXTS), [ABSTAIN] * 4]
    alone = CallableTeachers([lambda texts: answer], n_classes=2, unit=ONE_TEACHER)
    with pytest.raises(
        TeacherTrainingError, match=r"(must be integers, one for each)|(must be -1 \(abstain\))"
    ):
        alone.ballots(TEXTS)


def failing(texts):
    raise KeyError("the row of Mrs Miller")


def test_a_teacher_that_fails_abstains_and_its_message_does_not_come_out():
    teachers = CallableTeachers([voting("win"), failing], n_classes=2, unit=ONE_TEACHER)
    with pytest.warns(TeacherLostWarning) as caught:
        assert teachers.ballots(TEXTS).tolist() == [voting("win")(TEXTS), [ABSTAIN] * 4]
    assert "Miller" not in str(caught[0].message)
    with pytest.raises(
        TeacherTrainingError, match="Teacher 0 of CallableTeachers raised KeyError"
    ) as refused:
        CallableTeachers([failing], n_classes=2, unit=ONE_TEACHER).ballots(TEXTS)
    assert "Miller" not in str(refused.value)
    assert refused.value.__context__ is None


class UnreachableError(Exception):
    """What clients of services raise, with the reason behind it."""


@pytest.mark.parametrize("error", [ConnectionResetError, MemoryError, UnreachableError])
def test_nobody_abstains_because_of_what_others_use(error):
    def busy(texts):
        raise error from OSError("the row of Mrs Miller")

    teachers = CallableTeachers([voting("win"), busy], n_classes=2, unit=ONE_TEACHER)
    with pytest.raises(
        TeacherTrainingError, match=f"Teacher 1 of CallableTeachers raised {error.__name__}"
    ) as refused:
        teachers.ballots(TEXTS)
    assert "Miller" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [("teachers", ["http://model"]), ("unit", "patient"), ("max_workers", 0)],
)
def test_parameters_out_of_range_are_named(name, value):
    with pytest.raises(InvalidParameterError) as refused:
        CallableTeachers(
            **{"teachers": [voting("win")], "n_classes": 2, "unit": ONE_TEACHER, name: value}
        )
    assert refused.value.parameter == name


def test_ballots_from_a_file_answer_any_of_their_rows(tmp_path):
    np.savez(tmp_path / "ballots.npz", ballots=BALLOTS, spare=BALLOTS[:1])
    teachers = RecordedTeachers.load(tmp_path / "ballots.npz", TEXTS, n_classes=2, unit=ONE_TEACHER)
    assert teachers.ballots(TEXTS[[2, 0, 2]]).tolist() == BALLOTS[:, [2, 0, 2]].tolist()
    assert (teachers.n_classes, teachers.unit) == (2, ONE_TEACHER)
    with pytest.raises(InvalidDataError, match="not among those that the ballots were cast on"):
        teachers.ballots(np.array(["a new text"]))


@pytest.mark.parametrize(("ballots", "rows", "message"), [
    (BALLOTS[:, :3], TEXTS, "one for each of the 4 rows asked"),
    (BALLOTS * 1.0, TEXTS, "must be integers"),
    (BALLOTS + 1, TEXTS, "class index below 2"),
    (BALLOTS, np.array(["a", "b", "a", "c"]), "holds a row twice, with other ballots"),
])  # fmt: skip
def test_ballots_that_do_not_fit_their_rows_are_refused(ballots, rows, message):
    with pytest.raises(InvalidDataError, match=message):
        RecordedTeachers(ballots, rows, n_classes=2, unit=ONE_TEACHER)


def test_a_slow_teacher_delays_and_does_not_disorder():
    other_is_done = threading.Event()

    def slow(texts):
        other_is_done.wait()
        return [1] * len(texts)

    def quick(texts):
        other_is_done.set()
        return [0] * len(texts)

    teachers = CallableTeachers([slow, quick], n_classes=2, unit=ONE_TEACHER, max_workers=2)
    assert teachers.ballots(TEXTS).tolist() == [[1] * 4, [0] * 4]
