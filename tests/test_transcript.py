"""Everything that an outsider may see of a data set depends on public values and noisy results alone."""

import csv
import hashlib
import io
import json
import os
import re
import secrets
import signal
import sqlite3
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs
from sklearn.ensemble import RandomForestClassifier

from ledgers import bind, reserve, settle
from processes import forked
from runs_of_people import ADDITIVE, NEAREST, NUMBERS, VECTORS, configure_people
from test_cli import configure, write_people
from test_ledger_tampering import edit
from tutelage import GNMax, LabelingSession, Ledger, PATEClassifier, VoteHistogram
from tutelage._internal import releases
from tutelage.cli import run as cli_run
from tutelage.cli.app import _VERBS
from tutelage.digests import data_digest, is_fingerprint_of
from tutelage.exceptions import (
    BudgetContinuedWarning,
    BudgetExceededError,
    LedgerMismatchError,
    LedgerTamperedError,
    TutelageError,
)
from tutelage.ledger.account import Account
from tutelage.ledger.beginning import Beginning
from tutelage.ledger.ledger import open_ledger
from tutelage.mechanisms import CappedGNMax, ConfidentGNMax, NoisySum
from tutelage.mechanisms.noisy_argmax import _ReportsWinner
from tutelage.methods import NoisyMoments
from tutelage.partition import Shards
from tutelage.privacy import ONE_TEACHER
from tutelage.students import store
from tutelage.tables import read_batches
from tutelage.teachers import NearestQueries, VectorBallots

pytestmark = pytest.mark.usefixtures("public_rows_may_be_private")


@pytest.fixture
def clock(monkeypatch):
    """A clock that goes on by six hours whenever it is read, so that whoever reads it twice a release shows it."""
    read = [datetime(2031, 5, 17, 12, 30, 15, tzinfo=UTC)]

    def now():
        read.append(read[-1] + timedelta(hours=6))
        return read[-2]

    monkeypatch.setattr(releases, "_now", now)
    return read


VOTES = VoteHistogram(np.array([[230, 15, 5]]), 250)
ONE = GNMax(40.0).event_of_one(3, ONE_TEACHER, simulated=False)


def ledger_of(path=None):
    terms = {"epsilon": 5.0, "delta": 1e-5, "unit": ONE_TEACHER}
    return Ledger.in_memory(**terms) if path is None else Ledger.create(path, **terms)


def test_all_entries_of_an_ask_have_the_day_on_which_it_began(clock):
    ledger = ledger_of()
    session = LabelingSession(VOTES, GNMax(40.0), ledger)
    for number in range(6):
        session.ask(np.array([[float(number)]]))
    written = [entry["written"] for entry in ledger.export()]
    assert written[1::2] == written[2::2]  # of reservations, and of their answers
    assert sorted(set(written)) == ["2031-05-17", "2031-05-18", "2031-05-19"]
    assert ledger.state().opened == "2031-05-17"


def test_a_reservation_that_is_settled_on_another_day_does_not_show_it(clock):
    ledger = ledger_of()
    reservation = reserve(ledger, ONE, 1)
    clock.append(clock[-1] + timedelta(days=3))
    settle(ledger, reservation, {bytes(32): (1,)}, ONE)
    assert len({entry["written"] for entry in ledger.export()[1:]}) == 1


def test_a_repeat_needs_no_place_in_the_file(binary_rows, tmp_path):
    (X, y), path = binary_rows, tmp_path / "a.ledger"
    model = PATEClassifier(classes=[0, 1], epsilon=1.0, ledger=path, random_state=0).fit(
        X, y, X_public=X[:60]
    )
    before, labels = path.read_bytes(), model.release_.labels
    with pytest.warns(BudgetContinuedWarning):
        model.set_params(ledger=Ledger.open(path, read_only=True)).fit(X, y, X_public=X[:60])
    assert model.drawn_ == 0
    assert np.array_equal(model.release_.labels, labels)
    assert path.read_bytes() == before


