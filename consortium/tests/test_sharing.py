from collections.abc import Callable
from functools import partial
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from tutelage.exceptions import ForgedMessageError, InvalidDataError
from tutelage_consortium import sharing
from tutelage_consortium.sharing import (
    ELEMENT_BYTES,
    MODULUS,
    decode,
    encode,
    from_random,
    open_sum,
    recombine,
    split,
)

SMALL = st.integers(-(2**40) + 1, 2**40 - 1)
Split = Callable[[np.ndarray], tuple[bytes, bytes, bytes]]


@given(st.lists(SMALL, max_size=20), st.lists(st.integers(-(2**61), 2**61), max_size=20))
def test_shares_add_up_to_the_values(votes, numbers):
    for values, summed in ((votes, False), (numbers, True)):
        shares = split(np.array(values, dtype=np.int64), summed=summed)
        assert open_sum(shares, (len(values),)).tolist() == values


def departure_from_uniform(method: Split, values: np.ndarray, bins: int = 8) -> float:
    """Return the least chance, over all pairs of shares, of a pair so far from uniform on a grid of bins² cells.

    The high end of each share and, separately, its low end are looked at.
    """
    shares = [decode(share, values.shape) for share in method(values)]
    high = [(share * bins // MODULUS).astype(int) for share in shares]
    low = [(share % bins).astype(int) for share in shares]
    chances = []
    for place in (high, low):
        for one, other in combinations(place, 2):
            found = np.bincount(one * bins + other, minlength=bins**2)
            expected = values.size / bins**2
            chances.append(chi2.sf(((found - expected) ** 2 / expected).sum(), bins**2 - 1))
    return min(chances)


# Six statistics of six data sets below: 36 times this is the chance that a right split fails.
FALSE_ALARM = 1e-9


@pytest.mark.parametrize("method", [split, partial(split, summed=True)], ids=["votes", "sums"])
@pytest.mark.parametrize("value", [0, -1, 2**40 - 1])
def test_any_two_shares_are_uniform(value, method):
    assert departure_from_uniform(method, np.full(20_000, value)) > FALSE_ALARM


def short_share(values: np.ndarray) -> tuple[bytes, bytes, bytes]:
    random = np.frombuffer(np.random.default_rng(0).bytes(8 * values.size), dtype="<u8").astype(
        object
    )
    first, _, _ = split(values)
    return (
        first,
        encode(random),
        encode(values.astype(object) - decode(first, values.shape) - random),
    )


def value_as_last_share(values: np.ndarray) -> tuple[bytes, bytes, bytes]:
    first, _, _ = split(values)
    return first, encode(-decode(first, values.shape)), encode(values)


@pytest.mark.parametrize("faulty", [short_share, value_as_last_share])
def test_a_split_that_tells_something_is_caught_by_the_same_statistic(faulty):
    assert departure_from_uniform(faulty, np.ones(20_000, dtype=np.int64)) < FALSE_ALARM


def test_an_element_that_is_not_below_the_modulus_is_drawn_again(monkeypatch):
    drawn = iter([b"\xff" * 24, b"\xff" * 24, bytes(24), bytes(range(24))])
    monkeypatch.setattr(sharing.secrets, "token_bytes", lambda count: next(drawn)[:count])
    first, second, _ = split(np.zeros(2, dtype=np.int64))
    assert first == bytes(24)
    assert second == bytes(range(11)) + b"\1" + bytes(range(12, 23)) + b"\1"


def test_random_bytes_become_the_elements_of_their_lowest_89_bits():
    random = np.random.default_rng(0).bytes(1000 * ELEMENT_BYTES) + bytes(ELEMENT_BYTES)
    expected = [
        int.from_bytes(random[at : at + ELEMENT_BYTES], "little") % 2**89
        for at in range(0, len(random), 12)
    ]
    assert from_random(random).tolist() == expected


@pytest.mark.parametrize("value", [2**40, -(2**40)])
def test_values_too_large_to_share_are_refused_without_being_told(value):
    with pytest.raises(InvalidDataError, match="between") as refused:
        split(np.array([value]))
    assert str(value) not in str(refused.value)


@given(st.binary(max_size=60), st.lists(st.integers(0, 3), min_size=1, max_size=2))
def test_bytes_that_are_no_elements_are_forged(data, shape):
    try:
        decoded = decode(data, shape)
    except ForgedMessageError:
        return
    assert encode(decoded) == data
    assert all(type(element) is int for element in decoded.ravel().tolist())


def test_an_element_beyond_the_field_is_forged():
    for element in (MODULUS, MODULUS + 1, 2**96 - 1):
        with pytest.raises(ForgedMessageError, match="no element"):
            decode(element.to_bytes(12, "little"), (1,))


def on_lines(values: list[int], slopes: list[int]) -> list[bytes]:
    points = [
        [value + slope * x for value, slope in zip(values, slopes, strict=True)] for x in (1, 2, 3)
    ]
    return [encode(np.array(each, dtype=object)) for each in points]


LINES = st.lists(st.tuples(SMALL, st.integers(0, MODULUS - 1)), min_size=1, max_size=20)


@given(LINES, st.data())
def test_points_on_a_line_open_its_value_at_zero_and_one_false_point_is_found_whoever_sends_it(
    lines, data
):
    values, slopes = map(list, zip(*lines, strict=True))
    shares = on_lines(values, slopes)
    opened = recombine(shares, (len(values),))
    assert opened.tolist() == values
    assert opened.dtype == np.int64
    party, place = data.draw(st.integers(0, 2)), data.draw(st.integers(0, len(values) - 1))
    elements = decode(shares[party], (len(values),))
    elements[place] = (elements[place] + data.draw(st.integers(1, MODULUS - 1))) % MODULUS
    shares[party] = encode(elements)
    with pytest.raises(ForgedMessageError, match="contradict"):
        recombine(shares, (len(values),))


def test_opening_takes_three_shares_of_the_right_length_that_belong_together():
    shares = on_lines([1, 2], [5, 6])
    with pytest.raises(ForgedMessageError, match="3 computing parties"):
        recombine(shares[:2], (2,))
    with pytest.raises(ForgedMessageError, match="must take 24 bytes"):
        recombine([*shares[:2], shares[2][:-1]], (2,))
    one, other = (split(np.zeros(9, dtype=np.int64), summed=True) for _ in range(2))
    with pytest.raises(ForgedMessageError, match="open to no sum of ballots"):
        open_sum([*one[:2], other[2]], (9,))
