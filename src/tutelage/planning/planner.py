"""Find the method, its settings and the expected accuracy of the student for an ε, from public data alone."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import sqrt
from typing import Any, TypeVar

import numpy as np

from tutelage._internal.progress import progress_bar
from tutelage._internal.typing import Array, Matrix
from tutelage._internal.validation import integer_at_least, number_between, positive, probability
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.features.base import FeatureMap, require_public_map
from tutelage.features.columns import ColumnMap, LearnedMap, numbered_rows, public_features
from tutelage.methods import Method, NoisyMoments
from tutelage.methods.rehearsal import PublicLabels
from tutelage.partition import unit_of_single_people
from tutelage.planning.methods import Target
from tutelage.planning.recommendation import (
    DECLARED,
    NOTHING,
    OWN_LABELS,
    STAND_IN,
    Advice,
    Option,
    Plan,
    PlanPoint,
)
from tutelage.planning.references import Guess, gain_over_labels, guess_accuracy
from tutelage.planning.trials import (
    MANY_TIMES,
    N_FOLDS,
    STILL_TO_COME,
    Safety,
    Trial,
    labels_alone,
    run_safety,
    run_trials,
)
from tutelage.reporting.lints import is_worth
from tutelage.tables import as_table, column_array, is_missing
from tutelage.targets import Goal

_QUICK_ROWS = 1_500  # in the first, short trial of every method
_FEW_FOLDS = 2
_FEW_ROWS = 1_000  # up to this number, the first trial uses all folds
_HOPELESS = 0.06  # a method this far behind vector ballots on the first rows of its first trial is tried on no others
_CLOSE = 0.02  # methods this far behind vector ballots in the first trial are still tried in full
_WORTH = 0.01  # by which a method must beat vector ballots to be recommended
_WIDEST = 0.3  # of an interval without trials whose middle is a prediction
# Standard deviation of the prediction error, beyond that of single runs: docs/planning.md.
_MODEL = 0.015
_OTHER_DATA = 0.16  # the same if trials used other data
# The same of a start from public labels, and of its gain over them, in multiples of this gain.
_START = 0.005
_OF_GAIN = 0.25
_OF_LABELS = 1.4  # times the variance of a share of the labels: folds and models vary, too
_SMALL_GAIN = 0.001  # over public labels: a plan that expects less is not undecided, and refuses
_NORMAL = 1.645  # standard deviations that hold nine of ten runs
_CURVE = (0.5, 2.0, 4.0)  # times ε
_LANDMARKS = (1000, 200, 60)  # fewer are safer from liars, and a little less accurate
_ROWS = "The public rows of plan must be numbers, or rows with named columns."
Columns = ColumnMap | Mapping[str, str | Sequence[object]] | None
Expected = TypeVar("Expected", Option, Advice)


def plan(
    epsilon: float,
    *,
    people: int,
    X_public: Any = None,
    y_public: Any = None,
    columns: Columns = None,
    features: FeatureMap | LearnedMap | None = None,
    stand_in: tuple[Any, Any] | None = None,
    public_rows: int | None = None,
    classes: int | None = None,
    accuracy: float | None = None,
    method: Method | None = None,
    goal: str = "accuracy",
    reach: float | None = None,
    liars: int | None = None,
    delta: float = 1e-5,
    unit: str | None = None,
    named: bool = False,
    progress: bool = False,
) -> Plan:
    """Recommend a method and its settings for a target ε, with the expected accuracy of the student.

    Nothing private is read. The ε of every option is proved for any private rows. The expected accuracy is estimated
    from the best source that is given: trial runs on labeled public rows, trial runs on a stand-in, the accuracy of a
    model without privacy, or sizes alone, in which case the interval is wide.

    Parameters
    ----------
    epsilon : float
        Budget of the whole release.
    people : int
        Approximate number of private people, or rows.
    X_public : array of shape (public rows, features), images, texts, or rows with named columns, optional
        The public rows.
    y_public : array of shape (public rows,) or str, optional
        Their labels, or the name of the column that holds them.
    columns : PublicColumns, PublicTransformer or mapping, optional
        What the named columns of $X_public are, as for `PATEClassifier`.
    features : public feature map or LearnedMap, optional
        Applied to all rows first. Default: as in `PATEClassifier`.
    stand_in : tuple of rows and labels, optional
        Labeled rows of another, similar data set, if the public rows have no labels.
    public_rows : int, optional
        Number of public rows, if $X_public is not given.
    classes : int, optional
        Number of classes. Default: those among the labels.
    accuracy : float, optional
        Accuracy of a model without privacy, if there are no labels.
    method : Method, optional
        A method of `tutelage.methods`, with its settings, to try on the labeled rows as well.
    goal : str
        What the student is judged by: ``"accuracy"``, or ``"balanced_accuracy"`` if there are labels. All numbers of
        the plan are of it.
    reach : float, optional
        The number that the student should reach, such as 0.9.
    liars : int, optional
        Also state how many predictions would be right and survive so many people who cast whatever they like, with
        fewer and fewer landmarks. For accuracy, with labels.
    delta : float
        δ of the guarantee.
    unit : str, optional
        Name of the privacy unit, if one person can have several rows: ``"patient"``. Default: one row.
    named : bool
        Plan for a `release` with a name. It needs a method in which every person casts ballots.
    progress : bool
        Show a progress bar. Trial runs take up to a minute.

    Raises
    ------
    InvalidParameterError, InvalidDataError
        If a parameter is out of range, or rows and labels do not match.
    """
    known = _labeled_rows(X_public, y_public, columns, features, stand_in, public_rows)
    n_public = _number_of_public_rows(public_rows, X_public, known)
    known = _judged_by(goal, known, classes)
    n_classes = classes if known is None else known.n_classes
    if n_classes is None:
        raise InvalidParameterError(
            "plan.classes", "be set to the number of classes if you pass no labels"
        )
    target = Target(
        epsilon=positive(epsilon, "epsilon", "plan"),
        delta=probability(delta, "delta", "plan"),
        unit=unit_of_single_people(unit or "entity", named=unit is not None),
        people=integer_at_least(people, 2, "people", "plan"),
        public_rows=n_public,
        classes=integer_at_least(n_classes, 2, "classes", "plan"),
        labeled=known is not None and known.start(0) is not None,
        named=named,
        tested=known is None or not known.own,
    )
    if reach is not None:
        number_between(reach, 0, 1, "reach", "plan")
    if liars is not None:
        _require_certificates(liars, known, people)
    if known is None:
        return _by_references(target, method, accuracy, reach)
    if accuracy is not None:
        raise InvalidParameterError(
            "plan.accuracy", "be left out if you pass labels, because the plan measures it on them"
        )
    if method is not None:
        method = target.method_asked(method, public_features=features is not None)
        _require_weights(method, known)
    found = _by_trials(target, known, method, reach, progress=progress)
    if liars is None:
        return found
    return replace(found, liars=liars, safety=_safety(target, known, liars))


def _safety(target: Target, known: PublicLabels, liars: int) -> tuple[Safety, ...]:
    """Return what it costs to be safe from liars: fewer landmarks, one round, and no start from public labels."""
    target = replace(target, labeled=False)
    # There are at most half as many landmarks as public rows.
    numbers = sorted({min(number, len(known.rows) // 2) for number in _LANDMARKS}, reverse=True)
    methods = (target.with_least_noise(NoisyMoments(number, rounds=1)) for number in numbers)
    return tuple(run_safety(method, known, target.people, liars) for method in methods)


def _require_certificates(liars: int, known: PublicLabels | None, people: int) -> None:
    """Refuse more liars than people, and liars where no trial has a student with a certificate."""
    if integer_at_least(liars, 1, "liars", "plan") > people:
        raise InvalidParameterError("plan.liars", f"be at most {people}, as $people", f"{liars}")
    if known is None or known.weights is not None:
        raise InvalidParameterError(
            "plan.liars", "come with labels to try ballots on, and with the goal accuracy"
        )


def _require_weights(method: Method, known: PublicLabels) -> None:
    """Refuse a method whose students take no class weights, where the goal needs them."""
    if known.weights is not None and not method.needs.weights:
        raise InvalidParameterError(
            "plan.method",
            "be one that takes class weights, because $goal needs them",
            f"{type(method).__name__}",
            "Choose NoisyMoments, or set $goal to accuracy.",
        )


def _labeled_rows(
    X_public: object,
    y_public: object,
    columns: Columns,
    features: FeatureMap | LearnedMap | None,
    stand_in: Sequence[object] | None,
    public_rows: int | None,
) -> PublicLabels | None:
    """Return the labeled rows that trials run on, as numbers; None if there are none."""
    own = y_public is not None
    if own:
        if X_public is None:
            raise InvalidParameterError(
                "plan.y_public", "come with the public rows in $X_public", fix="Pass both."
            )
        stand_in = (X_public, y_public)
    elif stand_in is None:
        return None
    elif not isinstance(stand_in, tuple) or len(stand_in) != 2:
        raise InvalidParameterError(
            "plan.stand_in", "be a tuple of two: rows of another data set, and their labels"
        )
    labeled_rows, y = stand_in
    came, rows, labels = _numbers(labeled_rows, y, columns, features)
    missing = sum(map(is_missing, labels.tolist()))
    if missing:
        raise InvalidDataError(
            f"All labels of plan must be known. {missing:,} of {len(labels):,} are missing; leave out these rows."
        )
    values, codes = np.unique(labels, return_inverse=True)
    n_values = len(values)
    n_labels = len(codes)
    if n_values > max(2, n_labels // 2):
        raise InvalidDataError(
            f"The labels of plan must be classes. Got {n_values:,} different values in {n_labels:,} rows; name "
            "the column of the classes."
        )
    if n_values < 2 or len(rows) != n_labels:
        raise InvalidDataError(
            f"A plan needs one label for each row, and at least two classes. Got {n_labels} labels of "
            f"{n_values} classes for {len(rows)} rows."
        )
    classes = codes.astype(np.int64)
    if own:
        return PublicLabels(rows, rows, classes, n_values, own, came)
    # Rows of a stand-in are public rows or labeled rows, never both: a vote on one's own row would give its label away.
    order = np.random.default_rng(0).permutation(len(rows))
    n_public = min(public_rows or len(rows), len(rows) // 2)
    public, labeled = np.split(order, [n_public])
    return PublicLabels(rows[public], rows[labeled], classes[labeled], n_values, own)


def _numbers(
    X: object,
    y: object,
    columns: Columns,
    features: FeatureMap | LearnedMap | None,
) -> tuple[Matrix, Matrix, Array]:
    """Return rows as numbers and as people's ballots see them, and their labels."""
    # came: (rows, columns); rows: (rows, features); labels: (rows,)
    labels = y
    unlabeled = X
    if isinstance(y, str):
        table = as_table(X)
        if table is None:
            raise InvalidParameterError(
                "plan.y_public", "name a column only if $X_public has named columns"
            )
        labels = table.column(y)
        unlabeled = public_features(X, y)
    named = numbered_rows(unlabeled, columns)
    came = np.asarray(named.rows, dtype=np.float64)
    if came.ndim != 2:
        raise InvalidDataError(_ROWS)
    if features is None or isinstance(features, LearnedMap):
        feature_map = named._replace(rows=came).feature_map(features or LearnedMap())
    else:
        feature_map = require_public_map(features, "plan")
    rows = np.asarray(feature_map.transform(came))
    if not np.isfinite(rows).all():
        raise InvalidDataError(_ROWS)
    return came, rows, np.asarray(column_array(labels))


