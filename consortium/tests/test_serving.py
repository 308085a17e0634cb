"""Members at work on their own: steps that follow from the files, amendments of the roster, and cheats."""

import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consortia import PARTIES, Members, all_ended, found
from ledgers import knows, new_ledger
from processes import called_by_itself, die_at_event, ended, forked
from tutelage.events import TIER_STEPS
from tutelage.exceptions import FederationError, ForgedMessageError, StaleBatchError
from tutelage.features import Schema
from tutelage.ledger import turns
from tutelage.mechanisms import NoisySum
from tutelage.noise import SimulationNoise, SystemNoise
from tutelage_consortium import (
    Batch,
    ComputingParty,
    Consortium,
    Entity,
    Home,
    Identity,
    Role,
    aggregator,
)
from tutelage_consortium.computing_party import _agreed_pins, _read_statement, _statement_of
from tutelage_consortium.mailbox import consortium_status
from tutelage_consortium.messages import Kind
from tutelage_consortium.serving import Serving, _question_of
from tutelage_consortium.sharing import HEAD_BYTES, open_sum, split
from tutelage_consortium.sums import REHEARSAL, SharedSums

SCHEMA = Schema({"ward": ["surgery", "medicine"], "age": (20, 95)})
HOSPITALS = [f"hospital-{number}" for number in range(4)]
PEOPLE = 400


def rows_of(number: int) -> Any:
    random = np.random.default_rng(number)
    age, ward = random.integers(20, 96, PEOPLE), random.choice(["surgery", "medicine"], PEOPLE)
    old = age + 20 * (ward == "surgery") + random.normal(0, 8, PEOPLE) > 65
    return {"age": age, "ward": ward}, old.astype(int), np.arange(PEOPLE).astype(str)


class Play:
    """Members who serve; the operators' questions and what they are told are kept."""

    def __init__(self, members: Members) -> None:
        self.members, self.aggregator = members, members.aggregator()
        self.asked, self.told, self.answer = list[str](), list[str](), True

    def copied(self, folder: Path) -> "Play":
        """Return the same members in a copy of their folder, as new processes find them."""
        return Play(self.members.copied(folder))

    def serving(self, name: str) -> Serving:
        def approves(question: str, *_words: str) -> bool:
            self.asked.append(question)
            return self.answer

        home, own = self.members.home(name), dict[str, Any]()
        if home.identity.member.role is Role.ENTITY:
            own = {"ledger": self.members.ledger(name), "rows": lambda _: rows_of(int(name[-1]))}
        return Serving(
            home=home,
            mailbox=self.members.mailbox,
            invited=self.members.consortium,
            accepts=approves,
            approves=approves,
            says=self.told.append,
            **own,
        )

    def step(self, *names: str) -> list[bool]:
        return [self.serving(name).step() for name in names]

    def accept(self, *names: str) -> None:
        """Let members see a roster, and do nothing else: a computing party would wait for the two others."""
        for name in names:
            serving = self.serving(name)
            if serving._accept():
                self.members.mailbox.put_acceptance(
                    serving.home.identity, serving.home.consortium()
                )

    def ask(self, release: str = "first", **options: Any) -> Any:
        return self.aggregator.ask_sum(release, self.members.mailbox, **options)

    def cast_and_add(self, batch: Any, names: Any = HOSPITALS) -> None:
        self.step(*names)
        all_ended(self.members, batch)

    def collect(self, batch: Any) -> Any:
        return self.aggregator.collect_sum(batch, self.members.mailbox)

    def spent(self, name: str) -> float:
        return self.members.ledger(name).state().spent

    def amended(self, **changes: Any) -> Consortium:
        """Propose a roster with these changes; without any, with the members in another order."""
        before = self.members.home(HOSPITALS[1]).consortium()
        first, second, *rest = before.members
        after = replace(
            before, **{"roster": before.roster + 1, "members": (second, first, *rest)} | changes
        )
        self.members.mailbox.put_roster(after)
        return after

    def renewed(self, name: str) -> Consortium:
        """Give a member new keys, as after a loss, and propose a roster with these."""
        home = self.members.folder / name
        lost = Home(home).identity.member
        Home.retire_keys(home)
        made = Identity.generate(name, lost.role, lost.address)
        made.save(home)
        self.members.mailbox.put_member(made.member)
        members = self.members.home(HOSPITALS[1]).consortium().members
        return self.amended(
            members=tuple(made.member if one.name == name else one for one in members)
        )


