"""What verbs write: never over a file that they read or did not write, and whole or not at all."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from test_cli import configure, refusal, write_people
from tutelage import published
from tutelage._internal.results import is_read
from tutelage.cli import outputs
from tutelage.reporting import read_card
from tutelage_reproductions import Record, Row, command

LEDGER = ("ledger", "init", "a.ledger", "--epsilon", 99, "--delta", 1e-5, "--neighbors", "ballot")
GNMAX = ("--mechanism", "gnmax", "--sigma", 4)
RESULTS = ("card.json", "card.md", "card.html", "labels.csv", "student.skops", "private-votes.npz")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A configuration to run, with its rows."""
    write_people(tmp_path)
    configure(tmp_path)
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", RESULTS)
@pytest.mark.parametrize("flags", [(), ("--overwrite",)])
def test_a_run_replaces_no_file_that_no_run_wrote(name, flags, project, called):
    (project / "out").mkdir()
    (project / "out" / name).write_text("mine")
    before = contents(project)
    message = refusal(called("run", "config.toml", *flags, cwd=project), 2)
    assert message == (
        f"tutelage: out/{name} would be replaced, but was not written here by tutelage, or has changed since. Move it "
        "away, or name another `folder` in [output]."
    )
    assert contents(project) == before


@pytest.mark.parametrize("name", ["labels.csv", "card.md", "student.skops"])
def test_a_run_keeps_results_that_were_changed_and_replaces_those_that_were_not(name, project, called):
    assert called("run", "config.toml", cwd=project).returncode == 0
    assert called("run", "config.toml", "--overwrite").returncode == 0
    with (project / "out" / name).open("ab") as file:
        file.write(b"a note of mine\n")
    before = contents(project)
    assert f"out/{name} would be replaced" in refusal(called("run", "config.toml", "--overwrite"), 2)
    assert contents(project) == before
    (project / "out" / name).rename(project / "kept")
    assert called("run", "config.toml", "--overwrite").returncode == 0


@pytest.mark.parametrize("name", ["labels.csv", "card.json", "written-files.json", "private-written-files.json"])
def test_a_run_writes_over_none_of_its_inputs(name, project, called):
    for old, new in (("private.csv", name), ("public.csv", name)):
        configure(project, (old, new), ('folder = "out"', 'folder = "."'))
        shutil.copy(project / old, project / name)
        before = contents(project)
        refused = called("run", "config.toml", "--overwrite", cwd=project)
        assert refused.returncode in (1, 2)
        assert "Traceback" not in refused.stderr
        assert contents(project) == before


@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_other_names_of_inputs_are_the_inputs(link, project, called):
    (project / "out").mkdir()
    link(project / "private.csv", project / "out" / "labels.csv")
    before = contents(project)
    assert refusal(called("run", "config.toml", "--overwrite", cwd=project), 2) == (
        "tutelage: out/labels.csv is read and would be replaced. Move it, or name another `folder` in [output]."
    )
    assert contents(project) == before


@pytest.mark.parametrize("ledger", ["out/card.json", "out/../out/labels.csv", "out/written-files.json"])
def test_a_ledger_that_is_not_there_yet_is_no_result(ledger, project, called):
    configure(project, ("delta = 1e-5", f'delta = 1e-5\nledger = "{ledger}"'))
    assert "is read and would be replaced" in refusal(called("run", "config.toml", cwd=project), 2)
    assert not (project / "out").exists()


def test_rows_in_the_folder_of_checkpoints_are_refused(project, called):
    configure(project, ("private.csv", "out/private-checkpoints/teacher-1.csv"))
    (project / "out" / "private-checkpoints").mkdir(parents=True)
    (project / "private.csv").rename(project / "out" / "private-checkpoints" / "teacher-1.csv")
    assert "out/private-checkpoints" in refusal(called("run", "config.toml", cwd=project), 2)
    assert (project / "out" / "private-checkpoints" / "teacher-1.csv").exists()


