"""`tutelage run` on rows that are read in batches, and labels that are merged into classes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from test_cli import write_people
from tutelage import PATEClassifier, SimulationNoise
from tutelage.students import load_student
from tutelage.tables import read_batches, read_table

polars = pytest.importorskip("polars")

CLASSES = {"yes": ["<30", ">30"], "no": ["NO"]}
CONFIG = """
privacy = {{ epsilon = 2.0, delta = 1e-5 }}
output.folder = "{folder}"
public = {{ file = "public.parquet", label = "readmitted", evaluate_last = 50 }}
target = {{ column = "readmitted", classes = {{ yes = ["<30", ">30"], no = ["NO"] }} }}
[private]
file = "{file}"
{private}
"""


def admissions(path: Path) -> Any:
    """Return rows of a csv file, with three labels in place of two."""
    soon = polars.when(polars.col("age") > 55).then(polars.lit("<30")).otherwise(polars.lit(">30"))
    readmitted = polars.when(polars.col("ill") == "no").then(polars.lit("NO")).otherwise(soon)
    return polars.read_csv(path).with_columns(readmitted=readmitted).drop("ill")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_people(tmp_path, 1500, 200)
    admissions(tmp_path / "private.csv").write_parquet(
        tmp_path / "private.parquet", row_group_size=400
    )
    admissions(tmp_path / "public.csv").write_parquet(tmp_path / "public.parquet")
    return tmp_path


def configure(folder: Path, output: str, private: str, file: str = "private.parquet") -> None:
    (folder / "config.toml").write_text(CONFIG.format(folder=output, private=private, file=file))


@pytest.fixture
def ran(folder, called):
    """Run a configuration, and return its card."""

    def run(output: str, private: str) -> dict:
        configure(folder, output, private)
        done = called("run", "config.toml", "--json", cwd=folder)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_a_run_in_batches_is_the_run_in_memory(folder, ran, monkeypatch):
    public = polars.read_parquet(folder / "public.parquet").rename({"readmitted": "again"})
    public.write_parquet(folder / "public.parquet")
    # A method is named, or a plan would choose one where the rows are in memory.
    named = CONFIG.replace('label = "readmitted", evaluate', 'label = "again", evaluate')
    monkeypatch.setitem(globals(), "CONFIG", f'method.name = "noisy-moments"\n{named}')
    monkeypatch.setattr("tutelage.tables.read_batches.__kwdefaults__", {"rows_at_once": 512})
    ids = 'entity = "patient"\nignore = ["ward"]'
    whole, parts = ran("whole", ids), ran("parts", f"{ids}\nbatches = true")
    assert parts["budget"]["spent"] == whole["budget"]["spent"], (
        "the second run did not know the rows of the first"
    )
    assert parts["student"] == whole["student"]
    same = ("classes", "features", "teachers", "mechanism")
    assert [parts["release"][name] for name in same] == [whole["release"][name] for name in same]
    assert (folder / "parts" / "labels.csv").read_bytes() == (
        folder / "whole" / "labels.csv"
    ).read_bytes()
    rows = read_table(folder / "public.parquet")
    one, other = (load_student(folder / name / "student.skops") for name in ("whole", "parts"))
    assert np.array_equal(one.predict_proba(rows), other.predict_proba(rows))
    judged = parts["student"]["judged"]["by_class"]
    assert sum(one["right"] for one in judged) > 0.6 * sum(one["rows"] for one in judged)


def test_what_a_run_in_batches_warns_of_is_seen_in_the_first_batch(folder, called):
    configure(folder, "out", "batches = true")
    refused = called("run", "config.toml", cwd=folder)
    assert refused.returncode == 1
    assert (
        "Column 'patient' of the private rows repeats as the id of a person does" in refused.stderr
    )
    assert not list(folder.glob("*.ledger"))
    configure(folder, "out", 'batches = true\nunit = "row"')
    done = called("run", "config.toml", cwd=folder)
    assert "Column 'patient'" not in done.stderr
    assert "A class has fewer than" not in done.stderr


@pytest.mark.parametrize(("private", "file", "message"), [
    ("batches = true", "private.csv", "`batches` in [private] is for a Parquet file"),
    ('batches = true\n[method]\nname = "capped-votes"', "private.parquet", "must take rows in batches"),
])  # fmt: skip
def test_batches_are_for_parquet_and_ballots_of_people(folder, called, private, file, message):
    configure(folder, "out", private, file)
    done = called("run", "config.toml", cwd=folder)
    assert done.returncode == 2
    assert message in done.stderr


def model(**settings: object) -> PATEClassifier:
    return PATEClassifier(
        **{"epsilon": 2.0, "noise": SimulationNoise(0), "classes": CLASSES, **settings}
    )


@pytest.mark.rest
def test_labels_are_merged_in_python_as_in_a_configuration(folder):
    file, public = folder / "private.parquet", read_table(folder / "public.parquet")
    names = {label: name for name, labels in CLASSES.items() for label in labels}
    merged = polars.read_parquet(file).with_columns(polars.col("readmitted").replace(names))
    by_hand: Any = model(classes=["yes", "no"]).fit(
        merged, "readmitted", X_public=public, entity_ids="patient"
    )
    found: Any = model().fit(
        read_batches(file), "readmitted", X_public=public, entity_ids="patient"
    )
    sums: Any = zip(found.ballots_, by_hand.ballots_, strict=True)
    assert all(np.array_equal(one.totals, other.totals) for one, other in sums)
    assert found.classes_.tolist() == ["no", "yes"]
