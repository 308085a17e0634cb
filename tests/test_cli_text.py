"""What users type and what files hold, as the command line prints it, and what it shows first: plain sentences."""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator
from rich.table import Table
from typer import Context
from typer.core import TyperGroup
from typer.main import get_command

from conftest import REPOSITORY
from test_cli import configure, finished, refusal, runs, write_people  # noqa: F401  fixtures
from tutelage.cli import text
from tutelage.cli.app import app
from tutelage.cli.config import load_config
from tutelage.cli.text import _printable, plain_console
from tutelage.exceptions import ConfigError
from tutelage.ledger import Ledger
from tutelage.privacy import NeighboringRelation, PrivacyUnit
from tutelage.targets import _cause_of_unknown

GNMAX = ("--mechanism", "gnmax", "--sigma", 4)
WORDS, NUMBERS = ["no", "yes"], [0, 1]


@pytest.mark.parametrize(("strangers", "classes", "hint"), [
    ({"YES", "No "}, WORDS, "capital letters or blanks"),
    ({"ill", "healthy"}, NUMBERS, "they are text"),
    ({"0.125", "7.25"}, NUMBERS, "numbers with fractions"),
    ({"0", "1"}, WORDS, "they are numbers, and `classes` are text"),
])  # fmt: skip
def test_labels_that_are_no_classes_bring_the_likely_cause_and_no_label(strangers, classes, hint):
    cause = _cause_of_unknown(strangers, classes)
    assert hint in cause
    assert not any(
        text.strip() and text.strip() in cause.replace("no classes", "") for text in strangers
    )


@pytest.mark.parametrize(("old", "new", "hint"), [
    ('"gnmax"', '"laplace"', "Got 'laplace'. Did you mean 'lnmax'?"),
    ("sklearn.tree.DecisionTreeClassifier", "RandomForest", "mean 'sklearn.ensemble.RandomForestClassifier'?"),
    ('["no", "yes"]', '["no", "\\uff1d1"]', "must not begin like a formula"),
    ("n_teachers = 15", f"n_teachers = {'9' * 5000}", "a number has too many digits"),
    ("n_teachers = 15", f"n_teachers = {'[' * 5000}{']' * 5000}", "nested too deeply"),
    ('"private.csv"', '"pri\\u0000vate.csv"', "must have no control characters. Got 'pri\\x00vate.csv'."),
    ("jobs = 1", "jobs = 100000", "must be a whole number, at least -1024, at most 1024"),
    ("[output]", "[statements]\ntrust = 1\n[output]", "`trust` in [statements] must be text. Got 1."),
    ("[output]", '[statements]\ntrust = " "\n[output]', "of at most 4,000 characters, with a letter or digit."),
])  # fmt: skip
def test_configurations_are_refused_in_one_sentence_with_the_nearest_that_would_do(
    old, new, hint, tmp_path
):
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
    assert _printable("a\tb\nc é ε ق") == "a\tb\nc é ε ق"


# As any other: before a verb is looked for.
@pytest.mark.parametrize("verb", ["run", "ledger", "--version"])
def test_an_argument_that_a_terminal_would_obey_is_refused(verb, called):
    assert refusal(called(verb, "a\x1b[31mb"), 2).startswith(
        "tutelage: An argument must have no control characters."
    )


