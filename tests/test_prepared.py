"""A prepared release: it is checked once, spends once, and finds what changed since it was prepared."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.tree import DecisionTreeClassifier

from tutelage import (
    GNMax,
    PATEClassifier,
    PATERegressor,
    SimulationNoise,
    SystemNoise,
    VoteHistogram,
    boundary,
)
from tutelage._internal.typing import Hidden
from tutelage.accounting import Accountant
from tutelage.estimator import base
from tutelage.exceptions import (
    BudgetExceededError,
    InvalidParameterError,
    LedgerError,
    LedgerMismatchError,
    NotPublishableError,
    PreflightError,
    PreflightWarning,
)
from tutelage.features import LearnedMap, PublicPCA, PublicRows, Schema
from tutelage.ledger import Ledger
from tutelage.ledger.account import Account
from tutelage.methods import CappedVotes, Method, NoisyMoments, TeacherVotes
from tutelage.partition import unit_of_single_people
from tutelage.planning import Planned
from tutelage.publishing import Proposal, propose, record
from tutelage.release import PreparedRelease

pytestmark = pytest.mark.filterwarnings("ignore::tutelage.exceptions.BudgetContinuedWarning")
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(800, 3))
Y = (X[:, 0] + 0.3 * RANDOM.normal(size=800) > 0).astype(int)
PUBLIC = RANDOM.normal(size=(60, 3))
IDS = np.arange(800) // 2
TREES = TeacherVotes(DecisionTreeClassifier(max_depth=3), n_teachers=40, n_queries=5)


def model(method: Method | None = None, **given: Any) -> PATEClassifier:
    return PATEClassifier(
        method=method, **{"epsilon": 1.0, "classes": [0, 1], "random_state": 0, **given}
    )


def interrupt(release, owner, name, error=KeyboardInterrupt):
    """Release until a function is called."""
    with patch.object(owner, name, side_effect=error), pytest.raises(error):
        release.release()


def prepared(one: PATEClassifier, **more: Any) -> PreparedRelease:
    return one.prepare(X, Y, X_public=PUBLIC, entity_ids=IDS, **more)


def calls_of(noise: SimulationNoise, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list in which noise writes down each time that it is drawn."""
    calls = list[str]()

    def counted(draw: Any, *given: Any) -> Any:
        calls.append("drawn")
        return draw(*given)

    for name in ("discrete_gaussian", "gumbel_argmax"):
        monkeypatch.setattr(noise, name, partial(counted, getattr(noise, name)))
    return calls


@pytest.mark.parametrize(
    "method", [None, TREES, CappedVotes(n_queries=20)], ids=["moments", "trees", "capped"]
)
@pytest.mark.parametrize("in_ledger", [False, True])
def test_a_second_release_of_the_same_object_draws_and_costs_nothing(
    method, in_ledger, tmp_path, monkeypatch
):
    noise = SimulationNoise(0)
    calls = calls_of(noise, monkeypatch)
    release = prepared(
        model(method, noise=noise, ledger=tmp_path / "a.ledger" if in_ledger else None)
    )
    assert calls == []
    first = release.release()
    drawn, spent = len(calls), first.ledger_.spent
    assert drawn > 0
    assert release.release() is first
    assert len(calls) == drawn
    assert first.open_ledger_.state().spent == spent


def test_threads_that_release_the_same_object_get_one_release(monkeypatch):
    noise = SimulationNoise(0)
    calls = calls_of(noise, monkeypatch)
    release = prepared(model(noise=noise))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: release.release(), range(4)))
    assert len({id(one) for one in found}) == 1
    assert len(calls) == len(found[0].ballots_) + 1  # the sums, and the number of people


def test_preparing_changes_neither_the_estimator_nor_the_ledger(tmp_path):
    file = tmp_path / "a.ledger"
    one = model(noise=SimulationNoise(0), ledger=file)
    before = vars(one).copy()
    prepared(one)
    assert vars(one) == before
    assert not file.exists()
    one.fit(X, Y, X_public=PUBLIC, entity_ids=IDS)
    kept, before = file.read_bytes(), vars(one).copy()
    again = prepared(one)
    assert file.read_bytes() == kept
    assert vars(one) == before
    assert again.release().ledger_.spent == one.ledger_.spent  # it is remembered


