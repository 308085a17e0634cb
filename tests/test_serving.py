"""Members at work on their own: steps that follow from the files, amendments of the roster, and cheats."""

import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consortia import PARTIES, Members, all_ended, compute, found
from processes import called_by_itself, die_at_event
from tutelage.exceptions import FederationError, StaleBatchError
from tutelage.features import Schema
from tutelage.federation import Aggregator, Batch, ComputingParty, Consortium, Entity, Home, Identity, Role, aggregator
from tutelage.federation.mailbox import Kind, Mailbox, consortium_status
from tutelage.federation.serving import Serving, changes_of, made_up, question_of
from tutelage.federation.sharing import HEAD_BYTES, added, split
from tutelage.federation.sums import REHEARSAL, SharedSums
from tutelage.ledger import Ledger, turns
from tutelage.mechanisms import NoisySum
from tutelage.noise import SimulationNoise, SystemNoise

SCHEMA = Schema({"ward": ["surgery", "medicine"], "age": (20, 95)})
HOSPITALS = [f"hospital-{number}" for number in range(4)]
PEOPLE = 400


def rows_of(number: int) -> Any:
    random = np.random.default_rng(number)
    age, ward = random.integers(20, 96, PEOPLE), random.choice(["surgery", "medicine"], PEOPLE)
    old = age + 20 * (ward == "surgery") + random.normal(0, 8, PEOPLE) > 65
    return {"age": age, "ward": ward}, old.astype(int), np.arange(PEOPLE).astype(str)


class Play:
    """A consortium whose members serve; the operators' questions and what they are told are kept."""

    def __init__(self, folder: Any, **terms: Any) -> None:
        given = {"schema": SCHEMA, "people": (PEOPLE,) * 4, "classes": ("young", "old"), "teachers_per_entity": 1}
        self.members = found(folder, NoisySum(2.0), epsilon=20.0, **given | terms)
        self.asked, self.told, self.answer = list[str](), list[str](), True
        for name in PARTIES:
            self.members.mailbox.put_acceptance(self.members.home(name).identity, self.members.consortium)
        self.aggregator = self.members.aggregator()

    def serving(self, name: str, **given: Any) -> Serving:
        def approves(question: str, *_words: str) -> bool:
            self.asked.append(question)
            return self.answer

        home = self.members.home(name)
        is_hospital = home.identity.member.role is Role.ENTITY
        if is_hospital:
            given |= {"ledger": self.members.ledger(name), "rows": lambda _: rows_of(int(name[-1]))}
        return Serving(
            home=home,
            mailbox=self.members.mailbox,
            invited=self.members.consortium,
            accepts=approves,
            approves=approves,
            says=self.told.append,
            **given,
        )

    def elsewhere(self, folder: Path) -> "Play":
        """Return the same members in a copy of their folder, as new processes find them."""
        other = object.__new__(Play)
        vars(other).update(vars(self))
        other.members = Members(folder, self.members.consortium, Mailbox(folder / "mailbox"))
        other.aggregator = other.members.aggregator()
        return other

    def step(self, *names: str) -> list[bool]:
        return [self.serving(name).step() for name in names]

    def accept(self, *names: str) -> None:
        """Let members see a roster, and do nothing else: a computing party would wait for the two others."""
        for name in names:
            serving = self.serving(name)
            if serving._accept():
                self.members.mailbox.put_acceptance(serving.home.identity, serving.home.consortium())

    def sum(self, release: str, names: Any = HOSPITALS) -> Any:
        """Play one sum of a release to its end; None after the last."""
        batch = self.aggregator.ask_sum(release, self.members.mailbox)
        if batch is None:
            return None
        self.step(*names)
        all_ended(self.members, batch)
        return self.aggregator.collect_sum(batch, self.members.mailbox)

    def entity(self, name: str) -> Entity:
        """Return a hospital with a budget that is made now."""
        terms, home = self.members.consortium, self.members.home(name)
        home.join(terms, terms.words)
        return Entity(home, Ledger.in_memory(epsilon=20.0, delta=1e-5, unit=terms.unit))

    def spent(self, name: str) -> float:
        return self.members.ledger(name).state().spent

    def amended(self, **changes: Any) -> Consortium:
        """Propose a roster with these changes."""
        before = self.members.home(HOSPITALS[1]).consortium()
        after = replace(before, roster=before.roster + 1, **changes)
        self.members.mailbox.put_roster(after)
        return after

    def renewed(self, name: str) -> Identity:
        """Give a member new keys in its home, as after a loss, and publish them."""
        home = self.members.folder / name
        before = Home(home).identity.member
        Home.retire_keys(home)
        made = Identity.generate(name, before.role, before.address)
        made.save(home)
        return made