def test_private_votes_of_an_earlier_run_go_and_their_hash_is_kept_apart(project, called):
    configure(project, output="votes = true")
    assert called("run", "config.toml", cwd=project).returncode == 0
    private = project / "out" / "private-written-files.json"
    assert private.stat().st_mode & 0o777 == 0o600
    assert (project / "out" / "private-votes.npz").stat().st_mode & 0o777 == 0o600
    assert list(json.loads(private.read_text())["sha256"]) == ["private-votes.npz"]
    assert "private" not in (project / "out" / "written-files.json").read_text()
    configure(project)
    assert called("run", "config.toml", "--overwrite").returncode == 0
    assert sorted(path.name for path in (project / "out").glob("private*")) == []


def test_a_run_that_dies_between_two_files_can_be_run_again(project, called, monkeypatch):
    assert called("run", "config.toml", cwd=project).returncode == 0
    replace, left = Path.replace, iter(range(4))

    def dies(self: Path, target: Path) -> Path:
        if target.name not in ("written-files.json", "private-written-files.json") and next(left) == 2:
            raise KeyboardInterrupt
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", dies)
    assert called("run", "config.toml", "--overwrite").returncode == 130
    monkeypatch.setattr(Path, "replace", replace)
    assert called("run", "config.toml", "--overwrite").returncode == 0
    assert read_card(project / "out" / "card.json").queries == 40


def test_results_that_cannot_be_written_leave_the_earlier_ones(project, called, monkeypatch):
    assert called("run", "config.toml", cwd=project).returncode == 0
    before = contents(project / "out")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(published, "save_student", full)
    assert refusal(called("run", "config.toml", "--overwrite"), 1) == "tutelage: out: No space left on device."
    (project / "out" / "private-written-files.json").unlink()  # that there were checkpoints
    assert contents(project / "out") == before


@pytest.mark.parametrize(
    "content", ["{}", '{"format": 9, "sha256": {}}', '{"format": 1, "sha256": [1]}', "\udc80", "[" * 9999]
)
def test_a_list_that_is_none_or_of_a_later_version_is_not_replaced(content, project, called):
    (project / "out").mkdir()
    (project / "out" / "written-files.json").write_bytes(content.encode(errors="surrogateescape"))
    message = refusal(called("run", "config.toml", cwd=project), 1)
    assert message.startswith("tutelage: out/written-files.json is ")


def test_a_card_is_brought_up_to_date_in_its_place_and_nowhere_else(project, called):
    assert called("run", "config.toml", cwd=project).returncode == 0
    stated = ("--state", "access=The registry.")
    assert called("card", "out", *stated).returncode == 0
    assert called("card", "out", "--state", "legal=The contract.").returncode == 0
    assert read_card(project / "out" / "card.json").statements == {"access": "The registry.", "legal": "The contract."}
    assert called("run", "config.toml", "--overwrite").returncode == 0
    for name in ("card.md", "card.html", "card.json"):
        other = project / f"other {name}"
        other.mkdir()
        (other / name).write_text("mine")
        message = refusal(called("card", "out", "--output", other.name), 2)
        assert f"{name} would be replaced" in message
        assert contents(other) == {name: b"mine"}
    read_card(project / "out" / "card.json").save(project / "other card.json")
    assert called("card", "out", "--output", "other card.json").returncode == 0


def test_a_private_report_replaces_only_a_private_report(tmp_path, called):
    np.savez(tmp_path / "votes.npz", counts=np.full((9, 2), 2))
    given = ("card", "--private-votes", "votes.npz", "--output", "out")
    assert called(*given, cwd=tmp_path).returncode == 0
    assert called(*given).returncode == 0
    assert (tmp_path / "out" / "private-report.html").stat().st_mode & 0o777 == 0o600
    (tmp_path / "out" / "private-report.html").write_text("mine")
    assert "private-report.html would be replaced" in refusal(called(*given), 2)
    (tmp_path / "out" / "private-report.html").unlink()
    os.link(tmp_path / "votes.npz", tmp_path / "out" / "private-report.html")
    assert "private-report.html is read" in refusal(called(*given), 2)


