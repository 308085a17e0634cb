"""Cohorts: whose budget a release with a name spends, which the owner's file alone knows of each person.

A person belongs to the cohort of the release in which the id first appears, and stays there. Cohorts have no person in
common, so each has the whole budget of the ledger. Entries name cohorts, never people, and do not show who came.
"""

import hashlib
import hmac
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, final

from tutelage._internal.typing import NeverPickled
from tutelage.exceptions import InvalidParameterError, LedgerMismatchError, Problem
from tutelage.ledger.store import Transaction


def require_release_name(release: str) -> None:
    """Refuse a name of a release that cannot be written down or read."""
    if not release.strip() or not release.isprintable():
        raise InvalidParameterError(Problem("release", "be printable text that is not blank, such as '2026-02'"))


def cohort_key(key: bytes, person: str) -> bytes:
    """Return the keyed hash by which the ledger knows a person."""
    return hmac.digest(key, b"person " + person.encode("utf-8", "surrogatepass"), hashlib.sha256)


@final
@dataclass(slots=True, eq=False)
class Arrivals(NeverPickled):
    """A release with a name that is about to begin, and the people who came with it; private."""

    release: str
    question: str  # keyed
    cohorts: list[str]  # that take part
    new: Collection[bytes] = field(repr=False)  # people, by `cohort_key`
    before: str = field(repr=False)  # digest of all people by whom these were found to be new
    after: str | None = field(default=None, repr=False)  # and with these

    def written(self, write: Transaction, *, begins: bool) -> dict[str, Any]:
        """Write down the people who came, once, and return what the entry says by which the release `begins`.

        No one may have come in between, nor the release have begun otherwise, nor one without a name: by these it was
        decided who takes part.
        """
        sums = write.checkpoint()
        begun = sums.releases.get(self.release)
        same = begun is None if begins else begun == self.cohorts
        if not same or sums.people not in (self.before, self.after) or sums.spent(None):
            raise LedgerMismatchError(
                "Another release through this ledger began at the same time, so nothing was released here. Run this "
                "one again."
            )
        if self.new and sums.people == self.before:
            write.add_people(sorted(self.new), self.release)
            self.after = write.digest_of_people()
        return {"release": self.release, "question": self.question, "cohorts": self.cohorts}
