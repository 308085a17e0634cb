"""Text from users and files, escaped where it is printed; and what costs for any votes say about a release."""

import re
from typing import Any

from tutelage.accounting import data_independent
from tutelage.events import Event, Repeated
from tutelage.exceptions import ConfigError
from tutelage.ledger import History
from tutelage.reporting import Batch, FrontierPoint
from tutelage.reporting.evidence import merged

# Control characters but tab and newline, separators of lines, and what turns the direction of writing.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def printable(text: object) -> str:
    """Return text with what a terminal obeys as Python escapes it."""
    return _OBEYED.sub(lambda found: found[0].encode("unicode_escape").decode(), str(text))


def require_printable(text: str, where: str) -> str:
    """Return text that holds nothing that a terminal obeys."""
    if _OBEYED.search(text):
        raise ConfigError(f"{where} must have no control characters. Got {text!r}.")
    return text


def plain_console() -> Any:
    """Return a console on standard output that prints strings as text, never as markup; style is given beside them."""
    from rich.console import Console  # not every verb needs it
    from rich.text import Text

    class PlainConsole(Console):
        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(printable(text), **options)

    return PlainConsole(markup=False, emoji=False)


_MOST_BATCHES = 200
_FRONTIER = (1 / 4, 1 / 2, 1, 2, 4)  # each costs up to a second or so


def batches_of(history: History) -> tuple[Batch, ...]:
    """Return what each batch of a ledger took; of very many, neighbours in time are put together."""
    batches = []
    for charge in history.charges:
        share = history.limit.share(charge.cost)
        checks = share * history.share_of_checks(charge)
        batches.append(Batch(charge.reserved.content["written"], charge.queries, checks, share - checks))
    return merged(batches, _MOST_BATCHES)


def frontier_of(one: Event, queries: int, delta: float) -> tuple[FrontierPoint, ...]:
    """Return what other numbers of queries would cost by themselves, every one of them answered."""
    numbers = sorted({max(1, round(queries * factor)) for factor in _FRONTIER})
    return tuple(FrontierPoint(number, data_independent.epsilon(Repeated(one, number), delta)) for number in numbers)
