"""Whether labels come out as often as their event says: finds wrong noise of any scale, too much of it included."""

from dataclasses import dataclass
from typing import final

import numpy as np
from scipy import stats

from tutelage._validation import integer_at_least, probability
from tutelage.audit.mechanism import Neighbours, check_draws, release_many
from tutelage.mechanisms import Mechanism
from tutelage.neighboring import ONE_TEACHER
from tutelage.noise import NoiseSource, known_noise
from tutelage.testing.laws import label_law


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LawAudit:
    """How well the labels of one made-up vote count agree with the law of their event; public.

    Parameters
    ----------
    mechanism : str
        What was audited.
    counts : tuple of int
        The made-up votes.
    draws : int
        How often they were released.
    p_value : float
        Probability that a right mechanism differs as much from the law.
    confidence : float
        A right mechanism passes with this probability, at least.
    """

    mechanism: str
    counts: tuple[int, ...]
    draws: int
    p_value: float
    confidence: float

    @property
    def passed(self) -> bool:
        """Whether the difference may be chance."""
        return self.p_value > 1 - self.confidence


def audit_law(
    mechanism: Mechanism,
    counts: tuple[int, ...],
    *,
    draws: int = 100_000,
    confidence: float = 0.999,
    noise: NoiseSource | None = None,
) -> LawAudit:
    """Release made-up votes many times and compare the frequency of every label with its exact probability.

    Parameters
    ----------
    mechanism : Mechanism
        What is audited, as it is installed; it takes no predictions and answers one vote per query.
    counts : tuple of int
        Made-up votes; a lead of about the noise shows most.
    draws : int
        How often they are released.
    confidence : float
        Probability with which a right mechanism is to pass.
    noise : NoiseSource, optional
        Default: `SystemNoise`, the noise of real releases.

    Raises
    ------
    InvalidParameterError
        If `confidence` or `draws` is out of range.
    UnsupportedEventError
        If the law of the mechanism's labels is not known here.

    Notes
    -----
    Exact binomial tests, one per label, corrected for their number after Bonferroni.
    """
    probability(confidence, "confidence", "audit_law")
    check_draws(integer_at_least(draws, 1, "draws", "audit_law"), "draws", "audit_law")
    law = label_law(mechanism.event_of_one(len(counts), ONE_TEACHER, simulated=False), np.array(counts))
    labels = release_many(
        mechanism, counts, Neighbours(counts, counts), "release", 1, draws, known_noise(noise, "audit_law")
    )
    seen = np.roll(np.bincount(labels.ravel(), minlength=len(law)), -1)  # abstentions last, as in the law
    values = [
        stats.binomtest(int(times), draws, min(1.0, float(chance))).pvalue
        for times, chance in zip(seen, law, strict=True)
    ]
    return LawAudit(
        mechanism=repr(mechanism),
        counts=counts,
        draws=draws,
        p_value=float(min(1.0, len(values) * min(values))),
        confidence=confidence,
    )
