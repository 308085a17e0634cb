"""Plans: trials predict runs, ε is proved, hopeless targets are refused, and nothing private is needed."""

import re
import warnings
import weakref
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import REPOSITORY
from tutelage import PATEClassifier
from tutelage.cli.method import read_method
from tutelage.exceptions import InvalidParameterError, MuchNoiseWarning
from tutelage.features import PublicRows, PublicSteps
from tutelage.features.scored import ScoredRows
from tutelage.mechanisms import CappedGNMax, GNMax, NoisySum
from tutelage.methods import CappedVotes, NoisyMoments, TeacherVotes, proposals
from tutelage.methods.rehearsal import PublicLabels
from tutelage.noise import SimulationNoise
from tutelage.partition import unit_of_single_people
from tutelage.planning import Option, Plan, plan
from tutelage.planning.methods import Target
from tutelage.planning.planner import _interval, _is_useful, _variance_by_labels
from tutelage.planning.references import gain_over_labels, guess_accuracy
from tutelage.planning.trials import Trial, run_safety, run_trials
from tutelage.reporting.lints import Case, lint
from tutelage.reporting.record import Judged, Reached
from tutelage.targets import Goal
from tutelage.teachers import ClassMeans

QUICK = pytest.mark.usefixtures("short_trials", "one_deal")
rest = partial(pytest.param, marks=pytest.mark.rest)
ROW = unit_of_single_people("row", named=False)
PATIENT = unit_of_single_people("patient", named=True)


def target_of(**changed):
    """Return a target of the sizes that most tests here share, so that the noise for them is looked for once."""
    numbers = {
        "epsilon": 1.0,
        "delta": 1e-5,
        "unit": ROW,
        "people": 300,
        "public_rows": 100,
        "classes": 3,
    }
    return Target(**(numbers | changed))


