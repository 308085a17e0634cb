"""Recompute every ε that the papers print (PATE 2017 and 2018, PySyft, the tutorial, Zhao).

Each is computed by its paper's own method, and then by every other analysis that applies. Vote-dependent ε use votes
that are public: those that the authors of PATE published, and those of forests on Adult.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import log, sqrt
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, final

import numpy as np
from numpy.random import MT19937, Generator
from scipy import special

from tutelage._internal.typing import Ballots, IntArray
from tutelage.accounting import Accountant, pate_bounds
from tutelage.accounting.composition import pure_dp_composition
from tutelage.accounting.data_independent import basic_epsilon, epsilon
from tutelage.accounting.pate_bounds import MOMENTS_2017
from tutelage.accounting.rdp import DEFAULT_ORDERS, RenyiCurve, classic
from tutelage.ballots import VoteHistogram, tally
from tutelage.compat import perform_analysis
from tutelage.datasets import load_adult
from tutelage.events import NoisyArgmaxLaplace, RandomizedResponse, Repeated
from tutelage.privacy import ONE_ENTITY, ONE_TEACHER
from tutelage.publishing.proposal import Proposal
from tutelage_reproductions import adult, exact_costs, publishable
from tutelage_reproductions.figures import COLORS, blank, save
from tutelage_reproductions.protocol import published_votes
from tutelage_reproductions.pysyft import analysis_of_pysyft
from tutelage_reproductions.record import Record, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH, _LINE, _AROUND = 8.6, 0.36, 1.5  # inches
_MARKERS = ("o", "D", "s", "^", "v", "P")
_SIZE, _BAR = 6.5, 15.0
_SCALE, _DELTA, _SVHN_DELTA = 20.0, 1e-5, 1e-6
_ASKED = 500  # of the tables of Appendix C
_ASKED_OF_SVHN = 8_500  # through a confidence check
_OWN, _BOUND, _EXACT = "paper's own method", "bound of 2018", "exact (private)"
_ANY, _TESTED = "worst case (publishable)", "tested (publishable)"
_WITH_TEST, _CHANCE = "worst case with test (publishable)", "chance that the test passes, %"
_OPTIMAL = "optimal composition"
_DRAWN = (_EXACT, _TESTED, _ANY)
_TICKS = (0.1, 0.3, 1, 3, 10, 20)
_ROUNDED = "The paper rounds 26.62 to 'about 26'."
_OTHER_VOTES = (
    "The votes are the first ones that the authors published with the paper of 2018. It is not known "
    "which queries the paper used."
)
_EXPECTED = (
    "The paper's method weights the cost of each label by the probability that it is released. The "
    "votes are the first ones that the authors published; it is not known which queries the paper "
    "used."
)
_OTHER_FORESTS = "Forests and the partition are random; this is one draw."


@dataclass(frozen=True)
class _Case:
    """One published ε and what each method makes of the same answers; the paper's own method comes first."""

    name: str
    published: float | None
    values: dict[str, float]
    why: str | None = None
    seconds: float | None = None


def reproduce(*, quick: bool, download: bool, progress: bool) -> Record:
    """Return every ε by every method; `quick` leaves Adult, the tests but one, and the 8,500 queries of SVHN out."""
    votes = published_votes()
    cases = [*_compositions(), *_laplace_answers(votes, quick=quick, download=download)]
    cases += [] if quick else [_adult(progress=progress)]
    cases += [
        _diabetes(),
        *_confident_answers(votes, quick=quick, download=download),
        *_programs(),
        _local(),
    ]
    return Record(
        name="epsilons",
        source="PATE 2017 (arXiv:1610.05755v4), PATE 2018 (arXiv:1802.08908v1), PySyft 0.2, the tutorial, Zhao",
        rows=tuple(row for case in cases for row in _rows(case)),
        quick=quick,
        notes=(
            (
                "All numbers are ε, except probabilities. The paper's own method, the bound of 2018 and the exact "
                "cost depend on the votes. Beside each tested ε is the worst-case ε that includes the cost of the "
                "test."
            ),
            (
                "A tested ε was proposed on public votes, either of teachers of public images or synthetic. No "
                "test was drawn here; the next row is the probability that it passes. This probability is private "
                "in general."
            ),
            (
                f"Confident-GNMax: each value is a mean over {exact_costs.RUNS} runs with simulated noise. "
                "Exceptions: the paper's own method is an expectation and bounds no single run, and the test "
                "belongs to one run."
            ),
            (
                f"Diabetes: all teachers agree on all {_ASKED} queries, which gives the smallest ε that the "
                "paper's method can return. The published number is this minimum to the last digit, so its "
                "teachers almost always agreed."
            ),
            (
                "The tutorial prints 59.47 for its own votes, which were not published. It passed the labels of "
                "9,000 queries as row numbers, so only ten rows were counted. 'Labels as indices' makes the same "
                "error with PySyft's test data, whose 1.48 is too small for this reason."
            ),
            "Glyph and Adult of PATE 2018 are left out because no votes of these teachers were published.",
        ),
        figure=_chart([case for case in cases if _EXACT in case.values]),
    )


