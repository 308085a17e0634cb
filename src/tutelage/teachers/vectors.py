"""Teachers without a model: every person is one, and casts a vector for each class, of bounded length."""

from collections.abc import Callable, Iterable
from math import sqrt
from typing import final

import numpy as np
from sklearn.pipeline import Pipeline

from tutelage._internal.records import frozen
from tutelage._internal.threads import QUIET, on_all_cores
from tutelage._internal.typing import FloatArray, IntArray, Matrix
from tutelage._internal.validation import integer_at_least, number_between
from tutelage.ballots import BallotSum, add_sums, sum_of_products
from tutelage.events import NoisySumGaussian
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.features import PublicRows, PublicScaling, ballot_features
from tutelage.features.base import chain
from tutelage.people.blocks import PeopleBlock, in_turn, require_finite
from tutelage.privacy import PrivacyUnit

_UNEVEN = 30  # times the usual spread of a column: beyond it all are brought to one scale
# Steps to which a length of one is rounded, of vectors and of weights: far finer than any noise that protects, and
# enough for a person with thousands of rows.
_STEPS = 2**11
_WEIGHT_STEPS = 2**16
_LONGEST = 2.0**23  # weight, in steps
_MOST_ROUNDS = 100
# Share of the budget for the first of several rounds; later ones only correct it.
_FIRST = 0.7


@final
@frozen
class VectorBallots:
    """A ballot per person: what the person's rows of each class look like, seen through public features.

    Nothing is trained. The features are learned from the public rows, so that a vector says how alike a row is to
    public landmarks; a person with several rows casts their mean. The sum of all ballots leaves through noise, once per
    round whatever the number of public rows, and a student in closed form learns from it.

    Parameters
    ----------
    n_landmarks : int
        Public rows that likeness is measured to; at most a half of them is taken.
    quantile : float
        Share of the public rows that keep the length of their vectors; longer ones are shortened. Less of it means less
        noise and more bias.
    rounds : int
        In how many rounds ballots are cast. A later ballot says what the student so far gets wrong, so that it matters
        less how much the public rows differ from the private ones. The first of several takes most of the budget.

    Notes
    -----
    Privacy: a person's numbers are rounded, and the length of every ballot is checked in whole numbers
    (`tutelage.ballots.sum_of_products`), so one person moves the sum by a known length at most, and `NoisySum` hides
    that. Docs: docs/ballots.md.
    """

    n_landmarks: int = 1000
    quantile: float = 0.4
    rounds: int = 2

    def __post_init__(self) -> None:
        integer_at_least(self.n_landmarks, 1, "n_landmarks", "VectorBallots")
        number_between(self.quantile, 0, 1, "quantile", "VectorBallots")
        if integer_at_least(self.rounds, 1, "rounds", "VectorBallots") > _MOST_ROUNDS:
            raise InvalidParameterError(
                "VectorBallots.rounds",
                f"be at most {_MOST_ROUNDS}",
                f"{self.rounds}",
                "Two rounds are usually enough.",
            )

    def features(
        self,
        X_public: Matrix,
        *,
        n_classes: int,
        n_people: int,
        noise_multiplier: float,
        n_scores: int = 0,
    ) -> Pipeline:
        """Return the map from rows to vectors of length at most one, learned from public rows; see `ballot_features`.

        `n_people` is about how many there are where that is private, and `noise_multiplier` is σ of the noise on the
        sum, in lengths of the longest ballot. The last `n_scores` columns are scores by a model of public labels.
        """
        # Both the ballots of the first round and a class deviate by the root of (classes − 1)/classes; the latter by
        # another root of 1/classes.
        in_deviations = noise_multiplier * sqrt(n_classes) / n_people
        public = PublicRows(X_public, "the public rows")
        scaling = None
        if _is_uneven(X_public[:, : X_public.shape[1] - n_scores]):
            scaling = PublicScaling.learn(public)
        if n_scores:
            scaling = _with_scores(scaling, X_public, n_scores)
        if scaling is not None:
            public = public.through(scaling)
        features = ballot_features(
            public,
            noise=in_deviations,
            n_landmarks=self.n_landmarks,
            quantile=self.quantile,
        )
        return chain(scaling, features)

    def cast(
        self,
        blocks: Iterable[PeopleBlock],
        products_of: Callable[[PeopleBlock], tuple[Matrix, Matrix]],
        radius: float,
        unit: PrivacyUnit,
    ) -> BallotSum:
        """Return the sum of the ballots of all people: of each, the mean product of residual and vector.

        All rows of a person must be in one block; the sum is the same however people are divided into blocks.
        `products_of` returns the vectors of the rows of a block, through `features`, each of length at most one, shape
        (rows, numbers). And their residuals: 1 for its class and 0 for the others, minus what was expected, shape
        (rows, classes). It is called from one thread per processor. Products longer than `radius` are shortened.
        """

        # vectors: (rows, numbers); residuals, weights: (rows, classes); people: (rows,); lengths, of_person: (rows, 1)
        def cast_by(block: PeopleBlock) -> BallotSum:
            vectors, residuals = _within_length(*products_of(block), block.people)
            people = block.people - block.people.min()
            whole = np.rint(vectors * _STEPS)
            # Squares of whole numbers add up exactly, in any order.
            lengths = np.sqrt(np.einsum("ij,ij->i", whole, whole))[:, None]
            of_person = np.bincount(people)[people][:, None]
            weights = residuals * (_WEIGHT_STEPS / radius) / of_person
            # The room is reduced first by what rounding adds to the length of a weight, and to that of its product.
            room = self.norm / of_person / np.maximum(lengths, 1)
            room = room - sqrt(residuals.shape[1]) / 2 - 1
            room = np.clip(room, 0, _LONGEST)
            lengths_of_weights = np.linalg.norm(weights, axis=1, keepdims=True)
            weights *= np.minimum(1, room / np.maximum(lengths_of_weights, 1))
            weights = np.rint(weights).astype(np.int32)
            numbers = whole.astype(np.int16)
            return sum_of_products(weights, numbers, people, norm=self.norm, unit=unit)

        return sum_of_blocks(blocks, cast_by)

    @property
    def norm(self) -> int:
        """Largest norm of a ballot, in whole steps."""
        return _STEPS * _WEIGHT_STEPS

    def most_numbers(self, n_classes: int) -> int:
        """Return how many numbers the sum of one round can have: for each class one per landmark, and one more."""
        return n_classes * (self.n_landmarks + 1)

    def noise_of_round(self, noise_multiplier: float, number: int) -> float:
        """Return σ of the noise of one round, in lengths of the longest ballot.

        `noise_multiplier` is that of one sum that costs as much as all rounds together; rounds count from 0.
        """
        if self.rounds == 1:
            return noise_multiplier
        share = _FIRST
        if number > 0:
            share = (1 - _FIRST) / (self.rounds - 1)
        # 1/σ² of all rounds add up to that of one sum.
        return noise_multiplier / sqrt(share)

    def event_of_round(
        self,
        noise_multiplier: float,
        number: int,
        numbers: int,
        unit: PrivacyUnit,
        *,
        simulated: bool = False,
    ) -> NoisySumGaussian:
        """Return what the noisy sum of one round is, of so many numbers, in its share of all rounds' budget."""
        sigma = self.noise_of_round(noise_multiplier, number) * self.norm
        return NoisySumGaussian(sigma, self.norm**2, numbers, unit, simulated)

    def scale(self, radius: float) -> float:
        """Return what a ballot's numbers are divided by to be residuals times vectors again."""
        return self.norm / radius


