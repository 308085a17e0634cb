"""From the reports of those who took part to one label per query; post-processing, so free.

Which decoder finds the right class, and when plurality cannot: docs/proofs/local.md.
"""

from enum import StrEnum
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage._internal.typing import ABSTAIN, FloatArray, IntArray
from tutelage._internal.validation import ballots_between, integer_at_least
from tutelage.exceptions import InvalidBallotError, InvalidParameterError
from tutelage.mechanisms.local.randomizers import ClassResponse, KRandomizedResponse, LocalGaussian, LocalMechanism

_MOST_STEPS = 2000
_SETTLED = 1e-7  # largest change of a share in one step
_QUERIES_AT_ONCE = 4096


@final
class Decoder(StrEnum):
    """How reports become a label."""

    PLURALITY = "plurality"  # the class reported most, Zhao's equations (3) and (4); for LocalGaussian the largest sum
    INVERSE = "inverse"  # the largest unbiased estimate of the true count
    LIKELIHOOD = "likelihood"  # the largest share in the distribution of votes that makes the reports likeliest


def decode(
    reports: npt.ArrayLike, mechanism: LocalMechanism, n_classes: int, decoder: Decoder | str | None = None
) -> IntArray:
    """Return the label that the reports speak for, per query; lowest index wins ties.

    Parameters
    ----------
    reports : integer array of shape (entities, queries), or (entities, queries, classes) for `LocalGaussian`
        What `LocalMechanism.perturb` drew, −1 (or zeros) for entities that did not take part.
    mechanism : LocalMechanism
        What every entity perturbed its vote by.
    n_classes : int
        Number of classes.
    decoder : Decoder, optional
        Default: plurality for `KRandomizedResponse`, where all three agree but for ties, and for `LocalGaussian`,
        which has no other; likelihood for the truncated geometric mechanisms.

    Returns
    -------
    integer array of shape (queries,)
        Class index, or −1 for a query without reports.

    Raises
    ------
    InvalidParameterError
        If the decoder does not fit this mechanism, or is plurality where it elects the wrong class even of a unanimous
        vote, however many entities there are.
    """
    integer_at_least(n_classes, 2, "n_classes", "decode")
    chosen = _known_decoder(decoder, mechanism)
    if isinstance(mechanism, ClassResponse):
        channel = mechanism.channel(n_classes)
        if chosen is Decoder.PLURALITY and plurality_threshold(channel) >= 1:
            raise InvalidParameterError(
                f"`decoder` must not be 'plurality' for {mechanism!r} over {n_classes} classes: it reports the last "
                "class more often than the true one next to it, so that even a unanimous vote would lose. Take "
                "'likelihood' or 'inverse', or KRandomizedResponse."
            )
        counts = count_reports(reports, channel.shape[1])
        heard = counts.sum(axis=1) > 0
        return np.where(heard, _estimate(counts, channel, chosen).argmax(axis=1), ABSTAIN)
    sums, heard = _sum(reports, n_classes)
    return np.where(heard, sums.argmax(axis=1), ABSTAIN)


def count_reports(reports: npt.ArrayLike, outcomes: int) -> IntArray:
    """Return how often each outcome was reported, c_j(x): shape (queries, outcomes); absent entities are not counted.

    Parameters
    ----------
    reports : integer array of shape (entities, queries)
        Outcome per entity and query, or −1.
    outcomes : int
        Number of outcomes: columns of the channel.
    """
    reports = ballots_between(reports, outcomes, "`reports`", "(entities, queries)")
    queries: int = reports.shape[1]
    places = reports.astype(np.int64) + np.arange(queries) * outcomes
    return np.bincount(places[reports != ABSTAIN], minlength=queries * outcomes).reshape(queries, outcomes)


def invert_channel(counts: IntArray, channel: FloatArray) -> FloatArray:
    """Return unbiased estimates of the votes for each class, of shape (queries, classes); they may be negative.

    Parameters
    ----------
    counts : integer array of shape (queries, outcomes)
        Reports of each outcome.
    channel : array of shape (classes, outcomes)
        `ClassResponse.channel`.
    """
    # E[counts] = votes · channel, and channel · pinv(channel) = 1 for rows that are linearly independent.
    return counts @ np.linalg.pinv(channel)


