"""Train 200 teachers on seven images each, in closed form, on features learned from public images.

python examples/digits.py
"""

from sklearn.datasets import load_digits

from tutelage import GNMax, PATEClassifier
from tutelage.features import PublicRows, image_features
from tutelage.methods import TeacherVotes
from tutelage.teachers import ClassMeans

X, y = load_digits(return_X_y=True)  # 1,797 images of 8 by 8 pixels; the last 360 are public
X, y, X_public, y_public = X[:-360], y[:-360], X[-360:], y[-360:]  # y_public is only used to score

features = image_features(PublicRows(X_public, "the last 360 digits"), (8, 8))
votes = TeacherVotes(
    ClassMeans(),
    n_teachers=200,
    n_queries=200,
    mechanism=GNMax(sigma=40.0),
    student="label-propagation",
)
model = PATEClassifier(classes=range(10), method=votes, features=features)
model.fit(X, y, X_public=X_public)

right = (model.release_.labels == y_public[:200]).mean()
print(f"{right:.0%} of the released labels are right")
print(
    f"the student is right on {model.score(X_public[200:], y_public[200:]):.0%} of the other public digits"
)
print(model.epsilon_)
