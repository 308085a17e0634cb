"""Claims of card and claim files, proved again: a number from an editable file is never copied to a new card.

A stated ε below the proved one is refused. One above it stays: it is true, and may come from a larger limit on the
queries or an earlier version's theorem.
"""

import json
from collections import Counter
from dataclasses import replace
from itertools import product
from math import inf, isclose
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, Self

import msgspec
from msgspec import Meta

from tutelage._internal.gate import read_given
from tutelage._internal.outputs import json_form
from tutelage._internal.records import Entries, file_entries, frozen, plain, record_in
from tutelage.accounting import Accountant, data_independent
from tutelage.accounting.filter import GaussianFilter, epsilon_so_far, filter_of, limit_of
from tutelage.events import (
    TIER_STEPS,
    Check,
    Composed,
    Event,
    NoisySumGaussian,
    PublicationTest,
    Repeated,
    count_releases,
    event_from_dict,
    event_of,
    event_of_tier,
    tiers_of,
)
from tutelage.exceptions import (
    InvalidDataError,
    InvalidParameterError,
    LedgerMismatchError,
    UnsupportedEventError,
)
from tutelage.ledger import Ledger
from tutelage.ledger.history import History
from tutelage.privacy import PublicEpsilon, round_up
from tutelage.publishing.proposal import Proposal
from tutelage.publishing.recording import all_but, check_complete, check_covered
from tutelage.reporting import PrivacyCard
from tutelage.reporting.record import Guarantee, Proposed, record_of

if TYPE_CHECKING:
    from tutelage.publishing.publication import Publication

CLAIM = json_form("a claim", "claim")
_SLACK = 1e-6  # relative: costs come out the same to more digits on every machine


def prove(
    card: PrivacyCard,
    where: str,
    history: History | None = None,
    *,
    with_proposal: bool = True,
) -> None:
    """Refuse a card whose numbers disagree with what its event, its ledger and, `with_proposal`, its proposal prove."""
    stated = card.guarantee
    budget = card.budget
    paying = None
    if history:
        paying = history.until_head(budget.head, where)
    units = {part.event.unit for part in card.event.flatten()}
    if units != {stated.epsilon.unit}:
        raise InvalidDataError(f"{where} states another unit of privacy than that of its event.")
    if paying is not None:
        _check_spent(card, where, paying)
    _check_budget(card, where)
    # Beside it must be the ε of everything in the ledger.
    if stated.alone is not None and not card.covers_ledger:
        _disagree(where, "ε", stated.epsilon.epsilon, budget.budget, "its budget")
    costs = {"ε": stated.epsilon, "ε of this release by itself": stated.alone}
    for name, cost in costs.items():
        # The budget, which holds for more, was checked.
        if cost is not None and (cost.epsilon < budget.budget or cost.delta < budget.delta):
            proved = _proved_epsilon(_at_limits(card.event), cost.delta, cost.order)
            by = "" if cost.order is None else f" by order {cost.order:.4g}"
            _check_stated(cost.epsilon, proved, name + by, where)
    if stated.if_added_or_removed is not None:
        # Beside an ε of other releases too; or where one who leaves changes a teacher's ballot.
        proved = inf
        parts = card.event.flatten()
        are_sums = all(isinstance(part.event, NoisySumGaussian) for part in parts)
        if are_sums and not card.covers_ledger:
            proved = data_independent.epsilon_if_added_or_removed(card.event, stated.epsilon.delta)
        _check_stated(
            stated.if_added_or_removed, proved, "if units are only added or removed an ε", where
        )
    _check_tiers(card, where, paying)
    _check_frontier(card, where, paying)
    if with_proposal and stated.tested is not None:
        _check_tested(card, stated.tested, where, paying)


def _check_tiers(card: PrivacyCard, where: str, paying: History | None) -> None:
    """Refuse tiers of people that are not those of the event, or an ε of one that is below what is proved."""
    steps_of = dict(tiers_of(card.event))
    stated = {tier.name: tier for tier in card.budget.tiers}
    lengths = {name: tier.length for name, tier in stated.items()}
    proved = {name: steps / TIER_STEPS for name, steps in steps_of.items()}
    if lengths != proved:
        _disagree(where, "lengths of tiers", lengths, proved, "its event")
    for name, tier in stated.items():
        event = event_of_tier(card.event, name)
        least = data_independent.epsilon(event, tier.epsilon.delta).epsilon
        if paying is not None and card.covers_ledger:
            # Tiers are refused after a raise of the budget.
            of_ledger = paying.until(0).limit.epsilon_of_length(tier.length)
            least = min(max(least, of_ledger), card.epsilon.epsilon)
        _check_stated(tier.epsilon.epsilon, least, f"ε of tier {name!r}", where)


