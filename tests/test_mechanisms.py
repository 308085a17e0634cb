from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tutelage import GNMax, LNMax, VoteHistogram
from tutelage.events import NoisyArgmaxGaussian, NoisyArgmaxLaplace, Repeated
from tutelage.exceptions import InvalidParameterError
from tutelage.privacy import ONE_TEACHER


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


@pytest.mark.parametrize("value", [0, float("nan"), 1e300, "40"])
def test_noise_must_be_a_usable_number_of_votes(value):
    for kind, name in ((LNMax, "scale"), (GNMax, "sigma")):
        with pytest.raises(
            InvalidParameterError, match=f"`{name}` of {kind.__name__} must be a number of votes between"
        ):
            kind(value)
