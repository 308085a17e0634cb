"""Faults found in public code of PATE or one slip away from it, each planted beside what is right, each to be caught.

A check that catches no fault shows nothing: this is the check of the checks. The list is that of Ganev, Annamalai and
De Cristofaro (2024, arXiv:2406.13985) on public code of PATE-GAN, and more.
"""

from tutelage.audit.planted_faults.bounds import (
    BASE_TEN,
    DELTA_PER_QUERY,
    FORGOTTEN_TWO,
    GUARD_AT_A_HALF,
    MISSING_LOGARITHM,
    MOMENTS_FROM_ZERO,
    SIGN_OF_LOG_DELTA,
    UNSORTED_VOTES,
)
from tutelage.audit.planted_faults.calls import LABELS_AS_INDICES, PERMUTED_ARGUMENTS
from tutelage.audit.planted_faults.debits import BALANCE_AT_A_DISCOUNT, DEBIT_AFTERWARDS
from tutelage.audit.planted_faults.fault import Fault
from tutelage.audit.planted_faults.mechanisms import (
    CLEAN_THRESHOLD,
    EXPECTED_COST,
    INVERSE_SCALE,
    MISSING_CLASSES,
    NOISE_AFTER_ARGMAX,
    REUSED_NOISE,
    SINGLE_PRECISION,
    UNPAID_ABSTENTION,
)
from tutelage.audit.planted_faults.shards import GROUP_SIZE, OVERLAPPING, RESAMPLING, SAME_SHARD

__all__ = ["FAULTS", "Fault"]

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
)
