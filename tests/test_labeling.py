"""Labelling sessions: what they return, remember, charge, and refuse before anything is spent."""

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from ledgers import new_ledger
from tutelage import (
    ConfidentGNMax,
    ExponentialMax,
    GNMax,
    InteractiveGNMax,
    LabelingSession,
    Ledger,
    LNMax,
    PermuteAndFlip,
    Release,
    SimulationNoise,
    VoteHistogram,
)
from tutelage.accounting import Accountant
from tutelage.ballots import tally
from tutelage.digests import query_hashes
from tutelage.events import Composed, InteractiveCheck, NoisyArgmaxGaussian, Repeated
from tutelage.exceptions import (
    BudgetExceededError,
    InvalidBallotError,
    InvalidDataError,
    InvalidParameterError,
    LedgerError,
    LedgerStorageError,
    PreflightWarning,
    UnsupportedEventError,
)
from tutelage.mechanisms import Mechanism
from tutelage.privacy import ONE_TEACHER

DELTA = 1e-5
GOLDEN_HASH = "7541a8680d5adc96685f76c41a02bcc03b63da81d458a611e939846191070b0a"
CONFIDENT = ConfidentGNMax(threshold=200.0, sigma_threshold=60.0, sigma_vote=40.0)
VOTES = VoteHistogram(np.array([[230, 15, 5], [90, 85, 75], [20, 210, 20], [84, 83, 83]]), 250)
ROWS = np.array([[0.0, 1.0], [0.5, 0.5], [1.0, 0.0], [0.3, 0.9]])


MECHANISMS = [
    LNMax(20.0),
    GNMax(40.0),
    ExponentialMax(20.0),
    PermuteAndFlip(20.0),
    CONFIDENT,
    InteractiveGNMax(50, 20, 20, 0.9),
]


@pytest.fixture
def ledger() -> Ledger:
    return new_ledger(epsilon=5.0)


class CountingTeachers:
    """Teachers that say how often, and on how many rows, they were made to vote."""

    n_classes, unit = 3, ONE_TEACHER

    def __init__(self) -> None:
        self.voted_on: list[int] = []

    def ballots(self, X_public):
        self.voted_on.append(len(X_public))
        return np.tile((X_public[:, 0] > 0.4).astype(np.int16), (50, 1))


@dataclass(frozen=True)
class Reversing(Mechanism):
    """Noises counts in another order than the votes have them."""

    def event_of_one(self, n_classes, unit, *, simulated):
        return GNMax(40.0).event_of_one(n_classes, unit, simulated=simulated)

    def release(self, votes, noise, predictions=None):
        return GNMax(40.0).release(
            VoteHistogram(votes.counts[:, ::-1].copy(), votes.n_teachers), noise
        )


@pytest.mark.parametrize("mechanism", MECHANISMS[:5], ids=str)
def test_repeats_are_the_same_answer_at_no_cost(mechanism, ledger):
    session = LabelingSession(VOTES, mechanism, ledger)
    first = session.ask(ROWS)
    assert first.cost == pytest.approx(ledger.state().spent, rel=1e-12)
    for again in (session.ask(ROWS), LabelingSession(VOTES, mechanism, ledger).ask(ROWS)):
        assert again.labels.tolist() == first.labels.tolist()
        assert again.cost == 0
        assert again.event == Repeated(mechanism.event_of_one(3, VOTES.unit, simulated=False), 0)
    assert ledger.state().entries == 3


@pytest.mark.filterwarnings("error")
def test_ballots_that_are_passed_as_counts_earn_a_warning(ledger):
    ballots = np.random.default_rng(0).integers(0, 2, size=(250, 100), dtype=np.int16)
    with pytest.warns(PreflightWarning, match="count them first with `tally"):
        LabelingSession(VoteHistogram(ballots, 250), GNMax(40.0), ledger)
    # As many queries as teachers.
    counted = tally(ballots[:, :3].repeat(84, axis=1)[:, :250], n_classes=2)
    LabelingSession(counted, GNMax(40.0), ledger)  # of which none need be warned


