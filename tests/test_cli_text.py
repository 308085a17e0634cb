"""What users type and what files hold, as the command line prints it, and what it shows first: plain sentences."""

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from io import BytesIO
from pathlib import Path

import pytest
import skops.io
from jsonschema import Draft7Validator
from rich.table import Table
from sklearn.tree import DecisionTreeClassifier

from conftest import REPOSITORY
from test_cli import configure, refusal
from tutelage.cli import text
from tutelage.cli.app import _VERBS
from tutelage.cli.config import load_config
from tutelage.cli.sources import cause_of_unknown
from tutelage.cli.text import plain_console, printable
from tutelage.exceptions import ConfigError, InvalidDataError
from tutelage.ledger import Ledger
from tutelage.privacy import NeighboringRelation, PrivacyUnit
from tutelage.students import load_student

GNMAX = ("--mechanism", "gnmax", "--sigma", 4)
WORDS, NUMBERS = ["no", "yes"], [0, 1]


@pytest.mark.parametrize(("strangers", "classes", "hint"), [
    ({"0.0", "1.0"}, NUMBERS, "whole numbers with a decimal point"),
    ({"", "yes"}, WORDS, "some labels are missing"),
    ({"YES", "No "}, WORDS, "capital letters or blanks"),
    ({"ill", "healthy"}, NUMBERS, "it contains text"),
    ({"0.125", "7.25"}, NUMBERS, "numbers with fractions"),
    ({"0", "1"}, WORDS, "it contains numbers, and `classes` are text"),
    ({"maybe"}, WORDS, "list every class"),
])  # fmt: skip
def test_labels_that_are_no_classes_bring_the_likely_cause_and_no_label(strangers, classes, hint):
    cause = cause_of_unknown(strangers, classes)
    assert hint in cause
    assert not any(text.strip() and text.strip() in cause.replace("no classes", "") for text in strangers)


@pytest.mark.parametrize(("old", "new", "hint"), [
    ('"gnmax"', '"laplace"', "Got 'laplace'. Did you mean 'lnmax'?"),
    ("sklearn.tree.DecisionTreeClassifier", "RandomForest", "mean 'sklearn.ensemble.RandomForestClassifier'?"),
    ('["no", "yes"]', '["no", "\\uff1d1"]', "must not begin like a formula"),
    ('entity = "patient"', 'entity = "patient"\nignore = [[1]]', "must be a list, each entry text. Got [[1]]."),
    ("n_teachers = 15", f"n_teachers = {10**400}", "must be at most 9.0072e+15 in size"),
    ("n_teachers = 15", f"n_teachers = {'9' * 5000}", "a number has too many digits"),
    ("n_teachers = 15", f"n_teachers = {'[' * 5000}{']' * 5000}", "nested too deeply"),
    ("n_teachers = 15", f"{'a.' * 20_000}a = 1", "nested too deeply"),
    ("jobs = 1", "jobs = 100000", "must be a whole number, at least -1024, at most 1024"),
    ('"private.csv"', '"pri\\u0000vate.csv"', "must have no control characters. Got 'pri\\x00vate.csv'."),
    ("[output]", "[statements]\ntrust = 1\n[output]", "`trust` in [statements] must be text. Got 1."),
    ("[output]", '[statements]\ntrust = " "\n[output]', "of at most 4,000 characters, with a letter or digit."),
])  # fmt: skip
def test_configurations_are_refused_in_one_sentence_with_the_nearest_that_would_do(old, new, hint, tmp_path):
    configure(tmp_path, (old, new))
    with pytest.raises(ConfigError) as refused:
        load_config(tmp_path / "config.toml")
    assert hint in str(refused.value)


def test_strings_are_text_and_never_markup_or_orders_to_a_terminal(capsys):
    table = Table("[red]x[/nope]", title=":smile: \x1b]0;owned\x07")
    table.add_row("[/] \x1b[2J \u202eevil")
    plain_console().print(table)
    plain_console().print("[bold]\x9b31m")
    shown = capsys.readouterr().out
    assert "[red]x[/nope]" in shown
    assert ":smile:" in shown
    assert "[/] \\u001b[2J \\u202eevil" in shown
    assert "[bold]\\u009b31m" in shown
    assert "\x1b" not in shown
    assert printable("a\tb\nc é ε ق") == "a\tb\nc é ε ق"


@pytest.mark.parametrize("verb", [*_VERBS, "--version"])
def test_an_argument_that_a_terminal_would_obey_is_refused_by_every_verb(verb, called):
    assert refusal(called(verb, "a\x1b[31mb"), 2).startswith("tutelage: An argument must have no control characters.")


