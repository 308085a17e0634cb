"""What three computing parties do together once they are connected."""

import json
from collections.abc import Callable, Mapping
from typing import final

import numpy as np

from tutelage import _validation
from tutelage.exceptions import FederationError, InvalidParameterError
from tutelage.federation.mpc import protocols
from tutelage.federation.mpc.links import Failure, FrameKind, Link
from tutelage.federation.mpc.runtime import MOST_BITS, ArrayRuntime
from tutelage.federation.mpc.transcript import Transcript
from tutelage.federation.sharing import PARTIES, ElementArray, encode

MOST_EXCHANGED = 2**20  # bytes of one message of `exchange`
_RANDOM_BITS_AT_ONCE = 2**17  # bounds the memory of a batch, and its messages to 2 MiB


@final
class Session:
    """One party's side of a computation: messages, labels from shared votes, and a test of votes that are too large.

    What makes it private: every number is shared so that one party alone learns nothing, under MPyC's protocols against
    one curious party; two that pool what they have can open all votes.
    """

    def __init__(
        self,
        me: int,
        links: Mapping[int, Link],
        keys: Mapping[int, bytes],
        failure: Failure,
        transcript: Transcript | None,
    ) -> None:
        self._me = me
        self._links = links
        self._runtime = ArrayRuntime(me, links, keys, failure, transcript)
        self._transcript = transcript
        self._exchanges = 0

    def __repr__(self) -> str:
        return f"Session(me={self._me})"

    @property
    def bytes_sent(self) -> int:
        """Bytes sent to the others so far, before encryption."""
        return sum(link.bytes_sent for link in self._links.values())

    async def exchange(self, message: bytes) -> list[bytes]:
        """Send a public message to the others and return everybody's, in party order."""
        if len(message) > MOST_EXCHANGED:
            raise InvalidParameterError(
                f"`message` of exchange must have at most {MOST_EXCHANGED} bytes. Got {len(message)}."
            )
        self._exchanges += 1
        label = self._exchanges
        for link in self._links.values():
            link.send(label, message, FrameKind.BYTES)
        found = {place: await link.receive(label, FrameKind.BYTES) for place, link in self._links.items()}
        found[self._me] = message
        return [found[place] for place in range(PARTIES)]

    async def labels(
        self,
        votes: ElementArray,
        bits: int,
        check: tuple[ElementArray, int] | None = None,
        *,
        progress: Callable[[int], object] | None = None,
    ) -> bytes:
        """Find the class with the most votes for each query, the lowest index among equals; no party learns it."""
        blocks = [votes] if check is None else [votes, check[0]]
        _check_blocks(blocks, bits)
        threshold = None if check is None else int(check[1])
        await self._agree(["labels", *map(np.shape, blocks), bits, threshold])
        self._write_inputs(blocks)
        queries, classes = votes.shape
        step = max(1, _RANDOM_BITS_AT_ONCE // ((bits + 1) * classes * len(blocks)))
        shares = []
        for start in range(0, queries, step):
            chunk = await self._runtime.shared(np.stack([block[start : start + step] for block in blocks]))
            found = await protocols.largest(self._runtime, chunk[0], bits)
            if threshold is not None:
                passed = await protocols.any_reaches(self._runtime, chunk[1], threshold, bits)
                found = found * passed
            fresh = await self._runtime.reduced(found)
            if await protocols.any_outside(self._runtime, fresh, classes):
                raise FederationError(
                    f"Totals are too large to be compared in {bits} bits. Nothing was opened, and the batch is refused."
                )
            shares.append(encode(fresh))
            if progress is not None:
                progress(min(start + step, queries))
        return b"".join(shares)

    async def oversized(self, vectors: ElementArray, bound: int) -> list[bool]:
        """Tell which vectors have a random projection beyond a bound, opening that one bit of each and nothing else.

        Forty projections with coefficients 0 with probability ½ and ±1 with ¼, drawn jointly once all parties hold
        their summands. A vector whose projections all stay within the bound passes; one with an entry beyond
        twice the bound, up to half the modulus, passes each with probability ½ at most.
        """
        bound = _validation.integer_at_least(bound, 1, "bound", "oversized")
        if bound >= 2 ** (MOST_BITS - 1):
            raise InvalidParameterError(f"`bound` of oversized must be below 2^{MOST_BITS - 1}. Got {bound}.")
        _check_array(vectors, "vectors")
        await self._agree(["oversized", vectors.shape, bound])
        self._write_inputs([vectors])
        return await protocols.oversized(self._runtime, vectors, bound)

    async def _agree(self, task: list[object]) -> None:
        """See that everybody is at the same computation and holds its inputs."""
        if len(set(await self.exchange(json.dumps(task).encode()))) != 1:
            raise FederationError(
                "The computing parties were asked for different computations. Nothing was opened; give all three the "
                "same batch and terms."
            )

    def _write_inputs(self, blocks: list[ElementArray]) -> None:
        if self._transcript is not None:
            for block in blocks:
                self._transcript.elements(self._me, encode(block))


def _check_blocks(blocks: list[ElementArray], bits: int) -> None:
    _check_array(blocks[0], "votes")
    if not blocks[0].shape[1] or any(np.shape(block) != blocks[0].shape for block in blocks):
        raise InvalidParameterError("`votes` and `check` of labels must be of one shape, (queries, classes >= 1).")
    if not 2 <= _validation.integer_at_least(bits, 2, "bits", "labels") <= MOST_BITS:
        raise InvalidParameterError(f"`bits` of labels must be at most {MOST_BITS}. Got {bits}.")


def _check_array(array: ElementArray, name: str) -> None:
    if not isinstance(array, np.ndarray) or array.dtype != object or array.ndim != 2:
        raise InvalidParameterError(f"`{name}` must be a matrix of Python integers, an object array of two dimensions.")
