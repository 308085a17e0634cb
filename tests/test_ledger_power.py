"""Power is lost at any moment: writes that were not synced are lost, torn, or there in another order."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from processes import surroundings
from tutelage import Ledger
from tutelage.events import NoisyArgmaxGaussian
from tutelage.exceptions import LedgerError
from tutelage.privacy import ONE_TEACHER

EVENT = NoisyArgmaxGaussian(40.0, 3, ONE_TEACHER)
ASKED = 4
ASK = f"""
import os, sys
from test_ledger_power import EVENT, Ledger
ledger, marks = Ledger.open(sys.argv[1]), os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT)
for number in range({ASKED}):
    reservation = ledger.reserve(EVENT, 1)
    os.write(marks, b"r")  # now noise is drawn
    ledger.settle(reservation, {{bytes([number]) * 32: (1,)}}, EVENT)
    os.write(marks, b"s")  # now the answer is used
"""
CALL = re.compile(r"^\d+ +(\w+)\((.*)\) += +-?\d+")
LEDGER, JOURNAL, SECTOR = "a.ledger", "a.ledger-journal", 512


class Call(NamedTuple):
    name: str
    file: str  # LEDGER, JOURNAL, "marks", or "" for the folder
    content: bytes = b""
    place: int = 0


def calls_in(log: Path, folder: Path) -> Iterator[Call]:
    """Yield what was written, synced, made and removed, in turn."""
    for line in log.read_text().splitlines():
        ((name, given),) = CALL.findall(line.replace("\\x", ""))
        path = Path(bytes.fromhex(re.findall(r'[<"]([0-9a-f]+)[>"]', given)[name == "openat"]).decode())
        file = "" if path == folder else path.name
        if name == "pwrite64":
            ((content, place),) = re.findall(r'"([0-9a-f]*)", \d+, (\d+)$', given)
            yield Call(name, file, bytes.fromhex(content), int(place))
        elif name != "openat" or ("O_CREAT" in given and file == JOURNAL):
            yield Call(name, file)


class Disk:
    """What is on the disk for sure, and what may be."""

    def __init__(self, ledger: bytes) -> None:
        self.synced: dict[str, bytes | None] = {LEDGER: ledger, JOURNAL: None}  # None where there is no such file
        self.named = dict(self.synced)  # the same under the names that the folder had when it was synced
        self.pending: dict[str, list[Call]] = {LEDGER: [], JOURNAL: []}

    def take(self, call: Call, *, syncs: bool) -> None:
        if call.name == "openat" and self.synced[JOURNAL] is None:
            self.synced[JOURNAL] = b""
        elif call.name == "unlink":
            self.synced[JOURNAL], self.pending[JOURNAL] = None, []
        elif call.name == "pwrite64":
            self.pending[call.file].append(call)
        elif call.name == "fdatasync" and syncs and not call.file:
            self.named[JOURNAL] = self.synced[JOURNAL]
        elif call.name == "fdatasync" and syncs:
            self.synced[call.file] = with_writes(self.synced[call.file], self.pending[call.file])
            self.pending[call.file] = []
            if self.named[call.file] is not None:
                self.named[call.file] = self.synced[call.file]

    def after_power_loss(self, random: np.random.Generator) -> dict[str, bytes]:
        """Return the files as they may be found: any part of what was not synced has reached the disk, or none."""
        share = random.choice([0.0, 0.5, 0.9, 1.0])
        present = self.synced if random.integers(2) else self.named  # the folder is as it is now, or as it was synced
        return {
            file: with_writes(before, [torn(one, random) for one in self.pending[file] if random.random() < share])
            for file, before in present.items()
            if before is not None
        }


def torn(write: Call, random: np.random.Generator) -> Call:
    """Return a write of which some first sectors may be all that arrived."""
    sectors = len(write.content) // SECTOR
    if sectors < 2 or random.random() < 0.7:
        return write
    return write._replace(content=write.content[: SECTOR * int(random.integers(1, sectors))])


def with_writes(before: bytes | None, writes: list[Call]) -> bytes:
    content = bytearray(before or b"")
    for write in writes:
        content.extend(bytes(max(0, write.place + len(write.content) - len(content))))
        content[write.place : write.place + len(write.content)] = write.content
    return bytes(content)


def faults_of(calls: list[Call], ledger: bytes, folder: Path, *, syncs: bool, states: int) -> list[str]:
    """Return what is wrong with the ledgers that are found after power is lost at each of the calls."""
    random, disk, faults, marks = np.random.default_rng(0), Disk(ledger), [], 0
    for number, call in enumerate(calls):
        if call.file == "marks":  # of reserving and settling, in turn
            marks += 1
        else:
            disk.take(call, syncs=syncs)
        for state in range(states):
            place = folder / f"{number}-{state}"
            place.mkdir()
            for file, content in disk.after_power_loss(random).items():
                (place / file).write_bytes(content)
            try:
                found = Ledger.open(place / LEDGER)
                answers, entries = found.verify().answers, found.export()
            except LedgerError as error:
                faults.append(f"{number}: {error}")
            else:
                if sum(one["kind"] == "reserved" for one in entries) < (marks + 1) // 2 or answers < marks // 2:
                    faults.append(f"{number}: what was committed is lost")
            shutil.rmtree(place)
    return faults


@pytest.mark.rest
@pytest.mark.skipif(shutil.which("strace") is None, reason="system calls are watched by strace")
def test_power_that_is_lost_at_any_moment_takes_no_debit_and_no_answer(tmp_path):
    path, log = tmp_path / "a.ledger", tmp_path.with_suffix(".log")
    Ledger.create(path, epsilon=40.0, delta=1e-5, unit=ONE_TEACHER)
    fresh, marks = path.read_bytes(), tmp_path / "marks"
    watched = [option for file in (path, f"{path}-journal", tmp_path, marks) for option in ("-P", str(file))]
    traced = "trace=openat,pwrite64,write,fdatasync,fsync,unlink,ftruncate"
    command = ["strace", "-f", "-qq", "-y", "-xx", "-s", "65536", "-o", str(log), "-e", traced, *watched]
    command += [sys.executable, "-c", ASK, str(path), str(marks)]
    subprocess.run(command, env=surroundings(), check=True)
    calls = list(calls_in(log, tmp_path))
    assert sum(call.file == "marks" for call in calls) == 2 * ASKED
    assert {call.name for call in calls} == {"openat", "pwrite64", "write", "fdatasync", "unlink"}
    assert faults_of(calls, fresh, tmp_path, syncs=True, states=3) == []
    assert faults_of(calls, fresh, tmp_path, syncs=False, states=1)  # a disk that lies about its syncs is found out
