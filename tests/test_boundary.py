"""What the boundary promises and no other module tests: what methods see, names of releases, order, room and cost."""

import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tutelage
from test_intents import fitted  # noqa: F401  the fixture
from tutelage import (
    ConfidentGNMax,
    GNMax,
    InteractiveGNMax,
    LabelingSession,
    Ledger,
    PATEClassifier,
    VoteHistogram,
)
from tutelage.accounting.filter import GaussianFilter, RenyiFilter
from tutelage.ballots import OneHot, Vector, sum_of_cells
from tutelage.boundary import Boundary
from tutelage.digests import data_digest, plain_settings
from tutelage.events import Composed, Repeated
from tutelage.exceptions import (
    BudgetExceededError,
    InvalidBallotError,
    InvalidParameterError,
    LedgerError,
    LedgerMismatchError,
    LedgerStorageError,
)
from tutelage.features import Schema
from tutelage.ledger.account import Account
from tutelage.mechanisms import CappedGNMax, NoisySum
from tutelage.methods import (
    METHODS,
    Additive,
    CappedVotes,
    NoisyMoments,
    Sizes,
    TeacherVotes,
)
from tutelage.methods.rehearsal import PublicLabels, rehearse
from tutelage.methods.requests import Answer, run_steps
from tutelage.noise import SystemNoise
from tutelage.partition import Shards, unit_of_single_people
from tutelage.people.memory import PeopleInMemory
from tutelage.privacy import ONE_TEACHER
from tutelage.release import Once
from tutelage.teachers import ClassMeans

PACKAGE = Path(tutelage.__file__).parent
RNG = np.random.default_rng(0)
LABELS = (RNG.random(300) < 0.5).astype(int)
PRIVATE = RNG.normal(size=(300, 3)) + LABELS[:, None]
PUBLIC = RNG.normal(size=(80, 3))
IDS = np.arange(300) // 2
EVERY = {
    "noisy-moments": NoisyMoments(n_landmarks=20),
    "capped-votes": CappedVotes(
        3, n_queries=20, rounds=2, student="label-propagation", selection="least-confident"
    ),
    "teacher-votes": TeacherVotes(
        ClassMeans(),
        20,
        n_queries=20,
        rounds=2,
        student="label-propagation",
        selection="least-confident",
    ),
    "additive": Additive(),
}
SCHEMA = Schema({"a": (-3.0, 3.0), "b": (-3.0, 3.0), "c": (-3.0, 3.0)})


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.filterwarnings("ignore")
def test_what_a_method_sees_and_asks_is_the_same_of_neighboring_people(name):
    def asked(kept: Any, flip: bool) -> Any:
        y = np.where(flip & (IDS == 3), 1 - LABELS, LABELS)[kept]
        settings: dict[str, Any] = {
            "method": EVERY[name],
            "epsilon": 1.0,
            "random_state": 0,
            "unit": "person",
        }
        public: dict[str, Any] = {"X_public": PUBLIC}
        if EVERY[name].needs.public == "schema":
            settings, public = settings | {"columns": SCHEMA}, {}
        model = PATEClassifier(classes=[0, 1], **settings)
        whole = model.prepare(
            PRIVATE[kept] * (1 + flip * (IDS[kept] == 3)[:, None]),
            y,
            entity_ids=IDS[kept],
            **public,
        )
        noise, seen = np.random.default_rng(1), list[Any]()

        def answer(request: Any) -> Answer:
            event = request.mechanism.most(request.form, simulated=False)
            seen.append(
                [request.context(event), data_digest(request.rows, request.predictions).hex()]
            )
            shape = (
                (1, np.prod(request.form.shape))
                if isinstance(request.form, Vector)
                else (len(request.rows), 1)
            )
            values = noise.integers(0, 2, shape) * (300 if isinstance(request.form, Vector) else 1)
            return Answer(values.astype(np.int64), event, 0.0)

        run_steps(whole.method.steps(whole.public), answer, lambda asked: asked.make())
        names = "rows", "teacher_rows", "student_rows", "classes", "unit", "n_teachers"
        return plain_settings([getattr(whole.public, one) for one in names]), seen

    everybody = np.ones(300, dtype=bool)
    assert (
        asked(everybody, flip=False) == asked(everybody, flip=True) == asked(IDS != 3, flip=False)
    )


