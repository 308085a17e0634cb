"""What verbs write into folders: only over earlier results, whole or not at all, and by one process at a time."""

import ctypes
import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from processes import die_at_event, forked
from runs_of_people import VECTORS, configure_people
from test_cli import configure, finished, refusal, runs, write_people  # noqa: F401  fixtures
from tutelage import Ledger, VoteHistogram, published
from tutelage._internal import outputs
from tutelage._internal.outputs import NEVER, claim_output
from tutelage._internal.releases import MANIFEST, RESULTS, Manifest, claimed_folder, publish_folder
from tutelage.cli import run
from tutelage.exceptions import ConfigError
from tutelage.reporting import read_card

LEDGER = ("ledger", "init", "a.ledger", "--epsilon", 99, "--delta", 1e-5, "--neighbors", "ballot")
GNMAX = ("--mechanism", "gnmax", "--sigma", 4)
WRITTEN = (*RESULTS, MANIFEST)
AGAIN = ("run", "config.toml", "--overwrite")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A configuration to run, with its rows."""
    write_people(tmp_path)
    configure(tmp_path)
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def release(folder: Path, text: str) -> None:
    with claimed_folder(folder / "out", RESULTS, "stop") as claim, publish_folder(claim) as part:
        (part / "card.json").write_text(text)


def full(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_run_keeps_results_that_were_changed(finished, called):  # noqa: F811
    with (finished / "out" / "card.md").open("ab") as file:
        file.write(b"a note of mine\n")
    before = contents(finished)
    assert "out/card.md would be replaced" in refusal(called(*AGAIN, cwd=finished), 2)
    assert contents(finished) == before
    (finished / "out" / "card.md").rename(finished / "kept")
    assert called(*AGAIN).returncode == 0


def test_the_folder_of_the_rows_is_no_folder_of_results(project, called):
    configure(
        project,
        ('folder = "out"', 'folder = "."'),
        ("delta = 1e-5", 'delta = 1e-5\nledger = "../a.ledger"'),
    )
    before = contents(project)
    assert "it is the current folder" in refusal(called("run", "config.toml", cwd=project), 2)
    assert contents(project) == before


@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_other_names_of_files_and_folders_are_not_replaced(link, project, called):
    (project / "out").mkdir()
    link(project / "private.csv", project / "out" / "labels.csv")
    before = contents(project)
    assert "out/labels.csv would be replaced" in refusal(
        called("run", "config.toml", "--overwrite", cwd=project), 2
    )
    shutil.rmtree(project / "out")
    (project / "out").symlink_to(project / "results")
    assert "out is a link" in refusal(called("run", "config.toml", cwd=project), 2)
    (project / "out").unlink()
    before.pop("out/labels.csv")
    assert contents(project) == before


@pytest.mark.parametrize(("folder", "ledger"), [
    ("x/../L.ledger", "L.ledger"), ("L.ledger/out", "L.ledger"), ("L.ledger-journal", "L.ledger"),
    ("out", "private-out/L.ledger"), ("out", "out/../out/labels.csv"), ("out", "out/deep/a.ledger"),
    ("private.csv.ledger", None), ("config.toml", None),
])  # fmt: skip
def test_no_output_is_in_the_place_of_another_file(folder, ledger, project, called):
    """Not even of one that the run would make first: nothing is spent, and nothing is made."""
    more = "" if ledger is None else f'\nledger = "{ledger}"'
    configure(
        project, ('folder = "out"', f'folder = "{folder}"'), ("delta = 1e-5", f"delta = 1e-5{more}")
    )
    before = contents(project)
    refusal(called("run", "config.toml", cwd=project), 2)
    assert contents(project) == before
    assert {path.name for path in project.iterdir()} == {"config.toml", "private.csv", "public.csv"}


def test_the_folder_holds_public_files_only_and_the_private_ones_are_beside_it(project, called):
    configure(project, output="votes = true")
    assert called("run", "config.toml", cwd=project).returncode == 0
    assert sorted(path.name for path in (project / "out").iterdir()) == sorted(WRITTEN)
    private = project / "private-out"
    assert private.stat().st_mode & 0o777 == 0o700
    assert {path.name for path in private.iterdir()} == {"private-votes.npz", outputs._LOCK}
    assert (private / "private-votes.npz").stat().st_mode & 0o777 == 0o600
    assert VoteHistogram.load(private / "private-votes.npz").unit.name == "patient"
    configure(project)
    assert called("run", "config.toml", "--overwrite").returncode == 0
    assert not private.exists()  # of the release that was replaced


def test_votes_of_a_run_that_ends_after_it_has_paid_are_there(tmp_path, called, monkeypatch):
    """They are on the disk before noise is drawn: the next run finds all remembered, and casts none."""
    write_people(tmp_path)
    configure_people(tmp_path, VECTORS, more="votes = true")
    with monkeypatch.context() as broken:
        broken.setattr(run, "_card", full)
        refusal(called("run", "config.toml", cwd=tmp_path), 1)
    assert called("run", "config.toml").returncode == 0
    stored = [*(tmp_path / "private-out").glob("private-votes-*.npz")]
    assert stored
    for path in stored:
        with np.load(path) as found:
            assert found["totals"].size
    for path in stored:
        path.unlink()
    assert "no votes are stored, because all was released by earlier runs" in called(*AGAIN).stderr


def test_a_private_folder_that_others_can_read_is_refused(project, called):
    (project / "private-out").mkdir()
    (project / "private-out").chmod(0o755)
    assert "private-out must belong to you and have mode 700" in refusal(
        called("run", "config.toml", cwd=project), 2
    )
    (project / "private-out").rmdir()
    (project / "private-out").symlink_to(project)
    assert "private-out must belong to you" in refusal(called("run", "config.toml", cwd=project), 2)


def test_results_that_cannot_be_written_leave_the_earlier_ones(finished, called, monkeypatch):  # noqa: F811
    before = contents(finished / "out")
    monkeypatch.setattr(published, "write_student", full)
    assert refusal(called(*AGAIN, cwd=finished), 1) == "tutelage: out: No space left on device."
    assert contents(finished / "out") == before
    assert not (finished / "private-out").exists()


def test_a_manifest_that_is_none_is_not_replaced(project, called):
    (project / "out").mkdir()
    (project / "out" / MANIFEST).write_text('{"file": "release", "format": 1, "sha256": [1]}')
    assert f"out/{MANIFEST} would be replaced" in refusal(
        called("run", "config.toml", cwd=project), 2
    )


def private_folder_left(folder: Path) -> Path:
    """Make a private folder as a killed process leaves it."""
    private = folder / "private-out"
    private.mkdir(mode=0o700)
    (private / outputs._LOCK).touch()
    return private


@pytest.mark.parametrize("name", ["staging-2024/patients.csv", "lock"])
def test_a_folder_of_the_owner_is_not_taken_for_a_private_folder(name, tmp_path):
    file = tmp_path / "private-out" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("private rows")
    (tmp_path / "private-out").chmod(0o700)
    before = contents(tmp_path)
    with (
        pytest.raises(ConfigError, match="private-out has files and was not made by tutelage"),
        claim_output(tmp_path / "out", NEVER, folder=True, way_out="stop"),
    ):
        pass
    assert contents(tmp_path) == before
    assert not (tmp_path / "out").exists()


def test_a_kill_where_names_cannot_be_exchanged_leaves_one_release_whole(tmp_path, monkeypatch):
    """At any event of replacing a release by another: the next claim of the folder finds either of them."""

    def refused(*_: object) -> int:
        ctypes.set_errno(errno.EINVAL)
        return -1

    monkeypatch.setattr(
        ctypes, "CDLL", lambda *_, **__: SimpleNamespace(renameat2=refused, renamex_np=refused)
    )
    found = []
    for event in range(1, 100):
        folder = tmp_path / str(event)
        folder.mkdir()
        release(folder, "one")
        one = contents(folder / "out")

        def replace(folder: Path = folder, event: int = event) -> None:
            die_at_event(event, folder)
            release(folder, "two")

        _, status = os.waitpid(forked(replace), 0)
        missing = not (folder / "out").exists()
        with claimed_folder(folder / "out", RESULTS, "stop"):
            Manifest.read_whole(folder / "out")
        assert [path.name for path in folder.iterdir()] == ["out"]
        text = contents(folder / "out")["card.json"].decode()
        assert text == "two" or contents(folder / "out") == one
        found.append((text, missing))
        if status == 0:
            break
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
    # The earlier release, also where only its other name was left, and the new one from the second renaming on.
    assert list(dict.fromkeys(found)) == [("one", False), ("one", True), ("two", False)]
    assert found[-2:] == [("two", False)] * 2


def test_what_is_not_of_earlier_results_does_not_become_results(tmp_path):
    replaced = private_folder_left(tmp_path) / "replaced"
    replaced.mkdir()
    (replaced / "patients.csv").write_text("private rows")
    with (
        pytest.raises(
            ConfigError,
            match=r"replaced may be all that is left of earlier results.* Move it away, or",
        ),
        claimed_folder(tmp_path / "out", RESULTS, "name another"),
    ):
        pass
    assert not (tmp_path / "out").exists()
    assert (replaced / "patients.csv").read_text() == "private rows"


def test_earlier_results_are_kept_until_others_are_in_their_place(tmp_path):
    """As after a kill between the two renames, where the system cannot exchange two names."""
    release(tmp_path, "one")
    replaced = private_folder_left(tmp_path) / "replaced"
    (tmp_path / "out").rename(replaced)
    kept = contents(replaced)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"notes\.txt would be replaced"):
            release(tmp_path, "two")
    shutil.rmtree(tmp_path / "out")
    assert contents(replaced) == kept
    release(tmp_path, "two")
    assert contents(tmp_path / "out")["card.json"] == b"two"
    assert not replaced.exists()


@pytest.mark.parametrize("works", [True, False])
def test_what_is_put_into_the_folder_meanwhile_is_kept(works, tmp_path, monkeypatch):
    exchanged = outputs._exchange if works else lambda *_: False

    def put(part: Path, target: Path) -> bool:
        (target / "notes.txt").write_text("mine")  # after the folder was checked for the last time
        return exchanged(part, target)

    release(tmp_path, "one")
    monkeypatch.setattr(outputs, "_exchange", put)
    with pytest.raises(ConfigError, match=r"notes\.txt would be replaced"):
        release(tmp_path, "two")
    assert contents(tmp_path / "out")["notes.txt"] == b"mine"
    assert contents(tmp_path / "out")["card.json"] == b"one"


def test_a_card_is_brought_up_to_date_in_its_place_and_nowhere_else(finished, called, monkeypatch):  # noqa: F811
    monkeypatch.chdir(finished)
    ledger = ("--ledger", "private.csv.ledger")
    labels = (finished / "out" / "labels.csv").read_bytes()
    assert called("card", "out", "--state", "access=The registry.", *ledger).returncode == 0
    assert read_card(finished / "out" / "card.json").statements == {"access": "The registry."}
    assert (finished / "out" / "labels.csv").read_bytes() == labels
    manifest = Manifest.read_whole(finished / "out")
    assert manifest.recorded
    assert manifest.hash in Ledger.open(finished / "private.csv.ledger").history().manifests
    assert called(*AGAIN).returncode == 0
    own = ("card", "out/card.json", "--output", "out", *ledger, "--state", "access=The registry.")
    assert called(*own).returncode == 0  # in its place, under another name


def test_labels_replace_labels_only(tmp_path, called):
    np.savez(tmp_path / "public.npz", X=np.eye(3))
    np.savez(tmp_path / "votes.npz", counts=np.array([[2, 9], [9, 2], [5, 6]]))
    assert called(*LEDGER, cwd=tmp_path).returncode == 0
    words = "label public.npz --votes votes.npz --ledger a.ledger --output labels.csv"
    given = (*words.split(), *GNMAX)
    assert called(*given).returncode == 0
    before = contents(tmp_path)
    assert called(*given).returncode == 0
    assert contents(tmp_path) == before
    with (tmp_path / "labels.csv").open("a") as file:
        file.write("checked by me\n")
    assert "labels.csv would be replaced" in refusal(called(*given), 2)


# One process at a time


def test_an_output_is_claimed_until_its_process_dies(tmp_path):
    def killed() -> None:
        with (
            claimed_folder(tmp_path / "out", RESULTS, "stop") as claim,
            publish_folder(claim) as part,
        ):
            (part / "card.json").write_text("half")
            os.kill(os.getpid(), 9)

    assert os.waitstatus_to_exitcode(os.waitpid(forked(killed), 0)[1]) == -9
    assert list((tmp_path / "private-out").glob("staging-*"))
    with claimed_folder(tmp_path / "out", RESULTS, "stop") as claim:
        assert not list(claim.private.glob("staging-*"))
        for _ in range(2):
            with (
                pytest.raises(ConfigError, match="Another process is writing"),
                claim_output(tmp_path / "out", NEVER),
            ):
                pass
    assert not list(tmp_path.iterdir())


def test_a_run_into_a_folder_that_is_being_written_spends_nothing(project, called):
    with claimed_folder(project / "out", RESULTS, "stop"):
        said = refusal(called("run", "config.toml", cwd=project), 2)
    assert said.startswith(
        "tutelage: Another process is writing out. Nothing was spent. Wait until it ends, or name"
    )
    assert not (project / "private.csv.ledger").exists()


@pytest.mark.rest
def test_of_runs_into_one_folder_only_those_spend_whose_results_are_kept(project):
    """Each asks in its own way, so that each would spend."""
    started = []
    for one in range(3):
        configure(
            project,
            ("sigma = 2.0", f"sigma = {one + 2}.0"),
            ("delta = 1e-5", "delta = 1e-5\nbudget = 90"),
        )
        (project / "config.toml").rename(project / f"{one}.toml")
    for one in range(3):
        given = [sys.executable, "-m", "tutelage", "run", f"{one}.toml"]
        started.append(
            subprocess.Popen(
                given, cwd=project, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            )
        )
    ended = [process.communicate()[1] for process in started]
    assert sorted(process.returncode for process in started) == [0, 2, 2], ended
    refused = [said for process, said in zip(started, ended, strict=True) if process.returncode]
    assert all(
        "Another process is writing out" in said or "earlier release" in said for said in refused
    )
    history = Ledger.open(project / "private.csv.ledger").history()
    assert len(history.charges) == 1
    assert history.manifests == {Manifest.read_whole(project / "out").hash}
