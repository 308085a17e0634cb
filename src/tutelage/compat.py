"""`perform_analysis` as PySyft 0.2 had it and many tutorials call it: right when called rightly, or refused.

For new code use `tutelage.accounting.Accountant`, which finds smaller costs and keeps private ones apart.
"""

import warnings
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from tutelage._internal.typing import Ballots, FloatArray
from tutelage._internal.validation import integer_at_least, noise_scale, probability
from tutelage.accounting import pate_bounds
from tutelage.accounting.rdp import RenyiCurve, classic
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.votes import tally


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
    teacher_preds: npt.ArrayLike,
    indices: npt.ArrayLike,
    noise_eps: float,
    delta: float = 1e-5,
    moments: int = 8,
    beta: float = 0.09,  # noqa: ARG001
    *,
    n_classes: int | None = None,
    compat: Literal["pysyft"] | None = None,
) -> Analysis:
    """Return ε of noisy-max answers by the analysis of PATE 2017, as `syft.frameworks.torch.dp.pate` did.

    For the sake of old code the data-dependent ε is a plain number, but it is private: it depends on the votes.

    Parameters
    ----------
    teacher_preds : integer array of shape (teachers, examples)
        The class that each teacher voted for.
    indices : integer array of shape (answered,)
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
    compat : "pysyft", optional
        Return the number that PySyft 0.2 returned, its faults included; labels as `indices` are not refused. Never
        rely on it.

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
    probability(delta, "delta", "perform_analysis")
    gamma = noise_scale(noise_eps, "noise_eps", "perform_analysis")
    tried = np.arange(1.0, integer_at_least(moments, 1, "moments", "perform_analysis") + 1)
    ballots, answered = _votes_and_columns(teacher_preds, indices)
    if compat is None:
        if len(np.unique(answered)) < len(answered):
            raise InvalidDataError(
                "`indices` must name each answered example once, and some repeat: these look like the student's "
                "labels. With labels as indices only the first few examples are counted, and the epsilon is far too "
                "small. Pass np.arange(teacher_preds.shape[1]) if every example was answered."
            )
        classes, moments_of = _number_of_classes(ballots, n_classes), pate_bounds.log_moments
    elif compat == "pysyft":
        classes, moments_of = _distinct_labels(ballots, n_classes), _moments_of_pysyft
    else:
        raise InvalidParameterError(f"`compat` of perform_analysis must be 'pysyft' or left out. Got {compat!r}.")
    if ballots.size and (ballots.min() < 0 or ballots.max() >= classes):
        raise InvalidDataError(
            "`teacher_preds` must hold classes 0, 1, … below the number of classes; compat='pysyft' counts labels."
        )
    votes = tally(cast("Ballots", ballots), classes).select(answered)
    log_q = pate_bounds.log_q_laplace(votes, 1 / gamma)
    each = np.minimum(moments_of(log_q, 1 / gamma, tried), 2 * gamma * tried)
    independent = len(answered) * 2 * gamma**2 * (tried + 1)
    dependent = np.minimum(each.sum(axis=0) / tried, independent)
    return Analysis(_epsilon(dependent, tried, delta), _epsilon(independent, tried, delta))


def perform_analysis_torch(
    preds: Any,
    indices: Any,
    noise_eps: float = 0.1,
    delta: float = 1e-5,
    moments: int = 8,
    beta: float = 0.09,
    *,
    n_classes: int | None = None,
    compat: Literal["pysyft"] | None = None,
) -> Analysis:
    """Return the same as `perform_analysis`, for torch tensors on any device.

    Parameters
    ----------
    preds, indices : integer tensors
        As `teacher_preds` and `indices` of `perform_analysis`.
    noise_eps, delta, moments, beta, n_classes, compat
        As for `perform_analysis`.
    """
    votes, answered = (it.detach().cpu().numpy() if hasattr(it, "detach") else it for it in (preds, indices))
    return perform_analysis(votes, answered, noise_eps, delta, moments, beta, n_classes=n_classes, compat=compat)


def _integers(values: npt.ArrayLike, name: str, dimensions: int) -> np.ndarray:
    if np.ma.is_masked(values):
        raise InvalidDataError(f"`{name}` must not be masked: leave out what is not there.")
    array = np.asarray(values)
    if array.ndim != dimensions or array.dtype.kind not in "iuf" or not np.all(np.equal(array, np.floor(array))):
        raise InvalidDataError(
            f"`{name}` must be whole numbers in {dimensions} dimension(s). Got {array.ndim} of {array.dtype}."
        )
    return array.astype(np.int64)


def _votes_and_columns(teacher_preds: npt.ArrayLike, indices: npt.ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    ballots = _integers(teacher_preds, "teacher_preds", dimensions=2)
    answered = _integers(indices, "indices", dimensions=1)
    if ballots.shape[0] > 10 * ballots.shape[1]:
        warnings.warn("`teacher_preds` has far more rows than columns; teachers are rows.", stacklevel=3)
    if not answered.size or answered.min() < 0 or answered.max() >= ballots.shape[1]:
        raise InvalidDataError(
            f"`indices` must say which examples were answered, as column numbers from 0 to {ballots.shape[1] - 1}."
        )
    return ballots, answered


def _number_of_classes(ballots: np.ndarray, n_classes: int | None) -> int:
    if n_classes is not None:
        return integer_at_least(n_classes, 2, "n_classes", "perform_analysis")
    warnings.warn(
        "`n_classes` of perform_analysis was not given, so classes beyond the largest label seen are not counted.",
        UserWarning,
        stacklevel=3,
    )
    return max(2, int(ballots.max(initial=0)) + 1)


def _distinct_labels(ballots: np.ndarray, n_classes: int | None) -> int:
    if n_classes is not None:
        raise InvalidParameterError("`n_classes` cannot go with compat='pysyft', which counts the distinct labels.")
    warnings.warn("compat='pysyft' repeats known faults: its epsilon may be far too small.", stacklevel=3)
    return len(np.unique(ballots))


def _moments_of_pysyft(log_q: FloatArray, scale: float, moments: FloatArray) -> FloatArray:
    """Return the log moments with Theorem 3 applied up to q < 1/2, where it does not hold."""
    gamma, q = 1 / scale, np.exp(log_q)[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        kept = (1 - q) * ((1 - q) / (1 - np.exp(2 * gamma) * q)) ** moments
        dependent = np.log(kept + q * np.exp(2 * gamma * moments))
    dependent = np.where((q < 0.5) & np.isfinite(dependent), dependent, np.inf)
    return np.minimum(dependent, 2 * gamma**2 * moments * (moments + 1))


def _epsilon(values: FloatArray, moments: FloatArray, delta: float) -> float:
    found = RenyiCurve(moments + 1, np.maximum(values, 0)).to_epsilon(delta, classic)
    if found.order == moments[-1] + 1 and len(moments) > 1:
        warnings.warn("May not have used enough values of l: raise `moments`.", UserWarning, stacklevel=3)
    return found.epsilon
