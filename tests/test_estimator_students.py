"""How PATEClassifier chooses queries and trains students that learn from unlabelled rows."""

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier

from tutelage import ConfidentGNMax, GNMax, Ledger, PATEClassifier, SimulationNoise
from tutelage.accounting import data_independent
from tutelage.events import Repeated
from tutelage.exceptions import InvalidParameterError
from tutelage.features import PublicPCA, PublicRows
from tutelage.methods import TeacherVotes
from tutelage.privacy import NeighboringRelation, PrivacyUnit
from tutelage.students import ForestStudent, LabelPropagationStudent
from tutelage.students.selection import GivenRows, LeastConfident, Medoids

pytestmark = [pytest.mark.rest, pytest.mark.usefixtures("repeatable")]


# Private rows and labels, public rows and labels: four groups, of which each class has two.
_RNG = np.random.default_rng(5)
_GROUP = _RNG.integers(4, size=900)
_ROWS = np.array([[0, 0], [6, 6], [0, 6], [6, 0]])[_GROUP] + _RNG.random((900, 2)) * 3
X, X_public = _ROWS[:600], _ROWS[600:]
y, y_public = _GROUP[:600] // 2, _GROUP[600:] // 2


ROW = PrivacyUnit("row", NeighboringRelation.CHANGE_ONE_ROW)


VOTES = TeacherVotes(GaussianNB(), n_teachers=30, mechanism=GNMax(2.0), student=GaussianNB())


def model(**of_method) -> PATEClassifier:
    return PATEClassifier(method=VOTES.with_params(**of_method), random_state=0)


def tree_like(**of_method) -> PATEClassifier:
    """Return a model whose noise is the same each time, so that what is learned under it is too."""
    trees = RandomForestClassifier(5, random_state=0)
    return model(teacher=trees, **of_method).set_params(noise=SimulationNoise(0))


def test_a_student_that_learns_from_unlabeled_rows_needs_few_answers():
    few = {"n_queries": 12, "selection": "medoids"}
    propagated = tree_like(student="label-propagation", **few).fit(X, y, X_public=X_public)
    supervised = tree_like(student=LogisticRegression(), **few).fit(X, y, X_public=X_public)
    assert isinstance(propagated.student_, LabelPropagationStudent)
    assert propagated.student_.propagated_.shape == (300,)
    assert propagated.score(X_public, y_public) > supervised.score(X_public, y_public) + 0.1
    assert propagated.score(X_public, y_public) > 0.95


@pytest.mark.parametrize(("student", "values"), [
    (make_pipeline(StandardScaler(), LabelPropagationStudent()), ["well", "ill"]),
    (ForestStudent(), [-1, 1]),  # −1 marks an unlabeled row
    (LabelSpreading(kernel="knn"), [3, 7]),  # scikit-learn's own take numbers only
    (SelfTrainingClassifier(LogisticRegression()), [3, 7]),
], ids=str)  # fmt: skip
def test_students_speak_in_the_users_class_values(student, values):
    labels = np.array(values)[y]
    fitted = tree_like(student=student, n_queries=60, selection="random").fit(
        X, labels, X_public=X_public
    )
    assert set(fitted.predict(X_public).tolist()) == set(values)
    assert fitted.predict_proba(X_public).shape == (300, 2)
    assert fitted.score(X, labels) > 0.5


def test_public_features_make_propagation_the_default():
    features = PublicPCA.learn(PublicRows(X_public, "a test"), 2)
    assert isinstance(model(student=None).resolved().student, ForestStudent)
    assert not hasattr(model(student=RidgeClassifier()), "predict_proba")
    fitted = (
        tree_like(student=None, n_queries=20)
        .set_params(features=features)
        .fit(X, y, X_public=X_public)
    )
    assert isinstance(fitted.student_, LabelPropagationStudent)