def begun(folder: Path, entities: int = 4) -> Play:
    """Return a consortium whose computing parties have accepted its roster."""
    terms = {
        "schema": SCHEMA,
        "people": (PEOPLE,) * entities,
        "classes": ("young", "old"),
        "teachers_per_entity": 1,
    }
    members = found(folder, NoisySum(2.0), entities=entities, **terms)
    for name in PARTIES:
        members.mailbox.put_acceptance(members.home(name).identity, members.consortium)
    return Play(members)


@pytest.fixture(scope="module")
def founded(tmp_path_factory):
    return begun(tmp_path_factory.mktemp("founded"))


@pytest.fixture
def play(founded, tmp_path):
    return founded.copied(tmp_path)


@pytest.fixture(scope="module")
def computed(founded, tmp_path_factory):
    """The first sum of a release, computed and not collected; and its batch."""
    play = founded.copied(tmp_path_factory.mktemp("computed"))
    batch = play.ask()
    play.cast_and_add(batch)
    return play, batch


@pytest.fixture
def after_one(computed, tmp_path):
    """A play after the first sum of a release."""
    play = computed[0].copied(tmp_path)
    play.collect(computed[1])
    return play


def test_the_question_says_who_comes_and_the_words(play):
    terms = play.members.consortium
    assert _question_of(None, terms).startswith(
        "4 hospitals join 'Hospitals': hospital-0, hospital-1,"
    )
    assert terms.words in _question_of(None, terms)


def test_a_roster_with_other_terms_or_with_strangers_is_refused_whatever_its_words(play):
    terms = play.members.consortium
    play.members.mailbox.put_roster(replace(terms, colluding=0, roster=1))
    play.accept("hospital-0", "left", "aggregator")
    stranger = Identity.generate("hospital-9", Role.ENTITY).member
    more = {"members": (*terms.members, stranger), "people": (*terms.people, 9), "roster": 2}
    play.members.mailbox.put_roster(replace(terms, **more))
    home = play.members.folder / "hospital-1"
    shutil.rmtree(home / "rosters")  # as before it joined
    play.serving("hospital-1")._accept()
    assert play.asked == []
    assert any("other terms or members than the invite" in text for text in play.told)
    assert not Home(home).latest_roster()


def test_hospitals_cast_only_once_all_three_parties_have_accepted(play):
    for path in (play.members.mailbox.folder / "accepted").rglob("middle.signature"):
        path.unlink()
    play.ask()
    assert play.step("hospital-0") == [False]
    assert play.spent("hospital-0") == 0


def test_numbers_of_people_that_were_not_agreed_on_are_refused_by_all(play):
    terms, identity = play.members.consortium, play.members.home("aggregator").identity
    first = terms.sums().first_round("first").opened
    for people in (dict.fromkeys(HOSPITALS, 1), dict.fromkeys(HOSPITALS[:2], PEOPLE)):
        batch = Batch.make(identity, terms, replace(first, people=people).to_row())
        play.members.mailbox.put_batch(batch, terms)
        play.step("hospital-0")
        assert "than any roster that hospital-0 has accepted" in play.told[-1]
        with pytest.raises(StaleBatchError, match="than any roster that left has accepted"):
            ComputingParty(play.members.home("left")).compute(batch, play.members.mailbox)
    assert play.spent("hospital-0") == 0


