"""People who ask for a smaller ε: how far each can move every sum, what a ledger keeps to, and what is refused."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from runs_of_people import ADDITIVE, configure_people
from test_additive import SCHEMA
from test_cli import refusal, succeeded, write_people
from tutelage import Ledger, PATEClassifier, PATERegressor, SimulationNoise, SystemNoise, Tiers
from tutelage.accounting import data_independent
from tutelage.accounting.filter import Accounting, GaussianFilter, RenyiFilter, limit_of
from tutelage.accounting.tiers import guarantee_of_tier, steps_of
from tutelage.audit import PrivateRows, check_fit
from tutelage.audit.mechanism import lower_bound
from tutelage.ballots import BallotSum, sum_of_tiers
from tutelage.boundary import Boundary
from tutelage.events import (
    TIER_STEPS,
    Composed,
    NoisyArgmaxGaussian,
    NoisySumGaussian,
    Repeated,
    event_from_dict,
    event_of_tier,
    in_tiers,
    tiers_of,
)
from tutelage.exceptions import (
    InvalidBallotError,
    InvalidDataError,
    InvalidParameterError,
    LedgerMismatchError,
    NotPublishableError,
    UnsupportedEventError,
)
from tutelage.mechanisms import NoisySum
from tutelage.methods import NoisyMoments, TeacherVotes
from tutelage.methods.requests import PreparedTiers
from tutelage.people.memory import PeopleInMemory
from tutelage.privacy import ONE_TEACHER, NeighboringRelation, PrivacyUnit, round_up
from tutelage.published import card_of_ledger, up_to_date
from tutelage.publishing.proof import prove
from tutelage.reporting import read_card

ASKED = {"careful": 0.3, "usual": 1.0}
PERSON = PrivacyUnit("person", NeighboringRelation.ADD_REMOVE_OR_CHANGE_ONE_ENTITY)
SUM = NoisySumGaussian(40.0, 9, 4, PERSON)


def rows_of(n: int, seed: int) -> tuple[dict[str, Any], Any, Any]:
    """Return rows, labels and ids of people, of whom a third has two rows."""
    rng = np.random.default_rng(seed)
    ids = np.sort(np.concatenate([np.arange(n), np.arange(0, n, 3)]))
    size = len(ids)
    rows = {
        "age": rng.integers(17, 91, size),
        "work": rng.choice(["private", "public"], size).astype(object),
        "hours": rng.random(size),
    }
    return rows, np.where(rows["age"] + 20 * rng.normal(size=size) > 50, "yes", "no"), ids


def tiers_by_id(ids: Any, epsilons: dict[str, float] = ASKED) -> Tiers:
    """Return tiers in which every second person is careful."""
    return Tiers(np.where(ids % 2 == 0, "careful", "usual"), epsilons)


def prepared(kind: str, n: int = 24, seed: int = 0, **more: Any) -> Any:
    """Return a release of few people by a method of sums."""
    rows, labels, ids = rows_of(n, seed)
    settings: dict[str, Any] = {"epsilon": 1.0, "noise": SimulationNoise(seed), "random_state": 0}
    public = {}
    model: PATEClassifier | PATERegressor
    if kind == "mean":
        model = PATERegressor(**settings, columns=SCHEMA, target_range=(0, 10))
        labels = np.where(labels == "yes", 8.0, 1.0)
    elif kind == "additive":
        model = PATEClassifier(**settings, columns=SCHEMA, classes=["no", "yes"])
    else:
        method = NoisyMoments(n_landmarks=6)
        model = PATEClassifier(**settings, method=method, classes=["no", "yes"])
        known, of_public, _ = rows_of(120, 7)
        public = {"X_public": known, "y_public": of_public if kind == "stacked" else None}
    given = {"entity_ids": ids, "tiers": tiers_by_id(ids)} | public | more
    return model.prepare(rows, labels, insist=True, **given)


KINDS = ("moments", "stacked", "additive", "mean")


def noised(release: Any) -> list[Any]:
    """Return the requests of a release, each with the sum of its ballots."""
    boundary = Boundary(
        release.ledger, release.noise, release.prepare_people(release.people), tiers=release.tiers
    )
    boundary.run(release.method.steps(release.public))
    return boundary.noised


def neighbors(people: Any, rng: np.random.Generator) -> Iterator[tuple[int, bool, PeopleInMemory]]:
    """Yield each person's tier, whether the person was removed, and people of whom this one is another or gone."""
    for person in range(people.n_people):
        others = np.arange(people.n_people) != person
        yield int(people.tiers[person]), True, people.only(others)
        own = people.shards.assignment == person
        for _ in range(2):
            rows = people.rows.copy()
            labels = people.labels.copy()
            strangers = rng.choice(np.flatnonzero(~own), int(own.sum()))
            rows[own] = rows[strangers]
            labels[own] = people.labels.max() + people.labels.min() - labels[own]
            yield int(people.tiers[person]), False, replace(people, rows=rows, labels=labels)


