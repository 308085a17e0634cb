"""Use your own votes: spend a budget on labels until it is used up, and verify the ledger.

python examples/budget.py
"""

import tempfile
from pathlib import Path

import numpy as np

from tutelage import ConfidentGNMax, LabelingSession, Ledger, VoteHistogram
from tutelage.exceptions import BudgetExceededError

# 250 teachers voted on 400 public rows. These votes are made up; use your own instead.
random = np.random.default_rng(0)
X_public = random.random((400, 8))
votes = VoteHistogram(random.multinomial(250, [0.8, 0.15, 0.05], size=400), n_teachers=250)

folder = tempfile.TemporaryDirectory()
ledger = Ledger.create(
    Path(folder.name) / "patients.ledger", epsilon=1.5, delta=1e-5, unit=votes.unit
)
mechanism = ConfidentGNMax(threshold=190, sigma_threshold=80, sigma_vote=40)

batch = np.arange(100)
session = LabelingSession(votes.select(batch), mechanism, ledger)
print(f"in the worst case, the budget pays for {session.fitting} queries")

release = session.ask(X_public[batch])
print(
    f"{release.answered.sum()} of {release.labels.size} queries labeled; {release.cost:.3f} of the budget spent"
)
print(f"the whole budget guarantees {ledger.state().guarantee()}")
print(
    f"the same queries again: the same labels, {session.ask(X_public[batch]).cost} of the budget spent"
)

try:
    LabelingSession(votes, mechanism, ledger).ask(X_public)
except BudgetExceededError as refusal:
    print(refusal)

state = ledger.verify()
print(
    f"{state.entries} entries, {state.answers} labels, {state.remaining:.3f} remaining; store the head {state.head}"
)
folder.cleanup()
