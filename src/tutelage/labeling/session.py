"""Labeling public rows: budget is spent from a ledger, then labels are released."""

import hashlib
import json
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple, final

import numpy as np
import numpy.typing as npt

from tutelage import mechanisms
from tutelage._internal.releases import on_one_day
from tutelage._internal.typing import ABSTAIN, FloatArray, Matrix
from tutelage.accounting import Accountant
from tutelage.events import CappedArgmaxGaussian, ConfidenceCheck, Event, InteractiveCheck, Repeated
from tutelage.exceptions import (
    InvalidDataError,
    InvalidParameterError,
    LedgerError,
    LedgerLockedError,
    LedgerStorageError,
    UnsupportedEventError,
)
from tutelage.ledger import Labels, Ledger
from tutelage.ledger.campaigns import Voters
from tutelage.ledger.ledger import Reservation, Settled
from tutelage.mechanisms import InteractiveGNMax, Mechanism, Release
from tutelage.noise import NoiseSource, known_noise
from tutelage.privacy import PrivacyUnit
from tutelage.teachers import NearestTeachers
from tutelage.teachers.base import TeacherEnsemble
from tutelage.teachers.nearest import FewVotes
from tutelage.votes import VoteHistogram, tally, tally_few

# The names of the package's own mechanisms, as keys have them.
_OWN_NAMES: dict[str, type[Mechanism]] = {
    name: kind
    for kind in vars(mechanisms).values()
    if isinstance(kind, type) and issubclass(kind, Mechanism) and kind is not Mechanism
    for name in (kind.__qualname__, kind.key_name)
}


class _Voted(NamedTuple):
    """Queries and the votes on them; private."""

    queries: list[bytes]
    votes: VoteHistogram
    predictions: FloatArray | None

    def without(self, answers: Mapping[bytes, object]) -> "_Voted":
        """Return the queries that have no answer yet, with the votes on them."""
        places = np.array([place for place, query in enumerate(self.queries) if query not in answers])
        predictions = None if self.predictions is None else self.predictions[places]
        return _Voted([self.queries[place] for place in places], self.votes.select(places), predictions)


