"""Students as ONNX files: the same predictions as in Python, for every map and classifier that can be written."""

from datetime import date
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, OneHotEncoder, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from blobs import PUBLIC, TEST, blobs
from test_additive import SCHEMA, made_up, of
from test_named_rows import COLUMNS, PRIVATE
from test_named_rows import PUBLIC as PEOPLE
from tutelage import PATERegressor, SimulationNoise
from tutelage.exceptions import InvalidParameterError
from tutelage.features import (
    PublicColumns,
    PublicEncoder,
    PublicPCA,
    PublicRows,
    PublicScaling,
    PublicSteps,
    PublicTransformer,
    ballot_features,
    image_features,
)
from tutelage.methods import additive
from tutelage.students import LabelPropagationStudent, NoisySumClassifier, load_student
from tutelage_reproductions.datasets import load_digits

pytestmark = pytest.mark.rest
pytest.importorskip("skl2onnx")
runtime: Any = pytest.importorskip("onnxruntime")
from tutelage.students import export, export_onnx  # noqa: E402  needs the extra

ROWS, LABELS = blobs(1500, 5)
# Two classes whose probabilities are nearer than this are told apart by rounding to 32 bits.
SURE = 1e-6
# Rows further out than any public one.
ONE_MORE = np.vstack([TEST, 50 * TEST[:100], np.zeros((1, 4))])
DECLARED = PublicRows(PUBLIC, "public rows")
CLASSIFIERS = {
    "tree": DecisionTreeClassifier(max_depth=4, random_state=0),
    "histogram gradient boosting": HistGradientBoostingClassifier(max_iter=15, random_state=0),
    "support vectors": SVC(random_state=0),
    "closed form": NoisySumClassifier(),
}
MAPS = {
    "one public value": PublicScaling(np.zeros(4), np.array([1.0, 0.0, 2.0, 1.0])),
    "axes": PublicPCA.learn(DECLARED, 3, whiten=True),
    "kernel": ballot_features(DECLARED, noise=0.02),
    "features beside steps": PublicSteps.learn(DECLARED, 2, n_features=2),
    "ranges": PublicTransformer.learn(MinMaxScaler(clip=True), DECLARED, row_by_row=True),
    "one after another": make_pipeline(
        PublicScaling.learn(DECLARED), make_pipeline(PublicPCA.learn(DECLARED, 2))
    ),
}


def run(path: Any, inputs: dict[str, Any]) -> tuple[Any, Any]:
    return tuple(
        runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, inputs)
    )


def assert_same(student: Any, path: Any, rows: Any, inputs: dict[str, Any] | None = None) -> None:
    """Compare a file with the student that it was written from."""
    labels, probabilities = run(path, inputs or {"rows": np.asarray(rows, dtype=np.float64)})
    expected = student.predict(rows)
    same = np.ones(len(expected), dtype=bool)
    assert len(expected) >= 400
    if hasattr(student, "predict_proba"):
        known = student.predict_proba(rows)
        np.testing.assert_allclose(probabilities, known, atol=1e-6)
        second, first = np.sort(known, axis=1)[:, -2:].T
        same = first - second > SURE
        assert np.mean(labels == expected) > 0.99
    assert labels[same].tolist() == expected[same].tolist()
    assert len(np.unique(labels)) > 1


FITTED = {
    name: (one, np.array(["low", "middle", "high"])[LABELS], TEST)
    for name, one in CLASSIFIERS.items()
}
MAPPED = {
    name: (make_pipeline(one, NoisySumClassifier()), LABELS, ONE_MORE) for name, one in MAPS.items()
}


@pytest.mark.parametrize(
    ("student", "y", "rows"), [*FITTED.values(), *MAPPED.values()], ids=[*FITTED, *MAPPED]
)
def test_a_classifier_predicts_the_same_and_a_map_gives_the_same_features(
    tmp_path, student, y, rows
):
    student.fit(ROWS, y)
    assert_same(student, export_onnx(student, tmp_path / "student.onnx"), rows)