def test_a_refused_release_confirms_no_change_for_the_next_one(binary_rows, tmp_path):
    X, y = binary_rows
    settings = {
        "classes": [0, 1],
        "ledger": tmp_path / "a.ledger",
        "budget": 1.0,
        "random_state": 0,
    }
    model = PATEClassifier(method=NoisyMoments(mechanism=NoisySum(60.0)), **settings).fit(
        X, y, X_public=X[:60]
    )
    too_much = PATEClassifier(method=NoisyMoments(mechanism=NoisySum(0.5)), **settings)
    with pytest.raises(BudgetExceededError):
        too_much.fit(X + 1, y, X_public=X[:60], data_changed=True)
    with pytest.raises(LedgerMismatchError, match="is tied to other people or other rows"):
        model.fit(X + 1, y, X_public=X[:60])
    with pytest.warns(BudgetContinuedWarning):
        model.fit(X, y, X_public=X[:60])
    assert model.drawn_ == 0


def test_every_release_leaves_the_same_trace_of_its_data(tmp_path):
    traces = []
    for second in (np.eye(3), np.eye(3), np.eye(3) + 1, np.eye(3) - 1):
        ledger = ledger_of(tmp_path / f"{len(traces)}.ledger")
        for data in (np.eye(3), second, np.eye(3)):
            bind(ledger, data_digest(data), changed=True)
            reserve(ledger, ONE, 1)
        traces.append(ledger.export())
    assert [[entry["kind"] for entry in trace] for trace in traces] == [
        ["opened", *["bound", "reserved"] * 3]
    ] * 4
    fingerprints = [
        entry["fingerprint"] for trace in traces for entry in trace if entry["kind"] == "bound"
    ]
    assert len(set(fingerprints)) == len(fingerprints)
    assert len({len(fingerprint) for fingerprint in fingerprints}) == 1


@pytest.mark.filterwarnings("ignore::tutelage.exceptions.BudgetContinuedWarning")
def test_a_fit_has_one_day_and_one_binding_and_the_file_nothing_without_a_reservation(
    clock, binary_rows, tmp_path, monkeypatch
):
    X, y = binary_rows
    path, seen, settle = tmp_path / "a.ledger", [], Account.settle

    def looked_at(account, *given):
        seen.append([entry["kind"] for entry in Ledger.open(path).export()])
        return settle(account, *given)

    monkeypatch.setattr(Account, "settle", looked_at)
    settings = {"ledger": path, "budget": 20.0, "epsilon": 1.0}
    for rows, question in ((X, "first"), (X, "second"), (X[:300], "third")):
        model = PATEClassifier(question=question, **settings)
        fitted = model.fit(rows, y[: len(rows)], X_public=X[:60], data_changed=True)
        entries = fitted.open_ledger_.export()
        last = max(place for place, entry in enumerate(entries) if entry["kind"] == "kept")
        assert (
            {entry["written"] for entry in entries[last:]}
            == {model.day_}
            == {model.card().release.created}
        )
    sums = NoisyMoments().rounds + 1  # with the report
    of_a_fit = ["kept", "intended", "bound", *["reserved", "answered"] * sums]
    assert [entry["kind"] for entry in entries] == ["opened", *of_a_fit * 3]
    assert seen[0] == ["opened", *of_a_fit[:4]]


def test_a_student_is_saved_without_times_addresses_and_gaps(tmp_path, binary_rows):
    X, y = binary_rows
    saved = []
    for name in ("one", "other"):
        student = RandomForestClassifier(10, random_state=0).fit(X, y)
        store.write_student(student, tmp_path / name)
        saved.append((tmp_path / name).read_bytes())
        np.full(10**6, 7.0)  # other memory for the next one
    assert saved[0] == saved[1]
    with zipfile.ZipFile(tmp_path / "one") as archive:
        assert {part.date_time[0] for part in archive.infolist()} == {1980}
        assert json.loads(archive.read("schema.json"))["__id__"] < 10**6


# A ledger appears with its first reservation


