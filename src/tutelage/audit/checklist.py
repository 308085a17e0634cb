"""The audits of one pipeline as a list of verdicts, each with its reason; first, whether its noise is fresh."""

import csv
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from io import StringIO
from math import ceil, isfinite
from pathlib import Path
from typing import Any, Literal, NamedTuple, final

import numpy as np
import numpy.typing as npt

from tutelage._internal.records import Names, by_identity, frozen
from tutelage._internal.typing import ABSTAIN, Array, IntArray, Matrix, Private
from tutelage.audit.mechanism import (
    LawAudit,
    Part,
    audit_law,
    audit_mechanism,
    event_of_one,
    law_at,
    law_p_value,
    least_of,
    noise_and_check,
    release_many,
    worst_neighbors,
)
from tutelage.audit.overlap import audit_overlap, entities_in_several_shards
from tutelage.events import Composed
from tutelage.features import PublicColumns, Schema
from tutelage.features.columns import numbered_as, numbered_rows
from tutelage.mechanisms import Mechanism
from tutelage.mechanisms.registry import entry_of
from tutelage.noise import NoiseSource, known_noise
from tutelage.privacy import round_up
from tutelage.tables import MOMENT, Table, is_number, read_table
from tutelage.testing.laws import p_value_of, rows_apart

_ROWS = 2_000
_SMALL_BATCHES = (1, 2, 10, 50, 99)
_SMALL_ROWS = 300  # of each size
_PROBED_CLASSES = 3
_STALE_NOISE = (
    "Two releases of a batch with {} are alike: their noise is replayed.",
    "Queries of one batch with {} share noise: what differs between them is released.",
    "Labels of {} are not as frequent as the accounting takes them to be.",
    "In batches of less than 100 queries with {}, noise is not what it is in large ones.",
)


class _Probe(NamedTuple):
    """Made-up votes of a query, and what a student predicts where the mechanism asks it."""

    counts: tuple[int, ...]
    prediction: tuple[float, ...] | None = None


def _audit_fresh_noise(
    mechanism: Mechanism,
    probe: _Probe,
    noise: NoiseSource | None = None,
) -> Names:
    """Release batches of equal made-up queries, large and small, and return what shows missing or reused noise.

    Exact binomial tests: two independent labels agree with the probability Σ_j p_j². Reuse in few queries of many, or
    between queries far apart in an order of its own, is not seen.
    """
    source = known_noise(noise, "check_mechanism")
    teachers = sum(probe.counts)
    law = law_at(mechanism, probe.counts, probe.prediction, teachers)
    by_chance = float(np.sum(law**2))

    def labels_of(rows: int) -> IntArray:
        release = release_many(
            mechanism,
            probe.counts,
            rows,
            source,
            teachers,
            probe.prediction,
        )
        return np.where(release.voted, release.labels, ABSTAIN)

    def p_value_of_agreement(left: IntArray, right: IntArray) -> float:
        return p_value_of(int(np.sum(left == right)), len(left), by_chance)

    first = labels_of(_ROWS)
    second = labels_of(_ROWS)
    of_small_batches = list[float]()
    for size in _SMALL_BATCHES:
        batches = [labels_of(size) for _ in range(ceil(_SMALL_ROWS / size))]
        of_small_batches.append(law_p_value(np.concatenate(batches), law))

    # Queries are looked at in pairs of arrays; within a pair, no query stands twice.
    half = _ROWS // 2
    of_pairs = [p_value_of_agreement(first[:half], first[::-1][:half])]
    for places, lag in rows_apart(_ROWS):
        of_pairs.append(p_value_of_agreement(first[places], first[places + lag]))

    p_values = (
        p_value_of_agreement(first, second),
        least_of(of_pairs),
        law_p_value(first, law),
        least_of(of_small_batches),
    )
    level = (1 - _CONFIDENCE) / len(p_values)
    reasons = list[str]()
    for sentence, p_value in zip(_STALE_NOISE, p_values, strict=True):
        if p_value <= level:
            reasons.append(sentence.format(f"votes like {probe.counts}"))
    return tuple(reasons)


