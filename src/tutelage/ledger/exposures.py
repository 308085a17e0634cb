"""How much of a budget was spent since people came, by the release with which they came."""

from typing import NamedTuple

from tutelage.ledger.entries import Kind
from tutelage.ledger.history import History


class Exposure(NamedTuple):
    """Exposure of people whose data came with one release and stayed."""

    release: int
    since: str
    queries: int
    # Of the budget's ε: the filter's currency, not an ε of its own (docs/proofs/ledger.md).
    share: float


def exposures(history: History) -> tuple[Exposure, ...]:
    """Return the budget spent since each release began, oldest first: people who came later are exposed to less."""
    found: list[Exposure] = []
    if history.state.cohorts:
        begun = [one.content for one in history.entries if "cohorts" in one.content]
        for release, content in enumerate(begun, start=1):
            cohort = content["release"]
            asking = {one["release"] for one in begun if cohort in one["cohorts"]}
            queries = sum(
                one.queries
                for one in history.charges
                if one.reserved.content.get("release") in asking
            )
            found.append(
                Exposure(release, content["written"], queries, history.state.cohorts[cohort])
            )
        return tuple(found)
    bound = [one for one in history.entries if one.kind is Kind.BOUND]
    # A release before the first binding counts for its people too.
    for release, start in enumerate([history.entries[0], *bound[1:]], start=1):
        # A batch that was open when a release began counts for it too: its votes may have come after.
        after = [
            one
            for one in history.charges
            if one.settled is None or one.settled.number > start.number
        ]
        share = history.limit.share(sum(charge.cost for charge in after))
        found.append(
            Exposure(release, start.content["written"], sum(one.queries for one in after), share)
        )
    return tuple(found)