@pytest.mark.parametrize(
    ("name", "learned"), [("tree", False), ("histogram gradient boosting", True)]
)
def test_trees_send_missing_values_the_same_way(tmp_path, name, learned):
    holes = np.random.default_rng(0).random(ROWS.shape) < 0.2
    student: Any = clone(CLASSIFIERS[name])
    student.fit(np.where(holes & learned, np.nan, ROWS), LABELS)
    missing = np.where(np.random.default_rng(1).random(TEST.shape) < 0.2, np.nan, TEST)
    assert_same(student, export_onnx(student, tmp_path / "student.onnx"), missing)


def test_students_of_images_predict_the_same(tmp_path):
    digits = load_digits()
    images = digits.X_train.reshape(-1, 4, 8, 2)
    features = image_features(PublicRows(images[:400], "digits"), n_components=20)
    student = make_pipeline(features, LogisticRegression(max_iter=1000)).fit(
        images[400:900], digits.y_train[400:900]
    )
    wild = np.concatenate(
        [digits.X_test * 1.7 - 3.3, digits.X_train[900:], np.zeros((1, 64))]
    ).astype(np.float64)
    assert_same(student, export_onnx(student, tmp_path / "student.onnx"), wild)


def test_a_graph_that_differs_is_refused(tmp_path, monkeypatch):
    """The planted fault: the graph of another student."""
    features = PublicTransformer.learn(StandardScaler(), DECLARED)
    one = make_pipeline(features, LogisticRegression()).fit(ROWS, LABELS)
    other = make_pipeline(features, LogisticRegression()).fit(-ROWS, LABELS)
    export_onnx(one, tmp_path / "one.onnx")
    monkeypatch.setattr(export, "_graph_of", lambda *_: (tmp_path / "one.onnx").read_bytes())
    with pytest.raises(InvalidParameterError, match="other predictions with StandardScaler"):
        export_onnx(other, tmp_path / "other.onnx")


AGES: Any = {"age": np.arange(80)}
NOTES: Any = AGES | {
    "note": [f"{word} and {number}" for number in range(40) for word in ("good", "bad")]
}
FRAMES: Any = PublicTransformer.learn(ColumnTransformer([("age", StandardScaler(), ["age"])]), AGES)


@pytest.mark.parametrize(
    ("first", "rows", "named"),
    [(PublicColumns.learn(NOTES, kinds={"note": "text"}), NOTES, "note"), (FRAMES, AGES, "age")],
    ids=["texts", "frames"],
)
def test_texts_and_frames_are_refused_with_what_to_do(tmp_path, first, rows, named):
    student = make_pipeline(first, NoisySumClassifier()).fit(rows, np.arange(80) % 2)
    with pytest.raises(InvalidParameterError, match=f"Got columns {named}. Publish student.skops"):
        export_onnx(student, tmp_path / "student.onnx")