def maximize_likelihood(counts: IntArray, channel: FloatArray) -> FloatArray:
    """Return the shares of the classes that make the reports likeliest, of shape (queries, classes); rows sum to 1.

    Expectation maximization from equal shares, until no share moves by 1e-7 in a step, 2000 steps at most: the
    likelihood is concave, and no step lowers it. Shares stay equal where nothing was reported. Parameters are those of
    `invert_channel`.
    """
    shares = np.full((len(counts), len(channel)), 1 / len(channel))
    heard = np.flatnonzero(counts.sum(axis=1))
    for start in range(0, len(heard), _QUERIES_AT_ONCE):
        part = heard[start : start + _QUERIES_AT_ONCE]
        shares[part] = _shares(counts[part], channel)
    return shares


def plurality_threshold(channel: npt.NDArray[Any]) -> Any:
    """Return the share of the votes above which the reports of many entities are most often the winner's.

    It holds for all votes of the others: at or below it, there are votes of which a wrong class is reported most often,
    however many entities there are. 1/2 for randomized response; 1 where not even all votes suffice.

    Parameters
    ----------
    channel : array of shape (classes, outcomes)
        `ClassResponse.channel`, or the same in exact numbers.
    """
    n_classes, highest = len(channel), channel[0, 0] * 0
    for winner in range(n_classes):
        for rival in set(range(n_classes)) - {winner}:
            behind = channel[:, rival] - channel[:, winner]
            lead, most = -behind[winner], max(np.delete(behind, winner))
            if lead <= 0:
                return 1 + highest * 0
            highest = max(highest, most / (most + lead)) if most > 0 else highest
    return highest


def _shares(counts: IntArray, channel: FloatArray) -> FloatArray:
    frequencies = counts / counts.sum(axis=1, keepdims=True)
    shares = np.full((len(counts), len(channel)), 1 / len(channel))
    for _ in range(_MOST_STEPS):
        moved = shares * ((frequencies / (shares @ channel)) @ channel.T)
        settled = np.abs(moved - shares).max(initial=0) < _SETTLED
        shares = moved
        if settled:
            break
    return shares


def _estimate(counts: IntArray, channel: FloatArray, decoder: Decoder) -> npt.NDArray[Any]:
    match decoder:
        case Decoder.PLURALITY:
            return counts[:, : len(channel)]
        case Decoder.INVERSE:
            return invert_channel(counts, channel)
        case Decoder.LIKELIHOOD:
            return maximize_likelihood(counts, channel)


def _sum(reports: npt.ArrayLike, n_classes: int) -> tuple[IntArray, npt.NDArray[np.bool_]]:
    """Return the summed reports of each query and class, and a mask of the queries with reports."""
    reports = np.asarray(reports)
    if reports.ndim != 3 or reports.shape[2] != n_classes or not np.issubdtype(reports.dtype, np.integer):
        raise InvalidBallotError(
            f"`reports` of LocalGaussian must be an integer array of shape (entities, queries, {n_classes}). "
            f"Got {reports.dtype} of shape {reports.shape}."
        )
    return reports.sum(axis=0), np.any(reports != 0, axis=(0, 2))


def _known_decoder(decoder: Decoder | str | None, mechanism: LocalMechanism) -> Decoder:
    if decoder is None:
        by_plurality = isinstance(mechanism, KRandomizedResponse | LocalGaussian)
        return Decoder.PLURALITY if by_plurality else Decoder.LIKELIHOOD
    if decoder not in list(Decoder):
        raise InvalidParameterError(f"`decoder` must be one of {', '.join(Decoder)}. Got {decoder!r}.")
    chosen = Decoder(decoder)
    if chosen is not Decoder.PLURALITY and not isinstance(mechanism, ClassResponse):
        raise InvalidParameterError(
            f"`decoder` of {type(mechanism).__name__} must be 'plurality', the largest sum: it has no channel. "
            f"Got {chosen.value!r}."
        )
    return chosen
