"""`tutelage federate`: a consortium by the command line, with files as transport."""

import json
import re
import shlex
from functools import partial
from pathlib import Path
from textwrap import wrap

import numpy as np
import pytest

from parties import Called, free_ports
from test_cli import refusal, succeeded, tutelage
from test_docs import blocks as blocks_of
from tutelage.exceptions import InvalidDataError
from tutelage.federation import Home, Mailbox
from tutelage.federation.keys import Member
from tutelage.federation.mailbox import Header, Kind, seal
from tutelage.federation.mpc import connect
from tutelage.students import load_student

pytestmark = pytest.mark.usefixtures("in_this_process", "repeatable")

HOSPITALS = [f"hospital-{number}" for number in range(3)]
PARTIES = ["left", "middle", "right"]
ROLES = {"aggregator": "aggregator"}
VOTES = '[method]\nname = "teacher-votes"\nmechanism = {{ name = {} }}\n'
SECURE = "teachers_per_entity = 10\ncolluding = 1\n" + VOTES.format('"gnmax", sigma = 3.0')
HEAD = 'name = "H"\nclasses = 3\nquorum = 2\n'
NOBODY = HEAD + "members = []\n"
LOCAL = VOTES.format('"k-randomized-response", epsilon = 9.0')


def run(*arguments: object) -> str:
    result = succeeded(tutelage("federate", *arguments))
    return result.stdout


def keys(folder: Path, *, computing: bool) -> list[str]:
    """Make the keys of a consortium; return the names of its members."""
    ports = dict(zip(PARTIES if computing else [], free_ports(3), strict=False))
    for name in (names := [*HOSPITALS, "aggregator", *ports]):
        role = ("computing", "--address", f"127.0.0.1:{ports[name]}") if name in ports else (ROLES.get(name, "entity"),)
        run("keygen", name, "--role", *role, "--home", folder / name)
    return names


def write_terms(folder: Path, names: list[str], terms: str) -> None:
    members = json.dumps([f"{name}/{name}.public.json" for name in names])
    (folder / "terms.toml").write_text(f"{HEAD}members = {members}\n{terms}")


def consortium(folder: Path, terms: str) -> Path:
    """Make keys and terms, let all join, and make their ledgers; return the mailbox."""
    names = keys(folder, computing="teachers_per_entity" in terms)
    write_terms(folder, names, f'{terms}[unit]\nname = "patient"\nneighbors = "silo"\n')
    agreed = json.loads(run("init", folder / "terms.toml", "--mailbox", folder / "mail", "--json"))
    for name in names:
        run("join", "--home", folder / name, "--mailbox", folder / "mail", "--fingerprint", agreed["fingerprint"])
        if name not in PARTIES:
            budget = ("--epsilon", 900, "--delta", 1e-5, "--neighbors", "silo", "--unit", "patient")
            assert tutelage("ledger", "init", folder / name / "ledger", *budget).returncode == 0
    return folder / "mail"


def as_member(folder: Path, name: str) -> tuple[object, ...]:
    return ("--home", folder / name, "--mailbox", folder / "mail", "--ledger", folder / name / "ledger")


def cast(folder: Path, name: str, ballots: np.ndarray, *options: str) -> str:
    np.save(folder / name / "ballots.npy", ballots)
    return run("vote", folder / name / "ballots.npy", *as_member(folder, name), *options)


def test_in_the_secure_model_the_aggregator_must_name_its_ledger(tmp_path):
    mail = consortium(tmp_path, SECURE)
    np.save(tmp_path / "rows.npy", np.arange(5.0)[:, None])
    nothing = tutelage("federate", "ask", tmp_path / "rows.npy", "--home", tmp_path / "aggregator", "--mailbox", mail)
    assert "--ledger must be given" in refusal(nothing, 2)
    first, again, anew = (
        json.loads(run("ask", tmp_path / "rows.npy", *as_member(tmp_path, "aggregator"), *option, "--json"))
        for option in ((), (), ("--new-batch",))
    )
    assert first["batch"] == again["batch"] != anew["batch"]
    assert first["ledger"]["spent"] == again["ledger"]["spent"] < anew["ledger"]["spent"]


