"""Goals: what a student is judged by, and how much classes count in its predictions."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics import accuracy_score, average_precision_score, balanced_accuracy_score
from sklearn.pipeline import make_pipeline

from tutelage import PATEClassifier, SimulationNoise
from tutelage.exceptions import InvalidParameterError
from tutelage.mechanisms import GNMax
from tutelage.methods import CappedVotes, TeacherVotes
from tutelage.planning import plan
from tutelage.students import NoisySumClassifier, export_onnx
from tutelage.students.stacking import with_class_weights
from tutelage.targets import ClassWeights, Goal

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(3_000, 3))
# 5 % and 24 %
RARE, COMMON = (
    np.where(ROWS[:, 0] + RNG.normal(size=3_000) > more, "yes", "no") for more in (2.4, 1)
)


def fitted(goal: str = "balanced_accuracy", labels: Any = RARE, **changes: Any) -> Any:
    settings: dict[str, Any] = {
        "epsilon": 1.0,
        "classes": ["no", "yes"],
        "noise": SimulationNoise(0),
        **changes,
    }
    return PATEClassifier(random_state=0, goal=goal, **settings).fit(
        ROWS[:2000], labels[:2000], X_public=ROWS[2000:2400]
    )


@settings(max_examples=20)
@given(
    seed=st.integers(0, 10_000),
    n_classes=st.integers(2, 4),
    k=st.integers(1, 99),
    weighs=st.booleans(),
)
def test_numbers_are_those_of_scikit_learn(seed, n_classes, k, weighs):
    rng = np.random.default_rng(seed)
    truth, scores = (
        rng.integers(n_classes, size=100),
        rng.dirichlet(np.ones(n_classes), 100).round(1),
    )
    weight, predicted = rng.integers(1, 4, 100) if weighs else None, scores.argmax(axis=1)
    for name, known in (
        ("accuracy", accuracy_score),
        ("balanced_accuracy", balanced_accuracy_score),
    ):
        assert_allclose(
            Goal(name).score(truth, scores, weight), known(truth, predicted, sample_weight=weight)
        )
    found = Goal("average_precision").score(truth, scores, weight)
    assert_allclose(found, average_precision_score(truth == 1, scores[:, 1], sample_weight=weight))
    orders = (np.lexsort((rng.random(100), -scores[:, 1])) for _ in range(200))
    mean = np.mean([(truth[order[:k]] == 1).sum() / (truth == 1).sum() for order in orders])
    # Of ties in any order.
    assert_allclose(Goal(f"recall at {k} %").score(truth, scores), mean, atol=0.07)
    same = np.tile(np.bincount(truth) / 100, (100, 1))
    for goal in map(
        Goal, ("accuracy", "balanced_accuracy", "average_precision", f"recall at {k} %")
    ):
        assert_allclose(goal.score(truth, same), goal.without_model(truth))


def test_weights_multiply_the_chances_of_closed_forms_in_onnx_too(tmp_path):
    session = pytest.importorskip("onnxruntime").InferenceSession
    y, weights = RNG.integers(3, size=3_000), np.array([1.0, 4.0, 0.5])
    for student, m in product((NoisySumClassifier(), LogisticRegression()), (2, 3)):
        plain: Any = student.fit(ROWS, y % m)
        heavy, expected = (
            with_class_weights(plain, weights[:m]),
            plain.predict_proba(ROWS) * weights[:m],
        )
        assert_allclose(heavy.predict_proba(ROWS), expected / expected.sum(axis=1, keepdims=True))
        assert_array_equal(heavy.predict(ROWS), expected.argmax(axis=1))
        label, chances = session(export_onnx(heavy, tmp_path / "onnx").read_bytes()).run(
            None, {"rows": ROWS}
        )
        assert_allclose(chances, heavy.predict_proba(ROWS), atol=1e-5)
        assert np.mean(label == heavy.predict(ROWS)) > 0.99


@pytest.mark.rest
def test_balanced_accuracy_rises_and_the_ranking_stays_at_no_further_cost(tmp_path):
    ledger = tmp_path / "ledger"
    plain, balanced = (
        fitted(goal, budget=1.0, ledger=ledger) for goal in ("accuracy", "balanced_accuracy")
    )
    assert balanced.release_.cost == 0 < plain.release_.cost  # a goal is no other release
    rows, truth = ROWS[2400:], RARE[2400:]
    (reached,) = balanced.card(rows, truth).student.judged.goals
    assert (reached.goal, reached.no_model) == ("balanced accuracy", 0.5)
    assert reached.student == balanced.score(rows, truth)
    assert reached.student > balanced_accuracy_score(truth, plain.predict(rows)) + 0.15
    ranked = (
        average_precision_score(truth == "yes", one.predict_proba(rows)[:, 1])
        for one in (plain, balanced)
    )
    assert_allclose(*ranked, rtol=1e-6)


def test_the_second_declared_class_is_positive_and_a_ranking_changes_no_prediction():
    ranked, turned = fitted("recall at 5 %"), fitted("recall at 5 %", classes=["yes", "no"])
    assert_array_equal(ranked.predict(ROWS), fitted("accuracy").predict(ROWS))
    for model, name in ((ranked, "yes"), (turned, "no")):
        assert (
            model.card(ROWS[2400:], RARE[2400:]).student.judged.goals[0].goal
            == f"recall at 5 % (positive: {name})"
        )
    assert ranked.card(ROWS[RARE == "no"], RARE[RARE == "no"]).student.judged.goals == ()


@pytest.mark.rest
def test_students_of_votes_learn_by_the_weights():
    student = make_pipeline(LogisticRegression())
    votes = TeacherVotes(LogisticRegression(), n_teachers=20, mechanism=GNMax(1.0), student=student)
    weights = None, {"no": 1.0, "yes": 50.0}
    plain, model = (
        fitted("accuracy", COMMON, epsilon=None, method=votes, class_weight=one) for one in weights
    )
    assert (plain.class_weight_, model.class_weight_) == weights
    assert np.mean(model.predict(ROWS) == "yes") > 0.01 + np.mean(plain.predict(ROWS) == "yes")
    assert ClassWeights().of_labels(np.array([0, 0, 0, 1, -1]), np.array([4, 7])) == {
        4: 2 / 3,
        7: 2.0,
    }


@pytest.mark.parametrize(("changes", "told"), [
    ({"goal": "recall at 0 %"}, "such as recall at 5 %"), ({"class_weight": {"yes": 0}}, "positive"),
    ({"class_weight": {"maybe": 2}}, "class values"),
    ({"goal": "average_precision", "classes": ["no", "yes", "?"]}, "two classes"),
    ({"method": TeacherVotes(student=LogisticRegression(class_weight="balanced"))}, "leave its own"),
    ({"method": CappedVotes(student=RidgeClassifier()), "goal": "average_precision"}, "predict_proba"),
])  # fmt: skip
def test_what_cannot_be_honored_is_refused_before_anything_is_spent(changes, told, tmp_path):
    with pytest.raises(InvalidParameterError, match=told):
        fitted(**{"ledger": tmp_path / "ledger", "budget": 1.0, **changes})
    assert not (tmp_path / "ledger").exists()


@pytest.mark.rest
def test_a_plan_is_judged_by_balanced_accuracy():
    given: dict[str, Any] = {"people": 2_000, "X_public": ROWS[:900], "y_public": RARE[:900]}
    found = plan(3.0, **given, goal="balanced_accuracy")
    assert (found.majority, found.as_dict()["goal"]) == (0.5, "balanced_accuracy")
    assert found.best.expected > 0.65 < (found.alone.expected if found.alone else 0)
    for changes in ({"goal": "average_precision"}, {"method": CappedVotes()}, {"y_public": None}):
        with pytest.raises(InvalidParameterError, match="`goal`"):
            plan(3.0, **{**given, "goal": "balanced_accuracy", "classes": 2, **changes})
