"""Train a student on a csv file with several rows per person, by noisy votes, and write the privacy card.

python examples/table.py
"""

import csv
import tempfile
from pathlib import Path

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier

from tutelage import GNMax, PATEClassifier
from tutelage.datasets import load_adult
from tutelage.features import PublicColumns
from tutelage.methods import TeacherVotes
from tutelage.tables import read_table

folder = tempfile.TemporaryDirectory()
private_file, public_file = Path(folder.name) / "people.csv", Path(folder.name) / "public.csv"

# Write two csv files of the bundled census table. In the private file, people have one to three rows. Skip this if you
# have your own files.
adult, random = load_adult(), np.random.default_rng(0)
people = np.repeat(np.arange(12_000), random.integers(1, 4, 12_000))[:20_000]
with private_file.open("w", newline="") as file:
    writer = csv.writer(file)
    writer.writerow([*adult.feature_names, "income", "person"])
    for row, label, number in zip(adult.X_private, adult.y_private, people, strict=False):
        writer.writerow([*row, adult.classes[label], f"p{number}"])
with public_file.open("w", newline="") as file:
    writer = csv.writer(file)
    writer.writerow([*adult.feature_names, "income"])
    for row, label in zip(adult.X_public[:4_000], adult.y_public[:4_000], strict=True):
        writer.writerow([*row, adult.classes[label]])

# Start here with your own files. The public table decides the kinds and categories of the columns.
private, public = read_table(private_file), read_table(public_file)
columns = PublicColumns.learn(public, adult.feature_names)
X_public = columns.transform(public)
votes = TeacherVotes(
    DecisionTreeClassifier(max_depth=4),
    n_teachers=200,
    n_queries=300,
    mechanism=GNMax(sigma=40.0),
    student=RandomForestClassifier(min_samples_leaf=5),
)
model = PATEClassifier(
    classes=["<=50K", ">50K"],
    method=votes,
    unit="person",
    ledger=Path(folder.name) / "people.csv.ledger",
    delta=1e-5,
    random_state=0,
)
model.fit(
    columns.transform(private),
    private.column("income"),
    X_public=X_public,
    entity_ids=private.column("person"),
)

# Score the student on public rows with labels. They were not queries.
evaluated = slice(len(model.queries_), None)
right = model.score(X_public[evaluated], public.column("income")[evaluated])
print(model.epsilon_)
print(f"the student is right on {right:.1%} of {len(X_public[evaluated]):,} other public rows")

card = model.card(
    X_public[evaluated],
    public.column("income")[evaluated],
    feature_names=columns.names,
    statements={
        "private_data": "The census of 1994, as UCI distributes it",
        "why_epsilon": "It is an example.",
    },
)
results = model.save(Path(folder.name) / "results", card)
print(*sorted(path.name for path in results.iterdir()))
print(f"card.md begins: {(results / 'card.md').read_text().splitlines()[0]}")
folder.cleanup()
