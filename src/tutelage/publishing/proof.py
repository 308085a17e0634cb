"""Claims of card and claim files, proved again: a number from an editable file is never copied to a new card.

A stated ε below the proved one is refused. One above it stays: it is true, and may come from a larger limit on the
queries or an earlier version's theorem.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import inf, isclose
from typing import NamedTuple

from tutelage.accounting import data_independent
from tutelage.events import (
    PUBLICATIONS,
    Check,
    Composed,
    Event,
    NoisySumGaussian,
    PublicationTest,
    Repeated,
    counted,
    event_of,
)
from tutelage.exceptions import InvalidDataError, InvalidParameterError, LedgerMismatchError
from tutelage.ledger import History
from tutelage.ledger.filter import filter_of
from tutelage.privacy import PublicEpsilon, round_up
from tutelage.publishing.proposal import Proposal
from tutelage.publishing.publication import proposed_epsilon
from tutelage.publishing.recording import TESTED, all_but, check_complete, check_covered, proposal_of, record_of
from tutelage.reporting import PrivacyCard

SLACK = 1e-6  # relative: costs come out the same to more digits on every machine


def proved_card(card: PrivacyCard, where: str, history: History | None = None) -> PrivacyCard:
    """Return a card whose numbers agree with what its event, its ledger and its proposal prove."""
    paying = None if history is None else history.until_head(card.budget["head"], where)
    units = {part.event.unit for part in card.event.flatten()}
    if units != {card.epsilon.unit}:
        raise InvalidDataError(f"{where} states another unit of privacy than that of its event.")
    if paying is not None:
        _check_budget_of(card, where, paying)
        _check_paid(card, where, paying)
    _check_budget(card, where)
    if card.alone is not None and not card.covers_ledger:  # beside it must be the ε of everything in the ledger
        raise _disagreement(where, "ε", card.epsilon.epsilon, card.budget["budget"], "its budget")
    for name, cost in (("ε", card.epsilon), ("ε of this release by itself", card.alone)):
        if cost is not None:
            _check_cost(card, cost, name, where)
    _check_added_or_removed(card, where)
    _check_frontier(card, where, paying)
    _check_accuracy(card, where)
    proposal = _check_tested(card, where, paying)
    return card if proposal is None else replace(card, proposal=record_of(proposal))


def at_limits(event: Event) -> Event:
    """Return an event with as many answers as there were checks: the votes decided how many of them there are."""
    times = counted([event])
    checks, answers = _checks_and_answers(times)
    if len(checks) == len(answers) == 1:
        times[answers[0]] = max(times[answers[0]], times[checks[0]])
    return event_of(times)


class Drawn(NamedTuple):
    """A test as the ledger recorded it, whether it passed, and the number of its entry."""

    test: PublicationTest
    passed: bool
    number: int


def last_test(test: PublicationTest, history: History, where: str) -> Drawn:
    """Return what the last such test in a history came to; whether its noise was simulated is not compared."""
    drawn = [
        Drawn(event, history.outcomes[number] == 1, number)
        for number, event in history.published.items()
        if isinstance(event, PublicationTest)
        and replace(event, simulated=False) == replace(test, simulated=False)
        and number in history.outcomes
    ]
    if not drawn:
        raise InvalidDataError(f"The ledger does not hold the test that {where} names.")
    last = drawn[-1]
    if len(_recorded_with(last.test, history)) > 1:  # nothing tells whose test it was, so that each must have passed
        last = last._replace(passed=all(one.passed for one in drawn))
    return last


def proposal_behind(test: PublicationTest, held: Proposal | None, history: History, where: str) -> Proposal:
    """Return the proposal of a test: the one that the ledger recorded or, in a ledger before records, the file's.

    Order and caps, which the test does not tell, may have been edited in the file.
    """
    matching = _recorded_with(test, history)
    if held is None and len(matching) == 1:
        return matching[0]
    if held is None:
        raise InvalidDataError(
            f"The tested ε of {where} cannot be proved again: neither the file nor the ledger holds the proposal. Run "
            "`tutelage publish test --output` or `tutelage run --overwrite` again; the test is remembered at no cost."
        )
    if matching and held not in matching:
        raise InvalidDataError(
            f"{where} holds another proposal than the ledger recorded, of ε = {held.epsilon:.6g} instead of "
            f"{matching[0].epsilon:.6g}. Use the original file."
        )
    return held


def check_stated(stated: float, proved: float, name: str, where: str) -> None:
    """Refuse a number of a file that is below what is proved."""
    if stated < proved * (1 - SLACK):
        raise InvalidDataError(
            f"{where} states {name} = {stated:.6g}, and what was released proves {round_up(proved)}. Use the original "
            "file; this one was changed."
        )


def _recorded_with(test: PublicationTest, history: History) -> list[Proposal]:
    """Return the proposals that a ledger recorded and whose test is this one."""
    recorded = [proposal_of(one) for one in history.proposals if one.get("kind") == TESTED]
    return [one for one in recorded if one.event(simulated=test.simulated) == test]


def _check_budget_of(card: PrivacyCard, where: str, history: History) -> None:
    """Refuse a card whose budget is not what the ledger said at the card's head."""
    for name, right in history.state.as_dict().items():
        stated = card.budget.get(name, right)
        same = isclose(stated, right, rel_tol=SLACK, abs_tol=1e-12) if isinstance(right, float) else stated == right
        if not same:
            raise _disagreement(where, f"`{name}` of the budget", stated, right, "its ledger")


