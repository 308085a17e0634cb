from functools import partial

import joblib
import numpy as np
import pytest
import torch
from torch import nn

from tutelage._internal.typing import ABSTAIN
from tutelage.exceptions import InvalidParameterError
from tutelage.networks import TwoConvolutions
from tutelage.partition import Shards
from tutelage.privacy import ONE_TEACHER
from tutelage.teachers import Network, NetworkTeachers
from tutelage.teachers.networks.engine import Engine, Shard

SIZES = (30, 17, 0, 1, 9, 25)
SHARDS = Shards(np.repeat(np.arange(len(SIZES)), SIZES), len(SIZES), ONE_TEACHER)


def perceptron(n_classes: int) -> nn.Module:
    return nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, n_classes))


def with_dropout(n_classes: int) -> nn.Module:
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, n_classes))


class InPlace(nn.Linear):
    def forward(self, input):  # noqa: A002
        return super().forward(input.mul_(2) if not self.training else input * 2)


# Rows of three classes that a small network tells apart, and queries.
_RNG = np.random.default_rng(0)
y = _RNG.integers(0, 3, sum(SIZES))
_CENTERS = _RNG.normal(size=(3, 8)) * 1.5
queries = np.repeat(_CENTERS, 40, axis=0) + _RNG.normal(size=(120, 8))
X = _CENTERS[y] + _RNG.normal(size=(len(y), 8))


def teachers(factory=perceptron, n_jobs=None, seed=3, **settings):
    settings = {"epochs": 4, "batch_size": 8, "learning_rate": 0.02, "device": "cpu", **settings}
    return NetworkTeachers(Network(factory, **settings), n_classes=3, seed=seed, n_jobs=n_jobs)


@pytest.mark.rest
def test_networks_learn_and_empty_shards_abstain():
    ballots = teachers(epochs=12).fit_ballots(X, y, SHARDS, queries)
    right = (ballots == np.repeat(np.arange(3), 40)).mean(axis=1)
    assert (ballots[2] == ABSTAIN).all()
    assert (ballots[3] != ABSTAIN).all()  # a shard of one row
    assert min(right[[0, 1, 5]]) > 0.7


def test_stacked_weights_follow_torchs_own_optimiser():
    engine = Engine(perceptron, 3, 6, 8, 0.02, 0.1, torch.device("cpu"))
    shards = [
        Shard(torch.as_tensor(X[rows]).float(), torch.as_tensor(y[rows]), seed)
        for seed, rows in enumerate(SHARDS.rows)
        if len(rows)
    ]
    stacked = engine.train_stack(shards, 0)
    for shard, weights in zip(shards, stacked, strict=True):
        for name, value in engine.train(shard).items():
            torch.testing.assert_close(weights[name], value, rtol=1e-3, atol=1e-4)


def test_one_by_one_is_a_plain_training_loop():
    engine = Engine(perceptron, 3, 3, 8, 0.02, 0.1, torch.device("cpu"))
    mine = SHARDS.rows[1]  # 17 rows: the last single row of each epoch sits out
    rows, labels = torch.as_tensor(X[mine]).float(), torch.as_tensor(y[mine])
    found = engine.train(Shard(rows, labels, 11))
    torch.manual_seed(11)
    module = perceptron(3)
    optimiser = torch.optim.AdamW(module.parameters(), weight_decay=0.1)
    for step, batch in enumerate(engine.batches(17, 11)):
        assert len(batch) == 8
        optimiser.param_groups[0]["lr"] = 0.02 * (1 - step / 6)
        optimiser.zero_grad()
        nn.functional.cross_entropy(module(rows[batch]), labels[batch]).backward()
        optimiser.step()
    for name, value in module.state_dict().items():
        torch.testing.assert_close(found[name], value)


