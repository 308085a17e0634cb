"""``tutelage run`` where every person is a teacher: what is the same for votes and for ballots of vectors."""

from pathlib import Path

import numpy as np
import pytest

from runs_of_people import CAPPED, NEAREST, VECTORS, configure_people, write_people
from test_cli import ran, refusal, tutelage
from tutelage.students import load_student
from tutelage.tables import read_csv

pytestmark = pytest.mark.usefixtures("in_this_process", "repeatable")


@pytest.fixture(params=[NEAREST, VECTORS], ids=["nearest", "vectors"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    write_people(tmp_path)
    configure_people(tmp_path, request.param)
    ran(tmp_path)
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


MECHANISM = '[mechanism]\nname = "{}"\n{}'


@pytest.mark.parametrize(
    ("by", "sections", "said"),
    [
        (NEAREST, {"private": 'silo = "ward"'}, "`silo` in [private]"),
        (NEAREST, {"privacy": 'proposal = "p.json"'}, "`proposal` in [privacy]"),
        (NEAREST, {"more": MECHANISM.format("gnmax", "sigma = 3.0\ncap = 2")}, "must be one of capped"),
        (
            NEAREST,
            {"more": MECHANISM.format("confident", "threshold = 3.0\nsigma = 2.0")},
            "`threshold` is not a setting",
        ),
        (
            NEAREST,
            {"more": MECHANISM.format("noisy-sum", "noise_multiplier = 3.0")},
            "`noise_multiplier` is not a setting",
        ),
        (NEAREST, {"parameters": ""}, "[teachers.parameters] does not fit"),
        (NEAREST, {"parameters": "parameters = { cap = 0 }"}, "`cap` of NearestQueries"),
        (NEAREST, {"more": '[student]\nestimator = "closed-form"'}, "can be 'closed-form'"),
        (NEAREST, {"teacher": "ClassMeans", "parameters": "", "more": CAPPED.format(3.0, 2)}, "must not be capped"),
        (VECTORS, {"public": "queries = 10"}, "`queries` in [public] is about votes"),
        (VECTORS, {"public": "rounds = 2"}, "`rounds` in [public] is about votes"),
        (VECTORS, {"public": 'selection = "medoids"'}, "`selection` in [public] is about votes"),
        (VECTORS, {"private": 'silo = "ward"'}, "`silo` in [private]"),
        (VECTORS, {"privacy": 'proposal = "p.json"'}, "`proposal` in [privacy] is about a cost"),
        (VECTORS, {"more": MECHANISM.format("gnmax", "sigma = 3.0")}, "`sigma` is not a setting of [mechanism]"),
        (VECTORS, {"more": MECHANISM.format("gnmax", "noise_multiplier = 3.0")}, "must be 'noisy-sum'"),
        (VECTORS, {"more": MECHANISM.format("noisy-sum", "noise_multiplier = 0.0")}, "noise_multiplier"),
    ],
)
def test_settings_that_mean_nothing_are_refused_in_one_sentence(by, sections, said, tmp_path):
    write_people(tmp_path)
    configure_people(tmp_path, by, **sections)
    result = tutelage("run", "config.toml", cwd=tmp_path)
    assert said in refusal(result, result.returncode)
    assert not (tmp_path / "private.csv.ledger").exists()


def test_people_who_cast_ballots_are_counted_with_noise_and_may_have_empty_cells(tmp_path):
    write_people(tmp_path)
    rows = (tmp_path / "private.csv").read_text().splitlines()
    place = rows[0].split(",").index("age")
    cells = rows[1].split(",")
    rows[1] = ",".join(["" if number == place else cell for number, cell in enumerate(cells)])
    (tmp_path / "private.csv").write_text("\n".join(rows) + "\n")
    configure_people(tmp_path, VECTORS)
    ran_once = tutelage("run", "config.toml", cwd=tmp_path)
    assert ran_once.returncode == 0, ran_once.stderr
    assert "people who cast ballots" in ran_once.stdout
    assert "empty cells" not in ran_once.stderr