def _check_paid(card: PrivacyCard, where: str, history: History) -> None:
    """Refuse a card about other labels than the ledger's or, with an ε of its own, about fewer."""
    done = counted([card.event])
    if not card.covers_ledger and card.alone is None:
        try:
            check_covered(Counter({part: times for part, times in done.items() if not _is_publication(part)}), history)
            return
        except LedgerMismatchError as error:
            raise InvalidDataError(f"{where} does not fit its ledger. {error}") from None
    if done - counted(charge.most for charge in history.charges):
        raise InvalidDataError(f"{where} is about labels that were not spent from its ledger. Name their own ledger.")


def _check_budget(card: PrivacyCard, where: str) -> None:
    """Refuse a budget that does not allow the card's event."""
    budget = card.budget
    if "order" in budget or "accounting" in budget:
        try:
            limit = filter_of({**budget, "epsilon": budget["budget"]})
        except InvalidParameterError:
            raise InvalidDataError(f"{where} states a budget that no ledger can have.") from None
        cost = limit.share(limit.cost(card.event))
        check_stated(budget["budget"], cost, "the budget", where)
        check_stated(budget["spent"], cost, "the spent share", where)
        if card.covers_ledger and card.epsilon.order not in (None, limit.order):
            raise _disagreement(where, "the order of ε", card.epsilon.order, limit.order, "its budget")
    else:
        check_stated(budget["budget"], _proved(card.event, budget["delta"], None), "the budget", where)
    whole = budget["spent"] + budget.get("remaining", budget["budget"] - budget["spent"])
    if not isclose(whole, budget["budget"], rel_tol=SLACK):
        raise _disagreement(where, "spent + remaining", whole, budget["budget"], "its budget")
    shares = sum(batch.share for batch in card.batches)
    if card.batches and not isclose(shares, budget["spent"], rel_tol=SLACK, abs_tol=1e-9):
        raise _disagreement(where, "the sum of its batches", shares, budget["spent"], "the spent share of the budget")


def _check_cost(card: PrivacyCard, cost: PublicEpsilon, name: str, where: str) -> None:
    """Refuse an ε of any votes that the event does not prove; the budget, which holds for more, was checked."""
    if cost.epsilon >= card.budget["budget"] and cost.delta >= card.budget["delta"]:
        return
    by = name if cost.order is None else f"{name} by order {cost.order:.4g}"
    check_stated(cost.epsilon, _proved(at_limits(card.event), cost.delta, cost.order), by, where)


def _check_added_or_removed(card: PrivacyCard, where: str) -> None:
    """Refuse an ε of fewer changes that the event does not prove, or beside an ε of other releases too."""
    if card.if_added_or_removed is None:
        return
    proved = inf
    # Elsewhere a teacher may have several people, and its ballot changes when one of them leaves.
    if all(isinstance(part.event, NoisySumGaussian) for part in card.event.flatten()):
        proved = data_independent.epsilon_if_added_or_removed(card.event, card.epsilon.delta)
    name = "if units are only added or removed an ε"
    check_stated(card.if_added_or_removed, inf if card.covers_ledger else proved, name, where)


def _check_tested(card: PrivacyCard, where: str, paying: History | None) -> Proposal | None:
    """Return the proposal behind a second ε; refuse one that it does not prove, or whose test did not pass."""
    stated = card.sanitised
    if stated is None:
        return None
    proposal, earlier = _tested_on(card, where) if paying is None else _tested_through(card, where, paying)
    check_stated(stated.epsilon, proposed_epsilon(proposal, earlier), "the second ε", where)
    right = card.budget["delta"], proposal.order
    if (stated.delta, stated.order) != right:
        raise _disagreement(where, "δ and order of the second ε", (stated.delta, stated.order), right, "its proposal")
    return proposal


