import json
import re
from dataclasses import dataclass, replace
from statistics import NormalDist
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
from sklearn.tree import DecisionTreeClassifier

from conftest import REPOSITORY
from tutelage import GNMax, SimulationNoise
from tutelage.accounting.data_independent import epsilon
from tutelage.ballots import tally
from tutelage.datasets import load_adult
from tutelage.events import Repeated
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.partition import Shards
from tutelage.students import fit_student
from tutelage.teachers import EstimatorTeachers
from tutelage_reproductions import membership as reproduction
from tutelage_reproductions.likelihood_ratio import (
    MembershipResult,
    RocPanel,
    lira_scores,
    membership_attack,
)

ROWS = 300


@dataclass
class Fixed:
    """A model of two classes that gives each row of the attack a probability of its own, whatever the row is."""

    of_one: np.ndarray

    def predict_proba(self, X):
        return np.stack([1 - self.of_one, self.of_one], axis=1)


@pytest.fixture
def blobs():
    """Two classes that overlap by far, so that only memory tells rows apart."""
    random = np.random.default_rng(0)
    y = random.integers(2, size=ROWS)
    return random.normal(size=(ROWS, 2)) + y[:, np.newaxis] * 0.7, y


def of_no_row(members, seed):
    """Train on nothing: rows differ in difficulty, runs in confidence."""
    random = np.random.default_rng(seed)
    hard = np.random.default_rng(9).normal(size=len(members))
    return Fixed(1 / (1 + np.exp(-hard - random.normal() - random.normal(size=len(members)))))


def made_up(random, *, targets=16, rows=100, effect=0.0, run=0.0, row=0.0, both=0.0):
    members = random.random((targets, rows)) < 0.5
    by_row = effect + row * random.normal(size=rows) + both * random.normal(size=(targets, 1))
    scores = (
        members * by_row
        + run * random.normal(size=(targets, 1))
        + random.normal(size=(targets, rows))
    )
    return MembershipResult(scores, members, 64, "online")


def test_a_model_that_saw_no_row_gives_nobody_away():
    for variant in ("online", "offline"):
        found = membership_attack(
            of_no_row, np.zeros((ROWS, 1)), np.ones(ROWS, dtype=int), variant=variant
        )
        low, high = found.interval
        assert low < 0.5 < high < low + 0.06
        assert found.epsilon_lower_bound() == 0.0
        low, high = found.tpr_interval(0.01)
        assert low < 0.01 < high


@pytest.mark.parametrize("variant", ["online", "offline"])
def test_a_student_of_private_rows_is_caught(blobs, variant):
    X, y = blobs

    def train(members, seed):
        return DecisionTreeClassifier(random_state=seed).fit(X[members], y[members])

    found = membership_attack(train, X, y, shadows=32, targets=8, variant=variant)
    assert found.interval[0] > 0.6
    assert found.epsilon_lower_bound(1e-5) > 2.0
    assert found.tpr_at(0.01) > 0.03


def test_votes_without_noise_of_few_teachers_of_whom_one_memorises_are_caught(blobs):
    X, y = blobs
    shards = Shards.of_rows(ROWS, 3, key=bytes(16)).assignment

    def train(members, seed):
        kinds = KNeighborsClassifier(1), NearestCentroid(), NearestCentroid()
        mine = [members & (shards == number) for number in range(3)]
        teachers = [kind.fit(X[rows], y[rows]) for kind, rows in zip(kinds, mine, strict=True)]
        return Fixed(np.mean([teacher.predict(X) for teacher in teachers], axis=0))

    memorised = shards == 0
    found = membership_attack(train, X, y, shadows=32, targets=16)
    assert found.interval[0] > 0.53
    assert found.epsilon_lower_bound(1e-5) > 0.5
    of_one = MembershipResult(found.scores[:, memorised], found.members[:, memorised], 32, "online")
    of_others = MembershipResult(
        found.scores[:, ~memorised], found.members[:, ~memorised], 32, "online"
    )
    assert of_one.auc > 0.65 > 0.55 > of_others.auc


