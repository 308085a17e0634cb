"""`tutelage consortium`: what each command refuses, and hospitals that take part on a folder, as real processes."""

import importlib.util
import json
import os
import re
import shutil
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from conftest import REPOSITORY
from parties import PROCESSES, free_ports
from processes import until
from test_cli import refusal, succeeded, tutelage
from tutelage.accounting.filter import RenyiFilter
from tutelage.cli import main
from tutelage.cli.settings import read_settings
from tutelage.exceptions import ConfigError, InvalidDataError
from tutelage.ledger import Ledger
from tutelage.students import load_student
from tutelage_consortium import Consortium, Home, Mailbox
from tutelage_consortium.command import rows_of
from tutelage_consortium.invites import Invite, Place
from tutelage_consortium.serving import changes_of, taken_from
from tutelage_consortium.terms_file import TermsFile

pytestmark = pytest.mark.usefixtures("in_this_process", "repeatable")

HOSPITALS, PARTIES = [f"hospital-{number}" for number in range(3)], ["left", "middle", "right"]
TERMS = """\
name = "Old or young"
classes = ["young", "old"]
quorum = 2
[hospitals]
hospital-0 = 300
hospital-1 = 300
hospital-2 = 300
[parties]
left = "127.0.0.1:{ports[0]}"
middle = "127.0.0.1:{ports[1]}"
right = "127.0.0.1:{ports[2]}"
[privacy]
unit = "patient"
epsilon = 4.0
delta = 1e-5
[schema]
age = [20, 95]
ward = ["surgery", "medicine"]
"""


def rows(number: int) -> list[dict[str, Any]]:
    """Return 400 rows of 300 people."""
    random = np.random.default_rng(number)
    ages, wards = (
        random.integers(20, 96, 400).tolist(),
        random.choice(["surgery", "medicine"], 400).tolist(),
    )
    found = []
    for place, (age, ward) in enumerate(zip(ages, wards, strict=True)):
        label = "old" if age + 20 * (ward == "surgery") + random.normal(0, 8) > 65 else "young"
        found.append({"age": age, "ward": ward, "outcome": label, "patient": f"p{place % 300}"})
    return found


def write(path: Path, found: list[dict[str, Any]]) -> Path:
    pd.DataFrame(found).to_csv(path, index=False)
    return path


def run(*arguments: object) -> str:
    """Return what a command said: on standard output, and to its operator alone."""
    result = succeeded(tutelage("consortium", *arguments))
    return result.stdout + result.stderr


def refused(*arguments: object) -> str:
    result = tutelage("consortium", *arguments)
    return refusal(result, result.returncode)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "terms.toml").write_text(TERMS.format(ports=free_ports(3)))
    run(
        "new",
        tmp_path / "terms.toml",
        "--home",
        tmp_path / "registry",
        "--mailbox",
        tmp_path / "mail",
    )
    return tmp_path


def invite(folder: Path, name: str) -> Path:
    return folder / "registry" / "invites" / f"{name}.invite"


def table_of(path: Path, *, label: str = "outcome") -> tuple[object, ...]:
    return "--data", path, "--id", "patient", "--label", label


def join(folder: Path, name: str, *more: object) -> str:
    table = (
        table_of(write(folder / f"{name}.csv", rows(int(name[-1])))) if name in HOSPITALS else ()
    )
    return run("join", invite(folder, name), "--home", folder / name, *table, *more)


def test_new_writes_an_invite_for_each_member_and_a_ledger_for_the_coordinator(folder):
    assert sorted(path.stem for path in (folder / "registry" / "invites").iterdir()) == sorted(
        [*HOSPITALS, *PARTIES]
    )
    assert invite(folder, "left").stat().st_mode & 0o077 == 0
    assert Ledger.open(folder / "registry" / "ledger").state().budget == 4.0
    again = run("new", folder / "terms.toml", "--home", folder / "registry")
    assert "send it to" not in again  # all have theirs