def test_fit_is_prepare_and_release(tmp_path):
    fitted = model(noise=SimulationNoise(0)).fit(X, Y, X_public=PUBLIC, entity_ids=IDS)
    release = prepared(model(noise=SimulationNoise(0)))
    released = release.release()
    assert np.array_equal(fitted.release_.labels, released.release_.labels)
    assert fitted.epsilon_ == released.epsilon_ == release.epsilon
    assert fitted.method_ == released.method_ == release.method
    assert release.cost == pytest.approx(fitted.release_.cost)


def test_what_was_spent_since_it_was_prepared_is_counted(tmp_path):
    file = tmp_path / "a.ledger"
    given = {"ledger": file, "budget": 1.2, "epsilon": 1.0, "noise": SimulationNoise(0)}
    late, quick = (
        prepared(model(question="late", **given)),
        prepared(model(question="quick", **given)),
    )
    quick.release()
    spent = Ledger.open(file).state().spent
    with pytest.raises(BudgetExceededError):
        late.release()
    assert Ledger.open(file).state().spent == spent


def test_people_who_withdrew_since_it_was_prepared_are_refused(tmp_path):
    file = tmp_path / "a.ledger"
    given = {"ledger": file, "budget": 3.0, "epsilon": 1.0, "noise": SimulationNoise(0)}
    prepared(model(question="first", **given)).release()
    late = prepared(model(question="late", **given))
    ledger = Ledger.open(file)
    ledger.withdraw(["7"])
    spent = ledger.state().spent
    with pytest.raises(LedgerError, match="withdrawn"):
        late.release()
    assert Ledger.open(file).state().spent == spent


def test_another_data_set_and_a_second_ledger_are_refused_late_too(tmp_path):
    file = tmp_path / "a.ledger"
    given = {"noise": SimulationNoise(0), "unit": "person"}
    late = prepared(model(ledger=file, **given))
    beside = prepared(model(ledger=tmp_path / "b.ledger", **given))
    others = model(ledger=file, **given).prepare(X + 1, Y, X_public=PUBLIC, entity_ids=IDS + 5_000)
    others.release()
    with pytest.raises(LedgerMismatchError):
        late.release()
    with pytest.raises(LedgerMismatchError):
        model(ledger=tmp_path / "c.ledger", **given).prepare(
            X + 1, Y, X_public=PUBLIC, entity_ids=IDS + 5_000
        )
    beside.release()  # of people of whom no ledger knows


def test_a_student_that_fails_is_trained_again_and_nothing_is_drawn_again(monkeypatch):
    noise = SimulationNoise(0)
    calls = calls_of(noise, monkeypatch)
    release = prepared(model(NoisyMoments(student=DecisionTreeClassifier()), noise=noise))
    interrupt(release, base, "fit_student")
    drawn = len(calls)
    assert hasattr(release.release(), "student_")
    assert len(calls) == drawn


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize(
    "method", [None, TREES, CappedVotes(n_queries=20)], ids=["moments", "trees", "capped"]
)
@pytest.mark.parametrize("in_ledger", [False, True])
def test_noise_that_was_drawn_and_not_stored_is_stored_and_never_drawn_again(
    interruption, method, in_ledger, tmp_path, monkeypatch
):
    noise, plain = SimulationNoise(0), SimulationNoise(0)
    calls, in_one_go = calls_of(noise, monkeypatch), calls_of(plain, monkeypatch)
    undisturbed = prepared(model(method, noise=plain)).release()
    given = {"ledger": tmp_path / "a.ledger"} if in_ledger else {}
    release = prepared(model(method, noise=noise, **given))
    interrupt(release, Account, "settle", interruption)
    found = release.release()
    assert len(calls) == len(in_one_go)
    assert np.array_equal(found.release_.labels, undisturbed.release_.labels)
    assert found.ledger_.spent == pytest.approx(undisturbed.ledger_.spent)
    assert found.release_.cost == pytest.approx(undisturbed.release_.cost)


