"""Read a whole ledger and believe none of it: every hash, every sum, every answer.

The chain of hashes detects edits, gaps, reordering and entries removed from the middle. A head kept elsewhere also
detects removed last entries, an older copy in place of the file, and a chain that an attacker computed again.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from tutelage.accounting.filter import Filter, filter_of
from tutelage.events import (
    CappedArgmaxGaussian,
    Event,
    Repeated,
    event_from_dict,
)
from tutelage.exceptions import LedgerTamperedError, TutelageError
from tutelage.ledger.answers import (
    Vector,
    all_kept,
    answers_in,
    breach_of,
    digest_of,
    read_labels,
    stored,
    vector_of,
)
from tutelage.ledger.campaigns import digest_of_votes
from tutelage.ledger.entries import EVERYBODY, Checkpoint, Entry, Kind
from tutelage.ledger.people import cohorts, digest_of_people, digest_of_withdrawn
from tutelage.ledger.transaction import Transaction
from tutelage.privacy import PrivacyUnit

_HASH_BYTES = 32
_INTENTS = ((str, float), (str, type(None)))  # name and noise
_SLACK = 1 - 1e-6  # costs come out the same to more digits than this on every machine


def terms_of(opening: Entry, key: bytes) -> tuple[Filter, PrivacyUnit]:
    """Return the budget and whom it protects, once the first entry is found to be possible and to name this key."""
    content = opening.content
    try:
        unit = PrivacyUnit.from_dict(content["unit"])
        limit = filter_of(content)
        capacity, commitment = _whole(content["capacity"]), content["key"]
    except (KeyError, TypeError, ValueError, AttributeError, TutelageError):
        raise LedgerTamperedError(
            "Entry 0 is not in the form in which entries are written."
        ) from None
    if not _SLACK <= capacity / limit.capacity <= 1 / _SLACK:
        raise LedgerTamperedError("The budget does not hold what its epsilon and delta allow.")
    if hashlib.sha256(key).hexdigest() != commitment:
        raise LedgerTamperedError("The ledger's key is not the one it was made with.")
    return limit, unit


def verified(read: Transaction, *, head: str | None = None) -> Checkpoint:
    """Return the sums over a ledger's entries, once all of it is found right: structure, entries, answers, costs."""
    # In which an index disagrees, for example.
    if read.run("PRAGMA integrity_check").fetchall() != [("ok",)]:
        raise LedgerTamperedError("The ledger's file is damaged. Restore a copy that verifies.")
    read.check_schema()
    opening = read.opening()
    book = _Book(*terms_of(opening, read.key()), opening.content["capacity"])
    found_head = head is None
    for entry, settles in read.entries():
        book.add(entry, settles)
        found_head |= entry.hash.hex() == head
    if not found_head:
        raise LedgerTamperedError(
            "The ledger does not hold the entry with that hash: it was cut off, replaced by an older copy or another "
            "ledger, or rewritten."
        )
    if all_kept(read) != book.kept:
        raise LedgerTamperedError("A map that the ledger keeps was changed.")
    digests = {"votes": digest_of_votes(read), "people": digest_of_people(read)}
    sums = replace(book.sums, **digests, withdrawn=digest_of_withdrawn(read))
    if not set(cohorts(read).values()) <= {EVERYBODY, *sums.releases}:
        raise LedgerTamperedError("The ledger has people of a cohort that no entry names.")
    if book.check_answers(stored(read)) != sums.answers or read.checkpoint() != sums:
        raise LedgerTamperedError("The ledger's checkpoint does not add up with its entries.")
    return sums


