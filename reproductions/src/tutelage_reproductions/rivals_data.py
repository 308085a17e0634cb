"""The data sets on which PATE and its rivals are compared: the same splits for all, features from public rows."""

import csv
import gzip
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, final

import numpy as np
from scipy.sparse import hstack
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize

from tutelage._internal.typing import IntArray, Matrix
from tutelage.datasets import ImageSplit, load_adult, load_diabetes, load_fashion_mnist, load_mnist, split_by_patient
from tutelage.datasets.adult import NUMBERS
from tutelage.datasets.diabetes import CATEGORICAL, FEATURES
from tutelage.datasets.releases import search_folders
from tutelage.exceptions import InvalidDataError
from tutelage.features import GlyphGradients, PublicPCA, PublicRows, PublicSteps, glyph_features
from tutelage.features.rowwise import unit_rows
from tutelage_reproductions.protocol import shuffled_folds

_SEED = 20
_KEY = b"rivals of tutelage 2026"
_AXES = 400  # of texts
_FASHION_AXES = 200
FOLDS = 5

Transform = Callable[[Matrix], Matrix]


class Sizes(NamedTuple):
    """How many rows each part of a split has; the rest is scored."""

    private: int
    public: int


ADULT_PUBLIC = 4_999
AG_NEWS, SMS = Sizes(5_000, 1_500), Sizes(3_500, 1_000)


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class RivalData:
    """One split of a data set, as features that every method sees.

    Parameters
    ----------
    name : str
        Of the data set.
    private, public, scored : arrays of shape (rows, features)
        Features of the rows of each part.
    y_private, y_public, y_scored : integer arrays of shape (rows,)
        Their classes, from 0. Those of public rows are for bounds only.
    plain_public, plain_scored : arrays, optional
        The same rows as a student sees them, where these features suit a student better.
    """

    name: str
    private: Matrix
    y_private: IntArray
    public: Matrix
    y_public: IntArray
    scored: Matrix
    y_scored: IntArray
    plain_public: Matrix | None = None
    plain_scored: Matrix | None = None

    @property
    def n_classes(self) -> int:
        """Number of classes, which is public."""
        return int(self.y_public.max()) + 1

    @property
    def for_students(self) -> tuple[Matrix, Matrix]:
        """Public and scored rows as a student sees them."""
        if self.plain_public is None or self.plain_scored is None:
            return self.public, self.scored
        return self.plain_public, self.plain_scored

    def right(self, predicted: IntArray) -> float:
        """Return the share of the scored rows that are predicted right, in %."""
        return 100 * float(np.mean(predicted == self.y_scored))


@final
@dataclass(frozen=True, slots=True)
class Source:
    """A data set and its splits.

    Parameters
    ----------
    name : str
        Of the data set.
    load : function of a fold's number and of whether to download
        Returns the split.
    folds : int
        How many splits there are.
    """

    name: str
    load: Callable[[int, bool], RivalData]
    folds: int = FOLDS


def adult(fold: int = 0, download: bool = False) -> RivalData:  # noqa: ARG001  bundled
    """Return UCI Adult: the training rows are private, some random test rows are public, and the others are scored."""
    rows = load_adult()
    order = np.random.default_rng(_SEED + fold).permutation(len(rows.X_public))
    public, scored = order[:ADULT_PUBLIC], order[ADULT_PUBLIC:]
    columns = _numbers_first([name in NUMBERS for name in rows.feature_names])
    features = steps(rows.X_public[public][:, columns], len(NUMBERS))
    return RivalData(
        name="Adult",
        private=features(rows.X_private[:, columns]),
        y_private=rows.y_private,
        public=features(rows.X_public[public][:, columns]),
        y_public=rows.y_public[public],
        scored=features(rows.X_public[scored][:, columns]),
        y_scored=rows.y_public[scored],
    )


def diabetes(fold: int = 0, download: bool = False) -> RivalData:
    """Return readmission within 30 days on UCI Diabetes, balanced, no patient in two parts."""
    split = split_by_patient(load_diabetes(download=download), key=_KEY + bytes(fold), balanced=True)
    is_number = [name not in CATEGORICAL for name in FEATURES]
    columns = _numbers_first(is_number)
    features = steps(split.public.X[:, columns], sum(is_number))
    return RivalData(
        name="Diabetes",
        private=features(split.private.X[:, columns]),
        y_private=split.private.y,
        public=features(split.public.X[:, columns]),
        y_public=split.public.y,
        scored=features(split.test.X[:, columns]),
        y_scored=split.test.y,
    )


def ag_news(fold: int = 0, download: bool = False) -> RivalData:  # noqa: ARG001  from a file
    """Return the 7,600 test texts of AG News, of four topics."""
    rows = list(csv.reader(io.StringIO(_text_of("ag_news_test.csv.gz"))))
    return _texts("AG News", [f"{row[1]} {row[2]}" for row in rows], [int(row[0]) - 1 for row in rows], AG_NEWS, fold)


