"""``tutelage account``: the privacy cost of existing votes, by every available analysis."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from tutelage._internal.records import Entries
from tutelage._internal.typing import Mask
from tutelage._internal.validation import probability
from tutelage.accounting import Accountant
from tutelage.accounting.accountant import confident_runs
from tutelage.ballots import VoteHistogram
from tutelage.cli.settings import Chosen, choosing_mechanism
from tutelage.cli.text import (
    Array,
    AsJson,
    Teachers,
    in_style,
    new_table,
    plain_console,
    print_json,
    say,
)
from tutelage.events import (
    CappedArgmaxGaussian,
    ConfidenceCheck,
    Event,
    NoisyArgmaxGaussian,
    of_queries,
)
from tutelage.exceptions import UnsupportedEventError
from tutelage.noise import SimulationNoise
from tutelage.privacy import PrivateEpsilon, PublicEpsilon, round_up

if TYPE_CHECKING:
    from rich.text import Text

_RUNS = 20
_BY_VOTES = ("bound_2017", "bound_2018", "exact")

Cost = PublicEpsilon | PrivateEpsilon | list[PrivateEpsilon] | None


@choosing_mechanism()
def account(
    votes: Path,
    released_by: Chosen,
    *,
    delta: float,
    array: Array = None,
    first: int | None = None,
    teachers: Teachers = None,
    reveal_private: bool = False,
    as_json: AsJson = False,
) -> None:
    """Compute the epsilon of labeling every query once.

    The worst-case epsilon may be published. The vote-dependent ones are private.

    Parameters
    ----------
    votes
        npz file with the vote counts (queries x classes).
    delta
        Target delta, between 0 and 1.
    first
        Count only this many queries, from the first.
    reveal_private
        Also print the vote-dependent costs. Never publish them.
    """
    probability(delta, "--delta", "account")
    histogram = VoteHistogram.load(votes, array=array, n_teachers=teachers)
    if first is not None:
        histogram = histogram.first(first)
    released_by.mechanism.check(histogram)
    event = released_by.mechanism.event_of_one(histogram.n_classes, histogram.unit, simulated=False)
    events = [part.event for part in event.flatten()]
    costs = {
        name: _plain_cost(cost, reveal=reveal_private)
        for name, cost in _costs(events, histogram, delta, progress=not as_json).items()
    }
    title = str(released_by.mechanism)
    if not as_json:
        title += f"\n{histogram.n_queries:,} queries, {histogram.n_classes} classes, {histogram.n_teachers:,} teachers"
        caption = f"delta = {delta:g}; {histogram.unit.neighboring.sentence}"
        table = new_table(
            "epsilon",
            "at order",
            "publish?",
            "proof",
            title=title,
            caption=caption,
        )
        for cost in costs.values():
            if cost is not None:
                table.add_row(*_cells(cost))
        plain_console().print(table)
        if not reveal_private:
            say(
                "Hidden values depend on the private votes.\nThe data set owner can print them with --reveal-private."
            )
        say(
            f"Next: tutelage label PUBLIC --votes {votes} --ledger LEDGER {released_by.as_options()}"
        )
        return
    print_json(
        {
            **costs,
            "queries": histogram.n_queries,
            "classes": histogram.n_classes,
            "teachers": histogram.n_teachers,
            "delta": delta,
            "mechanism": title,
            "unit": histogram.unit.name,
            "neighboring": histogram.unit.neighboring.value,
        }
    )


def _cells(cost: Entries) -> tuple[str, str, "str | Text", str]:
    """Return the row of a table for a cost."""
    epsilon = "hidden"
    order = ""
    publish = in_style("no", "bold red")
    method = cost["method"]
    if cost["epsilon"] is not None:
        epsilon = f"{round_up(cost['epsilon']):.4f}"
    if cost["order"] is not None:
        order = f"{cost['order']:.4g}"
    if cost["publishable"]:
        publish = "yes"
    if "runs" in cost:
        method += f" (mean of {cost['runs']} runs)"
    return epsilon, order, publish, method


def _costs(
    events: Sequence[Event],
    votes: VoteHistogram,
    delta: float,
    *,
    progress: bool,
) -> dict[str, Cost]:
    """Return the cost by each analysis: None if the analysis does not apply, a list if it was simulated."""
    planned = Accountant(progress=progress)
    for event in events:
        # Counts do not tell how many capped votes each teacher has left, so no cost can be computed from them.
        known = None if isinstance(event, CappedArgmaxGaussian) else votes
        planned.add(of_queries(event, votes.n_queries), known)
    costs: dict[str, Cost] = {"data_independent": planned.data_independent(delta)}
    match events:
        case [CappedArgmaxGaussian()]:
            return costs | dict.fromkeys(_BY_VOTES)
        case [ConfidenceCheck() as check, NoisyArgmaxGaussian() as answer]:
            # largest: (queries,); passed: (runs, queries)
            largest = votes.counts.max(axis=1)
            passed = list[Mask]()
            for seed in range(_RUNS):
                noise = SimulationNoise(seed).discrete_gaussian(check.sigma, (votes.n_queries,))
                passed.append(largest + noise >= check.threshold)
            runs = confident_runs(check, answer, votes, delta, np.array(passed), progress=progress)
            return {
                **costs,
                "data_independent_realised": runs.data_independent,
                "bound_2017": None,
                "bound_2018": runs.bound_2018,
                "exact": runs.exact,
            }
        case _:
            for name in _BY_VOTES:
                try:
                    costs[name] = getattr(planned, name)(delta)
                except UnsupportedEventError:
                    costs[name] = None
            return costs


def _plain_cost(cost: Cost, *, reveal: bool) -> Entries | None:
    """Return the cost as plain values, averaged over simulated runs; private values only if `reveal`."""
    if cost is None:
        return None
    if isinstance(cost, PublicEpsilon):
        return {
            "epsilon": cost.epsilon,
            "order": cost.order,
            "method": cost.method,
            "publishable": True,
        }
    runs = cost if isinstance(cost, list) else [cost]
    plain: Entries = {
        "epsilon": None,
        "order": None,
        "method": runs[0].method,
        "publishable": False,
    }
    if reveal:
        by_size = sorted(runs, key=PrivateEpsilon.reveal)
        middle = by_size[len(runs) // 2]  # every run has an order of its own
        plain["epsilon"] = fmean(run.reveal() for run in runs)
        plain["order"] = middle.reveal_order()
        if isinstance(cost, list):
            plain["runs"] = len(runs)
            plain["largest_epsilon"] = by_size[-1].reveal()
    return plain
