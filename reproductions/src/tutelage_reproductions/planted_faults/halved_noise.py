"""One fault for every mechanism of the registry: half the noise that its event states."""

import warnings
from typing import Any, cast, final

import numpy as np

from tutelage._internal.typing import ABSTAIN, IntArray
from tutelage.audit.mechanism import law_p_value
from tutelage.events import NoisyBallot, Repeated
from tutelage.exceptions import AsPrintedWarning
from tutelage.mechanisms import InteractiveGNMax, Mechanism
from tutelage.mechanisms.registry import CENTRAL, RegistryEntry
from tutelage.noise import NoiseSource, SystemNoise
from tutelage.privacy import ONE_TEACHER
from tutelage.testing.laws import discrete_gaussian_masses, label_law, made_up_votes
from tutelage_consortium.local import LOCAL, ClassResponse, LocalMechanism
from tutelage_reproductions.planted_faults.fault import Check, Fault

_DRAWS, _LEVEL = 6_000, 1e-6
_COUNTS = (4, 2, 1)
_CLASSES, _REACH = 4, 20


@final
class HalvedNoise:
    """Draws everything with half the noise that it is asked for."""

    simulated = False

    def discrete_laplace(self, scale: float, shape: tuple[int, ...]) -> IntArray:
        """Draw with half the scale."""
        return SystemNoise().discrete_laplace(scale / 2, shape)

    def discrete_gaussian(self, sigma: float, shape: tuple[int, ...]) -> IntArray:
        """Draw with half of sigma."""
        return SystemNoise().discrete_gaussian(sigma / 2, shape)

    def gumbel_argmax(self, counts: IntArray, scale: float) -> IntArray:
        """Draw with half the scale."""
        return SystemNoise().gumbel_argmax(counts, scale / 2)

    def exponential_argmax(self, counts: IntArray, scale: float) -> IntArray:
        """Draw with half the scale."""
        return SystemNoise().exponential_argmax(counts, scale / 2)

    def randomized_response(self, classes: IntArray, n_classes: int, epsilon: float) -> IntArray:
        """Draw with twice the epsilon."""
        return SystemNoise().randomized_response(classes, n_classes, 2 * epsilon)


def fault_of(entry: RegistryEntry[Any]) -> Fault:
    """Return the fault of one mechanism, and the comparison with its exact law that must notice it."""
    return Fault(
        name=f"half the noise in {entry.name}",
        planted="a source of noise that halves every scale",
        caught_by="comparison of the releases with their exact law",
        check=_keeps_the_law_of(entry),
        right=SystemNoise(),
        wrong=HalvedNoise(),
    )


def _keeps_the_law_of(entry: RegistryEntry[Any]) -> Check:
    def check(noise: NoiseSource) -> bool:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AsPrintedWarning)
            mechanism = entry.make_of_few_votes()
        if isinstance(mechanism, LocalMechanism):
            return _p_value_of_reports(mechanism, noise) > _LEVEL
        return _p_value_of_labels(mechanism, noise) > _LEVEL

    return check


def _p_value_of_labels(mechanism: Mechanism, noise: NoiseSource) -> float:
    counts = np.array(_COUNTS)
    votes = made_up_votes(mechanism, tuple(counts.tolist()), _DRAWS, int(counts.sum()))
    student = np.full(votes.counts.shape, 1 / len(counts)) if mechanism.takes_predictions else None
    release = mechanism.release(votes, noise, student)
    event = mechanism.event_of_one(len(counts), ONE_TEACHER, simulated=False)
    one = event.event if isinstance(event, Repeated) else event
    offsets = None if student is None else InteractiveGNMax.offsets(student[0], votes.n_teachers)
    labels = np.where(release.voted, release.labels.ravel(), ABSTAIN)
    return law_p_value(labels, label_law(one, counts, offsets))


def _p_value_of_reports(mechanism: LocalMechanism, noise: NoiseSource) -> float:
    reports = mechanism.perturb(np.zeros((1, _DRAWS), dtype=np.int64), _CLASSES, noise)[0]
    if isinstance(mechanism, ClassResponse):
        return law_p_value(reports, np.append(mechanism.channel(_CLASSES)[0], 0.0))
    event = mechanism.event_of_one(_CLASSES, ONE_TEACHER, simulated=False)
    sigma = cast("NoisyBallot", event).sigma  # all others report a class
    noised = reports[:, 1]  # no vote was for this class
    return law_p_value(noised + _REACH, np.append(discrete_gaussian_masses(sigma, _REACH), 0.0))


HALVED_NOISE: dict[str, Fault] = {
    name: fault_of(entry) for entries in (CENTRAL, LOCAL) for name, entry in entries.items()
}
