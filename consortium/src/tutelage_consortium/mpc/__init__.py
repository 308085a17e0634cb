"""Three computing parties that find labels in secret-shared votes, over MPyC and mutual TLS 1.3."""

from tutelage_consortium.mpc.connect import Endpoint, run_party
from tutelage_consortium.mpc.session import Session

__all__ = ["Endpoint", "Session", "run_party"]
