"""No output destroys what tutelage did not write: every option that writes, at every kind of file that may be there."""

import hashlib
import inspect
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier

from blobs import LABELS, PRIVATE, PUBLIC
from test_cli import configure, write_people
from tutelage import Ledger, PATEClassifier, SimulationNoise, VoteHistogram
from tutelage._internal.releases import claimed_folder, publish_folder
from tutelage.cli.app import _VERBS, _load
from tutelage.exceptions import ConfigError, TutelageError
from tutelage.features import PublicColumns
from tutelage.privacy import ONE_TEACHER
from tutelage.signing import SigningKey
from tutelage.students import export_onnx
from tutelage.students.store import write_student
from tutelage_consortium import Identity, Mailbox, Role
from tutelage_consortium.command import new
from tutelage_reproductions import Record, Row, command

pytestmark = pytest.mark.rest

READ = {  # options that name what is read, or spent from
    "schema public", "plan public", "plan stand_in", "plan configuration", "label public", "label votes",
    "label ledger", "label predictions", "consortium new terms", "consortium new mailbox", "consortium join invite",
    "consortium join data", "consortium serve home", "consortium run home", "consortium run test",
    "consortium status home", "ledger show file", "ledger verify file", "ledger verify release",
    "ledger verify signer", "ledger head file", "ledger head sign", "ledger list folder", "ledger list data",
    "ledger exposure file", "ledger export file", "account votes", "publish propose proxy", "publish propose ledger",
    "publish test proposal", "publish test public", "publish test votes", "publish test ledger", "card results",
    "ledger backup file", "ledger raise file", "ledger withdraw file",
    "card ledger", "card statements", "card claim", "card verify", "card onnx", "card policy",
    "audit config", "init private", "init public", "predict results", "predict rows",
}  # fmt: skip
LNMAX = "--mechanism lnmax --scale 5"
VOTES = f"--votes votes.npz --ledger a.ledger {LNMAX}"
RECORD = Record(name="epsilons", source="a paper", rows=(Row(name="a row", ours=1.0),), quick=True)
TERMS = """name = "H"
classes = ["no", "yes"]
quorum = 2
hospitals = { one = 60, two = 60 }
parties = { left = "127.0.0.1:1", middle = "127.0.0.1:2", right = "127.0.0.1:3" }
privacy = { unit = "patient", epsilon = 4.0, delta = 1e-5 }
schema = { age = [20, 95] }
"""
RESULTS = (
    "",
    "card.json",
    "card.md",
    "card.html",
    "manifest.json",
    "manifest.signature.json",
    "notes.txt",
)
KEYS = ("", "n.private.json", "n.public.json")
HOME = ("", "settings.json", "ledger", "registry.private.json", "one.private.json")
INIT = "init --private private.csv --person patient --label ill --public public.csv"
JOIN = (
    "consortium join registry/invites/one.invite --data one.csv --id patient --label ill --home o"
)


def to(
    words: str, output: str = "o", places: tuple[str, ...] = ("",)
) -> tuple[list[str], str, tuple[str, ...]]:
    """Return what is called, and the places that it writes to: files, or a folder ("") and files in it."""
    return words.split(), output, places


