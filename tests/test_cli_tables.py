"""`tutelage run` on the same rows in every form of a file."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from sklearn.tree import DecisionTreeClassifier

from test_cli import configure, write_people
from tutelage import GNMax, PATEClassifier
from tutelage.exceptions import BudgetContinuedWarning
from tutelage.tables import read_table

pandas = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

pytestmark = pytest.mark.usefixtures("repeatable")

FORMS = {
    "gz": lambda table, path: path.write_bytes(gzip.compress(table.to_csv(index=False).encode())),
    "csv": lambda table, path: table.to_csv(path, sep=";", index=False),
    "tsv": lambda table, path: table.to_csv(path, sep="\t", index=False),
    "parquet": lambda table, path: table.to_parquet(path, index=False),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_people(tmp_path)
    configure(tmp_path, private='unit = "row"')
    return tmp_path


def rewrite(folder: Path, **names: str) -> list[tuple[str, str]]:
    """Write the tables of a folder under other names, and return what changes in the configuration."""
    for old, new in names.items():
        table = pandas.read_csv(folder / f"{old}.csv")
        table["ward"] = table["ward"].astype("category")
        FORMS[new.rpartition(".")[2]](table, folder / new)
    ledger = ("delta = 1e-5", 'delta = 1e-5\nledger = "private.csv.ledger"')
    return [ledger, *((f'"{old}.csv"', f'"{new}"') for old, new in names.items())]


@pytest.mark.parametrize(
    ("private", "public"),
    [("p.csv.gz", "q.csv"), ("p.csv", "q.tsv"), ("p.csv", "q.parquet"), ("p.parquet", "q.parquet")],
)
@pytest.mark.parametrize("entity", ['unit = "row"', 'entity = "patient"'])
def test_a_run_on_other_forms_of_the_files_repeats_the_run_at_no_cost(private, public, entity, folder, called):
    configure(folder, private=entity)
    assert called("run", "config.toml", cwd=folder).returncode == 0
    labels = (folder / "out" / "labels.csv").read_text()
    ledger, *renamed = rewrite(folder, private=private, public=public)
    configure(folder, *renamed, private=entity)
    assert (
        "private.csv.ledger contains the budget of these data"
        in called("run", "config.toml", "--overwrite", cwd=folder).stderr
    )
    configure(folder, ledger, *renamed, private=entity)
    again = called("run", "config.toml", "--overwrite", cwd=folder)
    assert again.returncode == 0, again.stderr
    assert "Every query was labeled before" in again.stdout
    assert (folder / "out" / "labels.csv").read_text() == labels


@pytest.mark.parametrize("read", [read_table, pandas.read_csv], ids=["read_table", "pandas"])
@pytest.mark.parametrize("settings", ['unit = "row"', 'entity = "patient"'])
def test_a_fit_in_python_continues_a_run_at_no_cost(read, settings, folder, called):
    configure(folder, private=settings)
    assert called("run", "config.toml", cwd=folder).returncode == 0
    table, public = (pandas.read_csv(folder / f"{name}.csv") for name in ("private", "public"))
    public = public.drop(columns="ill")
    model = PATEClassifier(
        DecisionTreeClassifier(),
        n_teachers=15,
        mechanism=GNMax(sigma=2.0),
        student=DecisionTreeClassifier(),
        classes=["no", "yes"],
        n_queries=40,
        question="ill",
        unit="patient" if "entity" in settings else "row",
        ledger=folder / "private.csv.ledger",
    )
    people = table["patient"] if "entity" in settings else None
    with pytest.warns(BudgetContinuedWarning):
        model.fit(read(folder / "private.csv"), table["ill"], X_public=public, entity_ids=people)
    assert (model.drawn_, model.remembered_) == (0, 40)
    released = pandas.read_csv(folder / "out" / "labels.csv")["label"]
    assert model.classes_[model.release_.labels].tolist() == released.tolist()
    again = called("run", "config.toml", "--overwrite", cwd=folder)  # the data are those of before to both
    assert "Every query was labeled before" in again.stdout, again.stderr


MERGED = 'classes = { sick = ["yes", "maybe"], well = ["no"] }'


def spelled_otherwise(folder: Path) -> None:
    """Write some of the private labels in another way."""
    table = pandas.read_csv(folder / "private.csv")
    table.loc[table.index % 2 == 0, "ill"] = table["ill"].replace("yes", "maybe")
    table.to_csv(folder / "private.csv", index=False)


def merged(folder: Path, classes: str = MERGED, **sections: str) -> None:
    configure(folder, ('classes = ["no", "yes"]', classes), **sections)


def test_labels_are_merged_into_classes(folder, called):
    spelled_otherwise(folder)
    merged(folder)
    run = called("run", "config.toml", "--json", cwd=folder)
    assert run.returncode == 0, run.stderr
    card: dict[str, Any] = json.loads(run.stdout)
    assert card["classes"] == ["sick", "well"]
    assert card["student_accuracy"] > 0.9
    assert set((folder / "out" / "labels.csv").read_text().split()[1:]) <= {
        f"{row},{name}" for row in range(40) for name in ("sick", "well")
    }


def test_a_label_in_no_class_is_not_quoted(folder, called):
    spelled_otherwise(folder)
    merged(folder, MERGED.replace(', "maybe"', ""))
    refused = called("run", "config.toml", cwd=folder)
    assert refused.returncode == 1
    assert "contains a value that is not among `classes`" in refused.stderr
    assert "maybe" not in refused.stderr


def test_free_text_is_refused_unless_it_is_ignored(folder, called):
    for name in ("private", "public"):
        table = pandas.read_csv(folder / f"{name}.csv")
        table["notes"] = [f"note {row}" for row in range(len(table))]
        table.to_csv(folder / f"{name}.csv", index=False)
    refused = called("run", "config.toml", cwd=folder)
    assert refused.returncode == 1
    assert "Column 'notes' of the public rows holds text that differs in most rows" in refused.stderr
    configure(folder, private='unit = "row"\nignore = ["notes"]')
    assert called("run", "config.toml", cwd=folder).returncode == 0