def test_ballots_of_another_form_are_refused_before_anything_is_spent(ledger):
    session = LabelingSession(VOTES, GNMax(40.0), ledger)
    session._form = replace(session._form, n_classes=4)
    with pytest.raises(InvalidBallotError, match="not have the form that the request asks for"):
        session.ask(ROWS)
    assert ledger.state().spent == 0


def test_only_new_rows_are_voted_on_and_paid_for_and_each_once():
    teachers, ledger = CountingTeachers(), new_ledger(epsilon=50)
    session = LabelingSession(teachers, GNMax(2.0), ledger)
    first = session.ask(ROWS[[0, 1, 0, 0, 1]])
    second = session.ask(ROWS[[2, 0, 3, 1]])
    assert teachers.voted_on == [2, 2]
    assert first.labels.tolist() == second.labels[[1, 3, 1, 1, 3]].tolist()
    assert first.event == second.event == Repeated(NoisyArgmaxGaussian(2.0, 3, ONE_TEACHER), 2)
    assert second.cost == pytest.approx(first.cost)


def test_a_row_that_another_session_answers_while_teachers_vote_is_not_paid_for_twice():
    ledger = new_ledger(epsilon=50)
    other = LabelingSession(CountingTeachers(), GNMax(2.0), ledger)

    class Slow(CountingTeachers):
        def ballots(self, X_public):
            self.first = other.ask(ROWS[1:2])
            return super().ballots(X_public)

    teachers = Slow()
    session = LabelingSession(teachers, GNMax(2.0), ledger)
    release = session.ask(ROWS)
    assert release.labels[1] == teachers.first.labels[0]
    assert release.event == Repeated(NoisyArgmaxGaussian(2.0, 3, ONE_TEACHER), 3)
    assert release.cost == pytest.approx(3 * teachers.first.cost)
    assert session.n_remembered == 1
    assert [votes.n_queries for _, votes, _ in session.accountant().parts_with_votes()] == [3]


def test_a_query_that_is_new_beside_remembered_ones_gets_the_labels_of_its_own_votes():
    said = np.array([1, 0, 2, 1])
    counts, rows = 250 * np.eye(3, dtype=int)[said], ROWS.copy()  # unanimous
    ledger = new_ledger(epsilon=200.0)
    session = LabelingSession(VoteHistogram(counts, 250), GNMax(5.0), ledger, X_voted=rows)
    counts[:], rows[:] = counts[::-1].copy(), 9  # the caller uses its arrays for something else
    before, order = session.fitting, [2, 1, 0, 3, 2]
    session.ask(ROWS[[3, 1]])
    assert session.ask(ROWS[order]).labels.tolist() == said[order].tolist()
    assert session.ask(ROWS[::-1]).cost == 0
    assert session.fitting == before - 4
    assert [counted.n_queries for _, counted, _ in session.accountant().parts_with_votes()] == [
        2,
        2,
    ]


def test_remembered_answers_come_out_of_a_ledger_that_is_only_read(tmp_path):
    path = tmp_path / "a.ledger"
    new_ledger(path, 5.0)
    labels = LabelingSession(VOTES, GNMax(40.0), Ledger.open(path)).ask(ROWS).labels
    reading = LabelingSession(VOTES, GNMax(40.0), Ledger.open(path, read_only=True))
    assert reading.ask(ROWS).labels.tolist() == labels.tolist()
    with pytest.raises(LedgerStorageError, match="read-only"):
        reading.ask(ROWS + 1)


def test_a_batch_that_does_not_fit_is_refused_before_teachers_vote():
    teachers = CountingTeachers()
    session = LabelingSession(teachers, GNMax(5.0), new_ledger(epsilon=5.0))
    room = session.fitting
    rows = np.arange(room + 1.0)[:, None]
    with pytest.raises(BudgetExceededError, match=f"{room} would still fit"):
        session.ask(rows)
    assert teachers.voted_on == []
    session.ask(rows[:room])
    with pytest.raises(BudgetExceededError, match="has no room for this release"):
        session.ask(rows)
    assert session.ask(rows[:room]).cost == 0