RECORDS = ("", "epsilons.json", "epsilons.csv", "epsilons.svg")
PLAN = ("", "plan.json", "plan.html", "notes.txt")
WRITTEN = {
    "example output": to("example adult --output o"),
    "init output": to(f"{INIT} --goal accuracy --epsilon 1 --output o"),
    "plan output": to(
        "plan --epsilon 3 --people 20000 --classes 2 --public-rows 300 --output o", places=PLAN
    ),
    "run config": to(
        "run config.toml --overwrite", places=(*RESULTS, "labels.csv", "student.skops")
    ),
    "predict output": to("predict s.skops rows.csv --output o"),
    "label output": to(f"label rows.npz {VOTES} --output o"),
    "consortium new home": to(
        "consortium new terms.toml --mailbox mail --home o", places=(*HOME, "invites")
    ),
    "consortium join home": to(JOIN, places=HOME),
    "ledger init file": to("ledger init o --epsilon 1 --delta 1e-5 --neighbors row"),
    "ledger show html": to("ledger show a.ledger --html o"),
    "consortium status html": to("consortium status registry --html o"),
    "ledger backup copy": to("ledger backup a.ledger o"),
    "key folder": to("key n --folder o", places=KEYS),
    "ledger export output": to("ledger export a.ledger --output o"),
    "ledger head output": to("ledger head a.ledger --sign keys/n.private.json --output o"),
    "publish propose output": to(
        f"publish propose votes.npz --ledger b.ledger {LNMAX} --delta 1e-5 --output o"
    ),
    "publish test output": to(f"publish test p.json rows.npz {VOTES} --output o"),
    "card output": to("card --ledger a.ledger --output o", places=RESULTS),
    "card sign": to("card --ledger a.ledger --output o --sign keys/n.private.json", places=RESULTS),
    "card registry": to("card c --registry o.yaml", "o.yaml"),
    "reproduce output": to("reproduce epsilons --output o", places=RECORDS),
}
MEMBER = Identity.generate("n", Role.ENTITY).member
MEMBER_FILE = f"n.{hashlib.sha256(MEMBER.fingerprint.encode()).hexdigest()[:16]}.json"
STUDENT = DecisionTreeClassifier(max_depth=2).fit(PUBLIC, np.arange(len(PUBLIC)) % 3)
COUNTS = VoteHistogram(np.array([[9, 1], [3, 7]]), 10)
PYTHON: dict[str, tuple[Callable[[Path], object], tuple[str, ...]]] = {
    "PATEClassifier.save": (lambda path: fitted().save(path), (*RESULTS, "labels.csv", "student.skops")),
    "export_onnx": (lambda path: export_onnx(STUDENT, path), ("",)),
    "VoteHistogram.save": (COUNTS.save, ("",)),
    "Mailbox": (lambda path: Mailbox(path).put_member(MEMBER), ("", "members", f"members/{MEMBER_FILE}")),
}  # fmt: skip


@cache
def fitted() -> Any:
    model = PATEClassifier(epsilon=2.0, noise=SimulationNoise(0), classes=range(3), random_state=0)
    return model.fit(PRIVATE, LABELS, X_public=PUBLIC)


def a_ledger(path: Path) -> None:
    Ledger.create(path, epsilon=2.0, delta=1e-5, unit=ONE_TEACHER)


def a_key(path: Path) -> None:
    private, _ = SigningKey.generate("n").save(path.parent / "made")
    private.rename(path)


def a_folder(path: Path) -> None:
    path.mkdir()
    (path / "thesis.tex").write_text("ten years of work")


def a_link(path: Path) -> None:
    (path.parent / "linked.csv").write_text("age,ill\n81,yes\n")
    path.symlink_to("linked.csv")


def a_plan(path: Path) -> None:
    with (
        claimed_folder(path, ("plan.json",), "stop", kind="plan") as claim,
        publish_folder(claim, kind="plan") as part,
    ):
        (part / "plan.json").write_text("{}")


VICTIMS: dict[str, Callable[[Path], object]] = {
    "ledger": a_ledger,
    "key": a_key,
    "private csv": lambda path: path.write_text("age,ill\n81,yes\n"),
    "empty file": lambda path: path.touch(),
    "folder": a_folder,
    "link": a_link,
    "link to nowhere": lambda path: path.symlink_to("nowhere"),
    "pipe": os.mkfifo,
    "results of a run": lambda path: fitted().save(path),
    "plan": a_plan,
}
INSIDE = ("ledger", "private csv", "folder")  # are put at places in a folder, too
# What may be replaced, by whom.
OWN = {
    ("run config", "results of a run"), ("PATEClassifier.save", "results of a run"), ("plan output", "plan")
}  # fmt: skip
# A killed process may leave an empty file in place of a ledger, and links to ledgers are followed: neither is a victim.
LEDGERS = {"ledger init file", "ledger backup copy"}
# A folder may be named where files are made beside those that are there, and no other: none of them is replaced.
BESIDE = {"reproduce output", "key folder", "Mailbox"}


def options() -> Iterator[str]:
    """Yield every option and argument of the command line that is a path."""
    for verb in _VERBS:
        loaded = _load(verb)
        calls: dict[str, Any] = {verb: loaded}
        if isinstance(loaded, typer.Typer):
            calls = {
                f"{verb} {each.name or getattr(each.callback, '__name__', '')}": each.callback
                for each in loaded.registered_commands
            }
        for name, call in calls.items():
            for parameter in inspect.signature(call).parameters.values():
                if "Path" in str(parameter.annotation):
                    yield f"{name} {parameter.name}"