def test_joining_shows_the_terms_first_and_asks_for_their_fingerprint(tmp_path):
    mail = consortium(tmp_path, LOCAL)
    run("keygen", "late", "--role", "entity", "--home", tmp_path / "late")
    shown = tutelage("federate", "join", "--home", tmp_path / "late", "--mailbox", mail)
    assert shown.returncode == 1
    assert "Not joined yet" in shown.stdout
    fingerprint = json.loads(run("status", "--mailbox", mail, "--json"))["fingerprint"]
    assert fingerprint in shown.stdout.replace(" ", "")
    public = tmp_path / HOSPITALS[0] / f"{HOSPITALS[0]}.public.json"
    assert f"{Member.load(public).fingerprint}  {HOSPITALS[0]}, entity" in shown.stdout
    right = tutelage("federate", "join", "--home", tmp_path / "late", "--mailbox", mail, "--fingerprint", fingerprint)
    assert "does not name late" in refusal(right, 1)


@pytest.mark.parametrize(("terms", "message", "code"), [
    ("name = ", "is not valid TOML", 2),
    ('name = "H"\n', "the terms file needs `classes`. Add it.", 2),
    (HEAD + 'members = "x"\n[method]\n[unit]\n', "must be a list, each entry text. Got 'x'", 2),
    (f"{HEAD}members = ['x']\n{SECURE}[unit]\nneighbors = 'row'\n", "x does not exist", 1),
    (NOBODY + VOTES.format("'lnmax'") + "[unit]\n", "The mechanism must be one of", 2),
    (NOBODY + VOTES.format("'gnmax'") + "[unit]\n", "with the name gnmax needs `sigma`. Add it.", 2),
    (NOBODY + VOTES.format("'confident', sigma_vote = 3") + "[unit]\n", "Did you mean `sigma`?", 2),
    (NOBODY + "noise = 1\n[method]\n[unit]\n", "`noise` is not a setting of the terms file", 2),
    (NOBODY + VOTES.format("['gnmax']") + "[unit]\n", "`name` in `mechanism` in [method] must be text", 2),
    (NOBODY + "[method]\nname = 'capped-votes'\n[unit]\n", "must be one of additive, noisy-moments, teacher-votes.", 2),
    (NOBODY + "[method]\nname = 'teacher-votes'\n[unit]\n", "[method] needs `mechanism`. Add it.", 2),
    (f"{NOBODY}{LOCAL}[unit]\nneighbors = 'owner'\nname = 'x'\n", "Leave the name out", 2),
])  # fmt: skip
def test_terms_that_say_too_little_or_too_much_are_refused(terms, message, code, tmp_path):
    (tmp_path / "terms.toml").write_text(terms)
    result = tutelage("federate", "init", tmp_path / "terms.toml", "--mailbox", tmp_path / "mail")
    assert message in refusal(result, code)


def test_what_is_missing_or_ambiguous_is_one_sentence(tmp_path):
    mail = consortium(tmp_path, LOCAL)
    home, budget = ("--home", tmp_path / HOSPITALS[0], "--mailbox", mail), tmp_path / HOSPITALS[0] / "ledger"
    aggregator = ("--home", tmp_path / "aggregator", "--mailbox", mail)
    vote = ("federate", "vote", tmp_path / "b.npy", *home, "--ledger", budget)
    assert "--batch must name one batch. There is none" in refusal(tutelage(*vote), 2)
    for rows in (0, 10):
        np.save(tmp_path / "rows.npy", np.arange(5.0)[:, None] + rows)
        run("ask", tmp_path / "rows.npy", *aggregator)
    batches = [each["batch"] for each in json.loads(run("status", "--mailbox", mail, "--json"))["batches"]]
    sentence, batch = refusal(tutelage(*vote), 2), batches[0]
    assert "--batch must name the batch of the ballots. There are 2." in sentence
    assert all(each in sentence for each in batches)
    assert "b.npy does not exist" in refusal(tutelage(*vote, "--batch", batch[:6]), 2)
    (tmp_path / "b.npy").write_bytes(b"\x80\x04pickle")
    assert "not a readable npy file" in refusal(tutelage(*vote, "--batch", batch[:6]), 2)
    paid = tutelage("federate", "ask", tmp_path / "rows.npy", *as_member(tmp_path, "aggregator"))
    assert "each hospital keeps its own budget" in refusal(paid, 2)
    csv = tutelage("federate", "collect", *aggregator, "--output", tmp_path / "labels.csv", "--batch", batch)
    assert "--output must end in .npz" in refusal(csv, 2)
    absent = tutelage("federate", "collect", *aggregator[:3], tmp_path / "nowhere", "--output", tmp_path / "labels.npz")
    assert "nowhere. Run `tutelage federate init`, or check --mailbox." in refusal(absent, 2)
    twice = tutelage("federate", "init", tmp_path / "terms.toml", "--mailbox", mail)
    assert f"--mailbox must not contain another consortium. Got {mail}. Name an empty folder." in refusal(twice, 2)
    np.save(tmp_path / "rows.npy", np.array([[0.0], [np.nan]]))
    assert "Leave these rows out" in refusal(tutelage("federate", "ask", tmp_path / "rows.npy", *aggregator), 1)


