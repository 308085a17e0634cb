"""The console of all verbs: strings are text and never markup."""

from typing import Any

from rich.console import Console
from rich.text import Text

from tutelage.cli.printing import printable


class _PlainConsole(Console):
    """Prints strings as they are but for what a terminal would obey; style is given beside them."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **options)


def plain_console() -> Console:
    """Return a console on standard output."""
    return _PlainConsole(markup=False, emoji=False)
