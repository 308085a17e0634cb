"""Power is lost at any moment: nothing is used before it is on the disk, and every page can be undone."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgers import new_ledger
from processes import surroundings
from tutelage.events import NoisyArgmaxGaussian
from tutelage.privacy import ONE_TEACHER

EVENT = NoisyArgmaxGaussian(40.0, 3, ONE_TEACHER)
ASKED = 4
ASK = f"""
import os, sys
from ledgers import reserve, settle
from tutelage import Ledger
from test_ledger_power import EVENT
ledger, marks = Ledger.open(sys.argv[1]), os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT)
for number in range({ASKED}):
    reservation = reserve(ledger, EVENT, 1)
    os.write(marks, b"r")  # now noise is drawn
    settle(ledger, reservation, {{bytes([number]) * 32: (1,)}}, EVENT)
    os.write(marks, b"s")  # now the answer is used
"""
LEDGER, JOURNAL, FOLDER = "a.ledger", "a.ledger-journal", ""


def calls_in(log: Path, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the system calls that write, sync, make and remove, in turn, each with the file or folder it is about."""
    for line in log.read_text().splitlines():
        name, path = re.findall(
            r'^\d+ +(\w+)\(.*?[<"](/[^>"]+)[>"]', re.sub(r"AT_FDCWD<[^>]*>", "", line)
        )[0]
        if name != "openat" or "O_CREAT" in line:
            yield name, FOLDER if path == str(folder) else Path(path).name


def faults_of(calls: list[tuple[str, str]]) -> list[str]:
    """Return what a loss of power could take, or leave half written.

    SQLite undoes what a journal holds that is on the disk, under its name, and commits by removing the journal. So all
    of the journal must be there before a page of the ledger is written, all pages before the journal is removed, and
    its removal before what was committed is used.
    """
    unsynced, faults = set[str](), list[str]()
    for number, (name, file) in enumerate(calls):
        if file == "marks" and name == "write" and unsynced:
            faults.append(f"{number}: it is used before it is on the disk")
        elif file == LEDGER and name == "pwrite64":
            faults += [f"{number}: a page is written before its journal is on the disk"] * bool(
                unsynced - {LEDGER}
            )
            unsynced.add(LEDGER)
        elif file == JOURNAL and name == "unlink":
            faults += [f"{number}: it is committed before its pages are on the disk"] * (
                LEDGER in unsynced
            )
            unsynced = unsynced - {JOURNAL} | {FOLDER}
        elif file == JOURNAL and name in ("openat", "pwrite64"):
            unsynced.add(JOURNAL if name == "pwrite64" else FOLDER)
        elif name in ("fdatasync", "fsync"):
            unsynced.discard(file)
    return faults


@pytest.mark.rest
@pytest.mark.skipif(shutil.which("strace") is None, reason="system calls are watched by strace")
def test_power_that_is_lost_at_any_moment_takes_no_debit_and_no_answer(tmp_path):
    path, log, marks = tmp_path / LEDGER, tmp_path.with_suffix(".log"), tmp_path / "marks"
    new_ledger(path, 40.0)
    watched = [
        option
        for file in (path, f"{path}-journal", tmp_path, marks)
        for option in ("-P", str(file))
    ]
    traced = "trace=openat,pwrite64,write,fdatasync,fsync,unlink,ftruncate"
    command = ["strace", "-f", "-qq", "-y", "-o", str(log), "-e", traced, *watched]
    subprocess.run(
        [*command, sys.executable, "-c", ASK, str(path), str(marks)], env=surroundings(), check=True
    )
    calls = list(calls_in(log, tmp_path))
    assert calls.count(("write", "marks")) == 2 * ASKED == calls.count(("unlink", JOURNAL))
    assert {name for name, _ in calls} == {"openat", "pwrite64", "write", "fdatasync", "unlink"}
    assert faults_of(calls) == []
    for file in (LEDGER, JOURNAL, FOLDER):  # without the syncs of any of them, it is found out
        assert faults_of([call for call in calls if call != ("fdatasync", file)])
