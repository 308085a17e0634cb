"""The same ten hospitals without teachers: every patient casts a ballot of vectors, and only noisy sums are opened.

python examples/consortium/sums.py [FOLDER]

README.md, next to this file, says what comes out.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
from deal import HOSPITALS, deal
from run import (
    AGGREGATOR,
    COLLUDING,
    DELTA,
    KEYS,
    PARTIES,
    QUORUM,
    assemble,
    federate,
    output,
    say,
    side_by_side,
)
from stays import Encoder

from tutelage.datasets.diabetes import load_diabetes, split_by_patient
from tutelage.exceptions import TutelageError
from tutelage.federation import Home, Role
from tutelage.federation.costs import epsilon_of_queries
from tutelage.privacy import round_up
from tutelage.students import load_student

NOISE = 8.1  # lengths of the longest ballot; both rounds together cost ε = 0.9139 at δ = 1e-5
PEOPLE = 1200  # about; agreed on, so that no hospital says how many patients it really has
ROUNDS = 2

TERMS = f"""\
name = "readmission within 30 days"
classes = 2
quorum = {QUORUM}
colluding = {COLLUDING}
members = {[f"{name}/{name}.public.json" for name in (*HOSPITALS, *PARTIES, AGGREGATOR)]}

[teachers]
estimator = "tutelage.teachers.VectorBallots"
parameters = {{ rounds = {ROUNDS} }}

[people]
{"".join(f"{name} = {PEOPLE}{chr(10)}" for name in HOSPITALS)}
[mechanism]
name = "noisy-sum"
noise_multiplier = {NOISE}

[unit]
name = "patient_nbr"
neighbours = "silo"
"""


def main(folder: Path) -> None:
    """Play everything in `folder`, and say what the student learned and what that cost a patient."""
    split = split_by_patient(load_diabetes(), key=KEYS[0])
    deal(split, folder, key=KEYS[1])
    encode, mailbox = Encoder(np.load(folder / "public.npy")), folder / "mailbox"
    say("keys, terms and budgets")
    assemble(folder, mailbox, TERMS)
    for name in HOSPITALS:  # each on its own machine
        with np.load(folder / name / "stays.npz") as own:
            np.savez(folder / name / "rows.npz", X=encode(own["X"]), y=own["y"], ids=own["patients"])
    np.save(folder / AGGREGATOR / "rows.npy", encode(split.public.X))
    for number in range(1, ROUNDS + 1):
        say(f"round {number}: {AGGREGATOR} asks, {len(HOSPITALS)} hospitals cast, {', '.join(PARTIES)} add")
        play_round(folder, mailbox)
    say("done\n")
    student = load_student(folder / "student.skops")
    right = np.mean(student.predict(encode(split.test.X)) == split.test.y)
    consortium = Home(folder / AGGREGATOR).consortium_as(Role.AGGREGATOR)
    epsilon = epsilon_of_queries(consortium, 1, DELTA).epsilon
    print(f"Readmitted within 30 days or not, of {len(split.test.y):,} stays of other patients (chance is 50 %):")
    print(f"  {100 * right:.1f} %  student")
    print(f"The sums cost each patient ε = {round_up(epsilon):.4f} at δ = {DELTA:g}, whatever the ballots were.")
    print(f"Everything lies in {folder}.")


def play_round(folder: Path, mailbox: Path) -> None:
    """Ask, cast, add and collect one round."""

    def at(name: str) -> list[object]:
        home = folder / name
        return ["--home", home, "--mailbox", mailbox, "--ledger", home / "ledger.sqlite"]

    asked = json.loads(output(federate("ask", folder / AGGREGATOR / "rows.npy", *at(AGGREGATOR), "--json")))
    votes = [federate("vote", folder / name / "rows.npz", *at(name), "--batch", asked["batch"]) for name in HOSPITALS]
    side_by_side(votes, os.cpu_count() or 1)
    parties = [federate("compute", "--home", folder / name, "--mailbox", mailbox) for name in PARTIES]
    side_by_side(parties, len(PARTIES))
    output(federate("collect", *at(AGGREGATOR), "--output", folder / "student.skops"))


if __name__ == "__main__":
    os.umask(0o077)  # every file of the play is for this user only
    try:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp(prefix="consortium-")))
    except TutelageError as refusal:
        sys.exit(str(refusal))
