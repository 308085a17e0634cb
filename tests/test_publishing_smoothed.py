"""A noised cost as a release: charged first, drawn once, remembered by public values, and true in every world."""

import itertools

import numpy as np
import pytest

from exact import discrete_laplace_masses, label_probabilities, neighbors
from tutelage.accounting import Accountant, data_independent
from tutelage.events import Composed, Event, NoisyArgmaxLaplace, Repeated
from tutelage.exceptions import (
    BudgetExceededError,
    InvalidDataError,
    InvalidParameterError,
    LedgerMismatchError,
    UnsupportedEventError,
)
from tutelage.labeling import LabelingSession
from tutelage.ledger import Ledger
from tutelage.mechanisms import ConfidentGNMax, LNMax
from tutelage.noise import SimulationNoise, SystemNoise
from tutelage.privacy import ONE_TEACHER, NeighboringRelation, PrivacyUnit
from tutelage.publishing import record
from tutelage.publishing.publication import _noised, publish_smoothed
from tutelage.publishing.smooth_plan import CLAIMED, SmoothPlan, plan_smooth_release
from tutelage.publishing.smooth_sensitivity import SmoothCosts
from tutelage.votes import VoteHistogram

DELTA, TEACHERS = 1e-5, 62
AGREEING = np.repeat([[57, 4, 1], [40, 20, 2]], 100, axis=0)
ROWS = np.arange(200.0)
ONE = NoisyArgmaxLaplace(5.0, 3, ONE_TEACHER)


def released(counts=AGREEING, event=ONE, teachers=TEACHERS) -> Accountant:
    accountant = Accountant()
    accountant.add(Repeated(event, len(counts)), VoteHistogram(np.asarray(counts), teachers))
    return accountant


@pytest.fixture(scope="module")
def plan() -> SmoothPlan:
    return plan_smooth_release(released(), DELTA)


def unpaid(epsilon: float = 60.0, delta: float = DELTA) -> Ledger:
    return Ledger.in_memory(epsilon=epsilon, delta=delta, unit=ONE_TEACHER)


def ledger(
    plan: SmoothPlan, epsilon: float = 60.0, queries: int = 200, delta: float = DELTA, event: Event = ONE
) -> Ledger:
    """Return a ledger that holds a plan and paid for so many answers."""
    made = unpaid(epsilon, delta)
    record(plan, made)
    reservation = made.reserve(event, queries)
    answers = {number.to_bytes(32, "big"): (0,) for number in range(queries)}
    made.settle(reservation, answers, Repeated(event, queries))
    return made


def charged(ledger: Ledger) -> int:
    return sum(entry["kind"] == "reserved" and entry["event"]["event"] == "NoisedCost" for entry in ledger.export())


def test_votes_as_planned_publish_less_than_what_holds_for_any_votes(plan):
    paid = ledger(plan)
    found = publish_smoothed(released(), paid, plan, ROWS, noise=SimulationNoise(0))
    alone = released().data_independent(DELTA).epsilon
    assert found.epsilon.epsilon == plan.epsilon(found.released) < alone < found.data_independent.epsilon
    assert found.epsilon.delta == DELTA
    assert found.epsilon.order == plan.order
    assert found.epsilon.output_dependent
    assert not found.data_independent.output_dependent
    assert found.epsilon.simulated
    whole = Composed((Repeated(ONE, 200), plan.event(simulated=True)))
    assert found.data_independent.epsilon == data_independent.epsilon(whole, DELTA).epsilon
    assert charged(paid) == 1
    paid.verify()


def test_the_same_again_is_the_same_at_no_cost_and_another_pays_for_both(plan):
    paid, noise = ledger(plan, delta=3e-5), SimulationNoise(1)
    first = publish_smoothed(released(), paid, plan, ROWS, noise=noise)
    spent = paid.state().spent
    assert publish_smoothed(released(), paid, plan, ROWS, noise=noise) == first
    assert paid.state().spent == spent
    second = publish_smoothed(released(), paid, plan, ROWS + 1, noise=noise)  # other rows: another publication
    assert charged(paid) == 2
    before = data_independent.rdp(plan.event(), np.array([plan.order])).values[0]
    assert second.epsilon.epsilon == pytest.approx(plan.epsilon(second.released, before))