def _judged_by(goal: str, known: PublicLabels | None, classes: int | None) -> PublicLabels | None:
    """Return the labeled rows with a goal, and with classes that they may lack; refuse a goal that no plan has."""
    judged_by = Goal(goal)
    if judged_by.ranks or (known is None and goal != "accuracy"):
        raise InvalidParameterError(
            "plan.goal", "be accuracy, or balanced_accuracy if you pass labels", f"{goal}"
        )
    if known is None:
        return None
    return replace(known, n_classes=max(known.n_classes, classes or 0), goal=judged_by)


def _number_of_public_rows(
    public_rows: int | None, X_public: Any, known: PublicLabels | None
) -> int:
    if known is not None and (known.own or public_rows is None):
        return len(known.rows)
    if public_rows is not None:
        return integer_at_least(public_rows, 1, "public_rows", "plan")
    if X_public is None:
        raise InvalidParameterError(
            "plan.public_rows", "be set to the number of public rows if you pass no $X_public"
        )
    table = as_table(X_public)
    return len(X_public) if table is None else table.n_rows


def _by_trials(
    target: Target,
    known: PublicLabels,
    asked: Method | None,
    reach: float | None,
    *,
    progress: bool,
) -> Plan:
    """Return the plan by trial runs on labeled rows."""
    own = [method for method in target.methods() if known.weights is None or method.needs.weights]
    methods = [*own]
    if asked is not None and asked not in own:
        methods.append(asked)
    ballots = own[0]
    # Methods are compared on rows that are few enough for label propagation; ballots are tried on all of them, too.
    sample = known.sample(_QUICK_ROWS)
    few = len(sample.rows) <= _FEW_ROWS
    first, again = _short_and_full_trials(
        methods,
        asked,
        sample,
        target.people,
        few=few,
        progress=progress,
    )
    whole = again.get(ballots) if sample is known else None
    if whole is None:
        whole = run_trials(ballots, known, target.people)
    alone = labels_alone(known)
    if alone is not None:
        # Of trials and other data sets, the larger number counts, which is too large by chance.
        _, by_chance = whole.gain(alone)
        whole = whole.shift(-by_chance)
    majority = known.goal.without_model(known.classes)
    shift = whole.expected - (again or first)[ballots].expected

    def floor_of(method: Method) -> float:
        """Return the least to expect: one class for all, or public labels and what other data sets gained over them."""
        if alone is None or not method.needs.start:
            return majority
        accuracy = alone.expected
        gain = gain_over_labels(
            accuracy,
            people=target.people,
            labels=len(known.classes),
            classes=known.n_classes,
            noise=method.noise or 0.0,
        )
        return max(majority, accuracy + gain)

    def with_floor(method: Method, trial: Trial) -> Trial:
        return trial._replace(floor=floor_of(method))

    def interval(method: Method) -> Guess:
        if alone is None or not method.needs.start:
            return _interval(trials[method], known)
        return _interval_of_start(alone, trials[method].expected - alone.expected, known)

    trials = {method: with_floor(method, trial.shift(shift)) for method, trial in again.items()}
    trials[ballots] = with_floor(ballots, whole)
    # Settings that a user named are compared and never recommended: their noise is not what `epsilon` asks for.
    best = max(
        (method for method in trials if method in own),
        key=lambda method: trials[method].expected - _WORTH * (method != ballots),
    )
    winner = trials[best]
    options = dict[Method, Option]()
    for method in trials | first:
        if method in trials:
            guess = interval(method)
        else:
            short = with_floor(method, first[method].shift(shift))
            guess = Guess(short.expected, 0, 1)
        options[method] = _option(method, target, guess, in_full=method in trials)
    here = _short_trial(best, sample, target) if few else first[best].expected
    curve, advice = _outlook(best, winner, here, sample, target, floor_of, progress=progress)
    is_useful = _is_useful(winner, majority, alone)
    is_unclear = target.people > MANY_TIMES * winner.people
    if alone is not None:
        is_unclear = winner.expected >= max(majority, alone.expected) + _SMALL_GAIN
    return Plan(
        target=target,
        evidence=OWN_LABELS if known.own else STAND_IN,
        majority=majority,
        alone=None if alone is None else _interval_of_start(alone, 0.0, known),
        options=_best_first(options.values()),
        best=options[best],
        recommended=options[best] if is_useful else None,
        undecided=not is_useful and is_unclear and is_worth(1.0, winner.floor),
        asked=None if asked is None else options[asked],
        curve=_rising(curve, target.epsilon),
        advice=_best_first(advice),
        reach=reach,
        goal=known.goal.name,
    )


