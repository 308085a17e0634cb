"""What every kind of teacher ensemble can do."""

from typing import Protocol

from tutelage._typing import Ballots, Matrix
from tutelage.neighboring import PrivacyUnit


class TeacherEnsemble(Protocol):
    """Teachers, each fitted on its own shard, that vote on public rows."""

    @property
    def n_classes(self) -> int:
        """Number of classes voted on."""
        ...

    @property
    def unit(self) -> PrivacyUnit:
        """Whose change moves at most one teacher's ballots."""
        ...

    def ballots(self, X_public: Matrix) -> Ballots:
        """Return each teacher's class index, or −1, on each row: shape (teachers, rows); private."""
        ...