def test_a_student_of_named_columns_takes_one_input_per_column(tmp_path):
    student = make_pipeline(COLUMNS, HistGradientBoostingClassifier(max_iter=10, random_state=0))
    student.fit(PEOPLE, PEOPLE["age"].to_numpy() // 10 + (PEOPLE["ward"].to_numpy() == "east"))
    ward, dose = (
        PRIVATE["ward"].replace(["north"], ["unseen"]),
        PRIVATE["dose"].set(PRIVATE["age"] > 80, None),
    )
    rows = PRIVATE.select(PEOPLE.columns).with_columns(ward=ward, dose=dose)
    cells = rows.to_dict(as_series=False) | {
        "seen": [(day - date(1970, 1, 1)).days for day in rows["seen"]]
    }
    path, inputs = export_onnx(student, tmp_path / "student.onnx"), {}
    for one in runtime.InferenceSession(str(path)).get_inputs():
        given, text = cells[one.name], "string" in one.type
        inputs[one.name] = np.array(
            list(map(str, given)) if text else given, object if text else float
        )[:, np.newaxis]
    assert_same(student, path, rows, inputs)


class Squaring(FunctionTransformer):
    """Unknown to the converter."""


ROUNDED = np.abs(np.round(ROWS))
ODD = {
    "age": ["nan", "-1e300", "1e300"],
    "work": ["public", "other", ""],
    "hours": ["nan", "0.5", "inf"],
}


def as_columns(cells: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return rows as a student takes them, and as its file does."""
    columns = {
        name: np.array(one, object if name == "work" else float) for name, one in cells.items()
    }
    return columns, {name: one[:, np.newaxis] for name, one in columns.items()}


@pytest.mark.parametrize("pairs", [False, True])
def test_a_table_of_effects_predicts_the_same(pairs, tmp_path, monkeypatch):
    rows, y = made_up(1_000)
    if pairs:
        monkeypatch.setattr(additive, "_PEOPLE_OF_PAIRS", 0.0)
    student = of(epsilon=3.0).fit(rows, y).whole_student()
    assert len(student[-1].pairs_) == 3 * pairs
    path = export_onnx(student, tmp_path / "student.onnx")
    for columns, inputs in map(as_columns, (rows, ODD)):
        labels, probabilities = run(path, inputs)
        np.testing.assert_allclose(probabilities, student.predict_proba(columns))
        assert labels.tolist() == student.predict(columns).tolist()


def test_a_table_of_numbers_predicts_the_same(tmp_path):
    rows, _ = made_up(1_000)
    y = rows["age"] + 30 * rows["hours"] * (rows["work"] == "public")
    public = {name: one[:300] for name, one in rows.items()}
    model = PATERegressor(3.0, (20, 100), columns=SCHEMA, noise=SimulationNoise(0))
    model.fit(rows, y, X_public=public, y_public=y[:300])
    model.save(tmp_path / "results")
    path = export_onnx(load_student(tmp_path / "results"), tmp_path / "student.onnx")
    for columns, inputs in map(as_columns, (rows, ODD)):
        found, *others = run(path, inputs)
        assert not others
        np.testing.assert_allclose(found, model.predict(columns), rtol=0, atol=1e-9)


def learned(transformer):
    return make_pipeline(
        PublicTransformer.learn(transformer, PublicRows(ROUNDED, "rows")), NoisySumClassifier()
    )


@pytest.mark.parametrize(("student", "named"), [
    (LabelPropagationStudent(), "LabelPropagationStudent"),
    (make_pipeline(PublicEncoder(np.sqrt, "made up"), LogisticRegression()), "PublicEncoder"),
    (HistGradientBoostingClassifier().set_params(categorical_features=[0]), "HistGradientBoostingClassifier"),
    (learned(Squaring(np.square)), "Squaring"),
    (learned(OneHotEncoder(handle_unknown="error")), "OneHotEncoder"),
])  # fmt: skip
def test_a_part_without_a_form_in_onnx_is_named(tmp_path, student, named):
    with pytest.raises(
        InvalidParameterError, match=f"must have only parts that ONNX supports. Got a {named}"
    ):
        export_onnx(student.fit(ROUNDED, LABELS), tmp_path / "student.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("shape", [(8, 8), (8, 8, 1), (17, 19, 3)])
def test_a_student_of_images_predicts_the_same(tmp_path, shape):
    pytest.importorskip("torch")
    from tutelage.students import ConsistencyStudent

    images = np.random.default_rng(0).random((400, *shape)) * 255
    images[::2, ::2] = 0  # every other image has stripes
    student = ConsistencyStudent(steps=20, batch_size=4, unlabeled_ratio=1, random_state=0)
    labels = np.array(["striped", "plain"] * 200, dtype=object)
    labels[200:] = -1
    student.fit(images, labels)
    path = export_onnx(student, tmp_path / "student.onnx")
    rows = np.vstack([images.reshape(400, -1), np.zeros((1, np.prod(shape)))])
    assert_same(student, path, rows)
    student.set_params(factory=type(student))
    with pytest.raises(
        InvalidParameterError, match=r"Got one of a `factory`\. Publish student\.skops"
    ):
        export_onnx(student, tmp_path / "other.onnx")
