"""Every verb of a ledger, killed before every event of a file: what is on the disk is whole, and paid once."""

import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ledgers import new_ledger
from processes import called_by_itself, die_at_event, ended, forked
from tutelage import Ledger
from tutelage.events import CappedArgmaxGaussian, NoisyArgmaxGaussian
from tutelage.exceptions import LedgerMismatchError
from tutelage.ledger.beginning import Intent, Whom
from tutelage.ledger.campaigns import Voters
from tutelage.ledger.ledger import open_ledger
from tutelage.privacy import ONE_TEACHER

EVENT = NoisyArgmaxGaussian(40.0, 3, ONE_TEACHER)
CAPPED = CappedArgmaxGaussian(40.0, 2, 2, ONE_TEACHER)
KEYS = [bytes([number]) * 32 for number in range(3)]


def release(ledger: Ledger, name: str | None = None) -> None:
    """Release two steps under an intent."""
    intent, whom = (
        Intent("all of it", "a question", EVENT, 40.0, name),
        Whom(b"digest", ["1", "2"], changed=True),
    )
    with ledger.begin(intent, whom) as scope:
        for key in KEYS[:2]:
            reserved = scope.account.reserve_new(EVENT, [key])
            if reserved.reservation is not None:
                scope.account.settle(reserved.reservation, {key: (1,)}, EVENT)
        scope.end([1, 2], EVENT)


def pay_and_settle(ledger: Ledger) -> None:
    account = ledger.account
    with account.turn():
        paid = account.reserve(EVENT, 1, "batch")
        if not account.is_settled(paid):
            account.settle(paid, {KEYS[0]: (1,)}, EVENT)


def vote(ledger: Ledger) -> None:
    voters = Voters(["1", "2"], b"of these rows")
    with ledger.account.turn():
        granted = ledger.account.reserve_votes(CAPPED, "campaign", voters, np.array([1, 1]), 1)
        assert granted.votes.max() <= 1


def forfeit(ledger: Ledger) -> None:
    with ledger.account.turn():
        reserved = ledger.account.reserve_new(EVENT, KEYS)
        if reserved.reservation is not None:
            ledger.account.forfeit(reserved.reservation)


VERBS: dict[str, Callable[[Ledger], object]] = {
    "a release": release,
    "a release with a name": lambda ledger: release(ledger, "2026-02"),
    "reserve and settle a batch": pay_and_settle,
    "votes of a campaign": vote,
    "forfeit": forfeit,
    "keep": lambda ledger: ledger.account.load_or_learn("a map", lambda: b"learned"),
    "propose": lambda ledger: ledger.register.propose({"order": 8.0}),
    "publish": lambda ledger: ledger.register.publish(lambda head: head),
    "raise the budget": lambda ledger: ledger.raise_budget(
        ledger.limit.epsilon + 1, by="A", why="B"
    ),
    "withdraw": lambda ledger: ledger.withdraw(["1"], unknown=True),
}
SPENDS_AGAIN = {"forfeit"}  # each time, because nothing is remembered
WRITES_AGAIN = {*SPENDS_AGAIN, "publish", "raise the budget", "votes of a campaign"}


def kinds(path: Path) -> list[str]:
    """Return the kinds of the entries; a release that is repeated is bound once more."""
    found = [entry["kind"] for entry in Ledger.open(path).export()]
    return [
        kind for place, kind in enumerate(found) if kind != "bound" or "bound" not in found[:place]
    ]


def kill_every(path: Path, name: str) -> int:
    """Call a verb in one process after the other, each killed an event later than the last, until one survives."""
    new_ledger(path, 5.0)
    fresh, verb, event = path.read_bytes(), VERBS[name], 0

    def call_and_die() -> None:
        die_at_event(event, path.parent)
        verb(Ledger.open(path))

    verb(Ledger.open(path))
    whole, spent = kinds(path), Ledger.open(path).verify().spent
    code = -signal.SIGKILL
    while code == -signal.SIGKILL:
        event += 1
        path.write_bytes(fresh)
        code = ended(forked(call_and_die))
        state = Ledger.open(path).verify()
        assert kinds(path) == whole[: len(kinds(path))], "some of a transaction is there"
        assert state.spent <= spent
        verb(Ledger.open(path))
        again = Ledger.open(path).verify()
        assert again.spent == spent or name in SPENDS_AGAIN, "paid twice, or not at all"
        assert kinds(path) == whole or name in WRITES_AGAIN
        for beside in path.parent.glob(f"{path.name}?*"):
            beside.unlink()  # of a child that was killed
    assert code == 0
    return event - 1


@pytest.mark.rest
@pytest.mark.parametrize("name", VERBS)
def test_a_verb_that_is_killed_at_any_event_leaves_a_whole_ledger_that_pays_once(name, tmp_path):
    call = f"print(kill_every(Path(given[0]), {name!r}))"
    kills = int(called_by_itself("test_ledger_verbs", call, tmp_path / "a.ledger"))
    assert kills > 5


@pytest.mark.rest
def test_a_ledger_that_appears_with_its_first_reservation_is_killed_at_any_event(tmp_path):
    kills = int(
        called_by_itself("test_ledger_verbs", "print(kill_first(Path(given[0])))", tmp_path)
    )
    assert kills > 10


def make(path: Path) -> None:
    """Make a ledger by its first release, or repeat that release."""
    release(open_ledger(path, EVENT, 9, epsilon=5.0, delta=1e-5, unit=ONE_TEACHER))


def kill_first(folder: Path) -> int:
    """Make a ledger in one process after the other, each killed an event later than the last; return how often."""
    event, code = 0, -signal.SIGKILL
    while code == -signal.SIGKILL:
        event += 1
        path = folder / f"{event}" / "a.ledger"
        path.parent.mkdir()

        def make_and_die(path: Path = path, event: int = event) -> None:
            die_at_event(event, path.parent)
            make(path)

        code = ended(forked(make_and_die))
        if path.exists():
            assert Ledger.open(path).verify().spent > 0  # with its first reservation, or not at all
        make(path)
        assert kinds(path) == ["opened", "intended", "bound", *["reserved", "answered"] * 2]
        assert [file.name for file in path.parent.iterdir()] == ["a.ledger"]
    assert code == 0
    return event - 1


def test_a_release_refuses_other_data_of_the_same_object_once_it_is_tied(tmp_path):
    ledger = new_ledger(tmp_path / "a.ledger", 5.0)
    release(ledger)
    with ledger.begin(None, Whom(b"digest")) as scope:
        assert scope.before == ledger.state()
    with (
        pytest.raises(LedgerMismatchError, match="tied to other people or other rows"),
        ledger.begin(None, Whom(b"no")),
    ):
        pass