def test_a_mechanism_refuses_a_form_for_which_it_has_no_theorem():
    vector = Vector((3, 1), 1, ONE_TEACHER)  # of capped votes: tests/test_capped_votes.py
    for mechanism, form in (
        (NoisySum(5.0), OneHot(3, ONE_TEACHER)),
        (GNMax(5.0), vector),
        (CappedGNMax(5, 2), vector),
    ):
        with pytest.raises(InvalidParameterError):
            mechanism.most(form, simulated=False)


def test_only_counts_claim_ballots_without_negative_numbers_which_their_sum_checks():
    """Then σ may be less by the root of two (docs/proofs/ballots.md, claim 1)."""
    unit = unit_of_single_people("person", named=False)
    sizes = Sizes(n_classes=3, n_public=80, unit=unit, bins=SCHEMA.bins)
    for method in EVERY.values():
        parts = method.with_noise(9.0).event(sizes).flatten()
        claims = [part.event for part in parts if getattr(part.event, "nonnegative", False)]
        assert len(claims) == (method.needs.public == "schema")
    sources = [
        path.name for path in PACKAGE.rglob("*.py") if "nonnegative=True" in path.read_text()
    ]
    # See tests/test_regression.py and tests/test_report.py.
    assert sorted(sources) == ["additive.py", "additive_mean.py", "report.py"]
    for number in (1, 0, -1):
        entry = np.zeros(1, int), np.zeros(1, int), np.array([number]), np.ones(1, int)
        with pytest.raises(InvalidBallotError) if number < 0 else nullcontext():
            sum_of_cells(*entry, Vector((1, 1), 1, unit, nonnegative=True))


@pytest.mark.rest
def test_the_identity_of_a_release_does_not_depend_on_threads_progress_hash_seed_or_print_options():
    def identity(*, insist: bool = False, **settings: Any) -> str:
        method = replace(EVERY["teacher-votes"], student=None)
        model: Any = PATEClassifier(
            method=method, epsilon=1.0, classes=[0, 1], random_state=0, **settings
        )
        model.target_ = model._target.read([])
        return model._question_identity(
            model.resolved(Once(insist=insist)), "row", PUBLIC, tiers={}
        )

    with np.printoptions(precision=2, floatmode="fixed"):
        assert identity() == identity(n_jobs=2, progress=True, insist=True)
    assert identity() != identity(question="other")
    spell = (
        "from tutelage.digests import *; from sklearn.ensemble import *; from tutelage.students import *; "
        + (
            "print(canonical(plain_settings([{'b': 1.5, 'a': 1}, RandomForestClassifier(3), NoisySumClassifier()])))"
        )
    )
    command = [sys.executable, "-c", spell]
    said = {
        subprocess.check_output(command, env={**os.environ, "PYTHONHASHSEED": seed})
        for seed in "12"
    }
    assert len(said) == 1
    assert b"version" not in said.pop()


def test_without_a_ledger_nothing_but_simulated_noise_is_drawn():
    known = PublicLabels(PUBLIC, PUBLIC, LABELS[:80], 2, own=False)
    public = known.public(ONE_TEACHER, len(PRIVATE))
    method = NoisyMoments(n_landmarks=20, mechanism=NoisySum(3.0))
    people = method.prepare(
        public, PeopleInMemory(PRIVATE, LABELS, Shards.of_single_people(len(PRIVATE)))
    )
    assert repr(people) == "PeopleReady(<private rows hidden>)"
    with pytest.raises(InvalidParameterError, match="must be simulated"):
        rehearse(method.steps(public), people, SystemNoise())


def test_another_fit_does_not_take_the_room_between_the_rounds_of_a_fit(fitted, monkeypatch):  # noqa: F811
    begun, drawn, honest = threading.Event(), [], NoisySum.release

    def slow(self: Any, *given: Any) -> Any:
        drawn.append(threading.get_ident())
        begun.set()
        other.join(0.5)  # which waits for its turn
        return honest(self, *given)

    def spend() -> None:
        begun.wait()
        with pytest.raises(BudgetExceededError):
            fitted(question="other", budget=1.0)
        refused.append(1)

    refused = list[int]()
    other = threading.Thread(target=spend)
    monkeypatch.setattr(NoisySum, "release", slow)
    other.start()
    found = fitted(budget=1.0)
    other.join()
    assert (len(drawn), len(set(drawn)), refused) == (3, 1, [1])
    assert found.release_.cost == pytest.approx(found.ledger_.spent, rel=1e-12)