@pytest.mark.parametrize(("arguments", "message"), [
    (("a/b", "--role", "entity"), "`NAME` of keygen must be 1 to 40"),
    (("left", "--role", "computing"), "--address must give host:port"),
    (("one", "--role", "entity", "--address", "here:1"), "--address is only for --role computing"),
])  # fmt: skip
def test_keys_that_cannot_be_made_leave_no_folder(arguments, message, tmp_path):
    result = tutelage("federate", "keygen", *arguments, "--home", tmp_path / "home")
    assert message in refusal(result, 2)
    assert not (tmp_path / "home").exists()


def test_votes_that_cannot_be_sent_are_paid_for_and_sent_later_at_no_cost(tmp_path, monkeypatch):
    mail = consortium(tmp_path, LOCAL)
    np.save(tmp_path / "rows.npy", np.arange(5.0)[:, None])
    run("ask", tmp_path / "rows.npy", "--home", tmp_path / "aggregator", "--mailbox", mail)
    np.save(tmp_path / "ballots.npy", np.zeros((1, 5), dtype=int))
    vote = ("vote", tmp_path / "ballots.npy", *as_member(tmp_path, HOSPITALS[0]))

    def full(*_: object) -> None:
        raise InvalidDataError("north.sealed cannot be written: No space left on device.")

    with monkeypatch.context() as patched:
        patched.setattr(Mailbox, "put_answer", full)
        sentence = refusal(tutelage("federate", *vote), 1)
    assert "No space left on device. The budget was spent before this error." in sentence
    assert "run the same command again, which spends nothing more." in sentence
    spent = json.loads(tutelage("ledger", "show", tmp_path / HOSPITALS[0] / "ledger", "--json").stdout)["spent"]
    assert json.loads(run(*vote, "--json"))["ledger"]["spent"] == spent > 0
    (sent,) = (mail / "ballots").rglob("*.sealed")
    before = sent.read_bytes()
    said = cast(tmp_path, HOSPITALS[0], np.ones((1, 5), dtype=int))
    assert "The same envelopes were sent again, " in said
    assert "ballots.npy was not used." in said
    assert sent.read_bytes() == before
    ballots, batch = tmp_path / "ballots.npz", sent.parent.name
    np.savez(ballots, ballots=np.zeros((1, 5), dtype=int), batch="0" * 32)
    other = tutelage("federate", "vote", ballots, *as_member(tmp_path, HOSPITALS[1]))
    assert f"contains ballots for another batch than {batch}" in refusal(other, 2)


def test_people_who_came_later_are_exposed_to_less_and_the_budget_forgets_nothing(tmp_path):
    mail, member = consortium(tmp_path, LOCAL), as_member(tmp_path, HOSPITALS[0])
    votes, data = tmp_path / HOSPITALS[0] / "ballots.npy", tmp_path / HOSPITALS[0] / "rows.csv"
    np.save(votes, np.zeros((1, 4), dtype=int))
    for number, text in enumerate(["a", "a", "ab"]):
        data.write_text(text)
        np.save(tmp_path / "rows.npy", np.arange(4.0)[:, None] + 10 * number)
        aggregator = ("--home", tmp_path / "aggregator", "--mailbox", mail)
        asked = json.loads(run("ask", tmp_path / "rows.npy", *aggregator, "--json"))["batch"]
        vote = ("vote", votes, *member, "--data", data, "--batch", asked)
        if number == 2:
            assert "tied to other people or other rows" in refusal(tutelage("federate", *vote), 1)
            vote = (*vote, "--data-changed")
        run(*vote)
    shown = tutelage("ledger", "exposure", tmp_path / HOSPITALS[0] / "ledger", "--json")
    assert [(one["release"], one["queries"]) for one in json.loads(shown.stdout)] == [(1, 12), (2, 8), (3, 4)]


