"""Students that are neural networks; needs the torch extra."""

import tutelage.networks  # noqa: F401  says how to get torch where it is missing
from tutelage.students.networks.base import NetworkStudent

__all__ = ["NetworkStudent"]
