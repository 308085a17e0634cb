"""Every file that is read passes the gate first: no pipe, folder, device, oversized file or bomb gets to a parser."""

import gzip
import json
import os
import re
import resource
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import tutelage
import tutelage_consortium
from processes import called_by_itself
from tutelage import Ledger, PATEClassifier, VoteHistogram
from tutelage._internal import files, gate, releases
from tutelage._internal.releases import Manifest
from tutelage.cli import config, settings
from tutelage.datasets import load_adult
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.privacy import NeighboringRelation, PrivacyUnit
from tutelage.publishing import Proposal, proof
from tutelage.reporting import read_card
from tutelage.signing import SigningKey, VerifyKey
from tutelage.students import load_student
from tutelage.tables import read_batches, read_table
from tutelage_consortium import keys
from tutelage_consortium.batches import Batch
from tutelage_consortium.consortium import Consortium
from tutelage_consortium.invites import Invite, Place

SOURCE = Path(tutelage.__file__).parent
OF_CONSORTIUM = Path(tutelage_consortium.__file__).parent
GIB = 2**30
# What reads files without the gate, and why.
WITHOUT_GATE = {
    "_internal/gate.py": "it is the gate",
    "_internal/outputs.py": "a regular file of bounded size, which may be replaced by an output",
    "cli/label.py": "as the same",
    "cli/ledger.py": "as the same",
    "cli/verify.py": "as the same",
    "tutelage_consortium/invites.py": "an archive in memory, which passed the gate",
    "tutelage_consortium/kits.py": "files of a kit and of FLARE beside it, which this or the coordinator wrote",
    "tutelage_consortium/command.py": "files of kits, which it has just written",
    "_internal/files.py": "opens through the gate, and gives numpy and zipfile what it opened",
    "features/stored.py": "bytes in memory, which a ledger kept",
    "ledger/disk.py": "a file of the system, and a probe that it writes itself",
    "ledger/store.py": "refuses what is no regular file; SQLite reads it page by page",
    "students/store.py": "an archive in memory, which passed the gate",
    "datasets/adult.py": "the table in the package",
    "cli/app.py": "files of the package, and writing",
    "students/export.py": "a network in memory",
    "audit/checklist.py": "files that it has just written",
    "_internal/extras.py": "metadata of the installed package",
    "features/public_numbers.py": "trees in memory, which the ledger keeps",
}


READS = re.compile(
    r"[^\s(]\.(read_text|read_bytes)\(|\bZipFile\(|np\.load\(|sqlite3\.connect\("
    r"|(?<!Ledger\.)(?<!cls\.)(?<!os\.)(?<!library\.)(?<!archive\.)(?<!self\.)(?<!boundary\.)(?<!def )(?<!\w)"
    r"open\((?![^()]*\"[wxa])"
)


def test_nothing_reads_a_file_but_through_the_gate():
    found = {
        path.relative_to(base).as_posix()
        for base, folder in ((SOURCE, SOURCE), (OF_CONSORTIUM.parent, OF_CONSORTIUM))
        for path in folder.rglob("*.py")
        if READS.search(path.read_text())
    }
    assert found == WITHOUT_GATE.keys()


NONE: Any = None
READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "csv": (".csv", read_table),
    "csv.gz": (".csv.gz", read_table),
    "parquet": (".parquet", read_table),
    "parquet in batches": (".parquet", read_batches),
    "npz": (".npz", files.read_arrays),
    "votes": (".npz", VoteHistogram.load),
    "TOML": (".toml", settings.read_settings),
    "configuration": (".toml", config.load_config),
    "card": (".json", read_card),
    "signature": (".json", releases.read_signature),
    "proposal": (".json", Proposal.read),
    "claim": (".json", lambda path: proof.read_claim(path, NONE)),
    "verify key": (".json", VerifyKey.load),
    "signing key": (".json", SigningKey.load),
    "member": (".json", keys.Member.load),
    "identity": (".json", keys.Identity.load),
    "consortium": (".json", Consortium.load),
    "batch": (".npz", lambda path: Batch.load(path, NONE)),
    "invite": (".invite", Invite.load),
    "settings of a member": ("", lambda path: Place.load(linked(path, "settings.json").parent)),
    "student": (".skops", load_student),
    "ledger": (".ledger", Ledger.open),
    "manifest": ("", lambda path: Manifest.read(linked(path, "manifest.json"))),
    "Adult": ("", lambda path: load_adult(folder=linked(path, "adult.data"))),
}


