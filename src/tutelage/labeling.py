"""Labeling public rows: budget is spent from a ledger, then labels are released, at once or in rounds."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, final

import numpy as np
import numpy.typing as npt

from tutelage._internal.releases import on_one_day
from tutelage._internal.typing import ABSTAIN, Array, FloatArray, IntArray, Matrix
from tutelage._internal.validation import require_instance
from tutelage._internal.warned import warn
from tutelage.accounting import Accountant
from tutelage.ballots import OneHot, VoteHistogram
from tutelage.boundary import Boundary, require_name_of_its_own
from tutelage.digests import row_bytes
from tutelage.events import CappedArgmaxGaussian, ConfidenceCheck, InteractiveCheck, Repeated
from tutelage.exceptions import (
    InvalidDataError,
    InvalidParameterError,
    PreflightWarning,
    UnsupportedEventError,
)
from tutelage.ledger import Ledger
from tutelage.mechanisms import InteractiveGNMax, Mechanism, Release
from tutelage.methods.requests import Request, first_places
from tutelage.methods.rounds import AskedRounds, Rounds
from tutelage.methods.votes import VOTES, FittedTeachers, TalliedVotes, VotingPeople
from tutelage.noise import NoiseSource, known_noise
from tutelage.students.selection import QuerySelector
from tutelage.teachers import NearestTeachers
from tutelage.teachers.base import TeacherEnsemble

__all__ = ["LabelingSession", "ask_in_rounds"]


@final
class LabelingSession:
    """Ask teachers about public rows within the budget of a ledger.

    The budget of each query is spent before its noise is drawn, and its label is remembered: asking it again, in this
    or in any other session on the same ledger, returns the same label and spends nothing. With fresh noise, an attacker
    could repeat the query and average the noise away.

    Parameters
    ----------
    voters : VoteHistogram, TeacherEnsemble or NearestTeachers
        Private votes, tallied beforehand: row i is about row i of every batch asked, or of `X_voted`; or fitted
        teachers, who vote on whatever is asked. `CappedGNMax` holds `NearestTeachers` to its cap over all that is ever
        asked through the ledger, at the cost of one batch; of a VoteHistogram it charges every batch.
    mechanism : Mechanism
        How votes are released.
    ledger : Ledger
        The budget of the private data that the votes come from.
    question : str, optional
        What is voted on, where one data set is asked several things about the same rows: answers are remembered by it.
    X_voted : array of shape (rows, ...), optional
        The public rows that a `VoteHistogram` is about, row by row: then any of them may be asked, in any order. Of
        rows that occur twice the first one's votes count.
    noise : NoiseSource, optional
        Default: `SystemNoise`. `SimulationNoise` marks every answer and the ledger as not private.

    Notes
    -----
    The caller must make sure that the votes come from the data of that ledger; only units of privacy are compared.

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
        voters: VoteHistogram | TeacherEnsemble | NearestTeachers,
        mechanism: Mechanism,
        ledger: Ledger,
        *,
        question: str = "",
        X_voted: npt.ArrayLike | None = None,
        noise: NoiseSource | None = None,
    ) -> None:
        require_instance("LabelingSession.mechanism", "be a Mechanism", mechanism, Mechanism)
        require_instance("LabelingSession.ledger", "be a Ledger", ledger, Ledger)
        require_name_of_its_own(mechanism)
        self._voters = _voters_of(voters, X_voted)
        self.mechanism: Final = mechanism
        self.ledger: Final = ledger
        source = known_noise(noise, "LabelingSession")
        self._question = question
        self._boundary = Boundary(ledger, source, self._voters)
        event = mechanism.event_of_one(voters.n_classes, voters.unit, simulated=source.simulated)
        cap = event.cap if isinstance(event, CappedArgmaxGaussian) else None
        self._form = OneHot(voters.n_classes, voters.unit, cap)
        # A teacher's votes are held to the cap over all that is asked only where it is known whose they are.
        self._campaign = isinstance(self._voters, VotingPeople) and cap is not None

    @property
    def takes_any_rows(self) -> bool:
        """Whether rows may be asked one by one: not where votes do not know which rows they are about."""
        return not isinstance(self._voters, TalliedVotes) or self._voters.place_of_row is not None

    @property
    def n_classes(self) -> int:
        """Number of classes voted on."""
        return self._form.n_classes

    @property
    def n_remembered(self) -> int:
        """Number of different queries that an earlier session had answered: these votes do not show in them."""
        return self._boundary.n_remembered

    @property
    def n_drawn(self) -> int:
        """Number of different queries whose noise was drawn in this session."""
        return self._boundary.n_drawn

    @property
    def reservations(self) -> frozenset[int]:
        """The entries of the ledger under which the answers to this session's queries were drawn, now or earlier."""
        return self._boundary.reservations

    @property
    def fitting(self) -> int:
        """How many more new queries the budget allows, each at its most expensive."""
        return self._boundary.n_fitting(self._request(np.zeros((1, 1)), None))

    @property
    def votes(self) -> tuple[VoteHistogram, ...]:
        """The private votes that noise was added to: one histogram per batch that had new queries."""
        return tuple(noised.ballots for noised in self._boundary.noised)

    def affordable(self, X_public: npt.ArrayLike, predictions: npt.ArrayLike | None = None) -> int:
        """Return how many of these rows, from the first on, the budget allows now; those asked before are free.

        Parameters
        ----------
        X_public, predictions
            As for `ask`, the most wanted rows first.
        """
        request = self._request(*_as_arrays(X_public, predictions))
        return self._boundary.n_fitting_rows(request, self._boundary.keys(request))

    @on_one_day()
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
            Labels, with −1 where the mechanism abstained; the event, as it happened; and its cost.

        Raises
        ------
        BudgetExceededError
            If the new rows do not all fit; the message says how many would. Nothing was spent.
        UnsupportedEventError, InvalidDataError
            If no budget allows even one label, or rows, votes and predictions do not fit. Nothing was spent.
        LedgerError
            If the ledger cannot be used. Its reserved budget stays spent; labels that were drawn and could not be
            stored are kept in this session, and the next `ask` stores them before anything else.
        """
        rows, student = self._checked_rows(X_public, predictions)
        answer = self._boundary.release(self._request(rows, student))
        return Release(answer.labels, answer.event, answer.cost)

    @on_one_day()
    def run(self, rounds: Rounds) -> AskedRounds:
        """Ask round after round; `ask_in_rounds` checks the rounds before."""

        def asking(chosen: IntArray, predictions: FloatArray | None, partial: bool) -> Request:
            rows, student = self._checked_rows(rounds.rows[chosen], predictions)
            return replace(self._request(rows, student), partial=partial)

        return self._boundary.run(rounds.steps(asking))

    def accountant(self, *, progress: bool = False) -> Accountant:
        """Return an accountant of all releases of this session, as they happened, with its private votes.

        Raises
        ------
        UnsupportedEventError
            If the class of the mechanism does not set `noises_votes_as_given`.
        """
        _require_votes_as_given(self.mechanism)
        accountant = Accountant(progress=progress)
        for noised in self._boundary.noised:
            votes = noised.ballots
            for part in noised.drawn.event.flatten():
                event = Repeated(part.event, part.times)
                if isinstance(part.event, ConfidenceCheck):
                    accountant.add(event, votes)
                elif isinstance(part.event, InteractiveCheck) and noised.predictions is not None:
                    accountant.add(event, votes, offsets=_offsets(noised.predictions, votes))
                else:
                    accountant.add(event, votes.select(noised.drawn.voted), at_most=votes.n_queries)
        return accountant

    def released(
        self,
        X_public: npt.ArrayLike,
        predictions: npt.ArrayLike | None = None,
        *,
        progress: bool = False,
    ) -> Accountant:
        """Return an accountant of the answers that the ledger remembers for these rows, with this session's votes.

        For what an earlier session released: these must be the votes behind it. An answer that was the student's own
        counts as one of the teachers', which costs more.

        Parameters
        ----------
        X_public, predictions
            As they were asked; each row counts once.
        progress : bool
            Show a progress bar on exact costs that take long.

        Raises
        ------
        InvalidDataError, UnsupportedEventError
            If a row was not answered yet, or rows, votes and predictions do not fit; and as for `accountant`.
        """
        _require_votes_as_given(self.mechanism)
        rows, student = self._checked_rows(X_public, predictions)
        request = self._request(rows, student)
        hashes = self._boundary.keys(request)
        answers = self._boundary.account.recall(hashes)
        if len(answers) < len(set(hashes)):
            raise InvalidDataError(
                "`X_public` holds a row that this ledger has no label for with this mechanism, question and columns. "
                "Pass those of its query, or query the row first."
            )
        first = list(first_places(hashes).values())
        # labels, answered: (different queries,); offsets: (different queries, classes)
        votes: Any = self._voters.votes(request, np.array(first))
        accountant = Accountant(progress=progress)
        answered = None
        offsets = None
        if _promises(self.mechanism, "shows_every_answer"):
            labels = np.array([answers[hashes[place]] for place in first]).ravel()
            answered = labels != ABSTAIN
        if isinstance(self.mechanism, InteractiveGNMax) and student is not None:
            offsets = _offsets(student[first], votes)
        accountant.add_release(self._boundary.event_of_one(request), votes, answered, offsets)
        return accountant

    def _request(self, rows: Matrix, predictions: FloatArray | None) -> Request:
        return Request(
            mechanism=self.mechanism,
            form=self._form,
            subject={"question": self._question},
            ballot=VOTES,
            rows=rows,
            predictions=predictions,
            campaign=self._campaign,
        )

    def _checked_rows(
        self, X_public: npt.ArrayLike, predictions: npt.ArrayLike | None
    ) -> tuple[Matrix, FloatArray | None]:
        rows, student = _as_arrays(X_public, predictions)
        if rows.ndim == 0 or len(rows) == 0:
            raise InvalidDataError(
                f"`X_public` must hold at least one row. Got shape {rows.shape}."
            )
        if student is not None and student.shape[:1] != rows.shape[:1]:
            raise InvalidDataError(
                f"`predictions` must have one row per public row. Got shape {student.shape} for {len(rows)} rows."
            )
        self.check_voted(rows)
        return rows, student

    def check_voted(self, X_public: npt.ArrayLike) -> None:
        """Raise `InvalidDataError` for public rows that have no votes: that are not in `X_voted`, or not as many."""
        if not isinstance(self._voters, TalliedVotes):
            return
        known = self._voters.place_of_row
        if known is None:
            _check_count(self._voters.histogram, len(np.asarray(X_public)), "public rows")
        elif any(row not in known for row in row_bytes(X_public)):
            raise InvalidDataError(
                "`X_public` holds a row that is not in `X_voted`. Ask about rows that were voted on."
            )


def ask_in_rounds(
    session: LabelingSession,
    X_public: npt.ArrayLike,
    n_queries: Sequence[int],
    *,
    first: QuerySelector,
    then: QuerySelector | None = None,
    student: Any = None,
    features: npt.ArrayLike | None = None,
    seed: int = 0,
) -> AskedRounds:
    """Return the labels of public rows, chosen round by round from public rows and the labels released before.

    The budget of every query is spent when it is asked. The first round fits into the budget or is refused; a later one
    asks only what is left, its most wanted rows. After an interruption the same call goes on where it was: what was
    answered is remembered, so it is chosen again and costs nothing; if the budget had cut it short, it may go on a
    little, for what checks gave back. Equal rows are one query.

    Parameters
    ----------
    session : LabelingSession
        Whom to ask, how, and within which budget. Votes that were tallied beforehand need its `X_voted`.
    X_public : array of shape (rows, ...)
        Public rows to choose from.
    n_queries : sequence of int
        How many rows to ask in each round.
    first : QuerySelector
        How the first round is chosen.
    then : QuerySelector, optional
        How later rounds are chosen, as soon as it is `ready`, and before that like the first. Default: like the first.
    student : scikit-learn classifier, optional
        Retrained before every round that uses its probabilities, by rule or for `InteractiveGNMax`, on the labels
        released so far; while these are of one class, all classes count as equally likely.
    features : array of shape (rows, features), optional
        Public features that selectors and student see instead of the rows.
    seed : int
        Of selection and training, never of noise.

    Raises
    ------
    InvalidParameterError, InvalidDataError, BudgetExceededError
        If a round has no size or needs a missing student, if more rows are to be asked than there are, or if the first
        round does not fit. Nothing was spent.
    """
    rows = np.asarray(X_public)
    rounds = Rounds(
        mechanism=session.mechanism,
        rows=rows,
        # A copy, so that callers cannot change it in place.
        seen=np.array(rows if features is None else features),
        n_classes=session.n_classes,
        sizes=n_queries,
        first=first,
        then=then or first,
        student=student,
        seed=seed,
    )
    rounds.check()
    if not session.takes_any_rows:
        raise InvalidParameterError(
            "LabelingSession.X_voted",
            "be passed if you use ask_in_rounds, which needs the rows that the votes are about",
        )
    if len(n_queries) > 1:
        session.check_voted(rows)
    return session.run(rounds)


def _voters_of(
    voters: VoteHistogram | TeacherEnsemble | NearestTeachers, X_voted: npt.ArrayLike | None
) -> TalliedVotes | VotingPeople | FittedTeachers:
    """Return the voters of a session, with the rows that they vote on."""
    if isinstance(voters, VoteHistogram):
        _warn_of_ballots(voters)
        if X_voted is None:
            return TalliedVotes(voters, None)
        rows = _as_array(X_voted, "X_voted", None)
        _check_count(voters, len(rows), "rows in `X_voted`")
        return TalliedVotes.on(voters, rows)
    if not callable(getattr(voters, "ballots", None)) and not isinstance(voters, NearestTeachers):
        raise InvalidParameterError(
            "LabelingSession.voters",
            "be a VoteHistogram or fitted teachers",
            f"a {type(voters).__name__}",
        )
    if X_voted is not None:
        raise InvalidParameterError(
            "LabelingSession.X_voted",
            "be left out if $voters are teachers, because teachers can vote on any rows",
        )
    if isinstance(voters, NearestTeachers):
        return VotingPeople(voters)
    return FittedTeachers(voters)


def _warn_of_ballots(votes: VoteHistogram) -> None:
    """Warn whoever has the votes if their form is that of ballots, of which one teacher has a whole row."""
    square = votes.cap is None and votes.n_queries == votes.n_teachers
    if square and votes.counts.sum(axis=1).max() < votes.n_teachers:
        warn(
            "The votes have as many queries as teachers, and no query has the votes of all teachers. If `counts` are "
            "ballots of shape (teachers, queries), count them first with `tally(ballots, n_classes)`: otherwise ε is "
            "wrong.",
            PreflightWarning,
        )


def _check_count(votes: VoteHistogram, rows: int, what: str) -> None:
    if votes.n_queries != rows:
        raise InvalidDataError(
            f"The votes are about {votes.n_queries} queries, and there are {rows} {what}. Pass the rows that were "
            "voted on, in the same order."
        )


def _as_arrays(
    X_public: npt.ArrayLike, predictions: npt.ArrayLike | None
) -> tuple[Matrix, FloatArray | None]:
    rows = _as_array(X_public, "X_public", None)
    if predictions is None:
        return rows, None
    return rows, _as_array(predictions, "predictions", np.float64)


def _as_array(values: npt.ArrayLike, name: str, dtype: type | None) -> Array:
    try:
        return np.asarray(values, dtype=dtype)
    except (ValueError, TypeError):
        kind = "values" if dtype is None else "numbers"
        raise InvalidDataError(
            f"`{name}` must be an array of {kind}, rows of equal length."
        ) from None


def _offsets(predictions: FloatArray, votes: VoteHistogram) -> FloatArray:
    return InteractiveGNMax.offsets(predictions, votes.n_teachers).astype(np.float64)


def _promises(mechanism: Mechanism, promise: str) -> bool:
    """Return whether the class of a mechanism makes a promise itself: a field or a parent may be true for another."""
    return vars(type(mechanism)).get(promise) is True


def _require_votes_as_given(mechanism: Mechanism) -> None:
    if not _promises(mechanism, "noises_votes_as_given"):
        raise UnsupportedEventError(
            f"The vote-dependent cost of {type(mechanism).__name__} is unknown, because it may add noise to other "
            "counts than the votes. Use the worst-case cost; or, if noise is added to the votes themselves, set "
            "`noises_votes_as_given = True` in its class."
        )
