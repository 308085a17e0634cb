"""How large an entity's noised votes may honestly be, so that larger ones are found out without being opened."""

import math

from tutelage.federation.consortium import Consortium
from tutelage.federation.noise_shares import SharedMechanism, share_sigmas

_FALSE_ALARM = 2.0**-100  # chance that honest votes of one entity fail one projection: it is in nobody's δ


def projection_bound(consortium: Consortium, mechanism: SharedMechanism, queries: int) -> int:
    """Return what a projection of one entity's noised votes on coefficients −1, 0, 1 stays below, if it is honest.

    The coefficients are random and independent, ±1 with probability ¼ each. Votes of one query have a Euclidean norm of
    k teachers at most, so their projection is sub-Gaussian with k·√B; noise of parameter s on independent cells with
    s·√(B·m), and noise that all m classes of a query share with s·m·√B at most (Canonne, Kamath and Steinke 2020,
    Corollary 17: discrete Gaussian noise is sub-Gaussian with its own parameter).

    Parameters
    ----------
    consortium : Consortium
        Its terms.
    mechanism : GNMax or ConfidentGNMax
        That of the terms.
    queries : int
        Size B of the batch.

    Returns
    -------
    int
        In votes; honest votes pass it with probability above 1 − 2⁻¹⁰⁰ per projection.
    """
    vote, *check = share_sigmas(mechanism, consortium.honest)
    classes, blocks = consortium.n_classes, 1 + len(check)
    norms = [blocks * consortium.teachers_per_entity * math.sqrt(queries), vote * math.sqrt(queries * classes)]
    norms += [sigma * classes * math.sqrt(queries) for sigma in check]
    return math.ceil(sum(norms) * math.sqrt(2 * math.log(2 * len(norms) / _FALSE_ALARM)))