def test_shares_go_to_one_new_computing_party_and_not_to_two(play):
    play.ask()
    play.step("hospital-0")
    spent = play.spent("hospital-0")
    for renewed in ("middle", "right"):
        play.renewed(renewed)
        play.accept("hospital-0", "hospital-1", *PARTIES)
        play.step("hospital-0")
        sealed = list((play.members.mailbox.folder / "shares").rglob("hospital-0.*"))
        assert len(sealed) == 4, renewed
    assert "two or more have other keys now" in play.told[-1]
    assert play.spent("hospital-0") == spent


def collect(play: Play) -> None:
    terms = play.members.consortium
    (identifier,) = play.members.mailbox.batch_identifiers(terms)
    play.collect(play.members.mailbox.batch(identifier, terms))


STEPS: dict[str, tuple[Callable[[Play], Any], str]] = {
    "ask": (Play.ask, "aggregator"),
    "cast": (lambda play: play.step("hospital-0"), "hospital-0"),
    "collect": (collect, "aggregator"),
}


def done(play: Play, step: Callable[[Play], Any], event: int = 0) -> int:
    """Let a member do a step in a child, which is killed at an event if one is given; return its exit code."""

    def work() -> None:
        noise = SimulationNoise(0)  # the same in each child
        for name in (
            name
            for name in vars(SimulationNoise)
            if not name.startswith("_") and name != "simulated"
        ):
            draw = getattr(noise, name)
            setattr(SystemNoise, name, lambda _, *given, draw=draw: draw(*given))
        if event:
            die_at_event(event, play.members.folder)
        step(play)

    return ended(forked(work))


def outcome(play: Play, name: str, batch: Any) -> list[Any]:
    """Return what a step led to: of the budget, of the names of files, without random digits, and of the sum."""
    ledger, sums = play.members.ledger(name), play.members.consortium.sums()
    files = (str(path.relative_to(play.members.folder)) for path in play.members.folder.rglob("*"))
    found = [ledger.verify().spent, [entry["kind"] for entry in ledger.export()]]
    found.append(sorted(re.sub("[0-9a-f]{32}", "0", path) for path in files))
    if name == "hospital-0":
        shares = [payload[HEAD_BYTES:] for payload in play.members.payloads(batch, name)]
        found.append(open_sum(shares, sums.round_of(batch).shape).tolist())
    elif batch is not None:
        found.append(ledger.account.recall(play.members.consortium.scheme.hashes(ledger, batch)))
    return found


def all_swept(steps: Iterable[str], every: int, folder: Path) -> None:
    founded = begun(folder / "founded")
    for step in steps:
        swept(step, every, folder / step, founded)


def swept(step: str, every: int, folder: Path, founded: Play) -> None:
    """Kill a member at one event of a file after the other, and let it begin again: the end is always the same."""
    do, name = STEPS[step]
    fresh = founded.copied(folder / "fresh")
    batch: Any = None if step == "ask" else fresh.ask()
    if step == "collect":
        fresh.cast_and_add(batch)
    whole = fresh.copied(folder / "whole")
    assert done(whole, do) == 0
    expected, before = outcome(whole, name, batch), fresh.spent(name)
    found, event = Counter[str](), 1 + int(np.random.default_rng().integers(every))
    while True:
        attempt = fresh.copied(folder / "attempt")
        if done(attempt, do, event) != -9:
            break
        paid = attempt.spent(name)
        assert paid in (before, expected[0]), event
        votes = {
            path: path.read_bytes()
            for path in (folder / "attempt" / name / "votes").glob("[0-9a-f]*/*")
        }
        assert paid > before or not votes, event  # nothing is made that is not paid for
        found["paid" if paid > before else "not paid"] += 1
        assert done(attempt, do) == 0, event
        assert outcome(attempt, name, batch) == expected, event
        assert all(path.read_bytes() == content for path, content in votes.items()), event
        shutil.rmtree(folder / "attempt")
        event += every
    sys.stdout.write(f"{step}: {found.total()} kills, {dict(found)}\n")


@pytest.mark.rest
@pytest.mark.timeout(1200)
def test_a_member_killed_at_an_event_pays_once_and_leaves_nothing(tmp_path):
    """Every run begins at another event, so that a few runs see all. Some are in the quick tier: test_kills.py."""
    said = called_by_itself("test_serving", "all_swept(STEPS, 5, Path(given[0]))", tmp_path)
    assert said.count("kills") == len(STEPS)
    sys.stdout.write(said)


