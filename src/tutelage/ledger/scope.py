"""One release in its turn, while no other release goes on through its ledger."""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple, final

from tutelage._internal.typing import Mask, Private
from tutelage.digests import canonical
from tutelage.events import Event, NoisySumGaussian, count_releases
from tutelage.ledger.account import Account
from tutelage.ledger.beginning import Beginning, Intent, Whom
from tutelage.ledger.history import LedgerState
from tutelage.ledger.opened import OpenedLedger


class _Ended(NamedTuple):
    """The end of a release."""

    # All that was ever drawn through the ledger, if all of it was drawn for this release.
    alone: Event | None
    after: LedgerState  # the ledger then


@final
class Scope(Private):
    """One release while it has its turn; private. Do not keep it or pass it on.

    Attributes
    ----------
    account : Account
        The budget of the people of this release.
    taking_part : array of shape (people,) of bool, or None
        The people who take part in a release with a name.
    before : LedgerState
        The ledger before this release.
    """

    def __init__(self, opened: OpenedLedger, intent: Intent | None, whom: Whom | None) -> None:
        self._opened = opened
        self._beginning = Beginning(opened, intent, whom)
        with opened.hold() as read:
            self._beginning.check(read)
            self.before = opened.state_in(read)
        self.account = Account(opened, self._beginning)
        self.taking_part: Mask | None = self._beginning.taking_part

    def write(self) -> None:
        """Write which data the ledger is tied to, if no reservation did and if the file can be written."""
        self._beginning.write_alone()

    def end(self, reservations: Collection[int], most: Event) -> _Ended:
        """Return all that was drawn if it is this release alone, spent under these reservations and within `most`.

        Then the release was fixed before anything was answered, and its own ε holds for all that was released. If rows
        are chosen at random without a seed, each run asks about other rows: more than `most` may then be drawn, and the
        owner may have kept the run that looked best.
        """
        self.write()
        with self._opened.hold() as read:
            after = self._opened.state_in(read)
            if read.checkpoint().charged_for > len(reservations):
                return _Ended(None, after)  # and no history is read for it
            begun = self._beginning.entry(read)
            history = self._opened.history_in(read)

        reserved = {charge.number: charge.reserved.content["cost"] for charge in history.charges}
        # A batch of a campaign costs nothing.
        paid = {number: cost for number, cost in reserved.items() if cost}
        if begun is None or min(paid, default=0) <= begun.number:
            return _Ended(None, after)
        if not paid.keys() <= set(reservations):
            return _Ended(None, after)
        if sum(paid.values()) > self._opened.limit.cost(most):
            return _Ended(None, after)

        charges = [charge.most for charge in history.charges if charge.number in paid]
        # Sums together cost what their 1/σ² add up to, into however many rounds they are divided.
        only_sums = all(
            isinstance(event, NoisySumGaussian) for event in count_releases([*charges, most])
        )
        if not only_sums and _count_kinds(charges) - _count_kinds([most]):
            return _Ended(None, after)
        return _Ended(history.event, after)


def _count_kinds(events: Sequence[Event]) -> Counter[str]:
    """Return how often each kind of event is in others, by what its cost depends on, to six digits."""
    kinds = Counter[str]()
    for event, times in count_releases(events).items():
        settings = event.as_dict()
        settings.pop("dimension", None)
        for name, value in settings.items():
            if isinstance(value, float):
                settings[name] = f"{value:.6g}"
        kinds[canonical(settings)] += times
    return kinds
