"""The people of a ledger, which its file alone knows: in which release each came first, and who withdrew.

A person belongs to the cohort of the release in which the id first appears, and stays there. Cohorts have no person in
common, so each has the whole budget of the ledger. Entries name cohorts, never people, and do not show who came.
"""

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import replace

from tutelage.exceptions import InvalidParameterError, LedgerTamperedError
from tutelage.ledger.transaction import Transaction, digest_of_rows

UNNAMED = ""  # instead of an id, of which none is empty: the people of releases that gave none
_PEOPLE = "SELECT person, cohort FROM people ORDER BY person"
_WITHDRAWN = "SELECT person, day FROM withdrawn ORDER BY person"


def require_release_name(release: str) -> None:
    """Refuse a name of a release that cannot be written down or read."""
    if not release.strip() or not release.isprintable():
        raise InvalidParameterError(
            "release", "be printable text that is not blank, such as '2026-02'"
        )


def key_of(key: bytes, person: str) -> bytes:
    """Return the keyed hash by which the ledger knows a person."""
    return hmac.digest(key, b"person " + person.encode("utf-8", "surrogatepass"), hashlib.sha256)


def cohorts(read: Transaction) -> dict[bytes, str]:
    """Return the cohort of each person, by a keyed hash of the id; private. Refuse people who were changed."""
    if digest_of_people(read) != read.checkpoint().people:
        raise LedgerTamperedError(
            "The people of the cohorts were changed in the ledger's file. Restore a copy that verifies: without "
            "some of them, people would spend a second budget."
        )
    return dict(read.run(_PEOPLE))


def add_people(write: Transaction, people: Iterable[bytes], cohort: str) -> None:
    """Add people who came with a release, and seal them: no entry need follow. No cohort loses anyone."""
    write.connection.executemany(
        "INSERT INTO people VALUES (?, ?) ON CONFLICT DO UPDATE SET cohort = excluded.cohort WHERE cohort = ''",
        ((one, cohort) for one in people),
    )
    write.seal(replace(write.checkpoint(), people=digest_of_people(write)))


def digest_of_people(read: Transaction) -> str:
    """Return a digest of all people and their cohorts; empty where there are none."""
    return digest_of_rows(read.run(_PEOPLE))


def withdrawn(read: Transaction) -> dict[bytes, str]:
    """Return who withdrew, by a keyed hash of the id, and on which day; private. Refuse people who were changed."""
    if digest_of_withdrawn(read) != read.checkpoint().withdrawn:
        raise LedgerTamperedError(
            "The people who withdrew were changed in the ledger's file. Restore a copy that verifies: without some "
            "of them, their rows would be used again."
        )
    return dict(read.run(_WITHDRAWN))


def withdraw(write: Transaction, people: Iterable[bytes], day: str) -> None:
    """Write down people who withdrew, unless they had, and seal them: no entry follows."""
    withdrawn(write)  # not those that somebody else wrote
    write.connection.executemany(
        "INSERT OR IGNORE INTO withdrawn VALUES (?, ?)", ((one, day) for one in people)
    )
    write.seal(replace(write.checkpoint(), withdrawn=digest_of_withdrawn(write)))


def digest_of_withdrawn(read: Transaction) -> str:
    """Return a digest of all people who withdrew, with the days; empty where there are none."""
    return digest_of_rows(read.run(_WITHDRAWN))