def _short_and_full_trials(
    methods: Sequence[Method],
    asked: Method | None,
    sample: PublicLabels,
    people: int,
    *,
    few: bool,
    progress: bool,
) -> tuple[dict[Method, Trial], dict[Method, Trial]]:
    """Return short trials of all methods, and full ones of those that may be as good as the first method."""
    folds = None if few else _FEW_FOLDS
    first = dict[Method, Trial]()
    least = 0.0
    for method in progress_bar(methods, "Methods", len(methods), shown=progress):
        trial = run_trials(method, sample, people, folds=folds, deals=1, least=least)
        if method == methods[0]:
            least = trial.shares[0] - _HOPELESS
        first[method] = trial
    # A first look at few rows is off by points, so that more methods get a second one.
    margin = -_CLOSE if few else _WORTH
    enough = first[methods[0]].expected + margin
    close = [
        method for method in methods[1:] if first[method].expected >= enough or method == asked
    ]
    second = [methods[0], *close] if close else []
    again = dict[Method, Trial]()
    for method in progress_bar(second, "Methods in full", len(second), shown=progress):
        again[method] = run_trials(method, sample, people)
    return first, again


def _short_trial(method: Method, rows: PublicLabels, target: Target) -> float:
    return run_trials(method, rows, target.people, folds=_FEW_FOLDS, deals=1).expected


