"""What the computing parties agree on before they compute: whose votes, and that they are those of the first time."""

import json
import secrets
from typing import Any, NamedTuple

from tutelage.exceptions import ForgedMessageError, StaleBatchError
from tutelage.federation.members.consortium import Consortium
from tutelage.federation.messages.batches import Batch
from tutelage.federation.sharing import PARTIES
from tutelage.ledger.entries import canonical

AGREED = "entities.json"


class EntityShares(NamedTuple):
    """One entity's shares as one party holds them; private to it."""

    split: str
    blocks: Any  # object array (blocks, queries, classes) of residues
    digest: str


Pins = dict[str, list[str]]  # by entity: the name of its splitting, and the hash of each party's shares of it


def files_of(pins: Pins) -> dict[str, bytes]:
    """Return the file in which a party keeps what a batch was begun with."""
    return {AGREED: plain(pins)}


def pins_in(kept: dict[str, bytes] | None) -> Pins | None:
    """Return what `files_of` wrote, or None where nothing was kept."""
    return None if kept is None else json.loads(kept[AGREED])


def plain(content: object) -> bytes:
    """Return plain values in their one spelling."""
    return canonical(content).encode()


def statement_of(consortium: Consortium, batch: Batch, held: dict[str, EntityShares], begun: Pins | None) -> bytes:
    """Return what a party tells the others of what it holds; public, for shares and so their hashes are random."""
    content = {
        "consortium": consortium.fingerprint,
        "batch": batch.identifier,
        "queries": batch.query_hash,
        "nonce": secrets.token_hex(16),
        "held": {name: [shares.split, shares.digest] for name, shares in held.items()},
        "begun": begun,
    }
    return plain(content)


def read_statement(message: bytes) -> dict[str, Any]:
    """Return what a party says it holds, if it is in the form in which parties say it."""
    try:
        found = json.loads(message)
        words = [found[name] for name in ("consortium", "batch", "queries", "nonce")]
        words += [word for pair in found["held"].values() for word in pair]
        words += [word for pin in (found["begun"] or {}).values() for word in pin]
        lengths = {len(pair) for pair in found["held"].values()} <= {2}
        lengths &= {len(pin) for pin in (found["begun"] or {}).values()} <= {1 + PARTIES}
        remembers = found["begun"] is None or bool(found["begun"])  # a batch is begun with somebody's votes
        if lengths and remembers and all(isinstance(word, str) for word in words):
            return found
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    raise ForgedMessageError("A computing party's statement is not in the form in which this version writes it.")


def agreed_pins(statements: list[dict[str, Any]]) -> Pins:
    """Return the entities to compute with, and the shares of each that every party must use.

    They are those once begun with, as any one party remembers them, or those of which all parties hold one splitting.
    """
    if any(len({statement[name] for statement in statements}) > 1 for name in ("consortium", "batch", "queries")):
        raise StaleBatchError("The computing parties are not at the same batch of the same consortium.")
    begun = [statement["begun"] for statement in statements if statement["begun"] is not None]
    if any(other != begun[0] for other in begun):
        raise StaleBatchError("The computing parties have begun this batch with different votes. Ask it anew.")
    held = [statement["held"] for statement in statements]
    if not begun:
        return _held_by_all(held)
    for place, mine in enumerate(held):
        if any(mine.get(name) != [pin[0], pin[1 + place]] for name, pin in begun[0].items()):
            raise StaleBatchError(
                "This batch was begun with votes that are no longer in the mailbox of every party as they were. "
                "Restore them; a batch is never computed twice with different votes."
            )
    return begun[0]


def _held_by_all(held: list[dict[str, list[str]]]) -> Pins:
    names = sorted(set(held[0]).intersection(*held[1:]))
    pairs = {name: [mine[name] for mine in held] for name in names}
    return {
        name: [found[0][0], *(digest for _, digest in found)]
        for name, found in pairs.items()
        if len({split for split, _ in found}) == 1
    }
