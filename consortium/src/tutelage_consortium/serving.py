"""A member at work: it looks into its mailbox, does what its role must do next, and says what it did.

Each member runs `Serving.step` again and again. However the mailbox is carried, and if a process was killed, a step
finds from the files alone what is left to do.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import final

import numpy as np

from tutelage._internal.typing import IntArray, Matrix
from tutelage.events import TIER_STEPS, Event
from tutelage.exceptions import FederationError, InvalidDataError, LedgerError, TutelageError
from tutelage.ledger import Ledger
from tutelage.privacy import round_up
from tutelage.tables import Table
from tutelage_consortium.batches import Batch
from tutelage_consortium.computing_party import ComputingParty
from tutelage_consortium.consortium import Consortium
from tutelage_consortium.entity import Entity
from tutelage_consortium.home import Home
from tutelage_consortium.keys import Role, names_of
from tutelage_consortium.mailbox import BatchStatus, Mailbox, batch_status
from tutelage_consortium.sums import REHEARSAL, Round, SharedSums

# Private: rows with the columns of the schema, class indices, and ids or None.
Rows = tuple[Table, IntArray, Matrix | None]
_MADE_UP = 200  # people of a hospital in a rehearsal
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 30.0  # seconds until a computation that failed is tried again
_LONGEST_TURN = 120.0  # seconds to wait for the two other parties


@final
@dataclass(kw_only=True)
class Serving:
    """One member of a consortium, at work in its mailbox.

    Parameters
    ----------
    home, mailbox : Home and Mailbox
        The member's own folder, and the one that all members share.
    invited : Consortium
        The terms that the member was invited to, with all its seats: no roster with other terms is accepted, and no
        first one with members that have no seat.
    ledger : Ledger, optional
        The budget of a hospital, or of the coordinator.
    rows : function, optional
        Returns a hospital's private rows, class indices and ids; called once a release is approved.
    accepts : function of two str
        Asks the operator the first, whether a roster is accepted; the second are its six words.
    approves : function of a str
        Asks the operator whether a release is paid for.
    says : function of a str
        Tells the operator what was done, or why not.
    patience : float
        Seconds that a computing party waits for hospitals that have not answered.
    """

    home: Home
    mailbox: Mailbox
    invited: Consortium
    accepts: Callable[[str, str], bool]
    approves: Callable[[str], bool]
    says: Callable[[str], object]
    ledger: Ledger | None = None
    rows: Callable[[Consortium], Rows] | None = None
    patience: float = 600.0
    listen: tuple[str, int] | None = None
    _said: set[str] = field(default_factory=set)
    _seen: dict[str, float] = field(default_factory=dict)  # when a batch was seen first
    _declined: set[str] = field(default_factory=set)
    # Approved sums, as a release, the length of the hospital's ballots in it, and the number of the sum.
    _approved: set[tuple[str, int, int]] = field(default_factory=set)
    _held: Rows | None = field(default=None, repr=False)
    # By batch: when to try it again, and the wait.
    _again: dict[str, tuple[float, float]] = field(default_factory=dict)

    def step(self) -> bool:
        """Do what can be done now; return whether anything was done."""
        self.mailbox.put_member(self.home.member)
        done = self._accept()
        me = self.home.member
        terms = self.home.latest_roster()
        if terms is None or me not in terms.members:
            return done
        # Again, because a process may have died before it did this.
        self.mailbox.put_acceptance(self.home.identity, terms)
        if me.role is Role.AGGREGATOR:
            return done
        work = self._cast if me.role is Role.ENTITY else self._compute
        for batch, status in self._batches(terms):
            done |= work(terms, batch, status)
        return done

    def _accept(self) -> bool:
        """Accept the roster after the one that was accepted last, if there is one and the operator agrees."""
        before = self.home.latest_roster()
        number = 0 if before is None else before.roster + 1
        after = self.mailbox.newest_roster(number)
        me = self.home.member
        if after is None or after.roster_hash in self._declined:
            return False
        strangers = {*names_of(after.members)}.difference(names_of(self.invited.members))
        if after.fingerprint != self.invited.fingerprint or (before is None and strangers):
            self.say(
                f"Roster {after.roster} has other terms or members than the invite, and is refused."
            )
            return False
        if me not in after.members:
            self.say(f"Roster {after.roster} does not name {me.name} with the keys of this folder.")
            return False
        if not self.accepts(_question_of(before, after), after.words):
            self._declined.add(after.roster_hash)
            self.say(
                f"Roster {after.roster} was not accepted, so {me.name} takes no part under it. To be asked again, type "
                "the command again."
            )
            return False
        self.home.join(after, after.words)
        self.say(f"Accepted roster {after.roster}: {after.words}.")
        return True

    def _batches(self, terms: Consortium) -> list[tuple[Batch, BatchStatus]]:
        """Return the batches that are not finished; one that the aggregator did not sign blocks no other."""
        found = list[tuple[Batch, BatchStatus]]()
        me = self.home.member
        for identifier in self.mailbox.batch_identifiers(terms):
            if self.mailbox.is_collected(identifier, terms):
                continue
            try:
                batch = self.mailbox.batch(identifier, terms)
                # Envelopes for another party may not be in this copy of the mailbox.
                status = batch_status(
                    terms, self.mailbox, batch, me if me.role is Role.COMPUTING else None
                )
            except (FederationError, InvalidDataError) as error:
                self.say(f"Batch {identifier[:8]} is refused: {error}")
                continue
            self._seen.setdefault(identifier, time.monotonic())
            if not status.complete:
                found.append((batch, status))
        return found

    def _cast(self, terms: Consortium, batch: Batch, status: BatchStatus) -> bool:
        """Cast a hospital's ballots, once its operator has approved of the release."""
        me = self.home.member
        if (
            me.name in status.answered
            or batch.identifier in self._declined
            or not isinstance(terms.scheme, SharedSums)
        ):
            return False
        if not {*self.mailbox.names_of_accepting(terms)}.issuperset(
            names_of(terms.computing_parties)
        ):
            return False  # who would add shares have not compared the words
        try:
            asked = terms.sums().round_of(batch)
            if asked.opened.release.startswith(REHEARSAL):
                entity = Entity(self.home, made_up_ledger(terms))
                rows = made_up(terms)
            else:
                entity = Entity(self.home, self.budget())
                if not self._has_approved(terms, batch, asked):
                    return False
                rows = self._private(terms)
            table, labels, ids = rows
            repeated = entity.cast(batch, table, labels, self.mailbox, entity_ids=ids)
        except (TutelageError, OSError) as error:
            self._declined.add(batch.identifier)
            self.say(f"Batch {batch.identifier[:8]} was not answered: {error}")
            return False
        again = " It is the one that was made before." * repeated
        number = asked.number + 1
        self.say(
            f"Release {asked.opened.release}: sent sum {number} of {len(terms.sums().events)}, sealed.{again}"
        )
        return True

    def _has_approved(self, terms: Consortium, batch: Batch, asked: Round) -> bool:
        """Return whether the operator approves of a release; what is paid for already needs no second answer."""
        ledger = self.budget()
        release = asked.opened.release
        if terms.boundary(ledger, self.home.member).reservation_of(batch) is not None:
            return True
        name = self.home.member.name
        steps = asked.opened.steps.get(name, TIER_STEPS)
        # Nor is one approval good for a second batch of a sum, or for longer ballots.
        if (release, steps, asked.number) not in self._approved:
            takes = taken_from(ledger, terms.sums().event_from(asked.number, name, asked.opened))
            if not self.approves(
                f"{terms.aggregator.name} asks for release {release!r}, which takes {takes}. "
                f"{ledger.state()}\nCast ballots?"
            ):
                self._declined.add(batch.identifier)
                return False
            self._approved |= {
                (release, steps, number) for number in range(asked.number, len(terms.sums().events))
            }
        self._approved.discard((release, steps, asked.number))
        return True

    def _compute(self, terms: Consortium, batch: Batch, status: BatchStatus) -> bool:
        """Compute on shares once all hospitals that are waited for have answered."""
        now = time.monotonic()
        late = now - self._seen[batch.identifier] > self.patience
        start, wait = self._again.get(batch.identifier, (0.0, _FIRST_WAIT))
        if now < start or len(status.answered) < terms.quorum:
            return False
        if not late and not self._awaited_hospitals(terms, batch) <= {*status.answered}:
            return False
        try:
            done = ComputingParty(self.home).compute(
                batch,
                self.mailbox,
                timeout=_LONGEST_TURN,
                listen=self.listen,
                waiting=lambda them: self.say(
                    f"Waiting for {' and '.join(them)} to run `tutelage consortium serve`."
                ),
            )
        except (TutelageError, OSError) as error:
            self._again[batch.identifier] = (time.monotonic() + wait, min(2 * wait, _LONGEST_WAIT))
            self.say(f"Batch {batch.identifier[:8]} is not computed yet: {error}")
            return False
        for name, reason in sorted(done.left_out.items()):
            self.say(f"{name} was left out of batch {batch.identifier[:8]}: {reason}")
        self.say(
            f"Computed batch {batch.identifier[:8]} of {len(done.entities)} hospitals, in shares."
        )
        return True

    def _awaited_hospitals(self, terms: Consortium, batch: Batch) -> set[str]:
        """Return the hospitals to wait for: after the first sum, those that were in the one before."""
        if isinstance(terms.scheme, SharedSums):
            earlier = terms.sums().round_of(batch).opened.sums
            if earlier:
                return {*earlier[-1].entities}
        return {*names_of(terms.entities)}

    def budget(self) -> Ledger:
        """Return the budget of this member."""
        if self.ledger is None:
            raise LedgerError("`ledger` of Serving must be the budget of this member. Got None.")
        return self.ledger

    def _private(self, terms: Consortium) -> Rows:
        if self._held is None:
            if self.rows is None:
                raise InvalidDataError(
                    "`rows` of Serving must return the private rows of this hospital. Got None."
                )
            self._held = self.rows(terms)
        return self._held

    def say(self, text: str) -> None:
        """Tell the operator something once."""
        if text not in self._said:
            self._said.add(text)
            self.says(text)