def test_terms_that_no_consortium_can_have_are_refused(tmp_path):
    for line, other, why in (
        ("quorum = 2", "quorum = 4", "`quorum` of Consortium must be at most 3"),
        ('["young", "old"]', '["1", "01"]', "`classes` of Consortium must be 2 to"),
        ("hospital-2 = 300", "hospital-2 = 0", "`hospital-2` in [hospitals] must be"),
        ("left = ", "hospital-0 = ", "may have the same name"),
        ('unit = "patient"', "", "needs `unit`"),
        ("epsilon = 4.0", "epsilon = -1.0", "`epsilon` in [privacy] must be"),
        ("[parties]", "[epsilons]\nhospital-1 = 4.0\n[parties]", "an ε below 4, that of [privacy]"),
        ("[parties]", "[epsilons]\nleft = 1.0\n[parties]", "[epsilons] must give hospitals"),
        (
            "[parties]",
            "[epsilons]\nhospital-1 = -1\n[parties]",
            "`hospital-1` in [epsilons] must be",
        ),
        (
            "[parties]",
            "[epsilons]\nhospital-1 = 0.001\n[parties]",
            "must be larger: a ballot has 1024",
        ),
    ):
        (tmp_path / "terms.toml").write_text(TERMS.format(ports=[1, 2, 3]).replace(line, other))
        said = refused(
            "new",
            tmp_path / "terms.toml",
            "--home",
            tmp_path / "registry",
            "--mailbox",
            tmp_path / "mail",
        )
        assert why in said
        assert not (tmp_path / "registry").exists()


def test_an_amendment_may_change_members_and_nothing_else(folder):
    terms = (folder / "terms.toml").read_text()
    (folder / "terms.toml").write_text(terms.replace("epsilon = 4.0", "epsilon = 8.0"))
    assert "may differ from the terms in" in refused(
        "new", folder / "terms.toml", "--home", folder / "registry"
    )
    (folder / "terms.toml").write_text(terms.replace("[parties]", "hospital-3 = 500\n[parties]"))
    assert "hospital-3.invite" in run("new", folder / "terms.toml", "--home", folder / "registry")
    before, after = (
        Invite.load(invite(folder, name)).terms for name in ("hospital-0", "hospital-3")
    )
    assert before["identifier"] == after["identifier"]


def with_smaller_epsilon(folder: Path, **epsilons: float) -> str:
    """Amend the terms, and return what the coordinator is told."""
    lines = [f"{name.replace('_', '-')} = {epsilon}" for name, epsilon in epsilons.items()]
    terms = (folder / "terms.toml").read_text().split("[epsilons]\n")[0]
    (folder / "terms.toml").write_text("\n".join([terms + "[epsilons]", *lines, ""]))
    return run("new", folder / "terms.toml", "--home", folder / "registry")


def test_a_hospital_may_have_a_smaller_epsilon_of_its_own(folder):
    said = with_smaller_epsilon(folder, hospital_1=1.0, hospital_2=3.9)
    assert sorted(re.findall(r"(\S+)\.invite: send", said)) == [
        str(folder / "registry" / "invites" / name) for name in ("hospital-1", "hospital-2")
    ]
    assert "up to ε = 3.9998 of ε = 4 at δ = 1e-05" in join(folder, "hospital-0")
    told = join(folder, "hospital-1")
    takes = re.search(r"up to ε = (0\.99\d+) of ε = 1 at δ = 1e-05", told)
    assert takes is not None
    assert "hospital-1 about 300, who count 0.2" in " ".join(re.sub("[│┃]", " ", told).split())
    ledger = Ledger.open(folder / "hospital-1" / "ledger")
    assert ledger.state().budget == 1.0
    agreed = TermsFile.of(Place.load(folder / "hospital-1").terms).draft()
    whole, shortened, nearly = agreed.steps
    assert 990 < nearly < whole == 1024
    # The largest number of steps that the budget holds.
    for steps, fits in ((shortened, True), (shortened + 1, False)):
        other = replace(agreed, steps=(whole, steps, nearly))
        event = other.scheme.event_of(None, "hospital-1")
        assert (ledger.limit.cost(event) <= ledger.limit.capacity) is fits
    with_smaller_epsilon(folder, hospital_1=0.5)
    amended = TermsFile.of(Place.load(folder / "registry").terms).draft()
    assert amended.fingerprint == agreed.fingerprint
    steps = amended.steps[1]
    assert changes_of(agreed, replace(amended, members=agreed.members)) == [
        f"people of hospital-1 count {steps / 1024:.3f}", "people of hospital-2 count 1.000"
    ]  # fmt: skip


