"""Rows, units, classes and settings are checked before anything is planned or spent, in Python and in a shell."""

import json
import re
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
from sklearn import base
from sklearn.tree import DecisionTreeClassifier

from test_cli import configure, refusal, succeeded, write_people, write_rows
from tutelage import GNMax, Ledger, PATEClassifier, PATERegressor, SimulationNoise
from tutelage.cli.config import load_config
from tutelage.cli.prepare import prepare_release
from tutelage.cli.sources import load_sources
from tutelage.exceptions import (
    InvalidDataError,
    InvalidParameterError,
    LedgerMismatchError,
    PreflightError,
    PreflightWarning,
    UndeclaredClassesWarning,
)
from tutelage.features import Schema
from tutelage.methods import TeacherVotes
from tutelage.partition import canonical_ids
from tutelage.preflight import (
    Found,
    Sight,
    _differ_by_spelling_only,
    _ids_among,
    preflight,
)
from tutelage.reporting.lints import verdict_of
from tutelage.tables import Table

pytestmark = pytest.mark.usefixtures("repeatable")

fresh: Any = base.clone
UNIT = "repeats as the id of a person does"
SHARED = "public rows equal private rows in every feature column"
FEW_ROWS = "There are too few public rows"
FEW_PEOPLE = "is larger than all ballots together"


def rows(n_rows: int, seed: int, *, patients: bool = False) -> Any:
    rng = np.random.default_rng(seed)
    dose = rng.uniform(0, 1, n_rows).round(6)
    columns: dict[str, Any] = {"age": rng.integers(20, 90, n_rows), "dose": dose}
    columns |= {
        "ward": rng.choice(["north", "south"], n_rows),
        "ill": np.where(dose > 0.5, "yes", "no"),
    }
    return pd.DataFrame(
        columns | ({"patient": [f"p{n // 2}" for n in range(n_rows)]} if patients else {})
    )


def public_rows(n_rows: int, seed: int) -> Any:
    return rows(n_rows, seed).drop(columns="ill")


def changed(frame: pd.DataFrame, **cells: Any) -> Any:
    return frame.assign(**{name: change(frame[name].copy()) for name, change in cells.items()})


def first_cells(*values: Any) -> Callable[[pd.Series], pd.Series]:
    return lambda column: pd.Series([*values, *column[len(values) :]])


@dataclass
class Case:
    """Private and public rows, settings, and the beginnings of what their owner is told."""

    private: Any = field(default_factory=lambda: rows(300, 1))
    public: Any = field(default_factory=lambda: public_rows(120, 2))
    entity: str | None = None
    unit: str | None = None
    insist: bool = False
    classes: tuple[str, ...] | None = ("no", "yes")
    epsilon: float = 1.0
    public_labels: bool = False
    refused: tuple[str, ...] = ()
    warned: tuple[str, ...] = ()


PEOPLE = [f"p{number // 2}" for number in range(300)]
COPIES = pd.concat([public_rows(90, 2), public_rows(300, 1)[:30]])
PATIENTS = rows(300, 1, patients=True)
SPELLED = changed(PATIENTS, patient=first_cells("p0", "P0"))
CASES = {
    "honest": Case(PATIENTS, rows(120, 2), unit="row", classes=None, public_labels=True),
    "ids": Case(PATIENTS, insist=True, refused=(UNIT,)),
    "ids that read alike": Case(SPELLED, entity="patient", warned=("Some values of",)),
    "a fourth of the public rows, insisted": Case(public=COPIES, insist=True, warned=(SHARED, "turned refusals off")),
    "two people and two rows": Case(
        rows(2, 5), public_rows(2, 6), refused=(FEW_ROWS, FEW_PEOPLE), warned=("A class has",)
    ),
    "other units, categories and a large ε": Case(
        changed(rows(300, 1), ward=first_cells("west"), dose=lambda cells: cells * 1000),
        rows(120, 2),
        epsilon=10.0,
        warned=(
            "Private rows have values that no public row has in", "column 'dose' is about",
            "Column 'ill' of the public rows holds", "An attacker may guess right in more than 95 of 100 cases",
        ),
    ),
    "other codes": Case(
        changed(rows(300, 1), ward=lambda cells: cells.str[:1], dose=first_cells(*[None] * 130)),
        warned=("column 'dose' has missing cells far more often; column 'ward' mostly has categories that no",),
    ),
}  # fmt: skip


