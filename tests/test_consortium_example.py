import importlib
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from conftest import REPOSITORY
from tutelage.events import Composed, NoisySumGaussian, SummedNoise
from tutelage.exceptions import OverlappingShardsError
from tutelage.ledger import Ledger
from tutelage.mechanisms import GNMax
from tutelage.partition import refuse_overlap
from tutelage.privacy import NeighboringRelation, PrivacyUnit
from tutelage.teachers import VectorBallots
from tutelage_reproductions.datasets.diabetes import FEATURES, HospitalStays, split_by_patient

pytestmark = pytest.mark.rest
FOLDER = REPOSITORY / "examples" / "consortium"
FILES = ("stays", "deal", "hospital", "run", "sums")


@pytest.fixture
def example(monkeypatch):
    """The files of the example, which find each other as scripts of one folder do."""
    monkeypatch.syspath_prepend(str(FOLDER))
    pytest.importorskip("cryptography")
    yield SimpleNamespace(**{name: importlib.import_module(name) for name in FILES})
    for name in FILES:
        del sys.modules[name]


@pytest.fixture
def split():
    """6,000 stays of 4,000 patients; who was in hospital before comes back within 30 days."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 8, (6000, len(FEATURES)))
    y = (X[:, FEATURES.index("number_inpatient")] < 4).astype(np.int64)
    stays = HospitalStays(X, y, patients=rng.integers(0, 4000, 6000), encounters=np.arange(6000))
    return split_by_patient(stays, key=b"the key of a test", balanced=False)


def dealt(example: Any, split: Any, folder: Any) -> list[Any]:
    example.deal.deal(split, folder, key=b"another key of a test")
    return [dict(np.load(folder / name / "stays.npz")) for name in example.deal.HOSPITALS]


def test_every_private_stay_is_in_one_hospital_and_every_patient_too(example, split, tmp_path):
    hospitals = dealt(example, split, tmp_path)
    assert sum(len(each["y"]) for each in hospitals) == len(split.private)
    assert min(len(each["y"]) for each in hospitals) > 250
    patients = np.concatenate([each["patients"] for each in hospitals])
    refuse_overlap(np.repeat(np.arange(10), [len(each["y"]) for each in hospitals]), patients)
    with pytest.raises(OverlappingShardsError):
        refuse_overlap(np.arange(len(patients)) % 10, patients)
    assert set(hospitals[0]) == {"X", "y", "patients"}
    assert np.array_equal(np.load(tmp_path / "public.npy"), split.public.X)


def test_one_patient_moves_one_teacher_of_one_hospital(example, split, tmp_path):
    encode, own = example.stays.Encoder(split.public.X), dealt(example, split, tmp_path)[3]
    rows = encode(split.public.X[:200])
    before = example.hospital.ballots(encode(own["X"]), own["y"], own["patients"], rows, key=bytes(32))
    assert before.shape == (25, 200)
    gone = own["patients"] != own["patients"][0]
    after = example.hospital.ballots(encode(own["X"][gone]), own["y"][gone], own["patients"][gone], rows, key=bytes(32))
    assert np.any(before != after, axis=1).sum() <= 1
    flipped = np.where(gone, own["y"], 1 - own["y"])
    changed = example.hospital.ballots(encode(own["X"]), flipped, own["patients"], rows, key=bytes(32))
    assert np.any(before != changed, axis=1).sum() == 1


PATIENT = PrivacyUnit("patient_nbr", NeighboringRelation.ADD_REMOVE_OR_CHANGE_WITHIN_SILO)


def ledger_of(run: Any) -> Ledger:
    return Ledger.in_memory(epsilon=run.EPSILON, delta=run.DELTA, unit=PATIENT)


def test_the_noise_and_the_number_of_queries_fit_the_budget(example):
    from tutelage.federation.costs import event_of_one

    run = example.run
    event = event_of_one(GNMax(run.SIGMA), 2, PATIENT, run.QUORUM - run.COLLUDING)
    assert 300 <= ledger_of(run).fitting(event) < 330


def test_the_noise_of_the_sums_fits_the_budget(example):
    run, sums, norm = example.run, example.sums, VectorBallots().norm

    def fits(noise):
        shares, honest = (0.7, 0.3), run.QUORUM - run.COLLUDING
        assert len(shares) == sums.ROUNDS
        rounds = [NoisySumGaussian(noise / share**0.5 * norm, norm**2, 2002, PATIENT) for share in shares]
        event = Composed(tuple(SummedNoise(one, honest) for one in rounds))
        return ledger_of(run).share_of(event) <= run.EPSILON

    assert fits(sums.NOISE)
    assert not fits(sums.NOISE - 0.1)


PLAYS = [
    ("run", 55, 0.9911, 30),  # 60.1 % on average, with a standard deviation of 0.9
    ("sums", 57, 0.9139, 60),  # 60.5 % on average, with a standard deviation of 0.7
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "right", "epsilon", "envelopes"), PLAYS)
def test_the_whole_play(name, right, epsilon, envelopes, example, tmp_path, data_folder, capsys):
    if not (data_folder / "diabetes130.csv.gz").is_file():
        pytest.skip("diabetes130.csv.gz is not in TUTELAGE_DATA")
    getattr(example, name).main(tmp_path)
    printed = capsys.readouterr().out
    assert float(printed.split(" %  student")[0].split()[-1]) > right
    assert f"ε = {epsilon:.4f} at δ = 1e-05" in printed
    assert len(list((tmp_path / "mailbox" / "shares").rglob("*.sealed"))) == envelopes
