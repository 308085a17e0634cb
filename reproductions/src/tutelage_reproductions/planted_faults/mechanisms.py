"""Faults in how noise is drawn, and in what a mechanism says that it did."""

from collections.abc import Callable

from tutelage.audit.mechanism import Neighbors, Part, audit_law, audit_mechanism
from tutelage.mechanisms import Mechanism
from tutelage.noise import NoiseSource, SystemNoise
from tutelage.testing.contract import MechanismContract
from tutelage_reproductions.planted_faults import faulty
from tutelage_reproductions.planted_faults.fault import Check, Fault
from tutelage_reproductions.planted_faults.faulty import (
    FaultyArgmax,
    FaultyCheck,
    SinglePrecisionNoise,
)

_DRAWS, _CONFIDENCE = 8_000, 1 - 1e-6
_RIGHT_ARGMAX = FaultyArgmax(faulty.right)
_RIGHT_CHECK = FaultyCheck(True, faulty.as_it_happened)


def _keeps_its_claim(neighbors: Neighbors, part: Part = "release") -> Check:
    def check(mechanism: Mechanism) -> bool:
        found = audit_mechanism(
            mechanism,
            neighbors,
            delta=0.01,
            part=part,
            draws=_DRAWS,
            confidence=_CONFIDENCE,
            noise=SystemNoise(),
        )
        return found.passed

    return check


def _keeps_its_law(counts: tuple[int, ...]) -> Check:
    return lambda mechanism: (
        audit_law(mechanism, counts, draws=_DRAWS, confidence=_CONFIDENCE).passed
    )


def _keeps_contract(test: Callable[[MechanismContract], None]) -> Check:
    def check(mechanism: Mechanism) -> bool:
        test(type("Suite", (MechanismContract,), {"mechanism": mechanism})())
        return True

    return check


def hides_a_count(noise: NoiseSource) -> bool:
    """Return whether hardly any noisy count is possible at one count and not at the next."""
    here, there = ((count + noise.discrete_laplace(2.0, (_DRAWS,))).tolist() for count in (0, 1))
    common = set(here) & set(there)
    return sum(value not in common for value in here + there) < 0.01 * len(here + there)


INVERSE_SCALE = Fault(
    name="γ used as the scale",
    planted="noise has σ = 1/2 where the event has σ = 2",
    caught_by="audit_mechanism",
    check=_keeps_its_claim(Neighbors((1, 1), (0, 2))),
    right=_RIGHT_ARGMAX,
    wrong=FaultyArgmax(faulty.inverse_scale),
)
MISSING_CLASSES = Fault(
    name="classes without votes excluded",
    planted="noise and argmax only over classes with a vote",
    caught_by="audit_law",
    check=_keeps_its_law((3, 1, 0)),
    right=_RIGHT_ARGMAX,
    wrong=FaultyArgmax(faulty.classes_without_votes_left_out),
)
SINGLE_PRECISION = Fault(
    name="floating-point noise",
    planted="Laplace noise in single precision instead of integers",
    caught_by="comparison of the possible noisy counts at 0 and at 1",
    check=hides_a_count,
    right=SystemNoise(),
    wrong=SinglePrecisionNoise(0),
)
REUSED_NOISE = Fault(
    name="noise reused",
    planted="every release uses the same draws",
    caught_by="MechanismContract.test_every_release_draws_anew",
    check=_keeps_contract(MechanismContract.test_every_release_draws_anew),
    right=_RIGHT_ARGMAX,
    wrong=FaultyArgmax(faulty.the_same_noise_every_time),
)
NOISE_AFTER_ARGMAX = Fault(
    name="noise after the argmax",
    planted="noise is added to the winner's count only",
    caught_by="audit_law",
    check=_keeps_its_law((6, 5, 1)),
    right=_RIGHT_ARGMAX,
    wrong=FaultyArgmax(faulty.noise_after_the_argmax),
)
CLEAN_THRESHOLD = Fault(
    name="threshold on the clean maximum",
    planted="the check compares the votes without noise",
    caught_by="audit_mechanism of the check",
    check=_keeps_its_claim(Neighbors((5, 1), (6, 0)), "check"),
    right=_RIGHT_CHECK,
    wrong=FaultyCheck(False, faulty.as_it_happened),
)
UNPAID_ABSTENTION = Fault(
    name="check not charged on abstention",
    planted="checks are reported only for labeled queries",
    caught_by="MechanismContract.test_it_reports_what_it_runs",
    check=_keeps_contract(MechanismContract.test_it_reports_what_it_runs),
    right=_RIGHT_CHECK,
    wrong=FaultyCheck(True, faulty.checks_of_answers_only),
)
EXPECTED_COST = Fault(
    name="expected cost instead of actual cost",
    planted="a planned number of labels is reported",
    caught_by="MechanismContract.test_it_reports_what_it_runs",
    check=_keeps_contract(MechanismContract.test_it_reports_what_it_runs),
    right=_RIGHT_CHECK,
    wrong=FaultyCheck(True, faulty.expected_answers),
)
