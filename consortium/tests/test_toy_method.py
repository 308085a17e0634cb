"""A method of one's own: a record and a generator work in Python, in a configuration, in a plan and on the card."""

import importlib
import json
import runpy
import shutil
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from conftest import REPOSITORY
from test_cli import FILES, succeeded, write_people
from test_shared_sums import ENTITIES, NAMES, agreed, people
from tutelage import ConfidentGNMax, GNMax, PATEClassifier, PATERegressor, SimulationNoise
from tutelage.audit.checklist import PrivateRows
from tutelage.audit.fits import check_fit
from tutelage.ballots import BallotSum
from tutelage.cli.config import load_config
from tutelage.events import SummedNoise
from tutelage.exceptions import InvalidBallotError, InvalidParameterError, StaleBatchError
from tutelage.features import Schema
from tutelage.mechanisms import CappedGNMax, NoisySum
from tutelage.methods import METHODS, CappedVotes, Method, NoisyMoments, TeacherVotes
from tutelage.methods import requests as asked
from tutelage.methods.sums import BallotOfRows
from tutelage.partition import unit_of_single_people
from tutelage.planning import plan
from tutelage.planning.methods import Target
from tutelage.planning.recommendation import _section_of
from tutelage.teachers import ClassMeans
from tutelage.teachers.nearest import FewVotes
from tutelage_consortium.entity import ballots_of
from tutelage_consortium.sums import SharedSums
from tutelage_consortium.terms_file import TermsFile

pytestmark = [
    pytest.mark.usefixtures("repeatable"),
    pytest.mark.filterwarnings(
        "ignore::tutelage.exceptions.OneClassWarning", "ignore:.*continues a budget"
    ),
]


ClassFrequencies: Any = runpy.run_path(str(REPOSITORY / "examples" / "own_method.py"))[
    "ClassFrequencies"
]
del METHODS[ClassFrequencies.name]


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(METHODS, ClassFrequencies.name, ClassFrequencies)


rng = np.random.default_rng(0)
Y = (rng.random(400) < 0.8).astype(int)
X = rng.normal(size=(400, 3)) + Y[:, np.newaxis]
PUBLIC = rng.normal(size=(100, 3))


def of(method: Method, **settings: Any) -> PATEClassifier:
    return PATEClassifier(
        method=method, classes=[0, 1], noise=SimulationNoise(0), random_state=0, **settings
    )


def few_votes() -> asked.Wishes:
    few = FewVotes(np.arange(3), np.zeros(3, int), np.arange(3), (3, 1, 10))
    return asked.Wishes(few, list("abc"), b"", 1, unit_of_single_people("entity", named=False))


def test_only_its_owner_sees_what_people_cast():
    model = of(ClassFrequencies(), epsilon=1.0).fit(X, Y, X_public=PUBLIC)
    assert len(model.ballots_) == 1  # pyright: ignore[reportAttributeAccessIssue]
    assert not hasattr(deepcopy(model), "ballots_")
    card = model.card()
    assert (card.student.name, card.release.selection) == (
        "DummyClassifier",
        "all public rows of the run",
    )


def test_it_takes_a_schema_as_well_as_public_rows_and_no_numbers():
    rows = {"a": X[:, 0], "b": X[:, 1]}
    model = of(
        ClassFrequencies(), epsilon=1.0, columns=Schema({"a": (-9.5, 9.5), "b": (-9.5, 9.5)})
    ).fit(rows, Y)
    assert model.predict_proba({"a": [0.0], "b": [0.0]})[0] == pytest.approx([0.2, 0.8], abs=0.1)
    schema = Schema({"a": (-9.5, 9.5)})
    numbers = PATERegressor(
        epsilon=1.0, target_range=(0, 1), method=ClassFrequencies(), columns=schema
    )
    with pytest.raises(InvalidParameterError, match="predicts classes"):
        numbers.fit(rows, Y)


def test_a_consortium_agrees_on_it_and_opens_its_sum(tmp_path):
    sums = agreed(tmp_path / "founded", method="class-frequencies").consortium.sums()
    asked = sums.first_round("first")
    assert asked.shape == (2, 1)
    total = np.sum(
        [ballots_of(sums, asked, *people(seed)).totals for seed in range(ENTITIES)], axis=0
    )
    student = sums.round_after(asked, total, NAMES).classifier
    yes = np.mean([label for seed in range(ENTITIES) for label in people(seed)[1]])
    row = {name: cells[:1] for name, cells in people(0)[0].items()}
    assert student.predict_proba(row)[0, 1] == pytest.approx(yes, abs=0.02)
    for method, refusal in {
        "": "text of",
        "unknown": "one of",
        "noisy-moments": "Additive",
        "capped-votes": "mechanism",
    }.items():
        with pytest.raises(InvalidParameterError, match=refusal):
            agreed(tmp_path / method, method=method)