def _outlook(
    best: Method,
    winner: Trial,
    here: float,
    sample: PublicLabels,
    target: Target,
    floor_of: Callable[[Method], float],
    *,
    progress: bool,
) -> tuple[dict[float, float], list[Advice]]:
    """Return the expected accuracy at multiples of ε, and with twice as much of something.

    `here` is what a short trial of the best method reaches, and `floor_of` is at least expected of a method.
    """

    def expected_after(change: float, method: Method = best) -> float:
        return float(np.clip(winner.expected + change, floor_of(method), 1))

    curve = {1.0: winner.expected}
    for factor in progress_bar(_CURVE, "Other ε", len(_CURVE), shown=progress):
        # The noise is about inversely proportional to ε.
        less_noise = best.with_noise((best.noise or 0.0) / factor)
        change = _short_trial(less_noise, sample, target) - here
        curve[factor] = expected_after(change, less_noise)
    half = sample.fewer(0.5)
    if best.facts(None).of_sums and not target.labeled:  # all labels stay
        half = replace(sample, rows=half.rows, own=False)
    # With twice the public rows, half of the last doubling's gain is added.
    last_gain = max(here - _short_trial(best, half, target), 0.0)
    advice = [
        Advice("public rows", expected_after(STILL_TO_COME * last_gain)),
        Advice("ε or people", max(curve[2.0], winner.expected)),
    ]
    return curve, advice