def test_a_draw_that_is_interrupted_is_paid_and_counted_once(tmp_path):
    release = prepared(model(noise=SimulationNoise(0), ledger=tmp_path / "a.ledger"))
    interrupt(release, boundary, "NoisedBallots")
    found = release.release()  # although the budget, which allows one release, is spent in part
    used: Any = release._progress.boundary
    assert len(used.noised) == len(found.open_ledger_.history().charges)


def test_a_raise_since_it_was_prepared_is_seen(tmp_path):
    file = tmp_path / "a.ledger"
    given = {"ledger": file, "noise": SimulationNoise(0)}
    prepared(model(question="first", budget=2.0, **given)).release()
    late = prepared(model(question="late", budget=2.0, **given))
    spent = Ledger.open(file).raise_budget(4.0, by="me", why="more").spent
    with pytest.raises(LedgerMismatchError):
        late.release()
    assert Ledger.open(file).state().spent == spent


def test_public_rows_that_are_overwritten_since_change_nothing():
    public = PUBLIC.copy()
    release = model(noise=SimulationNoise(0)).prepare(X, Y, X_public=public, entity_ids=IDS)
    public[:] = X[:60]
    fitted = model(noise=SimulationNoise(0)).fit(X, Y, X_public=PUBLIC, entity_ids=IDS)
    assert np.array_equal(release.release().release_.labels, fitted.release_.labels)


def test_rows_that_only_score_make_up_for_no_others_and_are_compared_too():
    others = RANDOM.normal(size=(2000, 3))
    asked = model(unit="row")
    for learned, scored, said in (
        (X[:60], others, "Many public rows equal private rows"),
        (others[:60], X[:60], "Many public rows equal private rows"),
        (others[:3], others[3:], "too few public rows"),
    ):
        with pytest.raises(PreflightError, match=said):
            asked.prepare(X, Y, X_public=np.concatenate([learned, scored]), scored=len(scored))


def test_public_rows_that_only_score_are_compared_with_the_others_and_change_no_map():
    public = RANDOM.normal(size=(400, 3))
    labels = (public[:, 0] > 0).astype(int)
    order = np.argsort(public[:, 0])
    given: Any = {"entity_ids": IDS, "scored": 100}
    with pytest.warns(PreflightWarning, match="The last 100 public rows"):
        doubted = model().prepare(X, Y, X_public=public[order], y_public=labels[order], **given)
    assert len(doubted.doubts) == 1
    assert np.array_equal(doubted.scored, public[order][300:])
    later = model().prepare(
        X, Y, X_public=public[order], y_public=labels[order], later=True, **given
    )
    assert later.doubts == ()
    alone = model().prepare(
        X, Y, X_public=public[order][:300], y_public=labels[order][:300], entity_ids=IDS
    )
    assert np.array_equal(later.public.teacher_rows, alone.public.teacher_rows)
    with pytest.raises(InvalidParameterError, match="less than the 400 public rows"):
        model().prepare(X, Y, X_public=public, entity_ids=IDS, scored=400)


def test_a_map_is_learned_by_name_from_the_public_rows():
    learned = PublicPCA.learn(PublicRows(PUBLIC, "X_public"), 2, whiten=True)
    by_name = prepared(model(TREES, features=LearnedMap("pca", components=2)))
    assert np.array_equal(by_name.public.teacher_rows, learned.transform(PUBLIC))
    cloned: Any = clone(model(features=LearnedMap("pca", components=2)))
    assert cloned.features == LearnedMap("pca", components=2)
    with pytest.raises(InvalidParameterError, match="`name` of LearnedMap must be one of"):
        LearnedMap("kernel")
    with pytest.raises(
        InvalidParameterError, match="`features` of PATEClassifier must fit the public rows"
    ):
        prepared(model(features=LearnedMap("images", image_shape=(7, 7))))


class Fixed:
    """Chooses one method."""

    def __init__(self, method: Method) -> None:
        self.method = method

    def candidates(self, _known: Any) -> list[Method]:
        return []

    def __call__(self, _known: Any) -> Method:
        return self.method


