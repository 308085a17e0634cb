"""What every kind of teacher ensemble can do."""

from typing import Protocol

from tutelage._typing import Ballots, Matrix


class TeacherEnsemble(Protocol):
    """Teachers, each fitted on its own shard, that vote on public rows."""

    def ballots(self, X_public: Matrix) -> Ballots:
        """Return each teacher's class index, or −1, on each row: shape (teachers, rows); private."""
        ...