def squared_distance(one: BallotSum, other: BallotSum) -> int:
    return sum(int(change) ** 2 for change in (one.totals - other.totals).ravel().tolist())


@pytest.mark.rest
@pytest.mark.parametrize("kind", KINDS)
def test_no_person_moves_any_sum_further_than_its_tier_allows(kind):
    release = prepared(kind)
    tiers = dict(release.tiers)
    assert tiers["usual"] == TIER_STEPS > 2 * tiers["careful"] > 0
    answers = noised(release)
    assert len(answers) >= 3
    furthest = dict.fromkeys(tiers, 0.0)
    for number, removed, people in neighbors(release.people, np.random.default_rng(1)):
        name, steps = release.tiers[number]
        shift = 0.0
        for answer in answers:
            request = answer.request
            again = release.prepare_people(people).cast(request, np.zeros(1, int))
            moved = squared_distance(again, answer.ballots)
            # In whole numbers: R² is that of a whole ballot, which is TIER_STEPS long in steps.
            times = 1 if removed else 2 if request.form.nonnegative else 4
            assert moved <= times * steps**2 * request.form.norm_squared
            assert again.norm_squared == TIER_STEPS**2 * request.form.norm_squared
            event = request.mechanism.most(again.form, simulated=True)
            shift += moved / event.sigma**2
        # And all requests together, by the event from which the ε of the tier follows.
        assert shift <= data_independent.mu_squared(event_of_tier(release.most, name))
        furthest[name] = max(furthest[name], shift)
    assert min(furthest.values()) > 0
    everybody = data_independent.epsilon(release.most, 1e-5).epsilon
    careful = data_independent.epsilon(event_of_tier(release.most, "careful"), 1e-5).epsilon
    assert 0.27 < careful <= 0.3 < everybody <= 1.0


def test_a_fit_without_factors_is_caught(monkeypatch):
    def unscaled(sums: Any, tiers: Any) -> BallotSum:
        return sum_of_tiers(sums, tuple((name, TIER_STEPS) for name, _ in tiers))

    release = prepared("additive")
    monkeypatch.setattr("tutelage.methods.requests.sum_of_tiers", unscaled)
    people = release.people.only(np.arange(24) != 0)
    count: Any = next(release.method.steps(release.public))
    one, other = (
        release.prepare_people(who).cast(count, np.zeros(1, int))
        for who in (release.people, people)
    )
    assert (
        squared_distance(one, other) > dict(release.tiers)["careful"] ** 2 * count.form.norm_squared
    )
    # The boundary compares tiers, so that nothing is released.
    with pytest.raises(InvalidBallotError, match="do not have the form"):
        noised(release)


@pytest.mark.rest
def test_the_audit_of_a_fit_measures_people_by_the_ballots_of_their_tier(monkeypatch):
    rows, labels, ids = rows_of(40, 5)
    model = PATEClassifier(epsilon=1.0, columns=SCHEMA, classes=["no", "yes"], random_state=0)
    private = PrivateRows(rows, labels, ids, tiers=tiers_by_id(ids))

    def verdict() -> Any:
        return check_fit(model, private, draws=1_000, entities=8)[-1]

    assert verdict().verdict == "pass"

    def unscaled(sums: Any, tiers: Any) -> BallotSum:
        whole = sum_of_tiers(sums, tuple((name, TIER_STEPS) for name, _ in tiers))
        return replace(whole, tiers=tiers)

    monkeypatch.setattr("tutelage.methods.requests.sum_of_tiers", unscaled)
    assert verdict().verdict == "fail"


