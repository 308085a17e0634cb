"""`tutelage schema` prints what public columns are, and [columns] of a configuration declares it."""

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from test_cli import configure, refusal, write_people
from tutelage.cli.schema import _lines
from tutelage.features import PublicColumns
from tutelage.tables import read_table

pandas = pytest.importorskip("pandas")
pytestmark = pytest.mark.usefixtures("repeatable")

WORDS = "fever cough knee left right pain none since week day arm mild severe no finding home"


def change(folder: Path, name: str, **columns: Any) -> None:
    """Write columns into a csv file of a folder."""
    pandas.read_csv(folder / name).assign(**columns).to_csv(folder / name, index=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
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
    grades = pandas.read_csv(tmp_path / "public.csv")["grade"]
    change(tmp_path, "public.csv", grade=grades.where(grades != "mid"))
    return tmp_path


def declared(folder: Path, *lines: str) -> None:
    configure(folder)
    config = folder / "config.toml"
    config.write_text("\n".join(["[columns]", *lines, config.read_text()]))


def test_a_schema_says_what_each_column_is(folder, called):
    shown = called("schema", "public.csv", "--ignore", "ill", cwd=folder)
    assert shown.returncode == 0, shown.stderr
    columns = tomllib.loads(shown.stdout)["columns"]
    kinds = {"age": "number", "dose": "number", "seen": "date", "note": "text", "code": "ignore"}
    assert columns == {**kinds, "ward": ["north", "south"], "grade": ["", "high", "low"]}
    assert "# Learned from 120 rows of public.csv." in shown.stdout
    assert "# Column 'code' of the public rows holds text that differs in most rows" in shown.stdout
    empty = int(pandas.read_csv(folder / "public.csv")["grade"].isna().sum())
    assert f'grade = ["", "high", "low"]  # empty cells: {empty}' in shown.stdout
    as_json = json.loads(called("schema", "public.csv", "--ignore", "ill", "--json", cwd=folder).stdout)
    assert as_json["rows"] == 120
    assert as_json["columns"]["grade"] == {"kind": "category", "categories": ["", "high", "low"], "missing": empty}
    assert as_json["columns"]["code"]["kind"] == "ignore"


def test_a_schema_is_what_the_public_rows_teach(folder):
    table = read_table(folder / "public.csv")
    names = [name for name in table.columns if name != "code"]
    learned = PublicColumns.learn(table, names)
    again = PublicColumns.learn(table, names, learned.kinds)
    assert again.kinds == learned.kinds
    assert again.transform(table).tobytes() == learned.transform(table).tobytes()


def test_a_run_with_the_printed_schema_is_the_run_without_it(folder, called):
    ignored = 'ignore = ["code"]\nentity = "patient"'
    configure(folder, private=ignored)
    assert called("run", "config.toml", cwd=folder).returncode == 0
    labels = (folder / "out" / "labels.csv").read_text()
    printed = called("schema", "public.csv", "--ignore", "ill", cwd=folder).stdout
    declared(folder, *printed.splitlines()[3:])
    again = called("run", "config.toml", "--overwrite", cwd=folder)
    assert again.returncode == 0, again.stderr
    assert "Every query was labeled before" in again.stdout
    assert (folder / "out" / "labels.csv").read_text() == labels
    assert "code" not in json.loads((folder / "out" / "card.json").read_text())["features"]


def test_a_declared_category_orders_codes_and_adds_what_no_public_row_has(folder, called):
    declared(folder, 'grade = ["low", "mid", "high"]', 'code = "ignore"')
    result = called("run", "config.toml", cwd=folder)
    assert result.returncode == 0, result.stderr
    assert "Private rows have values that no public row has" not in result.stderr


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('ward = "number"', "Column 'ward' of the public rows must hold numbers only, as declared"),
        ('ward = "date"', "Column 'ward' of the public rows must hold dates only"),
        ('ward = ["north", "west"]', "must hold its declared categories: north, west. Got 'south'"),
        ('wrad = "number"', "`wrad` in [columns] must be a column of public.csv. Check the spelling"),
        ('patient = "number"', "`patient` in [columns] is no feature: it is `entity` in [private]. Leave it out"),
        ('ill = "category"', "`ill` in [columns] is no feature: it is `label` in [private]"),
        ('age = "numbers"', "`age` in [columns] must be one of number, date, category, text, ignore"),
        ("age = []", "`age` in [columns] must be one of number"),
        ("age = [1, 1]", "`age` in [columns] must be one of number"),
        ("age = 3", "`age` in [columns] must be one of number"),
        ('age = ["a", ["b"]]', "`age` in [columns] must be one of number"),
    ],
)
def test_a_kind_that_the_public_rows_contradict_is_refused_in_a_sentence(line, message, folder, called):
    declared(folder, line, 'code = "ignore"')
    result = called("run", "config.toml", cwd=folder)
    assert message in refusal(result, result.returncode)
    assert result.returncode in (1, 2)


def test_a_kind_that_the_private_rows_contradict_is_refused_without_a_quote(folder, called):
    change(folder, "private.csv", dose="Mrs Miller")
    declared(folder, 'dose = "number"', 'code = "ignore"')
    result = called("run", "config.toml", cwd=folder)
    assert "Column 'dose' of private.csv holds text, but only numbers in the public rows" in refusal(result, 1)
    assert "Miller" not in result.stderr


@given(st.text(), st.lists(st.text(), min_size=1, max_size=3))
def test_names_and_categories_survive_toml(name, categories):
    column = {"kind": "category", "categories": categories, "missing": 0}
    try:
        f"{name}{categories}".encode()
    except UnicodeEncodeError:
        return  # half a character, which no file holds
    assert tomllib.loads("\n".join(_lines(name, column))) == {name: categories}