@pytest.mark.parametrize("ids", [None, IDS])
def test_a_chosen_method_has_its_own_teachers(ids):
    for asked, chosen in (
        (NoisyMoments(), TREES),
        (TREES, NoisyMoments()),
        (TREES, CappedVotes(n_queries=20)),
    ):
        noise = SimulationNoise(0)
        by_choice = model(asked, noise=noise, unit=None if ids is not None else "row").prepare(
            X, Y, X_public=PUBLIC, entity_ids=ids, choose=Fixed(chosen)
        )
        by_fit = model(chosen, noise=noise, unit=None if ids is not None else "row").prepare(
            X, Y, X_public=PUBLIC, entity_ids=ids
        )
        assert by_choice.public.n_teachers == by_fit.public.n_teachers
        assert by_choice.people.n_people == by_fit.people.n_people
        assert by_choice.most == by_fit.most


def test_a_chosen_method_is_refused_as_a_given_one_is(tmp_path):
    loud = TeacherVotes(TREES.teacher, n_teachers=40, n_queries=5, mechanism=GNMax(1.0))
    with pytest.raises(InvalidParameterError, match="epsilon"):
        prepared(model(noise=SimulationNoise(0)), choose=Fixed(loud))
    named = model(noise=SimulationNoise(0), epsilon=None, budget=2.0, ledger=tmp_path / "a.ledger")
    with pytest.raises(InvalidParameterError, match="release"):
        prepared(named, choose=Fixed(TREES), release="first")
    silos = {"silos": np.arange(800) % 5, "choose": Fixed(NoisyMoments())}
    with pytest.raises(InvalidParameterError, match="silos"):
        model(TREES, noise=SimulationNoise(0)).prepare(X, Y, X_public=PUBLIC, **silos)


def test_a_prepared_release_shows_and_pickles_no_rows():
    release = prepared(model(noise=SimulationNoise(0)))
    assert "hidden" in repr(release)
    assert str(release).startswith("NoisyMoments with NoisySum(")
    assert "of the budget" in str(release)
    assert "hidden" in repr(release.people)
    for one in (release, release.people):
        with pytest.raises(NotPublishableError):
            pickle.dumps(one)


def _all_kinds(kind: type) -> list[type]:
    return [one for each in kind.__subclasses__() for one in (each, *_all_kinds(each))]


def test_all_records_of_private_rows_hide_by_one_rule():
    kinds = _all_kinds(Hidden)
    assert {
        "PeopleInMemory",
        "PeopleInBatches",
        "PeopleInPartitions",
        "PeopleBlock",
        "PreparedRelease",
        "Rows",
    } <= {one.__name__ for one in kinds}
    assert [one.__name__ for one in kinds if one.__repr__ is not Hidden.__repr__] == []


@pytest.mark.rest
def test_a_plan_chooses_the_method_and_a_release_that_was_begun_goes_on_with_it(tmp_path):
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(200, 3))
    labels = (rows[:, 0] > 0).astype(int)
    given = {"ledger": tmp_path / "a.ledger", "noise": SimulationNoise(0)}
    choice = Planned(despite_plan=True)
    release = model(**given).prepare(
        X, Y, X_public=rows, y_public=labels, choose=choice, insist=True
    )
    assert choice.found is not None
    assert type(release.method) is type(choice.found.best.method)
    first = release.release()
    again = Planned(despite_plan=True)
    repeated = model(**given).prepare(
        X, Y, X_public=rows, y_public=labels, choose=again, insist=True
    )
    assert again.found is None
    assert repeated.method == first.method_
    assert repeated.release().ledger_.spent == first.ledger_.spent


def test_a_regressor_prepares_as_well():
    schema = Schema({"age": (20, 80)})
    age = np.random.default_rng(0).integers(20, 80, size=2000)
    one = PATERegressor(epsilon=1.0, target_range=(0, 10), columns=schema, noise=SimulationNoise(0))
    release = one.prepare({"age": age}, 0.1 * age)
    fitted = release.release()
    assert fitted.score({"age": age}, 0.1 * age) > 0.5
    assert not hasattr(one, "student_")


def test_the_file_of_a_ledger_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "a.ledger"
    given = {"ledger": file, "noise": SimulationNoise(0)}
    model(**given).fit(X, Y, X_public=PUBLIC, entity_ids=IDS)
    opened, init = [], Ledger.__init__

    def counted(self: Ledger, *more: Any) -> None:
        opened.append(1)
        init(self, *more)

    monkeypatch.setattr(Ledger, "__init__", counted)
    model(**given).fit(X, Y, X_public=PUBLIC, entity_ids=IDS)
    assert len(opened) == 1