def _rows(case: _Case) -> Iterator[Row]:
    for place, (method, value) in enumerate(case.values.items()):
        first = place == 0
        yield Row(
            name=f"{case.name}: {method}",
            ours=value,
            published=case.published if first else None,
            seconds=case.seconds if first else None,
            better="higher" if method == _CHANCE else "lower",
            why=case.why if first else None,
        )


def _any_votes(queries: int, delta: float, *, scale: float = _SCALE) -> float:
    return epsilon(Repeated(NoisyArgmaxLaplace(scale, 10, ONE_TEACHER), queries), delta).epsilon


def strong_composition(scale: float, queries: int, delta: float) -> float:
    """Return ε of `queries` LNMax answers as PATE 2017 states it after Theorem 2: 4Tγ² + 2γ√(2T ln 1/δ)."""
    gamma = 1 / scale
    return 4 * queries * gamma**2 + 2 * gamma * sqrt(2 * queries * log(1 / delta))


def data_independent_moments(scale: float, queries: int, delta: float) -> float:
    """Return ε of `queries` LNMax answers by the data-independent moments 2γ²l(l+1), l = 1..8, of Theorem 2."""
    gamma, orders = 1 / scale, MOMENTS_2017 + 1
    values = queries * 2 * gamma**2 * orders  # α(l)/l = 2γ²(l + 1)
    return RenyiCurve(orders, values).to_epsilon(delta, classic).epsilon


def _compositions() -> Iterator[_Case]:
    """Yield the two examples of section 3.3 of PATE 2017, which read no votes."""
    for queries, delta, published, why in ((1_000, 1e-6, 26.0, _ROUNDED), (100, 1e-5, 5.80, None)):
        yield _Case(
            f"2017 §3.3, {queries:,} queries, δ = {delta:g}",
            published,
            {
                "strong composition": strong_composition(_SCALE, queries, delta),
                "moments of Theorem 2": data_independent_moments(_SCALE, queries, delta),
                _OPTIMAL: pure_dp_composition(2 / _SCALE, queries, delta),
                _ANY: _any_votes(queries, delta),
            },
            why,
        )


def _laplace_answers(path: Path, *, quick: bool, download: bool) -> Iterator[_Case]:
    """Yield the answers of PATE 2017 on MNIST and SVHN."""
    public = publishable.public_mnist_votes(download=download)
    for data, queries, delta, published, tested in (
        ("MNIST", 100, _DELTA, 2.04, True),
        ("MNIST", 1_000, _DELTA, 8.03, not quick),
        ("SVHN", 500, _SVHN_DELTA, 5.04, False),
        ("SVHN", 1_000, _SVHN_DELTA, 8.19, False),
    ):
        started = time.perf_counter()
        votes = VoteHistogram.load(path, array=f"{data.lower()}_250_teachers").first(queries)
        accountant = _answered(votes)
        values = _by_every_method(accountant, delta)
        if tested:
            values |= _tested(publishable.propose_on_mnist(public, queries), accountant)
        seconds = time.perf_counter() - started
        yield _Case(
            f"2017 {data}, {queries:,} queries, δ = {delta:g}",
            published,
            values,
            _OTHER_VOTES,
            seconds,
        )


def _confident_answers(path: Path, *, quick: bool, download: bool) -> Iterator[_Case]:
    """Yield the answers of PATE 2018 on MNIST and, unless it is to be `quick`, on SVHN; each is checked before."""
    mnist = _confident(path, "MNIST", publishable.CONFIDENTLY_ASKED, (200, 150, 40), _DELTA, 1.97)
    if quick:
        yield mnist
        return
    votes = VoteHistogram.load(path, array="mnist_250_teachers").first(
        publishable.CONFIDENTLY_ASKED
    )
    proposal = publishable.propose_confident(publishable.public_mnist_votes(download=download))
    tested = _tested(proposal, publishable.confident_run(votes, seed=1))
    yield replace(mnist, values=mnist.values | tested)
    yield _confident(path, "SVHN", _ASKED_OF_SVHN, (300, 200, 40), _SVHN_DELTA, 4.96)


