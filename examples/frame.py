"""Train a private student on a pandas DataFrame. Polars, PyArrow and DuckDB work the same way.

python examples/frame.py
"""

import pandas as pd

from tutelage import PATEClassifier
from tutelage.datasets import load_adult

adult = load_adult()
# All columns except numbers contain category codes.
categories = {name: "category" for name in adult.feature_names if name not in adult.numbers}
private, public = (
    pd.DataFrame(X, columns=adult.feature_names).astype(categories)
    for X in (adult.X_private, adult.X_public)
)
private["income"], truth = (
    pd.Series(y).map(dict(enumerate(adult.classes))) for y in (adult.y_private, adult.y_public)
)

model = PATEClassifier(epsilon=1.0, classes=["<=50K", ">50K"])
model.fit(private, "income", X_public=public.head(8_000))

print(model.epsilon_)
print(
    f"the student is right on {model.score(public.tail(8_281), truth.tail(8_281)):.1%} of 8,281 new public rows"
)
