"""Write what the main paths release and account for, exactly, to compare two commits.

    python tools/canon.py > after.json            # run in both checkouts, then: diff before.json after.json

Fits use simulated noise, which is repeatable. Every call of the noise source is recorded with its parameters and shape,
and so are labels, events, ε, predictions and the ledger's entries, without what is random in them. Every method, unit
of privacy, rounds, a campaign, answers from memory, batches, and consortia of two and three owners take part.
Accounting cases are every bound of every event at several orders, on votes drawn from a seed. Floats are written by
`repr`, so that the last bit counts.
"""

import hashlib
import json
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from tutelage import (
    ConfidentGNMax,
    ExponentialMax,
    GNMax,
    InteractiveGNMax,
    LNMax,
    PATEClassifier,
    PermuteAndFlip,
    SimulationNoise,
    VoteHistogram,
    boundary,
)
from tutelage.accounting import Accountant, data_independent
from tutelage.datasets import load_adult
from tutelage.events import (
    CappedArgmaxGaussian,
    ConfidenceCheck,
    Event,
    ExponentialArgmax,
    NoisyArgmaxGaussian,
    NoisyArgmaxLaplace,
    NoisySumGaussian,
    Repeated,
)
from tutelage.exceptions import UnsupportedEventError
from tutelage.features import Schema
from tutelage.labeling import LabelingSession
from tutelage.ledger import Ledger
from tutelage.mechanisms import CappedGNMax, NoisySum
from tutelage.methods import CappedVotes, NoisyMoments, TeacherVotes
from tutelage.partition import Shards
from tutelage.privacy import ONE_ENTITY, PrivacyUnit
from tutelage.tables import read_batches
from tutelage.teachers import ClassMeans, NearestQueries, Ridge

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # for consortia on this machine

pa: Any = import_module("pyarrow")  # it ships no types
pq: Any = import_module("pyarrow.parquet")

DRAWS = ("discrete_laplace", "discrete_gaussian", "happens", "gumbel_argmax", "exponential_argmax")
MECHANISMS = (
    LNMax(20.0),
    GNMax(40.0),
    GNMax(9.0),
    ConfidentGNMax(150.0, 60.0, 20.0),
    ExponentialMax(0.1),
)


class RecordedNoise(SimulationNoise):  # pyright: ignore[reportGeneralTypeIssues]
    """Simulated noise that keeps what it was asked for."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.calls: list[str] = []


def _recording(name: str) -> Any:
    honest = getattr(SimulationNoise, name)

    def drawn(self: RecordedNoise, *given: Any) -> Any:
        self.calls.append(f"{name} {[_exact(one) for one in given]}")
        return honest(self, *given)

    return drawn


for _name in DRAWS:
    setattr(RecordedNoise, _name, _recording(_name))


def _exact(value: Any) -> str:
    if isinstance(value, np.ndarray):
        whole = np.ascontiguousarray(cast("Any", value))
        return f"{whole.dtype}{whole.shape} {hashlib.sha256(whole.tobytes()).hexdigest()[:16]}"
    return repr(value)


def fits() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name of each fit and everything that it releases."""
    adult = load_adult()
    rows, labels, public = adult.X_private[:3000], adult.y_private[:3000], adult.X_public[:400]
    people = np.arange(len(rows)) // 2
    row = partial(PATEClassifier, classes=[0, 1], unit="row", random_state=0)
    patient = partial(row, unit="patient")
    teachers = partial(TeacherVotes, ClassMeans(), n_teachers=30, n_queries=60)
    forests = TeacherVotes(RandomForestClassifier(5), n_teachers=10, n_queries=60)
    interactive = InteractiveGNMax(18.0, 12.0, 6.0, confidence=0.9)
    logistic = LogisticRegression(max_iter=2000)
    of_entities, of_silos = {"entity_ids": people}, {"silos": people % 12}
    # Each fit is a sequence of models, which are fitted one after the other on one ledger.
    made: dict[str, tuple[list[PATEClassifier], dict[str, Any]]] = {
        "LNMax": ([row(method=teachers(mechanism=LNMax(20.0)))], {}),
        "GNMax of entities": ([patient(2.0, method=teachers())], of_entities),
        "forests": ([row(4.0, method=forests)], {}),
        "silos": (
            [row(method=TeacherVotes(ClassMeans(), n_queries=60, mechanism=GNMax(5.0)))],
            of_silos,
        ),
        "entities within silos": (
            [patient(method=TeacherVotes(Ridge(), n_queries=60, mechanism=GNMax(5.0)))],
            {**of_silos, **of_entities},
        ),
        "confident": ([row(method=teachers(mechanism=ConfidentGNMax(18.0, 12.0, 6.0)))], {}),
        "interactive": (
            [row(method=teachers(rounds=2, mechanism=interactive, student=logistic))],
            {},
        ),
        "exponential": ([row(method=teachers(mechanism=ExponentialMax(0.2)))], {}),
        "permute and flip": ([row(method=teachers(mechanism=PermuteAndFlip(0.2)))], {}),
        "rounds by margin": (
            [row(3.0, method=teachers(selection="least-confident", rounds=3, student=logistic))],
            {},
        ),
        "votes from memory": (
            [row(2.0, budget=4.0, method=teachers(n_queries=queries)) for queries in (60, 80, 80)],
            {},
        ),
        "capped votes": ([row(1.0, method=CappedVotes(5, n_queries=60))], {}),
        "capped votes in rounds": (
            [patient(1.0, method=CappedVotes(3, n_queries=60, rounds=2))],
            of_entities,
        ),
        "two rounds of sums": ([row(1.0)], {}),
        "one round of sums of entities": (
            [patient(0.5, method=NoisyMoments(rounds=1))],
            of_entities,
        ),
        "sums from memory": ([row(1.0), row(1.0)], {}),
        "two questions of sums": (
            [row(0.7, budget=2.0, question=one) for one in ("one", "two")],
            of_entities,
        ),
    }
    for name, (models, given) in made.items():
        given = given if models[0].unit != "row" or "silos" in given else {}
        yield name, _released(models, rows, labels, public, given)
    yield "sums read in batches", _in_batches(rows, labels, public)
    yield "campaign of few votes", _campaign(rows, labels, public)
    yield "consortium of votes of two", _consortium_of_votes(2)
    yield "consortium of votes of three", _consortium_of_votes(3)
    yield "consortium of sums of three", _consortium_of_sums(3)