@pytest.mark.parametrize("link", [os.link, os.symlink])
@pytest.mark.parametrize("name", ["votes.npz", "public.npz", "a.ledger"])
def test_labels_go_over_no_input_by_any_name(name, link, tmp_path, called):
    np.savez(tmp_path / "public.npz", X=np.eye(3))
    np.savez(tmp_path / "votes.npz", counts=np.ones((3, 2), dtype=int))
    assert called(*LEDGER, cwd=tmp_path).returncode == 0
    link(tmp_path / name, tmp_path / "labels.csv")
    before = contents(tmp_path)
    given = ("label", "public.npz", "--votes", "votes.npz", "--ledger", "a.ledger", *GNMAX, "--output")
    assert "must not be a file that this command reads" in refusal(called(*given, "labels.csv"), 2)
    for suffix in ("journal", "wal", "shm"):
        assert "must not be a file that this command reads" in refusal(called(*given, f"a.ledger-{suffix}"), 2)
    assert contents(tmp_path) == before


def test_labels_keep_links_and_modes_and_are_written_whole(tmp_path, called, monkeypatch):
    np.savez(tmp_path / "public.npz", X=np.eye(3))
    np.savez(tmp_path / "votes.npz", counts=np.array([[2, 9], [9, 2], [5, 6]]))
    assert called(*LEDGER, cwd=tmp_path).returncode == 0
    (tmp_path / "real.csv").write_text("earlier")
    (tmp_path / "real.csv").chmod(0o640)
    (tmp_path / "labels.csv").symlink_to("real.csv")
    given = ("label", "public.npz", "--votes", "votes.npz", "--ledger", "a.ledger", *GNMAX, "--output", "labels.csv")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(outputs.shutil, "copymode", full)
        assert refusal(called(*given), 1) == "tutelage: labels.csv: No space left on device."
    assert (tmp_path / "real.csv").read_text() == "earlier"
    assert called(*given).returncode == 0
    assert (tmp_path / "labels.csv").is_symlink()
    assert (tmp_path / "real.csv").read_text().startswith("public_row,label")
    assert (tmp_path / "real.csv").stat().st_mode & 0o777 == 0o640
    assert not list(tmp_path.glob(".tutelage*"))


def test_files_of_members_and_mailboxes_are_no_outputs(tmp_path):
    for folder, file in (("home", "b.private.json"), ("mailbox", "batch")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / file).write_text("key")
        assert is_read(tmp_path / folder / file, [tmp_path / "home", tmp_path / "mailbox"])
    assert not is_read(tmp_path / "home" / "transcript", [tmp_path / "home"])


def test_a_plan_and_a_record_replace_only_their_own(tmp_path, called, monkeypatch):
    record = Record(name="epsilons", source="a paper", rows=(Row(name="a row", ours=1.0),), quick=True)
    monkeypatch.setattr(command, "run", lambda *_, **__: record)
    planned = ("plan", "--epsilon", 3, "--people", 20_000, "--classes", 2, "--public-rows", 300, "--output", "out")
    recorded = ("reproduce", "epsilons", "--output", "out")
    for given, name in ((planned, "plan.json"), (recorded, "epsilons.csv")):
        assert called(*given, cwd=tmp_path).returncode == 0
        assert called(*given).returncode == 0
        (tmp_path / "out" / "epsilons.json").unlink(missing_ok=True)
        (tmp_path / "out" / name).write_text("mine")
        assert f"out/{name}" in refusal(called(*given), 2)
        assert (tmp_path / "out" / name).read_text() == "mine"


def test_records_saved_without_a_list_are_recognised(tmp_path, called, monkeypatch):
    record = Record(name="epsilons", source="a paper", rows=(Row(name="a row", ours=1.0),), quick=True)
    monkeypatch.setattr(command, "run", lambda *_, **__: record)
    record.save(tmp_path)
    assert called("reproduce", "epsilons", "--output", ".", cwd=tmp_path).returncode == 0