VOTED, ROWS = VoteHistogram(np.tile([25, 25], (20, 1)), 50), np.arange(20.0)[:, np.newaxis]


def test_a_step_whose_owner_lives_is_waited_for_and_not_drawn_again(tmp_path, monkeypatch):
    Ledger.create(tmp_path / "a.ledger", epsilon=20.0, delta=1e-5, unit=VOTED.unit)
    drawing, drawn, honest = threading.Event(), [], GNMax.release

    def slow(self: Any, *given: Any) -> Any:
        drawn.append(1)
        drawing.set()
        wait([second], timeout=0.5)  # which waits for its turn
        return honest(self, *given)

    def ask() -> list[int]:
        return (
            LabelingSession(VOTED, GNMax(40.0), Ledger.open(tmp_path / "a.ledger"))
            .ask(ROWS)
            .labels.tolist()
        )

    def ask_later() -> list[int]:
        assert drawing.wait(60)
        return ask()

    monkeypatch.setattr(GNMax, "release", slow)
    with ThreadPoolExecutor(2) as threads:
        second = threads.submit(ask_later)
        assert ask() == second.result()
    assert len(drawn) == 1
    kinds = [entry["kind"] for entry in Ledger.open(tmp_path / "a.ledger").export()]
    assert kinds == ["opened", "reserved", "answered"]


def test_answers_that_come_late_to_a_step_that_another_took_over_are_never_released(
    tmp_path, monkeypatch
):
    Ledger.create(tmp_path / "a.ledger", epsilon=20.0, delta=1e-5, unit=VOTED.unit)
    one, two = (
        LabelingSession(VOTED, GNMax(40.0), Ledger.open(tmp_path / "a.ledger")) for _ in range(2)
    )

    def full(*_: Any) -> Any:
        raise LedgerStorageError("The disk is full.")

    with monkeypatch.context() as patch:
        patch.setattr(Account, "settle", full)
        with pytest.raises(LedgerStorageError):
            one.ask(ROWS)
    late = one._boundary._unstored
    assert late is not None
    taken = two.ask(ROWS)
    assert taken.cost == one.ledger.state().spent > 0
    again = one.ask(ROWS)
    assert (
        again.labels.tolist()
        == taken.labels.tolist()
        != [label for (label,) in late.answers.values()]
    )
    assert (again.cost, one.n_drawn, one.ledger.verify().unsettled) == (0, 0, 0)
    assert one._boundary.noised == []  # no vote-dependent cost is of what was not released


def test_a_reservation_under_which_nothing_came_out_is_none_of_the_answers(monkeypatch):
    ledger = Ledger.in_memory(epsilon=20.0, delta=1e-5, unit=VOTED.unit)
    session = LabelingSession(VOTED, GNMax(40.0), ledger)

    def refuse(*_: Any) -> Any:
        raise LedgerError("The mechanism ran more than it had announced.")

    with monkeypatch.context() as patch:
        patch.setattr(Account, "settle", refuse)
        with pytest.raises(LedgerError):
            session.ask(ROWS)
    assert session.reservations == frozenset()
    session.ask(ROWS)
    assert len(session.reservations) == 1
    assert len(ledger.history().charges) == 2  # what was drawn first stays spent


def test_a_step_is_recalled_cast_compared_reserved_drawn_and_settled_in_this_order(monkeypatch):
    order, ledger = list[str](), Ledger.in_memory(epsilon=20.0, delta=1e-5, unit=VOTED.unit)

    class Teachers:
        n_classes, unit = 2, VOTED.unit

        def ballots(self, X: Any) -> Any:
            order.append("cast")
            if X.max() > 90:
                raise ValueError("a teacher fails")
            return np.zeros((50, len(X)), dtype=np.int16)

    steps = {
        "recall_with_room": Account,
        "check": GNMax,
        "reserve_new": Account,
        "release": GNMax,
        "settle": Account,
    }
    for name, owner in steps.items():
        honest = getattr(owner, name)
        monkeypatch.setattr(
            owner,
            name,
            lambda *given, of=name, call=honest, **more: (order.append(of), call(*given, **more))[
                1
            ],
        )
    session = LabelingSession(Teachers(), GNMax(40.0), ledger)  # pyright: ignore[reportArgumentType]
    session.ask(ROWS)
    assert [*dict.fromkeys(order)] == [
        "recall_with_room",
        "cast",
        "check",
        "reserve_new",
        "release",
        "settle",
    ]
    order.clear()
    session.ask(ROWS)
    assert set(order) == {"recall_with_room"}
    spent = ledger.state()
    with pytest.raises(ValueError, match="a teacher fails"):
        session.ask(ROWS + 100)
    assert ledger.state() == spent  # a teacher that fails costs nothing


