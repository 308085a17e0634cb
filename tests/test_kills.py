"""Commands that are killed at any event of a file: what is spent, what is published, and what is left."""

import json
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from processes import called_by_itself, die_at_event
from runs_of_people import ADDITIVE, CAPPED, NEAREST, VECTORS, configure_people
from test_cli import configure, write_people
from tutelage._internal import outputs
from tutelage.cli import main
from tutelage.ledger import Ledger, turns
from tutelage.signing import SigningKey, VerifyKey
from tutelage.students import load_student

BUDGET = ("delta = 1e-5", "delta = 1e-5\nbudget = 90")
RUN = ("run", "config.toml")
_LABEL = "label rows.npz --votes votes.npz --ledger a.ledger --mechanism lnmax --scale 5"
LABEL = tuple(_LABEL.split())
TEST = ("publish", "test", "p.json", *LABEL[1:], "--output", "claim.json")


def rows(folder: Path) -> None:
    write_people(folder, 120, 60)
    configure(folder, BUDGET)


def earlier(folder: Path) -> None:
    """Leave an earlier release of other labels."""
    rows(folder)
    done(folder, RUN)
    configure(folder, BUDGET, ("sigma = 2.0", "sigma = 9.0"))


def campaign(folder: Path) -> None:
    write_people(folder, 120, 100)
    configure_people(folder, by=NEAREST, privacy="budget = 60", method=CAPPED.format(9.0, 5))


def additive(folder: Path) -> None:
    write_people(folder, 120, 1)
    configure_people(
        folder, by=ADDITIVE, privacy="epsilon = 2.0\nbudget = 9.0", more="votes = true"
    )


def moments(folder: Path) -> None:
    write_people(folder, 120, 80)
    configure_people(folder, by=VECTORS, privacy="epsilon = 2.0\nbudget = 9.0", more="votes = true")


def votes(folder: Path) -> None:
    """Leave votes, and a ledger with a proposal about them."""
    counts = np.array([[145, 4, 1], [1, 2, 147]] * 6)
    np.savez(folder / "proxy.npz", votes=counts)
    np.savez(folder / "votes.npz", votes=counts)
    np.savez(folder / "rows.npz", X=np.arange(12.0)[:, None])
    limits = ("--epsilon", "30", "--delta", "1e-5", "--neighbors", "ballot")
    done(folder, ("ledger", "init", "a.ledger", *limits))
    proposal = "--delta 4e-6 --refusal 1e-6 --output p.json --ledger a.ledger"
    done(folder, ("publish", "propose", "proxy.npz", *LABEL[-4:], *proposal.split()))


def labeled(folder: Path) -> None:
    votes(folder)
    done(folder, (*LABEL, "--output", "labels.csv"))


VERBS: dict[str, tuple[Callable[[Path], None], tuple[str, ...], str]] = {
    "run": (rows, RUN, "out"),
    "run --overwrite": (earlier, (*RUN, "--overwrite"), "out"),
    "campaign": (campaign, RUN, "out"),
    "additive": (additive, RUN, "out"),
    "moments": (moments, RUN, "out"),
    "label": (votes, (*LABEL, "--output", "labels.csv"), "labels.csv"),
    "publish test": (labeled, TEST, "claim.json"),
    "card": (
        earlier,
        ("card", "out", "--ledger", "private.csv.ledger", "--state", "legal=Yes."),
        "out",
    ),
}
AGAIN: dict[str, tuple[str, ...]] = dict.fromkeys(
    ("run", "campaign", "additive", "moments"), ("--overwrite",)
)