def in_python(case: Case, folder: Path) -> tuple[list[str], list[str]]:
    """Return refusals and warnings before a fit."""
    settings: Any = {"ledger": folder / "python.ledger", "unit": case.unit, "random_state": 0}
    model = PATEClassifier(case.epsilon, case.classes, **settings)
    given: Any = {"y_public": "ill" if case.public_labels else None, "entity_ids": case.entity}
    refused: tuple[str, ...] = ()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            model.check(case.private, "ill", X_public=case.public, insist=case.insist, **given)
        except PreflightError as error:
            refused = error.sentences()
    return list(refused), [
        str(one.message) for one in told if issubclass(one.category, PreflightWarning)
    ]


RUN = """
[private]
file = "private.csv"
{private}
[target]
column = "ill"
{target}
[public]
file = "public.csv"
{public}
[method]
name = "noisy-moments"
[privacy]
epsilon = {epsilon}
[output]
folder = "out"
"""


def on_command_line(
    case: Case, folder: Path, called: Any, *public: str
) -> tuple[list[str], list[str]]:
    """Return refusals and warnings of `tutelage run`, with further lines for [public]."""
    case.private.to_csv(folder / "private.csv", index=False)
    case.public.to_csv(folder / "public.csv", index=False)
    named = {"entity": case.entity, "unit": case.unit}
    private = "\n".join(f"{name} = {json.dumps(value)}" for name, value in named.items() if value)
    target = f"classes = {json.dumps(case.classes)}" if case.classes else ""
    of_public = "\n".join(('label = "ill"' if case.public_labels else "", *public))
    text = RUN.format(private=private, target=target, public=of_public, epsilon=case.epsilon)
    (folder / "run.toml").write_text(text)
    result = called("run", "run.toml", *["--insist"] * case.insist, cwd=folder)
    lines = [line.removeprefix("tutelage: ") for line in result.stderr.splitlines()]
    warned = [line.removeprefix("warning: ") for line in lines if line.startswith("warning: ")]
    refused = [line for line in lines if not line.startswith("warning: ")]
    assert result.returncode == (1 if refused else 0), result.stderr
    if refused:
        assert result.stdout == ""
    for text in (
        result.stdout,
        *(path.read_bytes().decode(errors="ignore") for path in folder.glob("out/*")),
    ):
        assert not re.search("(?i)private rows (seem|have|, alone)|public rows equal", text)
    return refused, warned


def beginnings(sentences: list[str]) -> set[str]:
    return {sentence.split(". ")[0] for sentence in sentences}


OTHERS = (
    "`X_public` has",
    "The student gives",
    "δ = ",
    "ε = ",
    "There are fewer",
    "The student labels",
)


def test_settings_that_private_rows_have_chosen_are_told_before_a_run(tmp_path, called):
    on_command_line(Case(unit="row"), tmp_path, called)
    config = tmp_path / "run.toml"
    config.write_text(config.read_text().replace("epsilon =", 'tuned_on = "private"\nepsilon ='))
    said = succeeded(called("run", "run.toml", "--overwrite", cwd=tmp_path)).stderr
    assert said.count("Danger: Settings were chosen on private data") == 1


STUMP = DecisionTreeClassifier(max_depth=1)


def votes(n_teachers: int, mechanism: GNMax) -> dict[str, Any]:
    return {
        "method": TeacherVotes(STUMP, n_teachers=n_teachers, mechanism=mechanism, student=STUMP)
    }


@pytest.mark.parametrize(("settings", "told"), [
    ({"epsilon": 1.0, "delta": 0.01}, ["Danger: δ = 0.01 is at least 1/n"]),
    (votes(110, GNMax(150.0)), ["There are fewer than 3 people per teacher"]),
    (votes(50, GNMax(1.0)), ["Danger: This guarantee protects almost no one"]),
])  # fmt: skip
def test_the_owner_is_told_of_settings_that_protect_little(settings, told, tmp_path):
    public = rows(120, 2).drop(columns="ill")
    model = PATEClassifier(
        classes=["no", "yes"], unit="row", ledger=tmp_path / "a.ledger", **settings
    )
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        model.check(rows(300, 1), "ill", X_public=public)
    said = [str(one.message) for one in found if issubclass(one.category, PreflightWarning)]
    assert [one[: len(start)] for one, start in zip(said, told, strict=True)] == told
    # Which protects nothing, and is not meant to.
    model.set_params(noise=SimulationNoise(0), ledger=None)
    with warnings.catch_warnings(record=True) as found:
        model.check(rows(300, 1), "ill", X_public=public)
    assert not [one for one in found if str(one.message).startswith(tuple(told))]


