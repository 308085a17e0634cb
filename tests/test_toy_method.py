"""A method of one's own: a record and a generator work in Python, in a configuration, in a plan and on the card."""

import json
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self, final

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier

from test_cli import FILES, succeeded, write_people
from tutelage import ConfidentGNMax, GNMax, PATEClassifier, SimulationNoise
from tutelage.accounting.filter import Accounting
from tutelage.audit.checklist import PrivateRows
from tutelage.audit.fits import check_fit
from tutelage.ballots import BallotSum, Vector
from tutelage.cli.config import load_config
from tutelage.events import Event
from tutelage.exceptions import InvalidBallotError
from tutelage.mechanisms import CappedGNMax, NoisySum
from tutelage.methods import METHODS, CappedVotes, Method, Needs, NoisyMoments, Public, Sizes, TeacherVotes
from tutelage.methods import requests as asked
from tutelage.methods.shortcuts import DEFAULTS, method_for
from tutelage.partition import unit_of_single_people
from tutelage.planning import plan
from tutelage.planning.methods import Target, method_of, methods_for
from tutelage.teachers import ClassMeans, NearestQueries, VectorBallots
from tutelage.teachers.nearest import FewVotes

pytestmark = [
    pytest.mark.usefixtures("repeatable"),
    pytest.mark.filterwarnings("ignore::tutelage.exceptions.OneClassWarning", "ignore:.*continues a budget"),
]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Present:
    """The class of each person's first row, and who counts them; private."""

    labels: Any = field(repr=False)
    unit: Any

    def private_attributes(self, _outcome: asked.Outcome, kept: Any, /) -> dict[str, Any]:
        return {"counts_": [one.ballots.totals for one in kept]}


class OneEach:
    """The ballot that is 1 for the class of the person, for every other 0."""

    def cast(self, prepared: Present, request: asked.Request, _places: Any, /) -> BallotSum:
        assert isinstance(request.form, Vector)
        counts = np.bincount(prepared.labels, minlength=request.form.shape[0])
        return BallotSum(counts[:, np.newaxis], 1, prepared.unit)


@final
@dataclass(frozen=True, slots=True)
class Frequencies(Method):
    """Noisy class frequencies; the student always predicts the most frequent class."""

    name: ClassVar[str] = "frequencies"
    title: ClassVar[str] = "class frequencies"
    needs: ClassVar[Needs] = Needs(student=False, accounting=Accounting.GAUSSIAN)
    least: int = 0
    mechanism: NoisySum | None = None
    student: Any = None

    @property
    def noise(self) -> float | None:
        return None if self.mechanism is None else self.mechanism.noise_multiplier

    def with_noise(self, noise: float) -> Self:
        return replace(self, mechanism=NoisySum(noise))

    def event_of_one(self, sizes: Sizes) -> Event:
        assert self.mechanism is not None
        return self.mechanism.most(Vector((sizes.n_classes, 1), 1, sizes.unit), simulated=sizes.simulated)

    def prepare(self, public: Public, people: asked.PrivateRows) -> Present:
        _, first = np.unique(people.shards.assignment, return_index=True)
        return Present(people.labels[first], public.unit)

    def steps(self, public: Public) -> asked.Steps:
        assert self.mechanism is not None
        classes = public.classes
        form = Vector((len(classes), 1), 1, public.unit)
        answer = yield asked.Request(
            mechanism=self.mechanism,
            form=form,
            subject={"frequencies": [str(one) for one in classes]},
            ballot=OneEach(),
        )
        counts = np.maximum(answer.values[0], max(self.least, 1))
        prior: Any = DummyClassifier(strategy="prior").fit(np.zeros((len(classes), 1)), classes, sample_weight=counts)
        rows = np.arange(len(public.rows))
        labels = np.searchsorted(classes, prior.predict(public.rows))
        return asked.Outcome(
            queries=rows, labels=labels, rounds=(len(rows),),
            student=prior,
        )  # fmt: skip

    def describe_queries(self, _rounds: int, /) -> str:
        return "all public rows"


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(METHODS, Frequencies.name, Frequencies)


rng = np.random.default_rng(0)
Y = (rng.random(400) < 0.8).astype(int)
X = rng.normal(size=(400, 3)) + Y[:, np.newaxis]
PUBLIC = rng.normal(size=(100, 3))


def of(method: Method, **settings: Any) -> PATEClassifier:
    return PATEClassifier(method=method, classes=[0, 1], noise=SimulationNoise(0), random_state=0, **settings)


def few_votes() -> asked.Wishes:
    few = FewVotes(np.arange(3), np.zeros(3, int), np.arange(3), (3, 1, 10))
    return asked.Wishes(few, list("abc"), b"", 1, unit_of_single_people("entity", named=False))


def test_only_its_owner_sees_what_people_cast():
    model = of(Frequencies(), epsilon=1.0).fit(X, Y, X_public=PUBLIC)
    assert len(model.counts_) == 1  # pyright: ignore[reportAttributeAccessIssue]
    assert not hasattr(deepcopy(model), "counts_")
    assert (model.card().student, model.card().selection) == ("DummyClassifier", "all public rows")


