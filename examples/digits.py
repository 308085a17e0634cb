"""Train 200 teachers on seven images each, in closed form, on features learned from public images.

python examples/digits.py
"""

from sklearn.svm import SVC

from tutelage import GNMax, PATEClassifier
from tutelage.datasets import load_digits
from tutelage.features import PublicRows, glyph_features
from tutelage.teachers import ClassMeans

digits = load_digits()  # 1,437 private images; 360 public ones, whose labels are only used to score

features = glyph_features(PublicRows(digits.X_test, "the last 360 digits"), (8, 8), cell=2, n_components=32)
model = PATEClassifier(
    ClassMeans(),
    n_teachers=200,
    features=features,
    mechanism=GNMax(sigma=40.0),
    student=SVC(C=5.0),
    classes=range(10),
    n_queries=200,
)
model.fit(digits.X_train, digits.y_train, X_public=digits.X_test)

right = (model.release_.labels == digits.y_test[:200]).mean()
print(f"{right:.0%} of the released labels are right")
print(f"the student is right on {model.score(digits.X_test[200:], digits.y_test[200:]):.0%} of the other public digits")
print(model.epsilon_)
