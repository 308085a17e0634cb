"""Entries of a ledger: records in a fixed spelling, each bound by a hash to all before it.

They evolve as events do: a kind or field is never removed and never changes its meaning; a format number says which
fields there are. All values are public, or keyed hashes.
"""

import hashlib
import hmac
import json
from dataclasses import field, fields, replace
from enum import StrEnum
from typing import NamedTuple, Self, final

from tutelage._internal.records import Entries, frozen
from tutelage._internal.releases import today
from tutelage.accounting.filter import Filter, filter_of
from tutelage.digests import canonical
from tutelage.events import PublicationTest, event_from_dict, tiers_of
from tutelage.exceptions import LedgerStorageError, LedgerTamperedError

FORMAT = 1
EVERYBODY = ""  # the cohort of all people, where releases have no names
_BEFORE_THE_FIRST = hashlib.sha256(b"tutelage ledger").digest()


@final
class EntryKind(StrEnum):
    """Kind of event that an entry records."""

    OPENED = "opened"  # the budget, the unit of privacy, and a commitment to the key
    # To which private data set, once per release, as a keyed fingerprint that never repeats.
    BOUND = "bound"
    # Which release is about to begin, as a keyed hash of everything that was declared for it, and its noise; before its
    # first reservation, and once, however often it is interrupted or repeated. A release that has a name also says
    # what it asks, as a keyed hash, and which cohorts take part: the names of the releases in which people came.
    INTENDED = "intended"
    # A public map that was learned for a release, by a keyed name and the digest of its bytes.
    KEPT = "kept"
    # The publication to test or noise once labels are out; written before the first label.
    PROPOSED = "proposed"
    # The largest cost of a batch, and a random number; written before its noise is drawn.
    RESERVED = "reserved"
    ANSWERED = "answered"  # what the batch cost as it happened, and a digest of its answers
    # The hash of the manifest of a results folder, which names the entry before; then the folder is published.
    RELEASED = "released"
    RAISED = "raised"  # from which ε to which budget, by whom and why; between two releases


@final
@frozen
class Entry:
    """One line of the ledger."""

    content: Entries
    text: str  # the content in its one spelling
    hash: bytes  # SHA-256 of the hash before it and the text

    @classmethod
    def after(cls, last: "Entry | None", kind: EntryKind, spent: int, **fields: object) -> "Entry":
        """Return the entry that follows `last`, or the first of all, of the day of its release."""
        content = {
            "format": FORMAT,
            "number": _number_after(last),
            "kind": kind,
            "written": today(),
            "spent": spent,
        } | fields
        text = canonical(content)
        return cls(json.loads(text), text, _hash_after(last, text))

    @classmethod
    def read(cls, last: "Entry | None", text: object, found: object) -> "Entry":
        """Return the stored entry that follows `last`, once its spelling, number and hash are found to be right."""
        number = _number_after(last)
        if (
            not isinstance(text, str)
            or not isinstance(found, bytes)
            or _hash_after(last, text) != found
        ):
            raise LedgerTamperedError(
                f"Entry {number} does not match its hash: it, or one before it, was changed."
            )
        content = Entries()
        try:
            content = json.loads(text)
            whole = all(type(content[name]) is int for name in ("number", "format", "spent"))
            fits = whole and canonical(content) == text and content["number"] == number
            fits = (
                fits and content["kind"] in set(EntryKind) and isinstance(content["written"], str)
            )
            if whole and not 1 <= content["format"] <= FORMAT:
                raise another_format(f"Entry {number}", content["format"])
        except (ValueError, KeyError, TypeError, RecursionError):
            fits = False
        if not fits:
            raise LedgerTamperedError(
                f"Entry {number} is not in the form in which entries are written."
            )
        return cls(content, text, found)

    @property
    def number(self) -> int:
        """Its place, from 0."""
        return self.content["number"]

    @property
    def kind(self) -> EntryKind:
        """Kind of event that the entry records."""
        return EntryKind(self.content["kind"])

    @property
    def is_publication(self) -> bool:
        """Whether it reserves no query but the publication of an ε."""
        return (
            self.kind is EntryKind.RESERVED
            and self.content["event"]["event"] == PublicationTest.__name__
        )

    @property
    def spent(self) -> int:
        """Grains of the budget that are spent or reserved after it."""
        return self.content["spent"]


class Raise(NamedTuple):
    """A raise of the budget."""

    before: float  # ε
    epsilon: float
    delta: float
    by: str
    why: str
    written: str  # UTC day in ISO 8601


def another_format(what: str, found: int) -> LedgerStorageError:
    """Return the refusal of a ledger, or of an entry, whose format this version does not read."""
    return LedgerStorageError(
        f"{what} has another format ({found}); read it with the version of tutelage that made it, and never "
        "start a new ledger for the same private data."
    )