def test_noise_is_what_hides_members_even_where_their_own_rows_are_asked(blobs):
    X, y = blobs
    shards = Shards.of_rows(ROWS, 3, key=bytes(range(1, 17)))

    def pate(sigma):
        def train(members, seed):
            mine = Shards(shards.assignment[members], 3, shards.unit)
            teachers = EstimatorTeachers(DecisionTreeClassifier(), n_classes=2, seed=0)
            votes = tally(teachers.fit_ballots(X[members], y[members], mine, X), 2, shards.unit)
            labels = GNMax(sigma).release(votes, SimulationNoise(seed)).labels
            return fit_student(KNeighborsClassifier(1), X, labels, np.arange(2), seed=seed)

        return membership_attack(train, X, y, shadows=16, targets=6)

    plain, hidden = pate(1e-3), pate(60.0)
    assert plain.interval[0] > 0.54
    assert plain.epsilon_lower_bound(1e-5) > 0.3
    assert hidden.interval[0] < 0.5 < hidden.interval[1]
    claim = epsilon(
        Repeated(GNMax(60.0).event_of_one(2, shards.unit, simulated=True), ROWS), 1e-5
    ).epsilon
    assert hidden.epsilon_lower_bound(1e-5) == 0.0 < claim < 2


@pytest.mark.parametrize("told", [0.5, 2.0])
def test_the_lower_bound_is_true_and_not_far_off(told):
    keep = 1 / (1 + np.exp(-told))
    bounds = []
    for seed in range(60):
        random = np.random.default_rng(seed)
        members = random.random((8, 2000)) < 0.5
        kept = random.random(members.shape) < keep  # randomized response: the worst that ε allows
        result = MembershipResult(
            np.where(kept, members, ~members).astype(float), members, 64, "online"
        )
        bounds.append(result.epsilon_lower_bound(confidence=0.95))
    wrong = int(np.sum(np.array(bounds) > told))
    # At a true error of 5 %, more than that once in 10,000.
    assert wrong <= stats.binom.ppf(1 - 1e-4, 60, 0.05)
    assert np.median(bounds) > 0.8 * told


def test_the_lower_bound_allows_for_runs_that_give_everybody_away_at_once():
    delta = 0.3  # a whole run is an open book with this probability, so (0, δ)-privacy holds
    above = without = 0
    for seed in range(60):
        random = np.random.default_rng(seed)
        members = random.random((8, 100)) < 0.5
        opened = random.random((8, 1)) < delta
        scores = random.random(members.shape) + 2 * opened * (members - 0.5)
        result = MembershipResult(scores, members, 64, "online")
        above += result.epsilon_lower_bound(delta) > 0
        without += result.epsilon_lower_bound() > 0
    assert above <= stats.binom.ppf(1 - 1e-4, 60, 0.05) < without


def test_a_larger_delta_or_confidence_disproves_less():
    result = made_up(np.random.default_rng(1), effect=2.0)
    bounds = [result.epsilon_lower_bound(delta) for delta in (0.0, 1e-5, 1e-3, 1e-2)]
    assert bounds[0] >= bounds[1] > bounds[2] > bounds[3]
    assert bounds[0] > 1
    assert result.epsilon_lower_bound(confidence=0.999) < bounds[0]


def test_the_bound_may_rest_on_who_is_surely_out():
    random = np.random.default_rng(0)
    members = random.random((8, 500)) < 0.5
    # No row is surely in.
    scores = np.where(~members & (random.random(members.shape) < 0.2), 0.0, 1.0)
    assert MembershipResult(scores, members, 64, "online").epsilon_lower_bound() > 4


def test_rates_and_the_area_are_those_of_brute_force():
    random = np.random.default_rng(2)
    result = made_up(random, targets=3, rows=20, effect=1.0)
    result = replace(result, scores=np.round(result.scores))  # ties
    inside, outside = result.scores[result.members], result.scores[~result.members]
    pairs = np.sign(inside[:, np.newaxis] - outside) / 2 + 0.5
    assert result.auc == pytest.approx(pairs.mean())
    assert result.auc == pytest.approx(roc_auc_score(result.members.ravel(), result.scores.ravel()))
    for fpr in (0.001, 0.01, 0.1, 0.5):
        best = max(
            (inside >= t).mean()
            for t in [*np.unique(result.scores), np.inf]
            if (outside >= t).mean() <= fpr
        )
        assert result.tpr_at(fpr) == pytest.approx(best)


