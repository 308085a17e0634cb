"""A test of a proposal as a release: charged first, drawn once, remembered, and honest about those before it."""

import os
import signal
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ledgers import reserve, settle
from processes import at_once, ended, forked
from tutelage.accounting import Accountant, data_independent
from tutelage.ballots import VoteHistogram
from tutelage.events import CERTAIN, Composed, NoisyArgmaxLaplace, Repeated
from tutelage.exceptions import (
    BudgetExceededError,
    InvalidDataError,
    InvalidParameterError,
    LateProposalError,
    LedgerMismatchError,
    PublicationsExhaustedError,
)
from tutelage.labeling import LabelingSession
from tutelage.ledger import Ledger
from tutelage.mechanisms import LNMax
from tutelage.noise import SimulationNoise, SystemNoise
from tutelage.privacy import ONE_TEACHER, NeighboringRelation, PrivacyUnit
from tutelage.publishing import Proposal, propose, publish_epsilon, reach_of, record
from tutelage.publishing.publication import _recalled_publication

DELTA, TEACHERS = 1e-5, 62
AGREEING = np.repeat([[57, 4, 1], [61, 1, 0]], 20, axis=0)
TORN = np.repeat([[22, 20, 20], [21, 21, 20]], 20, axis=0)
ROWS = np.arange(40.0)[:, None]
ONE = NoisyArgmaxLaplace(5.0, 3, ONE_TEACHER)


def released(counts=AGREEING) -> Accountant:
    accountant = Accountant()
    accountant.add(Repeated(ONE, len(counts)), VoteHistogram(counts, TEACHERS))
    return accountant


@pytest.fixture(scope="module")
def proposal():
    return propose(released(), DELTA)


def unpaid(epsilon: float = 60.0, delta: float = DELTA, unit: PrivacyUnit = ONE_TEACHER) -> Ledger:
    return Ledger.in_memory(epsilon=epsilon, delta=delta, unit=unit)


def ledger(*roads: Proposal, queries: int = 40, delta: float = DELTA) -> Ledger:
    """Return a ledger that holds these proposals and paid for so many answers."""
    return paying(unpaid(delta=delta), *roads, queries=queries)


def recording(made: Ledger, *roads: Proposal) -> Ledger:
    for road in roads:
        record(road, made)
    return made


def paying(made: Ledger, *roads: Proposal, queries: int = 40) -> Ledger:
    recording(made, *roads)
    reservation = reserve(made, ONE, queries)
    answers = {bytes([number]) * 32: (0,) for number in range(queries)}
    settle(made, reservation, answers, Repeated(ONE, queries))
    return made


def charged_tests(ledger: Ledger) -> int:
    reserved = [entry["event"]["event"] for entry in ledger.export() if entry["kind"] == "reserved"]
    return reserved.count("PublicationTest")


def test_votes_as_proposed_publish_what_was_proposed(proposal):
    paid = ledger(proposal)
    publication = publish_epsilon(released(), paid, proposal, ROWS, noise=SimulationNoise(0))
    assert publication.passed
    assert publication.epsilon.epsilon == proposal.epsilon
    assert publication.epsilon.output_dependent
    assert not publication.data_independent.output_dependent
    assert publication.epsilon.delta == DELTA
    assert publication.epsilon.simulated
    whole = Composed((Repeated(ONE, 40), proposal.event(simulated=True)))
    assert publication.data_independent.epsilon == data_independent.epsilon(whole, DELTA).epsilon
    assert charged_tests(paid) == 1


def test_votes_that_disagree_are_refused_and_fall_back_upward_and_nothing_printed_tells_the_shortfall(
    proposal, capsys
):
    publication = publish_epsilon(
        released(TORN), ledger(proposal), proposal, ROWS, noise=SimulationNoise(0)
    )
    assert not publication.passed
    assert publication.epsilon.epsilon > publication.data_independent.epsilon > proposal.epsilon
    assert "refused" in publication.epsilon.method
    assert not publication.epsilon.output_dependent
    shown = repr(publication) + capsys.readouterr().out
    for public in (publication.epsilon, publication.data_independent):
        shown = shown.replace(f"{public.epsilon}", "").replace(f"{public.order}", "")
    shortfall = proposal.shortfall(
        reach_of(released(TORN), proposal.order, len(proposal.caps)).reveal()
    )
    assert shortfall > 9
    assert f"{shortfall}" not in shown


