"""Ten hospitals, three computing parties and an aggregator, as processes of this machine that share one folder.

python examples/consortium/run.py [FOLDER]

README.md, next to this file, explains the steps and what each role learns.
"""

import contextlib
import io
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
from deal import HOSPITALS, deal
from hospital import TEACHERS, classifier
from stays import Encoder, Numbers

from tutelage.cli.app import app
from tutelage.exceptions import TutelageError
from tutelage.federation import Home, Role
from tutelage.privacy import round_up
from tutelage_reproductions.datasets.diabetes import DiabetesSplit, load_diabetes, split_by_patient

PARTIES = ("north", "centre", "south")
AGGREGATOR = "registry"
QUERIES = 300
SIGMA = 80  # votes, on the count of a class; 300 such answers cost ε = 0.9911 at δ = 1e-5
EPSILON, DELTA = 1.0, 1e-5  # per patient
QUORUM, COLLUDING = 7, 2  # the noise of five hospitals hides a patient whatever the others do
STARTED = time.perf_counter()
KEYS = b"split of the play", b"hospitals of the play"  # published, so that every run deals the same patients

QUESTION = "Readmitted within 30 days or not, of {:,} stays of other patients (chance is 50 %):"

TERMS = f"""\
name = "readmission within 30 days"
classes = 2
quorum = {QUORUM}
colluding = {COLLUDING}
members = {[f"{name}/{name}.public.json" for name in (*HOSPITALS, *PARTIES, AGGREGATOR)]}
unit = {{ name = "patient_nbr", neighbors = "silo" }}
"""
OF_VOTES = f"""
teachers_per_entity = {TEACHERS}
method = {{ name = "teacher-votes", mechanism = {{ name = "gnmax", sigma = {SIGMA} }} }}
"""


def main(folder: Path) -> None:
    """Run everything in `folder`, and print the accuracy of the student and ε."""
    split, encode, mailbox = assemble(folder, TERMS + OF_VOTES)
    say(f"{AGGREGATOR} asks {QUERIES} public stays")
    batch = ask(folder, mailbox, drawn(encode(split.public.X)))
    say(f"{len(HOSPITALS)} hospitals train {TEACHERS} teachers each, and vote")
    places = [mailbox, folder / "public.npy", batch]
    program = Path(__file__).with_name("hospital.py")
    side_by_side([[sys.executable, program, folder / name, *places] for name in HOSPITALS], os.cpu_count() or 1)
    say(f"{', '.join(PARTIES)} compute the labels on shares")
    compute(folder, mailbox)
    say(f"{AGGREGATOR} opens the labels")
    rows, labels, epsilon = collect(folder, mailbox)
    say("done\n")
    with np.load(folder / HOSPITALS[0] / "stays.npz") as own:
        one_hospital = encode(own["X"]), own["y"]
    compare(split, encode, one_hospital, rows, labels)
    print(f"The labels cost each patient ε = {round_up(epsilon):.4f} at δ = {DELTA:g}, in the worst case.")
    print(f"All files are in {folder}.")


def assemble(folder: Path, agreed: str, hospitals: Sequence[str] = HOSPITALS) -> tuple[DiabetesSplit, Encoder, Path]:
    """Deal the stays, make everybody's keys, agree on the terms, and give each hospital and the aggregator a budget.

    Returns the stays, how they become numbers, and the folder that all share.
    """
    split, mailbox = split_by_patient(load_diabetes(), key=KEYS[0]), folder / "mailbox"
    deal(split, folder, key=KEYS[1], names=hospitals)
    say("keys, terms and budgets")
    addresses = free_addresses(len(PARTIES))
    roles = dict.fromkeys(hospitals, ("entity",)) | {AGGREGATOR: ("aggregator",)}
    roles |= {name: ("computing", "--address", address) for name, address in zip(PARTIES, addresses, strict=True)}
    for name, role in roles.items():
        here("federate", "keygen", name, "--home", folder / name, "--role", *role)
    (folder / "terms.toml").write_text(agreed)
    terms = json.loads(here("federate", "init", folder / "terms.toml", "--mailbox", mailbox, "--json"))
    for name in roles:
        # Where members are strangers, they read the fingerprint to each other by another way than the shared folder.
        places = ["--home", folder / name, "--mailbox", mailbox]
        here("federate", "join", *places, "--fingerprint", terms["fingerprint"])
    for name in (*hospitals, AGGREGATOR):
        home = folder / name
        here("ledger", "init", home / "ledger.sqlite", "--epsilon", EPSILON, "--delta", DELTA, "--for", home)
    return split, Encoder(np.load(folder / "public.npy")), mailbox


