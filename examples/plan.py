"""Choose a method, and predict the accuracy of the student, without private data.

python examples/plan.py
"""

from rich.console import Console
from sklearn.datasets import load_digits

from tutelage.planning import plan

# The private data would be 1,400 small digits, and 360 public ones have no labels. 720 labeled digits of somebody else
# stand in for both. (If your public rows have labels, pass X_public and y_public instead.)
X, y = load_digits(return_X_y=True)
found = plan(1.0, people=1_400, public_rows=360, stand_in=(X[-720:], y[-720:]), reach=0.8)
Console().print(found.as_table())
print(*found.sentences(), sep="\n")
print(found.as_config())

# If no method reaches what you need, the plan says why and what would work. This one knows only the sizes.
hopeless = plan(0.02, people=200, public_rows=360, classes=10, reach=0.8)
print(hopeless.obstacle)