def sum_of_blocks(
    blocks: Iterable[PeopleBlock], cast_by: Callable[[PeopleBlock], BallotSum]
) -> BallotSum:
    """Return the sum of the ballots of all people, whom each block holds with all their rows."""
    with QUIET:
        sums = on_all_cores(cast_by, in_turn(blocks))
        total = next(sums)
        for ballots in sums:
            total = add_sums(total, ballots)
    return total


def _with_scores(scaling: PublicScaling | None, X_public: Matrix, n_scores: int) -> PublicScaling:
    """Return the scaling that gives scores, taken together, the deviation of a usual column."""
    if scaling is None:
        center = np.zeros(X_public.shape[1])
        deviation = np.ones(X_public.shape[1])
        spread = np.std(np.asarray(X_public[:, :-n_scores], np.float64), axis=0)
    else:
        center = scaling.center.copy()
        deviation = scaling.deviation.copy()
        spread = (deviation[:-n_scores] > 0).astype(np.float64)
    usual = 1.0
    if np.any(spread > 0):
        usual = float(np.median(spread[spread > 0]))
    center[-n_scores:] = 0.0
    deviation[-n_scores:] = np.std(X_public[:, -n_scores:]) / usual
    return PublicScaling(center, deviation)


def _is_uneven(X_public: Matrix) -> bool:
    """Return whether some column of public rows would drown the others, as an income does beside shares."""
    deviations = np.std(np.asarray(X_public, np.float64), axis=0)
    spread = deviations[deviations > 0]
    return bool(spread.size and spread.max() > _UNEVEN * np.median(spread))


def _within_length(
    vectors: Matrix, residuals: Matrix, people: IntArray
) -> tuple[FloatArray, FloatArray]:
    vectors = np.asarray(vectors, np.float64)
    residuals = np.asarray(residuals, np.float64)
    if (
        vectors.ndim != 2
        or residuals.ndim != 2
        or not len(vectors) == len(residuals) == len(people)
    ):
        raise InvalidDataError(
            "Vectors and residuals must have one entry for each row of their block."
        )
    require_finite(vectors)
    require_finite(residuals)
    lengths = np.sqrt((vectors * vectors).sum(axis=1, keepdims=True))
    return vectors / np.maximum(lengths, 1), residuals
