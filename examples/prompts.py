"""Use prompts of one language model as teachers. Each prompt has few-shot examples of different people, and one vote.

python examples/prompts.py

The guarantee requires the following. No program can check it:

* The examples of a person are in one prompt only.
* The model has seen no private examples except those in the prompt: it was not fine-tuned on them, and it keeps neither
  a conversation nor a cache between prompts.
* The answer to one prompt does not depend on other prompts.
* ε limits what the released labels reveal. It does not cover the operator of the model, who can read every prompt. Run
  the model yourself, or sign a contract.
"""

import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np

from tutelage import GNMax, LabelingSession, Ledger, Shards
from tutelage.teachers import CallableTeachers

CLASSES = ("other", "billing")
WORDS = {
    "billing": [
        "invoice",
        "charged",
        "refund",
        "twice",
        "card",
        "payment",
        "amount",
        "receipt",
        "fee",
        "bank",
    ],
    "other": [
        "password",
        "login",
        "screen",
        "crash",
        "update",
        "slow",
        "device",
        "color",
        "battery",
        "sound",
    ],
}


def language_model(prompt: str) -> str:
    """Return the text that follows a prompt. Replace the body with a call of your model.

    This stand-in returns the label whose examples share more words with the last message.
    """
    *examples, question = re.findall(r"Message: (.*)\nLabel:(?: (\w+))?", prompt)
    asked = set(question[0].split())
    shared = Counter[str]()
    for message, label in examples:
        shared[label] += len(asked & set(message.split()))
    return max(CLASSES, key=lambda label: shared[label])


def prompted(examples: list[tuple[str, str]]) -> Callable[[Iterable[str]], list[int]]:
    """Return a teacher: a function from public messages to class indices that knows only these examples."""
    shots = "".join(f"Message: {message}\nLabel: {label}\n" for message, label in examples)

    def vote(messages: Iterable[str]) -> list[int]:
        answers = [
            language_model(f"{shots}Message: {message}\nLabel:").strip() for message in messages
        ]
        # -1: an abstention.
        return [CLASSES.index(answer) if answer in CLASSES else -1 for answer in answers]

    return vote


random = np.random.default_rng(0)


def message_about(label: str) -> str:
    """Return a made-up message: mostly words of its subject, and two of any subject."""
    others = WORDS["billing"] + WORDS["other"]
    return " ".join(
        [*random.choice(WORDS[label], 4, replace=False), *random.choice(others, 2, replace=False)]
    )


# The private data: 600 customers with one to three messages each. The public data: 40 messages without labels.
customers = np.repeat(np.arange(600), random.integers(1, 4, 600))
labels = random.choice(CLASSES, len(customers)).tolist()
messages = [message_about(label) for label in labels]
truth = random.choice(CLASSES, 40)
X_public = np.array([message_about(label) for label in truth])

# A keyed hash assigns each customer to one of 150 prompts, with all messages and independently of other customers.
shards = Shards.of_entities(customers, 150, key=secrets.token_bytes(32), name="customer")
prompts = [prompted([(messages[row], labels[row]) for row in rows]) for rows in shards.rows]
# Threads, for models that wait.
teachers = CallableTeachers(prompts, n_classes=2, unit=shards.unit, max_workers=8)

ledger = Ledger.in_memory(epsilon=1.0, delta=1e-5, unit=shards.unit)
session = LabelingSession(teachers, GNMax(sigma=40.0), ledger)
print(f"{shards.n_shards} prompts of {len(messages) / shards.n_shards:.0f} examples on average")
print(f"ε = {ledger.limit.epsilon:g} pays for {session.fitting} labels in the worst case")

release = session.ask(X_public)
right = (np.array(CLASSES)[release.labels] == truth).mean()
print(
    f"{len(X_public)} messages labeled, {right:.0%} right; {release.cost:.2f} of the budget spent"
)
print(ledger.state().guarantee())
