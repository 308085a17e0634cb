"""``tutelage ledger``, ``tutelage label`` and the ledger of ``tutelage run``, as a user meets them."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ledgers import reserve
from test_cli import configure, folder, refusal, tutelage  # noqa: F401  the fixture
from tutelage import Ledger
from tutelage._internal.files import StoredArrays
from tutelage.events import NoisyArgmaxGaussian
from tutelage.ledger.account import Account
from tutelage.privacy import ONE_TEACHER

pytestmark = pytest.mark.usefixtures("in_this_process", "repeatable")

GNMAX = ("--mechanism", "gnmax", "--sigma", 40)
INTERACTIVE = ("--mechanism", "interactive", "--threshold", 50, "--sigma-threshold", 60)
INTERACTIVE += ("--sigma", 60, "--confidence", 0.5)


@pytest.fixture
def voted(tmp_path: Path) -> Path:
    """A folder with public rows, their votes, and a ledger with room for a hundred or so answers."""
    random = np.random.default_rng(0)
    counts = random.multinomial(250, [0.8, 0.15, 0.05], size=60)
    np.savez(tmp_path / "votes.npz", counts=counts)
    np.savez(tmp_path / "few.npz", counts=counts[1:])
    np.savez(tmp_path / "public.npz", X=random.random((60, 4)))
    (tmp_path / "public.csv").write_text(
        "age,ward\n" + "".join(f"{number},north\n" for number in range(60))
    )
    Ledger.create(tmp_path / "a.ledger", epsilon=1.2, delta=1e-5, unit=ONE_TEACHER)
    return tmp_path


def label(where: Path, *options: object, rows: str = "public.npz"):
    fixed = ("--votes", "votes.npz", "--ledger", "a.ledger", "--output", "labels.csv")
    return tutelage("label", rows, *fixed, *options, cwd=where)


def state(where: Path, name: str = "a.ledger") -> dict:
    return Ledger.open(where / name).state().as_dict()


def test_a_backup_is_made_while_the_ledger_is_written_to_and_holds_what_was_spent_then(voted):
    label(voted, *GNMAX)
    before = state(voted)
    # As another process that is about to write.
    with Ledger.open(voted / "a.ledger")._opened.store.transaction(write=True):
        done = tutelage("ledger", "backup", "a.ledger", "copy.bak", cwd=voted)
    assert f"head {before['head']}" in done.stdout
    assert state(voted, "copy.bak") == before
    assert (voted / "copy.bak").stat().st_mode & 0o077 == 0
    reserve(Ledger.open(voted / "a.ledger"), NoisyArgmaxGaussian(80.0, 3, ONE_TEACHER), 1)
    assert state(voted)["spent"] > before["spent"] == state(voted, "copy.bak")["spent"]
    assert "exists already" in refusal(
        tutelage("ledger", "backup", "a.ledger", "copy.bak", cwd=voted), 1
    )


def test_labels_are_written_charged_and_free_the_second_time(voted):
    report = json.loads(label(voted, *GNMAX, "--json").stdout)
    assert (report["asked"], report["answered"]) == (60, 60)
    assert report["cost"] == pytest.approx(report["ledger"]["spent"])
    labels = pd.read_csv(voted / "labels.csv")
    assert [*labels] == ["public_row", "label"]
    assert labels["public_row"].tolist() == [*range(60)]
    assert "Every row was labeled before" in label(voted, *GNMAX).stdout
    assert labels.equals(pd.read_csv(voted / "labels.csv"))


def test_the_interactive_mechanism_takes_predictions(voted):
    np.savez(voted / "student.npz", np.tile([0.8, 0.1, 0.1], (60, 1)))
    result = label(voted, *INTERACTIVE, "--predictions", "student.npz", "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["answered"] == 60


def test_a_row_of_a_table_is_the_same_row_in_another_file(voted):
    assert label(voted, *GNMAX, rows="public.csv").returncode == 0
    lines = (voted / "public.csv").read_text().splitlines()
    (voted / "more.csv").write_text("\n".join([*lines, "unknown,east"]) + "\n")
    votes = np.load(voted / "votes.npz")["counts"]
    np.savez(voted / "votes.npz", counts=np.vstack([votes, votes[:1]]))
    report = json.loads(label(voted, *GNMAX, "--json", rows="more.csv").stdout)
    assert report["event"]["count"] == 1
    # To be paid for again.
    assert label(voted, *GNMAX, "--question", "another", rows="more.csv").returncode == 1


@pytest.mark.parametrize(("options", "code", "message"), [
    (("--mechanism", "gnmax"), 2, "--mechanism gnmax needs `--sigma`. Add it."),
    (("--mechanism", "gnmax", "--scale", 4), 2, "`--scale` is not a setting of --mechanism gnmax."),
    ((*GNMAX, "--output", "."), 2, "The output must be a file, and . is a folder"),
    ((*GNMAX, "--votes", "few.npz"), 1, "must hold votes on 60 queries, one row per public row, in order. Got 59."),
    ((*GNMAX, "--ledger", "b.ledger"), 1, "b.ledger does not exist. Make it with `tutelage ledger init`."),
])  # fmt: skip
def test_label_refuses_in_one_sentence_before_anything_is_spent(options, code, message, voted):
    assert message in refusal(label(voted, *options), code)
    assert state(voted)["entries"] == 1


def test_label_unpacks_nothing_before_it_knows_that_it_fits(voted, monkeypatch):
    np.savez(voted / "student.npz", np.ones((59, 3)))
    unpack, allowed = StoredArrays.__getitem__, set[str]()

    def unpacked(arrays, name):
        assert arrays.path.name in allowed
        return unpack(arrays, name)

    monkeypatch.setattr(StoredArrays, "__getitem__", unpacked)
    assert "--predictions must be given with --mechanism interactive" in refusal(
        label(voted, *INTERACTIVE), 2
    )
    allowed.add("public.npz")
    for options in ((*INTERACTIVE, "--predictions", "student.npz"), (*GNMAX, "--votes", "few.npz")):
        refusal(label(voted, *options), 1)


def test_verify_and_export(voted):
    assert label(voted, *GNMAX).returncode == 0
    head = state(voted)["head"]
    verify = ("ledger", "verify", "a.ledger", "--head")
    assert (
        "a.ledger is intact: 3 entries, 60 remembered labels."
        in tutelage(*verify, head, cwd=voted).stdout
    )
    assert "--head must be the 64 hexadecimal digits" in refusal(
        tutelage(*verify, head[:16], cwd=voted), 2
    )
    assert "replaced by an older copy" in refusal(tutelage(*verify, "0" * 64, cwd=voted), 1)
    printed = tutelage("ledger", "export", "a.ledger", cwd=voted).stdout
    entries = [json.loads(line) for line in printed.splitlines()]
    assert [entry["kind"] for entry in entries] == ["opened", "reserved", "answered"]
    assert entries[-1]["hash"] == head


def test_init_says_whom_the_budget_protects(voted):
    options = (
        "--epsilon",
        3,
        "--delta",
        1e-6,
        "--neighbors",
        "entity",
        "--unit",
        "patient_id",
        "--json",
    )
    made = json.loads(tutelage("ledger", "init", "b.ledger", *options, cwd=voted).stdout)
    assert (made["unit"], made["neighboring"], made["budget"], made["delta"]) == (
        "patient_id",
        "entity",
        3.0,
        1e-6,
    )
    assert "exists already" in refusal(
        tutelage("ledger", "init", "b.ledger", *options, cwd=voted), 1
    )
    unsaid = refusal(
        tutelage("ledger", "init", "c.ledger", "--epsilon", 3, "--delta", 1e-6, cwd=voted), 2
    )
    assert "--neighbors must name what the budget protects" in unsaid
    assert not (voted / "c.ledger").exists()


def test_ctrl_c_after_the_reservation_is_one_sentence_and_leaves_a_whole_ledger(voted, monkeypatch):
    def pressed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Account, "settle", pressed)
    left = label(voted, *GNMAX)
    assert (left.returncode, left.stdout) == (130, "")
    assert left.stderr.startswith(
        "tutelage: interrupted; no labels were written. The budget reserved"
    )
    assert not (voted / "labels.csv").exists()
    assert Ledger.open(voted / "a.ledger").verify().unsettled == 1


def test_a_run_is_charged_to_the_ledger_beside_the_private_rows(folder):  # noqa: F811
    configure(folder, ("delta = 1e-5", "delta = 1e-5\nbudget = 30"))
    first = json.loads(tutelage("run", "config.toml", "--json", cwd=folder).stdout)["budget"]
    found = state(folder, "private.csv.ledger")
    # Which names the folder.
    assert (found["spent"], found["entries"]) == (first["spent"], first["entries"] + 1)
    assert (first["budget"], first["bound"], first["unit"]) == (30.0, True, "patient")
    assert (
        "Every query was labeled before"
        in tutelage("run", "config.toml", "--overwrite", cwd=folder).stdout
    )
    assert state(folder, "private.csv.ledger")["spent"] == first["spent"]
    configure(folder, ("delta = 1e-5", "delta = 1e-5\nbudget = 30"), ("sigma = 2.0", "sigma = 3.0"))
    third = json.loads(tutelage("run", "config.toml", "--overwrite", "--json", cwd=folder).stdout)[
        "budget"
    ]
    assert third["spent"] > first["spent"]
    assert third["head"] in (folder / "out" / "card.md").read_text()
