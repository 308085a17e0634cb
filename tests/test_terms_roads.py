"""Terms by two roads: Python and a configuration give the same answer to the same wishes, and none costs more."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ledgers import fitting, reserve, settle
from tutelage import GNMax, Ledger, PATEClassifier, SimulationNoise
from tutelage.accounting import data_independent
from tutelage.cli.config import load_config
from tutelage.cli.prepare import arguments, build_estimator
from tutelage.cli.sources import load_sources
from tutelage.events import Event, NoisyArgmaxGaussian, NoisySumGaussian
from tutelage.exceptions import TutelageError
from tutelage.features import Schema
from tutelage.mechanisms import NoisySum
from tutelage.methods import Additive, Method, TeacherVotes
from tutelage.partition import unit_of_single_people
from tutelage.teachers import ClassMeans

rng = np.random.default_rng(0)
AGE, ILL = rng.integers(0, 99, 90), np.where(rng.random(90) < 0.5, "no", "yes")
OLD = np.arange(0, 99, 3)
UNIT = unit_of_single_people("row", named=False)
WISHES = {
    "epsilon": (0.3, 0.5, 0.97, 1.0, 2.0),
    "budget": (0.5, 1.0, 3.0),
    "releases": (1, 2, 3),
    "delta": (1e-5, 1e-6),
}
SECTIONS = """
[private]
file = "private.csv"
unit = "row"
[target]
column = "ill"
classes = ["no", "yes"]
[output]
folder = "out"
"""


class Case:
    """Random wishes, and a random ledger."""

    def __init__(self, seed: int, folder: Path) -> None:
        draw = random.Random(seed)  # noqa: S311
        self.folder, self.ledger = folder, folder / "people.ledger"
        self.by_schema = draw.random() < 0.6
        wished = {name: draw.choice(values) for name, values in WISHES.items()}
        self.asked = {
            name: one
            for name, one in wished.items()
            if draw.random() < (0.2 if name == "delta" else 0.5)
        }
        self.noise = draw.choice([20.0, 60.0]) if draw.random() < 0.2 else None
        if draw.random() < 0.5:
            accounting = draw.choice(["renyi", "gaussian"]) if self.by_schema else "renyi"
            epsilon = draw.choice([0.5, 1.0, 3.0])
            ledger = Ledger.create(
                self.ledger, epsilon=epsilon, delta=1e-5, unit=UNIT, accounting=accounting
            )
            spent: Event = NoisyArgmaxGaussian(20.0, 2, UNIT)
            if accounting == "gaussian":
                spent = NoisySumGaussian(40.0, 16, 3, UNIT)
            if draw.random() < 0.3 and fitting(ledger, spent):
                settle(ledger, reserve(ledger, spent, 1), {}, spent)

    def in_python(self) -> tuple[Any, ...]:
        mechanism: Any = self.noise and (
            NoisySum(self.noise) if self.by_schema else GNMax(self.noise)
        )
        method: Method = Additive(mechanism) if self.by_schema else votes_by(mechanism)
        own = {"columns": Schema({"age": (0, 99)})} if self.by_schema else {}
        given = {} if self.by_schema else {"X_public": {"age": OLD}}
        shared: dict[str, Any] = {"classes": ["no", "yes"], "unit": "row", "ledger": self.ledger}
        return answer_of(
            lambda: PATEClassifier(method=method, **own, **shared, **self.asked),
            {"age": AGE},
            ILL,
            given,
        )

    def in_toml(self) -> tuple[Any, ...]:
        lines = [f"{age},{ill}" for age, ill in zip(AGE, ILL, strict=True)]
        (self.folder / "private.csv").write_text("\n".join(["age,ill", *lines, ""]))
        (self.folder / "public.csv").write_text("\n".join(["age", *map(str, OLD), ""]))
        (self.folder / "schema.toml").write_text("[schema]\nage = [0, 99]\n")
        method = 'name = "teacher-votes"\nteacher = "ClassMeans"\nn_teachers = 20\nn_queries = 10\n'
        public, mechanism = (
            'file = "public.csv"',
            f'mechanism = {{ name = "gnmax", sigma = {self.noise} }}\n',
        )
        if self.by_schema:
            method, public = 'name = "additive"\n', 'schema = "schema.toml"'
            mechanism = f'mechanism = {{ name = "noisy-sum", noise_multiplier = {self.noise} }}\n'
        method += mechanism if self.noise else ""
        privacy = "\n".join(f"{name} = {value}" for name, value in self.asked.items())
        text = f'[public]\n{public}\n[method]\n{method}[privacy]\nledger = "people.ledger"\n{privacy}\n{SECTIONS}'
        (self.folder / "config.toml").write_text(text)
        try:
            settings = load_config(self.folder / "config.toml")
            data = load_sources(settings)
        except TutelageError as error:
            return "refused", str(error)
        given = arguments(settings, data)
        return answer_of(
            lambda: build_estimator(settings, data), given.pop("X"), given.pop("y"), given
        )


def votes_by(mechanism: Any) -> Method:
    return TeacherVotes(ClassMeans(), n_teachers=20, n_queries=10, mechanism=mechanism)


def answer_of(made: Any, X: Any, y: Any, given: dict[str, Any]) -> tuple[Any, ...]:
    """Return noise, limit, ledger and ε of the release, or which parameters are refused."""
    try:
        model = made().set_params(noise=SimulationNoise(0), random_state=0)
        intended = model.prepare(X, y, insist=True, **given)
        budget, method, sizes = intended.budget, intended.method, intended.public.sizes
        ledger, event = budget.ledger_for(method, sizes), method.event(sizes)
    except TutelageError as error:
        return "refused", sorted(
            problem.name.rpartition(".")[2] for problem in getattr(error, "problems", ())
        )
    limit, found = (
        budget.limit_for(event),
        data_independent.epsilon(event, budget.asked.delta).epsilon,
    )
    assert found <= (budget.asked.epsilon or np.inf) * (1 + 1e-12)
    assert budget.asked.given or found <= limit.epsilon * (1 + 1e-12)
    return "released", str(method.mechanism), str(limit), ledger.limit.epsilon, found


@pytest.mark.parametrize(
    "seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.rest) for seed in range(8, 120))]
)
@pytest.mark.filterwarnings("ignore")
def test_both_roads_give_one_answer_and_nothing_costs_more_than_was_asked(seed, tmp_path):
    case = Case(seed, tmp_path)
    before = case.ledger.read_bytes() if case.ledger.exists() else None
    python, toml = case.in_python(), case.in_toml()
    assert (case.ledger.read_bytes() if case.ledger.exists() else None) == before
    if python[0] == toml[0] == "refused" and isinstance(toml[1], str):
        assert all(f"`{name}`" in toml[1] for name in python[1])
    else:
        assert python == toml