def at(folder: Path, mailbox: Path, name: str) -> list[object]:
    """Return where a member that pays keeps everything, as options of a command."""
    home = folder / name
    return ["--home", home, "--mailbox", mailbox, "--ledger", home / "ledger.sqlite"]


def drawn(rows: Numbers) -> Numbers:
    """Return the public rows to ask about: any, but each once."""
    return np.random.default_rng(0).permutation(np.unique(rows, axis=0))[:QUERIES]


def ask(folder: Path, mailbox: Path, rows: Numbers) -> str:
    """Announce a batch, paid from the aggregator's ledger, and return its identifier."""
    file = folder / AGGREGATOR / "rows.npy"
    np.save(file, rows)
    return json.loads(output(federate("ask", file, *at(folder, mailbox, AGGREGATOR), "--json")))["batch"]


def compute(folder: Path, mailbox: Path) -> None:
    """Let the three parties compute the only batch that is not computed yet."""
    parties = [federate("compute", "--home", folder / name, "--mailbox", mailbox) for name in PARTIES]
    side_by_side(parties, len(PARTIES))


def collect(folder: Path, mailbox: Path) -> tuple[Numbers, npt.NDArray[np.int64], float]:
    """Return the queries, their labels, and ε per patient."""
    home, places = folder / AGGREGATOR, at(folder, mailbox, AGGREGATOR)
    collected = json.loads(output(federate("collect", *places, "--output", home / "labels.npz", "--json")))
    with np.load(home / "labels.npz") as released:
        rows, labels = released["rows"], released["labels"]
    # Of the batch by itself: what a ledger calls spent is a share of its budget, and smaller than this.
    consortium = Home(home).consortium_as(Role.AGGREGATOR)
    return rows, labels, consortium.epsilon_of_queries(collected["asked"], DELTA).epsilon


def compare(
    split: DiabetesSplit,
    encode: Encoder,
    one_hospital: tuple[Numbers, npt.NDArray[np.int64]],
    rows: Numbers,
    labels: npt.NDArray[np.int64],
) -> None:
    """Print the accuracy of the student, and of the same model without privacy."""
    X, y = encode(split.test.X), split.test.y
    public = {row.tobytes(): label for row, label in zip(encode(split.public.X), split.public.y, strict=True)}
    taught = {
        f"student, taught by {len(labels)} released labels": (rows, labels),
        "taught by the true labels of these rows": (rows, np.array([public[row.tobytes()] for row in rows])),
        "taught by one hospital's stays, unprotected": one_hospital,
        "taught by all hospitals' stays, unprotected": (encode(split.private.X), split.private.y),
    }
    print(QUESTION.format(len(y)))
    for name, (known, answers) in taught.items():
        print(f"  {100 * classifier().fit(known, answers).score(X, y):.1f} %  {name}")
    print(f"These are exact to about {100 / np.sqrt(len(y)):.1f} points either way.")


def here(*arguments: object) -> str:
    """Run a command of tutelage in this process, which saves starting forty, and return what it prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        app(list(map(str, arguments)), standalone_mode=False)
    return printed.getvalue()


def federate(*arguments: object) -> list[object]:
    """Return the command line of a verb of ``tutelage federate``, for a process of its own."""
    return [sys.executable, "-m", "tutelage", "federate", *arguments]


def output(command: Sequence[object]) -> str:
    """Run a command and return what it prints; leave if it fails, since it said why."""
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True)  # noqa: S603  our own words
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command[2:5]))} failed.")
    return done.stdout


def side_by_side(commands: Iterable[Sequence[object]], at_once: int) -> list[str]:
    """Run commands as processes, so many at a time, and return what they print."""
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(output, commands))


def free_addresses(count: int) -> list[str]:
    """Return unused addresses of this machine."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return ["{}:{}".format(*open_socket.getsockname()) for open_socket in sockets]
    finally:
        for open_socket in sockets:
            open_socket.close()


def say(step: str) -> None:
    """Print the next step, and the seconds since the start."""
    print(f"{time.perf_counter() - STARTED:4.0f} s  {step}", flush=True)


def play(whole: Callable[[Path], None]) -> None:
    """Run in the folder that the command line names, or in a new one."""
    os.umask(0o077)  # every file of the play is for this user only
    try:
        whole(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp(prefix="consortium-")))
    except TutelageError as refusal:
        sys.exit(str(refusal))


if __name__ == "__main__":
    play(main)
