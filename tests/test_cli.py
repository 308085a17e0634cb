"""The command line as a user meets it: real processes, real files, and every refusal one sentence with the fix."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.tree import DecisionTreeClassifier

from conftest import GOLDEN
from processes import descendants, until, wait_for_end
from tutelage.privacy import round_up
from tutelage.reporting import PrivacyCard, read_card
from tutelage.students import load_student
from tutelage.students.store import write_student

pytestmark = pytest.mark.usefixtures("in_this_process", "repeatable")

FILES = """
[private]
file = "private.csv"
{private}

[target]
column = "ill"
classes = ["no", "yes"]

[public]
file = "public.csv"
{public}
"""
CONFIG = (
    FILES
    + """
[method]
name = "teacher-votes"
teacher = "sklearn.tree.DecisionTreeClassifier"
student = "sklearn.tree.DecisionTreeClassifier"
n_teachers = 15
n_queries = 40
mechanism = {{ name = "gnmax", sigma = 2.0 }}

[run]
jobs = 1

[privacy]
delta = 1e-5

[output]
folder = "out"
{output}
"""
)


TEACHER, STUDENT = (
    f'{role} = "sklearn.tree.DecisionTreeClassifier"' for role in ("teacher", "student")
)
TREE = 'teacher = { name = "sklearn.tree.DecisionTreeClassifier", %s }'


def write_rows(
    path: Path, n_rows: int, seed: int, *, extra: dict[str, list[str]] | None = None
) -> None:
    rng = np.random.default_rng(seed)
    age, dose = rng.integers(20, 90, n_rows), rng.uniform(0, 1, n_rows).round(3)
    columns = {"age": age, "dose": dose, "ward": rng.choice(["north", "south"], n_rows)}
    columns |= {"ill": np.where(dose > 0.5, "yes", "no"), **(extra or {})}
    pd.DataFrame(columns).to_csv(path, index=False)


def write_people(folder: Path, private: int = 300, public: int = 120) -> None:
    """Write so many private rows, two of each patient, and public rows."""
    write_rows(
        folder / "private.csv",
        private,
        1,
        extra={"patient": [f"p{i // 2}" for i in range(private)]},
    )
    write_rows(folder / "public.csv", public, 2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_people(tmp_path)
    configure(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture
def finished(runs: Path, tmp_path: Path, called: Any) -> Path:
    """A folder with a configuration and what its run left; it runs once for a module."""
    if not (runs / "said.txt").exists():
        write_people(runs)
        configure(runs)
        (runs / "said.txt").write_text(succeeded(called("run", "config.toml", cwd=runs)).stdout)
    shutil.copytree(runs, tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_new_rows_are_predicted_without_a_ledger(finished, called):
    (finished / "private.csv.ledger").unlink()
    (finished / "new.csv").write_text("name,ward,dose,age\n=x,north,0.95,40\nb,south,0.05,50\n")
    (finished / "less.csv").write_text("ward,age\nnorth,40\n")
    predict = partial(called, "predict", "out", cwd=finished)
    shown = succeeded(predict("new.csv", "--keep", "name", "--probabilities")).stdout
    assert (
        shown
        == "name,prediction,probability of no,probability of yes\n=x,yes,0.0,1.0\nb,no,1.0,0.0\n"
    )
    assert succeeded(predict("new.csv", "--output", "found.csv")).stdout == "Wrote found.csv.\n"
    assert "found.csv" in refusal(predict("new.csv", "--output", "found.csv"), 2)
    assert "less.csv has no column 'dose'" in refusal(predict("less.csv"), 1)
    write_student(
        DecisionTreeClassifier().fit(np.eye(4), ["a", "b", "a", "b"]), finished / "unnamed.skops"
    )
    assert "new.csv does not fit the student" in refusal(
        called("predict", "unnamed.skops", "new.csv", cwd=finished), 1
    )
    with (finished / "out" / "student.skops").open("ab") as file:
        file.write(b"x")
    assert "student.skops" in refusal(predict("new.csv"), 1)


INTERACTIVE = (
    'name = "interactive", sigma = 2.0, threshold = 6, sigma_threshold = 2, confidence = 0.9'
)


def configure(folder: Path, *replacements: tuple[str, str], **sections: str) -> None:
    parts = {"private": 'entity = "patient"', "public": 'label = "ill"', "output": "", **sections}
    text = CONFIG.format(**parts)
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    (folder / "config.toml").write_text(text)


def tutelage(
    *arguments: object, cwd: Path | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tutelage", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, **options)


def ran(folder: Path) -> PrivacyCard:
    """Run the configuration of a folder, and return the card."""
    succeeded(tutelage("run", "config.toml", cwd=folder))
    return read_card(folder / "out" / "card.json")


def heed_interrupts() -> None:
    """Undo what a shell does to commands in the background: they, and all that they start, ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def succeeded(result: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    assert result.returncode == 0, result.stderr
    return result


def refusal(result: subprocess.CompletedProcess[str], code: int, *, problems: int = 1) -> str:
    """Return the one sentence of a refusal, or one for each problem; a configuration may have more."""
    assert result.returncode == code, result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    lines = [line for line in result.stderr.strip().splitlines() if not is_finding(line)]
    assert len(lines) == problems or (code == 2 and len(lines) > problems)
    assert all(line.startswith("tutelage: ") for line in lines)
    return "\n".join(lines)


def is_finding(line: str) -> bool:
    """Whether a line objects to a setting, as a run does before it spends anything: these here have a huge ε."""
    return line.startswith("tutelage: warning: ")


def test_a_run_leaves_a_student_its_labels_and_a_card(finished, called):
    card = read_card(finished / "out" / "card.json")
    assert (card.student.judged.accuracy or 0) > 0.9
    assert (card.release.queries, card.release.teachers, card.epsilon.unit.name) == (
        40,
        15,
        "patient",
    )
    assert card.student.judged.rows == 80
    labels = pd.read_csv(finished / "out" / "labels.csv")["label"]
    assert len(labels) == 40
    assert set(labels) <= {"no", "yes"}
    student = load_student(finished / "out" / "student.skops")
    raw = np.array([[50.0, 0.9, "north"], [50.0, 0.1, "elsewhere"]], dtype=object)
    assert student.predict(raw).tolist() == ["yes", "no"]
    assert "spends more of their budget" in refusal(called("run", "config.toml", cwd=finished), 2)
    again = called("run", "config.toml", "--overwrite", "--json")
    assert all(is_finding(line) for line in again.stderr.splitlines())
    assert json.loads(again.stdout) == json.loads((finished / "out" / "card.json").read_text())


def test_a_run_prints_numbers_of_the_card_only(finished):
    card = read_card(finished / "out" / "card.json")
    judged = card.student.judged
    public = [
        f"{judged.accuracy:.2%}"[:-1],
        f"{round_up(card.epsilon.epsilon):.4f}",
        "1e-05",
        "2.0",
    ]
    public += [f"{judged.majority:.2%}"[:-1], str(card.release.queries), str(card.release.teachers)]
    budget = card.budget
    public += [
        f"{budget.budget:.4f}",
        f"{round_up(budget.spent):.4f}",
        f"{round_up(budget.spent):.4f}",
    ]
    shown = (finished / "said.txt").read_text().replace(budget.head, "")
    assert sorted(re.findall(r"\d+(?:\.\d+)?(?:e-\d+)?", shown)) == sorted(public)


def test_a_student_by_name_learns_from_rows_that_were_not_asked_and_not_from_those_kept(folder):
    configure(
        folder,
        (STUDENT, 'student = { name = "label-propagation", n_neighbors = 5 }'),
        ("queries = 40", 'queries = 30\nselection = "medoids"'),
        public='label = "ill"\nevaluate_last = 20',
        output='[features]\nmap = "pca"\ncomponents = 2',
    )
    card = ran(folder)
    assert (card.student.name, card.student.judged.rows, card.release.queries) == (
        "LabelPropagationStudent",
        20,
        30,
    )
    assert (
        card.release.selection == "medoids, in one round; by public rows and released labels alone"
    )
    asked = pd.read_csv(folder / "out" / "labels.csv")["public_row"].tolist()
    assert (len(set(asked)), max(asked) < 100) == (30, True)
    assert asked != sorted(asked)
    student = load_student(folder / "out" / "student.skops")
    assert [name for name, _ in student.steps] == [
        "publiccolumns",
        "publicpca",
        "labelpropagationstudent",
    ]
    assert len(student[-1].propagated_) == 100
    assert card.release.feature_map == "pca, learned from public.csv, published with the student"


def configure_arrays(folder: Path, **sections: str) -> None:
    files = [(f"{name}.csv", f"{name}.npz") for name in ("private", "public")]
    configure(
        folder, *files, ('column = "ill"\nclasses = ["no", "yes"]', "classes = [0, 1]"), **sections
    )


def test_npz_files_and_numeric_classes_work_too(folder):
    rng = np.random.default_rng(0)
    X, Z = rng.uniform(size=(300, 3)), rng.uniform(size=(100, 3))
    y, z = (X[:, 0] > 0.5).astype(int), (Z[:, 0] > 0.5).astype(int)
    np.savez(folder / "private.npz", X=X, y=y, patient=np.arange(300))
    np.savez(folder / "public.npz", X=Z, y=z)
    configure_arrays(folder, public='label = "y"')
    assert (ran(folder).student.judged.accuracy or 0) > 0.8
    assert load_student(folder / "out" / "student.skops").predict(X[:1]).dtype.kind == "i"


@pytest.mark.parametrize(("private", "message"), [
    ({"X": np.zeros((9, 2)), "y": np.zeros((9, 1), int)}, r"Array 'y' of private.npz must have shape (rows,)."),
    ({"X": np.zeros((9, 2)), "y": np.zeros(8, int)}, "'y' and 'X' of private.npz must have equally many rows."),
    ({"X": np.zeros((9, 3)), "y": np.arange(9) % 2}, "features"),
    ({"X": np.full((9, 2), "Mrs Miller"), "y": np.arange(9) % 2}, "Array 'X' of private.npz must hold numbers."),
])  # fmt: skip
def test_arrays_of_the_wrong_shape_or_kind_are_refused(private, message, folder):
    np.savez(folder / "private.npz", **private)
    np.savez(folder / "public.npz", X=np.zeros((50, 2)))
    configure_arrays(folder, private='unit = "row"', public="")
    shown = refusal(tutelage("run", "config.toml", cwd=folder), 1)
    assert message in shown
    assert "Miller" not in shown


METHOD = 'name = "teacher-votes"'
PUBLIC_LABEL = 'public.csv"\nlabel = "ill"'


@pytest.mark.parametrize(("old", "new", "code", "message"), [
    ("sigma = 2.0", "sigm = 2.0", 2, "`mechanism` in [method] with the name gnmax. Did you mean `sigma`?"),
    (METHOD, 'name = "votes"', 2, "`name` in [method] must be one of noisy-moments, capped-votes, teacher-votes"),
    ("delta = 1e-5", "delta = 2", 2, "`delta` in [privacy] must lie strictly between 0 and 1"),
    (TEACHER, "teacher = 3", 2, "`teacher` in [method] must be a name, or a table with `name` and parameters."),
    (TEACHER, 'teacher = "forest"', 2, "`teacher` in [method] must be a scikit-learn classifier"),
    ("n_queries = 40", 'selection = "best"', 2, "`selection` in [method] must be one of"),
    ("n_queries = 40", 'selection = { name = "random", k = 1 }', 2, "`selection` in [method] do not fit random"),
    ("sigma = 2.0", "sigma = -1", 2, "must be a number of votes between 1e-06 and 1e+15. Got -1."),
    ("sklearn.tree.Dec", "os.Dec", 2, "must be a dotted scikit-learn name"),
    ("DecisionTreeClassifier", "DecisionTreeRegressor", 2, "must be a classifier"),
    ('["no", "yes"]', '["no", 1]', 2, "must be all text or all numbers"),
    (TEACHER, TREE % "max_depth = -1", 2, "`teacher` in [method] must train without an error"),
    ("queries = 40", "queries = 400", 2, "`n_queries` in [method] must be at most 120, the number of public rows"),
    ("queries = 40", 'queries = 40\nselection = "least-confident"', 2, "`rounds` in [method] must be at least 2"),
    ("[output]", '[features]\nmap = "hog"\n[output]', 2, "`map` in [features] must be one of images, pca, steps."),
    (PUBLIC_LABEL, 'public.csv"\nlabel = "sick"', 1, "public.csv has no column 'sick'"),
    (PUBLIC_LABEL, 'public.csv"\nlabel = "ward"', 1, "`label` holds 'north', which is not among the classes"),
    ("public.csv", "public.npz", 2, "must both be tables (.csv, .tsv or .txt, also .gz; or .parquet) or both"),
    ('folder = "out"', 'folder = "public.csv"', 2, "must be a folder, and public.csv is not a folder"),
    ("[output]", "[features]\ncomponents = 3\n[output]", 2, "`components` in [features] must be left out"),
    ('entity = "patient"', 'silo = "ill"', 2, "must be other columns than `column` in [target]. Got"),
    ('entity = "patient"', 'entity = "pateint"', 1, "has no column 'pateint'. Is its first line a header?"),
    ('entity = "patient"', 'silo = "ward"\nentity = "patient"', 1, "An entity has rows in more than one shard"),
])  # fmt: skip
def test_a_wrong_configuration_is_refused_with_the_fix(old, new, code, message, folder, called):
    configure(folder, (old, new))
    assert message in refusal(called("run", "config.toml", cwd=folder), code)


@pytest.mark.parametrize(("old", "new", "message"), [
    (",yes,p1", ",maybe,p1", "hold a value that is not among the declared `classes`"),
    ("\n", "\nMrs Miller", "Column 'age' of private.csv holds text"),
])  # fmt: skip
def test_private_rows_are_refused_without_quoting(old, new, message, folder):
    (folder / "private.csv").write_text((folder / "private.csv").read_text().replace(old, new, 1))
    shown = refusal(tutelage("run", "config.toml", cwd=folder), 1)
    assert message in shown
    assert not re.search("maybe|Miller", shown)


@pytest.mark.rest
@pytest.mark.parametrize(
    ("send", "number", "code"), [(os.killpg, signal.SIGINT, 130), (os.kill, signal.SIGTERM, 143)]
)
def test_an_interrupted_run_says_so_and_continues(send, number, code, folder):
    configure(
        folder,
        (
            TEACHER,
            'teacher = { name = "sklearn.ensemble.RandomForestClassifier", n_estimators = 60 }',
        ),
        ("n_teachers = 15", "n_teachers = 18"),
        ("jobs = 1", "jobs = 2"),
    )
    command = [sys.executable, "-m", "tutelage", "run", "config.toml"]
    piped: Any = {
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
        "start_new_session": True,
    }
    process = subprocess.Popen(command, cwd=folder, preexec_fn=heed_interrupts, **piped)
    checkpoints = folder / "private-out" / "checkpoints"
    until(lambda: len(list(checkpoints.glob("*.npz"))) >= 4, process)
    workers = descendants(process.pid)
    send(process.pid, number)  # a terminal sends Ctrl-C to the workers too
    stdout, stderr = process.communicate()
    assert process.returncode == code, stderr
    for worker in workers:
        wait_for_end(worker)
    assert stdout == ""
    assert "interrupted; no results were written" in stderr
    assert "The teachers trained so far are kept in private-out" in stderr
    assert "Traceback" not in stderr
    assert 4 <= len(list(checkpoints.glob("*.npz"))) < 18
    assert not (folder / "out" / "card.json").exists()
    (folder / "config.toml").write_text(
        (folder / "config.toml").read_text().replace("jobs = 2", "jobs = 1")
    )
    assert tutelage("run", "config.toml", cwd=folder).returncode == 0
    assert (folder / "out" / "card.json").exists()
    assert not checkpoints.exists()


def test_published_figures_stand_beside_the_run(folder):
    published = '[[published]]\nsource = "paper"\nepsilon = 7.25\n[[published]]\nsource = "none"\nnote = "no privacy"'
    configure(folder, output=published)
    shown = tutelage("run", "config.toml", cwd=folder).stdout
    assert "7.25" in shown
    assert "no privacy" in shown
    # The student's, twice; the paper's δ was not given, so none is invented.
    assert shown.count("1e-05") == 2


@pytest.mark.rest
def test_account_hides_what_depends_on_the_votes():
    arguments = ("account", GOLDEN / "votes.npz", "--array", "mnist_like_100", "--delta", 1e-5)
    laplace = (*arguments, "--mechanism", "lnmax", "--scale", 20)
    hidden, shown = tutelage(*laplace), tutelage(*laplace, "--reveal-private")
    assert "2.5033" in hidden.stdout
    assert "1.4547" not in hidden.stdout
    assert "1.4547" in shown.stdout
    bound = json.loads(tutelage(*laplace, "--json").stdout)["bound_2017"]
    assert bound | {"method": ""} == {
        "epsilon": None,
        "order": None,
        "publishable": False,
        "method": "",
    }


@pytest.mark.parametrize(("options", "code", "message"), [
    ("--mechanism lnmax --sigma 3", 2, "--mechanism lnmax needs `--scale`. Add it."),
    ("--mechanism gnmax --sigma 3 --first 101", 1, "holds 100 queries"),
    ("--mechanism gnmax --sigma 3 --array mnist", 1, "has no array 'mnist'"),
])  # fmt: skip
def test_account_refuses_in_one_sentence(options, code, message, called):
    given = ("--array", "mnist_like_100", "--delta", "1e-5", *options.split())
    assert message in refusal(called("account", GOLDEN / "votes.npz", *given), code)
