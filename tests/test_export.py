"""Students as ONNX files: the same predictions as in Python, for every map and classifier that can be written."""

import csv
import json
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, OneHotEncoder, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from blobs import PUBLIC, TEST, blobs
from test_additive import SCHEMA, made_up, of
from test_named_rows import COLUMNS, PRIVATE
from test_named_rows import PUBLIC as PEOPLE
from tutelage import PATEClassifier, PATERegressor, SimulationNoise
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
from tutelage.students import LabelPropagationStudent, NoisySumClassifier, load_student
from tutelage.tables import Table
from tutelage.teachers import VectorBallots
from tutelage_reproductions.datasets import load_digits

pytestmark = pytest.mark.rest
pytest.importorskip("skl2onnx")
runtime: Any = pytest.importorskip("onnxruntime")
from tutelage.students import export, export_onnx  # noqa: E402  needs the extra

ROWS, LABELS = blobs(1500, 5)
SURE = 1e-6  # two classes whose probabilities are nearer than this are told apart by rounding to 32 bits
ONE_MORE = np.vstack([TEST, 50 * TEST[:100], np.zeros((1, 4))])  # rows further out than any public one
DECLARED = PublicRows(PUBLIC, "public rows")
CLASSIFIERS = {
    "tree": DecisionTreeClassifier(max_depth=4, random_state=0),
    "forest": RandomForestClassifier(15, random_state=0),
    "histogram gradient boosting": HistGradientBoostingClassifier(max_iter=15, random_state=0),
    "support vectors": SVC(random_state=0),
    "closed form": NoisySumClassifier(),
}
MAPS = {
    "one public value": PublicScaling(np.zeros(4), np.array([1.0, 0.0, 2.0, 1.0])),
    "axes": PublicPCA.learn(DECLARED, 3, whiten=True),
    "kernel": ballot_features(DECLARED, noise=0.02),
    "features beside steps": PublicSteps.learn(DECLARED, 2, n_features=2),
    "scikit-learn": PublicTransformer.learn(make_pipeline(StandardScaler(), PCA(3)), DECLARED),
    "ranges": PublicTransformer.learn(MinMaxScaler(clip=True), DECLARED, row_by_row=True),
    "one after another": make_pipeline(PublicScaling.learn(DECLARED), make_pipeline(PublicPCA.learn(DECLARED, 2))),
}


def run(path: Any, inputs: dict[str, Any]) -> tuple[Any, Any]:
    return tuple(runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, inputs))


def assert_same(student: Any, path: Any, rows: Any, inputs: dict[str, Any] | None = None) -> None:
    """Compare a file with the student that it was written from."""
    labels, probabilities = run(path, inputs or {"rows": np.asarray(rows, dtype=np.float64)})
    expected = student.predict(rows)
    same = np.ones(len(expected), dtype=bool)
    assert len(expected) >= 500
    if hasattr(student, "predict_proba"):
        known = student.predict_proba(rows)
        np.testing.assert_allclose(probabilities, known, atol=1e-6)
        second, first = np.sort(known, axis=1)[:, -2:].T
        same = first - second > SURE
        assert np.mean(labels == expected) > 0.99
    assert labels[same].tolist() == expected[same].tolist()
    assert len(np.unique(labels)) > 1


FITTED = {name: (one, np.array(["low", "middle", "high"])[LABELS], TEST) for name, one in CLASSIFIERS.items()}
MAPPED = {name: (make_pipeline(one, NoisySumClassifier()), LABELS, ONE_MORE) for name, one in MAPS.items()}


@pytest.mark.parametrize(("student", "y", "rows"), [*FITTED.values(), *MAPPED.values()], ids=[*FITTED, *MAPPED])
def test_a_classifier_predicts_the_same_and_a_map_gives_the_same_features(tmp_path, student, y, rows):
    student.fit(ROWS, y)
    assert_same(student, export_onnx(student, tmp_path / "student.onnx"), rows)