@pytest.mark.parametrize(
    ("before", "step"),
    [((aggregator, "require_unused_path"), Play.ask), ((SharedSums, "event_of_outcome"), collect)],
)
def test_of_two_processes_of_a_coordinator_the_second_waits_and_finds_the_same(
    before, step, founded, computed, tmp_path, monkeypatch
):
    play = (computed[0] if step is collect else founded).copied(tmp_path)
    over, waits = os.pipe()
    children = list[int]()
    place, name = before
    real, is_free = getattr(place, name), turns._is_free

    def tells(descriptor: int) -> bool:
        free = is_free(descriptor)
        if not free:
            os.write(waits, b"w")
        return free

    def second() -> None:
        turns._is_free = tells
        step(Play(replace(play.members)))

    def between(*given: Any) -> Any:
        """Let another process begin the same, until it waits or is through."""
        if not children:
            children.append(forked(second))
            os.close(waits)
            os.read(over, 1)
        return real(*given)

    monkeypatch.setattr(place, name, between)
    step(play)
    os.close(over)
    assert ended(children[0]) == 0
    kinds = [entry["kind"] for entry in play.members.ledger("aggregator").export()]
    assert kinds.count("reserved") == 1
    assert kinds.count("answered") == (step is collect)
    assert len(play.members.mailbox.batch_identifiers(play.members.consortium)) == 1


def test_the_ledger_of_a_hospital_that_cast_knows_its_people(play):
    ledger, people = play.members.ledger("hospital-0"), [*map(str, range(PEOPLE))]
    assert knows(ledger, people) is None
    play.ask()
    play.step("hospital-0")
    assert knows(ledger, [*people, "stranger"]).tolist() == [True] * PEOPLE + [False]


def test_an_operator_is_asked_once_a_process_and_never_for_what_is_paid(play):
    play.ask()
    serving = play.serving("hospital-0")
    play.answer = False
    assert [serving.step() for _ in range(2)] == [False] * 2
    assert (len(play.asked), play.spent("hospital-0")) == (1, 0)
    play.answer, serving = True, play.serving("hospital-0")
    assert serving.step()
    spent = play.spent("hospital-0")
    for path in (play.members.mailbox.folder / "shares").rglob("hospital-0.*"):
        path.unlink()
    assert play.step("hospital-0") == [True]  # what was lost is sent again
    assert (len(play.asked), play.spent("hospital-0")) == (2, spent)
    play.answer = False
    play.ask(new_batch=True)
    assert not serving.step()  # an approval is for one batch of each sum
    assert (len(play.asked), play.spent("hospital-0")) == (3, spent)


def test_a_damaged_copy_of_a_batch_is_not_signed_again_by_the_coordinator(play):
    play.ask()
    # Or the mailbox would refuse another batch of its name.
    shutil.rmtree(play.members.mailbox.folder / "batches")
    (kept,) = (play.members.folder / "aggregator" / "asked").rglob("batch")
    content = kept.read_bytes()
    kept.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ForgedMessageError, match="damaged"):
        play.ask()


def test_lost_keys_lose_no_sum_and_cost_nothing(after_one):
    """A hospital that has cast, a party that has shares, and the coordinator get new keys; one hospital casts later."""
    play, batch = after_one, after_one.ask()
    paid = [*HOSPITALS[:3], "aggregator"]
    play.step(*HOSPITALS[:3])
    spent = [play.spent(name) for name in paid]
    for renewed in ("hospital-0", "middle", "aggregator"):
        after = play.renewed(renewed)
        with pytest.raises(FederationError, match="not those that"):
            play.members.home(renewed).consortium_as(play.members.member(renewed).role)
        play.accept(*HOSPITALS, *PARTIES, "aggregator")
        assert any(f"{renewed} has new keys" in question for question in play.asked)
        assert set(play.members.mailbox.names_of_accepting(after)) == {
            one.name for one in after.members
        }
        play = Play(replace(play.members, consortium=after))
    again = play.ask()
    assert again.identifier == batch.identifier
    play.step(*HOSPITALS)
    assert [play.spent(name) for name in paid] == spent
    all_ended(play.members, again)
    assert play.collect(again).entities == tuple(HOSPITALS)
    for name in (*HOSPITALS, "aggregator"):
        kinds = [entry["kind"] for entry in play.members.ledger(name).export()]
        assert kinds.count("reserved") == 2


