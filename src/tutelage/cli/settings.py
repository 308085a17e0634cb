"""TOML files that users write: read whole, or refused in one sentence."""

import tomllib
from pathlib import Path
from typing import Any

from tutelage.cli.printing import require_printable
from tutelage.exceptions import ConfigError


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
    _require_printable(found, path)
    return found


def _require_printable(value: Any, path: Path) -> None:
    if isinstance(value, str):
        require_printable(value, f"An entry of {path}")
    elif isinstance(value, dict | list):
        for part in value:
            _require_printable(part, path)
        for part in value.values() if isinstance(value, dict) else ():
            _require_printable(part, path)