@pytest.mark.parametrize(("name", "learned"), [("tree", False), ("histogram gradient boosting", True)])
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
    student = make_pipeline(features, LogisticRegression(max_iter=1000)).fit(images[400:900], digits.y_train[400:900])
    wild = np.concatenate([digits.X_test * 1.7 - 3.3, digits.X_train[900:], np.zeros((1, 64))]).astype(np.float64)
    assert_same(student, export_onnx(student, tmp_path / "student.onnx"), wild)


def test_a_graph_that_differs_is_refused(tmp_path, monkeypatch):
    """The planted fault: the graph of another student."""
    features = PublicTransformer.learn(StandardScaler(), DECLARED)
    one = make_pipeline(features, LogisticRegression()).fit(ROWS, LABELS)
    other = make_pipeline(features, LogisticRegression()).fit(-ROWS, LABELS)
    export_onnx(one, tmp_path / "one.onnx")
    monkeypatch.setattr(export, "_converted", lambda parts: (tmp_path / "one.onnx").read_bytes())
    with pytest.raises(InvalidParameterError, match="with StandardScaler it does not"):
        export_onnx(other, tmp_path / "other.onnx")


AGES: Any = {"age": np.arange(80)}
NOTES: Any = AGES | {"note": [f"{word} and {number}" for number in range(40) for word in ("good", "bad")]}
FRAMES: Any = PublicTransformer.learn(ColumnTransformer([("age", StandardScaler(), ["age"])]), AGES)


@pytest.mark.parametrize(
    ("first", "rows", "named"),
    [(PublicColumns.learn(NOTES, kinds={"note": "text"}), NOTES, "note"), (FRAMES, AGES, "age")],
    ids=["texts", "frames"],
)
def test_texts_and_frames_are_refused_with_what_to_do(tmp_path, first, rows, named):
    student = make_pipeline(first, NoisySumClassifier()).fit(rows, np.arange(80) % 2)
    with pytest.raises(InvalidParameterError, match=f"It takes {named}. Publish student.skops"):
        export_onnx(student, tmp_path / "student.onnx")


def test_a_student_of_named_columns_takes_one_input_per_column(tmp_path):
    rng = np.random.default_rng(0)

    def table(n: int, wards: list[str]) -> Table:
        age = [str(years) if years % 7 else "" for years in rng.integers(20, 90, n)]
        return Table("rows", {"ward": rng.choice(wards, n).tolist(), "age": age})

    public, rows = table(300, ["a", "b", "?"]), table(600, ["a", "b", "", "?", "unseen"])
    columns = PublicColumns.learn(public, ("ward", "age"))
    y = (rng.random(300) < np.where(np.array(public.column("ward")) == "a", 0.9, 0.2)).astype(int)
    student = make_pipeline(columns, HistGradientBoostingClassifier(max_iter=10, random_state=0)).fit(public, y)
    cells = {
        "ward": np.array(rows.column("ward"), dtype=object),
        "age": np.array([float(cell or "nan") for cell in rows.column("age")]),
    }
    path = export_onnx(student, tmp_path / "student.onnx")
    assert_same(student, path, rows, {name: one[:, np.newaxis] for name, one in cells.items()})


class Squaring(FunctionTransformer):
    """Unknown to the converter."""


ROUNDED = np.abs(np.round(ROWS))


ODD = {"age": ["nan", "-1e300", "1e300"], "work": ["public", "other", ""], "hours": ["nan", "0.5", "inf"]}


