import importlib
import sys
import tomllib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from conftest import REPOSITORY
from tutelage.events import Composed, NoisyArgmaxGaussian, NoisySumGaussian, SummedNoise
from tutelage.features import Schema
from tutelage.ledger import Ledger
from tutelage.mechanisms import NoisySum
from tutelage.methods import Additive, Sizes
from tutelage.partition import refuse_overlap
from tutelage.privacy import NeighboringRelation, PrivacyUnit
from tutelage.tables import read_table
from tutelage.teachers import VectorBallots
from tutelage_reproductions.datasets.diabetes import FEATURES, HospitalStays, split_by_patient

pytestmark = pytest.mark.rest
FOLDER = REPOSITORY / "examples" / "consortium"
FILES = ("stays", "deal", "hospital", "run", "sums", "schema")


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
    assert set(hospitals[0]) == {"X", "y", "patients"}
    assert np.array_equal(np.load(tmp_path / "public.npy"), split.public.X)


def test_one_patient_moves_one_teacher_of_one_hospital(example, split, tmp_path):
    encode, own = example.stays.Encoder(split.public.X), dealt(example, split, tmp_path)[3]
    gone, queries = own["patients"] != own["patients"][0], encode(split.public.X[:200])

    def ballots(y, kept=slice(None)):
        return example.hospital.ballots(encode(own["X"][kept]), y[kept], own["patients"][kept], queries, key=bytes(32))

    before, flipped = ballots(own["y"]), np.where(gone, own["y"], 1 - own["y"])
    assert before.shape == (25, 200)
    assert np.any(before != ballots(own["y"], gone), axis=1).sum() <= 1
    assert np.any(before != ballots(flipped), axis=1).sum() == 1


PATIENT = PrivacyUnit("patient_nbr", NeighboringRelation.ADD_REMOVE_OR_CHANGE_WITHIN_SILO)


def test_the_noise_of_the_votes_and_of_the_sums_fits_the_budget(example):
    run, sums, norm = example.run, example.sums, VectorBallots().norm
    honest = run.QUORUM - run.COLLUDING
    ledger = Ledger.in_memory(epsilon=run.EPSILON, delta=run.DELTA, unit=PATIENT)
    assert 300 <= ledger.fitting(SummedNoise(NoisyArgmaxGaussian(run.SIGMA, 2, PATIENT), honest)) < 330

    def fits(noise):
        shares = (0.7, 0.3)
        assert len(shares) == sums.ROUNDS
        rounds = [NoisySumGaussian(noise / share**0.5 * norm, norm**2, 2002, PATIENT) for share in shares]
        event = Composed(tuple(SummedNoise(one, honest) for one in rounds))
        return ledger.share_of(event) <= run.EPSILON

    assert fits(sums.NOISE)
    assert not fits(sums.NOISE - 0.1)


def test_three_hospitals_with_a_schema_write_tables_that_the_budget_allows_to_be_asked(example, split, tmp_path):
    schema, run = example.schema, example.run
    example.deal.deal(split, tmp_path, key=b"another key of a test", names=schema.HOSPITALS)
    columns, tables = Schema(tomllib.loads(schema.SCHEMA)["schema"]), []
    for name in schema.HOSPITALS:
        schema.write_table(tmp_path / name)
        tables.append(read_table(tmp_path / name / "stays.csv"))
    assert sum(table.n_rows for table in tables) == len(split.private)
    assert {*columns.names, "y", "ids"} <= set(tables[0].columns)
    np.testing.assert_array_equal(columns.transform(schema.named(split.private)).max(axis=0) > 0, True)
    sizes = Sizes(n_classes=2, n_public=0, unit=PATIENT, bins=columns.bins)
    ledger = Ledger.in_memory(epsilon=run.EPSILON, delta=run.DELTA, unit=PATIENT)

    def share(noise):
        whole: Any = Additive(NoisySum(noise)).event_of_sums(sizes)
        return ledger.share_of(Composed(tuple(SummedNoise(one.event, 2) for one in whole.flatten())))

    assert share(schema.NOISE) <= run.EPSILON < share(schema.NOISE - 0.1)


# 60.1 %, 60.5 % and 60.1 % are right on average, with standard deviations of 0.9, 0.7 and 1.0.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "right", "epsilon", "envelopes"),
    [("run", 55, 0.9911, 30), ("sums", 57, 0.9139, 60), ("schema", 56, 0.9139, 27)],
)
def test_the_whole_play(name, right, epsilon, envelopes, example, tmp_path, data_folder, capsys):
    if not (data_folder / "diabetes130.csv.gz").is_file():
        pytest.skip("diabetes130.csv.gz is not in TUTELAGE_DATA")
    getattr(example, name).main(tmp_path)
    printed = capsys.readouterr().out
    assert float(printed.split(" %  student")[0].split()[-1]) > right
    assert f"ε = {epsilon:.4f} at δ = 1e-05" in printed
    assert len(list((tmp_path / "mailbox" / "shares").rglob("*.sealed"))) == envelopes