def test_simulated_noise_taints_the_ledger_and_is_not_taken_for_an_answer(ledger):
    assert (
        LabelingSession(VOTES, GNMax(40.0), ledger, noise=SimulationNoise(0))
        .ask(ROWS)
        .event.is_simulated
    )
    assert ledger.state().simulated
    assert LabelingSession(VOTES, GNMax(40.0), ledger).ask(ROWS).cost > 0


@pytest.mark.parametrize(("mechanism", "rows", "predictions", "message"), [
    (GNMax(40.0), ROWS[:3], None, "The votes are about 4 queries, and there are 3 public rows"),
    (GNMax(40.0), np.zeros((0, 2)), None, "must hold at least one row"),
    (GNMax(40.0), ROWS, np.full((4, 3), 1 / 3), "GNMax takes no predictions"),
    (GNMax(40.0), [[1], [2, 3], [4], [5]], None, "`X_public` must be an array of values, rows of equal length"),
    (InteractiveGNMax(50, 20, 20, 0.9), ROWS, [["a", "b", "c"]] * 4, "`predictions` must be an array of numbers"),
    (InteractiveGNMax(50, 20, 20, 0.9), ROWS, None, "`predictions` of InteractiveGNMax must be"),
    (InteractiveGNMax(50, 20, 20, 0.9), ROWS, np.tile([1.5, -0.5, 0], (4, 1)), "rows summing to 1"),
    (InteractiveGNMax(50, 20, 20, 0.9), ROWS, np.full((4, 2), 0.5), "of shape \\(4, 3\\)"),
])  # fmt: skip
def test_what_does_not_fit_is_refused_before_anything_is_spent(
    mechanism, rows, predictions, message, ledger
):
    with pytest.raises(InvalidDataError, match=message):
        LabelingSession(VOTES, mechanism, ledger).ask(rows, predictions)
    assert ledger.state().entries == 1


def test_silent_teachers_do_not_change_the_charge(ledger):
    silent = VoteHistogram((VOTES.counts * 0.7).astype(int), 250)
    other = new_ledger(epsilon=5.0)
    for mechanism in (
        GNMax(40.0),
        ConfidentGNMax(threshold=-1e6, sigma_threshold=60.0, sigma_vote=40.0),
    ):
        release = LabelingSession(silent, mechanism, ledger).ask(ROWS)
        assert release.cost == LabelingSession(VOTES, mechanism, other).ask(ROWS).cost


def test_the_student_is_asked_first_and_confirmed_for_the_price_of_the_check():
    mechanism = InteractiveGNMax(threshold=100, sigma_threshold=2.0, sigma_vote=2.0, confidence=0.9)
    predictions = np.array(
        [[0.95, 0.05, 0.0], [0.4, 0.35, 0.25], [0.95, 0.05, 0.0], [0.34, 0.33, 0.33]]
    )
    session = LabelingSession(VOTES, mechanism, new_ledger(epsilon=500))
    release = session.ask(ROWS, predictions)
    # All counts are at least 43 σ from the threshold and from each other: other labels have a probability of 1e-300.
    # sure and confirmed; unsure, not contradicted; sure, contradicted by the teachers; unsure, not contradicted
    assert release.labels.tolist() == [0, -1, 1, -1]
    check = InteractiveCheck(100, 2.0, 3, VOTES.unit)
    assert release.event == Composed(
        (Repeated(check, 4), Repeated(NoisyArgmaxGaussian(2.0, 3, VOTES.unit), 1))
    )
    assert session.ask(ROWS, predictions).cost == 0
    accountant = session.accountant()
    assert 0 < accountant.exact(DELTA).reveal() < accountant.data_independent(DELTA).epsilon
    changed = predictions[:, [1, 0, 2]]
    assert session.ask(ROWS, changed).cost > 0  # another prediction is another query