class AsksTwice(ClassFrequencies):
    """Asks for two sums, and says that it is one."""

    name = "asks-twice"

    def steps(self, public: Any) -> Any:
        yield from ClassFrequencies.steps(self, public)
        return (yield from ClassFrequencies.steps(self, public))


def test_members_of_a_consortium_have_one_file_and_ask_for_what_it_says(tmp_path, monkeypatch):
    monkeypatch.setitem(METHODS, AsksTwice.name, AsksTwice)
    with pytest.raises(
        InvalidParameterError, match="must ask for the sums that its `event_of_one` has"
    ):
        agreed(tmp_path / "twice", method="asks-twice")
    consortium = agreed(tmp_path / "founded", method="class-frequencies").consortium
    assert replace(consortium, name="Other").method_hash == consortium.method_hash
    with pytest.raises(InvalidParameterError, match="must have one file for all members"):
        replace(consortium, method_hash="0" * 64)


def test_another_line_in_any_file_of_a_method_is_another_agreement(tmp_path, monkeypatch):
    def agreement(length: int) -> str | None:
        text = f"""from own_method import ClassFrequencies
class Longer(ClassFrequencies):
    name, length = "longer", {length}
"""
        (tmp_path / f"longer_{length}.py").write_text(text)
        monkeypatch.setitem(METHODS, "longer", importlib.import_module(f"longer_{length}").Longer)
        return agreed(tmp_path / str(length), method="longer").consortium.method_hash

    shutil.copy(REPOSITORY / "examples" / "own_method.py", tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert agreement(8) != agreement(9)
    monkeypatch.setitem(
        METHODS, "local", type("Local", (ClassFrequencies,), {"__module__": "nowhere"})
    )
    with pytest.raises(InvalidParameterError, match="must be written in a file"):
        agreed(tmp_path / "local", method="local")


def test_a_hospital_sends_nothing_if_it_paid_for_other_ballots(tmp_path, monkeypatch):
    members = agreed(tmp_path, method="class-frequencies")
    table, labels, ids = people(0)
    batch: Any = members.aggregator().ask_sum("first", members.mailbox)

    def cast() -> None:
        members.entity("hospital-0").cast(batch, table, labels, members.mailbox, entity_ids=ids)

    with monkeypatch.context() as killed:
        killed.setattr(SharedSums, "payloads", Mock(side_effect=KeyboardInterrupt))  # after it paid
        with pytest.raises(KeyboardInterrupt):
            cast()
    paid: Any = members.consortium.scheme.event_of(batch)
    longer = SummedNoise(replace(paid.event, norm_squared=4 * paid.event.norm_squared), paid.shares)
    monkeypatch.setattr(SharedSums, "event_of", lambda *_: longer)
    with pytest.raises(StaleBatchError, match="paid for as another sum"):
        cast()


def test_the_terms_of_a_consortium_name_it(tmp_path):
    terms = {
        "name": "Play",
        "classes": ["no", "yes"],
        "quorum": 3,
        "hospitals": dict.fromkeys("abc", 100),
    }
    terms["privacy"] = {"unit": "patient", "epsilon": 1.0, "delta": 1e-5}
    terms |= {
        "parties": {f"party-{n}": f"localhost:{n}" for n in (1, 2, 3)},
        "schema": {"age": [0, 99]},
    }
    drafts = {
        name: TermsFile.of({**terms, "method": name}).draft()
        for name in ("additive", "class-frequencies")
    }
    assert drafts["class-frequencies"].sums().method == ClassFrequencies(
        drafts["class-frequencies"].mechanism
    )
    assert [len(one.sums().events) for one in drafts.values()] == [3, 1]
    with_own = drafts["class-frequencies"]
    assert replace(with_own, method=None).fingerprint != with_own.fingerprint
    assert drafts["additive"].method is None  # one agreement, however it is written


@pytest.mark.parametrize("cast", [
    lambda _, prepared, *__: few_votes(),
    lambda _, prepared, asked, __: BallotSum(np.ones((2, 1), dtype=int), 4 * asked.form.norm_squared, asked.form.unit),
    lambda _, prepared, asked, __: BallotSum(np.ones((3, 1), dtype=int), 1, asked.form.unit),
    lambda *_: BallotSum(np.ones((2, 1), dtype=int), 1, unit_of_single_people("patient", named=True)),
])  # fmt: skip
def test_ballots_of_another_form_than_is_charged_are_refused_and_nothing_is_spent(
    cast, monkeypatch, tmp_path
):
    monkeypatch.setattr(BallotOfRows, "cast", cast)
    with pytest.raises(InvalidBallotError, match="not have the form"):
        of(ClassFrequencies(), epsilon=1.0, ledger=tmp_path / "a.ledger").fit(X, Y, X_public=PUBLIC)
    assert not (tmp_path / "a.ledger").exists()


def test_the_audit_finds_that_each_person_casts_one_ballot():
    found = check_fit(
        of(ClassFrequencies(), epsilon=1.0), PrivateRows(X, Y), PUBLIC, draws=2_000, entities=2
    )
    # Rows without ids are told to be the unit.
    assert {one.verdict for one in found} == {"pass", "note"}
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
    path = configured(tmp_path, 'name = "class-frequencies"')
    assert load_config(path).method == ClassFrequencies()
    done = succeeded(called("run", path, cwd=tmp_path))
    assert "people who cast ballots" in done.stdout
    card = json.loads((tmp_path / "out" / "card.json").read_text())
    assert card["student"]["name"] == "DummyClassifier"
    assert 0.999 < card["guarantee"]["epsilon"]["epsilon"] <= 1.0


@pytest.mark.rest
@pytest.mark.usefixtures("short_trials")
def test_a_plan_tries_it_and_writes_its_section(monkeypatch):
    for name in METHODS.keys() - {ClassFrequencies.name}:
        monkeypatch.delitem(METHODS, name)
    found = plan(1.0, people=2_000, X_public=X, y_public=Y)
    (option,) = (one for one in found.options if one.method.title == "class frequencies")
    assert 0.999 < option.epsilon.epsilon <= 1.0
    assert (
        replace(found, recommended=option)
        .as_config()
        .startswith('[method]\nname = "class-frequencies"\n\n[privacy]')
    )


# One table: what a method is, in all the ways to name it

TEACHER = 'name = "teacher-votes"\nteacher = "ClassMeans"\n'
MEANS = ClassMeans()
CAPPED = {"n_queries": 50, "rounds": 2, "student": "forest", "mechanism": CappedGNMax(9.0, 6)}
MANY = {"teacher": MEANS, "n_teachers": 20, "selection": "medoids", "student": "label-propagation"}
CONFIDENT = {"teacher": MEANS, "mechanism": ConfidentGNMax(200.0, 150.0, 40.0)}
CASES: list[tuple[type[Method], dict[str, Any], str]] = [
    (NoisyMoments, {"n_landmarks": 50, "quantile": 0.5, "rounds": 1},
     'name = "noisy-moments"\nn_landmarks = 50\nquantile = 0.5\nrounds = 1'),
    (CappedVotes, {"votes": 3, **CAPPED},
     'name = "capped-votes"\nvotes = 3\nn_queries = 50\nrounds = 2\nstudent = "forest"\n'
     'mechanism = { name = "capped", sigma = 9.0, cap = 6 }'),
    (TeacherVotes, MANY, TEACHER + 'n_teachers = 20\nselection = "medoids"\nstudent = "label-propagation"'),
    (TeacherVotes, CONFIDENT,
     TEACHER + 'mechanism = { name = "confident", threshold = 200.0, sigma_threshold = 150.0, sigma = 40.0 }'),
]  # fmt: skip
TARGET = Target(
    epsilon=1.0,
    delta=1e-5,
    unit=unit_of_single_people("row", named=False),
    people=2_000,
    public_rows=100,
    classes=2,
)


@pytest.mark.parametrize(("kind", "settings", "section"), CASES)
def test_every_way_to_name_a_method_gives_an_equal_record(kind, settings, section, tmp_path):
    method = kind(**settings)
    changed: Any = of(kind()).set_params(
        **{f"method__{name}": value for name, value in settings.items()}
    )
    assert changed.method == method
    config: Any = load_config(configured(tmp_path, section))
    assert config.method == method
    with_forest = {} if method.student or not method.needs.student else {"student": "forest"}
    if method.mechanism is None or isinstance(method.mechanism, GNMax | NoisySum | CappedGNMax):
        planned = TARGET.method_asked(replace(config.method, **with_forest))
        assert planned == TARGET.method_asked(changed.method.with_params(**with_forest))


@pytest.mark.parametrize("method", TARGET.methods())
def test_a_configuration_reads_what_a_plan_writes(method, tmp_path):
    proposed = replace(method, mechanism=None)  # type: ignore[type-var]
    assert (
        load_config(configured(tmp_path, _section_of(proposed).partition("\n")[2])).method
        == proposed
    )
