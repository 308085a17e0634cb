"""`tutelage run` for a number: what it writes and remembers, and what it refuses before anything is spent."""

import csv
import json
import re

import numpy as np
import pytest

from runs_of_people import ADDITIVE, NUMBERS, configure_people
from test_cli import refusal, succeeded, tutelage, write_people
from tutelage import PATEClassifier, PATERegressor
from tutelage.cli import run
from tutelage.exceptions import InvalidParameterError
from tutelage.features import Schema
from tutelage.methods import AdditiveMean
from tutelage.reporting import read_card
from tutelage.students import load_student
from tutelage.students.additive_mean import AdditiveRegressor
from tutelage.tables import read_table

pytestmark = pytest.mark.usefixtures("repeatable")
TARGET = NUMBERS["private"]


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
    (folder / "schema.toml").write_text('[schema]\nward = ["north", "south"]\nill = ["no", "yes"]\n')
    done = succeeded(called("run", "config.toml", cwd=folder))
    assert "R² of the student" in done.stdout
    assert "accuracy" not in done.stdout
    assert (folder / "out" / "labels.csv").read_text().split() == ["public_row,label"]
    student, rows = load_student(folder / "out"), read_table(folder / "public.csv")
    assert isinstance(student[-1], AdditiveRegressor)
    predicted = student.predict(rows)
    assert np.corrcoef(predicted, rows.column("dose").astype(float))[0, 1] > 0.8  # which illness explains
    assert ((predicted >= 0) & (predicted <= 1)).all()
    header, *lines = succeeded(called("predict", "out", "public.csv")).stdout.splitlines()
    assert header == "prediction,from,to"
    shown = np.array([line.split(",") for line in lines], dtype=float)
    assert shown[:, 0] == pytest.approx(predicted)
    assert (shown[:, 1] < shown[:, 2]).all()
    card = read_card(folder / "out" / "card.json")
    assert (card.classes, card.errors, card.student) == ((), (), "AdditiveRegressor")
    page = (folder / "out" / "card.md").read_text()
    assert "R² of the model (student) | not measured" in page
    assert not [line for line in page.splitlines() if "class" in line.lower()]
    assert "5 noisy sums" in page
    said = succeeded(called("card", "out", "--ledger", "private.csv.ledger", "--json", cwd=folder))
    assert json.loads(said.stdout)["classes"] == []


def test_a_second_run_returns_the_same_and_spends_nothing(configured, called):
    folder = configured()
    spent = json.loads(succeeded(called("run", "config.toml", "--json", cwd=folder)).stdout)["budget"]["spent"]
    first = (folder / "out" / "student.skops").read_bytes()
    assert "--overwrite" in refusal(called("run", "config.toml", cwd=folder), 2)
    again = succeeded(called("run", "config.toml", "--overwrite", "--json", cwd=folder))
    assert (folder / "out" / "student.skops").read_bytes() == first
    assert "This release publishes 5 noisy sums of ballots" in (folder / "out" / "card.md").read_text()
    assert json.loads(again.stdout)["budget"]["spent"] == spent == pytest.approx(2.0, rel=1e-3)


def test_a_release_that_another_process_makes_meanwhile_is_not_told_of_as_this_one(configured, called, monkeypatch):
    folder = configured(privacy="budget = 2.0\nreleases = 2")

    write_results = run.write_results

    def written_later(*given):
        succeeded(tutelage("run", "config.toml", "--as", "2026-02", cwd=folder))
        return write_results(*given)

    monkeypatch.setattr(run, "write_results", written_later)
    done = succeeded(called("run", "config.toml", "--as", "2026-01", cwd=folder))
    assert "came with 2026-02" not in done.stdout
    assert re.search("this run / total +│ 1.0000 / ", done.stdout)


def test_releases_with_names_have_folders_of_their_own_and_people_a_budget_each(configured, called):
    folder = configured(privacy="budget = 2.0\nreleases = 2")
    for name in ("2026-01", "2026-02"):
        done = succeeded(called("run", "config.toml", "--as", name, cwd=folder))
        assert f"came with {name}" in done.stdout
        assert "released before" not in done.stdout
        assert f"| {name} |" in (folder / "out" / name / "card.md").read_text()
    shown = json.loads(succeeded(called("ledger", "show", "private.csv.ledger", "--json", cwd=folder)).stdout)
    assert shown["cohorts"] == {"2026-01": pytest.approx(2.0, rel=1e-3), "2026-02": pytest.approx(1.0, rel=1e-2)}
    assert "came with 2026-02" in called("ledger", "show", "private.csv.ledger", cwd=folder).stdout
    exposed = json.loads(succeeded(called("ledger", "exposure", "private.csv.ledger", "--json", cwd=folder)).stdout)
    assert [one["queries"] for one in exposed] == [10, 5]
    assert "must be a name" in refusal(called("run", "config.toml", "--as", "../other", cwd=folder), 2)
    again = succeeded(called("run", "config.toml", "--as", "2026-01", "--overwrite", cwd=folder))
    assert "2026-01 was begun before" in again.stderr
    entries = called("ledger", "export", "private.csv.ledger", cwd=folder).stdout
    refused = called("run", "config.toml", "--as", "2026-03", cwd=folder)
    assert refused.returncode == 1
    message = refused.stderr
    assert "Too few people take part in 2026-03: the budget of the others is spent" in message
    assert "--insist" in message
    assert called("ledger", "export", "private.csv.ledger", cwd=folder).stdout == entries
    third = succeeded(called("run", "config.toml", "--as", "2026-03", "--insist", cwd=folder))
    assert "for people who came with 2026-01: 0; with 2026-02: 1; with 2026-03: 2." in " ".join(third.stderr.split())
    for line in (
        "took part: people who came with.*2026-02, 2026-03",
        "took no part: .*2026-01",
        "earlier ones.*5 / 10",
    ):
        assert re.search(line, third.stdout)
    (folder / "out").rename(folder / "months")
    assert "must name each release" in refusal(called("run", "config.toml", cwd=folder), 1)


