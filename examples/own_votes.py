"""Votes from elsewhere: ballots in an npz file become labels in a csv file, within a budget that a ledger keeps.

python examples/own_votes.py
"""

import csv
import tempfile
from pathlib import Path

import numpy as np

from tutelage import ConfidentGNMax, LabelingSession, Ledger
from tutelage.privacy import NeighboringRelation, PrivacyUnit
from tutelage.teachers import RecordedTeachers

folder = tempfile.TemporaryDirectory()
ballots_file, labels_file = Path(folder.name) / "ballots.npz", Path(folder.name) / "labels.csv"

# Yours: the public rows, and which class each of 250 models (rows) chose for each of them (columns), -1 for none.
random = np.random.default_rng(0)
X_public = random.random((300, 6))
truth = random.integers(0, 3, 300)
difficulty = random.random(300) ** 4
wrong = random.random((250, 300)) < difficulty
np.savez(ballots_file, ballots=np.where(wrong, random.integers(0, 3, (250, 300)), truth))

# Whose change moves at most one model's ballots? Here every patient's rows taught one model and no other.
patient = PrivacyUnit("patient", NeighboringRelation.ADD_REMOVE_OR_CHANGE_ONE_ENTITY)
teachers = RecordedTeachers.load(ballots_file, X_public, n_classes=3, unit=patient)

# The budget comes first, and in a file, so that the next batch of queries continues it.
ledger = Ledger.create(Path(folder.name) / "patients.ledger", epsilon=2.0, delta=1e-5, unit=patient)
session = LabelingSession(teachers, ConfidentGNMax(threshold=175, sigma_threshold=80, sigma_vote=40), ledger)
affordable = X_public[: session.affordable(X_public)]
print(f"ε = {ledger.epsilon:g} affords {len(affordable)} of {len(X_public)} queries, whatever the votes are")

release = session.ask(affordable)
with labels_file.open("w", newline="") as file:
    writer = csv.writer(file)
    writer.writerow(["row", "label"])
    writer.writerows((row, label) for row, label in enumerate(release.labels.tolist()) if label >= 0)

answered = release.answered
right = (release.labels == truth[: len(affordable)])[answered].mean()
print(f"{answered.sum()} labels in {labels_file.name}; on {(~answered).sum()} rows the teachers agreed too little")
print(f"{right:.0%} of the labels are right")
print(f"{release.cost:.2f} of the budget was spent; all of it together guarantees {ledger.state().guarantee()}")
folder.cleanup()
