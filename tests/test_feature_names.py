"""Features have names, and scikit-learn's `set_output` makes frames of them without changing a label."""

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import BaseEstimator, clone
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier

from conftest import FITS_AGAIN
from test_named_rows import PRIVATE, PUBLIC, classifier
from tutelage.features import (
    EdgesAndLevels,
    PublicColumns,
    PublicFeatureMap,
    PublicKernel,
    PublicPCA,
    PublicRows,
    PublicScaling,
    PublicSteps,
    UnitBall,
)
from tutelage.teachers import VectorBallots

pytestmark = FITS_AGAIN
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


def test_features_of_texts_are_named_after_their_column():
    words = np.array(["fever", "cough", "knee", "left", "right", "pain", "none", "since"])
    texts = [" ".join(chosen) for chosen in np.random.default_rng(0).choice(words, (60, 5))]
    rows = {"note": texts, "age": list(range(60))}
    columns = PublicColumns.learn(rows)
    steps = PublicSteps.learn(PublicRows(columns.transform(rows), "made up"), 1, 2, columns.n_text_features)
    names = columns.get_feature_names_out().tolist()
    assert names[:2] == ["age", "note~0"]
    assert len(names) == len(set(names)) == columns.transform(rows).shape[1]
    assert steps.get_feature_names_out(names).tolist()[2:] == names[1:]
    with config_context(transform_output="pandas"):
        made: Any = columns.transform(rows)
    assert len(made.columns) == len(names)


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("name", MAPS)
def test_frames_hold_the_same_numbers(name, library):
    made = frames(MAPS[name], library).transform(ROWS)
    assert type(made).__module__.startswith(library)
    assert made.to_numpy().tobytes() == MAPS[name].transform(ROWS).astype(made.to_numpy().dtype).tobytes()
    if name != "ball":  # it does not know what its columns are
        assert list(made.columns) == list(MAPS[name].get_feature_names_out())


class Doubled(PublicFeatureMap):
    def transform(self, X: Any) -> Any:
        return 2 * np.asarray(X)


def test_a_map_without_names_makes_frames_all_the_same():
    assert frames(Doubled()).transform(ROWS).to_numpy().tolist() == (2 * ROWS).tolist()


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


@pytest.mark.parametrize("teacher", [None, VectorBallots()], ids=["votes", "vectors"])
def test_output_that_is_set_for_all_of_scikit_learn_changes_no_ballot(teacher):
    people: dict[str, Any] = {"teacher": teacher, "mechanism": None, "student": None, "epsilon": 20.0}
    people = people | {"n_teachers": None} if teacher else {}
    expected = classifier(**people).fit(PRIVATE, LABELS, X_public=PUBLIC)
    with config_context(transform_output="pandas"):
        model = classifier(**people).fit(PRIVATE, LABELS, X_public=PUBLIC)
        assert np.array_equal(model.predict(PRIVATE), expected.predict(PRIVATE))
    assert np.array_equal(model.release_.labels, expected.release_.labels)


def test_the_classifier_ends_a_pipeline_whose_maps_make_frames():
    columns = PublicColumns.learn(PUBLIC)
    model = classifier(public_fraction=0.3, teacher=DecisionTreeClassifier(max_depth=2))
    pipeline = make_pipeline(columns, model).set_output(transform="pandas").fit(PRIVATE, LABELS)
    assert pipeline[-1].feature_names_in_.tolist() == columns.get_feature_names_out().tolist()
    assert pipeline.score(PRIVATE.to_pandas(), LABELS) > 0.8
