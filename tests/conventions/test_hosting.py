"""What a public project promises and how it is hosted: stability, workflows, hooks and forms agree with the code."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import tutelage
from conftest import REPOSITORY

yaml = pytest.importorskip("yaml")

WORKFLOWS = sorted((REPOSITORY / ".github" / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
STABILITY = (REPOSITORY / "docs" / "stability.md").read_text()
SUPPORTED = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)]
WRITES = {
    "release.yml": {"attest": {"attestations", "id-token"}, "publish": {"id-token"}, "announce": {"contents"}},
    "site.yml": {"deploy": {"pages", "id-token"}},
}


def read(path: Path) -> dict[Any, Any]:
    return yaml.safe_load(path.read_text())


def jobs(path: Path) -> dict[str, dict[str, Any]]:
    return read(path)["jobs"]


def written_by(permissions: dict[str, str]) -> set[str]:
    return {name for name, access in permissions.items() if access != "read"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_write_only_what_its_job_is_for(path):
    assert not written_by(read(path)["permissions"])
    found = {name: written_by(job.get("permissions", {})) for name, job in jobs(path).items()}
    assert {name: written for name, written in found.items() if written} == WRITES.get(path.name, {})


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_and_jobs_end(path):
    for job in jobs(path).values():
        assert job["timeout-minutes"] <= 300
        for step in job["steps"]:
            uses = step.get("uses", "")
            assert not uses or re.search(r"@(v\d+|release/v\d+|[0-9a-f]{40})$", uses), uses
            if uses.startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False
            assert "${{" not in step.get("run", ""), "what others chose reaches a shell as a variable only"


def test_the_status_of_every_public_name_is_stated_once():
    rows = re.findall(r"^\| (stable|provisional|internal) \| (.+?) \|", STABILITY, re.MULTILINE)
    names = [name for _, described in rows for name in re.findall(r"`([\w.]+)`", described) if name != "tutelage"]
    assert len(names) == len(set(names))
    assert sorted(name for name in names if not name.startswith("tutelage")) == tutelage.__all__
    folder = Path(tutelage.__file__).parent
    units = {path.stem for path in folder.iterdir() if not path.name.startswith("_") and path.name != "py.typed"}
    assert {name.removeprefix("tutelage.") for name in names if name.startswith("tutelage.")} == units


def test_supported_versions_are_tested_and_those_of_the_package():
    matrix = jobs(REPOSITORY / ".github" / "workflows" / "tests.yml")["tests"]["strategy"]["matrix"]
    assert (matrix["python"], matrix["dependencies"]) == (SUPPORTED, ["pinned"])
    assert matrix["include"] == [{"python": SUPPORTED[-1], "dependencies": "newest"}]
    assert f"| Python | {', '.join(SUPPORTED)} |" in STABILITY
    (scikit_learn,) = (line for line in PROJECT["dependencies"] if line.startswith("scikit-learn"))
    assert f"| scikit-learn | {scikit_learn.partition('>=')[2]} and later |" in STABILITY
