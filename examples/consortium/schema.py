"""Three hospitals without public rows: they agree on a schema, and three noisy sums teach a table of effects.

python examples/consortium/schema.py [FOLDER]

README.md, next to this file, has the results.
"""

import csv
from pathlib import Path

import numpy as np
from run import AGGREGATOR, DELTA, PARTIES, QUESTION, assemble, at, compute, federate, output, play, say, side_by_side

from tutelage.federation import Home, Role
from tutelage.privacy import round_up
from tutelage.students import load_student
from tutelage_reproductions.datasets.diabetes import FEATURES, HospitalStays

HOSPITALS = ("hospital-1", "hospital-2", "hospital-3")
NOISE = 8.1  # lengths of the longest ballot; all three sums together cost ε = 0.9139 at δ = 1e-5
PEOPLE = 4000  # about; agreed on, so that no hospital says how many patients it really has
SUMS = 3

# By the published description of the table, and not by its rows.
SCHEMA = """
[schema]
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
TERMS = f"""\
name = "readmission within 30 days, three hospitals"
classes = 2
quorum = 3
colluding = 1
members = {[f"{name}/{name}.public.json" for name in (*HOSPITALS, *PARTIES, AGGREGATOR)]}
unit = {{ name = "patient_nbr", neighbors = "silo" }}
people = {{ {", ".join(f"{name} = {PEOPLE}" for name in HOSPITALS)} }}
schema = "schema.toml"
method = {{ name = "additive", mechanism = {{ name = "noisy-sum", noise_multiplier = {NOISE} }} }}
"""


def main(folder: Path) -> None:
    """Run everything in `folder`, and print the accuracy of the student, its strongest effects and ε."""
    (folder / "schema.toml").write_text(SCHEMA)
    split, _, mailbox = assemble(folder, TERMS, HOSPITALS)
    for name in HOSPITALS:  # each on its own machine
        write_table(folder / name)
    for number in range(1, SUMS + 1):
        say(f"sum {number}: {AGGREGATOR} asks, {len(HOSPITALS)} hospitals cast, {', '.join(PARTIES)} add")
        play_round(folder, mailbox)
    say("done\n")
    student = load_student(folder / "student.skops")
    right = np.mean(student.predict(named(split.test)) == split.test.y)
    consortium = Home(folder / AGGREGATOR).consortium_as(Role.AGGREGATOR)
    epsilon = consortium.epsilon_of_queries(1, DELTA).epsilon
    print(QUESTION.format(len(split.test.y)))
    print(f"  {100 * right:.1f} %  student")
    strongest = [name for name, *_ in student[-1].influences()[:3]]
    print(f"The columns that move its scores furthest: {', '.join(strongest)}.")
    print(f"The sums cost each patient ε = {round_up(epsilon):.4f} at δ = {DELTA:g}, in the worst case.")
    print(f"All files are in {folder}.")


def named(stays: HospitalStays) -> dict[str, np.ndarray]:
    """Return stays as columns with names."""
    return dict(zip(FEATURES, stays.X.T, strict=True))


def write_table(home: Path) -> None:
    """Write the stays of one hospital as the table that it has: features, outcome and patient."""
    with np.load(home / "stays.npz") as own, (home / "stays.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow([*FEATURES, "y", "ids"])
        table.writerows(np.column_stack([own["X"], own["y"], own["patients"]]).tolist())


def play_round(folder: Path, mailbox: Path) -> None:
    """Ask, cast, add and collect one sum."""
    output(federate("ask", *at(folder, mailbox, AGGREGATOR)))
    side_by_side([federate("vote", folder / name / "stays.csv", *at(folder, mailbox, name)) for name in HOSPITALS], 2)
    compute(folder, mailbox)
    output(federate("collect", *at(folder, mailbox, AGGREGATOR), "--output", folder / "student.skops"))


if __name__ == "__main__":
    play(main)
