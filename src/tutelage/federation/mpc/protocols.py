"""Comparisons of secret-shared numbers: the largest of several, a threshold, and vectors that are too long."""

import hashlib

import numpy as np
import numpy.typing as npt

from tutelage.federation.mpc.runtime import ArrayRuntime
from tutelage.federation.sharing import MODULUS, ElementArray, encode

REPETITIONS = 40
_LIMB_BITS = 30
_LIMBS = 3
_COMPARED_AT_ONCE = 2**17  # random bits


async def largest(runtime: ArrayRuntime, values: ElementArray, bits: int) -> ElementArray:
    """Return shares of 1 + the index of the largest number in each row, the lowest index among equals.

    A tournament: neighbours play, so that whoever is left of the other also has the lower index, and wins a tie.
    """
    places = np.broadcast_to(np.arange(1, values.shape[1] + 1).astype(object), values.shape)
    pairs = np.stack([values, places])  # (2, rows, candidates)
    while (count := pairs.shape[2]) > 1:
        left, right, unpaired = pairs[:, :, 0 : count - 1 : 2], pairs[:, :, 1::2], pairs[:, :, count - count % 2 :]
        lost = await runtime.negative((left[0] - right[0]) % MODULUS, bits)
        won = (left + await runtime.reduced((right - left) * lost)) % MODULUS
        pairs = np.concatenate([won, unpaired], axis=2)
    return pairs[1, :, 0]


async def any_reaches(runtime: ArrayRuntime, values: ElementArray, threshold: int, bits: int) -> ElementArray:
    """Return shares of 1 for each row in which a number is at least `threshold`, and of 0 for the others."""
    below = await runtime.negative((values - threshold) % MODULUS, bits)
    return (1 - await _products(runtime, below)) % MODULUS


async def any_outside(runtime: ArrayRuntime, values: ElementArray, most: int) -> bool:
    """Return whether any number is none of 0, 1, …, most.

    What makes it private: only whether a random combination of the products x·(x − 1)·…·(x − most) is zero is opened.
    """
    factors = (values[:, np.newaxis] - np.arange(most + 1).astype(object)) % MODULUS
    products = await _products(runtime, factors)
    weighted = (products * runtime.random(products.shape)).sum(keepdims=True) + runtime.zeros(1)
    return bool((await runtime.opened(weighted % MODULUS, degree=2))[0])


async def _products(runtime: ArrayRuntime, factors: ElementArray) -> ElementArray:
    """Return shares of the product of each row."""
    while (count := factors.shape[1]) > 1:
        both = await runtime.reduced(factors[:, 0 : count - 1 : 2] * factors[:, 1::2])
        factors = np.concatenate([both, factors[:, count - count % 2 :]], axis=1)
    return factors[:, 0]


async def oversized(runtime: ArrayRuntime, vectors: ElementArray, bound: int) -> list[bool]:
    """Return which vectors have a random projection whose size is beyond `bound`.

    What makes it private: only one bit of each vector is opened, whether a random combination of its tests is zero.

    Notes
    -----
    With 2^b above 2·bound, both bound + x and bound − x must lie in [0, 2^b). That is tested for every x of the field
    by −⌊y / 2^b⌋ = 0: the comparison computes (c − r + u·2^b − y) / 2^b from numbers 0 ≤ c, r < 2^b and a bit u, and
    is exact for −2^b < y < 2^(b+1), where the mask does not wrap. Any other y is no c − r + u·2^b: the result is not 0.
    """
    seed = await runtime.opened(runtime.random((2,)))
    projections = await runtime.shared(_projections(vectors, encode(seed)))
    bits = (2 * bound).bit_length()
    step = max(1, _COMPARED_AT_ONCE // (2 * REPETITIONS * (bits + 1)))
    found: list[bool] = []
    for start in range(0, len(vectors), step):
        tested = projections[start : start + step]
        outside = await runtime.negative(np.concatenate([bound + tested, bound - tested], axis=1) % MODULUS, bits)
        weighted = (outside * runtime.random(outside.shape)).sum(axis=1) + runtime.zeros(len(outside))
        found += [bool(value) for value in await runtime.opened(weighted % MODULUS, degree=2)]
    return found


def _projections(vectors: ElementArray, seed: bytes) -> ElementArray:
    """Return the projections (vectors, REPETITIONS) of summands, by exact products of their 30-bit limbs."""
    coefficients = _coefficients(vectors.shape[1], seed).astype(np.float64)
    total: ElementArray = np.zeros((len(vectors), REPETITIONS), dtype=object)
    for place in range(0, _LIMBS * _LIMB_BITS, _LIMB_BITS):
        limbs = np.asarray((vectors >> place) & (2**_LIMB_BITS - 1), dtype=np.float64)
        total += (limbs @ coefficients).astype(np.int64).astype(object) << place  # exact: below 2^53 up to 2^23 entries
    return total % MODULUS


def _coefficients(length: int, seed: bytes) -> npt.NDArray[np.int8]:
    """Return coefficients (length, REPETITIONS), 0 with probability ½ and ±1 with ¼, expanded by SHAKE-256."""
    count = length * REPETITIONS
    stream = np.frombuffer(hashlib.shake_256(seed).digest(-(-count // 4)), dtype=np.uint8)
    drawn = np.stack([(stream >> shift) & 3 for shift in (0, 2, 4, 6)], axis=1).ravel()[:count]
    return np.array([0, 0, 1, -1], dtype=np.int8)[drawn].reshape(length, REPETITIONS)