def test_the_asked_rows_are_those_of_the_rule():
    rows = (9, 4, int(np.argmax(y_public != y_public[9])))
    first = tree_like(n_queries=15).fit(X, y, X_public=X_public)
    assert first.queries_.tolist() == list(range(15))
    given = tree_like(n_queries=3, selection=GivenRows(rows)).fit(X, y, X_public=X_public)
    assert given.queries_.tolist() == list(rows)
    assert given.votes_.n_queries == 3
    copy: Any = clone(model(selection="medoids"))
    assert isinstance(copy.resolved().method.rule, Medoids)


@pytest.mark.parametrize(("changes", "message"), [
    ({"selection": "class-balanced"}, "`selection` of TeacherVotes must be one of"),
    ({"selection": LeastConfident()}, "`rounds` of TeacherVotes must be at least 2"),
    ({"rounds": 9, "n_queries": 8}, "`rounds` of TeacherVotes must be at most `n_queries`"),
    ({"rounds": 2, "student": RidgeClassifier(), "selection": "least-confident"}, "must have `predict_proba`"),
    ({"student": "propagation"}, "`student` of TeacherVotes must be one of forest, label-propagation"),
    ({"student_features": "pixels"}, "must be 'rows' or a public feature map"),
])  # fmt: skip
def test_what_cannot_work_is_refused_before_anything_is_spent(changes, message, tmp_path):
    with pytest.raises(InvalidParameterError) as caught:
        model(**changes).set_params(ledger=tmp_path / "a.ledger").fit(X, y, X_public=X_public)
    assert message in str(caught.value)
    assert not (tmp_path / "a.ledger").exists()


def test_a_student_may_see_other_features_than_the_teachers():
    axes = PublicPCA.learn(PublicRows(X_public, "a test"), 1)
    narrow = PublicPCA.learn(PublicRows(X_public, "a test"), 2)
    fitted = tree_like(student_features=axes, student=GaussianNB(), n_queries=50)
    assert (
        fitted.set_params(features=narrow).fit(X, y, X_public=X_public).student_.n_features_in_ == 1
    )


def test_how_many_were_asked_is_no_part_of_the_published_epsilon():
    mechanism = ConfidentGNMax(threshold=1.0, sigma_threshold=30.0, sigma_vote=20.0)
    ledger = Ledger.in_memory(epsilon=2.0, delta=1e-5, unit=ROW)
    fitted = tree_like(mechanism=mechanism, n_queries=120, rounds=6, selection="random")
    fitted.set_params(ledger=ledger).fit(X, y, X_public=X_public)
    assert sum(fitted.rounds_) < 120
    assert fitted.epsilon_ == fitted.ledger_.guarantee()


def test_the_epsilon_of_a_release_by_itself_does_not_hang_on_rounding():
    ledger = Ledger.in_memory(epsilon=20.0, delta=1e-5, unit=ROW)
    fitted = tree_like(n_queries=60, mechanism=GNMax(20.0), rounds=7, selection="random")
    fitted.set_params(ledger=ledger).fit(X, y, X_public=X_public)
    one = GNMax(20.0).event_of_one(2, fitted.votes_.unit, simulated=True)
    assert fitted.epsilon_ == data_independent.epsilon(Repeated(one, 60), 1e-5)


@pytest.mark.parametrize(("student", "values", "message"), [
    (ForestStudent(), ("-1", "1"), "holds the text '-1'"),
    (LabelSpreading(), (-1, 1), "must not contain -1, because LabelSpreading reads"),
    (LabelSpreading(), ("no", "yes"), "must train without an error on public rows with made-up labels"),
])  # fmt: skip
def test_class_values_that_a_student_does_not_take_are_found_out_before(
    student, values, message, tmp_path
):
    with pytest.raises(InvalidParameterError, match=message):
        tree_like(student=student).set_params(ledger=tmp_path / "a").fit(
            X, np.array(values)[y], X_public=X_public
        )
    assert not (tmp_path / "a").exists()