@pytest.mark.parametrize("releases", [1, 7])
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 3.5])
def test_a_hospital_with_its_own_epsilon_can_pay_for_all_releases(folder, releases, epsilon):
    terms = (folder / "terms.toml").read_text()
    terms = terms.replace("delta = 1e-5", f"delta = 1e-5\nreleases = {releases}")
    (folder / "terms.toml").write_text(f"{terms}\n[epsilons]\nhospital-1 = {epsilon}\n")
    file = TermsFile.of(read_settings(folder / "terms.toml"))
    draft = file.draft()
    event = draft.scheme.event_of(None, "hospital-1")
    limit = RenyiFilter.suited_to(epsilon, 1e-5, event)
    assert limit.fitting(event, 0) == releases


def test_steps_are_as_coarse_as_the_size_test_needs(folder):
    """Of 2,000,000 people with two columns, 1,024 steps would be too large; of far more, any are."""
    terms = (folder / "terms.toml").read_text().replace("= 300", "= 2_000_000")
    (folder / "terms.toml").write_text(f"{terms}\n[epsilons]\nhospital-1 = 1.0\n")
    settings = read_settings(folder / "terms.toml")
    fine = TermsFile.of({**settings, "size_test": False}).draft().steps
    coarse = TermsFile.of(settings).draft()
    assert coarse.most_queries() == 1
    assert coarse.steps != fine
    assert all(0 <= own - each < 64 for own, each in zip(fine, coarse.steps, strict=True))
    columns = {f"column {number}": [0, 1] for number in range(200)}
    many = {**settings, "schema": columns, "hospitals": dict.fromkeys(HOSPITALS, 2**22)}
    with pytest.raises(ConfigError, match=r"\[epsilons\] needs larger sums"):
        TermsFile.of(many).draft()
    del many["epsilons"]
    assert TermsFile.of(many).draft().most_queries() == 1
    with pytest.raises(InvalidDataError, match="not one query can be computed"):
        TermsFile.of({**many, "hospitals": dict.fromkeys(HOSPITALS, 2**24)}).draft()


def test_an_invite_of_nobody_is_refused(folder):
    found = Invite.load(invite(folder, "hospital-0"))
    replace(found, name="hospital-9").save(folder / "nobody.invite")
    assert "but its terms name no such member" in refused("join", folder / "nobody.invite")


def test_a_hospital_sees_what_it_will_cast_before_it_has_keys(folder):
    home, path = folder / "hospital-0", write(folder / "hospital-0.csv", rows(0))
    words = ("join", invite(folder, "hospital-0"), "--home", home, *table_of(path))
    done = succeeded(tutelage("consortium", *words))
    assert "400 rows of 300 people with 2 columns cast a ballot each" in done.stderr
    # Words about private rows are for the hospital alone.
    assert "400" not in done.stdout.replace("0.400", "")
    assert "is in use" in refused(*words)
    key = Home(home).identity.member
    run(*words, "--new-keys")
    assert Home(home).identity.member.signing_key != key.signing_key
    assert Ledger.open(home / "ledger").state().budget == 4.0


def test_terms_join_status_and_the_question_have_one_epsilon_and_delta(folder):
    takes = "up to ε = 3.9998 of ε = 4 at δ = 1e-05"
    assert takes in join(folder, "hospital-0")
    join(folder, "left")
    homes = [Home(folder / name) for name in ("hospital-0", "left")]
    agreed, ledger = roster_with(folder, *homes), Ledger.open(folder / "hospital-0" / "ledger")
    assert taken_from(ledger, agreed.sums().event_from(0)) == takes  # of the question of `serve`
    for home in homes:
        home.join(agreed, agreed.words)
    assert takes in run("status", folder / "hospital-0")
    assert "ε" not in run("status", folder / "left")  # which has no budget


