"""Texts as numbers: the principal axes of the words of public texts, and of the letters in these."""

from contextlib import suppress
from typing import Any, final

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import FeatureUnion
from sklearn.preprocessing import Normalizer

from tutelage._internal.threads import one_thread
from tutelage._internal.validation import integer_at_least
from tutelage.exceptions import InvalidDataError
from tutelage.features.base import PublicRows, chain, require_public
from tutelage.features.fitted import PublicTransformer

_AXES = 400
# Words, and as many sequences of letters: the axes of both are part of the student, 64 MB at most.
_TERMS = 20_000
_TEXTS_PER_AXIS = 4
_STEPS = 8  # of the search for the axes
_RARE = 2  # public texts in which a word must be, or it is left out


def text_features(
    public: PublicRows,
    n_axes: int = _AXES,
) -> PublicTransformer:
    """Return features of texts: axes of their words and of the letters in these, at length one.

    TF-IDF of the 20,000 most frequent words, and of as many sequences of three to five letters, then their principal
    directions in the public texts. A text without a known word or sequence becomes zeros. The features of a text do not
    depend on other texts, to the last bit: products of sparse rows are added in the order of the words.

    Parameters
    ----------
    public : PublicRows
        Public texts, a thousand or more: an array of shape (rows,).
    n_axes : int
        How many axes; at most a quarter of the number of texts, because further axes are noise.
    """
    texts = require_public(public, "text_features").values
    integer_at_least(n_axes, 1, "n_axes", "text_features")
    if texts.ndim != 1:
        raise InvalidDataError(
            f"The public rows of text_features must be one text each. Got shape {texts.shape}."
        )
    shared: dict[str, Any] = {
        "sublinear_tf": True,
        "min_df": _RARE,
        "max_features": _TERMS,
        "dtype": np.float32,
    }
    vectorizers: dict[str, Any] = {
        "words": TermWeights(stop_words="english", **shared),
        "letters": TermWeights(analyzer="char_wb", ngram_range=(3, 5), **shared),
    }
    known = list[tuple[str, Any]]()
    n_terms = 0
    for name, vectorizer in vectorizers.items():
        with suppress(ValueError):  # no term is left
            vectorizer.fit(texts)
            known.append((name, vectorizer))
            n_terms += len(vectorizer.vocabulary_)
    if n_terms < 2 or len(texts) < 2:
        raise InvalidDataError(
            "The public texts of text_features must have words in common. Pass more of them, or leave the column out."
        )
    # Not by ARPACK, which draws unseeded numbers where texts repeat each other: a second fit would have other features,
    # and would pay again for what it was told before.
    n_axes = max(1, min(n_axes, len(texts) // _TEXTS_PER_AXIS, n_terms - 1))
    axes = TruncatedSVD(n_axes, algorithm="randomized", n_iter=_STEPS, random_state=0)
    recipe = chain(FeatureUnion(known), Normalizer(), axes, Normalizer())
    with one_thread("blas"):  # or the last bits would depend on the machine's load
        return PublicTransformer.learn(recipe, public, row_by_row=True)


@final
class TermWeights(TfidfVectorizer):
    """TF-IDF that is stored as one text of all terms: a file with an entry for each of them takes a minute to write."""

    vocabulary_: dict[str, int]

    def __getstate__(self) -> dict[str, Any]:
        state: Any = super().__getstate__()
        place_of = state.get("vocabulary_")
        if place_of is None:
            return state
        terms = sorted(place_of, key=place_of.__getitem__)
        # No term holds the end of a line.
        return {**state, "vocabulary_": "\n".join(terms)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        terms = state.get("vocabulary_")
        if isinstance(terms, str):
            place_of = {term: place for place, term in enumerate(terms.split("\n"))}
            state = {**state, "vocabulary_": place_of}
        parent: Any = super()
        parent.__setstate__(state)
