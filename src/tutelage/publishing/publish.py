"""One call for either road to a published ε."""

import numpy.typing as npt

from tutelage.accounting import Accountant, Proposal, SmoothPlan
from tutelage.ledger import Ledger
from tutelage.noise import NoiseSource
from tutelage.publishing.smoothed import SmoothedPublication, publish_smoothed
from tutelage.publishing.tested import Publication, publish_epsilon


def publish(
    released: Accountant,
    ledger: Ledger,
    road: Proposal | SmoothPlan,
    queries: npt.ArrayLike,
    *,
    question: str = "",
    noise: NoiseSource | None = None,
) -> Publication | SmoothedPublication:
    """Return the ε that may be published of what was released, by the road that was chosen in advance.

    Parameters
    ----------
    released : Accountant
        What was released, with the private votes behind it.
    ledger : Ledger
        The ledger that paid for it, and pays for this.
    road : Proposal or SmoothPlan
        From `choose_release`, `propose` or `plan_smooth_release` on public votes.
    queries : array of shape (queries, ...)
        The public rows that were asked, in that order.
    question : str, optional
        What was voted on, as in `LabelingSession`.
    noise : NoiseSource, optional
        `SystemNoise()` by default.

    Raises
    ------
    TutelageError
        What `publish_epsilon` and `publish_smoothed` raise.
    """
    if isinstance(road, Proposal):
        return publish_epsilon(released, ledger, road, queries, question=question, noise=noise)
    return publish_smoothed(released, ledger, road, queries, question=question, noise=noise)
