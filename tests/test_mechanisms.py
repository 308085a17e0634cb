from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from exact import discrete_gaussian_masses, discrete_laplace_masses, label_probabilities
from tutelage import GNMax, LNMax, SystemNoise, VoteHistogram
from tutelage.events import NoisyArgmaxGaussian, NoisyArgmaxLaplace, Repeated
from tutelage.exceptions import InvalidParameterError
from tutelage.privacy import ONE_TEACHER

ALPHA = 1e-9
DRAWS = 20_000


@pytest.mark.rest
@pytest.mark.parametrize(("mechanism", "masses"), [
    (LNMax(20.0), discrete_laplace_masses(20.0, 800)),
    (LNMax(1.0), discrete_laplace_masses(1.0, 60)),
    (GNMax(40.0), discrete_gaussian_masses(40.0, 600)),
    (GNMax(1.5), discrete_gaussian_masses(1.5, 30)),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("counts", [[180, 70], [5, 5, 4], [2, 3, 3, 1]])
def test_labels_have_the_exact_distribution_ties_included(mechanism, masses, counts):
    votes = VoteHistogram(np.tile(counts, (DRAWS, 1)), sum(counts))
    labels = mechanism.release(votes, SystemNoise()).labels
    expected = label_probabilities(np.array(counts), masses)
    for label, probability in enumerate(expected):
        assert stats.binomtest(int(np.sum(labels == label)), DRAWS, min(probability, 1)).pvalue > ALPHA / 8


@pytest.mark.parametrize("mechanism", [LNMax(3.0), GNMax(3.0)], ids=str)
def test_noise_comes_before_the_argmax_and_ties_go_to_the_lowest_class(mechanism):
    votes = VoteHistogram(np.array([[5, 3, 1], [5, 3, 1], [0, 0, 0]]), 9)
    noise = np.array([[0, 2, 4], [0, 3, 4], [0, 0, 0]])
    draws = {name: lambda *_: noise for name in ("discrete_laplace", "discrete_gaussian")}
    source: Any = SimpleNamespace(simulated=True, **draws)
    release = mechanism.release(votes, source)
    assert release.labels.tolist() == [0, 1, 0]
    assert release.answered.all()


def test_events_tell_the_parameters_and_never_the_votes():
    votes = VoteHistogram(np.array([[7, 3]] * 5), 10)
    assert LNMax(20).event(votes, simulated=False) == Repeated(NoisyArgmaxLaplace(20, 2, ONE_TEACHER), 5)
    assert GNMax(40).event(votes, simulated=False) == Repeated(NoisyArgmaxGaussian(40, 2, ONE_TEACHER), 5)
    other = VoteHistogram(np.array([[2, 8]] * 5), 10)
    assert LNMax(20).event(votes, simulated=False) == LNMax(20).event(other, simulated=False)


@pytest.mark.parametrize("value", [0, -2.0, float("nan"), float("inf"), 1e300, None, "40"])
def test_noise_must_be_a_usable_number_of_votes(value):
    for kind, name in ((LNMax, "scale"), (GNMax, "sigma")):
        with pytest.raises(
            InvalidParameterError, match=f"`{name}` of {kind.__name__} must be a number of votes between"
        ):
            kind(value)