def test_two_questions_about_the_same_people_are_charged_to_the_same_cohorts(tmp_path, called):
    write_people(tmp_path, private=900)
    for column in ("ill", "ward"):
        configure_people(tmp_path, ADDITIVE, privacy="budget = 2.0\nreleases = 4")
        text = (tmp_path / "config.toml").read_text()
        text = (
            text if column == "ill" else text.replace('"ill"', '"ward"').replace('["no", "yes"]', '["north", "south"]')
        )
        text = text.replace('label = "', f'question = "{column} in the year"\nlabel = "')
        (tmp_path / f"{column}.toml").write_text(text.replace('folder = "out"', f'folder = "{column}"'))
    (tmp_path / "schema.toml").write_text("[schema]\nage = [20, 89]\ndose = [0, 1]\n")
    with (tmp_path / "private.csv").open(newline="") as file:
        rows = [row for row in csv.reader(file) if row[2] in ("ward", "north", "south")]
    with (tmp_path / "private.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    found = dict[str, tuple[str, str]]()
    for month in ("2026-01", "2026-02"):
        for column in ("ill", "ward"):
            done = succeeded(called("run", f"{column}.toml", "--as", f"{month} {column}", cwd=tmp_path))
            found[f"{month} {column}"] = done.stdout, done.stderr
    spent = json.loads(succeeded(called("ledger", "show", "private.csv.ledger", "--json", cwd=tmp_path)).stdout)
    shares = {"2026-01 ill": 2.0, "2026-01 ward": 1.5, "2026-02 ill": 1.0, "2026-02 ward": 0.5}
    assert spent["cohorts"] == pytest.approx(shares, rel=1e-2)
    assert "0.5000 of ε = 2 of each person" in " ".join(found["2026-02 ill"][1].split())
    assert "2026-01 ill: 2; with 2026-01 ward: 3; with 2026-02 ill: 4." in " ".join(found["2026-02 ill"][1].split())
    assert "4 / 0 " in found["2026-01 ward"][0]  # which is another question
    assert "4 / 4 " in found["2026-02 ill"][0]
    path = tmp_path / "ill.toml"
    path.write_text(path.read_text().replace("in the year", "in the month"))
    (tmp_path / "ill").rename(tmp_path / "elsewhere")
    assert "begun with other settings" in refusal(called("run", "ill.toml", "--as", "2026-02 ill", cwd=tmp_path), 1)


@pytest.mark.parametrize(("spent", "said"), [
    ({"a": 1, "b": 2, "c": 1}, [(1, "a, c"), (2, "b")]),
    ({f"m{n:02}": n for n in range(24)},
     [(0, "m00"), (1, "m01"), (2, "and more, 20 releases, m02 to m21"), (22, "m22"), (23, "m23")]),
    (dict.fromkeys(map(str, range(9)), 1), [(1, "9 releases, 0 to 8")]),
])  # fmt: skip
def test_cohorts_are_named_in_few_words(spent, said):
    assert run._grouped(spent) == said


@pytest.mark.parametrize("with_target", [True, False])
def test_public_rows_propose_the_schema_and_their_numbers_start_the_student(configured, called, with_target):
    folder = configured('schema = "schema.toml"', 'file = "public.csv"')
    public = read_table(folder / "public.csv")
    if not with_target:
        shown = [name for name in public.columns if name != "age"]
        with (folder / "public.csv").open("w", newline="") as file:
            csv.writer(file).writerows([shown, *zip(*(public.column(name).tolist() for name in shown), strict=True)])
    succeeded(called("run", "config.toml", cwd=folder))
    student = load_student(folder / "out")
    assert (student[-1].public_ is not None) == with_target
    assert {"age", "patient"}.isdisjoint(student[0].columns)
    assert np.isfinite(student.predict(public)).all()
    spent = read_card(folder / "out" / "card.json").budget["spent"]
    again = succeeded(called("run", "config.toml", "--overwrite", "--json", cwd=folder))
    assert json.loads(again.stdout)["budget"]["spent"] == spent == pytest.approx(2.0, rel=1e-3)


def test_the_private_sums_are_stored_for_the_owner_only(configured, called):
    folder = configured("[output]", "[output]\nvotes = true")
    succeeded(called("run", "config.toml", cwd=folder))
    assert not any((folder / "out").glob("private*"))
    files = [*(folder / "private-out").glob("private-votes-*.npz")]
    assert files
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in files)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ((TARGET, 'entity = "patient"\ntarget = "age"'), "`target` and `range` in [private] go together"),
        ((TARGET, 'entity = "patient"\nrange = [0, 100]'), "`target` and `range` in [private] go together"),
        (("[0, 100]", "[100, 0]"), "`range` in [private] must be the lowest and the highest number"),
        (("[0, 100]", "[0, 50, 100]"), "`range` in [private] must be the lowest and the highest number"),
        (("[0, 100]", "[0, inf]"), "`range` in [private] must be finite"),
        (("[0, 100]", '"0 to 100"'), "`range` in [private] must be a list, each entry a whole number or a number"),
        (("range =", 'label = "y"\nrange ='), "`label` in [private] does not go with `target`"),
        (("range =", 'classes = ["no", "yes"]\nrange ='), "`classes` in [private] does not go with `target`"),
        (("range =", 'silo = "ward"\nrange ='), "`silo` in [private] does not go with `target`"),
        (("range =", "batches = true\nrange ="), "`batches` in [private] does not go with `schema`"),
        (("[output]", '[method]\nname = "additive"\n[output]'), "[method] does not go with `target`"),
        (("[output]", '[training]\ngoal = "balanced_accuracy"\n[output]'), "`goal` in [training] does not go with"),
        (("[output]", '[training]\nclass_weight = { yes = 2 }\n[output]'), "`class_weight` in [training] does not go"),
        (("[output]", '[[published]]\nsource = "x"\n[output]'), "[[published]] does not go with `target`"),
        (('schema = "schema.toml"', ""), "`target` in [private] needs public columns"),
        (('schema = "schema.toml"', 'file = "private.csv"'), "`file` in [public] must be another file"),
        (('schema = "schema.toml"', 'file = "public.csv"\nlabel = "ill"'), "`label` in [public] does not go"),
        (('schema = "schema.toml"', 'file = "public.csv"\nevaluate_last = 9'), "`evaluate_last` in [public] does not"),
        (('entity = "patient"', 'entity = "age"'), "must be other columns than `label` or `target`"),
        (("epsilon = 2.0", "epsilon = -2.0"), "`epsilon` must be a finite number above 0"),
    ],
)  # fmt: skip
def test_what_does_not_go_with_a_target_is_refused_in_one_sentence(configured, called, wrong, sentence):
    folder = configured(*wrong)
    assert sentence in refusal(called("run", "config.toml", cwd=folder), 2)
    assert not (folder / "private.csv.ledger").exists()


