"""Train a private student on texts: made-up notes of a ward, some about infections.

python examples/text.py
"""

import numpy as np

from tutelage import PATEClassifier

random = np.random.default_rng(0)
COMMON = [
    "patient",
    "seen",
    "today",
    "reports",
    "since",
    "last",
    "week",
    "no",
    "change",
    "daily",
    "life",
    "at",
    "home",
]
INFECTION = ["fever", "cough", "chills", "sputum", "breathless", "pneumonia", "antibiotics"]
OTHER = ["check", "vaccination", "travel", "certificate", "healthy", "prevention", "advice"]


def notes(n: int) -> tuple[list[str], np.ndarray]:
    """Return notes, and whether each is about an infection."""
    ill = random.uniform(size=n) < 0.4
    words = [
        [*random.choice(COMMON, 9), *random.choice(INFECTION if one else OTHER, 2)] for one in ill
    ]
    return [" ".join(random.permutation(note)) for note in words], np.where(
        ill, "infection", "other"
    )


private, labels = notes(3000)
public, truth = notes(1000)
model = PATEClassifier(epsilon=1.0, classes=["infection", "other"])
model.fit(private, labels, X_public=public[:700])

print(model.epsilon_)
print(f"the student is right on {model.score(public[700:], truth[700:]):.1%} of 300 new notes")