@pytest.mark.rest
def test_what_shows_of_a_careful_person_stays_below_its_epsilon():
    delta = 0.05
    draws = 20_000
    confidence = 1 - 1e-6
    rows, labels, ids = rows_of(12, 3)
    tiers = tiers_by_id(ids, {"careful": 0.8, "usual": 6.0})
    model = PATEClassifier(
        epsilon=6.0, delta=delta, columns=SCHEMA, classes=["no", "yes"], noise=SimulationNoise(3)
    )
    release: Any = model.prepare(rows, labels, entity_ids=ids, insist=True, tiers=tiers)
    answers = noised(release)

    def shown(canary: bool, tiers: Any) -> np.ndarray:
        """Return draws of all sums with and without the first person, along the line through both."""
        score = np.zeros(draws)
        for answer in answers:
            request = answer.request
            everybody = release.people
            both = [
                PreparedTiers(release.prepare_people(who).parts, tiers).cast(
                    request, np.zeros(1, int)
                )
                for who in (everybody, everybody.only(np.arange(12) != 0))
            ]
            along = (both[0].totals - both[1].totals).ravel()
            places = np.flatnonzero(along)
            # Only the numbers that the person moves tell the two apart.
            totals = np.tile(both[0 if canary else 1].totals.ravel()[places], (draws, 1))
            mechanism = request.mechanism
            ballots = BallotSum(totals, both[0].norm_squared)
            values = mechanism.release(ballots, SystemNoise()).values
            sigma = mechanism.most(ballots.form, simulated=False).sigma
            half = (both[0].totals + both[1].totals).ravel()[places] / 2
            score += (values - half) @ along[places] / sigma**2
        return np.digitize(score, np.linspace(-8, 8, 81))[:, None]

    def bound(tiers: Any) -> float:
        return lower_bound(shown(True, tiers), shown(False, tiers), delta, 1 - confidence)

    claim = data_independent.epsilon(event_of_tier(release.most, "careful"), delta).epsilon
    assert claim <= 0.8
    # A right one is accused once in a million runs; of a fault this size 60 draws in a thousand differ.
    assert bound(release.tiers) <= claim
    assert bound(tuple((name, TIER_STEPS) for name, _ in release.tiers)) > claim


def test_the_student_hears_all_people_and_careful_ones_less():
    rows, labels, ids = rows_of(6_000, 1)
    known, truth, _ = rows_of(400, 9)

    def fit(epsilons: dict[str, float] | None) -> PATEClassifier:
        tiers = None if epsilons is None else tiers_by_id(ids, epsilons)
        model = PATEClassifier(
            epsilon=1.0, columns=SCHEMA, classes=["no", "yes"], noise=SimulationNoise(0)
        )
        return model.fit(rows, labels, entity_ids=ids, tiers=tiers)

    whole, shortened = fit(None), fit(ASKED)
    factor = shortened.tiers_["careful"][1]
    # The noise of the number of people is below 100.
    assert shortened.n_teachers_ == pytest.approx(3_000 * (1 + factor), abs=400)
    assert whole.n_teachers_ == pytest.approx(6_000, abs=400)
    assert whole.tiers_ == {}
    assert shortened.score(known, truth) > whole.score(known, truth) - 0.05
    epsilon, _ = shortened.tiers_["careful"]
    assert 0.29 < epsilon.epsilon <= 0.3
    assert (epsilon.delta, epsilon.unit) == (1e-5, shortened.epsilon_.unit)
    assert shortened.tiers_["usual"] == (shortened.epsilon_, 1.0)
    # A tier whose ε is not smaller changes nothing but the grain of the noise.
    unchanged = fit({"careful": 5.0, "usual": 1.0})
    assert unchanged.n_teachers_ == pytest.approx(6_000, abs=400)