def _confident(
    path: Path,
    data: str,
    queries: int,
    noise: tuple[float, float, float],
    delta: float,
    published: float,
) -> _Case:
    started = time.perf_counter()
    votes = VoteHistogram.load(path, array=f"{data.lower()}_250_teachers").first(queries)
    _, runs = exact_costs.simulated_runs(votes, noise, delta)
    values = {
        _OWN: _expected(votes, noise, delta),
        _BOUND: fmean(cost.reveal() for cost in runs.bound_2018),
        _EXACT: fmean(cost.reveal() for cost in runs.exact),
        _ANY: exact_costs.confident_for_any_votes(
            *exact_costs.confident_events(votes, noise), queries, delta
        ),
    }
    seconds = time.perf_counter() - started
    return _Case(
        f"2018 {data}, {queries:,} queries, δ = {delta:g}", published, values, _EXPECTED, seconds
    )


def _expected(votes: VoteHistogram, noise: tuple[float, float, float], delta: float) -> float:
    """Return ε as the paper of 2018 has it: every check, and every answer as often as its check lets it pass."""
    check, answer = exact_costs.confident_events(votes, noise)
    chances = special.ndtr((votes.counts.max(axis=1) - check.threshold) / check.sigma)
    checks, answers = (
        pate_bounds.costs_2018(event, votes, DEFAULT_ORDERS) for event in (check, answer)
    )
    return (
        RenyiCurve(DEFAULT_ORDERS, checks.sum(axis=0) + chances @ answers)
        .to_epsilon(delta, classic)
        .epsilon
    )


def _adult(*, progress: bool) -> _Case:
    """Return the 500 answers of forests on Adult."""
    started = time.perf_counter()
    split = load_adult()
    votes = adult.forest_votes(split, split.X_public[:_ASKED], 0, progress=progress)
    # By teacher, as the proposal is.
    accountant = _answered(VoteHistogram(votes.counts, votes.n_teachers))
    values = _by_every_method(accountant, _DELTA) | _tested(
        publishable.propose_for_two_classes(), accountant
    )
    name = f"2017 Adult, {_ASKED} queries, δ = {_DELTA:g}"
    return _Case(name, 2.66, values, _OTHER_FORESTS, time.perf_counter() - started)


def _diabetes() -> _Case:
    """Return 500 answers on which all teachers agree."""
    unanimous = VoteHistogram(np.tile([250, 0], (_ASKED, 1)), 250)
    name = f"2017 Diabetes if unanimous, {_ASKED} queries, δ = {_DELTA:g}"
    return _Case(name, 1.44, _by_every_method(_answered(unanimous), _DELTA))


def _programs() -> Iterator[_Case]:
    """Yield the test data of PySyft's `perform_analysis`, and the tutorial that calls it."""
    ballots, labels = _test_data_of_pysyft()
    every = np.arange(50)
    found = perform_analysis(ballots, every, noise_eps=0.1, delta=_DELTA, n_classes=10)
    mistaken, _ = analysis_of_pysyft(ballots, labels, 0.1, _DELTA)
    accountant = _answered(tally(ballots, 10), scale=10.0)
    name, any_votes = (
        f"PySyft's test, 50 queries, γ = 0.1, δ = {_DELTA:g}",
        accountant.data_independent(_DELTA).epsilon,
    )
    by_votes = {
        _OWN: found.data_dependent,
        _EXACT: accountant.exact(_DELTA).reveal(),
        _ANY: any_votes,
    }
    yield _Case(f"{name}, vote-dependent", 6.8847, by_votes)
    yield _Case(f"{name}, labels as indices", 1.4828, {_OWN: mistaken})
    yield _Case(f"{name}, worst case", 7.8376, {_OWN: found.data_independent})
    tutorial = data_independent_moments(5.0, 9_000, _DELTA)
    values = {_OWN: tutorial, _ANY: _any_votes(9_000, _DELTA, scale=5.0)}
    yield _Case(f"tutorial, 9,000 queries, γ = 0.2, δ = {_DELTA:g}", 1451.5129, values)


