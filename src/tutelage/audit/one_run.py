"""A lower bound on ε from one run: many canaries, each in or out by a coin of its own, and guesses which were in.

Steinke, Nasr and Jagielski 2023, "Privacy Auditing with One (1) Training Run", arXiv:2305.08846v1.
"""

import warnings
from collections.abc import Callable
from itertools import compress
from typing import Any, final

import numpy as np
import numpy.typing as npt
from scipy import special, stats

from tutelage._internal.fitting import clone_with
from tutelage._internal.records import Entries, frozen
from tutelage._internal.typing import ABSTAIN, Array, FloatArray, Mask
from tutelage._internal.validation import integer_at_least, number_between, probability
from tutelage.estimator import PATEClassifier
from tutelage.exceptions import (
    InvalidDataError,
    InvalidParameterError,
    PreflightWarning,
    RepeatedFitWarning,
)
from tutelage.ledger.ledger import DEFAULT_DELTA
from tutelage.methods.votes import VotesOnQueries
from tutelage.partition import as_column
from tutelage.terms import Asked

Score = Callable[[Mask], npt.ArrayLike]
_TOLERANCE = 1e-9
_LARGEST = 700.0  # in double precision, every guess is right at this ε: it ends the doubling


@final
@frozen
class OneRunAudit:
    """Result of one run. It depends on the private rows and is for the data set owner."""

    canaries: int
    guesses: int
    correct: int  # guesses that were right
    delta: float
    lower_bound: float  # the run is (ε, δ)-private for no smaller ε than this, in nats
    confidence: float
    claim: float | None = None  # ε that the run claims

    @property
    def passed(self) -> bool:
        """Whether the claim, if there is one, was not refuted."""
        return self.claim is None or self.lower_bound <= self.claim


def audit_in_one_run(
    score: Score,
    canaries: int,
    *,
    guesses: int,
    delta: float = 0.0,
    confidence: float = 0.95,
    claim: float | None = None,
    random_state: int | None = None,
) -> OneRunAudit:
    """Put canaries in or leave them out at random, run once, and guess from scores which were in.

    The bound assumes neighbors by adding or removing one privacy unit. So each canary must be a unit of its own, and
    nothing else may change with it: no other unit joins or leaves, or goes to another teacher.

    Parameters
    ----------
    score : callable
        Takes a mask of shape (canaries,), runs the whole pipeline on the private data and the canaries of the mask, and
        returns one score per canary: the larger, the likelier it was in. `pate_canaries` returns such a function.
    canaries : int
        How many there are.
    guesses : int
        How many to guess: half of them, of the largest scores, as in, and half, of the smallest, as out. Choose the
        number before the run.
    delta : float
        δ of the claim, at least 0.
    confidence : float
        Probability with which the bound is to hold.
    claim : float, optional
        ε that the run claims, at least 0; infinity claims nothing. It must be that of the run which `score` makes.
    random_state : int, optional
        Seed of the coins that include canaries, and of the order of equal scores; never of the noise. Without one, the
        operating system seeds them.
    """
    owner = "audit_in_one_run"
    canaries = integer_at_least(canaries, 1, "canaries", owner)
    guesses = integer_at_least(guesses, 1, "guesses", owner)
    if guesses > canaries:
        raise InvalidParameterError(
            f"{owner}.guesses",
            f"be at most {canaries}",
            f"{guesses}",
        )
    number_between(delta, 0, 1, "delta", owner)
    probability(confidence, "confidence", owner)
    if claim is not None and claim != np.inf:
        number_between(claim, 0, np.inf, "claim", owner)
    random = np.random.default_rng(random_state)
    included = random.integers(0, 2, canaries).astype(bool)
    scores = np.asarray(score(included.copy()), dtype=np.float64)
    if scores.shape != (canaries,) or not np.isfinite(scores).all():
        raise InvalidDataError(
            f"`score` must return one finite number for each of {canaries} canaries. Got shape {scores.shape}."
        )
    ranked = np.lexsort((random.permutation(canaries), scores))  # equal scores in random order
    half = guesses // 2
    guessed_out = ranked[:half]
    guessed_in = ranked[canaries - (guesses - half) :]
    correct = int(included[guessed_in].sum() + (~included[guessed_out]).sum())
    return OneRunAudit(
        canaries=canaries,
        guesses=guesses,
        correct=correct,
        delta=delta,
        lower_bound=epsilon_lower_bound(correct, guesses, canaries, delta, confidence),
        confidence=confidence,
        claim=claim,
    )


