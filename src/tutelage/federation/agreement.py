"""What the computing parties agree on before they compute: whose votes, and that they are those of the first time."""

import json
import secrets
from typing import Any, NamedTuple

from tutelage.exceptions import ForgedMessageError, StaleBatchError
from tutelage.federation.members.consortium import Consortium
from tutelage.federation.messages.batches import Batch
from tutelage.ledger.entries import canonical

AGREED = "entities.json"


class EntityShares(NamedTuple):
    """One entity's shares as one party holds them; private to it."""

    split: str
    blocks: Any  # object array (blocks, queries, classes) of residues
    digest: str


class Begun(NamedTuple):
    """What a computation of a batch is bound to from its first time on: whose splittings, and which shares of them."""

    splits: dict[str, str]
    digests: dict[str, str]

    @classmethod
    def read(cls, kept: dict[str, bytes] | None) -> "Begun | None":
        """Return what `files` wrote."""
        return None if kept is None else cls(**json.loads(kept[AGREED]))

    def files(self) -> dict[str, bytes]:
        """Return what is to be kept."""
        return {AGREED: plain(self._asdict())}


def plain(content: object) -> bytes:
    """Return plain values in their one spelling."""
    return canonical(content).encode()


def statement_of(consortium: Consortium, batch: Batch, held: dict[str, EntityShares], begun: Begun | None) -> bytes:
    """Return what a party tells the others of what it holds; public.

    Parameters
    ----------
    consortium : Consortium
        The terms it computes under.
    batch : Batch
        The queries.
    held : dict of str to EntityShares
        What it can use, by entity.
    begun : Begun or None
        What it used the first time.
    """
    # The name of a splitting is the entity's word; what this party used of it the first time is what it must find.
    used = {} if begun is None else begun.digests
    content = {
        "consortium": consortium.fingerprint,
        "batch": batch.identifier,
        "queries": batch.query_hash,
        "nonce": secrets.token_hex(16),
        "held": {name: shares.split for name, shares in held.items()},
        "begun": None if begun is None else begun.splits,
        "intact": all(name in held and held[name].digest == digest for name, digest in used.items()),
    }
    return plain(content)


def read_statement(message: bytes) -> dict[str, Any]:
    """Return what a party says it holds, if it is in the form in which parties say it.

    Raises
    ------
    ForgedMessageError
        If it is not.
    """
    try:
        found = json.loads(message)
        parts = [found["held"], {} if found["begun"] is None else found["begun"]]
        fits = all(isinstance(name, str) and isinstance(part[name], str) for part in parts for name in part)
        if fits and isinstance(found["nonce"], str) and isinstance(found["intact"], bool):
            return found
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    raise ForgedMessageError("A computing party's statement is not in the form in which this version writes it.")


def agreed_splits(statements: list[dict[str, Any]]) -> tuple[dict[str, str], bool]:
    """Return the splitting of each entity to compute with, and whether an earlier computation fixed them.

    They are those once begun with, or those that all parties hold.

    Raises
    ------
    StaleBatchError
        If the parties are not at the same batch, have begun with different votes, or one of them no longer has what it
        began with.
    """
    if any(len({statement[name] for statement in statements}) > 1 for name in ("consortium", "batch", "queries")):
        raise StaleBatchError("The computing parties are not at the same batch of the same consortium.")
    begun = [statement["begun"] for statement in statements if statement["begun"] is not None]
    if any(other != begun[0] for other in begun):
        raise StaleBatchError("The computing parties have begun this batch with different votes. Ask it anew.")
    splits = begun[0] if begun else _held_by_all([statement["held"] for statement in statements])
    if not all(statement["intact"] and _holds(statement["held"], splits) for statement in statements):
        raise StaleBatchError(
            "This batch was begun with votes that are no longer in the mailbox of every party as they were. Restore "
            "them; a batch is never computed twice with different votes."
        )
    return splits, bool(begun)


def _held_by_all(held: list[dict[str, str]]) -> dict[str, str]:
    first, *others = held
    return {
        name: split for name, split in sorted(first.items()) if all(_holds(other, {name: split}) for other in others)
    }


def _holds(held: dict[str, str], splits: dict[str, str]) -> bool:
    return all(held.get(name) == split for name, split in splits.items())
