"""The mechanisms that the command line and the run configuration know by name, and the settings that each takes."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple

import typer

from tutelage.exceptions import ConfigError
from tutelage.mechanisms import (
    ConfidentGNMax,
    ExponentialMax,
    GNMax,
    InteractiveGNMax,
    LNMax,
    Mechanism,
    PermuteAndFlip,
)

Scale = Annotated[float | None, typer.Option(help="lnmax, exponential, permute-and-flip: scale in votes, 1/gamma.")]
Sigma = Annotated[
    float | None, typer.Option(help="gnmax, confident, interactive: sigma of the answer's noise, in votes.")
]
Threshold = Annotated[
    float | None, typer.Option(help="confident, interactive: votes that a class must reach under noise.")
]
SigmaThreshold = Annotated[
    float | None, typer.Option(help="confident, interactive: sigma of the check's noise, in votes.")
]


class Known(NamedTuple):
    """A mechanism and, for each of its settings, the parameter that it sets."""

    kind: type[Mechanism]
    settings: Mapping[str, str]


_CHECKED = {"threshold": "threshold", "sigma_threshold": "sigma_threshold", "sigma": "sigma_vote"}
MECHANISMS: dict[str, Known] = {
    "lnmax": Known(LNMax, {"scale": "scale"}),
    "gnmax": Known(GNMax, {"sigma": "sigma"}),
    "confident": Known(ConfidentGNMax, _CHECKED),
    "interactive": Known(InteractiveGNMax, {**_CHECKED, "confidence": "confidence"}),
    "exponential": Known(ExponentialMax, {"scale": "scale"}),
    "permute-and-flip": Known(PermuteAndFlip, {"scale": "scale"}),
}


def as_option(setting: str) -> str:
    """Return a setting as the command line spells it."""
    return f"--{setting.replace('_', '-')}"


def as_entry(setting: str) -> str:
    """Return a setting as the run configuration spells it."""
    return f"`{setting}`"


def build_mechanism(name: str, given: Mapping[str, float | None], spelled: Callable[[str], str]) -> Mechanism:
    """Return the mechanism `name` with those settings that are not None.

    Parameters
    ----------
    name : str
        One of `MECHANISMS`.
    given : dict of str to float or None
        Settings, in votes; `confidence` is a probability.
    spelled : callable
        How the user writes a setting: `as_option` or `as_entry`.

    Raises
    ------
    ConfigError
        If the name is unknown, or other settings than its own were given.
    InvalidParameterError
        If a setting is out of range.
    """
    if name not in MECHANISMS:
        raise ConfigError(f"The mechanism must be one of {', '.join(MECHANISMS)}. Got {name!r}.")
    kind, settings = MECHANISMS[name]
    found = {key: value for key, value in given.items() if value is not None}
    if set(found) != set(settings):
        needed, given_too = [spelled(key) for key in settings], [spelled(key) for key in found if key not in settings]
        missing = [spelled(key) for key in settings if key not in found]
        wrong = [
            f"{' and '.join(keys)} {what}" for keys, what in ((missing, "missing"), (given_too, "too much")) if keys
        ]
        raise ConfigError(f"{name} takes {', '.join(needed)} and no other settings: {', '.join(wrong)}.")
    parameters: dict[str, Any] = {settings[key]: value for key, value in found.items()}
    return kind(**parameters)