@pytest.mark.rest
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_an_encoding_without_epsilon_stops_nothing(encoding, tmp_path):
    made = "ledger init l --epsilon 99 --delta 1e-5 --neighbors ballot"
    command = [sys.executable, "-m", "tutelage", *made.split()]
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    # Of ascii alone, typer makes UTF-8.
    assert b"\\u03b5 = 99" in done.stdout or "ε = 99".encode() in done.stdout


def test_memory_that_is_not_there_is_a_sentence(called, monkeypatch):
    def none_left(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("tutelage.cli.account.VoteHistogram.load", none_left)
    assert "There is not enough memory" in refusal(called("account", "v.npz", *GNMAX, "--delta", 1e-5), 1)


def test_a_hostile_student_is_a_sentence(tmp_path):
    skops.io.dump(DecisionTreeClassifier().fit([[0.0], [1.0]], [0, 1]), tmp_path / "good.skops")
    good = load_student(tmp_path / "good.skops")
    assert good.predict([[1.0]]) == [1]
    with zipfile.ZipFile(tmp_path / "good.skops") as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    schema = json.loads(files["schema.json"])
    listed = {"__class__": "list", "__module__": "builtins", "__loader__": "ListNode", "content": []}
    schema["content"]["content"] = listed
    with zipfile.ZipFile(tmp_path / "bad.skops", "w") as archive:
        for name, content in {**files, "schema.json": json.dumps(schema).encode()}.items():
            archive.writestr(name, content)
    with pytest.raises(InvalidDataError, match=r"bad\.skops is not a readable skops file"):
        load_student(tmp_path / "bad.skops")


JUNK = {
    "empty": b"", "text": b"hello", "bytes": bytes(range(256)), "zip": b"PK\x05\x06" + b"\0" * 18, "json": b"[" * 5000,
    "digits": b"a = " + b"9" * 5000, "deep": b"a = " + b"[" * 5000, "nul": b'a = "\\u0000"',
    "sqlite": b"SQLite format 3\0" + b"\xff" * 100, "csv": b"a,b\n1\n",
}  # fmt: skip
READERS = [
    ("run", "{}"),
    ("audit", "{}"),
    ("label", "p.csv", "--votes", "{}", "--ledger", "{}", *GNMAX, "--output", "o.csv"),
    ("init", "--private", "p.csv", "--person", "a", "--label", "b", "--public", "{}"),
    ("account", "{}", *GNMAX, "--delta", 1e-5),
    ("plan", "--epsilon", 1, "--people", 100, "--public", "{}"),
    ("ledger", "show", "{}"),
    ("ledger", "init", "{}", "--epsilon", 1, "--delta", 1e-5),
    ("card", "{}"),
    ("card", "--ledger", "{}", "--output", "out"),
    ("publish", "propose", "{}", *GNMAX, "--ledger", "{}", "--delta", 1e-5, "--output", "o"),
    ("publish", "test", "{}", "p.csv", "--votes", "{}", *GNMAX, "--ledger", "{}"),
    ("consortium", "new", "{}", "--home", "m", "--mailbox", "mail"),
    ("consortium", "serve", "{}", "--once"),
    ("consortium", "run", "{}"),
    ("reproduce", "{}"),
]


@pytest.mark.rest
@pytest.mark.parametrize("arguments", READERS, ids=lambda given: " ".join(map(str, given[:2])))
def test_junk_in_place_of_any_file_is_one_sentence(arguments, tmp_path, called):
    (tmp_path / "p.csv").write_text("a,b\n1,2\n")
    for kind, content in JUNK.items():
        (tmp_path / kind).write_bytes(content)
        given = [str(part).replace("{}", kind) for part in arguments]
        refused = called(*given, cwd=tmp_path)
        assert refused.returncode in (1, 2), given
        assert "Traceback" not in refused.stderr
        lines = refused.stderr.strip().splitlines()
        # An empty TOML file has a problem for each entry that it lacks.
        assert len(lines) == 1 or (kind == "empty" and all(line.startswith("tutelage: ") for line in lines)), lines
        assert (tmp_path / kind).read_bytes() == content


HOSTILE = "a\u202eb\x9b31mc\x1b]0;d"


def test_no_verb_prints_control_characters_of_a_file(tmp_path, called):
    unit = PrivacyUnit(HOSTILE, NeighboringRelation.CHANGE_ONE_ROW)
    Ledger.create(tmp_path / "a.ledger", epsilon=1.0, delta=1e-5, unit=unit)
    rows = "".join(f"{row},{HOSTILE if row % 2 else 'x'}\n" for row in range(60))
    (tmp_path / "public.csv").write_text(f"age,{HOSTILE}\n{rows}", encoding="utf-8")
    for call in (
        ("schema", "public.csv"),
        ("ledger", "show", "a.ledger"),
        ("ledger", "show", "a.ledger", "--json"),
        ("ledger", "export", "a.ledger"),
        ("card", "--ledger", "a.ledger", "--output", "card"),
        ("label", "public.csv", "--votes", "none.npz", "--ledger", "a.ledger"),
    ):
        done = called(*call, cwd=tmp_path)
        for printed in (done.stdout, done.stderr):
            assert not set(printed) & set("\u202e\x9b\x1b\x07"), call
    shown = tomllib.loads(called("schema", "public.csv", cwd=tmp_path).stdout)["columns"]
    assert shown[HOSTILE] == sorted([HOSTILE, "x"])
    assert json.loads(called("ledger", "show", "a.ledger", "--json", cwd=tmp_path).stdout)


def test_all_that_is_printed_goes_through_one_place():
    folder = Path(text.__file__).parent
    printing = re.compile(r"typer\.s?echo\(|(?<![\w.])print\(|sys\.(stdout|stderr)\.write|Console\(\)|rich\.console")
    assert [path.name for path in folder.glob("*.py") if printing.search(path.read_text())] == ["text.py"]
    sources = (REPOSITORY / "reproductions").rglob("*.py")
    assert not [path.name for path in sources if "rich.console" in path.read_text()]


def test_streams_let_no_control_character_through():
    below = BytesIO()
    stream = text.PlainStream(below, "utf-8")
    stream.write(f"{HOSTILE}\n\tε")
    stream.flush()
    assert below.getvalue().decode() == "a\\u202eb\\u009b31mc\\u001b]0;d\n\tε"
    stream.detach()


# What is shown first, completed and suggested

HEAVY = {"numpy", "scipy", "sklearn", "opendp", "torch", "matplotlib"}


def modules_after(*arguments: str, **environment: str) -> set[str]:
    """Return the packages that one call of the command line loads."""
    script = f"""if True:
        import os, sys
        os.environ.update({environment!r})
        sys.argv = ["tutelage", *{arguments!r}]
        from tutelage.cli import main
        try:
            main()
        except SystemExit:
            print("loaded:", *sorted({{name.split(".")[0] for name in sys.modules}}))
    """
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    return set(printed.rpartition("loaded:")[2].split())


def test_the_first_steps_work_as_shown(called, tmp_path):
    assert called().stdout == called("-h").stdout
    assert "tutelage example adult " in called().stdout
    assert "tutelage run files.toml" in called("example", "files", cwd=tmp_path).stdout
    assert load_config(tmp_path / "files.toml").private is not None


def test_the_adult_example_is_the_one_of_the_repository(called, tmp_path):
    called("example", "adult", "--output", tmp_path / "mine.toml")
    ours = (REPOSITORY / "examples" / "adult.toml").read_text()
    assert (tmp_path / "mine.toml").read_text() == ours.replace('"../demo"', '"demo"')


def test_an_editor_completes_a_configuration_by_its_schema(called):
    check = Draft7Validator(schema := json.loads(called("schema", "--config").stdout))
    page = (REPOSITORY / "docs" / "configuration.md").read_text()
    whole = re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[0]
    everything = re.sub(r"^# (?=[\w\[ \]])", "", re.sub("^# (unit|epsilon) .*", "", whole, flags=re.M), flags=re.M)
    for good in (everything, whole, (REPOSITORY / "examples" / "adult.toml").read_text()):
        assert [error.message for error in check.iter_errors(tomllib.loads(good))] == []
    for wrong in ("[output]", f"{whole}\n[privacies]", whole.replace("pca", "pcs"), whole.replace("n_queries", "q")):
        assert not check.is_valid(tomllib.loads(wrong))
    for name, section in schema["$defs"].items():
        for key in section["properties"]:
            assert re.search(rf"\b{key}\b", page), (name, key)


@pytest.mark.parametrize(("typed", "said"), [
    ("rnu", "There is no verb 'rnu'. Did you mean `tutelage run`?"),
    ("xyzzy", "There is no verb 'xyzzy'. `tutelage --help` lists the verbs."),
])  # fmt: skip
def test_an_unknown_verb_brings_the_nearest(typed, said, called):
    assert refusal(called(typed), 2) == f"tutelage: {said}"


@pytest.mark.rest
def test_what_is_shown_first_loads_nothing_heavy():
    assert "typer" in modules_after()
    for loaded in (modules_after(), modules_after("--version"), modules_after("rnu")):
        assert not HEAVY & loaded
