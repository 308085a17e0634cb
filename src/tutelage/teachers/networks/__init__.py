"""Teachers that are neural networks."""

import tutelage.networks  # noqa: F401  says how to get torch where it is missing
from tutelage.teachers.networks.ensemble import NetworkTeachers
from tutelage.teachers.networks.sequential import Network

__all__ = ["Network", "NetworkTeachers"]