# A proposal that is tested after the labels

VOTES = TeacherVotes(
    DecisionTreeClassifier(max_depth=3), n_teachers=100, n_queries=20, mechanism=GNMax(8.0)
)
BY_PEOPLE = {"method": VOTES, "budget": 9.0, "epsilon": None, "unit": "patient", "delta": 1e-5}


def proposed(file: Path, *, scale: float = 1.0) -> Proposal:
    """Return a proposal by made-up votes, which a new ledger holds."""
    ledger = Ledger.create(
        file, epsilon=9.0, delta=1e-5, unit=unit_of_single_people("patient", named=True)
    )
    votes = VoteHistogram(np.repeat([[82, 18], [92, 8]], 10, axis=0), 100, ledger.unit)
    planned = Accountant()
    planned.add_release(GNMax(8.0 * scale).event_of_one(2, ledger.unit, simulated=False), votes)
    proposal = propose(planned, 5e-6)
    record(proposal, ledger)
    return proposal


@pytest.mark.parametrize("passes", [True, False])
def test_a_release_tests_its_proposal_once_and_its_card_says_so(passes, tmp_path, monkeypatch):
    monkeypatch.setattr(SystemNoise, "happens", lambda *_: passes)
    proposal = proposed(tmp_path / "a.ledger")
    given = {**BY_PEOPLE, "ledger": tmp_path / "a.ledger"}
    fitted = prepared(model(**given), proposal=proposal).release()
    found = fitted.publication_
    assert found.passed is passes
    assert (found.smaller is not None) is passes
    assert fitted.epsilon_ == found.data_independent  # of labels and test
    assert fitted.epsilon_.epsilon > fitted.ledger_.spent
    card = fitted.card()
    assert card.guarantee.tested == found.smaller
    assert card.epsilon == found.data_independent
    fitted.save(tmp_path / "out")
    spent = fitted.open_ledger_.state().spent
    again = prepared(model(**given), proposal=proposal).release()
    assert again.publication_.passed is passes
    assert again.open_ledger_.state().spent == spent


def test_a_proposal_that_could_not_be_tested_is_refused_before_anything_is_spent(tmp_path):
    file = tmp_path / "a.ledger"
    proposal = proposed(file)
    given = {**BY_PEOPLE, "ledger": file}
    with pytest.raises(InvalidParameterError, match="method` of votes in one round"):
        prepared(model(**{**given, "method": CappedVotes()}), proposal=proposal)
    with pytest.raises(InvalidParameterError, match="come with the `ledger`"):
        prepared(model(**{**given, "ledger": tmp_path / "b.ledger"}), proposal=proposal)
    with pytest.raises(InvalidParameterError, match="be a Proposal"):
        prepared(model(**given), proposal="p.json")
    other = proposed(tmp_path / "c.ledger", scale=2.0)
    with pytest.raises(LedgerMismatchError, match="does not hold this proposal"):
        prepared(model(**given), proposal=other)
    (tmp_path / "c.ledger").unlink()
    assert Ledger.open(file).state().spent == 0
    prepared(model(**given)).release()
    with pytest.raises(LedgerMismatchError, match="must cover all releases of its ledger"):
        prepared(model(**given), proposal=proposal)


def test_a_proposal_is_tested_without_the_people_who_withdrew_and_the_ledger_knows_everybody_still(
    tmp_path,
):
    file = tmp_path / "a.ledger"
    proposal = proposed(file)
    ledger = Ledger.open(file)
    ledger.withdraw([17], unknown=True)
    fitted = prepared(model(**{**BY_PEOPLE, "ledger": file}), proposal=proposal).release()
    assert fitted.publication_ is not None
    assert len(ledger.history().publications) == 1
    assert ledger.register.names_all()
    late = prepared(model(**{**BY_PEOPLE, "ledger": file}), proposal=proposal)
    ledger.withdraw([18])
    assert late.release().publication_ == fitted.publication_  # which was drawn before