def _at_limits(event: Event) -> Event:
    """Return an event with as many answers as there were checks: the votes decided how many of them there are."""
    times = count_releases([event])
    checks, answers = _checks_and_answers(times)
    if len(checks) == len(answers) == 1:
        most = max(times[answers[0]], times[checks[0]])
        times[answers[0]] = most
    return event_of(times)


def _last_test(
    test: PublicationTest, history: History, where: str
) -> tuple[PublicationTest, bool, int]:
    """Return the last such test in a history, simulated or not, whether it passed, and the number of its entry."""
    drawn = [
        number
        for number, event in history.publications.items()
        if replace(event, simulated=False) == replace(test, simulated=False)
        and number in history.outcomes
    ]
    if not drawn:
        raise InvalidDataError(f"The ledger does not hold the test that {where} names.")
    last = drawn[-1]
    found = history.publications[last]
    if len(_recorded_with(found, history)) <= 1:
        drawn = [last]  # otherwise nothing tells whose test it was, so that each must have passed
    return found, all(history.outcomes[number] == 1 for number in drawn), last


def _check_recorded_as(
    proposal: Proposal, test: PublicationTest, history: History, where: str
) -> None:
    """Refuse a file's proposal that the ledger did not record: its order and caps, which the test does not tell."""
    matching = _recorded_with(test, history)
    if proposal in matching:
        return
    difference = ""
    if matching:
        difference = f", of ε = {proposal.epsilon:.6g} instead of {matching[0].epsilon:.6g}"
    raise InvalidDataError(
        f"{where} holds another proposal than the ledger recorded{difference}. {_ORIGINAL}"
    )


def _check_stated(stated: float, proved: float, name: str, where: str) -> None:
    """Refuse a number of a file that is below what is proved."""
    if stated < proved * (1 - _SLACK):
        raise InvalidDataError(
            f"{where} states {name} = {stated:.6g}, and what was released proves {round_up(proved)}. Use the original "
            "file; this one was changed."
        )


_ORIGINAL = "Use the original file."


def _recorded_with(test: PublicationTest, history: History) -> list[Proposal]:
    """Return the proposals that a ledger recorded and whose test is this one."""
    recorded = [_proposal_of(entries) for entries in history.proposals]
    return [proposal for proposal in recorded if proposal.event(simulated=test.simulated) == test]


def _check_spent(card: PrivacyCard, where: str, history: History) -> None:
    """Refuse a card of another budget than the ledger's at its head, or of other labels; of fewer with its own ε."""
    entries = plain(card.budget)
    for name, right in history.state.as_dict().items():
        stated = entries.get(name, right)
        is_same = stated == right
        if isinstance(right, float):
            is_same = isclose(stated, right, rel_tol=_SLACK, abs_tol=1e-12)
        if not is_same:
            _disagree(where, f"`{name}` of the budget", stated, right, "its ledger")
    done = count_releases([card.event])
    if not card.covers_ledger and card.guarantee.alone is None:
        try:
            check_covered(_labels_in(done), history)
        except LedgerMismatchError as error:
            raise InvalidDataError(f"{where} does not fit its ledger. {error}") from None
    elif done - count_releases(charge.most for charge in history.charges):
        raise InvalidDataError(
            f"{where} is about labels that were not spent from its ledger. Name their own ledger."
        )


def _check_budget(card: PrivacyCard, where: str) -> None:
    """Refuse a budget that does not allow the card's event."""
    budget = card.budget
    most = budget.budget
    spent = budget.spent
    if budget.order is not None or budget.accounting is not None:
        try:
            limit = filter_of({**plain(budget), "epsilon": most})
        except (InvalidParameterError, KeyError):
            raise InvalidDataError(f"{where} states a budget that no ledger can have.") from None
        cost = limit.share(limit.cost(card.event))
        _check_stated(most, cost, "the budget", where)
        _check_stated(spent, cost, "the spent share", where)
        first = budget.raised[0].before if budget.raised else most
        delta = limit.delta
        if isinstance(limit, GaussianFilter) and limit.first:
            delta /= 2
        # An odometer takes its orders from the first budget.
        opened = limit_of(first, delta, limit.accounting)
        so_far = epsilon_so_far(opened, count_releases([card.event]))
        if budget.so_far is not None:
            _check_stated(budget.so_far, so_far, "so far an ε", where)
        if card.covers_ledger and card.epsilon.order not in (None, limit.order):
            _disagree(where, "the order of ε", card.epsilon.order, limit.order, "its budget")
    else:
        _check_stated(most, _proved_epsilon(card.event, budget.delta, None), "the budget", where)
    if budget.remaining is not None:
        total = spent + budget.remaining
        if not isclose(total, most, rel_tol=_SLACK):
            _disagree(where, "spent + remaining", total, most, "its budget")
    shares = sum(batch.share for batch in budget.batches)
    if budget.batches and not isclose(shares, spent, rel_tol=_SLACK, abs_tol=1e-9):
        _disagree(where, "the sum of its batches", shares, spent, "the spent share of the budget")


