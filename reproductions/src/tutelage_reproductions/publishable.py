"""A tested ε: proposed on public votes and tested on the votes that the authors published.

The public votes for MNIST come from 250 teachers of 32 images each, all of them test images. The labels of the last
1,000 test images are known, since they score students, and are propagated to the others. The proposal uses no private
image and no teacher's vote. The two-class votes are synthetic, and so are their public votes, at 87.5 % mean agreement.
"""

import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tutelage._internal.progress import progress_bar
from tutelage.accounting import Accountant, data_independent
from tutelage.ballots import VoteHistogram, tally
from tutelage.events import (
    CERTAIN,
    Composed,
    Event,
    NoisyArgmaxGaussian,
    NoisyArgmaxLaplace,
    Repeated,
)
from tutelage.features import PublicRows
from tutelage.mechanisms import ConfidentGNMax
from tutelage.noise import SimulationNoise
from tutelage.partition import Shards
from tutelage.privacy import ONE_TEACHER
from tutelage.publishing import Proposal, propose, reach_of
from tutelage.students import LabelPropagationStudent, fit_student
from tutelage.teachers import ClassMeans, HeadTeachers
from tutelage_reproductions.datasets import load_mnist
from tutelage_reproductions.glyphs import glyph_features
from tutelage_reproductions.protocol import HELD_OUT, published_votes
from tutelage_reproductions.record import Record, Row, share

_DELTA, _TEACHERS, _CLASSES = 1e-5, 250, 10
_KEY = b"partition of public teachers"
_ASKED = 1_000
_SCALE = 20.0
_LAPLACE = NoisyArgmaxLaplace(_SCALE, _CLASSES, ONE_TEACHER)
_LAPLACE_OF_TWO, _TWO_CLASS_QUERIES = NoisyArgmaxLaplace(_SCALE, 2, ONE_TEACHER), 500
_CONFIDENT = ConfidentGNMax(threshold=200, sigma_threshold=150, sigma_vote=40)
CONFIDENTLY_ASKED = 640
# Beta parameters of how far above one half the share of the larger class is.
_AGREEMENT = (3.0, 1.0)


class _Case(NamedTuple):
    """One release: its mechanism's answers, public votes, the votes tested, and the published number."""

    name: str
    event: Event
    proxy: VoteHistogram
    votes: VoteHistogram
    queries: int
    published: float | None
    at_most: float | None


def reproduce(*, quick: bool, download: bool, progress: bool) -> Record:
    """Return the published ε beside the worst-case ε; `quick` leaves out 1,000 queries and the checks."""
    mnist = VoteHistogram.load(published_votes(), array="mnist_250_teachers")
    public = public_mnist_votes(download=download)
    gaussian = NoisyArgmaxGaussian(40.0, _CLASSES, ONE_TEACHER)
    cases = (
        _Case("MNIST, LNMax 20, 100 queries", _LAPLACE, public, mnist, 100, 2.04, 1.3),
        _Case("MNIST, LNMax 20, 1,000 queries", _LAPLACE, public, mnist, 1_000, 8.03, 3.5),
        _Case("MNIST, GNMax 40, 1,000 queries", gaussian, public, mnist, 1_000, None, None),
    )
    shown = progress_bar(
        cases[:1] if quick else cases, "Proposals", 1 if quick else len(cases), shown=progress
    )
    rows = [row for case in shown for row in _rows(case)]
    rows += _two_class_rows()
    if not quick:
        rows += _confident_rows(public, mnist.first(CONFIDENTLY_ASKED))
    return Record(
        name="publishable",
        source="PATE 2017 (arXiv:1610.05755v4) and PATE 2018 (arXiv:1802.08908v1), whose ε may not be published",
        rows=tuple(rows),
        quick=quick,
        notes=(
            (
                f"δ = {_DELTA:g} covers both the labels and the test. A proposal allows twice the cost of the "
                "public votes, and even then the test fails with probability 5 %. The share of batches is over "
                "consecutive batches of the authors' votes, each tested once, with an exact interval."
            ),
            (
                "Votes for two classes are synthetic, with Beta-distributed agreement: one draw is public, the "
                "other is tested."
            ),
            (
                "The probability that the test passes depends on the votes, so a data set owner must not publish it."
            ),
        ),
    )


def public_mnist_votes(*, download: bool = False) -> VoteHistogram:
    """Return votes of 250 teachers trained on public MNIST images on 1,000 others."""
    mnist = load_mnist(download=download)
    features = glyph_features(PublicRows(mnist.X_test, "MNIST test images"))
    known = np.full(len(mnist.X_test), -1)
    known[-HELD_OUT:] = mnist.y_test[-HELD_OUT:]
    rows = features[:-1].transform(mnist.X_test)
    student = fit_student(LabelPropagationStudent(), rows, known, np.arange(_CLASSES), seed=0)
    labels = student.predict(rows)
    asked, taught = np.split(
        np.random.default_rng(0).permutation(len(mnist.X_test) - HELD_OUT), [_ASKED]
    )
    directions = features[:1].transform(mnist.X_test)
    shards = Shards.of_rows(len(taught), _TEACHERS, key=_KEY)
    teachers = HeadTeachers(ClassMeans(), n_classes=_CLASSES)
    ballots = teachers.fit_ballots(directions[taught], labels[taught], shards, directions[asked])
    return tally(ballots, _CLASSES)


def propose_on_mnist(public: VoteHistogram, queries: int) -> Proposal:
    """Return what is proposed, on public votes, for so many answers of LNMax on MNIST."""
    return propose(_accountant(_LAPLACE, public), _DELTA, queries=queries)


