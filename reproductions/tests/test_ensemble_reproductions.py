from dataclasses import replace

import numpy as np
import pytest
from joblib import parallel_config

from conftest import GOLDEN
from tutelage.ballots import VoteHistogram
from tutelage.exceptions import InvalidDataError
from tutelage.privacy import ONE_TEACHER
from tutelage_reproductions import fig2, fig3, mnist_baseline, protocol, svhn_baseline
from tutelage_reproductions.datasets.images import DIGIT_NAMES, ImageSplit
from tutelage_reproductions.figures import Figure, Panels, Series
from tutelage_reproductions.protocol import Networks, TeacherBallots
from tutelage_reproductions.record import Record, Row


def made_up(shape: tuple[int, ...], n_train: int, n_test: int) -> ImageSplit:
    """Noise with a bright block at a place of its own for each of the ten digits."""
    generator = np.random.default_rng(0)
    y = np.arange(n_train + n_test) % 10
    X = generator.integers(0, 120, (len(y), *shape))
    for row, label in enumerate(y):
        top, left = 6 + 8 * (label // 5), 4 + 4 * (label % 5)
        X[row, top : top + 6, left : left + 4] = 255
    X = X.reshape(len(y), -1).astype(np.uint8)
    return ImageSplit(
        X[:n_train], y[:n_train], X[n_train:], y[n_train:], shape, DIGIT_NAMES, "made up"
    )


def between(row: Row) -> bool:
    """Return whether a row lies in its interval."""
    return row.interval is not None and row.interval[0] <= row.ours <= row.interval[1]


def curves(record: Record) -> dict[str, Series]:
    figures = record.figure.figures if isinstance(record.figure, Panels) else (record.figure,)
    return {
        series.name: series
        for figure in figures
        if isinstance(figure, Figure)
        for series in figure.series
    }


def not_found(*arguments: object, **named: object) -> None:
    raise InvalidDataError("Nothing is here.")


@pytest.fixture(autouse=True)
def one_process():
    """Starting others takes longer than the little that is trained here."""
    with parallel_config(backend="sequential"):
        yield


@pytest.fixture
def little_mnist(monkeypatch):
    images = made_up((28, 28), 400, 250)
    for module in (mnist_baseline, fig2, fig3):
        monkeypatch.setattr(module, "load_mnist", lambda download: images)
    monkeypatch.setattr(mnist_baseline, "_PUBLIC", 200)
    monkeypatch.setattr(mnist_baseline, "_EPOCHS", 2)
    monkeypatch.setattr(mnist_baseline, "_BATCH", 16)
    monkeypatch.setattr(mnist_baseline, "_SEEDS", 2)
    return images


def test_mnist_without_privacy_has_networks_and_formulas(little_mnist):
    record = mnist_baseline.reproduce(quick=False, download=False, progress=False)
    network, *formulas = record.rows
    assert network.published == 99.18
    assert between(network)
    assert 80 < network.ours <= 100
    assert [row.name.removesuffix(": accuracy, %") for row in formulas] == list(
        mnist_baseline._MODELS
    )
    for row in formulas:
        assert between(row)
        assert row.ours > 80
    assert not record.quick


def test_the_quick_form_of_a_baseline_says_so(little_mnist):
    record = mnist_baseline.reproduce(quick=True, download=False, progress=False)
    network, _ = record.rows
    assert record.quick
    assert network.falls_short
    assert network.why == "The quick form trains for 1 epoch."


def test_without_torch_the_formulas_remain(little_mnist, monkeypatch):
    monkeypatch.setattr(mnist_baseline, "find_spec", lambda name: None)
    record = mnist_baseline.reproduce(quick=True, download=False, progress=False)
    assert [row.name for row in record.rows] == ["class means: accuracy, %"]
    assert "torch is not installed" in record.notes[-1]


@pytest.fixture
def little_svhn(monkeypatch):
    """A sample of SVHN whose own files are not there."""
    images = made_up((32, 32, 3), 100, 160)
    monkeypatch.setattr(svhn_baseline, "load_svhn", not_found)
    monkeypatch.setattr(svhn_baseline, "load_svhn_sample", lambda: images)
    monkeypatch.setattr(svhn_baseline, "_PUBLIC", 60)
    monkeypatch.setattr(svhn_baseline, "_SAMPLE_EPOCHS", 1)
    return images


def test_a_sample_of_svhn_is_called_another_experiment(little_svhn):
    record = svhn_baseline.reproduce(quick=False, download=False, progress=False)
    (row,) = record.rows
    assert row.name == "two convolutions, 160 training images, test[60:160]: accuracy, %"
    assert row.published == 92.8
    assert row.falls_short
    assert row.why is not None
    assert "the network trains on 160 images, 60 of them test images" in row.why
    assert row.why in " ".join(record.notes)


def test_images_that_score_are_not_learned_from(little_svhn):
    part = svhn_baseline._sample()
    assert np.array_equal(part.images.X_test, little_svhn.X_test[60:])
    assert np.array_equal(part.images.X_train[-60:], little_svhn.X_test[:60])
    assert np.array_equal(part.images.y_train[-60:], little_svhn.y_test[:60])


@pytest.mark.parametrize("extra", [False, True])
def test_svhn_itself_is_preferred_to_its_sample(little_svhn, monkeypatch, extra):
    whole = replace(little_svhn, name="SVHN with its extra images" if extra else "SVHN")

    def found(*, extra: bool, download: bool) -> ImageSplit | None:
        return whole if extra == whole.name.endswith("extra images") else not_found()

    monkeypatch.setattr(svhn_baseline, "load_svhn", found)
    part = svhn_baseline._at_hand(download=False)
    assert part.images is whole
    assert part.scored == "all test images"
    assert ("were not found" in part.differs) is not extra


def test_networks_are_trained_once_in_a_process(monkeypatch):
    from tutelage.teachers import NetworkTeachers

    images, fits = made_up((28, 28), 120, 20), []
    fit = NetworkTeachers.fit_ballots

    def counted(self, X, *arguments):
        fits.append(len(X))
        return fit(self, X, *arguments)

    monkeypatch.setattr(NetworkTeachers, "fit_ballots", counted)
    found = protocol.ballots_of(images, Networks(4, 1), progress=False)
    assert protocol.ballots_of(images, Networks(4, 1), progress=False) is found
    part = protocol.ballots_of(images, Networks(4, 1, trained=2), progress=False)
    assert fits[0] == 120 > fits[1]
    assert len(fits) == 2
    assert np.array_equal(part.ballots, found.ballots[:2])
    assert found.votes(10).n_teachers == 4
    assert "ballots" not in repr(found)


def test_labels_that_are_not_svhns_are_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(protocol.releases, "search_places", lambda folder: [tmp_path])
    monkeypatch.setattr(protocol, "load_svhn", lambda download: made_up((32, 32, 3), 10, 10))
    assert np.array_equal(protocol.svhn_test_labels(download=False), np.arange(10))
    np.savez(tmp_path / "svhn_labels.npz", y_test=np.zeros(26_032, dtype=np.uint8))
    with pytest.raises(InvalidDataError, match=r"y_test in .* is not SVHN's"):
        protocol.svhn_test_labels(download=False)


@pytest.fixture
def given_ballots(monkeypatch, little_mnist):
    """Teachers of whom the same share is right on every image, the others all of one other class."""
    right = {10: 0.8, 25: 0.8, 50: 0.8, 100: 0.8, 250: 0.8}

    def ballots_of(images: ImageSplit, networks: Networks, *, progress: bool) -> TeacherBallots:
        n = networks.n_teachers
        ballots = np.tile(images.y_test, (n, 1))
        ballots[round(right[n] * n) :] = (images.y_test + 1) % 10
        return TeacherBallots(ballots.astype(np.int16), ONE_TEACHER, 1.0)

    votes = VoteHistogram.load(GOLDEN / "votes.npz", array="mnist_like_100")
    for module in (fig2, fig3):
        monkeypatch.setattr(module, "ballots_of", ballots_of)
        monkeypatch.setattr(module, "published_mnist_votes", lambda: votes)
        monkeypatch.setattr(module, "published_svhn_votes", lambda: votes)
    monkeypatch.setattr(fig2, "svhn_test_labels", lambda download: votes.counts.argmax(axis=1))
    monkeypatch.setattr(fig2, "load_svhn", not_found)
    monkeypatch.setattr(fig2, "_DRAWS", 3)
    return right


def test_noise_hurts_small_ensembles_more(given_ballots):
    record = fig2.reproduce(quick=False, download=False, progress=False)
    rows = {row.name: row for row in record.rows}

    def right(n: int, gamma: float) -> float:
        return rows[f"MNIST, {n} networks, γ = {gamma:g}: accuracy, %"].ours

    assert right(10, 0.01) < right(100, 0.01) < right(250, 0.01) < right(250, 0.05)
    assert right(250, 1.0) == 100
    assert rows["MNIST, γ up to 0.05: largest fall where teachers are added, points"].ours == 0
    assert rows["MNIST, 250 networks, γ = 0.05: accuracy, %"].published == 93.18
    assert rows["MNIST, 250 networks, γ = 0.05: accuracy, %"].why
    assert rows["MNIST, 10 networks, γ = 0.05: accuracy, %"].published is None
    agreed = rows["SVHN, 250 published teachers: mean teacher, %"]
    assert between(agreed)
    assert agreed.ours < 100
    assert "10 and 100 teachers of SVHN are left out" in " ".join(record.notes)
    drawn = curves(record)
    for name in ("MNIST, 250 networks", "SVHN, 250 published teachers"):
        interval = drawn[name].interval
        assert interval is not None
        low, high = interval
        assert all(
            below <= y <= above for below, y, above in zip(low, drawn[name].y, high, strict=True)
        )


def test_more_teachers_that_are_worse_are_reported(given_ballots):
    given_ballots[250] = 0.4
    record = fig2.reproduce(quick=False, download=False, progress=False)
    rows = {row.name: row for row in record.rows}
    fall = rows["MNIST, γ up to 0.05: largest fall where teachers are added, points"]
    assert fall.ours > 50
    assert fall.falls_short


def test_svhn_at_hand_adds_its_networks(given_ballots, monkeypatch):
    images = made_up((32, 32, 3), 10, 40)
    monkeypatch.setattr(fig2, "load_svhn", lambda download: images)
    names = {row.name for row in fig2.reproduce(quick=False, download=False, progress=False).rows}
    assert "SVHN, 100 networks, γ = 1: accuracy, %" in names


def test_votes_that_are_missing_are_named(given_ballots, monkeypatch):
    for module in (fig2, fig3):
        monkeypatch.setattr(module, "published_mnist_votes", not_found)
        monkeypatch.setattr(module, "published_svhn_votes", not_found)
        record = module.reproduce(quick=True, download=False, progress=False)
        assert record.rows
        assert "left out: Nothing is here." in " ".join(record.notes)
        monkeypatch.setattr(module, "find_spec", lambda name: None)
        with pytest.raises(InvalidDataError, match="There are no votes"):
            module.reproduce(quick=True, download=False, progress=False)


def test_gaps_are_shares_of_the_teachers(given_ballots):
    given_ballots[250] = 0.7
    record = fig3.reproduce(quick=False, download=False, progress=False)
    rows = {row.name: row for row in record.rows}
    assert rows["10 networks on MNIST: gap, % of the teachers"].ours == pytest.approx(60)
    below = rows["250 networks on MNIST: gap, % of the teachers"]
    assert below.ours == pytest.approx(40)
    assert below.falls_short
    assert "250 published teachers on SVHN: gap, % of the teachers" in rows
    assert curves(record)["networks on MNIST"].x == (10, 25, 50, 100, 250)
