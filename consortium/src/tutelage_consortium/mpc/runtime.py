"""MPyC's protocols over links that never unpickle: the runtime of one party, and how it sends field elements.

MPyC's import parses the command line and sets up logging; here it leaves the program as it was.
"""

import asyncio
import importlib
import logging
import os
import secrets
import sys
import warnings
from argparse import Namespace
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from hashlib import shake_128
from math import prod
from typing import Any, Protocol, cast, final

import numpy as np

from tutelage._internal.forks import BriefLock
from tutelage.exceptions import FederationError
from tutelage_consortium.mpc.links import Failure, Link
from tutelage_consortium.sharing import (
    ELEMENT_BYTES,
    MODULUS,
    MOST_BITS,
    PARTIES,
    ElementArray,
    decode,
    encode,
    from_random,
)

_ONE_AT_A_TIME = BriefLock()  # two at once would restore what the other had changed


def _load_mpyc() -> None:
    """Import MPyC and leave the program's command line, environment, logging and event loop as they were."""
    with _ONE_AT_A_TIME:
        command_line = sys.argv
        root = logging.getLogger()
        handlers = root.handlers[:]
        level = root.level
        environment = {
            name: os.environ.pop(name) for name in list(os.environ) if name.startswith("MPYC_")
        }
        sys.argv = ["", "--no-log", "--no-uvloop", "-M1"]
        try:
            # MPyC takes the event loop of its thread, so it gets a thread of its own.
            with ThreadPoolExecutor(1) as thread:
                thread.submit(_import).result()
        finally:
            sys.argv = command_line
            for name in [name for name in os.environ if name.startswith("MPYC_")]:
                del os.environ[name]
            os.environ.update(environment)
            root.handlers[:] = handlers
            root.setLevel(level)


def _import() -> None:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of names that numpy has moved
            importlib.import_module("mpyc.runtime")
    finally:
        loop.close()


_load_mpyc()

from mpyc import asyncoro, finfields, thresha  # noqa: E402
from mpyc.runtime import Runtime  # noqa: E402

# MPyC draws the mask of a comparison as a sum of three numbers below the power of 2 under 2^sec_param / 3, of which a
# party knows two; 62 leaves it 2^60 values that it does not know.
SECURITY_BITS = 62
FIELD_BITS = 89
_DEGREE = 1
# MPyC ships no types: what is taken from these gets its type where it is used.
_FIELD: Any = cast("Any", finfields).GF(MODULUS)
_SHARING: Any = thresha
_KEEPERS_OF_RUNTIME = [
    importlib.import_module(f"mpyc.{name}")
    for name in (
        "asyncoro",
        "sectypes",
        "mpctools",
        "random",
        "secgroups",
        "seclists",
        "secpols",
        "statistics",
    )
]


class _Shares(Protocol):
    """An array of field elements as MPyC has it."""

    value: ElementArray


def _shares_of(elements: ElementArray) -> _Shares:
    return _FIELD.array(elements, check=False)


