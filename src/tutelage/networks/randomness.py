"""What a module draws at random, from a seed."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from tutelage._streams import streams_in_use


@contextmanager
def drawing_from(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Let whatever a module draws (weights, dropout, shifts) come from `seed`, and leave the caller's generators alone.

    One thread of a process at a time: torch has one generator for all of them.

    Parameters
    ----------
    seed : int
        The seed.
    device : torch.device, optional
        Where the module draws, besides the processor.
    """
    accelerators = [device] if device is not None and device.type == "cuda" else []
    with streams_in_use, torch.random.fork_rng(devices=accelerators):
        torch.manual_seed(seed)
        yield
