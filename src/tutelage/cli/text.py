"""Text from users and files: refused in names if a terminal would obey it, and escaped where it is printed."""

import re
import tomllib
from pathlib import Path
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


def read_settings(path: Path) -> dict[str, Any]:
    """Return what a TOML file says.

    Raises
    ------
    ConfigError
        If it cannot be read, is no TOML, or holds a control character.
    """
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
    except RecursionError:
        raise ConfigError(f"{path} is not valid TOML: its lists are nested too deeply.") from None
    except ValueError as error:
        # Of a number of thousands of digits, Python's own words are about Python.
        reason = "a number has too many digits" if "limit" in str(error) else str(error)
        raise ConfigError(f"{path} is not valid TOML: {reason}.") from None
    _require_all_printable(found, path)
    return found


def plain_console() -> Any:
    """Return a console on standard output that prints strings as text, never as markup; style is given beside them."""
    from rich.console import Console  # not every verb needs it
    from rich.text import Text

    class PlainConsole(Console):
        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(printable(text), **options)

    return PlainConsole(markup=False, emoji=False)


def _require_all_printable(value: Any, path: Path) -> None:
    if isinstance(value, str):
        require_printable(value, f"An entry of {path}")
    elif isinstance(value, dict | list):
        for part in [*value, *value.values()] if isinstance(value, dict) else value:
            _require_all_printable(part, path)