@pytest.mark.parametrize("accounting", list(Accounting))
@pytest.mark.parametrize("asked", [0.05, 0.3, 0.9])
def test_steps_are_the_most_that_keep_to_an_epsilon(accounting, asked):
    limit = limit_of(1.0, 1e-5, accounting)
    ((_, steps),) = steps_of({"a": asked}, limit)
    assert limit.epsilon_of_length(steps / TIER_STEPS) <= asked
    assert limit.epsilon_of_length((steps + 1) / TIER_STEPS) > asked
    # So by the events that fill the limit: one sum, and many.
    for count in (1, 30):
        noise = 3.0
        while (
            limit.cost(Repeated(in_tiers(_sum_of(noise), (("a", steps),)), count)) > limit.capacity
        ):
            noise *= 1.002
        event = Repeated(in_tiers(_sum_of(noise), (("a", steps),)), count)
        of_tier = data_independent.epsilon(event_of_tier(event, "a"), 1e-5).epsilon
        assert 0.8 * asked < of_tier <= asked


def _sum_of(noise: float) -> NoisySumGaussian:
    return NoisySumGaussian(noise * 2**10, 2**20, 4, PERSON)


def test_a_tier_of_everybody_has_the_epsilon_of_everybody():
    for limit in (GaussianFilter(1.0, 1e-5), RenyiFilter.suited_to(1.0, 1e-5)):
        assert steps_of({"a": 1.0, "b": 7.0}, limit) == (("a", TIER_STEPS), ("b", TIER_STEPS))
        everybody = limit.guarantee(PERSON, simulated=False)
        assert guarantee_of_tier(everybody, limit, TIER_STEPS).epsilon <= everybody.epsilon
        assert limit.epsilon_of_length(1.0) == pytest.approx(1.0, rel=1e-4)


def test_an_epsilon_below_one_step_is_refused():
    with pytest.raises(
        InvalidParameterError, match=r"be at least .* because a ballot has 1024 steps"
    ):
        steps_of({"a": 1e-5}, GaussianFilter(1.0, 1e-5))


# Events


@given(st.integers(1, 2**40), st.integers(1, TIER_STEPS), st.booleans())
def test_an_event_in_steps_costs_no_more_and_that_of_a_tier_its_share(norm, steps, nonnegative):
    event = NoisySumGaussian(7.0 * math.sqrt(norm), norm, 3, PERSON, nonnegative=nonnegative)
    stepped = in_tiers(Composed((Repeated(event, 3),)), (("a", steps),))
    assert tiers_of(stepped) == (("a", steps),)
    whole = Repeated(event, 3)
    for limit in (GaussianFilter(1.0, 1e-5), RenyiFilter.suited_to(1.0, 1e-5)):
        assert limit.cost(stepped) <= limit.cost(whole)
    share = (steps / TIER_STEPS) ** 2
    of_tier = data_independent.mu_squared(event_of_tier(stepped, "a"))
    assert of_tier == pytest.approx(share * data_independent.mu_squared(stepped), rel=1e-9)
    (other,) = {part.event for part in event_of_tier(stepped, "another").flatten()}
    assert isinstance(other, NoisySumGaussian)
    assert other.norm_squared == norm * TIER_STEPS**2


def test_events_are_stored_with_their_tiers_and_without_as_before():
    assert "tiers" not in SUM.as_dict()
    stepped = in_tiers(SUM, (("a", 5), ("b", TIER_STEPS)))
    assert event_from_dict(stepped.as_dict()) == stepped
    assert in_tiers(SUM, ()) == SUM


@pytest.mark.parametrize(
    "tiers",
    [
        (("b", 5), ("a", 5)),
        (("a", 5), ("a", 6)),
        (("a", 0),),
        (("a", TIER_STEPS + 1),),
        (("", 5),),
        (("a", 2.0),),
    ],
)
def test_odd_tiers_of_an_event_are_refused(tiers):
    with pytest.raises(InvalidParameterError, match="tiers"):
        in_tiers(SUM, tiers)


def test_only_sums_have_tiers():
    tiers = (("a", 5),)
    vote = NoisyArgmaxGaussian(40.0, 3, PERSON)
    with pytest.raises(UnsupportedEventError, match="nothing but noisy sums"):
        in_tiers(Composed((SUM, vote)), tiers)
    with pytest.raises(UnsupportedEventError, match="the same tiers"):
        tiers_of(Composed((SUM, in_tiers(SUM, tiers))))
    with pytest.raises(InvalidParameterError, match="multiple of 1024"):
        replace(SUM, tiers=tiers)