def test_a_remembered_release_does_not_cover_labels_that_were_released_since(plan):
    paid, noise = ledger(plan), SimulationNoise(1)
    publish_smoothed(released(), paid, plan, ROWS, noise=noise)
    paid.settle(paid.reserve(ONE, 1), {b"later" * 6 + b"on": (0,)}, ONE)
    with pytest.raises(LedgerMismatchError, match="must cover all labels of the ledger, and some are missing"):
        publish_smoothed(released(), paid, plan, ROWS, noise=noise)


def test_whether_it_is_remembered_does_not_depend_on_the_votes(plan):
    """Rows or questions with equal votes are several releases; the same ones are one, whatever the votes became."""
    paid, noise = ledger(plan, delta=3e-5), SimulationNoise(1)
    first = publish_smoothed(released(), paid, plan, ROWS, noise=noise)
    publish_smoothed(released(), paid, plan, ROWS + 1, noise=noise)
    publish_smoothed(released(), paid, plan, ROWS, question="other", noise=noise)
    assert charged(paid) == 3
    assert publish_smoothed(released(AGREEING[:, ::-1]), paid, plan, ROWS, noise=noise).released == first.released
    assert charged(paid) == 3


def test_votes_that_disagree_fall_back_upward(plan):
    torn = np.repeat([[22, 20, 20]], 200, axis=0)
    found = publish_smoothed(released(torn), ledger(plan), plan, ROWS, noise=SimulationNoise(0))
    assert found.epsilon.epsilon > found.data_independent.epsilon
    assert "came out larger" in found.epsilon.method
    assert not found.epsilon.output_dependent


def test_what_a_session_released_is_published_with_real_noise():
    votes = VoteHistogram(AGREEING, TEACHERS)
    proxy = released()
    paid = unpaid()
    plan = plan_smooth_release(proxy, DELTA, ledger_order=paid.state().order)
    record(plan, paid)
    session = LabelingSession(votes, LNMax(5.0), paid, noise=SystemNoise())
    session.ask(ROWS[:, None])
    found = publish_smoothed(session.accountant(), paid, plan, ROWS[:, None])
    assert not found.epsilon.simulated
    assert (
        found.epsilon.epsilon
        <= data_independent.epsilon(Composed((Repeated(ONE, 200), plan.event())), (1 - CLAIMED) * DELTA).epsilon
    )


def test_a_confident_session_is_published_at_the_answers_it_gave():
    counts = np.repeat([[57, 4, 1], [30, 22, 10]], 150, axis=0)
    votes, rows = VoteHistogram(counts, TEACHERS), np.arange(300.0)[:, None]
    mechanism = ConfidentGNMax(threshold=45, sigma_threshold=20, sigma_vote=6)
    proxy = LabelingSession(votes, mechanism, unpaid(200.0), noise=SimulationNoise(2))
    proxy.ask(rows)
    plan = plan_smooth_release(proxy.accountant(), DELTA)  # its votes stand for public ones here
    paid = unpaid(200.0)
    record(plan, paid)
    session = LabelingSession(votes, mechanism, paid, noise=SimulationNoise(2))
    session.ask(rows)
    whole = session.accountant()
    found = publish_smoothed(whole, paid, plan, rows, noise=SimulationNoise(3))
    assert found.epsilon.epsilon < whole.data_independent(DELTA).epsilon
    paid.verify()


def test_the_drawn_value_has_the_planned_scale(plan):
    """Of 1,000 draws the standard deviation varies by 2.2 %; 12 % is five times that."""
    costs = SmoothCosts(released(), plan.order)
    deviation = plan.deviation(costs.smooth_sensitivity(plan.smoothness)) / plan.grid
    center = (costs.cost() + plan.margin.of(deviation * plan.grid)) / plan.grid
    noise = SimulationNoise(5)
    drawn = np.array([_noised(costs, plan, noise) for _ in range(1000)])
    assert abs(drawn.mean() - center) < 5 * deviation / 1000**0.5 + 1
    for wrong, fits in ((1.0, True), (0.7, False), (1.3, False)):
        assert (abs(drawn.std() / (wrong * deviation) - 1) < 0.12) == fits


SMALL, MASSES = NoisyArgmaxLaplace(1.5, 2, ONE_TEACHER), discrete_laplace_masses(1.5, 90)
STEPS = np.arange(-40 * 1024, 120 * 1024, 256)  # of what is released every 256th value: laws are smooth over 1,024


