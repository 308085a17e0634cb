"""A folder of ledgers and whose people they share; and the head of one, signed against rollback."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ledgers import admit, bind, for_release, intend, knows, new_ledger, reserve, settle
from test_cli import heed_interrupts, refusal, tutelage  # noqa: F401  the fixture
from test_cohorts import EVENTS, UNIT
from tutelage import Ledger
from tutelage.digests import RunningDigest
from tutelage.signing import SigningKey

pytestmark = pytest.mark.usefixtures("in_this_process", "repeatable")


def spend(
    ledger: Ledger, release: str | None, people: list[str], *, simulated: bool = False
) -> None:
    event = type(EVENTS[2])(20.0, 1, 1, UNIT, simulated=simulated)
    bind(ledger, RunningDigest().add_people(people).digest(), changed=True)
    intend(ledger, str(release), None)
    if release is not None:
        admit(ledger, release, "question", people, event)
    settle(ledger, reserve(ledger, event, 1), {b"q" * 31 + str(release)[-1].encode(): (7,)}, event)


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """Ledgers of releases with and without names, and a table of 30 people."""

    def made(name: str, *releases: tuple[str | None, list[str]], simulated: bool = False) -> None:
        ledger = new_ledger(tmp_path / f"{name}.ledger", 1.0, unit=UNIT)
        for release, people in releases:
            spend(for_release(ledger), release, people, simulated=simulated)

    ids = [str(number) for number in range(30)]
    made("months", ("1", ids[:10]), ("2", ids[:20]))
    made("years", ("1", ids[15:]))
    made("all", (None, ids))
    made("others", (None, ids[1:]))
    made("trial", ("1", ["29"]), simulated=True)
    (tmp_path / "damaged.ledger").write_bytes(b"no ledger at all")
    rows = "".join(f"{number:03d},{number}\n{number},5\n" for number in reversed(range(30)))
    (tmp_path / "stays.csv").write_text("patient,days\n" + rows)
    return tmp_path


def listed(where: Path, *options: str):
    return tutelage("ledger", "list", ".", *options, cwd=where).stdout


def test_a_folder_of_ledgers_is_listed(kept):
    found = json.loads(listed(kept, "--json"))
    releases = {one["file"].removesuffix(".ledger"): one["releases"] for one in found["ledgers"]}
    assert releases == {"all": 1, "months": 2, "others": 1, "trial": 1, "years": 1}
    spent = {one["file"]: one["spent"] for one in found["ledgers"]}
    assert (
        spent["months.ledger"]
        == Ledger.open(kept / "months.ledger").state().spent
        > spent["years.ledger"]
    )
    assert list(found["refused"]) == ["damaged.ledger"]
    said = listed(kept)
    assert "damaged.ledger cannot be listed" in said
    assert "none: simulated" in said.replace("\n", " ")
    (kept / "empty").mkdir()
    for asked, sentence in (
        ((".", "--data", "stays.csv"), "--id belong together"),
        (("empty",), "has no ledger"),
    ):
        assert sentence in refusal(tutelage("ledger", "list", *asked, cwd=kept), 2)


def test_people_who_are_in_several_are_counted_for_the_owner_alone_and_their_epsilons_added(kept):
    asked = ("ledger", "list", ".", "--data", "stays.csv", "--id", "patient")
    told = tutelage(*asked, cwd=kept)
    lines = told.stderr.splitlines()
    assert "private: do not publish" in lines[0]
    assert [
        int(number) for number in re.findall(r"(\d+) people of stays.csv are in", told.stderr)
    ] == [30, 20, 1, 15]
    for line in (
        "5 people are in all.ledger and months.ledger and years.ledger: together at most ε = 3 at δ = 3e-05.",
        "1 people are in all.ledger and trial.ledger and years.ledger: together at most no ε.",
    ):
        assert line in lines
    assert "Not known: who is in others.ledger." in told.stderr
    public = listed(kept)
    assert told.stdout == public.replace(public.splitlines()[-1] + "\n", "")
    assert tutelage(*asked, "--json", cwd=kept).stdout == listed(kept, "--json")


@pytest.mark.parametrize("named", [(True, False, True), (True, None)])
def test_nobody_is_a_stranger_once_a_release_gave_no_ids(named, tmp_path, called):
    path, some, event = tmp_path / "a.ledger", ["1", "2"], EVENTS[2]
    ledger = new_ledger(path, 10.0, unit=UNIT)
    for number, ids in enumerate(named):
        one = for_release(ledger)
        if ids is not None:
            bind(one, bytes([number]), changed=True, people=some if ids else ())
        reserve(one, event, 1)
    read: Any = Ledger.open(path, read_only=True)
    assert knows(read, ["3"]) is None
    assert knows(read, ["1", "3"]).tolist() == [True, False]
    assert not read.register.names_all()
    gone = called("ledger", "withdraw", path, "--id", "1", "--id", "3")
    assert (gone.returncode, "Of 2 ids, at least 1 were in its releases." in gone.stderr) == (
        0,
        True,
    )
    Ledger.open(path).verify()


def test_an_unused_backup_is_no_second_budget_of_its_people(kept):
    Ledger.open(kept / "months.ledger").backup(kept / "monday")
    told = tutelage("ledger", "list", ".", "--data", "stays.csv", "--id", "patient", cwd=kept)
    assert "monday is a copy of months.ledger" in told.stdout
    assert "monday" not in told.stderr


def test_a_signed_head_finds_a_rollback(kept):
    for name in ("officer", "other"):
        SigningKey.generate(name).save(kept / "keys")
    months = Ledger.open(kept / "months.ledger")
    months.backup(kept / "older.bak")
    spend(months, "3", ["0"])
    sign = ("--sign", "keys/officer.private.json")
    tutelage("ledger", "head", "months.ledger", *sign, "--output", "head.json", cwd=kept)
    stated = json.loads((kept / "head.json").read_text())
    assert (stated["head"], stated["signer"]) == (months.state().head, "officer")

    def verify(file: str, head: str = "head.json", key: str = "officer"):
        asked = ("--head", head, "--signer", f"keys/{key}.public.json")
        return tutelage("ledger", "verify", file, *asked, cwd=kept)

    spend(months, "4", ["0"])
    assert re.search(
        "was not rolled back. officer signed it on [0-9-]{10}", verify("months.ledger").stdout
    )
    assert "does not hold the entry" in refusal(verify("older.bak"), 1)
    assert "is of another ledger" in refusal(verify("years.ledger"), 1)
    assert "was not signed with the key of other" in refusal(
        verify("months.ledger", key="other"), 1
    )
    for name, value in (("entries", 1), ("signature", 5), ("head", "00")):
        (kept / "forged.json").write_text(json.dumps({**stated, name: value}))
        refusal(verify("months.ledger", "forged.json"), 1)
