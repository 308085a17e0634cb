"""What a settled batch must keep to, in `Ledger.settle` and in `verify`."""

import hashlib
from typing import final

from tutelage.events import Check, Event, InteractiveCheck, Repeated, counted


def breach_of(reserved: Event, queries: int, happened: Event, given: int) -> str | None:
    """Return what a batch that "the mechanism …" reports does not keep to, or None.

    Every check that was reserved is run, nothing more than was reserved is, and answers are given back only where a
    check stood before them, and only as many as there are queries without a label.
    """
    allowed, ran = counted([Repeated(reserved, queries)]), counted([happened])
    if ran - allowed:
        return "ran more than it had announced"
    checks = [event for event in allowed if isinstance(event.without_shares(), Check)]
    if any(ran[event] != allowed[event] for event in checks) or (not checks and ran != allowed):
        return "reports fewer checks, or fewer answers without a check, than it had announced"
    answers = sum(times for event, times in ran.items() if not isinstance(event.without_shares(), Check))
    # Where a student is confirmed, some labels are its own.
    confirms = any(isinstance(event.without_shares(), InteractiveCheck) for event in checks)
    if given > answers and not confirms:
        return "gives more labels than it reports answers"
    return None


@final
class AnswerDigest:
    """A digest of the answers of one batch, in the order of their queries' hashes."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def add(self, query: bytes, labels: str) -> None:
        """Take in one answer."""
        text = labels.encode()
        self._digest.update(len(query).to_bytes(8, "big") + query + len(text).to_bytes(8, "big") + text)

    def hexdigest(self) -> str:
        """Return the digest of the answers so far."""
        return self._digest.hexdigest()
