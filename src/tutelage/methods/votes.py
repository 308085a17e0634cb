"""Votes on single public rows: what methods of votes have in common, and who casts them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, final

import numpy as np

from tutelage._internal.records import by_identity
from tutelage._internal.typing import ABSTAIN, Array, Ballots, FloatArray, IntArray, Private
from tutelage._internal.validation import integer_at_least, problems_in
from tutelage.ballots import OneHot, VoteHistogram, tally
from tutelage.digests import canonical, row_bytes
from tutelage.events import Event, Repeated, of_queries
from tutelage.exceptions import InvalidParameterError, Problem, quote
from tutelage.methods.base import Method
from tutelage.methods.requests import (
    Asking,
    Facts,
    NoisedBallots,
    Outcome,
    Public,
    Request,
    Sizes,
    Steps,
    Wishes,
    first_places,
)
from tutelage.methods.rounds import Rounds, round_rows
from tutelage.students import NoisySumClassifier, student_named
from tutelage.students.selection import Medoids, PublicKnowledge, QuerySelector, selector_named
from tutelage.teachers import NearestTeachers
from tutelage.teachers.base import TeacherEnsemble


class Votes:
    """The ballot that is a vote on each row."""

    def cast(
        self,
        prepared: "TalliedVotes | FittedTeachers | VotingPeople",
        request: Request,
        places: IntArray,
    ) -> VoteHistogram | Wishes:
        """Return the private votes on the rows of a request at these places."""
        # places: (queries,), indices of `request.rows`
        return prepared.votes(request, places)


VOTES = Votes()
STUDENT = "label-propagation"  # the student of plans


@final
@by_identity
class TalliedVotes(Private):
    """Votes that were tallied beforehand; private."""

    histogram: VoteHistogram
    # Index in the histogram by the bytes of a public row; None if the histogram has the order of the public rows.
    place_of_row: dict[bytes, int] | None
    ballots: Ballots | None = None  # of each teacher, if they are known

    @classmethod
    def on(
        cls, histogram: VoteHistogram, rows: Array, ballots: Ballots | None = None
    ) -> "TalliedVotes":
        """Return votes on these public rows; of equal rows the first one's count."""
        return cls(histogram, first_places(row_bytes(rows)), ballots)

    def votes(self, request: Request, places: IntArray) -> VoteHistogram:
        """Return the votes on the rows of a request at these places."""
        if self.place_of_row is not None:
            keys = row_bytes(request.rows[places])
            places = np.array([self.place_of_row[key] for key in keys])
        return self.histogram.select(places)

    def private_attributes(
        self, outcome: Outcome, _kept: Sequence[NoisedBallots], /
    ) -> dict[str, object]:
        """Return the private attributes of a fit: the votes on its queries, in their order."""
        # In one round, the teachers voted on the queries alone, in their order (`rows_to_ask`). For several rounds they
        # voted on all public rows, in their order, so queries, which are numbers of public rows, are places.
        votes = self.histogram
        if votes.n_queries > len(outcome.queries) or len(outcome.rounds) > 1:
            votes = votes.select(outcome.queries)
        return {"votes_": votes}


@final
@by_identity
class FittedTeachers(Private):
    """Fitted teachers, who can vote on any row; private."""

    teachers: TeacherEnsemble

    def votes(self, request: Request, places: IntArray) -> VoteHistogram:
        """Return the votes on the rows of a request at these places."""
        teachers = self.teachers
        return tally(
            teachers.ballots(request.rows[places]),
            teachers.n_classes,
            teachers.unit,
        )


@final
@by_identity
class VotingPeople(Private):
    """People who each vote on a few of the rows; private."""

    people: NearestTeachers

    def votes(self, request: Request, places: IntArray) -> VoteHistogram | Wishes:
        """Return the votes on the rows of a request at these places; in a campaign, the votes that people would cast.

        Campaign: the ledger sees how many votes each person would cast, and then grants a number to each, so that no
        person exceeds `form.cap` over all requests. Without one, `form.cap` is None, and each casts `people.cap`.
        """
        people = self.people
        votes = self.people.few_votes(request.rows[places])
        wishes = Wishes(
            votes,
            people.names,
            people.data_digest,
            request.form.cap or people.cap,
            people.unit,
        )
        if request.campaign:
            return wishes
        return wishes.histogram(people.cap)

    def private_attributes(
        self, _outcome: Outcome, kept: Sequence[NoisedBallots], /
    ) -> dict[str, object]:
        """Return the private attributes of a fit: the votes that noise was added to, round by round."""
        return {"ballots_": tuple(answer.ballots for answer in kept)}


