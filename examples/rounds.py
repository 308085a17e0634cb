"""Use Interactive-GNMax: select queries, label them, retrain the student, and repeat. Later rounds need fewer labels.

python examples/rounds.py
"""

import secrets

import numpy as np

from tutelage import InteractiveGNMax, LabelingSession, Ledger, Shards
from tutelage.datasets import load_digits
from tutelage.features import PublicRows, glyph_features
from tutelage.labeling import ask_in_rounds
from tutelage.students import LabelPropagationStudent, fit_student
from tutelage.students.selection import Medoids
from tutelage.teachers import ClassMeans, HeadTeachers

digits = load_digits()  # 1,437 private images; 360 public ones, whose labels are only used to score
features = glyph_features(PublicRows(digits.X_test, "the last 360 digits"), (8, 8), cell=2, n_components=32)
shards = Shards.of_rows(len(digits.X_train), 100, key=secrets.token_bytes(32))
teachers = HeadTeachers(ClassMeans(), n_classes=10)
teachers.fit(features.transform(digits.X_train), digits.y_train, shards)

X_public = features.transform(digits.X_test)
ledger = Ledger.in_memory(epsilon=20.0, delta=1e-5, unit=shards.unit)
mechanism = InteractiveGNMax(threshold=35, sigma_threshold=15, sigma_vote=10, confidence=0.9)
session = LabelingSession(teachers, mechanism, ledger)
student = LabelPropagationStudent(random_state=0)

asked = ask_in_rounds(session, X_public, [60, 60, 60], first=Medoids(), student=student)
final = fit_student(student, X_public, asked.labels(len(X_public)), np.arange(10), seed=0)

answered = asked.release.answered
right = (asked.release.labels == digits.y_test[asked.queries])[answered].mean()
print(f"{answered.mean():.0%} of {len(asked.queries)} queries have a label; {right:.0%} of the labels are right")
others = np.setdiff1d(np.arange(len(X_public)), asked.queries)
right = (final.predict(X_public[others]) == digits.y_test[others]).mean()
print(f"the student is right on {right:.0%} of the other public digits")
print(f"{asked.release.cost:.2f} of the budget spent; the whole budget guarantees {ledger.state().guarantee()}")
