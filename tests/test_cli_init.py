"""The wizard: by options, by a pipe and at a terminal; the file that it writes runs, and no private cell is shown."""

import io
import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from test_cli import refusal, succeeded, write_rows
from test_docs import blocks, executed
from test_guides import assert_shown
from tutelage.cli.config import load_config
from tutelage.cli.form import configuration_form
from tutelage.cli.init import configuration
from tutelage.cli.sources import load_sources

pytestmark = pytest.mark.usefixtures("repeatable")

SECRET = "Mrs-Miller-of-9-Elm-Street"  # noqa: S105  a cell
FLAGS = {
    "private": "stays.csv", "person": "patient_nbr", "label": "ill", "classes": "no,yes", "public": "clinic.csv",
    "goal": "accuracy", "epsilon": "4", "output": "my.toml",
}  # fmt: skip
ANSWERS = [
    "stays.csv",
    "",
    "ill",
    "clinic.csv",
    "",
    "balanced accuracy",
    "advise",
    "4",
    "",
    "private",
]


class Terminal(io.StringIO):
    """Lines that are typed at a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with private stays of patients, whose cells and labels hold a secret, and public rows of two kinds."""
    people = {"patient_nbr": [f"{SECRET}-{row // 2}" for row in range(600)], "note": [SECRET] * 600}
    write_rows(tmp_path / "stays.csv", 600, 1, extra=people)
    write_rows(tmp_path / "clinic.csv", 150, 2)
    pd.read_csv(tmp_path / "clinic.csv").drop(columns="ill").to_csv(
        tmp_path / "unlabeled.csv", index=False
    )
    (tmp_path / "schema.toml").write_text(
        '[schema]\nage = [20, 90]\ndose = [0.0, 1.0]\nward = ["north", "south"]\n'
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    return tmp_path


def flags(**changed: str | None) -> list[str]:
    given = {**FLAGS, **changed}
    return [
        part
        for name, value in given.items()
        if value is not None
        for part in (f"--{name.replace('_', '-')}", value)
    ]


def written(name: str = "my.toml") -> dict[str, Any]:
    return tomllib.loads(Path(name).read_text())


@pytest.mark.parametrize("changed", [
    {"person": "each row", "ids": "ignore", "goal": "recall at 5%"}, {"public": "unlabeled.csv", "people": "300"},
    {"public": "schema.toml", "goal": "average precision"},
], ids=str)  # fmt: skip
def test_with_flags_nothing_is_asked_and_the_file_runs(changed, folder, called):
    made = succeeded(called("init", *flags(**changed)))
    assert made.stdout.startswith("Wrote my.toml, with comments.\nNext: tutelage")
    if "people" in changed:
        assert "vector ballots" in succeeded(called("plan", "--for", "my.toml")).stdout
    run = succeeded(called("run", "my.toml"))
    assert "Card: my-results/card.html" in run.stdout
    for shown in (made, run):
        assert SECRET not in shown.stdout + shown.stderr
    assert SECRET not in (folder / "my.toml").read_text()


def test_the_file_says_what_was_answered(folder, called):
    (folder / "sub").mkdir()
    succeeded(called("init", *flags(people="250,000", public_label="ill", output="sub/sub.toml")))
    assert written("sub/sub.toml") == {
        "private": {
            "file": "../stays.csv", "entity": "patient_nbr", "people": 200_000,
        },
        "target": {"column": "ill", "classes": ["no", "yes"], "goal": "accuracy"},
        "public": {"file": "../clinic.csv", "label": "ill", "evaluate_last": 30},
        "privacy": {"epsilon": 4.0, "delta": 1e-6},
        "output": {"folder": "sub-results"},
    }  # fmt: skip


def test_questions_are_answered_by_a_pipe(folder, called, monkeypatch):
    wrong = [
        "nowhere.csv",
        *ANSWERS[:2],
        "i11",
        "ill",
        "none",
        *ANSWERS[3:6],
        "-1",
        "advise",
        "1",
        "many",
        "12",
    ]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join([*wrong, "1", "", "20,400", ""])))
    made = succeeded(called("init"))
    assert "Then: tutelage run stays.toml --as NAME\n" in made.stdout
    for said in (
        "nowhere.csv cannot be read",
        "must be a schema file",
        "--epsilon must be",
        "--people must be",
    ):
        assert said in made.stderr
    assert written("stays.toml")["target"] == {
        "column": "ill",
        "classes": ["no", "yes"],
        "goal": "balanced_accuracy",
    }
    assert written("stays.toml")["privacy"] == {"budget": 1.0, "releases": 12, "delta": 1e-5}
    assert written("stays.toml")["private"]["people"] == 20_000  # rounded
    assert written("stays.toml")["private"]["entity"] == "patient_nbr"  # the default, by its name
    assert SECRET not in made.stdout + made.stderr + (folder / "stays.toml").read_text()


