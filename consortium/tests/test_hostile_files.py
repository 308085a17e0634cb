"""Files of a consortium that others sent, mutated: each ends in a sentence, and a member never in a traceback."""

import copy
import json
import random
import shutil
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import test_cli_consortium
from test_cli import tutelage
from test_cli_consortium import folder, invite, propose  # noqa: F401  the fixture
from tutelage._internal.records import as_record, plain
from tutelage.exceptions import InvalidDataError
from tutelage_consortium.invites import Place
from tutelage_consortium.keys import Identity, Member, Role

pytestmark = pytest.mark.usefixtures("repeatable")


@pytest.fixture(autouse=True)
def _in_this_process(in_this_process, monkeypatch):
    """Let the helpers of the other module call the command line without a process, too."""
    monkeypatch.setattr(test_cli_consortium, "tutelage", sys.modules[__name__].tutelage)


DEEP: Any = []
for _ in range(100):
    DEEP = [DEEP]
HOSTILE: list[Any] = [
    None, True, -1, 0, 0.5, 2**70, 1e308, "", "x" * 300, "\0", "../x", "\x1b[2J", "hospital-9", [], {}, {"": 1}, [None],
    [[1]], DEEP, "Infinity", "127.0.0.1:99999", "٣", "a\nb", "\ud800",
]  # fmt: skip


def places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each container of a tree with each of its keys."""
    for key in (
        list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    ):
        yield tree, key
        yield from places(tree[key])


def mutated(tree: Any, chance: random.Random) -> Any:
    """Return a copy of a JSON value in which one entry is changed, left out, renamed or that of another place."""
    found = copy.deepcopy(tree)
    container, key = chance.choice([*places(found)])
    match chance.randrange(4):
        case 0:
            del container[key]
        case 1 if isinstance(container, dict):
            container[str(chance.choice(HOSTILE))[:20]] = container.pop(key)
        case 2:
            container[key] = copy.deepcopy(
                chance.choice([value[at] for value, at in places(found)])
            )
        case _:
            container[key] = chance.choice(HOSTILE)
    return found


def damaged(content: bytes, chance: random.Random) -> bytes:
    """Return bytes of which some are others, or gone, or twice there."""
    at, more = chance.randrange(len(content)), chance.randrange(1, 40)
    middle = [b"", chance.randbytes(1), content[at : at + more] * 2]
    return content[:at] + chance.choice(middle) + content[at + chance.choice([0, 1, more]) :]


def written(tree: Any) -> bytes:
    return json.dumps(tree, separators=(",", ":"), sort_keys=True).encode()


def ended_well(*words: object, codes: tuple[int, ...]) -> int:
    """Call a verb; return its exit code, once what it said is found to be sentences."""
    done = tutelage("consortium", *words)
    assert done.returncode in codes, (words, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    if done.returncode:
        assert done.stderr.startswith("tutelage: "), done.stderr
        assert len(done.stderr) < 3_000
    return done.returncode


FUZZ = pytest.mark.parametrize("cases", [10, pytest.param(60, marks=pytest.mark.rest)])


@FUZZ
def test_a_hostile_invite_or_terms_file_ends_in_a_sentence(cases, folder, tmp_path):  # noqa: F811
    chance = random.Random(1)  # noqa: S311
    data, terms = invite(folder, "left").read_bytes(), (folder / "terms.toml").read_bytes()
    with zipfile.ZipFile(invite(folder, "left")) as archive:
        about = json.loads(archive.read("invite.json"))
    home, path, other, refusals = (
        tmp_path / "home",
        tmp_path / "some.invite",
        tmp_path / "hostile.toml",
        0,
    )
    for case in range(cases):
        if case % 4 == 0:
            path.write_bytes(damaged(data, chance))
        else:
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("invite.json", written(mutated(about, chance)))
        other.write_bytes(damaged(terms, chance))
        for words in (("join", path), ("new", other, "--mailbox", tmp_path / "mail")):
            refusals += ended_well(*words, "--home", home, codes=(0, 1, 2)) > 0
            shutil.rmtree(home, ignore_errors=True)
    assert refusals > 0  # some changes are of no harm


@FUZZ
def test_hostile_rosters_and_mail_stop_no_member(cases, folder):  # noqa: F811
    chance = random.Random(2)  # noqa: S311
    roster, home = propose(folder), folder / "hospital-0"
    box = Path(Place.load(home).mailbox)
    serve, status = ("serve", home, "--once", "--words", roster.words), ("status", home)
    ended_well(*serve, codes=(0,))
    files = sorted(path for path in box.rglob("*") if path.is_file())
    for case in range(cases):
        path = chance.choice(files)
        before = path.read_bytes()
        is_json = path.suffix == ".json" and case % 4
        is_next = path.parent.name == "rosters" and chance.randrange(2)
        target = path.with_name("1.json") if is_next else path
        target.write_bytes(
            written(mutated(json.loads(before), chance)) if is_json else damaged(before, chance)
        )
        ended_well(*serve, codes=(0, 1, 2))
        ended_well(*status, codes=(0, 1))
        target.unlink()
        path.write_bytes(before)
    ended_well(*status, codes=(0,))


@pytest.mark.parametrize("entry", [{"role": "\ud800"}, {"\ud800": 1}], ids=["value", "name"])
def test_half_of_a_surrogate_pair_is_damage(entry):
    content = plain(Identity.generate("hospital", Role.ENTITY).member)
    with pytest.raises(InvalidDataError, match="Ask again"):
        as_record({**content, **entry}, Member, InvalidDataError("Ask again."))
