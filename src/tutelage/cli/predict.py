"""``tutelage predict``: what a published student says of new rows."""

import csv
from io import StringIO
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from tutelage._internal.files import name_in, read_arrays
from tutelage._internal.outputs import NEVER, claimed
from tutelage.cli.text import ANOTHER_FILE, say
from tutelage.exceptions import ConfigError, InvalidDataError
from tutelage.students import load_student
from tutelage.students.additive_mean import interval_of
from tutelage.tables import TABLE_FILES, Table, read_table


def predict(
    results: Annotated[Path, Argument(help="Results folder, or a student.skops.", show_default=False)],
    rows: Annotated[
        Path, Argument(help="New rows, with the columns of the public rows (csv, Parquet, npz).", show_default=False)
    ],
    keep: Annotated[
        list[str] | None, Option(metavar="COLUMN", help="Column to copy, such as an id. Can be repeated.")
    ] = None,
    probabilities: Annotated[
        bool, Option("--probabilities", help="Also the probability of each class, if the student has them.")
    ] = False,
    interval: Annotated[
        float | None, Option(help="For numbers: also the ends between which this share of like rows lie, such as 0.9.")
    ] = None,
    output: Annotated[Path | None, Option(help="csv file to write.  [default: standard output]")] = None,
) -> None:
    """Predict new rows with a published student. It takes no ledger and spends nothing.

    The files of a results folder must be those of its manifest.
    """
    student = load_student(results)
    parts = [one for _, one in student.steps] if hasattr(student, "steps") else [student]
    given: Any = read_table(rows) if rows.name.lower().endswith(TABLE_FILES) else _array(rows, keep)
    found = {name: given.texts(name) for name in keep or []}
    if isinstance(given, Table) and not hasattr(parts[0], "names"):
        raise ConfigError(f"{rows} must be an npz file with an array X: the student knows no names of columns.")
    try:
        found["prediction"] = student.predict(given).tolist()
    except ValueError as error:  # also of scikit-learn, about the form of rows without names
        raise InvalidDataError(f"{rows} does not fit the student. {error}") from None
    if probabilities:
        if not hasattr(student, "predict_proba"):
            raise ConfigError("--probabilities must be left out: the student has none.")
        shares = student.predict_proba(given).T.tolist()
        found |= {f"probability of {name}": cells for name, cells in zip(student.classes_, shares, strict=True)}
    if interval is not None:
        if not 0 < interval < 1 or not hasattr(parts[-1], "predict_quantiles"):
            raise ConfigError("--interval is a share such as 0.9, for students that know how numbers spread.")
        found |= dict(zip(("from", "to"), interval_of(parts, given, interval).T.tolist(), strict=True))
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerows([[*found], *zip(*found.values(), strict=True)])
    if output is None:
        say(text.getvalue(), nl=False)
        return
    with claimed(output, NEVER, way_out=ANOTHER_FILE) as claim, claim.written() as part:
        part.write_text(text.getvalue(), encoding="utf-8")
    say(f"Wrote {output}.")


def _array(path: Path, keep: list[str] | None) -> Any:
    if keep:
        raise ConfigError(f"--keep names columns of a table, and {path} has none. Leave it out.")
    arrays = read_arrays(path)
    return arrays[name_in(arrays, path, None, "X")]
