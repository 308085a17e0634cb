"""A ledger and the disk under it: a disk that fills up, and file systems whose locks do not exclude."""

import fcntl
import os
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ledgers import new_ledger, reserve
from test_cli import refusal, succeeded
from tutelage import GNMax, LabelingSession, Ledger, SystemNoise, VoteHistogram
from tutelage.exceptions import ExposedFileWarning, LedgerStorageError
from tutelage.ledger import disk
from tutelage.ledger.disk import TRUST_LOCKS, _file_system, check_locks
from tutelage.privacy import ONE_TEACHER

VOTES = VoteHistogram(np.resize(np.array([[200, 30, 20], [90, 80, 80]]), (300, 3)), 250)
ROWS = np.arange(600.0).reshape(300, 2)


def fill(path: Path) -> None:
    with path.open("ab", buffering=0) as file:
        for size in (65536, 4096, 1):
            with suppress(OSError):  # no space left
                while True:
                    file.write(bytes(size))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 4 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small file system takes rights that are not here")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture
def asking(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> LabelingSession:
    """A session on the small disk, which another program fills up just while noise is drawn."""
    drawn = SystemNoise.discrete_gaussian

    def fills_the_disk(self: SystemNoise, sigma: float, shape: tuple[int, ...]) -> Any:
        fill(small_disk / "of another program")
        return drawn(self, sigma, shape)

    monkeypatch.setattr(SystemNoise, "discrete_gaussian", fills_the_disk)
    ledger = new_ledger(small_disk / "a.ledger", 9.0)
    return LabelingSession(VOTES, GNMax(40.0), ledger, X_voted=ROWS)


def test_a_disk_that_fills_up_while_noise_is_drawn_costs_no_answer(small_disk, asking):
    labels = asking.ask(ROWS).labels
    assert (labels >= 0).all()
    # It was full, and is again once the answers have their room.
    with pytest.raises(OSError, match="No space left"):
        (small_disk / "more").write_bytes(bytes(1 << 20))
    state = Ledger.open(small_disk / "a.ledger").verify()
    assert (state.answers, state.unsettled) == (300, 0)


def test_where_answers_would_have_no_room_nothing_is_spent(small_disk, asking):
    with (small_disk / "of another program").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 4 * 2**20 - 150_000)
    with pytest.raises(
        LedgerStorageError, match=r"a\.ledger has no room for 300 answers .* Nothing was spent"
    ):
        asking.ask(ROWS)
    assert Ledger.open(small_disk / "a.ledger").verify().spent == 0


def test_answers_that_could_not_be_stored_are_stored_by_the_next_ask_and_paid_for_once(
    small_disk, asking, monkeypatch
):
    monkeypatch.setattr(os, "posix_fallocate", lambda *_: None)  # a disk that keeps no room
    with pytest.raises(
        LedgerStorageError, match=r"withheld, and .* of the budget ε = 9 stays spent"
    ):
        asking.ask(ROWS)
    spent = asking.ledger.verify().spent
    assert spent > 0
    (small_disk / "of another program").unlink()
    assert asking.ask(ROWS).cost == 0
    state = asking.ledger.verify()
    assert (state.answers, state.unsettled, state.spent) == (300, 0, spent)


def test_room_is_given_back_with_the_reservation(asking):
    ledger = asking.ledger
    event = GNMax(40.0).event_of_one(3, ONE_TEACHER, simulated=False)
    # 40 batches that are never settled have 16 MB of room between them, and the disk has 4.
    for _ in range(40):
        reserve(ledger, event, 1)
    assert ledger.state().unsettled == 40


MOUNTS = {
    "/proc": "proc", "/": "ext4", "/srv/data": "nfs4", "/srv/data/local disk": "xfs", "/people/me/remote": "fuse.sshfs",
    "/mnt/usb": "fuseblk",
}  # fmt: skip


