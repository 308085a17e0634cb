"""The terms of a consortium, as its settings file says them and as members read them before they join."""

import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from tutelage.budget import round_up
from tutelage.cli.ledger import RELATIONS, Neighbours
from tutelage.exceptions import ConfigError
from tutelage.federation import Consortium, Member
from tutelage.federation.costs import epsilon_of_queries
from tutelage.federation.members.consortium import FederatedMechanism
from tutelage.mechanisms import ConfidentGNMax, GNMax
from tutelage.mechanisms.local import (
    KRandomizedResponse,
    LocalGaussian,
    TruncatedGeometric,
    TruncatedGeometricAsPrinted,
)
from tutelage.neighboring import PrivacyUnit

_MECHANISMS: dict[str, Any] = {
    "gnmax": GNMax,
    "confident": ConfidentGNMax,
    "k-randomized-response": KRandomizedResponse,
    "truncated-geometric": TruncatedGeometric,
    "truncated-geometric-as-printed": TruncatedGeometricAsPrinted,
    "local-gaussian": LocalGaussian,
}
_ENTRIES = {"name", "classes", "members", "mechanism", "unit", "quorum", "teachers_per_entity", "colluding"}
_SHOWN_QUERIES, _SHOWN_DELTA = 100, 1e-5


def read_terms(path: Path) -> Consortium:
    """Return the consortium that a settings file describes; member files are relative to it.

    Parameters
    ----------
    path : path
        A TOML file with ``name``, ``classes``, ``members`` (public key files), ``quorum``, ``colluding``,
        ``teachers_per_entity``, and tables ``[mechanism]`` (``name`` and its parameters) and ``[unit]`` (``name``,
        ``neighbours``).

    Raises
    ------
    ConfigError
        If it is no TOML, or an entry is missing, unknown or of the wrong type.
    """
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist. Name the file with the terms.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is no TOML file: {error}.") from None
    _require_entries(found, _ENTRIES, {"colluding", "teachers_per_entity"}, "the terms")
    members = found["members"]
    if not isinstance(members, list) or not all(isinstance(name, str) for name in members):
        raise ConfigError("`members` in the terms must be a list of public key files.")
    return Consortium(
        name=found["name"],
        members=tuple(Member.load(path.parent / name) for name in members),
        n_classes=found["classes"],
        mechanism=_mechanism(found["mechanism"]),
        teachers_per_entity=found.get("teachers_per_entity", 1),
        quorum=found["quorum"],
        colluding=found.get("colluding", 0),
        unit=_unit(found["unit"]),
    )


def describe(consortium: Consortium) -> None:
    """Print what a member must know before it joins."""
    table = Table("", "", title=consortium.name, title_justify="left", show_header=False)
    table.add_row("entities", ", ".join(member.name for member in consortium.entities))
    if not consortium.is_local:
        table.add_row("computing parties", ", ".join(f"{m.name} at {m.address}" for m in consortium.computing_parties))
    table.add_row("aggregator", consortium.aggregator.name)
    table.add_row("mechanism", repr(consortium.mechanism))
    table.add_row("classes", f"{consortium.n_classes}")
    table.add_row("protects", f"{consortium.unit.name}: {consortium.unit.neighboring}")
    quorum = f"{consortium.quorum} of {len(consortium.entities)}"
    table.add_row("quorum", quorum if consortium.is_local else f"{quorum}; {consortium.colluding} may collude")
    cost = epsilon_of_queries(consortium, _SHOWN_QUERIES, _SHOWN_DELTA)
    table.add_row(f"{_SHOWN_QUERIES} queries cost", f"ε = {round_up(cost.epsilon):.4f} at δ = {_SHOWN_DELTA:g}")
    Console().print(table)
    typer.echo(f"fingerprint {consortium.fingerprint}")


def _mechanism(found: Any) -> FederatedMechanism:
    if not isinstance(found, dict) or found.get("name") not in _MECHANISMS:
        raise ConfigError(f"`name` in [mechanism] must be one of {', '.join(_MECHANISMS)}.")
    parameters = {key: value for key, value in found.items() if key != "name"}
    kind = _MECHANISMS[found["name"]]
    _require_entries(parameters, {field.name for field in fields(kind)}, set(), "[mechanism]")
    return kind(**parameters)


def _unit(found: Any) -> PrivacyUnit:
    if not isinstance(found, dict) or found.get("neighbours") not in list(Neighbours):
        raise ConfigError(f"`neighbours` in [unit] must be one of {', '.join(Neighbours)}.")
    _require_entries(found, {"name", "neighbours"}, set(), "[unit]")
    return PrivacyUnit(found["name"], RELATIONS[Neighbours(found["neighbours"])])


def _require_entries(found: dict[str, Any], known: set[str], optional: set[str], where: str) -> None:
    missing, unknown = sorted(known - optional - set(found)), sorted(set(found) - known)
    if missing or unknown:
        wrong = [f"{', '.join(names)} {what}" for names, what in ((missing, "missing"), (unknown, "unknown")) if names]
        raise ConfigError(f"Entries of {where} must be {', '.join(sorted(known))}: {'; '.join(wrong)}.")
