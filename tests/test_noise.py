"""The noise has the claimed distribution: the right scale passes, ×0.7 and ×1.3 fail, and so do planted faults.

Each test draws afresh from the operating system, so its error rates are chosen: a right sampler is rejected with
probability 1e-9 (`ALPHA`), and with these sample sizes a wrong scale passes with probability far below 1e-9.
"""

import os
from functools import partial

import numpy as np
import pytest
from scipy import stats

from exact import discrete_gaussian_masses, discrete_laplace_masses
from processes import forked
from tutelage.exceptions import InvalidParameterError
from tutelage.noise import SimulationNoise, SystemNoise

ALPHA = 1e-9
DRAWS = 20_000
SOURCES = [
    pytest.param(SystemNoise(), id="system"),
    pytest.param(SimulationNoise(seed=7), id="simulation"),
]
KINDS = {
    "discrete_laplace": (discrete_laplace_masses, 40),
    "discrete_gaussian": (discrete_gaussian_masses, 12),
}


def p_value(draws: np.ndarray, masses, reach_factor: float, scale: float) -> float:
    """Return the χ² p-value of `draws` against the masses, bins of at least 50 expected draws."""
    reach = int(np.ceil(reach_factor * scale)) + 5
    expected = masses(scale, reach) * draws.size
    observed = np.bincount(np.clip(draws, -reach, reach) + reach, minlength=2 * reach + 1)
    edges = np.flatnonzero(np.diff(np.floor(np.cumsum(expected) / 50), prepend=0) > 0)
    starts = np.concatenate([[0], edges[:-1] + 1])
    seen, wanted = np.add.reduceat(observed, starts), np.add.reduceat(expected, starts)
    return stats.chisquare(seen, wanted * seen.sum() / wanted.sum()).pvalue


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [0.7, 40.0])
def test_scale_is_right_and_neither_smaller_nor_larger(source, kind, scale):
    masses, reach = KINDS[kind]
    draws = getattr(source, kind)(scale, (DRAWS,))
    judge = partial(p_value, draws, masses, reach)
    assert judge(scale) > ALPHA
    assert judge(0.7 * scale) < ALPHA
    assert judge(1.3 * scale) < ALPHA


@pytest.mark.parametrize("kind", KINDS)
def test_coordinates_are_independent_integers(kind):
    draws = getattr(SystemNoise(), kind)(20.0, (DRAWS, 2))
    assert draws.dtype == np.int64
    assert draws.shape == (DRAWS, 2)
    correlation = np.corrcoef(draws.T)[0, 1]
    assert abs(correlation) < stats.norm.isf(ALPHA / 2) / np.sqrt(DRAWS)


def test_forked_processes_draw_different_noise():
    # So that children inherit a sampler that was used.
    SystemNoise().discrete_gaussian(1000.0, (16,))
    read, write = os.pipe()
    draw = SystemNoise().discrete_gaussian
    children = [forked(lambda: os.write(write, draw(1000.0, (16,)).tobytes())) for _ in range(16)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 16
    streams = np.frombuffer(os.read(read, 16 * 16 * 8), dtype=np.int64).reshape(16, 16)
    assert len(np.unique(streams, axis=0)) == 16


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("scale", [float("nan"), "20", True, 1e-7, 1e16])
def test_a_scale_that_is_no_usable_number_is_refused(source, scale):
    for kind in KINDS:
        with pytest.raises(InvalidParameterError, match="must be a number of votes between"):
            getattr(source, kind)(scale, (2,))


def test_the_widest_noise_stays_far_from_the_limit_of_its_integers():
    widest = np.abs(SystemNoise().discrete_laplace(1e15, (1000,)))
    assert widest.min() >= 0
    assert widest.max() < 2**62


def test_only_the_simulation_takes_a_seed():
    for same, sources in (
        (True, (SimulationNoise(3), SimulationNoise(3))),
        (False, (SystemNoise(), SystemNoise())),
    ):
        one, other = (source.discrete_laplace(5.0, (50,)) for source in sources)
        assert np.array_equal(one, other) == same
    with pytest.raises(TypeError):
        SystemNoise(seed=3)  # pyright: ignore[reportCallIssue]