def clusters(n, seed=0, noise=1.0):
    """Return rows of three classes around three centers."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    return 3 * np.eye(3, 6)[y] + noise * rng.normal(size=(n, 6)), y


def checkered(n, seed=0):
    """Return rows of two classes that no line parts, too few for trees: people know better than public labels."""
    X = np.random.default_rng(seed).uniform(-1, 1, size=(n, 2))
    return X, (X[:, 0] * X[:, 1] > 0).astype(int)


def best(found: Plan) -> Option:
    assert found.recommended is not None
    return found.recommended


@pytest.mark.parametrize(("epsilon", "unit"), [(1.0, ROW), rest(4.0, PATIENT)])
def test_every_method_is_proved_to_keep_epsilon_and_nearly_spends_it(epsilon, unit):
    target = target_of(epsilon=epsilon, unit=unit)
    for method in target.methods():
        assert 0.97 * epsilon < target.epsilon_of(method).epsilon <= epsilon


def test_a_release_with_a_name_takes_only_methods_in_which_people_cast_ballots():
    target = target_of()
    all_of_them = proposals(target.people, target.sizes, named=False)
    of_people = proposals(target.people, target.sizes, named=True)
    assert of_people == [method for method in all_of_them if not method.needs.shards] != all_of_them


@pytest.mark.parametrize(
    ("place", "labeled", "unit"),
    [(0, False, "patient"), (0, True, None), (2, True, "patient"), (3, False, None)],
)
def test_a_plan_costs_what_the_fit_costs(place, labeled, unit):
    X, y = clusters(400)
    target = target_of(unit=PATIENT if unit else ROW, labeled=labeled, tested=not labeled)
    method = target.methods()[place]
    ids = np.arange(300).astype(str) if unit else None
    asked = replace(method, mechanism=None)
    model = PATEClassifier(
        method=asked, epsilon=1.0, noise=SimulationNoise(0), random_state=0, unit=unit
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MuchNoiseWarning)
        y_public = y[300:] if labeled and method.needs.start else None
        model.fit(X[:300], y[:300], X_public=X[300:], y_public=y_public, entity_ids=ids)
    chosen = model.mechanism_
    assert isinstance(chosen, NoisySum | CappedGNMax | GNMax)
    noise = chosen.noise_multiplier if isinstance(chosen, NoisySum) else chosen.sigma
    assert noise == method.noise
    assert model.epsilon_ == replace(target.epsilon_of(method), simulated=True)


def test_a_trial_without_noise_is_a_fit_without_noise():
    X, y = clusters(300, noise=2.0)
    shown = PublicSteps.learn(PublicRows(X, "X_public"), X.shape[1]).transform(X)
    known = PublicLabels(shown, shown, y, 3, own=False)
    method = NoisyMoments(mechanism=NoisySum(0.05))
    scores = np.zeros(1)  # without own labels they are not used
    kept = weakref.ref(scores)
    trial = method.rehearsal(known, 300)
    predicted = trial(np.arange(300), SimulationNoise(0), scores)
    del scores
    # Features are remembered by their scores. If these were freed, other scores could have their id.
    assert kept() is not None
    model = PATEClassifier(method=method, noise=SimulationNoise(0)).fit(X, y, X_public=X)
    assert np.mean(predicted == model.predict(X)) > 0.995


@pytest.mark.parametrize("rows", [checkered(240), clusters(240)], ids=["trees", "linear"])
def test_trials_start_from_the_model_of_public_labels_that_a_release_learns(rows):
    X, y = rows
    n_classes = len(np.unique(y))
    known = PublicLabels(X, X, y, n_classes, own=True)
    start = known.start(0)
    assert start is not None
    model, released = ScoredRows.learn(X, None, X, y, n_classes)
    assert (model.model.trees is None) == (n_classes == 3)
    assert np.array_equal(start.apart, released[:, -n_classes:])
    for fewer in (known.start(1), known.fewer(0.5).start(0)):
        assert fewer is not None
        assert fewer.fit is start.fit


def test_a_sample_of_rows_keeps_the_scores_by_all_labels(monkeypatch):
    X, y = clusters(120)
    known = PublicLabels(X, X, y, 3, own=True)
    assert known.sample(120) is known
    whole = known.start(0)
    monkeypatch.setattr("tutelage.methods.rehearsal.Start.learn", None)  # nothing is learned again
    some = known.sample(60)
    start = some.start(0)
    assert whole is not None
    assert start is not None
    places = np.flatnonzero((X[:, None] == some.rows).all(axis=2).any(axis=1))
    assert len(places) == 60
    assert np.array_equal(np.sort(np.concatenate(start.parts)), np.arange(60))
    for number, part in enumerate(start.parts):
        assert set(places[part]) <= set(whole.parts[number])
        assert np.array_equal(start.pairs[number], whole.pairs[number][places])
    assert np.array_equal(start.apart, whole.apart[places])


def test_a_hopeless_method_is_tried_on_one_fifth():
    X, y = clusters(100)
    known = PublicLabels(X, X, y, 3, own=False)
    method = NoisyMoments(mechanism=NoisySum(0.05))
    both = run_trials(method, known, 100, folds=2, deals=1, least=0.5)
    one = run_trials(method, known, 100, folds=2, deals=1, least=1.0 + 1e-9)
    assert one.shares == both.shares[:1] != both.shares
    assert one.expected == one.shares[0]


@pytest.mark.parametrize("times", [1, 3])
def test_a_trial_survives_as_many_liars_as_the_run_that_it_stands_for(times):
    """With `times` as many people, each of whom is there `times`, so many times as many liars are survived."""
    X, y = clusters(300, noise=2.0)
    shown = PublicSteps.learn(PublicRows(X, "X_public"), X.shape[1]).transform(X)
    known = PublicLabels(shown, shown, y, 3, own=False)
    method = NoisyMoments(n_landmarks=30, rounds=1, mechanism=NoisySum(0.05))
    trial = method.rehearsal(known, 300 * times)
    predicted, survived = trial.predicted_and_liars(np.arange(300), SimulationNoise(0))
    model = PATEClassifier(method=method, noise=SimulationNoise(0), classes=range(3))
    model.fit(np.repeat(X, times, 0), np.repeat(y, times), X_public=X)
    liars = model.certified(X)
    assert np.mean(predicted == model.predict(X)) > 0.995
    assert np.quantile(liars, 0.9) >= 3 * times
    assert np.mean(np.abs(survived - liars) <= 0.15 * liars + times) > 0.95


@pytest.mark.rest
@QUICK
def test_a_plan_says_what_stays_right_whatever_some_people_cast():
    X, y = clusters(200, noise=2.0)
    known = PublicLabels(X, X, y, 3, own=True)
    method = NoisyMoments(n_landmarks=20, rounds=1, mechanism=NoisySum(0.3))
    few, many = (run_safety(method, known, 1000, liars) for liars in (1, 20))
    assert few.right == many.right > 0.6
    assert many.safe < few.safe < few.right
    found = plan(4.0, people=1000, X_public=X, y_public=y, liars=20)
    assert [one.n_landmarks for one in found.safety] == [100, 60]
    one = found.safety[-1]
    assert 0 <= one.safe < one.right
    told = f"If any 20 people cast .* {one.right:.1%} of predictions are right and {one.safe:.1%} "
    assert re.search(told, " ".join(found.sentences()))
    stated = found.as_dict()
    assert (stated["liars"], stated["safety"][-1]["safe"]) == (20, one.safe)


@pytest.mark.slow
def test_trials_predict_runs():
    """Expected and measured accuracy agree within four points, at standard errors below one."""
    X, y = clusters(4600, noise=2.5)
    known = PublicLabels(X[:600], X[:600], y[:600], 3, own=True)
    target = target_of(people=2000, public_rows=600, labeled=True)
    for method in target.methods()[::2]:
        expected = run_trials(method, known, 2000).expected
        scores = []
        for seed in range(3):
            model = PATEClassifier(
                method=method, noise=SimulationNoise(seed), random_state=seed, classes=range(3)
            )
            labels = y[:600] if method.needs.start else None
            model.fit(X[600:2600], y[600:2600], X_public=X[:600], y_public=labels)
            scores.append(model.score(X[2600:], y[2600:]))
        assert abs(expected - np.mean(scores)) < 0.04


@pytest.mark.rest
@QUICK
def test_few_votes_are_not_cast_on_a_persons_own_row():
    """Labels that are pure chance cannot be predicted: a person who voted on its own row would give its label away."""
    X, _ = clusters(300)
    known = PublicLabels(X, X, np.random.default_rng(1).integers(0, 2, 300), 2, own=True)
    few = CappedVotes(votes=1, mechanism=CappedGNMax(1e-3, 1), student="label-propagation")
    many = TeacherVotes(
        ClassMeans(), 100, selection="medoids", mechanism=GNMax(1e-3), student="label-propagation"
    )
    for method in (few, many, NoisyMoments(mechanism=NoisySum(1e-3))):
        assert run_trials(method, known, 300).expected < 0.6


@pytest.mark.rest
@QUICK
def test_a_plan_recommends_what_is_expected_to_be_best():
    X, y = checkered(190)
    found = plan(1.0, people=2000, X_public=X, y_public=y, reach=0.5)
    assert best(found).expected > max(option.expected for option in found.options) - 0.011
    assert found.possible
    assert best(found).epsilon.epsilon <= 1.0
    assert [point.epsilon for point in found.curve] == [0.5, 1.0, 2.0, 4.0]
    shares = [point.expected for point in found.curve]
    assert shares == sorted(shares)


@pytest.fixture
def one_deal(monkeypatch):
    """Deal few labels into folds once, as many labels are, where only the form of a plan matters."""
    monkeypatch.setattr("tutelage.planning.trials._SMALL", 0)


@pytest.fixture
def judged(monkeypatch):
    """A function that plans from trials with these accuracies, none of which takes time."""

    def plan_from(student, alone, people=300, **given):
        trial, start = (
            Trial((share, share), (share, share), 0.0, 100) for share in (student, alone)
        )
        monkeypatch.setattr("tutelage.planning.planner.run_trials", lambda *_, **__: trial)
        monkeypatch.setattr("tutelage.planning.planner.labels_alone", lambda _: start)
        X, y = checkered(100)
        return plan(1.0, people=people, X_public=X, y_public=y, **given)

    return plan_from


def test_nothing_is_released_where_public_labels_alone_do_as_well(judged):
    found = judged(0.85, 0.86)
    assert found.recommended is None
    assert found.alone.low < found.alone.expected > found.best.expected - 0.01
    assert f"beat a model of the public labels alone ({found.alone.expected:.1%})" in str(
        found.obstacle
    )


def test_better_trials_never_turn_a_recommendation_down():
    """Trials have an error, and what releases of other data sets gained has none that counts."""
    alone = Trial((0.63, 0.63), (0.63, 0.63), 0.0, 100)
    for least in (0.632, 0.637):
        verdicts = list[bool]()
        for share in np.arange(0.60, 0.70, 0.002):
            trial = Trial((share - 0.02, share + 0.02), (share, share), 0.0, 100, floor=least)
            verdicts.append(_is_useful(trial, 0.5, alone))
        assert verdicts == sorted(verdicts)
        assert verdicts[0] == (least > 0.635)
        assert verdicts[-1]


def test_an_interval_counts_the_error_of_the_labels_once():
    """Folds that differ as much as a fifth of the labels explains add nothing to the error of all labels."""
    X, y = checkered(400)
    known = PublicLabels(X, X, y, 2, own=True)
    by_chance = np.sqrt(0.25 / 80)  # of a fold

    def width(*shares):
        found = _interval(Trial(shares, shares, 0.0, 100), known)
        assert found.high + found.low == pytest.approx(1.0)
        return found.high - found.low

    of_labels = 2 * 1.645 * np.sqrt(0.25 / 400 + 0.015**2)
    assert width(0.5 - by_chance, 0.5 + by_chance) == pytest.approx(of_labels)
    assert width(0.5, 0.5) == pytest.approx(of_labels)
    assert width(0.2, 0.8) > 1.9 * 0.3
    few_of_a_class = replace(known, classes=(np.arange(400) < 20).astype(int))
    of_rare = _variance_by_labels(0.5, replace(few_of_a_class, goal=Goal("balanced_accuracy")))
    assert of_rare == pytest.approx((0.25 / 20 + 0.25 / 380) / 4)
    assert _variance_by_labels(0.5, few_of_a_class) == 0.25 / 400


def test_a_share_that_no_epsilon_reaches_is_said_to_be_out_of_reach(judged):
    assert "even at ε = 4 it is" in str(judged(0.9, 0.6, reach=0.999).obstacle)


def test_named_noise_that_breaks_epsilon_is_never_recommended(judged):
    found = judged(0.9, 0.6, method=NoisyMoments(mechanism=NoisySum(0.05)))
    assert found.asked.epsilon.epsilon > 100
    assert found.asked in found.options
    assert found.asked.in_full
    assert best(found).epsilon.epsilon <= 1.0
    assert any(
        f"{found.asked.claim}, more than the target ε = 1." in sentence
        for sentence in found.sentences()
    )


def test_no_expectation_is_below_what_a_method_starts_from(judged):
    student = 0.3
    found = judged(student, 0.627)
    majority = found.majority
    assert 0.5 < majority < 0.6
    for option in found.options:
        floor = 0.627 if option.method.needs.start else max(majority, student)
        assert floor <= option.expected == pytest.approx(floor, abs=1e-4)
        assert option.low < option.expected < option.high
    plain = found.as_dict()
    assert (
        min(one["expected"] for one in (*plain["options"], *plain["curve"], *plain["if_doubled"]))
        >= majority
    )
    everywhere = f"{found.sentences()} {found.as_html()} {[one.cells() for one in found.options]}"
    assert "30.0%" not in everywhere


@pytest.mark.parametrize(("people", "verdict"), [(1000, "no"), (1500, "you"), (2500, "yes")])
def test_a_gain_that_other_data_sets_saw_is_expected_where_trials_see_none(judged, people, verdict):
    """Of public labels with an accuracy of 62.7 %, so many people are expected to gain 0.05, 0.2 and 0.7 points."""
    found = judged(0.564, 0.627, people)
    assert (found.recommended is not None, found.undecided) == (verdict == "yes", verdict == "you")
    assert found.possible == (verdict == "yes")
    assert found.best.low < found.alone.expected < found.best.expected < found.best.high
    assert ("by about 0.2 points: too little" in str(found.obstacle)) == found.undecided
    assert ("[method]" in found.as_config()) == (verdict != "no")
    if verdict != "yes":
        with pytest.raises(
            InvalidParameterError, match=r"`despite_plan` of Plan\.parameters must be"
        ):
            found.parameters()
    assert isinstance(found.parameters(despite_plan=True)["method"], NoisyMoments)


def test_a_gain_is_not_left_to_the_user_where_no_release_could_gain_half_a_point(judged):
    for student, alone, undecided in ((0.994, 0.991, True), (0.9985, 0.996, False)):
        found = judged(student, alone, 60_000)
        assert found.best.expected > alone + 0.001
        assert (found.recommended, found.undecided) == (None, undecided)


SIZES = {  # public labels, people and classes of docs/results/labels.csv
    "Adult, alike": (4_999, 30_162, 2),
    "Doctor visits": (2_880, 3_983, 2),
    "Lending club": (2_000, 5_500, 2),
    "MNIST": (2_000, 20_000, 10),
    "Species": (3_000, 25_706, 29),
}


def test_expected_gains_over_public_labels_are_about_those_that_were_measured():
    numbers = pd.read_csv(REPOSITORY / "docs" / "results" / "labels.csv")
    means = numbers.groupby(["data", "epsilon", "method"]).accuracy.mean() / 100
    wrong = []
    for epsilon in (0.1, 0.5, 1.0, 3.0):
        noise = target_of(epsilon=epsilon, labeled=True).with_least_noise(NoisyMoments()).noise
        for name, (labels, people, classes) in SIZES.items():
            alone = means[name, 0.0, "public labels alone"]
            given = {"people": people, "labels": labels, "classes": classes, "noise": noise}
            gain = means[name, epsilon, "ballots with labels"] - alone
            wrong.append(gain_over_labels(alone, **given) - gain)
    assert np.mean(np.abs(wrong)) < 0.002


@given(st.floats(0, 1), st.integers(1, 10**6), st.integers(1, 10**5), st.floats(0, 100))
def test_gains_over_public_labels_rise_with_people_and_fall_with_noise(
    alone, people, labels, noise
):
    def gain(people, noise):
        return gain_over_labels(alone, people=people, labels=labels, classes=2, noise=noise)

    assert 0 <= gain(people, noise) <= gain(2 * people, noise) <= 1 - alone
    assert gain(people, noise) >= gain(people, noise + 1)


@pytest.mark.parametrize(("student", "alone"), [
    (0.8549, 0.85), (0.8551, 0.85), (0.55, 0.4), (0.57, 0.4)
])  # fmt: skip
def test_a_plan_recommends_what_a_card_does_not_object_to(judged, student, alone):
    found = judged(student, alone)
    of_card = lint(
        Case(judged=Judged(goals=(Reached("accuracy", student, alone, found.majority),)))
    )
    assert (found.recommended is None) == any(
        one.code.startswith("no-better-than") for one in of_card
    )


@pytest.mark.rest
@QUICK
def test_what_is_out_of_reach_is_named_with_what_would_help():
    X, y = clusters(480, noise=2.0)
    found = plan(1.0, people=50, stand_in=(X, y), public_rows=240, reach=0.55)
    assert re.search(r"not 55\.0%; an ε of about \d would do", str(found.obstacle))


def test_without_labels_the_interval_is_that_of_other_data_sets():
    told = plan(1.0, people=2000, public_rows=500, classes=2)
    assert told.evidence == "nothing"
    assert "With a schema in place of public rows, there is nothing to plan" in told.sentences()[-1]
    assert best(told).low < 0.6
    assert best(told).high > 0.9
    declared = plan(1.0, people=2000, public_rows=500, classes=2, accuracy=0.8)
    assert declared.evidence == "declared-accuracy"
    assert best(declared).high <= 0.8 + 1e-9


@given(
    st.floats(0.01, 20),
    st.integers(2, 10**6),
    st.integers(2, 50),
    st.one_of(st.none(), st.floats(0.6, 0.99)),
)
def test_guesses_rise_with_epsilon_and_stay_between_majority_and_ceiling(
    epsilon, people, classes, accuracy
):
    targets = [
        target_of(epsilon=each, people=people, classes=classes) for each in (epsilon, 2 * epsilon)
    ]
    low, high = (guess_accuracy(target, accuracy) for target in targets)
    assert 1 / classes - 1e-9 <= low.low <= low.expected <= low.high <= (accuracy or 1) + 1e-9
    assert high.expected >= low.expected - 1e-9


@pytest.mark.rest
@QUICK
def test_frames_are_planned_for_as_they_are_fitted():
    words = [
        words
        for number in range(60)
        for words in (f"win {number} prize now", f"see you {number} at home")
    ]
    texts = pd.DataFrame({"text": words, "spam": [1, 0] * 60})
    assert plan(1.0, people=400, X_public=texts, y_public="spam").best.expected > 0.9


NO_ROWS = {"X_public": None, "y_public": None}


@pytest.mark.parametrize(("changed", "named"), [
    ({"epsilon": float("nan")}, "epsilon"),
    (NO_ROWS | {"classes": 1, "public_rows": 5}, "classes"),
    ({"X_public": None}, "y_public"),
    ({"y_public": None, "stand_in": 3}, "stand_in"),
    ({"method": 3}, "method"),
    ({"y_public": None, "classes": 3, "method": NoisyMoments()}, "method"),
    ({"y_public": None, "classes": 2, "accuracy": 0.2}, "accuracy"),
    ({"y_public": None, "classes": 2, "liars": 10}, "liars"),
    ({"goal": "balanced_accuracy", "liars": 10}, "liars"),
    ({"liars": 0}, "liars"),
    ({"liars": 101}, "liars"),
])  # fmt: skip
def test_what_a_plan_cannot_use_is_refused(changed, named):
    X, y = clusters(60)
    with pytest.raises(InvalidParameterError) as refused:
        plan(**({"epsilon": 1.0, "people": 100, "X_public": X, "y_public": y} | changed))
    assert refused.value.parameter == named


@pytest.mark.rest
@QUICK
def test_a_handful_of_rows_gives_a_plan():
    X, y = clusters(4)
    y[:2] = 0, 1
    found = plan(1.0, people=20, X_public=X, y_public=y)
    assert 0 <= found.options[0].low <= found.options[0].expected <= found.options[0].high <= 1


@QUICK
@pytest.mark.rest
@pytest.mark.filterwarnings("ignore::tutelage.exceptions.PreflightWarning")
def test_the_documented_plan_works(capsys):
    page = (REPOSITORY / "docs" / "planning.md").read_text()
    examples = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(examples) == 2
    names: dict[str, object] = {}
    for example in examples:
        exec(example.replace("[:2000]", "[:400]"), names)  # noqa: S102  our own documentation, on fewer rows
    assert "a model of the public labels alone" in capsys.readouterr().out
    assert names["model"].epsilon_ == names["prepared"].epsilon  # type: ignore[attr-defined]


@pytest.mark.parametrize(("method", "said"), [
    ("teacher-votes", "`method` of plan must be a method of tutelage.methods"),
    (NoisyMoments(student="forest"), "which tries only the student in closed form"),
    (TeacherVotes(ClassMeans(), rounds=2), "`rounds` of TeacherVotes must be 1"),
])  # fmt: skip
def test_methods_that_no_trial_follows_are_refused(method, said):
    with pytest.raises(InvalidParameterError, match=re.escape(said)):
        target_of().method_asked(method)


@pytest.mark.parametrize("rounds", [1, 3])
def test_rounds_of_the_default_method_are_those_of_vectors_in_every_spelling(rounds):
    method = NoisyMoments(rounds=rounds)
    by_default = PATEClassifier()
    assert by_default.set_params(method__rounds=rounds).resolved().method == method
    assert read_method({"name": "noisy-moments", "rounds": rounds}) == method
    asked = target_of().method_asked(method)
    assert asked.with_params(mechanism=None) == method
