"""What so many queries under a consortium's terms cost, for whoever sees nothing but what is released."""

from tutelage.accounting.data_independent import epsilon
from tutelage.budget import PublicEpsilon
from tutelage.events import Event, Repeated
from tutelage.federation.consortium import Consortium
from tutelage.federation.noise_shares import event_of_one
from tutelage.mechanisms.local import LocalMechanism


def event_of_query(consortium: Consortium) -> Event:
    """Return the most that one query under these terms is; every ledger of the consortium is charged this.

    Parameters
    ----------
    consortium : Consortium
        Its terms.
    """
    mechanism = consortium.mechanism
    if isinstance(mechanism, LocalMechanism):
        return mechanism.event_of_one(consortium.n_classes, consortium.unit, simulated=False)
    return event_of_one(mechanism, consortium.n_classes, consortium.unit, consortium.honest, simulated=False)


def epsilon_of_queries(consortium: Consortium, queries: int, delta: float) -> PublicEpsilon:
    """Return the ε of `queries` queries, each charged as if it was answered.

    Parameters
    ----------
    consortium : Consortium
        Its terms.
    queries : int
        How many an entity takes part in.
    delta : float
        Target δ in (0, 1).

    Raises
    ------
    UnsupportedEventError
        If no theorem bounds the mechanism.
    """
    return epsilon(Repeated(event_of_query(consortium), queries), delta)