def _released(
    models: list[PATEClassifier], rows: Any, labels: Any, public: Any, given: dict[str, Any]
) -> Any:
    noise, found = RecordedNoise(7), list[dict[str, Any]]()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "private.ledger"
        for model in models:
            model.set_params(noise=noise, ledger=path)
            model.fit(rows, labels, X_public=public, insist=True, **given)
            found.append(
                {
                    "labels": _exact(model.release_.labels),
                    "event": _plain(model.release_.event.as_dict()),
                    "queries": _exact(np.asarray(model.queries_)),
                    "epsilon": repr(model.epsilon_),
                    "mechanism": repr(model.mechanism_),
                    "predictions": _exact(np.asarray(model.predict(public))),
                }
            )
        return {"fits": found, "noise": noise.calls, "ledger": _entries(Ledger.open(path))}


def _in_batches(rows: Any, labels: Any, public: Any) -> Any:
    names = [f"column {number}" for number in range(rows.shape[1])]
    private = dict(zip(names, rows.T, strict=True)) | {"y": labels}
    shown = pa.table(dict(zip(names, public.T, strict=True)))
    model = PATEClassifier(epsilon=1.0, classes=[0, 1], unit="row", random_state=0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        pq.write_table(pa.table(private), path, row_group_size=700)
        return _released([model], read_batches(path), "y", shown, {})


def _campaign(rows: Any, labels: Any, public: Any) -> Any:
    noise, shards = RecordedNoise(7), Shards.of_rows(len(rows), len(rows), key=bytes(32))
    teachers = NearestQueries(4).fit(rows, labels, shards, n_classes=2)
    mechanism = CappedGNMax(30.0, 4)
    ledger = Ledger.in_memory(epsilon=2.0, delta=1e-5, unit=shards.unit)
    session = LabelingSession(teachers, mechanism, ledger, noise=noise)
    asked = [session.ask(public[start:stop]) for start, stop in ((0, 50), (30, 90), (0, 90))]
    return {
        "labels": [_exact(one.labels) for one in asked],
        "costs": [repr(one.cost) for one in asked],
        "noise": noise.calls,
        "ledger": _entries(ledger),
    }


def _consortium_of_votes(owners: int) -> Any:
    def cast(members: Any, name: str, batch: Any, random: Any) -> None:
        ballots = random.choice(3, size=(25, batch.n_queries), p=[0.7, 0.2, 0.1])
        members.send(batch, name, ballots)

    return _played(owners, 1, GNMax(8.0), np.arange(6.0)[:, np.newaxis], cast)


def _consortium_of_sums(owners: int) -> Any:
    columns = ("age", "hours", "weight")

    def cast(members: Any, name: str, batch: Any, random: Any) -> None:
        X = random.random(size=(150, 3))
        table, y = dict(zip(columns, X.T, strict=True)), (X[:, 0] > 0.5).astype(int)
        members.entity(name).cast(batch, table, y, members.mailbox, entity_ids=np.arange(150))

    schema = Schema(dict.fromkeys(columns, (0.0, 1.0)))
    sums = {"teachers_per_entity": 1, "schema": schema, "people": (150,) * owners}
    return _played(owners, 3, NoisySum(1.0), None, cast, classes=("no", "yes"), **sums)


def _played(owners: int, rounds: int, mechanism: Any, public: Any, cast: Any, **terms: Any) -> Any:
    """Play rounds of a consortium with its three computing parties, and return what everybody spent and received."""
    from consortia import compute, found

    noise = RecordedNoise(7)
    random = np.random.default_rng(0)
    released = list[str]()
    honest = boundary.SystemNoise
    boundary.SystemNoise = lambda: noise  # type: ignore[misc, assignment]
    try:
        with tempfile.TemporaryDirectory() as folder:
            members = found(
                Path(folder), mechanism, entities=owners, quorum=owners, epsilon=40.0, **terms
            )
            names = [member.name for member in members.consortium.entities]
            for _ in range(rounds):
                aggregator, box = members.aggregator(), members.mailbox
                batch: Any = (
                    aggregator.ask_sum("first", box) if terms else aggregator.ask(public, box)
                )
                for name in names:
                    cast(members, name, batch, random)
                compute(members, batch)
                collect = (
                    members.aggregator().collect_sum if terms else members.aggregator().collect
                )
                got: Any = collect(batch, members.mailbox)
                released.append(_exact(got.values if terms else got.labels))
            ledgers = {name: _entries(members.ledger(name)) for name in ("aggregator", *names)}
    finally:
        boundary.SystemNoise = honest
    return {"released": released, "noise": noise.calls, "ledgers": ledgers}


def _entries(ledger: Ledger) -> Any:
    """Return what a ledger says, without what is random or a day."""
    state, left_out = (
        ledger.state(),
        {"hash", "key", "previous", "written", "fingerprint", "digest", "votes", "batch"},
    )
    entries = [
        {name: value for name, value in one.items() if name not in left_out}
        for one in ledger.export()
    ]
    entries = [{name: value for name, value in one.items() if name != "owner"} for one in entries]
    return {
        "entries": _plain(entries),
        "spent": repr(state.spent),
        "remaining": repr(state.remaining),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return {key: _plain(member) for key, member in members.items()}
    if isinstance(value, list | tuple):
        return [_plain(member) for member in cast("Sequence[Any]", value)]
    return repr(value)


def accounting() -> Iterator[tuple[str, Any]]:
    """Yield each accounting case: an event, how often it happened, the votes where they matter, and every bound."""
    random = np.random.default_rng(0)
    for classes, teachers in ((2, 50), (3, 250), (10, 250)):
        counts = random.multinomial(teachers, random.dirichlet(np.full(classes, 0.3)), size=12)
        votes = VoteHistogram(counts, n_teachers=teachers)
        for event in _events(classes, votes.unit):
            for times, delta in ((1, 1e-5), (12, 1e-5), (12, 1e-7), (1000, 1e-6)):
                whole = Repeated(event, times)
                of_one = f"{event!r} ×{times}, δ = {delta:g}"
                yield (
                    f"{of_one}: every bound for all votes",
                    {
                        "epsilon": _exact(data_independent.epsilon(whole, delta)),
                        "rdp": _exact(data_independent.rdp(whole).values),
                    },
                )
        for mechanism in MECHANISMS:
            one = mechanism.event_of_one(classes, votes.unit, simulated=False)
            for delta in (1e-5, 1e-7):
                accountant = Accountant()
                accountant.add_release(one, votes)
                for bound in ("exact", "bound_2017", "bound_2018"):
                    try:
                        found = repr(getattr(accountant, bound)(delta).reveal())
                    except UnsupportedEventError:
                        found = "unsupported"
                    yield f"{mechanism!r}, {classes} classes, δ = {delta:g}: {bound}", found
    for event in _sums():
        for times, delta in ((1, 1e-5), (2, 1e-7), (40, 1e-5)):
            whole = Repeated(event, times)
            yield (
                f"{event!r} ×{times}, δ = {delta:g}",
                {
                    "replaced": _exact(data_independent.epsilon(whole, delta)),
                    "added or removed": _exact(
                        data_independent.epsilon_if_added_or_removed(whole, delta)
                    ),
                    "at order 20": _exact(data_independent.epsilon_at(whole, delta, 20.0)),
                },
            )


def _events(classes: int, unit: PrivacyUnit) -> Iterator[Event]:
    for scale in (5.0, 20.0, 33.3):
        yield NoisyArgmaxLaplace(scale, classes, unit)
        yield ExponentialArgmax(scale, classes, unit)
    for sigma in (10.0, 40.0, 123.4):
        yield NoisyArgmaxGaussian(sigma, classes, unit)
        yield ConfidenceCheck(0.6 * 250, sigma, classes, unit)


def _sums() -> Iterator[Event]:
    for sigma in (3.0, 40.0, 1e4):
        for norm_squared in (1, 100, 10**6):
            yield NoisySumGaussian(sigma, norm_squared, 12, ONE_ENTITY)
        for cap in (1, 5, 40):
            yield CappedArgmaxGaussian(sigma, cap, 3, ONE_ENTITY)


def main() -> None:
    """Print everything as JSON."""
    found = {"fits": dict(fits()), "accounting": dict(accounting())}
    json.dump(found, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
