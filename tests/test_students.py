from typing import Any

import numpy as np
import pytest
import skops.io
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from tutelage.exceptions import InvalidDataError, OneClassWarning
from tutelage.features import PublicColumns
from tutelage.students import fit_student, load_student, save_student
from tutelage.tables import Table

CLASSES = np.array(["no", "yes"])


def test_a_student_learns_the_answered_queries_in_the_users_words():
    X = np.array([[0.0], [1.0], [0.1], [0.9], [0.5]])
    student = fit_student(DecisionTreeClassifier(), X, np.array([0, 1, 0, 1, -1]), CLASSES, seed=0)
    assert student.predict([[0.0], [1.0]]).tolist() == ["no", "yes"]
    assert student.tree_.n_node_samples[0] == 4


def test_the_same_seed_gives_the_same_student_and_a_set_one_stays():
    X, labels = np.random.default_rng(0).uniform(size=(60, 3)), np.arange(60) % 2
    one, other = (fit_student(RandomForestClassifier(3), X, labels, CLASSES, seed=4) for _ in range(2))
    assert np.array_equal(one.predict_proba(X), other.predict_proba(X))
    assert fit_student(RandomForestClassifier(3, random_state=9), X, labels, CLASSES, seed=4).random_state == 9


def test_one_released_class_makes_a_constant_student_and_says_so():
    with pytest.warns(OneClassWarning, match="same class"):
        student = fit_student(LogisticRegression(), np.eye(3), np.array([1, 1, -1]), CLASSES, seed=0)
    assert student.predict(np.eye(3)).tolist() == ["yes"] * 3


def test_no_answer_is_nothing_to_learn_from():
    with pytest.raises(InvalidDataError, match="No query was answered"):
        fit_student(LogisticRegression(), np.eye(2), np.array([-1, -1]), CLASSES, seed=0)


@pytest.mark.parametrize(
    "estimator",
    [
        RandomForestClassifier(5), HistGradientBoostingClassifier(max_iter=3), KNeighborsClassifier(), GaussianNB(),
        make_pipeline(StandardScaler(), MLPClassifier(max_iter=1000)), CalibratedClassifierCV(LogisticRegression()),
    ],
    ids=lambda estimator: type(estimator).__name__,
)  # fmt: skip
def test_a_student_comes_back_from_disk(estimator, tmp_path):
    X = np.random.default_rng(0).uniform(size=(60, 3))
    student = fit_student(estimator, X, (X[:, 0] > 0.5).astype(int), CLASSES, seed=0)
    save_student(student, tmp_path / "student.skops")
    back = load_student(tmp_path / "student.skops")
    assert np.array_equal(back.predict(X), student.predict(X))


def test_a_missing_or_foreign_file_is_refused(tmp_path):
    (tmp_path / "other.skops").write_bytes(b"not an archive")
    for name, said in (("nothing", "cannot be read: No such file"), ("other", "is not a readable skops file")):
        with pytest.raises(InvalidDataError, match=f"{name}.skops {said}"):
            load_student(tmp_path / f"{name}.skops")


def test_a_file_with_an_unknown_type_is_refused_unless_vouched_for(tmp_path):
    path = tmp_path / "student.skops"
    skops.io.dump({"model": UnknownModel()}, path)
    with pytest.raises(InvalidDataError, match="UnknownModel"):
        load_student(path)
    name = f"{UnknownModel.__module__}.UnknownModel"
    assert isinstance(load_student(path, trusted=(name,))["model"], UnknownModel)


class UnknownModel:
    """A type that scikit-learn does not know."""

    kind = "unknown"


def test_a_student_that_an_earlier_version_stored_still_loads(tmp_path):
    """A run kept the categories in scikit-learn's own encoder, before columns had names."""
    rows = np.array([[31.0, "Ulm"], [45.0, "Bonn"], [np.nan, "Ulm"]], dtype=object)
    categories: Any = [["Bonn", "Ulm"]]
    codes = OrdinalEncoder(
        categories=categories, handle_unknown="use_encoded_value", unknown_value=-1, dtype=np.float64
    )
    encoder = ColumnTransformer([("numbers", "passthrough", [0]), ("codes", codes, [1])])
    student = make_pipeline(encoder, DecisionTreeClassifier()).fit(rows, ["yes", "no", "yes"])
    save_student(student, tmp_path / "student.skops")
    back = load_student(tmp_path / "student.skops")
    assert back.predict(rows).tolist() == ["yes", "no", "yes"]
    # And what it was trained on is what it would be trained on today: answers in a ledger are those of these numbers.
    table = Table("public.csv", {"age": ["31", "45", ""], "city": ["Ulm", "Bonn", "Ulm"]})
    now = PublicColumns.learn(table, ("age", "city")).transform(table)
    assert np.array_equal(now, np.asarray(encoder.transform(rows), dtype=np.float64), equal_nan=True)


def test_columns_that_were_stored_before_dates_were_numbers_stay_categories(tmp_path):
    columns = PublicColumns(("age", "day"), (None, np.array(["2020-01-01", "2020-01-02"])))
    del columns.__dict__["dates"]  # which earlier versions did not write
    rows = {"age": ["31", "?"], "day": ["2020-01-02", "2020-01-03"]}
    student = make_pipeline(columns, DecisionTreeClassifier()).fit(rows, ["yes", "no"])
    save_student(student, tmp_path / "student.skops")
    back = load_student(tmp_path / "student.skops")
    np.testing.assert_array_equal(back[0].transform(rows), [[31, 1], [np.nan, -1]])
    assert back.predict(rows).tolist() == ["yes", "no"]
