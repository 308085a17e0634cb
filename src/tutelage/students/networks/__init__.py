"""Students that are neural networks."""

from tutelage import networks as networks