def done(folder: Path, call: tuple[str, ...], event: int = 0, *, full: bool = False) -> int:
    """Call the command line in a child; return its exit code.

    If an event is given, the child is killed there, or the disk is full from then on.
    """
    child = os.fork()
    if child == 0:
        code = 70
        try:
            os.chdir(folder)
            null = os.open(os.devnull, os.O_RDWR)
            said = os.open(folder.parent / "said", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            os.dup2(null, 1)
            os.dup2(said, 2)
            sys.argv = ["tutelage", *call]
            if event:
                die_at_event(event, folder, full=full)
            try:
                main()
                code = 0
            except SystemExit as left:
                code = int(left.code or 0)
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert event or code == 0, (folder.parent / "said").read_text()
    return code


def warm(folder: Path, call: tuple[str, ...]) -> None:
    """Call the command line in this process, so that its children need not load and compute the same again.

    On one thread: GNU OpenMP hangs in a child whose parent had its threads.
    """
    os.chdir(folder)
    sys.argv = ["tutelage", *call]
    with redirect_stdout(StringIO()), suppress(SystemExit), threadpool_limits(1, "openmp"):
        main()
    os.chdir(folder.parent)


def spent(folder: Path) -> tuple[int, int, int]:
    """Return the grains that are spent, the answers, and how many of them are paid; of no ledger, none."""
    paths = [*folder.glob("*.ledger")]
    if not paths or not paths[0].stat().st_size:
        return 0, 0, 0
    ledger = Ledger.open(paths[0])
    paid = sum(
        max(charge.queries, charge.reserved.content["queries"])
        for charge in ledger.history().charges
    )
    return ledger.export()[-1]["spent"], ledger.verify().answers, paid


def contents(path: Path) -> object:
    """Return all bytes of a file or a folder; None where nothing is."""
    if path.is_dir():
        return {each.name: each.read_bytes() for each in path.iterdir()}
    return path.read_bytes() if path.exists() else None


def swept(verb: str, step: int, folder: Path, most: int = 0) -> None:
    """Kill a command at one event after the other; after each, look at what is there, and call it again.

    It ends where the command is through, or after the `most` kills.
    """
    prepare, call, output = VERBS[verb]
    fresh = folder / "fresh"
    fresh.mkdir(parents=True)
    prepare(fresh)
    before, (owed, *_) = contents(fresh / output), spent(fresh)
    whole = folder / "whole"
    shutil.copytree(fresh, whole)
    warm(whole, call)
    plan = spent(whole)[0] - owed
    # It starts at another event in each run, so that runs together try all of them. Any kill must be safe.
    found, event = Counter[str](), 1 + int(np.random.default_rng().integers(step))
    while not most or found.total() < most:
        attempt = folder / "attempt"
        shutil.copytree(fresh, attempt)
        if done(attempt, call, event) != -9:
            break
        now, (paid, answered, allowed) = contents(attempt / output), spent(attempt)
        assert 0 <= paid - owed <= plan, (event, paid, owed, plan)
        assert answered <= allowed, event
        if now is None or now == before:
            found["old"] += 1
        else:
            found["new"] += 1
            if output == "out":
                mixed(before, now, event)
        if output == "out" and now is not None:
            load_student(attempt / "out")
        done(attempt, (*call, *AGAIN.get(verb, ())))
        assert paid <= spent(attempt)[0] <= paid + plan, event
        if paid - owed == plan and answered == spent(whole)[1]:
            assert spent(attempt)[0] == paid, event  # what was answered is remembered
        # The lock of a process that was killed when it had paid stays until the next release.
        for lock in attempt.glob(f"*{turns.SUFFIX}"):
            assert lock.stat().st_size == 0, event
            lock.unlink()
        left, expected = files_in(attempt), files_in(whole)
        # Votes that were stored for a reservation that was never settled are of nothing that was released.
        assert left.keys() == expected.keys(), event
        assert left >= expected, event
        empty = {
            path.name for path in attempt.rglob("*") if path.is_file() and not path.stat().st_size
        }
        assert empty <= {outputs._LOCK}, event
        shutil.rmtree(attempt)
        event += step
    assert found["old"] > 0
    sys.stdout.write(json.dumps({"verb": verb, "kills": found.total(), **found}))


def files_in(folder: Path) -> Counter[str]:
    """Return the names of all files, without the numbers of the ledger's entries."""
    return Counter(
        re.sub(r"-\d+\.npz", ".npz", str(path.relative_to(folder))) for path in folder.rglob("*")
    )


def mixed(before: object, now: object, event: int) -> None:
    """Refuse files of two releases in one folder."""
    old, new = (each if isinstance(each, dict) else {} for each in (before, now))
    assert "manifest.json" in new, event
    named = json.loads(new["manifest.json"])["sha256"]
    assert set(new) == {*named, "manifest.json"}, event
    assert old.get("card.json") != new["card.json"], event


# A step that leaves each three kills. Other methods go the same way; the slow test sweeps all.
FEW = {
    "run": 61,
    "run --overwrite": 61,
    "campaign": 61,
    "label": 19,
    "publish test": 19,
    "card": 19,
}


@pytest.mark.rest
def test_commands_killed_at_three_events_leave_a_whole_release_and_the_right_budget(tmp_path):
    """In one process, which loads everything once."""
    call = "[swept(verb, step, Path(given[0]) / verb, most=3) for verb, step in FEW.items()]"
    assert called_by_itself("test_kills", call, tmp_path).count('"kills"') == len(FEW)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("verb", VERBS)
def test_a_command_killed_at_any_event_leaves_a_whole_release_and_the_right_budget(verb, tmp_path):
    sys.stdout.write(
        called_by_itself("test_kills", "swept(given[0], 1, Path(given[1]))", verb, tmp_path)
    )


KEY = ("key", "officer")


def keys_swept(folder: Path) -> None:
    """Make a key, and be killed or find the disk full at one event after the other; make it again."""
    folder.mkdir()
    warm(folder, ("key", "warm"))
    found = Counter[str]()
    for full in (False, True):
        for event in range(1, 1000, 5):
            attempt = folder / f"{full} {event}"
            attempt.mkdir()
            code = done(attempt, KEY, event, full=full)
            if code == 0:
                break
            assert code in ((1, 2) if full else (-9,)), event
            if full:
                assert re.fullmatch(
                    "tutelage: .*No space left on device.*\n", (folder / "said").read_text()
                ), event
            whole = (attempt / "officer.public.json").exists()
            assert done(attempt, KEY, 999) == whole, event  # which is refused where keys are there
            private, public = attempt / "officer.private.json", attempt / "officer.public.json"
            assert {*attempt.iterdir()} == {private, public}, event
            assert SigningKey.load(private).public == VerifyKey.load(public), event
            assert private.stat().st_mode & 0o777 == 0o600, event
            found["full disks" if full else "kills"] += 1
    assert found.keys() == {"kills", "full disks"}
    sys.stdout.write(f"{found['kills']} kills\n")


def test_what_is_killed_is_paid_once_and_made_whole_by_the_next_call(tmp_path):
    """A key, an answer at any event, and steps of a consortium at some; in one process, which loads everything once."""
    call = (
        "import test_ledger_crashes, test_serving; here = Path(given[0]); keys_swept(here / 'keys'); "
        "test_ledger_crashes.kill_every(here / 'a.ledger'); test_serving.all_swept(['ask', 'cast'], 83, here)"
    )
    assert called_by_itself("test_kills", call, tmp_path).count(" kills") == 4
