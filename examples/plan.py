"""Before anything private is touched: which method, and what to expect of the student.

python examples/plan.py
"""

from rich.console import Console

from tutelage.datasets import load_digits
from tutelage.planning import plan

# What is public: 360 small digits with labels. What is private, and not here: 1,400 more of them.
digits = load_digits()
found = plan(1.0, people=1_400, X_public=digits.X_test, y_public=digits.y_test, goal=0.8)
Console().print(found.as_table())
print(*found.sentences(), sep="\n")
print(found.as_config())

# A wish that cannot come true is answered with what would.
hopeless = plan(0.02, people=200, X_public=digits.X_test, y_public=digits.y_test)
print(hopeless.obstacle)