@pytest.mark.parametrize(
    "shape",
    [{}, {"run": 1.0}, {"effect": 0.7, "row": 1.0}, {"effect": 1.0, "run": 0.5, "both": 0.5}],
)
def test_the_interval_holds_the_area_where_rows_or_runs_go_together(shape):
    truth = made_up(np.random.default_rng(100), targets=600, rows=600, **shape).auc
    random = np.random.default_rng(3)
    missed, widths = 0, []
    for _ in range(100):
        low, high = made_up(random, **shape).interval
        missed += not low <= truth <= high
        widths.append(high - low)
    assert missed <= stats.binom.ppf(1 - 1e-4, 100, 0.05)
    assert np.median(widths) < 0.2


def test_scores_are_the_ratio_of_gaussians_with_shrunken_spreads():
    random = np.random.default_rng(4)
    shadows, observed = random.normal(size=(10, 6)), random.normal(size=(3, 6))
    members = random.permuted(np.arange(10)[:, np.newaxis] < np.full((10, 6), 5), axis=0)
    fits = {}
    for state in (True, False):
        own = [shadows[members[:, row] == state, row] for row in range(6)]
        shared = sum(values.var() * 5 for values in own) / (6 * 4)
        fits[state] = [
            (values.mean(), np.sqrt((values.var() * 5 + 16 * shared) / (4 + 16)) + 1e-6)
            for values in own
        ]
    for row in range(6):
        into, out = (NormalDist(*fits[state][row]) for state in (True, False))
        seen = observed[:, row].tolist()
        ratios = [np.log(into.pdf(value) / out.pdf(value)) for value in seen]
        assert lira_scores(shadows, members, observed)[:, row] == pytest.approx(ratios)
        tails = [-np.log(1 - out.cdf(value)) for value in seen]
        assert lira_scores(shadows, members, observed, variant="offline")[:, row] == pytest.approx(
            tails
        )


def test_rows_are_in_half_of_the_shadow_runs_and_in_targets_by_coins():
    seen = []

    def train(members, seed):
        seen.append((members.copy(), seed))
        members[:] = False  # it is a copy
        return Fixed(np.random.default_rng(seed).random(ROWS))

    y = np.ones(ROWS, dtype=int)
    first = membership_attack(train, np.zeros((ROWS, 1)), y, shadows=10, targets=4, random_state=5)
    masks, seeds = np.array([mask for mask, _ in seen]), [seed for _, seed in seen]
    assert (masks[:10].sum(axis=0) == 5).all()
    assert np.array_equal(masks[10:], first.members)
    assert 0.4 < first.members.mean() < 0.6
    assert len(np.unique(first.members.sum(axis=0))) > 2
    assert len(set(seeds)) == 14
    again = membership_attack(train, np.zeros((ROWS, 1)), y, shadows=10, targets=4, random_state=5)
    assert np.array_equal(again.scores, first.scores)


def test_classes_are_found_by_the_model_s_own_names_and_may_be_missing():
    y = np.array(["b", "a", "c"] * 20)

    def train(members, seed):
        probabilities = np.tile([0.7, 0.3], (60, 1)) + 0.01 * members[:, np.newaxis] * [1, -1]
        return SimpleNamespace(classes_=np.array(["b", "a"]), predict_proba=lambda X: probabilities)

    found = membership_attack(train, np.zeros((60, 1)), y, shadows=8, targets=4)
    inside = found.members
    for name, sign in (("b", 1), ("a", -1)):
        mine = y == name
        best = MembershipResult(sign * found.scores[:, mine], inside[:, mine], 8, "online")
        assert best.auc == (1.0 if sign > 0 else 0.0) or name == "a"
    unknown = found.scores[:, y == "c"]
    assert np.ptp(unknown) == 0.0  # no model knows them, in or out
    assert found.auc > 0.6