class _Book:
    """The sums of a ledger, kept entry by entry."""

    def __init__(self, limit: Filter, unit: PrivacyUnit, capacity: int) -> None:
        self.filter: Filter = limit
        self.unit, self.capacity = unit, capacity
        self.sums = Checkpoint("")
        # With the number of queries and their cost.
        self.reserved = dict[int, tuple[Event, int, int, Vector | None]]()
        self.release_of = dict[int, str | None]()  # of reservations
        self.settled = dict[int, dict[str, Any]]()
        self.kept = dict[str, str]()  # digests, by name

    def add(self, entry: Entry, settles: int | None) -> None:
        """Take in the next entry, or raise."""
        try:
            if (entry.number == 0) != (entry.kind is Kind.OPENED):
                raise LedgerTamperedError(
                    "A ledger must have its budget in its first entry, and in no other."
                )
            self._check(entry)
            self.sums = self.sums.after(entry)
            spent = max(self.sums.accounts.values(), default=0)
            if (
                settles != entry.content.get("reservation")
                or not entry.spent == spent <= self.capacity
            ):
                raise LedgerTamperedError(
                    f"Entry {entry.number} does not add up with those before it."
                )
        except LedgerTamperedError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError, TutelageError):
            raise LedgerTamperedError(
                f"Entry {entry.number} is not in the form in which entries are written."
            ) from None

    def check_answers(self, answers: Iterable[tuple[int, bytes, str]]) -> int:
        """Compare the answers with the digests that their entries hold, and return how many there are."""
        stored: dict[int, list[tuple[bytes, str]]] = defaultdict(list)
        given: dict[int, list[int | None]] = defaultdict(list)
        for reservation, query, labels in answers:
            if type(query) is not bytes or len(query) != _HASH_BYTES or type(labels) is not str:
                raise LedgerTamperedError(
                    "A remembered answer is not in the form in which answers are written."
                )
            stored[reservation].append((query, labels))
            vector = self.reserved[reservation][3] if reservation in self.reserved else None
            given[reservation].append(answers_in(read_labels(labels), vector))
        for reservation, entry in self.settled.items():
            found = stored[reservation]
            if digest_of(found) != entry["digest"] or len(found) != entry["answers"]:
                raise LedgerTamperedError(
                    f"The remembered answers of entry {reservation} were changed."
                )
            event, queries, *_ = self.reserved[reservation]
            breach = breach_of(
                event, queries, event_from_dict(entry["happened"]), given[reservation]
            )
            if breach is not None or (
                len(found) > queries and not isinstance(event, CappedArgmaxGaussian)
            ):
                raise LedgerTamperedError(
                    f"The labels of entry {reservation} are not those that it recorded."
                )
        if set(stored) - set(self.settled):
            raise LedgerTamperedError("There are remembered answers that no entry accounts for.")
        return sum(map(len, stored.values()))

    def _check(self, entry: Entry) -> None:
        """Refuse an entry that cannot follow those before it."""
        release = entry.content.get("release")
        match entry.kind:
            case Kind.RESERVED:
                self._check_reserved(entry, release)
            case Kind.ANSWERED:
                number, refund = (
                    _whole(entry.content["reservation"]),
                    _whole(entry.content["refund"]),
                )
                cost, happened = (
                    self.reserved[number][2],
                    event_from_dict(entry.content["happened"]),
                )
                _whole(entry.content["answers"])
                if number in self.settled or refund > cost or release != self.release_of[number]:
                    raise LedgerTamperedError(
                        f"Entry {entry.number} gives back more than was reserved."
                    )
                if cost - refund < _SLACK * self.filter.cost(happened):
                    raise LedgerTamperedError(
                        f"Entry {entry.number} charges less than its answers cost."
                    )
                self.settled[number] = entry.content
            case Kind.BOUND if type(entry.content["fingerprint"]) is not str:
                raise TypeError
            case Kind.INTENDED if (
                tuple(map(type, (entry.content["about"], entry.content["noise"]))) not in _INTENTS
            ):
                raise TypeError
            case Kind.INTENDED if release is not None:
                cohorts, known = entry.content["cohorts"], {*self.sums.releases, release}
                if type(entry.content["question"]) is not str or len(set(cohorts)) < len(cohorts):
                    raise TypeError
                new = release not in self.sums.releases and not self.sums.spent(None)
                if not new or release not in cohorts or not known >= set(cohorts):
                    raise LedgerTamperedError(
                        f"Entry {entry.number} names cohorts that do not exist."
                    )
            case Kind.KEPT if (
                type(entry.content["name"]) is not str or entry.content["name"] in self.kept
            ):
                raise TypeError
            case Kind.KEPT:
                self.kept[entry.content["name"]] = entry.content["content"]
            case Kind.RELEASED if type(entry.content["manifest"]) is not str:
                raise TypeError
            case Kind.PROPOSED if self.sums.asked or type(entry.content["proposal"]) is not dict:
                raise LedgerTamperedError(
                    f"Entry {entry.number} is a proposal that was made after a label."
                )
            case Kind.RAISED:
                self._check_raised(entry)
            case Kind.OPENED | Kind.BOUND | Kind.INTENDED | Kind.PROPOSED | Kind.RELEASED:
                pass

    def _check_raised(self, entry: Entry) -> None:
        """Refuse a budget that did not grow from the one before it by the rule, and keep to it from now on."""
        content, before = entry.content, self.filter
        if any(type(content[name]) is not str for name in ("by", "why", "written")):
            raise TypeError
        now, capacity = before.raised(content["epsilon"]), _whole(content["capacity"])
        stated = content["before"], content["epsilon"], content["delta"]
        if (
            stated != (before.epsilon, now.epsilon, now.delta)
            or not _SLACK <= capacity / now.capacity <= 1 / _SLACK
        ):
            raise LedgerTamperedError(
                f"Entry {entry.number} does not raise the budget by what its epsilon allows."
            )
        self.filter, self.capacity = now, capacity

    def _check_reserved(self, entry: Entry, release: str | None) -> None:
        event = event_from_dict(entry.content["event"])
        queries, cost = _whole(entry.content["queries"]), _whole(entry.content["cost"])
        if any(part.event.unit != self.unit for part in event.flatten()):
            raise LedgerTamperedError(
                f"Entry {entry.number} is about another unit than the ledger's."
            )
        if "campaign" in entry.content:
            self._check_campaign(entry, event)
        elif queries < 1:
            raise LedgerTamperedError(f"Entry {entry.number} reserves no query.")
        if (release is None) == self.sums.in_cohorts:
            raise LedgerTamperedError(f"Entry {entry.number} does not say whose budget it spends.")
        self.reserved[entry.number] = event, queries, cost, vector_of(event)
        self.release_of[entry.number] = release
        if cost < _SLACK * self.filter.cost(Repeated(event, queries)):
            raise LedgerTamperedError(f"Entry {entry.number} charges less than its queries cost.")

    def _check_campaign(self, entry: Entry, event: Event) -> None:
        """Refuse a batch that spends nothing unless an earlier entry spent the budget of its capped votes."""
        number, free = (
            _whole(entry.content["campaign"]),
            (entry.content["queries"], entry.content["cost"]),
        )
        capped = isinstance(event, CappedArgmaxGaussian)
        begun, queries, *_ = self.reserved[number]
        ours = self.release_of[number] == entry.content.get("release")
        # A reservation that paid for its own labels, or still may, pays for no others.
        paid = queries if self.settled[number]["answers"] == 0 else 0
        if not (capped and ours) or begun != event or paid < 1 or free != (0, 0):
            raise LedgerTamperedError(
                f"Entry {entry.number} does not belong to the campaign that it names."
            )


def _whole(value: object) -> int:
    """Return a stored whole number that may not be negative; anything else, True and 2.0 included, is not one."""
    if type(value) is not int or value < 0:
        raise TypeError
    return value
