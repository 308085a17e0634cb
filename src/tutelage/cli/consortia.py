"""The terms of a consortium, as its settings file says them and as members read them before they join."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from tutelage.cli.ledger import Neighbours, unit_of
from tutelage.cli.mechanisms import read_mechanism
from tutelage.cli.settings import OneOf, check_entries, read_settings
from tutelage.cli.text import plain_console
from tutelage.exceptions import ConfigError
from tutelage.federation import Consortium, Member
from tutelage.federation.costs import epsilon_of_queries
from tutelage.federation.documents import listed
from tutelage.federation.mailbox import BatchStatus
from tutelage.mechanisms.local import LocalMechanism
from tutelage.mechanisms.registry import FEDERATED
from tutelage.privacy import round_up

_REQUIRED = {"name": str, "classes": int, "members": list, "mechanism": dict, "unit": dict, "quorum": int}
_OPTIONAL = {"teachers_per_entity": int, "colluding": int}
_UNIT = {"neighbours": Annotated[str, OneOf(Neighbours)], "name": str}
_SHOWN_QUERIES, _SHOWN_DELTA = 100, 1e-5


def read_terms(path: Path) -> Consortium:
    """Return the consortium that a settings file describes; member files are relative to it."""
    found = read_settings(path)
    check_entries(found, _REQUIRED | _OPTIONAL, _REQUIRED, "the terms file")
    members, unit = found["members"], found["unit"]
    if not all(isinstance(name, str) for name in members):
        raise ConfigError("`members` in the terms must be a list of public key files.")
    answers = read_mechanism(found["mechanism"], FEDERATED)
    check_entries(unit, _UNIT, ["neighbours"], "[unit]")
    return Consortium(
        name=found["name"],
        members=tuple(Member.load(path.parent / name) for name in members),
        n_classes=found["classes"],
        mechanism=answers,
        teachers_per_entity=found.get("teachers_per_entity", 1),
        quorum=found["quorum"],
        colluding=found.get("colluding", 0 if isinstance(answers, LocalMechanism) else 1),
        unit=unit_of(Neighbours(unit["neighbours"]), unit.get("name")),
    )


def describe(consortium: Consortium) -> None:
    """Print what a member must know before it joins."""
    # As Text, a name in square brackets is printed as it is and not obeyed.
    table = Table("", "", title=Text(consortium.name), title_justify="left", show_header=False)
    table.add_row("mechanism", Text(repr(consortium.mechanism)))
    table.add_row("classes", f"{consortium.n_classes}")
    table.add_row("protects", Text(f"{consortium.unit.name}: {consortium.unit.neighboring.sentence}"))
    quorum = f"{consortium.quorum} of {len(consortium.entities)}"
    table.add_row("quorum", quorum if consortium.is_local else f"{quorum}; {consortium.colluding} may collude")
    cost = epsilon_of_queries(consortium, _SHOWN_QUERIES, _SHOWN_DELTA)
    table.add_row(f"{_SHOWN_QUERIES} queries cost", f"ε = {round_up(cost.epsilon):.4f} at δ = {_SHOWN_DELTA:g}")
    plain_console().print(table)
    typer.echo("members, each with the fingerprint that `keygen` printed")
    for member in consortium.members:
        where = "" if member.address is None else f" at {member.address}"
        typer.echo(f"  {member.fingerprint}  {member.name}, {member.role}{where}")
    typer.echo(f"fingerprint of all of this\n  {in_groups(consortium.fingerprint)}")


def describe_status(consortium: Consortium, batches: Sequence[BatchStatus]) -> None:
    """Print how far the batches are, who is missing, and what comes next."""
    table = Table("batch", "queries", "entities answered", "computing parties done")
    for each in batches:
        answered = f"{len(each.answered)} of {len(consortium.entities)}; {consortium.quorum} needed"
        table.add_row(each.batch[:8], f"{each.queries:,}", answered, ", ".join(each.computed) or "none")
    plain_console().print(table)
    for each in batches:
        missing = f"No answer from {listed(each.missing)}. " * bool(each.missing)
        typer.echo(f"{each.batch[:8]}: {missing}Next: {_next_step(consortium, each)}")


def _next_step(consortium: Consortium, found: BatchStatus) -> str:
    """Return who must do what before the labels of a batch are there."""
    parties, short = [party.name for party in consortium.computing_parties], consortium.quorum - len(found.answered)
    if short > 0 and not found.computed:
        return f"{short} more must run `tutelage federate vote`."
    if consortium.is_local or found.complete:
        return f"{consortium.aggregator.name} can run `tutelage federate collect`."
    return f"{', '.join(parties)} must run `tutelage federate compute` at the same time."


def in_groups(digits: str) -> str:
    """Return digits in groups of four, as people read them to each other."""
    return " ".join(re.findall(".{1,4}", digits))