class _Asked(NamedTuple):
    """A batch whose budget is spent; private, because of the votes."""

    votes: VoteHistogram
    release: Release
    predictions: FloatArray | None


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
        if not isinstance(voters, VoteHistogram | NearestTeachers) and not callable(getattr(voters, "ballots", None)):
            raise InvalidParameterError(
                "`voters` of LabelingSession must be a VoteHistogram or fitted teachers. Got a "
                f"{type(voters).__name__}."
            )
        for name, value, kind in (("mechanism", mechanism, Mechanism), ("ledger", ledger, Ledger)):
            if not isinstance(value, kind):
                raise InvalidParameterError(
                    f"`{name}` of LabelingSession must be a {kind.__name__}. Got a {type(value).__name__}."
                )
        _require_name_of_its_own(mechanism)
        self._voters, self._mechanism, self._ledger = voters, mechanism, ledger
        self._question = question
        self._noise = known_noise(noise, "LabelingSession")
        self._voted = None if X_voted is None else self._places_of_votes(X_voted)
        self._asked: list[_Asked] = []
        self._unstored: tuple[Reservation, dict[bytes, Labels], Event] | None = None
        self._drawn: dict[bytes, bool] = {}  # whether the noise of a query was drawn in this session or an earlier one

    @property
    def ledger(self) -> Ledger:
        """The ledger that is spent from."""
        return self._ledger

    @property
    def mechanism(self) -> Mechanism:
        """How votes are released."""
        return self._mechanism

    @property
    def takes_any_rows(self) -> bool:
        """Whether rows may be asked one by one: not where votes do not know which rows they are about."""
        return self._voted is not None or not isinstance(self._voters, VoteHistogram)

    @property
    def n_classes(self) -> int:
        """Number of classes voted on."""
        return self._voters.n_classes

    @property
    def n_remembered(self) -> int:
        """Number of different queries that an earlier session had answered: these votes do not show in them."""
        return len(self._drawn) - self.n_drawn

    @property
    def n_drawn(self) -> int:
        """Number of different queries whose noise was drawn in this session."""
        return sum(self._drawn.values())

    @property
    def reservations(self) -> frozenset[int]:
        """The entries of the ledger under which the answers to this session's queries were drawn, now or earlier."""
        return self._ledger.drawn_under(self._drawn)

    @property
    def votes(self) -> tuple[VoteHistogram, ...]:
        """The private votes that noise was added to: one histogram per batch that had new queries."""
        return tuple(asked.votes for asked in self._asked)

    @property
    def fitting(self) -> int:
        """How many more new queries the budget allows, each at its most expensive."""
        one = self._event_of_one()
        fitting = self._ledger.fitting(one)
        if isinstance(one, CappedArgmaxGaussian) and (fitting or self._is_paid(one)):
            return sys.maxsize  # one event pays for any number
        return fitting

    def affordable(self, X_public: npt.ArrayLike, predictions: npt.ArrayLike | None = None) -> int:
        """Return how many of these rows, from the first on, the budget allows now; those asked before are free.

        Parameters
        ----------
        X_public, predictions
            As for `ask`, the most wanted rows first.
        """
        hashes = self._hashes(X_public, predictions)
        remembered, new, fitting = set(self._ledger.recall(hashes)), set[bytes](), self.fitting
        for place, query in enumerate(hashes):
            new |= {query} - remembered
            if len(new) > fitting:
                return place
        return len(hashes)

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
        UnsupportedEventError
            If no budget allows even one label of the mechanism. Nothing was spent.
        InvalidDataError
            If rows, votes and predictions do not fit each other. Nothing was spent.
        LedgerError
            If the ledger cannot be used. Its reserved budget stays spent; labels that were drawn and could not be
            stored are kept in this session, and the next `ask` stores them before anything else.
        """
        rows, student = self._checked_rows(X_public, predictions)
        hashes = self._hashes(rows, student)
        with self._ledger.releasing(hashes if self._unstored is None else ()):
            return self._asked_alone(rows, student, hashes)

    def accountant(self, *, progress: bool = False) -> Accountant:
        """Return an accountant of all releases of this session, as they happened, with its private votes.

        Raises
        ------
        UnsupportedEventError
            If the class of the mechanism does not set `noises_votes_as_given`.
        """
        _require_votes_as_given(self._mechanism)
        accountant = Accountant(progress=progress)
        for asked in self._asked:
            for part in asked.release.event.flatten():
                event = Repeated(part.event, part.times)
                if isinstance(part.event, ConfidenceCheck):
                    accountant.add(event, asked.votes)
                elif isinstance(part.event, InteractiveCheck) and asked.predictions is not None:
                    offsets = InteractiveGNMax.offsets(asked.predictions, asked.votes.n_teachers)
                    accountant.add(event, asked.votes, offsets=offsets.astype(np.float64))
                else:
                    answered = asked.votes.select(asked.release.voted)
                    accountant.add(event, answered, at_most=asked.votes.n_queries)
        return accountant

    def released(
        self, X_public: npt.ArrayLike, predictions: npt.ArrayLike | None = None, *, progress: bool = False
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
        InvalidDataError
            If a row was not answered yet, or rows, votes and predictions do not fit each other.
        UnsupportedEventError
            As for `accountant`.
        """
        _require_votes_as_given(self._mechanism)
        rows, student = self._checked_rows(X_public, predictions)
        hashes = self._hashes(X_public, student)
        answers = self._ledger.recall(hashes)
        if len(answers) < len(set(hashes)):
            raise InvalidDataError(
                "`X_public` holds a row that was not answered through this ledger with this mechanism, question and "
                "columns. Name those it was asked with, or ask it first."
            )
        first = list(_first_places(hashes).values())
        votes = self._votes(rows, first)
        answered = None
        if _promises(self._mechanism, "shows_every_answer"):
            answered = np.array([answers[hashes[place]] for place in first]).ravel() != ABSTAIN
        accountant, offsets = Accountant(progress=progress), None
        if isinstance(self._mechanism, InteractiveGNMax) and student is not None:
            offsets = InteractiveGNMax.offsets(student[first], votes.n_teachers).astype(np.float64)
        accountant.add_release(self._event_of_one(), votes, answered, offsets)
        return accountant

    def _asked_alone(self, rows: Matrix, student: FloatArray | None, hashes: list[bytes]) -> Release:
        """Return the labels while no other release goes on through the ledger."""
        if self._unstored is not None:
            self._store_late(*self._unstored)
        self._unstored = None
        one, first = self._event_of_one(), _first_places(hashes)
        if isinstance(self._voters, NearestTeachers) and isinstance(one, CappedArgmaxGaussian):
            answers, event, cost = self._asked_in_campaign(self._voters, one, first, rows)
        else:
            answers, event, cost = self._asked_by_batch(one, first, rows, student)
        return Release(np.array([answers[query][0] for query in hashes], dtype=np.int64), event, cost)

    def _store_late(self, reservation: Reservation, answers: dict[bytes, Labels], happened: Event) -> None:
        """Store labels that could not be stored when they were drawn, or forget them if another process drew others."""
        if not self._ledger.is_settled(reservation):
            self._ledger.settle(reservation, answers, happened)
        elif self._ledger.recall(answers) != answers:  # it took over the step; these labels are never released
            self._asked.pop()
            self._drawn |= dict.fromkeys(answers, False)

    def _asked_by_batch(
        self, one: Event, first: dict[bytes, int], rows: Matrix, student: FloatArray | None
    ) -> tuple[dict[bytes, Labels], Event, float]:
        """Return the labels of all queries, the event and its cost: every new query spends budget."""
        voted = self._voted_on(one, first, rows, student)  # before anything is spent
        answers, reservation = self._ledger.reserve_new(one, first)
        self._note_remembered(answers)
        if reservation is None or voted is None:
            return answers, Repeated(one, 0), 0.0
        settled, event = self._settled(voted.without(answers), reservation)
        return answers | settled.labels, event, settled.share

    def _asked_in_campaign(
        self, voters: NearestTeachers, one: CappedArgmaxGaussian, first: dict[bytes, int], rows: Matrix
    ) -> tuple[dict[bytes, Labels], Event, float]:
        """Return the labels if the first batch spent the budget of all: teachers vote while they have votes left."""
        answers = self._ledger.recall(first)
        self._note_remembered(answers)
        new = [query for query in first if query not in answers]
        if not new:
            return answers, Repeated(one, 0), 0.0
        if not self._is_paid(one):
            self._ledger.require(one, 1)
        # The votes are chosen in view of the answers so far, and nothing that was not released yet.
        votes = voters.few_votes(rows[[first[query] for query in new]])
        named, wanted = Voters(voters.names, voters.data_digest), votes.per_teacher()
        granted = self._ledger.reserve_votes(one, self._campaign(one), named, wanted, queries=len(new))
        counted = _counted(votes.first(granted.votes), one.cap, voters.unit)
        settled, _ = self._settled(_Voted(new, counted, None), granted.reservation, granted.campaign)
        event = Repeated(one, int(granted.paid))
        return answers | settled.labels, event, self._ledger.share_of(event)

    def _is_paid(self, one: Event) -> bool:
        """Return whether the budget of this event's campaign is spent."""
        return self._ledger.reserved_for(self._campaign(one)) is not None

    def _campaign(self, one: Event) -> str:
        return _campaign(self._mechanism, one, self._question)

    def _note_remembered(self, answers: Mapping[bytes, Labels]) -> None:
        for query in answers:
            self._drawn.setdefault(query, False)

    def _voted_on(self, one: Event, first: dict[bytes, int], rows: Matrix, student: FloatArray | None) -> _Voted | None:
        """Return the votes on all queries that the budget allows; teachers vote on no others."""
        tallied = isinstance(self._voters, VoteHistogram)
        queries = list(first) if tallied else self._ledger.unanswered(one, first)
        if not queries:
            return None
        places = [first[query] for query in queries]
        votes, predictions = self._votes(rows, places), None if student is None else student[places]
        self._mechanism.check(votes, predictions)
        return _Voted(queries, votes, predictions)

    def _settled(
        self, voted: _Voted, reservation: Reservation, campaign: Reservation | None = None
    ) -> tuple[Settled, Event]:
        """Draw and settle what was reserved; return what counts of it, and what was run."""
        with self._ledger.drawing(reservation):
            drawn = self._mechanism.release(voted.votes, self._noise, voted.predictions)
        self._asked.append(_Asked(voted.votes, drawn, voted.predictions))
        # The mechanisms of a campaign were charged once, by the campaign.
        happened = drawn.event if campaign is None else Repeated(campaign.event, 0)
        self._drawn |= dict.fromkeys(voted.queries, True)
        answers = {query: (label,) for query, label in zip(voted.queries, drawn.labels.tolist(), strict=True)}
        try:
            return self._ledger.settle(reservation, answers, happened), happened
        except (LedgerStorageError, LedgerLockedError):
            self._unstored = reservation, answers, happened
            raise
        except LedgerError:  # the mechanism did not keep to what it had announced, perhaps because of its noise
            self._ledger.forfeit(reservation)
            raise

    def _hashes(self, X_public: npt.ArrayLike, predictions: npt.ArrayLike | None) -> list[bytes]:
        one = self._event_of_one()
        return _hashes(self._ledger, self._mechanism, one, X_public, self._question, predictions)

    def _event_of_one(self) -> Event:
        voters = self._voters
        return self._mechanism.event_of_one(voters.n_classes, voters.unit, simulated=self._noise.simulated)

    def _checked_rows(
        self, X_public: npt.ArrayLike, predictions: npt.ArrayLike | None
    ) -> tuple[Matrix, FloatArray | None]:
        rows = _as_array(X_public, "X_public", None)
        student = None if predictions is None else _as_array(predictions, "predictions", np.float64)
        if rows.ndim == 0 or len(rows) == 0:
            raise InvalidDataError(f"`X_public` must hold at least one row. Got shape {rows.shape}.")
        if student is not None and student.shape[:1] != rows.shape[:1]:
            raise InvalidDataError(
                f"`predictions` must have one row per public row. Got shape {student.shape} for {len(rows)} rows."
            )
        self.check_voted(rows)
        if self._voted is None and isinstance(self._voters, VoteHistogram):
            self._check_count(self._voters, len(rows), "public rows")
        return rows, student

    def check_voted(self, X_public: npt.ArrayLike) -> None:
        """Raise `InvalidDataError` for public rows that are not in `X_voted`: they have no votes."""
        if self._voted is not None and any(row not in self._voted for row in self.row_keys(X_public)):
            raise InvalidDataError(
                "`X_public` holds a row that is not in `X_voted`. Ask about rows that were voted on."
            )

    def row_keys(self, X_public: npt.ArrayLike) -> list[bytes]:
        """Return a key of each row, the same for equal rows and for no others."""
        return self._ledger.query_hashes({"rows": "voted"}, X_public)

    def _check_count(self, votes: VoteHistogram, rows: int, what: str) -> None:
        if votes.n_queries != rows:
            raise InvalidDataError(
                f"The votes are about {votes.n_queries} queries, and there are {rows} {what}. Pass the rows that were "
                "voted on, in the same order."
            )

    def _places_of_votes(self, X_voted: npt.ArrayLike) -> dict[bytes, int]:
        """Return where the votes on each row stand."""
        if not isinstance(self._voters, VoteHistogram):
            raise InvalidParameterError(
                "`X_voted` of LabelingSession says what a VoteHistogram is about; teachers vote on any rows. Leave it "
                "out."
            )
        hashes = self.row_keys(_as_array(X_voted, "X_voted", None))
        self._check_count(self._voters, len(hashes), "rows in `X_voted`")
        return _first_places(hashes)

    def _votes(self, rows: Matrix, fresh: list[int]) -> VoteHistogram:
        if isinstance(self._voters, VoteHistogram):
            asked = fresh if self._voted is None else [self._voted[row] for row in self.row_keys(rows[fresh])]
            return self._voters.select(np.array(asked))
        if isinstance(self._voters, NearestTeachers):
            votes = self._voters.few_votes(rows[fresh])
            return _counted(votes, self._voters.cap, self._voters.unit)
        return tally(self._voters.ballots(rows[fresh]), self._voters.n_classes, self._voters.unit)


