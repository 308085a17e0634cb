"""A published ε on its way from ``tutelage publish test`` to a card: stored in a file, and proved again."""

import json
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from tutelage._internal.gate import read_text
from tutelage._internal.outputs import json_form
from tutelage.accounting import Accountant, data_independent
from tutelage.events import Composed, Event, counted, event_from_dict, event_of
from tutelage.exceptions import InvalidDataError, TutelageError
from tutelage.ledger import History, Ledger
from tutelage.privacy import PublicEpsilon, round_up
from tutelage.publishing.proof import SLACK, at_limits, check_recorded_as, last_test
from tutelage.publishing.proposal import Proposal
from tutelage.publishing.publication import Publication, publication_of
from tutelage.publishing.recording import all_but, check_complete, check_covered, proposal_of, record_of

_FORMAT = 1
CLAIM = json_form("a claim", "format", "passed", "sanitised", "data_independent", "labels", "proposal", "ledger")


class Claim(NamedTuple):
    """The claims of a card after a test: the worst-case ε and, if the test passed, the tested ε."""

    data_independent: PublicEpsilon
    sanitised: PublicEpsilon | None


class ProvedClaim(NamedTuple):
    """A claim that was proved again, with what a card holds of it beside the numbers."""

    claim: Claim
    proposal: dict[str, Any] | None
    released: Event


def claim_of(publication: Publication) -> Claim:
    """Return what may stand on a card: the ε that was tested only where it passed and is the smaller one."""
    tested, otherwise = publication.epsilon, publication.data_independent
    smaller = publication.passed and tested.output_dependent and tested.epsilon < otherwise.epsilon
    return Claim(otherwise, tested if smaller else None)


def write_claim(path: Path, publication: Publication, released: Accountant, proposal: Proposal, ledger: Ledger) -> None:
    """Write what was published to a file that `read_claim` reads; all of it is public."""
    claim = claim_of(publication)

    def stored(epsilon: PublicEpsilon) -> dict[str, Any]:
        return {name: getattr(epsilon, name) for name in ("epsilon", "delta", "order", "method")}

    record = {
        "format": _FORMAT,
        "passed": publication.passed,
        "sanitised": None if claim.sanitised is None else stored(claim.sanitised),
        "data_independent": stored(claim.data_independent),
        "labels": released.charged().as_dict(),
        "proposal": record_of(proposal),
        "ledger": ledger.state().head,
    }
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_claim(path: Path, history: History) -> ProvedClaim:
    """Return a claim that is proved again from the proposal, the labels and the entries of its ledger."""
    try:
        record = json.loads(read_text(path))
        proposal, labels = proposal_of(record["proposal"]), at_limits(event_from_dict(record["labels"]))
        stated_passed, head, tested = record["passed"], record["ledger"], record["sanitised"]
        stated, stated_tested = _stated(record["data_independent"]), None if tested is None else _stated(tested)
        if record["format"] != _FORMAT or type(head) is not str or type(stated_passed) is not bool:
            raise ValueError
    except OSError as error:
        raise InvalidDataError(f"{path} cannot be read: {error.strerror}.") from None
    except (KeyError, TypeError, ValueError, RecursionError, TutelageError):
        raise InvalidDataError(f"{path} is not a claim that `tutelage publish test --output` wrote.") from None
    test, passed, number = last_test(proposal.event(), history.until_head(head, str(path)), str(path))
    check_complete(history.until(number).given, history)
    check_covered(counted([labels]), history)
    if stated_passed and not passed:
        raise InvalidDataError(f"{path} states that the test passed, and the ledger remembers that it was refused.")
    published, delta = history.publications, history.state.delta
    independent = data_independent.epsilon(Composed((labels, *published)), delta)
    _check_stated(stated, independent, "worst-case ε", path)
    released = Composed((event_of(history.given), *published))
    if stated_tested is None:
        return ProvedClaim(Claim(independent, None), None, released)
    check_recorded_as(proposal, test, history, str(path))
    proved = publication_of(proposal, stated_passed, labels, test, all_but(published, test), delta)
    sanitised = claim_of(proved).sanitised
    if sanitised is None:
        raise InvalidDataError(f"{path} states a tested ε, and its proposal proves none below the worst-case ε.")
    _check_stated(stated_tested, sanitised, "tested ε", path)
    return ProvedClaim(Claim(independent, sanitised), record_of(proposal), released)


def _check_stated(stated: tuple[float, float], proved: PublicEpsilon, name: str, path: Path) -> None:
    """Refuse a number of a file that is below what is proved."""
    epsilon, delta = stated
    if delta != proved.delta or epsilon < proved.epsilon * (1 - SLACK):
        raise InvalidDataError(
            f"{path} states a {name} of {epsilon:.6g} at δ = {delta:g}, and its proof gives {round_up(proved.epsilon)} "
            f"at δ = {proved.delta:g}. The file was changed, or an ε was published since. Run `tutelage publish test` "
            "again; the test is remembered."
        )


def _stated(record: Any) -> tuple[float, float]:
    """Return the ε and δ of an entry."""
    numbers = record["epsilon"], record["delta"]
    if any(type(number) is not float or not isfinite(number) or number < 0 for number in numbers):
        raise ValueError
    return numbers