def test_what_is_found_is_plain_and_names_no_row(tmp_path):
    result = made_up(np.random.default_rng(6), effect=1.5)
    found = json.loads(json.dumps(result.as_dict(delta=1e-5)))
    assert found["attack"] == "LiRA, online"
    assert found["auc_interval"][0] < found["auc"] < found["auc_interval"][1]
    assert set(found["tpr_at_fpr"]) == {"0.001", "0.01"}
    assert found["epsilon_lower_bound"] == result.epsilon_lower_bound(1e-5)
    assert (found["rows"], found["targets"], found["shadows"]) == (100, 16, 64)
    assert repr(result) == "MembershipResult(shadows=64, variant='online')"
    paths = result.figure(epsilon=1.0, delta=1e-5).save(tmp_path, "roc")
    assert paths[0].read_bytes().startswith(b"\x89PNG")
    assert "<svg" in paths[1].read_text()


def test_a_panel_draws_the_curve_and_what_a_claim_allows():
    result = made_up(np.random.default_rng(7), effect=1.0)
    panel = RocPanel.of("made up", {"attack": result}, epsilon=1.0, delta=0.01)
    rates, found = panel.curves["attack"]
    assert rates[0] == pytest.approx(5 / np.sum(~result.members))
    assert rates[-1] == found[-1] == 1
    for fpr, tpr in list(zip(rates, found, strict=True))[:-1]:
        assert tpr == result.tpr_at(fpr)
    allowed = panel.allowed(np.array([0.001, 0.9, 1.0]))
    assert allowed == pytest.approx([np.e * 0.001 + 0.01, 1 - (0.99 - 0.9) / np.e, 1.0])
    assert replace(panel, epsilon=None).allowed(np.array([0.1])) == 1


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"shadows": 3}, "`shadows` of membership_attack must be an integer >= 4"),
        ({"targets": 1}, "`targets` of membership_attack must be an integer >= 2"),
        ({"random_state": -1}, "`random_state` of membership_attack must be an integer >= 0"),
        ({"variant": "both"}, "must be 'online' or 'offline'. Got 'both'"),
    ],
)
def test_settings_out_of_range_are_refused_before_anything_is_trained(settings, complaint):
    with pytest.raises(InvalidParameterError, match=complaint):
        membership_attack(
            lambda members, seed: 1 / 0, np.zeros((5, 1)), np.zeros(5, dtype=int), **settings
        )


@pytest.mark.parametrize(
    ("X", "y"),
    [
        (np.zeros((5, 1)), np.zeros(4)),
        (np.zeros((5, 1)), np.zeros((5, 1))),
        (np.zeros((1, 1)), np.zeros(1)),
    ],
)
def test_rows_without_a_class_each_are_refused(X, y):
    with pytest.raises(InvalidDataError, match="one entry per row"):
        membership_attack(of_no_row, X, y)


@pytest.mark.parametrize(
    "found",
    [
        np.full((5, 2), np.nan),
        np.full((5, 2), -0.1),
        np.ones((4, 2)),
        np.ones(5),
        np.full((5, 2), np.inf),
    ],
)
def test_a_model_without_probabilities_is_refused(found):
    model: Any = SimpleNamespace(predict_proba=lambda X: found)
    with pytest.raises(
        InvalidDataError, match="`predict_proba` of the model under attack must return"
    ):
        membership_attack(lambda members, seed: model, np.zeros((5, 1)), np.zeros(5, dtype=int))


def test_misuse_of_results_is_refused():
    result = made_up(np.random.default_rng(8))
    for call in (
        lambda: result.tpr_at(0.0),
        lambda: result.tpr_interval(1.5),
        lambda: result.epsilon_lower_bound(1.0),
        lambda: result.epsilon_lower_bound(confidence=1.0),
        lambda: result.figure(epsilon=-1.0),
        lambda: lira_scores(
            np.zeros((2, 2)),
            np.eye(2, dtype=bool),
            np.zeros((1, 2)),
            variant="none",  # type: ignore[arg-type]
        ),
    ):
        with pytest.raises(InvalidParameterError):
            call()


