"""A proposal of ``tutelage publish propose`` in a run: read before anything is spent, tested once labels are out."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from tutelage._typing import Matrix
from tutelage.accounting import Accountant
from tutelage.classifier import PATEClassifier
from tutelage.cli.config import RunConfig
from tutelage.events import Composed, Repeated, counted
from tutelage.exceptions import ConfigError, InvalidParameterError
from tutelage.ledger import Ledger
from tutelage.mechanisms import Mechanism
from tutelage.neighboring import PrivacyUnit
from tutelage.publishing import Proposal, Publication, publish_epsilon, recalled_publication
from tutelage.publishing.coverage import check_complete, check_covered
from tutelage.publishing.recording import check_recorded
from tutelage.votes import VoteHistogram


def read_proposal(path: Path) -> Proposal:
    """Return the proposal in a file; its ε is proved anew."""
    try:
        return Proposal.from_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        reason = f"{error.strerror}."
    except UnicodeDecodeError:
        reason = "It is not text."
    except InvalidParameterError as error:
        reason = str(error)
    raise ConfigError(f"The proposal {path} cannot be used: {reason} Make it with `tutelage publish propose`.")


def check_proposal(proposal: Proposal, settings: RunConfig, classes: int, pool: Matrix) -> Ledger:
    """Return the ledger of a run; refuse, before anything is spent, one whose proposal could not be tested."""
    ledger, mechanism = settings.ledger, settings.mechanism
    if mechanism.takes_predictions or settings.public.rounds > 1:
        raise ConfigError("`proposal` in [privacy] needs `rounds` = 1 and no `interactive`. Leave it out.")
    if not ledger.exists():
        raise ConfigError(
            f"`proposal` in [privacy] needs a ledger that was there when it was made. Got none at {ledger}; make it "
            "with `tutelage ledger init`, then propose with --ledger."
        )
    paying = Ledger.open(ledger)
    same_unit(proposal, paying.unit)
    queries = settings.public.queries or len(pool)
    labels = Repeated(mechanism.event_of_one(classes, proposal.unit, simulated=False), queries)
    history = paying.history()
    if history.state.spent == 0:
        check_recorded(proposal, history)
        history.check_share(proposal.delta)
        paying.require(Composed((labels, proposal.event())), 1)
    elif proposal.event() not in history.publications:
        raise ConfigError(
            "`proposal` in [privacy] is about everything that its ledger pays for, and this one paid for something "
            "already. Leave it out; with the votes at hand, `tutelage publish test` can still test it."
        )
    else:
        # Twins are one query; without them, labels that the test was not about would be asked for now.
        twins = len(set(paying.query_hashes({}, pool))) < len(pool)
        check = check_complete if twins else check_covered
        check(counted([labels]), history)
    return paying


def released_once(mechanism: Mechanism, votes: VoteHistogram, answered: npt.NDArray[np.bool_] | None) -> Accountant:
    """Return every query released once; of a mechanism with a check, those answered that were."""
    accountant = Accountant()
    accountant.add_release(mechanism.event_of_one(votes.n_classes, votes.unit, simulated=False), votes, answered)
    return accountant


def tested(settings: RunConfig, model: PATEClassifier, proposal: Proposal, rows: Matrix) -> Publication:
    """Return what may be claimed of a run's labels after the test, drawn through the ledger."""
    ledger = model.open_ledger_
    places = {row: place for place, row in reversed(list(enumerate(ledger.query_hashes({}, rows))))}
    once = sorted(places.values())  # equal rows are one query
    released = released_once(settings.mechanism, model.votes_.select(np.array(once)), model.release_.answered[once])
    question = str(model.question)
    found = recalled_publication(released, ledger, proposal, rows, question=question)
    if found is not None:
        return found
    if max((part.times for part in model.release_.event.flatten()), default=0) < len(once):
        raise ConfigError(
            "`proposal` in [privacy] cannot be tested: an earlier run released these labels, perhaps by other "
            "teachers. Leave it out."
        )
    return publish_epsilon(released, ledger, proposal, rows, question=question)


def same_unit(proposal: Proposal, unit: PrivacyUnit) -> None:
    """Refuse a proposal for another unit of privacy than what it is to be tested on."""
    if proposal.unit != unit:
        raise ConfigError(
            f"The proposal protects one {proposal.unit}, the ledger one {unit}. Propose again with the --ledger that "
            "will pay."
        )