def propose_confident(public: VoteHistogram) -> Proposal:
    """Return what is proposed, on public votes, for asking about 640 images of MNIST through a confidence check."""
    return propose(confident_run(public, seed=0), _DELTA, queries=CONFIDENTLY_ASKED)


def propose_for_two_classes() -> Proposal:
    """Return what is proposed, on made-up votes, for 500 answers of LNMax on two classes."""
    return propose(
        _accountant(_LAPLACE_OF_TWO, _made_up(2_000)), _DELTA, queries=_TWO_CLASS_QUERIES
    )


def confident_run(votes: VoteHistogram, *, seed: int) -> Accountant:
    """Return what one simulated run through a confidence check was charged."""
    answered = _CONFIDENT.release(votes, SimulationNoise(seed), None).answered
    accountant = Accountant()
    accountant.add_release(
        _CONFIDENT.event_of_one(votes.n_classes, votes.unit, simulated=False), votes, answered
    )
    return accountant


def chance_to_pass(proposal: Proposal, released: Accountant) -> float:
    """Return with which chance what was released passes the test; it depends on the votes, so it is private."""
    shortfall = proposal.shortfall(reach_of(released, proposal.order, len(proposal.caps)).reveal())
    return proposal.chances[min(shortfall, len(proposal.caps))] / CERTAIN


def for_any_votes_with_test(proposal: Proposal, released: Accountant) -> float:
    """Return the worst-case ε of the release and the test; report it beside the proposed ε."""
    return data_independent.epsilon(
        Composed((released.event_at_limits(), proposal.event())), _DELTA
    ).epsilon


def _accountant(event: Event, votes: VoteHistogram) -> Accountant:
    accountant = Accountant()
    accountant.add(Repeated(event, votes.n_queries), votes)
    return accountant


def _rows(case: _Case) -> Iterator[Row]:
    started = time.perf_counter()
    proposal = propose(_accountant(case.event, case.proxy), _DELTA, queries=case.queries)
    seconds = time.perf_counter() - started
    released = _accountant(case.event, case.votes.first(case.queries))
    yield _published(case.name, proposal, case.published, case.at_most, seconds)
    yield from _beside(case.name, proposal, released)
    batches = range(0, case.votes.n_queries - case.queries + 1, case.queries)
    noise = SimulationNoise(0)
    passes = list[bool]()
    for start in batches:
        batch = case.votes.select(np.arange(start, start + case.queries))
        chance = chance_to_pass(proposal, _accountant(case.event, batch))
        passes.append(noise.happens(round(chance * CERTAIN)))
    found, interval = share(np.array(passes))
    yield Row(
        name=f"{case.name}: batches of the 9,000 that pass, %",
        ours=found,
        interval=interval,
        better="higher",
    )


def _published(
    name: str, proposal: Proposal, published: float | None, at_most: float | None, seconds: float
) -> Row:
    return Row(
        name=f"{name}: tested ε (publishable)",
        ours=proposal.epsilon,
        published=published,
        at_most=at_most,
        seconds=seconds,
        better="lower",
        why=None
        if published is None
        else "Ours may be published; the paper's depends on the votes.",
    )


def _beside(name: str, proposal: Proposal, released: Accountant) -> Iterator[Row]:
    """Return what belongs beside a published ε: the test's chance and cost, and the worst-case claims."""
    order = np.array([proposal.order])
    test = float(data_independent.publication_test_rdp(proposal.event(), order)[0])
    yield Row(
        name=f"{name}: chance that the test passes, %",
        ours=100 * chance_to_pass(proposal, released),
        better="higher",
    )
    yield Row(
        name=f"{name}: tested ε if labels are withheld when the test fails",
        ours=proposal.withheld_epsilon,
        better="lower",
    )
    yield Row(name=f"{name}: cost of the test, nats at order {proposal.order:.3g}", ours=test)
    yield Row(
        name=f"{name}: worst-case ε", ours=released.data_independent(_DELTA).epsilon, better="lower"
    )
    yield Row(
        name=f"{name}: worst-case ε with test",
        ours=for_any_votes_with_test(proposal, released),
        better="lower",
    )
    yield Row(
        name=f"{name}: exact ε (private)", ours=released.exact(_DELTA).reveal(), better="lower"
    )


def _two_class_rows() -> Iterator[Row]:
    name = "two classes, LNMax 20, 500 queries"
    started = time.perf_counter()
    proposal = propose_for_two_classes()
    seconds = time.perf_counter() - started
    votes = _made_up(_TWO_CLASS_QUERIES, seed=1)
    yield _published(name, proposal, None, 1.6, seconds)
    yield from _beside(name, proposal, _accountant(_LAPLACE_OF_TWO, votes))


def _made_up(queries: int, seed: int = 0) -> VoteHistogram:
    """Return two-class votes whose agreement is Beta distributed."""
    rng = np.random.default_rng(seed)
    larger = rng.binomial(_TEACHERS, (1 + rng.beta(*_AGREEMENT, queries)) / 2)
    return VoteHistogram(np.column_stack([larger, _TEACHERS - larger]), _TEACHERS)


def _confident_rows(public: VoteHistogram, votes: VoteHistogram) -> Iterator[Row]:
    name = "MNIST, Confident-GNMax (200, 150, 40), 640 queries"
    started = time.perf_counter()
    proposal = propose_confident(public)
    seconds = time.perf_counter() - started
    yield _published(name, proposal, 1.97, None, seconds)
    yield from _beside(name, proposal, confident_run(votes, seed=1))
