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
OTHERS = {"tutelage_consortium", "tutelage_reproductions"}
MOST_BYTES = {"tutelage": 1_005_000, "consortium": 118_000, "reproductions": 240_000}  # of a wheel
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
    pip = "-m pip install --quiet --no-deps --no-index --disable-pip-version-check --no-compile"
    command = [sys.executable, *pip.split(), "--target", str(folder), str(wheel)]
    subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    return install(wheel, tmp_path_factory.mktemp("installed"))


@pytest.fixture(scope="module")
def beside(tmp_path_factory) -> dict[str, Path]:
    """Folders with the package of the consortium alone, and with that of the reproductions."""
    folders = dict[str, Path]()
    for name in ("consortium", "reproductions"):
        place = tmp_path_factory.mktemp("wheel")
        wheel = build(place, "--target", "wheel", project=REPOSITORY / name)
        assert wheel.stat().st_size < MOST_BYTES[name]
        folders[name] = install(wheel, tmp_path_factory.mktemp(name))
    return folders


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
    assert wheel.stat().st_size < MOST_BYTES["tutelage"]
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
    for name in ("consortium", "reproductions"):
        project = tomllib.loads((REPOSITORY / name / "pyproject.toml").read_text())["project"]
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
    refused = call(installed, tmp_path, "key", "officer", without=OF_AN_EXTRA)
    assert refused.returncode == 2
    (sentence,) = refused.stderr.splitlines()
    assert sentence.startswith("tutelage: ")
    assert re.search(r"pip install '/\S+\.whl\[signing\]'", sentence)  # from where it came


@pytest.mark.parametrize(
    ("verb", "option", "name", "begins"),
    [
        ("consortium", "--help", "consortium", "Usage: tutelage consortium "),
        ("reproduce", "--list", "reproductions", "mnist-baseline "),
    ],
)
def test_a_verb_of_another_package_says_which_it_needs(
    verb, option, name, begins, installed, beside, tmp_path
):
    alone = call(installed, tmp_path, verb, option, without=OTHERS)
    assert alone.returncode == 1
    (sentence,) = alone.stderr.splitlines()
    assert f"needs the package tutelage-{name}: run `pip install ./consortium" in sentence
    assert f"\n  {verb} " not in call(installed, tmp_path, "--help", without=OTHERS).stdout
    missing = set() if name == "consortium" else OF_AN_EXTRA
    both = call(installed, tmp_path, verb, option, without=missing, beside=beside[name])
    assert both.returncode == 0, both.stderr
    assert both.stdout.strip().startswith(begins)
    assert (
        f"\n  {verb} "
        in call(installed, tmp_path, "--help", without=missing, beside=beside[name]).stdout
    )
