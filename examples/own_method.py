"""A method of your own: release noisy class frequencies, and predict them for every row.

python examples/own_method.py
"""

from dataclasses import dataclass, replace

import numpy as np
from sklearn.dummy import DummyClassifier

from tutelage import PATEClassifier
from tutelage.accounting.filter import Accounting
from tutelage.ballots import BallotSum, Vector
from tutelage.mechanisms import NoisySum
from tutelage.methods import Method, Needs
from tutelage.methods.requests import Outcome, Request


class Present:
    """Private: the class of each person."""

    def __init__(self, people, unit):
        _, first = np.unique(people.shards.assignment, return_index=True)
        self.labels, self.unit = people.labels[first], unit

    def private_attributes(self, _outcome, _kept):
        """Return private attributes of the fitted model."""
        return {}


class OneForItsClass:
    """Public: the ballot of a person."""

    def cast(self, prepared, request, _places):
        """Return the sum of all ballots."""
        counts = np.bincount(prepared.labels, minlength=request.form.shape[0])
        return BallotSum(counts[:, np.newaxis], 1, prepared.unit)


@dataclass(frozen=True, slots=True)
class ClassFrequencies(Method):
    """Noisy class frequencies, which the student predicts for every row."""

    name = "class-frequencies"  # in configurations
    title = "class frequencies"  # in plans
    needs = Needs(student=False, accounting=Accounting.GAUSSIAN)  # the student follows from what is released
    mechanism: NoisySum | None = None
    student: object = None

    @property
    def noise(self):
        """The noise, if it is set."""
        return None if self.mechanism is None else self.mechanism.noise_multiplier

    def with_noise(self, noise):
        """Return the method with this noise."""
        return replace(self, mechanism=NoisySum(noise))

    def event_of_one(self, sizes):
        """Return the most that one answer can spend."""
        form = Vector((sizes.n_classes, 1), 1, sizes.unit)
        return self.mechanism.most(form, simulated=sizes.simulated)

    def prepare(self, public, people):
        """Return what ballots are cast from. It runs where the private rows are."""
        return Present(people, public.unit)

    def steps(self, public):
        """Yield the request, receive its answer, and return the student."""
        classes, rows = public.classes, np.arange(len(public.rows))
        form = Vector((len(classes), 1), 1, public.unit)  # each ballot has length 1 at most
        subject = {"frequencies": [public.question, *map(str, classes)]}  # by which the ledger remembers the answer
        answer = yield Request(mechanism=self.mechanism, form=form, subject=subject, ballot=OneForItsClass())
        student = DummyClassifier(strategy="prior")
        student.fit(np.zeros((len(classes), 1)), classes, sample_weight=np.maximum(answer.values[0], 1))
        labels = np.searchsorted(classes, student.predict(public.rows))
        return Outcome(queries=rows, labels=labels, rounds=(len(rows),), student=student)

    def describe_queries(self, _rounds):
        """Return a line for the card."""
        return "all public rows, from noisy class frequencies"


rng = np.random.default_rng(0)
y = (rng.random(1000) < 0.7).astype(int)
model = PATEClassifier(method=ClassFrequencies(), epsilon=1.0, classes=[0, 1])
model.fit(rng.normal(size=(1000, 2)), y, X_public=rng.normal(size=(60, 2)))
print(model.epsilon_, model.predict_proba(np.zeros((1, 2)))[0])
