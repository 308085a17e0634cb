"""Train small neural networks as teachers, and a student on their labels and on unlabeled images.

python examples/images.py
"""

import sys
from importlib.util import find_spec

import numpy as np

from tutelage import GNMax, PATEClassifier
from tutelage.datasets import load_digits
from tutelage.features import PublicRows, glyph_features

if find_spec("torch") is None:
    sys.exit("This example trains networks: pip install 'tutelage[torch]'.")

from torch import nn

from tutelage.teachers import Network

digits = load_digits()  # 1,437 private images of 8 by 8 pixels; 360 public ones, whose labels are only used to score

# A teacher has 24 images, too few to learn from pixels. Features of strokes from public images cost nothing.
strokes = glyph_features(PublicRows(digits.X_test, "the last 360 digits"), (8, 8), cell=2, n_components=32)
n_strokes = strokes.transform(digits.X_test).shape[1]


def untrained(n_classes: int) -> nn.Module:
    """Return a new network from rows to one score per class. Replace it with your own."""
    return nn.Sequential(nn.Linear(n_strokes, 64), nn.ReLU(), nn.Linear(64, n_classes))


model = PATEClassifier(
    Network(untrained, epochs=20, batch_size=8),
    n_teachers=60,
    features=strokes,
    mechanism=GNMax(sigma=12.0),
    classes=range(10),
    n_queries=50,
    selection="medoids",
    student="label-propagation",
    random_state=0,
)
model.fit(digits.X_train, digits.y_train, X_public=digits.X_test)

asked = model.queries_
rest = np.setdiff1d(np.arange(len(digits.y_test)), asked)
right = (model.release_.labels == digits.y_test[asked]).mean()
print(f"{model.n_teachers} networks voted on {len(asked)} queries; {right:.0%} of the labels are right")
print(f"the student is right on {model.score(digits.X_test[rest], digits.y_test[rest]):.0%} of the other public digits")
print(model.epsilon_)
