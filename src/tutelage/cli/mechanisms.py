"""Mechanisms by name: one option per setting on the command line, one table in a configuration."""

import difflib
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, NamedTuple, TypeVar

import typer

from tutelage.cli.settings import check_entries
from tutelage.exceptions import ConfigError
from tutelage.mechanisms import Mechanism, NoisySum
from tutelage.mechanisms.local import LocalMechanism
from tutelage.mechanisms.registry import CENTRAL, Entry

Kind = TypeVar("Kind", bound=Mechanism | LocalMechanism)

SUM = "noisy-sum"
_BY_NOISE = {"laplace": "lnmax", "laplacian": "lnmax", "gaussian": "gnmax", "gauss": "gnmax", "normal": "gnmax"}


class Chosen(NamedTuple):
    """The mechanism that options describe."""

    name: str
    settings: dict[str, Any]
    mechanism: Mechanism

    def as_options(self) -> str:
        """Return the options that describe the mechanism."""
        settings = " ".join(f"{_as_option(name)} {value:g}" for name, value in self.settings.items())
        return f"--mechanism {self.name} {settings}"


def choosing_mechanism(*, predictions: bool = False) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace a verb's parameter of type `Chosen` by ``--mechanism`` and an option for each setting."""
    known = {name: entry for name, entry in CENTRAL.items() if predictions or not entry.make_sharp().takes_predictions}

    def decorate(verb: Callable[..., None]) -> Callable[..., None]:
        taken = signature(verb).parameters.values()
        place = next(parameter.name for parameter in taken if parameter.annotation is Chosen)
        options = _options(known)

        @wraps(verb)
        def with_options(**arguments: Any) -> None:
            name, *given = (arguments.pop(option.name) for option in options)
            settings = {
                option.name: value for option, value in zip(options[1:], given, strict=True) if value is not None
            }
            chosen = Chosen(name, settings, _build(known, name, settings, _as_option))
            verb(**arguments, **{place: chosen})

        shown = [option for parameter in taken for option in (options if parameter.name == place else [parameter])]
        with_options.__signature__ = Signature(  # type: ignore[attr-defined]
            [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in shown]
        )
        return with_options

    return decorate


def read_mechanism(table: Any, known: Mapping[str, Entry[Kind]]) -> Kind:
    """Return the mechanism that a table ``[mechanism]`` describes."""
    types = {setting.name: entry.type_of(setting) for entry in known.values() for setting in entry.settings}
    check_entries(table, {"name": str, **types}, {"name"}, "[mechanism]")
    settings = {name: value for name, value in table.items() if name != "name"}
    return _build(known, table["name"], settings, lambda setting: f"`{setting}`")


def read_sum(table: Any) -> NoisySum | None:
    """Return the noisy sum that a table ``[mechanism]`` describes; None for as little noise as the budget allows."""
    if not table:
        return None
    check_entries(table, {"name": str, "noise_multiplier": float}, {"name", "noise_multiplier"}, "[mechanism]")
    if table["name"] != SUM:
        raise ConfigError(
            f"`name` in [mechanism] must be '{SUM}' where people cast a ballot of vectors. Got {table['name']!r}. "
            "Leave [mechanism] out for as little noise as the budget allows."
        )
    return NoisySum(table["noise_multiplier"])


def _build(
    known: Mapping[str, Entry[Kind]], name: str, given: Mapping[str, Any], spelled: Callable[[str], str]
) -> Kind:
    if name not in known:
        raise ConfigError(f"The mechanism must be one of {', '.join(known)}. Got {name!r}.{_meant(name, known)}")
    parameters = {setting.name: setting.parameter for setting in known[name].settings}
    if set(given) != set(parameters):
        missing = [spelled(key) for key in parameters if key not in given]
        too_much = [spelled(key) for key in given if key not in parameters]
        wrong = [
            f"{' and '.join(keys)} {what}" for keys, what in ((missing, "missing"), (too_much, "too much")) if keys
        ]
        needed = ", ".join(map(spelled, parameters))
        raise ConfigError(f"{name} takes {needed} and no other settings: {', '.join(wrong)}.")
    return known[name].kind(**{parameters[key]: value for key, value in given.items()})


def _options(known: Mapping[str, Entry[Mechanism]]) -> list[Parameter]:
    """Return ``--mechanism`` and an option per setting, each with the mechanisms that take it."""
    names = [*known]

    def named(text: str) -> str:
        if text not in names:
            raise ConfigError(f"--mechanism must be one of {', '.join(names)}. Got {text!r}.{_meant(text, names)}")
        return text

    def option(name: str, kind: Any, default: Any, **shown: Any) -> Parameter:
        annotation = Annotated[kind, typer.Option(**shown)]
        return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)

    takers: dict[str, list[str]] = {}
    meanings: dict[str, tuple[Any, str]] = {}
    for entry in known.values():
        for setting in entry.settings:
            takers.setdefault(setting.name, []).append(entry.name)
            meanings[setting.name] = entry.type_of(setting), setting.help
    said = {"help": f"How labels are released from the votes: {', '.join(names)}.", "metavar": "NAME"}
    chosen = option("mechanism", str, Parameter.empty, parser=named, autocompletion=lambda: names, **said)
    settings = [
        option(name, kind | None, None, help=f"{', '.join(takers[name])}: {meaning}.")
        for name, (kind, meaning) in meanings.items()
    ]
    return [chosen, *settings]


def _as_option(setting: str) -> str:
    return f"--{setting.replace('_', '-')}"


def _meant(name: str, known: Iterable[str]) -> str:
    """Return a hint at the mechanism that an unknown name may mean: of the same noise, or of similar spelling."""
    plain = name.lower().replace("_", "-")
    near = [_BY_NOISE[plain]] if _BY_NOISE.get(plain) in [*known] else difflib.get_close_matches(plain, known, 1)
    return f" Did you mean '{near[0]}'?" if near else ""
