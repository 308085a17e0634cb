"""Text from users and files: refused in names if a terminal would obey it, and escaped where it is printed."""

import re
from typing import Any

from tutelage.exceptions import ConfigError

# Control characters but tab and newline, separators of lines, and what turns the direction of writing.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def printable(text: object) -> str:
    """Return text with what a terminal obeys as Python escapes it."""
    return _OBEYED.sub(lambda found: found[0].encode("unicode_escape").decode(), str(text))


def require_printable(text: str, where: str) -> str:
    """Return text that holds nothing that a terminal obeys.

    Raises
    ------
    ConfigError
        If it does.
    """
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
