from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tutelage import GNMax, LNMax, VoteHistogram
from tutelage.exceptions import InvalidParameterError


@pytest.mark.parametrize("mechanism", [LNMax(3.0), GNMax(3.0)], ids=str)
def test_noise_comes_before_the_argmax_and_ties_go_to_the_lowest_class(mechanism):
    votes = VoteHistogram(np.array([[5, 3, 1], [5, 3, 1], [0, 0, 0]]), 9)
    noise = np.array([[0, 2, 4], [0, 3, 4], [0, 0, 0]])
    draws = {name: lambda *_: noise for name in ("discrete_laplace", "discrete_gaussian")}
    source: Any = SimpleNamespace(simulated=True, **draws)
    release = mechanism.release(votes, source)
    assert release.labels.tolist() == [0, 1, 0]
    assert release.answered.all()


@pytest.mark.parametrize("value", [0, float("nan"), 1e300, "40"])
def test_noise_must_be_a_usable_number_of_votes(value):
    for kind, name in ((LNMax, "scale"), (GNMax, "sigma")):
        with pytest.raises(
            InvalidParameterError, match=f"`{name}` of {kind.__name__} must be a number of votes between"
        ):
            kind(value)