def _telling_probes(
    mechanism: Mechanism,
    n_teachers: int,
    n_classes: int,
) -> tuple[tuple[Mechanism, _Probe], ...]:
    """Return tied and unanimous votes for the mechanism, and for one of its kind whose noise is a few votes."""
    classes = min(n_classes, _PROBED_CLASSES)
    entry = entry_of(mechanism)
    kinds = [mechanism]
    if entry is not None and entry.make_of_few_votes() != mechanism:
        kinds.append(entry.make_of_few_votes())
    probes = list[tuple[Mechanism, _Probe]]()
    zeros = (0,) * (classes - 1)
    for kind in kinds:
        scale, check = noise_and_check(kind)
        tied = n_teachers // 2
        alone = min(round(scale), n_teachers)
        if check is not None:
            tied = ceil(check.threshold)
            alone = tied
        prediction = None
        if kind.takes_predictions:
            # A student sure of the last class expects no votes for the first, which then has to reach the threshold.
            prediction = (*zeros, 1.0)
        probes.append((kind, _Probe((max(1, tied),) * classes, prediction)))
        probes.append((kind, _Probe((max(1, alone), *zeros), prediction)))
    return tuple(probes)


Verdict = Literal["pass", "fail", "note"]
_CONFIDENCE = 1 - 1e-6  # of each check
_DELTA = 0.01  # smaller ones show in rare events only, which take more draws
_MOST_CLASSES = 4


@final
@frozen
class Checked:
    """Result of one check."""

    check: str
    verdict: Verdict
    reason: str
    private: bool = False


@final
@by_identity
class PrivateRows(Private):
    """Private rows as `fit` takes them: arrays, or a table and names of its columns, and the tiers of people if any."""

    X: Any
    y: Any
    entity_ids: Any = None
    silos: Any = None
    tiers: Any = None

    def only(self, kept: Array) -> "PrivateRows":
        """Return some of the rows."""
        columns = list[Any]()
        for column in (self.X, self.y, self.entity_ids, self.silos, self.tiers):
            columns.append(None if column is None else column[kept])
        return PrivateRows(*columns)


def check_mechanism(
    mechanism: Mechanism,
    n_teachers: int,
    n_classes: int,
    *,
    draws: int = 40_000,
    noise: NoiseSource | None = None,
) -> list[Checked]:
    """Release made-up votes with `mechanism`, and with one of its kind with little noise, and judge what comes out."""
    part: Part = "check" if mechanism.takes_predictions else "release"
    checks = list[Checked]()
    if part == "release":
        checks.append(_check_law(mechanism, n_teachers, n_classes, draws, noise))

    faults = list[str]()
    for kind, probe in _telling_probes(mechanism, n_teachers, n_classes):
        reasons = _audit_fresh_noise(kind, probe, noise)
        if reasons:
            faults.append(f"{kind!r}: {' '.join(reasons)}")
    reason = "Batches of 1 to 2,000 equal queries, tied and unanimous, each got noise of their own, of the right size."
    if faults:
        reason = f"{' '.join(faults)} Do not release with it."
    checks.append(Checked("noise of its own for every query", pass_if(not faults), reason))

    checks.append(_check_claim("ε as configured", mechanism, part, draws, noise))
    entry = entry_of(mechanism)
    if entry is None:
        return checks
    sharp = entry.make_sharp()
    if sharp != mechanism:
        name = "ε of the same with little noise"
        checks.append(_check_claim(name, sharp, part, draws, noise))
    if part == "release" and isinstance(event_of_one(mechanism), Composed):
        name = "ε of its check with little noise"
        checks.append(_check_claim(name, sharp, "check", draws, noise))
    return checks


