"""Whether the noise of a sum of ballots is right. The ballots are made up, so the results may be published."""

from collections.abc import Sequence
from math import sqrt
from typing import cast

import numpy as np
from scipy import stats

from tutelage._internal.typing import IntArray
from tutelage.audit.checklist import Checked, pass_if
from tutelage.audit.mechanism import (
    MechanismAudit,
    Neighbors,
    check_settings,
    claimed_epsilon,
    lower_bound,
)
from tutelage.ballots import BallotSum
from tutelage.exceptions import InvalidParameterError, quote
from tutelage.mechanisms import NoisySum
from tutelage.noise import NoiseSource, SystemNoise, known_noise
from tutelage.privacy import round_up

_BINS = 20
_LEAST_P = 1e-6
_SIGMA = 1000.0  # of the noise that is drawn: any scale will do, the sampler is the same
_INTERVALS = 60  # of what is seen of a sum
_REACH = 4.0  # standard deviations, by which they go beyond both sums
_SHARP = NoisySum(1.5)  # with so little noise one ballot shows
_DELTA = 0.05
_CONFIDENCE = 1 - 1e-6
_BALLOT = (3, -4)


def check_noise_of_sum(*, draws: int = 40_000, noise: NoiseSource | None = None) -> Checked:
    """Draw the noise of a sum and compare it with the law that the accounting takes it to have."""
    drawn = (noise or SystemNoise()).discrete_gaussian(_SIGMA, (draws,))
    edges = np.rint(stats.norm.ppf(np.arange(1, _BINS) / _BINS) * _SIGMA) + 0.5
    expected = np.diff(stats.norm.cdf(edges / _SIGMA), prepend=0, append=1) * draws
    frequencies, _ = np.histogram(drawn, [-np.inf, *edges, np.inf])
    _, of_shape = cast("tuple[float, float]", stats.chisquare(frequencies, expected))
    in_sigma = drawn / _SIGMA
    size = float(in_sigma.astype(np.float64) @ in_sigma)
    of_spread = 2 * min(stats.chi2.cdf(size, draws), stats.chi2.sf(size, draws))
    p_value = float(min(of_shape, of_spread))
    passed = p_value > _LEAST_P
    verdict = "is distributed as" if passed else "is not what"
    reason = f"Over {draws:,} draws, the noise of a sum {verdict} the accounting takes it to be (p = {p_value:.2g})."
    return Checked("noise as configured", pass_if(passed), reason)


def check_claim_of_sum(*, draws: int = 40_000) -> Checked:
    """Release a made-up sum and its neighbor with little noise, and compare what shows with the claimed ε."""
    audit = audit_sum(
        _SHARP,
        _BALLOT,
        delta=_DELTA,
        draws=draws,
        confidence=_CONFIDENCE,
    )
    reason = (
        f"{audit.mechanism}: at δ = {_DELTA:g}, {2 * draws:,} releases of a sum show ε ≥ {audit.lower_bound:.3f}; "
        f"claimed is {round_up(audit.claim, 3):.3f}."
    )
    return Checked("ε of a sum with little noise", pass_if(audit.passed), reason)


def audit_sum(
    mechanism: NoisySum,
    ballot: Sequence[int],
    *,
    delta: float,
    draws: int = 100_000,
    confidence: float = 0.999,
    claim: float | None = None,
    noise: NoiseSource | None = None,
) -> MechanismAudit:
    """Bound the ε of a noisy sum from below by telling a made-up ballot from its opposite.

    Releases are looked at along the line through both sums, on which the likelihood ratio depends alone, in intervals.

    Parameters
    ----------
    mechanism : NoisySum
        What is audited, as it is installed.
    ballot : sequence of int
        The only ballot of the one sum, as long as the mechanism allows; that of the other one is its opposite. No two
        sums of neighbors are farther apart.
    delta, draws, confidence, claim, noise
        As for `audit_mechanism`.
    """
    owner = "audit_sum"
    check_settings(None, delta, "release", draws, confidence, owner)
    along = np.array(ballot)
    if along.ndim != 1 or not np.issubdtype(along.dtype, np.integer) or not along.any():
        raise InvalidParameterError(
            f"{owner}.ballot", "be a vector of whole numbers that are not all 0", quote(ballot)
        )
    norm_squared = int(along @ along)
    source = known_noise(noise, owner)
    # Every row of what is released at once is a sum of its own.
    sums = [BallotSum(np.tile(sign * along, (draws, 1)), norm_squared) for sign in (1, -1)]
    event = mechanism.most(sums[0].form, simulated=source.simulated)
    reach = norm_squared + _REACH * event.sigma * sqrt(norm_squared)
    inner = np.linspace(-reach, reach, _INTERVALS + 1)[1:-1]

    intervals = list[IntArray]()
    for ballots in sums:
        projected = mechanism.release(ballots, source).values @ along
        intervals.append(np.digitize(projected, inner)[:, np.newaxis])
    here, there = intervals
    if claim is None:
        claim = claimed_epsilon(event, delta)
    return MechanismAudit(
        mechanism=repr(mechanism),
        neighbors=Neighbors(tuple(along.tolist()), tuple((-along).tolist())),
        draws=draws,
        delta=delta,
        claim=claim,
        lower_bound=lower_bound(here, there, delta, 1 - confidence),
        confidence=confidence,
    )
