"""Wrong calls, which must be refused."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from tutelage._internal.typing import IntArray
from tutelage.ballots import VoteHistogram
from tutelage.compat import perform_analysis
from tutelage.exceptions import TutelageError
from tutelage.ledger import Ledger
from tutelage.privacy import ONE_TEACHER
from tutelage_reproductions.planted_faults.fault import Fault

_TEACHERS, _QUERIES, _CLASSES = 50, 120, 10


def _votes() -> tuple[IntArray, IntArray]:
    """Return ballots of shape (teachers, queries), and noisy labels."""
    random = np.random.default_rng(0)
    ballots = random.integers(0, _CLASSES, (_TEACHERS, _QUERIES))
    return ballots, random.integers(0, _CLASSES, _QUERIES)


def some_call_works(calls: Sequence[Callable[[], object]]) -> bool:
    """Return whether one of the calls is accepted."""
    return any(_works(call) for call in calls)


def _works(call: Callable[[], object]) -> bool:
    try:
        call()
    except TutelageError:
        return False
    return True


def _analysed(indices: IntArray) -> object:
    ballots, _ = _votes()
    return perform_analysis(ballots, indices, noise_eps=0.1, n_classes=_CLASSES)


def _histogram(*, turned: bool) -> VoteHistogram:
    counts = np.random.default_rng(0).multinomial(
        _TEACHERS, np.full(_CLASSES, 1 / _CLASSES), _QUERIES
    )
    return VoteHistogram(counts.T if turned else counts, _TEACHERS)


def _in_the_right_order() -> object:
    return _histogram(turned=False), Ledger.in_memory(epsilon=2.0, delta=1e-5, unit=ONE_TEACHER)


LABELS_AS_INDICES = Fault(
    name="labels passed as indices",
    planted="perform_analysis gets the noisy labels, as the tutorial does",
    caught_by="refusal by compat.perform_analysis",
    check=some_call_works,
    right=[partial(_analysed, np.arange(_QUERIES))],
    wrong=[partial(_analysed, _votes()[1])],
)
PERMUTED_ARGUMENTS = Fault(
    name="permuted arguments",
    planted="votes as (classes, queries); ε and δ exchanged",
    caught_by="refusal by VoteHistogram and by Ledger",
    check=some_call_works,
    right=[_in_the_right_order],
    wrong=[
        partial(_histogram, turned=True),
        partial(Ledger.in_memory, epsilon=1e-5, delta=2.0, unit=ONE_TEACHER),
    ],
)
