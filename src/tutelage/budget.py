"""The budget of one fit: which ledger it spends from, on which terms, and whose rows it uses."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import final

from tutelage._internal.records import by_keywords
from tutelage._internal.typing import NeverPickled
from tutelage.accounting.filter import Filter, holding
from tutelage.accounting.tiers import steps_of
from tutelage.events import TIER_STEPS, Event, Repeated, in_tiers
from tutelage.exceptions import LedgerError, LedgerMismatchError
from tutelage.ledger import Ledger
from tutelage.ledger.beginning import Intent, Whom
from tutelage.ledger.ledger import LedgerOrPath, existing_ledger, open_ledger, require_terms
from tutelage.ledger.search import ledgers_near
from tutelage.methods.base import Method
from tutelage.methods.requests import Sizes
from tutelage.privacy import PrivacyUnit
from tutelage.terms import Asked, Terms, terms_of


@final
@by_keywords
class Budget(NeverPickled):
    """The budget that one fit spends from. Methods that take a `worst_case` take the largest event of the release."""

    # A path is of a file that does not exist yet. None stands for a ledger in memory, of this fit alone.
    ledger: LedgerOrPath | None
    asked: Asked  # the ε, δ and noise that the user asked for
    digest: Callable[[], bytes]  # of the people or rows to which the ledger is tied; private
    unit: PrivacyUnit
    data_changed: bool  # whether rows may differ from those to which the ledger is tied
    identity: str  # digest of everything declared for the release: an equal one is the same release
    method: Method  # its noise may still have to be calibrated
    release_name: str | None = None  # with a name, people who come later have a budget of their own
    # Digest of everything declared except the name. Releases of one question train one student together.
    question: str = ""
    # The ε that each tier of people asks for, by its name; none if people have no tiers.
    tiers: Mapping[str, float] = field(default_factory=dict[str, float])
    people: Callable[[], Sequence[str]] = tuple  # ids, each once; private

    def least_noise(self, event_of: Callable[[float], Event]) -> float:
        """Return the noise with which the release was begun, or else the least that its terms allow."""
        stored = self.stored_noise
        # A second calibration could differ in the last digits, and would be another release.
        if stored is not None:
            return stored
        return self.terms.least_noise(event_of)

    def worst_case(self, method: Method, sizes: Sizes, limit: Filter | None = None) -> Repeated:
        """Return the largest event of the release, in which ballots of tiers are as short as their ε needs in a limit.

        Without the limit of the ledger, they are as long as others, which costs the same.
        """
        whole = method.event(sizes)
        tiers = tuple((name, TIER_STEPS) for name in sorted(self.tiers))
        if tiers and limit is not None:
            tiers = steps_of(self.tiers, limit)
        return Repeated(in_tiers(whole.event, tiers), whole.count)

    @property
    def _existing(self) -> Ledger | None:
        return existing_ledger(self.ledger)

    @property
    def terms(self) -> Terms:
        """The terms of this release, by what its ledger holds now."""
        existing = self._existing
        limit = None if existing is None else existing.limit
        return terms_of(self.asked, self.method.needs.accounting, limit)

    @property
    def stored_noise(self) -> float | None:
        """The noise in the ledger for this release, or else for the first named release of its question."""
        existing = self._existing
        if existing is None:
            return None
        return existing.register.noise_of(self.identity, self.question)

    def ledger_for(self, method: Method, sizes: Sizes) -> Ledger:
        """Return the ledger, checked; the file of a new one appears with its first reservation."""
        terms = self.terms
        worst_case = self.worst_case(method, sizes)
        ledger = open_ledger(
            self.ledger,
            worst_case.event,
            worst_case.count,
            epsilon=None if terms.limit is None else terms.limit.epsilon,
            delta=self.asked.delta,
            unit=self.unit,
            accounting=terms.accounting,
            # `least_noise` calibrated noise that was not given at the Rényi order that suits Gaussian noise. The
            # ledger must use that order too, so that the same fit finds the same noise again.
            suited=self.asked.given,
            check=self._refuse_second,
        )
        self.check_people(ledger)
        return ledger

    def check_people(self, ledger: Ledger) -> None:
        """Refuse a ledger of other people, or with another budget or unit."""
        # The check of the data also reads the limit again. A ledger in memory has neither file nor earlier people.
        if self.ledger is not None:
            ledger.register.check_data(self.digest(), changed=self._may_change)
        require_terms(ledger, self.asked.budget, self.asked.delta, self.unit)

    def intent(self, noise: float | None, worst_case: Event) -> Intent:
        """Return the declaration by which a ledger recognizes the release."""
        calibrated = None if self.asked.given else noise
        return Intent(self.identity, self.question, worst_case, calibrated, self.release_name)

    def whom(self, shard_ids: Callable[[], Sequence[str]], left_out: str) -> Whom:
        """Return whose data a release uses; in a named release, each shard of rows is a person."""
        if self.ledger is None:
            return Whom(left_out=left_out)
        ids = self.people() if self.release_name is None else shard_ids()
        return Whom(self.digest(), ids, left_out, self._may_change)

    @property
    def _may_change(self) -> bool:
        return self.data_changed or self.release_name is not None

    def check(self) -> None:
        """Refuse a ledger of another budget or unit, or a second one of the same data, without writing to any."""
        existing = self._existing
        if existing is None:
            self._refuse_second()
        else:
            require_terms(existing, self.asked.budget, self.asked.delta, self.unit)
            existing.limit.check_epsilon(self.asked.epsilon)

    def fitting_by_cohort(self, worst_case: Event) -> dict[str, int]:
        """Return how many such releases still fit into the budget of each cohort, with that of this release.

        It is empty if the release was begun before, or has no name.
        """
        fitting = dict[str, int]()
        existing = self._existing
        if existing is not None:
            fitting = existing.register.fitting_by_cohort(worst_case)
        if self.release_name is None or self.release_name in fitting:
            return {}
        return {**fitting, self.release_name: self.limit_for(worst_case).fitting(worst_case, 0)}

    def limit_for(self, worst_case: Event) -> Filter:
        """Return the limit of the ledger or of a new one; where no budget is given, the limit just fits the release."""
        return self.terms.limit or holding(worst_case, self.asked.delta, self.terms.by_itself)

    def ledger_without_room(self, worst_case: Event) -> Ledger | None:
        """Return the ledger if it has no room for a new release without a name, and otherwise None."""
        existing = self._existing
        is_new = self.release_name is None and self.stored_noise is None
        if existing is not None and is_new and not existing.account.fitting(worst_case):
            return existing
        return None

    def _refuse_second(self) -> None:
        """Refuse to create a second ledger next to one with the budget of the same people or rows."""
        if self.ledger is None or isinstance(self.ledger, Ledger):
            return
        others = ledgers_near(Path(self.ledger))
        if not others:
            return
        digest = self.digest()
        people = self.people()
        for path in others:
            if _is_of(path, digest, people):
                raise LedgerMismatchError(
                    f"{path.name} contains the budget of these data, or of some of these people. Pass it as `ledger`; "
                    "another ledger would be a second budget."
                )


def _is_of(path: Path, digest: bytes, people: Sequence[str]) -> bool:
    """Return whether a ledger is tied to these data or knows some of these people; not one that cannot be read."""
    with suppress(LedgerError):
        register = Ledger.open(path, read_only=True).register
        known = register.knows(people)  # one by one, if its releases have names
        return register.is_of(digest) or (known is not None and bool(known.any()))
    return False