def test_new_keys_begin_nothing_again_that_was_collected(after_one):
    play = after_one
    play.renewed("left")
    play.accept(*HOSPITALS, *PARTIES, "aggregator")
    terms = play.members.home("aggregator").consortium()
    assert [one.complete for one in consortium_status(terms, play.members.mailbox)[0]] == [True]
    assert play.step(*HOSPITALS, *PARTIES) == [False] * 7
    for path in play.members.mailbox.folder.rglob("*.collected"):  # not said by the coordinator
        path.write_bytes(bytes(64))
    assert [one.complete for one in consortium_status(terms, play.members.mailbox)[0]] == [False]


def test_a_member_leaves_and_another_comes_while_a_release_goes_on(after_one):
    play, new = after_one, Identity.generate("hospital-9", Role.ENTITY)
    new.save(play.members.folder / "hospital-9")
    before = play.members.consortium
    stay = [one for one in before.members if one.name != "hospital-3"]
    after = play.amended(members=(new.member, *stay), people=(800, 400, 400, 400))
    play.accept(*HOSPITALS, *PARTIES, "aggregator")
    assert any("hospital-3 leaves; hospital-9 is new" in question for question in play.asked)
    assert any("does not name hospital-3 with the keys" in text for text in play.told)
    play = Play(replace(play.members, consortium=after))
    batch, (X, y, ids) = play.ask(), rows_of(9)
    home, ledger = play.members.home("hospital-9"), new_ledger(epsilon=20.0, unit=after.unit)
    home.join(after, after.words)
    with pytest.raises(StaleBatchError, match="was begun before hospital-9 was a member"):
        Entity(home, ledger).cast(batch, X, y, play.members.mailbox, entity_ids=ids)
    play.cast_and_add(batch, HOSPITALS[:3])
    second = play.collect(batch)
    assert second.entities == tuple(HOSPITALS[:3])
    # Of the release that goes on.
    assert second.round.opened.people == dict.fromkeys(HOSPITALS, PEOPLE)


def shortened(play: Play, steps: int) -> Play:
    """Let all members accept a roster in which the ballots of one hospital are of so many steps."""
    before = play.members.home(HOSPITALS[1]).consortium()
    of_each = tuple(steps if name == "hospital-1" else TIER_STEPS for name in HOSPITALS)
    after = play.amended(members=before.members, steps=of_each)
    play.accept(*HOSPITALS, *PARTIES, "aggregator")
    return Play(replace(play.members, consortium=after))


