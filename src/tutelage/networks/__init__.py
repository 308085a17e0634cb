"""Neural networks that teachers and students may be made of; needs the torch extra."""

try:
    import torch  # noqa: F401
except ModuleNotFoundError as error:  # pragma: no cover  an environment without torch
    raise ModuleNotFoundError("Neural networks need torch: pip install 'tutelage[torch]'.", name="torch") from error

from tutelage.networks.convolutions import ImageInput, RandomShift, TwoConvolutions
from tutelage.networks.devices import device_named
from tutelage.networks.randomness import drawing_from
from tutelage.networks.residual import ResidualNetwork

__all__ = ["ImageInput", "RandomShift", "ResidualNetwork", "TwoConvolutions", "device_named", "drawing_from"]
