import json
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from hostile_mail import FOREIGN, OUTSIDE
from parties import free_ports
from processes import surroundings, until, wait_for_end
from tutelage.exceptions import FederationError, InvalidParameterError
from tutelage_consortium import kits
from tutelage_consortium.files import write_once
from tutelage_consortium.flare import (
    ROUND_BYTES,
    MailClient,
    MailServer,
    _is_for,
    _is_place,
    _may_deliver,
)

pytestmark = [pytest.mark.rest, pytest.mark.timeout(600)]
MEMBERS = ("h1", "h2", "h10")


@dataclass
class Sites:
    """A server and members on this machine, each with a kit and a mailbox of its own."""

    folder: Path
    running: dict[str, kits.Carrier] = field(default_factory=dict)

    def mailbox(self, name: str) -> Path:
        return self.folder / "mail" / name

    def start(self, *names: str) -> None:
        for name in names:
            kit = self.folder / name if name == kits.SERVER else self.folder / "members" / name
            self.running[name] = kits.start(kit, self.mailbox(name))

    def kill(self, *names: str) -> None:
        for name in names:
            self.running[name].stop()
            assert self.running[name].process.returncode == -signal.SIGKILL
            assert not self.running[name].alive()

    def put(self, name: str, path: str, data: bytes = b"content") -> None:
        write_once(self.mailbox(name) / path, data)

    def has(self, name: str, *paths: str) -> bool:
        return all((self.mailbox(name) / path).exists() for path in paths)


@pytest.fixture(scope="module", autouse=True)
def _on_loopback() -> Iterator[None]:
    """Let processes of FLARE find the modules of tests, and no proxy."""
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ:
            if name.lower().endswith("_proxy"):
                patch.delenv(name)
        patch.setenv("PYTHONPATH", surroundings()["PYTHONPATH"])
        yield


def made(folder: Path) -> Sites:
    kits.provision(folder, "trial", f"localhost:{free_ports(1)[0]}", MEMBERS)
    return Sites(folder)


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    found = made(tmp_path_factory.mktemp("sites"))
    found.put("server", "rosters/0.json", b"{}")
    found.start("server", *MEMBERS)
    until(lambda: all(found.has(name, "rosters/0.json") for name in MEMBERS))
    yield found
    for carrier in found.running.values():
        carrier.stop()