@pytest.mark.parametrize("backend", ["threading", pytest.param("loky", marks=pytest.mark.rest)])
def test_votes_are_the_same_however_the_work_is_spread(backend):
    reference = teachers(with_dropout).fit_ballots(X, y, SHARDS, queries)
    with joblib.parallel_config(backend=backend, n_jobs=2):
        assert np.array_equal(teachers(with_dropout).fit_ballots(X, y, SHARDS, queries), reference)
    kept = teachers(with_dropout).fit(X, y, SHARDS)
    assert np.array_equal(kept.ballots(queries), reference)
    assert not np.array_equal(
        teachers(with_dropout, seed=4).fit_ballots(X, y, SHARDS, queries), reference
    )


def test_layers_that_a_factory_keeps_carry_nothing_from_one_shard_to_the_next():
    shared = nn.Sequential(nn.Linear(8, 12), nn.BatchNorm1d(12), nn.ReLU())
    first = {name: value.clone() for name, value in shared.state_dict().items()}

    def with_shared_layers(n_classes):
        return nn.Sequential(shared, nn.Linear(12, n_classes))

    X_other = X.copy()
    X_other[3] = 100
    before, after = (
        teachers(with_shared_layers, engine="sequential").fit(rows, y, SHARDS).ballots(queries)
        for rows in (X, X_other)
    )
    assert set(np.flatnonzero((before != after).any(axis=1))) <= {0}
    assert all(torch.equal(value, first[name]) for name, value in shared.state_dict().items())


def test_a_module_that_changes_its_input_changes_nobody_elses():
    asked = queries.astype(np.float32)
    for engine in ("sequential", "vectorized"):
        kept = teachers(partial(InPlace, 8), engine=engine).fit(X, y, SHARDS).ballots(asked)
        assert np.array_equal(
            kept, teachers(partial(InPlace, 8), engine=engine).fit_ballots(X, y, SHARDS, asked)
        )
        assert np.array_equal(queries.astype(np.float32), asked)


@pytest.mark.parametrize(("factory", "message"), [
    (lambda n_classes: nn.Linear(8, 7), r"turns 2 rows into scores of shape \(2, 3\). Got \(2, 7\)"),
    (lambda n_classes: nn.Linear(5, 3), r"takes rows of shape \(8,\). It raised RuntimeError"),
])  # fmt: skip
def test_a_module_of_the_wrong_shape_is_found_out_before_training(factory, message):
    with pytest.raises(InvalidParameterError, match=message):
        teachers(factory).fit_ballots(X, y, SHARDS, queries)


@pytest.mark.parametrize(("parameter", "make"), [
    ("image_shape", lambda: TwoConvolutions((8, 8))),
    ("dropout", lambda: TwoConvolutions(dropout=1.0)),
    ("epochs", lambda: Network(perceptron, epochs=0)),
    ("device", lambda: Network(perceptron, device="abacus")),
    ("engine", lambda: Network(perceptron, engine="fast")),  # type: ignore[arg-type]
    ("factory", lambda: Network(perceptron(3))),  # type: ignore[arg-type]
])  # fmt: skip
def test_parameters_out_of_range_are_named(parameter, make):
    with pytest.raises(InvalidParameterError) as refused:
        make().ensemble(n_classes=3, seed=0)
    assert refused.value.parameter == parameter


def test_weights_are_private_files_that_hold_only_numbers_and_are_reused(tmp_path):
    folder = tmp_path / "private"
    first = teachers().fit(X, y, SHARDS, folder)
    files = sorted(folder.iterdir())
    # Nor does a missing file tell an empty shard.
    assert [file.suffix for file in files] == [".safetensors"] * 6
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    written = {file: file.stat().st_mtime_ns for file in files}
    files[1].write_bytes(files[1].read_bytes()[:-10])
    again = teachers().fit(X, y, SHARDS, folder)
    assert np.array_equal(again.ballots(queries), first.ballots(queries))
    changed = {file for file in files if file.stat().st_mtime_ns != written[file]}
    assert changed == {files[1]}
    teachers(epochs=1).fit(X, y, SHARDS, folder)
    assert all(file.stat().st_mtime_ns != written[file] for file in files)
