"""The test report: a last noisy sum that says how good the student is on the people, and for whom.

Each person casts one ballot, the mean over the person's rows of a one in a table of group, class and predicted class
and, of two classes, of a one among bins of the student's score. A student is public, because it follows from noisy
sums, so the report is one more sum in the same composition. Proof: docs/proofs/report.md.
"""

from functools import partial
from math import sqrt
from typing import Any, final

import numpy as np

from tutelage._internal.records import Names, by_identity
from tutelage._internal.typing import FloatArray, IntArray
from tutelage.ballots import BallotSum, Vector
from tutelage.events import Event
from tutelage.mechanisms import NoisySum
from tutelage.methods.over_releases import Turn
from tutelage.methods.requests import AnyLayout, Asking, Ballot, Public, Reported, Request, Sizes
from tutelage.methods.sums import PeopleReady, sum_of_entries
from tutelage.people.blocks import PeopleBlock
from tutelage.privacy import PrivacyUnit
from tutelage.reporting.measured import ClassLayout

# Of all 1/σ², without and with people who only take part in the report: these are few.
SHARE_OF_REPORT = 0.03
SHARE_OF_HOLDOUT = 0.1
_BINS = 10  # of the score, if there are two classes


def _form_of(layout: AnyLayout, unit: PrivacyUnit) -> Vector:
    return Vector(layout.shape, layout.norm_squared, unit, nonnegative=True)


def _mechanism(noise: float, holdout: float) -> NoisySum:
    """Return how the report is released beside a student of this noise: it takes its share of both together."""
    share = SHARE_OF_HOLDOUT if holdout else SHARE_OF_REPORT
    # Ballots of the report are never negative, so that a replaced one moves their sum by √2 lengths and not by 2: at
    # the same cost, 1/σ² may be twice as large.
    return NoisySum(noise * sqrt((1 - share) / (2 * share)))


def event_of_report(noise: float, sizes: Sizes) -> list[Event]:
    """Return the events of a report beside a student of this noise; none if there is no report."""
    if sizes.report is None:
        return []
    form = _form_of(sizes.report, sizes.unit)
    return [_mechanism(noise, sizes.holdout).most(form, simulated=sizes.simulated)]


def sigma_of_report(noise: float, layout: AnyLayout) -> float:
    """Return the deviation of the noise of each number of a report beside a student of this noise."""
    return _mechanism(noise, 0.0).noise_multiplier * sqrt(layout.norm_squared)


def layout_of_classes(classes: Names, groups: Names = ("",)) -> ClassLayout:
    """Return the ballots on a student of these classes."""
    return ClassLayout(groups, classes, _BINS if len(classes) == 2 else 0)


def ask_report(
    noise: float, public: Public, turn: Turn, ballot: Ballot, layout: AnyLayout | None
) -> Asking[Reported | None]:
    """Ask how good the student is that followed from the sums of a turn; nothing where no report is due."""
    if layout is None:
        return None
    mechanism = _mechanism(noise, public.holdout)
    form = _form_of(layout, public.unit)
    # The student follows from the sums by which the turn is known, and from class weights.
    weights = "equal"
    if public.weights is not None:
        given = public.weights.given
        weights = "by shares" if given is None else given.tolist()
    subject = [*turn.subject, "report", [*layout.groups], weights]
    answer = yield Request(
        mechanism=mechanism,
        form=form,
        subject={"sum": subject},
        ballot=_BallotOfHoldout(ballot),
        # May be left out: after remembered sums, the budget may have no room for a report.
        partial=True,
    )
    if answer is None:
        return None
    sigma = answer.sigma or mechanism.most(form, simulated=False).sigma
    return Reported(answer.values.ravel(), sigma, layout, public.n_teachers)


@final
@by_identity
class _BallotOfHoldout:
    """A ballot of those who did not teach the student, if there are such people; public."""

    ballot: Ballot

    def cast(self, prepared: PeopleReady, request: Request, places: IntArray, /) -> Any:
        """Return the private sum of their ballots."""
        return self.ballot.cast(prepared.holdout or prepared, request, places)


def sum_of_report(
    layout: ClassLayout, chances: FloatArray, block: PeopleBlock, unit: PrivacyUnit
) -> BallotSum:
    """Return the sum of the ballots of the people of a block, by the student's chances, shape (rows, classes)."""
    # Entries take rows apart, so that the chances take the place of the rows.
    seen = PeopleBlock(chances, block.labels, block.people, block.groups)
    return sum_of_entries(partial(_entries, layout), seen, _form_of(layout, unit))


def _entries(layout: ClassLayout, block: PeopleBlock) -> tuple[IntArray, IntArray]:
    """Return the places of a row's ones in the ballot, shape (rows, ones), and how much they count."""
    # groups, predicted, bins: (rows,); block.rows: (rows, classes)
    groups = block.group_of_rows
    m = len(layout.classes)
    of_class = groups * m + block.labels
    predicted = block.rows.argmax(axis=1)
    cells = [of_class * m + predicted]
    numbers = [np.full(len(predicted), layout.TABLE)]
    if layout.n_bins:
        bins = np.searchsorted(layout.edges[1:-1], block.rows[:, 1])
        cells.append(layout.n_cells + of_class * layout.n_bins + bins)
        numbers.append(np.full(len(predicted), layout.BIN))
    return np.column_stack(cells), np.column_stack(numbers)
