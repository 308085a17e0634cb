"""Nothing fails because of a row once something is spent: hostile people under every method and student.

Either a fit refuses a person before anything is spent, or it goes through, and one ballot at most is that person's.
"""

import datetime as dt
import warnings
from dataclasses import replace
from itertools import cycle
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from tutelage import GNMax, LabelingSession, Ledger, PATEClassifier, PATERegressor, SimulationNoise
from tutelage.exceptions import TutelageError
from tutelage.features import PublicColumns, PublicFeatureMap, PublicPCA, PublicRows, Schema
from tutelage.mechanisms import CappedGNMax
from tutelage.methods import CappedVotes, NoisyMoments, TeacherVotes
from tutelage.privacy import NeighboringRelation, PrivacyUnit
from tutelage.tables import Batches, as_table
from tutelage.teachers import CallableTeachers, ClassMeans, Ridge

pytestmark = [
    pytest.mark.filterwarnings("ignore::tutelage.exceptions.TeacherLostWarning"),
    pytest.mark.filterwarnings("ignore::tutelage.exceptions.MuchNoiseWarning"),
    pytest.mark.filterwarnings("ignore::tutelage.exceptions.OneClassWarning"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]
RNG = np.random.default_rng(0)
PEOPLE, PUBLIC_ROWS, COLUMNS = 40, 60, 3
PRIVATE = RNG.normal(size=(PEOPLE, COLUMNS))
LABELS = (PRIVATE[:, 0] > 0).astype(int)
PUBLIC = RNG.normal(size=(PUBLIC_ROWS, COLUMNS))
IDS = [f"p{number}" for number in range(PEOPLE)]
UNIT = PrivacyUnit("entity", NeighboringRelation.ADD_REMOVE_OR_CHANGE_ONE_ENTITY)
MOST = 1.7976931348623157e308
SMALL = NoisyMoments(n_landmarks=15)


def cells(*values: float) -> np.ndarray:
    return np.resize(np.array(values, dtype=np.float64), (1, COLUMNS))


SIGNED = (1e308, MOST, 1e39, 2.0**63, 5e-324, 0.0)
OTHERS = (3.5e38, 1e155, 1e20, 1e30, 2.3e-308, 1e-310, 1e-45, np.inf)
NUMBERS: dict[str, np.ndarray] = {
    **{f"{value:.3g}": cells(value) for value in (*SIGNED, *(-value for value in SIGNED), *OTHERS)},
    "one cell of 1e39": np.array([[0.0, 1e39, 0.0]]),
    "both ends": cells(MOST, -MOST),
    "opposite rows": np.array([[MOST] * COLUMNS, [-MOST] * COLUMNS]),
    "ordinary": np.array([[0.1, -0.3, 1.0]]),
    "one missing": np.array([[0.0, np.nan, 1.0]]),
    "a public row": PUBLIC[:1],
    "many huge rows": np.random.default_rng(2).normal(size=(300, COLUMNS)) * 1e300,
    "rows from tiny to huge": np.geomspace(1e-300, 1e300, 99).reshape(-1, COLUMNS),
    "far along one axis": np.array([[1e16, 0.0, 0.0]]),
    "nearly the largest of single precision": cells(3.4028234e38),
}


class Brittle(PublicFeatureMap):
    def transform(self, X: Any) -> Any:
        if np.abs(X).max() > 1e6:
            raise ValueError(f"secret {X[0, 0]}")
        return np.asarray(X) * 2.0


class Exploding(PublicFeatureMap):
    def transform(self, X: Any) -> Any:
        return np.where(np.abs(X) > 1e6, np.inf, X)


public = PublicRows(PUBLIC, "public rows")
TEACHERS = [
    ClassMeans(), Ridge(), LogisticRegression(), DecisionTreeClassifier(), SVC(),
    make_pipeline(StandardScaler(), LogisticRegression()), HistGradientBoostingClassifier(max_iter=2),
]  # fmt: skip


def voting(teacher: Any, student: Any = None) -> TeacherVotes:
    """Return a method whose noise need not be searched for."""
    return TeacherVotes(teacher, n_teachers=8, n_queries=5, mechanism=GNMax(5.0), student=student)


FEW = CappedVotes(3, mechanism=CappedGNMax(20.0, 3))
METHODS: dict[str, dict[str, Any]] = {
    "vector ballots": {"method": SMALL},
    "one round": {"method": NoisyMoments(n_landmarks=15, rounds=1)},
    "vector ballots, axes": {"method": SMALL, "features": PublicPCA.learn(public, 2)},
    "vector ballots, brittle map": {"method": SMALL, "features": Brittle()},
    "vector ballots, exploding map": {"method": SMALL, "features": Exploding()},
    "few votes": {"method": replace(FEW, student="label-propagation")},
    "few votes, rounds": {
        "method": CappedVotes(
            3, rounds=2, mechanism=CappedGNMax(20.0, 6), student=RandomForestClassifier(3)
        )
    },
    **{type(teacher).__name__: {"method": voting(teacher)} for teacher in TEACHERS},
    "additive": {"columns": Schema({"a": (-3.0, 3.0), "b": (0, 9), "c": ["0", "1", "2"]})},
    "numbers": {
        "kind": PATERegressor,
        "target_range": (0, 1),
        "columns": Schema({"a": (-3.0, 3.0), "b": (0, 9), "c": ["0"]}),
    },
}


def with_person(rows: np.ndarray) -> tuple[Any, Any, list[str]]:
    return (
        np.vstack([PRIVATE, rows]),
        [*LABELS, *(np.arange(len(rows)) % 2)],
        [*IDS, *["hostile"] * len(rows)],
    )


def survives(settings: dict[str, Any], X: Any, y: Any, ids: Any, public: Any = PUBLIC) -> Any:
    """Return the fitted model, None where it was refused before anything was spent."""
    by_schema = "method" not in settings
    of_sums = by_schema or isinstance(settings["method"], NoisyMoments)
    accounting = "gaussian" if of_sums else "renyi"
    ledger = Ledger.in_memory(epsilon=5.0, delta=1e-5, unit=UNIT, accounting=accounting)
    made: dict[str, Any] = {**({"epsilon": 5.0} if of_sums else {}), **settings}
    kind = made.pop("kind", PATEClassifier)
    made = ({"classes": [0, 1]} if kind is PATEClassifier else {}) | made
    model = kind(**made, ledger=ledger, noise=SimulationNoise(0), random_state=0)
    refusal = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model.fit(X, y, X_public=None if by_schema else public, entity_ids=ids)
        except TutelageError as error:
            refusal = error
    assert not [one for one in caught if issubclass(one.category, RuntimeWarning)]
    if refusal is None:
        assert ledger.state().spent > 0
        return model
    assert ledger.state().spent == 0, f"spent, and then {type(refusal).__name__}: {refusal}"
    assert "secret" not in str(refusal)
    assert refusal.__context__ is None
    return None


def ballots_of(model: Any) -> np.ndarray:
    """Return the first private sum of a fit: later ones depend on its noisy outcome."""
    first = model.votes_ if hasattr(model, "votes_") else model.ballots_[0]
    return first.counts if hasattr(first, "counts") else first.totals


REFUSED = {"inf", "one missing"}
QUICK = {  # one or more of each kind of release, teacher and map; the others are in `make test-all`
    "vector ballots", "one round", "vector ballots, axes", "vector ballots, brittle map",
    "vector ballots, exploding map", "few votes", "ClassMeans", "LogisticRegression", "additive", "numbers",
}  # fmt: skip
IN_TIERS = [
    pytest.param(name, marks=[] if name in QUICK else [pytest.mark.rest]) for name in METHODS
]


@pytest.mark.parametrize("method", IN_TIERS)
def test_hostile_people_together_fail_no_fit_that_has_spent(method):
    accepted = {name: rows for name, rows in NUMBERS.items() if name not in REFUSED}
    rows = np.vstack([PRIVATE, *accepted.values()])
    ids = [*IDS, *(name for name, some in accepted.items() for _ in range(len(some)))]
    found = survives(METHODS[method], rows, np.arange(len(rows)) % 2, ids)
    assert (found is None) == ("map" in method)
    survives(METHODS[method], *with_person(NUMBERS["one missing"]))  # which suits some teachers
    infinite = survives(METHODS[method], *with_person(NUMBERS["inf"]))
    assert infinite is None or "columns" in METHODS[method]


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_no_person_moves_more_than_one_ballot(method):
    plain = survives(METHODS[method], *with_person(NUMBERS["ordinary"]))
    for rows in NUMBERS.values():
        model = survives(METHODS[method], *with_person(rows))
        if model is None:
            continue
        moved = ballots_of(model) - ballots_of(plain)
        if hasattr(model, "votes_"):
            assert np.abs(moved).sum(axis=1).max() <= 2
        elif hasattr(model.ballots_[0], "counts"):
            assert np.abs(moved).sum() <= 2 * 6
        else:
            lengths = 2 if model.ballots_[0].nonnegative else 4  # squared
            assert (moved.astype(np.float64) ** 2).sum() <= lengths * model.ballots_[0].norm_squared


WORDS = {
    "empty": "", "blank": " ", "NUL": "a\0b", "surrogate": "\ud800", "pair": "\udbff\udfff", "override": "\u202eabc",
    "control": "\u009b31m", "combining": "e" + "\u0301" * 500, "emoji": "👩‍👩‍👧‍👦" * 50, "long": "x" * 100_000,
    "many words": "word " * 20_000, "line breaks": "\r\n\v\f\u2028", "byte order mark": "\ufeff", "not a number": "nan",
    "number": "1e999", "quotes": '"\'`;--', "path": "../../etc/passwd", "format": "{0.__class__} %s %n", "one": "a",
}  # fmt: skip


@pytest.mark.parametrize(
    "method",
    [SMALL, pytest.param(FEW, marks=pytest.mark.rest)],
    ids=["vector ballots", "few votes"],
)
def test_no_text_fails_a_fit_that_has_spent(method):
    some = [
        "the cat sat on the mat",
        "win cash now",
        "see you at six",
        "free prize call",
        "lunch at noon",
    ]
    texts = [f"{some[n % 5]} {some[(n * 7) % 5]} {n % 9}" for n in range(PEOPLE)]
    words = list(WORDS.values())
    ids, y = [*IDS, *map(str, range(len(words)))], np.arange(PEOPLE + len(words)) % 2
    assert survives({"method": method}, [*texts, *words], y, ids, texts + some * 4) is not None


def columns(n: int, **more: Any) -> dict[str, list[Any]]:
    random = np.random.default_rng(n)
    found = {
        "dose": random.normal(size=n).tolist(),
        "age": random.integers(18, 90, n).tolist(),
        "ward": random.choice(["north", "south", "east"], n).tolist(),
        "note": [f"some words {number % 13}" for number in range(n)],
        "day": [dt.date(2020, 1 + number % 12, 1 + number % 28) for number in range(n)],
    }
    return {name: [*cells, *more.get(name, [])] for name, cells in found.items()}


ORDINARY = {
    "dose": 0.5,
    "age": 30,
    "ward": "north",
    "note": "some words",
    "day": dt.date(2021, 1, 1),
}
CELLS: list[dict[str, Any]] = [
    *(
        {"dose": value}
        for value in (1e308, -1e308, 1e39, 5e-324, 10**30, None, float("nan"), float("inf"))
    ),
    *({"age": value} for value in (2**62, -(2**62), 0, None, 10**400, -1)),
    *({"ward": value} for value in ("zzz", None, *WORDS.values())),
    *({"note": value} for value in WORDS.values()),
    *({"day": value} for value in (dt.date.min, dt.date.max, None)),
]


class Unspeakable:
    """A cell that says nothing of itself, and has no hash."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise ArithmeticError("secret")

    def __str__(self) -> str:
        raise ArithmeticError("secret")


REFUSED_CELLS: list[dict[str, Any]] = [{"dose": float("inf")}, {"age": 10**400}]
SCHEMA = Schema(
    {"dose": (-3.0, 3.0), "age": (18, 90), "ward": ["north", "south"], "note": ["a", "b"]}
)
TREE = DecisionTreeClassifier()
ODD_CELLS = [
    Unspeakable(),
    {},
    [1],
    b"x",
    1j,
    True,
    10**5000,
    np.arange(3),
    np.longdouble("1e4000"),
    "north",
]


@pytest.mark.parametrize(
    ("method", "batches"),
    [
        (SMALL, False),
        (SMALL, True),
        (None, False),
        pytest.param(FEW, False, marks=pytest.mark.rest),
        # Which takes missing numbers.
        pytest.param(voting(TREE, student=TREE), False, marks=pytest.mark.rest),
    ],
    ids=["vector ballots", "vector ballots, batches", "additive", "few votes", "trees"],
)
def test_hostile_cells_of_a_table_together_fail_no_fit_that_has_spent(method, batches):
    if method is None:
        settings: dict[str, Any] = {"columns": SCHEMA}
    else:
        settings = {
            "method": method,
            "columns": PublicColumns.learn(columns(PUBLIC_ROWS), kinds={"day": "date"}),
        }
    settings["classes"] = ["no", "yes"]
    assert (
        tried(settings, [person for person in CELLS if person not in REFUSED_CELLS], batches)
        is not None
    )
    for person in REFUSED_CELLS:
        assert (tried(settings, [person], batches) is None) == (method is not None)
    if method is None:
        odd = [{name: cell} for name in ORDINARY for cell in ODD_CELLS]
        assert tried(settings, odd, batches) is None


def tried(settings: dict[str, Any], people: list[dict[str, Any]], batches: bool) -> Any:
    """Return the model of a table with some people more; None where they are refused."""
    cells = {name: [{**ORDINARY, **person}[name] for person in people] for name in ORDINARY}
    ids = [
        *IDS,
        *(f"{number} {word}" for number, word in zip(range(len(people)), cycle(WORDS.values()))),
    ]
    X = {
        **columns(PEOPLE, **cells),
        "person": ids,
        "ill": ["no", "yes"] * (len(ids) // 2) + ["no"] * (len(ids) % 2),
    }
    try:
        table: Any = as_table(X)
    except TutelageError:
        return None
    if batches:
        whole = table
        table = Batches("", tuple(X), lambda names: iter([whole.without(X.keys() - set(names))]))
    return survives(settings | {"unit": UNIT.name}, table, "ill", "person", columns(PUBLIC_ROWS))


class Fickle:
    """What one person's rows teach: the share of positive numbers; it fails where they are large."""

    def __init__(self, rows: np.ndarray) -> None:
        self.rows = rows

    def __call__(self, queries: Any) -> Any:
        if not np.isfinite(self.rows).all() or np.abs(self.rows).max() > 1e6:
            raise OverflowError(f"secret {self.rows[0, 0]}")
        return [int((self.rows * query).sum() > 0) for query in queries]


def test_no_person_fails_a_session_that_has_spent():
    people = [*(row[np.newaxis] for row in PRIVATE), *NUMBERS.values()]
    voters = CallableTeachers([Fickle(rows) for rows in people], n_classes=2, unit=UNIT)
    ledger = Ledger.in_memory(epsilon=20.0, delta=1e-5, unit=UNIT)
    session = LabelingSession(voters, GNMax(5.0), ledger, noise=SimulationNoise(0))
    for first in (0, 5):
        assert len(session.ask(PUBLIC[first : first + 5]).labels) == 5
