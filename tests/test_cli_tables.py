"""`tutelage run` on the same rows in every form of a file, and with columns as `tutelage schema` prints them."""

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.tree import DecisionTreeClassifier

from test_cli import configure, refusal, succeeded, write_people
from tutelage import GNMax, PATEClassifier
from tutelage.cli.schema import _lines
from tutelage.exceptions import BudgetContinuedWarning
from tutelage.methods import TeacherVotes
from tutelage.tables import read_table

pytestmark = [pytest.mark.rest, pytest.mark.usefixtures("repeatable")]

FORMS = {
    "gz": lambda table, path: table.to_csv(path, sep=";", index=False),
    "tsv": lambda table, path: table.to_csv(path, sep="\t", index=False),
    "parquet": lambda table, path: table.to_parquet(path, index=False),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_people(tmp_path)
    configure(tmp_path)
    return tmp_path


def change(folder: Path, name: str, **columns: Any) -> None:
    """Write columns into a csv file of a folder."""
    pd.read_csv(folder / name).assign(**columns).to_csv(folder / name, index=False)


def rewrite(folder: Path, **names: str) -> list[tuple[str, str]]:
    """Write the tables of a folder under other names, and return what changes in the configuration."""
    for old, new in names.items():
        table = pd.read_csv(folder / f"{old}.csv")
        table["ward"] = table["ward"].astype("category")
        FORMS[new.rpartition(".")[2]](table, folder / new)
    ledger = ("delta = 1e-5", 'delta = 1e-5\nledger = "private.csv.ledger"')
    return [ledger, *((f'"{old}.csv"', f'"{new}"') for old, new in names.items())]


def test_a_run_on_other_forms_of_the_files_repeats_the_run_at_no_cost(folder, called):
    assert called("run", "config.toml", cwd=folder).returncode == 0
    labels = (folder / "out" / "labels.csv").read_text()
    for private, public in (("p.csv.gz", "q.tsv"), ("p.parquet", "q.parquet")):
        ledger, *renamed = rewrite(folder, private=private, public=public)
        configure(folder, *renamed)
        refused = called("run", "config.toml", "--overwrite", cwd=folder)
        assert "private.csv.ledger contains the budget of these data" in refused.stderr
        configure(folder, ledger, *renamed)
        again = succeeded(called("run", "config.toml", "--overwrite", cwd=folder))
        assert "Every query was labeled before" in again.stdout
        assert (folder / "out" / "labels.csv").read_text() == labels


@pytest.mark.parametrize("read", [read_table, pd.read_csv])
def test_a_fit_in_python_continues_a_run_at_no_cost(read, folder, called):
    assert called("run", "config.toml", cwd=folder).returncode == 0
    table, public = (pd.read_csv(folder / f"{name}.csv") for name in ("private", "public"))
    public = public.drop(columns="ill")
    tree, ledger = DecisionTreeClassifier(), folder / "private.csv.ledger"
    method = TeacherVotes(
        tree, n_teachers=15, n_queries=40, mechanism=GNMax(sigma=2.0), student=tree
    )
    model = PATEClassifier(
        classes=["no", "yes"], ledger=ledger, unit="patient", question="ill", method=method
    )
    with pytest.warns(BudgetContinuedWarning):
        model.fit(
            read(folder / "private.csv"), table["ill"], X_public=public, entity_ids=table["patient"]
        )
    assert (model.drawn_, model.remembered_) == (0, 40)
    released = pd.read_csv(folder / "out" / "labels.csv")["label"]
    assert model.classes_[model.release_.labels].tolist() == released.tolist()
    # The data are those of before to both.
    again = called("run", "config.toml", "--overwrite", cwd=folder)
    assert "Every query was labeled before" in again.stdout, again.stderr


# Columns


WORDS = "fever cough knee left right pain none since week day arm mild severe no finding home"


@pytest.fixture
def typed(tmp_path: Path) -> Path:
    """A folder with rows that have columns of every kind."""
    write_people(tmp_path)
    random = np.random.default_rng(0)
    for name, n in (("private.csv", 300), ("public.csv", 120)):
        change(
            tmp_path,
            name,
            seen=[f"2024-01-{day:02d}" for day in random.integers(1, 29, n)],
            note=[" ".join(words) for words in random.choice(WORDS.split(), (n, 5))],
            grade=random.choice(["low", "mid", "high"], n),
            code=[f"c{number}" for number in range(n)],
        )
    grades = pd.read_csv(tmp_path / "public.csv")["grade"]
    change(tmp_path, "public.csv", grade=grades.where(grades != "mid"))
    return tmp_path


def declared(folder: Path, *lines: str) -> None:
    configure(folder)
    config = folder / "config.toml"
    config.write_text("\n".join(["[columns]", *lines, config.read_text()]))


def test_a_schema_says_what_each_column_is(typed, called):
    shown = succeeded(called("schema", "public.csv", "--ignore", "ill", cwd=typed))
    columns = tomllib.loads(shown.stdout)["columns"]
    kinds = {"age": "number", "dose": "number", "seen": "date", "note": "text", "code": "ignore"}
    assert columns == {**kinds, "ward": ["north", "south"], "grade": ["", "high", "low"]}
    assert "# Column 'code' of the public rows holds text that differs in most rows" in shown.stdout


def test_a_run_with_the_printed_schema_is_the_run_without_it(typed, called):
    configure(typed)
    refused = refusal(called("run", "config.toml", cwd=typed), 1)
    assert "Column 'code' of the public rows holds text that differs in most rows" in refused
    configure(typed, private='ignore = ["code"]\nentity = "patient"')
    assert called("run", "config.toml", cwd=typed).returncode == 0
    labels = (typed / "out" / "labels.csv").read_text()
    printed = called("schema", "public.csv", "--ignore", "ill", cwd=typed).stdout
    declared(typed, *printed.splitlines()[3:])
    again = succeeded(called("run", "config.toml", "--overwrite", cwd=typed))
    assert "Every query was labeled before" in again.stdout
    assert (typed / "out" / "labels.csv").read_text() == labels
    assert (
        "code" not in json.loads((typed / "out" / "card.json").read_text())["release"]["features"]
    )


@pytest.mark.parametrize(("line", "message"), [
    ('ward = "number"', "Column 'ward' of the public rows must hold numbers only, as declared"),
    ('ward = ["north", "west"]', "must hold its declared categories: north, west. Got 'south'"),
    ('wrad = "number"', "`wrad` in [columns] must be a column of public.csv. Check the spelling"),
    ('patient = "number"', "`patient` in [columns] is no feature: it is `entity` in [private]. Leave it out"),
])  # fmt: skip
def test_a_kind_that_the_public_rows_contradict_is_refused_in_a_sentence(
    line, message, typed, called
):
    declared(typed, line, 'code = "ignore"')
    result = called("run", "config.toml", cwd=typed)
    assert message in refusal(result, result.returncode)
    assert result.returncode in (1, 2)


def test_a_misspelled_column_to_ignore_would_stay_a_feature_and_is_refused(typed, called):
    configure(typed, private='ignore = ["cdoe"]\nentity = "patient"')
    result = called("run", "config.toml", cwd=typed)
    assert "Neither has 'cdoe'; check the spelling" in refusal(result, result.returncode)
    assert result.returncode in (1, 2)


@given(st.text(), st.lists(st.text(), min_size=1, max_size=3))
def test_names_and_categories_survive_toml(name, categories):
    column = {"kind": "category", "categories": categories, "missing": 0}
    try:
        f"{name}{categories}".encode()
    except UnicodeEncodeError:
        return  # half a character, which no file holds
    assert tomllib.loads("\n".join(_lines(name, column))) == {name: categories}
