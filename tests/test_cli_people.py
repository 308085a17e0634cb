"""``tutelage run`` where every person is a teacher: what is the same for votes and for ballots of vectors."""

from pathlib import Path

import numpy as np
import pytest

from runs_of_people import NEAREST, VECTORS, configure_people, write_people
from test_cli import tutelage
from tutelage.students import load_student
from tutelage.tables import read_csv

pytestmark = pytest.mark.usefixtures("in_this_process", "repeatable")


@pytest.fixture(params=[NEAREST, VECTORS], ids=["nearest", "vectors"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    write_people(tmp_path)
    configure_people(tmp_path, request.param)
    result = tutelage("run", "config.toml", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    return tmp_path


def test_its_student_predicts_from_the_file(folder):
    student = load_student(folder / "out" / "student.skops")
    public = read_csv(folder / "public.csv")
    columns = {name: public.column(name) for name in ("age", "dose", "ward")}
    assert np.mean(student.predict(columns) == np.array(public.column("ill"))) > 0.8


def test_a_second_run_says_the_same_and_costs_nothing(folder):
    labels = (folder / "out" / "labels.csv").read_bytes()
    again = tutelage("run", "config.toml", "--overwrite", cwd=folder)
    assert again.returncode == 0, again.stderr
    assert "Every query was labeled before. The labels are the same, and nothing was spent" in " ".join(
        again.stdout.split()
    )
    assert "may be mostly noise" not in again.stderr
    assert (folder / "out" / "labels.csv").read_bytes() == labels
    assert tutelage("ledger", "verify", "private.csv.ledger", cwd=folder).returncode == 0