def sms_spam(fold: int = 0, download: bool = False) -> RivalData:  # noqa: ARG001  from a file
    """Return the UCI collection of short messages, of which 13.5 % are spam."""
    rows = [line.split("\t", 1) for line in _text_of("sms_spam.tsv.gz").rstrip("\n").split("\n")]
    return _texts("SMS spam", [row[1] for row in rows], [int(row[0] == "spam") for row in rows], SMS, fold)


def mnist(fold: int = 0, download: bool = False) -> RivalData:
    """Return a fold of MNIST as glyph features; a student sees them without their last step."""
    images = load_mnist(download=download)
    split = shuffled_folds(FOLDS)[fold]
    features = glyph_features(PublicRows(images.X_test[split.pool], "public MNIST test images"))
    plain = features[:-1].transform
    public, scored = (plain(images.X_test[rows]).astype(np.float32) for rows in (split.pool, split.held_out))
    data = _images("MNIST", images, fold, lambda X: features.transform(X).astype(np.float32))
    return replace(data, plain_public=public, plain_scored=scored)


def fashion_mnist(fold: int = 0, download: bool = False) -> RivalData:
    """Return a fold of Fashion-MNIST as principal axes of gradients and intensities."""
    images = load_fashion_mnist(download=download)
    split = shuffled_folds(FOLDS)[fold]
    return _images("Fashion-MNIST", images, fold, clothing_features(images.X_test[split.pool]))


SOURCES = (
    Source("Adult", adult),
    Source("Fashion-MNIST", fashion_mnist),
    Source("AG News", ag_news),
    Source("SMS spam", sms_spam),
    Source("Diabetes", diabetes),
    Source("MNIST", mnist),
)


def steps(public: Matrix, n_numbers: int) -> Transform:
    """Return the map of a table, whose first columns are numbers, to 0/1 columns.

    Parameters
    ----------
    public : array of shape (public rows, columns)
        What it is learned from.
    n_numbers : int
        How many columns are numbers; the others are codes.
    """
    learned = PublicSteps.learn(PublicRows(public, "public rows of a table"), n_numbers)
    return lambda X: learned.transform(X).astype(np.float32)


def text_features(public: Sequence[str], axes: int = _AXES) -> Callable[[Sequence[str]], Matrix]:
    """Return the map of texts to rows of length 1: axes of their words and of the letters in these.

    Parameters
    ----------
    public : sequence of str
        What it is learned from.
    axes : int
        How many axes.
    """
    words = TfidfVectorizer(sublinear_tf=True, min_df=2, stop_words="english")
    letters = TfidfVectorizer(sublinear_tf=True, min_df=2, analyzer="char_wb", ngram_range=(3, 5))
    vectorizers = [vectorizer.fit(public) for vectorizer in (words, letters)]

    def counts(texts: Sequence[str]) -> Any:
        return normalize(hstack([vectorizer.transform(texts) for vectorizer in vectorizers]))

    svd = TruncatedSVD(axes, algorithm="arpack", random_state=0).fit(counts(public))
    return lambda texts: unit_rows(np.asarray(svd.transform(counts(texts)))).astype(np.float32)


def clothing_features(public: Matrix, axes: int = _FASHION_AXES) -> Transform:
    """Return the map of images to principal axes of gradients, which are not set upright, and of intensities.

    Parameters
    ----------
    public : array of shape (public images, pixels)
        What it is learned from.
    axes : int
        How many axes.
    """
    gradients = GlyphGradients((28, 28), deskew=False)

    def both(X: Matrix) -> Matrix:
        return np.hstack([gradients.transform(X), unit_rows(X.astype(np.float32))])

    principal = PublicPCA.learn(PublicRows(both(public), "public images"), axes)
    return lambda X: principal.transform(both(X)).astype(np.float32)


def _texts(name: str, texts: list[str], labels: Sequence[int], sizes: Sizes, fold: int) -> RivalData:
    order = np.random.default_rng(_SEED + fold).permutation(len(texts))
    ends = np.cumsum(sizes)
    parts = np.split(order, ends)
    private, public, scored = ([texts[row] for row in rows] for rows in parts)
    y_private, y_public, y_scored = (np.asarray(labels)[rows] for rows in parts)
    features = text_features(public)
    return RivalData(
        name=name,
        private=features(private),
        y_private=y_private,
        public=features(public),
        y_public=y_public,
        scored=features(scored),
        y_scored=y_scored,
    )


def _images(name: str, images: ImageSplit, fold: int, features: Transform) -> RivalData:
    split = shuffled_folds(FOLDS)[fold]
    return RivalData(
        name=name,
        private=features(images.X_train),
        y_private=images.y_train,
        public=features(images.X_test[split.pool]),
        y_public=images.y_test[split.pool],
        scored=features(images.X_test[split.held_out]),
        y_scored=images.y_test[split.held_out],
    )


def _numbers_first(is_number: Sequence[bool]) -> IntArray:
    return np.argsort([not number for number in is_number], kind="stable")


def _text_of(file: str) -> str:
    for folder in search_folders(None):
        if (folder / file).is_file():
            return gzip.decompress((folder / file).read_bytes()).decode("utf-8")
    raise InvalidDataError(f"{file} is in none of the folders of data sets. Put it into the folder of TUTELAGE_DATA.")