UNITS = unit_of_single_people("person", named=False)
LIMITS = [GaussianFilter(1.0, 1e-5), RenyiFilter.suited_to(1.0, 1e-5), RenyiFilter(30.0, 1e-5, 2.0)]


@given(
    st.integers(1, 40),
    st.floats(0.0, 1.0),
    st.sampled_from([5.0, 60.0]),
    st.sampled_from([5.0, 60.0]),
)
def test_what_happened_never_costs_more_grains_than_was_reserved(queries, passed, check, vote):
    for mechanism in (
        ConfidentGNMax(200.0, check, vote),
        InteractiveGNMax(50.0, check, vote, 0.9),
        GNMax(vote),
    ):
        one = mechanism.event_of_one(3, ONE_TEACHER, simulated=False)
        *checks, answer = one.flatten()
        times = round(passed * queries) if checks else queries
        happened = Composed(
            (*(Repeated(part.event, queries) for part in checks), Repeated(answer.event, times))
        )
        for limit in LIMITS[1:] if checks else LIMITS:
            reserved, spent = queries * limit.cost(one), limit.cost(happened)
            assert spent <= reserved == limit.cost(Repeated(one, queries))
            assert reserved - spent == (queries - times) * limit.cost(answer.event)


def test_a_label_that_is_released_while_a_proposal_is_tested_is_covered_by_no_claim(monkeypatch):
    from test_publishing import AGREEING, DELTA, ONE, ROWS, ledger, released
    from tutelage.publishing import propose, publish_epsilon

    proposal = propose(released(AGREEING), DELTA)
    paid = ledger(proposal)
    honest = Account.reserve_new

    def raced(self: Any, event: Any, keys: Any) -> Any:
        # Another session releases a label in between.
        if type(event).__name__ == "PublicationTest":
            self.settle(self.reserve(ONE, 1), {bytes([99]) * 32: (0,)}, ONE)
        return honest(self, event, keys)

    monkeypatch.setattr(Account, "reserve_new", raced)
    with pytest.raises(LedgerMismatchError):
        publish_epsilon(released(), paid, proposal, ROWS)


@given(
    st.lists(st.integers(0, 30), min_size=3, max_size=3),
    st.integers(0, 2),
    st.integers(0, 2**32 - 1),
)
def test_a_person_who_joins_moves_the_check_of_interactive_gnmax_by_one_at_most(counts, vote, seed):
    """The expected votes are a share of a private number of people, which moves with them."""
    here = np.array([counts])
    there = here + np.eye(3, dtype=int)[[vote]]
    predictions = np.random.default_rng(seed).dirichlet(np.ones(3), 1)
    over = [
        (one - InteractiveGNMax.offsets(predictions, int(one.sum()))).max() for one in (here, there)
    ]
    assert abs(int(over[0]) - int(over[1])) <= 1


def test_sums_are_added_only_where_blocks_hold_different_people():
    called = re.compile(r"^(?!from |def ).*\badd_sums\b", re.MULTILINE)
    users = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if called.search(path.read_text())
    }
    assert users == {"teachers/vectors.py", "methods/sums.py"}


@pytest.mark.parametrize("name", METHODS)
def test_a_method_that_is_not_calibrated_does_not_run(name):
    with pytest.raises(InvalidParameterError, match="must be set, or found by a fit"):
        EVERY[name].event(Sizes(n_classes=3, n_public=80, unit=UNITS))


def test_an_answer_says_its_own_cost_though_it_is_noted_twice_and_another_is_free(monkeypatch):
    session = LabelingSession(
        VOTED, GNMax(40.0), Ledger.in_memory(epsilon=20.0, delta=1e-5, unit=VOTED.unit)
    )
    note_stored = Boundary._note_stored

    def interrupted(boundary: Boundary, stored: Any) -> Any:
        note_stored(boundary, stored)
        assert session.ask(ROWS).cost == 0
        return note_stored(boundary, stored)

    monkeypatch.setattr(Boundary, "_note_stored", interrupted)
    assert session.ask(ROWS).cost > 0
    assert session._boundary.cost == pytest.approx(session.ledger.state().spent)
    assert len(session._boundary.noised) == 1
