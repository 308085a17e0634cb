"""Budgets that the people of a hospital's table have already: in other homes, and in ledgers nearby; private."""

from pathlib import Path

from tutelage.federation.invites import Invite, Place
from tutelage.ledger import Ledger
from tutelage.ledger.search import ledgers_in
from tutelage.partition import canonical_ids
from tutelage.tables import read_table


def earlier_budgets(data: Path, person: str | None, near: Path, invite: Invite) -> list[Ledger]:
    """Return the ledgers beside a table, beside a new home, and in homes there, in which people of the table have part.

    Other members of the consortium of the `invite` have other people, even if ids are the same. Releases without names,
    of other people than exactly these, cannot be told: see `Ledger.knows`.
    """
    people = _people_in(data, person)
    paths = {path.resolve() for folder in (data.parent, near) for path in ledgers_in(folder)}
    found = list[Ledger]()
    for path in sorted(paths):
        ledger = Ledger.open(path, read_only=True)
        if not _is_of_another(ledger, path, invite) and _has_some(ledger, path, data, people):
            found.append(ledger)
    return found


def _people_in(data: Path, person: str | None) -> set[str]:
    """Return the ids in a table; without ids, the table."""
    if person is None:
        return {str(data)}
    ids = [text for text in read_table(data).texts(person) if text.strip("\0").strip()]
    return {*canonical_ids(ids).tolist()}


def _is_of_another(ledger: Ledger, path: Path, invite: Invite) -> bool:
    """Return whether a ledger is in the home of another member of the consortium of an invite."""
    if ledger.owner in (None, invite.name) or not Place.is_in(path.parent):
        return False
    return Place.load(path.parent).terms.get("identifier") == invite.terms.get("identifier")


def _has_some(ledger: Ledger, path: Path, data: Path, people: set[str]) -> bool:
    """Return whether some of these people have a budget in a ledger."""
    known = ledger.knows(sorted(people))
    if known is not None:
        return bool(known.any())
    if not Place.is_in(path.parent):
        return path.name == f"{data.name}.ledger"
    place = Place.load(path.parent)
    if place.data is None:  # of a coordinator
        return False
    other = Path(place.data)
    return other == data or not other.exists() or not people.isdisjoint(_people_in(other, place.id))
