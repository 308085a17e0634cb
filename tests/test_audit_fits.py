"""The audit of a fit, whatever its method: what is as it should be passes, and planted faults are found."""

import numpy as np
import pandas as pd
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from tutelage import PATEClassifier, Shards
from tutelage.audit import PrivateRows, check_fit, fits
from tutelage.ballots import BallotSum
from tutelage.exceptions import InvalidParameterError
from tutelage.ledger import Ledger
from tutelage.methods import CappedVotes, NoisyMoments, TeacherVotes
from tutelage.people.memory import PeopleInMemory
from tutelage.teachers import ClassMeans, NearestQueries, VectorBallots

pytestmark = pytest.mark.rest

rng = np.random.default_rng(0)
LABELS = rng.integers(0, 2, 200)
PRIVATE = rng.normal(size=(200, 3)) + LABELS[:, None]
PUBLIC = rng.normal(size=(100, 3)) + rng.integers(0, 2, (100, 1))
PEOPLE = np.repeat(np.arange(100), 2)
OF_PEOPLE = PrivateRows(PRIVATE, LABELS, PEOPLE)
FEW = {"n_teachers": 10, "student": GaussianNB()}
CAST, NEAREST, PREPARE = VectorBallots.cast, NearestQueries.fit, TeacherVotes.prepare


def of(method, **settings):
    return PATEClassifier(
        **{"method": method, "classes": [0, 1], "random_state": 0, "epsilon": 3.0, **settings}
    )


MODELS = {
    "vectors": (of(NoisyMoments()), 2),
    "capped": (of(CappedVotes(4, student=GaussianNB())), 1),
    "capped rounds": (
        of(
            CappedVotes(
                4, n_queries=60, rounds=3, selection="least-confident", student=GaussianNB()
            )
        ),
        3,
    ),
    "means": (of(TeacherVotes(ClassMeans(), **FEW)), 1),
    "trees": (of(TeacherVotes(DecisionTreeClassifier(), rounds=2, **FEW)), 2),
}


@pytest.fixture
def moves(monkeypatch):
    """Return the last check of a fit, without the slow ones of its mechanism."""
    monkeypatch.setattr(fits, "check_mechanism", lambda *_, **__: [])

    def checked(model, private=OF_PEOPLE, entities=4):
        return check_fit(model, private, PUBLIC, draws=1_000, entities=entities)[-1]

    return checked


@pytest.mark.parametrize("ids", [None, PEOPLE], ids=["rows", "people"])
@pytest.mark.parametrize("name", MODELS)
def test_right_fits_pass(name, ids, moves):
    model, n_requests = MODELS[name]
    found = moves(model, PrivateRows(PRIVATE, LABELS, ids), entities=3)
    assert (found.verdict, found.private) == ("pass", True)
    # The number of people is asked, too.
    of_moments = isinstance(model.method, NoisyMoments)
    n_requests += (ids is not None and of_moments) + of_moments  # and the test report
    assert found.reason.startswith(f"In {n_requests} request")
    assert ("removal" in found.reason) == (ids is not None and name not in ("means", "trees"))


def test_silos_and_rows_with_gaps_pass(moves):
    silos = PrivateRows(PRIVATE, LABELS, PEOPLE, PEOPLE % 7)
    assert moves(of(TeacherVotes(ClassMeans(), **FEW)), silos).verdict == "pass"
    rows = PRIVATE.copy()
    rows[::7, 1] = np.nan
    method = TeacherVotes(
        DecisionTreeClassifier(max_depth=2), n_teachers=10, student=DecisionTreeClassifier()
    )
    assert moves(of(method), PrivateRows(rows, LABELS)).verdict == "pass"


def centered(self, blocks, products_of, radius, unit):
    """Cast ballots from which the mean of all private rows was taken first."""
    blocks = list(blocks)
    mean = np.concatenate([products_of(block)[0] for block in blocks]).mean(axis=0)

    def centered_products(block):
        vectors, residuals = products_of(block)
        return vectors - 20 * mean, residuals

    return CAST(self, blocks, centered_products, radius, unit)


def above_its_cap_at_last(self, blocks, products_of, radius, unit):
    """Cast ballots that are too long once there is a student, whose residuals are no fractions of the classes."""
    blocks = list(blocks)
    honest = CAST(self, blocks, products_of, radius, unit)
    residuals = np.concatenate([products_of(block)[1] for block in blocks])
    first = len(np.unique(np.round(residuals, 9))) <= residuals.shape[1]
    return honest if first else BallotSum(3 * honest.totals, honest.norm_squared, honest.unit)


def above_the_cap(self, X, y, shards, **settings):
    return NEAREST(NearestQueries(3 * self.cap), X, y, shards, **settings)


def each_row_votes(self, X, y, shards, **settings):
    """Make one teacher of each row, whoever it belongs to."""
    return NEAREST(self, X, y, Shards(np.arange(len(X)), len(X), shards.unit), **settings)