def test_a_roster_with_other_terms_or_with_strangers_is_refused_whatever_its_words(play, tmp_path):
    terms = play.members.consortium
    other = replace(terms, colluding=0, roster=1)
    play.members.mailbox.put_roster(other)
    play.accept("hospital-0", "left", "aggregator")
    home = tmp_path / "fresh"
    shutil.copytree(play.members.folder / "hospital-1", home)
    shutil.rmtree(home / "rosters")
    stranger = Identity.generate("hospital-9", Role.ENTITY).member
    play.members.mailbox.put_roster(
        replace(terms, members=(*terms.members, stranger), people=(*terms.people, 9), roster=2)
    )
    serving = play.serving("hospital-1")
    serving.home = Home(home)
    serving._accept()
    assert play.asked == []
    assert [text for text in play.told if "other terms or members than the invite" in text] != []
    assert not Home(home).joined()


def test_a_member_that_died_after_it_accepted_a_roster_says_so_later(play):
    members = play.members.consortium.members
    after = play.amended(members=(members[1], members[0], *members[2:]))
    play.serving("hospital-0")._accept()  # and no more
    assert "hospital-0" not in play.members.mailbox.accepted(after)
    play.step("hospital-0")
    assert "hospital-0" in play.members.mailbox.accepted(after)


def test_hospitals_cast_only_once_all_three_parties_have_accepted(play):
    for path in (play.members.mailbox.folder / "accepted").rglob("middle.signature"):
        path.unlink()
    play.aggregator.ask_sum("first", play.members.mailbox)
    assert play.step("hospital-0") == [False]
    assert play.spent("hospital-0") == 0


@pytest.mark.parametrize("people", [dict.fromkeys(HOSPITALS, 1), dict.fromkeys(HOSPITALS[:2], PEOPLE)])
def test_numbers_of_people_that_were_not_agreed_on_are_refused_by_all(people, play):
    sums, identity = play.members.consortium.sums(), play.members.home("aggregator").identity
    row = replace(sums.begun("first").opened, people=people).to_row()
    batch = Batch.make(identity, play.members.consortium, row)
    play.members.mailbox.put_batch(batch, play.members.consortium)
    play.step("hospital-0")
    assert "of no roster that hospital-0 has accepted" in play.told[-1]
    assert play.spent("hospital-0") == 0
    with pytest.raises(StaleBatchError, match="of no roster that left has accepted"):
        ComputingParty(play.members.home("left")).compute(batch, play.members.mailbox)


def test_shares_go_to_one_new_computing_party_and_not_to_two(play):
    play.aggregator.ask_sum("first", play.members.mailbox)
    play.step("hospital-0")
    spent = play.spent("hospital-0")
    for renewed in ("middle", "right"):
        made = play.renewed(renewed).member
        members = play.members.home("hospital-1").consortium().members
        after = play.amended(members=tuple(made if one.name == renewed else one for one in members))
        play.accept(*HOSPITALS, *PARTIES, "aggregator")
        play.step("hospital-0")
        sealed = list((play.members.mailbox.folder / "shares").rglob("hospital-0.*"))
        assert len(sealed) == 4, after.roster
    assert "two or more have other keys now" in play.told[-1]
    assert play.spent("hospital-0") == spent


def cast(play: Play) -> None:
    play.step("hospital-0")


def ask(play: Play) -> None:
    play.aggregator.ask_sum("first", play.members.mailbox)


def collect(play: Play) -> None:
    terms = play.members.consortium
    (identifier,) = play.members.mailbox.batch_identifiers(terms)
    play.aggregator.collect_sum(play.members.mailbox.batch(identifier, terms), play.members.mailbox)