def test_an_abstained_query_pays_its_check_and_an_answered_one_both(ledger):
    session = LabelingSession(VOTES, CONFIDENT, ledger)
    release = session.ask(ROWS)
    check, answer = CONFIDENT.event_of_one(3, VOTES.unit, simulated=False).events  # pyright: ignore[reportAttributeAccessIssue]
    answered = int(release.answered.sum())
    assert release.event == Composed((Repeated(check, 4), Repeated(answer, answered)))
    cost = 4 * ledger.account.share_of(check) + answered * ledger.account.share_of(answer)
    assert ledger.state().spent == pytest.approx(cost, rel=1e-12)
    # An abstention is remembered too.
    assert session.ask(ROWS).labels.tolist() == release.labels.tolist()
    by_hand = Accountant()
    by_hand.add(Repeated(check, 4), VOTES)
    by_hand.add(Repeated(answer, answered), VOTES.select(release.answered), at_most=4)
    assert session.accountant().exact(DELTA).reveal() == by_hand.exact(DELTA).reveal()
    assert session.accountant().data_independent(DELTA) == by_hand.data_independent(DELTA)


@dataclass(frozen=True)
class Failing(Mechanism):
    """Announces much noise, and is interrupted once it is drawn, or draws less, or gives a label too many."""

    fault: str

    def event_of_one(self, n_classes, unit, *, simulated):
        return NoisyArgmaxGaussian(40.0, n_classes, unit, simulated)

    def release(self, votes, noise, predictions=None):
        if self.fault == "interrupted":
            raise KeyboardInterrupt
        if self.fault == "an error":
            raise ZeroDivisionError
        if self.fault == "less noise":
            return Release(
                votes.counts.argmax(axis=1), Repeated(NoisyArgmaxGaussian(1.0, 3, votes.unit), 4)
            )
        return Release(np.zeros(5, int), Repeated(NoisyArgmaxGaussian(40.0, 3, votes.unit), 4))


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("interrupted", KeyboardInterrupt),
        ("an error", ZeroDivisionError),
        ("less noise", LedgerError),
        ("a label too many", LedgerError),
    ],
)
def test_a_draw_that_fails_stays_spent_and_gets_no_answer_out(fault, error, ledger):
    session, spent = LabelingSession(VOTES, Failing(fault), ledger), [0.0]
    for _ in range(2):
        with pytest.raises(error):
            session.ask(ROWS)
        spent.append(ledger.verify().spent)
    assert 0 < spent[1] < spent[2]  # nothing is drawn again for free
    assert (ledger.state().answers, ledger.state().unsettled) == (
        0,
        2 if fault == "interrupted" else 0,
    )


def test_no_message_repr_or_entry_holds_a_count(ledger):
    counts = [7_171_717, 5_353_535, 6_464_646]
    session = LabelingSession(VoteHistogram(np.array([counts]), sum(counts)), CONFIDENT, ledger)
    shown = (
        repr(session) + repr(session.ask(ROWS[:1])) + str(ledger.export()) + repr(ledger.state())
    )
    assert not any(str(count) in shown for count in counts)


@pytest.mark.parametrize(("votes", "mechanism", "ledger", "rows", "parameter"), [
    (VOTES.counts, GNMax(40.0), None, None, "voters"),
    (VOTES, GNMax(40.0), "patients.ledger", None, "ledger"),
    (VOTES, GNMax(40.0), None, ROWS[:3], "X_voted"),
    (CountingTeachers(), GNMax(40.0), None, ROWS, "X_voted"),
    (VOTES, type("GNMax", (Reversing,), {})(), None, None, "mechanism"),
])  # fmt: skip
def test_what_a_session_cannot_use_is_refused(votes, mechanism, ledger, rows, parameter):
    ledger = ledger or new_ledger(epsilon=5.0)
    with pytest.raises((InvalidParameterError, InvalidDataError)) as refused:
        LabelingSession(votes, mechanism, ledger, X_voted=rows)
    assert f"`{parameter}`" in str(refused.value)