def test_every_option_that_is_a_path_is_known_to_read_or_to_write():
    assert set(options()) == {*READ, *WRITTEN}
    assert not READ & set(WRITTEN)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder from which commands can be called, before the first call."""
    folder = tmp_path_factory.mktemp("place")
    (folder / "terms.toml").write_text(TERMS)
    rows = "".join(f"{20 + row % 75},{('no', 'yes')[row % 2]},p{row // 2}\n" for row in range(120))
    (folder / "one.csv").write_text(f"age,ill,patient\n{rows}")
    new(folder / "terms.toml", home=folder / "registry", mailbox=folder / "mail")
    write_people(folder, 120, 60)
    configure(folder, ('folder = "out"', 'folder = "o"'))
    np.savez(folder / "votes.npz", votes=np.array([[145, 4, 1], [1, 2, 147]] * 6))
    np.savez(folder / "rows.npz", X=np.arange(12.0)[:, None])
    (folder / "rows.csv").write_text("a\n0\n1\n")
    tree = DecisionTreeClassifier().fit([[0], [1]], ["a", "b"])
    write_student(make_pipeline(PublicColumns(("a",), (None,)), tree), folder / "s.skops")
    for ledger in ("a.ledger", "b.ledger"):
        Ledger.create(folder / ledger, epsilon=30.0, delta=1e-5, unit=ONE_TEACHER)
    SigningKey.generate("n").save(folder / "keys")
    return folder


@pytest.fixture
def place(
    request: pytest.FixtureRequest, tmp_path: Path, called: Callable[..., Any], filled: Path
) -> Path:
    """A folder from which the command of a test can be called."""
    name, folder = request.getfixturevalue("name"), tmp_path / "place"
    shutil.copytree(filled, folder)
    if name.split()[0] in ("publish", "card", "ledger"):
        proposed = (
            f"publish propose votes.npz --ledger a.ledger {LNMAX} --delta 1e-5 --output p.json"
        )
        for words in (proposed, f"label rows.npz {VOTES} --output labels.csv"):
            assert called(*words.split(), cwd=folder).returncode == 0
    if name == "card registry":
        assert called("card", "--ledger", "a.ledger", "--output", "c", cwd=folder).returncode == 0
    return folder


def seen(folder: Path) -> dict[str, object]:
    """Return what everything in a folder is: its kind, its content and, of a link, where it leads."""
    kinds: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        content: object = (
            path.read_bytes()
            if stat.S_ISREG(mode)
            else os.readlink(path)  # noqa: PTH115
            if path.is_symlink()
            else None
        )
        kinds[str(path.relative_to(folder))] = (stat.S_IFMT(mode), content)
    return kinds


def cells(
    name: str, place: Path, output: str, places: tuple[str, ...]
) -> Iterator[tuple[str, Path]]:
    """Put each kind of victim at every place, each in a copy; yield which, and look afterwards whether it is there."""
    for number, (at, kind) in enumerate(product(places, VICTIMS)):
        if kind in ("empty file", "link to nowhere") and name in LEDGERS:
            continue
        if (at and kind not in INSIDE) or (name, kind) in OWN:
            continue
        folder = place.parent / str(number)
        shutil.copytree(place, folder)
        target = folder / output / at
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        VICTIMS[kind](target)
        before = seen(folder)
        yield f"{kind} at {output}/{at}", folder
        after = seen(folder)
        assert {each: after.get(each) for each in before} == before, f"{kind} at {output}/{at}"


@pytest.mark.parametrize("name", WRITTEN)
def test_no_command_replaces_what_tutelage_did_not_write(name, place, called, monkeypatch):
    call, output, places = WRITTEN[name]
    monkeypatch.setattr(command, "run", lambda *_, **__: RECORD)
    for cell, folder in cells(name, place, output, places):
        done = called(*call, cwd=folder)
        assert "Traceback" not in done.stderr, cell
        if name not in BESIDE:
            assert done.returncode in (1, 2), cell
            assert done.stderr.splitlines()[-1].startswith("tutelage: "), (cell, done.stderr)
    assert called(*call, cwd=place).returncode == 0


@pytest.mark.parametrize("name", PYTHON)
def test_no_function_replaces_what_tutelage_did_not_write(name, tmp_path):
    write, places = PYTHON[name]
    place = tmp_path / "place"
    place.mkdir()
    for cell, folder in cells(name, place, "o", places):
        try:
            write(folder / "o")
        except TutelageError:
            continue
        assert name in BESIDE, cell
    write(place / "o")


@pytest.mark.parametrize("suffix", ["-journal", "-wal", "-shm", ".turn"])
def test_no_output_takes_the_name_of_a_file_that_a_ledger_has_beside_it(suffix, tmp_path):
    a_ledger(tmp_path / "a.ledger")
    with pytest.raises(ConfigError, match="is reserved for the ledger of that name"):
        COUNTS.save(tmp_path / f"a.ledger{suffix}")
    assert [path.name for path in tmp_path.iterdir()] == ["a.ledger"]
