"""Computations of three connected computing parties: largest counts, thresholds, sizes of vectors."""

import hashlib
import json
from collections.abc import Sequence
from typing import final

import numpy as np
import numpy.typing as npt

from tutelage.exceptions import FederationError, InvalidParameterError
from tutelage_consortium.mpc.links import FrameKind
from tutelage_consortium.mpc.runtime import ArrayRuntime
from tutelage_consortium.sharing import (
    MODULUS,
    MOST_BITS,
    MOST_TESTED_BITS,
    PARTIES,
    ElementArray,
    encode,
)

REPETITIONS = 40
_LIMB_BITS = 30
_LIMBS = 3
_RANDOM_BITS_AT_ONCE = 2**18  # bounds the memory of a batch, and its messages to 4 MiB


async def largest(runtime: ArrayRuntime, values: ElementArray, bits: int) -> ElementArray:
    """Return shares of 1 + the index of the largest number in each row, the lowest index among equals."""
    # A tournament: adjacent players play, so that the left one also has the lower index, and wins a tie.
    indices: ElementArray = np.arange(1, values.shape[1] + 1, dtype=object)
    players: ElementArray = np.stack([values, np.broadcast_to(indices, values.shape)])
    # players: (2, rows, candidates), the number of each and its index
    while players.shape[2] > 1:
        left, right, unpaired = _pairs(players)
        lost = await runtime.negative((left[0] - right[0]) % MODULUS, bits)
        change = await runtime.reshare((right - left) * lost)
        winners = (left + change) % MODULUS
        players = np.concatenate(
            [winners, unpaired],
            axis=2,
        )
    return players[1, :, 0]


async def any_reaches(
    runtime: ArrayRuntime,
    values: ElementArray,
    threshold: int,
    bits: int,
) -> ElementArray:
    """Return shares of 1 for each row in which a number is at least `threshold`, and of 0 for the others."""
    below = await runtime.negative((values - threshold) % MODULUS, bits)
    return (1 - await _products(runtime, below)) % MODULUS


async def any_outside(runtime: ArrayRuntime, values: ElementArray, most: int) -> bool:
    """Return whether any number is none of 0, 1, …, most.

    Privacy: only whether a random combination of the products x·(x − 1)·…·(x − most) is zero is opened.
    """
    # values: (rows,); factors: (rows, most + 1)
    candidates: ElementArray = np.arange(most + 1, dtype=object)
    factors = (values[:, np.newaxis] - candidates) % MODULUS
    products = await _products(runtime, factors)
    (is_outside,) = await _are_nonzero(runtime, products[np.newaxis])
    return is_outside


async def _are_nonzero(runtime: ArrayRuntime, values: ElementArray) -> list[bool]:
    """Return for each row whether a random combination of its numbers, which alone is opened, is not zero."""
    # values: (rows, numbers)
    weights = runtime.random(values.shape)
    combinations = (values * weights).sum(axis=1) + runtime.zeros(len(values))
    opened = await runtime.open_shares(combinations % MODULUS, degree=2)
    return [bool(number) for number in opened]


async def _products(runtime: ArrayRuntime, factors: ElementArray) -> ElementArray:
    """Return shares of the product of each row."""
    while factors.shape[1] > 1:
        left, right, unpaired = _pairs(factors)
        products = await runtime.reshare(left * right)
        factors = np.concatenate([products, unpaired], axis=1)
    return factors[:, 0]


def _pairs(numbers: ElementArray) -> tuple[ElementArray, ElementArray, ElementArray]:
    """Return the first and the second of each pair along the last axis, and the one that is left over, if there is."""
    paired = numbers.shape[-1] // 2 * 2
    return numbers[..., 0:paired:2], numbers[..., 1:paired:2], numbers[..., paired:]


def _projections(vectors: ElementArray, seed: bytes) -> ElementArray:
    """Return the projections (vectors, REPETITIONS) of summands, by exact products of their 30-bit limbs."""
    # vectors: (vectors, length); coefficients: (length, REPETITIONS)
    coefficients = _coefficients(vectors.shape[1], seed).astype(np.float64)
    total: ElementArray = np.zeros((len(vectors), REPETITIONS), dtype=object)
    lowest_bits = 2**_LIMB_BITS - 1
    for place in range(0, _LIMBS * _LIMB_BITS, _LIMB_BITS):
        limbs = np.asarray((vectors >> place) & lowest_bits, dtype=np.float64)
        products = limbs @ coefficients  # exact: below 2^53 up to 2^23 entries
        total += products.astype(np.int64).astype(object) << place
    return total % MODULUS