def test_junk_on_a_pipe_ends_after_a_few_questions(folder, called, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("junk\n" * 1000))
    result = called("init")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.count("Private file: junk") == 10
    assert not (folder / "stays.toml").exists()


def test_without_a_terminal_a_missing_answer_is_a_sentence_that_names_the_flag(folder, called):
    for name, more in (("person", {}), ("epsilon", {}), ("classes", {"public": "unlabeled.csv"})):
        message = refusal(called("init", *flags(**{name: None, **more})), 2)
        assert message.startswith(
            f"tutelage: --{name} is missing, and there is no terminal to ask for it: "
        )
        assert not (folder / "my.toml").exists()


@pytest.mark.parametrize(("changed", "code", "said"), [
    ({"person": "ill"}, 2, "--label must be another column than --person. Got 'ill' for both."),
    ({"public": "stays.csv"}, 2, "--public must be another file than --private"),
    ({"public": "other.csv"}, 2, "must have the same columns as stays.csv"),
    ({"public": "wrong.toml"}, 2, "wrong.toml must describe features of stays.csv only. Remove 'ill'."),
    ({"public_label": "age", "classes": None}, 2, "--public-label must have at most 10 different values"),
    ({"goal": "average precision", "classes": "no,yes,maybe"}, 2, "needs exactly two classes. Got 3"),
    ({"people": "5000", "delta": "0.001"}, 2, "--delta must be below 1 / the number of people. Got 0.001 for 5000"),
    ({"public": "schema.toml", "public_label": "ill"}, 2, "--public-label does not go with the other answers"),
    ({"output": "clinic.csv"}, 2, "clinic.csv already exists. Name another file with --output."),
], ids=str)  # fmt: skip
def test_a_wrong_answer_is_refused_in_one_sentence(
    changed, code, said, folder, called, monkeypatch
):
    monkeypatch.setattr("tutelage.cli.init._MOST_CLASSES", 10)
    (folder / "other.csv").write_text("size,weight\n1,2\n")
    (folder / "wrong.toml").write_text('[schema]\nill = ["no", "yes"]\n')
    before = {path: path.read_bytes() for path in folder.iterdir()}
    message = refusal(called("init", *flags(**changed)), code)
    assert said in message
    assert SECRET not in message
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("table", [
    f"{SECRET},x{SECRET}\n1,2\n", f"patient {SECRET},59,no\npatient 4712,60,yes\n",  # no header
    f"patient_nbr,ill\n1,no\n2,no,{SECRET}\n", f'patient_nbr,ill\n1,"{SECRET}\n2",yes\n', f"ill,ill\n{SECRET},1\n",
])  # fmt: skip
def test_no_private_cell_of_a_broken_table_is_shown(table, folder, called, monkeypatch):
    (folder / "stays.csv").write_text(table)
    for answers in ([], ANSWERS):
        monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(answers)))
        refused = called("init", *([] if answers else flags()))
        assert refused.returncode in (1, 2)
        assert SECRET not in refused.stdout + refused.stderr


def test_with_a_row_for_each_person_the_number_of_rows_decides_delta(folder, called):
    rows = (folder / "stays.csv").read_text().splitlines()
    (folder / "stays.csv").write_text("\n".join([rows[0], *rows[1:] * 200, ""]))
    succeeded(called("init", *flags(person="each row", ids="keep")))
    assert written()["privacy"]["delta"] == 1e-6


def test_each_row_of_a_file_with_ids_needs_a_second_answer_and_ids_are_no_feature(
    folder, called, monkeypatch
):
    for name, number in (("stays", 600), ("clinic", 150)):
        ids = [f"{row // 2}" for row in range(number)]
        write_rows(
            folder / f"{name}.csv", number, number, extra={"patient_nbr": ids, "case_id": ids}
        )
    for given in (flags(person="each row"), flags(person="each row", ids="yes")):
        assert "--ids" in refusal(called("init", *given), 2)
        assert not (folder / "my.toml").exists()
    monkeypatch.setattr(
        sys,
        "stdin",
        io.StringIO("\n".join(["stays.csv", "each row", "ignore", "ill", "clinic.csv"])),
    )
    asked = called("init", "--epsilon", "4", "--goal", "accuracy", "--output", "my.toml")
    assert "These columns look like ids of people: patient_nbr" in asked.stderr
    assert written()["private"]["ignore"] == ["patient_nbr", "case_id"]
    assert not {"patient_nbr", "case_id"} & {
        *load_sources(load_config(Path("my.toml"))).public.columns
    }
    kept = succeeded(called("init", *flags(person="each row", ids="keep", output="kept.toml")))
    assert (
        "Column 'patient_nbr' repeats as the id of a person does, and is a feature of the student"
        in kept.stderr
    )


