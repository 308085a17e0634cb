import numpy as np
import pytest

from conftest import GOLDEN
from tutelage.ballots import VoteHistogram
from tutelage_reproductions import svhn_student
from tutelage_reproductions.datasets.images import DIGIT_NAMES, ImageSplit


@pytest.fixture
def a_little_svhn(monkeypatch):
    """Color images of the classes that golden votes have, as if they were SVHN's."""
    votes = VoteHistogram.load(GOLDEN / "votes.npz", array="mnist_like_100")
    truth = np.concatenate([votes.counts.argmax(axis=1), np.arange(20) % 10])
    generator = np.random.default_rng(0)
    X = generator.integers(0, 60, (len(truth), 32, 32, 3))
    X[np.arange(len(truth)), 3 * truth] += 180
    X = X.reshape(len(X), -1).astype(np.uint8)
    images = ImageSplit(X[:1], truth[:1], X, truth, (32, 32, 3), DIGIT_NAMES, "little")
    monkeypatch.setattr(svhn_student, "load_svhn_sample", lambda: images)
    monkeypatch.setattr(svhn_student, "published_votes", lambda: GOLDEN / "votes.npz")
    monkeypatch.setattr(
        svhn_student,
        "VoteHistogram",
        type("Votes", (), {"load": staticmethod(lambda path, array: votes)}),
    )
    monkeypatch.setattr(svhn_student, "_POOL", votes.n_queries)
    monkeypatch.setattr(svhn_student, "_HELD_OUT", 20)
    monkeypatch.setattr(svhn_student, "_ASKED", votes.n_queries - 5)
    monkeypatch.setattr(svhn_student, "_QUICK_STEPS", 2)
    return votes


def test_a_student_of_svhn_is_reproduced(a_little_svhn):
    record = svhn_student.reproduce(quick=True, download=False, progress=False)
    assert record.name == "svhn-student"
    rows = {row.name: row for row in record.rows}
    assert 0 < rows["exact ε (private)"].ours < rows["worst-case ε"].ours
    assert rows["exact ε (private)"].published == 4.96
    assert 0 < rows["queries labeled"].ours < a_little_svhn.n_queries
    assert rows["correct labels, %"].ours > 60
    for name in ("supervised only", "consistency training"):
        row = rows[f"student, {name}: held-out, %"]
        assert row.interval is not None
        assert row.interval[0] <= row.ours <= row.interval[1]
        assert row.at_least is None  # the quick form promises nothing


def test_answers_are_for_asked_rows_only(a_little_svhn):
    released = svhn_student._answers(a_little_svhn)
    asked = np.random.default_rng(0).permutation(a_little_svhn.n_queries)[
        : a_little_svhn.n_queries - 5
    ]
    assert set(np.flatnonzero(released.labels >= 0)) <= set(asked)