def test_a_second_budget_of_the_same_people_is_told_of_and_refused(folder):
    for name in HOSPITALS[:2]:  # whose ids are the same, but not their people
        join(folder, name)
    shutil.rmtree(folder / "hospital-1")
    own, kept = folder / "hospital-0.csv", folder / "hospital-0" / "ledger"
    run(
        "new",
        folder / "terms.toml",
        "--home",
        folder / "founded-again",
        "--mailbox",
        folder / "mail-again",
    )
    (folder / "elsewhere").mkdir()
    some = write(folder / "elsewhere" / "some.csv", rows(0)[:50])

    def again(data: Path, *more: object, home: str = "second") -> tuple[object, ...]:
        invited = folder / "founded-again" / "invites" / "hospital-0.invite"
        return (
            "join",
            invited,
            "--home",
            folder / home,
            *table_of(data),
            "--each-person-once",
            *more,
        )

    # Is none of the budgets that add up.
    (folder / "damaged.ledger").write_bytes(b"no ledger at all")
    for data in (own, some):
        said = refused(*again(data))
        assert (
            f"People of {data.name} have a budget in {kept}. With this one, they would have ε = 8 at δ = 2e"
            in said
        )
        assert not (folder / "second").exists()
    assert (
        "they would have" not in succeeded(tutelage("consortium", *again(own, "--insist"))).stdout
    )
    strangers = write(
        folder / "strangers.csv", [row | {"patient": f"q{row['patient']}"} for row in rows(0)]
    )
    assert "they would have" not in run(*again(strangers, home="third"))


WRONG: dict[str, Any] = {
    "own.csv has no column 'age'. Is its first line a header?": (
        lambda row, _: {"years" if name == "age" else name: cell for name, cell in row.items()}
    ),
    "other units or codes than the terms: 'age'": lambda row, _: row | {"age": row["age"] * 12},
    "other units or codes than the terms: 'ward'": lambda row, _: row | {"ward": row["ward"][0]},
    "--label must name a column with the classes young, old": lambda row, _: (
        row | {"outcome": "old"}
    ),
    "--id must name the column of the patient. Every row has another 'patient'": (
        lambda row, place: row | {"patient": f"v{place}"}
    ),
    "has more people than the 300 that the terms state": lambda row, place: (
        row | {"patient": f"p{place % 350}"}
    ),
}


def test_a_table_that_cannot_be_what_the_terms_are_about_is_refused(folder):
    for why, change in WRONG.items():
        found = [change(row, place) for place, row in enumerate(rows(0))]
        path = write(folder / "own.csv", found)
        said = refused(
            "join", invite(folder, "hospital-0"), "--home", folder / "hospital-0", *table_of(path)
        )
        assert why in said
        assert "years" not in said  # without a header, it would be a person's cell
        assert not (folder / "hospital-0").exists()


def test_no_cell_chooses_whether_the_rows_of_others_are_left_out(tmp_path):
    terms: Any = SimpleNamespace(classes=("True", "False"))
    ids, labels = (
        [f"11010119900307120{place}" for place in range(4)],
        ["True", "TRUE", "false", "unknown"],
    )
    cells = [
        {"ill": label, "person": one}
        for label, one in zip([*labels, "true"], [*ids, ""], strict=True)
    ]
    _, found, people = rows_of(terms, write(tmp_path / "own.csv", cells), "person", "ill")
    assert people is not None
    assert (found.tolist(), people.tolist()) == ([0, 0, 1], ids[:3])
    stored = tmp_path / "own.parquet"
    for columns, why in (
        (
            {"ill": labels, "person": ids},
            "Column 'ill' of own.parquet is text in the private rows and truth values",
        ),
        (
            {"ill": [True] * 4, "person": [*map(float, ids)]},
            "An id in 'person' of own.parquet is of type float",
        ),
    ):
        parquet.write_table(pa.table(columns), stored)
        with pytest.raises(InvalidDataError, match=why):
            rows_of(terms, stored, "person", "ill")