def linked(path: Path, name: str) -> Path:
    folder = path.with_name(f"folder of {path.name}")
    folder.mkdir()
    (folder / name).symlink_to(path)
    return folder


def victims(folder: Path, suffix: str) -> dict[str, Path]:
    """Return paths of what no reader should read."""
    folder.mkdir()
    found = {name: folder / f"{name}{suffix}" for name in ("pipe", "folder", "device", "large")}
    os.mkfifo(found["pipe"])
    found["folder"].mkdir()
    found["device"].symlink_to("/dev/zero")
    with found["large"].open("wb") as file:
        file.truncate(2**43)  # takes no room on the disk
    if suffix == ".csv.gz":
        found["bomb"] = folder / "bomb.csv.gz"
        packed = gzip.compress(b"12,34\n" * (2**24 // 6))
        found["bomb"].write_bytes(gzip.compress(b"a,b\n") + packed * 2**5)
    return found


def try_readers(folder: str) -> None:
    """Print what each reader says of each victim, in a process with little memory, which ends if one takes too much."""
    used = (
        int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        * resource.getpagesize()
    )
    resource.setrlimit(resource.RLIMIT_AS, (used + 3 * GIB // 2, resource.RLIM_INFINITY))
    said: dict[str, dict[str, Any]] = {}
    for name, (suffix, read) in READERS.items():
        said[name] = {}
        for victim, path in victims(Path(folder) / name, suffix).items():
            try:
                read(path)
                said[name][victim] = ["read", ""]
            except Exception as error:
                said[name][victim] = [
                    "refused" if is_ours(error) else type(error).__name__,
                    str(error),
                ]
    sys.stdout.write(
        json.dumps({**said, "most": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024})
    )


def is_ours(error: Exception) -> bool:
    return type(error).__module__.startswith("tutelage.") or (
        isinstance(error, OSError) and error.filename is not None
    )


def test_every_reader_refuses_what_is_no_file_and_what_is_too_large(tmp_path):
    said = json.loads(called_by_itself("test_gate", "try_readers(*given)", tmp_path))
    assert said.pop("most") < 1.5 * GIB
    assert said.keys() == READERS.keys()
    found = [
        (reader, victim, *outcome) for reader, of in said.items() for victim, outcome in of.items()
    ]
    assert [one for one in found if one[2] != "refused"] == []
    assert "unpacks to more than" in said["csv.gz"]["bomb"][1]


def test_a_compressed_table_of_usual_size_is_read(tmp_path):
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 100_000))  # packs 700 times
    assert read_table(path).n_rows == 100_000


MEMORY = r"its content takes at least 0\.0 GiB of memory, and 0\.0 are free"


def test_a_parquet_file_that_needs_more_memory_than_there_is_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(gate, "free_memory", lambda: 2**20)
    long = pa.table({"a": np.zeros(10**6, dtype=np.int8)})
    wide = pa.table({"a": [bytes(1000)] * 1000}, pa.schema([("a", pa.binary(1000))]))
    for table in (long, wide):
        parquet.write_table(table, tmp_path / "rows.parquet")
        with pytest.raises(InvalidDataError, match=MEMORY):
            read_table(tmp_path / "rows.parquet")


@pytest.mark.parametrize(("text", "suffix"), [
    pytest.param("," * 500_000, ".csv", id="one line of empty cells"),
    pytest.param("a\n" + "".join(f"{number}\n" for number in range(250_000)), ".csv.gz", id="short cells"),
    pytest.param("a\n" + "1\n" * 10_000 + "x" * 500_000, ".csv.gz", id="a long cell"),
])  # fmt: skip
def test_a_csv_file_is_refused_before_it_takes_the_memory_that_is_free(
    text, suffix, tmp_path, monkeypatch
):
    path, free = tmp_path / f"rows{suffix}", 2**24
    path.write_bytes(gzip.compress(text.encode()) if suffix.endswith("gz") else text.encode())
    monkeypatch.setattr(gate, "free_memory", lambda: free)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidDataError, match=MEMORY):
            read_table(path)
        assert tracemalloc.get_traced_memory()[1] < free
    finally:
        tracemalloc.stop()


def memory_of_reading(*paths: str) -> None:
    """Print the most memory that PyArrow and Python took at once, in a process of its own."""
    tracemalloc.start()
    for path in paths:
        read_table(path)
        list(read_batches(path).tables(["a", "b"]))
    sys.stdout.write(
        f"{pa.default_memory_pool().max_memory()} {tracemalloc.get_traced_memory()[1]}"
    )


@pytest.mark.rest
def test_a_cell_that_a_parquet_file_stores_once_is_in_memory_once(tmp_path):
    """The texts of all cells together would take 32 MiB."""
    kinds, cell = ["string", "large_string", "string_view", "binary", "large_binary"], "x" * 2**15
    for kind in kinds:
        column = pa.array([cell, None] * 1000).cast(getattr(pa, kind)())
        path = tmp_path / f"{kind}.parquet"
        parquet.write_table(pa.table({"a": column, "b": pa.array([1.0] * 2000)}), path)
        assert path.stat().st_size < 2**16
    paths = [tmp_path / f"{kind}.parquet" for kind in kinds]
    assert (
        max(map(int, called_by_itself("test_gate", "memory_of_reading(*given)", *paths).split()))
        < 8 * 2**20
    )
    for kind, path in zip(kinds, paths, strict=True):
        expected = cell if "string" in kind else cell.encode()
        for table in (read_table(path), *read_batches(path).tables(["a", "b"])):
            assert list(table.column("a")) == [expected, None] * 1000
            assert table.type_of("a") == ("text" if "string" in kind else "bytes")
            assert table.levels == {}


@pytest.mark.parametrize("path", [":memory:", "file:x?mode=memory", "/", ""])
def test_what_is_no_path_is_refused(path):
    unit = PrivacyUnit("row", NeighboringRelation.CHANGE_ONE_ROW)
    for use in (
        lambda: Ledger.create(path, epsilon=1.0, delta=1e-5, unit=unit),
        lambda: Ledger.open(path),
        lambda: read_table(path),
    ):
        with pytest.raises(InvalidParameterError, match="must"):
            use()


def test_a_tilde_is_the_home_folder(tmp_path, monkeypatch, called):
    monkeypatch.setenv("HOME", str(tmp_path))
    unit = PrivacyUnit("row", NeighboringRelation.CHANGE_ONE_ROW)
    assert (
        Ledger.create("~/a.ledger", epsilon=1.0, delta=1e-5, unit=unit).path
        == tmp_path / "a.ledger"
    )
    assert Ledger.open("~/a.ledger").path == tmp_path / "a.ledger"
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    assert (read_table("~/rows.csv").n_rows, called("ledger", "show", "~/a.ledger").returncode) == (
        1,
        0,
    )
    text = '[private]\nfile = "~/none.csv"\n[target]\nclasses = ["a", "b"]\n[public]\nfile = "~/rows.csv"\n'
    (tmp_path / "config.toml").write_text(
        text + '[privacy]\nepsilon = 1.0\ndelta = 1e-5\n[output]\nfolder = "out"\n'
    )
    done = called("run", "config.toml", cwd=tmp_path)
    assert f"{tmp_path / 'none.csv'} cannot be read: No such file" in done.stderr


@pytest.mark.parametrize("place", ["X", "y"])
def test_two_columns_of_one_name_are_refused(place):
    pandas = pytest.importorskip("pandas")
    twice = pandas.DataFrame(np.zeros((60, 2)), columns=["a", "a"])
    once = pandas.DataFrame({"a": np.arange(60.0), "b": np.arange(60.0)})
    given = {"X": once, "y": np.arange(60) % 2, "X_public": once, place: twice}
    with pytest.raises(InvalidDataError, match="must have different names"):
        PATEClassifier(epsilon=1.0, classes=[0, 1]).fit(**given)
