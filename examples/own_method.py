"""A method of your own: noisy class frequencies. Type `python examples/own_method.py`."""

from dataclasses import dataclass
from functools import partial

import numpy as np
from sklearn.dummy import DummyClassifier

from tutelage import PATEClassifier
from tutelage.accounting.filter import Accounting
from tutelage.ballots import Vector
from tutelage.mechanisms import NoisySum
from tutelage.methods import (
    METHODS,
    BallotOfRows,
    Needs,
    NoisySums,
    Outcome,
    Request,
    subject_of,
    sum_of_entries,
)

# Of a ballot. If a person has several rows, the ballot is their mean, in whole numbers.
LENGTH = 1024


def form_of(n_classes, unit):
    """Return the form of the ballots: a number for each class, and the square of their length, which sets the noise."""
    return Vector((n_classes, 1), LENGTH**2, unit)


def entries_of(rows):
    """Return the place in the form to which each row adds, that of its class, and the number that it adds there."""
    return rows.labels[:, None], np.full((len(rows.labels), 1), LENGTH)


@dataclass(frozen=True, slots=True)
class ClassFrequencies(NoisySums):
    """Noisy class frequencies, which the student predicts for every row."""

    name = "class-frequencies"  # in configurations
    title = "class frequencies"  # in plans
    needs = Needs(public="either", student=False, empty=True, accounting=Accounting.GAUSSIAN)
    mechanism: NoisySum | None = None  # without one, the least noise that ε allows
    student: object = None

    def event_of_one(self, sizes):
        """Return the most that the answer can spend."""
        return self.calibrated.most(form_of(sizes.n_classes, sizes.unit), simulated=sizes.simulated)

    def steps(self, public):
        """Yield the request, receive its noisy answer, and return the student. It never sees a private row."""
        rows, classes = len(public.rows), public.classes
        form, about = form_of(len(classes), public.unit), {"frequencies": subject_of(public)}
        # Cast where the private rows are.
        ballot = BallotOfRows(partial(sum_of_entries, entries_of))
        answer = yield Request(mechanism=self.calibrated, form=form, subject=about, ballot=ballot)
        counts = np.maximum(answer.values[0], 1)
        student = DummyClassifier(strategy="prior").fit(
            np.zeros((len(classes), 1)), classes, sample_weight=counts
        )
        labels = np.full(rows, counts.argmax())
        return Outcome(queries=np.arange(rows), labels=labels, rounds=(rows,), student=student)


METHODS[ClassFrequencies.name] = ClassFrequencies
if __name__ == "__main__":
    y = np.random.default_rng(0).random(1000) < 0.7
    model = PATEClassifier(epsilon=1.0, classes=[False, True], method=ClassFrequencies())
    model.fit(np.zeros((1000, 2)), y, X_public=np.random.default_rng(1).normal(size=(60, 2)))
    print(model.epsilon_, model.predict_proba(np.zeros((1, 2)))[0])
