"""Students that are neural networks; needs the torch extra."""

import tutelage.networks  # noqa: F401  says how to get torch where it is missing
from tutelage.students.networks.adversarial import AdversarialStudent
from tutelage.students.networks.augmentation import ImageAugmentation
from tutelage.students.networks.base import NetworkStudent
from tutelage.students.networks.consistency import ConsistencyStudent
from tutelage.students.networks.noisy_self_training import NoisySelfTrainingStudent

__all__ = [
    "AdversarialStudent",
    "ConsistencyStudent",
    "ImageAugmentation",
    "NetworkStudent",
    "NoisySelfTrainingStudent",
]
