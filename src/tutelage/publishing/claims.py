"""A published ε on its way from ``tutelage publish test`` to a card: stored in a file, and proved again."""

import json
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple, final

from tutelage._internal.gate import read_text
from tutelage._internal.outputs import json_form
from tutelage.accounting import Accountant, data_independent
from tutelage.events import Composed, Event, PublicationTest, counted, event_from_dict, event_of
from tutelage.exceptions import InvalidDataError, TutelageError
from tutelage.ledger import History, Ledger
from tutelage.privacy import PublicEpsilon, round_up
from tutelage.publishing.proof import SLACK, at_limits, last_test, proposal_behind
from tutelage.publishing.proposal import Proposal
from tutelage.publishing.publication import Publication, publication_of
from tutelage.publishing.recording import all_but, check_complete, check_covered, proposal_of, record_of

_FORMAT = 1
CLAIM = json_form("a claim", "format", "passed", "sanitised", "data_independent", "labels", "proposal", "ledger")


class Claim(NamedTuple):
    """The claims of a card after a test: the worst-case ε and, if the test passed, the tested ε."""

    data_independent: PublicEpsilon
    sanitised: PublicEpsilon | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ProvedClaim:
    """A claim that was proved again, with what a card holds of it beside the numbers."""

    claim: Claim
    proposal: dict[str, Any] | None
    released: Event


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    """Content of a claim file; it is not trusted."""

    passed: bool
    labels: Event
    test: PublicationTest
    proposal: Proposal
    head: str
    independent: tuple[float, float]  # ε and δ
    sanitised: tuple[float, float] | None


def claim_of(publication: Publication) -> Claim:
    """Return what may stand on a card: the ε that was tested only where it passed and is the smaller one."""
    tested, otherwise = publication.epsilon, publication.data_independent
    smaller = publication.passed and tested.output_dependent and tested.epsilon < otherwise.epsilon
    return Claim(otherwise, tested if smaller else None)


def write_claim(path: Path, publication: Publication, released: Accountant, proposal: Proposal, ledger: Ledger) -> None:
    """Write what was published to a file that `read_claim` reads; all of it is public."""
    claim = claim_of(publication)
    record = {
        "format": _FORMAT,
        "passed": publication.passed,
        "sanitised": None if claim.sanitised is None else _as_dict(claim.sanitised),
        "data_independent": _as_dict(claim.data_independent),
        "labels": released.charged().as_dict(),
        "proposal": record_of(proposal),
        "ledger": ledger.state().head,
    }
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_claim(path: Path, history: History) -> ProvedClaim:
    """Return a claim that is proved again from the proposal, the labels and the entries of its ledger."""
    try:
        stored = _stored(json.loads(read_text(path)))
    except OSError as error:
        raise InvalidDataError(f"{path} cannot be read: {error.strerror}.") from None
    except (KeyError, TypeError, ValueError, RecursionError, TutelageError):
        raise InvalidDataError(f"{path} is not a claim that `tutelage publish test --output` wrote.") from None
    test, passed, number = last_test(stored.test, history.until_head(stored.head, str(path)), str(path))
    check_complete(history.until(number).given, history)
    labels = at_limits(stored.labels)
    check_covered(counted([labels]), history)
    if stored.passed and not passed:
        raise InvalidDataError(f"{path} states that the test passed, and the ledger remembers that it was refused.")
    published, delta = history.publications, history.state.delta
    independent = data_independent.epsilon(Composed((labels, *published)), delta)
    _check_stated(stored.independent, independent, "worst-case ε", path)
    released = Composed((event_of(history.given), *published))
    if stored.sanitised is None:
        return ProvedClaim(claim=Claim(independent, None), proposal=None, released=released)
    proposal = proposal_behind(test, stored.proposal, history, str(path))
    proved = publication_of(proposal, stored.passed, labels, test, all_but(published, test), delta)
    sanitised = claim_of(proved).sanitised
    if sanitised is None:
        raise InvalidDataError(f"{path} states a tested ε, and its proposal proves none below the worst-case ε.")
    _check_stated(stored.sanitised, sanitised, "tested ε", path)
    return ProvedClaim(claim=Claim(independent, sanitised), proposal=record_of(proposal), released=released)


def _check_stated(stated: tuple[float, float], proved: PublicEpsilon, name: str, path: Path) -> None:
    """Refuse a number of a file that is below what is proved."""
    epsilon, delta = stated
    if delta != proved.delta or epsilon < proved.epsilon * (1 - SLACK):
        raise InvalidDataError(
            f"{path} states a {name} of {epsilon:.6g} at δ = {delta:g}, and its proof gives {round_up(proved.epsilon)} "
            f"at δ = {proved.delta:g}. The file was changed, or an ε was published since. Run `tutelage publish test` "
            "again; the test is remembered."
        )


def _as_dict(epsilon: PublicEpsilon) -> dict[str, Any]:
    return {name: getattr(epsilon, name) for name in ("epsilon", "delta", "order", "method")}


def _stored(record: Any) -> _Stored:
    """Return what a record holds; any error says that it is no claim."""
    if record["format"] != _FORMAT or type(record["ledger"]) is not str or type(record["passed"]) is not bool:
        raise ValueError
    proposal = proposal_of(record["proposal"])
    return _Stored(
        passed=record["passed"],
        labels=event_from_dict(record["labels"]),
        test=proposal.event(),
        proposal=proposal,
        head=record["ledger"],
        independent=_stated(record["data_independent"]),
        sanitised=None if record["sanitised"] is None else _stated(record["sanitised"]),
    )


def _stated(record: Any) -> tuple[float, float]:
    numbers = record["epsilon"], record["delta"]
    if any(type(number) is not float or not isfinite(number) or number < 0 for number in numbers):
        raise ValueError
    return numbers
