"""Use Interactive-GNMax: select queries, label them, retrain the student, and repeat. Later rounds need fewer labels.

python examples/rounds.py
"""

import secrets

import numpy as np
from sklearn.datasets import load_digits

from tutelage import InteractiveGNMax, LabelingSession, Ledger, Shards
from tutelage.features import PublicRows, image_features
from tutelage.labeling import ask_in_rounds
from tutelage.students import LabelPropagationStudent, fit_student
from tutelage.students.selection import Medoids
from tutelage.teachers import ClassMeans, HeadTeachers

X, y = load_digits(return_X_y=True)  # 1,797 images of 8 by 8 pixels; the last 360 are public
X, y, X_public, y_public = X[:-360], y[:-360], X[-360:], y[-360:]  # y_public is only used to score
features = image_features(PublicRows(X_public, "the last 360 digits"), (8, 8))
shards = Shards.of_rows(len(X), 100, key=secrets.token_bytes(32))
teachers = HeadTeachers(ClassMeans(), n_classes=10)
teachers.fit(features.transform(X), y, shards)

X_public = features.transform(X_public)
ledger = Ledger.in_memory(epsilon=20.0, delta=1e-5, unit=shards.unit)
mechanism = InteractiveGNMax(threshold=35, sigma_threshold=15, sigma_vote=10, confidence=0.9)
session = LabelingSession(teachers, mechanism, ledger)
student = LabelPropagationStudent(random_state=0)

asked = ask_in_rounds(session, X_public, [60, 60, 60], first=Medoids(), student=student)
final = fit_student(student, X_public, asked.labels(len(X_public)), np.arange(10), seed=0)

answered = asked.release.answered
right = (asked.release.labels == y_public[asked.queries])[answered].mean()
print(
    f"{answered.mean():.0%} of {len(asked.queries)} queries have a label; {right:.0%} of the labels are right"
)
others = np.setdiff1d(np.arange(len(X_public)), asked.queries)
right = (final.predict(X_public[others]) == y_public[others]).mean()
print(f"the student is right on {right:.0%} of the other public digits")
print(
    f"{asked.release.cost:.2f} of the budget spent; the whole budget guarantees {ledger.state().guarantee()}"
)
