"""``tutelage label``: labels for public rows from existing votes, spent from a ledger."""

import csv
import re
from pathlib import Path

import numpy as np

from tutelage._internal.files import name_in, read_arrays
from tutelage._internal.outputs import claim_output, form
from tutelage._internal.typing import Matrix
from tutelage.ballots import VoteHistogram
from tutelage.cli.settings import Chosen, choosing_mechanism
from tutelage.cli.text import (
    ANOTHER_FILE,
    Array,
    AsJson,
    Teachers,
    interruption_says,
    print_json,
    say,
)
from tutelage.digests import canonical
from tutelage.exceptions import ConfigError, InvalidDataError
from tutelage.ledger import Ledger, LedgerState
from tutelage.mechanisms import Release
from tutelage.noise import SystemNoise
from tutelage.privacy import round_up
from tutelage.tables import TABLE_FILES, read_table

_LABELED = rb"public_row,(label|finding_0)[\w,]*\r?\n(\d+(,\d*)+\r?\n)*"
_LABELS = form("labels", lambda path: bool(re.fullmatch(_LABELED, path.read_bytes())))


@choosing_mechanism(predictions=True)
def label(
    public: Path,
    *,
    votes: Path,
    ledger: Path,
    chosen: Chosen,
    output: Path,
    predictions: Path | None = None,
    question: str = "",
    array: Array = None,
    teachers: Teachers = None,
    as_json: AsJson = False,
) -> None:
    """Label public rows from existing votes.

    Rows that were labeled before get the same label again, and nothing is spent on them.

    Parameters
    ----------
    public
        Public rows that were voted on (csv, Parquet, npz).
    votes
        npz file with the private votes, one row per public row, in the same order.
    ledger
        Ledger of the private data. `tutelage ledger init` creates one.
    output
        csv file to write the labels to.
    predictions
        interactive: npz file with the student's probabilities (rows x classes).
    question
        Name of what was voted on, if you ask several things about the same rows.
    """
    released_by = chosen.mechanism
    if released_by.takes_predictions != (predictions is not None):
        raise ConfigError(
            "--predictions must be given with --mechanism interactive, and with no other mechanism."
        )
    with claim_output(output, _LABELS, way_out=ANOTHER_FILE) as claim:
        rows, question = read_rows(public, question)
        student = None if predictions is None else _predictions(predictions, len(rows))
        histogram = VoteHistogram.load(votes, array=array, n_teachers=teachers, n_queries=len(rows))
        budget = Ledger.open(ledger)
        noise = SystemNoise(progress=not as_json)
        # It loads scikit-learn, which help does not need.
        from tutelage.labeling import LabelingSession

        session = LabelingSession(histogram, released_by, budget, question=question, noise=noise)
        with interruption_says(
            "no labels were written. The budget reserved for them stays spent, and stored labels are remembered."
        ):
            release = session.ask(rows, student)
        with claim.write() as part, part.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["public_row", "label"])
            writer.writerows(
                [row, "" if label < 0 else label]
                for row, label in enumerate(release.labels.tolist())
            )
    _report(release, session.n_remembered, budget.state(), ledger, output, as_json=as_json)


def _report(
    release: Release,
    n_remembered: int,
    state: LedgerState,
    ledger: Path,
    output: Path,
    *,
    as_json: bool,
) -> None:
    """Print how many labels were written, what they spent, and what is left of the budget."""
    asked = release.labels.size
    answered = int(np.sum(release.answered))
    if as_json:
        print_json(
            {
                "asked": asked,
                "answered": answered,
                "cost": release.cost,
                "labels": str(output),
                "event": release.event.as_dict(),
                "ledger": state.as_dict(),
            }
        )
        return
    wrote = f"Wrote {answered:,} of {asked:,} labels to {output}."
    if answered < asked:
        wrote += " The mechanism abstained on the others."
    say(wrote)
    say(
        f"This spent {round_up(release.cost):.4f} of the budget ε = {state.budget:g} at δ = {state.delta:g}."
    )
    say(state)
    if n_remembered:
        which = f"{n_remembered:,} rows were"
        if release.cost == 0:
            which = "Every row was"
        say(
            f"{which} labeled before. Labels from earlier releases are repeated, and nothing is spent on them."
        )
    say(f"Next: tutelage card --ledger {ledger} --output card")


def read_rows(path: Path, question: str) -> tuple[Matrix, str]:
    """Return public rows as they are asked, and the question with the names of their columns, where they have any."""
    if not path.name.lower().endswith(TABLE_FILES):
        arrays = read_arrays(path)
        return arrays[name_in(arrays, path, None, "X")], question
    table = read_table(path)
    # As text: a row is the same row in every file.
    return table.rows(), canonical([question, list(table.columns)])


def _predictions(path: Path, rows: int) -> Matrix:
    """Return a student's probabilities from an npz file, one row per public row."""
    arrays = read_arrays(path)
    name = name_in(arrays, path, None, "X")
    form = arrays.form(name)
    if len(form.shape) != 2 or form.shape[0] != rows or form.dtype.kind not in "fiu":
        raise InvalidDataError(
            f"`predictions` must be numbers with one row per public row, {rows} x classes. Got {form.dtype} of shape "
            f"{form.shape} in {path}."
        )
    return arrays[name]