@pytest.mark.parametrize("cast", [
    lambda _, prepared, *__: few_votes(),
    lambda _, prepared, *__: BallotSum(np.ones((2, 1), dtype=int), 4, prepared.unit),  # twice as long
    lambda _, prepared, *__: BallotSum(np.ones((3, 1), dtype=int), 1, prepared.unit),
    lambda _, prepared, *__: BallotSum(np.ones((2, 1), dtype=int), 1, unit_of_single_people("patient", named=True)),
])  # fmt: skip
def test_ballots_of_another_form_than_is_charged_are_refused_and_nothing_is_spent(cast, monkeypatch, tmp_path):
    monkeypatch.setattr(OneEach, "cast", cast)
    with pytest.raises(InvalidBallotError, match="not of the form"):
        of(Frequencies(), epsilon=1.0, ledger=tmp_path / "a.ledger").fit(X, Y, X_public=PUBLIC)
    assert not (tmp_path / "a.ledger").exists()


def test_the_audit_finds_that_each_person_casts_one_ballot():
    found = check_fit(of(Frequencies(), epsilon=1.0), PrivateRows(X, Y), PUBLIC, draws=2_000, entities=2)
    assert {one.verdict for one in found} == {"pass", "note"}  # rows without ids are told to be the unit
    assert found[-1].verdict == "pass"


def configured(folder: Path, method: str) -> Path:
    epsilon = "" if "mechanism" in method else "epsilon = 1.0"
    rest = f'[method]\n{method}\n[privacy]\n{epsilon}\n[output]\nfolder = "out"\n'
    sections = FILES.format(private='entity = "patient"', public='label = "ill"')
    (folder / "config.toml").write_text(sections + rest)
    return folder / "config.toml"


@pytest.mark.rest
def test_it_runs_from_a_configuration(tmp_path, called):
    write_people(tmp_path)
    path = configured(tmp_path, 'name = "frequencies"\nleast = 3')
    assert load_config(path).method == Frequencies(least=3)
    done = succeeded(called("run", path, cwd=tmp_path))
    assert "people who cast ballots" in done.stdout
    card = json.loads((tmp_path / "out" / "card.json").read_text())
    assert card["student"] == "DummyClassifier"
    assert 0.999 < card["public_epsilon"] <= 1.0


@pytest.mark.rest
@pytest.mark.usefixtures("short_trials")
def test_a_plan_tries_it_and_writes_its_section(monkeypatch):
    for name in METHODS.keys() - {Frequencies.name}:
        monkeypatch.delitem(METHODS, name)
    found = plan(1.0, people=2_000, X_public=X, y_public=Y)
    (option,) = (one for one in found.options if one.method.title == "class frequencies")
    assert 0.999 < option.epsilon.epsilon <= 1.0
    assert option.method.as_config() == '[method]\nname = "frequencies"\n'


# One table: what a method is, in all the ways to name it

TEACHER = 'name = "teacher-votes"\nteacher = "ClassMeans"\n'
MEANS = ClassMeans()
CAPPED = {"n_queries": 50, "rounds": 2, "student": "forest", "mechanism": CappedGNMax(9.0, 6)}
MANY = {"teacher": MEANS, "n_teachers": 20, "selection": "medoids", "student": "label-propagation"}
CONFIDENT = {"teacher": MEANS, "mechanism": ConfidentGNMax(200.0, 150.0, 40.0)}
CASES: list[tuple[Method, dict[str, Any], str]] = [
    (NoisyMoments(n_landmarks=50, quantile=0.5, rounds=1), {"teacher": VectorBallots(50, 0.5, 1)},
     'name = "noisy-moments"\nn_landmarks = 50\nquantile = 0.5\nrounds = 1'),
    (CappedVotes(votes=3, **CAPPED), {"teacher": NearestQueries(3), **CAPPED},
     'name = "capped-votes"\nvotes = 3\nn_queries = 50\nrounds = 2\nstudent = "forest"\n'
     'mechanism = { name = "capped", sigma = 9.0, cap = 6 }'),
    (TeacherVotes(**MANY), MANY, TEACHER + 'n_teachers = 20\nselection = "medoids"\nstudent = "label-propagation"'),
    (TeacherVotes(**CONFIDENT), CONFIDENT,
     TEACHER + 'mechanism = { name = "confident", threshold = 200.0, sigma_threshold = 150.0, sigma = 40.0 }'),
]  # fmt: skip
TARGET = Target(
    epsilon=1.0, delta=1e-5, unit=unit_of_single_people("row", named=False), people=2_000, public_rows=100, classes=2
)


@pytest.mark.parametrize(("method", "shortcuts", "section"), CASES)
def test_every_way_to_name_a_method_gives_an_equal_record(method, shortcuts, section, tmp_path):
    assert method_for(None, **(DEFAULTS | shortcuts)) == method
    config = load_config(configured(tmp_path, section))
    assert config.method == method
    with_forest = {} if method.student or not method.needs.student else {"student": "forest"}
    if method.mechanism is None or isinstance(method.mechanism, GNMax | NoisySum | CappedGNMax):
        planned = method_of(shortcuts | with_forest, TARGET)
        assert planned == method_of({"method": replace(method, **with_forest)}, TARGET)  # type: ignore[type-var]


@pytest.mark.parametrize("place", range(len(methods_for(TARGET))))
def test_a_configuration_reads_what_a_plan_writes(place, tmp_path):
    proposed = replace(methods_for(TARGET)[place], mechanism=None)  # type: ignore[type-var]
    assert load_config(configured(tmp_path, proposed.as_config().partition("\n")[2])).method == proposed
