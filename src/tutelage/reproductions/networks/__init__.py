"""Networks that only a reproduction uses; needs the torch extra."""

from tutelage.reproductions.networks.tutorial import TutorialNetwork

__all__ = ["TutorialNetwork"]