def test_a_computing_party_says_whom_it_waits_for(tmp_path, monkeypatch):
    mail = consortium(tmp_path, SECURE)
    np.save(tmp_path / "rows.npy", np.arange(5.0)[:, None])
    run("ask", tmp_path / "rows.npy", *as_member(tmp_path, "aggregator"))
    alone = ("compute", "--home", tmp_path / "middle", "--mailbox", mail)
    for wrong in ("7001", "here:0", "here:65536"):
        assert "--listen must be 'host:port'" in refusal(tutelage("federate", *alone, "--listen", wrong), 2)
    assert "--timeout" in refusal(tutelage("federate", *alone, "--timeout", "nan"), 2)
    for name in HOSPITALS:
        cast(tmp_path, name, np.zeros((10, 5), dtype=int))
    monkeypatch.setattr(connect, "_TOLD_EVERY", 0.1)
    (port,) = free_ports(1)
    left = tutelage("federate", *alone, "--timeout", 0.5, "--listen", f"127.0.0.1:{port}")
    assert left.returncode == 1
    first, refused = left.stderr.splitlines()
    assert first == "Waiting for left and right to run `tutelage federate compute`."
    assert f"left did not connect to 127.0.0.1:{port}. right did not answer at 127.0.0.1:" in refused


def asked_and_answered(folder: Path, answered: int) -> str:
    """Ask five rows and let the first hospitals vote; return the batch."""
    np.save(folder / "rows.npy", np.arange(5.0)[:, None])
    batch = json.loads(run("ask", folder / "rows.npy", *as_member(folder, "aggregator"), "--json"))["batch"]
    for name in HOSPITALS[:answered]:
        cast(folder, name, np.tile([0, 1, 2, 2, 1], (10, 1)))
    return batch


def test_below_the_quorum_computing_names_who_is_missing_and_waits_for_nobody(tmp_path):
    mail = consortium(tmp_path, SECURE)
    batch = asked_and_answered(tmp_path, 1)
    alone = tutelage("federate", "compute", "--home", tmp_path / "middle", "--mailbox", mail)  # 600 s, if it waited
    sentence = refusal(alone, 1)
    assert "1 of 3 entities answered in a form that can be used, and the terms ask for 2" in sentence
    assert "No answer from hospital-1, hospital-2: let more entities run `tutelage federate vote`." in sentence
    said = run("status", "--mailbox", mail)
    assert f"{batch[:8]}: No votes from hospital-1, hospital-2. Next: 1 more must run `tutelage federate vote`." in said
    cast(tmp_path, HOSPITALS[1], np.zeros((10, 5), dtype=int))
    said = run("status", "--mailbox", mail)
    assert "Next: left, middle, right must run `tutelage federate compute` at the same time." in said
    (found,) = json.loads(run("status", "--mailbox", mail, "--json"))["batches"]
    assert (found["missing"], found["computed"], found["complete"]) == (HOSPITALS[2:], [], False)


def put_labels(folder: Path, batch: str) -> None:
    """Lay down what computing parties send, of one computation; what is sealed in it is for the aggregator alone."""
    mailbox = Mailbox(folder / "mail")
    terms = mailbox.consortium()
    asked = mailbox.batch(batch, terms)
    for name in PARTIES:
        header = Header.of(terms, asked, Kind.LABELS, name, "aggregator")
        sealed = seal(Home(folder / name).identity, terms.aggregator, header, b"")
        mailbox.put_labels(asked, name, "a" * 64, sealed)