def p_value(
    correct: int,
    guesses: int,
    canaries: int,
    epsilon: float,
    delta: float,
) -> float:
    """Return an upper bound on the probability of at least this many right guesses in a run that is (ε, δ)-private.

    Theorem 5.2 and Corollary 5.4: P[W ≥ v] ≤ P[B ≥ v] + 2mδ·max_i P[v > B ≥ v − i]/i over i = 1..v, where W is the
    number of right guesses, v = `correct`, m = `canaries`, and B is binomial with `guesses` trials that succeed with
    probability e^ε/(1 + e^ε).
    """
    # masses, below: (correct,), P[B = v − i] and P[v > B ≥ v − i] for i = 1..v
    right = float(special.expit(epsilon))
    pure = float(stats.binom.sf(correct - 1, guesses, right))
    if delta == 0 or correct == 0:
        return pure
    masses = stats.binom.pmf(np.arange(correct - 1, -1, -1), guesses, right)
    below = np.cumsum(masses)
    largest_slope = float(np.max(below / np.arange(1, correct + 1)))
    return min(1.0, pure + 2 * canaries * delta * largest_slope)


def epsilon_lower_bound(
    correct: int,
    guesses: int,
    canaries: int,
    delta: float,
    confidence: float,
) -> float:
    """Return the largest ε that this number of right guesses refutes at `delta`, in nats; 0 if no ε is refuted.

    Parameters
    ----------
    correct, guesses, canaries : int
        Right guesses, guesses, and canaries, of which each was in by a fair coin.
    delta, confidence
        As for `audit_in_one_run`.
    """
    owner = "epsilon_lower_bound"
    integer_at_least(canaries, 1, "canaries", owner)
    integer_at_least(guesses, 0, "guesses", owner)
    integer_at_least(correct, 0, "correct", owner)
    number_between(delta, 0, 1, "delta", owner)
    if not correct <= guesses <= canaries:
        raise InvalidParameterError(
            f"{owner}.correct",
            "be at most $guesses, and $guesses at most $canaries",
            f"correct={correct}, guesses={guesses}, canaries={canaries}",
        )
    level = 1 - probability(confidence, "confidence", owner)

    def is_refuted(epsilon: float) -> bool:
        return p_value(correct, guesses, canaries, epsilon, delta) < level

    # Bisection, as the p-value rises in ε: at δ = 0 by its formula, and at δ > 0 in all cases that the tests draw.
    if not is_refuted(0.0):
        return 0.0
    low = 0.0
    high = 1.0
    while high < _LARGEST and is_refuted(high):
        low = high
        high *= 2
    while high - low > _TOLERANCE:
        middle = (low + high) / 2
        if is_refuted(middle):
            low = middle
        else:
            high = middle
    return low


