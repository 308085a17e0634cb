"""``tutelage predict``: predictions of a published student for new rows."""

import csv
from io import StringIO
from pathlib import Path
from typing import Any

from tutelage._internal.records import Entries
from tutelage.cli.text import say, write_new
from tutelage.exceptions import ConfigError, InvalidDataError
from tutelage.students.store import load_student
from tutelage.tables import read_table

_ENDS = (0.1, 0.9)  # shares of rows like a row, whose numbers lie below the ends that are shown


def predict(
    results: Path,
    rows: Path,
    *,
    keep: list[str] | None = None,
    probabilities: bool = False,
    output: Path | None = None,
) -> None:
    """Predict new rows with a published student. It takes no ledger and spends nothing.

    The files of a results folder must be those of its manifest. If the student predicts a number, the columns `from`
    and `to` are the ends of an interval that contains the number for 80 % of rows.

    Parameters
    ----------
    results
        Results folder, or a student.skops.
    rows
        Table with the columns of the public rows.
    keep
        Column to copy, such as an id. Can be repeated.
    probabilities
        Also the probability of each class.
    output
        csv file to write.  [default: standard output]
    """
    student = load_student(results)
    table = read_table(rows)
    columns = Entries({name: table.texts(name) for name in keep or []})
    try:
        columns["prediction"] = student.predict(table).tolist()
    except (TypeError, ValueError) as error:
        # The error is one of scikit-learn where the student knows no names of columns.
        raise InvalidDataError(f"{rows} does not fit the student. {error}") from None
    if probabilities:
        if not hasattr(student, "predict_proba"):
            raise ConfigError("--probabilities must be left out: the student has none.")
        shares = student.predict_proba(table)  # (rows, classes)
        for name, cells in zip(student.classes_, shares.T.tolist(), strict=True):
            columns[f"probability of {name}"] = cells
    from sklearn.pipeline import Pipeline  # not every call needs it

    steps: Any = student
    if isinstance(student, Pipeline) and hasattr(steps[-1], "predict_quantiles"):
        ends = steps[-1].predict_quantiles(steps[:-1].transform(table), _ENDS)  # (rows, 2)
        columns["from"] = ends[:, 0].tolist()
        columns["to"] = ends[:, 1].tolist()
    text = StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(columns)
    lines.writerows(zip(*columns.values(), strict=True))
    if output is None:
        say(text.getvalue(), nl=False)
        return
    write_new(output, text.getvalue())
    say(f"Wrote {output}.")