STEPS: dict[str, tuple[Callable[[Play], None], str]] = {
    "ask": (ask, "aggregator"), "cast": (cast, "hospital-0"), "collect": (collect, "aggregator"),
}  # fmt: skip


def done(play: Play, step: Callable[[Play], None], event: int = 0) -> int:
    """Let a member do a step in a child, which is killed at an event if one is given; return its exit code."""
    child = os.fork()
    if child == 0:
        code = 70
        try:
            noise = SimulationNoise(0)  # the same in each child
            for name in (name for name in vars(SimulationNoise) if not name.startswith("_") and name != "simulated"):
                draw = getattr(noise, name)
                setattr(SystemNoise, name, lambda _, *given, draw=draw: draw(*given))
            if event:
                die_at_event(event, play.members.folder)
            step(play)
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def outcome(play: Play, name: str, batch: Any) -> dict[str, Any]:
    """Return what a step led to: of the budget, of the sum, and the names of all files, without random digits."""
    ledger = play.members.ledger(name)
    kinds = [entry["kind"] for entry in ledger.export()]
    found: dict[str, Any] = {"spent": ledger.verify().spent, "kinds": kinds}
    files = (str(path.relative_to(play.members.folder)) for path in play.members.folder.rglob("*"))
    found["files"] = sorted(re.sub("[0-9a-f]{32}", "0", path) for path in files)
    if batch is None:
        return found
    sums = play.members.consortium.sums()
    if name == "hospital-0":
        shares = [payload[HEAD_BYTES:] for payload in play.members.payloads(batch, name)]
        found["sum"] = added(shares, sums.round_of(batch).shape).tolist()
    else:
        found["sum"] = ledger.recall(sums.hashes(ledger, batch))
    return found


def swept(step: str, every: int, folder: Path) -> None:
    """Kill a member at one event of a file after the other, and let it begin again: the end is always the same."""
    do, name = STEPS[step]
    fresh = Play(folder / "fresh")
    batch: Any = None if step == "ask" else fresh.aggregator.ask_sum("first", fresh.members.mailbox)
    if step == "collect":
        fresh.step(*HOSPITALS)
        all_ended(fresh.members, batch)
    whole = fresh.elsewhere(Path(shutil.copytree(folder / "fresh", folder / "whole")))
    assert done(whole, do) == 0
    expected, before = outcome(whole, name, batch), fresh.members.ledger(name).state().spent
    found, event = Counter[str](), 1 + int(np.random.default_rng().integers(every))
    while True:
        attempt = fresh.elsewhere(Path(shutil.copytree(folder / "fresh", folder / "attempt")))
        if done(attempt, do, event) != -9:
            break
        paid = attempt.members.ledger(name).state().spent
        assert paid in (before, expected["spent"]), event
        votes = {path: path.read_bytes() for path in (folder / "attempt" / name / "votes").glob("[0-9a-f]*/*")}
        found["paid" if paid > before else "not paid"] += 1
        assert done(attempt, do) == 0, event
        assert outcome(attempt, name, batch) == expected, event
        assert all(path.read_bytes() == content for path, content in votes.items()), event
        shutil.rmtree(folder / "attempt")
        event += every
    sys.stdout.write(f"{step}: {found.total()} kills, {dict(found)}\n")


@pytest.mark.parametrize(("steps", "every"), [
    (["ask", "cast"], 41),
    pytest.param([*STEPS], 1, marks=[pytest.mark.rest, pytest.mark.timeout(1200)]),
])  # fmt: skip
def test_a_member_killed_at_an_event_pays_once_and_leaves_nothing(steps, every, tmp_path):
    call = "[swept(step, int(given[0]), Path(given[1]) / step) for step in given[2:]]"
    said = called_by_itself("test_serving", call, every, tmp_path, *steps)
    assert said.count("kills") == len(steps)
    sys.stdout.write(said)


