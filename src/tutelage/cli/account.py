"""``tutelage account``: what answering these votes costs."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from tutelage._validation import probability
from tutelage.accounting import bounds_2017, data_independent
from tutelage.budget import PrivateEpsilon, PublicEpsilon, round_up
from tutelage.cli.mechanisms import MECHANISMS, build_mechanism
from tutelage.mechanisms import LNMax, Mechanism
from tutelage.votes import VoteHistogram

MechanismName = StrEnum("MechanismName", list(MECHANISMS))  # the choices that --help shows


def account(
    votes: Annotated[Path, typer.Argument(help="npz file with vote counts, queries x classes.", show_default=False)],
    mechanism: Annotated[MechanismName, typer.Option(help="How the votes are released.")],
    delta: Annotated[float, typer.Option(help="Target delta, between 0 and 1.")],
    scale: Annotated[float | None, typer.Option(help="lnmax: Laplace scale in votes, 1/gamma.")] = None,
    sigma: Annotated[float | None, typer.Option(help="gnmax: Gaussian sigma in votes.")] = None,
    array: Annotated[str | None, typer.Option(help="Name of the array in the file, if it holds several.")] = None,
    first: Annotated[int | None, typer.Option(help="Account for the first so many queries only.")] = None,
    teachers: Annotated[int | None, typer.Option(help="Number of teachers, if the row sums do not show it.")] = None,
    reveal_private: Annotated[
        bool,
        typer.Option("--reveal-private", help="Also print the costs that depend on the votes. Never publish them."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print the epsilon of answering every query in VOTES once, publishable and private."""
    probability(delta, "--delta", "account")
    chosen = build_mechanism(mechanism, scale=scale, sigma=sigma)
    histogram = VoteHistogram.load(votes, array=array, n_teachers=teachers)
    if first is not None:
        histogram = histogram.first(first)
    costs: dict[str, PublicEpsilon | PrivateEpsilon | None] = {
        "data_independent": data_independent.epsilon(chosen.event(histogram, simulated=False), delta),
        "bound_2017": None,
        "bound_2017_discrete": None,
    }
    if isinstance(chosen, LNMax):
        costs["bound_2017"] = bounds_2017.published_epsilon(histogram, chosen.scale, delta)
        costs["bound_2017_discrete"] = bounds_2017.discrete_epsilon(histogram, chosen.scale, delta)
    if as_json:
        sizes = {
            "queries": histogram.n_queries,
            "classes": histogram.n_classes,
            "teachers": histogram.n_teachers,
        }
        terms = {
            "delta": delta,
            "mechanism": str(chosen),
            "unit": histogram.unit.name,
            "neighbouring": str(histogram.unit.neighboring),
        }
        opened = {name: _as_json(cost, reveal_private) for name, cost in costs.items()}
        typer.echo(json.dumps({**opened, **sizes, **terms}, indent=2))
    else:
        _print_table(costs, histogram, chosen, delta, reveal_private)


def _as_json(cost: PublicEpsilon | PrivateEpsilon | None, reveal: bool) -> dict[str, Any] | None:
    if cost is None:
        return None
    if isinstance(cost, PublicEpsilon):
        return {"epsilon": cost.epsilon, "order": cost.order, "method": cost.method, "publishable": True}
    opened = (cost.reveal(), cost.reveal_order()) if reveal else (None, None)
    return {"epsilon": opened[0], "order": opened[1], "method": cost.method, "publishable": False}


def _print_table(
    costs: dict[str, PublicEpsilon | PrivateEpsilon | None],
    votes: VoteHistogram,
    mechanism: Mechanism,
    delta: float,
    reveal: bool,
) -> None:
    title = f"{mechanism} on {votes.n_queries:,} queries, {votes.n_classes} classes, {votes.n_teachers:,} teachers"
    table = Table(
        "epsilon",
        "publish?",
        "proved by",
        title=title,
        caption=f"delta = {delta:g}; {votes.unit.neighboring}",
    )
    for cost in costs.values():
        if isinstance(cost, PublicEpsilon):
            table.add_row(f"{round_up(cost.epsilon):.4f}", "yes", cost.method)
        elif cost is not None:
            shown = f"{round_up(cost.reveal()):.4f}" if reveal else "hidden"
            table.add_row(shown, "[bold red]no[/]", cost.method)
    Console().print(table)
    if not reveal and any(isinstance(cost, PrivateEpsilon) for cost in costs.values()):
        typer.echo("Hidden values depend on the private votes; --reveal-private shows them to the data's owner.")
