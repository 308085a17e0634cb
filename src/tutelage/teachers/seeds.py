"""Seeds of the teachers' own randomness."""

import numpy as np


def teacher_seed(seed: int, number: int) -> int:
    """Return the seed of teacher `number`, the same however many teachers there are and wherever they train."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
