"""Whether every query gets noise of its own: right mechanisms pass, and each planted reuse is found by name."""

from collections.abc import Callable

import numpy as np
import pytest

from tutelage import ConfidentGNMax, GNMax, LNMax, SimulationNoise
from tutelage._internal.typing import IntArray
from tutelage.audit.checklist import _audit_fresh_noise, _Probe, _telling_probes, check_mechanism
from tutelage.ballots import VoteHistogram
from tutelage.mechanisms import ExponentialMax, InteractiveGNMax, Mechanism, PermuteAndFlip, Release
from tutelage.noise import NoiseSource

pytestmark = pytest.mark.rest

Draw = Callable[[float, VoteHistogram, NoiseSource], IntArray]


def replayed(sigma: float, votes: VoteHistogram, noise: NoiseSource) -> IntArray:
    return SimulationNoise(0).discrete_gaussian(sigma, votes.counts.shape)


def one_for_two_neighbors(sigma: float, votes: VoteHistogram, noise: NoiseSource) -> IntArray:
    queries, classes = votes.counts.shape
    return np.repeat(noise.discrete_gaussian(sigma, (-(-queries // 2), classes)), 2, axis=0)[
        :queries
    ]


def mirrored(sigma: float, votes: VoteHistogram, noise: NoiseSource) -> IntArray:
    drawn = noise.discrete_gaussian(sigma, votes.counts.shape)
    half = len(drawn) // 2
    return np.concatenate([drawn[: len(drawn) - half], drawn[:half][::-1]])


def none_below_100_rows(sigma: float, votes: VoteHistogram, noise: NoiseSource) -> IntArray:
    drawn = noise.discrete_gaussian(sigma, votes.counts.shape)
    return drawn if votes.n_queries >= 100 else 0 * drawn


def none_on_unanimous_votes(sigma: float, votes: VoteHistogram, noise: NoiseSource) -> IntArray:
    drawn = noise.discrete_gaussian(sigma, votes.counts.shape)
    return np.where(votes.counts.max(axis=1, keepdims=True) == votes.n_teachers, 0, drawn)


FAULTS = {
    replayed: "noise is replayed",
    one_for_two_neighbors: "share noise",
    mirrored: "share noise",
    none_below_100_rows: "In batches of less than 100 queries",
    none_on_unanimous_votes: "not as frequent",
}


def plant(monkeypatch: pytest.MonkeyPatch, draw: Draw) -> None:
    """Let every GNMax draw its noise so."""

    def release(
        self: GNMax, votes: VoteHistogram, noise: NoiseSource, predictions: object = None
    ) -> Release:
        labels = np.argmax(votes.counts + draw(self.sigma, votes, noise), axis=1)
        return Release(labels, self.event(votes, simulated=noise.simulated))

    monkeypatch.setattr(GNMax, "release", release)


def verdicts(mechanism: Mechanism) -> dict[str, tuple[str, str]]:
    found = check_mechanism(mechanism, 50, 3, draws=2_000, noise=SimulationNoise(1))
    return {one.check: (one.verdict, one.reason) for one in found}


@pytest.mark.parametrize("draw", FAULTS)
def test_the_audit_of_a_configuration_finds_missing_and_reused_noise(draw, monkeypatch):
    plant(monkeypatch, draw)
    verdict, reason = verdicts(GNMax(10.0))["noise of its own for every query"]
    assert verdict == "fail"
    assert FAULTS[draw] in reason


def test_noise_drawn_through_the_planted_release_rightly_passes(monkeypatch):
    plant(
        monkeypatch, lambda sigma, votes, noise: noise.discrete_gaussian(sigma, votes.counts.shape)
    )
    assert {verdict for verdict, _ in verdicts(GNMax(10.0)).values()} == {"pass"}


@pytest.mark.parametrize(("mechanism", "teachers"), [
    (LNMax(5.0), 50), (GNMax(1e-3), 2), (GNMax(40.0), 50), (ExponentialMax(5.0), 2), (PermuteAndFlip(5.0), 50),
    (ConfidentGNMax(30.0, 20.0, 5.0), 50), (ConfidentGNMax(-3.0, 2.0, 2.0), 2),
    (InteractiveGNMax(10.0, 8.0, 5.0, 0.4), 50),
])  # fmt: skip
def test_right_mechanisms_pass_with_few_teachers_and_little_noise(mechanism, teachers):
    for kind, probe in _telling_probes(mechanism, teachers, 3 if teachers > 2 else 2):
        found = _audit_fresh_noise(kind, probe, SimulationNoise(3))
        assert not found


def test_a_check_that_shares_its_noise_is_found(monkeypatch):
    def release(self, votes, noise, predictions=None):
        shared = noise.discrete_gaussian(self.sigma_threshold, (1,))
        passed = votes.counts.max(axis=1) + shared >= self.threshold
        labels = np.argmax(
            votes.counts + noise.discrete_gaussian(self.sigma_vote, votes.counts.shape), axis=1
        )
        return Release(
            np.where(passed, labels, -1),
            self.event(votes, simulated=noise.simulated),
            by_vote=passed,
        )

    monkeypatch.setattr(ConfidentGNMax, "release", release)
    mechanism = ConfidentGNMax(30.0, 20.0, 5.0)
    found = _audit_fresh_noise(mechanism, _Probe((30, 30)), SimulationNoise(0))
    assert any("share noise" in reason for reason in found)
