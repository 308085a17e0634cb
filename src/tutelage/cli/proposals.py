"""A proposal of ``tutelage publish propose`` in a run: read before anything is spent, tested once labels are out."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from tutelage.accounting import Accountant, Proposal
from tutelage.accounting.data_independent import flatten
from tutelage.events import Composed, ConfidenceCheck, Repeated
from tutelage.exceptions import ConfigError
from tutelage.ledger import Ledger
from tutelage.mechanisms import InteractiveGNMax, Mechanism
from tutelage.neighboring import PrivacyUnit
from tutelage.publishing import Publication, publish_epsilon
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


def tested(
    proposal: Proposal, mechanism: Mechanism, votes: VoteHistogram, answered: npt.NDArray[np.bool_], ledger: Path
) -> Publication:
    """Return what may be claimed of a run's labels after the test, drawn through the ledger.

    Parameters
    ----------
    proposal : Proposal
        Fixed before the run.
    mechanism : Mechanism
        How the labels were released.
    votes : VoteHistogram
        The private votes behind them.
    answered : boolean array of shape (queries,)
        Which queries got a label.
    ledger : path
        The ledger that paid.
    """
    return publish_epsilon(released_once(mechanism, votes, answered), Ledger.open(ledger), proposal)


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