def test_files_go_both_ways_and_shares_to_their_recipient_only(sites):
    for name in MEMBERS:
        sites.put(name, f"members/{name}.json", name.encode())
        for other in MEMBERS:
            sites.put(name, f"shares/aa/{name}.to-{other}.sealed", os.urandom(130_000))
    several = [f"batches/b{number}.batch" for number in range(40)]  # more than fits a message
    for path in several:
        sites.put("server", path, bytes(ROUND_BYTES // 10))
    sites.put("h1", "labels/bb/h1.sealed", os.urandom(5 * ROUND_BYTES))
    sites.put("h1", "members/h2.forged.json")
    sites.put("h1", "notes.txt")
    everywhere = [*several, "labels/bb/h1.sealed", *(f"members/{name}.json" for name in MEMBERS)]
    for name in MEMBERS:
        shares = [f"shares/aa/{other}.to-{name}.sealed" for other in MEMBERS]
        until(
            lambda name=name, shares=shares: (
                sites.has(name, *everywhere, *shares) and sites.has("server", *shares)
            )
        )
    assert len((sites.mailbox("h2") / "labels/bb/h1.sealed").read_bytes()) == 5 * ROUND_BYTES
    for name, path in (("h10", "shares/aa/h1.to-h2.sealed"), ("h1", "shares/aa/h2.to-h10.sealed")):
        assert not sites.has(name, path)
    for path in ("members/h2.forged.json", "notes.txt"):
        assert not sites.has("server", path)


@pytest.mark.parametrize("victim", ["h1", "server"])
def test_a_killed_process_goes_on_after_its_next_start(sites, victim):
    sites.put("h1", f"labels/{victim}/h1.sealed", os.urandom(2 * ROUND_BYTES))
    sites.kill(victim)
    sites.put("server", f"batches/{victim}.batch")
    for name in MEMBERS:
        sites.put(name, f"labels/{victim}/{name}.late.sealed")
    sites.start(victim)
    paths = [
        f"batches/{victim}.batch",
        *(f"labels/{victim}/{name}.late.sealed" for name in MEMBERS),
    ]
    for name in MEMBERS:
        until(lambda name=name: sites.has(name, *paths, f"labels/{victim}/h1.sealed"))
    with pytest.raises(FederationError, match="is in use by a process that runs"):
        sites.start(victim)


def test_a_hostile_member_reaches_nothing(sites, monkeypatch):
    monkeypatch.setitem(kits._COMPONENTS, "client", "hostile_mail.HostileClient")
    sites.kill("h10")
    sites.start("h10")
    outcome = sites.mailbox("h10") / "outcome.json"
    until(outcome.exists)
    found = json.loads(outcome.read_text())
    assert found.pop("refused") == [
        *OUTSIDE,
        *FOREIGN,
        str(sites.folder / "mail" / "outside.sealed"),
    ]
    # FLARE itself lets the claim of another name pass; that it is answered shows that it came as far as our check.
    dropped = dict.fromkeys(("_net_manager", "hci_channel", "h1"), "timeout")
    assert found == {"bad": "invalid_request", "own": [], "claimed": "unauthenticated", **dropped}
    assert not [*sites.folder.rglob("*outside*"), *sites.folder.rglob("*stolen*")]
    assert sites.running["server"].alive()


def test_a_kit_of_another_authority_gets_nothing(sites, tmp_path):
    address = json.loads((sites.folder / "server" / "kit.json").read_text())["server"]
    kits.provision(tmp_path, "trial", address, MEMBERS)
    other = Sites(tmp_path)
    other.put("h2", "members/h2.other.json")
    other.start("h2")
    until(lambda: other.running["h2"].log.read_text().count("CERTIFICATE_VERIFY_FAILED") > 1)
    assert [path.name for path in other.mailbox("h2").rglob("*.*")] == ["h2.other.json"]
    assert not sites.has("server", "members/h2.other.json")
    other.running["h2"].stop()


def test_a_hostile_server_writes_nothing_outside_and_nothing_over(tmp_path, monkeypatch):
    monkeypatch.setitem(kits._COMPONENTS, "server", "hostile_mail.HostileServer")
    sites = made(tmp_path)
    sites.put("h1", "members/mine.json")
    sites.start("server", "h1")
    until(lambda: sites.has("h1", "members/good.json", "members/good-9.json"))
    paths = sorted(
        str(path.relative_to(sites.mailbox("h1"))) for path in sites.mailbox("h1").rglob("*.*")
    )
    assert [path for path in paths if "good" not in path] == ["members/mine.json"]
    assert not [*tmp_path.rglob("outside*")]
    assert (sites.mailbox("h1") / "members" / "mine.json").read_bytes() == b"content"
    for carrier in sites.running.values():
        carrier.stop()


def test_a_process_ends_with_the_one_that_started_it(tmp_path):
    sites = made(tmp_path)
    script = (
        "import sys; from pathlib import Path; from tutelage_consortium.kits import *;"
        "process = start(*map(Path, sys.argv[1:])).process; print(process.pid, flush=True); process.wait()"
    )
    command = [sys.executable, "-c", script, sites.folder / "server", sites.mailbox("server")]
    with Popen(command, stdout=PIPE, text=True) as caller:
        assert caller.stdout is not None
        started = int(caller.stdout.readline())
        until(lambda: "added secure port" in (sites.folder / "server" / "log.txt").read_text())
        caller.kill()
    wait_for_end(started)


def test_a_member_delivers_in_its_own_name_and_to_places_of_the_mailbox():
    for path in (
        "members/h1.json",
        "shares/aa/h1.to-h2.0f.sealed",
        "labels/aa/h1.to-h2.0f.ff.sealed",
    ):
        assert _may_deliver(path, "h1")
        assert not _may_deliver(path, "h")
        assert not _may_deliver(path, "h11")
    odd = ("members/h1.", "members/h1.json\n", "members/.h1.json", "members/h1.x.part/h1.x")
    for path in (*OUTSIDE, *FOREIGN[:-1], *odd):
        assert not _may_deliver(path, "h1")
    assert not _is_place("members/h1")  # the name of a folder
    assert not _is_place("members/a.b/h1.json")  # the name of a file


def test_shares_are_for_their_sender_and_recipient():
    for path in ("shares/aa/h1.to-h20.sealed", "shares/aa/h1.to-h20.0f.sealed"):
        assert [
            name for name in ("h", "h1", "h10", "h2", "h20", "h20-0", "20") if _is_for(path, name)
        ] == ["h1", "h20"]
    assert _is_for("labels/aa/h1.to-h2.sealed", "h3")


def test_other_bytes_are_refused_and_links_are_not_followed(tmp_path):
    server, secret, path = (
        MailServer(str(tmp_path / "mail")),
        tmp_path / "secret.json",
        "members/h1.json",
    )
    secret.write_bytes(b"secret")
    for content, refused in ((b"one", []), (b"one", []), (b"two", [path])):
        assert (
            server.exchange("h1", {"put": {path: content}, "want": [], "seen": ["", 0]})["refused"]
            == refused
        )
    (tmp_path / "mail" / "members" / "h2.json").symlink_to(secret)
    server._looked = 0.0
    asked = {"put": {}, "want": [path, "members/h2.json"], "seen": ["", 0]}
    assert server.exchange("h3", asked)["files"] == {path: b"one", "members/h2.json": None}


def test_a_member_sends_again_what_may_be_lost(tmp_path):
    client, server = MailClient(str(tmp_path / "h1")), MailServer(str(tmp_path / "server"))
    client._name = "h1"
    write_once(tmp_path / "h1" / "members" / "h1.json", b"one")
    assert not client.take(server.exchange("h1", client.next_request()))
    assert list(client.next_request()["put"]) == ["members/h1.json"]
    client._seen = ["", 0]  # as after an exchange that failed
    assert not client.take(server.exchange("h1", client.next_request()))
    assert client.take(server.exchange("h1", client.next_request()))
    assert (tmp_path / "server" / "members" / "h1.json").read_bytes() == b"one"
    assert not client.next_request()["put"]


def test_kits_are_made_once_and_members_can_be_added(tmp_path):
    kits.provision(tmp_path, "trial", "localhost:8002", ["h1"])
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*") if path.is_file()}
    kits.provision(tmp_path, "trial", "localhost:8002", ["h1", "h2"])
    assert all(path.read_bytes() == data for path, data in before.items())
    assert {path.name for path in (tmp_path / "members" / "h2").iterdir()} > {
        "kit.json",
        "kit.key",
        "rootCA.pem",
    }
    assert all(path.stat().st_mode & 0o77 == 0 for path in tmp_path.rglob("*.*") if path.is_file())


@pytest.mark.parametrize(("server", "members", "why"), [
    ("localhost:8002", ["h1", "H1"], "`members` of Consortium must have names that differ by more than case"),
    ("localhost:8002", ["Server"], "`members` of Consortium must have names that differ by more than case"),
    ("local host:1", ["h1"], "`server` of a kit must be HOST:PORT"),
])  # fmt: skip
def test_names_and_addresses_that_no_kit_can_have_are_refused(server, members, why, tmp_path):
    with pytest.raises(InvalidParameterError, match=why):
        kits.provision(tmp_path, "trial", server, members)


def test_a_damaged_kit_is_refused(tmp_path):
    (tmp_path / "server").mkdir()
    (tmp_path / "server" / "kit.json").write_text("{}")
    with pytest.raises(FederationError, match=r"is not a kit, or it is damaged\."):
        kits.start(tmp_path / "server", tmp_path / "mail")


def test_without_flare_the_refusal_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setattr(kits, "find_spec", lambda _: None)
    with pytest.raises(FederationError, match=r"pip install '.*\[flare\]'"):
        kits.provision(tmp_path, "trial", "localhost:8002", ["h1"])