def _coefficients(length: int, seed: bytes) -> npt.NDArray[np.int8]:
    """Return coefficients (length, REPETITIONS), 0 with probability ½ and ±1 with ¼, expanded by SHAKE-256."""
    count = length * REPETITIONS
    n_bytes = -(-count // 4)
    stream = np.frombuffer(hashlib.shake_256(seed).digest(n_bytes), dtype=np.uint8)
    # Two bits of the stream for each coefficient.
    pairs = np.stack([(stream >> shift) & 3 for shift in (0, 2, 4, 6)], axis=1)
    of_pair = np.array([0, 0, 1, -1], dtype=np.int8)
    coefficients = of_pair[pairs.ravel()[:count]]
    return coefficients.reshape(length, REPETITIONS)


@final
class Session:
    """One party's side of a computation: messages, labels from shared votes, and a test of votes that are too large.

    Privacy: every number is shared so that one party alone learns nothing, under MPyC's protocols against
    one curious party; two that pool what they have can open all votes.
    """

    def __init__(self, runtime: ArrayRuntime) -> None:
        self._runtime = runtime
        self._links = runtime.links
        self._exchanges = 0

    @property
    def bytes_sent(self) -> int:
        """Bytes sent to the others so far, before encryption."""
        return sum(link.bytes_sent for link in self._links.values())

    async def exchange(self, message: bytes) -> list[bytes]:
        """Send a public message to the other parties and return all messages, in party order."""
        self._exchanges += 1
        for link in self._links.values():
            link.send(self._exchanges, message, FrameKind.BYTES)
        messages = [message] * PARTIES
        for place, link in self._links.items():
            messages[place] = await link.receive(self._exchanges, FrameKind.BYTES)
        return messages

    async def labels(self, blocks: ElementArray, bits: int, threshold: int | None = None) -> bytes:
        """Find the class with the most votes for each query, the lowest index among equals; no party learns it.

        Blocks, of shape (queries, classes), are the votes and, with a threshold, those of the check.
        """
        if not 2 <= bits <= MOST_BITS:
            raise InvalidParameterError(
                "labels.bits",
                f"be from 2 to {MOST_BITS}",
                f"{bits}",
            )
        await self._agree(
            [
                "labels",
                *map(np.shape, blocks),
                bits,
                threshold,
            ]
        )
        _, queries, classes = blocks.shape
        step = max(1, _RANDOM_BITS_AT_ONCE // ((bits + 1) * classes * len(blocks)))
        shares = bytearray()
        for start in range(0, queries, step):
            votes, *check = await self._runtime.share(blocks[:, start : start + step])
            winners = await largest(self._runtime, votes, bits)
            if threshold is not None:
                passes = await any_reaches(
                    self._runtime,
                    check[0],
                    threshold,
                    bits,
                )
                winners = winners * passes
            fresh = await self._runtime.reshare(winners)
            if await any_outside(self._runtime, fresh, classes):
                raise FederationError(
                    f"Totals are too large to be compared in {bits} bits. Nothing was opened, and the batch is refused."
                )
            shares += encode(fresh)
        return bytes(shares)

    async def find_oversized(
        self, vectors: ElementArray, bounds: Sequence[int], seed: bytes
    ) -> list[bool]:
        """Tell which vectors have one of forty random projections beyond its bound.

        A vector with an entry beyond twice its bound, up to half the modulus, passes each with probability ½ at most.
        Privacy: only one bit of each vector is opened, whether a random combination of its tests is zero. With the same
        `seed`, the same coefficients are drawn; who makes the vectors must not know it before.

        With 2^b above twice the largest bound, both bound + x and bound − x must lie in [0, 2^b). That is tested for
        every x of the field by −⌊y / 2^b⌋ = 0: the comparison computes (c − r + u·2^b − y) / 2^b from numbers
        0 ≤ c, r < 2^b and a bit u, and is exact for −2^b < y < 2^(b+1), where the mask does not wrap. Any other y is no
        c − r + u·2^b: the result is not 0.
        """
        runtime = self._runtime
        bits = (2 * max(bounds)).bit_length()
        if bits > MOST_TESTED_BITS:
            most = 2 ** (MOST_TESTED_BITS - 1)
            raise InvalidParameterError(
                "find_oversized.bounds", f"be below {most}", f"{max(bounds)}"
            )
        await self._agree(
            [
                "find_oversized",
                vectors.shape,
                [*bounds],
                seed.hex(),
            ]
        )
        column_of_bounds: ElementArray = np.array(bounds, dtype=object)[:, np.newaxis]
        projections = await runtime.share(_projections(vectors, seed))
        step = max(1, _RANDOM_BITS_AT_ONCE // (2 * REPETITIONS * (bits + 1)))
        are_large = list[bool]()
        for start in range(0, len(vectors), step):
            tested = projections[start : start + step]
            bound = column_of_bounds[start : start + step]
            distances = np.concatenate([bound + tested, bound - tested], axis=1)
            outside = await runtime.negative(distances % MODULUS, bits)
            are_large += await _are_nonzero(runtime, outside)
        return are_large

    async def _agree(self, task: list[object]) -> None:
        """Check that all parties run the same computation."""
        tasks = await self.exchange(json.dumps(task).encode())
        if len(set(tasks)) != 1:
            raise FederationError(
                "The computing parties were asked for different computations. Nothing was opened; give all three the "
                "same batch and terms."
            )
