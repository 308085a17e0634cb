"""Documentation runs: every Python block, every configuration, every link between pages, every doctest."""

import contextlib
import doctest
import importlib
import io
import pkgutil
import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from conftest import FITS_AGAIN, REPOSITORY
from test_cli import finished, runs, succeeded  # noqa: F401  fixtures
from tutelage.accounting import data_independent
from tutelage.cli.config import load_config
from tutelage.datasets import load_adult
from tutelage.mechanisms import NoisySum
from tutelage.methods import METHODS
from tutelage.students import load_student

pytestmark = pytest.mark.usefixtures("repeatable")

PAGES = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")])


def blocks(page: str, language: str) -> list[str]:
    return re.findall(
        rf"^```{language}\n(.*?)^```", (REPOSITORY / page).read_text(), re.MULTILINE | re.DOTALL
    )


def executed(examples: list[str], **names: Any) -> dict[str, Any]:
    """Run examples of our own documentation; return the names that they leave, and as `printed` what they print."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for example in examples:
            exec(example, names)  # noqa: S102
    return {**names, "printed": printed.getvalue().strip()}


@pytest.mark.rest
def test_the_readme_example_prints_what_it_says(tmp_path, monkeypatch):
    adult, names = load_adult(), np.array(["no", "yes"])
    private = pd.DataFrame(adult.X_private, columns=adult.feature_names).assign(
        readmitted=names[adult.y_private]
    )
    private.rename_axis("patient_id").to_csv(tmp_path / "patients.csv")
    public = pd.DataFrame(adult.X_public, columns=adult.feature_names).assign(
        readmitted=names[adult.y_public]
    )
    public[:5000].to_csv(tmp_path / "public.csv", index=False)
    monkeypatch.chdir(tmp_path)
    printed = executed(blocks("README.md", "python")[:1])["printed"]
    assert printed == "ε = 1.0 at δ = 1e-05"
    assert printed in (REPOSITORY / "README.md").read_text()
    student, others = load_student(Path("results") / "student.skops"), public[5000:]
    assert 0.845 < np.mean(student.predict(others) == others["readmitted"]) < 0.865


@pytest.mark.filterwarnings("ignore::tutelage.exceptions.OneClassWarning")
def test_methods_are_named_and_written_as_documented(tmp_path, monkeypatch):
    models = executed(blocks("docs/methods.md", "python"))["models"]
    monkeypatch.setattr("tutelage.methods.METHODS", METHODS.copy())  # to which the example adds
    found = runpy.run_path(str(REPOSITORY / "examples" / "own_method.py"), run_name="__main__")
    assert 0.999 < found["model"].epsilon_.epsilon <= 1.0
    assert found["model"].predict_proba(np.zeros((1, 2)))[0] == pytest.approx([0.3, 0.7], abs=0.1)
    monkeypatch.setitem(METHODS, "class-frequencies", found["ClassFrequencies"])
    methods = []
    for section in (
        *blocks("docs/methods.md", "toml"),
        *blocks("docs/howto/own-method.md", "toml"),
    ):
        epsilon = "" if "mechanism" in section else "[privacy]\nepsilon = 1.0\n"
        (tmp_path / "config.toml").write_text(
            f'dataset = "adult"\n{section}\n{epsilon}[output]\nfolder = "out"\n'
        )
        methods.append(load_config(tmp_path / "config.toml").method)
    assert methods == [models[2].method, found["ClassFrequencies"](mechanism=NoisySum(8.0))]


@pytest.mark.rest
def test_ballots_of_vectors_are_used_as_documented(tmp_path):
    epsilon, _, accuracy = executed(blocks("docs/ballots.md", "python")[:1])["printed"].rpartition(
        " "
    )
    assert 0.499 < float(epsilon.split()[2]) <= 0.5
    assert 0.845 < float(accuracy) < 0.865
    for section in blocks("docs/ballots.md", "toml"):
        (tmp_path / "config.toml").write_text(
            f'dataset = "adult"\n{section}\n[output]\nfolder = "out"\n'
        )
        config = load_config(tmp_path / "config.toml")
        assert not config.method_meant.needs.shards
        assert config.method_meant.mechanism is None


def test_the_student_is_used_as_documented(finished, monkeypatch):  # noqa: F811
    (finished / "out").rename(finished / "results")
    monkeypatch.chdir(finished)
    names = executed(blocks("docs/configuration.md", "python")[1:], rows=[[50, 0.9, "north"]])
    assert names["student"].predict(names["rows"]).tolist() == ["yes"]


@pytest.mark.parametrize("page", ["ledger.md", pytest.param("local.md", marks=pytest.mark.rest)])
def test_a_page_quotes_what_its_code_prints(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    printed = executed(blocks(f"docs/{page}", "python"))["printed"].splitlines()
    text = (REPOSITORY / "docs" / page).read_text()
    assert [line for line in printed if f"`{line}`" not in text] == []


def test_the_documented_commands_work(tmp_path, called):
    (commands,) = [block for block in blocks("docs/ledger.md", "") if "ledger init" in block]
    random = np.random.default_rng(0)
    np.savez(tmp_path / "votes.npz", counts=random.multinomial(250, [0.9, 0.1], size=30))
    (tmp_path / "public.csv").write_text(
        "age,ward\n" + "".join(f"{age},north\n" for age in range(30))
    )
    for command in commands.splitlines():
        succeeded(called(*command.split()[1:], cwd=tmp_path))


def test_the_documented_batches_of_capped_votes_are_one_release():
    names = executed(
        [*blocks("docs/teachers.md", "python")[:1], *blocks("docs/mechanisms.md", "python")]
    )
    assert data_independent.epsilon(names["first"].event, 1e-5).epsilon == pytest.approx(
        2.23, abs=0.01
    )
    assert names["second"].cost == 0


SOURCE = REPOSITORY / "src"
WITH_EXAMPLES = sorted(path for path in SOURCE.rglob("*.py") if ">>> " in path.read_text())


@pytest.mark.rest
@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_docstring_examples_run(path):
    parts = path.relative_to(SOURCE).with_suffix("").parts
    result = doctest.testmod(importlib.import_module(".".join(parts).removesuffix(".__init__")))
    assert result.attempted == len(re.findall(r"^ *>>> ", path.read_text(), re.MULTILINE))
    assert result.failed == 0


SHOWN = {
    "budget.py": (
        "the whole budget guarantees ε = 1.5 at δ = 1e-05",
        "again: the same labels, 0.0 of the budget spent",
        "would still fit",
    ),
    "digits.py": ("of the other public digits", "ε = 1.6955 at δ = 1e-05"),
    "frame.py": ("ε = 1.0 at δ = 1e-05", "of 8,281 new public rows"),
    "images.py": (
        "60 networks voted on 50 queries",
        "of the other public digits",
        "ε = 3.0056 at δ = 1e-05",
    ),
    "own_method.py": ("at δ = 1e-05",),
    "own_votes.py": (
        "ε = 2 pays for 240 of 300 queries",
        "labels in labels.csv",
        "guarantees ε = 2.0 at δ = 1e-05",
    ),
    "plan.py": ("worst case", "at δ = 1e-05", "[method]", "and not 80.0%"),
    "prompts.py": (
        "150 prompts of 8 examples",
        "pays for 75 labels",
        "40 messages labeled",
        "ε = 1.0 at δ = 1e-05",
    ),
    "rounds.py": (
        "of 180 queries have a label",
        "of the other public digits",
        "guarantees ε = 20.0 at δ = 1e-05",
    ),
    "text.py": ("ε = 1.0 at δ = 1e-05", "of 300 new notes"),
    "table.py": (
        "ε = 2.1197 at δ = 1e-05",
        "of 3,700 other public rows",
        "card.html card.json card.md labels.csv manifest.json student.skops",
        "card.md begins: # Privacy card",
    ),
}


@pytest.mark.rest
def test_the_documented_card_is_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = executed(blocks("docs/card.md", "python")[:1])
    assert names["model"].epsilon_.epsilon <= 1
    assert names["card"].student.judged.accuracy > 0.7


@FITS_AGAIN
@pytest.mark.rest
def test_the_documented_teachers_and_students_work():
    names = executed([*blocks("docs/teachers.md", "python"), *blocks("docs/students.md", "python")])
    assert names["model"].release_.answered.all()
    assert (
        f"ε = {names['model'].epsilon_.epsilon:.2f}"
        in (REPOSITORY / "docs/teachers.md").read_text()
    )
    assert len(names["labels"]) == 2
    assert len(names["in_rounds"].queries_) == len(set(names["in_rounds"].queries_.tolist())) == 200


@pytest.mark.rest
@pytest.mark.usefixtures("short_trials")
@pytest.mark.filterwarnings("ignore::tutelage.exceptions.OneClassWarning")  # of class frequencies
@pytest.mark.parametrize(
    "example", sorted((REPOSITORY / "examples").glob("*.py")), ids=lambda path: path.name
)
def test_examples_run(example, capsys):
    runpy.run_path(str(example), run_name="__main__")
    shown = capsys.readouterr().out
    stored = (example.parent / "output" / f"{example.name}.txt").read_text()  # by tools/gallery.py
    for promised in SHOWN[example.name]:
        assert promised in shown
        assert promised in " ".join(stored.split())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_between_pages_lead_somewhere(page):
    targets = re.findall(r"\]\((?!http)([^)#]+)(?:#[^)]*)?\)", page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_every_name_of_the_package_on_a_page_exists():
    pages = [page for page in PAGES if page.name != "CHANGELOG.md"]  # which also names what is gone
    named = {
        name for page in pages for name in re.findall(r"`(tutelage(?:\.\w+)+)", page.read_text())
    }
    assert len(named) > 20
    for name in named:
        pkgutil.resolve_name(name)


def test_every_proof_and_test_that_the_source_names_exists():
    folders = ("src", "consortium", "reproductions")
    sources = [source for folder in folders for source in (REPOSITORY / folder).rglob("*.py")]
    text = "\n".join(source.read_text() for source in sources)
    named = set(
        re.findall(
            r"\b(?:(?:consortium|reproductions)/)?(?:docs|tests|tools)/[\w/]+\.(?:md|py)", text
        )
    )
    assert "docs/proofs/data_independent.md" in named
    assert [path for path in named if not (REPOSITORY / path).is_file()] == []


@pytest.mark.rest
def test_the_page_of_theorems_is_up_to_date():
    page = runpy.run_path(str(REPOSITORY / "tools" / "theorems.py"))["page"]
    assert (REPOSITORY / "docs" / "theorems.md").read_text() == page()
