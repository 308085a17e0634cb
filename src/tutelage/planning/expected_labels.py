"""How many labels are right after the noise, computed from how teachers vote."""

from typing import NamedTuple

import numpy as np
from scipy import special

from tutelage._typing import FloatArray, IntArray
from tutelage.exceptions import UnsupportedEventError
from tutelage.mechanisms import ConfidentGNMax, ExponentialMax, GNMax, LNMax
from tutelage.planning.calibration import Sketch
from tutelage.planning.teacher_model import TeacherModel, right_shares

_QUANTILES: FloatArray = (np.arange(64) + 0.5) / 64  # the noise of the right class, in equally likely parts
_MOST_COUNTS, _TYPICAL = 250, (5, 25)


class TypicalVotes(NamedTuple):
    """Expected votes on equally likely queries, from the hardest to the easiest; arrays of shape (queries,)."""

    right: FloatArray  # for the right class
    rival: FloatArray  # for the class it is mistaken for
    other: FloatArray  # for each of the other classes
    scatter: FloatArray  # variance that the teachers' own chance gives a count
    others: int  # how many other classes there are


class Expected(NamedTuple):
    """What a query may expect."""

    answered: float  # share of the queries that get an answer
    right: float  # share of the answers that are right


def typical_votes(model: TeacherModel, n_teachers: int, rows_per_teacher: float) -> TypicalVotes:
    """Return the votes that are expected of this many teachers of this size."""
    share = right_shares(float(special.ndtri(model.limit)), model.half, rows_per_teacher, model.classes)
    others = model.classes - 2
    wrong = np.maximum(-np.expm1(-rows_per_teacher) - share, 0)  # a shard that the hash left empty abstains
    rival = wrong * (max(model.confusion, 1 / (others + 1)) if others else 1.0)
    other = (wrong - rival) / others if others else np.zeros_like(share)
    scatter = n_teachers * (share * (1 - share) + rival * (1 - rival)) / 2
    return TypicalVotes(n_teachers * share, n_teachers * rival, n_teachers * other, scatter, others)


def typical_counts(votes: TypicalVotes) -> IntArray:
    """Return some typical queries as whole vote counts, shape (at most 25, classes), the right class first."""
    number = int(np.clip(_MOST_COUNTS / (votes.others + 2), *_TYPICAL))  # exact costs of many classes take long
    chosen = np.linspace(0, len(votes.right) - 1, number).round().astype(int)
    wrong = [np.floor(column[chosen] + 1e-9) for column in (votes.rival, *[votes.other] * votes.others)]
    n_teachers = (votes.right + votes.rival + votes.others * votes.other)[chosen].round()
    return np.column_stack([n_teachers - np.sum(wrong, axis=0), *wrong]).astype(np.int64)


def expected_without_noise(votes: TypicalVotes) -> float:
    """Return how many queries the plurality of the teachers gets right."""
    return float(_wins(votes, np.sqrt(votes.scatter + 1e-9), special.ndtri, special.ndtr).mean())


def expected_labels(sketch: Sketch, votes: TypicalVotes) -> Expected:
    """Return how many queries a mechanism answers, and how many of its answers are right.

    The noise is thought continuous and the teachers' own scatter part of it; from a few dozen votes on, that is right
    to a few tenths of a point.
    """
    if sketch.kind not in _RIGHT:
        raise UnsupportedEventError(f"There is no plan for the mechanism {sketch.kind.__name__}.")
    right = _RIGHT[sketch.kind](votes, sketch.noise[-1])
    if sketch.threshold is None:
        return Expected(1.0, float(right.mean()))
    most = np.maximum(votes.right, votes.rival)
    passed = special.ndtr((most - sketch.threshold) / np.sqrt(sketch.noise[0] ** 2 + votes.scatter))
    return Expected(float(passed.mean()), float((passed * right).sum() / max(passed.sum(), 1e-300)))


def _gaussian(votes: TypicalVotes, sigma: float) -> FloatArray:
    return _wins(votes, np.sqrt(sigma**2 + votes.scatter), special.ndtri, special.ndtr)


def _laplace(votes: TypicalVotes, scale: float) -> FloatArray:  # a Laplace variable of scale b has the variance 2b²
    return _wins(votes, np.sqrt(scale**2 + votes.scatter / 2), _laplace_quantile, _laplace_below)


def _exponential(votes: TypicalVotes, scale: float) -> FloatArray:  # Gumbel noise of scale b has the variance π²b²/6
    spread = np.sqrt(scale**2 + votes.scatter * 6 / np.pi**2)
    return 1 / (1 + _odds(votes.rival, votes, spread) + votes.others * _odds(votes.other, votes, spread))


_RIGHT = {GNMax: _gaussian, ConfidentGNMax: _gaussian, LNMax: _laplace, ExponentialMax: _exponential}


def _wins(votes: TypicalVotes, spread: FloatArray, quantile, below) -> FloatArray:
    """Return how likely the right class has the largest of independent noisy counts, shape (queries,)."""
    noise = quantile(_QUANTILES)
    against_rival = below(((votes.right - votes.rival) / spread)[:, None] + noise)
    against_other = below(((votes.right - votes.other) / spread)[:, None] + noise)
    return (against_rival * against_other**votes.others).mean(axis=1)


def _laplace_quantile(share: FloatArray) -> FloatArray:
    return np.where(share < 0.5, np.log(2 * share), -np.log(2 * (1 - share)))


def _laplace_below(value: FloatArray) -> FloatArray:
    return np.where(value < 0, np.exp(np.minimum(value, 0)) / 2, 1 - np.exp(-np.maximum(value, 0)) / 2)


def _odds(count: FloatArray, votes: TypicalVotes, spread: FloatArray) -> FloatArray:
    return np.exp(np.clip((count - votes.right) / spread, -700, 700))