def test_memory_that_is_not_there_is_a_sentence(called, monkeypatch):
    def none_left(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("tutelage.cli.account.VoteHistogram.load", none_left)
    assert "There is not enough memory" in refusal(
        called("account", "v.npz", *GNMAX, "--delta", 1e-5), 1
    )


JUNK = {
    "empty": b"", "bytes": bytes(range(256)), "zip": b"PK\x05\x06" + b"\0" * 18, "deep": b"a = " + b"[" * 5000,
    "sqlite": b"SQLite format 3\0" + b"\xff" * 100, "csv": b"a,b\n1\n",
}  # fmt: skip
READERS = [
    ("run", "{}"),
    ("label", "p.csv", "--votes", "{}", "--ledger", "{}", *GNMAX, "--output", "o.csv"),
    ("init", "--private", "p.csv", "--person", "a", "--label", "b", "--public", "{}"),
    ("account", "{}", *GNMAX, "--delta", 1e-5),
    ("ledger", "show", "{}"),
    ("card", "{}"),
    ("publish", "test", "{}", "p.csv", "--votes", "{}", *GNMAX, "--ledger", "{}"),
    ("consortium", "new", "{}", "--home", "m", "--mailbox", "mail"),
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
        assert len(lines) == 1 or (
            kind == "empty" and all(line.startswith("tutelage: ") for line in lines)
        ), lines
        assert (tmp_path / kind).read_bytes() == content


HOSTILE = "a\u202eb\x9b31mc\x1b]0;d"


def test_no_verb_prints_control_characters_of_a_file(tmp_path, called):
    unit = PrivacyUnit(HOSTILE, NeighboringRelation.CHANGE_ONE_ROW)
    Ledger.create(tmp_path / "a.ledger", epsilon=1.0, delta=1e-5, unit=unit)
    rows = "".join(f"{row},{HOSTILE if row % 2 else 'x'}\n" for row in range(60))
    (tmp_path / "public.csv").write_text(f"age,{HOSTILE}\n{rows}", encoding="utf-8")
    for call in (
        ("ledger", "show", "a.ledger"),
        ("ledger", "export", "a.ledger"),
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
    printing = re.compile(
        r"typer\.s?echo\(|(?<![\w.])print\(|sys\.(stdout|stderr)\.write|Console\(\)|rich\.console"
    )
    assert [path.name for path in folder.glob("*.py") if printing.search(path.read_text())] == [
        "text.py"
    ]
    for beside in ("consortium", "reproductions"):
        sources = (REPOSITORY / beside / "src").rglob("*.py")
        assert not [path.name for path in sources if "rich.console" in path.read_text()]


def test_streams_let_no_control_character_through():
    below = BytesIO()
    stream = text.PlainStream(below, "utf-8")
    stream.write(f"{HOSTILE}\n\tε")
    stream.flush()
    assert below.getvalue().decode() == "a\\u202eb\\u009b31mc\\u001b]0;d\n\tε"
    stream.detach()


# What is shown first, completed and suggested

HEAVY = {"joblib", "matplotlib", "opendp", "pandas", "pyarrow", "sklearn", "skops", "torch"}
# The parts of SciPy, of which SciPy itself loads none before it is used.
HEAVY |= {f"scipy.{part}" for part in ("linalg", "optimize", "sparse", "special", "stats")}


def modules_after(*calls: list[str]) -> set[str]:
    """Return the modules that calls of the command line load, one after the other in one process."""
    script = f"""if True:
        import sys
        from tutelage.cli import main
        for call in {calls!r}:
            sys.argv = ["tutelage", *call]
            try:
                main()
            except SystemExit:
                pass
        print("loaded:", *sys.modules)
    """
    printed = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout
    return set(printed.rpartition("loaded:")[2].split())


def own_verbs(command: Any, path: list[str]) -> Iterator[list[str]]:
    """Yield the words that call each verb of this distribution, and each group of verbs."""
    yield path
    if isinstance(command, TyperGroup):
        context = Context(command)
        for name in {*command.list_commands(context)} - {"consortium", "reproduce"}:
            yield from own_verbs(command.get_command(context, name), [*path, name])


def test_the_first_steps_work_as_shown(called, tmp_path):
    assert called().stdout == called("-h").stdout
    assert "tutelage example adult " in called().stdout
    assert "tutelage run files.toml" in called("example", "files", cwd=tmp_path).stdout
    assert load_config(tmp_path / "files.toml").private is not None


def test_an_editor_completes_a_configuration_by_its_schema(called):
    schema = json.loads(called("schema", "--config").stdout)
    check = Draft7Validator(schema)
    page = (REPOSITORY / "docs" / "configuration.md").read_text()
    whole = re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[0]
    everything = re.sub(
        r"^# (?=[\w\[ \]])", "", re.sub("^# (unit|epsilon) .*", "", whole, flags=re.M), flags=re.M
    )
    for good in (everything, whole, (REPOSITORY / "examples" / "adult.toml").read_text()):
        assert [error.message for error in check.iter_errors(tomllib.loads(good))] == []
    for wrong in (f"{whole}\n[privacies]", whole.replace("pca", "pcs")):
        assert not check.is_valid(tomllib.loads(wrong))
    keys = {key for section in schema["$defs"].values() for key in section["properties"]}
    assert [key for key in keys if not re.search(rf"\b{key}\b", page)] == []


def test_an_unknown_verb_brings_the_nearest(called):
    assert "Did you mean `tutelage run`?" in refusal(called("rnu"), 2)


def test_what_is_shown_first_loads_nothing_heavy():
    loaded = modules_after([], ["rnu"])
    assert "typer" in loaded
    assert not {"numpy", "rich", *HEAVY} & loaded


def test_help_and_refused_options_load_nothing_heavy():
    verbs = [*own_verbs(get_command(app), [])]
    assert ["run"] in verbs
    assert ["ledger", "show"] in verbs
    calls = [[*verb, option] for verb in verbs for option in ("--help", "--nonsense")]
    assert not HEAVY & modules_after(*calls)


def test_refusals_before_any_row_is_read_load_no_scikit_learn(tmp_path):
    wrong = tmp_path / "wrong.toml"
    wrong.write_text('private = { file = "a.csv" }\n[privacy]\ndleta = 1e-5\n')
    missing = str(tmp_path / "missing")
    calls = [["schema", missing], ["ledger", "show", missing], ["ledger", "verify", missing]]
    calls += [["card", missing], ["card", missing, "--check"], ["predict", missing, missing]]
    for file in (str(wrong), missing):
        calls += [["run", file], ["plan", "--for", file], ["audit", file]]
    assert not HEAVY & modules_after(*calls)


def test_budget_and_card_are_shown_and_checked_without_scikit_learn(finished, called):  # noqa: F811
    ledger = str(finished / "private.csv.ledger")
    calls = [["ledger", verb, ledger] for verb in ("show", "verify", "export", "exposure")]
    calls.append(["card", str(finished / "out"), "--check", "--ledger", ledger])
    assert called(*calls[-1]).returncode == 0
    loaded = modules_after(*calls)
    assert "tutelage.publishing.proof" in loaded
    assert not {"joblib", "pandas", "pyarrow", "sklearn", "skops", "torch"} & loaded


@pytest.mark.rest
def test_a_run_loads_no_library_that_it_does_not_need(tmp_path):
    write_people(tmp_path)
    configure(tmp_path)
    loaded = modules_after(["run", str(tmp_path / "config.toml")])
    assert {"sklearn.pipeline", "skops.io", "opendp.measurements"} <= loaded
    assert not {"dask", "matplotlib", "opendp.prelude", "torch"} & loaded
    assert not [
        name for name in loaded if name.startswith("sklearn.externals.array_api_compat.torch")
    ]