def test_a_hospital_is_told_where_the_schema_seems_to_be_read_off_its_rows(folder):
    own = [row | {"ward": "surgery" if row["patient"] == "p0" else "medicine"} for row in rows(0)]
    path = write(folder / "own.csv", own)
    said = run(
        "join", invite(folder, "hospital-0"), "--home", folder / "hospital-0", *table_of(path)
    )
    assert "read off private rows: 'ward' lists only values that somebody has" in said


def test_columns_in_another_order_and_a_few_odd_cells_are_no_reason_to_refuse(folder):
    found = [dict(reversed(row.items())) for row in rows(0)]
    found[0] |= {"age": "", "ward": "?"}
    found[1] |= {"outcome": "dead"}
    found[2] |= {"patient": " "}
    path = write(folder / "own.csv", found)
    said = run(
        "join", invite(folder, "hospital-0"), "--home", folder / "hospital-0", *table_of(path)
    )
    assert "398 rows" in said
    assert "0.5 % of the rows have no id, or a label outside the classes" in said


def test_a_home_that_a_killed_command_left_is_named(folder):
    for name, words in (
        ("left", ("join", invite(folder, "left"), "--new-keys")),
        ("other", ("new", folder / "terms.toml", "--mailbox", folder / "mail")),
    ):
        (folder / name).mkdir()
        (folder / name / "ledger").write_text("")
        assert "holds other files: name another" in refused(*words, "--home", folder / name)


def test_status_says_who_is_missing(folder):
    join(folder, "left")
    assert "No roster is accepted yet. Members with keys in the mailbox: none." in run(
        "status", folder / "left"
    )
    run("serve", folder / "left", "--once")
    assert "Members with keys in the mailbox: left." in run(
        "status", folder / "left", "--html", folder / "page.html"
    )
    assert all(name in (folder / "page.html").read_text() for name in HOSPITALS)


def test_verbs_for_another_member_say_which_to_type(folder):
    join(folder, "hospital-0")
    for member, words, right in (
        ("registry", ("serve", "--once"), "run"),
        ("hospital-0", ("run",), "serve"),
    ):
        said = refused(*words, folder / member)
        assert f"Type: tutelage consortium {right} {folder / member}" in said
        result = tutelage("consortium", *words, folder / member)
        assert result.returncode == 2


def test_a_member_that_finds_other_words_is_told_what_follows(folder, monkeypatch):
    propose(folder)
    for words, answer in (((), "n\n"), (("--words", "other words"), "")):
        monkeypatch.setattr(sys, "stdin", StringIO(answer))
        said = " ".join(run("serve", folder / "hospital-0", "--once", *words).split())
        assert (
            "Roster 0 was not accepted, so hospital-0 takes no part under it. To be asked again, type"
            in said
        )
    assert Home(folder / "hospital-0").latest_roster() is None


def roster_with(folder: Path, *homes: Home) -> Consortium:
    """Return the roster with the members of these homes, and with keys of all others that nobody has."""
    file = TermsFile.of(Place.load(folder / "hospital-0").terms)
    present = {
        one.name: one for one in (*file.draft().members, *(home.identity.member for home in homes))
    }
    return file.consortium([*present.values()], 0)


def propose(folder: Path) -> Consortium:
    """Let a hospital join, and propose a roster."""
    join(folder, "hospital-0")
    roster = roster_with(folder, Home(folder / "hospital-0"))
    Mailbox(Place.load(folder / "hospital-0").mailbox).put_roster(roster)
    return roster


def test_a_coordinator_that_lost_its_keys_makes_new_ones_and_keeps_its_budget(folder):
    home = folder / "registry"
    before = Home(home).identity.member
    ledger = (home / "ledger").read_bytes()
    (home / "registry.private.json").unlink()
    for verb in ("run", "status"):
        assert "for a coordinator, `tutelage consortium new TERMS --home HOME`" in refused(
            verb, home
        )
    said = run("new", folder / "terms.toml", "--home", home)
    assert "registry has new keys" in said
    assert Home(home).identity.member.signing_key != before.signing_key
    assert (home / "ledger").read_bytes() == ledger
    assert "new keys" not in run("new", folder / "terms.toml", "--home", home)


