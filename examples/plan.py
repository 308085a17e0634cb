"""Choose a method, and predict the accuracy of the student, from public data only.

python examples/plan.py
"""

from rich.console import Console
from sklearn.datasets import load_digits

from tutelage.planning import plan

# The public data are 360 small digits with labels. The private data would be 1,400 others; a plan does not need them.
X, y = load_digits(return_X_y=True)
found = plan(1.0, people=1_400, X_public=X[-360:], y_public=y[-360:], reach=0.8)
Console().print(found.as_table())
print(*found.sentences(), sep="\n")
print(found.as_config())

# If no method reaches that, the plan says why and what would work. This one knows only the sizes.
hopeless = plan(0.02, people=200, public_rows=360, classes=10, reach=0.8)
print(hopeless.obstacle)