@pytest.fixture(params=["kernel", "psutil"])
def mounted(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> dict[str, str]:
    """Types of file systems by their folder, as the kernel tells them, or psutil where the kernel does not."""
    kinds, of_kernel = dict(MOUNTS), request.param == "kernel"
    # Psutil reads /etc/mtab, which nobody may have brought up to date.
    stale = {"/": "ext4"} if of_kernel else kinds

    def told() -> bytes:
        points = {at.replace(" ", r"\040"): kind for at, kind in kinds.items()}
        return "".join(f"disk {at} {kind} rw 0 0\n" for at, kind in points.items()).encode()

    monkeypatch.setattr(disk, "_MOUNTS", SimpleNamespace(exists=lambda: of_kernel, read_bytes=told))
    monkeypatch.setattr(
        disk,
        "disk_partitions",
        lambda **_: [SimpleNamespace(mountpoint=at, fstype=kind) for at, kind in stale.items()],
    )
    return kinds


@pytest.mark.usefixtures("mounted")
def test_the_file_system_of_a_folder_is_that_of_the_innermost_mount():
    folders = [
        "/people/me",
        "/srv/data/patients",
        "/srv/database",
        "/srv/data/local disk/x",
        "/people/me/remote",
    ]
    assert [_file_system(Path(folder)) for folder in folders] == [
        "ext4",
        "nfs4",
        "ext4",
        "xfs",
        "fuse.sshfs",
    ]


@pytest.mark.parametrize("kind", ["nfs4", "fuse.of-tomorrow"])
def test_a_ledger_on_a_network_file_system_is_refused_unless_a_setting_trusts_it(
    kind, tmp_path, monkeypatch, mounted
):
    path = tmp_path / "a.ledger"
    new_ledger(path, 1.0)
    mounted[str(tmp_path)] = kind
    for attempt in (
        lambda: new_ledger(tmp_path / "b.ledger", 1.0),
        lambda: Ledger.open(path),
    ):
        with pytest.raises(LedgerStorageError, match=f"a {kind} file system"):
            attempt()
    assert not (tmp_path / "b.ledger").exists()
    Ledger.open(path, read_only=True).verify()
    monkeypatch.setenv(TRUST_LOCKS, "1")
    Ledger.open(path)


def test_locks_that_do_not_exclude_are_found_by_trying(tmp_path, monkeypatch):
    check_locks(tmp_path)
    # Every lock is granted, as where locking is switched off.
    monkeypatch.setattr(fcntl, "fcntl", lambda *_: 0)
    with pytest.raises(LedgerStorageError, match="whose locks do not exclude other processes"):
        check_locks(tmp_path)


def test_a_ledger_that_others_may_change_is_used_with_a_warning(tmp_path, called):
    path = tmp_path / "a.ledger"
    new_ledger(path, 1.0)
    assert called("ledger", "show", path).stderr == ""
    path.chmod(0o666)
    with pytest.warns(
        ExposedFileWarning, match=r"a\.ledger contains a secret key.*Run `chmod 600` on it"
    ):
        Ledger.open(path)


def test_on_a_disk_without_modes_the_owner_is_warned_where_no_chmod_can_help(
    tmp_path, called, monkeypatch
):
    """All files of such a disk have the mode and the owner with which it was mounted."""
    seen, disk = os.fstat, next(folder for folder in tmp_path.parents if folder.is_mount())

    def without_modes(descriptor: int) -> os.stat_result:
        found = list(seen(descriptor))
        found[0] = int(found[0]) | 0o777
        return os.stat_result(found)

    new_ledger(tmp_path / "a.ledger", 1.0)
    (tmp_path / "private-export").mkdir()
    for path in (tmp_path / "a.ledger", tmp_path / "private-export"):
        path.chmod(0o777)
    export = ("ledger", "export", "a.ledger", "--output", "export")
    assert "chmod 700" in refusal(called(*export, cwd=tmp_path), 2)
    monkeypatch.setattr(os, "fstat", without_modes)
    with pytest.warns(
        ExposedFileWarning, match=f"the disk at {disk} does not keep file permissions.*umask=077"
    ):
        Ledger.open(tmp_path / "a.ledger")
    warnings.simplefilter("default", ExposedFileWarning)
    assert (
        "private-export is private, but the disk" in succeeded(called(*export, cwd=tmp_path)).stderr
    )