@pytest.mark.parametrize(("before", "step"), [((aggregator, "require_room"), ask), ((SharedSums, "happened"), collect)])
def test_of_two_processes_of_a_coordinator_the_second_waits_and_finds_the_same(before, step, play, monkeypatch):
    if step is collect:
        batch = play.aggregator.ask_sum("first", play.members.mailbox)
        play.step(*HOSPITALS)
        all_ended(play.members, batch)
    ended, waits = os.pipe()
    children = list[int]()
    place, name = before
    real, is_free = getattr(place, name), turns._is_free

    def tells(descriptor: int) -> bool:
        free = is_free(descriptor)
        if not free:
            os.write(waits, b"w")
        return free

    def between(*given: Any) -> Any:
        """Let another process begin the same, until it waits or is through."""
        if not children:
            children.append(os.fork())
            if children[0] == 0:
                code = 70
                try:
                    turns._is_free = tells
                    step(play.elsewhere(play.members.folder))
                    code = 0
                finally:
                    os._exit(code)
            os.close(waits)
            os.read(ended, 1)
        return real(*given)

    monkeypatch.setattr(place, name, between)
    step(play)
    os.close(ended)
    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 0
    kinds = [entry["kind"] for entry in play.members.ledger("aggregator").export()]
    assert kinds.count("reserved") == 1
    assert kinds.count("answered") == (step is collect)
    assert len(play.members.mailbox.batch_identifiers(play.members.consortium)) == 1


@pytest.fixture
def play(tmp_path):
    return Play(tmp_path)


def test_a_release_follows_from_steps_and_its_student_is_right(play):
    while (found := play.sum("first")) is not None:
        assert found.entities == tuple(HOSPITALS)
    X, y, _ = rows_of(9)
    student = play.aggregator.released("first").classifier
    assert np.mean(student.predict(X) == np.array(["young", "old"])[y]) > 0.85
    assert play.step(*HOSPITALS) == [False] * 4  # nothing is left to do
    assert play.asked[0].startswith("aggregator asks for release 'first', which takes up to ε = ")


def test_the_ledger_of_a_hospital_that_cast_knows_its_people(play):
    ledger, people = play.members.ledger("hospital-0"), [*map(str, range(PEOPLE))]
    assert ledger.knows(people) is None
    play.aggregator.ask_sum("first", play.members.mailbox)
    play.step("hospital-0")
    assert ledger.knows([*people, "stranger"]).tolist() == [True] * PEOPLE + [False]


def test_an_operator_is_asked_once_a_process_and_never_for_what_is_paid(play):
    play.aggregator.ask_sum("first", play.members.mailbox)
    serving = play.serving("hospital-0")
    play.answer = False
    assert not serving.step()
    assert not serving.step()
    assert len(play.asked) == 1
    assert play.spent("hospital-0") == 0
    play.answer = True
    assert play.serving("hospital-0").step()
    assert len(play.asked) == 2
    sealed = list((play.members.mailbox.folder / "shares").rglob("hospital-0.*"))
    for path in sealed:
        path.unlink()
    spent = play.spent("hospital-0")
    assert play.serving("hospital-0").step()  # what was lost is sent again
    assert len(play.asked) == 2
    assert play.spent("hospital-0") == spent


def test_a_hospital_does_not_answer_from_the_ledger_of_another_member(play):
    play.aggregator.ask_sum("first", play.members.mailbox)
    serving = play.serving("hospital-0")
    serving.ledger = play.members.ledger("hospital-1")
    assert not serving.step()
    assert "is the ledger of hospital-1, not of hospital-0. Nothing was spent. Name the ledger of" in play.told[-1]
    assert (play.asked, play.spent("hospital-1")) == ([], 0)


def test_an_approval_is_for_one_batch_of_each_sum(play):
    serving = play.serving("hospital-0")
    play.aggregator.ask_sum("first", play.members.mailbox)
    assert serving.step()
    play.answer = False
    play.aggregator.ask_sum("first", play.members.mailbox, new_batch=True)
    spent = play.spent("hospital-0")
    assert not serving.step()
    assert len(play.asked) == 2
    assert play.spent("hospital-0") == spent