@pytest.mark.parametrize("name", CASES)
def test_python_and_the_command_line_tell_the_owner_the_same(name, tmp_path, called):
    case = CASES[name]
    in_its_own = tmp_path / "python"
    in_its_own.mkdir()
    refused, warned = in_python(case, in_its_own)
    for told, parts in ((refused, case.refused), (warned, case.warned)):
        assert len(told) == len(parts), told
        assert all(any(part in one for one in told) for part in parts)
    assert not re.search(r"\bp\d", " ".join((*refused, *warned)), re.IGNORECASE)  # no id is quoted
    if refused:
        assert not list(in_its_own.iterdir())
    refused_there, warned_there = on_command_line(case, tmp_path, called)
    assert beginnings(refused_there) == beginnings(refused)
    said = beginnings([one for one in warned_there if not one.startswith(OTHERS)])
    named = {one.replace("`entity_ids`", "column 'patient'") for one in beginnings(warned)}
    assert said == named
    if refused:
        assert not list(tmp_path.glob("*.ledger"))
        assert not (tmp_path / "out").exists()


def test_each_interface_names_its_own_settings(tmp_path, called):
    case = Case(PATIENTS, public_rows(300, 1))
    unit, shared = in_python(case, tmp_path)[0]
    assert (
        "name this column as `entity_ids`; to protect each row alone, set `unit` to 'row'" in unit
    )
    assert "pass `insist=True`" in shared
    unit, shared = on_command_line(case, tmp_path, called)[0]
    assert (
        "name this column as `entity` in [private]; to protect each row alone, set `unit` in [private]"
        in unit
    )
    assert "pass --insist." in shared


def test_rows_are_refused_before_the_plan(tmp_path, called, monkeypatch):
    def planned(*_: Any, **__: Any) -> None:
        raise AssertionError("the plan came first")

    on_command_line(Case(PATIENTS, entity="patient"), tmp_path, called)
    config = tmp_path / "run.toml"
    text = config.read_text().replace('[method]\nname = "noisy-moments"\n', "")
    monkeypatch.setattr("tutelage.planning.planned.plan", planned)
    monkeypatch.setattr("tutelage.planning.plan", planned)
    other_unit = text.replace('entity = "patient"', 'unit = "row"')
    for given, said in (
        (text.replace('entity = "patient"\n', ""), UNIT),
        (
            text.replace("epsilon = 1.0", "epsilon = 2"),
            "`epsilon` must be at most 1, the budget of the ledger. Got 2.",
        ),
        (other_unit, "this release another unit"),
        (
            text.replace("[output]", "delta = 1e-6\n[output]"),
            "`delta` must be 1e-05, that of the ledger",
        ),
    ):
        config.write_text(given)
        for verb in (
            ("run", "run.toml", "--overwrite"),
            ("plan", "--for", "run.toml", "--people", "150"),
        ):
            result = called(*verb, cwd=tmp_path)
            assert result.returncode in (1, 2)
            assert said in result.stderr


def test_insisting_is_on_the_card_and_says_no_private_fact(tmp_path, called):
    assert on_command_line(Case(public=COPIES), tmp_path, called)[0]
    assert called("run", "run.toml", "--insist", cwd=tmp_path).returncode == 0
    card = json.loads((tmp_path / "out" / "card.json").read_text())
    assert not [one for one in card["findings"] if "equal" in one["reason"]]
    (found,) = [one for one in card["findings"] if one["code"] == "refusals-overridden"]
    model: Any = PATEClassifier(epsilon=1.0, classes=["no", "yes"])
    findings = model.fit(rows(300, 1), "ill", X_public=rows(120, 2), insist=True).card().findings
    # The same, whether a check was overridden or not.
    assert found["reason"] in [one.reason for one in findings]
    assert verdict_of(model.epsilon_, findings).word == "weak"


