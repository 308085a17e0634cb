"""Teachers that are prompts: few-shot examples of other people in each, one language model, one vote per prompt.

python examples/prompts.py

What the guarantee rests on, and no program can check:

* every person's examples stand in one prompt and in no other;
* the model has seen no private example but those in the prompt: it was not fine-tuned on them, and it keeps neither a
  conversation nor a cache from one prompt to the next;
* answers to two prompts do not depend on each other;
* ε bounds what the released labels tell. It says nothing about whoever runs the model, who reads every prompt and may
  keep it: run the model yourself, or have a contract.
"""

import re
import secrets
from collections import Counter

import numpy as np

from tutelage import GNMax, LabelingSession, Ledger, Shards
from tutelage.teachers import CallableTeachers

CLASSES = ("other", "billing")
WORDS = {
    "billing": ["invoice", "charged", "refund", "twice", "card", "payment", "amount", "receipt", "fee", "bank"],
    "other": ["password", "login", "screen", "crash", "update", "slow", "device", "color", "battery", "sound"],
}


def language_model(prompt: str) -> str:
    """Stand in for a model: replace the body by a call of yours, which takes a prompt to the text that follows.

    This one counts which label's examples share more words with the last message.
    """
    *examples, question = re.findall(r"Message: (.*)\nLabel:(?: (\w+))?", prompt)
    asked, shared = set(question[0].split()), Counter()
    for message, label in examples:
        shared[label] += len(asked & set(message.split()))
    return max(CLASSES, key=lambda label: shared[label])


def prompted(examples: list[tuple[str, str]]):
    """Return a teacher: a function from public messages to class indices that knows these examples and no others."""
    shots = "".join(f"Message: {message}\nLabel: {label}\n" for message, label in examples)

    def vote(messages):
        answers = [language_model(f"{shots}Message: {message}\nLabel:").strip() for message in messages]
        return [CLASSES.index(answer) if answer in CLASSES else -1 for answer in answers]  # -1: it did not answer

    return vote


random = np.random.default_rng(0)


def message_about(label: str) -> str:
    """Make a message up: mostly words of its subject, some of any."""
    others = WORDS["billing"] + WORDS["other"]
    return " ".join([*random.choice(WORDS[label], 4, replace=False), *random.choice(others, 2, replace=False)])


# Private: 600 customers who wrote one to three messages each. Public: 40 messages without labels.
customers = np.repeat(np.arange(600), random.integers(1, 4, 600))
labels = random.choice(CLASSES, len(customers))
messages = [message_about(label) for label in labels]
truth = random.choice(CLASSES, 40)
X_public = np.array([message_about(label) for label in truth])

# Whole customers go to one of 150 prompts, by a keyed hash: who is in which prompt depends on nobody else.
shards = Shards.of_entities(customers, 150, key=secrets.token_bytes(32), name="customer")
prompts = [prompted([(messages[row], labels[row]) for row in rows]) for rows in shards.rows]
teachers = CallableTeachers(prompts, n_classes=2, unit=shards.unit, max_workers=8)  # threads, for models that wait

ledger = Ledger.in_memory(epsilon=1.0, delta=1e-5, unit=shards.unit)
session = LabelingSession(teachers, GNMax(sigma=40.0), ledger)
print(f"{shards.n_shards} prompts of {len(messages) / shards.n_shards:.0f} examples on average")
print(f"ε = {ledger.epsilon:g} affords {session.fitting} answers, whatever the votes are")

release = session.ask(X_public)
right = np.mean(np.array(CLASSES)[release.labels] == truth)
print(f"{len(X_public)} messages labelled, {right:.0%} right; {release.cost:.2f} of the budget was spent")
print(ledger.state().guarantee())
