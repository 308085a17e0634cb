"""Teachers that are neural networks; needs the torch extra."""

try:
    import torch  # noqa: F401
except ModuleNotFoundError as error:  # pragma: no cover  an environment without torch
    raise ModuleNotFoundError("Network teachers need torch: pip install 'tutelage[torch]'.", name="torch") from error

from tutelage.teachers.networks.convolutions import ImageInput, RandomShift, TwoConvolutions
from tutelage.teachers.networks.ensemble import NetworkTeachers
from tutelage.teachers.networks.recipe import Network

__all__ = ["ImageInput", "Network", "NetworkTeachers", "RandomShift", "TwoConvolutions"]