def test_shorter_ballots_bind_a_hospital_at_once(after_one):
    asked = after_one.asked
    play = shortened(after_one, TIER_STEPS // 2)
    assert any("people of hospital-1 count 0.500" in question for question in asked)
    paid = play.spent("hospital-1")
    play.cast_and_add(play.ask())
    assert any("longer ballots of hospital-1 than the roster" in text for text in play.told)
    assert play.spent("hospital-1") == paid
    second = play.collect(play.ask())
    assert second.entities == ("hospital-0", "hospital-2", "hospital-3")
    assert second.round.opened.steps == {}  # of the release that goes on
    play.told.clear()
    first = play.ask("second")
    play.cast_and_add(first)
    assert not any("longer ballots" in text for text in play.told)
    assert play.collect(first).entities == tuple(HOSPITALS)
    assert play.spent("hospital-1") - paid == pytest.approx(paid / 4, rel=0.01)


def test_an_approval_is_for_ballots_of_one_length(play):
    play = shortened(play, TIER_STEPS // 4)
    serving = play.serving("hospital-1")
    play.ask()
    assert serving.step()
    assert [question.startswith("aggregator asks for") for question in play.asked] == [True]
    longer = shortened(play, TIER_STEPS)
    serving._accept()
    sums = longer.members.consortium.sums()
    begun = sums.first_round("first")
    row = sums.round_after(begun, np.zeros(begun.shape, np.int64), HOSPITALS).opened.to_row()
    identity = longer.members.home("aggregator").identity
    longer.members.mailbox.put_batch(
        Batch.make(identity, longer.members.consortium, row), longer.members.consortium
    )
    play.asked.clear()
    play.answer = False
    spent = play.spent("hospital-1")
    serving.step()
    assert any(question.startswith("aggregator asks for") for question in play.asked)
    assert play.spent("hospital-1") == spent


def test_a_roster_that_is_declined_or_older_changes_nothing(play):
    play.answer = False
    after, serving, home = (
        play.amended(),
        play.serving("hospital-0"),
        play.members.home("hospital-0"),
    )
    assert [serving.step() for _ in range(2)] == [False] * 2
    assert len(play.asked) == 1
    assert after.words in play.asked[0]
    assert home.consortium().roster_hash == play.members.consortium.roster_hash
    play.answer = True
    play.serving("hospital-0")._accept()  # and it died before it said so
    assert "hospital-0" not in play.members.mailbox.names_of_accepting(after)
    play.step("hospital-0")
    assert "hospital-0" in play.members.mailbox.names_of_accepting(after)
    home = play.members.home("hospital-0")
    assert home.consortium().roster_hash == after.roster_hash
    with pytest.raises(FederationError, match="must be above 1"):
        home.join(play.members.consortium, play.members.consortium.words)


def test_parties_with_different_rosters_open_nothing(play):
    """The parties compare what they state: tests of votes let them do it at different batches."""
    batch = play.ask()
    rosters = [play.members.consortium, play.amended()]
    with pytest.raises(StaleBatchError, match="not at the same batch and roster"):
        _agreed_pins(
            [_read_statement(_statement_of(roster, batch, {}, None)) for roster in rosters]
        )


def test_a_rehearsal_spends_nothing_and_reads_no_private_row(play):
    play.answer = False
    name = f"{REHEARSAL}-1"
    for hospital in HOSPITALS:
        serving = play.serving(hospital)
        serving.rows = None
        play.ask(name)
        assert serving.step()
    assert play.asked == []
    assert [play.spent(hospital) for hospital in HOSPITALS] == [0.0] * 4


@pytest.mark.rest
def test_a_sum_that_people_cannot_cast_is_left_out(tmp_path):
    """One of eight times the longest sum passes with a chance below 1e-6, and one of one number with 2⁻⁴⁰."""
    play = begun(tmp_path, entities=7)
    batch = play.ask()
    play.step(*HOSPITALS[:3])
    asked = play.members.consortium.sums().round_of(batch)
    form: Any = asked.request.form
    most, one = PEOPLE * np.sqrt(form.norm_squared), np.zeros(asked.shape)
    one.flat[0] = -12 * most
    drawn = np.random.default_rng(0).normal(size=asked.shape)
    lies = [8 * most * lie / np.sqrt((lie**2).sum()) for lie in (np.ones(asked.shape), drawn)]
    liars = [f"hospital-{number}" for number in range(3, 7)]
    for liar, lie in zip(liars, [*lies, one, np.full(asked.shape, 2.0**61)], strict=True):
        for party, share in zip(PARTIES, split(lie.astype(np.int64), summed=True), strict=True):
            sealed = play.members.sealed(batch, Kind.SHARES, liar, party, bytes(HEAD_BYTES) + share)
            play.members.put_answer(batch, liar, party, sealed)
    for one in all_ended(play.members, batch):
        assert sorted(one.left_out) == liars
        assert all(why.startswith("what it sent is larger") for why in one.left_out.values())
    assert play.collect(batch).entities == tuple(HOSPITALS[:3])