def test_a_batch_that_is_computed_is_not_waited_for(tmp_path):
    mail = consortium(tmp_path, SECURE)
    batch = asked_and_answered(tmp_path, 2)
    put_labels(tmp_path, batch)
    compute = ("compute", "--home", tmp_path / "middle", "--mailbox", mail)
    sentence = refusal(tutelage("federate", *compute), 1)
    assert f"Batch {batch} is already computed" in sentence
    assert "aggregator can run `tutelage federate collect`" in sentence
    again = tutelage("federate", *compute, "--again", "--timeout", 0.2)
    assert (again.returncode, "No connection to left and right within 0.2 s" in again.stderr) == (1, True)
    assert "Next: aggregator can run `tutelage federate collect`." in run("status", "--mailbox", mail)


def test_a_ledger_for_a_member_is_no_other_members(tmp_path):
    mail = consortium(tmp_path, SECURE)
    asked_and_answered(tmp_path, 0)
    budget, theirs = ("--epsilon", 900, "--delta", 1e-5), tmp_path / "theirs"
    assert tutelage("ledger", "init", theirs, *budget, "--for", tmp_path / HOSPITALS[1]).returncode == 0
    np.save(tmp_path / "ballots.npy", np.zeros((10, 5), dtype=int))
    vote = ("vote", tmp_path / "ballots.npy", *as_member(tmp_path, HOSPITALS[0])[:4], "--ledger", theirs)
    sentence = refusal(tutelage("federate", *vote), 1)
    assert "theirs is the ledger of hospital-1, not of hospital-0. Nothing was spent." in sentence
    own = ("--home", tmp_path / HOSPITALS[1], "--mailbox", mail, "--ledger", theirs)
    assert "5 of 5 queries" in run("vote", tmp_path / "ballots.npy", *own)


def test_what_others_wrote_is_printed_and_not_obeyed(tmp_path):
    write_terms(tmp_path, keys(tmp_path, computing=False), LOCAL + '[unit]\nname = "[red]row[/]"\nneighbors = "row"\n')
    terms = (tmp_path / "terms.toml").read_text()
    (tmp_path / "terms.toml").write_text(terms.replace('"H"', '"[bold]H[/bold]"'))
    said = run("init", tmp_path / "terms.toml", "--mailbox", tmp_path / "mail")
    assert "[bold]H[/bold]" in said
    assert "[red]row[/]: " in said
    (tmp_path / "mail" / "batches").mkdir()
    written = json.dumps({"file": "batch", "format": 1, "consortium": "\x1b[31m"}) + "\n"
    (tmp_path / "mail" / "batches" / f"{'a' * 32}.batch").write_text(written)
    assert "\x1b" not in run("status", "--mailbox", tmp_path / "mail")


blocks = partial(blocks_of, "docs/federation.md")


def commands_in(block: str) -> list[list[str]]:
    """Return the commands of a documented block in order, with each loop over members written out."""
    found = []
    for line in filter(None, block.splitlines()):
        loop = re.fullmatch(r"for name in (.*?); do (tutelage .*?)(?:; done| & done; wait)", line)
        found += [line] if loop is None else [loop[2].replace("$name", name) for name in loop[1].split()]
    assert all(command.startswith("tutelage ") for command in found)
    return [shlex.split(command)[1:] for command in found]


def follow(block: str, folder: Path) -> str:
    """Run the commands of a documented block, those of the computing parties at the same time; return what they say."""
    printed, parties = "", []
    for command in commands_in(block):
        if "join" in command:
            agreed = json.loads(tutelage("federate", "status", "--mailbox", "mail", "--json", cwd=folder).stdout)
            command[command.index("--fingerprint") + 1] = " ".join(wrap(agreed["fingerprint"], 4))
        if "compute" in command:
            parties.append(Called(folder, *command))
            continue
        while parties:
            code, out, err = parties.pop().ended()
            assert (code, all(line.startswith("Waiting for ") for line in err.splitlines())) == (0, True), err
            assert "by 3 hospitals" in out or "the ballots of 3 hospitals" in out
        result = succeeded(tutelage(*command, cwd=folder))
        printed += result.stdout
    return printed


def on_free_ports(block: str) -> str:
    for port, free in zip((7001, 7002, 7003), free_ports(3), strict=True):
        block = block.replace(f"127.0.0.1:{port}", f"127.0.0.1:{free}")
    return block