def test_classes_are_declared_or_public_or_told_to_be_read_from_private_labels():
    private, public = rows(300, 1), rows(120, 2)
    model: Any = PATEClassifier(epsilon=1.0)
    with pytest.warns(UndeclaredClassesWarning, match=r"classes=\[\.\.\.\]"):
        model.fit(private.drop(columns="ill"), private["ill"], X_public=public.drop(columns="ill"))
    assert "classes-from-private-labels" in {one.code for one in model.card().findings}
    with warnings.catch_warnings():
        warnings.simplefilter("error", UndeclaredClassesWarning)
        model.set_params(random_state=1).fit(rows(300, 7), "ill", X_public=public)
    assert model.classes_from_ == "public"
    assert model.classes_.tolist() == ["no", "yes"]
    for declared, said in (
        (None, "not among the public labels"),
        (["no", "yes"], "`set.y.` lists all"),
    ):
        with pytest.raises(InvalidDataError, match=said) as refused:
            model.set_params(classes=declared).check(
                private.assign(ill="maybe"), "ill", X_public=public
            )
        assert "maybe" not in str(refused.value)


def test_arrays_without_names_are_searched_for_ids():
    rng = np.random.default_rng(0)
    X, public, ids = (
        rng.normal(size=(960, 3)),
        rng.normal(size=(200, 3)),
        np.repeat(rng.permutation(240), 4),
    )
    y, numbered = (X[:, 0] > 0).astype(int), np.column_stack([X, ids])
    numbered_public = np.column_stack([public, rng.integers(0, 240, 200)])
    model: Any = PATEClassifier(epsilon=1.0, classes=[0, 1])
    with pytest.raises(
        PreflightError, match=r"Column 'column 3' .* pass this column by itself as `entity_ids`"
    ):
        model.fit(numbered, y, X_public=numbered_public)
    with pytest.raises(PreflightError, match="of `whole_rows`"):
        model.fit(X, y, X_public=public, whole_rows=np.column_stack([X, y, ids]))
    model.set_params(unit="row").check(numbered, y, X_public=numbered_public)
    with pytest.raises(InvalidParameterError, match="Leave out `entity_ids`"):
        model.fit(numbered, y, X_public=numbered_public, entity_ids=np.arange(960))


def test_a_notebook_which_is_stored_shows_no_number_of_private_rows(monkeypatch):
    private, public = changed(rows(300, 1), dose=lambda cells: cells * 37), rows(120, 2)
    model = PATEClassifier(epsilon=1.0, classes=["no", "yes"], unit="row")
    with pytest.warns(PreflightWarning, match=r"'dose' is about 3\d times"):
        model.check(private, "ill", X_public=public, insist=True)
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    with pytest.warns(PreflightWarning, match="'dose' is about … times as large") as found:
        model.check(private, "ill", X_public=public, insist=True)
    assert not re.search(
        r"\d", " ".join(str(one.message) for one in found if "'dose'" in str(one.message))
    )
    with pytest.raises(
        PreflightError, match=r"^There are … people; `n_teachers=250` is too many\. Notebooks are"
    ):
        raise PreflightError("There are 40 people; `n_teachers=250` is too many.")


