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
from tutelage._internal.typing import ABSTAIN, IntArray, Matrix, Private
from tutelage._internal.validation import probability
from tutelage.audit.mechanism import (
    Part,
    audit_law,
    audit_mechanism,
    event_of_one,
    law_at,
    law_p_value,
    least_of,
    noise_and_check,
    p_value_of,
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

_ROWS = 2_000
_SMALL_BATCHES = (1, 2, 10, 50, 99)
_SMALL_ROWS = 300  # of each size
_LAGS = (1, 2, 3, 5, 8, _ROWS // 4, _ROWS // 3, _ROWS // 2)
_PROBED_CLASSES = 3


class Probe(NamedTuple):
    """Made-up votes of a query, and what a student predicts where the mechanism asks it."""

    counts: tuple[int, ...]
    prediction: tuple[float, ...] | None = None


def audit_fresh_noise(
    mechanism: Mechanism,
    probe: Probe,
    *,
    confidence: float = 0.999,
    noise: NoiseSource | None = None,
) -> Names:
    """Release batches of equal made-up queries, large and small, and return what shows missing or reused noise.

    Exact binomial tests: two independent labels agree with the probability Σ_j p_j². Reuse in few queries of many, or
    between queries far apart in an order of its own, is not seen.
    """
    probability(confidence, "confidence", "audit_fresh_noise")
    source = known_noise(noise, "audit_fresh_noise")
    teachers = sum(probe.counts)
    law = law_at(mechanism, probe.counts, probe.prediction, teachers)
    by_chance = float(np.sum(law**2))

    def released(rows: int) -> IntArray:
        release = release_many(mechanism, probe.counts, rows, source, teachers, probe.prediction)
        return np.where(release.voted, release.labels, ABSTAIN)

    def agreement(one: IntArray, other: IntArray) -> float:
        return p_value_of(np.sum(one == other), len(one), by_chance)

    first = released(_ROWS)
    second = released(_ROWS)
    small = []
    for size in _SMALL_BATCHES:
        batches = [released(size) for _ in range(ceil(_SMALL_ROWS / size))]
        small.append(law_p_value(np.concatenate(batches), law))
    # Queries are looked at in pairs of arrays; within a pair, no query stands twice.
    half = _ROWS // 2
    pairs = [agreement(first[:half], first[::-1][:half])]
    for lag in _LAGS:
        phases = np.arange(_ROWS - lag) // lag % 2
        for phase in np.unique(phases):
            places = np.flatnonzero(phases == phase)
            pairs.append(agreement(first[places], first[places + lag]))
    found = {
        "Two releases of a batch with {} are alike: their noise is replayed.": agreement(
            first, second
        ),
        "Queries of one batch with {} share noise: what differs between them is released.": least_of(
            pairs
        ),
        "Labels of {} are not as frequent as the accounting takes them to be.": law_p_value(
            first, law
        ),
        "In batches of less than 100 queries with {}, noise is not what it is in large ones.": least_of(
            small
        ),
    }
    votes = f"votes like {probe.counts}"
    level = (1 - confidence) / len(found)
    return tuple(sentence.format(votes) for sentence, p_value in found.items() if p_value <= level)


def telling_probes(
    mechanism: Mechanism,
    n_teachers: int,
    n_classes: int,
) -> tuple[tuple[Mechanism, Probe], ...]:
    """Return tied and unanimous votes for the mechanism, and for one of its kind whose noise is a few votes."""
    classes = min(n_classes, _PROBED_CLASSES)
    entry = entry_of(mechanism)
    kinds = [mechanism]
    if entry is not None and entry.make_of_few_votes() != mechanism:
        kinds.append(entry.make_of_few_votes())
    found = []
    none = (0,) * (classes - 1)
    for kind in kinds:
        scale, check = noise_and_check(kind)
        tied = n_teachers // 2
        alone = min(round(scale), n_teachers)
        if check is not None:
            tied = alone = ceil(check.threshold)
        # A student sure of the last class expects no votes for the first, which then has to reach the threshold.
        prediction = (*none, 1.0) if kind.takes_predictions else None
        votes = (max(1, tied),) * classes, (max(1, alone), *none)
        found += [(kind, Probe(counts, prediction)) for counts in votes]
    return tuple(found)


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
    """Private rows as `fit` takes them: arrays, or a table and names of its columns."""

    X: Any
    y: Any
    entity_ids: Any = None
    silos: Any = None

    def only(self, kept: Any) -> "PrivateRows":
        """Return some of the rows."""
        columns = (self.X, self.y, self.entity_ids, self.silos)
        return PrivateRows(*(None if column is None else column[kept] for column in columns))


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
    found = []
    if part == "release":
        # Noise of another size shows most at a lead of about the noise, and at a full threshold.
        scale, check = noise_and_check(mechanism)
        firsts = [(n_teachers + min(max(1, round(scale)), n_teachers)) // 2]
        if check is not None:
            firsts.append(min(max(1, round(check.threshold)), n_teachers))
        others = (0,) * (min(n_classes, _MOST_CLASSES) - 2)
        votes = dict.fromkeys((first, n_teachers - first, *others) for first in firsts)
        laws = [
            audit_law(mechanism, each, draws=draws, confidence=_CONFIDENCE, noise=noise)
            for each in votes
        ]
        worst = min(laws, key=lambda law: law.p_value)
        said = "labels are as frequent as the accounting takes them to be"
        why = f" (p = {worst.p_value:.2g})"
        if not worst.passed:
            said = "labels are not as frequent as the accounting takes them to be"
            why = ": the noise is not what its event says"
        reason = f"Over {draws:,} releases of made-up votes, {said}{why}."
        found.append(Checked("noise as configured", pass_if(worst.passed), reason))
    shared = []
    for kind, probe in telling_probes(mechanism, n_teachers, n_classes):
        if reasons := audit_fresh_noise(kind, probe, confidence=_CONFIDENCE, noise=noise):
            shared.append(f"{kind!r}: {' '.join(reasons)}")
    reason = "Batches of 1 to 2,000 equal queries, tied and unanimous, each got noise of their own, of the right size."
    if shared:
        reason = f"{' '.join(shared)} Do not release with it."
    found.append(Checked("noise of its own for every query", pass_if(not shared), reason))
    found.append(_claim("ε as configured", mechanism, part, draws, noise))
    entry = entry_of(mechanism)
    if entry is None:
        return found
    sharp = entry.make_sharp()
    if sharp != mechanism:
        found.append(_claim("ε of the same with little noise", sharp, part, draws, noise))
    if part == "release" and isinstance(event_of_one(mechanism), Composed):
        found.append(_claim("ε of its check with little noise", sharp, "check", draws, noise))
    return found


def check_rows(private: PrivateRows, X_public: npt.ArrayLike | None) -> list[Checked]:
    """Look for public rows, if there are any, that are private ones, and for entities in several silos."""
    found = list[Checked]()
    if X_public is not None:
        overlap = audit_overlap(private.X, X_public, private.entity_ids)
        reason = f"None of {overlap.public_rows:,} public rows equals a private row."
        verdict = pass_if(overlap.passed)
        if overlap.reasons:
            reason = " ".join(overlap.reasons)
            verdict = "note" if overlap.passed else "fail"
        found.append(
            Checked("no private row is among the public rows", verdict, reason, private=True)
        )
    if private.entity_ids is None:
        reason = "It is one row. If people have several rows, name the column with ids."
        found.append(Checked("unit of privacy", "note", reason))
    elif private.silos is not None:
        _, silos = np.unique(private.silos, return_inverse=True)
        shared = entities_in_several_shards(silos, private.entity_ids)
        reason = "No entity is in two."
        if shared:
            several = f"{shared:,} have rows in several silos and would move several votes."
            reason = f"{several} Merge the silos that share people."
        found.append(Checked("one entity, one silo", pass_if(not shared), reason, private=True))
    return found


def pass_if(passed: bool) -> Verdict:
    """Return the verdict on a check that passed, or did not."""
    return "pass" if passed else "fail"


def _claim(
    name: str,
    mechanism: Mechanism,
    part: Part,
    draws: int,
    noise: NoiseSource | None,
) -> Checked:
    neighbors = worst_neighbors(
        mechanism, delta=_DELTA, part=part, draws=draws, confidence=_CONFIDENCE
    )
    found = audit_mechanism(
        mechanism,
        neighbors,
        delta=_DELTA,
        part=part,
        draws=draws,
        confidence=_CONFIDENCE,
        noise=noise,
    )
    what = "the check" if part == "check" else "one answer"
    reason = (
        f"{found.mechanism}: at δ = {_DELTA:g}, {2 * draws:,} releases show ε ≥ {found.lower_bound:.3f} for {what}; "
        f"claimed is {round_up(found.claim, 3):.3f}."
    )
    if not found.passed:
        reason += " It reveals more than the budget counts. Do not use it."
    return Checked(name, pass_if(found.passed), reason)


_CELL_CHECK = "one cell in the file"
_CELL_ROWS = 200
_CELL_COLUMNS = 12
_CELLS = ("", "?", " ", "1e308", "0.12345678901234567", "03.04.2024", '"', "nan", "7", "true")
_CSV = "csv"
_MARK = "\ue000"  # written as a quotation mark that is not doubled
Reader = Callable[[Path], Any]


def readers() -> dict[str, Reader]:
    """Return how files are read: by this package, and by each library that is installed."""

    def through_parquet(path: Path) -> Any:
        import_module("pyarrow.parquet").write_table(
            of["PyArrow"](path), path.with_suffix(".parquet")
        )
        return read_table(path.with_suffix(".parquet"))

    def with_options(path: Path) -> Any:
        with path.open(encoding="utf-8", newline="") as file:
            names, *rows = csv.reader(file)
        options = {
            "decimal": ",",
            "thousands": ".",
            "true_values": ["ja"],
            "false_values": ["nein"],
        }
        dates = [name for name, cell in zip(names, rows[-1], strict=True) if MOMENT.fullmatch(cell)]
        path = _written(
            path.with_suffix(".de.csv"), names, [[*map(_in_german, row)] for row in rows]
        )
        return import_module("pandas").read_csv(path, parse_dates=dates, **options)

    of: dict[str, Reader] = {
        "PyArrow": lambda path: import_module("pyarrow.csv").read_csv(path),
        "Parquet": through_parquet,
        "pandas": lambda path: import_module("pandas").read_csv(path),
        "pandas with decimal commas": with_options,
        "Polars": lambda path: import_module("polars").read_csv(path, infer_schema_length=None),
        "DuckDB": lambda path: (
            import_module("duckdb").read_csv(str(path), sample_size=-1).to_arrow_table()
        ),
    }
    found = {
        name: read
        for name, read in of.items()
        if name == "Parquet" or find_spec(name.split()[0].lower())
    }
    return {_CSV: read_table, **found}


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
        by = readers()
    with tempfile.TemporaryDirectory(prefix="private-") as folder:
        for form, read in by.items():
            column = _moved(read, private, public, columns, Path(folder), marks=form == _CSV)
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


def _moved(
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
    seen = (
        None
        if public is None
        else read(_written(folder / "public.csv", names, _few_cells(public, names)))
    )

    def shown(found: Any) -> Any:
        if isinstance(columns, Schema):
            return columns.transform(columns.table(found))
        return numbered_as(numbered_rows(seen, columns), found)[0]

    def numbers(cells: list[list[str]]) -> Matrix | None:
        """Return the bits of the numbers of everybody but the first person; None if the file is refused."""
        path = _written(folder / "rows.csv", names, cells)
        with suppress(Exception):  # a library may refuse the file too
            return np.ascontiguousarray(shown(read(path))[1:], dtype=np.float64).view(np.uint64)
        return None

    def differ(one: Matrix | None, other: Matrix | None) -> bool:
        return one is not None and other is not None and not np.array_equal(one, other)

    before = numbers(rows)
    for place, name in enumerate(names[:_CELL_COLUMNS]):
        if marks:
            closed = [*rows[:-1], _changed(rows[-1], place, rows[-1][place] + _MARK)]
            opened = [_changed(rows[0], place, _MARK), *closed[1:]]
            if differ(numbers(closed), numbers(opened)):
                return name
        for cell in _CELLS:
            after = numbers([_changed(rows[0], place, cell), *rows[1:]])
            if differ(before, after):
                return name
            if before is None:
                before = after
    return None


def _changed(row: list[str], place: int, cell: str) -> list[str]:
    return [*row[:place], cell, *row[place + 1 :]]


def _few_cells(table: Table, names: list[str]) -> list[list[str]]:
    """Return the first rows as a csv file has them."""
    few = table.take(range(min(_CELL_ROWS, table.n_rows)))
    return [list(row) for row in zip(*map(few.texts, names), strict=True)]


def _written(
    path: Path,
    names: list[str],
    rows: list[list[str]],
) -> Path:
    text = StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(names)
    for row in rows:
        writer.writerow([" ".join(cell.splitlines()) for cell in row])
    path.write_text(text.getvalue().replace(_MARK, '"'), encoding="utf-8", newline="")
    return path