@pytest.mark.parametrize("renewed", ["hospital-0", "middle", "aggregator"])
@pytest.mark.parametrize("when", ["asked", "cast"])
def test_lost_keys_lose_no_sum_and_cost_nothing(renewed, when, play):
    play.sum("first")
    batch: Any = play.aggregator.ask_sum("first", play.members.mailbox)
    if when == "cast":
        play.step(*HOSPITALS)
    spent = [play.spent(name) for name in (*HOSPITALS, "aggregator")]
    made = play.renewed(renewed)
    with pytest.raises(FederationError, match="not those that"):
        Home(play.members.folder / renewed).consortium_as(made.member.role)
    play.members.mailbox.put_member(made.member)
    assert made.member in play.members.mailbox.members()
    members = [made.member if one.name == renewed else one for one in play.members.consortium.members]
    after = play.amended(members=tuple(members))
    play.accept(*HOSPITALS, *PARTIES, "aggregator")
    assert any(f"{renewed} has new keys" in question for question in play.asked)
    assert set(play.members.mailbox.accepted(after)) == {one.name for one in after.members}
    play.members = replace(play.members, consortium=after)
    play.aggregator = Aggregator(play.members.home("aggregator"), play.members.ledger("aggregator"))
    again: Any = play.aggregator.ask_sum("first", play.members.mailbox)
    assert again.identifier == batch.identifier
    play.step(*HOSPITALS)
    if when == "cast":
        assert [play.spent(name) for name in (*HOSPITALS, "aggregator")] == spent
    all_ended(play.members, again)
    assert play.aggregator.collect_sum(again, play.members.mailbox).entities == tuple(HOSPITALS)
    while play.sum("first") is not None:
        pass
    for name in (*HOSPITALS, "aggregator"):
        kinds = [entry["kind"] for entry in play.members.ledger(name).export()]
        assert kinds.count("reserved") == 3


def test_new_keys_begin_nothing_again_that_was_collected(play):
    for _ in range(3):  # and the last one is not asked about again
        play.sum("first")
    made = play.renewed("left")
    members = [made.member if one.name == "left" else one for one in play.members.consortium.members]
    play.amended(members=tuple(members))
    play.accept(*HOSPITALS, *PARTIES, "aggregator")
    terms = play.members.home("aggregator").consortium()
    found, _ = consortium_status(terms, play.members.mailbox)
    assert [one.complete for one in found] == [True] * 3
    assert play.step(*HOSPITALS, *PARTIES) == [False] * 7
    for path in play.members.mailbox.folder.rglob("*.collected"):  # not said by the coordinator
        path.write_bytes(bytes(64))
    assert [one.complete for one in consortium_status(terms, play.members.mailbox)[0]] == [False] * 3


def test_a_member_leaves_and_another_comes_while_a_release_goes_on(play, tmp_path):
    play.sum("first")
    new = Identity.generate("hospital-9", Role.ENTITY)
    home = tmp_path / "hospital-9"
    home.mkdir()
    new.save(home)
    before = play.members.consortium
    stay = [one for one in before.members if one.name != "hospital-3"]
    after = play.amended(members=(new.member, *stay), people=(800, 400, 400, 400))
    assert changes_of(before, after) == ["hospital-3 leaves", "hospital-9 is new"]
    play.accept(*HOSPITALS, *PARTIES, "aggregator")
    assert play.told[-1].startswith("Accepted roster 1")
    assert any("does not name hospital-3 with the keys" in text for text in play.told)
    play.members = replace(play.members, consortium=after)
    play.aggregator = play.members.aggregator()
    with pytest.raises(StaleBatchError, match="was begun before hospital-9 was a member"):
        play.entity("hospital-9").cast(
            play.aggregator.ask_sum("first", play.members.mailbox), *rows_of(9)[:2], play.members.mailbox,
            entity_ids=rows_of(9)[2],
        )  # fmt: skip
    second = play.sum("first", HOSPITALS[:3])
    assert second.entities == tuple(HOSPITALS[:3])
    assert second.round.opened.people == dict.fromkeys(HOSPITALS, PEOPLE)  # of the release that goes on
    assert play.aggregator.ask_sum("next", play.members.mailbox) is not None


def test_a_roster_that_is_declined_or_older_changes_nothing(play):
    members = play.members.consortium.members
    play.answer = False
    after = play.amended(members=(members[1], members[0], *members[2:]))
    serving = play.serving("hospital-0")
    assert not serving.step()
    assert not serving.step()
    assert len(play.asked) == 1
    assert play.members.home("hospital-0").consortium().roster_hash == play.members.consortium.roster_hash
    play.answer = True
    play.step("hospital-0")
    home = play.members.home("hospital-0")
    assert home.consortium().roster_hash == after.roster_hash
    with pytest.raises(FederationError, match="must be above 1"):
        home.join(play.members.consortium, play.members.consortium.words)


