"""A method of your own: noisy class frequencies, which the student predicts for every row.

python examples/own_method.py
"""

from dataclasses import dataclass

import numpy as np
from sklearn.dummy import DummyClassifier

from tutelage import PATEClassifier
from tutelage.ballots import Vector
from tutelage.mechanisms import NoisySum
from tutelage.methods import METHODS, NoisySums
from tutelage.methods.requests import Outcome, Request
from tutelage.methods.sums import BallotOfRows, sum_of_entries

LENGTH = 1024  # of a ballot. If a person has several rows, the ballot is their mean, in whole numbers


def counts_of(people, form):
    """Return the sum of ballots, one number for each class. It runs where the private rows are."""
    return sum_of_entries(people, lambda one: (one.labels[:, None], np.full((len(one.labels), 1), LENGTH)), form)


@dataclass(frozen=True, slots=True)
class ClassFrequencies(NoisySums):
    """Noisy class frequencies, which the student predicts for every row."""

    name, title = "class-frequencies", "class frequencies"  # in configurations and in plans
    needs = NoisySums.needs._replace(public="either", start=False, weights=False, fewest=0)
    mechanism: NoisySum | None = None  # without one, the least noise that ε allows
    student: object = None

    def event_of_one(self, sizes):
        """Return the most that the answer can spend."""
        return self.calibrated.most(Vector((sizes.n_classes, 1), LENGTH**2, sizes.unit), simulated=sizes.simulated)

    def steps(self, public):
        """Yield the request, receive its noisy answer, and return the student. It never sees a private row."""
        rows, classes = len(public.rows), public.classes
        form = Vector((len(classes), 1), LENGTH**2, public.unit)
        about = {"frequencies": [public.question, public.release, *map(str, classes)]}  # how the answer is remembered
        answer = yield Request(mechanism=self.calibrated, form=form, subject=about, ballot=BallotOfRows(counts_of))
        counts = np.maximum(answer.values[0], 1)
        student = DummyClassifier(strategy="prior").fit(np.zeros((len(classes), 1)), classes, sample_weight=counts)
        labels = np.full(rows, counts.argmax())
        return Outcome(queries=np.arange(rows), labels=labels, rounds=(rows,), student=student)

    def describe_queries(self, _rounds):
        """Return a line for the card."""
        return "all public rows, from noisy class frequencies"


METHODS[ClassFrequencies.name] = ClassFrequencies
if __name__ == "__main__":
    model = PATEClassifier(method=ClassFrequencies(), epsilon=1.0, classes=[0, 1])
    model.fit(np.zeros((1000, 2)), np.arange(1000) % 10 < 7, X_public=np.random.default_rng(0).normal(size=(60, 2)))
    print(model.epsilon_, model.predict_proba(np.zeros((1, 2)))[0])
