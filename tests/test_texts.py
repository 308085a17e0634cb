"""Columns of text, and texts alone: learned from public texts, each by itself."""

import itertools
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize

from tutelage import PATEClassifier, SimulationNoise
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.features import (
    PublicColumns,
    PublicEncoder,
    PublicRows,
    PublicTransformer,
    text_features,
)
from tutelage.students import load_student

WORDS = ("alpha", "beta", "gamma", "delta", "omega", "kappa")
TEXTS = np.array([" ".join(words) for words in itertools.permutations(WORDS, 3)], dtype=object)
PUBLIC = PublicRows(TEXTS[:80], "eighty texts")
MADE = text_features(PUBLIC, 6)


def labelled(n, seed):
    """Return made-up messages and whether each is an advertisement."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, 2, n)
    words = (
        ["home", "mother", "dinner", "train", "call", "now"],
        ["prize", "claim", "free", "winner", "call", "now"],
    )
    texts = [" ".join(rng.choice(words[kind], 6)) + f" {rng.integers(1000)}" for kind in kinds]
    return np.array(texts, dtype=object), kinds


# Features of texts


def test_the_axes_are_those_of_words_and_letters_by_scikit_learn():
    words: Any = TfidfVectorizer(sublinear_tf=True, min_df=2, stop_words="english").fit(TEXTS[:80])
    letters: Any = TfidfVectorizer(
        sublinear_tf=True, min_df=2, analyzer="char_wb", ngram_range=(3, 5)
    ).fit(TEXTS[:80])

    def counts(texts):
        return normalize(np.hstack([one.transform(texts).toarray() for one in (words, letters)]))

    svd = TruncatedSVD(6, algorithm="arpack", random_state=0).fit(counts(TEXTS[:80]))
    expected: Any = normalize(svd.transform(counts(TEXTS)))
    found = MADE.transform(TEXTS)
    # Up to the sign of each axis.
    assert np.abs(found @ found.T - expected @ expected.T).max() < 1e-4


@settings(max_examples=8)
@given(
    st.lists(
        st.lists(st.sampled_from([*WORDS, "zeta", "Élan", "naïve", "8", "."]), max_size=12).map(
            " ".join
        )
        | st.text(),
        min_size=1,
        max_size=12,
    ),
    st.randoms(use_true_random=False),
)
def test_the_features_of_a_text_do_not_depend_on_others_in_any_bit(texts, random):
    whole = MADE.transform(texts)
    order = list(range(len(texts)))
    random.shuffle(order)
    assert MADE.transform([texts[place] for place in order]).tobytes() == whole[order].tobytes()
    assert np.concatenate([MADE.transform([text]) for text in texts]).tobytes() == whole.tobytes()


@pytest.mark.parametrize(("texts", "message"), [
    (np.array(["one", "two", "three"], dtype=object), "must have words in common"),
    (np.eye(3), "must be one text each"),
])  # fmt: skip
def test_public_texts_without_common_words_are_refused(texts, message):
    with pytest.raises(InvalidDataError, match=message):
        text_features(PublicRows(texts, "texts"))


# Columns of text

NOTES, _ = labelled(300, 0)


def test_text_of_several_words_becomes_features_after_numbers_and_codes():
    rng = np.random.default_rng(0)
    rows = {
        "age": rng.integers(18, 90, 300),
        "note": NOTES,
        "ward": rng.choice(["A", "B", ""], 300),
    }
    columns = PublicColumns.learn(rows)
    assert columns.kinds == {"age": "number", "note": "text", "ward": ["", "A", "B"]}
    found = columns.transform(rows)
    assert np.array_equal(found[:, 2:], text_features(PublicRows(NOTES, "notes")).transform(NOTES))


@pytest.mark.parametrize("name", ["id", "Jo Doe"])
def test_ids_and_names_stay_refused_unless_they_are_declared(name):
    cells = [f"{name}{number}" for number in range(60)]
    with pytest.raises(
        InvalidDataError, match=r"too short to learn from.*kinds=\{'who': 'text'\}.*`entity_ids`"
    ):
        PublicColumns.learn({"who": cells})
    assert PublicColumns.learn({"who": cells}, kinds={"who": "text"}).kinds == {"who": "text"}
    assert len(PublicColumns.learn({"who": cells}, kinds={"who": "category"}).kinds["who"]) == 60


def test_columns_take_no_map_of_texts_whose_rows_may_meet():
    for each in (
        PublicTransformer.learn(TfidfVectorizer(), PUBLIC, row_by_row=False),
        PublicEncoder(len, "lengths"),
    ):
        columns = PublicColumns(("note",), (None,), (), ("note",), (each,))  # type: ignore[arg-type]
        with pytest.raises(
            InvalidParameterError, match="of PublicColumns must be maps made by `text_features`"
        ):
            columns.transform({"note": TEXTS})


# Declared kinds


def test_kinds_may_be_declared():
    rows = {"age": ["1", "2", "x"], "grade": ["a", "b", "a"], "code": [1, 2, 1]}
    columns = PublicColumns.learn(
        rows, kinds={"age": "category", "grade": ["c", "b", "a"], "code": [1, 2, 3]}
    )
    assert columns.kinds == {
        "age": ["1", "2", "x"],
        "grade": ["c", "b", "a"],
        "code": ["1", "2", "3"],
    }
    assert columns.transform({"age": ["x"], "grade": ["d"], "code": [3]}).tolist() == [[2, -1, 2]]


@pytest.mark.parametrize(("kinds", "message"), [
    ({"agee": "number"}, "`kinds` of PublicColumns.learn must name columns of the public rows. Got 'agee'"),
    ({"age": "numbers"}, "column 'age' one of number, date, .*, category, text, or the list"),
    ({"age": ["a", "a"]}, "each once"),
])  # fmt: skip
def test_other_kinds_are_refused(kinds, message):
    with pytest.raises(InvalidParameterError, match=message):
        PublicColumns.learn({"age": [1, 2]}, kinds=kinds)


# In a classifier


PRIVATE, KINDS = labelled(700, 1)
TESTS, TRUTH = labelled(200, 2)


@pytest.mark.rest
@pytest.mark.parametrize("form", [list, pd.Series, pl.Series])
def test_texts_go_in_and_labels_come_out(form, tmp_path):
    model = PATEClassifier(epsilon=8.0, classes=[0, 1], noise=SimulationNoise(0), random_state=0)
    model.fit(form(PRIVATE), KINDS, X_public=form(NOTES))
    assert np.mean(model.predict(form(TESTS)) == TRUTH) > 0.9
    model.save(tmp_path / "results")
    loaded = load_student(tmp_path / "results" / "student.skops")
    assert np.array_equal(loaded.predict(TESTS), model.predict(TESTS))
    assert isinstance(model.columns_, PublicColumns)
    assert model.columns_.kinds == {"text": "text"}
    assert NOTES[0] not in repr(model.whole_student())