def test_parties_with_different_rosters_open_nothing(play):
    play.aggregator.ask_sum("first", play.members.mailbox)
    play.step(*HOSPITALS)
    members = play.members.consortium.members
    play.amended(members=(members[1], members[0], *members[2:]))
    play.accept("left", "middle")
    terms = play.members.consortium
    (batch,) = (play.members.mailbox.batch(one, terms) for one in play.members.mailbox.batch_identifiers(terms))
    outcomes = compute(play.members, batch)
    assert all(isinstance(one, FederationError) for one in outcomes), outcomes
    assert any("not at the same batch and roster" in str(one) for one in outcomes)


def test_a_rehearsal_spends_nothing_and_reads_no_private_row(play):
    play.answer = False
    name = f"{REHEARSAL}-1"
    for hospital in HOSPITALS:
        serving = play.serving(hospital)
        serving.rows = None
        play.aggregator.ask_sum(name, play.members.mailbox)
        assert serving.step()
    assert play.asked == []
    assert [play.spent(hospital) for hospital in HOSPITALS] == [0.0] * 4


def test_made_up_rows_fit_the_terms(play):
    rows, y, ids = made_up(play.members.consortium)
    columns = play.members.consortium.sums().schema.table(rows).columns
    ages = np.asarray(columns["age"], dtype=float)
    assert sorted(columns) == ["age", "ward"]
    assert 20 <= ages.min() <= ages.max() <= 95
    assert set(columns["ward"]) == {"surgery", "medicine"}
    assert set(y) == {0, 1}
    assert len(set(ids)) == len(ids)


def test_the_question_says_who_comes_and_the_words(play):
    terms = play.members.consortium
    assert question_of(None, terms).startswith("4 hospitals join 'Hospitals': hospital-0, hospital-1,")
    assert terms.words in question_of(None, terms)


def cheats(shape: tuple[int, int], most: float) -> dict[str, np.ndarray]:
    """Return what a hospital could send in place of its sum, whose length is at most `most`."""
    random = np.random.default_rng(0)
    places, one, drawn = np.indices(shape).sum(axis=0), np.zeros(shape), random.normal(size=shape)
    one.flat[0] = 12 * most
    found = {
        "counts, eight times": np.ones(shape), "counts, minus eight times": -np.ones(shape),
        "checkered": (-1.0) ** places,
        "drawn": drawn, "one class": np.eye(shape[0])[0][:, np.newaxis] * np.ones(shape), "rising": places + 1.0,
    }  # fmt: skip
    found = {name: 8 * most * lie / np.sqrt((lie**2).sum()) for name, lie in found.items()}
    found |= {"one cell": one, "minus one cell": -one, "all of them": 12 * most * np.ones(shape)}
    return {name: lie.astype(np.int64) for name, lie in found.items()} | {"half the field": np.full(shape, 2**61)}


@pytest.mark.rest
@pytest.mark.parametrize("cheat", list(cheats((2, 3), 1.0)))
def test_a_sum_that_people_cannot_cast_is_left_out(cheat, play):
    """One of eight times the longest sum passes with a chance below 1e-6, and one of one number with 2⁻⁴⁰."""
    batch = play.aggregator.ask_sum("first", play.members.mailbox)
    play.step(*HOSPITALS[:3])
    asked = play.members.consortium.sums().round_of(batch)
    lie = cheats(asked.shape, PEOPLE * np.sqrt(asked.request.form.norm_squared))[cheat]
    for party, share in zip(PARTIES, split(lie, summed=True), strict=True):
        sealed = play.members.sealed(batch, Kind.SHARES, "hospital-3", party, bytes(HEAD_BYTES) + share)
        play.members.put_answer(batch, "hospital-3", party, sealed)
    outcomes = all_ended(play.members, batch)
    assert {one.left_out.get("hospital-3", "")[:17] for one in outcomes} == {"what it sent is l"}
    assert play.aggregator.collect_sum(batch, play.members.mailbox).entities == tuple(HOSPITALS[:3])
