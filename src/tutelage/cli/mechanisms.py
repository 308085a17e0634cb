"""The mechanisms that the command line and the run configuration know by name."""

from tutelage.exceptions import ConfigError
from tutelage.mechanisms import GNMax, LNMax, Mechanism

MECHANISMS = {"lnmax": (LNMax, "scale"), "gnmax": (GNMax, "sigma")}


def build_mechanism(name: str, **noise: float | None) -> Mechanism:
    """Return the mechanism `name` with the one noise parameter that it takes.

    Raises
    ------
    ConfigError
        If the name is unknown, or another parameter than its own was given.
    InvalidParameterError
        If the noise is out of range.
    """
    if name not in MECHANISMS:
        raise ConfigError(f"The mechanism must be one of {', '.join(MECHANISMS)}. Got {name!r}.")
    kind, parameter = MECHANISMS[name]
    given = {key: value for key, value in noise.items() if value is not None}
    if set(given) != {parameter}:
        shown = ", ".join(f"{key}={value}" for key, value in given.items()) or "none"
        raise ConfigError(f"{name} takes `{parameter}`, its noise in votes, and no other noise. Got {shown}.")
    return kind(**given)
