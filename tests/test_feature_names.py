"""Features have names, and scikit-learn's `set_output` makes frames of them without changing a label."""

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.pipeline import make_pipeline

from conftest import FITS_AGAIN
from test_named_rows import PRIVATE, PUBLIC, classifier
from tutelage.features import (
    EdgesAndLevels,
    PublicColumns,
    PublicKernel,
    PublicPCA,
    PublicRows,
    PublicScaling,
    PublicSteps,
    UnitBall,
)
from tutelage.teachers import VectorBallots

pytestmark = [FITS_AGAIN, pytest.mark.rest]
LABELS = PRIVATE["ill"].to_numpy()
ROWS = np.random.default_rng(0).normal(size=(60, 9))
NAMES = [f"column {number}" for number in range(9)]
MAPS: dict[str, Any] = {
    "axes": PublicPCA.learn(PublicRows(ROWS, "made up"), 3),
    "scales": PublicScaling.learn(PublicRows(ROWS, "made up")),
    "kernel": PublicKernel.learn(PublicRows(ROWS, "made up"), 20),
    "steps": PublicSteps.learn(PublicRows(np.round(ROWS), "made up"), 5),
    "ball": UnitBall(1.0),
}


def frames(steps: BaseEstimator, library: str = "pandas") -> Any:
    """Return copies of maps that make frames."""
    made: Any = clone(steps)
    return made.set_output(transform=library)


@pytest.mark.parametrize("name", MAPS)
def test_every_map_names_each_of_its_features_once(name):
    found = list(MAPS[name].get_feature_names_out(NAMES))
    assert len(set(found)) == len(found) == MAPS[name].transform(ROWS).shape[1]


def test_features_of_images_have_names():
    images = EdgesAndLevels((8, 6))
    assert len(images.get_feature_names_out()) == images.transform(np.ones((2, 48))).shape[1]


def test_names_say_what_a_feature_is():
    columns = PublicColumns.learn(PUBLIC)
    assert columns.get_feature_names_out().tolist() == ["age", "dose", "seen", "size", "ward", "fit"]
    steps = PublicSteps([np.array([30.0, 50.0])], [np.array([0.0, 1.0])])
    assert steps.get_feature_names_out(["age", "ward"]).tolist() == ["age>=30.0", "age>=50.0", "ward=0.0", "ward=1.0"]
    assert MAPS["scales"].get_feature_names_out(NAMES).tolist() == NAMES


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("name", MAPS)
def test_frames_hold_the_same_numbers(name, library):
    made = frames(MAPS[name], library).transform(ROWS)
    assert type(made).__module__.startswith(library)
    assert made.to_numpy().tobytes() == MAPS[name].transform(ROWS).astype(made.to_numpy().dtype).tobytes()
    if name != "ball":  # it does not know what its columns are
        assert list(made.columns) == list(MAPS[name].get_feature_names_out())


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("teacher", [None, VectorBallots()], ids=["votes", "vectors"])
def test_a_student_that_makes_frames_predicts_the_same(teacher, library):
    people: dict[str, Any] = {"teacher": teacher, "mechanism": None, "student": None, "epsilon": 20.0}
    model = classifier(**people if teacher else {}).fit(PRIVATE, LABELS, X_public=PUBLIC)
    student = model.whole_student()
    expected = model.predict(PRIVATE)
    seen = frames(student[:-1], library).transform(PRIVATE)
    if teacher is None:
        assert list(seen.columns) == ["age", "dose", "seen", "size", "ward", "fit"]
    assert seen.to_numpy().tolist() == np.asarray(student[:-1].transform(PRIVATE)).tolist()
    again = student.set_output(transform=library)
    with pytest.warns(UserWarning, match="feature names") if teacher is None else nullcontext():
        assert np.array_equal(again.predict(PRIVATE), expected)


def test_maps_that_make_frames_change_no_ballot():
    columns = PublicColumns.learn(PUBLIC)
    steps = PublicSteps.learn(PublicRows(columns.transform(PUBLIC), "public"), len(columns.numbers))
    plain, framed = make_pipeline(columns, steps), make_pipeline(clone(columns), clone(steps))
    framed.set_output(transform="pandas")
    one, other = (classifier(features=one).fit(PRIVATE, LABELS, X_public=PUBLIC) for one in (plain, framed))
    assert np.array_equal(one.votes_.counts, other.votes_.counts)
    assert np.array_equal(one.predict(PRIVATE), other.predict(PRIVATE))
