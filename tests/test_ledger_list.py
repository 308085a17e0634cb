"""A folder of ledgers and whose people they share; and the head of one, signed against rollback."""

import json
import re
from pathlib import Path

import pytest

from test_cli import heed_interrupts, refusal, tutelage  # noqa: F401  the fixture
from test_cohorts import EVENTS, UNIT
from tutelage import Ledger
from tutelage.digests import RunningDigest
from tutelage.federation import Identity, Role

pytestmark = pytest.mark.usefixtures("in_this_process", "repeatable")


def spend(ledger: Ledger, release: str | None, people: list[str], *, simulated: bool = False) -> None:
    event = type(EVENTS[2])(20.0, 1, 1, UNIT, simulated=simulated)
    ledger.bind(RunningDigest().add_people(people).digest(), changed=True)
    ledger.intend(str(release), None)
    if release is not None:
        ledger.admit(release, "question", people, event)
    ledger.settle(ledger.reserve(event, 1), {b"q" * 31 + str(release)[-1].encode(): (7,)}, event)


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """Ledgers of releases with and without names, and a table of 30 people."""

    def made(name: str, *releases: tuple[str | None, list[str]], simulated: bool = False) -> None:
        ledger = Ledger.create(tmp_path / f"{name}.ledger", epsilon=1.0, delta=1e-5, unit=UNIT)
        for release, people in releases:
            spend(ledger.for_release(), release, people, simulated=simulated)

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
    by_name = {one["file"]: one for one in found["ledgers"]}
    assert {name: one["releases"] for name, one in by_name.items()} == {
        "all.ledger": 1, "months.ledger": 2, "others.ledger": 1, "trial.ledger": 1, "years.ledger": 1,
    }  # fmt: skip
    state = Ledger.open(kept / "months.ledger").state()
    assert by_name["months.ledger"]["spent"] == state.spent > by_name["years.ledger"]["spent"]
    assert found["together"] == []
    assert list(found["refused"]) == ["damaged.ledger"]
    said = listed(kept)
    assert "months.ledger" in said
    assert "damaged.ledger cannot be listed" in said
    assert "none: simulated" in said.replace("\n", " ")


def test_people_who_are_in_several_are_counted_and_their_epsilons_added(kept):
    found = json.loads(listed(kept, "--data", "stays.csv", "--id", "patient", "--json"))
    people = {one["file"].removesuffix(".ledger"): one.get("people") for one in found["ledgers"]}
    assert people == {"all": 30, "months": 20, "others": None, "trial": 1, "years": 15}
    sums = {" ".join(one["ledgers"]).replace(".ledger", ""): one for one in found["together"]}
    assert {names: one["people"] for names, one in sums.items()} == {
        "all months": 15, "all months years": 5, "all years": 9, "all trial years": 1,
    }  # fmt: skip
    assert (sums["all months years"]["epsilon"], sums["all months"]["epsilon"]) == (3, 2)
    assert sums["all months"]["delta"] == pytest.approx(2e-5)
    assert sums["all trial years"]["epsilon"] is None
    said = listed(kept, "--data", "stays.csv", "--id", "patient")
    assert "15 people are in all.ledger and months.ledger: together at most ε = 2 at δ = 2e-05." in said
    assert "Not known: others.ledger." in said
    told = tutelage("ledger", "list", ".", "--data", "stays.csv", "--id", "patient", "--json", cwd=kept).stderr
    assert "private: do not publish" in told


def test_it_asks_for_both_and_for_a_folder_with_ledgers(kept):
    assert "--id belong together" in refusal(tutelage("ledger", "list", ".", "--data", "stays.csv", cwd=kept), 2)
    (kept / "empty").mkdir()
    assert "has no file *.ledger" in refusal(tutelage("ledger", "list", "empty", cwd=kept), 2)


def test_a_signed_head_finds_a_rollback(kept):
    for name in ("officer", "other"):
        Identity.generate(name, Role.ENTITY).save(kept / "keys")
    months = Ledger.open(kept / "months.ledger")
    assert tutelage("ledger", "head", "months.ledger", cwd=kept).stdout.strip() == months.state().head
    months.backup(kept / "older.bak")
    spend(months, "3", ["0"])
    sign = ("--sign", "keys/officer.private.json")
    tutelage("ledger", "head", "months.ledger", *sign, "--output", "head.json", cwd=kept)
    stated = json.loads((kept / "head.json").read_text())
    assert json.loads(tutelage("ledger", "head", "months.ledger", *sign, cwd=kept).stdout) == stated
    assert (stated["head"], stated["entries"]) == (months.state().head, months.state().entries)
    assert (stated["spent"], stated["signer"]) == (months.state().spent, "officer")

    def verify(file: str, head: str = "head.json", key: str = "officer"):
        asked = ("--head", head, "--signer", f"keys/{key}.public.json")
        return tutelage("ledger", "verify", file, *asked, cwd=kept)

    spend(months, "4", ["0"])
    assert re.search("was not rolled back. officer signed it on [0-9-]{10}", verify("months.ledger").stdout)
    assert "does not hold the entry" in refusal(verify("older.bak"), 1)
    assert "is of another ledger" in refusal(verify("years.ledger"), 1)
    assert "was not signed with the key of other" in refusal(verify("months.ledger", key="other"), 1)
    for name, value in (("entries", 1), ("file", "release signature"), ("signature", 5), ("head", "00")):
        (kept / "forged.json").write_text(json.dumps({**stated, name: value}))
        refusal(verify("months.ledger", "forged.json"), 1)
    assert "--sign" in refusal(tutelage("ledger", "head", "months.ledger", "--output", "h", cwd=kept), 2)
    assert "cannot be read" in refusal(verify("months.ledger", "missing.json"), 1)