def _check_law(
    mechanism: Mechanism,
    n_teachers: int,
    n_classes: int,
    draws: int,
    noise: NoiseSource | None,
) -> Checked:
    """Compare labels of made-up votes with their law, where noise of another size shows most.

    That is at a lead of about the noise, and at a full threshold.
    """
    scale, check = noise_and_check(mechanism)
    firsts = [(n_teachers + min(max(1, round(scale)), n_teachers)) // 2]
    if check is not None:
        firsts.append(min(max(1, round(check.threshold)), n_teachers))
    zeros = (0,) * (min(n_classes, _MOST_CLASSES) - 2)
    audits = list[LawAudit]()
    for first in dict.fromkeys(firsts):
        counts = (first, n_teachers - first, *zeros)
        audits.append(
            audit_law(
                mechanism,
                counts,
                draws=draws,
                confidence=_CONFIDENCE,
                noise=noise,
            )
        )
    worst = min(audits, key=lambda audit: audit.p_value)
    verdict = f"labels are as frequent as the accounting takes them to be (p = {worst.p_value:.2g})"
    if not worst.passed:
        verdict = "labels are not as frequent as the accounting takes them to be: the noise is not what its event says"
    reason = f"Over {draws:,} releases of made-up votes, {verdict}."
    return Checked("noise as configured", pass_if(worst.passed), reason)


def check_rows(private: PrivateRows, X_public: npt.ArrayLike | None) -> list[Checked]:
    """Look for public rows, if there are any, that are private ones, and for entities in several silos."""
    checks = list[Checked]()
    if X_public is not None:
        overlap = audit_overlap(private.X, X_public, private.entity_ids)
        reason = f"None of {overlap.public_rows:,} public rows equals a private row."
        verdict = pass_if(overlap.passed)
        if overlap.reasons:
            reason = " ".join(overlap.reasons)
            verdict = "note" if overlap.passed else "fail"
        checks.append(
            Checked(
                "no private row is among the public rows",
                verdict,
                reason,
                private=True,
            )
        )
    if private.entity_ids is None:
        reason = "It is one row. If people have several rows, name the column with ids."
        checks.append(Checked("unit of privacy", "note", reason))
    elif private.silos is not None:
        _, silos = np.unique(private.silos, return_inverse=True)
        n_shared = entities_in_several_shards(silos, private.entity_ids)
        reason = "No entity is in two."
        if n_shared:
            reason = (
                f"{n_shared:,} have rows in several silos and would move several votes. Merge the silos that share "
                "people."
            )
        checks.append(Checked("one entity, one silo", pass_if(not n_shared), reason, private=True))
    return checks


def pass_if(passed: bool) -> Verdict:
    """Return the verdict on a check that passed, or did not."""
    return "pass" if passed else "fail"


def _check_claim(
    name: str,
    mechanism: Mechanism,
    part: Part,
    draws: int,
    noise: NoiseSource | None,
) -> Checked:
    neighbors = worst_neighbors(
        mechanism, delta=_DELTA, part=part, draws=draws, confidence=_CONFIDENCE
    )
    audit = audit_mechanism(
        mechanism,
        neighbors,
        delta=_DELTA,
        part=part,
        draws=draws,
        confidence=_CONFIDENCE,
        noise=noise,
    )
    subject = "the check" if part == "check" else "one answer"
    reason = (
        f"{audit.mechanism}: at δ = {_DELTA:g}, {2 * draws:,} releases show ε ≥ {audit.lower_bound:.3f} for {subject}; "
        f"claimed is {round_up(audit.claim, 3):.3f}."
    )
    if not audit.passed:
        reason += " It reveals more than the budget counts. Do not use it."
    return Checked(name, pass_if(audit.passed), reason)


_CELL_CHECK = "one cell in the file"
_CELL_ROWS = 200
_CELL_COLUMNS = 12
_CELLS = ("", "?", " ", "1e308", "0.12345678901234567", "03.04.2024", '"', "nan", "7", "true")
_CSV = "csv"
_MARK = "\ue000"  # written as a quotation mark that is not doubled
Reader = Callable[[Path], object]


def _readers() -> dict[str, Reader]:
    """Return how files are read: by this package, and by each library that is installed."""
    readers_by_name: dict[str, Reader] = {
        "PyArrow": _read_with_pyarrow,
        "Parquet": _read_through_parquet,
        "pandas": lambda path: import_module("pandas").read_csv(path),
        "pandas with decimal commas": _read_german,
        "Polars": lambda path: import_module("polars").read_csv(path, infer_schema_length=None),
        "DuckDB": lambda path: (
            import_module("duckdb").read_csv(str(path), sample_size=-1).to_arrow_table()
        ),
    }
    installed: dict[str, Reader] = {_CSV: read_table}
    for name, read in readers_by_name.items():
        library = name.split()[0].lower()
        if name == "Parquet" or find_spec(library):
            installed[name] = read
    return installed


def _read_with_pyarrow(path: Path) -> object:
    return import_module("pyarrow.csv").read_csv(path)


def _read_through_parquet(path: Path) -> object:
    stored = path.with_suffix(".parquet")
    import_module("pyarrow.parquet").write_table(_read_with_pyarrow(path), stored)
    return read_table(stored)


def _read_german(path: Path) -> object:
    """Read a file, written as in German, by pandas with the options for it."""
    with path.open(encoding="utf-8", newline="") as file:
        names, *rows = csv.reader(file)
    dates = list[str]()
    for name, cell in zip(names, rows[-1], strict=True):
        if MOMENT.fullmatch(cell):
            dates.append(name)
    german = list[list[str]]()
    for row in rows:
        german.append([_in_german(cell) for cell in row])
    return import_module("pandas").read_csv(
        _write_csv(path.with_suffix(".de.csv"), names, german),
        parse_dates=dates,
        decimal=",",
        thousands=".",
        true_values=["ja"],
        false_values=["nein"],
    )


def _in_german(cell: str) -> str:
    """Return a cell as a file has it that needs options of a reader: of numbers, truth values and dates."""
    if MOMENT.fullmatch(cell):
        return "/".join(reversed(cell[:10].split("-")))
    if is_number(cell) and isfinite(float(cell)):
        return f"{float(cell):,}".translate(str.maketrans(".,", ",."))
    return {"true": "ja", "false": "nein"}.get(cell.lower(), cell)


def check_cells(
    private: Table,
    public: Table | None,
    columns: PublicColumns | Schema,
    *,
    by: Mapping[str, Reader] | None = None,
) -> Checked:
    """Change cells of the first person in a copy of the file, through any reader, and compare everybody else's numbers.

    It passes if each changed file is refused, or gives everybody else the same numbers, bit for bit. With a `Schema` as
    `columns`, there are no public rows. The result depends on the private rows and is for the data set owner. It spends
    no budget, because nothing is released.
    """
    if by is None:
        by = _readers()
    with tempfile.TemporaryDirectory(prefix="private-") as folder:
        for form, read in by.items():
            column = _column_that_reaches_others(
                read, private, public, columns, Path(folder), marks=form == _CSV
            )
            if column is not None:
                reason = (
                    f"A cell of column '{column}' changed the numbers of other people, read as {form}. Do not release "
                    "with this reader: one person could change all ballots."
                )
                return Checked(_CELL_CHECK, "fail", reason, private=True)
    reason = (
        f"Cells of the first person were changed in a copy of the file, in {len(_CELLS)} ways, and read as "
        f"{', '.join(by)}. Each copy was refused, or gave everybody else the same numbers, bit for bit."
    )
    return Checked(_CELL_CHECK, "pass", reason, private=True)


def _column_that_reaches_others(
    read: Reader,
    private: Table,
    public: Table | None,
    columns: PublicColumns | Schema,
    folder: Path,
    *,
    marks: bool,
) -> str | None:
    """Return a column in which a changed cell of the first row changes another row, if there is one.

    With `marks`, also where a quotation mark opens a cell of the first row, and another closes a cell of the last row.
    """
    names = [*columns.names]
    rows = _few_cells(private, names)
    public_rows = None
    if public is not None:
        path = _write_csv(folder / "public.csv", names, _few_cells(public, names))
        public_rows = read(path)

    def numbers_of_others(cells: list[list[str]]) -> Matrix | None:
        """Return the bits of the numbers of everybody but the first person; None if the file is refused."""
        path = _write_csv(folder / "rows.csv", names, cells)
        with suppress(Exception):  # a library may refuse the file too
            frame = read(path)
            if isinstance(columns, Schema):
                numbers = columns.transform(columns.table(frame))
            else:
                numbers, *_ = numbered_as(numbered_rows(public_rows, columns), frame)
            return np.ascontiguousarray(numbers[1:], dtype=np.float64).view(np.uint64)
        return None

    before = numbers_of_others(rows)
    for place, name in enumerate(names[:_CELL_COLUMNS]):
        if marks:
            closed = [
                *rows[:-1],
                _with_cell(rows[-1], place, rows[-1][place] + _MARK),
            ]
            opened = [_with_cell(rows[0], place, _MARK), *closed[1:]]
            if _differ(numbers_of_others(closed), numbers_of_others(opened)):
                return name
        for cell in _CELLS:
            after = numbers_of_others(
                [
                    _with_cell(rows[0], place, cell),
                    *rows[1:],
                ]
            )
            if _differ(before, after):
                return name
            if before is None:
                before = after
    return None


def _differ(before: Matrix | None, after: Matrix | None) -> bool:
    """Return whether the numbers of two files that were not refused differ."""
    if before is None or after is None:
        return False
    return not np.array_equal(before, after)


def _with_cell(
    row: list[str],
    place: int,
    cell: str,
) -> list[str]:
    return [*row[:place], cell, *row[place + 1 :]]


def _few_cells(table: Table, names: list[str]) -> list[list[str]]:
    """Return the first rows as a csv file has them."""
    few = table.take(range(min(_CELL_ROWS, table.n_rows)))
    columns = [few.texts(name) for name in names]
    return [list(row) for row in zip(*columns, strict=True)]


def _write_csv(
    path: Path,
    names: list[str],
    rows: list[list[str]],
) -> Path:
    """Write a file, and return its path."""
    text = StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(names)
    for row in rows:
        writer.writerow([" ".join(cell.splitlines()) for cell in row])
    path.write_text(text.getvalue().replace(_MARK, '"'), encoding="utf-8", newline="")
    return path
