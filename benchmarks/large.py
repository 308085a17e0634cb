"""How long a fit of a Parquet file takes that is read in batches, and how much memory it needs.

    python benchmarks/large.py FOLDER [--rows 50000000] [--cores 1] [--check]

    python benchmarks/large.py FOLDER --dask 2     # beside one process: two workers of Dask, on the same cores

The file is written into FOLDER unless it is there: 20 columns (ten decimals, five integers, four categories and a label
made of them), a few GB at most. The memory is the most that the fitting process ever held (peak resident set), measured
in a process that did not write the file. `--check` fits the same rows in memory, too, and compares every number.
"""

import argparse
import json
import os
import pickle
import platform
import resource
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import numpy as np

from tutelage import PATEClassifier, SimulationNoise
from tutelage.methods import NoisyMoments
from tutelage.tables import Table, as_table, read_batches, read_table
from tutelage_reproductions.record import percent_right

pa: Any = import_module("pyarrow")  # it ships no types
pq: Any = import_module("pyarrow.parquet")

LABEL, CLASSES = "readmitted", ["no", "yes"]
PUBLIC_ROWS, TEST_ROWS, LANDMARKS = 1_000, 20_000, 200
ROW_GROUP = 2**18


def rows(n: int, seed: int) -> Any:
    """Return a table of Arrow of made-up rows, the same for the same seed."""
    rng = np.random.default_rng(seed)
    decimals = np.round(rng.normal(size=(10, n)), 2)
    integers = rng.integers(0, 90, (5, n))
    codes = [rng.integers(0, kinds, n) for kinds in (3, 5, 8, 12)]
    score = (
        decimals[:4].sum(axis=0)
        + (integers[0] - 45) / 20
        + np.abs(decimals[4])
        + 1.5 * (codes[1] == 2)
    )
    label = (score + rng.logistic(size=n) > 1).astype(np.int8)
    columns: dict[str, Any] = {f"measure_{place}": values for place, values in enumerate(decimals)}
    columns |= {f"count_{place}": values.astype(np.int32) for place, values in enumerate(integers)}
    columns |= {
        f"group_{place}": _texts([f"kind {kind}" for kind in range(12)], each)
        for place, each in enumerate(codes)
    }
    return pa.table({**columns, LABEL: _texts(CLASSES, label)})


def _texts(names: list[str], codes: Any) -> Any:
    coded = pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int8)), pa.array(names))
    return coded.cast(pa.string())


def write(path: Path, n_rows: int) -> None:
    """Write the private file, a row group at a time."""
    part = path.with_suffix(".part")
    with pq.ParquetWriter(part, rows(1, 0).schema) as file:
        for seed, start in enumerate(range(0, n_rows, ROW_GROUP)):
            file.write_table(rows(min(ROW_GROUP, n_rows - start), seed))
    part.rename(path)


def model() -> PATEClassifier:
    """Return the model; its noise is simulated, so that two fits can be compared."""
    return PATEClassifier(
        epsilon=1.0,
        delta=1e-9,
        classes=CLASSES,
        method=NoisyMoments(n_landmarks=LANDMARKS),
        unit="row",
        noise=SimulationNoise(0),
        random_state=0,
    )


def fitted(private: Any) -> Any:
    """Return the model, fitted on the private rows; its ballots are an attribute of this method alone."""
    return model().fit(private, LABEL, X_public=public(PUBLIC_ROWS, 10**6))


def public(n: int, seed: int) -> Table:
    """Return rows of the same kind without labels."""
    return cast("Table", as_table(rows(n, seed))).without([LABEL])


def measure(path: Path) -> dict[str, float]:
    """Fit the file in batches, in this process."""
    start = time.perf_counter()
    found = fitted(read_batches(path))
    seconds = time.perf_counter() - start
    test = cast("Table", as_table(rows(TEST_ROWS, 10**6 + 1)))
    right = percent_right(found.predict(test.without([LABEL])), test.texts(LABEL))
    return {
        "seconds": seconds,
        "peak": _peak(),
        "processor": time.process_time(),
        "accuracy": right / 100,
    }