# Sums


@given(
    st.lists(st.lists(st.integers(-(2**20), 2**20), min_size=2, max_size=2), min_size=2, max_size=2)
)
def test_sums_of_tiers_are_exact(totals):
    sums = [BallotSum(np.array([numbers]), 2**41, ONE_TEACHER) for numbers in totals]
    found = sum_of_tiers(sums, (("a", 3), ("b", TIER_STEPS)))
    expected = [3 * one + TIER_STEPS * other for one, other in zip(*totals, strict=True)]
    assert found.totals.tolist() == [expected]
    assert found.form == sums[0].form.in_tiers((("a", 3), ("b", TIER_STEPS)))


def test_sums_of_another_form_or_beyond_exact_numbers_are_refused():
    sums = [BallotSum(np.array([[1]]), 4), BallotSum(np.array([[1]]), 5)]
    with pytest.raises(InvalidBallotError, match="all of one form"):
        sum_of_tiers(sums, (("a", 3), ("b", 4)))
    large = BallotSum(np.array([[2**53]]), 4)
    with pytest.raises(InvalidBallotError, match="too large"):
        sum_of_tiers([large], (("a", 3),))


# People


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (
            ["careful", "usuall", "usual"],
            "empty tier, or one without an ε. The tiers are: careful, usual",
        ),
        (["careful", None, "usual"], "empty tier"),
        (["careful", "usual", "usual"], "rows of two tiers"),
    ],
)
def test_rows_without_one_tier_are_refused_and_not_shown(cells, message):
    tiers = Tiers(None, ASKED)
    with pytest.raises(InvalidDataError, match=message) as refused:
        tiers.of_people(np.array(cells, object), np.array([0, 0, 1]), 2)
    assert "usuall" not in str(refused.value)
    assert "careful" not in repr(tiers)


def test_names_of_tiers_are_read_as_other_cells_are():
    tiers = Tiers(None, {"2": 0.5, "1": 0.3})
    found = tiers.of_people(np.array([2, 1.0, "1 "], object), np.array([0, 1, 1]), 2)
    assert found.tolist() == [1, 0]


@pytest.mark.parametrize(
    "epsilons", [{}, {"": 1.0}, {1: 1.0}, {"a": 0.0}, {"a": math.nan}, 0.3, None]
)
def test_odd_epsilons_are_refused(epsilons):
    with pytest.raises(InvalidParameterError, match="epsilons"):
        Tiers("consent", epsilons)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"tiers": "consent"}, 'must be Tiers\\(column, {"careful": 0.3}\\)'),
        ({"entity_ids": None}, "must come with `entity_ids`"),
        ({"tiers": Tiers("age", ASKED)}, "not name a column of the schema"),
        ({"tiers": Tiers(["careful"], ASKED)}, "one entry per private row"),
    ],
)
def test_tiers_that_do_not_fit_are_refused(more, message):
    with pytest.raises((InvalidParameterError, InvalidDataError), match=message):
        prepared("additive", **more)


def test_votes_are_refused():
    rows, labels, ids = rows_of(24, 0)
    model = PATEClassifier(epsilon=1.0, classes=["no", "yes"], method=TeacherVotes(n_teachers=3))
    with pytest.raises(InvalidParameterError, match="only where their ballots are summed"):
        model.fit(rows, labels, X_public=rows, entity_ids=ids, tiers=tiers_by_id(ids))


def test_a_tier_without_people_is_like_others():
    _, _, ids = rows_of(24, 0)
    nobody = Tiers(np.full(len(ids), "usual"), ASKED)
    release = prepared("stacked", tiers=nobody)
    fitted = release.release()
    assert set(fitted.tiers_) == {"careful", "usual"}


# Ledgers


def ledger_of(tmp_path: Any, **more: Any) -> PATEClassifier:
    settings = {"epsilon": 0.4, "budget": 1.0, "noise": SimulationNoise(0), "random_state": 0}
    return PATEClassifier(
        ledger=tmp_path / "people.ledger",
        columns=SCHEMA,
        classes=["no", "yes"],
        **(settings | more),
    )


