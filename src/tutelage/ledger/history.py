"""History of a ledger: its entries, read once and checked, and every sum over them that anyone asks for."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import NamedTuple, Self, final

from tutelage._internal.drawing import Bar, Bars, summary
from tutelage._internal.records import Entries
from tutelage.accounting.filter import Accounting, Filter, epsilon_so_far, filter_of
from tutelage.events import (
    CappedArgmaxGaussian,
    Event,
    PublicationTest,
    Repeated,
    count_releases,
    event_from_dict,
    event_of,
)
from tutelage.exceptions import (
    InvalidDataError,
    LedgerError,
    LedgerTamperedError,
    PublicationsExhaustedError,
)
from tutelage.ledger.answers import digest_of, read_labels, stored_answers
from tutelage.ledger.entries import EVERYBODY, Checkpoint, Entry, EntryKind, Raise
from tutelage.ledger.transaction import Transaction
from tutelage.privacy import KEY, PrivacyUnit, PublicEpsilon, round_up


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerState:
    """Public values of a ledger.

    Everything released through it together is (`budget`, `delta`)-differentially private, however far it is used, until
    the budget is raised. Keep the `head`, the hash of its newest entry, elsewhere, to detect a rollback later.
    """

    budget: float
    delta: float
    spent: float  # a share of ε: a currency, not a guarantee of its own
    remaining: float  # adds up to `budget` with `spent`
    order: float | None  # Rényi order at which the limit is kept; None in a Gaussian budget
    unit: PrivacyUnit  # whom the budget protects
    opened: str  # UTC day on which the ledger was made, in ISO 8601
    entries: int
    head: str
    answers: int  # remembered queries
    unsettled: int  # batches that were reserved and never settled, which stay spent
    bound: bool  # whether it is tied to one private data set
    simulated: bool  # whether any noise was drawn from a seed, which gives no protection
    accounting: Accounting = Accounting.RENYI  # how the limit is kept
    # Spent of the people who came with each release, as shares of ε; empty where releases have no names.
    cohorts: Mapping[str, float] = field(default_factory=dict[str, float])
    raised: tuple[Raise, ...] = ()  # the first first
    # How to find `so_far`, which takes time; its value in a copy, which has no ledger.
    _odometer: Callable[[], float | None] | float | None = field(repr=False, compare=False)

    @property
    def so_far(self) -> float | None:
        """An ε at `delta` of everything released until now, whatever made you look now; None if noise was simulated.

        With cohorts, it is of the people for whom it is largest. It is a claim beside that of `budget`, and may exceed
        it: each holds at `delta`, and whoever quotes the smaller one has twice that δ (docs/proofs/ledger.md). A copy
        that is made once the ledger is gone has none.
        """
        if callable(self._odometer):
            return self._odometer()
        return self._odometer

    # Not __getstate__, which Python 3.11.2 replaces in a class with slots.
    def __reduce__(self) -> tuple[Callable[..., Self], tuple[Entries]]:
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        values["_odometer"] = None
        with suppress(LedgerError):
            values["_odometer"] = self.so_far
        return self._with, (values,)

    @classmethod
    def _with(cls, values: Entries) -> Self:
        return cls(**values)

    @classmethod
    def of(
        cls, opening: Entry, last: Entry, sums: Checkpoint, odometer: Callable[[], float | None]
    ) -> Self:
        """Return the state of a ledger with that first and that last entry, by the sums over all between them."""
        limit = sums.limit(opening)
        cohorts = dict[str, float]()
        if sums.in_cohorts:
            cohorts = {name: limit.share(spent) for name, spent in sums.accounts.items()}
        return cls(
            budget=limit.epsilon,
            delta=limit.delta,
            spent=limit.share(last.spent),
            remaining=limit.share(limit.capacity - last.spent),
            order=limit.order,
            unit=PrivacyUnit.from_dict(opening.content["unit"]),
            opened=opening.content["written"],
            entries=last.number + 1,
            head=sums.head,
            answers=sums.answers,
            unsettled=sums.unsettled,
            bound=bool(sums.fingerprint),
            simulated=sums.simulated,
            accounting=limit.accounting,
            cohorts=cohorts,
            raised=tuple(Raise(**one) for one in sums.raised),
            _odometer=odometer,
        )

    def __str__(self) -> str:
        spent = round_up(self.spent)
        return f"{spent:.4f} of ε = {self.budget:g} is spent, {max(0.0, self.budget - spent):.4f} remains."

    def __html__(self) -> str:
        """Return what pages and notebooks show."""
        claim = str(self)
        if self.simulated:
            claim = f"NOT PRIVATE: the labels were drawn with simulated noise. {claim}"
        rows = {
            "guarantee of everything released": str(self.guarantee()),
            **self.unit.facts,
            "labels stored": f"{self.answers:,}",
            "head": self.head,
        }
        return summary("Ledger:", claim, rows, self.bars.__html__())

    _repr_html_ = __html__

    @property
    def bars(self) -> Bars:
        """How much of the budget is spent, by the release that people came with where releases have names."""
        title = f"Share of ε = {self.budget:g} that is spent"
        rows = {"everyone": self.spent}
        if self.cohorts:
            title += " of people who came with each release; each of them has the whole budget"
            rows = {f"came with {name}": share for name, share in self.cohorts.items()}
        bars = list[Bar]()
        for name, spent in rows.items():
            share = round_up(spent)
            bars.append(Bar(name, share, f"{share:.4f} ({round_up(share / self.budget, 3):.1%})"))
        return Bars(title, "People", "Spent", bars, whole=self.budget)

    def guarantee(self) -> PublicEpsilon:
        """Return the (ε, δ) of everything that is ever released through the ledger, or until its budget is raised."""
        budget = {
            "epsilon": self.budget,
            "delta": self.delta,
            "order": self.order,
            "accounting": self.accounting,
            "raised": [one._asdict() for one in self.raised],
        }
        return filter_of(budget).guarantee(self.unit, simulated=self.simulated)

    def as_dict(self) -> Entries:
        """Return the state as plain JSON-ready values; how the limit is kept by its order or, without one, by name."""
        state = {field.name: getattr(self, field.name) for field in fields(self) if field.repr}
        state["unit"] = self.unit.name
        state[KEY] = self.unit.neighboring.value
        state["accounting"] = self.accounting.value
        state["raised"] = [one._asdict() for one in self.raised]
        so_far = self.so_far
        if so_far is not None:
            state["so_far"] = so_far

        del state["accounting" if self.accounting is Accounting.RENYI else "order"]
        for name in ("cohorts", "raised"):
            if not state[name]:
                del state[name]
        return state


class Charge(NamedTuple):
    """A reservation, and the entry that settled it if there is one."""

    reserved: Entry
    settled: Entry | None

    @property
    def number(self) -> int:
        """Number of the entry that reserved it."""
        return self.reserved.number

    @property
    def queries(self) -> int:
        """How many queries were reserved, or answered by capped votes; 0 for the publication of an ε."""
        if self.reserved.is_publication:
            return 0
        answers = 0 if self.settled is None else self.settled.content["answers"]
        # The one event that stands for all capped votes is no query.
        if isinstance(self.event, CappedArgmaxGaussian):
            return answers
        return max(self.reserved.content["queries"], answers)

    @property
    def cost(self) -> int:
        """Grains that it takes from the budget."""
        refund = 0 if self.settled is None else self.settled.content["refund"]
        return self.reserved.content["cost"] - refund

    @property
    def event(self) -> Event:
        """The most that one query can be."""
        return event_from_dict(self.reserved.content["event"])

    @property
    def most(self) -> Event:
        """The most that all its queries can be together."""
        return Repeated(self.event, self.reserved.content["queries"])

    @property
    def happened(self) -> Event:
        """Event that it spends: as it happened, or the largest possible event while it is not settled."""
        if self.settled is None:
            return self.most
        return event_from_dict(self.settled.content["happened"])


class _Exposure(NamedTuple):
    """Exposure of people whose data came with one release and stayed."""

    release: int
    since: str
    queries: int
    # A share of the budget's ε: the filter's currency, not an ε of its own (docs/proofs/ledger.md).
    share: float


@final
@dataclass(frozen=True)
class History:
    """History of a ledger up to one of its entries, each checked against the one before it; public."""

    entries: tuple[Entry, ...]
    # Outcomes of publications, by number of reservation.
    outcomes: Mapping[int, int] = field(default_factory=dict[int, int])

    def with_newer_entries(self, read: Transaction) -> "History":
        """Return the history with the entries that were added since, each checked; of an empty one, all of them."""
        last = self.entries[-1] if self.entries else None
        if last is not None and read.hash_of(last.number) != last.hash:
            raise LedgerTamperedError(
                "The ledger was replaced, by another or an older one, while it was in use."
            )
        newer = tuple(entry for entry, _ in read.entries(after=last))
        if not newer:
            return self

        outcomes: dict[int, int] = {}
        history = History(self.entries + newer, outcomes)
        for charge in history.charges:
            if not charge.reserved.is_publication or charge.settled is None:
                continue
            answers = [(query, labels) for _, query, labels in stored_answers(read, charge.number)]
            for _, labels in answers:
                outcomes[charge.number] = read_labels(labels)[0]
            if digest_of(answers) != charge.settled.content["digest"]:
                raise LedgerTamperedError(
                    f"The remembered answers of entry {charge.number} were changed."
                )
        return history

    @cached_property
    def limit(self) -> Filter:
        """The budget after the last entry."""
        return self._sums.limit(self.entries[0])

    @cached_property
    def state(self) -> LedgerState:
        """State of the ledger after the last entry."""
        return LedgerState.of(self.entries[0], self.entries[-1], self._sums, lambda: self.so_far)

    @cached_property
    def _sums(self) -> Checkpoint:
        sums = Checkpoint("")
        for entry in self.entries:
            sums = sums.after(entry)
        return sums

    @cached_property
    def so_far(self) -> float | None:
        """The same as `LedgerState.so_far`."""
        if self.state.simulated:
            return None
        cohorts = {
            entry.content["release"]: entry.content["cohorts"]
            for entry in self.entries
            if "cohorts" in entry.content
        }
        accounts = defaultdict[str, list[Event]](list)
        for charge in self.charges:
            release = charge.reserved.content.get("release")
            for cohort in cohorts.get(release, [EVERYBODY]):
                accounts[cohort].append(charge.happened)
        # Earlier releases have no part in the orders.
        first = filter_of(self.entries[0].content)
        return max(
            (epsilon_so_far(first, count_releases(events)) for events in accounts.values()),
            default=0.0,
        )

    @cached_property
    def charges(self) -> tuple[Charge, ...]:
        """Everything that was reserved, the first first."""
        settled = {
            entry.content["reservation"]: entry
            for entry in self.entries
            if entry.kind is EntryKind.ANSWERED
        }
        reserved = (entry for entry in self.entries if entry.kind is EntryKind.RESERVED)
        return tuple(Charge(entry, settled.get(entry.number)) for entry in reserved)

    @cached_property
    def batches(self) -> tuple[Charge, ...]:
        """The batches of queries."""
        return tuple(charge for charge in self.charges if not charge.reserved.is_publication)

    @cached_property
    def answer_counts(self) -> Counter[Event]:
        """How often each kind of answer was given; an interrupted batch gave none."""
        return count_releases(
            charge.happened for charge in self.batches if charge.settled is not None
        )

    @cached_property
    def publications(self) -> dict[int, PublicationTest]:
        """Every recorded test and noised cost, drawn or interrupted, by the number of its reservation."""
        events = {charge.number: charge.event for charge in self.charges}
        return {
            number: event for number, event in events.items() if isinstance(event, PublicationTest)
        }

    @cached_property
    def proposals(self) -> tuple[Entries, ...]:
        """Proposals that were recorded before the first label; later ones do not count."""
        proposals = list[Entries]()
        for entry in self.entries:
            if entry.kind is EntryKind.RESERVED and not entry.is_publication:
                break
            if entry.kind is EntryKind.PROPOSED:
                proposals.append(entry.content["proposal"])
        return tuple(proposals)

    @property
    def exposures(self) -> tuple[_Exposure, ...]:
        """The budget spent since each release began, oldest first: people who came later are exposed to less."""
        exposures = list[_Exposure]()
        # The people of a cohort take part in the releases that name it.
        begun = [entry.content for entry in self.entries if "cohorts" in entry.content]
        for release, content in enumerate(begun, start=1):
            cohort = content["release"]
            names = {other["release"] for other in begun if cohort in other["cohorts"]}
            queries = sum(
                charge.queries
                for charge in self.charges
                if charge.reserved.content.get("release") in names
            )
            share = self.state.cohorts[cohort]
            exposures.append(_Exposure(release, content["written"], queries, share))
        if begun:
            return tuple(exposures)
        bound = [entry for entry in self.entries if entry.kind is EntryKind.BOUND]
        # A release before the first binding counts for its people too.
        for release, start in enumerate([self.entries[0], *bound[1:]], start=1):
            # A batch that was open when a release began counts for it too: its votes may have come after.
            after = [
                charge
                for charge in self.charges
                if charge.settled is None or charge.settled.number > start.number
            ]
            queries = sum(charge.queries for charge in after)
            share = self.limit.share(sum(charge.cost for charge in after))
            exposures.append(_Exposure(release, start.content["written"], queries, share))
        return tuple(exposures)

    @property
    def manifests(self) -> frozenset[str]:
        """Hashes of the manifests of all releases that were recorded."""
        return frozenset(
            one.content["manifest"] for one in self.entries if one.kind is EntryKind.RELEASED
        )

    @property
    def before_releases(self) -> "History":
        """The same without the last entries, if these only name what was released; a card is of this."""
        return self.until(
            next(one.number for one in reversed(self.entries) if one.kind is not EntryKind.RELEASED)
        )

    @property
    def event(self) -> Event:
        """All recorded events; an unsettled reservation counts as if all its labels had been released."""
        return event_of(count_releases(charge.happened for charge in self.charges))

    def check_share(self, delta: float) -> None:
        """Refuse one more publication where the δ of all, each of which may be wrong, would pass the ledger's."""
        used = sum(event.delta for event in self.publications.values())
        if used + delta > self.limit.delta * (1 + 1e-9):
            raise PublicationsExhaustedError(
                "`delta` of all publications through one ledger, interrupted ones included, must add up to at most its "
                f"δ, {self.limit.delta:g}. {used:g} is used already. Propose again with a smaller `delta`."
            )

    def until(self, number: int) -> "History":
        """Return what was done up to an entry; what came of publications later is kept."""
        return History(self.entries[: number + 1], self.outcomes)

    def until_head(self, head: str, where: str) -> "History":
        """Return what was done up to the entry with that hash, which the file `where` names."""
        for entry in self.entries:
            if entry.hash.hex() == head:
                return self.until(entry.number)
        raise InvalidDataError(
            f"The ledger does not hold the head that {where} names: it is another ledger, or was rolled back."
        )
