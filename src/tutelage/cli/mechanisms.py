"""The mechanisms that the command line and the run configuration know by name, and the settings that each takes."""

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

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
from tutelage.mechanisms.local import (
    KRandomizedResponse,
    LocalGaussian,
    LocalMechanism,
    TruncatedGeometric,
    TruncatedGeometricAsPrinted,
)

Kind = TypeVar("Kind", bound=Mechanism | LocalMechanism)
Scale = Annotated[float | None, typer.Option(help="lnmax, exponential, permute-and-flip: scale in votes, 1/gamma.")]
Sigma = Annotated[float | None, typer.Option(help="gnmax, confident: sigma of the answer's noise, in votes.")]
Threshold = Annotated[float | None, typer.Option(help="confident: votes that a class must reach under noise.")]
SigmaThreshold = Annotated[float | None, typer.Option(help="confident: sigma of the check's noise, in votes.")]


class Known(NamedTuple, Generic[Kind]):
    """A mechanism and, for each of its settings, the parameter that it sets."""

    kind: type[Kind]
    settings: Mapping[str, str]


_BY_NOISE = {"laplace": "lnmax", "laplacian": "lnmax", "gaussian": "gnmax", "gauss": "gnmax", "normal": "gnmax"}
_CHECKED = {"threshold": "threshold", "sigma_threshold": "sigma_threshold", "sigma": "sigma_vote"}
MECHANISMS: dict[str, Known[Mechanism]] = {
    "lnmax": Known(LNMax, {"scale": "scale"}),
    "gnmax": Known(GNMax, {"sigma": "sigma"}),
    "confident": Known(ConfidentGNMax, _CHECKED),
    "interactive": Known(InteractiveGNMax, {**_CHECKED, "confidence": "confidence"}),
    "exponential": Known(ExponentialMax, {"scale": "scale"}),
    "permute-and-flip": Known(PermuteAndFlip, {"scale": "scale"}),
}
FEDERATED: dict[str, Known[Any]] = {
    "gnmax": MECHANISMS["gnmax"],
    "confident": MECHANISMS["confident"],
    "k-randomized-response": Known(KRandomizedResponse, {"epsilon": "epsilon"}),
    "truncated-geometric": Known(TruncatedGeometric, {"epsilon": "epsilon"}),
    "truncated-geometric-as-printed": Known(TruncatedGeometricAsPrinted, {"epsilon": "epsilon"}),
    "local-gaussian": Known(LocalGaussian, {"sigma": "sigma"}),
}


def as_option(setting: str) -> str:
    """Return a setting as the command line spells it."""
    return f"--{setting.replace('_', '-')}"


def as_entry(setting: str) -> str:
    """Return a setting as the run configuration spells it."""
    return f"`{setting}`"


def build_mechanism(name: str, given: Mapping[str, float | None], spelled: Callable[[str], str]) -> Mechanism:
    """Return the mechanism of `MECHANISMS` called `name`, as `build_of` does."""
    return build_of(MECHANISMS, name, given, spelled)


def build_of(
    known: Mapping[str, Known[Kind]], name: str, given: Mapping[str, float | None], spelled: Callable[[str], str]
) -> Kind:
    """Return the mechanism `name` with those settings that are not None.

    Parameters
    ----------
    known : dict of str to Known
        `MECHANISMS` or `FEDERATED`.
    name : str
        One of these.
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
    if name not in known:
        raise ConfigError(f"The mechanism must be one of {', '.join(known)}. Got {name!r}.{_meant(name, known)}")
    kind, settings = known[name]
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


def mechanism_option(names: Sequence[str], *, help: str = "How the votes are released.") -> Any:  # noqa: A002
    """Return the option that takes one of these mechanisms by its name."""

    def named(text: str) -> str:
        if text not in names:
            raise ConfigError(f"--mechanism must be one of {', '.join(names)}. Got {text!r}.{_meant(text, names)}")
        return text

    return typer.Option(
        help=help,
        parser=named,
        metavar=f"[{'|'.join(names)}]",
        autocompletion=lambda: list(names),
    )


def _meant(name: str, known: Iterable[str]) -> str:
    """Return which mechanism a name that is none is near to: of the same noise, or spelled nearly alike."""
    plain = name.lower().replace("_", "-")
    near = [_BY_NOISE[plain]] if _BY_NOISE.get(plain) in [*known] else difflib.get_close_matches(plain, known, 1)
    return f" Did you mean '{near[0]}'?" if near else ""