@pytest.mark.filterwarnings("ignore::tutelage.exceptions.BudgetContinuedWarning")
def test_all_releases_of_a_ledger_have_the_same_tiers(tmp_path):
    rows, labels, ids = rows_of(60, 2)
    given = {"entity_ids": ids, "insist": True}
    first = ledger_of(tmp_path).fit(rows, labels, tiers=tiers_by_id(ids), **given)
    again = ledger_of(tmp_path).fit(rows, labels, tiers=tiers_by_id(ids), **given)
    assert again.release_.cost == 0
    assert np.array_equal(first.predict(rows), again.predict(rows))
    # The limit is that of all releases, so that the ε of a tier holds for all of them together.
    assert first.epsilon_.epsilon <= 0.4
    assert first.tiers_["careful"][0].epsilon < 0.13
    for tiers in (None, tiers_by_id(ids, {"careful": 0.2, "usual": 1.0})):
        with pytest.raises(LedgerMismatchError, match="the same `tiers`"):
            ledger_of(tmp_path, question="another").fit(rows, labels, tiers=tiers, **given)
    second = ledger_of(tmp_path, question="another").fit(
        rows, labels, tiers=tiers_by_id(ids), **given
    )
    assert second.epsilon_.epsilon == 1.0
    assert 0.25 < second.tiers_["careful"][0].epsilon <= 0.3
    whole = Ledger.open(tmp_path / "people.ledger").history().event
    assert data_independent.epsilon(event_of_tier(whole, "careful"), 1e-5).epsilon <= 0.3
    Ledger.open(tmp_path / "people.ledger").verify()


@pytest.mark.filterwarnings("ignore::tutelage.exceptions.BudgetContinuedWarning")
def test_a_ledger_whose_budget_was_raised_releases_nothing_more_for_tiers(tmp_path):
    rows, labels, ids = rows_of(60, 2)
    given = {"entity_ids": ids, "insist": True, "tiers": tiers_by_id(ids)}
    ledger_of(tmp_path).fit(rows, labels, **given)
    Ledger.open(tmp_path / "people.ledger").raise_budget(2.0, by="A. Owner", why="test")
    with pytest.raises(LedgerMismatchError, match="the same `tiers`"):
        ledger_of(tmp_path, budget=None, question="another").fit(rows, labels, **given)


def test_a_card_states_the_epsilon_of_each_tier_and_keeps_it(tmp_path):
    rows, labels, ids = rows_of(60, 2)
    given = {"entity_ids": ids, "insist": True, "tiers": tiers_by_id(ids)}
    model = ledger_of(tmp_path, noise=None, epsilon=1.0).fit(rows, labels, **given)
    model.save(tmp_path / "out")
    card = read_card(tmp_path / "out" / "card.json")
    (careful, usual) = card.budget.tiers
    assert (careful.name, usual.name, usual.length) == ("careful", "usual", 1.0)
    assert careful.epsilon == model.tiers_["careful"][0]
    for text in (card.as_markdown(), card.as_html()):
        assert "People of the tier careful asked for a smaller ε" in text
        assert (
            f"({round_up(careful.epsilon.epsilon)}, 1e-05)-differential privacy, of the same"
            in text
        )
        assert "tier usual asked" not in text
        assert "the ε of everybody: ballots of the tier are not shortened" in text
    history = Ledger.open(tmp_path / "people.ledger").history()
    for later in (False, True):
        kept = up_to_date(card, history, later=later)
        assert [tier.name for tier in kept.budget.tiers] == ["careful", "usual"]
        assert kept.budget.tiers[0].epsilon.epsilon <= 0.3
    of_ledger = card_of_ledger(history).budget.tiers
    assert [tier.length for tier in of_ledger] == [careful.length, 1.0]
    assert careful.epsilon.epsilon <= of_ledger[0].epsilon.epsilon <= 0.3
    # Smaller than proved, by the event and, for all of the ledger, by its limit.
    for lower in (0.001, careful.epsilon.epsilon * 0.99):
        forged = structs.replace(careful, epsilon=replace(careful.epsilon, epsilon=lower))
        budget = structs.replace(card.budget, tiers=(forged, usual))
        with pytest.raises(InvalidDataError, match="ε of tier 'careful'"):
            prove(structs.replace(card, budget=budget), "card.json")
    for tiers in ((careful,), (structs.replace(careful, length=0.1), usual)):
        with pytest.raises(InvalidDataError, match="lengths of tiers"):
            prove(
                structs.replace(card, budget=structs.replace(card.budget, tiers=tiers)), "card.json"
            )
    prove(card, "card.json", history)
    larger = replace(careful.epsilon, epsilon=2.0)
    wrong = structs.replace(card.budget, tiers=(structs.replace(careful, epsilon=larger),))
    with pytest.raises(NotPublishableError, match="none above the ε of everybody"):
        structs.replace(card, budget=wrong)


