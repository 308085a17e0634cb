"""PATE as one scikit-learn estimator: private rows and public rows in, a publishable student out."""

from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY
from functools import partial
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from tutelage._internal.fitting import scikit_learn
from tutelage._internal.records import settable
from tutelage._internal.typing import Array, FloatArray, IntArray, Mask
from tutelage.estimator.base import Estimator
from tutelage.estimator.inputs import Rows, rows_and_labels
from tutelage.estimator.parameters import naming_unknown
from tutelage.exceptions import InvalidParameterError, Problem
from tutelage.features import PublicColumns, PublicTransformer, Schema
from tutelage.features.scored import chances_of
from tutelage.methods import Additive, Method, NoisyMoments
from tutelage.methods.report import layout_of_classes
from tutelage.reporting import ClassAccuracy
from tutelage.reporting.measured import ClassLayout
from tutelage.reporting.record import Judged, Reached, Survived
from tutelage.targets import ClassCodes, Classes, Goal


@settable
class PATEClassifier(ClassifierMixin, Estimator):
    """Learn a classifier from sensitive rows with a proved (ε, δ) differential privacy guarantee.

    A `method` says what people or teachers cast from their private rows, and what is released of it through noise. By
    default, each person casts a vector for each class, and a student follows from the noisy sums of all vectors. With
    the other methods, people or teachers vote on public rows, and a student learns from the noisy labels. Predictions
    come from the student and spend nothing further. Every call of `fit` is a new release, also in `GridSearchCV`. With
    a `ledger`, all releases share its budget. Without one, their epsilons add up, and a warning states the sum.

    Parameters
    ----------
    epsilon : float, optional
        Privacy budget for one `fit`. The noise is set to the smallest amount that satisfies it. Default: the whole
        `budget`, or 1; with a `mechanism` of the method, which fixes the noise, the ε that follows from it.
    classes : sequence or mapping, optional
        The class values, which are public; or a mapping from each class to the labels that it merges:
        ``{"yes": ["<30", ">30"], "no": ["NO"]}``. A label that equals none of them is the one of the same value:
        "1" and "1.0" are 1. Default: the labels of public rows, in `y_public` or in a column of `X_public` that `y`
        names; otherwise the values in `y`, with a warning and a line on the card, because a class that only one person
        has would reveal that person.
    delta : float, optional
        δ of the guarantee and of the budget. Keep it below 1/n for n people. Default: that of the `ledger`, if it is
        there already, or 1e-5.
    budget : float, optional
        ε of all releases through the `ledger` together, fixed when the ledger is created. Default: `epsilon`.
    releases : int, default=1
        Number of equal releases that the `budget` is for: months, or questions about the same people. The noise is the
        least with which so many fits like this one stay within it. Do not change it later.
    ledger : path-like or Ledger, optional
        Budget of the private data, which is spent before any noise is drawn. A missing file is created. Queries that
        were labeled before keep their labels and spend nothing. Default: a ledger for this `fit` alone.
    unit : str, optional
        Name of the privacy unit in reports, for the values of `entity_ids`: ``"patient"``; or ``"row"``, without
        `entity_ids`, to declare that each row is protected alone. Default: the column that `entity_ids` names, or
        ``"entity"``; and the row without `entity_ids`, unless a column repeats as an id does: then `fit` refuses until
        you decide.
    question : str, optional
        Name of the label that the student predicts: ``"readmitted within 30 days"``. Labels are remembered under this
        name and the class values, so that another label of the same rows is released separately.
    method : Method, optional
        How private rows teach the student: a method of `tutelage.methods`, with its settings, such as
        ``TeacherVotes(tree, n_teachers=250, n_queries=200)``. Default: `NoisyMoments` or, with a Schema, `Additive`.
        See docs/methods.md.
    columns : Schema, PublicColumns, PublicTransformer or mapping, optional
        The columns of the rows. A `Schema` has their names, ranges and categories by public knowledge, in place of
        public rows: see docs/howto/no-public-rows.md. The others say how named columns become numbers: a mapping has
        the kinds of columns that you know, as `PublicColumns.learn` takes them. Default: as `X_public` shows them.
    features : public feature map or LearnedMap, optional
        Map that the rows of teachers and student pass through, after `columns`: a map of `tutelage.features`, or a
        pipeline of such maps. It may be published. A `LearnedMap` is learned from `X_public`. Default, if every person
        casts ballots: `PublicSteps` for tables and arrays, and `image_features` for images.
    goal : str, default="accuracy"
        What `score` and the card judge the student by: ``"accuracy"``, ``"balanced_accuracy"``,
        ``"average_precision"`` or, for any share, ``"recall at 5 %"``. The last two are for two classes, of which the
        second in `classes` is positive; they change nothing else. With ``"balanced_accuracy"``, predictions count
        classes as if they were equally frequent, by their shares in what was released. See docs/howto/rare-classes.md.
    class_weight : mapping, optional
        How much each class value counts in predictions, as in scikit-learn: ``{"yes": 10}``; 1 for others. The numbers
        are public. `NoisyMoments` and `Additive` multiply `predict_proba` by them, which for a student of public labels
        shifts its intercept by log(weight); with votes, the student learns by them. Default: as `goal` says.
    noise : NoiseSource, optional
        Default: `SystemNoise`. `SimulationNoise` makes experiments repeatable and marks the result as not private.
    random_state : int, optional
        Seed of the partition, the teachers, the query selection and the student, never of the noise. Without a seed, a
        rule that draws rows at random asks other queries in the next fit, and spends budget on them.
    n_jobs : int, optional
        Number of teachers trained at once, as in joblib.
    progress : bool, default=False
        Show a progress bar, in percent so that it reveals no number of people.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class values in sorted order.
    classes_from_ : {"declared", "public", "private"}
        Where the class values come from: `classes`, the labels of `X_public`, or the private labels.
    student_ : scikit-learn classifier
        The fitted student, which takes rows that went through the feature map. See `whole_student`.
    queries_ : ndarray of shape (queries,)
        Indices of the queries in the public rows, in the order of `release_`.
    rounds_ : tuple of int
        Number of queries in each round; smaller, or with fewer rounds, if the budget ended.
    day_ : str
        UTC day on which the release began, in ISO 8601.
    release_ : Release
        Released class index per query (−1 for an abstention) and the event.
    drawn_, remembered_ : int
        Number of different queries that were labeled in this fit, and that kept the labels of earlier fits on this
        ledger: the private rows of this fit did not vote on these.
    earlier_ : tuple of str
        Names of the releases of the same question before this one, if they have names.
    n_earlier_ : int
        Number of their answers that were recalled for the student, at no cost: noisy sums, or labels.
    epsilon_ : PublicEpsilon
        The worst-case guarantee. It covers these labels alone if nothing else was released through the ledger before;
        otherwise it is the ledger's budget, for all releases together.
    publication_ : Publication or None
        What may be published after the test of a `proposal` of `prepare`: the tested ε, and the worst case with it,
        which then is `epsilon_` if the release is alone.
    proposal_ : Proposal or None
        The proposal.
    ledger_ : LedgerState
        The budget after this `fit`, which bounds all releases through the ledger.
    open_ledger_ : Ledger
        The ledger that the labels were spent from, with its history.
    votes_ : VoteHistogram
        The private vote counts.
    ballots_ : tuple of BallotSum or of VoteHistogram
        Replaces `votes_` if every person is a teacher: the private sums of the ballots that were cast in this fit, one
        per round, and then that of the report. An earlier release is remembered, and no ballot is cast for it.
    report_ : Measured or None
        With a test report: accuracy, balanced accuracy, recall, precision, AUC and calibration, for everybody and for
        each group, with 95 % intervals.
    moments_ : tuple of Moments
        With `NoisyMoments`: the released noisy means, one per round.
    method_ : Method
        The method, with its noise.
    mechanism_ : Mechanism or NoisySum
        How votes or ballots were released.
    n_teachers_ : int
        Number of teachers that voted. If every person is a teacher and the number of people is private, it is the noisy
        count that was released, and None with `CappedVotes`.
    n_private_rows_ : int or None
        Number of private rows if neighboring data have as many; None with `entity_ids` or `silos`.
    columns_ : PublicColumns, PublicTransformer, Schema or None
        The kinds of the columns, if the rows had names or were texts; part of the student.
    public_model_ : public feature map or None
        With `y_public`: the map from rows to what teachers see and the scores of a model of the public labels.
    class_weight_ : dict or None
        How much each class counts in predictions, if classes do not count alike.
    student_map_ : public feature map or None
        The map that the student's rows pass through after `columns_`.
    n_features_in_ : int
        Number of features.
    name_ : str or None
        Name of the release.
    insisted_ : bool
        Whether the fit continued although its rows were refused.
    tuned_on_ : {"nothing", "public", "private"} or None
        The data by which settings were chosen, as told to `prepare`.

    Notes
    -----
    All attributes are publishable, except `open_ledger_`, `votes_` and `ballots_`, which are for the data set owner
    only, and are left out when the estimator is pickled or copied.

    The privacy argument: the rows of one entity reach one teacher (`Shards`), and a teacher depends on its own shard
    only (`EstimatorTeachers`). So one entity changes at most one ballot, and the noise hides one ballot (`Mechanism`).

    References
    ----------
    Papernot, Abadi, Erlingsson, Goodfellow, Talwar (2017), arXiv:1610.05755v4; Papernot et al. (2018),
    arXiv:1802.08908v1.

    Examples
    --------
    >>> from tutelage import PATEClassifier
    >>> from tutelage.datasets import load_adult
    >>> adult = load_adult()
    >>> from tutelage.methods import TeacherVotes
    >>> model = PATEClassifier(epsilon=5.0, method=TeacherVotes(n_teachers=20, n_queries=50), random_state=0)
    >>> model = model.fit(adult.X_private[:2000], adult.y_private[:2000], X_public=adult.X_public)
    >>> print(model.mechanism_, model.epsilon_)
    GNMax(sigma=7.6753) ε = 5.0 at δ = 1e-05
    """

    classes: npt.ArrayLike | Mapping[Any, Any] | None = None
    _: KW_ONLY
    features: Any = None
    goal: str = "accuracy"
    class_weight: Mapping[Any, float] | None = None
    _owner: ClassVar[str] = "PATEClassifier"
    _columns = (
        (Schema, PublicColumns, PublicTransformer, Mapping),
        "a Schema, PublicColumns, a PublicTransformer or a mapping of names to kinds",
    )

    @property
    def _target(self) -> Classes:
        return Classes(
            values=self.classes, goal=self.goal, weight=self.class_weight, question=self.question
        )

    @property
    def _codes(self) -> ClassCodes:
        """The classes, as labels become whole numbers."""
        return cast("ClassCodes", self.target_)

    @property
    def _goal(self) -> Goal:
        """The goal with its positive class."""
        return self._codes.goal

    def _problems_of_target(self) -> Iterator[Problem]:
        return self._target.problems()

    def _problems_of_rows(self, rows: Rows) -> Iterator[Problem]:
        if self._has_schema and (rows.X_public is not None or rows.y_public is not None):
            yield Problem(
                "PATEClassifier.columns",
                "not be a Schema if you pass public rows",
                fix="Pass a Schema as $columns, or $X_public, but not both.",
            )
        yield from super()._problems_of_rows(rows)

    @property
    def _default_method(self) -> Method:
        return Additive() if self._has_schema else NoisyMoments()

    @property
    def classes_(self) -> Array:
        """Class values in sorted order."""
        return self.target_.names

    @property
    def classes_from_(self) -> str:
        """Where the class values come from."""
        return self.target_.origin

    def predict(self, X: object) -> Array:
        """Return the student's class value for each row of `X`; costs no privacy.

        Parameters
        ----------
        X : array of shape (rows, features), images, texts, or rows with named columns
            Rows to classify. Columns are found by name if `fit` got names.
        """
        check_is_fitted(self)
        return self.student_.predict(self._student_rows(X))

    def _student_has_probabilities(self) -> bool:
        if hasattr(self, "student_"):
            return hasattr(self.student_, "predict_proba")
        student = self._unchecked().method.student
        return student is None or hasattr(student, "predict_proba")

    @scikit_learn.utils.metaestimators.available_if(_student_has_probabilities)
    def predict_proba(self, X: object) -> FloatArray:
        """Return the student's probabilities, shape (rows, classes) in the order of `classes_`; costs no privacy.

        Parameters
        ----------
        X : array of shape (rows, features), images, texts, or rows with named columns
            Rows to classify.
        """
        check_is_fitted(self)
        known = self.student_.predict_proba(self._student_rows(X))  # (rows, classes of the student)
        classes: Array = self.student_.classes_
        places = np.searchsorted(self.classes_, classes)
        probabilities = np.zeros((len(known), len(self.classes_)))
        probabilities[:, places] = known
        return probabilities

    def certified(self, X: object) -> IntArray:
        """Return how many liars the prediction of each row survives, shape (rows,); costs no privacy.

        Had that many of the people who took part cast any other ballots, the student would predict the same class,
        whatever the noise. The numbers are public. See docs/proofs/certificate.md.

        Parameters
        ----------
        X : array of shape (rows, features), images, texts, or rows with named columns
            Rows to classify.

        Raises
        ------
        InvalidParameterError
            If the student does not follow from one round of `NoisyMoments` alone, or if what people cast changes
            classes or class weights, too.
        """
        check_is_fitted(self)
        InvalidParameterError.raise_for(self._problems_of_certificate())
        rows = self.student_[:-1].transform(self._student_rows(X))
        return self.student_[-1].certified(rows)

    def _problems_of_certificate(self) -> Iterator[Problem]:
        """Yield the settings of the fit with which liars can do more than move one sum."""
        method: Method = self.method_
        if not isinstance(method, NoisyMoments):
            yield Problem(
                f"{self._owner}.method",
                "be NoisyMoments(rounds=1) for `certified`",
                type(method).__name__,
            )
            return
        if method.rounds > 1:
            yield Problem(
                "NoisyMoments.rounds",
                "be 1 for `certified`, because people cast later ballots by what earlier ones show",
                str(method.rounds),
            )
        if method.student is not None:
            yield Problem(
                "NoisyMoments.student",
                "be left out for `certified`, which needs the student in closed form",
            )
        if self.public_model_ is not None:
            yield Problem(
                f"{self._owner}.fit.y_public",
                "be left out for `certified`, because two sums are released with it, of which the second depends on "
                "the first",
            )
        weights = self._codes.weights
        if weights is not None and weights.given is None:
            yield Problem(
                f"{self._owner}.goal",
                "come with a $class_weight for `certified`, because its own weights follow from what people cast",
            )
        if self.classes_from_ == "private":
            yield Problem(
                f"{self._owner}.classes",
                "be declared for `certified`, because one person can add a class otherwise",
            )

    def _has_public_model(self) -> bool:
        return getattr(self, "public_model_", None) is not None

    @scikit_learn.utils.metaestimators.available_if(_has_public_model)
    def predict_by_public_labels(self, X: object) -> Array:
        """Return the class of each row by the model of public labels alone, which no private row had a part in.

        A student is worth its ε where it is right more often than that. There is such a model if `fit` got `y_public`.

        Parameters
        ----------
        X : array of shape (rows, features), or rows with named columns
            Rows to classify.
        """
        return self.classes_[self._chances_by_public_labels(X).argmax(axis=1)]

    def _chances_by_public_labels(self, X: object) -> FloatArray:
        # features: (rows, features and scores); weights: (classes,)
        features = self.public_model_.transform(self._numbers_of(X))
        return chances_of(features[:, -len(self.classes_) :]) * self._public_weights

    def score(self, X: object, y: object, sample_weight: npt.ArrayLike | None = None) -> float:
        """Return how much of the `goal` the student reaches on public rows; costs no privacy.

        Parameters
        ----------
        X : array of shape (rows, features), or rows with named columns
            Public rows with labels: best rows that were not asked about.
        y : array of shape (rows,) or str
            Their labels, or the name of a column of `X`.
        sample_weight : array of shape (rows,), optional
            How much each row counts.
        """
        check_is_fitted(self)
        rows, labels = rows_and_labels(X, y)
        chances = self._chances_for_goal(rows)
        truth = self._codes.truth(labels, len(chances))
        places = np.searchsorted(self.classes_, truth)
        return self._goal.score(places, chances, sample_weight)

    def _chances_for_goal(self, X: object) -> FloatArray:
        """Return the chances of classes: probabilities for a ranking, and otherwise 1 for the predicted class."""
        # (rows, classes)
        if self._goal.ranks:
            return self.predict_proba(X)
        places = np.searchsorted(self.classes_, self.predict(X))
        return np.eye(len(self.classes_))[places]

    def _layout(self, groups: tuple[str, ...]) -> ClassLayout:
        names = tuple(map(str, self.classes_.tolist()))
        return layout_of_classes(names, groups)

    def _judge(self, X: object, y: object) -> Judged:
        """Return the statements of a card on the student, by public rows `X` with the classes `y`."""
        predicted = self.predict(X)
        truth = self._codes.truth(y, len(predicted))
        accuracy = _accuracy_by_class(self.classes_, predicted, truth)
        chances = None
        by_public_labels = None
        if self.public_model_ is not None:
            chances = self._chances_by_public_labels(X)
            is_right: Mask = self.classes_[chances.argmax(axis=1)] == truth
            by_public_labels = float(np.mean(is_right))
        goal = self._goal
        places = np.searchsorted(self.classes_, truth)
        survived = None
        if not any(self._problems_of_certificate()):
            liars = self.certified(X)
            survived = Survived(
                float(np.mean(liars >= 10)),
                float(np.mean(liars >= 50)),
            )
        judged = partial(
            Judged, by_class=accuracy, public_labels=by_public_labels, survived=survived
        )
        if goal.name == "accuracy" or (goal.ranks and goal.positive not in places):
            return judged()
        title = goal.title
        if goal.ranks:
            title += f" (positive: {self.classes_[goal.positive]})"
        reached = Reached(
            title,
            goal.score(places, self._chances_for_goal(X)),
            None if chances is None else goal.score(places, chances),
            goal.without_model(places),
        )
        return judged(goals=(reached,))


PATEClassifier.__init__ = naming_unknown(PATEClassifier.__init__)


def _accuracy_by_class(classes: Array, predicted: Array, truth: Array) -> tuple[ClassAccuracy, ...]:
    """Return how many public rows of each class are right."""
    # predicted, truth: (rows,)
    is_right = predicted == truth
    accuracies = list[ClassAccuracy]()
    for value in classes:
        is_of_class = truth == value
        right = int(is_right[is_of_class].sum())
        accuracies.append(ClassAccuracy(str(value), int(is_of_class.sum()), right))
    return tuple(accuracies)
