"""Noisy sums in the ledger: stored as a vector of any integers, of the length that was charged for."""

from pathlib import Path

import pytest

from ledgers import new_ledger, rechained, reserve, reserve_new, settle
from tutelage import Ledger
from tutelage.events import Composed, Event, NoisyArgmaxGaussian, NoisySumGaussian, Repeated
from tutelage.exceptions import (
    LedgerError,
    LedgerStorageError,
    LedgerTamperedError,
    UnsupportedEventError,
)
from tutelage.privacy import ONE_TEACHER

SUM = NoisySumGaussian(40.0, 12, 5, ONE_TEACHER)
QUERY, OTHER = b"q" * 32, b"r" * 32
NUMBERS = (-1, 0, -(2**50), 2**50, -1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger with a noisy sum, and with labels after it."""
    ledger = new_ledger(tmp_path / "a.ledger")
    settle(ledger, reserve(ledger, SUM, 1), {QUERY: NUMBERS}, SUM)
    label = NoisyArgmaxGaussian(40.0, 10, ONE_TEACHER)
    settle(ledger, reserve(ledger, label, 1), {OTHER: (3,)}, label)
    return tmp_path / "a.ledger"


def test_all_numbers_come_back_from_the_file(path):
    ledger = Ledger.open(path)
    assert ledger.account.recall([QUERY, OTHER]) == {QUERY: NUMBERS, OTHER: (3,)}
    assert ledger.verify().answers == 2
    assert ledger.history().charges[0].happened == SUM


@pytest.mark.parametrize("numbers", [(), NUMBERS[:-1], (*NUMBERS, 3)])
def test_a_vector_of_another_length_is_refused_and_not_stored(numbers, path):
    ledger = Ledger.open(path)
    reservation = reserve(ledger, SUM, 1)
    before = ledger.state()
    with pytest.raises(
        LedgerError, match="The mechanism gives a noisy sum of another length than it had announced"
    ):
        settle(ledger, reservation, {b"s" * 32: numbers}, SUM)
    assert ledger.state() == before
    settle(ledger, reservation, {b"s" * 32: (-1,) * 5}, SUM)
    assert ledger.account.recall([b"s" * 32]) == {b"s" * 32: (-1,) * 5}


def test_sums_of_several_kinds_are_one_vector(path):
    ledger = Ledger.open(path)
    both = Composed((SUM, Repeated(NoisySumGaussian(40.0, 2, 2, ONE_TEACHER, nonnegative=True), 2)))
    settle(ledger, reserve(ledger, both, 1), {b"s" * 32: tuple(range(-1, 8))}, both)
    assert Ledger.open(path).account.recall([b"s" * 32]) == {b"s" * 32: tuple(range(-1, 8))}
    ledger.verify()
    with pytest.raises(LedgerError, match="another length"):
        settle(ledger, reserve(ledger, both, 1), {b"t" * 32: (1,) * 8}, both)


def test_sums_and_labels_in_one_batch_are_refused_before_they_are_charged(path):
    ledger = Ledger.open(path)
    before = ledger.state()
    mixed = Composed((SUM, NoisyArgmaxGaussian(40.0, 10, ONE_TEACHER)))
    for call in (
        lambda: reserve(ledger, mixed, 1),
        lambda: reserve_new(ledger, mixed, [b"s" * 32]),
    ):
        with pytest.raises(
            UnsupportedEventError, match="must consist of noisy sums only, or of none"
        ):
            call()
    assert ledger.state() == before


@pytest.mark.parametrize(("event", "cost", "message"), [
    (NoisySumGaussian(40.0, 12, 6, ONE_TEACHER), {}, "labels of entry 1 are not those that it recorded"),
    (NoisySumGaussian(40.0, 13, 5, ONE_TEACHER), {}, "Entry 1 charges less than its queries cost"),
    (Composed((SUM, NoisyArgmaxGaussian(40.0, 10, ONE_TEACHER))), {"cost": 10**11}, None),
], ids=["dimension", "norm", "both kinds"])  # fmt: skip
def test_another_sum_in_a_rewritten_chain_is_found(event: Event, cost, message, path):
    rechained(path, {1: {"event": event.as_dict(), **cost}, 2: {"happened": event.as_dict()}})
    with pytest.raises(LedgerTamperedError, match=message):
        Ledger.open(path).verify()


def test_a_long_vector_has_its_room_kept(path):
    ledger = Ledger.open(path)
    long = NoisySumGaussian(400.0, 12, 20_000, ONE_TEACHER)
    numbers = tuple((-1) ** k * (10**15 + k) for k in range(long.dimension))
    reservation = reserve(ledger, long, 1)
    assert reservation.disk_space._file.seek(0, 2) > 20 * long.dimension  # pyright: ignore[reportOptionalMemberAccess]
    settle(ledger, reservation, {b"s" * 32: numbers}, long)
    assert Ledger.open(path).account.recall([b"s" * 32])[b"s" * 32] == numbers
    with pytest.raises(LedgerStorageError, match="has no room"):
        reserve(ledger, NoisySumGaussian(400.0, 12, 2**45, ONE_TEACHER), 1)
