"""The ledger that a batch is spent from, and its name there: never the ledger of another member."""

from tutelage.exceptions import LedgerMismatchError
from tutelage.federation.batches import Batch
from tutelage.federation.consortium import Consortium
from tutelage.federation.keys import Member
from tutelage.ledger import Ledger
from tutelage.ledger.ledger import Reservation


def owner_name(member: Member) -> str:
    """Return how a ledger names the member that it belongs to: the fingerprint of its public keys, without spaces."""
    return member.fingerprint.replace(" ", "")


def require_own(ledger: Ledger, consortium: Consortium, member: Member, *, keys_changed: bool) -> None:
    """Refuse a ledger that protects another unit than the terms, or that belongs to another member.

    A ledger that names no owner becomes that of the first payer.
    """
    if ledger.unit != consortium.unit:
        raise LedgerMismatchError(f"The ledger protects one {ledger.unit}, the consortium one {consortium.unit}.")
    own = owner_name(member)
    if keys_changed or ledger.owner == own:
        return
    batches = (charge.reserved.content.get("batch", "").split("/") for charge in reversed(ledger.history().charges))
    owner = next((parts[3] for parts in batches if len(parts) == 4), ledger.owner)
    if owner not in (None, own):
        names = {owner_name(each): each.name for each in consortium.members}
        whose = names.get(owner, f"the member with the fingerprint {owner}")
        raise LedgerMismatchError(
            f"{ledger.path or 'The ledger in memory'} is the ledger of {whose}, not of {member.name}. Nothing was "
            f"spent. Name the ledger of {member.name}; if this is the one and {member.name} has made new keys since, "
            "add --keys-changed (`keys_changed=True`)."
        )


def reserved(ledger: Ledger, consortium: Consortium, batch: Batch, member: Member) -> Reservation | None:
    """Return what `reserve` spent on a batch for this member, or None."""
    return ledger.reserved_for(_name(consortium, batch, member))


def reserve(ledger: Ledger, consortium: Consortium, batch: Batch, member: Member, queries: int) -> Reservation:
    """Spend what the first `queries` queries of a batch cost at most, once, however often it is called."""
    return ledger.reserve(consortium.scheme.event_of(batch), queries, batch=_name(consortium, batch, member))


def _name(consortium: Consortium, batch: Batch, member: Member) -> str:
    """Return what a ledger calls a batch: terms and rows are in it, so that no other batch is ever taken for it."""
    return f"{consortium.fingerprint}/{batch.identifier}/{batch.query_hash}/{owner_name(member)}"