def taken_from(budget: Ledger, event: Event) -> str:
    """Return how much an event takes from a budget, at most, with the ε and the δ of the budget."""
    share = round_up(budget.account.share_of(event))
    return f"up to ε = {share:.4f} of ε = {budget.limit.epsilon:g} at δ = {budget.limit.delta:g}"


def _question_of(before: Consortium | None, after: Consortium) -> str:
    """Return the question whether to accept a roster, with what it changes and the words to compare."""
    shorter = [
        f" People of {name} count {steps / TIER_STEPS:.3f}."
        for name, steps in after.steps_at.items()
        if steps < TIER_STEPS
    ]
    hospitals = ", ".join(names_of(after.entities))
    parties = ", ".join(names_of(after.computing_parties))
    what = f"{len(after.entities)} hospitals join {after.name!r}: {hospitals}. Computing parties: {parties}."
    what += "".join(shorter)
    changes = [] if before is None else changes_of(before, after)
    if changes:
        what = f"Roster {after.roster} of {after.name!r} changes: {'; '.join(changes)}."
    how = "Compare its words by telephone with the other members, the computing parties above all:"
    return f"{what}\n{how}\n\n  {after.words}\n\nAre they the same?"


def changes_of(before: Consortium, after: Consortium) -> list[str]:
    """Return what an amendment of the roster changes."""
    old = {member.name: member for member in before.members}
    new = {member.name: member for member in after.members}
    people = after.people_at
    changes = [f"{name} leaves" for name in old.keys() - new.keys()]
    changes += [f"{name} is new" for name in new.keys() - old.keys()]
    for name in old.keys() & new.keys():
        if old[name] != new[name]:
            changes.append(f"{name} has new keys or another address")
        elif before.people_at.get(name) != people.get(name):
            changes.append(f"{name} has about {people.get(name):,} people")
        steps = after.steps_at.get(name, TIER_STEPS)
        if steps != before.steps_at.get(name, TIER_STEPS):
            changes.append(f"people of {name} count {steps / TIER_STEPS:.3f}")
    return sorted(changes)


def made_up(terms: Consortium) -> Rows:
    """Return rows of a rehearsal: uniform values of the schema, of people who do not exist."""
    random = np.random.default_rng()
    schema = terms.sums().schema
    columns = dict[str, list[str]]()
    for (name, column), ordered in zip(schema.columns.items(), schema.ordered, strict=True):
        if ordered:
            low, high = map(float, column)
            cells = low + (high - low) * random.random(_MADE_UP)
        else:
            cells = random.choice([*map(str, column)], _MADE_UP)
        columns[name] = [str(cell) for cell in cells]  # as a csv file has them
    labels = random.integers(0, terms.n_classes, _MADE_UP)
    if "row" in terms.unit.neighboring:
        return Table("", columns), labels, None
    return Table("", columns), labels, np.arange(_MADE_UP).astype(np.str_)


def made_up_ledger(terms: Consortium) -> Ledger:
    """Return a budget that is forgotten: no person's rows are in a rehearsal."""
    return Ledger.in_memory(epsilon=1e5, delta=1e-5, unit=terms.unit)