def as_columns(cells: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return rows as a student takes them, and as its file does."""
    columns = {name: np.array(one, object if name == "work" else float) for name, one in cells.items()}
    return columns, {name: one[:, np.newaxis] for name, one in columns.items()}


def test_a_table_of_effects_predicts_the_same(tmp_path):
    rows, y = made_up(1_000)
    student = of(epsilon=3.0).fit(rows, y).whole_student()
    path = export_onnx(student, tmp_path / "student.onnx")
    for columns, inputs in map(as_columns, (rows, ODD)):
        labels, probabilities = run(path, inputs)
        np.testing.assert_allclose(probabilities, student.predict_proba(columns))
        assert labels.tolist() == student.predict(columns).tolist()


@pytest.mark.parametrize("labeled", [False, True])
def test_a_table_of_numbers_predicts_the_same(tmp_path, labeled):
    rows, _ = made_up(1_000)
    y = rows["age"] + 30 * rows["hours"] * (rows["work"] == "public")
    known = {"X_public": {name: one[:300] for name, one in rows.items()}, "y_public": y[:300]} if labeled else {}
    model = PATERegressor(SCHEMA, (20, 100), epsilon=3.0, noise=SimulationNoise(0)).fit(rows, y, **known)
    model.save(tmp_path / "results")
    path = export_onnx(load_student(tmp_path / "results"), tmp_path / "student.onnx")
    for columns, inputs in map(as_columns, (rows, ODD)):
        found, *others = run(path, inputs)
        assert not others
        np.testing.assert_allclose(found, model.predict(columns), rtol=0, atol=1e-9)


def learned(transformer):
    return make_pipeline(PublicTransformer.learn(transformer, PublicRows(ROUNDED, "rows")), NoisySumClassifier())


@pytest.mark.parametrize(("student", "named"), [
    (LabelPropagationStudent(), "LabelPropagationStudent"),
    (make_pipeline(PublicEncoder(np.sqrt, "made up"), LogisticRegression()), "PublicEncoder"),
    (HistGradientBoostingClassifier().set_params(categorical_features=[0]), "HistGradientBoostingClassifier"),
    (StandardScaler(), "StandardScaler"),
    (learned(Squaring(np.square)), "Squaring"),
    (learned(OneHotEncoder(handle_unknown="error")), "OneHotEncoder"),
])  # fmt: skip
def test_a_part_without_a_form_in_onnx_is_named(tmp_path, student, named):
    with pytest.raises(InvalidParameterError, match=f"must have a form in ONNX, and {named} has none"):
        export_onnx(student.fit(ROUNDED, LABELS), tmp_path / "student.onnx")
    assert not list(tmp_path.iterdir())


WITHOUT_THE_PACKAGE = """if True:
    import csv, json, sys
    sys.modules["tutelage"] = sys.modules["sklearn"] = None  # whoever imports one of them fails
    import numpy as np
    from onnxruntime import InferenceSession

    session = InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
    with open(sys.argv[2], newline="") as file:
        rows = list(csv.DictReader(file))
    cells = {
        one.name: np.array([[row[one.name]] for row in rows], dtype=object if "string" in one.type else np.float64)
        for one in session.get_inputs()
    }
    print(json.dumps(session.run(["label"], cells)[0].tolist()))
"""


def without_the_package(student: Path, rows: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT_THE_PACKAGE, str(student), str(rows)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def written_for_onnx(folder: Path, columns: list[str]) -> Path:
    """Write rows whose cells are what the file of a student takes: days for dates, truth values as Python has them."""
    rows = PRIVATE.select(columns).to_dicts()
    with (folder / "rows.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        for row in rows:
            writer.writerow({**row, "seen": (row["seen"] - date(1970, 1, 1)).days})
    return folder / "rows.csv"


def test_a_process_without_this_package_predicts_the_same(tmp_path):
    model = PATEClassifier(VectorBallots(), features=COLUMNS, epsilon=30.0, unit="person", noise=SimulationNoise(0))
    expected = model.fit(PRIVATE, "ill", X_public=PEOPLE, entity_ids="person")
    file = export_onnx(expected.whole_student(), tmp_path / "student.onnx")
    rows = written_for_onnx(tmp_path, PRIVATE.columns[::-1])
    printed = without_the_package(file, rows)
    assert printed.returncode == 0, printed.stderr
    assert json.loads(printed.stdout) == expected.predict(PRIVATE).tolist()
    rows.write_text(rows.read_text().replace("ward", "wrad", 1))
    assert "KeyError: 'ward'" in without_the_package(file, rows).stderr