@pytest.mark.parametrize(("typed", "planned"), [("", [Path("stays.toml")]), ("n", [])])
def test_the_wizard_ends_with_a_plan_or_offers_one(typed, planned, folder, called, monkeypatch):
    plans = []
    monkeypatch.setattr("tutelage.cli.plan.plan", lambda configuration: plans.append(configuration))
    monkeypatch.setattr(sys, "stdin", Terminal("\n".join([*ANSWERS[:-1], "300", typed, ""])))
    succeeded(called("init"))
    assert plans == planned
    assert written("stays.toml")["private"]["people"] == 300


def test_a_sorted_tail_stops_a_run_before_it_spends(folder, called, monkeypatch):
    header, *rows = (folder / "clinic.csv").read_text().splitlines()
    (folder / "clinic.csv").write_text(
        "\n".join([header, *sorted(rows, key=lambda row: row.split(",")[3]), ""])
    )
    made = succeeded(called("init", *flags(public_label="ill")))
    assert "The last 30 public rows, which score the student, differ" in made.stderr
    for typed in (io.StringIO(), Terminal("n\n")):
        monkeypatch.setattr(sys, "stdin", typed)
        stopped = called("run", "my.toml")
        assert stopped.returncode == 1
        assert "Nothing was spent. Shuffle the public rows" in stopped.stderr
        assert not (folder / "stays.csv.ledger").exists()
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    succeeded(called("run", "my.toml"))
    card = json.loads((folder / "my-results" / "card.json").read_text())
    assert "refusals-overridden" not in [one["code"] for one in card["findings"]]


def test_a_notebook_gets_the_same_text(folder, called):
    for old, new in (("stays", "people"), ("clinic", "public")):
        text = (folder / f"{old}.csv").read_text()
        (folder / f"{new}.csv").write_text(
            text.replace("patient_nbr", "person", 1).replace("ill", "income", 1)
        )
    executed(blocks("docs/configuration.md", "python")[:1])
    assert written("people.toml")["private"]["entity"] == "person"
    succeeded(called("init", *flags(people="5000")))
    made = configuration("stays.csv", "patient_nbr", "ill", "clinic.csv", epsilon=4, classes=["no", "yes"],
                         people=5000, folder="my-results")  # fmt: skip
    assert made == (folder / "my.toml").read_text()


def test_a_form_in_a_notebook_writes_the_same_and_says_what_is_wrong(folder, capsys):
    form = configuration_form()
    fields = {one._kwarg: one for one in form.kwargs_widgets}
    answers = {
        "private": "stays.csv",
        "person": "patient_nbr",
        "label": "ill",
        "public": "clinic.csv",
        "epsilon": "1",
    }
    for name, answer in {**answers, "file": "form.toml"}.items():
        fields[name].value = answer
    form.update()
    made = configuration(**{**answers, "epsilon": 1}, folder="form-results")
    assert (folder / "form.toml").read_text() == made
    fields["label"].value = "patient_nbr"
    form.update()
    assert "--label must be another column" in capsys.readouterr().err


class Typed(Terminal):
    """A terminal that shows what is typed."""

    def readline(self, *_: object) -> str:
        line = super().readline()
        sys.stderr.write(f" {line}")
        return line


def test_the_documented_session_is_what_the_wizard_says(tmp_path, called, monkeypatch):
    (session,) = blocks("docs/configuration.md", "text")
    people = [f"{row // 2},{20 + row % 60},{('low', 'high')[row % 2]}" for row in range(2000)]
    (tmp_path / "people.csv").write_text("\n".join(["person,age,income", *people, ""]))
    public = [line.partition(",")[2] for line in people[:500]]
    (tmp_path / "public.csv").write_text("\n".join(["age,income", *public, ""]))
    typed = [
        "people.csv",
        "person",
        "income",
        "public.csv",
        "",
        "",
        "advise",
        "0.5",
        "",
        "16000",
        "n",
    ]
    monkeypatch.setattr(sys, "stdin", Typed("\n".join([*typed, ""])))
    made = succeeded(called("init", cwd=tmp_path))
    said = session.splitlines()
    assert_shown("\n".join([*said[1:-4], said[-1]]), made.stderr)
    assert_shown("\n".join(said[-4:-1]), made.stdout)


class Interrupted(Terminal):
    """A terminal where Ctrl-C is pressed after a few lines."""

    def readline(self, *_: object) -> str:
        line = super().readline()
        if not line:
            raise KeyboardInterrupt
        return line


def test_an_interruption_leaves_nothing_behind(folder, called, monkeypatch):
    before = {path.name for path in folder.iterdir()}
    monkeypatch.setattr(sys, "stdin", Interrupted("".join(f"{line}\n" for line in ANSWERS[:4])))
    done = called("init")
    assert done.returncode == 130
    assert "tutelage: interrupted; nothing was written." in done.stderr
    assert {path.name for path in folder.iterdir()} == before