def _test_data_of_pysyft() -> tuple[Ballots, IntArray]:
    """Return votes and labels that NumPy's old generator draws at seed 0, as PySyft's test lets it."""
    key = [0]
    for place in range(1, 624):  # how Matsumoto and Nishimura's generator of 2002 spreads a seed
        key.append((1_812_433_253 * (key[-1] ^ (key[-1] >> 30)) + place) % 2**32)
    bits = MT19937()
    bits.state = {
        "bit_generator": "MT19937",
        "state": {"key": np.array(key, dtype=np.uint32), "pos": 624},
    }
    generator = Generator(bits)
    ballots = (10 * generator.random((100, 50))).astype(np.int16)
    ballots[:, :10] = 0
    return ballots, (10 * generator.random(50)).astype(np.int64)


def _local() -> _Case:
    """Return 100 responses of one owner of Zhao's, each 0.1-private for the whole data set of that owner."""
    responses = Repeated(RandomizedResponse(0.1, 10, ONE_ENTITY), 100)
    values = {
        "T·ε": basic_epsilon(responses).epsilon,
        _OPTIMAL: pure_dp_composition(0.1, 100, _DELTA),
        f"k-ary response, {_ANY}": epsilon(responses, _DELTA).epsilon,
    }
    return _Case(f"Zhao, 100 responses of 0.1, δ = {_DELTA:g}", 10.0, values)


def _answered(votes: VoteHistogram, scale: float = _SCALE) -> Accountant:
    return exact_costs.accountant_of(NoisyArgmaxLaplace(scale, votes.n_classes, votes.unit), votes)


def _by_every_method(accountant: Accountant, delta: float) -> dict[str, float]:
    return {
        _OWN: accountant.bound_2017(delta).reveal(),
        _BOUND: accountant.bound_2018(delta).reveal(),
        _EXACT: accountant.exact(delta).reveal(),
        _ANY: accountant.data_independent(delta).epsilon,
    }


def _tested(proposal: Proposal, released: Accountant) -> dict[str, float]:
    return {
        _TESTED: proposal.epsilon,
        _CHANCE: 100 * publishable.chance_to_pass(proposal, released),
        _WITH_TEST: publishable.for_any_votes_with_test(proposal, released),
    }


def _chart(cases: list[_Case]) -> "DotChart":
    columns = [
        Dots(name=method, values=tuple(case.values.get(method) for case in cases))
        for method in _DRAWN
    ]
    return DotChart(
        title="The same labels, four values of ε",
        x_label="ε",
        cases=tuple(case.name for case in cases),
        reference=Dots(
            name="published by the paper", values=tuple(case.published for case in cases)
        ),
        methods=tuple(columns),
        ticks=_TICKS,
    )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Dots:
    """One method's value in each case."""

    name: str  # in the legend
    values: tuple[float | None, ...]  # one per case, from the top; None where there is none


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DotChart:
    """Methods beside each other, case by case."""

    title: str
    x_label: str
    cases: tuple[str, ...]  # from the top
    reference: Dots  # drawn as an upright bar
    methods: tuple[Dots, ...]  # in the order of the legend
    ticks: tuple[float, ...]  # of the axis

    def save(self, folder: Path, name: str) -> list[Path]:
        """Draw the chart into `folder` as png and svg, and return their paths.

        Raises
        ------
        InvalidParameterError
            If matplotlib is not installed.
        """
        canvas = blank(_WIDTH, _AROUND + _LINE * len(self.cases))
        axes = canvas.subplots()
        for line in range(len(self.cases)):
            found = [
                value
                for dots in (self.reference, *self.methods)
                if (value := dots.values[line]) is not None
            ]
            axes.plot([min(found), max(found)], [-line, -line], color="0.85", linewidth=2, zorder=1)
        _draw(axes, self.reference, "|", "black", _BAR)
        for number, dots in enumerate(self.methods):
            _draw(axes, dots, _MARKERS[number % len(_MARKERS)], COLORS[number % len(COLORS)], _SIZE)
        axes.set(
            title=self.title, xlabel=self.x_label, xscale="log", ylim=(0.6 - len(self.cases), 0.6)
        )
        axes.minorticks_off()
        axes.set_xticks(self.ticks, [f"{tick:g}" for tick in self.ticks])
        axes.set_yticks([-line for line in range(len(self.cases))], list(self.cases))
        axes.grid(axis="x", alpha=0.3)
        canvas.legend(frameon=False, fontsize=9, loc="outside lower center", ncols=2)
        return save(canvas, folder, name)


def _draw(axes: "Axes", dots: Dots, marker: str, color: str, size: float) -> None:
    places = [(value, -line) for line, value in enumerate(dots.values) if value is not None]
    x, y = zip(*places, strict=True) if places else ((), ())
    axes.plot(
        x, y, marker, color=color, markersize=size, markeredgewidth=1.8, label=dots.name, zorder=2
    )
