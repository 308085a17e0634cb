"""Read a whole ledger and believe none of it: every hash, every sum, every answer.

The chain of hashes detects edits, gaps, reordering and entries removed from the middle. A head kept elsewhere also
detects removed last entries, an older copy in place of the file, and a chain that an attacker computed again.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from tutelage._internal.records import Entries
from tutelage.accounting.filter import Filter, filter_of
from tutelage.events import (
    CappedArgmaxGaussian,
    Repeated,
    event_from_dict,
)
from tutelage.exceptions import LedgerTamperedError, TutelageError
from tutelage.ledger.answers import (
    answers_in,
    breach_of,
    digest_of,
    digests_of_kept,
    read_labels,
    stored_answers,
    vector_of,
)
from tutelage.ledger.campaigns import digest_of_votes
from tutelage.ledger.entries import EVERYBODY, Checkpoint, Entry, EntryKind
from tutelage.ledger.people import cohorts, digest_of_people, digest_of_withdrawn
from tutelage.ledger.transaction import Transaction
from tutelage.privacy import PrivacyUnit

_HASH_BYTES = 32

_SLACK = 1 - 1e-6  # costs come out the same to more digits than this on every machine


def terms_of(opening: Entry, key: bytes) -> tuple[Filter, PrivacyUnit]:
    """Return the budget and whom it protects, once the first entry is found to be possible and to name this key."""
    content = opening.content
    try:
        unit = PrivacyUnit.from_dict(content["unit"])
        limit = filter_of(content)
        capacity = _whole(content["capacity"])
        commitment = content["key"]
    except (KeyError, TypeError, ValueError, AttributeError, TutelageError):
        raise LedgerTamperedError(
            "Entry 0 is not in the form in which entries are written."
        ) from None
    if not _SLACK <= capacity / limit.capacity <= 1 / _SLACK:
        raise LedgerTamperedError("The budget does not hold what its epsilon and delta allow.")
    if hashlib.sha256(key).hexdigest() != commitment:
        raise LedgerTamperedError("The ledger's key is not the one it was made with.")
    return limit, unit


def verify_entries(read: Transaction, head: str | None = None) -> None:
    """Refuse a ledger in which anything is wrong: its structure, entries, answers or costs; or without this head."""
    # An index may disagree with its table, for example.
    if read.run("PRAGMA integrity_check").fetchall() != [("ok",)]:
        raise LedgerTamperedError("The ledger's file is damaged. Restore a copy that verifies.")
    read.check_schema()

    opening = read.opening()
    book = _Book(*terms_of(opening, read.key()), opening.content["capacity"])
    wanted = None if head is None else bytes.fromhex(head)
    is_found = wanted is None
    for entry, settles in read.entries():
        book.add(entry, settles)
        is_found |= entry.hash == wanted
    if not is_found:
        raise LedgerTamperedError(
            "The ledger does not hold the entry with that hash: it was cut off, replaced by an older copy or another "
            "ledger, or rewritten."
        )

    if digests_of_kept(read) != book.kept:
        raise LedgerTamperedError("A map that the ledger keeps was changed.")
    sums = replace(
        book.sums,
        votes=digest_of_votes(read),
        people=digest_of_people(read),
        withdrawn=digest_of_withdrawn(read),
    )
    if not set(cohorts(read).values()) <= {EVERYBODY, *sums.releases}:
        raise LedgerTamperedError("The ledger has people of a cohort that no entry names.")
    if book.check_answers(stored_answers(read)) != sums.answers or read.checkpoint() != sums:
        raise LedgerTamperedError("The ledger's checkpoint does not add up with its entries.")


class _Book:
    """The sums of a ledger, kept entry by entry."""

    def __init__(self, limit: Filter, unit: PrivacyUnit, capacity: int) -> None:
        self.filter = limit
        self.unit = unit
        self.capacity = capacity
        self.sums = Checkpoint("")
        self.reserved = dict[int, Entries]()  # contents of reservations, by number
        self.settled = dict[int, Entries]()  # contents of the entries that settled them
        self.kept = dict[str, str]()  # digests, by name

    def add(self, entry: Entry, settles: int | None) -> None:
        """Take in the next entry, or raise."""
        if (entry.number == 0) != (entry.kind is EntryKind.OPENED):
            raise LedgerTamperedError(
                "A ledger must have its budget in its first entry, and in no other."
            )
        try:
            self._check(entry)
            self.sums = self.sums.after(entry)
            spent = max(self.sums.accounts.values(), default=0)
        except LedgerTamperedError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError, TutelageError):
            raise LedgerTamperedError(
                f"Entry {entry.number} is not in the form in which entries are written."
            ) from None
        if settles != entry.content.get("reservation") or not entry.spent == spent <= self.capacity:
            raise LedgerTamperedError(f"Entry {entry.number} does not add up with those before it.")

    def check_answers(self, answers: Iterable[tuple[int, bytes, str]]) -> int:
        """Compare the answers with the digests that their entries hold, and return how many there are."""
        texts: dict[int, list[tuple[bytes, str]]] = defaultdict(list)
        for reservation, query, text in answers:
            if type(query) is not bytes or len(query) != _HASH_BYTES or type(text) is not str:
                raise LedgerTamperedError(
                    "A remembered answer is not in the form in which answers are written."
                )
            texts[reservation].append((query, text))

        for reservation, content in self.settled.items():
            written = texts[reservation]
            if digest_of(written) != content["digest"] or len(written) != content["answers"]:
                raise LedgerTamperedError(
                    f"The remembered answers of entry {reservation} were changed."
                )
            event = event_from_dict(self.reserved[reservation]["event"])
            queries: int = self.reserved[reservation]["queries"]
            vector = vector_of(event)
            counts = [answers_in(read_labels(text), vector) for _, text in written]
            breach = breach_of(event, queries, event_from_dict(content["happened"]), counts)
            too_many = len(written) > queries and not isinstance(event, CappedArgmaxGaussian)
            if breach is not None or too_many:
                raise LedgerTamperedError(
                    f"The labels of entry {reservation} are not those that it recorded."
                )
        if set(texts) - set(self.settled):
            raise LedgerTamperedError("There are remembered answers that no entry accounts for.")
        return sum(map(len, texts.values()))

    def _check(self, entry: Entry) -> None:
        """Refuse an entry that cannot follow those before it."""
        content = entry.content
        match entry.kind:
            case EntryKind.RESERVED:
                self._check_reserved(entry)
            case EntryKind.ANSWERED:
                self._check_answered(entry)
            case EntryKind.INTENDED:
                self._check_intended(entry)
            case EntryKind.RAISED:
                self._check_raised(entry)
            case EntryKind.BOUND:
                _text(content["fingerprint"])
            case EntryKind.RELEASED:
                _text(content["manifest"])
            case EntryKind.KEPT:
                name = _text(content["name"])
                if name in self.kept:
                    raise TypeError
                self.kept[name] = content["content"]
            case EntryKind.PROPOSED:
                if self.sums.asked or type(content["proposal"]) is not dict:
                    raise LedgerTamperedError(
                        f"Entry {entry.number} is a proposal that was made after a label."
                    )
            case EntryKind.OPENED:
                pass

    def _check_answered(self, entry: Entry) -> None:
        """Refuse to settle what was not reserved, was settled before, or cost more than it is charged for."""
        content = entry.content
        number = _whole(content["reservation"])
        refund = _whole(content["refund"])
        _whole(content["answers"])
        reserved = self.reserved[number]
        happened = event_from_dict(content["happened"])
        is_another = number in self.settled or content.get("release") != reserved.get("release")
        if is_another or refund > reserved["cost"]:
            raise LedgerTamperedError(f"Entry {entry.number} gives back more than was reserved.")
        if reserved["cost"] - refund < _SLACK * self.filter.cost(happened):
            raise LedgerTamperedError(f"Entry {entry.number} charges less than its answers cost.")
        self.settled[number] = content

    def _check_intended(self, entry: Entry) -> None:
        """Refuse a release whose name or noise is of another type, or whose cohorts do not exist."""
        content = entry.content
        _text(content["about"])
        if not isinstance(content["noise"], float | None):
            raise TypeError
        release = content.get("release")
        if release is None:
            return
        _text(content["question"])
        named: list[str] = content["cohorts"]
        if len(set(named)) < len(named):
            raise TypeError
        is_new = release not in self.sums.releases and not self.sums.most_spent(None)
        if not is_new or release not in named or not {*self.sums.releases, release} >= set(named):
            raise LedgerTamperedError(f"Entry {entry.number} names cohorts that do not exist.")

    def _check_raised(self, entry: Entry) -> None:
        """Refuse a budget that did not grow from the one before it by the rule, and keep to it from now on."""
        content = entry.content
        for name in ("by", "why", "written"):
            _text(content[name])
        before = self.filter
        now = before.larger_budget(content["epsilon"])
        capacity = _whole(content["capacity"])
        stated = content["before"], content["epsilon"], content["delta"]
        if (
            stated != (before.epsilon, now.epsilon, now.delta)
            or not _SLACK <= capacity / now.capacity <= 1 / _SLACK
        ):
            raise LedgerTamperedError(
                f"Entry {entry.number} does not raise the budget by what its epsilon allows."
            )
        self.filter = now
        self.capacity = capacity

    def _check_reserved(self, entry: Entry) -> None:
        """Refuse a reservation of another unit, of no query, of no named people, or at less than its cost."""
        content = entry.content
        event = event_from_dict(content["event"])
        queries = _whole(content["queries"])
        cost = _whole(content["cost"])
        if any(part.event.unit != self.unit for part in event.flatten()):
            raise LedgerTamperedError(
                f"Entry {entry.number} is about another unit than the ledger's."
            )
        if "campaign" in content:
            self._check_campaign(entry)
        elif queries < 1:
            raise LedgerTamperedError(f"Entry {entry.number} reserves no query.")
        if (content.get("release") is None) == self.sums.in_cohorts:
            raise LedgerTamperedError(f"Entry {entry.number} does not say whose budget it spends.")
        vector_of(event)  # refuses sums and labels in one batch
        self.reserved[entry.number] = content
        if cost < _SLACK * self.filter.cost(Repeated(event, queries)):
            raise LedgerTamperedError(f"Entry {entry.number} charges less than its queries cost.")

    def _check_campaign(self, entry: Entry) -> None:
        """Refuse a batch that spends nothing unless an earlier entry spent the budget of its capped votes."""
        content = entry.content
        number = _whole(content["campaign"])
        begun = self.reserved[number]
        event = event_from_dict(content["event"])
        is_same = (
            isinstance(event, CappedArgmaxGaussian)
            and event_from_dict(begun["event"]) == event
            and begun.get("release") == content.get("release")
        )
        # A reservation that paid for its own labels, or still may, pays for no others.
        is_paid = begun["queries"] >= 1 and self.settled[number]["answers"] == 0
        if not is_same or not is_paid or content["queries"] != 0 or content["cost"] != 0:
            raise LedgerTamperedError(
                f"Entry {entry.number} does not belong to the campaign that it names."
            )


def _text(value: object) -> str:
    """Return a stored text; anything else is refused."""
    if not isinstance(value, str):
        raise TypeError
    return value


def _whole(value: object) -> int:
    """Return a stored whole number that may not be negative; anything else, True and 2.0 included, is not one."""
    if type(value) is not int or value < 0:
        raise TypeError
    return value
