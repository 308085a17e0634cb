"""The contract that every method keeps: one fit of each, looked at from all sides. A new method joins the list."""

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from conftest import FITS_AGAIN
from test_toy_method import ClassFrequencies
from tutelage import PATEClassifier, PATERegressor, SimulationNoise
from tutelage.accounting import data_independent
from tutelage.features import Schema
from tutelage.methods import METHODS, CappedVotes, Sizes, TeacherVotes
from tutelage.reporting import read_card
from tutelage.students import load_student
from tutelage.teachers import Ridge

pytestmark = [
    FITS_AGAIN,
    pytest.mark.usefixtures("repeatable"),
    pytest.mark.filterwarnings(
        "ignore:.*continues a budget", "ignore::tutelage.exceptions.OneClassWarning"
    ),
]

# 3,000 people, a tenth of whom are ill: those whose first number is large. And public rows.
RNG = np.random.default_rng(0)
X = RNG.random((3_800, 3))
Y = (X[:, 0] + 0.05 * RNG.normal(size=3_800) > 0.9).astype(int)
PRIVATE, PUBLIC, OTHER = slice(3_000), slice(3_000, 3_300), slice(3_300, None)
SCHEMA = Schema(dict.fromkeys("abc", (0.0, 1.0)))
STUDENT = LogisticRegression()
OF_FIT = ("entity_ids", "y_public")
KINDS: dict[str, dict[str, Any]] = {
    "sums of a schema": {"columns": SCHEMA},
    "sums of people": {"columns": SCHEMA, "entity_ids": np.arange(3_000) // 2},
    "numbers": {"columns": SCHEMA, "target_range": (0, 1)},
    "numbers of people": {
        "columns": SCHEMA,
        "target_range": (0, 1),
        "entity_ids": np.arange(3_000) // 2,
    },
    "vectors": {},
    "vectors and labels": {"y_public": Y[PUBLIC]},
    "capped votes": {"method": CappedVotes(3, n_queries=100, student=STUDENT)},
    "teachers": {
        "method": TeacherVotes(
            Ridge(class_weights=[1, 3]), n_teachers=100, n_queries=100, student=STUDENT
        ),
    },
    "own": {"method": ClassFrequencies()},
}


def test_every_method_is_here():
    own = [one for one in KINDS.values() if one.keys().isdisjoint({*OF_FIT, "target_range"})]
    assert {type(PATEClassifier(epsilon=3.0, **one).resolved().method) for one in own} >= {
        *METHODS.values()
    }


class Fit:
    """A model of one of the kinds, and how it is fitted."""

    def __init__(self, name: str, folder: Any) -> None:
        self.settings, self.folder = dict(KINDS[name]), folder
        self.of_numbers, self.of_sums = "target_range" in self.settings, "columns" in self.settings
        self.given = {one: self.settings.pop(one) for one in OF_FIT if one in self.settings}
        self.given |= {} if self.of_sums else {"X_public": X[PUBLIC]}
        self.model = self.again()

    def again(self, **more: Any) -> Any:
        kind, own = (
            (PATERegressor, {})
            if self.of_numbers
            else (PATEClassifier, {"classes": [0, 1], "random_state": 0})
        )
        own |= {
            "epsilon": 3.0,
            "budget": 3.0,
            "ledger": self.folder / "a.ledger",
            "noise": SimulationNoise(0),
        }
        return kind(**(own | self.settings | more)).fit(X[PRIVATE], Y[PRIVATE], **self.given)


FITTED = dict[str, Fit]()


@pytest.fixture(params=KINDS)
def fit(request, tmp_path_factory):
    """One fit of each kind, made where it is first looked at."""
    if request.param not in FITTED:
        FITTED[request.param] = Fit(request.param, tmp_path_factory.mktemp("contract"))
    return FITTED[request.param]


def test_it_releases_what_it_announced_within_its_budget(fit):
    model = fit.model
    sizes = Sizes(
        n_classes=2,
        n_public=len(model.queries_),
        unit=model.epsilon_.unit,
        simulated=True,
        labeled="y_public" in fit.given,
        bins=SCHEMA.bins if fit.of_sums else (),
        report=None if model.report_ is None else model._layout(("",)),
    )
    announced = data_independent.epsilon(model.method_.event(sizes), 1e-5).epsilon
    assert data_independent.epsilon(model.release_.event, 1e-5).epsilon <= announced * (1 + 1e-12)
    assert announced == model.epsilon_.epsilon <= 3.0
    assert 2.9 < model.ledger_.spent <= 3.0


def test_a_second_fit_costs_nothing_and_says_the_same(fit):
    again = fit.again()
    np.testing.assert_array_equal(again.predict(X[OTHER]), fit.model.predict(X[OTHER]))
    assert again.ledger_.spent == fit.model.ledger_.spent


def test_it_is_stored_with_its_card_and_predicts_the_same(fit, tmp_path):
    folder = fit.model.save(tmp_path / "out")
    np.testing.assert_array_equal(
        load_student(folder).predict(X[OTHER]), fit.model.predict(X[OTHER])
    )
    assert read_card(folder / "card.json").epsilon.epsilon == pytest.approx(
        fit.model.epsilon_.epsilon
    )


def test_a_table_of_effects_adds_up_to_what_is_said(fit):
    if not fit.of_sums:
        return
    student, one = fit.model.student_, np.array([[0.93, 0.5, 0.5]])
    places = zip(SCHEMA.names, SCHEMA.transform(one)[0].astype(int).tolist(), strict=True)
    cells = [("", "every row"), *((name, SCHEMA.cells[name][place]) for name, place in places)]
    found = [
        line["effects"] for line in student.effects() if (line["column"], line["cells"]) in cells
    ]
    expected = (
        fit.model.predict(one)[0]
        if fit.of_numbers
        else student.decision_function(SCHEMA.transform(one))[0, 1]
    )
    assert sum(list(effects.values())[-1] for effects in found) == pytest.approx(expected)


def test_a_rare_class_is_as_likely_as_it_is_frequent_and_found_where_a_goal_asks_for_it(fit):
    """Noise has a seed. A method that ignores how frequent classes are says 0.5, one that never says "ill" finds 0."""
    chance = (
        fit.model.predict(X[OTHER]) if fit.of_numbers else fit.model.predict_proba(X[OTHER])[:, 1]
    )
    assert np.mean(chance) == pytest.approx(np.mean(Y), abs=0.06)
    if isinstance(fit.model.method, ClassFrequencies) or fit.of_numbers:
        return
    balanced = fit.again(goal="balanced_accuracy")
    right, truth = balanced.predict(X[OTHER]) == Y[OTHER], Y[OTHER] == 1
    assert min(right[truth].mean(), right[~truth].mean()) > 0.7
    assert np.mean(balanced.predict_proba(X[OTHER])[:, 1]) > 1.3 * np.mean(chance)
    assert balanced.ledger_.spent == fit.model.ledger_.spent
