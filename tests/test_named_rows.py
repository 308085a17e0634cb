"""`PATEClassifier` on rows with named columns: the form of a table changes nothing."""

from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import config_context
from sklearn.tree import DecisionTreeClassifier

from conftest import FITS_AGAIN
from test_large import made_up
from tutelage import GNMax, PATEClassifier, SimulationNoise
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.features import PublicColumns
from tutelage.tables import read_table
from tutelage.teachers import VectorBallots

duckdb, pandas, polars = map(pytest.importorskip, ("duckdb", "pandas", "polars"))
pytestmark = FITS_AGAIN

FEATURES = ["age", "dose", "size", "ward", "fit", "seen"]


def dated(n: int, seed: int) -> Any:
    """Return the rows of `made_up` with a day, a clinic, and an illness of age."""
    random, rows = np.random.default_rng(seed), made_up(n, seed).drop("note")
    age = random.integers(20, 90, n)
    days = [date(2020, 1, 1) + timedelta(days=int(days)) for days in random.integers(0, 900, n)]
    ill = np.where(age > 55, "yes", "no").tolist()
    return rows.with_columns(age=age, seen=polars.Series(days), ill=polars.Series(ill), clinic=np.arange(n) % 12)


PRIVATE, PUBLIC = dated(400, seed=0), dated(120, seed=1).select(FEATURES)
COLUMNS = PublicColumns.learn(PUBLIC, kinds={"seen": "date"})


FORMS: dict[str, Callable[[Any, Path], Any]] = {
    "pandas": lambda frame, _: frame.to_pandas(),
    "lazy Polars": lambda frame, _: frame.lazy(),
    "PyArrow": lambda frame, _: frame.to_arrow(),
    "DuckDB": lambda frame, _: duckdb.sql("SELECT * FROM frame"),
    "csv": lambda frame, folder: frame.write_csv(folder / "rows.csv") or read_table(folder / "rows.csv"),
    "reordered": lambda frame, _: frame.select(frame.columns[::-1]),
}


def classifier(**more: Any) -> PATEClassifier:
    tree = DecisionTreeClassifier(max_depth=2)
    settings: dict[str, Any] = {"teacher": tree, "n_teachers": 20, "mechanism": GNMax(sigma=2.0), "student": tree}
    return PATEClassifier(**settings | {"noise": SimulationNoise(0), "random_state": 0} | more)


def fitted(X: Any, X_public: Any, **more: Any) -> PATEClassifier:
    y = "ill" if isinstance(X, polars.LazyFrame | duckdb.DuckDBPyRelation) else PRIVATE["ill"].to_numpy()
    dated = {} if isinstance(X_public, np.ndarray) else {"features": COLUMNS}
    return classifier(**dated | more).fit(X, y, X_public=X_public)


@pytest.fixture(scope="module")
def of_arrays() -> tuple[PATEClassifier, PublicColumns]:
    columns = COLUMNS
    return fitted(columns.transform(PRIVATE), columns.transform(PUBLIC)), columns


@pytest.mark.rest
@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_ballots_and_the_same_student(form, of_arrays, tmp_path):
    expected, columns = of_arrays
    public = PUBLIC if form == "reordered" else FORMS[form](PUBLIC, tmp_path)
    rows = FORMS[form](PRIVATE, tmp_path)
    model = fitted(rows, public)
    assert np.array_equal(model.votes_.counts, expected.votes_.counts)
    assert np.array_equal(model.release_.labels, expected.release_.labels)
    predicted = expected.predict(columns.transform(PRIVATE))
    assert np.array_equal(model.predict(rows), predicted)
    assert np.array_equal(model.predict(PRIVATE.to_pandas()), predicted)
    assert np.array_equal(model.predict(PRIVATE.select(FEATURES).rows()), predicted)  # no names: in the order of names
    assert model.score(rows, PRIVATE["ill"].to_numpy()) > 0.8
    assert model.columns_ is not None
    assert model.columns_.names == columns.names


