"""``tutelage label``: released labels for public rows that were voted on, charged to a ledger."""

import csv
import json
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from tutelage.budget import round_up
from tutelage.cli.mechanisms import Chosen, choosing_mechanism
from tutelage.cli.outputs import check_output, written_whole
from tutelage.cli.public_rows import read_predictions, read_rows
from tutelage.exceptions import ConfigError
from tutelage.labeling import LabelingSession
from tutelage.ledger import Ledger, LedgerState
from tutelage.mechanisms import MultiLabel, Release
from tutelage.mechanisms.registry import MULTI_LABEL
from tutelage.noise import SystemNoise
from tutelage.votes import VoteHistogram


@choosing_mechanism(predictions=True)
def label(
    public: Annotated[Path, typer.Argument(help="Public rows that were voted on: csv, or npz.", show_default=False)],
    votes: Annotated[Path, typer.Option(help="npz file with the private votes, one row per public row, in order.")],
    ledger: Annotated[Path, typer.Option(help="The ledger of the private data; `tutelage ledger init` makes one.")],
    chosen: Chosen,
    output: Annotated[Path, typer.Option(help="csv file to write the labels to.")],
    predictions: Annotated[
        Path | None, typer.Option(help="interactive: npz file with the student's probabilities, rows x classes.")
    ] = None,
    predictions_array: Annotated[
        str | None, typer.Option(help="Array of the predictions in their file, if it holds several.")
    ] = None,
    findings: Annotated[int | None, typer.Option(help=f"Number of {MULTI_LABEL.settings[0].help}.")] = None,
    question: Annotated[str, typer.Option(help="What was voted on, if the same rows are asked several things.")] = "",
    array: Annotated[str | None, typer.Option(help="Array of the votes in its file, if it holds several.")] = None,
    public_array: Annotated[str | None, typer.Option(help="Array of the public rows in an npz file.")] = None,
    teachers: Annotated[int | None, typer.Option(help="Number of teachers, if the row sums do not show it.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Write released labels of PUBLIC rows. Rows asked before get the same label again, at no cost."""
    released_by = chosen.mechanism
    if findings is not None:
        released_by = MultiLabel(released_by, findings)
    if released_by.takes_predictions != (predictions is not None):
        raise ConfigError("--predictions goes with the interactive mechanism, which needs it. Pass both or neither.")
    inputs = [ledger, votes, public, *([] if predictions is None else [predictions])]
    check_output(output, *inputs)
    rows, question = read_rows(public, public_array, question)
    student = None if predictions is None else read_predictions(predictions, predictions_array, len(rows))
    voted = len(rows) * released_by.votes_per_query
    histogram = VoteHistogram.load(votes, array=array, n_teachers=teachers, n_queries=voted)
    budget = Ledger.open(ledger)
    noise = SystemNoise(progress=not as_json)
    session = LabelingSession(histogram, released_by, budget, question=question, noise=noise)
    try:
        release = session.ask(rows, student)
    except KeyboardInterrupt:
        typer.secho(
            "tutelage: interrupted; no labels were written. What had been reserved stays spent, and labels that had "
            "been stored are remembered.",
            err=True,
            fg=typer.colors.YELLOW,
        )
        raise typer.Exit(130) from None
    _write(output, release)
    _print(release, budget.state(), output, session.n_remembered, as_json=as_json)


def _write(output: Path, release: Release) -> None:
    labels = release.labels.reshape(len(release.labels), -1)
    names = ["label"] if release.labels.ndim == 1 else [f"finding_{number}" for number in range(labels.shape[1])]
    with written_whole(output) as part, part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["public_row", *names])
        for row, values in enumerate(labels.tolist()):
            writer.writerow([row, *("" if value < 0 else value for value in values)])


def _print(release: Release, state: LedgerState, output: Path, remembered: int, *, as_json: bool) -> None:
    asked, answered = release.labels.size, int(np.sum(release.answered))
    if as_json:
        counts = {"asked": asked, "answered": answered, "cost": release.cost, "labels": str(output)}
        typer.echo(json.dumps({**counts, "event": release.event.as_dict(), "ledger": state.as_dict()}, indent=2))
        return
    others = "" if answered == asked else " For the others the mechanism abstained."
    typer.echo(f"{answered:,} of {asked:,} labels were given; they are in {output}.{others}")
    typer.echo(f"They took {round_up(release.cost):.4f} of the budget ε = {state.budget:g} at δ = {state.delta:g}.")
    typer.echo(state)
    if remembered:
        which = "Every row" if release.cost == 0 else f"{remembered:,} rows"
        typer.echo(f"{which} had been asked before: the same answers again. These votes were not used for them.")