@pytest.mark.parametrize(("name", "cells", "found"), [
    ("nr", np.repeat(np.arange(250), 4), True),
    ("age", np.random.default_rng(0).integers(0, 100, 1000), False),
    ("hospital_id", [f"h{number}" for number in range(100)] * 10, False),
    ("user_id", [f"h{number}" for number in range(100)] * 10, True),
    ("title", ["a short remark"] * 500 + [f"another short remark {number}" for number in range(500)], False),
    ("patientId", [str(number // 2) for number in range(300)], True),
    ("patient_id", [f"p{number}" for number in range(300)], False),  # one row each
    ("name", [f"Miller, {number // 2}" for number in range(300)], True),
    ("notes", [f"{number // 2} " + "a long report " * 4 for number in range(300)], False),
])  # fmt: skip
def test_columns_that_say_whose_row_it_is_are_told_from_others(name, cells, found):
    assert bool(_ids_among(Table("", {name: cells}).columns)) is found


def test_sparse_numbers_are_ids_if_their_rows_agree_as_those_of_a_person_do():
    rng = np.random.default_rng(0)
    numbers, sex = rng.integers(10**6, 10**8, 400).repeat(3), rng.choice(["f", "m"], 400).repeat(3)
    order = rng.permutation(1200)
    assert _ids_among(Table("", {"nr": numbers[order], "sex": sex[order]}).columns) == ["nr"]
    assert (
        _ids_among(Table("", {"nr": numbers[order], "sex": rng.choice(["f", "m"], 1200)}).columns)
        == []
    )


def found_in(private: np.ndarray, public: np.ndarray, numbers: tuple[str, ...] = ()) -> Found:
    labels = np.arange(len(private)) % 2
    given = Sight(
        private=private, public=public, numbers=numbers, columns={}, labels=labels, n_classes=2
    )
    return preflight(given)


def test_coarse_tables_of_other_people_are_refused_no_more_often_than_stated():
    """100 pairs of tables, some of other populations; the tests that run are of level 1 %, with a margin of a half."""
    rng, refused = np.random.default_rng(0), 0
    for trial in range(100):
        weights = rng.dirichlet(np.ones(40) * (0.2 if trial % 2 else 2.0), 2)
        private, public = (
            rng.choice(40, (n, 1), p=p).astype(float)
            for n, p in zip((800, 200), weights, strict=True)
        )
        refused += bool(found_in(private, public).refusals)
    assert refused <= 3


EXACT, ALONE = "has an end that equals a private extreme", "lists only values that somebody has"
READ_OFF = "They seem to be read off private rows: "


@pytest.mark.parametrize(("column", "cells", "found"), [
    ((3.206939239348, 120), [3.206939239348, *range(4, 117), 117.25], EXACT),
    # Rounded, to more digits than ages have.
    ((3.21, 120), [3.206939239348, *range(4, 117), 117.25], EXACT),
    ((17, 90), [17, *range(18, 90), 90], ""),
    ((0, 4987), [1, 4990, 4987], ""),  # somebody is beyond
    ((0, 99999), [0, 99999, 99999, 99999], ""),  # a limit that several people reach
    ((0.137, 1e9), [1e308, "inf", "-inf", "nan", 10**400, b"1"], ""),
    (["cook", "nurse"], ["cook"] * 30 + ["nurse", "pilot", ""], ALONE),
    (["cook", "nurse"], ["cook"] * 30 + ["nurse"] * 2, ""),
])  # fmt: skip
def test_ends_and_lists_that_are_read_off_private_rows_are_told_from_public_ones(
    column, cells, found
):
    rows_of_one = Table("", {"x": np.array(cells, dtype=object)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # which would tell of a row
        told = Schema({"x": column}).read_off(rows_of_one, np.arange(len(cells)))
    assert (found in told["x"]) if found else not told


@pytest.mark.parametrize(("ends", "found", "origin"), [
    ((10000, 987654), EXACT, "owner declared them"),
    ((20125.5, 90000), "", "as census.csv proposed them, or corrected"),
])  # fmt: skip
def test_what_is_not_in_the_public_rows_that_proposed_a_schema_may_be_read_off_private_ones(
    ends, found, origin
):
    public = Table("census.csv", {"x": np.array([20125.5, 30000.0, 90000.0], dtype=object)})
    private = Table("", {"x": np.array([20125.5, *range(20200, 20300), 987654], dtype=object)})
    schema = Schema({"x": ends}).mark_proposed(public)
    told = schema.read_off(private, np.arange(102))
    assert (found in told["x"]) if found else not told
    assert schema.origin.endswith(origin)


def test_a_file_of_public_rows_does_not_keep_a_schema_from_being_compared_with_private_rows():
    private = rows(300, 1).assign(
        dose=np.r_[np.random.default_rng(3).uniform(0.1, 0.8, 299), 0.98765]
    )
    census = Table("census.csv", {"dose": np.array([0.1, 0.9] * 20)})
    schema = Schema({"dose": (0.1, 0.98765)}).mark_proposed(census)
    model: Any = PATEClassifier(columns=schema, classes=["no", "yes"], unit="row", epsilon=1.0)
    with pytest.raises(PreflightError, match="'dose' has an end that equals a private extreme"):
        model.check(private, "ill")


def test_a_category_of_one_person_with_several_rows_is_of_one_person():
    jobs = Table("", {"job": np.array(["cook"] * 30 + ["nurse"] * 5, dtype=object)})
    schema, people = Schema({"job": ["cook", "nurse"]}), [*range(30), *[30] * 5]
    assert ALONE in schema.read_off(jobs, np.array(people))["job"]
    assert not schema.read_off(jobs, np.arange(35))


def test_a_schema_that_private_rows_proposed_is_refused_in_python():
    private = rows(300, 1)
    features = private.drop(columns="ill")
    people: Any = PATEClassifier(
        columns=Schema.learn(features), classes=["no", "yes"], unit="row", epsilon=1.0
    )
    for asked in (people.check, people.fit):
        with pytest.raises(PreflightError, match=SHARED):
            asked(private, "ill")
    with pytest.warns(PreflightWarning, match=SHARED):
        people.check(private, "ill", insist=True)


ENDS = tuple(rows(300, 1)["dose"].agg(["min", "max"]))
HONEST: dict[str, Any] = {"dose": (0.0, 1.0), "ward": ["north", "south", "other"]}


@pytest.mark.parametrize(("public", "lowest", "named"), [
    ({"dose": ENDS}, 0.0, "'dose' has an end that equals a private extreme"),
    ({}, 1.2345, "'target' has an end that equals a private extreme"),
    ({"ward": ["north", "south", "west"]}, 0.0, "'ward' lists only values that somebody has, and one"),
])  # fmt: skip
def test_a_schema_and_a_range_that_are_read_off_are_refused_before_anything_is_spent(
    public, lowest, named, tmp_path
):
    cells = changed(rows(300, 1).drop(columns="ill"), ward=first_cells("west"))
    days = np.r_[1.2345, np.random.default_rng(9).uniform(2, 9, 299)]
    settings: Any = {"target_range": (lowest, 10.0), "epsilon": 1.0, "unit": "row"}
    model: Any = PATERegressor(
        columns=Schema(HONEST | public), ledger=tmp_path / "read.ledger", **settings
    )
    for asked in (model.check, model.fit):
        with pytest.raises(PreflightError) as refused:
            asked(cells, days)
        (said,) = refused.value.sentences()
        assert READ_OFF + named in said
        assert not re.search(r"0\.\d|west", said)  # no cell is quoted
    assert not list(tmp_path.iterdir())
    model.set_params(columns=Schema(HONEST), target_range=(0.0, 10.0)).check(cells, days)


BY_SCHEMA = """
private = { file = "private.csv", ignore = ["ill"] }
target = { column = "days", range = [0, 10] }
public.schema = "%s.toml"
privacy.epsilon = 1
output.folder = "out"
"""


def test_a_schema_that_private_rows_proposed_is_refused_on_the_command_line(tmp_path, called):
    private = rows(300, 1).assign(days=np.random.default_rng(9).uniform(1, 9, 300).round(3))
    private.to_csv(tmp_path / "private.csv", index=False)
    public_rows(120, 2).to_csv(tmp_path / "other.csv", index=False)
    for name, ignored in (
        ("private.csv", ("--ignore", "ill", "--ignore", "days")),
        ("other.csv", ()),
    ):
        proposed = called("schema", name, "--ranges", *ignored, cwd=tmp_path).stdout
        assert f'proposed_by = "{name}"' in proposed
        (tmp_path / name).with_suffix(".toml").write_text(proposed)
    moved = (
        (tmp_path / "private.toml").read_text().replace('"private.csv"', '"elsewhere/private.csv"')
    )
    (tmp_path / "moved.toml").write_text(moved)
    for name, said in (
        ("private", SHARED),
        ("moved", "'dose' has an end that equals a private extreme"),
    ):
        (tmp_path / "run.toml").write_text(BY_SCHEMA % name)
        found = called("run", "run.toml")
        assert said in refusal(found, 1)
        assert "pass --insist." in found.stderr
        assert not list(tmp_path.glob("*.ledger"))
    (tmp_path / "run.toml").write_text(BY_SCHEMA % "other")
    found = succeeded(called("run", "run.toml"))
    assert "seem" not in found.stderr
    card = json.loads((tmp_path / "out" / "card.json").read_text())
    assert (
        card["release"]["feature_map"]
        == "ranges and categories as other.csv proposed them, or corrected"
    )


COPIED = "say what is to be predicted, as copies do: copy"


def test_a_column_that_says_the_label_is_told_before_anything_is_spent():
    for cells in (
        lambda ill: ill.map({"no": 4, "yes": 7}),
        lambda ill: ill + ["", "?"] * (len(ill) // 2),
    ):
        private, public = (
            frame.assign(copy=cells(frame["ill"])) for frame in (rows(300, 1), rows(120, 2))
        )
        with pytest.warns(PreflightWarning, match=COPIED):
            PATEClassifier(epsilon=1.0, classes=["no", "yes"]).check(
                private, "ill", X_public=public
            )
    days = np.random.default_rng(9).uniform(1, 9, 300)
    copied, schema = (
        private.assign(copy=days),
        Schema({"copy": (0.0, 10.0), "ward": ["north", "south", "other"]}),
    )
    model = PATERegressor(1.0, (0, 10), columns=schema, unit="row")
    with pytest.warns(PreflightWarning, match=COPIED):
        model.check(copied, days)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PreflightWarning)
        model.check(copied, days.round(2))


def test_a_ledger_of_rows_cannot_become_one_of_people(tmp_path):
    path = tmp_path / "rows.ledger"
    one = PATEClassifier(epsilon=0.5, budget=1.0, classes=["no", "yes"], unit="row", ledger=path)
    one.fit(PATIENTS, "ill", X_public=rows(120, 2))
    spent = Ledger.open(path).state().spent
    people: Any = fresh(one).set_params(unit="patient")
    for asked in (people.check, people.fit):
        with pytest.raises(
            LedgerMismatchError, match=r"cannot become a ledger of people.*Create a new ledger"
        ):
            asked(PATIENTS, "ill", X_public=rows(120, 2), entity_ids="patient")
    assert Ledger.open(path).state().spent == spent


def test_all_problems_of_parameters_are_told_at_once():
    given: Any = {"insist": "yes", "data_changed": "no"}
    for made, problems in (
        (lambda: TeacherVotes(rounds=0, selection="nonsense", student="nonsense"), 3),
        (
            lambda: PATEClassifier(epsilon=-1, delta=2, goal="nonsense").fit([[1.0]], [1], **given),
            5,
        ),
    ):
        with pytest.raises(InvalidParameterError) as refused:
            made()
        assert len(refused.value.sentences()) == problems


INSIDE = """
private = { file = "private.csv", people = 1 }
target = { clases = ["no", "yes"], classes = ["no", "no"] }
public = { file = "private.csv", evaluate_last = 0 }
method = { name = "teacher-votes", student = "forests" }
privacy = { epsilon = -1 }
output = { folder = 3 }
colums = {}
"""
ACROSS = """
private = { file = "private.csv", unit = "row", entity = "patient" }
public = { file = "private.csv", evaluate_last = 9 }
method = { name = "teacher-votes", teacher = "Ridge", mechanism = { name = "gnmax", sigma = 5.0 } }
output = { folder = 3 }
"""


@pytest.mark.parametrize(("text", "problems"), [
    (INSIDE, (
        "`clases` is not a setting of [target]. Did you mean `classes`?", "`people` in [private]",
        "`evaluate_last` in [public]", "`student` in [method]", "`folder` in [output]",
        "`colums` is not a setting of the configuration. Did you mean `columns`?",
    )),
    (ACROSS, (
        "`folder` in [output]", "`evaluate_last` in [public] needs labels", "[target] needs `classes`",
        "must be another file than in [private]", "`unit` in [private] protects each row alone",
    )),
], ids=["inside sections", "across sections"])  # fmt: skip
def test_all_problems_of_a_configuration_are_told_at_once(text, problems, tmp_path, called):
    (tmp_path / "run.toml").write_text(text)
    result = called("run", "run.toml", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    lines = result.stderr.splitlines()
    assert [sum(part in line for line in lines) for part in problems] == [1] * len(problems)
    assert len(lines) == len(problems)


def test_the_labels_of_the_rows_that_do_not_score_are_prepared(tmp_path):
    write_people(tmp_path)
    given = {"private": 'entity = "patient"', "public": 'label = "ill"\nevaluate_last = 10'}
    text = RUN.format(**given, target='classes = ["no", "yes"]', epsilon=1)
    (tmp_path / "config.toml").write_text(text)
    config = load_config(tmp_path / "config.toml")
    data: Any = load_sources(config)
    with patch.object(PATEClassifier, "prepare") as asked:
        prepare_release(config, data)
    given = asked.call_args.kwargs
    assert given["X_public"].n_rows == len(given["y_public"]) == 120
    assert given["scored"] == 10
    one = np.where(np.arange(120) < 112, "no", "yes").astype(object)
    with pytest.raises(InvalidDataError, match="two classes with two rows"):
        prepare_release(config, replace(data, labels=one))


# One budget, and people by their ids


ROOM = ("delta = 1e-5", "delta = 1e-5\nbudget = 200")


@pytest.mark.rest
def test_changed_rows_that_did_not_vote_are_said_to_be_unused(tmp_path, called):
    folder = tmp_path
    write_people(folder)
    configure(folder, ROOM, private='unit = "row"')
    succeeded(called("run", "config.toml", cwd=folder))
    labels = (folder / "out" / "labels.csv").read_text()
    write_rows(folder / "private.csv", 300, 9, extra={"patient": PEOPLE})
    again = called("run", "config.toml", "--overwrite", "--data-changed", cwd=folder)
    assert (
        "Rows that changed or are new were not used: an earlier run made the same" in again.stderr
    )
    assert (folder / "out" / "labels.csv").read_text() == labels
    configure(folder, ROOM, ("queries = 40", "queries = 50"), private='unit = "row"')
    more = called("run", "config.toml", "--overwrite", "--data-changed", cwd=folder)
    assert "were not used for 40 of the queries: an earlier run" in more.stderr


@pytest.mark.parametrize(("one", "other", "alike"), [
    ("Mr Ö", "mr ö", True), ("p7", "p\u200b7", True), ("７", "7.0", True), ("p7", "p07", False), ("a-b", "ab", False),
])  # fmt: skip
def test_ids_that_read_alike_are_told_from_others(one, other, alike):
    assert len(set(canonical_ids([one, other]).tolist())) == 2
    assert _differ_by_spelling_only(np.array([one, other, one])) == alike


def shared(private, public) -> bool:
    refused, warned = found_in(private, public)
    return any("equal private rows" in one for one in (*refused, *warned))


def test_equal_rows_are_chance_in_a_table_of_few_and_not_in_one_of_many():
    rng = np.random.default_rng(0)
    few = rng.integers(0, 3, (500, 4))
    assert not shared(few, rng.integers(0, 3, (200, 4)))
    assert shared(few, few)
    # So few that all rows equal look like chance, unless they are the same rows.
    pairs = rng.integers(0, 4, (30, 2))
    assert shared(pairs, rng.permutation(pairs))
    many, others = rng.uniform(size=(500, 4)), rng.uniform(size=(200, 4))
    assert not shared(many, others)
    assert shared(many, np.concatenate([others, many[:1]]))
    # A single equal pair, no two private rows alike: chance where cells take 25 values, and none where they take 1,000.
    for values, found in ((25, False), (1000, True)):
        cells = np.random.default_rng(1).integers(0, values, (700, 3))
        apart = np.unique(cells, axis=0)[np.random.default_rng(2).permutation(600)]
        assert shared(apart[:400], apart[399:]) is found


@pytest.mark.parametrize("n_rows", [40, 2000])
def test_a_scaler_that_saw_private_rows_is_told_from_one_that_saw_public_rows_only(n_rows):
    rng = np.random.default_rng(0)
    private, public = rng.normal(50, 9, (n_rows, 3)), rng.normal(55, 9, (n_rows // 2, 3))

    def scalers(like: np.ndarray, ddof: int = 0) -> int:
        scaled = ((rows - like.mean(0)) / like.std(0, ddof=ddof) for rows in (private, public))
        told = found_in(*scaled, numbers=("a", "b", "c")).warnings
        return sum("standard deviation 1 in: a, b, c. A scaler" in one for one in told)

    together = np.concatenate([private, public])
    assert scalers(private) == scalers(private, 1) == scalers(together) == 1
    assert scalers(public) == 0
