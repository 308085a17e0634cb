"""The same ten hospitals without teachers: every patient casts a ballot of vectors, and only noisy sums are opened.

python examples/consortium/sums.py [FOLDER]

README.md, next to this file, has the results.
"""

import os
from pathlib import Path

import numpy as np
from deal import HOSPITALS
from run import (
    AGGREGATOR,
    DELTA,
    PARTIES,
    QUESTION,
    TERMS,
    ask,
    assemble,
    at,
    compute,
    federate,
    output,
    play,
    say,
    side_by_side,
)
from stays import Numbers

from tutelage.federation import Home, Role
from tutelage.privacy import round_up
from tutelage.students import load_student

NOISE = 8.1  # lengths of the longest ballot; both rounds together cost ε = 0.9139 at δ = 1e-5
PEOPLE = 1200  # about; agreed on, so that no hospital says how many patients it really has
ROUNDS = 2

OF_SUMS = f"""
people = {{ {", ".join(f"{name} = {PEOPLE}" for name in HOSPITALS)} }}
[method]
name = "noisy-moments"
rounds = {ROUNDS}
mechanism = {{ name = "noisy-sum", noise_multiplier = {NOISE} }}
"""


def main(folder: Path) -> None:
    """Run everything in `folder`, and print the accuracy of the student and ε."""
    split, encode, mailbox = assemble(folder, TERMS + OF_SUMS)
    for name in HOSPITALS:  # each on its own machine
        with np.load(folder / name / "stays.npz") as own:
            np.savez(folder / name / "rows.npz", X=encode(own["X"]), y=own["y"], ids=own["patients"])
    for number in range(1, ROUNDS + 1):
        say(f"round {number}: {AGGREGATOR} asks, {len(HOSPITALS)} hospitals cast, {', '.join(PARTIES)} add")
        play_round(folder, mailbox, encode(split.public.X))
    say("done\n")
    student = load_student(folder / "student.skops")
    right = np.mean(student.predict(encode(split.test.X)) == split.test.y)
    consortium = Home(folder / AGGREGATOR).consortium_as(Role.AGGREGATOR)
    epsilon = consortium.epsilon_of_queries(1, DELTA).epsilon
    print(QUESTION.format(len(split.test.y)))
    print(f"  {100 * right:.1f} %  student")
    print(f"The sums cost each patient ε = {round_up(epsilon):.4f} at δ = {DELTA:g}, in the worst case.")
    print(f"All files are in {folder}.")


def play_round(folder: Path, mailbox: Path, rows: Numbers) -> None:
    """Ask, cast, add and collect one round."""
    batch = ask(folder, mailbox, rows)
    casts = [
        federate("vote", folder / name / "rows.npz", *at(folder, mailbox, name), "--batch", batch) for name in HOSPITALS
    ]
    side_by_side(casts, os.cpu_count() or 1)
    compute(folder, mailbox)
    output(federate("collect", *at(folder, mailbox, AGGREGATOR), "--output", folder / "student.skops"))


if __name__ == "__main__":
    play(main)
