"""Budgets that the people of a hospital's table have already: in other homes, and in ledgers nearby; private."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tutelage.exceptions import LedgerError
from tutelage.ledger import Ledger
from tutelage.ledger.search import ledgers_in
from tutelage_consortium.invites import Invite, Place


def earlier_budgets(
    data: Path,
    people: Sequence[str],
    near: Path,
    invite: Invite,
) -> list[Ledger]:
    """Return the ledgers beside a table, beside a new home, and in homes there, that know people of the table.

    Other members of the consortium of the `invite` have other people, even if ids are the same. A ledger that cannot
    tell is one of the table if it is named after it: see `Register.knows` of a ledger.
    """
    found = list[Ledger]()
    for path in sorted({*ledgers_in(data.parent), *ledgers_in(near)}):
        with suppress(LedgerError):  # one that cannot be read
            ledger = Ledger.open(path, read_only=True)
            known = ledger.register.knows(people)
            has_some = path.name == f"{data.name}.ledger" if known is None else known.any()
            if has_some and not _is_of_another(ledger, path.parent, invite):
                found.append(ledger)
    return found


def _is_of_another(ledger: Ledger, home: Path, invite: Invite) -> bool:
    """Return whether a ledger is in the home of another member of the consortium of an invite."""
    if ledger.owner in (None, invite.name) or not Place.is_in(home):
        return False
    return Place.load(home).terms.get("identifier") == invite.terms.get("identifier")
