"""Write what the main paths release and account for, exactly, to compare two commits.

    python tools/canon.py > after.json            # run in both checkouts, then: diff before.json after.json

Fits use simulated noise, which is repeatable. Every call of the noise source is recorded with its parameters and shape,
and so are labels, events, ε, predictions and the ledger's entries. Accounting cases are every bound of every event at
several orders, on votes drawn from a seed. Floats are written by `repr`, so that the last bit counts.
"""

import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
from tutelage.ledger import Ledger
from tutelage.privacy import ONE_ENTITY, PrivacyUnit
from tutelage.teachers import ClassMeans, NearestQueries, VectorBallots

DRAWS = ("discrete_laplace", "discrete_gaussian", "happens", "gumbel_argmax", "exponential_argmax")
MECHANISMS = (LNMax(20.0), GNMax(40.0), GNMax(9.0), ConfidentGNMax(150.0, 60.0, 20.0), ExponentialMax(0.1))


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
        whole = np.ascontiguousarray(value)
        return f"{whole.dtype}{whole.shape} {hashlib.sha256(whole.tobytes()).hexdigest()[:16]}"
    return repr(value)


def fits() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name of each fit and everything that it releases."""
    adult = load_adult()
    rows, labels, public = adult.X_private[:3000], adult.y_private[:3000], adult.X_public[:400]
    people = np.arange(len(rows)) // 2
    votes = {"n_queries": 60, "random_state": 0, "classes": [0, 1], "unit": "row"}
    ensemble = {**votes, "n_teachers": 30, "teacher": ClassMeans()}
    sums = {"random_state": 0, "classes": [0, 1], "unit": "row"}
    logistic = LogisticRegression(max_iter=2000)
    made: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "LNMax": ({**ensemble, "mechanism": LNMax(20.0)}, {}),
        "GNMax of entities": (
            {**ensemble, "epsilon": 2.0, "unit": "patient"},
            {"entity_ids": people},
        ),
        "forests": ({**votes, "n_teachers": 10, "teacher": RandomForestClassifier(5), "epsilon": 4.0}, {}),
        "silos": ({**votes, "teacher": ClassMeans(), "mechanism": GNMax(5.0)}, {"silos": people % 12}),
        "confident": (
            {**ensemble, "mechanism": ConfidentGNMax(18.0, 12.0, 6.0)},
            {},
        ),
        "interactive": (
            {
                **ensemble,
                "mechanism": InteractiveGNMax(18.0, 12.0, 6.0, confidence=0.9),
                "rounds": 2,
                "student": logistic,
            },
            {},
        ),
        "exponential": (
            {**ensemble, "mechanism": ExponentialMax(0.2)},
            {},
        ),
        "permute and flip": (
            {**ensemble, "mechanism": PermuteAndFlip(0.2)},
            {},
        ),
        "capped votes": ({**votes, "teacher": NearestQueries(5), "epsilon": 1.0}, {}),
        "two rounds of sums": ({**sums, "epsilon": 1.0}, {}),
        "one round of sums of entities": (
            {**sums, "teacher": VectorBallots(rounds=1), "epsilon": 0.5, "unit": "patient"},
            {"entity_ids": people},
        ),
        "tuned sums": (
            {**sums, "epsilon": 1.0, "tune": [{}, {"teacher": VectorBallots(rounds=1)}]},
            {},
        ),
    }
    for name, (settings, given) in made.items():
        yield name, _released(PATEClassifier(**settings), rows, labels, public, given)


def _released(model: PATEClassifier, rows: Any, labels: Any, public: Any, given: dict[str, Any]) -> dict[str, Any]:
    noise = RecordedNoise(7)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "private.ledger"
        model.set_params(noise=noise, ledger=path, insist=True)
        model.fit(rows, labels, X_public=public, **given)
        state = Ledger.open(path).state()
        return {
            "noise": noise.calls,
            "labels": _exact(model.release_.labels),
            "event": _plain(model.release_.event.as_dict()),
            "queries": _exact(np.asarray(model.queries_)),
            "epsilon": repr(model.epsilon_),
            "mechanism": repr(model.mechanism_),
            "spent": repr(state.spent),
            "remaining": repr(state.remaining),
            "predictions": _exact(np.asarray(model.predict(public))),
        }


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else repr(value)


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
                    "added or removed": _exact(data_independent.epsilon_if_added_or_removed(whole, delta)),
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