def test_affordable_counts_the_leading_rows_that_fit(ledger):
    session = LabelingSession(CountingTeachers(), GNMax(20.0), ledger)
    fits = session.fitting
    rows = np.arange(fits + 5.0)[:, None]
    session.ask(rows[:3])
    assert session.affordable(rows) == fits
    assert session.affordable(rows[::-1]) == session.fitting == fits - 3
    assert session.affordable(np.repeat(rows[-1:], 50, axis=0)) == 50  # one query, many times


def test_queries_are_remembered_under_the_same_hash_for_ever(ledger):
    # A hash that changes makes ledgers on disk forget their answers, and draw them again.
    hashes, votes = [], VoteHistogram(np.eye(2, dtype=int), 1)
    for mechanism in MECHANISMS:
        request = LabelingSession(votes, mechanism, ledger, question="ill?")._request(ROWS, None)
        context = request.context(request.mechanism.most(request.form, simulated=False))
        hashes += query_hashes(bytes(32), context, np.array([[1.5, 2], [0, -1]]))
    hashes += query_hashes(bytes(32), {}, [["a", None, 2**60, 0.5]], [[0.25, 0.75]])
    assert len(set(hashes)) == len(hashes)  # another mechanism is another query
    assert hashlib.sha256(b"".join(hashes)).hexdigest() == GOLDEN_HASH


class Declared(Reversing):
    noises_votes_as_given = True


@dataclass(frozen=True)
class DeclaredByAField(Reversing):
    noises_votes_as_given: bool = True  # pyright: ignore[reportIncompatibleVariableOverride]  easily written


@dataclass(frozen=True)
class InheritingAField(DeclaredByAField):
    scale: float = 1.0


def derived(name: str, *bases: type, **members: object) -> Any:
    return type(name, bases, members)


UNDECLARED = [
    InheritingAField(),
    derived("Inheriting", Declared, release=Reversing.release)(),
    derived("WithAMixin", derived("Other", release=Reversing.release), Declared)(),
    derived("DeclaredByProperty", Reversing, noises_votes_as_given=property(lambda _: True))(),
    # Final, which Python does not enforce.
    derived("LikeGNMax", GNMax, release=Reversing.release)(40.0),
]


@pytest.mark.parametrize("mechanism", UNDECLARED, ids=lambda mechanism: type(mechanism).__name__)
def test_costs_by_the_votes_are_refused_unless_a_class_itself_declares_which_it_noises(
    mechanism, ledger
):
    with pytest.raises(
        UnsupportedEventError, match=f"cost of {type(mechanism).__name__} is unknown"
    ):
        LabelingSession(VOTES, mechanism, ledger).accountant()


def test_costs_by_the_votes_are_refused_where_other_counts_were_noised(ledger):
    session, declared = (LabelingSession(VOTES, kind(), ledger) for kind in (Reversing, Declared))
    session.ask(ROWS)
    for ask in (session.accountant, lambda: session.released(ROWS)):
        with pytest.raises(UnsupportedEventError, match="cost of Reversing is unknown"):
            ask()
    declared.ask(ROWS)
    assert declared.accountant().exact(DELTA).reveal() > 0


@dataclass(frozen=True)
class Hiding(Mechanism):
    """Draws noise for every query, and shows no label of class 0."""

    noises_votes_as_given = True

    def event_of_one(self, n_classes, unit, *, simulated):
        return LNMax(20.0).event_of_one(n_classes, unit, simulated=simulated)

    def release(self, votes, noise, predictions=None):
        drawn = LNMax(20.0).release(votes, noise)
        return Release(
            np.where(drawn.labels == 0, -1, drawn.labels), drawn.event, by_vote=drawn.voted
        )


@pytest.mark.usefixtures("repeatable")
def test_a_label_that_was_drawn_and_not_shown_is_paid_for_by_the_votes_too(ledger):
    session = LabelingSession(VOTES, Hiding(), ledger)
    assert session.ask(ROWS).labels[0] == -1
    assert (
        session.released(ROWS).exact(DELTA).reveal() == session.accountant().exact(DELTA).reveal()
    )