@pytest.mark.rest
def test_the_documented_consortium_works_as_it_is_typed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before, after, *_ = blocks("sh")
    (tmp_path / "terms.toml").write_text(blocks("toml")[0])
    rows = np.random.default_rng(1).normal(size=(20, 5))
    np.save("rows.npy", rows)
    follow(on_free_ports(before), tmp_path)
    (training,) = blocks("python")
    for name in ("hospital-1", "hospital-2", "hospital-3"):
        exec(training.replace("hospital-1", name), {})  # noqa: S102  our own documentation
    assert "20 of 20 labels, by 3 hospitals" in follow(after, tmp_path)
    with np.load("labels.npz") as found:
        clear = np.abs(rows[:, 0]) > 0.5  # there nearly all 75 teachers agree
        np.testing.assert_array_equal(found["rows"], rows)
        assert np.mean(found["labels"][clear] == (rows[clear, 0] > 0)) > 0.7


def test_the_documented_local_model_works_as_it_is_typed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "terms.toml").write_text(blocks("toml")[1])
    np.save("rows.npy", np.arange(20.0)[:, None])
    for name in ("one", "two"):
        (tmp_path / name).mkdir(mode=0o700)
        np.save(f"{name}/ballots.npy", np.zeros((1, 20), dtype=int))
    assert "20 of 20 labels, by 2 hospitals" in follow(blocks("sh")[2], tmp_path)
    assert json.loads(Path("mail/consortium.json").read_text())["colluding"] == 0
    mail = tmp_path / "mail"
    (mail / "batches" / f"{'f' * 32}.batch").write_text("junk")
    found = json.loads(run("status", "--mailbox", mail, "--json"))
    assert (len(found["batches"]), set(found["refused"])) == (1, {"f" * 32})
    assert "ffffffff is refused: A batch of queries is damaged" in run("status", "--mailbox", mail)


@pytest.mark.rest
def test_the_documented_sums_work_as_they_are_typed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made, *_, rounds, _ = blocks("sh")
    (tmp_path / "terms.toml").write_text(blocks("toml")[2])
    X = np.random.default_rng(0).normal(size=(2800, 5))
    y = (X[:, 0] > 0).astype(int)
    np.save("rows.npy", X[:400])
    said = follow(on_free_ports(made), tmp_path)
    assert "2 rounds spend │ ε = 0.9264 at δ = 1e-05" in said
    assert "Sent round 1 of 2 as batch" in said
    for name, start in (("hospital-1", 400), ("hospital-2", 600), ("hospital-3", 800)):
        own = slice(start, start + 200)
        np.savez(tmp_path / name / "rows.npz", X=X[own], y=y[own], ids=np.arange(200))
    said = follow(rounds, tmp_path)
    assert "Sent the sealed sum of the ballots of one round to left, middle, right." in said
    assert "Wrote the student of round 1, by 3 hospitals, to student.skops." in said
    assert "Wrote the student of round 2, by 3 hospitals, to student.skops." in said
    # 0.96 on average over the noise, with a standard deviation of 0.02.
    assert np.mean(load_student(Path("student.skops")).predict(X[1000:]) == y[1000:]) > 0.85
    succeeded(tutelage("ledger", "verify", "registry/ledger", cwd=tmp_path))
    again = tutelage("federate", "ask", "rows.npy", *as_member(tmp_path, "registry"), cwd=tmp_path)
    assert "Every round was collected before. No query was sent, and nothing was spent." in again.stdout


