"""An ε of what was released that may be published although it rests on the votes; each road pays for itself."""

from tutelage.publishing.tested import Publication, publish_epsilon

__all__ = ["Publication", "publish_epsilon"]
