"""Bring your own votes: spend a budget on labels, meet its end, and look at what the ledger says.

python examples/budget.py
"""

import tempfile
from pathlib import Path

import numpy as np

from tutelage import ConfidentGNMax, LabelingSession, Ledger, VoteHistogram
from tutelage.exceptions import BudgetExceededError

# 250 teachers voted on 400 public rows; here the votes are made up.
random = np.random.default_rng(0)
X_public = random.random((400, 8))
votes = VoteHistogram(random.multinomial(250, [0.8, 0.15, 0.05], size=400), n_teachers=250)

folder = tempfile.TemporaryDirectory()
ledger = Ledger.create(Path(folder.name) / "patients.ledger", epsilon=1.5, delta=1e-5, unit=votes.unit)
mechanism = ConfidentGNMax(threshold=190, sigma_threshold=80, sigma_vote=40)

batch = np.arange(100)
session = LabelingSession(votes.select(batch), mechanism, ledger)
print(f"{session.fitting} queries fit into the budget at their most expensive")

release = session.ask(X_public[batch])
print(f"{release.answered.sum()} of {release.labels.size} answered for {release.cost:.3f} of the budget")
print(f"all of the budget together guarantees {ledger.state().guarantee()}")
print(f"asked again, the same answers for {session.ask(X_public[batch]).cost}")

try:
    LabelingSession(votes, mechanism, ledger).ask(X_public)
except BudgetExceededError as refusal:
    print(refusal)

state = ledger.verify()
print(f"{state.entries} entries, {state.answers} answers, {state.remaining:.3f} remains; keep the head {state.head}")
folder.cleanup()