def _number_after(last: Entry | None) -> int:
    return 0 if last is None else last.number + 1


def _hash_after(last: Entry | None, text: str) -> bytes:
    before = _BEFORE_THE_FIRST if last is None else last.hash
    return hashlib.sha256(before + text.encode("utf-8", "surrogatepass")).digest()


@final
@frozen
class Checkpoint:
    """Sums over all entries up to one."""

    head: str
    answers: int = 0
    unsettled: int = 0
    charged_for: int = 0  # reservations that cost something
    fingerprint: str = ""  # keyed, of the data set; empty for a ledger that is tied to none
    asked: bool = False  # whether a label was ever reserved
    simulated: bool = False
    votes: str = ""  # digest of the votes that teachers of campaigns have cast
    people: str = ""  # digest of the people of all cohorts
    withdrawn: str = ""  # digest of the people who withdrew
    # Cohorts of each that has a name.
    releases: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    # Grains that were spent of each cohort; where releases have no names, all people are one.
    accounts: dict[str, int] = field(default_factory=dict[str, int])
    # Of every event that was reserved.
    tiers: list[list[object]] = field(default_factory=list[list[object]])
    # Each `Raise`, as plain values.
    raised: list[Entries] = field(default_factory=list[Entries])

    def after(self, entry: Entry) -> Self:
        """Return the sums with one more entry."""
        content = entry.content
        release = content.get("release")
        changed: Entries = {"head": entry.hash.hex()}
        match entry.kind:
            case EntryKind.INTENDED if release is not None:
                changed["releases"] = self.releases | {release: content["cohorts"]}
                changed["accounts"] = self.accounts | {release: 0}
            case EntryKind.BOUND:
                changed["fingerprint"] = content["fingerprint"]
            case EntryKind.RESERVED:
                changed["accounts"] = self.accounts_after(release, content["cost"])
                changed["unsettled"] = self.unsettled + 1
                changed["charged_for"] = self.charged_for + bool(content["cost"])
                changed["asked"] = self.asked or not entry.is_publication
                event = event_from_dict(content["event"])
                changed["simulated"] = self.simulated or event.is_simulated
                changed["tiers"] = [[*tier] for tier in tiers_of(event)]
            case EntryKind.ANSWERED:
                changed["accounts"] = self.accounts_after(release, -content["refund"])
                changed["unsettled"] = self.unsettled - 1
                changed["answers"] = self.answers + content["answers"]
            case EntryKind.RAISED:
                changed["raised"] = [*self.raised, {name: content[name] for name in Raise._fields}]
            case (
                EntryKind.OPENED
                | EntryKind.INTENDED
                | EntryKind.KEPT
                | EntryKind.PROPOSED
                | EntryKind.RELEASED
            ):
                pass
        return replace(self, **changed)

    def accounts_after(self, release: str | None, change: int) -> dict[str, int]:
        """Return what is spent of each cohort after a release spent so much more."""
        changed = {name: self.accounts.get(name, 0) + change for name in self._cohorts_of(release)}
        return self.accounts | changed

    def most_spent(self, release: str | None) -> int:
        """Return the most that is spent of any cohort of a release."""
        return max(self.accounts.get(name, 0) for name in self._cohorts_of(release))

    def _cohorts_of(self, release: str | None) -> list[str]:
        return [EVERYBODY] if release is None else self.releases[release]

    def limit(self, opening: Entry) -> Filter:
        """Return the budget of a ledger with that first entry, as it was raised last."""
        budget = opening.content | {"raised": self.raised}
        if self.raised:
            budget["epsilon"] = self.raised[-1]["epsilon"]
            budget["delta"] = self.raised[-1]["delta"]
        return filter_of(budget)

    @property
    def in_cohorts(self) -> bool:
        """Whether releases have names, so that people who come later have a budget of their own."""
        return bool(self.releases)

    def seal(self, key: bytes) -> tuple[str, bytes]:
        """Return the sums as text, and a code that only the holder of the ledger's key can compute for it."""
        text = canonical({item.name: getattr(self, item.name) for item in fields(self)})
        return text, _code(key, text)

    @classmethod
    def unseal(cls, key: bytes, text: object, code: object) -> Self:
        """Return stored sums, once their code is found to be right."""
        if (
            not isinstance(text, str)
            or not isinstance(code, bytes)
            or not hmac.compare_digest(_code(key, text), code)
        ):
            raise LedgerTamperedError("The ledger's checkpoint was changed.")
        return cls(**json.loads(text))


def _code(key: bytes, text: str) -> bytes:
    return hmac.digest(key, b"checkpoint" + text.encode("utf-8", "surrogatepass"), hashlib.sha256)