def _is_useful(trial: Trial, majority: float, alone: Trial | None) -> bool:
    """Return whether a student is worth a release, by more than chance in the trials explains."""
    least = [trial.expected - majority - trial.error]
    if alone is not None:
        gain, error = trial.gain(alone)
        least.append(max(gain - error, trial.floor - alone.expected))
    return all(is_worth(gain, 0.0) for gain in least)


def _best_first(items: Iterable[Expected]) -> tuple[Expected, ...]:
    """Return options, or pieces of advice, the most accurate one first."""
    return tuple(sorted(items, key=lambda item: -item.expected))


def _rising(curve: dict[float, float], epsilon: float) -> tuple[PlanPoint, ...]:
    """Return the points of the curve, made to rise from the target on: a larger ε is worse only by chance."""
    factors = sorted(curve)
    middle = factors.index(1.0)
    shares = np.array([curve[factor] for factor in factors])  # (factors,)
    shares[middle:] = np.maximum.accumulate(shares[middle:])
    shares[: middle + 1] = np.minimum.accumulate(shares[middle::-1])[::-1]
    return tuple(map(PlanPoint, np.multiply(factors, epsilon).tolist(), shares.tolist()))


def _interval(trial: Trial, known: PublicLabels) -> Guess:
    """Return the expected accuracy, and the interval in which nine of ten runs are expected."""
    expected = trial.expected
    of_labels = _variance_by_labels(float(np.mean(trial.shares)), known)
    # A run is scored on a fifth of the labels, which is no difference between runs.
    of_runs = max(trial.spread**2 - N_FOLDS * of_labels, 0.0)
    error = _MODEL if known.own else _OTHER_DATA
    return _around(expected, sqrt(of_labels + of_runs + error**2))