@pytest.mark.filterwarnings("ignore::tutelage.exceptions.FewPublicRowsWarning")
@pytest.mark.parametrize(
    ("public", "entity_ids"), [(np.ones((20, 4)), None), (np.ones((1, 4)), np.arange(400) // 2)]
)
def test_a_refused_fit_leaves_no_ledger_and_a_ledger_that_exists_as_it_was(
    public, entity_ids, binary_rows, tmp_path
):
    X, y = binary_rows
    path = tmp_path / "a.ledger"

    def fit(public, question="", *, data_changed=False):
        model = PATEClassifier(ledger=path, budget=2.0, epsilon=1.0, question=question)
        return model.fit(X, y, X_public=public, entity_ids=entity_ids, data_changed=data_changed)

    with pytest.raises(TutelageError):
        fit(public)
    assert list(tmp_path.iterdir()) == []
    fit(X[:60])
    before = path.read_bytes()
    with pytest.raises(TutelageError):
        fit(public, "another", data_changed=True)
    assert path.read_bytes() == before


def test_what_a_kill_leaves_of_a_new_ledger_is_removed(tmp_path):
    path, part = tmp_path / "a.ledger", tmp_path / "a.ledger.making-x"

    def killed():
        raw = sqlite3.connect(part, isolation_level=None)
        raw.execute("PRAGMA cache_size = 1")  # so that pages are in the file before the commit
        raw.execute("BEGIN EXCLUSIVE")
        raw.execute("CREATE TABLE entries (text TEXT)")
        raw.executemany("INSERT INTO entries VALUES (?)", [("x" * 1000,)] * 2000)
        os.kill(os.getpid(), signal.SIGKILL)

    os.waitpid(forked(killed), 0)
    assert part.stat().st_size > 10**5
    reserve(open_ledger(path, ONE, 1, epsilon=5.0, delta=1e-5, unit=ONE_TEACHER), ONE, 1)
    assert (Ledger.open(path).verify().entries, path.stat().st_mode & 0o777) == (2, 0o600)
    assert [*tmp_path.iterdir()] == [path]


def test_a_fit_whose_ledger_another_process_makes_first_spends_from_that_one(
    binary_rows, tmp_path, monkeypatch
):
    X, y = binary_rows
    path, cast = tmp_path / "a.ledger", VectorBallots.cast

    def overtaken(teacher, *given):
        if not path.exists():
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(VectorBallots, "cast", cast)
                fit()
        return cast(teacher, *given)

    def fit():
        return PATEClassifier(epsilon=1.0, ledger=path).fit(X, y, X_public=X[:60])

    monkeypatch.setattr(VectorBallots, "cast", overtaken)
    with pytest.warns(BudgetContinuedWarning):
        model = fit()
    state = Ledger.open(path).verify()
    assert (state.unsettled, state.answers) == (0, 3)
    assert model.remembered_ == 60


# What was stored is there, and nothing beside it


EDITS = {
    "answers deleted": "DELETE FROM answers",
    "a trigger": "CREATE TRIGGER t AFTER INSERT ON answers BEGIN DELETE FROM answers; END",
    "an answer added": "INSERT INTO answers VALUES (zeroblob(32), '[1]', 1)",
}


@pytest.mark.parametrize("change", EDITS)
def test_a_ledger_that_lost_its_answers_or_has_something_planted_draws_no_label(change, tmp_path):
    path = tmp_path / "a.ledger"
    open_before = ledger_of(path)
    LabelingSession(VOTES, GNMax(40.0), open_before).ask(np.array([[0.0]]))
    edit(path, EDITS[change])
    with pytest.raises(LedgerTamperedError, match=r"fewer or more labels|missing or foreign"):
        LabelingSession(VOTES, GNMax(40.0), Ledger.open(path)).ask(np.array([[0.0]]))
    if change == "a trigger":
        with pytest.raises(LedgerTamperedError, match="is missing or foreign"):
            reserve(open_before, ONE, 1)


# Everything that leaves


class World:
    """A clock that shows how long the private rows took, keys of one stream, and noisy results that are played again.

    Given the same noisy results, neighboring data sets must have the same transcript, to the last byte.
    """

    def __init__(self, monkeypatch):
        self.elapsed, self.drawn, self.asked, self.recording = 0, [], [], True
        start = datetime(2031, 5, 17, 20, 30, 15, tzinfo=UTC)
        monkeypatch.setattr(releases, "_now", lambda: start + timedelta(hours=self.elapsed))
        monkeypatch.setattr(secrets, "token_bytes", lambda size: self.token(size))
        monkeypatch.setattr(secrets, "token_hex", lambda size=16: self.token(size).hex())
        monkeypatch.setattr(NoisySum, "release", self.played(NoisySum.release, self.check_sum))
        for kind in (_ReportsWinner, ConfidentGNMax):
            monkeypatch.setattr(kind, "release", self.played(kind.release, self.check_votes))

    def token(self, size: int) -> bytes:
        self.tokens += 1
        return hashlib.shake_256(b"%d" % self.tokens).digest(size)

    def begin(self, *, recording: bool):
        self.elapsed, self.tokens, self.place, self.recording = 0, 0, 0, recording

    def played(self, release, check):
        def played(mechanism, private, *given):
            found = private.totals if hasattr(private, "totals") else private.counts
            self.elapsed += int(np.abs(found).sum()) % 89 + 1  # hours, by the private rows
            if self.recording:
                self.asked.append(private)
                self.drawn.append(release(mechanism, private, *given))
                return self.drawn[-1]
            self.place += 1
            check(self.asked[self.place - 1], private, mechanism)
            return self.drawn[self.place - 1]

        return played

    @staticmethod
    def check_sum(one, other, _):
        assert one.norm_squared == other.norm_squared
        lengths = 2 if one.nonnegative else 4  # squared, of the longest ballot
        assert np.sum((one.totals - other.totals).astype(float) ** 2) <= lengths * one.norm_squared

    @staticmethod
    def check_votes(one, other, mechanism):
        moved = np.abs(one.counts - other.counts)
        assert (
            moved.sum() <= 2 * mechanism.cap
            if isinstance(mechanism, CappedGNMax)
            else moved.sum(axis=1).max() <= 2
        )


@pytest.fixture
def world(monkeypatch, repeatable):
    return World(monkeypatch)


# What the rows of one of the people become.
CHANGES = {
    "another label": lambda rows: [
        {**row, "ill": "no" if row["ill"] == "yes" else "yes"} for row in rows
    ],
    "other values": lambda rows: [
        {**row, "age": "7", "dose": "9", "ward": "south"} for row in rows
    ],
    "more rows": lambda rows: rows + [{**rows[0], "age": str(20 + number)} for number in range(60)],
    "leaves": lambda _: [],
    "somebody joins": lambda rows: [*rows, {**rows[0], "patient": "p-new", "ill": "yes"}],
    "other cells": lambda rows: [{**row, "age": " 1e1 ", "dose": ""} for row in rows],
}
NEW_RELEASE = ("run", "config.toml", "--overwrite", "--data-changed")
LEDGER = "private.csv.ledger"
COMMANDS = [
    ("run", "config.toml"),
    ("ledger", "show", LEDGER),
    (*NEW_RELEASE, "--json"),  # which repeats the first
    ("ledger", "export", LEDGER),
    ("ledger", "show", LEDGER, "--json"),
    ("ledger", "exposure", LEDGER),
    ("ledger", "verify", LEDGER),
    ("card", "--ledger", LEDGER, "--output", "again"),
]
# Every method with two of the changes, and every change with at least one of the methods.
BY = {
    "sums": (VECTORS, ["another label", "more rows"]),
    "votes of trees": (None, ["other values", "leaves"]),
    "votes of people": (NEAREST, ["more rows", "another label"]),
    "sums without public rows": (ADDITIVE, ["other values", "leaves"]),
    "sums of numbers": (NUMBERS, ["other cells", "somebody joins"]),
}


def rows_of(folder):
    with (folder / "private.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def change_one_person(folder, change):
    rows, chosen = rows_of(folder), [row for row in rows_of(folder) if row["patient"] == "p7"]
    with (folder / "private.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows([*(row for row in rows if row not in chosen), *change(chosen)])


def files_of(folder):
    """Return all files that may be published."""
    found = [
        path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("private")
    ]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def unlinked(transcript, ledger):
    """Return a transcript without keyed fingerprints of data and the hashes of entries that follow from them."""
    chained = [entry[name] for entry in ledger.export() for name in _CHAINED if name in entry]
    for name, content in transcript.items():
        if Path(name).suffix == ".skops":
            content = unpacked(content)
        for secret in chained:
            content = content.replace(secret.encode(), b"#")
        if Path(name).name in LISTS:  # of hashes of the other files
            content = re.sub(rb"[0-9a-f]{64}", b"#", content)
        transcript[name] = content
    return transcript


def unpacked(content):
    """Return the parts of a student, of which one names hashes, with all but the check sums in their headers."""
    whole = b""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for part in archive.infolist():
            stored = archive.read(part)
            if part.filename == "release.json":
                stored = re.sub(rb"[0-9a-f]{64}", b"#", stored)
            about = (part.filename, part.date_time, part.flag_bits, part.external_attr, part.extra)
            whole += repr(about).encode() + stored
    return whole


LISTS = ("written-files.json", "manifest.json")
_CHAINED = ("fingerprint", "hash", "manifest", "nonce")


def published(world, folder, called, change, commands, from_command=0):
    """Return every byte that an outsider may see of releases from rows that change before one of the commands."""
    transcript = {}
    for number, command in enumerate(commands):
        if change is not None and number == from_command:
            change_one_person(folder, change)
        world.elapsed = 24 * number  # whoever calls it does so at a time of their own
        answer = called(*command, cwd=folder)
        advice = (3, 4) if command[0] == "plan" else ()  # against it
        assert answer.returncode in (0, *advice), answer.stderr
        transcript[f"output of {number}: {' '.join(command)}"] = answer.stdout.encode()
    ledger = Ledger.open(folder / LEDGER)
    inputs = ("config.toml", "public.csv", "plan.csv", "schema.toml")
    files = {name: content for name, content in files_of(folder).items() if name not in inputs}
    return unlinked(transcript | files, ledger)


def differing(one, other):
    """Return the names of the parts of two transcripts that differ."""
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def neighbors(world, called, tmp_path, by, changes, commands=COMMANDS, from_command=0):
    """Yield the transcript of a data set, and then those of data sets that differ from it in one person."""
    for number, change in enumerate((None, *changes)):
        folder = tmp_path / str(number)
        folder.mkdir()
        write_people(folder, 300, 120)
        configure(folder) if by is None else configure_people(folder, by)
        world.begin(recording=number == 0)
        yield published(world, folder, called, change, commands, from_command)
        assert world.place == (number > 0) * len(world.drawn)


IN_TIERS = [pytest.param(by, marks=[pytest.mark.rest] * (by == "votes of people")) for by in BY]


@pytest.mark.parametrize("by", IN_TIERS)
def test_no_byte_of_a_run_depends_on_one_person_but_through_noise(
    by, world, called, tmp_path, monkeypatch
):
    # A model of public labels sees no private row.
    monkeypatch.setattr("tutelage.features.scored._FOLDS", 2)
    method, changes = BY[by]
    one, *others = neighbors(world, called, tmp_path, method, [CHANGES[name] for name in changes])
    for name, other in zip(changes, others, strict=True):
        assert (name, differing(one, other)) == (name, [])
    assert {Path(name).name for name in one} >= {
        "card.json",
        "card.html",
        "labels.csv",
        "student.skops",
    }
    assert b"2031-05-17" in one["out/card.json"]


def test_whether_the_data_changed_between_two_releases_does_not_show(world, called, tmp_path):
    changes = [CHANGES["somebody joins"]]
    one, other = neighbors(world, called, tmp_path, VECTORS, changes, TWICE, from_command=1)
    assert differing(one, other) == []
    export = one[f"output of 2: ledger export {LEDGER}"].decode()
    assert export.count('"kind": "bound"') == 2


def count_people(settings, *given, shown=cli_run._summary):
    print(f"{len(rows_of(settings.base))} rows")  # noqa: T201
    return shown(settings, *given)


def card_with_seconds(*given, made=cli_run._card):
    card = made(*given)
    release = structs.replace(card.release, created=releases._now().isoformat(timespec="seconds"))
    return structs.replace(card, release=release)


def bind_if_changed(beginning, write, honest=Beginning.write):
    known, digest = write.checkpoint().fingerprint, beginning._whom.digest
    beginning._is_bound |= bool(known) and is_fingerprint_of(digest, known, write.key())
    honest(beginning, write)


INIT = "init --private private.csv --person patient --label ill --public public.csv --goal accuracy --epsilon 1"
SCREENS = [
    *(
        f"{INIT} --output init.toml",
        "schema public.csv",
        "plan --for config.toml --people 150 --json",
    ),
    *(
        "run config.toml",
        "run config.toml --overwrite --json",
        "card out --effects",
        "card out --json",
    ),
    *("ledger list .", f"ledger head {LEDGER}", f"ledger show {LEDGER} --html budget.html"),
    *(f"ledger exposure {LEDGER} --json", f"ledger verify {LEDGER} --json --release out"),
    *(
        f"ledger backup {LEDGER} private.ledger",
        f"ledger raise {LEDGER} --epsilon 9 --by A --why B --json",
    ),
]
# Verbs that read no private row, or that print what their docs call private.
UNSEEN = {
    "predict",  # new rows, by what is published
    # Whose members send sealed shares: consortium/tests/test_serving.py.
    "example", "key", "reproduce", "consortium",
    "label", "account", "publish",  # of votes: below, and tests/test_publishing.py
    "audit",  # of made-up rows and of a run, for its owner
}  # fmt: skip


@pytest.mark.rest
@pytest.mark.timeout(900)  # a plan tries whole runs
@pytest.mark.parametrize("by", ["sums", "sums without public rows"])
def test_no_screen_of_any_verb_depends_on_one_person_but_through_noise(by, world, called, tmp_path):
    assert {screen.split()[0] for screen in SCREENS} | UNSEEN == set(_VERBS)
    without_public = ("init", "schema", "plan") if by != "sums" else ()
    commands = [
        tuple(screen.split()) for screen in SCREENS if screen.split()[0] not in without_public
    ]
    one, other = neighbors(world, called, tmp_path, BY[by][0], [CHANGES["more rows"]], commands)
    assert differing(one, other) == []
    assert b"that is spent" in one["budget.html"]


TWICE = [COMMANDS[0], NEW_RELEASE, ("ledger", "export", LEDGER)]
PUBLISHED = {
    "the number of rows on standard output": (cli_run, "_summary", count_people),
    "seconds on the card": (cli_run, "_card", card_with_seconds),
    "addresses in the student": (store, "_without_traces", bytes),
    "a binding only where the data changed": (Beginning, "write", bind_if_changed),
}


def test_planted_faults_show_in_the_transcript(world, called, tmp_path, monkeypatch):
    for place, name, planted in PUBLISHED.values():
        monkeypatch.setattr(place, name, planted)
    one, other = neighbors(
        world, called, tmp_path, VECTORS, [CHANGES["leaves"]], TWICE, from_command=1
    )
    commands = [f"output of {number}: {' '.join(TWICE[number])}" for number in (1, 2)]
    assert {*commands, "out/card.json", "out/student.skops"} <= set(differing(one, other))


def test_labels_from_votes_do_not_depend_on_one_teacher_but_through_noise(world, called, tmp_path):
    transcripts = []
    for number, counts in enumerate(([[230, 15, 5], [90, 80, 80]], [[229, 16, 5], [90, 79, 81]])):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "public.csv").write_text("a,b\n1,2\n3,4\n")
        VoteHistogram(np.array(counts), 250).save(folder / "private-votes.npz")
        world.begin(recording=number == 0)
        gnmax = ("--mechanism", "gnmax", "--sigma", "40", "--output", "labels.csv")
        commands = [
            (
                "ledger",
                "init",
                LEDGER,
                "--epsilon",
                "5",
                "--delta",
                "1e-5",
                "--neighbors",
                "ballot",
            ),
            ("label", "public.csv", "--votes", "private-votes.npz", "--ledger", LEDGER, *gnmax),
            ("ledger", "export", LEDGER),
        ]
        transcripts.append(published(world, folder, called, None, commands))
    assert differing(*transcripts) == []
    assert "labels.csv" in transcripts[0]


@pytest.mark.parametrize("n_rows", [1_000, pytest.param(150_000, marks=pytest.mark.slow)])
def test_a_person_with_very_many_rows_read_in_batches_does_not_show(n_rows, world, tmp_path):
    polars = pytest.importorskip("polars")
    transcripts, cells = [], np.random.default_rng(0).uniform(size=(300, 3))
    public = polars.DataFrame(cells[:80], schema=list("abc"))
    frame = polars.DataFrame(cells, schema=list("abc")).with_columns(
        id=np.arange(300) // 2, y=np.where(cells[:, 0] > 0.5, "yes", "no")
    )
    rows_of_one = np.full(n_rows, 14)
    for number, rows in enumerate(
        (frame, frame[[*range(300), *rows_of_one]], frame.filter(polars.col("id") != 7))
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        rows.sort("id").write_parquet(folder / "rows.parquet")
        world.begin(recording=number == 0)
        settings = {
            "epsilon": 1.0,
            "classes": ["no", "yes"],
            "unit": "person",
            "ledger": folder / LEDGER,
        }
        model = PATEClassifier(**settings)
        model.fit(
            read_batches(folder / "rows.parquet", rows_at_once=100),
            "y",
            X_public=public,
            entity_ids="id",
        )
        model.save(folder / "out")
        export = "\n".join(map(json.dumps, model.open_ledger_.export())).encode()
        files = {
            name: content for name, content in files_of(folder).items() if name.startswith("out")
        }
        transcripts.append(unlinked({**files, "export": export}, model.open_ledger_))
    assert [differing(transcripts[0], other) for other in transcripts[1:]] == [[], []]


def test_a_long_campaign_does_not_depend_on_one_person_but_through_noise(
    world, binary_rows, tmp_path
):
    X, y = binary_rows
    names, everybody, transcripts = (
        np.array([f"p{row // 2}" for row in range(400)]),
        np.arange(400),
        [],
    )
    for number, kept in enumerate(
        (everybody, everybody[everybody != 14], np.r_[everybody, [14] * 50])
    ):
        world.begin(recording=number == 0)
        people = NearestQueries(cap=3).fit(
            X[kept], y[kept], Shards.of_single_people(len(kept), names[kept]), n_classes=2
        )
        folder = tmp_path / str(number)  # in one folder, ledgers of the same keys would be copies
        folder.mkdir()
        ledger = Ledger.create(folder / "a.ledger", epsilon=50.0, delta=1e-5, unit=people.unit)
        session, released = LabelingSession(people, CappedGNMax(20.0, 3), ledger), []
        for first in range(0, 60, 12):
            release = session.ask(X[first : first + 12])
            released.append(
                [release.labels.tolist(), release.cost, session.n_drawn, session.fitting]
            )
        parts = {"labels": released, "export": ledger.export(), "state": ledger.state().as_dict()}
        transcripts.append(
            unlinked({name: json.dumps(part).encode() for name, part in parts.items()}, ledger)
        )
    assert [differing(transcripts[0], other) for other in transcripts[1:]] == [[], []]
