"""`PATEClassifier(tune=...)`: which setting is chosen, what that costs, and how far one person can move it."""

import itertools
import json
from collections import Counter
from functools import partial
from math import exp, sqrt
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import chi2
from scipy.stats import norm as normal
from sklearn.base import ClassifierMixin, clone
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier

from blobs import LABELS, PRIVATE, PUBLIC, TEST, TRUE
from runs_of_people import VECTORS, configure_people, write_people
from test_cli import ran, refusal, succeeded, tutelage
from tutelage import Ledger, PATEClassifier, SimulationNoise
from tutelage.ballots import sum_of_products
from tutelage.events import NoisySumGaussian
from tutelage.exceptions import BudgetContinuedWarning, BudgetExceededError, InvalidBallotError, InvalidParameterError
from tutelage.features import PublicColumns, PublicFeatureMap, PublicPCA, PublicRows, PublicScaling
from tutelage.mechanisms import NoisySum
from tutelage.methods import NoisyMoments, Public, Tuned
from tutelage.methods import tuned as tuning
from tutelage.methods.noisy_moments import PeopleReady
from tutelage.methods.rehearsal import PublicLabels, rehearsed
from tutelage.methods.requests import PrivateRows
from tutelage.methods.tuned import Candidate, ScoreBallot, score_ballots, score_norm
from tutelage.noise import SystemNoise
from tutelage.partition import Shards
from tutelage.privacy import ONE_TEACHER, NeighboringRelation, PrivacyUnit
from tutelage.students import NoisySumClassifier
from tutelage.teachers import NearestQueries, VectorBallots

pytestmark = pytest.mark.usefixtures("in_this_process", "repeatable")
BAYES = GaussianNB()
FEW = {"teacher": VectorBallots(n_landmarks=30)}
# Of two landmarks, of which hardly anything can be learned.
BAD = {"teacher": VectorBallots(n_landmarks=1, quantile=0.01, rounds=1)}
SETTINGS = [{}, FEW, BAD]
PEOPLE = PrivacyUnit("entity", NeighboringRelation.ADD_REMOVE_OR_CHANGE_ONE_ENTITY)


def tuned(settings=SETTINGS, **changes):
    return PATEClassifier(tune=settings, **{"epsilon": 1.0, "random_state": 0, "noise": SimulationNoise(0), **changes})


def fit(model, n=1500, **more):
    return model.fit(PRIVATE[:n], LABELS[:n], X_public=PUBLIC, **more)


def sums_of(model) -> list[Any]:
    return [part.event for part in model.release_.event.flatten()]


@pytest.mark.rest
@pytest.mark.parametrize("seed", range(2))
def test_a_bad_setting_is_not_chosen(seed):
    # At ε = 1 the bad setting is right on a third of the rows, and the noise on a score is 0.01: that it wins has a
    # probability far below 10⁻⁹.
    model = fit(tuned(SETTINGS[::-1], noise=SimulationNoise(seed)))
    assert model.tuning_.chosen in (1, 2)
    assert model.tuning_.scores[0] < -0.1
    assert model.score(TEST, TRUE) > 0.6


@pytest.mark.rest
def test_what_was_chosen_is_what_predicts():
    settings = [BAD, {"student": LogisticRegression(), "features": PublicScaling.learn(PublicRows(PUBLIC, "public"))}]
    model = fit(tuned(settings))
    assert model.tuning_.chosen == 1
    assert isinstance(model.student_, LogisticRegression)
    assert isinstance(model.student_map_, PublicScaling)
    assert model.card().student == "LogisticRegression"
    assert "chosen among 2 settings" in model.card().selection
    assert_allclose(model.whole_student().predict(TEST), model.predict(TEST))


def brute_force(k: int, n_rows: int):
    """Yield every way in which `n_rows` rows of a person can be right or wrong under `k` students."""
    for answers in itertools.product((False, True), repeat=k * n_rows):
        yield np.array(answers).reshape(n_rows, k)


def ballot_of(right) -> np.ndarray:
    return score_ballots(right, np.zeros(len(right), dtype=np.int64), ONE_TEACHER).totals[0]


