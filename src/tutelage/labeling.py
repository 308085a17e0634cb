"""Public rows in, released labels out, and the ledger charged in between."""

from typing import NamedTuple, final

import numpy as np
import numpy.typing as npt

from tutelage._typing import FloatArray, IntArray, Matrix
from tutelage.accounting import Accountant
from tutelage.accounting.data_independent import flatten
from tutelage.events import ConfidenceCheck, Event, InteractiveCheck, Repeated
from tutelage.exceptions import InvalidDataError
from tutelage.ledger import Ledger
from tutelage.mechanisms import InteractiveGNMax, Mechanism, Release
from tutelage.noise import NoiseSource, known_noise
from tutelage.teachers import TeacherEnsemble
from tutelage.votes import VoteHistogram, tally, tally_findings


class _Asked(NamedTuple):
    """A batch that was charged; private, because of the votes."""

    votes: VoteHistogram
    release: Release
    offsets: IntArray | None


@final
class LabelingSession:
    """Ask teachers about public rows within the budget of a ledger.

    Each query is charged before its noise is drawn, and its answer is remembered: asking it again, in this or in any
    other session on the same ledger, returns the same answer at no cost. Fresh noise for a repeated query would let
    whoever repeats it average the noise away.

    Parameters
    ----------
    voters : VoteHistogram or TeacherEnsemble
        Private votes, tallied beforehand: row i is about row i of every batch asked; or fitted teachers, who vote on
        whatever is asked.
    mechanism : Mechanism
        How votes are released.
    ledger : Ledger
        The budget of the private data that the votes come from.
    question : str, optional
        What is voted on, where one data set is asked several things about the same rows: answers are remembered by it.
    noise : NoiseSource, optional
        Default: `SystemNoise`. `SimulationNoise` marks every answer and the ledger as not private.

    Notes
    -----
    That the votes come from the data of that ledger is for the caller to see to; units of privacy are compared.

    Examples
    --------
    >>> import numpy as np
    >>> from tutelage import GNMax, Ledger, VoteHistogram
    >>> votes = VoteHistogram(np.array([[230, 15, 5], [10, 236, 4]]), n_teachers=250)
    >>> ledger = Ledger.in_memory(epsilon=1.0, delta=1e-5, unit=votes.unit)
    >>> session = LabelingSession(votes, GNMax(sigma=20.0), ledger)
    >>> X_public = np.array([[0.1, 0.7], [0.4, 0.2]])
    >>> session.ask(X_public).labels
    array([0, 1])
    >>> session.ask(X_public).cost
    0.0
    """

    def __init__(
        self,
        voters: VoteHistogram | TeacherEnsemble,
        mechanism: Mechanism,
        ledger: Ledger,
        *,
        question: str = "",
        noise: NoiseSource | None = None,
    ) -> None:
        self._voters, self._mechanism, self._ledger = voters, mechanism, ledger
        self._question = question
        self._noise = known_noise(noise, "LabelingSession")
        self._asked: list[_Asked] = []

    @property
    def ledger(self) -> Ledger:
        """The ledger that is charged."""
        return self._ledger

    @property
    def fitting(self) -> int:
        """How many more new queries the budget allows, each at its most expensive."""
        return self._ledger.fitting(self._event_of_one())

    def ask(self, X_public: npt.ArrayLike, predictions: npt.ArrayLike | None = None) -> Release:
        """Return the labels of public rows; those asked before come from memory and cost nothing.

        Choose rows by public data and released labels only. All new rows fit into the budget, or none is answered.

        Parameters
        ----------
        X_public : array of shape (queries, ...)
            Public rows, of numbers or text.
        predictions : array of shape (queries, classes), optional
            The student's predicted probabilities, for `InteractiveGNMax`; a row asked with other predictions is another
            query.

        Returns
        -------
        Release
            Labels, with −1 where the mechanism abstained; the event that was charged, as it happened; and its cost.

        Raises
        ------
        BudgetExceededError
            If the new rows do not all fit; the message says how many would. Nothing was spent.
        InvalidDataError
            If rows, votes and predictions do not fit each other. Nothing was spent.
        LedgerError
            If the ledger cannot be used. Whatever it had reserved stays spent.
        """
        rows = np.asarray(X_public)
        beside = [] if predictions is None else [np.asarray(predictions, dtype=np.float64)]
        self._check_rows(rows, beside)
        queries = self._ledger.query_hashes(
            _context(self._mechanism, self._event_of_one(), self._question), X_public, *beside
        )
        answers = self._ledger.recall(queries)
        first_places = {query: place for place, query in reversed(list(enumerate(queries)))}
        fresh = [place for query, place in sorted(first_places.items(), key=lambda at: at[1]) if query not in answers]
        event, cost = Repeated(self._event_of_one(), 0), 0.0
        if fresh:
            self._ledger.require(self._event_of_one(), len(fresh))  # before teachers vote in vain
            votes = self._votes(rows, fresh)
            student = beside[0][fresh] if beside else None
            self._mechanism.check(votes, student)
            reservation = self._ledger.reserve(self._event_of_one(), len(fresh))
            drawn = self._mechanism.release(votes, self._noise, student)
            labels = drawn.labels.reshape(len(fresh), -1).tolist()
            new = {queries[place]: tuple(row) for place, row in zip(fresh, labels, strict=True)}
            self._asked.append(_Asked(votes, drawn, self._offsets(student, votes)))
            settled = self._ledger.settle(reservation, new, drawn.event)
            answers |= settled.labels
            event, cost = drawn.event, settled.cost
        shape = (len(rows),) if self._mechanism.votes_per_query == 1 else (len(rows), self._mechanism.votes_per_query)
        labels = np.array([answers[query] for query in queries], dtype=np.int64).reshape(shape)
        return Release(labels, event, cost)

    def accountant(self, *, progress: bool = False) -> Accountant:
        """Return an accountant of everything that this session was charged for, as it happened, with its private votes.

        Parameters
        ----------
        progress : bool
            Show a progress bar on exact costs that take long.
        """
        accountant = Accountant(progress=progress)
        for asked in self._asked:
            for part in flatten(asked.release.event):
                event = Repeated(part.event, part.times)
                if isinstance(part.event, ConfidenceCheck):
                    accountant.add(event, asked.votes)
                elif isinstance(part.event, InteractiveCheck):
                    accountant.add(event, asked.votes, offsets=np.asarray(asked.offsets, dtype=np.float64))
                else:
                    answered = asked.votes.select(asked.release.voted)
                    accountant.add(event, answered, at_most=asked.votes.n_queries)
        return accountant

    def _event_of_one(self) -> Event:
        voters = self._voters
        return self._mechanism.event_of_one(voters.n_classes, voters.unit, simulated=self._noise.simulated)

    def _check_rows(self, rows: Matrix, beside: list[FloatArray]) -> None:
        if rows.ndim == 0 or len(rows) == 0:
            raise InvalidDataError(f"`X_public` must hold at least one row. Got shape {rows.shape}.")
        if beside and beside[0].shape[:1] != rows.shape[:1]:
            raise InvalidDataError(
                f"`predictions` must have one row per public row. Got {beside[0].shape} for {len(rows)} rows."
            )
        per_query = self._mechanism.votes_per_query
        if isinstance(self._voters, VoteHistogram) and self._voters.n_queries != len(rows) * per_query:
            raise InvalidDataError(
                f"The votes are about {self._voters.n_queries // per_query} queries, and `X_public` has {len(rows)} "
                "rows. Pass the rows that were voted on, in the same order."
            )

    def _votes(self, rows: Matrix, fresh: list[int]) -> VoteHistogram:
        per_query = self._mechanism.votes_per_query
        if isinstance(self._voters, VoteHistogram):
            places = np.array(fresh)[:, None] * per_query + np.arange(per_query)
            return self._voters.select(places.ravel())
        ballots = self._voters.ballots(rows[fresh])
        if per_query > 1:
            return tally_findings(ballots, self._voters.unit)
        return tally(ballots, self._voters.n_classes, self._voters.unit)

    def _offsets(self, predictions: FloatArray | None, votes: VoteHistogram) -> IntArray | None:
        if predictions is None:
            return None
        return InteractiveGNMax.offsets(predictions, votes.n_teachers)


def new_queries(
    ledger: Ledger, mechanism: Mechanism, event_of_one: Event, X_public: npt.ArrayLike, question: str
) -> int:
    """Return how many of these public rows a session would have to pay for: those asked first now, each once.

    Parameters
    ----------
    ledger : Ledger
        Where answers are remembered.
    mechanism : Mechanism
        How votes would be released.
    event_of_one : Event
        The most that one query would be.
    X_public : array of shape (queries, ...)
        Public rows.
    question : str
        What would be voted on.
    """
    queries = ledger.query_hashes(_context(mechanism, event_of_one, question), X_public)
    return len(set(queries)) - len(ledger.recall(queries))


def _context(mechanism: Mechanism, event_of_one: Event, question: str) -> dict[str, object]:
    kind = type(mechanism)
    return {
        "question": question,
        "mechanism": f"{kind.__module__}.{kind.__qualname__}",
        "parameters": repr(mechanism),
        "event": event_of_one.as_dict(),
    }
