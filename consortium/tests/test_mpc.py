import asyncio
import json
import pickle
import socket
import ssl
import sys
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from parties import BACKSTOP, Party, Running, certificate, run_three, summands, three, time_passes
from processes import until
from tutelage.exceptions import FederationError, InvalidParameterError, PartyLostError
from tutelage_consortium.mpc import Endpoint, run_party
from tutelage_consortium.mpc.connect import _Handshake, _Met
from tutelage_consortium.mpc.links import MOST_UNASKED, FrameKind, context_for
from tutelage_consortium.mpc.session import REPETITIONS, Session, _coefficients, _projections
from tutelage_consortium.sharing import (
    ELEMENT_BYTES,
    MODULUS,
    MOST_TESTED_BITS,
    from_random,
    recombine,
)

pytestmark = pytest.mark.rest

A_WHILE = 2 * BACKSTOP  # seconds, for a clock that is set forward


def labels_in(votes, bits):
    """Return the task of finding labels for each party, and the labels + 1 that numpy finds."""
    return [("labels", share[np.newaxis], bits) for share in summands(votes)], votes.argmax(
        axis=1
    ) + 1


def hard_votes(rng, classes, bits, queries=40):
    """Votes at both ends of what fits, with many ties, negative ones, and rows that are all equal."""
    end = 2 ** (bits - 2)
    votes = rng.integers(-end, end, size=(queries, classes))
    votes[: queries // 2] = rng.integers(-1, 2, size=(queries // 2, classes))
    votes[0], votes[1], votes[2] = 0, -end, end - 1
    votes[3], votes[3, -1] = -end, end - 1
    votes[4], votes[4, 0] = end - 1, -end
    return votes


def checked(rng, classes, bits):
    """Differences of votes and totals from a threshold; both at the ends of the range, if there are ten classes."""
    votes, end, threshold = hard_votes(rng, classes, bits), 2 ** (bits - 1), 2 ** (bits - 2)
    totals = np.full_like(votes, threshold - end)
    totals[1::3, -1], totals[2::6, 0], totals[5::6, 1] = (
        threshold + end - 1,
        threshold,
        threshold - 1,
    )
    votes[5], votes[5, -1] = 2 ** (bits - 2), -(2 ** (bits - 2))
    # One beyond: half of what a comparison can do.
    votes[6], votes[6, -1] = -(2 ** (bits - 2)), 2 ** (bits - 2)
    task, expected = labels_in(votes, bits)
    blocks = [
        np.stack([share[0], total])
        for (_, share, _), total in zip(task, summands(totals), strict=True)
    ]
    tasks = [("labels", both, bits, threshold) for both in blocks]
    return tasks, np.where(totals.max(axis=1) >= threshold, expected, 0)


async def computing(session, say, tasks):
    """Do one task after the other, where MPyC would not even find pickle."""
    sys.modules["mpyc.runtime"].pickle = None  # type: ignore[assignment]
    return [await getattr(session, name)(*given) for name, *given in tasks]


SEED, LENGTH = bytes(range(32)), 30
ENDS = 2 ** (MOST_TESTED_BITS - 1)


def bounded():
    """Vectors, the bound of each, and which can have a projection beyond it."""
    rng, none = np.random.default_rng(7), [0] * (LENGTH - 1)
    within = [(10, 10), (-10, 10), (ENDS - 1, ENDS - 1), (1 - ENDS, ENDS - 1)]
    beyond = [
        (11, 10),
        (-11, 10),
        (ENDS, ENDS - 1),
        (-ENDS, ENDS - 1),
        (4 * ENDS - 1, 1),
        (2**61, 1000),
    ]
    beyond += [(MODULUS // 2, 10), (MODULUS // 3, 1000)]
    cases = [([value, *none], bound) for value, bound in within]
    cases += [(rng.integers(-33, 34, LENGTH).tolist(), 1000) for _ in range(4)]
    right = len(cases)
    cases += [([value, *none], bound) for value, bound in beyond]
    cases += [(uniform(rng, LENGTH).tolist(), 1000)]
    vectors, bounds = zip(*cases, strict=True)
    return (
        np.array(vectors, dtype=object),
        [*bounds],
        [place >= right for place in range(len(cases))],
    )


def summands_of_elements(values):
    """Additive shares of anything in the field."""
    rng = np.random.default_rng(3)
    two = [uniform(rng, values.size).reshape(values.shape) for _ in range(2)]
    return [*two, (values - two[0] - two[1]) % MODULUS]


def uniform(rng, count):
    return from_random(rng.bytes(count * ELEMENT_BYTES))


BITS = {1: 4, 3: 2, 5: 26}  # of so many classes
CHECKED = {3: 9, 10: 26}


@pytest.fixture(scope="module")
def computed():
    """Many computations in one session of three processes."""
    rng = np.random.default_rng(0)
    labels = {
        f"{classes} classes": labels_in(hard_votes(rng, classes, bits), bits)
        for classes, bits in BITS.items()
    }
    labels |= {
        f"check of {bits} bits": checked(rng, classes, bits) for classes, bits in CHECKED.items()
    }
    labels["none"] = labels_in(np.zeros((0, 3), dtype=int), 5)
    tasks: dict[str, list[Any]] = {name: task for name, (task, _) in labels.items()}
    vectors, bounds, _ = bounded()
    tasks["find_oversized"] = [
        ("find_oversized", share, bounds, SEED) for share in summands_of_elements(vectors)
    ]
    tasks["exchange"] = [("exchange", bytes([place]) * place) for place in range(3)]
    given = [([task[place] for task in tasks.values()],) for place in range(3)]
    ends = run_three(computing, given)
    assert {(end.error, end.printed) for end in ends} == {(None, "")}
    results = dict(zip(tasks, zip(*(end.result for end in ends), strict=True), strict=True))
    return SimpleNamespace(results=results, labels=labels)


def test_labels_are_those_that_numpy_finds(computed):
    for name, (_, expected) in computed.labels.items():
        np.testing.assert_array_equal(
            recombine(computed.results[name], expected.shape), expected, name
        )


def test_totals_outside_the_range_open_no_number_but_a_class():
    votes = np.array([[5, 3], [0, 5 * 2**8], [5 * 2**8, 0]])
    ends = run_three(a_few, [(share,) for share in summands(votes)])
    assert all(isinstance(end.error, FederationError) and end.result is None for end in ends)
    assert any("Totals are too large to be compared in 8 bits" in str(end.error) for end in ends)


def test_a_vector_is_tested_against_its_own_bound_up_to_the_largest_that_can_be_tested(computed):
    *_, beyond = bounded()
    assert computed.results["find_oversized"] == (beyond,) * 3


def test_a_bound_too_large_to_be_tested_is_refused():
    session = Session(SimpleNamespace(pid=0, links={}))  # type: ignore[arg-type]
    with pytest.raises(
        InvalidParameterError,
        match=rf"`bounds` of find_oversized must be below {ENDS}\. Got {ENDS}",
    ):
        asyncio.run(session.find_oversized(np.zeros((2, LENGTH), dtype=object), [10, ENDS], SEED))


def test_projections_are_those_of_whole_numbers():
    values, seed = uniform(np.random.default_rng(2), 100).reshape(2, 50), b"seed"
    expected = values @ _coefficients(50, seed).astype(object) % MODULUS
    np.testing.assert_array_equal(_projections(values, seed), expected)
    drawn = _coefficients(20_000, seed)
    assert drawn.shape == (20_000, REPETITIONS)
    for value, share in ((0, 0.5), (1, 0.25), (-1, 0.25)):
        assert abs((drawn == value).mean() - share) < 0.005


SECRET = 123_456_789


def roots(at_one, at_two, at_three):
    """The roots mod p of the polynomial of degree 2 with these values at 1, 2, 3, where it has any."""
    half = (MODULUS + 1) // 2
    square = (at_three - 2 * at_two + at_one) * half % MODULUS
    linear = (at_two - at_one - 3 * square) % MODULUS
    constant = (at_one - linear - square) % MODULUS
    root = pow(linear**2 - 4 * square * constant, (MODULUS + 1) // 4, MODULUS)
    over = pow(2 * square, -1, MODULUS)
    return [(sign * root - linear) * over % MODULUS for sign in (1, -1)]


async def zero_test(session, say, summand, masked):
    """Test a secret for zero, and return what this party can make of the opened polynomial."""
    runtime = session._runtime
    share = await runtime.share(summand)
    seen, receive = {}, runtime._receive

    async def remember(place, *given):
        seen[place] = await receive(place, *given)
        return seen[place]

    runtime._receive, zeros = remember, runtime.zeros
    if not masked:
        runtime.zeros = lambda count: 0 * zeros(count)
    opened, mine = runtime.open_shares, []
    runtime.open_shares = lambda shares, degree: (
        mine.append(int(shares[0])) or opened(shares, degree)
    )
    array = runtime._secure.array(share)
    is_zero = await runtime.np_is_zero_public(array)
    points = {place: int(found[0]) for place, found in seen.items()} | {runtime.pid: mine[0]}
    here = runtime.pid + 1
    guesses = [
        int(share[0]) * -root * pow(here - root, -1, MODULUS) % MODULUS
        for root in roots(*map(points.get, range(3)))
    ]
    return bool(is_zero[0]), guesses


@pytest.mark.parametrize("masked", [True, False])
def test_one_party_cannot_factor_what_a_zero_test_opens(masked):
    shares = summands(np.array([SECRET]))
    ends = run_three(zero_test, [(share, masked) for share in shares])
    assert [end.error for end in ends] == [None] * 3
    assert [end.result[0] for end in ends] == [False] * 3
    # Unmasked, each of them would know it.
    assert [SECRET in end.result[1] for end in ends] == [not masked] * 3


def all_lost(ends, why):
    """Require that every end is the loss of a party, that nothing was printed, and that one of them says why."""
    assert all(isinstance(end.error, PartyLostError) and end.printed == "" for end in ends)
    assert any(why in str(end.error) for end in ends)


async def a_few(session, say, votes):
    """Label, where MPyC would not even find pickle."""
    sys.modules["mpyc.runtime"].pickle = None  # type: ignore[assignment]
    return await session.labels(votes[np.newaxis], 8)


async def silent(session, say, guilty):
    """Let one party answer something else while time passes, and never say what the others wait for."""
    links = session._links
    if session._runtime.pid == guilty:
        for label in (2, 3):
            for link in links.values():
                await link.receive(label, FrameKind.BYTES)
                link.send(label, b"", FrameKind.BYTES)
        await asyncio.Future()
    link = links[guilty]
    awaited = link.receive(1, FrameKind.BYTES)
    for label in (2, 3):
        time_passes(0.6 * BACKSTOP)
        link.send(label, b"", FrameKind.BYTES)
        await link.receive(label, FrameKind.BYTES)
    return await awaited


def test_a_party_that_does_not_say_what_the_others_wait_for_is_given_up_at_the_timeout():
    parties = [Running(party, silent, 1) for party in three()]
    ends = [parties[place].ended() for place in (0, 2)]
    parties[1].kill()
    all_lost(ends, f"two has been silent for {BACKSTOP:g} s")


async def endless(session, say):
    await session.exchange(b"")
    await asyncio.Future()


def test_a_computation_that_never_ends_is_given_up_at_the_deadline():
    all_lost(run_three(endless, [()] * 3, deadline=1.0), "not finished after 1 s")


async def failing(session, say, which):
    await session.exchange(b"")
    if which:
        raise ValueError("of its own")
    return await session.exchange(b"")


def test_a_party_that_fails_keeps_its_error_and_the_others_notice():
    ends = run_three(failing, [(False,), (True,), (False,)])
    assert [type(end.error) for end in ends] == [PartyLostError, ValueError, PartyLostError]
    assert [end.printed for end in ends] == [""] * 3


async def greeting(session, say):
    return await session.exchange(b"hello")


def listens(endpoint):
    with (
        suppress(ConnectionError),
        socket.create_connection((endpoint.host, endpoint.port), timeout=BACKSTOP),
    ):
        return True
    return False


def tls_call(endpoint, pem, key, trusted, said):
    """Return what a TLS connection with this certificate hears after what is said."""

    async def call():
        context = context_for(pem, key, trusted, server=False)
        reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port, ssl=context)
        writer.write(said)
        heard = await reader.read(100)
        writer.transport.abort()
        return heard

    try:
        return asyncio.run(call())
    except (ConnectionError, ssl.SSLError):
        return b""


def test_no_end_speaks_a_tls_older_than_1_3():
    one, *_ = three()
    trusted = [endpoint.certificate_pem for endpoint in one.endpoints]
    for server in (True, False):
        context = context_for(trusted[0], one.key, trusted, server=server)
        assert context.minimum_version is ssl.TLSVersion.TLSv1_3


def test_impostors_are_refused_and_the_right_party_still_gets_its_place():
    assert "pairwise" not in repr(_Met(None, None, b"pairwise"))  # type: ignore[arg-type]
    one, two, three_ = three()
    last = one.endpoints[2]
    waiting = [Running(party, greeting) for party in (two, three_)]
    until(partial(listens, last))
    trusted = [endpoint.certificate_pem for endpoint in one.endpoints]
    right = _Handshake(0, one.endpoints, one.key)._greeting(0)
    for what, pem, key, said in (
        ("a stranger", *certificate("one"), right),
        ("the certificate of two, the place of one", trusted[1], two.key, right),
        ("its own certificate", trusted[2], three_.key, right),
        ("claims to be two", trusted[0], one.key, b"\x01" + right[1:]),
        ("another consortium", trusted[0], one.key, right[:1] + bytes(32)),
    ):
        assert tls_call(last, pem, key, trusted, said) == b"", what
    ends = [one_.ended() for one_ in (Running(one, greeting), *waiting)]
    assert [(end.result, end.error, end.printed) for end in ends] == [
        ([b"hello"] * 3, None, "")
    ] * 3


def test_parties_that_wait_for_an_impostor_end_at_the_timeout():
    one, two, three_ = three()
    pem, key = certificate("one")
    false = Endpoint("one", "127.0.0.1", one.endpoints[0].port, pem)
    right = [Running(party, greeting, tells=True) for party in (two, three_)]
    for party in right:
        party.waits_for("one")
    impostor = Running(Party(0, (false, *one.endpoints[1:]), key), greeting, tells=True)
    impostor.waits_for("two", "three")  # said after two seconds of calling them
    ends = []
    for party in (impostor, *right):
        party.let_pass(A_WHILE)
        ends.append(party.ended())
    all_lost(ends, f"No connection to one within {BACKSTOP:g} s")
    assert "one did not connect to 127.0.0.1:" in str(ends[2].error)
    assert "two answered with other keys or terms than those of this party at 127.0.0.1:" in str(
        ends[0].error
    )


# Bytes that nobody asked for; fewer than MOST_UNASKED_BYTES, so that it is soon too much.
ROOM = 2**18


def against_two(body, given, hostile):
    """Run parties two and three against a party one that says `hostile(writers)` once connected; return their ends."""
    one, *others = three()
    running = [Running(party, body, *given, room=ROOM) for party in others]

    async def attack():
        handshake = _Handshake(0, one.endpoints, one.key)
        met = await handshake.everybody(BACKSTOP)
        for connection in met.values():
            hostile(connection[1])
        for connection in met.values():
            with suppress(OSError):
                await connection[0].read()  # until the other has left
        handshake.abort()

    asyncio.run(attack())
    return [each.ended() for each in running]


def frame(kind, label, payload):
    return (
        bytes([kind])
        + label.to_bytes(8, "little", signed=True)
        + len(payload).to_bytes(4, "little")
        + payload
    )


@pytest.mark.parametrize("said", [
    frame(FrameKind.ELEMENTS, 1, b"")[:9] + b"\xff\xff\xff\xff",
    frame(FrameKind.ELEMENTS, 1, pickle.dumps("odd").ljust(12 * 12, b"\xff")),
    frame(9, 1, b"unknown kind"),
    frame(FrameKind.BYTES, 7, b"not asked for") * 2,
    b"".join(frame(FrameKind.ELEMENTS, -label, b"") for label in range(MOST_UNASKED + 1)),
    b"".join(frame(FrameKind.ELEMENTS, -label, bytes(ROOM // 4)) for label in range(5)),
], ids=["too large", "pickled", "unknown kind", "twice the same", "too many", "too much"])  # fmt: skip
def test_what_is_no_message_ends_the_computation(said):
    def hostile(writer):
        agreed = frame(FrameKind.BYTES, 1, json.dumps(["labels", [4, 3], 8, None]).encode())
        writer.write(agreed if b"odd" in said else b"")
        writer.write(said)

    all_lost(
        against_two(a_few, (np.zeros((4, 3), dtype=object),), hostile),
        "one sent what is no message",
    )


def test_parties_with_different_tasks_open_nothing():
    ends = run_three(a_few, [(np.zeros((queries, 3), dtype=object),) for queries in (4, 4, 5)])
    assert all(isinstance(end.error, FederationError) for end in ends)
    assert any("different computations" in str(end.error) for end in ends)


def test_a_taken_port_is_said():
    party = three()[2]
    taken = ("127.0.0.1", party.endpoints[2].port)
    with socket.create_server(taken):
        for place in (taken, ("no.such.invalid", 1)):
            with pytest.raises(
                FederationError, match=rf"Cannot listen at {place[0]}:\d+: .*\. Free"
            ):
                run_party(2, party.endpoints, party.key, greeting, timeout=1.0, listen=place)  # type: ignore[arg-type]