def law_of_world(plan: SmoothPlan, counts, drawn: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the laws of two labels and, as logarithms, of the noised cost, where ten teachers voted on two queries."""
    costs = SmoothCosts(released(np.array(counts), SMALL, 10), plan.order)
    deviation = plan.deviation(costs.smooth_sensitivity(plan.smoothness))
    center = np.ceil((costs.cost() + plan.margin.of(deviation)) / plan.grid)
    log_noise = -(((STEPS - center) / (drawn * deviation / plan.grid)) ** 2) / 2
    one, other = (label_probabilities(np.array(row), MASSES) for row in counts)
    return np.outer(one, other).ravel(), log_noise - np.logaddexp.reduce(log_noise)


def worst_delta(plan: SmoothPlan, pairs, drawn: float = 1.0) -> float:
    """Return the largest E_D[(1 − e^{ε(o)} dP_{D′}/dP_D)₊] over neighbors, ε(o) being what is claimed of outcome o."""
    claim = np.array([plan.epsilon(int(value)) for value in STEPS])
    laws = {counts: law_of_world(plan, counts, drawn) for counts in set(itertools.chain.from_iterable(pairs))}
    worst = 0.0
    for here, there in pairs:
        (labels, noise), (other_labels, other_noise) = laws[here], laws[there]
        loss = np.log(labels / other_labels)[:, None] + noise - other_noise
        worst = max(worst, float(labels @ -np.expm1(np.minimum(claim - loss, 0)) @ np.exp(noise)))
    return worst


def test_the_claim_holds_in_all_neighboring_worlds_and_too_little_noise_breaks_it():
    plan = SmoothPlan(delta=0.02, order=3.0, smoothness=0.08, noise=1.5, least=0.05, most=1.0, unit=ONE_TEACHER)
    pairs = []
    for here in itertools.product([(10, 0), (9, 1), (8, 2), (7, 3), (5, 5), (3, 6)], repeat=2):
        near = ([row, *(tuple(other.tolist()) for other in neighbors(np.array(row), abstain=True))] for row in here)
        around = list(itertools.product(*near))
        pairs += [(here, there) for there in around] + [(there, here) for there in around]
    assert worst_delta(plan, pairs) <= CLAIMED * plan.delta
    assert worst_delta(plan, pairs, drawn=0.2) > plan.delta


def test_what_does_not_fit_is_refused_before_anything_is_spent(plan):
    paid = ledger(plan)
    longer = np.repeat(AGREEING, 30, axis=0)
    patients = PrivacyUnit("patient", NeighboringRelation.ADD_REMOVE_OR_CHANGE_ONE_ENTITY)
    of_patients = Accountant()
    event = NoisyArgmaxLaplace(5.0, 3, patients)
    of_patients.add(Repeated(event, 200), VoteHistogram(AGREEING, TEACHERS, patients))
    with pytest.raises(InvalidParameterError, match="fewer"):
        publish_smoothed(released(longer), paid, plan, ROWS, noise=SimulationNoise(0))
    with pytest.raises(LedgerMismatchError, match="units"):
        publish_smoothed(of_patients, paid, plan, ROWS, noise=SimulationNoise(0))
    with pytest.raises(InvalidDataError, match="queries"):
        publish_smoothed(released(), paid, plan, [], noise=SimulationNoise(0))
    with pytest.raises(InvalidParameterError, match="noise"):
        publish_smoothed(released(), paid, plan, ROWS, noise=np.random.default_rng(0))  # type: ignore[arg-type]
    assert charged(paid) == 0
    with pytest.raises(LedgerMismatchError, match="does not hold this proposal"):
        publish_smoothed(released(), unpaid(), plan, ROWS, noise=SimulationNoise(0))
    recorded = unpaid()
    record(plan, recorded)
    with pytest.raises(LedgerMismatchError, match="this one covers others too"):
        publish_smoothed(released(), recorded, plan, ROWS, noise=SimulationNoise(0))
    small = ledger(plan, 21.5)
    spent = small.state().spent
    with pytest.raises((BudgetExceededError, UnsupportedEventError)):
        publish_smoothed(released(), small, plan, ROWS, noise=SimulationNoise(0))
    assert small.state().spent == spent


def test_no_message_or_method_holds_a_private_value(plan):
    found = publish_smoothed(released(), ledger(plan), plan, ROWS, noise=SimulationNoise(0))
    cost = SmoothCosts(released(), plan.order).cost()
    assert f"{cost:.4f}"[:5] not in repr(found)