def test_a_name_of_a_release_is_a_name_of_a_folder(folder):
    for name in ("../x", "rehearsal-1", "", "a b"):
        assert "--as must be 1 to 100 letters" in refused("run", folder / "registry", "--as", name)


def typed(folder: Path, name: str, words: list[str]) -> None:
    """Be the command line, with a log of its own, and an operator who has compared the words."""
    with (folder / f"{name}.log").open("a") as log, (folder / "answers").open() as answers:
        for number, file in enumerate((answers, log, log)):
            os.dup2(file.fileno(), number)
    sys.stdin, sys.argv = os.fdopen(0), ["tutelage", "consortium", *words]
    main()


class Processes:
    """The members of a consortium as processes, each with its log."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.running = folder, dict[str, Any]()
        (folder / "answers").write_text("y\n")

    def start(self, name: str, *words: object) -> Any:
        self.running[name] = PROCESSES.Process(
            target=typed, args=(self.folder, name, [*map(str, words)]), daemon=True
        )
        self.running[name].start()
        return self.running[name]

    def serve(self, name: str) -> None:
        self.start(name, "serve", self.folder / name, "--yes", "--patience", 6)

    def release(self) -> Any:
        return self.start("registry", "run", self.folder / "registry", "--as", "first", "--json")

    def log(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text() if path.exists() else ""

    def wait_for(self, name: str, text: str) -> None:
        until(lambda: text in self.log(name) or self.running[name].exitcode is not None)
        assert text in self.log(name)

    def kill(self, name: str) -> None:
        self.running[name].kill()
        self.running[name].join()


@pytest.fixture
def processes(folder):
    found = Processes(folder)
    yield found
    for name in found.running:
        found.kill(name)


@pytest.mark.rest
def test_members_that_are_killed_come_back_and_late_ones_are_left_out(folder, processes):
    with_smaller_epsilon(folder, hospital_1=2.0)
    for name in (*HOSPITALS, *PARTIES):
        join(folder, name)
        processes.serve(name)
    processes.release()
    for killed, done in (
        ("hospital-0", "Release first: sent sum 1"),
        ("middle", "Accepted roster 0"),
    ):
        processes.wait_for(killed, done)
        processes.kill(killed)
        processes.serve(killed)
    processes.wait_for("registry", "asked for sum 2 of 3")
    processes.kill("hospital-2")
    processes.wait_for("left", "Computed batch")
    processes.kill("registry")
    asking = processes.release()
    asking.join()
    assert asking.exitcode == 0, processes.log("registry")
    (opened,) = [
        json.loads(text)
        for text in re.findall(r"^\{$.*?^\}$", processes.log("registry"), re.M | re.S)
    ]
    assert {"hospital-0", "hospital-1"} <= set(opened["hospitals"]) <= set(HOSPITALS)
    test = rows(7)
    columns = {name: [row[name] for row in test] for name in ("age", "ward")}
    student = load_student(Path(opened["student"]))
    assert np.mean(student.predict(columns) == [row["outcome"] for row in test]) > 0.8
    for name in ("registry", "hospital-0", "hospital-1"):
        ledger = Ledger.open(folder / name / "ledger")
        assert [entry["kind"] for entry in ledger.export()].count("reserved") == 3, name
        assert 0.99 < ledger.state().spent / (2.0 if name == "hospital-1" else 4.0) <= 1
    for path in Path(Place.load(folder / "registry").mailbox).rglob("*"):
        assert not path.is_file() or b"p17" not in path.read_bytes()
    assert "has no room for this release" in refused("run", folder / "registry", "--as", "second")


@pytest.mark.rest
def test_the_example_plays_three_hospitals(tmp_path, data_folder, monkeypatch, capsys):
    spec = importlib.util.spec_from_file_location(
        "play", REPOSITORY / "examples" / "consortium" / "run.py"
    )
    assert spec is not None
    assert spec.loader is not None
    play = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(play)
    monkeypatch.setattr(play, "here", run)  # of its processes, only those that go on are the point
    play.main(tmp_path, 3, None)
    said = capsys.readouterr().out
    accuracy = float(re.search(r"([\d.]+) %  accuracy", said)[1])  # type: ignore[index]
    assert accuracy > 54, said
