"""27 faults of public code of PATE, or one slip away from it: each planted, each to be caught by a named check.

A check that catches no fault shows nothing: this is the check of the checks. The list is that of Ganev, Annamalai and
De Cristofaro (2024, arXiv:2406.13985) on public code of PATE-GAN, and more.
"""

from tutelage._internal.progress import progress_bar
from tutelage_reproductions.planted_faults.ballots import (
    BALLOT_ABOVE_CAP,
    CAP_PER_BATCH,
    ROW_IN_TWO_TEACHERS,
)
from tutelage_reproductions.planted_faults.bounds import (
    BASE_TEN,
    DELTA_PER_QUERY,
    FORGOTTEN_TWO,
    GUARD_AT_A_HALF,
    MISSING_LOGARITHM,
    MOMENTS_FROM_ZERO,
    SIGN_OF_LOG_DELTA,
    UNSORTED_VOTES,
)
from tutelage_reproductions.planted_faults.calls import LABELS_AS_INDICES, PERMUTED_ARGUMENTS
from tutelage_reproductions.planted_faults.debits import BALANCE_AT_A_DISCOUNT, DEBIT_AFTERWARDS
from tutelage_reproductions.planted_faults.fault import Fault
from tutelage_reproductions.planted_faults.faulty import faulty_mechanisms, right_controls
from tutelage_reproductions.planted_faults.mechanisms import (
    CLEAN_THRESHOLD,
    EXPECTED_COST,
    INVERSE_SCALE,
    MISSING_CLASSES,
    NOISE_AFTER_ARGMAX,
    REUSED_NOISE,
    SINGLE_PRECISION,
    UNPAID_ABSTENTION,
)
from tutelage_reproductions.planted_faults.shards import (
    GROUP_SIZE,
    OVERLAPPING,
    RESAMPLING,
    SAME_SHARD,
)
from tutelage_reproductions.record import Record, Row

__all__ = ["FAULTS", "Fault", "faulty_mechanisms", "right_controls"]

FAULTS: tuple[Fault, ...] = (
    SAME_SHARD,
    OVERLAPPING,
    RESAMPLING,
    INVERSE_SCALE,
    FORGOTTEN_TWO,
    GUARD_AT_A_HALF,
    MISSING_LOGARITHM,
    MOMENTS_FROM_ZERO,
    SIGN_OF_LOG_DELTA,
    LABELS_AS_INDICES,
    MISSING_CLASSES,
    SINGLE_PRECISION,
    REUSED_NOISE,
    NOISE_AFTER_ARGMAX,
    CLEAN_THRESHOLD,
    UNPAID_ABSTENTION,
    EXPECTED_COST,
    DEBIT_AFTERWARDS,
    BALANCE_AT_A_DISCOUNT,
    DELTA_PER_QUERY,
    GROUP_SIZE,
    UNSORTED_VOTES,
    PERMUTED_ARGUMENTS,
    BASE_TEN,
    BALLOT_ABOVE_CAP,
    ROW_IN_TWO_TEACHERS,
    CAP_PER_BATCH,
)


def reproduce(*, quick: bool, download: bool, progress: bool) -> Record:  # noqa: ARG001  there are no data
    """Return for every fault whether its check caught it; `quick` makes no difference, for it takes half a minute."""
    rows = list[Row]()
    caught = 0
    accepted = 0
    for number, fault in enumerate(progress_bar(FAULTS, "faults", len(FAULTS), shown=progress), 1):
        found, right = fault.caught, fault.accepts_what_is_right
        caught += found
        accepted += right
        name = f"{number}. {fault.name} ({fault.planted}): caught by {fault.caught_by}"
        rows.append(Row(name=name, ours=float(found), at_least=1.0))
    rows.append(
        Row(name=f"caught of {len(FAULTS)}", ours=float(caught), at_least=float(len(FAULTS)))
    )
    rows.append(
        Row(name="correct implementations flagged", ours=float(len(FAULTS) - accepted), at_most=0.0)
    )
    return Record(
        name="planted-faults",
        source="Ganev, Annamalai and De Cristofaro 2024 (arXiv:2406.13985), and faults of our own list",
        rows=tuple(rows),
        quick=quick,
        notes=(
            (
                "1 means caught, 0 means missed. Each check also sees the correct implementation and must accept it."
            ),
            (
                "The noise is not simulated, so runs differ. The probability that a correct mechanism is flagged "
                "is below 1e-4 in total."
            ),
        ),
    )
