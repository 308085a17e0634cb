"""`tutelage run` for a number: what it writes and remembers, and what it refuses before anything is spent."""

import json
import re
from io import StringIO
from typing import Any

import numpy as np
import pandas as pd
import pytest

from runs_of_people import NUMBERS, configure_people
from test_cli import refusal, succeeded, write_people
from tutelage.cli import run
from tutelage.reporting import read_card
from tutelage.students import load_student
from tutelage.tables import read_table

pytestmark = pytest.mark.usefixtures("repeatable")


@pytest.fixture
def configured(tmp_path):
    write_people(tmp_path, private=900)

    def write(old="", new="", **sections):
        configure_people(tmp_path, NUMBERS, **sections)
        path = tmp_path / "config.toml"
        path.write_text(path.read_text().replace(old, new) if old else path.read_text())
        return tmp_path

    return write


def test_a_run_with_a_target_writes_a_student_and_a_card_that_knows_no_class(configured, called):
    folder = configured('"age"\nrange = [0, 100]', '"dose"\nrange = [0, 1]')
    (folder / "schema.toml").write_text(
        '[schema]\nward = ["north", "south"]\nill = ["no", "yes"]\n'
    )
    done = succeeded(called("run", "config.toml", cwd=folder))
    assert "R² of the student" in done.stdout
    student, rows = load_student(folder / "out"), read_table(folder / "public.csv")
    predicted = student.predict(rows)
    # Which illness explains.
    assert np.corrcoef(predicted, rows.column("dose").astype(float))[0, 1] > 0.8
    shown: Any = pd.read_csv(StringIO(succeeded(called("predict", "out", "public.csv")).stdout))
    assert shown["prediction"].to_numpy() == pytest.approx(predicted)
    assert (shown["from"] < shown["to"]).all()
    card = read_card(folder / "out" / "card.json")
    assert (card.release.classes, card.student.judged.errors, card.student.name) == (
        (),
        (),
        "AdditiveRegressor",
    )
    assert "class" not in (folder / "out" / "card.md").read_text().lower()
    succeeded(called("card", "out", "--ledger", "private.csv.ledger", "--json", cwd=folder))


def test_releases_with_names_have_folders_of_their_own_and_people_a_budget_each(
    configured, called, monkeypatch
):
    folder, card_of_run, said = (
        configured(privacy="budget = 2.0\nreleases = 2"),
        run._card,
        dict[str, str](),
    )

    def release(name):
        said[name] = succeeded(called("run", "config.toml", "--as", name, cwd=folder)).stdout

    def later(*given):
        monkeypatch.setattr(run, "_card", card_of_run)
        release("2026-02")  # as another process does meanwhile
        return card_of_run(*given)

    monkeypatch.setattr(run, "_card", later)
    release("2026-01")
    assert "came with 2026-02" not in said["2026-01"]
    for name in ("2026-01", "2026-02"):
        assert f"came with {name}" in said[name]
        assert "released before" not in said[name]
        assert re.search("this run / total +│ 1.0000 / 2.0000 of ε = 2.0000", said[name])
        assert f"| {name} |" in (folder / "out" / name / "card.md").read_text()
    shown = json.loads(
        succeeded(called("ledger", "show", "private.csv.ledger", "--json", cwd=folder)).stdout
    )
    assert shown["cohorts"] == {
        "2026-01": pytest.approx(2.0, rel=1e-3),
        "2026-02": pytest.approx(1.0, rel=1e-2),
    }
    exposed = json.loads(
        succeeded(called("ledger", "exposure", "private.csv.ledger", "--json", cwd=folder)).stdout
    )
    assert [one["queries"] for one in exposed] == [12, 6]
    assert "must be a name" in refusal(
        called("run", "config.toml", "--as", "../other", cwd=folder), 2
    )
    assert "holds releases with names, such as 2026-0" in refusal(
        called("run", "config.toml", cwd=folder), 2
    )
    again = succeeded(called("run", "config.toml", "--as", "2026-01", "--overwrite", cwd=folder))
    assert "2026-01 was begun before" in again.stderr
    assert "that it has are not spent on again." in " ".join(again.stderr.split())


@pytest.mark.parametrize("with_target", [True, False])
def test_public_rows_propose_the_schema_and_their_numbers_start_the_student(
    configured, called, with_target
):
    folder = configured('schema = "schema.toml"', 'file = "public.csv"')
    public = pd.read_csv(folder / "public.csv")
    if not with_target:
        public.drop(columns="age").to_csv(folder / "public.csv", index=False)
    succeeded(called("run", "config.toml", cwd=folder))
    student = load_student(folder / "out")
    assert (student[-1].public_ is not None) == with_target
    assert {"age", "patient"}.isdisjoint(student[0].columns)
    assert np.isfinite(student.predict(public)).all()


@pytest.mark.parametrize(("old", "new", "sentence"), [
    ("range = [0, 100]", "", "[target] needs `classes`"),
    ("[0, 100]", "[100, 0]", "`range` in [target] must be the lowest and the highest possible value"),
    ("range =", 'classes = ["no", "yes"]\nrange =', "`classes` in [target] does not go with `range`"),
    ("entity =", "batches = true\nentity =", "`batches` in [private] does not go with `schema`"),
    ("[output]", '[method]\nname = "additive"\n[output]', "[method] does not go with `range`"),
    ("range =", 'goal = "balanced_accuracy"\nrange =', "`goal` in [target] does not go with"),
    ('schema = "schema.toml"', "", "`range` in [target] needs public columns"),
    ('entity = "patient"', 'entity = "age"', "must be other columns than `column` in [target]"),
])  # fmt: skip
def test_what_does_not_go_with_a_target_is_refused_in_one_sentence(
    configured, called, old, new, sentence
):
    folder = configured(old, new)
    assert sentence in refusal(called("run", "config.toml", cwd=folder), 2)
    assert not (folder / "private.csv.ledger").exists()


def test_a_plan_refuses_a_range(configured, called):
    said = "nothing to plan: start `tutelage run` straight away."
    assert said in refusal(called("plan", "--for", "config.toml", cwd=configured()), 2)


def test_an_audit_takes_a_range(configured, called):
    found = called("audit", "config.toml", "--json", "--entities", "1", cwd=configured())
    assert found.returncode == 0, found.stderr


def test_a_target_that_the_schema_has_is_refused(configured, called):
    folder = configured()
    (folder / "schema.toml").write_text("[schema]\nage = [20, 89]\n")
    assert "`column` in [target] must not be a column of the schema" in refusal(
        called("run", "config.toml", cwd=folder), 2
    )


@pytest.mark.parametrize("cell", ["", "1e999", "secret"])
def test_a_target_that_is_no_number_is_refused_unquoted_before_anything_is_spent(
    configured, called, cell
):
    folder = configured()
    rows = pd.read_csv(folder / "private.csv", dtype=str)
    rows.loc[700, "age"] = cell
    rows.to_csv(folder / "private.csv", index=False)
    said = refusal(called("run", "config.toml", cwd=folder), 1)
    assert re.search(r"The target must (hold a finite number|have a value) in every", said)
    assert not cell or cell not in said
    assert not (folder / "private.csv.ledger").exists()
