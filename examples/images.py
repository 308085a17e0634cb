"""Train small neural networks as teachers, and a student on their labels and on unlabeled images.

python examples/images.py
"""

import sys
from importlib.util import find_spec

import numpy as np
from sklearn.datasets import load_digits

from tutelage import GNMax, PATEClassifier
from tutelage.features import PublicRows, image_features
from tutelage.methods import TeacherVotes

if find_spec("torch") is None:
    sys.exit("This example trains networks: pip install 'tutelage[torch]'.")

from torch import nn

from tutelage.teachers import Network

X, y = load_digits(return_X_y=True)  # 1,797 images of 8 by 8 pixels; the last 360 are public
X, y, X_public, y_public = X[:-360], y[:-360], X[-360:], y[-360:]  # y_public is only used to score

# A teacher has 24 images, too few to learn from pixels. Features from public images cost nothing.
features = image_features(PublicRows(X_public, "the last 360 digits"), (8, 8))
n_features = features.transform(X_public).shape[1]


def untrained(n_classes: int) -> nn.Module:
    """Return a new network from rows to one score per class. Replace it with your own."""
    return nn.Sequential(nn.Linear(n_features, 64), nn.ReLU(), nn.Linear(64, n_classes))


votes = TeacherVotes(
    Network(untrained, epochs=20, batch_size=8),
    n_teachers=60,
    n_queries=50,
    selection="medoids",
    mechanism=GNMax(sigma=12.0),
    student="label-propagation",
)
model = PATEClassifier(classes=range(10), method=votes, features=features, random_state=0)
model.fit(X, y, X_public=X_public)

asked = model.queries_
rest = np.setdiff1d(np.arange(len(y_public)), asked)
right = (model.release_.labels == y_public[asked]).mean()
print(
    f"{model.n_teachers_} networks voted on {len(asked)} queries; {right:.0%} of the labels are right"
)
print(
    f"the student is right on {model.score(X_public[rest], y_public[rest]):.0%} of the other public digits"
)
print(model.epsilon_)