@pytest.mark.usefixtures("repeatable")
def test_a_configuration_names_the_tier_and_its_epsilon(tmp_path, called):
    write_people(tmp_path, private=900)
    table = pd.read_csv(tmp_path / "private.csv")
    table["consent"] = np.where(table["patient"].str[-1] < "5", "careful", "usual")
    table.to_csv(tmp_path / "private.csv", index=False)
    configure_people(tmp_path, ADDITIVE, private='entity = "patient"\ntier = "consent"')
    path = tmp_path / "config.toml"
    without = path.read_text()
    path.write_text(f"{without}\n[privacy.tiers]\ncareful = 0.2\nusual = 3\n")
    done = succeeded(called("run", "config.toml", cwd=tmp_path))
    assert "ε of people of the tier careful" in done.stdout
    assert "weighted by tier" in done.stdout
    card = read_card(tmp_path / "out" / "card.json")
    assert [tier.name for tier in card.budget.tiers] == ["careful", "usual"]
    assert 0.1 < card.budget.tiers[0].epsilon.epsilon <= 0.2
    assert "consent" not in card.release.features
    assert "people count by the length of the ballots of their tier" in card.as_markdown()
    path.write_text(without)
    assert "[privacy.tiers]" in refusal(called("run", "config.toml", cwd=tmp_path), 2)


@pytest.mark.filterwarnings("ignore::tutelage.exceptions.BudgetContinuedWarning")
def test_a_release_that_was_interrupted_is_taken_over_with_its_tiers(tmp_path, monkeypatch):
    rows, labels, ids = rows_of(60, 2)
    given = {"entity_ids": ids, "insist": True, "tiers": tiers_by_id(ids)}
    release = NoisySum.release

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(NoisySum, "release", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ledger_of(tmp_path).fit(rows, labels, **given)
    monkeypatch.setattr(NoisySum, "release", release)
    left = Ledger.open(tmp_path / "people.ledger").state()
    assert left.unsettled == 1
    model = ledger_of(tmp_path).fit(rows, labels, **given)
    assert model.ledger_.unsettled == 0
    whole = Ledger.open(tmp_path / "people.ledger").history()
    # The number of people, three sums of the student and the test report: the interrupted one is taken over.
    assert len(whole.charges) == 5
    assert data_independent.epsilon(event_of_tier(whole.event, "careful"), 1e-5).epsilon < 0.13


@pytest.mark.filterwarnings("ignore::tutelage.exceptions.BudgetContinuedWarning")
def test_later_releases_with_names_learn_from_earlier_ones_of_the_same_tiers(tmp_path):
    rows, labels, ids = rows_of(90, 2)

    def fit(name: str, most: int) -> PATEClassifier:
        some = ids < most
        model = ledger_of(tmp_path, epsilon=None, releases=3)
        return model.fit(
            {column: cells[some] for column, cells in rows.items()},
            labels[some],
            entity_ids=ids[some],
            tiers=tiers_by_id(ids[some]),
            release=name,
            insist=True,
        )

    first, second = fit("2026-01", 60), fit("2026-02", 90)
    assert (second.earlier_, second.n_earlier_) == (("2026-01",), 4)
    for model in (first, second):
        assert 0.1 < model.tiers_["careful"][0].epsilon <= 0.3
    assert first.tiers_["careful"][1] == second.tiers_["careful"][1]