def test_the_chance_to_pass_is_the_one_of_the_shortfall(proposal, monkeypatch):
    asked: list[int] = []
    monkeypatch.setattr(SimulationNoise, "happens", lambda self, chance: bool(asked.append(chance)))
    shortfalls = []
    for lost in (0, 8, 14, 20):
        counts = AGREEING + np.array([-lost, lost, 0])
        whole = released(counts)
        shortfalls.append(
            proposal.shortfall(reach_of(whole, proposal.order, len(proposal.caps)).reveal())
        )
        publish_epsilon(whole, ledger(proposal), proposal, ROWS, noise=SimulationNoise(0))
    assert (shortfalls[0], len(set(shortfalls))) == (0, 4)
    assert asked == [
        proposal.chances[min(shortfall, len(proposal.caps))] for shortfall in shortfalls
    ]


def test_the_systems_chances_are_not_a_seeds(proposal):
    """Binomial of 2,000 fair draws: outside 850..1150 with probability below 1e-10."""
    assert all(SystemNoise().happens(CERTAIN) for _ in range(100))
    assert not any(SystemNoise().happens(0) for _ in range(100))
    assert 850 < sum(SystemNoise().happens(CERTAIN // 2) for _ in range(2000)) < 1150


def test_the_same_test_again_is_the_same_at_no_cost_and_recalled_without_its_votes(proposal):
    paid = ledger(proposal)
    first = publish_epsilon(released(), paid, proposal, ROWS, noise=SimulationNoise(0))
    spent = paid.state().spent
    for seed in range(5):
        assert (
            publish_epsilon(released(), paid, proposal, ROWS, noise=SimulationNoise(seed)) == first
        )
    assert _recalled_publication(released(TORN), paid, proposal, ROWS) == first
    assert _recalled_publication(released(), paid, proposal, ROWS + 1) is None
    assert paid.state().spent == spent
    assert charged_tests(paid) == 1


def test_what_is_remembered_does_not_depend_on_the_votes(proposal):
    """Were it so, what is spent, which is public, would say whether two sets of votes are equal."""
    paid = ledger(proposal, delta=1e-4)
    publish_epsilon(released(), paid, proposal, ROWS, noise=SimulationNoise(0))
    publish_epsilon(released(), paid, proposal, ROWS + 100, noise=SimulationNoise(0))
    publish_epsilon(released(), paid, proposal, ROWS, question="another", noise=SimulationNoise(0))
    assert charged_tests(paid) == 3
    publish_epsilon(released(TORN), paid, proposal, ROWS, noise=SimulationNoise(0))
    assert charged_tests(paid) == 3


def test_a_remembered_publication_does_not_cover_labels_that_were_released_since(proposal):
    paid = ledger(proposal, delta=2e-5)
    first = publish_epsilon(released(), paid, proposal, ROWS, noise=SimulationNoise(0))
    reserve(paid, ONE, 3)  # interrupted: no label of it is out
    assert publish_epsilon(released(), paid, proposal, ROWS, noise=SimulationNoise(0)) == first
    paying(paid, queries=120)
    spent = paid.state().spent
    for again in (publish_epsilon, _recalled_publication):
        with pytest.raises(
            LedgerMismatchError, match="must cover all labels of the ledger, and some are missing"
        ):
            again(released(), paid, proposal, ROWS)
    assert paid.state().spent == spent
    everything = released(np.repeat(AGREEING, 4, axis=0))
    rows = np.arange(160.0)[:, None]
    # Recorded before all labels.
    whole = publish_epsilon(everything, paid, proposal, rows, noise=SimulationNoise(0))
    test = data_independent.rdp(proposal.event(), np.array([proposal.order])).values[0]
    assert whole.data_independent.epsilon > first.data_independent.epsilon
    assert not whole.passed or whole.epsilon.epsilon == pytest.approx(
        proposal.epsilon + test, rel=1e-12
    )


def test_a_proposal_that_the_ledger_does_not_hold_is_not_tested(proposal):
    paid = ledger(proposal, delta=2e-5)
    for field, value in (
        ("order", proposal.order + 1),
        ("caps", tuple(cap * 0.9 for cap in proposal.caps)),
    ):
        other = replace(proposal, **{field: value})
        assert other.event() == proposal.event()  # what is charged does not tell them apart
        with pytest.raises(LedgerMismatchError, match="does not hold this proposal"):
            publish_epsilon(released(), paid, other, ROWS, noise=SimulationNoise(0))
        with pytest.raises(LateProposalError):
            record(other, paid)
    record(proposal, paid)  # again: it is there
    assert (len(paid.history().proposals), charged_tests(paid)) == (1, 0)


PATIENT = PrivacyUnit("patient", NeighboringRelation.ADD_REMOVE_OR_CHANGE_ONE_ENTITY)


def test_a_proposal_is_recorded_and_tested_where_it_can_be_paid_for(proposal):
    with pytest.raises(LedgerMismatchError, match="Propose again for the unit"):
        record(proposal, unpaid(unit=PATIENT))
    with pytest.raises(PublicationsExhaustedError):
        record(proposal, unpaid(delta=DELTA / 2))
    of_patients = Accountant()
    of_patients.add(
        Repeated(NoisyArgmaxLaplace(5.0, 3, PATIENT), 40),
        VoteHistogram(AGREEING, TEACHERS, PATIENT),
    )
    with pytest.raises(LedgerMismatchError, match="unit"):
        publish_epsilon(of_patients, ledger(proposal), proposal, ROWS)


@pytest.mark.rest
def test_a_second_proposal_pays_for_the_first(proposal):
    bolder = propose(released(), DELTA, margin=3.0)
    paid = ledger(proposal, bolder, delta=2e-5)
    publish_epsilon(released(), paid, proposal, ROWS, noise=SimulationNoise(0))
    second = publish_epsilon(released(), paid, bolder, ROWS, noise=SimulationNoise(0))
    first_test = data_independent.rdp(proposal.event(), np.array([bolder.order])).values[0]
    assert second.passed
    assert second.epsilon.epsilon == pytest.approx(bolder.epsilon + first_test, rel=1e-12)
    assert second.epsilon.delta == 2e-5
    assert charged_tests(paid) == 2


def test_labels_choose_among_proposals_of_several_orders_only_within_the_delta_of_all(proposal):
    """One supermartingale serves one order: which is tested may follow from labels, so each may miss by its δ."""
    others = [replace(proposal, order=proposal.order + more) for more in (1, 2)]
    full = recording(unpaid(), proposal)
    with pytest.raises(PublicationsExhaustedError, match="of different orders must"):
        record(others[0], full)
    record(proposal, full)
    # Of the same order.
    record(replace(proposal, caps=tuple(cap * 2 for cap in proposal.caps)), full)
    several = ledger(proposal, others[0], delta=2e-5)
    publish_epsilon(released(), several, proposal, ROWS, noise=SimulationNoise(0))
    with pytest.raises(PublicationsExhaustedError, match="Each can be tested once"):
        publish_epsilon(released(), several, proposal, ROWS[::-1], noise=SimulationNoise(0))
    raced = unpaid()
    for road in (proposal, *others):  # as two processes may that record at the same time
        raced.register.propose(road.as_dict())
    paying(raced)
    with pytest.raises(PublicationsExhaustedError, match="of different orders must"):
        publish_epsilon(released(), raced, others[1], ROWS, noise=SimulationNoise(0))
    assert publish_epsilon(released(), raced, proposal, ROWS, noise=SimulationNoise(0)).passed


def test_an_epsilon_is_of_all_that_the_ledger_paid_for(proposal):
    rows, votes = np.arange(40.0)[:, None], VoteHistogram(AGREEING, TEACHERS)
    paid = unpaid()
    record(proposal, paid)
    LabelingSession(votes, LNMax(5.0), paid, X_voted=rows).ask(rows[:30])
    later = LabelingSession(votes, LNMax(5.0), paid, X_voted=rows)
    later.ask(rows)
    with pytest.raises(LedgerMismatchError, match="released"):
        publish_epsilon(later.accountant(), paid, proposal, rows)
    assert charged_tests(paid) == 0
    assert (
        publish_epsilon(later.released(rows), paid, proposal, rows).epsilon.epsilon
        >= proposal.epsilon
    )
    with pytest.raises(LedgerMismatchError, match="this one covers others too"):  # nothing was paid
        publish_epsilon(released(), recording(unpaid(), proposal), proposal, ROWS)
    other = Accountant()
    other.add(Repeated(NoisyArgmaxLaplace(50.0, 3, ONE_TEACHER), 40), votes)
    # Paid for, with less noise.
    with pytest.raises(LedgerMismatchError, match="must cover all labels of the ledger"):
        publish_epsilon(other, ledger(proposal), proposal, ROWS)


def test_what_a_session_remembers_needs_an_answer_to_every_row():
    session = LabelingSession(VoteHistogram(AGREEING, TEACHERS), LNMax(5.0), unpaid(), X_voted=ROWS)
    session.ask(ROWS[:3])
    with pytest.raises(InvalidDataError, match="has no label for"):
        session.released(ROWS[:4])
    assert [
        votes.n_queries for _, votes, _ in session.released(ROWS[[0, 1, 1, 2]]).parts_with_votes()
    ] == [3]


def test_without_room_nothing_is_drawn(proposal):
    paid = paying(
        Ledger.in_memory(epsilon=7.3, delta=DELTA, unit=ONE_TEACHER, suited_to=Repeated(ONE, 40)),
        proposal,
    )
    spent = paid.state().spent
    with pytest.raises(BudgetExceededError):
        publish_epsilon(released(), paid, proposal, ROWS)
    assert paid.state().spent == spent


def test_a_claim_never_passes_the_one_for_any_votes(proposal):
    """Where a test costs more than it can save, what is published is what holds for any votes."""
    few = Accountant()
    few.add(Repeated(ONE, 1), VoteHistogram(AGREEING[:1], TEACHERS))
    publication = publish_epsilon(
        few, ledger(proposal, queries=1), proposal, ROWS[:1], noise=SimulationNoise(0)
    )
    assert publication.passed
    assert publication.epsilon.epsilon <= proposal.epsilon


def test_noise_of_ones_own_is_refused(proposal):
    quiet: Any = SimpleNamespace(simulated=False, happens=lambda chance: True)
    with pytest.raises(InvalidParameterError, match="noise"):
        publish_epsilon(released(), ledger(proposal), proposal, ROWS, noise=quiet)


def test_a_test_whose_draw_fails_stays_spent_and_is_never_drawn_again_for_free(
    proposal, monkeypatch
):
    paid = ledger(proposal, delta=2 * DELTA)
    with monkeypatch.context() as patch:
        patch.setattr(SystemNoise, "happens", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            publish_epsilon(released(), paid, proposal, ROWS)
    assert (charged_tests(paid), paid.state().unsettled) == (1, 0)
    assert _recalled_publication(released(), paid, proposal, ROWS) is None
    publish_epsilon(released(), paid, proposal, ROWS)
    assert charged_tests(paid) == 2


def test_killed_between_charge_and_answer_it_stays_charged_and_is_drawn_anew(
    tmp_path, proposal, monkeypatch
):
    """A real kill −9 right after the reservation: the next try is the same test, at no further cost."""
    path = tmp_path / "ledger.db"
    paying(Ledger.create(path, epsilon=60.0, delta=2 * DELTA, unit=ONE_TEACHER), proposal)

    def dies_at_the_draw() -> None:
        monkeypatch.setattr(
            SystemNoise, "happens", lambda self, chance: os.kill(os.getpid(), signal.SIGKILL)
        )
        publish_epsilon(released(), Ledger.open(path), proposal, ROWS)

    assert ended(forked(dies_at_the_draw)) == -signal.SIGKILL
    paid = Ledger.open(path)
    assert charged_tests(paid) == 1
    assert paid.state().spent > 0
    publication = publish_epsilon(released(), paid, proposal, ROWS)
    assert charged_tests(paid) == 1
    if publication.passed:
        assert publication.epsilon.epsilon == pytest.approx(proposal.epsilon, rel=1e-12)
    paid.verify()


def test_processes_that_race_with_proposals_of_their_own_share_one_delta(proposal, tmp_path):
    """Each proposal takes the ledger's whole δ: of three that are tested at once, exactly one is."""
    path = tmp_path / "ledger.db"
    proposals = [
        replace(proposal, caps=tuple(cap * (1 + number / 10) for cap in proposal.caps))
        for number in range(3)
    ]
    paying(Ledger.create(path, epsilon=200.0, delta=DELTA, unit=ONE_TEACHER), *proposals)
    SystemNoise().happens(0)  # load the noise library once, before the forks

    def take_part(one: Proposal) -> None:
        try:
            publish_epsilon(released(), Ledger.open(path), one, ROWS)
        except PublicationsExhaustedError:
            os._exit(3)

    assert sorted(at_once(*(partial(take_part, one) for one in proposals))) == [0, 3, 3]
    Ledger.open(path).verify()