def _interval_of_start(alone: Trial, gain: float, known: PublicLabels) -> Guess:
    """Return the same of a student that starts from public labels, and gains so much over them."""
    of_labels = _variance_by_labels(alone.expected, known)
    deviation = sqrt(_OF_LABELS * of_labels + _START**2 + (_OF_GAIN * gain) ** 2)
    return _around(alone.expected + gain, deviation)


def _around(expected: float, deviation: float) -> Guess:
    reach = _NORMAL * deviation
    return Guess(expected, max(0.0, expected - reach), min(1.0, expected + reach))


def _variance_by_labels(
    share: float,
    known: PublicLabels,
) -> float:
    """Return the variance of a share that is estimated on the labels; if classes weigh alike, rare ones count most."""
    n_labels = float(len(known.classes))
    if known.weights is not None:
        counts = np.bincount(known.classes)
        counts = counts[counts > 0]
        n_labels = len(counts) ** 2 / float((1 / counts).sum())
    return share * (1 - share) / n_labels


def _by_references(
    target: Target, asked: Method | None, accuracy: float | None, reach: float | None
) -> Plan:
    """Return the plan without trials: vector ballots, with the accuracy that they reached on other data sets."""
    if asked is not None:
        raise InvalidParameterError(
            "plan.method",
            "come with labels to try it on",
            fix="Pass $y_public or $stand_in, or leave out $method.",
        )
    if accuracy is not None:
        accuracy = number_between(accuracy, 1 / target.classes, 1, "accuracy", "plan")

    def expected(epsilon: float) -> float:
        return guess_accuracy(replace(target, epsilon=epsilon), accuracy).expected

    guess = guess_accuracy(target, accuracy)
    best = _option(target.with_least_noise(NoisyMoments()), target, guess, in_full=True)
    best = replace(best, rough=guess.high - guess.low > _WIDEST)
    epsilons = [target.epsilon * factor for factor in sorted((*_CURVE, 1.0))]
    return Plan(
        target=target,
        evidence=NOTHING if accuracy is None else DECLARED,
        options=(best,),
        best=best,
        recommended=best,
        curve=tuple(PlanPoint(epsilon, expected(epsilon)) for epsilon in epsilons),
        advice=(Advice("ε or people", expected(2 * target.epsilon)),),
        reach=reach,
    )


def _option(
    method: Method,
    target: Target,
    guess: Guess,
    *,
    in_full: bool,
) -> Option:
    # An upper bound: to find what a calibrated method costs by itself takes seconds.
    epsilon = target.limit(method).guarantee(target.unit, simulated=False)
    if in_full:
        epsilon = target.epsilon_of(method)
    return Option(method, epsilon, guess.expected, guess.low, guess.high, in_full)
