"""DataFrames in, a private student out. Polars, PyArrow and DuckDB work like pandas here.

python examples/frame.py
"""

import pandas as pd

from tutelage import PATEClassifier
from tutelage.datasets import load_adult

adult = load_adult()
private, public = (pd.DataFrame(X, columns=adult.feature_names) for X in (adult.X_private, adult.X_public))
for frame in (private, public):  # the columns that are no numbers hold codes of categories
    codes = frame.columns.difference(adult.numbers)
    frame[codes] = frame[codes].astype("category")
private["income"], truth = (pd.Series(y).map(dict(enumerate(adult.classes))) for y in (adult.y_private, adult.y_public))

model = PATEClassifier(epsilon=1.0, classes=["<=50K", ">50K"])
model.fit(private, "income", X_public=public[:8000])

print(model.epsilon_)
print(f"the student is right on {model.score(public[8000:], truth[8000:]):.1%} of 8,281 public rows it has not seen")
