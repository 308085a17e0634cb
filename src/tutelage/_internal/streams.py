"""The random streams of this process: first weights, bootstrap samples, the order of batches. Never noise."""

import random  # what estimators may draw from, behind our back
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy import random as numpy_random

from tutelage._internal.forks import LongLock, repair_in_child

_find_spec = cache(find_spec)
streams_in_use = LongLock()


def _unlock_numpy() -> None:
    """Unlock numpy's global stream in a child: a thread that did not come along may have been drawing from it."""
    numpy: Any = numpy_random  # whose stubs lack both functions
    locked = numpy.get_bit_generator()
    free = type(locked)()
    free.state = locked.state
    numpy.set_bit_generator(free)


repair_in_child(_unlock_numpy)


@contextmanager
def own_streams(shard: int | str, seed: int) -> Generator[None]:
    """Let all streams of the process start from `seed` and the shard, one thread at a time; restore them afterwards."""
    start = int(np.random.SeedSequence([seed, *str(shard).encode()]).generate_state(1)[0])
    with streams_in_use, ExitStack() as undo:
        undo.callback(random.setstate, random.getstate())
        undo.callback(numpy_random.set_state, numpy_random.get_state())  # noqa: NPY002  whatever estimators draw from
        random.seed(start)
        numpy_random.seed(start % 2**32)  # noqa: NPY002
        torch: Any = sys.modules.get("torch")
        if torch is not None:
            accelerators = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
            undo.enter_context(torch.random.fork_rng(devices=accelerators))
            torch.manual_seed(start)
        yield


def stream_may_come() -> bool:
    """Return whether work may still load torch, which has a stream of its own that `own_streams` did not see."""
    return "torch" not in sys.modules and _find_spec("torch") is not None
