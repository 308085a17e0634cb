"""What each reader of files does with what is no file, or a bomb: a script, for a process with little memory.

It prints one line of JSON: for each reader and victim, the kind of error and its text. A reader that takes too much
memory ends the process.
"""

import gzip
import json
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tutelage import tables
from tutelage._internal import files, releases
from tutelage._internal.releases import Manifest
from tutelage.cli import config, publish, settings
from tutelage.datasets import load_adult
from tutelage.federation import keys
from tutelage.federation.batches import Batch
from tutelage.federation.consortium import Consortium
from tutelage.ledger import Ledger
from tutelage.publishing import proof
from tutelage.reporting import reading
from tutelage.students import load_student
from tutelage.votes import VoteHistogram

GIB = 2**30

NONE: Any = None
READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "csv": (".csv", tables.read_table),
    "csv.gz": (".csv.gz", tables.read_table),
    "parquet": (".parquet", tables.read_table),
    "parquet in batches": (".parquet", tables.read_batches),
    "npz": (".npz", files.read_arrays),
    "npy": (".npy", lambda path: files.read_array(path, None, "X")),
    "votes": (".npz", VoteHistogram.load),
    "TOML": (".toml", settings.read_settings),
    "configuration": (".toml", config.load_config),
    "card": (".json", reading.read_card),
    "signature": (".json", releases.read_signature),
    "proposal": (".json", publish.read_proposal),
    "claim": (".json", lambda path: proof.read_claim(path, NONE)),
    "member": (".json", keys.Member.load),
    "identity": (".json", keys.Identity.load),
    "consortium": (".json", Consortium.load),
    "batch": (".npz", lambda path: Batch.load(path, NONE)),
    "student": (".skops", load_student),
    "ledger": (".ledger", Ledger.open),
    "manifest": ("", lambda path: Manifest.read(_linked(path, "manifest.json"))),
    "Adult": ("", lambda path: load_adult(folder=_linked(path, "adult.data"))),
}


def _linked(path: Path, name: str) -> Path:
    folder = path.parent / f"folder-of-{name}-{path.name}"
    folder.mkdir(exist_ok=True)
    if not os.path.lexists(folder / name):
        (folder / name).symlink_to(path)
    return folder


def victims(folder: Path, suffix: str) -> dict[str, Path]:
    """Return paths of what no reader should read."""
    found = {name: folder / f"{name}{suffix}" for name in ("pipe", "folder", "device", "large")}
    if not os.path.lexists(found["pipe"]):
        os.mkfifo(found["pipe"])
        found["folder"].mkdir()
        found["device"].symlink_to("/dev/zero")
        with found["large"].open("wb") as file:
            file.truncate(2**43)  # takes no room on the disk
    if suffix == ".csv.gz":
        found["bomb"] = folder / "bomb.csv.gz"
        if not found["bomb"].exists():
            with gzip.open(found["bomb"], "wb", compresslevel=9) as file:
                file.write(b"a,b\n")
                for _ in range(2**9):
                    file.write(b"12,34\n" * (2**20 // 6))
    return found


def main(folder: Path) -> None:
    """Print what each reader says of each victim."""
    used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 3 * GIB // 2, resource.RLIM_INFINITY))
    said: dict[str, dict[str, Any]] = {}
    for name, (suffix, read) in READERS.items():
        said[name] = {}
        for victim, path in victims(folder, suffix).items():
            sys.stderr.write(f"{name} {victim}\n")
            try:
                read(path)
                said[name][victim] = ["read", ""]
            except Exception as error:
                said[name][victim] = ["refused" if _is_ours(error) else type(error).__name__, str(error)]
    sys.stdout.write(json.dumps({**said, "most": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


def _is_ours(error: Exception) -> bool:
    return type(error).__module__.startswith("tutelage.") or (isinstance(error, OSError) and error.filename is not None)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
