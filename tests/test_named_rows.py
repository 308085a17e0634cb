"""`PATEClassifier` on rows with named columns: the form of a table changes nothing."""

from datetime import date, timedelta
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
from tutelage.methods import Method, NoisyMoments, TeacherVotes

pandas, polars = map(pytest.importorskip, ("pandas", "polars"))
pytestmark = FITS_AGAIN

FEATURES = ["age", "dose", "size", "ward", "fit", "seen"]


def dated(n: int, seed: int) -> Any:
    """Return the rows of `made_up` with a day, a clinic, and an illness of age."""
    random, rows = np.random.default_rng(seed), made_up(n, seed).drop("note")
    age = random.integers(20, 90, n)
    days = [date(2020, 1, 1) + timedelta(days=int(days)) for days in random.integers(0, 900, n)]
    ill = np.where(age > 55, "yes", "no").tolist()
    return rows.with_columns(
        age=age, seen=polars.Series(days), ill=polars.Series(ill), clinic=np.arange(n) % 12
    )


PRIVATE, PUBLIC = dated(400, seed=0), dated(120, seed=1).select(FEATURES)
COLUMNS = PublicColumns.learn(PUBLIC, kinds={"seen": "date"})


TREE = DecisionTreeClassifier(max_depth=2)
VOTES = TeacherVotes(TREE, n_teachers=20, mechanism=GNMax(sigma=2.0), student=TREE)


def classifier(method: Method = VOTES, **more: Any) -> PATEClassifier:
    return PATEClassifier(method=method, noise=SimulationNoise(0), random_state=0, **more)


def fitted(X: Any, X_public: Any, **more: Any) -> PATEClassifier:
    y = "ill" if isinstance(X, polars.LazyFrame) else PRIVATE["ill"].to_numpy()
    dated: Any = {} if isinstance(X_public, np.ndarray) else {"columns": COLUMNS}
    return classifier(**dated | more).fit(X, y, X_public=X_public)


@pytest.mark.rest
@pytest.mark.parametrize(("name", "source"), [("entity_ids", "person"), ("silos", "clinic")])
def test_labels_ids_and_silos_may_be_columns_of_the_same_library(name, source):
    X, public, whole = PRIVATE.select(FEATURES).to_arrow(), PUBLIC.to_arrow(), PRIVATE.to_arrow()
    arrays = {name: PRIVATE[source].to_numpy()}
    one = classifier(columns=COLUMNS).fit(
        PRIVATE, PRIVATE["ill"].to_numpy(), X_public=PUBLIC, **arrays
    )
    other = classifier(columns=COLUMNS).fit(
        X, whole["ill"], X_public=public, **{name: whole[source]}
    )
    assert np.array_equal(one.votes_.counts, other.votes_.counts)
    assert one.votes_.unit == other.votes_.unit


def test_rows_with_names_are_rows_of_numbers_under_columns_that_may_be_declared():
    few = PublicColumns(("ward", "age"), (np.array(["south", "north"]), None))
    expected = fitted(few.transform(PRIVATE), few.transform(PUBLIC))
    # In any order, and not read before they are needed.
    for rows in (PRIVATE, PRIVATE[:, ::-1].lazy()):
        model = fitted(rows, PUBLIC, columns=few)
        assert np.array_equal(model.votes_.counts, expected.votes_.counts)
        # No names: in the order of names.
        for asked in (rows, PRIVATE.select("ward", "age").rows()):
            assert np.array_equal(model.predict(asked), expected.predict(few.transform(PRIVATE)))
    with pytest.raises(
        InvalidParameterError, match="`features` of PATEClassifier must take numbers"
    ):
        fitted(PRIVATE, PUBLIC, features=few)
    with pytest.raises(
        InvalidParameterError, match="`student_features` of TeacherVotes must take numbers"
    ):
        VOTES.with_params(student_features=PublicColumns(("age",), (None,)))
    with pytest.raises(InvalidDataError, match="must both have named columns, or neither"):
        fitted(PRIVATE, few.transform(PUBLIC))


@pytest.mark.rest
@pytest.mark.parametrize("lazy", ["X", "y", "entity_ids", "whole_rows"])
def test_rows_that_are_computed_anew_are_refused_beside_others(lazy):
    frame = polars.DataFrame({"age": np.arange(90.0), "sick": [0, 1] * 45, "who": np.arange(90)})
    given = {
        "X": frame.select("age"),
        "y": frame["sick"],
        "entity_ids": frame["who"],
        "whole_rows": frame,
    }
    given[lazy] = frame.lazy().select({"y": "sick", "entity_ids": "who"}.get(lazy, "age"))
    with pytest.raises(InvalidDataError, match=f"`{lazy}` is a lazy frame or a relation"):
        PATEClassifier(epsilon=5.0).fit(
            given.pop("X"), given.pop("y"), X_public=frame.select("age"), **given
        )


@pytest.mark.parametrize("name", ["y", "entity_ids"])
def test_columns_of_pandas_must_have_the_index_of_the_rows(name):
    frame = pandas.DataFrame({"age": np.arange(90.0), "sick": [0, 1] * 45, "who": np.arange(90)})
    given = {"y": frame["sick"], "entity_ids": frame["who"]}
    given[name] = given[name].iloc[::-1]
    with pytest.raises(InvalidDataError, match=f"`{name}` must have the index of `X`"):
        PATEClassifier(epsilon=5.0).fit(
            frame[["age"]], given.pop("y"), X_public=frame[["age"]], **given
        )


@pytest.mark.parametrize("of_people", [False, True], ids=["votes", "vectors"])
def test_output_that_is_set_for_all_of_scikit_learn_changes_no_ballot(of_people):
    own: dict[str, Any] = {"method": NoisyMoments(), "epsilon": 20.0} if of_people else {}
    expected = fitted(PRIVATE, PUBLIC, **own)
    with config_context(transform_output="pandas"):
        model = fitted(PRIVATE, PUBLIC, **own)
        assert np.array_equal(model.predict(PRIVATE), expected.predict(PRIVATE))
    assert np.array_equal(model.release_.labels, expected.release_.labels)
