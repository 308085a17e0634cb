"""What fits release is recorded, with every call of the noise: a change of structure changes no number.

Each recorded fit is a method with a form of the rows, with and without people, a ledger and a name. Noise is simulated
from a seed, so numbers repeat; keys of ledgers are random, so what depends on them is left out. `model`, `fit`,
`_by_schema` and `_numbers` alone know the parameters of the estimators. `python tests/test_recorded_fits.py` writes the
record again; the change log tells of each released number that changed.
"""

import hashlib
import json
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

from tutelage import ConfidentGNMax, GNMax, LNMax, PATEClassifier, PATERegressor, SimulationNoise
from tutelage.datasets import load_adult
from tutelage.features import Schema
from tutelage.methods import CappedVotes, Method, NoisyMoments, TeacherVotes
from tutelage.tables import Batches, Table

pytestmark = pytest.mark.whole_models
RECORD = Path(__file__).parent / "golden" / "fits.json"
N, N_PUBLIC, N_BOUNDED = 900, 150, 4
# Of an entry of a ledger: what its random key, the day, or another entry's digest decides.
_KEYED = "about fingerprint hash digest key name nonce content question batch"
KEYED = {*_KEYED.split(), "previous", "before", "code", "written"}
DRAWS = ("discrete_laplace", "discrete_gaussian", "happens", "gumbel_argmax", "exponential_argmax")
TREE = DecisionTreeClassifier(max_depth=3, random_state=0)
TREES: dict[str, Any] = {"teacher": TREE, "n_teachers": 10, "n_queries": 40}
METHODS: dict[str, Method] = {
    "moments": NoisyMoments(),
    "moments, one round": NoisyMoments(rounds=1),
    "moments, a tree learns": NoisyMoments(student=TREE),
    "capped": CappedVotes(n_queries=40),
    "capped, few": CappedVotes(n_queries=5),
    "trees": TeacherVotes(**TREES),
    "trees, few": TeacherVotes(teacher=TREE, n_teachers=10, n_queries=5),
    "trees, GNMax": TeacherVotes(**TREES, mechanism=GNMax(8.0), selection="medoids", student=TREE),
    "trees, LNMax": TeacherVotes(**TREES, mechanism=LNMax(0.05), student=TREE),
    "trees, confident": TeacherVotes(
        **TREES,
        mechanism=ConfidentGNMax(threshold=6.0, sigma_threshold=3.0, sigma_vote=2.0),
        student=TREE,
    ),
    "trees, two rounds": TeacherVotes(**TREES, rounds=2, student=TREE),
}


class Data:
    """The rows of Adult that all recorded fits see, as arrays and as tables."""

    def __init__(self) -> None:
        adult = load_adult()
        names, classes = list(adult.feature_names), np.array(adult.classes)
        self.names, self.classes = names, list(adult.classes)
        self.X, self.y = adult.X_private[:N].copy(), classes[adult.y_private[:N]]
        self.X_public, self.y_public = (
            adult.X_public[:N_PUBLIC].copy(),
            classes[adult.y_public[:N_PUBLIC]],
        )
        self.ids = np.sort(np.random.default_rng(0).integers(0, 600, N))
        people = np.array([f"p{number}" for number in self.ids], dtype=object)
        columns = dict(zip(names, self.X.T, strict=True))
        self.table = Table(
            "private", {**columns, "income": self.y.astype(object), "person": people}
        )
        self.public = Table("public", dict(zip(names, self.X_public.T, strict=True)))
        lows, highs = adult.X_public.min(axis=0), adult.X_public.max(axis=0) + 1
        self.bounded = names[:N_BOUNDED]
        self.schema = Schema({name: (lows[at], highs[at]) for at, name in enumerate(self.bounded)})


def recording() -> tuple[SimulationNoise, list[Any]]:
    """Return seeded noise, and the list in which it writes down what it is asked for."""
    noise, calls = SimulationNoise(0), []
    for name in DRAWS:
        setattr(noise, name, partial(_draw, calls, name, getattr(noise, name)))
    return noise, calls


def _draw(calls: list[Any], name: str, drawn: Callable[..., Any], *given: Any) -> Any:
    calls.append([name, *map(_plain, given)])
    return drawn(*given)


