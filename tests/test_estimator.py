import pickle
import re
import traceback
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from ledgers import reserve, settle
from tutelage import ConfidentGNMax, GNMax, Ledger, LNMax, PATEClassifier, VoteHistogram
from tutelage.accounting import data_independent
from tutelage.boundary import Boundary
from tutelage.events import NoisyArgmaxGaussian, Repeated
from tutelage.exceptions import (
    BudgetContinuedWarning,
    BudgetExceededError,
    InvalidDataError,
    InvalidParameterError,
    LedgerMismatchError,
    OverlappingShardsError,
)
from tutelage.methods import TeacherVotes
from tutelage.privacy import NeighboringRelation, PrivacyUnit
from tutelage.targets import Classes

pytestmark = pytest.mark.usefixtures("repeatable", "public_rows_may_be_private")

TREE = DecisionTreeClassifier(max_depth=2)
ROW = PrivacyUnit("row", NeighboringRelation.CHANGE_ONE_ROW)
X = np.random.default_rng(0).uniform(size=(400, 4))
y = (X[:, 0] > 0.5).astype(np.int64)


VOTES = TeacherVotes(TREE, n_teachers=20, mechanism=GNMax(2.0), student=TREE)


def model(method=VOTES, *, random_state: int | None = 0, **changes) -> PATEClassifier:
    return PATEClassifier(method=method, random_state=random_state, **changes)


class OfAllRows(PATEClassifier):
    """One whose private rows are public, for checks that have no others."""

    def fit(self, X: Any, y: Any, **given: Any) -> "OfAllRows":
        return super().fit(X, y, X_public=X, insist=True, **given)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.ledger"


@pytest.mark.rest
@parametrize_with_checks(
    # Next to no noise, so that scikit-learn's accuracy floors test the plumbing and not the privacy; and a quick
    # student: what the default one makes of odd labels and rows is tested where it is at home.
    [
        OfAllRows(
            method=TeacherVotes(TREE, n_teachers=3, mechanism=LNMax(0.01), student=TREE),
            random_state=0,
        )
    ],
    expected_failed_checks=lambda _: {
        "check_class_weight_classifiers": "released labels are weighed, and teachers agree where classes overlap",
        "check_dtype_object": "a cell that is no number is private: it is an InvalidDataError, which quotes none",
    },
)
def test_scikit_learn_contract(estimator, check):
    assert check(estimator) is None


def test_a_student_learns_through_noise():
    X_public = np.random.default_rng(1).uniform(size=(150, 4))
    fitted = model(classes=["high", "low", "nobody"]).fit(
        X, np.array(["low", "high"])[y], X_public=X_public
    )
    assert fitted.score(X_public, np.where(X_public[:, 0] > 0.5, "high", "low")) > 0.9
    assert fitted.classes_.tolist() == ["high", "low", "nobody"]
    assert fitted.predict_proba(X_public).shape == (150, 3)
    assert fitted.epsilon_.unit.name == "row"
    assert fitted.release_.event == Repeated(NoisyArgmaxGaussian(2.0, 3, ROW), 150)


@pytest.mark.fresh_noise
def test_every_fit_draws_fresh_noise_whatever_the_random_state():
    # Two votes differ by at most 20, a third of their noise's σ√2 = 71: each label has a probability of at most Φ(0.29)
    # = 0.62, so that two draws of 40 labels agree with one below 0.62⁴⁰ = 5e-9.
    noisy = model(VOTES.with_params(mechanism=GNMax(50.0)))
    assert len({tuple(noisy.fit(X, y, X_public=X[:40]).release_.labels) for _ in range(2)}) == 2


def test_votes_stay_behind_when_the_model_is_stored():
    fitted = model().fit(X, y, X_public=X)
    assert isinstance(fitted.votes_, VoteHistogram)
    stored = pickle.loads(pickle.dumps(fitted))  # noqa: S301  made two words earlier
    assert not hasattr(stored, "votes_")
    assert np.array_equal(stored.predict(X), fitted.predict(X))
    assert str(stored.epsilon_) == str(fitted.epsilon_)