def require_room(
    ledger: Ledger,
    mechanism: Mechanism,
    event_of_one: Event,
    X_public: npt.ArrayLike,
    question: str,
    predictions: npt.ArrayLike | None = None,
    *,
    campaign: bool = False,
) -> int:
    """Refuse public rows that the budget has no room for; return how many of them are new, so that they would be paid.

    The arguments are those of `LabelingSession` and its `ask`. A `campaign` is of `NearestTeachers`, which the ledger
    holds to a cap: once it is paid, any rows fit.
    """
    queries = set(_hashes(ledger, mechanism, event_of_one, X_public, question, predictions))
    if campaign and ledger.reserved_for(_campaign(mechanism, event_of_one, question)) is not None:
        return len(queries - ledger.recall(queries).keys())
    return len(ledger.unanswered(event_of_one, queries))


def _counted(votes: FewVotes, cap: int, unit: PrivacyUnit) -> VoteHistogram:
    return tally_few(votes.teachers, votes.queries, votes.labels, shape=votes.shape, cap=cap, unit=unit)


def _campaign(mechanism: Mechanism, event_of_one: Event, question: str) -> str:
    """Return the name of the campaign of this event, mechanism and question in a ledger."""
    context = json.dumps(_context(mechanism, event_of_one, question), sort_keys=True)
    return f"campaign {hashlib.sha256(context.encode()).hexdigest()}"