@pytest.mark.parametrize(
    ("scores", "members", "complaint"),
    [
        (np.zeros(3), np.ones(3, dtype=bool), "one shape"),
        (np.zeros((1, 4)), np.arange(4)[np.newaxis] > 1, "two targets"),
        (np.zeros((2, 4)), np.arange(6).reshape(2, 3) > 1, "one shape"),
        (np.zeros((2, 3)), np.zeros((2, 3), dtype=bool), "members and others"),
        (np.zeros((2, 3)), np.ones((2, 3), dtype=bool), "members and others"),
        (np.zeros((2, 2)), np.eye(2), "a mask"),
        (np.full((2, 2), np.nan), np.eye(2, dtype=bool), "finite"),
    ],
)
def test_scores_that_belong_to_no_coins_are_refused(scores, members, complaint):
    with pytest.raises(InvalidDataError, match=complaint):
        MembershipResult(scores, members, 4, "online")


@pytest.mark.parametrize(
    ("shadows", "members", "observed"),
    [
        (np.zeros((2, 2)), np.ones((2, 2), dtype=bool), np.zeros((1, 2))),
        (np.zeros((2, 2)), np.eye(2), np.zeros((1, 2))),
        (np.zeros((2, 2)), np.eye(2, dtype=bool), np.zeros((1, 3))),
        (np.zeros((2, 3)), np.eye(2, dtype=bool), np.zeros((1, 3))),
        (np.zeros(2), np.array([True, False]), np.zeros((1, 2))),
    ],
)
def test_shadow_runs_that_teach_nothing_are_refused(shadows, members, observed):
    with pytest.raises(InvalidDataError, match="of lira_scores must"):
        lira_scores(shadows, members, observed)


def test_the_documented_attack_prints_what_it_says(capsys):
    page = (REPOSITORY / "docs" / "membership.md").read_text()
    example, printed = re.findall(r"^```(?:python)?\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    exec(example, {})  # noqa: S102  our own documentation
    assert capsys.readouterr().out == printed


@pytest.fixture
def less_adult(monkeypatch):
    """A few rows of Adult, and as little work on them."""
    whole = load_adult()
    less = replace(
        whole,
        X_private=whole.X_private[:800], y_private=whole.y_private[:800],
        X_public=whole.X_public[:400], y_public=whole.y_public[:400],
    )  # fmt: skip
    monkeypatch.setattr(reproduction, "load_adult", lambda: less)
    for name, value in {
        "EVALUATION_ROWS": 300, "_TEACHERS": 8, "_MANY": 200, "_FEW": 4, "_QUICK_RUNS": (8, 4), "_FOREST_SHARDS": 1,
        "_SMALL_SHARDS": 2, "_ADULT_QUERIES": 40, "_ADULT_SIGMA": 30.0, "_SCORED": 2,
    }.items():  # fmt: skip
        monkeypatch.setattr(reproduction, name, value)
    monkeypatch.setattr(reproduction, "RandomForestClassifier", lambda: reproduction._FOREST)


def test_attacks_on_adult_are_a_table_and_a_figure(less_adult, tmp_path):
    record = reproduction.reproduce(quick=True, download=False, progress=False)
    rows = {row.name: row for row in record.rows}
    (student,) = (
        name for name in rows if name.startswith("Adult, student") and "known: AUC" in name
    )
    assert rows["Adult, forest on all rows: AUC"].ours > 0.65
    assert rows["Adult, tree on a shard: AUC"].ours > 0.6
    assert 0.3 < rows[student].ours < 0.7
    disproved = rows[student.replace("AUC", "lower bound on ε")]
    assert disproved.at_most is not None
    assert disproved.ours <= disproved.at_most
    assert rows["Adult, forest on all rows: accuracy on held-out rows, %"].ours > 70
    names = {path.name for path in record.save(tmp_path)}
    assert names == {f"membership.{kind}" for kind in ("json", "csv", "png", "svg")}


def test_teachers_on_shards_answer_for_their_own_rows_alone():
    class Teacher:
        classes_ = np.array([1])

        def predict_proba(self, X):
            return np.ones((len(X), 1))

    teachers = reproduction._Teachers([Teacher(), Teacher()], 3)
    found = teachers.predict_proba(np.array([[5.0, 1.0], [5.0, 0.0], [5.0, 7.0]]))
    assert found.tolist() == [[0, 1, 0], [0, 1, 0], [0, 0, 0]]
