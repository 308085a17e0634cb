"""Hospitals and three computing parties on one machine: two commands each, and one student for all.

python examples/consortium/run.py [FOLDER] [--hospitals 10] [--server HOST:PORT]

With --server, NVIDIA FLARE carries the messages; without it, a folder. README.md, next to this file, has the results.
"""

import argparse
import csv
import json
import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tutelage.partition import Shards
from tutelage_reproductions.datasets.diabetes import (
    FEATURES,
    HospitalStays,
    load_diabetes,
    split_by_patient,
)

# Published, so that every run deals the same patients.
KEYS = b"split of the play", b"hospitals of the play"
PARTIES, COORDINATOR, CLASSES = ("left", "middle", "right"), "registry", ("yes", "no")
TERMS = """\
name = "Readmission within 30 days"
classes = ["yes", "no"]
quorum = {quorum}
coordinator = "registry"
report = true                     # a last sum says how good the student is on the patients

[hospitals]                       # about how many patients each has; public
{hospitals}

[parties]                         # three organizations with no reason to collude
{parties}

[privacy]
unit = "patient"
epsilon = 1.0
delta = 1e-5

[schema]                          # by the published description of the table, and not by its rows
age = [0, 9]                      # decades
time_in_hospital = [1, 14]        # days
num_lab_procedures = [0, 130]
num_procedures = [0, 6]
num_medications = [0, 80]
number_outpatient = [0, 20]
number_emergency = [0, 20]
number_inpatient = [0, 20]
number_diagnoses = [1, 16]
discharge_disposition_id = ["1", "2", "3", "4", "5", "6", "7", "9", "12", "15", "18", "22", "23", "25", "28"]
admission_source_id = ["1", "2", "4", "5", "6", "7", "9", "17", "20"]
A1Cresult = ["0", "1", "2", "3"]  # not measured, normal, above 7 %, above 8 %
metformin = ["0", "1", "2", "3"]  # no, less, the same, more
insulin = ["0", "1", "2", "3"]
diabetesMed = ["0", "1"]
"""
BEGUN = time.monotonic()


def main(folder: Path, n_hospitals: int, server: str | None) -> None:
    """Found a consortium in `folder`, let everybody join and serve, and run one release."""
    names = [f"hospital-{number}" for number in range(1, n_hospitals + 1)]
    test = deal(folder, names)
    people = round(13_000 / n_hospitals, -2)
    terms = TERMS.format(
        quorum=max(3, n_hospitals - 2),
        hospitals="\n".join(f"{name} = {people:.0f}" for name in names),
        parties="\n".join(
            f'{name} = "127.0.0.1:{port}"'
            for name, port in zip(PARTIES, free_ports(3), strict=True)
        ),
    )
    (folder / "terms.toml").write_text(terms)
    where = ["--mailbox", folder / "mailbox"] if server is None else ["--server", server]
    say("the coordinator founds the consortium")
    here("new", folder / "terms.toml", "--home", folder / COORDINATOR, *where)
    say(f"{n_hospitals} hospitals and 3 parties join")
    for name in (*names, *PARTIES):
        table = ["--data", folder / f"{name}.csv", "--id", "patient", "--label", "readmitted"]
        invite = folder / COORDINATOR / "invites" / f"{name}.invite"
        here("join", invite, "--home", folder / name, *(table if name in names else []))
    serving = [
        start("serve", folder / name, "--yes", log=folder / f"{name}.log")
        for name in (*names, *PARTIES)
    ]
    try:
        say("all serve, and the coordinator asks for a release")
        score = ["--test", test, "--label", "readmitted"]
        said = start(
            "run",
            folder / COORDINATOR,
            "--as",
            "first",
            *score,
            "--json",
            log=folder / "registry.log",
        )
        if said.wait():
            raise SystemExit((folder / "registry.log").read_text())
    finally:
        for process in serving:
            process.terminate()
            process.wait()
    report(
        json.loads(
            re.search(r"^\{.*^\}", (folder / "registry.log").read_text(), re.DOTALL | re.MULTILINE)[
                0
            ]
        )
    )  # type: ignore[index]
    say(f"done; all files are in {folder}")


def deal(folder: Path, names: list[str]) -> Path:
    """Write the table of each hospital, and one of public stays with labels to score the student."""
    split = split_by_patient(load_diabetes(), key=KEYS[0])
    hospitals = Shards.of_entities(split.private.patients, len(names), key=KEYS[1], name="patient")
    for name, rows in zip(names, hospitals.rows, strict=True):
        write_table(folder / f"{name}.csv", split.private.select(rows))
    write_table(folder / "test.csv", split.test)
    return folder / "test.csv"


def write_table(path: Path, stays: HospitalStays) -> None:
    """Write stays as a hospital has them."""
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow([*FEATURES, "readmitted", "patient"])
        for row, label, patient in zip(stays.X.tolist(), stays.y, stays.patients, strict=True):
            table.writerow([*row, CLASSES[label], patient])


def report(found: dict[str, Any]) -> None:
    """Print what the release reached."""
    told = found["report"]["groups"][0]["accuracy"]
    if told is not None:
        value, low, high = (100 * told[end] for end in ("value", "low", "high"))
        print(
            f"  {value:5.1f} %  accuracy on the patients, by a noisy sum ({low:.1f} to {high:.1f})"
        )
    for name in ("accuracy", "balanced_accuracy", "most_frequent_class", "share_of_yes"):
        print(f"  {100 * float(str(found[name])):5.1f} %  {name.replace('_', ' ')}")


def free_ports(count: int) -> list[int]:
    """Return ports that are free now."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def command(*words: object) -> list[str]:
    """Return a command of tutelage, for this Python."""
    return [sys.executable, "-m", "tutelage", "consortium", *map(str, words)]


def here(*words: object) -> None:
    """Run a command, and end with what it says if it is refused."""
    done = subprocess.run(command(*words), capture_output=True, text=True, check=False)  # noqa: S603  our own words
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)


def start(*words: object, log: Path) -> "subprocess.Popen[str]":
    """Start a command that goes on until it is ended."""
    # Here no operator is at a telephone: each log has the words, and every operator answers yes.
    answers = log.with_suffix(".answers")
    answers.write_text("y\n")
    with log.open("w") as file, answers.open() as operator:
        return subprocess.Popen(  # noqa: S603
            command(*words), stdin=operator, stdout=file, stderr=file, text=True
        )


def say(text: str) -> None:
    """Print what happens, and when."""
    print(f"{time.monotonic() - BEGUN:6.1f} s  {text}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Play a consortium on one machine.")
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--hospitals", type=int, default=10)
    parser.add_argument("--server")
    given = parser.parse_args()
    place = given.folder or Path(tempfile.mkdtemp(prefix="consortium-"))
    place.mkdir(parents=True, exist_ok=True)
    main(place.resolve(), given.hospitals, given.server)