def pate_canaries(
    model: PATEClassifier,
    X: npt.ArrayLike,
    y: npt.ArrayLike,
    *,
    X_canaries: npt.ArrayLike,
    y_canaries: npt.ArrayLike,
    entity_ids: npt.ArrayLike | None = None,
    X_public: npt.ArrayLike | None = None,
    y_public: npt.ArrayLike | None = None,
) -> Score:
    """Return the score of `audit_in_one_run` for a whole run of `model`: teachers, votes, noise and student.

    Every canary is a private entity and, without its label, a query. Its score is 1 if the released label is its own,
    plus the student's probability of that label: a pipeline that depends on single people shows whether it was in.
    Methods of votes ask about all public rows and all canaries, each once, in one round. If the method has a
    `mechanism`, the `claim` is the ε of so many queries with its noise, and otherwise the ε of one release of `model`.

    A run with canaries is a release from the private data that no ledger counts. Its result is for the data set owner
    and must not be published.

    Parameters
    ----------
    model : PATEClassifier
        The model to audit; a copy of it is fitted, without its ledger. It must declare `classes`, which canaries would
        change. It must also have a `random_state`, so that a row's teacher follows from its entity id alone and a
        canary changes no teacher but its own. The noise is fresh in every run.
    X, y : arrays of shape (rows, features) and (rows,)
        Private rows and their class values.
    X_canaries, y_canaries : arrays of shape (canaries, features) and (canaries,)
        Synthetic rows with labels, among `classes`, that no real row would have.
    entity_ids : array of shape (rows,), optional
        Whose row it is. Default: everybody has one row.
    X_public, y_public : arrays of shape (public rows, features) and (public rows,), optional
        Further public rows beside the canaries, and their labels where `fit` gets them. Canaries have no public label.
    """
    if model.classes is None or model.random_state is None:
        raise InvalidParameterError("pate_canaries.model", "have `classes` and `random_state` set")
    rows = np.asarray(X)
    labels = np.asarray(y)
    canaries = np.asarray(X_canaries)
    n_canaries = len(canaries)
    own_labels = np.asarray(y_canaries)
    if not np.isin(own_labels, np.asarray(model.classes)).all():
        raise InvalidDataError(
            "`y_canaries` must be among the `classes` of the model. Declare their classes, or choose other labels."
        )
    if entity_ids is None:
        entity_ids = np.arange(len(rows))
    ids = as_column(entity_ids)
    fits = len(rows) == len(labels) == len(ids) and len(own_labels) == n_canaries > 0
    if not fits:
        raise InvalidDataError(
            "Rows, labels and ids must have one entry each, and so must canaries and their labels."
        )
    public = _beside_canaries(canaries, X_public, y_public)
    entities = [str(name) for name in ids.tolist()]
    names = [f"canary {number}" for number in range(n_canaries)]
    if not set(names).isdisjoint(entities):
        raise InvalidDataError(
            "`entity_ids` must not be spelled like 'canary 0'. Name the entities otherwise."
        )

    def score(included: Mask) -> FloatArray:
        run: Any = _audited_copy(model)
        everybody = [*entities, *compress(names, included)]
        X = np.concatenate([rows, canaries[included]])
        y = np.concatenate([labels, own_labels[included]])
        with warnings.catch_warnings():
            # An audit repeats fits and publishes none of them. Its canaries are both private and public rows.
            warnings.simplefilter("ignore", RepeatedFitWarning)
            warnings.simplefilter("ignore", PreflightWarning)
            run.fit(X, y, entity_ids=everybody, insist=True, **public)
        own = np.searchsorted(run.classes_, own_labels)
        released = np.full(len(public["X_public"]), ABSTAIN)
        released[run.queries_] = run.release_.labels
        is_own = released[:n_canaries] == own
        if not hasattr(run, "predict_proba"):
            return is_own + (run.predict(canaries) == own_labels).astype(np.float64)
        chances = run.predict_proba(canaries)
        return is_own + chances[np.arange(n_canaries), own]

    return score


def _beside_canaries(
    canaries: Array, X_public: npt.ArrayLike | None, y_public: npt.ArrayLike | None
) -> Entries:
    """Return the public rows and labels of a fit: canaries come first and have no label."""
    other_rows = canaries[:0]
    if X_public is not None:
        other_rows = np.asarray(X_public)
    public: Entries = {"X_public": np.concatenate([canaries, other_rows])}
    if y_public is not None:
        if np.shape(y_public) != (len(other_rows),):
            raise InvalidDataError(
                "`y_public` of pate_canaries must have one label per row of `X_public`. Pass both."
            )
        no_labels = np.full(len(canaries), None)
        public["y_public"] = np.concatenate([no_labels, np.asarray(y_public, dtype=object)])
    return public


def _audited_copy(model: PATEClassifier) -> PATEClassifier:
    """Return a copy that asks all public rows once, in one round, with the noise of one release, and has no ledger."""
    method = model.method
    epsilon = model.epsilon
    if isinstance(method, VotesOnQueries):
        method = method.with_params(
            n_queries=None,
            selection="first",
            rounds=1,
        )
    # If the method has a mechanism, ε follows from its noise. If not, the noise follows from the ε of one release.
    if method is None or method.mechanism is None:
        delta = model.delta or DEFAULT_DELTA
        epsilon = Asked(epsilon, model.budget, model.releases, delta, given=False).each
    return clone_with(
        model,
        method=method,
        epsilon=epsilon,
        ledger=None,
        budget=None,
        releases=1,
        unit=None,
    )
