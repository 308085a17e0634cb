"""Turn ballots in an npz file into labels in a csv file, within a budget.

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

# Replace these with your own: the public rows, and the ballots of 250 models (one model per row, one public row per
# column). The entries are classes, or -1 for an abstention.
random = np.random.default_rng(0)
X_public = random.random((300, 6))
truth = random.integers(0, 3, 300)
difficulty = random.random(300) ** 4
wrong = random.random((250, 300)) < difficulty
np.savez(ballots_file, ballots=np.where(wrong, random.integers(0, 3, (250, 300)), truth))

# The privacy unit: here, all rows of a patient were used to train one model, so a patient changes at most one ballot.
patient = PrivacyUnit("patient", NeighboringRelation.ADD_REMOVE_OR_CHANGE_ONE_ENTITY)
teachers = RecordedTeachers.load(ballots_file, X_public, n_classes=3, unit=patient)

# Set the budget first. The ledger is a file, so the next batch of queries continues the same budget.
ledger = Ledger.create(Path(folder.name) / "patients.ledger", epsilon=2.0, delta=1e-5, unit=patient)
session = LabelingSession(
    teachers, ConfidentGNMax(threshold=175, sigma_threshold=80, sigma_vote=40), ledger
)
affordable = X_public[: session.affordable(X_public)]
print(
    f"ε = {ledger.limit.epsilon:g} pays for {len(affordable)} of {len(X_public)} queries in the worst case"
)

release = session.ask(affordable)
with labels_file.open("w", newline="") as file:
    writer = csv.writer(file)
    writer.writerow(["row", "label"])
    writer.writerows(
        (row, label) for row, label in enumerate(release.labels.tolist()) if label >= 0
    )

answered = release.answered
right = (release.labels == truth[: len(affordable)])[answered].mean()
print(
    f"{answered.sum()} labels in {labels_file.name}; {(~answered).sum()} rows have no label: too little agreement"
)
print(f"{right:.0%} of the labels are right")
print(
    f"{release.cost:.2f} of the budget spent; the whole budget guarantees {ledger.state().guarantee()}"
)
folder.cleanup()