def _check_tested(
    card: PrivacyCard, stated: PublicEpsilon, where: str, paying: History | None
) -> None:
    """Refuse a second ε that its proposal does not prove, or whose test did not pass."""
    recorded = card.guarantee.proposal
    if recorded is None:
        raise InvalidDataError(
            f"The second ε of {where} cannot be proved again: the card holds no proposal. {_ORIGINAL}"
        )
    proposal = _proposal_of(plain(recorded))
    if paying is None:
        parts = count_releases([card.event]).elements()
        published = [part for part in parts if isinstance(part, PublicationTest)]
        matching = [
            test for test in published if replace(test, simulated=False) == proposal.event()
        ]
        if not matching:
            raise InvalidDataError(
                f"{where} holds a proposal whose test is not in its event. {_ORIGINAL}"
            )
        earlier = all_but(published, matching[0])
    else:
        test, passed, number = _last_test(proposal.event(), paying, where)
        # The first ε of a card may be of everything; the second is then of what was released until its test.
        until = paying.until(number)
        if not card.covers_ledger:
            check_complete(until.answer_counts, paying)
            until = paying
        if _labels_in(count_releases([card.event])) - until.answer_counts:
            raise InvalidDataError(
                f"{where} is about labels that came after the test of its second ε."
            )
        if not passed:
            raise InvalidDataError(
                f"{where} states that a test passed, and the ledger remembers that it was refused."
            )
        _check_recorded_as(proposal, test, paying, where)
        earlier = all_but(until.publications.values(), test)
    # It loads scikit-learn, which few cards need.
    from tutelage.publishing.publication import proposed_epsilon

    _check_stated(stated.epsilon, proposed_epsilon(proposal, earlier), "the second ε", where)
    _check_stated(recorded.epsilon, proposal.epsilon, "in its proposal an ε", where)
    at = stated.delta, stated.order
    right = card.budget.delta, proposal.order
    if at != right:
        _disagree(where, "δ and order of the second ε", at, right, "its proposal")


def _check_frontier(card: PrivacyCard, where: str, paying: History | None) -> None:
    """Refuse costs of other numbers of queries that no query of this release can have."""
    if not card.budget.frontier:
        return
    refusal = InvalidDataError(
        f"{where} states what other numbers of queries would cost, and its event has no queries."
    )
    if paying is None:
        checks, answers = _checks_and_answers(count_releases([card.event]))
        of_one_query: list[Event] = [Composed(pair) for pair in product(checks, answers)]
        if not checks or len(answers) > 1:
            of_one_query += answers
    else:
        # The last event comes first.
        of_one_query = list(dict.fromkeys(charge.event for charge in reversed(paying.batches)))
    for event in of_one_query:
        try:
            for point in card.budget.frontier:
                queries = Repeated(event, point.queries)
                stated = point.epsilon
                proved = _proved_epsilon(queries, stated.delta, stated.order)
                _check_stated(stated.epsilon, proved, f"for {point.queries:,} queries an ε", where)
        except InvalidDataError as error:
            refusal = error
        else:
            return
    raise refusal


def _proposal_of(recorded: Entries) -> Proposal:
    """Return the proposal that a ledger or a card holds; its ε is proved again."""
    return Proposal.from_json(json.dumps(recorded))


def _proved_epsilon(event: Event, delta: float, order: float | None) -> float:
    """Return the ε that an event proves: at the order that is named, which takes milliseconds, or at the best."""
    if not any(part.times for part in event.flatten()):
        return 0.0
    if order is None:
        return data_independent.epsilon(event, delta).epsilon
    try:
        return data_independent.epsilon_at(event, delta, order)
    except InvalidParameterError:
        raise InvalidDataError(f"A Rényi order must be above 1. Got {order:g}.") from None