@pytest.mark.parametrize(("k", "n_rows"), [(2, 1), (2, 3), (3, 1), (3, 3), (4, 2), (5, 1), (8, 1), (9, 1)])
def test_no_person_moves_the_scores_further_than_is_accounted_for(k, n_rows):
    ballots = np.array([ballot_of(right) for right in brute_force(k, n_rows)], dtype=np.float64)
    longest = np.linalg.norm(ballots, axis=1).max()
    gram = ballots @ ballots.T
    squares = np.diag(gram)
    furthest = sqrt((squares[:, None] + squares[None, :] - 2 * gram).max())
    assert longest <= score_norm(k)
    assert furthest <= 2 * score_norm(k)
    if k % 2 == 0:  # the worst person has half of the students right, and its neighbor the other half
        assert furthest > 0.9999 * 2 * score_norm(k)


@pytest.mark.parametrize("k", [2, 3, 7, 20, 99, 100])
def test_planted_worst_people_are_accepted_and_the_bound_is_tight(k):
    for half in (k // 2, (k + 1) // 2):
        worst = (np.arange(k) < half)[np.newaxis]
        length = float(np.linalg.norm(ballot_of(worst)))
        assert length <= score_norm(k)
        assert length > (1 if k % 2 == 0 else sqrt(1 - 1 / k**2)) * 0.9999 * score_norm(k)


def test_a_score_ballot_that_is_twice_as_long_is_refused(monkeypatch):
    def doubled(weights, *rest, **more):
        return sum_of_products(2 * weights, *rest, **more)

    right = np.array([[True, False]])
    assert ballot_of(right).tolist() == [2**15, -(2**15)]
    monkeypatch.setattr(tuning, "sum_of_products", doubled)
    with pytest.raises(InvalidBallotError):
        ballot_of(right)


def test_a_person_with_many_rows_casts_one_ballot_and_leaves_with_it():
    random = np.random.default_rng(0)
    right, people = random.random((60, 5)) < 0.5, np.sort(random.integers(0, 9, 60))
    whole = score_ballots(right, people, PEOPLE)
    for person in np.unique(people):
        stays = people != person
        rest = score_ballots(right[stays], people[stays], PEOPLE)
        assert np.array_equal(whole.totals - rest.totals, ballot_of(right[~stays])[np.newaxis])
        assert np.linalg.norm(ballot_of(right[~stays])) <= score_norm(5)
    assert whole.norm_squared == score_norm(5) ** 2
    assert whole.unit == PEOPLE


class Crowded(ClassifierMixin):
    """A student that says something else when there are other rows beside a row, and counts them."""

    def __init__(self, student):
        self.student, self.most = student, 0

    def __deepcopy__(self, memo):
        return self

    def predict(self, X):
        self.most = max(self.most, len(X))
        return self.student.predict(X) if len(X) == 1 else np.full(len(X), 2)


KNOWN = Public.of_labels(PublicLabels(PUBLIC, PUBLIC, LABELS, 3, own=False), ONE_TEACHER, len(PRIVATE))


def cast(students, rows, labels, ids=None):
    found = [Candidate({}, NoisyMoments(student=student), None, KNOWN) for student in students]
    people = PrivateRows(rows, labels, Shards.of_single_people(len(rows), ids))
    prepared = Tuned(pilot=found[0], candidates=found, share=0.4).prepare(KNOWN, people)
    request: Any = None
    return ScoreBallot(found, students).cast(prepared, request, np.arange(1))


def test_a_student_sees_the_rows_of_one_person_at_a_time():
    students = [Crowded(GaussianNB().fit(PRIVATE, LABELS)), Crowded(DecisionTreeClassifier().fit(PRIVATE, LABELS))]
    rows, labels = PRIVATE[:200], LABELS[:200]
    whole = cast(students, rows, labels)
    assert [student.most for student in students] == [1, 1]
    stays = np.arange(200) != 17
    rest = cast(students, rows[stays], labels[stays])
    right = [student.predict(rows[17:18]) == labels[17] for student in students]
    assert np.array_equal((whole.totals - rest.totals)[0], ballot_of(np.array(right).T))
    cast(students, rows, labels, np.repeat(np.arange(50), 4))
    assert [student.most for student in students] == [4, 4]


def test_the_closed_form_takes_each_row_by_itself():
    student: Any = NoisySumClassifier().fit(PRIVATE, LABELS)
    order = np.random.default_rng(0).permutation(len(PRIVATE))
    whole = student.expected(PRIVATE)
    assert np.array_equal(student.expected(PRIVATE[order]), whole[order])
    assert np.array_equal(np.concatenate([student.expected(PRIVATE[[row]]) for row in range(50)]), whole[:50])
    assert_allclose(whole, student.decision_function(PRIVATE), atol=1e-4)
    together = student.residuals(PRIVATE, LABELS)
    for kept in (np.arange(1, len(PRIVATE)), np.arange(0, len(PRIVATE), 7), np.array([11])):
        assert np.array_equal(student.residuals(PRIVATE[kept], LABELS[kept]), together[kept])


class Failing(ClassifierMixin):
    """A student that fails on some rows, for `times` calls about each, and quotes a private row in its error."""

    def __init__(self, rows, times, error: Any = MemoryError):
        self.rows, self.times, self.error, self.calls = rows, times, error, Counter[float]()

    def __deepcopy__(self, memo):
        return self

    def predict(self, X):
        self.calls[X[0, 0]] += 1
        if X[0, 0] in self.rows and self.calls[X[0, 0]] <= self.times:
            raise self.error(f"secret {X[0, 0]}")
        return np.ones(len(X), dtype=np.int64)


def test_a_student_that_fails_on_a_persons_rows_is_wrong_on_them():
    always = DecisionTreeClassifier().fit(PRIVATE[:2], [1, 1])
    found = cast([Failing(PRIVATE[:, 0], 9, ValueError), always], PRIVATE[:10], np.ones(10, dtype=np.int64)).totals
    assert found.tolist() == [[-10 * 2**15, 10 * 2**15]]
    assert repr(PeopleReady((), (PRIVATE,))) == "PeopleReady()"


@pytest.mark.parametrize(("times", "n_wrong"), [(0, 0), (1, 0), (2, 1)])
def test_a_person_is_wrong_for_lack_of_memory_only_if_it_lacks_alone(times, n_wrong):
    always = DecisionTreeClassifier().fit(PRIVATE[:2], [0, 0])
    labels, student = np.ones(10, dtype=np.int64), Failing(PRIVATE[:1, 0], times)
    found = cast([student, always], PRIVATE[:10], labels).totals.tolist()
    assert found == [[(10 - n_wrong) * 2**15, -(10 - n_wrong) * 2**15]]


@pytest.mark.parametrize("epsilon", [0.1, 3.0])
def test_the_proved_epsilon_is_that_of_all_sums_together(epsilon):
    model: Any = fit(tuned([{}, FEW, {"student": GaussianNB()}], epsilon=epsilon))
    assert epsilon * 0.9998 < model.epsilon_.epsilon <= epsilon
    assert model.ledger_.spent <= model.ledger_.budget == epsilon
    sums = sums_of(model)
    assert len(sums) == 2 + 1 + 2
    assert all(isinstance(event, NoisySumGaussian) for event in sums)
    # Two lengths apart in each sum, μ² = Σ(2c/σ)² (Balle and Wang 2018, Theorem 8).
    mu = sqrt(sum(4 * event.norm_squared / event.sigma**2 for event in sums))
    delta = normal.cdf(-epsilon / mu + mu / 2) - exp(epsilon) * normal.cdf(-epsilon / mu - mu / 2)
    assert 0.97e-5 < delta <= 1e-5
    assert mu == pytest.approx(2 / model.mechanism_.noise_multiplier, rel=1e-6)


@pytest.mark.rest
def test_settings_that_differ_in_the_student_share_every_sum(monkeypatch):
    asked = []

    def counted(name, call):
        return lambda *given, **more: (asked.append(name), call(*given, **more))[1]

    monkeypatch.setattr(NoisyMoments, "sums", counted("sums", NoisyMoments.sums))
    monkeypatch.setattr(tuning, "rehearsed", counted("rehearsed", rehearsed))
    model = fit(tuned([{}, {"student": GaussianNB()}, {"student": DecisionTreeClassifier()}]))
    assert asked == ["sums", "sums", "rehearsed", "sums"]
    assert len(sums_of(model)) == 5
    # The trial was over the same ballots, and is not thrown away.
    trial, final = (sums_of(model)[place] for place in (0, 3))
    one = sqrt(1 / (trial.norm_squared / trial.sigma**2 + final.norm_squared / final.sigma**2))
    radius = model.moments_[0].radius
    assert model.moments_[0].noise == pytest.approx(one * radius / 1500)


def test_the_noise_on_a_score_is_what_the_record_says():
    # Where all students are right, scores are noise alone: 240 draws. The test fails with a probability of 10⁻⁶ if the
    # deviation is right, and passes with one below 10⁻⁴ if it is 1.4 times too small or too large.
    ballots = score_ballots(np.ones((1500, 2), dtype=bool), np.arange(1500), ONE_TEACHER)
    mechanism, source = NoisySum(5.0), SimulationNoise(1)
    released = [mechanism.release(ballots, source).values[0] / (2**16 * 1500) for _ in range(120)]
    stated = 5.0 * score_norm(2) / (2**16 * 1500)
    square = float((np.array(released) ** 2).sum())
    for deviation, right in ((stated, True), (stated / 1.4, False), (stated * 1.4, False)):
        p = 2 * min(chi2.cdf(square / deviation**2, 240), chi2.sf(square / deviation**2, 240))
        assert bool(p > 1e-6) is right


@pytest.mark.parametrize("budget", [None, 3.0], ids=["one kind of release", "all kinds"])
def test_the_same_fit_costs_nothing_and_chooses_the_same(budget, tmp_path):
    ledger = tmp_path / "private.ledger"
    settings = [{}, FEW, {"student": DecisionTreeClassifier()}]
    first = fit(tuned(settings, ledger=ledger, noise=None, budget=budget))
    assert 0.99 < first.epsilon_.epsilon <= 1.0
    assert first.ledger_.budget == (budget or 1.0)
    assert first.release_.cost == pytest.approx(first.ledger_.spent)
    assert first.ledger_.spent < (1.6 if budget else 1.0001)
    with pytest.warns(BudgetContinuedWarning, match="The sums were released before"):
        again = fit(clone(tuned(settings, ledger=ledger, noise=None, random_state=None, budget=budget)))
    assert again.release_.cost == 0
    assert again.tuning_.scores == first.tuning_.scores
    assert again.tuning_.chosen == first.tuning_.chosen
    assert np.array_equal(again.predict(TEST), first.predict(TEST))
    assert Ledger.open(ledger).verify().spent == first.ledger_.spent


@pytest.mark.rest
def test_other_settings_are_paid_for_anew(tmp_path):
    ledger = tmp_path / "private.ledger"
    spent = fit(tuned(ledger=ledger, noise=None)).ledger_.spent
    for settings in ([{}, BAD], [FEW, {}, BAD]):
        with pytest.raises(BudgetExceededError):
            fit(tuned(settings, ledger=ledger, noise=None))
    assert Ledger.open(ledger).state().spent == spent


@pytest.mark.rest
@pytest.mark.parametrize("ids", [None, np.arange(1500) // 3])
def test_nothing_is_spent_where_there_is_no_room_for_everything(tmp_path, ids):
    # What remains would hold the trial, and the scores, but not the final sums.
    unit = PrivacyUnit("row", NeighboringRelation.CHANGE_ONE_ROW) if ids is None else PEOPLE
    ledger = Ledger.create(tmp_path / "a.ledger", epsilon=1.5, delta=1e-5, unit=unit, accounting="gaussian")
    before = fit(PATEClassifier(epsilon=1.0, ledger=ledger, noise=None), entity_ids=ids).ledger_.spent
    with pytest.raises(BudgetExceededError):
        fit(tuned(ledger=ledger, noise=None, epsilon=1.4), entity_ids=ids)
    assert ledger.state().spent == before


@pytest.mark.rest
def test_the_number_of_people_is_released_once_and_shared():
    ids = np.repeat(np.arange(500), 3)
    model: Any = fit(tuned(unit="patient"), entity_ids=ids)
    assert model.epsilon_.unit == PrivacyUnit("patient", NeighboringRelation.ADD_REMOVE_OR_CHANGE_ONE_ENTITY)
    assert 0.999 < model.epsilon_.epsilon <= 1
    sums = sums_of(model)
    assert [event.dimension == 1 for event in sums] == [True] + [False] * (len(sums) - 1)
    assert 0 < abs(model.n_teachers_ - 500) < 500
    event = sums[3]
    assert model.tuning_.noise == pytest.approx(event.sigma / (2**16 * model.n_teachers_))


def test_without_a_ledger_nothing_but_simulated_noise_is_drawn():
    people = NoisyMoments().prepare(KNOWN, PrivateRows(PRIVATE, LABELS, Shards.of_single_people(len(PRIVATE))))
    with pytest.raises(InvalidParameterError, match="must have simulated noise"):
        rehearsed(NoisyMoments(mechanism=NoisySum(3.0)).steps(KNOWN), people, SystemNoise())


@pytest.mark.parametrize(("changes", "words"), [
    *(({"settings": [{}] * n}, f"2 to 100 settings. Got {n}") for n in (0, 1, 101)),
    ({"settings": {"student": None}}, "`tune` of PATEClassifier"),
    ({"settings": [{}, {"epsilon": 3.0}]}, "whose names are among"),
    *(({"settings": [{}, {"teacher": one}]}, "for ballots of V") for one in (GaussianNB(), NearestQueries(3))),
    ({"settings": [{}, {"student": "no-such"}]}, "no-such"),
    ({"settings": [{}, {"features": GaussianNB()}]}, "must be a public feature map"),
    ({"teacher": GaussianNB()}, "for ballots of VectorBallots"),
    ({"n_queries": 10}, "about votes on single rows"),
    ({"mechanism": NoisySum(3.0), "epsilon": None}, "Leave out `mechanism`"),
    *(({"tune_share": share}, "`tune_share` of PATEClassifier") for share in (0.0, 1.0)),
])  # fmt: skip
def test_what_cannot_be_tuned_is_refused_in_one_sentence(changes, words):
    with pytest.raises(InvalidParameterError, match=words) as caught:
        fit(tuned(**changes))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("estimator", "setting", "method"), [
    ({"method": NoisyMoments(rounds=1)}, {"student": BAYES}, NoisyMoments(rounds=1, student=BAYES)),
    ({"method": NoisyMoments(student=BAYES)}, FEW, NoisyMoments(n_landmarks=30, student=BAYES)),
    ({"method": NoisyMoments(student=BAYES)}, {"student": None}, NoisyMoments()),
    (FEW, {"method": NoisyMoments(rounds=3)}, NoisyMoments(rounds=3)),
    ({"rounds": 1}, FEW, NoisyMoments(n_landmarks=30)),
    ({"rounds": 1}, {"student": BAYES}, NoisyMoments(rounds=1, student=BAYES)),
])  # fmt: skip
def test_settings_may_spell_the_method_in_another_way_than_the_estimator(estimator, setting, method):
    _, same, changed = tuned([{}, setting], **estimator).resolved_settings()
    assert same.method == tuned(**estimator).resolved().method
    assert changed.method == method


class Centered(PublicFeatureMap):
    """A map that takes the mean of a call from its rows."""

    def transform(self, X):
        return X - X.mean(axis=0)


def test_a_student_map_that_looks_at_other_rows_and_rows_in_batches_are_refused():
    with pytest.raises(InvalidParameterError, match="when other rows are beside it"):
        fit(tuned([{}, {"student_features": Centered(), "student": GaussianNB()}]))
    batches: Any = PRIVATE
    model = tuned(classes=["a", "b"])
    with pytest.raises(InvalidParameterError, match="all private rows in memory"):
        model._rows_in_batches(batches, batches, model.resolved_settings(), "y", PUBLIC, None, None, None, None)


@pytest.mark.rest
def test_named_columns_and_maps_of_several_settings_survive_a_clone():
    table = {name: PRIVATE[:1500, place] for place, name in enumerate("abcd")}
    public = {name: PUBLIC[:, place] for place, name in enumerate("abcd")}
    columns = PublicColumns.learn(public)
    axes = PublicPCA.learn(PublicRows(PUBLIC, "public"), 3)
    settings = [{}, {"features": make_pipeline(columns, axes)}]
    model: Any = clone(tuned(settings, features=columns))
    model.fit(table, LABELS[:1500], X_public=public)
    assert model.score({name: TEST[:, place] for place, name in enumerate("abcd")}, TRUE) > 0.6
    other = PublicColumns.learn({**public, "e": PUBLIC[:, 0]})
    with pytest.raises(InvalidParameterError, match="same PublicColumns"):
        tuned([{}, {"features": make_pipeline(other, axes)}], features=columns).fit(
            table, LABELS[:1500], X_public=public
        )


configure = partial(configure_people, by=VECTORS)
CLOSED = "LogisticRegression"
SECTION = """[tuning]
settings = [
    { quantile = 0.6, n_landmarks = 30, rounds = 1 },
    { map = "pca", components = 2 },
    { student = { name = "sklearn.tree.DecisionTreeClassifier", max_depth = 2 } },
]
"""


@pytest.mark.rest
def test_a_run_says_which_setting_was_chosen_and_what_that_took(tmp_path):
    write_people(tmp_path)
    configure(tmp_path, more=SECTION + "share = 0.5")
    result = succeeded(tutelage("run", "config.toml", cwd=tmp_path))
    assert "of 3 chosen" in result.stdout
    assert "50% of all" in result.stdout
    card = json.loads((tmp_path / "out" / "card.json").read_text())
    assert "chosen among 3 settings" in card["selection"]
    assert card["public_epsilon"] <= 2.0
    kinds = {"setting 1": CLOSED, "setting 2": CLOSED, "setting 3": "DecisionTreeClassifier"}
    chosen = next(kind for name, kind in kinds.items() if name in result.stdout)
    assert card["student"] == chosen
    (tmp_path / "out").rename(tmp_path / "before")
    assert ran(tmp_path)["budget"]["spent"] == card["budget"]["spent"]
    succeeded(tutelage("audit", "config.toml", "--draws", 5000, "--json", cwd=tmp_path))


@pytest.mark.parametrize(("more", "words"), [
    ("[{}, 3]", "must be a list, each entry a table"),
    ("[{}, { quantil = 0.2 }]", "Did you mean `quantile`?"),
    ("[{}, { map = 'rings' }]", "must be one of"),
    ("[{}, { student = { a = 1 } }]", "must be a name, or a table with `name` and parameters"),
    ("[{}, { student = 'os.system' }]", "dotted scikit-learn name"),
])  # fmt: skip
def test_a_configuration_is_checked_before_anything_private_is_read(tmp_path, more, words):
    configure(tmp_path, more=f"[tuning]\nsettings = {more}")  # there are no files to read
    assert words in refusal(tutelage("run", "config.toml", cwd=tmp_path), 2)


def test_a_student_that_draws_while_it_predicts_cannot_carry_one_person_to_the_next():
    """A random state inside of a student moves with every row it predicts; the next person must not notice."""
    student, rows = DummyClassifier(strategy="uniform", random_state=np.random.RandomState(0)), np.zeros((50, 1))
    student.fit(rows[:4], [0, 1, 0, 1])
    first = tuning._fresh(student).predict(rows)
    tuning._fresh(student).predict(rows[:7])
    np.testing.assert_array_equal(tuning._fresh(student).predict(rows), first)
