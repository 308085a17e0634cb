"""What is handed out: the wheel and the source archive are built, looked into, installed and called."""

import os
import re
import runpy
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Collection
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

import tutelage
from conftest import REPOSITORY

pytest.importorskip("hatchling")
pytestmark = pytest.mark.rest

PACKAGE = REPOSITORY / "src" / "tutelage"
EXTRAS = "torch safetensors matplotlib cryptography gmpy2 mpyc dask ray onnxruntime skl2onnx"
OF_AN_EXTRA = set(EXTRAS.split())


def build(folder: Path, *options: str, project: Path = REPOSITORY) -> Path:
    """Build in `folder`, and return the one file that came of it."""
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder), *options]
    subprocess.run(command, cwd=project, check=True, capture_output=True)
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    return build(tmp_path_factory.mktemp("wheel"), "--target", "wheel")


@pytest.fixture(scope="module")
def in_wheel(wheel) -> set[str]:
    return set(zipfile.ZipFile(wheel).namelist())


@pytest.fixture(scope="module")
def metadata(wheel) -> Message:
    name = f"tutelage-{tutelage.__version__}.dist-info/METADATA"
    return message_from_bytes(zipfile.ZipFile(wheel).read(name))


def install(wheel: Path, folder: Path) -> Path:
    """Install a package into a folder as pip does, without what it needs, which is here."""
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--disable-pip-version-check",
    ]
    subprocess.run(
        [*pip, "--no-compile", "--target", str(folder), str(wheel)], check=True, capture_output=True
    )
    return folder


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    return install(wheel, tmp_path_factory.mktemp("installed"))


@pytest.fixture(scope="module")
def reproductions(tmp_path_factory) -> Path:
    """A folder with the package of reproductions alone."""
    wheel = build(
        tmp_path_factory.mktemp("wheel"), "--target", "wheel", project=REPOSITORY / "reproductions"
    )
    return install(wheel, tmp_path_factory.mktemp("reproductions"))


def call(
    installed: Path,
    cwd: Path,
    *arguments: str,
    without: Collection[str] | None = None,
    beside: Path | None = None,
):
    """Call the installed command line in a process, where what is in `without` is not installed, and `beside` is."""
    script = f"""if True:
        import sys
        from importlib.machinery import PathFinder

        class Without(PathFinder):
            @classmethod
            def find_spec(cls, name, path=None, target=None):
                return None if name.split(".")[0] in {without or set()!r} else super().find_spec(name, path, target)

            @classmethod
            def find_distributions(cls, context):
                found = super().find_distributions(context)
                return (one for one in found if one.name.replace("-", "_") not in {without or set()!r})

        sys.meta_path[sys.meta_path.index(PathFinder)] = Without
        import tutelage
        assert tutelage.__file__.startswith({str(installed)!r}), tutelage.__file__
        from tutelage.cli import main
        sys.argv = ["tutelage", *{arguments!r}]
        main()
    """
    folders = [str(folder) for folder in (installed, beside) if folder is not None]
    surroundings = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    command = [sys.executable, "-c", script]
    return subprocess.run(
        command, cwd=cwd, env=surroundings, capture_output=True, text=True, timeout=120, check=False
    )


def test_the_wheel_holds_the_package_and_nothing_else(wheel, in_wheel):
    assert wheel.stat().st_size < 1_010_000
    shipped = {
        path.relative_to(PACKAGE.parent).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in in_wheel if ".dist-info/" not in name} == shipped
    needed = (
        "py.typed",
        "datasets/adult.npz",
        "datasets/adult-LICENSE.txt",
        "reporting/templates/card.jinja",
    )
    assert {
        f"tutelage/{name}"
        for name in (*needed, "cli/examples/adult.toml", "cli/examples/files.toml")
    } <= in_wheel


def test_the_version_is_the_same_everywhere(metadata):
    citation = (REPOSITORY / "CITATION.cff").read_text()
    assert f"\nversion: {tutelage.__version__}\n" in citation
    assert f"\nlicense: {metadata['License-Expression']}\n" in citation
    project = tomllib.loads((REPOSITORY / "reproductions" / "pyproject.toml").read_text())[
        "project"
    ]
    assert project["version"] == tutelage.__version__
    assert f"tutelage=={tutelage.__version__}" in project["dependencies"]


def test_the_badges_are_drawn_from_what_is_here():
    tool: Any = runpy.run_path(str(REPOSITORY / "tools" / "badges.py"))
    folder = REPOSITORY / "docs" / "figures" / "badges"
    assert {path.name: path.read_text() for path in folder.iterdir()} == tool["badges"]()


def test_the_installed_package_runs_where_no_repository_is(installed, tmp_path):
    shown = call(installed, tmp_path, "--version", without=OF_AN_EXTRA)
    assert shown.stdout == f"tutelage {tutelage.__version__}\n", shown.stderr
    assert call(installed, tmp_path, "example", "adult", without=OF_AN_EXTRA).returncode == 0
    run = call(installed, tmp_path, "run", "adult.toml", without=OF_AN_EXTRA)
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    assert (tmp_path / "demo" / "card.html").is_file()


def test_a_verb_whose_extra_is_missing_says_which(installed, tmp_path):
    refused = call(installed, tmp_path, "consortium", "status", "home", without=OF_AN_EXTRA)
    assert refused.returncode in (1, 2)
    (sentence,) = refused.stderr.splitlines()
    assert sentence.startswith("tutelage: ")
    assert re.search(r"pip install '/\S+\.whl\[federation\]'", sentence)  # from where it came


def test_reproductions_are_a_package_of_their_own(installed, reproductions, tmp_path):
    alone = call(installed, tmp_path, "reproduce", "--list", without={"tutelage_reproductions"})
    assert alone.returncode == 1
    assert "needs the package tutelage-reproductions" in alone.stderr
    both = call(
        installed, tmp_path, "reproduce", "--list", without=OF_AN_EXTRA, beside=reproductions
    )
    assert both.returncode == 0, both.stderr
    assert both.stdout.startswith("mnist-baseline ")