def _tested_on(card: PrivacyCard, where: str) -> tuple[Proposal, tuple[Event, ...]]:
    """Return the proposal that a card holds, and the publications in its event beside the test."""
    if card.proposal is None:
        raise InvalidDataError(
            f"The second ε of {where} cannot be proved again: the card holds no proposal. Name its ledger with "
            "--ledger, or write it again with `tutelage run --overwrite`, which costs nothing."
        )
    proposal = proposal_of(card.proposal)
    published = tuple(part for part in counted([card.event]).elements() if isinstance(part, PUBLICATIONS))
    test = next((one for one in published if replace(one, simulated=False) == proposal.event()), None)
    if test is None:
        raise InvalidDataError(f"{where} holds a proposal whose test is not in its event. Use the original file.")
    return proposal, all_but(published, test)


def _tested_through(card: PrivacyCard, where: str, paying: History) -> tuple[Proposal, tuple[Event, ...]]:
    """Return the proposal as the ledger recorded it, and the other publications up to the card's head."""
    held = None if card.proposal is None else proposal_of(card.proposal)
    tests = [part for part in counted([card.event]) if isinstance(part, PublicationTest)]
    if held is None and not tests:
        raise InvalidDataError(f"{where} states a second ε, and no test is in its event. Use the original file.")
    named = held.event() if held else tests[-1]
    # The first ε of a card may be of everything; the second is then of what was released until its test.
    test, passed, number = last_test(named, paying, where)
    until = paying.until(number)
    if not card.covers_ledger:
        check_complete(until.given, paying)
        until = paying
    labels = Counter({part: times for part, times in counted([card.event]).items() if not _is_publication(part)})
    if labels - until.given:
        raise InvalidDataError(f"{where} is about labels that came after the test of its second ε.")
    if not passed:
        raise InvalidDataError(f"{where} states that a test passed, and the ledger remembers that it was refused.")
    proposal = proposal_behind(test, held, paying, where)
    return proposal, all_but(until.publications, test)


def _check_frontier(card: PrivacyCard, where: str, paying: History | None) -> None:
    """Refuse costs of other numbers of queries that no query of this release can have."""
    if not card.frontier:
        return
    refusal = InvalidDataError(
        f"{where} states what other numbers of queries would cost, and its event has no queries."
    )
    last_first = () if paying is None else dict.fromkeys(charge.event for charge in reversed(paying.asked))
    for one in _ones(card.event) if paying is None else last_first:
        try:
            for point in card.frontier:
                proved = _proved(Repeated(one, point.queries), point.epsilon.delta, point.epsilon.order)
                check_stated(point.epsilon.epsilon, proved, f"for {point.queries:,} queries an ε", where)
        except InvalidDataError as error:
            refusal = error
        else:
            return
    raise refusal


def _check_accuracy(card: PrivacyCard, where: str) -> None:
    """Refuse an accuracy that is not that of the classes together."""
    rows = sum(entry.rows for entry in card.accuracy_by_class)
    if not rows or card.student_accuracy is None:
        return
    if rows != card.evaluation_rows:
        raise _disagreement(where, "`evaluation_rows`", card.evaluation_rows, rows, "its classes")
    share = sum(entry.right for entry in card.accuracy_by_class) / rows
    if not isclose(card.student_accuracy, share, rel_tol=SLACK):
        raise _disagreement(where, "`student_accuracy`", card.student_accuracy, share, "its classes")


def _proved(event: Event, delta: float, order: float | None) -> float:
    """Return the ε that an event proves: at the order that is named, which takes milliseconds, or at the best."""
    if not any(part.times for part in event.flatten()):
        return 0.0
    if order is None:
        return data_independent.epsilon(event, delta).epsilon
    try:
        return data_independent.epsilon_at(event, delta, order)
    except InvalidParameterError:
        raise InvalidDataError(f"A Rényi order must be above 1. Got {order:g}.") from None


def _ones(event: Event) -> Iterator[Event]:
    """Return what one query can have been, of the kinds of checks and answers in an event."""
    checks, answers = _checks_and_answers(counted([event]))
    for check, answer in product(checks or [None], answers):
        yield answer if check is None else Composed((check, answer))
    if len(checks) and len(answers) > 1:
        yield from answers


def _checks_and_answers(times: Counter[Event]) -> tuple[list[Event], list[Event]]:
    labels = [part for part in times if not _is_publication(part)]
    checks = [part for part in labels if isinstance(part.without_shares(), Check)]
    return checks, [part for part in labels if part not in checks]


def _is_publication(event: Event) -> bool:
    return isinstance(event, PUBLICATIONS)


def _disagreement(where: str, name: str, stated: object, right: object, source: str) -> InvalidDataError:
    return InvalidDataError(f"{where} states {name} as {stated}. By {source}, it is {right}. Use the original file.")
