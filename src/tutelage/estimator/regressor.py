"""PATE for numbers: private rows and a public schema in, a publishable table of effects out."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar, final

import numpy as np
import numpy.typing as npt
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from tutelage._internal.fitting import scikit_learn
from tutelage._internal.records import settable
from tutelage._internal.typing import Array, FloatArray, IntArray, Mask, Matrix
from tutelage._internal.validation import problems_in
from tutelage.estimator.base import Estimator
from tutelage.estimator.inputs import Rows, Taken, rows_and_labels
from tutelage.estimator.parameters import Resolved, naming_unknown
from tutelage.exceptions import InvalidDataError, Problem
from tutelage.features import Schema
from tutelage.features.columns import dense_rows
from tutelage.features.public_numbers import FEWEST
from tutelage.methods import AdditiveMean, Method
from tutelage.partition import canonical_ids, ids_in
from tutelage.preflight import Sight
from tutelage.reporting.measured import NumberLayout
from tutelage.reporting.record import Errors, Judged
from tutelage.tables import NUMBER_TYPES, Table, as_table, column_array
from tutelage.targets import NO_NUMBERS, Numbers, numbers_of


@final
@settable
class PATERegressor(RegressorMixin, Estimator):
    """Learn to predict a number from sensitive rows with a proved (ε, δ) differential privacy guarantee.

    Each person casts ballots that say in which bins of a public schema the person is and how large the number is, and
    what the sums so far get wrong. Only noisy sums leave; the student is a table of effects, and no private row is in
    it. Every call of `fit` is a new release. With a `ledger`, all releases share its budget.

    Parameters
    ----------
    epsilon : float, optional
        As for `PATEClassifier`.
    target_range : (float, float)
        Lowest and highest number, by public knowledge: numbers beyond count as these. A narrow range has less noise.
    method : Method, optional
        How private rows teach the student: a method for numbers. Default: `AdditiveMean`.
    columns : Schema, optional
        Ranges and categories of the columns, by public knowledge. See docs/howto/no-public-rows.md. Default: what
        `Schema.learn` proposes by `X_public`.
    delta, budget, releases, ledger, unit, question, noise, random_state, n_jobs, progress
        As for `PATEClassifier`. `AdditiveMean` trains nothing and needs no seed.

    Attributes
    ----------
    student_ : AdditiveRegressor
        The table: `effects()`, `predict_quantiles`. Rows are bins; `whole_student()` takes rows as `fit` does.
    epsilon_ : PublicEpsilon
        The worst-case guarantee.
    ledger_, open_ledger_, release_, method_, mechanism_, n_teachers_, day_, earlier_, n_earlier_
        What was released and spent, as PATEClassifier documents them.
    name_, insisted_, tuned_on_, student_map_, queries_, rounds_, drawn_, remembered_, n_private_rows_
        As PATEClassifier documents them.
    ballots_ : tuple of BallotSum
        The private sums of the ballots, for the data set owner only. They and `open_ledger_` are left out when the
        model is pickled or copied.
    report_ : MeasuredErrors or None
        With a test report: mean absolute error, root of the mean square, R² and coverage, with 95 % intervals.
    columns_ : Schema
        The schema, as given or as proposed by public rows.
    n_features_in_ : int
        Number of columns.

    Examples
    --------
    >>> import numpy as np
    >>> from tutelage import PATERegressor, SimulationNoise
    >>> from tutelage.features import Schema
    >>> rng = np.random.default_rng(0)
    >>> age = rng.integers(20, 80, size=5000)
    >>> days = 0.1 * age + rng.random(5000)
    >>> schema = Schema({"age": (20, 80)})
    >>> model = PATERegressor(epsilon=1.0, target_range=(0, 10), columns=schema, noise=SimulationNoise(0))
    >>> bool(model.fit({"age": age}, days).score({"age": age}, days) > 0.9)
    True
    """

    target_range: Any = None
    _owner: ClassVar[str] = "PATERegressor"
    _columns = Schema, "a Schema"

    @property
    def _target(self) -> Numbers:
        return Numbers.between(self.target_range, self.question)

    def _problems_of_target(self) -> Iterator[Problem]:
        return problems_in(lambda: self._target)

    @property
    def _default_method(self) -> Method:
        return AdditiveMean()

    @property
    def _has_schema(self) -> bool:
        return True  # given, or as public rows propose it

    def _resolved_for(self, rows: Rows) -> Resolved:
        run = super()._resolved_for(rows)
        return replace(run, schema=run.schema or _proposed_schema(rows))

    def _problems_of_rows(self, rows: Rows) -> Iterator[Problem]:
        if rows.y_public is not None and rows.X_public is None:
            yield Problem(
                "PATERegressor.fit.y_public",
                "come with the public rows in $X_public",
                fix="Pass both.",
            )
        elif self.columns is None and rows.X_public is None:
            yield Problem(
                "PATERegressor.columns",
                "be a Schema if you pass no public rows",
                fix="Set $columns, or pass public rows as $X_public.",
            )
        elif self.columns is not None and rows.X_public is not None and rows.y_public is None:
            yield Problem(
                "PATERegressor.columns",
                "be left out if you pass public rows without numbers",
                fix="Leave out $columns or $X_public, or pass $y_public.",
            )
        yield from super()._problems_of_rows(rows)

    def _take(self, run: Resolved, given: Rows) -> Taken:
        """Return the rows of a fit, once the numbers to predict are seen to be such, as the schema's columns are."""
        y = given.y
        name = y if isinstance(y, str) else "y"
        table = as_table(given.X if isinstance(y, str) else {name: y})
        if table is None:
            return super()._take(run, given)
        if isinstance(y, str):
            given = replace(given, X=table)  # read once
        if not isinstance(y, np.ndarray | list):  # of a type that a reader chose
            ids = column_array(given.entity_ids)
            if isinstance(ids, str):
                ids = ids_in(table, ids)
            elif ids is not None:
                ids = canonical_ids(ids)
            Schema({name: self._ends}).table(table, ids)
        elif table.type_of(name) not in NUMBER_TYPES:
            raise InvalidDataError(NO_NUMBERS.format("The target"))
        return super()._take(run, given)

    def _public_labels(
        self, run: Resolved, public: Matrix, X_public: object, y_public: object
    ) -> tuple[Matrix, IntArray | None]:
        """Return the bins of public rows, and their targets, if there are any."""
        if y_public is None or run.schema is None:
            return public, None
        rows = run.schema.transform(dense_rows(X_public))
        targets = self._target.public(y_public, len(rows))
        if len(targets) < FEWEST:
            raise InvalidDataError(
                f"`y_public` must have numbers of at least {FEWEST} public rows. Got {len(targets)}; leave it out."
            )
        return rows, targets

    @property
    def _ends(self) -> tuple[float, float]:
        return self._target.low, self._target.high

    def _with_targets(self, sight: Sight, targets: Array) -> Sight:
        numbers = numbers_of(targets)
        of_target = (Schema({"target": self._ends}), Table("", {"target": numbers}))
        return replace(
            sight,
            labels=numbers,
            n_classes=1,
            numbers=() if len(sight.public) else sight.numbers,  # bins have no units
            declared=(*sight.declared, of_target),
        )

    def predict(self, X: object) -> FloatArray:
        """Return the expected number of each row; costs no privacy.

        Parameters
        ----------
        X : rows with named columns, or array of shape (rows, columns of the schema)
            Rows to predict.
        """
        check_is_fitted(self)
        return self.student_.predict(self._student_rows(X))

    def score(self, X: object, y: object, sample_weight: npt.ArrayLike | None = None) -> float:
        """Return the share R² of the spread of public numbers that predictions explain; costs no privacy.

        Parameters
        ----------
        X : rows with named columns, or array of shape (rows, columns of the schema)
            Public rows with numbers.
        y : array of shape (rows,) or str
            Their numbers, or the name of a column of `X`.
        sample_weight : array of shape (rows,), optional
            How much each row counts.
        """
        rows, numbers = rows_and_labels(X, y)
        return float(
            scikit_learn.metrics.r2_score(numbers, self.predict(rows), sample_weight=sample_weight)
        )

    def predict_quantiles(
        self, X: object, quantiles: Sequence[float] = (0.1, 0.5, 0.9)
    ) -> FloatArray:
        """Return numbers below which such shares of rows like each row lie, shape (rows, quantiles).

        They follow from a noisy histogram of how far private numbers lie from predictions; they cost no more privacy.

        Parameters
        ----------
        X : rows with named columns, or array of shape (rows, columns of the schema)
            Rows to predict.
        quantiles : sequence of float
            Shares between 0 and 1.
        """
        check_is_fitted(self)
        return self.student_.predict_quantiles(self._student_rows(X), quantiles)

    def _layout(self, groups: tuple[str, ...]) -> NumberLayout:
        low, high = map(float, self.target_range)
        return NumberLayout(groups, high - low, low, high)

    def _judge(self, X: object, y: object) -> Judged:
        """Return the statements of a card on the student, by public rows `X` with the numbers `y`."""
        truth = numbers_of(y)
        wrong: FloatArray = truth - self.predict(X)
        spread: FloatArray = truth - truth.mean()
        low, _, high = self.predict_quantiles(X).T
        is_within: Mask = (low <= truth) & (truth <= high)
        errors = Errors(
            *map(float, self.target_range),
            rows=len(truth),
            typical=float(np.sqrt(np.mean(wrong**2))),
            of_mean=float(np.sqrt(np.mean(spread**2))),
            within=float(np.mean(is_within)),
            of_public=self.student_.typical_of_public(self._student_rows(X), truth),
        )
        return Judged(errors=(errors,))


PATERegressor.__init__ = naming_unknown(PATERegressor.__init__)


def _proposed_schema(rows: Rows) -> Schema:
    """Return the schema that public rows propose, of columns that have no other purpose."""
    table = as_table(rows.X_public)
    if table is None:
        return Schema.learn(rows.X_public)
    special = (rows.y, rows.y_public, rows.entity_ids)
    names = {name for name in special if isinstance(name, str)}
    return Schema.learn(table.without(names & table.columns.keys()))