def on(partition):
    """Return teachers on a partition of one's own."""

    def prepare(self, public, people):
        shards = Shards(partition(people), people.shards.n_shards, people.shards.unit)
        return PREPARE(self, public, PeopleInMemory(people.rows, people.labels, shards))

    return prepare


def scaled_together(self, public, people):
    rows = (people.rows - people.rows.mean(axis=0)) / people.rows.std(axis=0)
    return PREPARE(self, public, PeopleInMemory(rows, people.labels, people.shards))


def with_the_next(self, public, people):
    taken = people.shards.assignment
    shards = Shards(np.concatenate([taken, (taken + 1) % 10]), 10, people.shards.unit)
    return PREPARE(
        self,
        public,
        PeopleInMemory(np.tile(people.rows, (2, 1)), np.tile(people.labels, 2), shards),
    )


FAULTS = {
    "shared features": ("vectors", VectorBallots, "cast", centered),
    "too long": ("vectors", VectorBallots, "cast", above_its_cap_at_last),
    "row by row": ("capped", NearestQueries, "fit", each_row_votes),
    "scaler": ("means", TeacherVotes, "prepare", scaled_together),
    "overlap": ("means", TeacherVotes, "prepare", with_the_next),
    "trees by row": (
        "trees",
        TeacherVotes,
        "prepare",
        on(lambda people: np.arange(len(people.rows)) % 10),
    ),
}


@pytest.mark.parametrize("planted", FAULTS)
def test_a_planted_fault_is_found(planted, moves, monkeypatch):
    name, owner, attribute, fault = FAULTS[planted]
    monkeypatch.setattr(owner, attribute, fault)
    found = moves(MODELS[name][0], entities=8)
    assert found.verdict == "fail"
    assert "do not release with it" in found.reason


def test_votes_above_the_cap_of_a_batch_are_cut_off_by_the_ledger(moves, monkeypatch):
    monkeypatch.setattr(NearestQueries, "fit", above_the_cap)
    assert moves(MODELS["capped"][0]).verdict == "pass"


def test_a_fit_that_is_not_repeatable_fails(moves, monkeypatch):
    random = np.random.default_rng()
    monkeypatch.setattr(
        TeacherVotes, "prepare", on(lambda people: random.integers(0, 10, len(people.rows)))
    )
    found = moves(MODELS["means"][0])
    assert found.verdict == "fail"
    assert "the second time" in found.reason


def test_what_shows_nothing_is_a_note(moves):
    alone = of(TeacherVotes(ClassMeans(), n_teachers=1, student=GaussianNB()))
    constant = of(TeacherVotes(DummyClassifier(strategy="constant", constant=0), **FEW))
    assert [moves(one).verdict for one in (alone, constant)] == ["note", "note"]
    assert "one teacher" in moves(alone).reason


def test_the_audited_mechanism_is_that_of_a_fit_and_its_ledger_is_unspent(monkeypatch, tmp_path):
    audited = []
    monkeypatch.setattr(fits, "check_mechanism", lambda *given, **_: audited.append(given) or [])
    for budget in (
        {"epsilon": 3.0},
        {"epsilon": 2.0, "budget": 5.0, "ledger": tmp_path / "budget.ledger"},
    ):
        model = of(CappedVotes(4, n_queries=90, student=GaussianNB()), **budget)
        check_fit(model, OF_PEOPLE, PUBLIC, entities=1)
        assert not list(tmp_path.iterdir())
        fitted = model.fit(PRIVATE, LABELS, X_public=PUBLIC, entity_ids=PEOPLE)
        check_fit(model, OF_PEOPLE, PUBLIC, entities=1)
        assert audited == [(fitted.mechanism_, 100, 2)] * 2
        audited.clear()
    assert Ledger.open(tmp_path / "budget.ledger", read_only=True).state() == fitted.ledger_


def test_numbers_of_people_are_checked():
    with pytest.raises(InvalidParameterError, match="`entities` of check_fit"):
        check_fit(MODELS["means"][0], OF_PEOPLE, PUBLIC, entities=0)


def test_private_rows_that_are_public_under_other_ids_are_found_by_names_of_columns_too():
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"a": random.normal(size=400).round(3), "b": random.normal(size=400).round(3)}
    )
    frame = frame.assign(ill=np.where(frame["a"] > 0, "yes", "no"), patient=np.arange(400) // 4)
    model = PATEClassifier(1.0, ["no", "yes"], random_state=0)
    copied = frame[:200].assign(patient=np.arange(200) + 5_000)
    others = frame[:200].assign(
        a=random.normal(size=200), b=random.normal(size=200), patient=np.arange(200) + 9_000
    )
    for X_public, scored in ((copied, 0), (pd.concat([others, copied]), 200)):
        found = check_fit(
            model,
            PrivateRows(frame, "ill", "patient"),
            X_public,
            scored=scored,
            draws=1_000,
            entities=1,
        )
        assert [one.verdict for one in found if "among the public rows" in one.check] == ["fail"]