@pytest.mark.rest
def test_the_documented_sums_without_public_rows_work_as_they_are_typed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made, *_, sums = blocks("sh")
    *_, terms, method, schema = blocks("toml")
    head, _, people = terms.partition("[method]")
    terms = f'{head}schema = "schema.toml"\n{method}{people[people.index("[people]") :]}'
    (tmp_path / "terms.toml").write_text(terms.replace("= 200", "= 2000"))
    (tmp_path / "schema.toml").write_text(schema)
    made = made.replace("tutelage federate ask rows.npy --home registry --mailbox mail --ledger registry/ledger", "")
    said = follow(on_free_ports(made), tmp_path)
    assert "3 rounds spend │ ε = 0.9264 at δ = 1e-05" in said
    assert "age: 20, 95" in said
    assert "ward: surgery, medicine, geriatrics" in said
    rng, wards = np.random.default_rng(0), ["medicine", "surgery", "geriatrics"]

    def table(n):
        age, ward = rng.integers(20, 96, n), rng.choice(wards, n)
        return {"ward": ward, "age": age, "y": ((age > 60) ^ (ward == "surgery")).astype(int), "ids": np.arange(n)}

    for name in ("hospital-1", "hospital-2", "hospital-3"):
        rows = table(2000)
        lines = [",".join(rows), *(",".join(map(str, row)) for row in zip(*rows.values(), strict=True))]
        (tmp_path / name / "rows.csv").write_text("\n".join(lines) + "\n")
    for number in (1, 2, 3):
        said = follow(sums, tmp_path)
        assert f"Sent round {number} of 3 as batch" in said
        assert f"Wrote the student of round {number}, by 3 hospitals, to student.skops." in said
    assert "This was the last round." in said
    test = table(1000)
    student = load_student(Path("student.skops"))
    # The classes are no sum of effects: of 76 % at most, 75 % on average over the noise.
    assert np.mean(student.predict({"age": test["age"], "ward": test["ward"]}) == test["y"]) > 0.6
    again = tutelage("federate", "ask", *as_member(tmp_path, "registry"), cwd=tmp_path)
    assert "Every round was collected before. No query was sent, and nothing was spent." in again.stdout
    np.savez("rows.npz", X=np.zeros((2, 2)), y=np.zeros(2, dtype=int), ids=np.arange(2))
    batch = Mailbox(tmp_path / "mail").batch_identifiers()[0]
    vote = ("federate", "vote", "rows.npz", *as_member(tmp_path, "hospital-1"), "--batch", batch)
    assert "must be a table (csv or Parquet)" in refusal(tutelage(*vote, cwd=tmp_path), 2)


SUM = """
[people]
{people}
[method]
name = "noisy-moments"
rounds = 2
mechanism = {{ name = "noisy-sum", noise_multiplier = 8.0 }}
[unit]
name = "patient"
neighbors = "silo"
"""


@pytest.mark.rest
@pytest.mark.parametrize(("change", "message"), [
    (("noisy-moments", "capped-votes"), "`name` in [method] must be one of additive, noisy-moments, teacher-votes."),
    (("[people]", "schema = 'schema.toml'\n[people]"), "`schema` must name a TOML file of columns for additive"),
    (('"noisy-moments"\nrounds = 2', '"additive"'), "`schema` must name a TOML file of columns for additive"),
    (('"noisy-moments"\nrounds = 2', '"additive"\nrounds = 2'), "`rounds` is not a setting of [method]"),
    (("rounds = 2", "trees = 2"), "`trees` is not a setting of [method] with the name noisy-moments"),
    (("rounds = 2", 'student = "forest"'), "a `mechanism` and no `student`"),
    (('"noisy-sum"', '"gnmax"'), "The mechanism must be one of noisy-sum. Got 'gnmax'"),
    (("noise_multiplier = 8.0", "sigma = 8.0"), "`sigma` is not a setting of `mechanism` in [method]"),
    (('mechanism = { name = "noisy-sum", noise_multiplier = 8.0 }', ""), "the members agree on the noise"),
    (('"noisy-moments"\nrounds = 2', '"teacher-votes"'), "[people] and `schema` are only for"),
    (("hospital-1 = 10", "hospital-9 = 10"), "`hospital-9` is not a setting of [people]"),
    (("hospital-1 = 10\n", ""), "[people] needs `hospital-1`"),
    (("[people]", "teachers_per_entity = 5\n[people]"), "[people] in place of `teachers_per_entity`"),
    (('neighbors = "silo"', 'neighbors = "owner"'), "one"),
])  # fmt: skip
def test_terms_that_mix_votes_and_sums_are_refused(change, message, tmp_path):
    names = keys(tmp_path, computing=True)
    terms = SUM.format(people="\n".join(f"{name} = 10" for name in HOSPITALS))
    assert change[0] in terms
    write_terms(tmp_path, names, terms.replace(*change))
    result = tutelage("federate", "init", tmp_path / "terms.toml", "--mailbox", tmp_path / "mail")
    assert message in refusal(result, result.returncode)
    assert result.returncode in (1, 2)
    assert not (tmp_path / "mail").exists()