def _peak() -> float:
    """Return the peak of the resident set in GiB, of this process or of its largest child."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return max(resource.getrusage(kind).ru_maxrss for kind in kinds) / 2**20


def measured(path: Path, cores: int) -> dict[str, float]:
    """Fit the file in a fresh process on so many cores."""
    command = [sys.executable, __file__, str(path), "--cores", str(cores), "--measure"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)  # noqa: S603  its own file


def over_dask(path: Path, workers: int) -> None:
    """Fit the file in one process and over Dask, and compare time, memory and every number of the ballots."""
    from tutelage.people import partitions

    distributed: Any = import_module("distributed")

    start = time.perf_counter()
    before = time.process_time()
    alone = fitted(read_batches(path))
    of_one = time.process_time() - before
    print(
        f"one process: {time.perf_counter() - start:,.0f} s, {of_one:,.0f} s of processor time, "
        f"peak memory {_peak():.2f} GiB",
        flush=True,
    )
    received = list[int]()
    # All that the workers send goes through it.
    compute = partitions._compute  # pyright: ignore[reportPrivateUsage]

    def counted(task: Any) -> Any:
        found = compute(task)
        received.append(len(pickle.dumps(found)))
        return found

    with (
        patch.object(partitions, "_compute", counted),
        distributed.LocalCluster(
            workers, threads_per_worker=1, memory_limit=0, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        # One partition per row group, whose columns are read as they are.
        frame = import_module("dask.dataframe").read_parquet(
            path, split_row_groups=1, aggregate_files=False
        )
        start = time.perf_counter()
        before = [time.process_time(), *client.run(time.process_time).values()]
        spread = fitted(frame)
        seconds = time.perf_counter() - start
        after = [time.process_time(), *client.run(time.process_time).values()]
        peaks = client.run(_peak).values()
    print(
        f"Dask, {workers} workers: {seconds:,.0f} s, {sum(after) - sum(before):,.0f} s of processor time of all "
        f"processes, {(sum(after) - sum(before)) / of_one:.1f} times, peak memory of the workers "
        f"{', '.join(f'{peak:.2f}' for peak in peaks)} GiB, {sum(received):,} bytes to the client"
    )
    print(f"All {number_of_equal(alone, spread)} numbers of the ballots are the same.")


def number_of_equal(model: Any, other: Any) -> int:
    """Return how many numbers the ballots of two models have, all of which must be the same."""
    for one, another in zip(model.ballots_, other.ballots_, strict=True):
        if not np.array_equal(one.totals, another.totals):
            raise SystemExit("The ballots differ.")
    return sum(one.totals.size for one in model.ballots_)


def check(path: Path) -> None:
    """Compare the ballots and the student with those of a fit in memory."""
    in_memory = fitted(read_table(path))
    in_batches = fitted(read_batches(path))
    numbers = number_of_equal(in_memory, in_batches)
    if not np.array_equal(in_memory.student_[-1].coef_, in_batches.student_[-1].coef_):
        raise SystemExit("The students differ.")
    print(f"All {numbers} numbers of the ballots, and the student, are those of the fit in memory.")


def main() -> None:
    """Write the file where needed, and measure or compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=50_000_000)
    parser.add_argument("--cores", type=int, default=os.cpu_count())
    parser.add_argument("--dask", type=int, metavar="WORKERS")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        os.sched_setaffinity(0, range(options.cores))
        print(json.dumps(measure(options.folder)))
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    path = options.folder / f"large-{options.rows}.parquet"
    if not path.exists():
        write(path, options.rows)
    if options.check:
        check(path)
        return
    if options.dask:
        over_dask(path, options.dask)
        return
    found = measured(path, options.cores)
    print(
        f"{options.rows:,} rows x 20 columns ({path.stat().st_size / 2**30:.2f} GiB), {options.cores} cores, Python "
        f"{platform.python_version()}: {found['seconds']:,.0f} s, {found['processor']:,.0f} s of processor time, peak "
        f"memory {found['peak']:.2f} GiB, accuracy {found['accuracy']:.3f}"
    )


if __name__ == "__main__":
    main()
