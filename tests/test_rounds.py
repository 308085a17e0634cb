from dataclasses import dataclass, fields

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tutelage import (
    GNMax,
    InteractiveGNMax,
    LabelingSession,
    Ledger,
    SimulationNoise,
    VoteHistogram,
)
from tutelage.boundary import Boundary
from tutelage.events import Composed, InteractiveCheck
from tutelage.exceptions import (
    BudgetExceededError,
    InvalidDataError,
    InvalidParameterError,
)
from tutelage.labeling import ask_in_rounds
from tutelage.methods.votes import _even_rounds
from tutelage.students.selection import (
    FirstRows,
    LeastConfident,
    PublicKnowledge,
    QuerySelector,
    RandomRows,
    class_balanced,
)

TEACHERS = 100
STUDENT = LogisticRegression()
INTERACTIVE = InteractiveGNMax(threshold=50.0, sigma_threshold=8.0, sigma_vote=5.0, confidence=0.8)


def pool(n_rows: int = 120) -> tuple[np.ndarray, np.ndarray, VoteHistogram]:
    """Rows on a line, three classes one after the other, and votes that agree less near the borders."""
    position = np.linspace(0, 3, n_rows, endpoint=False)
    classes = position.astype(int)
    sure = 55 + (80 * np.minimum(position % 1, 1 - position % 1)).astype(int)
    counts = np.zeros((n_rows, 3), dtype=int)
    counts[np.arange(n_rows), classes] = sure
    counts[np.arange(n_rows), (classes + 1) % 3] = TEACHERS - sure
    return position[:, None], classes, VoteHistogram(counts, n_teachers=TEACHERS)


def session(mechanism=None, epsilon: float = 50.0, ledger: Ledger | None = None) -> LabelingSession:
    X, _, votes = pool()
    ledger = ledger or Ledger.in_memory(epsilon=epsilon, delta=1e-5, unit=votes.unit)
    return LabelingSession(
        votes, mechanism or GNMax(5.0), ledger, X_voted=X, noise=SimulationNoise(0)
    )


def test_each_round_asks_rows_that_were_not_asked_and_is_charged():
    X, classes, _ = pool()
    asking = session()
    asked = ask_in_rounds(
        asking, X, [20, 10, 5], first=RandomRows(), then=LeastConfident(), student=STUDENT
    )
    assert asked.rounds == (20, 10, 5)
    assert len(set(asked.queries.tolist())) == 35
    assert np.mean(asked.release.labels == classes[asked.queries]) > 0.8
    assert asked.release.cost == pytest.approx(asking.ledger.state().spent)
    released = asked.labels(len(X))
    assert np.array_equal(released[asked.queries], asked.release.labels)
    assert np.all(np.delete(released, asked.queries) == -1)


def test_a_rule_that_needs_answers_waits_for_two_classes():
    X, _, _ = pool()
    asking = session(GNMax(1.0), 1e4)
    asked = ask_in_rounds(
        asking, X, [3, 3], first=FirstRows(), then=LeastConfident(), student=STUDENT
    )
    assert asked.queries.tolist() == [0, 1, 2, 3, 4, 5]  # all of one class


def test_the_loop_with_interactive_gnmax_asks_teachers_less_as_the_student_learns():
    X, classes, _ = pool()
    student = LogisticRegression(C=100.0)
    asked = ask_in_rounds(
        session(INTERACTIVE), X, [40, 40, 40], first=RandomRows(), student=student
    )
    answered = asked.release.answered
    assert np.mean(asked.release.labels[answered] == classes[asked.queries][answered]) > 0.9
    assert isinstance(asked.release.event, Composed)
    by_teachers = [
        sum(part.times for part in one.flatten() if not isinstance(part.event, InteractiveCheck))
        for one in asked.release.event.events
    ]
    assert by_teachers[0] > 2 * by_teachers[-1]


class Jittery(LogisticRegression):
    """Predicts a little otherwise each time, as sums in another order do."""

    def predict_proba(self, X):
        jitter = 1 + 1e-15 * np.random.default_rng().integers(-3, 4, size=(len(X), 1))
        return super().predict_proba(X) * jitter


def test_the_same_call_again_costs_nothing_though_predictions_differ_in_the_last_bit():
    X, _, votes = pool()
    ledger = Ledger.in_memory(epsilon=50.0, delta=1e-5, unit=votes.unit)
    settings = {"first": RandomRows(), "student": Jittery(C=100.0), "seed": 3}
    one, other = (
        ask_in_rounds(session(INTERACTIVE, ledger=ledger), X, [40, 40], **settings)
        for _ in range(2)
    )
    assert other.release.cost == 0
    assert np.array_equal(one.queries, other.queries)
    assert np.array_equal(one.release.labels, other.release.labels)


@dataclass(frozen=True)
class Odd(QuerySelector):
    """A rule of somebody else."""

    needs_answers = True
    too_few_classes: bool = False

    def check(self, X, n_classes):
        if self.too_few_classes:
            raise InvalidParameterError("Odd.n_classes", "be larger")

    def _choose(self, known, n_queries, generator):
        raise AssertionError


def test_the_first_round_fits_or_is_refused_and_later_ones_ask_what_is_left():
    X, _, _ = pool()
    asking = session(GNMax(20.0), epsilon=1.5)
    fits = asking.fitting
    with pytest.raises(BudgetExceededError):
        ask_in_rounds(asking, X, [fits + 1], first=FirstRows())
    assert asking.ledger.state().spent == 0
    assert ask_in_rounds(asking, X, [fits - 2, 10, 10], first=FirstRows()).rounds == (fits - 2, 2)
    assert asking.ledger.state().spent <= 1.5