def _hashes(
    ledger: Ledger,
    mechanism: Mechanism,
    event_of_one: Event,
    X_public: npt.ArrayLike,
    question: str,
    predictions: npt.ArrayLike | None,
) -> list[bytes]:
    beside = [] if predictions is None else [_as_array(predictions, "predictions", np.float64)]
    return ledger.query_hashes(_context(mechanism, event_of_one, question), X_public, *beside)


def _first_places(keys: list[bytes]) -> dict[bytes, int]:
    """Return where each different key stands first, in the order of the keys."""
    places: dict[bytes, int] = {}
    for place, key in enumerate(keys):
        places.setdefault(key, place)
    return places


def _as_array(values: npt.ArrayLike, name: str, dtype: type | None) -> npt.NDArray[Any]:
    try:
        return np.asarray(values, dtype=dtype)
    except (ValueError, TypeError):
        kind = "values" if dtype is None else "numbers"
        raise InvalidDataError(f"`{name}` must be an array of {kind}, rows of equal length.") from None


def _context(mechanism: Mechanism, event_of_one: Event, question: str) -> dict[str, object]:
    # The key that an answer is remembered by must never change, or the answer would be drawn again; a golden hash in
    # tests/test_labeling.py keeps it fixed.
    return {"question": question, "mechanism": mechanism.key(), "event": event_of_one.as_dict()}


def _require_name_of_its_own(mechanism: Mechanism) -> None:
    """Refuse a mechanism that the ledger, which remembers answers by its name, would take for another one."""
    kind = type(mechanism)
    for name in (kind.__qualname__, mechanism.key().partition("(")[0]):
        if _OWN_NAMES.get(name, kind) is not kind:
            raise InvalidParameterError(
                "`mechanism` of LabelingSession must have a name of its own. Got another class named "
                f"{kind.__qualname__}; rename it."
            )


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