@pytest.mark.rest
@pytest.mark.parametrize(("form", "name", "source"), [
    ("pandas", "entity_ids", "person"), ("PyArrow", "silos", "clinic"),
])  # fmt: skip
def test_labels_ids_and_silos_may_be_columns_of_the_same_library(form, name, source, tmp_path):
    X, public = (FORMS[form](rows.select(FEATURES), tmp_path) for rows in (PRIVATE, PUBLIC))
    label, column = (FORMS[form](PRIVATE.select(one), tmp_path)[one] for one in ("ill", source))
    arrays = {name: PRIVATE[source].to_numpy()}
    model: Any = classifier(features=COLUMNS)
    one = model.fit(PRIVATE, PRIVATE["ill"].to_numpy(), X_public=PUBLIC, **arrays)
    other = classifier(features=COLUMNS).fit(X, label, X_public=public, **{name: column})
    assert np.array_equal(one.votes_.counts, other.votes_.counts)
    assert one.votes_.unit == other.votes_.unit


def test_columns_may_be_declared():
    few = PublicColumns(("ward", "age"), (np.array(["south", "north"]), None))
    expected = fitted(few.transform(PRIVATE), few.transform(PUBLIC))
    model = fitted(PRIVATE, PUBLIC, features=few)
    assert np.array_equal(model.votes_.counts, expected.votes_.counts)
    assert np.array_equal(model.predict(PRIVATE), expected.predict(few.transform(PRIVATE)))
    with pytest.raises(InvalidParameterError, match="must begin with the same PublicColumns"):
        fitted(PRIVATE, PUBLIC, features=few, student_features=PublicColumns(("age",), (None,)))


@pytest.mark.rest
@pytest.mark.parametrize("lazy", ["X", "y", "entity_ids", "whole_rows"])
def test_rows_that_are_computed_anew_are_refused_beside_others(lazy):
    frame = polars.DataFrame({"age": np.arange(90.0), "sick": [0, 1] * 45, "who": np.arange(90)})
    given = {"X": frame.select("age"), "y": frame["sick"], "entity_ids": frame["who"], "whole_rows": frame}
    given[lazy] = frame.lazy().select({"y": "sick", "entity_ids": "who"}.get(lazy, "age"))
    with pytest.raises(InvalidDataError, match=f"`{lazy}` is a lazy frame or a relation"):
        PATEClassifier(epsilon=5.0).fit(given.pop("X"), given.pop("y"), X_public=frame.select("age"), **given)


@pytest.mark.parametrize("name", ["y", "entity_ids"])
def test_columns_of_pandas_must_have_the_index_of_the_rows(name):
    frame = pandas.DataFrame({"age": np.arange(90.0), "sick": [0, 1] * 45, "who": np.arange(90)})
    given = {"y": frame["sick"], "entity_ids": frame["who"]}
    given[name] = given[name].iloc[::-1]
    with pytest.raises(InvalidDataError, match=f"`{name}` must have the index of `X`"):
        PATEClassifier(epsilon=5.0).fit(frame[["age"]], given.pop("y"), X_public=frame[["age"]], **given)
    indexed = frame.set_index("who")
    PATEClassifier(epsilon=50.0, insist=True).fit(
        indexed[["age"]], indexed["sick"], X_public=frame[["age"]], entity_ids=indexed.index
    )


def test_rows_with_names_beside_rows_without_are_refused():
    matrix = PublicColumns.learn(PUBLIC).transform
    for X, public, named in ((PRIVATE, matrix(PUBLIC), "`X`"), (matrix(PRIVATE), PUBLIC, "`X_public`")):
        with pytest.raises(InvalidDataError, match=f"must both have named columns, or neither. Only {named} has"):
            fitted(X, public)


@pytest.mark.parametrize("teacher", [None, VectorBallots()], ids=["votes", "vectors"])
def test_output_that_is_set_for_all_of_scikit_learn_changes_no_ballot(teacher):
    labels = PRIVATE["ill"].to_numpy()
    people: dict[str, Any] = {"teacher": teacher, "mechanism": None, "student": None, "epsilon": 20.0}
    people = people | {"n_teachers": None} if teacher else {}
    people["features"] = COLUMNS
    expected = classifier(**people).fit(PRIVATE, labels, X_public=PUBLIC)
    with config_context(transform_output="pandas"):
        model = classifier(**people).fit(PRIVATE, labels, X_public=PUBLIC)
        assert np.array_equal(model.predict(PRIVATE), expected.predict(PRIVATE))
    assert np.array_equal(model.release_.labels, expected.release_.labels)