def test_checkpoints_outlive_a_failure_and_go_with_success(tmp_path, monkeypatch):
    folder = tmp_path / "private"
    with monkeypatch.context() as patch:
        patch.setattr("tutelage.estimator.base.fit_student", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            model().fit(X, y, X_public=X, checkpoints=folder)
    assert len(list(folder.iterdir())) == 20
    model().fit(X, y, X_public=X, checkpoints=folder)
    assert not folder.exists()


def test_entities_and_silos_set_the_unit():
    ids = np.arange(400) // 4
    assert model().fit(X, y, X_public=X, entity_ids=ids).epsilon_.unit.name == "entity"
    silos = np.array([f"hospital {i % 10}" for i in ids])
    by_silo = model().fit(X, y, X_public=X, entity_ids=ids, silos=silos)
    assert by_silo.votes_.n_teachers == 10
    with pytest.raises(OverlappingShardsError):
        model().fit(X, y, X_public=X, entity_ids=ids, silos=np.arange(400) % 10)


def test_missing_values_pass_where_both_models_take_them():
    holed = X.copy()
    holed[::7, 3] = np.nan
    assert model().fit(holed, y, X_public=holed).score(holed, y) > 0.8
    with pytest.raises(ValueError, match="NaN"):
        model(VOTES.with_params(teacher=LogisticRegression())).fit(holed, y, X_public=holed)


def test_refusals_name_the_parameter_and_the_fix():
    for change, message in (
        ({"method__n_teachers": 0}, "`n_teachers` of TeacherVotes must be an integer >= 1. Got 0"),
        ({"method__rounds": np.True_}, "`rounds` of TeacherVotes must be"),
        ({"delta": 1.5}, "`delta` of PATEClassifier must lie strictly between 0 and 1"),
        (
            {"epsilon": LinearRegression()},
            r"Got a LinearRegression. A teacher .* method=TeacherVotes\(teacher\)",
        ),
        ({"random_state": -1}, "`random_state` of PATEClassifier must be"),
        ({"method__mechanism": "gnmax"}, "`mechanism` of TeacherVotes must be a Mechanism"),
        ({"noise": 42}, "must be a noise source of tutelage"),
        ({"method__n_queries": 401}, "at most 400, the number of public rows. Got 401"),
        (
            {"method__teacher": "forest"},
            "`teacher` of TeacherVotes must be a scikit-learn classifier",
        ),
        (
            {"method__student": LinearRegression()},
            "`student` of TeacherVotes must be a scikit-learn classifier",
        ),
        (
            {"method__teacher": DecisionTreeClassifier(max_depth=-1)},
            "`teacher` .* must train without an error .* It raised Inv.* may quote",
        ),
        ({"unit": "patient"}, "Pass `entity_ids`"),
    ):
        with pytest.raises(InvalidParameterError, match=message):
            model().set_params(**change).fit(X, y, X_public=X)
    with pytest.raises(InvalidParameterError, match="must come with `random_state`"):
        model(random_state=None).fit(X, y, X_public=X, checkpoints="folder")


@pytest.mark.parametrize(
    "name",
    [
        "unit", "method__student_features", "method__mechanism", "checkpoints", "ledger", "question",
        "method__selection", "n_jobs", "epsilon",
    ],
)  # fmt: skip
def test_a_refused_parameter_that_holds_rows_is_not_quoted(name):
    for private in (np.array(["Anna Meier", "Bo Li"]), X + 1234.5):
        given: dict[str, Any] = {name: private}
        own, of_fit = ({}, given) if name == "checkpoints" else (given, {})
        with pytest.raises(
            InvalidParameterError, match=f"`{name.removeprefix('method__')}` of .* must be"
        ) as caught:
            model().set_params(**own).fit(X, y, X_public=X, **of_fit)
        assert not re.search(
            r"Anna|1234", "".join(traceback.format_exception(caught.value)).split("Error: ")[-1]
        )
        assert caught.value.__context__ is None


@pytest.mark.parametrize("raises", ["__eq__", "__hash__", "__str__"])
def test_a_label_of_a_class_of_its_own_is_one_sentence(raises):
    def refuse(*_):
        raise ArithmeticError("secret")

    label = type("Own", (), {"__hash__": lambda _: 0, raises: refuse})()
    labels = np.array([*"01" * 200], dtype=object)
    labels[3] = label
    frame = {"a": X[:, 0], "ill": labels}
    merged = {"no": ["0"], "yes": ["1"]}
    cases: Any = (
        (X, {"y": labels}, None), (X, {"y": labels}, merged), (X, {"y": y, "entity_ids": labels}, None),
        (frame, {"y": "ill"}, merged),
    )  # fmt: skip
    for rows, given, classes in cases:
        with pytest.raises(InvalidDataError, match="must hold text or numbers") as caught:
            PATEClassifier(classes=classes, epsilon=5.0).fit(rows, **given, X_public=rows)
        assert (caught.value.__context__, caught.value.__cause__) == (None, None)


def test_refusals_of_data_quote_no_row():
    for rows, labels in ((X, y), ({"age": ["17"] * 400, "ill": y}, "ill")):
        with pytest.raises(
            InvalidDataError, match=r"as `X_public=\.\.\.`, or .*`PATEClassifier\(columns=Schema"
        ):
            PATEClassifier(epsilon=1).fit(rows, labels)
    with pytest.raises(InvalidDataError, match="at least 2 classes"):
        model().fit(X, np.zeros(400), X_public=X)
    with pytest.raises(InvalidDataError, match="not among the declared"):
        model(classes=[0, 5]).fit(X, y, X_public=X)
    with pytest.raises(InvalidDataError, match="one type"):
        model().fit(X, np.array([*"01" * 199, "0", b"Anna"], dtype=object), X_public=X)
    few: Any = np.arange(399)
    for name in ("entity_ids", "silos"):
        with pytest.raises(InvalidDataError, match=f"`{name}` must have one entry per private row"):
            model().fit(X, y, X_public=X, **{name: few})
    with pytest.raises(InvalidDataError, match="X must hold numbers") as caught:
        model().fit(np.where(X > 0.99, "Mrs Miller", X.astype(str)), y, X_public=X)
    assert "Miller" not in str(caught.value)
    assert caught.value.__context__ is None
    with pytest.raises(ValueError, match="4 features"):
        model().fit(X, y, X_public=X[:, :3])


@pytest.mark.parametrize("settled", [True, False])
def test_where_somebody_else_is_charged_meanwhile_the_epsilon_is_that_of_the_budget(
    monkeypatch, settled
):
    release = Boundary.release

    def release_after_another(boundary, request):
        one = GNMax(2.0).event_of_one(2, boundary.ledger.unit, simulated=False)
        other = reserve(boundary.ledger, one, 1)
        if settled:
            settle(boundary.ledger, other, {}, Repeated(one, 1))
        return release(boundary, request)

    ledgers = [Ledger.in_memory(epsilon=60.0, delta=1e-5, unit=ROW) for _ in range(2)]
    alone = model(ledger=ledgers[0], budget=60.0).fit(X, y, X_public=X[:40])
    monkeypatch.setattr(Boundary, "release", release_after_another)
    together = model(ledger=ledgers[1], budget=60.0).fit(X, y, X_public=X[:40])
    assert alone.epsilon_.epsilon < 60.0
    assert together.epsilon_ == together.ledger_.guarantee()


def test_a_second_fit_continues_the_budget_and_says_so(path):
    first = model(ledger=path, budget=60.0).fit(X, y, X_public=X[:40])
    assert 0 < first.ledger_.spent == pytest.approx(first.release_.cost)
    # Nothing came before, so the labels have a guarantee by themselves.
    assert first.epsilon_.epsilon < 60.0
    with pytest.warns(
        BudgetContinuedWarning, match=r"a budget of ε = 60 at δ = 1e-05: .* before it, .* by it"
    ):
        more = model(ledger=path, random_state=9).fit(X, y, X_public=X[:60])
    assert more.epsilon_ == more.ledger_.guarantee()
    assert more.ledger_.spent > first.ledger_.spent
    assert more.release_.labels[:40].tolist() == first.release_.labels.tolist()


@pytest.mark.parametrize("entity_ids", [None, np.arange(400) // 2])
def test_the_same_people_get_no_second_ledger_beside_the_first(tmp_path, entity_ids):
    people = {"X_public": X[:40], "entity_ids": entity_ids}
    model(ledger=tmp_path / "a.csv.ledger").fit(X, y, **people)
    (tmp_path / "damaged.ledger").write_text("no ledger")
    with pytest.raises(
        LedgerMismatchError, match=r"a\.csv\.ledger contains the budget of these data"
    ):
        model(ledger=tmp_path / "a.parquet.ledger").fit(X[::-1], y[::-1], **people)
    assert not (tmp_path / "a.parquet.ledger").exists()
    some = {**people, "entity_ids": None if entity_ids is None else entity_ids[:-2]}
    if entity_ids is not None:  # rows without ids are known as a whole only
        with pytest.raises(LedgerMismatchError, match="or of some of these people"):
            model(ledger=tmp_path / "b.ledger").fit(X[:-2], y[:-2], **some)
        some["entity_ids"] = entity_ids[:-2] + 1000
    model(ledger=tmp_path / "b.ledger").fit(X[:-2], y[:-2], **some)


def test_another_question_about_the_same_people_is_another_query(path):
    people = np.arange(400) // 4
    first = model(ledger=path, budget=200.0).fit(
        X[:, :2], y, X_public=X[:40, :2], entity_ids=people
    )
    # And other columns.
    backwards = {"X_public": X[:40, 2:], "entity_ids": [f" {name}" for name in people[::-1]]}
    with pytest.warns(BudgetContinuedWarning, match=r"remains\.$"):
        other = model(ledger=path, question="another").fit(X[::-1, 2:], 1 - y, **backwards)
    with pytest.warns(BudgetContinuedWarning, match=r"remains\.$"):
        third = model(ledger=path).fit(
            X[:, :2], np.where(y, "ill", "well"), X_public=X[:40, :2], entity_ids=people
        )
    costs = [fitted.release_.cost for fitted in (first, other, third)]
    assert costs == [costs[0]] * 3
    assert third.ledger_.spent == pytest.approx(sum(costs))  # one budget


def test_rows_of_nobody_in_particular_are_known_by_all_their_columns(path):
    model(ledger=path, budget=200.0).fit(X[:, :2], y, X_public=X[:40, :2], whole_rows=X)
    with pytest.warns(BudgetContinuedWarning):
        model(ledger=path).fit(X[:, 2:], y, X_public=X[:40, 2:], whole_rows=X.tolist())
    with pytest.raises(LedgerMismatchError):
        model(ledger=path).fit(X[:, :2], y, X_public=X[:40, :2])
    with pytest.raises(InvalidDataError, match="`whole_rows` must have one row per private row"):
        model(ledger=path).fit(X, y, X_public=X[:10], whole_rows=X[1:])


def test_a_fit_beyond_the_budget_is_refused_before_a_teacher_is_trained(path, monkeypatch):
    monkeypatch.setattr(TeacherVotes, "prepare", None)
    with pytest.raises(BudgetExceededError, match="40 more such queries: 0 would still fit"):
        model(ledger=path, budget=0.5).fit(X, y, X_public=X[:40])


def test_the_ledger_knows_other_data_and_other_budgets(path):
    model(ledger=path, budget=60.0).fit(X, y, X_public=X[:20])
    with pytest.raises(LedgerMismatchError, match="is tied to other people or other rows"):
        model(ledger=path).fit(X[::2], y[::2], X_public=X[:20])
    with pytest.raises(LedgerMismatchError, match="must be 60, that of the ledger"):
        model(ledger=path, budget=61.0).fit(X, y, X_public=X[:20])
    with pytest.raises(LedgerMismatchError, match="must be 1e-05, that of the ledger"):
        model(ledger=path, delta=1e-6).fit(X, y, X_public=X[:20])
    with pytest.raises(LedgerMismatchError, match="and this release one patient"):
        model(ledger=path, unit="patient").fit(X, y, X_public=X[:20], entity_ids=np.arange(400))
    with pytest.warns(BudgetContinuedWarning):
        model(ledger=path).fit(X[:399], y[:399], X_public=X[:20], data_changed=True)


def test_a_confident_mechanism_leaves_queries_unanswered_and_the_rest_of_the_budget_alone(path):
    mechanism = ConfidentGNMax(threshold=17.0, sigma_threshold=3.0, sigma_vote=2.0)
    fitted = model(VOTES.with_params(mechanism=mechanism), ledger=path, budget=200.0).fit(
        X, y, X_public=X[:60]
    )
    assert 0 < fitted.release_.answered.sum() < 60
    one = mechanism.event_of_one(2, fitted.votes_.unit, simulated=False)
    # The most, fixed beforehand.
    assert fitted.epsilon_ == data_independent.epsilon(Repeated(one, 60), 1e-5)
    assert Ledger.open(path).export()[-1]["refund"] > 0


def test_all_problems_of_parameters_and_rows_are_told_at_once():
    model = PATEClassifier(epsilon=-1.0, goal="best", unit="patient")
    with pytest.raises(InvalidParameterError) as caught:
        model.fit(np.zeros((5, 2)), [0, 1, 0, 1, 0], X_public=np.zeros((5, 2)), release="a")
    told = [problem.name.rpartition(".")[2] for problem in caught.value.problems]
    assert told == ["epsilon", "goal", "unit", "release", "classes"]


def test_a_column_of_labels_is_merged_as_a_list_is():
    codes = Classes(values={"yes": ["no"], "no": ["yes"]}).merged_labels(
        np.array([["yes"], ["no"]])
    )
    assert np.asarray(codes).tolist() == ["no", "yes"]