def _labels_in(times: Counter[Event]) -> Counter[Event]:
    """Return the kinds of events that are no publication."""
    labels = Counter[Event]()
    for part, number in times.items():
        if not isinstance(part, PublicationTest):
            labels[part] = number
    return labels


def _checks_and_answers(times: Counter[Event]) -> tuple[list[Event], list[Event]]:
    """Return the kinds of checks, and those of answers."""
    labels = list(_labels_in(times))
    checks = [part for part in labels if isinstance(part.without_shares(), Check)]
    return checks, [part for part in labels if part not in checks]


def _disagree(
    where: str,
    name: str,
    stated: object,
    right: object,
    source: str,
) -> NoReturn:
    raise InvalidDataError(
        f"{where} states {name} as {stated}. By {source}, it is {right}. {_ORIGINAL}"
    )


@frozen
class _StoredEpsilon:
    """An ε in a claim file."""

    epsilon: Annotated[float, Meta(ge=0)]
    delta: Annotated[float, Meta(ge=0)]
    order: float | None
    method: str

    @classmethod
    def of(cls, epsilon: PublicEpsilon) -> Self:
        return cls(epsilon.epsilon, epsilon.delta, epsilon.order, epsilon.method)


@frozen
class _ClaimFile:
    """A claim file; `labels` is an event, and `ledger` its head."""

    passed: bool
    tested: _StoredEpsilon | None
    data_independent: _StoredEpsilon
    labels: Entries
    proposal: Entries
    ledger: str


def write_claim(
    path: Path,
    publication: "Publication",
    released: Accountant,
    proposal: Proposal,
    ledger: Ledger,
) -> None:
    """Write what was published to a file that `read_claim` reads; all of it is public."""
    tested = publication.smaller
    content = _ClaimFile(
        passed=publication.passed,
        tested=None if tested is None else _StoredEpsilon.of(tested),
        data_independent=_StoredEpsilon.of(publication.data_independent),
        labels=released.event_at_limits().as_dict(),
        proposal=proposal.as_dict(),
        ledger=ledger.state().head,
    )
    text = json.dumps(file_entries("claim", content), indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def read_claim(path: Path, history: History, **beside: Any) -> Guarantee:
    """Return what a claim guarantees, proved again from the entries of its ledger; `beside` it stay other numbers."""
    damaged = InvalidDataError(
        f"{path} is not a claim that `tutelage publish test --output` wrote."
    )
    record = record_in(read_given(path), "claim", _ClaimFile, damaged)
    try:
        proposal = _proposal_of(record.proposal)
        labels = _at_limits(event_from_dict(record.labels))
    except (InvalidDataError, InvalidParameterError, UnsupportedEventError, RecursionError):
        raise damaged from None
    then = history.until_head(record.ledger, str(path))
    test, passed, number = _last_test(proposal.event(), then, str(path))
    check_complete(history.until(number).answer_counts, history)
    check_covered(count_releases([labels]), history)
    if record.passed and not passed:
        raise InvalidDataError(
            f"{path} states that the test passed, and the ledger remembers that it was refused."
        )
    published = history.publications.values()
    delta = history.state.delta
    independent = data_independent.epsilon(Composed((labels, *published)), delta)
    _check_claimed(record.data_independent, independent, "worst-case ε", path)
    tested = None
    proposed = None
    if record.tested is not None:
        _check_recorded_as(proposal, test, history, str(path))
        earlier = all_but(published, test)
        from tutelage.publishing.publication import publication_of

        tested = publication_of(proposal, record.passed, labels, test, earlier, delta).smaller
        if tested is None:
            raise InvalidDataError(
                f"{path} states a tested ε, and its proposal proves none below the worst-case ε."
            )
        _check_claimed(record.tested, tested, "tested ε", path)
        proposed = msgspec.convert(proposal.as_dict(), Proposed)
    released = record_of(Composed((event_of(history.answer_counts), *published)))
    return Guarantee(
        epsilon=independent, event=released, tested=tested, proposal=proposed, **beside
    )


def _check_claimed(stated: _StoredEpsilon, proved: PublicEpsilon, name: str, path: Path) -> None:
    """Refuse a number of a file that is below what is proved."""
    epsilon = stated.epsilon
    delta = stated.delta
    if delta != proved.delta or epsilon < proved.epsilon * (1 - _SLACK):
        raise InvalidDataError(
            f"{path} states a {name} of {epsilon:.6g} at δ = {delta:g}, and its proof gives {round_up(proved.epsilon)} "
            f"at δ = {proved.delta:g}. The file was changed, or an ε was published since. Run `tutelage publish test` "
            "again; the test is remembered."
        )
