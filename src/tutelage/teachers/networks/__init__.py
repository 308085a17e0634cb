"""Teachers that are neural networks."""

from tutelage import networks as networks
from tutelage.teachers.networks.ensemble import Network, NetworkTeachers

__all__ = ["Network", "NetworkTeachers"]
