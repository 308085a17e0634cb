"""A proposal of ``tutelage publish propose`` in a run: read before anything is spent, tested once labels are out."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from tutelage._typing import Matrix
from tutelage.accounting import Accountant, Proposal
from tutelage.accounting.data_independent import flatten
from tutelage.classifier import PATEClassifier
from tutelage.cli.config import RunConfig
from tutelage.events import Composed, ConfidenceCheck, Repeated
from tutelage.exceptions import ConfigError
from tutelage.ledger import Ledger
from tutelage.mechanisms import InteractiveGNMax, Mechanism
from tutelage.neighboring import PrivacyUnit
from tutelage.publishing import Publication, publish_epsilon, recalled_publication
from tutelage.votes import VoteHistogram


def read_proposal(path: Path) -> Proposal:
    """Return the proposal in a file; its ε is proved anew.

    Raises
    ------
    ConfigError
        If the file cannot be read.
    InvalidParameterError
        If it holds no proposal.
    """
    try:
        return Proposal.from_json(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is no proposal that `tutelage publish propose` wrote.") from None


def check_proposal(proposal: Proposal, mechanism: Mechanism, classes: int, queries: int, ledger: Path) -> None:
    """Refuse, before anything is spent, a run whose proposal could not be tested at its end.

    Parameters
    ----------
    proposal : Proposal
        What is to be tested.
    mechanism : Mechanism
        How labels will be released.
    classes, queries : int
        Number of classes and of labels asked for.
    ledger : path
        The ledger that will pay.

    Raises
    ------
    ConfigError
        If the mechanism needs predictions, or the ledger is not there yet or protects another unit.
    BudgetExceededError
        If nothing was spent yet, and labels and test do not both fit.
    """
    if isinstance(mechanism, InteractiveGNMax):
        raise ConfigError("`proposal` in [privacy] cannot be tested after `interactive` answers. Leave it out.")
    if not ledger.exists():
        raise ConfigError(
            f"`proposal` in [privacy] needs a ledger that was there when it was made. Got none at {ledger}; make it "
            "with `tutelage ledger init`, then propose with --ledger."
        )
    paying = Ledger.open(ledger, read_only=True)
    same_unit(proposal, paying.unit)
    if paying.state().spent == 0:  # later, answers are remembered, and what they cost is known when they are asked
        labels = Repeated(mechanism.event_of_one(classes, proposal.unit, simulated=False), queries)
        paying.require(Composed((labels, proposal.event())), 1)


def released_once(mechanism: Mechanism, votes: VoteHistogram, answered: npt.NDArray[np.bool_] | None) -> Accountant:
    """Return every query released once; of a mechanism with a check, those answered that were.

    Parameters
    ----------
    mechanism : Mechanism
        How.
    votes : VoteHistogram
        Votes, one row per query.
    answered : boolean array of shape (queries,), optional
        Which got an answer; by default all did.
    """
    accountant = Accountant()
    for part in flatten(mechanism.event_of_one(votes.n_classes, votes.unit, simulated=False)):
        if isinstance(part.event, ConfidenceCheck) or answered is None:
            accountant.add(Repeated(part.event, votes.n_queries), votes)
        else:
            kept = votes.select(answered)
            accountant.add(Repeated(part.event, kept.n_queries), kept, at_most=votes.n_queries)
    return accountant


def tested(settings: RunConfig, model: PATEClassifier, proposal: Proposal, rows: Matrix) -> Publication:
    """Return what may be claimed of a run's labels after the test, drawn through the ledger.

    Parameters
    ----------
    settings : RunConfig
        The run.
    model : PATEClassifier
        Fitted by it.
    proposal : Proposal
        Fixed before it.
    rows : array of shape (queries, features)
        The public rows that were asked.

    Raises
    ------
    ConfigError
        If an earlier run released the labels, perhaps by other teachers, and did not test this proposal.
    """
    ledger = Ledger.open(settings.ledger)
    released = released_once(settings.mechanism, model.votes_, model.release_.answered)
    question = str(model.question)
    found = recalled_publication(released, ledger, proposal, rows, question=question)
    if found is not None:
        return found
    charged = max((part.times for part in flatten(model.release_.event)), default=0)
    if charged < len(set(ledger.query_hashes({}, rows))):
        raise ConfigError(
            "`proposal` in [privacy] cannot be tested: an earlier run released these labels, perhaps by other "
            "teachers. Leave it out."
        )
    return publish_epsilon(released, ledger, proposal, rows, question=question)


def same_unit(proposal: Proposal, unit: PrivacyUnit) -> None:
    """Refuse a proposal for another unit of privacy than what it is to be tested on.

    Raises
    ------
    ConfigError
        If they differ.
    """
    if proposal.unit != unit:
        raise ConfigError(
            f"The proposal protects {proposal.unit.name} ({proposal.unit.neighboring}), the ledger {unit.name} "
            f"({unit.neighboring}). Propose anew with --ledger."
        )