def _plain(given: Any) -> Any:
    """Return an argument of the noise: of arrays, which hold private sums, the shape."""
    return list(given.shape) if isinstance(given, np.ndarray) else given


def model(method: Method, noise: SimulationNoise, data: Data, **given: Any) -> PATEClassifier:
    """Return the estimator of a method, which decides without private data and has one seed."""
    return PATEClassifier(method=method, classes=data.classes, noise=noise, random_state=0, **given)


def fit(
    one: Any,
    data: Data,
    form: str,
    people: bool,
    labels: Any = None,
    release: str | None = None,
    *,
    report: bool = False,
) -> Any:
    """Fit rows of a form, with or without people."""
    once: dict[str, Any] = {"release": release, "insist": True, "report": report}
    if form == "array":
        ids = data.ids if people else None
        return one.fit(
            data.X, data.y, X_public=data.X_public, y_public=labels, entity_ids=ids, **once
        )
    if people:
        one.set_params(unit="entity")
    rows: Any = data.table if people else data.table.without(["person"])
    if form == "batches":
        parts = [slice(0, 400), slice(400, None)]
        columns = data.table.columns

        def read(some: Any) -> Iterator[Table]:
            return (
                Table("private", {name: columns[name][part] for name in some}) for part in parts
            )

        rows = Batches("private", tuple(rows.columns), read)
    return one.fit(
        rows, "income", X_public=data.public, entity_ids="person" if people else None, **once
    )


def _in_ledger(method: str, names: list[str | None], noise: SimulationNoise, data: Data) -> Any:
    """Fit once per name of a release with one ledger; a name that comes again, or none, is the same release."""
    budget: dict[str, Any] = {"epsilon": 1.0} if None in names else {"budget": 2.0, "releases": 3}
    with tempfile.TemporaryDirectory() as folder:
        given = budget | {"ledger": Path(folder) / "x.ledger"}
        models = [(model(METHODS[method], noise, data, **given), name) for name in names]
        fits = [fit(one, data, "array", True, release=name) for one, name in models]
        return _released(fits[-1], data)


def _by_schema(noise: SimulationNoise, data: Data, **given: Any) -> Any:
    rows = {name: data.table.columns[name] for name in (*data.bounded, "income", "person")}
    one = PATEClassifier(
        epsilon=1.0, classes=data.classes, columns=data.schema, noise=noise, random_state=0
    )
    if "entity_ids" in given:
        one.set_params(unit="entity")
    return one.fit(Table("private", rows), "income", **{"insist": True, "report": False, **given})


def _numbers(noise: SimulationNoise, data: Data, **given: Any) -> Any:
    rows = Table("private", {name: data.table.columns[name] for name in data.bounded})
    one = PATERegressor(epsilon=1.0, target_range=(0, 100), columns=data.schema, noise=noise)
    return one.fit(rows, np.arange(N) % 100, **{"insist": True, "report": False, **given})


