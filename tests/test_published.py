"""What a fit publishes from Python: card, labels, student, and what notebooks show of guarantees."""

import csv
import pickle
import re
import xml.etree.ElementTree as ET
from typing import Any

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

from blobs import LABELS, PRIVATE, PUBLIC, TEST, TRUE
from tutelage import PATEClassifier, PublicEpsilon, SimulationNoise
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.features import PublicPCA, PublicRows
from tutelage.methods import Method, NoisyMoments, TeacherVotes
from tutelage.privacy import NeighboringRelation, PrivacyUnit
from tutelage.reporting import read_card
from tutelage.students import load_student

TREE = DecisionTreeClassifier(max_depth=3, random_state=0)
AXES = PublicPCA.learn(PublicRows(PUBLIC, "public rows"), 3)
FILES = ["card.html", "card.json", "card.md", "labels.csv", "manifest.json", "student.skops"]
VOTES = TeacherVotes(TREE, n_teachers=30, student=TREE)
METHODS = {"trees": VOTES, "vectors": NoisyMoments()}


def fitted(method: Method = VOTES, y: Any = LABELS, ids: Any = None, **changes: Any) -> Any:
    given: Any = {"epsilon": 20.0, "random_state": 0, "noise": SimulationNoise(0), "features": AXES}
    given |= {"classes": np.unique(y)} | changes
    return PATEClassifier(method=method, **given).fit(PRIVATE, y, X_public=PUBLIC, entity_ids=ids)


@pytest.fixture(scope="module", params=METHODS)
def model(request: pytest.FixtureRequest) -> Any:
    return fitted(METHODS[request.param])


def test_the_saved_student_and_labels_are_those_of_the_fit(model, tmp_path):
    folder = model.save(tmp_path / "results")
    assert sorted(path.name for path in folder.iterdir()) == FILES
    assert (
        load_student(folder / "student.skops").predict(TEST).tolist()
        == model.predict(TEST).tolist()
    )
    with (folder / "labels.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["public_row"]) for row in rows] == model.queries_.tolist()
    labels = ["" if label < 0 else str(model.classes_[label]) for label in model.release_.labels]
    assert [row["label"] for row in rows] == labels
    assert read_card(folder / "card.json").epsilon == model.epsilon_


@pytest.mark.rest
def test_delta_is_held_against_the_number_of_people_where_it_is_public_or_released():
    n = len(PRIVATE)
    people = np.arange(n) // 2

    def objected(model: Any) -> bool:
        return "delta-too-large" in [one.code for one in model.card().findings or ()]

    assert objected(fitted(NoisyMoments(), delta=1.5 / n, epsilon=1.0))
    secret = fitted(VOTES.with_params(n_teachers=5), ids=people, delta=0.9, classes=None)
    assert secret.n_private_rows_ is None  # and how many people there are is private
    assert not objected(secret)
    assert objected(fitted(NoisyMoments(), ids=people, delta=0.1, epsilon=1.0))


def test_the_card_scores_the_student_on_the_rows_that_are_passed(model):
    card = model.card(TEST, TRUE, feature_names="abcd", statements={"private_data": "made up"})
    assert card.student.judged.accuracy == model.score(TEST, TRUE)
    assert [(entry.name, entry.rows) for entry in card.student.judged.by_class] == [
        (str(value), int((value == TRUE).sum())) for value in range(3)
    ]
    assert card.budget.batches
    assert sum(batch.share for batch in card.budget.batches) == pytest.approx(card.budget.spent)
    assert (card.statements, card.release.noise_source) == (
        {"private_data": "made up"},
        "SimulationNoise",
    )
    bare = pickle.loads(pickle.dumps(model)).card()  # noqa: S301  a stored model still has one
    assert (bare.epsilon, bare.budget.spent, bare.budget.batches) == (
        model.epsilon_,
        model.ledger_.spent,
        (),
    )
    assert (bare.student.judged.accuracy, bare.release.features, card.release.features) == (
        None,
        tuple("0123"),
        tuple("abcd"),
    )
    with pytest.raises(InvalidParameterError, match="must come with `y`, because both are needed"):
        model.card(TEST)
    with pytest.raises(InvalidDataError, match=r"`y` holds '7', which is not among the classes"):
        model.card(TEST, np.where(np.arange(len(TRUE)) == 3, 7, TRUE))


def test_class_values_that_spreadsheets_would_compute_are_not_written(tmp_path):
    values = np.array(["=1+1", "b", "c"])
    model = fitted(VOTES.with_params(n_queries=40), values[LABELS])
    with pytest.raises(InvalidDataError, match="would run the class value '=1"):
        model.save(tmp_path / "results")
    assert list(tmp_path.iterdir()) == []


NAMES = list("abcd")


@pytest.mark.rest
def test_a_student_finds_columns_by_name(tmp_path):
    frame = pytest.importorskip("pandas").DataFrame
    private, public = (frame(rows, columns=NAMES) for rows in (PRIVATE, PUBLIC))
    named = PATEClassifier(epsilon=20.0, method=VOTES, features=AXES, noise=SimulationNoise(0))
    student = load_student(
        named.fit(private, LABELS, X_public=public).save(tmp_path) / "student.skops"
    )
    cells = dict(zip(NAMES, TEST.T, strict=True)) | {"more": np.zeros(len(TEST))}
    other_order = frame({name: cells[name] for name in ("d", "more", "b", "a", "c")})
    assert student.predict(other_order).tolist() == student.predict(TEST).tolist()
    assert student.feature_names_in_.tolist() == NAMES
    with pytest.raises(InvalidDataError, match=r"The rows have no column 'a'"):
        student.predict(frame({name: cells[name.lower()] for name in "Abcd"}))


def test_guarantees_show_what_they_say_and_never_markup():
    unit = PrivacyUnit("<script>alert(1)</script>", NeighboringRelation.CHANGE_ONE_ROW)
    epsilon = PublicEpsilon(1.23456, 1e-5, unit, "a & b", simulated=True)
    shown = ET.fromstring(epsilon._repr_html_().replace("class=facts", ""))  # noqa: S314
    assert "ε = 1.2346 at δ = 1e-05 (simulated noise: not private)" in "".join(shown.itertext())
    assert "script" not in {node.tag for node in shown.iter()}
    model = fitted(VOTES.with_params(n_queries=40))
    assert str(model.ledger_) in re.sub("<[^>]+>", "", model.ledger_._repr_html_())
    assert "NOT PRIVATE" in model.card(feature_names=["<b>", "c", "d", "e"])._repr_html_()


def test_a_card_objects_to_settings_that_private_rows_chose(model):
    before = {one.code for one in model.card().findings}
    told = {one.code for one in model.card(tuned_on="private").findings} - before
    assert "tuned-on-private" in told
