"""`perform_analysis` as PySyft 0.2 had it and many tutorials call it: right when called rightly, or refused.

For new code use `tutelage.accounting.Accountant`, which finds smaller costs and keeps private ones apart.
"""

import warnings
from typing import Any, NamedTuple

import numpy as np

from tutelage._internal.validation import integer_at_least, noise_scale, probability
from tutelage.accounting import pate_bounds
from tutelage.accounting.rdp import RenyiCurve, classic
from tutelage.ballots import tally
from tutelage.exceptions import InvalidDataError

_OWNER = "perform_analysis"


class Analysis(NamedTuple):
    """Result of `perform_analysis`, in its old order.

    Parameters
    ----------
    data_dependent : float
        Vote-dependent ε. Private: publishing it would reveal information about the votes.
    data_independent : float
        Worst-case ε.
    """

    data_dependent: float
    data_independent: float


def perform_analysis(
    teacher_preds: Any,
    indices: Any,
    noise_eps: float,
    delta: float = 1e-5,
    moments: int = 8,
    beta: float = 0.09,  # noqa: ARG001
    *,
    n_classes: int | None = None,
) -> Analysis:
    """Return ε of noisy-max answers by the analysis of PATE 2017, as `syft.frameworks.torch.dp.pate` did.

    For the sake of old code the data-dependent ε is a plain number, but it is private: it depends on the votes.

    Parameters
    ----------
    teacher_preds : integer array or torch tensor of shape (teachers, examples)
        The class that each teacher voted for.
    indices : integer array or torch tensor of shape (answered,)
        *Which* examples were answered, by column of `teacher_preds`, each once; `np.arange(examples)` for all of them.
        Not the noisy labels, which the widespread tutorial passes: then only the first ten examples are counted.
        Labels are told from columns by their repeats, so a few distinct labels pass unnoticed.
    noise_eps : float
        γ, the inverse scale of the Laplace noise on every count, in 1/votes. Each answer is 2γ-private.
    delta : float
        Target δ in (0, 1).
    moments : int
        Moments l = 1..moments of the privacy loss are tried.
    beta : float
        Kept so that old calls run; PySyft computed a smooth sensitivity with it and dropped the result.
    n_classes : int, optional
        Number of classes, also those that got no vote. Without it, the largest label seen counts as the last class.

    Raises
    ------
    InvalidDataError
        If `indices` are not distinct columns, or the votes are not classes.

    References
    ----------
    PATE 2017, Theorems 1 to 3 and Lemma 4, arXiv:1610.05755v4. Earlier errors: docs/errata.md.

    Examples
    --------
    >>> import numpy as np
    >>> votes = np.random.default_rng(0).integers(0, 10, size=(100, 9000))
    >>> found = perform_analysis(votes, np.arange(9000), noise_eps=0.2, moments=20, n_classes=10)
    >>> round(found.data_independent, 4)
    1451.5129
    """
    probability(delta, "delta", _OWNER)
    gamma = noise_scale(noise_eps, "noise_eps", _OWNER)
    tried = np.arange(1.0, integer_at_least(moments, 1, "moments", _OWNER) + 1)
    ballots = _integers(teacher_preds, "teacher_preds", dimensions=2)
    answered = _integers(indices, "indices", dimensions=1)
    if ballots.shape[0] > 10 * ballots.shape[1]:
        warnings.warn(
            "`teacher_preds` has far more rows than columns; teachers are rows.", stacklevel=2
        )
    if not answered.size or answered.min() < 0 or answered.max() >= ballots.shape[1]:
        raise InvalidDataError(
            f"`indices` must say which examples were answered, as column numbers from 0 to {ballots.shape[1] - 1}."
        )
    if len(np.unique(answered)) < len(answered):
        raise InvalidDataError(
            "`indices` must name each answered example once, and some repeat: these look like the student's labels. "
            "With labels as indices only the first few examples are counted, and the epsilon is far too small. Pass "
            "np.arange(teacher_preds.shape[1]) if every example was answered."
        )
    if n_classes is None:
        warnings.warn(
            "`n_classes` of perform_analysis was not given, so classes beyond the largest label seen are not counted.",
            stacklevel=2,
        )
        n_classes = max(2, int(ballots.max(initial=0)) + 1)
    if ballots.size and (
        ballots.min() < 0 or ballots.max() >= integer_at_least(n_classes, 2, "n_classes", _OWNER)
    ):
        raise InvalidDataError(
            "`teacher_preds` must hold classes 0, 1, … below the number of classes."
        )
    log_q = pate_bounds.log_q_laplace(tally(ballots, n_classes).select(answered), 1 / gamma)
    each = np.minimum(pate_bounds.log_moments(log_q, 1 / gamma, tried), 2 * gamma * tried)
    independent = len(answered) * 2 * gamma**2 * (tried + 1)
    costs = np.minimum(each.sum(axis=0) / tried, independent), independent
    found = [
        RenyiCurve(tried + 1, np.maximum(cost, 0)).to_epsilon(delta, classic) for cost in costs
    ]
    if len(tried) > 1 and any(one.order == tried[-1] + 1 for one in found):
        warnings.warn("May not have used enough values of l: raise `moments`.", stacklevel=2)
    return Analysis(*(one.epsilon for one in found))


def _integers(values: Any, name: str, dimensions: int) -> np.ndarray:
    values = values.detach().cpu() if hasattr(values, "detach") else values
    if np.ma.is_masked(values):
        raise InvalidDataError(f"`{name}` must not be masked: leave out what is not there.")
    array = np.asarray(values)
    if (
        array.ndim != dimensions
        or array.dtype.kind not in "iuf"
        or not np.all(np.equal(array, np.floor(array)))
    ):
        raise InvalidDataError(
            f"`{name}` must be whole numbers in {dimensions} dimension(s). Got {array.ndim} of {array.dtype}."
        )
    return array.astype(np.int64)