@pytest.mark.parametrize(("verb", "said"), [
    (("audit", "config.toml"), "No other verb takes a `target`"),
    (("plan", "--for", "config.toml"), "nothing to plan: start `tutelage run` straight away."),
])  # fmt: skip
def test_other_verbs_refuse_a_target(configured, called, verb, said):
    assert said in refusal(called(*verb, cwd=configured()), 2)


def test_a_target_with_public_numbers_is_not_planned(configured, called):
    folder = configured('schema = "schema.toml"', 'file = "public.csv"', private=TARGET + "\npeople = 450")
    assert "plan" not in succeeded(called("run", "config.toml", cwd=folder)).stderr


def test_a_target_that_the_schema_has_is_refused(configured, called):
    folder = configured()
    (folder / "schema.toml").write_text("[schema]\nage = [20, 89]\n")
    assert "`age` is named in [private], so it must not be in the schema" in refusal(
        called("run", "config.toml", cwd=folder), 2
    )


@pytest.mark.parametrize("cell", ["", "nan", "-inf", "1e999", "secret", "12,5", "2031-05-17"])
def test_a_target_that_is_no_number_is_refused_unquoted_before_anything_is_spent(configured, called, cell):
    folder = configured()
    with (folder / "private.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    rows[700]["age"] = cell
    with (folder / "private.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    said = refusal(called("run", "config.toml", cwd=folder), 1)
    assert "'age' of private.csv must hold a finite number in every row" in said
    assert not cell or cell not in said
    assert not (folder / "private.csv.ledger").exists()


def test_in_python_each_estimator_refuses_in_its_own_name():
    schema = Schema({"a": (0, 9)})
    with pytest.raises(InvalidParameterError, match="AdditiveMean predicts numbers, and PATEClassifier classes"):
        PATEClassifier(method=AdditiveMean(), public=schema, classes=[0, 1]).resolved()
    with pytest.raises(InvalidParameterError) as refused:
        PATERegressor(schema, (0, 1), epsilon=-1.0, delta=2.0).fit({"a": [1, 2]}, [0, 1])
    assert len(refused.value.problems) == 2
    assert all("of PATERegressor" in one and "PATEClassifier" not in one for one in refused.value.problems)