def test_another_session_that_spends_in_between_makes_a_round_smaller(monkeypatch):
    X, _, votes = pool()
    ledger = Ledger.in_memory(epsilon=1.5, delta=1e-5, unit=votes.unit)
    asking, other = session(GNMax(20.0), ledger=ledger), session(GNMax(20.0), ledger=ledger)
    fits, released, races = asking.fitting, Boundary.release, [X[-3:], X[-6:-3]]

    def raced(self, request):
        if self is asking._boundary and len(request.rows) != 5 and races:
            other.ask(races.pop())
        return released(self, request)

    monkeypatch.setattr(Boundary, "release", raced)
    asked = ask_in_rounds(asking, X, [5, fits - 5], first=FirstRows())
    assert asked.rounds[0] == 5
    assert 0 < asked.rounds[1] < fits - 5
    assert ledger.state().spent <= 1.5


def test_equal_rows_are_asked_once():
    X = np.repeat([[0.0], [1.0]], 6, axis=0)
    votes = VoteHistogram(np.repeat([[90, 10], [10, 90]], 6, axis=0), n_teachers=100)
    ledger = Ledger.in_memory(epsilon=9.0, delta=1e-5, unit=votes.unit)
    asking = LabelingSession(votes, GNMax(5.0), ledger, X_voted=X)
    before = asking.fitting
    asked = ask_in_rounds(asking, X, [7, 3], first=FirstRows())
    assert asked.rounds == (7,)  # all others are twins of those
    assert asked.release.labels.tolist() == [0] * 6 + [1]
    assert before - asking.fitting == 2


def test_what_students_and_rules_do_in_place_changes_nothing():
    X, _, _ = pool()
    kept = X.copy()
    student = make_pipeline(StandardScaler(copy=False), LogisticRegression())
    ask_in_rounds(
        session(), X, [20, 10], first=RandomRows(), then=LeastConfident(), student=student
    )
    assert np.array_equal(X, kept)

    class Meddler(QuerySelector):
        def _choose(self, known, n_queries, generator):
            known.asked[:] = False
            return known.open[:n_queries]

    with pytest.raises(ValueError, match="read-only"):
        ask_in_rounds(session(), X, [2], first=Meddler())


@pytest.mark.parametrize(("changes", "message"), [
    ({"n_queries": []}, "one number of rows per round. Got none"),
    ({"n_queries": [100, 21]}, "Got 121 queries, 120 public rows"),
    ({"features": np.zeros((5, 1))}, "features of 5"),
    ({"first": Odd()}, "must be a rule that needs no labels"),
    ({"then": LeastConfident(), "student": RidgeClassifier()}, "rounds use its predictions. Got a RidgeClassifier"),
    ({"then": Odd(too_few_classes=True)}, "`n_classes` of Odd must be larger"),
])  # fmt: skip
def test_what_a_later_round_would_fail_at_is_refused_before_the_first_is_paid(changes, message):
    asking = session()
    settings = {"n_queries": [5, 5], "first": FirstRows(), **changes}
    with pytest.raises((InvalidParameterError, InvalidDataError), match=message):
        ask_in_rounds(asking, pool()[0], settings.pop("n_queries"), **settings)
    assert asking.ledger.state().spent == 0


def test_votes_must_know_all_rows_of_several_rounds():
    X, _, votes = pool()
    ledger = Ledger.in_memory(epsilon=50.0, delta=1e-5, unit=votes.unit)
    some = LabelingSession(votes.first(60), GNMax(5.0), ledger, X_voted=X[:60])
    for asking, message in (
        (LabelingSession(votes, GNMax(5.0), ledger), "`X_voted` of LabelingSession must be passed"),
        (some, "a row that is not in `X_voted`"),
        (
            session(InteractiveGNMax(9.0, 9.0, 9.0, 0.3)),
            "must be above 1/3, because a random guess",
        ),
    ):
        with pytest.raises((InvalidParameterError, InvalidDataError), match=message):
            ask_in_rounds(asking, X, [5, 5], first=FirstRows(), student=STUDENT)
        assert asking.ledger.state().spent == 0


def test_a_rule_sees_public_things_only():
    assert {one.name for one in fields(PublicKnowledge)} == {
        "X",
        "labels",
        "asked",
        "probabilities",
    }


def test_rounds_share_queries_evenly():
    assert _even_rounds(10, 3) == (4, 3, 3)


def known(labels, asked=True) -> PublicKnowledge:
    labels = np.array(labels)
    return PublicKnowledge(
        X=np.zeros((len(labels), 1)), labels=labels, asked=np.full(len(labels), asked)
    )


def test_a_balanced_subset_of_paid_labels_has_as_many_of_each_class():
    labels = np.array([0, 1, 1, 1, 0, -1, 0, 2, 2])
    rows = class_balanced(known(labels), 2, seed=0)
    assert sorted(labels[rows]) == [0, 0, 1, 1, 2, 2]


def test_choosing_by_labels_that_were_not_paid_for_is_refused():
    X, labels = np.zeros((4, 1)), np.array([0, 1, -1, -1])
    with pytest.raises(InvalidDataError, match="2 rows of `known` were not asked"):
        class_balanced(PublicKnowledge(X=X, labels=labels, asked=labels >= 0), 1, seed=0)
    with pytest.raises(
        InvalidDataError, match=r"at most the 1 answers of the rarest released class\. Got 2"
    ):
        class_balanced(known([0, 0, 1]), 2, seed=0)
