"""Teachers that are neural networks."""

import tutelage.networks  # noqa: F401  says how to get torch where it is missing
from tutelage.teachers.networks.ensemble import Network, NetworkTeachers

__all__ = ["Network", "NetworkTeachers"]
