"""PATE for numbers: private rows and a public schema in, a publishable table of effects out."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Self, cast, final

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from tutelage._internal.typing import FloatArray, IntArray, Matrix
from tutelage.estimator.classifier import PATEClassifier
from tutelage.estimator.inputs import Received
from tutelage.estimator.parameters import Resolved
from tutelage.exceptions import InvalidDataError, InvalidParameterError, Problem, shown
from tutelage.features import Schema
from tutelage.features.columns import dense_rows
from tutelage.features.public_numbers import FEWEST
from tutelage.features.schema import LARGEST
from tutelage.ledger import Ledger
from tutelage.mechanisms import NoisySum
from tutelage.methods.additive_mean import STEPS, AdditiveMean
from tutelage.methods.requests import Public
from tutelage.noise import NoiseSource
from tutelage.partition import canonical_ids
from tutelage.preflight import Given
from tutelage.reporting import PrivacyCard
from tutelage.reporting.record import Errors
from tutelage.tables import NUMBER_TYPES, Table, as_table, column_array

_NO_NUMBERS = "{} must hold a finite number in every row. Remove rows without one, or write it as a number."


class _OfNumbers(PATEClassifier):
    """The fit of a regressor: its two classes are the ends of the range, and its labels steps between them."""

    _of_numbers: ClassVar[bool] = True
    _owner: ClassVar[str] = "PATERegressor"
    _known: tuple[Matrix, IntArray] | None = None  # bins and targets of public rows

    def _received(
        self,
        X: Any,
        run: Resolved,
        y: Any,
        X_public: Any,
        y_public: Any,
        entity_ids: Any,
        silos: Any,
        whole_rows: Any,
    ) -> Received:
        """Return the rows of a fit, once public rows with targets are read by the schema as private ones are."""
        self._known = None
        table = as_table(X if isinstance(y, str) else {"y": y})
        if isinstance(y, str) and table is not None:
            X = table  # read once
        if isinstance(y, np.ndarray | list) and table is not None and table.type_of("y") not in NUMBER_TYPES:
            raise InvalidDataError(_NO_NUMBERS.format("y"))
        if not isinstance(y, np.ndarray | list) and table is not None:  # of a type that a reader chose
            target: Any = self.classes
            ids = table.column(entity_ids) if isinstance(entity_ids, str) else column_array(entity_ids)
            Schema({y if isinstance(y, str) else "y": target}).table(table, None if ids is None else canonical_ids(ids))
        if y_public is not None:
            schema: Any = self.public
            targets, rows = _targets(X_public, y_public, "y_public"), schema.transform(dense_rows(X_public))
            if len(rows) != len(targets):
                raise InvalidDataError(
                    f"`y_public` must have one number per public row, {len(rows)}. Got {len(targets)}."
                )
            if len(targets) < FEWEST:
                raise InvalidDataError(
                    f"`y_public` must have numbers of at least {FEWEST} public rows. Got {len(targets)}; leave it out."
                )
            self._known = rows, self._merged(targets)
        received = super()._received(X, run, y, None, None, entity_ids, silos, whole_rows)
        return received if self._known is None else received._replace(given=[*self._known])

    def _public(self, run: Resolved, rows: Matrix, shown: Any, unit: Any, n_teachers: Any, labels: Any) -> Public:
        made = super()._public(run, rows, shown, unit, n_teachers, labels)
        return made if self._known is None else replace(made, rows=self._known[0], labels=self._known[1])

    def _merged(self, labels: Any) -> IntArray:
        ends: Any = self.classes
        low, high = ends
        return np.rint((np.clip(numbers_of(labels), low, high) - low) / (high - low) * STEPS).astype(np.int64)

    def _encoded(self, labels: Any) -> IntArray:
        return labels

    def _given(
        self, run: Resolved, people: Any, public: Matrix, label: str | None = None, *, n_people: int | None = None
    ) -> Given:
        public = public if self._known is None else self._known[0]
        found = super()._given(run, people, public, label, n_people=n_people)
        labels, ends = numbers_of(people.as_given), cast("Any", self.classes)
        declared = (*found.declared, (Schema({"target": ends}), Table("", {"target": labels})))
        compared = () if self._known else found.numbers  # bins have no units
        return replace(found, labels=labels, n_classes=1, numbers=compared, declared=declared)


def numbers_of(cells: Any, named: str = "y") -> FloatArray:
    """Return targets as numbers; refuse any that is none, without quoting it."""
    found = None
    with suppress(Exception), np.errstate(all="ignore"):  # such as one of a cell, which may quote it
        given = np.asarray(column_array(cells))
        dated = given.dtype == object and any(isinstance(one, np.datetime64 | np.timedelta64) for one in given)
        found = None if dated or given.dtype.kind in "cmM" else given.astype(np.float64)  # dates are not numbers
    if found is None or found.ndim != 1 or not np.all(np.isfinite(found)):
        raise InvalidDataError(_NO_NUMBERS.format(named))
    return found


def _targets(X: Any, y: Any, named: str) -> FloatArray:
    """Return the numbers of rows, which may be a column of these."""
    table = as_table(X) if isinstance(y, str) else None
    return numbers_of(y if table is None else table.column(y), named)


@final
@dataclass(eq=False, repr=False)
class PATERegressor(RegressorMixin, BaseEstimator):
    """Learn to predict a number from sensitive rows with a proved (ε, δ) differential privacy guarantee.

    Each person casts ballots that say in which bins of a public schema the person is and how large the number is, and
    what the sums so far get wrong. Four noisy sums leave; the student is a table of effects, and no private row is in
    it. Every call of `fit` is a new release. With a `ledger`, all releases share its budget.

    Parameters
    ----------
    public : Schema, optional
        Ranges and categories of the columns, by public knowledge. See docs/howto/no-public-rows.md. Default: what
        `Schema.learn` proposes by `X_public`.
    target_range : (float, float)
        Lowest and highest number, by public knowledge: numbers beyond count as these. A narrow range has less noise.
    epsilon, budget, releases, release, delta, ledger, question, unit, data_changed, insist, mechanism, noise
        As for `PATEClassifier`.

    Attributes
    ----------
    student_ : AdditiveRegressor
        The table: `effects()`, `predict_quantiles`. Rows are bins; `whole_student()` takes rows as `fit` does.
    epsilon_ : PublicEpsilon
        The worst-case guarantee.
    fit_ : PATEClassifier
        The release: ledger, event and method are its attributes, as PATEClassifier documents them.
    public_ : Schema
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
    >>> model = PATERegressor(Schema({"age": (20, 80)}), (0, 10), epsilon=1.0, noise=SimulationNoise(0))
    >>> bool(model.fit({"age": age}, days).score({"age": age}, days) > 0.9)
    True
    """

    public: Any = None
    target_range: Any = None
    epsilon: float | None = None
    budget: float | None = None
    releases: int = 1
    release: str | None = None
    delta: float | None = None
    ledger: str | PathLike[str] | Ledger | None = None
    question: Any = None
    unit: str | None = None
    data_changed: bool = False
    insist: bool = False
    mechanism: NoisySum | None = None
    noise: NoiseSource | None = None

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        X_public: Any = None,
        y_public: Any = None,
        entity_ids: Any = None,
        whole_rows: Any = None,
    ) -> Self:
        """Let people cast ballots from the private rows, release their sums through noise, and set the student.

        Parameters
        ----------
        X : rows with named columns, or array of shape (rows, columns of the schema)
            Private rows, in any form that `PATEClassifier.fit` takes but batches.
        y : array of shape (rows,) or str
            Number of each private row, or the name of a column of `X`.
        X_public : rows with named columns, optional
            Public rows, which propose the schema if `public` is not given. All their columns are features, except those
            that `y`, `y_public` and `entity_ids` name.
        y_public : array of shape (public rows,) or str, optional
            Numbers of public rows, or the name of a column of them. The sums then say what a model of these numbers
            gets wrong. Do not score by these rows afterwards.
        entity_ids, whole_rows
            As for `PATEClassifier.fit`. All rows with one id are one person's, whose ballot is their mean.

        Raises
        ------
        InvalidParameterError, InvalidDataError, PreflightError, BudgetExceededError, LedgerError
            As for `PATEClassifier.fit`. No message quotes a private value.
        """
        fitting, given = self._fitting(X_public, y_public, y, entity_ids), {"X_public": X_public, "y_public": y_public}
        self.fit_ = fitting.fit(X, y, entity_ids=entity_ids, whole_rows=whole_rows, **given)
        self.student_, self.epsilon_, self.public_ = self.fit_.student_, self.fit_.epsilon_, fitting.public
        self.n_features_in_ = self.fit_.n_features_in_
        return self

    def check(self, X: Any, y: Any, **more: Any) -> Self:
        """Check parameters, rows and ledger as `fit` does before it spends anything; nothing is released.

        Parameters
        ----------
        X, y, **more
            As for `fit`.
        """
        self._fitting(more.get("X_public"), more.get("y_public"), y, more.get("entity_ids")).check(X, y, **more)
        return self

    def _fitting(self, X_public: Any = None, y_public: Any = None, *others: Any) -> _OfNumbers:
        """Return the estimator whose fit is the release; `others` may name columns that are no features."""
        ends = self.target_range
        plain = isinstance(ends, Sequence) and not isinstance(ends, str) and len(ends) == 2
        if not (plain and all(isinstance(end, int | float | np.number) for end in ends) and ends[0] < ends[1]):
            raise InvalidParameterError(
                Problem(
                    "PATERegressor.target_range",
                    "be the lowest and the highest number, by public knowledge, as [0, 100]",
                    shown(ends),
                )
            )
        low, high = cast("Any", ends)
        if low < -LARGEST or high > LARGEST:
            raise InvalidParameterError(Problem("PATERegressor.target_range", "be finite, and within ±2**53"))
        schema = self._schema(X_public, y_public, *others)
        own = ("target_range", "mechanism")
        given = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in own}
        given["public"] = schema
        plain = tuple(int(end) if isinstance(end, Integral) else float(end) for end in ends)
        return _OfNumbers(method=AdditiveMean(self.mechanism), classes=plain, **given)

    def _schema(self, X_public: Any, y_public: Any, *others: Any) -> Schema:
        """Return the schema, as given or as public rows propose it."""
        if y_public is not None and X_public is None:
            raise InvalidParameterError(
                Problem("PATERegressor.fit.y_public", "come with the public rows in $X_public", fix="Pass both.")
            )
        if self.public is None and X_public is not None:
            table = as_table(X_public)
            no_features = {one for one in (y_public, *others) if isinstance(one, str)}
            return Schema.learn(X_public if table is None else table.without(no_features & {*table.columns}))
        if not isinstance(self.public, Schema):
            raise InvalidParameterError(
                Problem(
                    "PATERegressor.public",
                    "be a Schema",
                    shown(self.public),
                    "For public rows, leave it out and pass them to fit as $X_public.",
                )
            )
        if X_public is not None and y_public is None:
            raise InvalidParameterError(
                Problem(
                    "PATERegressor.public",
                    "be left out if you pass public rows without numbers",
                    fix="Leave out $public or $X_public, or pass $y_public.",
                )
            )
        return self.public

    def predict(self, X: Any) -> FloatArray:
        """Return the expected number of each row; costs no privacy.

        Parameters
        ----------
        X : rows with named columns, or array of shape (rows, columns of the schema)
            Rows to predict.
        """
        check_is_fitted(self)
        return self.student_.predict(self.fit_._seen(X))

    def predict_quantiles(self, X: Any, quantiles: Sequence[float] = (0.1, 0.5, 0.9)) -> FloatArray:
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
        return self.student_.predict_quantiles(self.fit_._seen(X), quantiles)

    def whole_student(self) -> Any:
        """Return the student behind the schema, which takes rows as `fit` did; it may be published."""
        check_is_fitted(self)
        return self.fit_.whole_student()

    def card(self, X: Any = None, y: Any = None, *, statements: dict[str, str] | None = None) -> PrivacyCard:
        """Return the privacy card of this fit, from public values only; costs no privacy.

        Parameters
        ----------
        X, y : rows with named columns, array of shape (rows,) or str, optional
            Public rows with their numbers, which score the student. They must not be private rows.
        statements : dict of str to str, optional
            What the people behind the data say, as for `PATEClassifier.card`.
        """
        check_is_fitted(self)
        card = self.fit_.card(statements=statements)
        if (X is None) != (y is None):
            raise InvalidParameterError(Problem("PATERegressor.card.X", "come with $y: public rows and their numbers"))
        return card if y is None else replace(card, errors=(self._errors(X, y),))

    def _errors(self, X: Any, y: Any) -> Errors:
        truth = _targets(X, y, "y")
        wrong, spread = truth - self.predict(X), truth - truth.mean()
        low, _, high = self.predict_quantiles(X).T
        return Errors(
            *map(float, self.target_range),
            rows=len(truth),
            typical=float(np.sqrt(np.mean(wrong**2))),
            of_mean=float(np.sqrt(np.mean(spread**2))),
            within=float(np.mean((low <= truth) & (truth <= high))),
            of_public=self.student_.typical_of_public(self.fit_._seen(X), truth),
        )

    def save(self, folder: str | PathLike[str], card: PrivacyCard | None = None) -> Path:
        """Write what may be published of this fit as one folder, and return the folder; see `PATEClassifier.save`.

        Parameters
        ----------
        folder : path-like
            Destination. It must not exist, be empty, or hold earlier results and nothing else.
        card : PrivacyCard, optional
            Default: that of `card()`.
        """
        check_is_fitted(self)
        return self.fit_.save(folder, card or self.card())
