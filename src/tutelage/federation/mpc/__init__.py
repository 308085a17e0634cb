"""Three computing parties that find labels in secret-shared votes, over MPyC and mutual TLS 1.3."""

from tutelage.federation.mpc.connect import Endpoint, run_party
from tutelage.federation.mpc.session import Session

__all__ = ["Endpoint", "Session", "run_party"]
