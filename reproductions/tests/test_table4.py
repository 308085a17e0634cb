"""The reproduction of PATE 2017's Figure 4, on a few digits and on colors in place of SVHN."""

from dataclasses import replace

import numpy as np
import pytest

from tutelage.exceptions import InvalidDataError
from tutelage_reproductions import protocol, table4
from tutelage_reproductions.datasets import load_digits
from tutelage_reproductions.datasets.images import DIGIT_NAMES, ImageSplit

POOL, HELD_OUT = 400, 100


def votes_on(truth):
    """Votes of 250 teachers, 160 of whom are right."""
    return 160 * np.eye(10, dtype=int)[truth] + 9


@pytest.fixture
def a_little_of_both(monkeypatch, tmp_path):
    """Scikit-learn's digits as large as MNIST's, images of one color per class, and votes on both."""
    digits = load_digits()
    images = digits.X_train[: POOL + HELD_OUT].reshape(-1, 8, 8) * 15
    large = np.pad(images.repeat(3, axis=1).repeat(3, axis=2), ((0, 0), (2, 2), (2, 2)))
    mnist = replace(
        digits, X_test=large.reshape(len(large), -1).astype(np.uint8), y_test=digits.y_train[: len(large)],
        image_shape=(28, 28),
    )  # fmt: skip
    generator = np.random.default_rng(0)
    truth = np.arange(150) % 10
    colors = generator.integers(0, 60, (150, 32, 32, 3))
    colors[np.arange(150), 3 * truth] += 180
    X = colors.reshape(150, -1).astype(np.uint8)
    svhn = ImageSplit(X[:1], truth[:1], X, truth, (32, 32, 3), DIGIT_NAMES, "little")
    np.savez(
        tmp_path / "votes.npz",
        mnist_250_teachers=votes_on(mnist.y_test[:POOL]),
        svhn_250_teachers=votes_on(truth),
    )
    monkeypatch.setattr(table4, "load_mnist", lambda download=False: mnist)
    monkeypatch.setattr(table4, "_svhn", lambda download: svhn)
    monkeypatch.setattr(table4, "published_votes", lambda: tmp_path / "votes.npz")
    monkeypatch.setattr(
        table4, "paper_split", lambda images: protocol.paper_split(images, HELD_OUT)
    )
    monkeypatch.setattr(table4, "HELD_OUT", 50)
    monkeypatch.setattr(table4, "_CHOICES", 5)
    monkeypatch.setattr(table4, "_QUICK_STEPS", 2)
    monkeypatch.setattr(table4, "_MNIST", (table4._Setting(60, 2.04, 98.00), table4._Setting(200)))
    monkeypatch.setattr(table4, "_SVHN", (table4._Setting(80, 5.04, 82.72),))


def test_the_whole_row_of_every_setting_is_one_table(a_little_of_both):
    record = table4.reproduce(quick=True, download=False, progress=False)
    rows = {row.name: row for row in record.rows}
    for name, published in (("MNIST, 60 queries", 2.04), ("SVHN, 80 queries", 5.04)):
        own, exact, any_votes = (
            rows[f"{name}: {kind}"].ours
            for kind in (
                "ε by the paper's method (private)",
                "exact ε (private)",
                "worst-case ε (publishable)",
            )
        )
        assert exact < own
        assert exact < any_votes
        assert rows[f"{name}: ε by the paper's method, first images"].published == published
        assert rows[f"{name}: ε by the paper's method, first images"].ours <= any_votes * 3
        assert rows[f"{name}: correct labels, %"].ours > 90
    assert rows["MNIST, 60 queries: student, %"].published == 98.0
    assert rows["MNIST, 60 queries: student, %"].ours > 70
    student = rows["SVHN, 80 queries: student, %"]
    assert student.published == 82.72
    assert student.interval is not None
    assert student.falls_short  # two steps teach nothing
    assert student.why == "A network has hardly begun to learn after 2 steps."


def test_to_balance_by_label_costs_all_queries(a_little_of_both):
    mnist, votes = (
        table4.load_mnist(),
        table4.VoteHistogram.load(table4.published_votes(), array="mnist_250_teachers"),
    )
    rows = {row.name: row for row in table4._mnist_rows(mnist, votes, 1, progress=False)}
    whole = "MNIST, all 400 queries, to balance by label"
    for kind in ("exact ε (private)", "worst-case ε (publishable)"):
        assert rows[f"{whole}: {kind}"].ours > rows[f"MNIST, 200 queries: {kind}"].ours
    assert rows[f"{whole}: correct labels, %"].ours > 90


def test_without_torch_the_students_of_svhn_are_left_out_and_the_notes_say_so(
    a_little_of_both, monkeypatch
):
    monkeypatch.setattr(table4, "find_spec", lambda name: None)
    record = table4.reproduce(quick=True, download=False, progress=False)
    names = {row.name for row in record.rows}
    assert "SVHN, 80 queries: student, %" not in names
    assert "SVHN, 80 queries: exact ε (private)" in names
    assert "torch is not installed" in " ".join(record.notes)


def test_the_same_choice_of_as_many_queries_is_as_dear_however_often_it_is_drawn(a_little_of_both):
    votes = table4.VoteHistogram(votes_on(np.zeros(30, dtype=int)), 250)
    alike = table4._accountant(votes.first(20)).bound_2017(1e-5).reveal()
    assert table4._dearest(votes, 20, 1e-5) == pytest.approx(alike, rel=1e-12)


def test_of_choices_that_differ_the_dearest_is_told(monkeypatch):
    monkeypatch.setattr(table4, "_CHOICES", 6)
    larger = np.where(np.arange(40) % 4 == 0, 130, 240)  # every fourth query is divided
    votes = table4.VoteHistogram(np.column_stack([larger, 250 - larger]), 250)
    costs = []
    for seed in range(6):
        chosen = np.random.default_rng(seed).permutation(40)[:20]
        costs.append(table4._accountant(votes.select(chosen)).bound_2017(1e-5).reveal())
    assert max(costs) > 1.05 * min(costs)
    assert table4._dearest(votes, 20, 1e-5) == pytest.approx(max(costs), rel=1e-12)


def test_where_all_of_svhn_is_at_hand_its_split_is_the_papers(monkeypatch):
    def svhn(images, name):
        X, y = np.zeros((images, 3), dtype=np.uint8), np.zeros(images, dtype=np.int64)
        return ImageSplit(X[:1], y[:1], X, y, (1, 1, 3), DIGIT_NAMES, name)

    whole, sample = svhn(26_032, "SVHN"), svhn(10_000, "sample of SVHN")
    assert table4._pool_of(whole) == 10_000
    assert "scored on the next 16,032" in table4._about_svhn(whole, 10_000, 5)
    assert "the paper's split" in table4._about_svhn(whole, 10_000, 5)
    assert table4._pool_of(sample) == 9_000
    assert "which are not available: sample of SVHN" in table4._about_svhn(sample, 9_000, 5)

    def missing(download):
        raise InvalidDataError("SVHN is not here.")

    monkeypatch.setattr(table4, "load_svhn", missing)
    monkeypatch.setattr(table4, "load_svhn_sample", lambda: sample)
    assert table4._svhn(download=False) is sample