@final
class ArrayRuntime(Runtime):
    """The runtime of one of three parties, Shamir's sharing of degree 1, for arrays over the one field.

    Privacy: MPyC's protocols against one curious party. Elements travel as `sharing.encode` spells them;
    MPyC's own exchange of pickled objects is overridden wherever these protocols send, and shut off elsewhere.
    """

    def __init__(
        self,
        me: int,
        links: Mapping[int, Link],
        keys: Mapping[int, bytes],
        failure: Failure,
    ) -> None:
        parties = [Namespace(pid=place, protocol=links.get(place)) for place in range(PARTIES)]
        options = Namespace(
            threshold=_DEGREE,
            sec_param=SECURITY_BITS,
            bit_length=MOST_BITS,
            no_prss=True,
            no_async=False,
            no_barrier=True,
            no_log=True,
            # Field elements as bytes, never pickled, also where nothing here overrides MPyC.
            mix32_64bit=True,
            ssl=False,
        )
        super().__init__(me, parties, options)
        self.options.no_prss = False  # only now, since MPyC would draw keys before
        self.place = me  # `pid` of MPyC, which ships no types
        self.links = links
        self._failure = failure
        self._functions: dict[int, dict[tuple[int, ...], thresha.PRF]] = {}
        self._prss_keys = {tuple(sorted((me, place))): key for place, key in keys.items()}
        self._loop.set_exception_handler(self._report_failure)
        for module in _KEEPERS_OF_RUNTIME:
            setattr(module, "runtime", self)  # noqa: B010  as MPyC does for the one runtime that it makes
        # Every comparison says how many of the bits of this type it uses.
        self._secure: Any = cast("Any", self.SecInt)(1, MODULUS)

    def prfs(  # type: ignore[override]  MPyC caches it for ever
        self, bound: int
    ) -> dict[tuple[int, ...], thresha.PRF]:
        """Return the pseudorandom functions with values below `bound`, one for each other party."""
        if bound not in self._functions:
            kind = _PseudorandomElements if bound == MODULUS else thresha.PRF
            self._functions[bound] = {
                pair: kind(key, bound) for pair, key in self._prss_keys.items()
            }
        return self._functions[bound]

    def next_label(self) -> int:
        """Return a label for messages that all parties count up to alike."""
        self._program_counter[0] += 1
        return self._program_counter[0]

    async def share(self, summands: ElementArray) -> ElementArray:
        """Return this party's Shamir shares of numbers of which it holds one of three summands, mod p."""
        label = self.next_label()
        mine = self._deal(label, summands.ravel())
        theirs = [await self._receive(place, label, summands.size) for place in self.links]
        return ((mine + sum(theirs)) % MODULUS).reshape(summands.shape)

    async def open_shares(self, shares: ElementArray, degree: int = _DEGREE) -> ElementArray:
        """Return the numbers that shares of a polynomial of `degree` stand for, to all parties."""
        label = self.next_label()
        flat = shares.ravel()
        senders = [(self.place - step) % PARTIES for step in range(1, degree + 1)]
        receivers = [(self.place + step) % PARTIES for step in range(1, degree + 1)]
        encoded = encode(flat)
        for place in receivers:
            self.links[place].send(label, encoded)
        points = {place: await self._receive(place, label, flat.size) for place in senders}
        points[self.place] = flat
        return _at_zero(points).reshape(shares.shape)

    async def reshare(self, shares: ElementArray) -> ElementArray:
        """Return fresh shares of degree 1 of the numbers that shares of degree 1 or 2 stand for.

        Every party adds randomness of its own, so the new shares reveal nothing else (Gennaro, Rabin and Rabin,
        Simplified VSS and fast-track multiparty computations, 1998).
        """
        label = self.next_label()
        mine = self._deal(label, shares.ravel())
        points = {place: await self._receive(place, label, shares.size) for place in self.links}
        points[self.place] = mine
        return _at_zero(points).reshape(shares.shape)

    def random(self, shape: tuple[int, ...]) -> ElementArray:
        """Return shares of uniform elements that no party knows, without any message."""
        prfs = self.prfs(MODULUS)
        once = self._prss_uci()
        shares: _Shares = _SHARING.np_pseudorandom_share(
            _FIELD, PARTIES, self.place, prfs, once, prod(shape)
        )
        return shares.value.reshape(shape)

    def zeros(self, count: int) -> ElementArray:
        """Return shares of degree 2 of zeros, otherwise random."""
        prfs = self.prfs(MODULUS)
        once = self._prss_uci()
        shares: _Shares = _SHARING.np_pseudorandom_share_0(
            _FIELD, PARTIES, self.place, prfs, once, count
        )
        return shares.value

    async def joint_bits(self, count: int) -> ElementArray:
        """Return shares of uniform bits that no party knows: the exclusive or of bits that two parties draw.

        Which two takes turns. The third knows neither, and each of the two only its own.

        Nothing makes sure that what a party draws are bits: one that deviates can share ½, so that the exclusive or is
        ½ as well, and then read the low bits of what the mask is to hide. To open a combination of all b·(b − 1) would
        not find it: that party knows by how much it is off, and can take that from its own one of the three points.
        """
        label = self.next_label()
        drawing = [place for place in range(PARTIES) if place != label % PARTIES]
        shares = list[ElementArray]()
        if self.place in drawing:
            random = np.frombuffer(secrets.token_bytes(-(-count // 8)), dtype=np.uint8)
            bits = np.unpackbits(random, count=count).astype(object)
            shares.append(self._deal(label, bits))
        for place in drawing:
            if place != self.place:
                shares.append(await self._receive(place, label, count))
        one, other = shares
        both = await self.reshare(one * other)
        return (one + other - 2 * both) % MODULUS

    async def negative(self, shares: ElementArray, bits: int) -> ElementArray:
        """Return shares of −⌊x / 2^bits⌋ for each x; of 1 where −2^bits ≤ x < 0 and of 0 where 0 ≤ x < 2^bits.

        MPyC's comparison. From x, what it opens (x masked by up to 60 bits more, and a coin) and the bits of the mask,
        it computes the multiple of 2^-bits above exactly, for every x of the field from which the mask does not wrap.
        Elsewhere it is never 0, see `session.find_oversized`.
        """
        # Larger numbers leave less room for the mask below p: at 47 bits, 2^39 values that a party does not know.
        self.options.sec_param = min(SECURITY_BITS, FIELD_BITS - 1 - bits)
        array = self._secure.array(_shares_of(shares))
        signs: _Shares = await cast("Any", self).gather(self.np_sgn(array, l=bits, LT=True))
        return signs.value

    # No return types below: MPyC's decorator takes an annotation for the type of result that it is to make.
    @asyncoro.mpc_coro
    async def output(
        self,
        x: _Shares,
        receivers: object = None,  # noqa: ARG002
        threshold: int | None = None,
        raw: bool = False,  # noqa: ARG002
    ):
        """Open an array of field elements to all parties, for MPyC's own protocols."""
        await self.returnType(asyncio.Future)  # type: ignore[misc]
        return _shares_of(await self.open_shares(x.value, threshold or _DEGREE))

    @asyncoro.mpc_coro
    async def np_is_zero_public(self, a: Any):
        """Tell all parties which elements are zero, and nothing else of them, for MPyC's own protocols.

        MPyC opens the product of two sharings as it is here: a polynomial of degree 2 whose two roots, with a party's
        own shares, tell it both factors. A random sharing of zero is added to hide them.
        """
        await self.returnType(asyncio.Future)  # type: ignore[misc]
        values = cast("_Shares", await self.gather(a)).value.ravel()
        product = values * self.random(values.shape) + self.zeros(values.size)
        return (await self.open_shares(product % MODULUS, degree=2) == 0).reshape(a.shape)

    @asyncoro.mpc_coro
    async def np_random_bits(self, sftype: object, n: int, signed: bool = False):  # noqa: ARG002
        """Return random bits, for MPyC's own protocols."""
        await self.returnType(asyncio.Future)  # type: ignore[misc]
        return _shares_of(await self.joint_bits(n))

    @asyncoro.mpc_coro
    async def _reshare(self, x: _Shares):
        await self.returnType(asyncio.Future)  # type: ignore[misc]
        return _shares_of(await self.reshare(x.value))

    def _deal(self, label: int, values: ElementArray) -> ElementArray:
        """Send the others their shares of numbers, values at 1, 2, 3 of random lines; return one's own, not reduced."""
        slopes = from_random(secrets.token_bytes(ELEMENT_BYTES * values.size))
        first = values + slopes
        second = first + slopes
        points = (first, second, second + slopes)
        for place, link in self.links.items():
            link.send(label, encode(points[place]))
        return points[self.place]

    async def _receive(self, place: int, label: int, count: int) -> ElementArray:
        payload = await self.links[place].receive(label)
        try:
            return decode(payload, (count,))
        except FederationError:
            self.links[place].report("sent what is no message")
            return await asyncio.Future()  # until everything is stopped because of that report

    def _report_failure(self, _loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        """Report that one of MPyC's tasks failed, and nothing of what its error says."""
        is_of_mpyc = "mpc_coro" in str(context.get("message"))
        if is_of_mpyc and isinstance(context.get("exception"), Exception):
            self._failure.report(
                FederationError("The parties' messages do not fit together. Nothing was opened.")
            )

    def _shut_off(self, *_arguments: object, **_options: object) -> None:
        raise NotImplementedError("MPyC would exchange pickled objects here.")

    _distribute = input = transfer = start = shutdown = _shut_off  # type: ignore[assignment]


@final
class _PseudorandomElements(thresha.PRF):
    """A pseudorandom function onto the field, whose modulus of 89 ones makes uniform elements cheap."""

    def __call__(self, s: bytes, n: Any = None) -> ElementArray:
        """Return an array of shape `n` of elements that look random, from an input `s` that is used once."""
        key: bytes = self.key
        return from_random(shake_128(key + s).digest(ELEMENT_BYTES * prod(n))).reshape(n)


def _at_zero(points: Mapping[int, ElementArray]) -> ElementArray:
    """Return the values at 0 of polynomials of least degree through each party's shares."""
    places = tuple(sorted(points))
    weighted = [
        points[place] * weight for place, weight in zip(places, _weights(places), strict=True)
    ]
    return sum(weighted[1:], weighted[0]) % MODULUS


@cache
def _weights(places: tuple[int, ...]) -> list[int]:
    """Return Lagrange's coefficients at 0 for the points 1, 2, 3 of the parties at `places`."""
    weights = list[int]()
    for one in places:
        others = [other for other in places if other != one]
        top = prod(-(other + 1) for other in others)
        bottom = prod(one - other for other in others)
        weight = top * pow(bottom, -1, MODULUS) % MODULUS
        weights.append(weight if weight < MODULUS // 2 else weight - MODULUS)
    return weights
