"""Before anything private is touched: how many teachers, which noise, and what to expect of the labels.

python examples/plan.py
"""

from rich.console import Console

from tutelage.datasets import load_digits
from tutelage.features import PublicRows, glyph_features
from tutelage.planning import TeacherModel, plan, votes_of_public_teachers
from tutelage.teachers import ClassMeans

# What is public: 1,797 small digits with labels. What is private, and not here: 60,000 images of handwriting.
digits = load_digits()
features = glyph_features(PublicRows(digits.X_test, "the last 360 digits"), (8, 8), cell=2, n_components=32)
proxies = votes_of_public_teachers(
    ClassMeans(), features.transform(digits.X_train), digits.y_train, sizes=(15, 60), n_classes=10
)

found = plan(epsilon=0.3, delta=1e-6, rows=60_000, classes=10, model=TeacherModel.from_votes(proxies), queries=50)
Console().print(found.as_table())
print(found.epsilon)
print(found.as_config())

# Ten hospitals that ask for too much are told so, and what would do.
hospitals = plan(epsilon=0.3, delta=1e-6, rows=60_000, classes=10, teachers=10, queries=50, label_accuracy=0.85)
print(hospitals.obstacle)