def recorded_fits() -> dict[str, Callable[[SimulationNoise, Data], Any]]:
    """Return all fits that are recorded, each a function of the noise and the data."""
    found: dict[str, Callable[[SimulationNoise, Data], Any]] = {}
    for name, method in METHODS.items():
        if name.endswith("few"):
            continue
        given = {"epsilon": 1.0} if method.mechanism is None else {}
        for form in ("array", "table"):
            for people in (False, True):
                found[f"{name} / {form} / {'people' if people else 'rows'}"] = (
                    lambda noise, data, m=method, f=form, p=people, g=given: fit(
                        model(m, noise, data, **g), data, f, p
                    )
                )
    for name in ("moments", "moments, one round"):
        found[f"{name} / batches / people"] = lambda noise, data, m=METHODS[name]: fit(
            model(m, noise, data, epsilon=1.0), data, "batches", True
        )
        found[f"{name} / array / public labels"] = lambda noise, data, m=METHODS[name]: fit(
            model(m, noise, data, epsilon=1.0), data, "array", True, data.y_public
        )
    for goal in ("balanced_accuracy", "average_precision"):
        found[f"moments / {goal}"] = lambda noise, data, g=goal: fit(
            model(METHODS["moments"], noise, data, epsilon=1.0, goal=g), data, "array", True
        )
    found["additive / schema / rows"] = _by_schema
    found["additive / schema / people"] = lambda noise, data: _by_schema(
        noise, data, entity_ids="person"
    )
    found["numbers / schema / rows"] = _numbers
    found["numbers / schema / people"] = lambda noise, data: _numbers(
        noise, data, entity_ids=data.ids
    )
    for form in ("array", "batches"):
        found[f"moments / {form} / people / report"] = lambda noise, data, f=form: fit(
            model(METHODS["moments"], noise, data, epsilon=1.0), data, f, True, report=True
        )
    found["additive / schema / people / report"] = lambda noise, data: _by_schema(
        noise, data, entity_ids="person", report=True
    )
    found["numbers / schema / rows / report"] = lambda noise, data: _numbers(
        noise, data, report=True
    )
    for name in ("moments", "capped, few", "trees, few"):
        found[f"{name} / again"] = lambda noise, data, m=name: _in_ledger(
            m, [None, None], noise, data
        )
    for name in ("moments", "capped, few"):
        found[f"{name} / second month"] = lambda noise, data, m=name: _in_ledger(
            m, ["01", "02"], noise, data
        )
        found[f"{name} / first month again"] = lambda noise, data, m=name: _in_ledger(
            m, ["01", "02", "01"], noise, data
        )
    return found


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _digest(values: Any) -> str | None:
    return (
        None
        if values is None
        else hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()[:16]
    )


def _released(one: Any, data: Data) -> dict[str, Any]:
    """Return everything of a fit that an outsider or the ledger sees, and digests of its ballots."""
    fitted = one
    ballots = getattr(fitted, "ballots_", None) or (
        (fitted.votes_,) if hasattr(fitted, "votes_") else ()
    )
    entries = [
        {key: kept for key, kept in entry.items() if key not in KEYED}
        for entry in fitted.open_ledger_.export()
    ]
    rows = data.public if getattr(fitted, "columns_", None) is not None else data.X_public
    if fitted.columns is not None:
        rows = Table("public", {name: data.public.columns[name] for name in data.bounded})
    predicted = np.asarray(one.predict(rows))
    return {
        "ballots": [
            _digest(getattr(ballot, "totals", getattr(ballot, "counts", None)))
            for ballot in ballots
        ],
        "labels": _digest(fitted.release_.labels),
        "queries": _digest(fitted.queries_),
        "event": fitted.release_.event.as_dict(),
        "cost": fitted.release_.cost,
        "epsilon": fitted.epsilon_.epsilon,
        "proved_by": fitted.epsilon_.method,
        "mechanism": str(fitted.mechanism_),
        "unit": fitted.epsilon_.unit.name,
        "drawn": fitted.drawn_,
        "remembered": fitted.remembered_,
        "entries": [entry["kind"] for entry in entries],
        "content of entries": _hash(entries),
        "predicted": _hash(
            [round(float(one), 9) if predicted.dtype.kind == "f" else str(one) for one in predicted]
        ),
    }


def record(name: str, data: Data) -> dict[str, Any]:
    """Return the record of one fit, as JSON gives it back."""
    noise, calls = recording()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = recorded_fits()[name](noise, data)
        released = found if isinstance(found, dict) else _released(found, data)
    return json.loads(json.dumps({"noise": calls, **released}))


@pytest.fixture(scope="module")
def data() -> Data:
    return Data()


def _in_tiers() -> Iterator[Any]:
    """Yield the names of all recorded fits; those that search for the noise of votes take seconds."""
    for name in recorded_fits():
        method = METHODS.get(name.split(" / ")[0])
        votes = isinstance(method, CappedVotes | TeacherVotes) and method.mechanism is None
        yield pytest.param(name, marks=pytest.mark.rest) if votes else name


@pytest.mark.parametrize("name", [*_in_tiers()])
def test_a_fit_releases_what_it_released_when_it_was_recorded(name, data):
    assert record(name, data) == json.loads(RECORD.read_text())[name]


def test_every_recorded_fit_is_compared():
    assert set(json.loads(RECORD.read_text())) == set(recorded_fits())


if __name__ == "__main__":
    rows = Data()
    lines = [f"{json.dumps(name)}: {json.dumps(record(name, rows))}" for name in recorded_fits()]
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n")