class VotesOnQueries(Method):
    """Methods that release labels of chosen public rows."""

    __slots__ = ()
    n_queries: int | None
    selection: Any  # str or QuerySelector
    rounds: int

    def _check(self, own: Callable[[], object]) -> None:
        """Refuse settings that do not fit, those of the kind of votes among them: all at once."""
        problems = list[Problem]()
        for check in (own, self._check_selection, self._check_rounds, self._check_student):
            problems += problems_in(check)
        problems += self._problems_of_student_features()
        if problems:
            raise InvalidParameterError.of(problems)

    def _check_selection(self) -> None:
        if not isinstance(self.selection, str | QuerySelector):
            raise InvalidParameterError(
                f"{type(self).__name__}.selection",
                "be the name of a selection rule, or a QuerySelector",
                quote(self.selection),
            )
        if self.rule.needs_answers and self.rounds == 1:
            raise InvalidParameterError(
                f"{type(self).__name__}.rounds",
                f"be at least 2, because {type(self.rule).__name__} needs labels of an earlier round",
                "1",
            )

    def _check_rounds(self) -> None:
        name = type(self).__name__
        integer_at_least(self.rounds, 1, "rounds", name)
        if self.n_queries is None:
            return
        if integer_at_least(self.n_queries, 1, "n_queries", name) < self.rounds:
            raise InvalidParameterError(
                f"{name}.rounds",
                "be at most $n_queries",
                f"{self.rounds} rounds and {self.n_queries} queries",
            )

    def _check_student(self) -> None:
        if isinstance(self.student, str):
            student_named(self.student, type(self).__name__)
        if isinstance(self.student, NoisySumClassifier):
            raise InvalidParameterError(
                f"{type(self).__name__}.student",
                "be a classifier that learns from labels",
                "NoisySumClassifier",
                "Leave $student out, or use NoisyMoments.",
            )

    @property
    def rule(self) -> QuerySelector:
        """The rule that chooses the queries."""
        if isinstance(self.selection, str):
            return selector_named(self.selection, type(self).__name__)
        return self.selection

    @property
    def _first_rule(self) -> QuerySelector:
        """The rule of the first round, when there are no labels."""
        return Medoids() if self.rule.needs_answers else self.rule

    @property
    def cap(self) -> int | None:
        """Most votes of one teacher on all queries; None for one on each."""
        return None

    @property
    def noise(self) -> float | None:
        """σ of the mechanism, in votes; None if it follows from the budget, or if the noise is not Gaussian."""
        return getattr(self.mechanism, "sigma", None)

    def event(self, sizes: Sizes) -> Repeated:
        """Return an event that dominates all queries, for any private rows."""
        return of_queries(self.event_of_one(sizes), self._number_of_queries(sizes))

    def _number_of_queries(self, sizes: Sizes) -> int:
        return self.n_queries or sizes.n_public

    def event_of_one(self, sizes: Sizes) -> Event:
        """Return an event that dominates one query, for any private rows."""
        return self.calibrated.event_of_one(
            sizes.n_classes,
            sizes.unit,
            simulated=sizes.simulated,
        )

    def rows_to_ask(self, public: Public) -> IntArray:
        """Return the numbers of the public rows that teachers vote on: those of one round, in its order, or all."""
        if self.rounds > 1:
            return np.arange(len(public.rows))
        known = PublicKnowledge.before(public.student_rows)
        n_queries = self._number_of_queries(public.sizes)
        return round_rows(self._first_rule, known, n_queries, public.seed)

    def steps(self, public: Public) -> Steps:
        """Ask for labels, round after round."""
        rounds = Rounds(
            mechanism=self.calibrated,
            rows=public.rows,
            seen=np.array(public.student_rows),
            n_classes=len(public.classes),
            sizes=_even_rounds(self._number_of_queries(public.sizes), self.rounds),
            first=self._first_rule,
            then=self.rule,
            student=self.student if self.rounds > 1 else None,
            seed=public.seed,
        )
        rounds.check()
        known = yield from self._labeled_before(public, PublicKnowledge.before(rounds.seen))
        asked = yield from rounds.steps(partial(self._request, public), known)
        before = np.flatnonzero(known.answered)
        return Outcome(
            queries=np.concatenate([asked.queries, before]),
            labels=np.concatenate([asked.release.labels, known.labels[before]]),
            rounds=asked.rounds,
            n_teachers=public.n_teachers,
        )

    def _labeled_before(self, public: Public, known: PublicKnowledge) -> Asking[PublicKnowledge]:
        """Return the labels of earlier releases, the newest first; the public rows without one are open.

        A row with a label is not asked again, so it stops before the first release that would leave too few open rows.
        """
        n_queries = self._number_of_queries(public.sizes)
        for name in reversed(public.earlier):
            release = replace(public, release=name)
            request = self._request(release, np.arange(len(public.rows)))
            answer = yield replace(request, earlier=True)
            if answer is None:
                continue
            # answer.labels: (public rows,); new: rows that get their label from this release
            new = known.open[answer.labels[known.open] != ABSTAIN]
            if len(known.open) - len(new) < n_queries:
                break
            known = known.after(new, answer.labels[new])
        return known

    def _request(
        self,
        public: Public,
        rows: IntArray,
        predictions: FloatArray | None = None,
        first_are_enough: bool = False,
    ) -> Request:
        """Return the request for labels of these public rows, or of as many of the first as the budget allows."""
        # rows: (queries,), numbers of public rows; predictions: (queries, classes)
        classes = [str(value) for value in public.classes.tolist()]
        subject = {"question": canonical([public.question, classes])}
        if public.release is not None:
            subject["release"] = public.release
        return Request(
            mechanism=self.calibrated,
            form=OneHot(len(classes), public.unit, self.cap),
            subject=subject,
            ballot=VOTES,
            rows=public.rows[rows],
            predictions=predictions,
            partial=first_are_enough,
            campaign=self.cap is not None,
        )

    def check(self, public: Public, /) -> None:
        """Refuse more queries or rounds than public rows, and a rule that does not fit them."""
        n_rows = len(public.student_rows)
        for name, value in (("n_queries", self.n_queries or 1), ("rounds", self.rounds)):
            if value > n_rows:
                raise InvalidParameterError(
                    f"{type(self).__name__}.{name}",
                    f"be at most {n_rows}, the number of public rows",
                    f"{value}",
                )
        self.rule.check(public.student_rows, len(public.classes))

    def facts(self, n_teachers: int | None, n_rounds: int = 1, /) -> Facts:
        """Return the statements of reports: who votes, how queries are chosen, and what ends them."""
        rounds = "one round" if n_rounds == 1 else f"{n_rounds} rounds"
        name = self.selection
        if not isinstance(name, str):
            name = type(name).__name__
        selection = f"{name}, in {rounds}; by public rows and released labels alone"
        facts = super().facts(n_teachers)._replace(selection=selection)
        if self.rounds == 1:
            return facts
        takes_predictions = getattr(self.mechanism, "takes_predictions", False)
        return facts._replace(
            stopping="data-independent",
            predicts=takes_predictions or self.rule.needs_student,
        )


def fewer_votes(method: Method, teachers: int, queries: int) -> Method:
    """Return a method of votes with at most this many teachers and queries; other methods are returned unchanged."""
    if not isinstance(method, VotesOnQueries):
        return method
    settings = method.get_params(deep=False)
    n_queries = min(method.n_queries or queries, queries)
    # A rule that needs labels has two rounds at least, and so two public rows at least: it keeps two rounds.
    fewer = {"n_queries": n_queries, "rounds": min(method.rounds, n_queries)}
    if "n_teachers" in settings:
        fewer["n_teachers"] = min(settings["n_teachers"], teachers)
    return method.with_params(**fewer)


def _even_rounds(n_queries: int, rounds: int) -> tuple[int, ...]:
    """Return sizes of rounds that differ by one at most, the larger ones first."""
    each, more = divmod(n_queries, rounds)
    return (each + 1,) * more + (each,) * (rounds - more)
