"""A proposal or plan as an entry of the ledger, made before its first label: its order and every other number fixed."""

import json
from typing import Any

from tutelage.accounting import Proposal, SmoothPlan
from tutelage.exceptions import LedgerMismatchError
from tutelage.ledger import Ledger
from tutelage.publishing.earlier import check_share

TESTED, NOISED = "proposal", "smooth-plan"


def record(road: Proposal | SmoothPlan, ledger: Ledger) -> None:
    """Record a proposal or plan in the ledger that will pay for the labels; recording it again changes nothing.

    Parameters
    ----------
    road : Proposal or SmoothPlan
        From `propose`, `plan_smooth_release` or `choose_release` on public votes.
    ledger : Ledger
        Nothing was asked through it yet.

    Raises
    ------
    LateProposalError
        If a label of the ledger was reserved before.
    LedgerMismatchError
        If the proposal and the ledger have different units of privacy.
    PublicationsExhaustedError
        If the ledger's δ has no room for that of the proposal.
    """
    if road.unit != ledger.unit:
        raise LedgerMismatchError(
            f"The proposal protects {road.unit.name} ({road.unit.neighboring}), the ledger {ledger.unit.name} "
            f"({ledger.unit.neighboring}). Propose again for the unit of the ledger."
        )
    check_share(ledger, road.delta)
    ledger.record_proposal(record_of(road))


def record_of(road: Proposal | SmoothPlan) -> dict[str, Any]:
    """Return the plain values by which a proposal or plan is recorded."""
    kind = TESTED if isinstance(road, Proposal) else NOISED
    return json.loads(json.dumps({"kind": kind, **road.as_dict()}))


def proposal_of(recorded: dict[str, Any]) -> Proposal:
    """Return the proposal that `record_of` was made of; its ε is proved again.

    Raises
    ------
    InvalidParameterError
        If the record is not one of a proposal.
    """
    return Proposal.from_json(json.dumps(recorded))


def check_recorded(road: Proposal | SmoothPlan, ledger: Ledger) -> None:
    """Refuse a proposal or plan that the ledger does not hold: labels could have shaped it.

    Raises
    ------
    LedgerMismatchError
        If it does not.
    """
    if record_of(road) not in ledger.proposals():
        raise LedgerMismatchError(
            "The ledger does not hold this proposal, and one that was not recorded before the first label may have "
            "been shaped by labels. Record it with `tutelage.publishing.record`, or `tutelage publish propose "
            "--ledger`, before the first label is asked for; publish the worst-case epsilon of these labels."
        )
