"""How much of a budget was spent since people came, by the release with which they came."""

from collections.abc import Iterator
from typing import NamedTuple

from tutelage.ledger.entries import EntryKind
from tutelage.ledger.history import History


class _Exposure(NamedTuple):
    """Exposure of people whose data came with one release and stayed."""

    release: int
    since: str
    queries: int
    # A share of the budget's ε: the filter's currency, not an ε of its own (docs/proofs/ledger.md).
    share: float


def exposures(history: History) -> tuple[_Exposure, ...]:
    """Return the budget spent since each release began, oldest first: people who came later are exposed to less."""
    if history.state.cohorts:
        return tuple(_of_cohorts(history))
    return tuple(_of_bindings(history))


def _of_cohorts(history: History) -> Iterator[_Exposure]:
    """Yield the exposure of each cohort, whose people take part in the releases that name it."""
    begun = [entry.content for entry in history.entries if "cohorts" in entry.content]
    for release, content in enumerate(begun, start=1):
        cohort = content["release"]
        names = {other["release"] for other in begun if cohort in other["cohorts"]}
        queries = sum(
            charge.queries
            for charge in history.charges
            if charge.reserved.content.get("release") in names
        )
        yield _Exposure(release, content["written"], queries, history.state.cohorts[cohort])


def _of_bindings(history: History) -> Iterator[_Exposure]:
    """Yield the exposure of the people of each release, where releases have no names."""
    bound = [entry for entry in history.entries if entry.kind is EntryKind.BOUND]
    # A release before the first binding counts for its people too.
    for release, start in enumerate([history.entries[0], *bound[1:]], start=1):
        # A batch that was open when a release began counts for it too: its votes may have come after.
        after = [
            charge
            for charge in history.charges
            if charge.settled is None or charge.settled.number > start.number
        ]
        queries = sum(charge.queries for charge in after)
        share = history.limit.share(sum(charge.cost for charge in after))
        yield _Exposure(release, start.content["written"], queries, share)
