"""What a public project promises and how it is hosted: stability, workflows, hooks and forms agree with the code."""

import ast
import os
import re
import subprocess
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
OF_PACKAGES, OF_PRIVATE_NAMES = (
    (REPOSITORY / "docs" / "dependencies.md").read_text().split("## Private names")
)
OF_OTHERS = [
    tomllib.loads((REPOSITORY / name / "pyproject.toml").read_text())["project"]
    for name in ("consortium", "reproductions")
]
FOLDERS = (REPOSITORY / "src", REPOSITORY / "consortium" / "src")
SUPPORTED = [
    line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)
]
WRITES = {
    "release.yml": {
        "attest": {"attestations", "id-token"},
        "publish": {"id-token"},
        "announce": {"contents"},
    },
    "site.yml": {"deploy": {"contents"}},
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
    assert {name: written for name, written in found.items() if written} == WRITES.get(
        path.name, {}
    )


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_and_jobs_end(path):
    for job in jobs(path).values():
        assert job["timeout-minutes"] <= 300
        for step in job["steps"]:
            uses = step.get("uses", "")
            assert not uses or re.search(r"@(v\d+|release/v\d+|[0-9a-f]{40})$", uses), uses
            if uses.startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False
            assert "${{" not in step.get("run", ""), (
                "what others chose reaches a shell as a variable only"
            )


@pytest.mark.parametrize(
    ("ref", "deployed"),
    [("v1.2.0", "mike deploy --update-aliases 1.2.0 latest"), ("main", "mike deploy dev")],
)
def test_a_tag_publishes_its_version_and_main_publishes_dev(ref, deployed, tmp_path):
    publish = jobs(REPOSITORY / ".github" / "workflows" / "site.yml")["deploy"]["steps"][-1]["run"]
    script = f'git() {{ true; }}; mike() {{ echo mike "$@"; }}; {publish}'
    named = {**os.environ, "GITHUB_REF_NAME": ref}
    done = subprocess.run(
        ["bash", "-ec", script], cwd=tmp_path, env=named, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[0] == deployed


def test_the_status_of_every_public_name_is_stated_once():
    rows = re.findall(r"^\| (stable|provisional|internal) \| (.+?) \|", STABILITY, re.MULTILINE)
    names = [
        name
        for _, described in rows
        for name in re.findall(r"`([\w.]+)`", described)
        if name != "tutelage"
    ]
    assert len(names) == len(set(names))
    assert sorted(name for name in names if not name.startswith("tutelage")) == tutelage.__all__
    folder = Path(tutelage.__file__).parent
    units = {
        path.stem
        for path in folder.iterdir()
        if not path.name.startswith("_") and path.name != "py.typed"
    }
    assert {
        name.removeprefix("tutelage.") for name in names if name.startswith("tutelage.")
    } == units


def test_supported_versions_are_tested_and_those_of_the_package():
    matrix = jobs(REPOSITORY / ".github" / "workflows" / "tests.yml")["tests"]["strategy"]["matrix"]
    assert (matrix["python"], matrix["dependencies"]) == (SUPPORTED, ["pinned"])
    assert matrix["include"] == [{"python": SUPPORTED[-1], "dependencies": "newest"}]
    assert f"| Python | {', '.join(SUPPORTED)} |" in STABILITY
    (scikit_learn,) = (line for line in PROJECT["dependencies"] if line.startswith("scikit-learn"))
    assert f"| scikit-learn | {scikit_learn.partition('>=')[2]} and later |" in STABILITY


def test_every_dependency_has_a_row_with_a_reason():
    lists = [
        lines
        for project in (PROJECT, *OF_OTHERS)
        for lines in (project["dependencies"], *project.get("optional-dependencies", {}).values())
    ]
    declared = {re.split(r"[\[<>=]", line)[0] for lines in lists for line in lines}
    declared -= {"tutelage", "tutelage-consortium"}
    installed, of_developers = OF_PACKAGES.split("## Development")
    rows = [
        line.split(" | ") for line in installed.splitlines() if re.match(r"\| `[\w-]+` \| ", line)
    ]
    assert all(
        len(row) == 6 and re.match(r"\d", row[3]) and re.fullmatch(r"20\d\d-\d\d", row[4])
        for row in rows
    )
    assert declared <= {row[0].strip("|` ") for row in rows} | set(
        re.findall(r"`([\w-]+)`", of_developers)
    )


def foreign_private_names(source: str) -> set[str]:
    """Return private names of other packages that are imported, or reached from an import."""
    tree, homes = ast.parse(source), dict[str, str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            homes |= {alias.asname or alias.name.split(".")[0]: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not str(node.module).startswith("tutelage"):
            homes |= {
                alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names
            }
    chains = (
        ast.unparse(node).split(".") for node in ast.walk(tree) if isinstance(node, ast.Attribute)
    )
    reached = (".".join([homes[root], *rest]) for root, *rest in chains if root in homes)
    return {
        name
        for name in (*homes.values(), *reached)
        if re.search(r"\._(?!_|replace|asdict|fields|exit)\w+$|\._\w+\.\w+$", name)
    }


def test_private_names_of_other_packages_are_those_with_a_reason():
    assert foreign_private_names(
        "from a._b import C\nimport d.e\nd.e._f.g()\nfrom h import _i"
    ) >= {"a._b.C", "h._i"}
    listed = re.findall(r"^\| `([\w.]+)` \| `([\w./]+)` \| \S", OF_PRIVATE_NAMES, re.MULTILINE)
    for folder in FOLDERS:
        for path in folder.rglob("*.py"):
            text, mine = path.read_text(), {name for name, file in listed if folder / file == path}
            assert foreign_private_names(text) <= mine
            assert all(re.search(rf"\b{name.rpartition('.')[2]}\b", text) for name in mine)
