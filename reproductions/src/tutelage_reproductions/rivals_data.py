"""Data sets on which PATE and its rivals are compared, with the same splits and public features for all."""

import csv
import gzip
import hashlib
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, cast, final

import numpy as np
from sklearn import datasets
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

from tutelage._internal.typing import IntArray, Matrix
from tutelage.datasets import load_adult
from tutelage.datasets.adult import NUMBERS
from tutelage.features import (
    PublicRows,
    PublicSteps,
    PublicTransformer,
    image_features,
    text_features,
)
from tutelage.features.base import FeatureMap
from tutelage_reproductions.datasets import (
    ImageSplit,
    load_diabetes,
    load_fashion_mnist,
    load_mnist,
    load_svhn_sample,
    split_by_patient,
)
from tutelage_reproductions.datasets.diabetes import CATEGORICAL, FEATURES
from tutelage_reproductions.datasets.images import SVHN_SHAPE
from tutelage_reproductions.datasets.releases import find
from tutelage_reproductions.glyphs import glyph_features
from tutelage_reproductions.protocol import shuffled_folds
from tutelage_reproductions.record import percent_right

_SEED = 20
FOLDS = 5

Transform = Callable[[Matrix], Matrix]


class Sizes(NamedTuple):
    """How many rows each part of a split has; the rest is scored."""

    private: int
    public: int


ADULT_PUBLIC = 4_999
AG_NEWS, SMS, SVHN = Sizes(5_000, 1_500), Sizes(3_500, 1_000), Sizes(7_000, 1_500)


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
    def as_they_are(self) -> PublicTransformer:
        """A map that leaves rows, which are features already, as they are."""
        return unchanged(self.public)

    @property
    def for_students(self) -> tuple[Matrix, Matrix]:
        """Public and scored rows as a student sees them."""
        if self.plain_public is None or self.plain_scored is None:
            return self.public, self.scored
        return self.plain_public, self.plain_scored

    def right(self, predicted: IntArray) -> float:
        """Return the share of the scored rows that are predicted right, in %."""
        return percent_right(predicted, self.y_scored)


def unchanged(public: Matrix) -> PublicTransformer:
    """Return a map that leaves rows like the public ones as they are: they are features already."""
    return PublicTransformer.learn(
        FunctionTransformer(), PublicRows(public, "public rows"), row_by_row=True
    )


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

    def splits(self, folds: int, download: bool) -> Iterator[RivalData]:
        """Yield the first splits.

        Parameters
        ----------
        folds : int
            How many.
        download : bool
            Whether to download the data set.

        Raises
        ------
        RuntimeError
            If two splits score the same rows: an interval over them would not cover the choice of rows.
        """
        seen: set[bytes] = set()
        for fold in range(folds):
            data = self.load(fold, download)
            rows = hashlib.sha256(data.scored.tobytes() + data.y_scored.tobytes()).digest()
            if rows in seen:
                raise RuntimeError(
                    f"Fold {fold} of {self.name} scores the rows of an earlier fold."
                )
            seen.add(rows)
            yield data


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


def key_of(fold: int) -> bytes:
    """Return the key that deals the patients of a fold."""
    return hashlib.sha256(f"rivals of tutelage 2026, fold {fold}".encode()).digest()


def diabetes(fold: int = 0, download: bool = False, *, balanced: bool = True) -> RivalData:
    """Return readmission within 30 days on UCI Diabetes, balanced or as it is, no patient in two parts."""
    split = split_by_patient(load_diabetes(download=download), key=key_of(fold), balanced=balanced)
    is_number = [name not in CATEGORICAL for name in FEATURES]
    columns = _numbers_first(is_number)
    features = steps(split.public.X[:, columns], sum(is_number))
    return RivalData(
        name="Diabetes" if balanced else "Diabetes, unbalanced",
        private=features(split.private.X[:, columns]),
        y_private=split.private.y,
        public=features(split.public.X[:, columns]),
        y_public=split.public.y,
        scored=features(split.test.X[:, columns]),
        y_scored=split.test.y,
    )


def ag_news(fold: int = 0, download: bool = False) -> RivalData:  # noqa: ARG001  from a file
    """Return the 7,600 test texts of AG News, of four topics."""
    return _texts("AG News", *ag_news_texts(), AG_NEWS, fold)


def ag_news_texts() -> tuple[list[str], list[int]]:
    """Return the test texts of AG News and their topics."""
    rows = list(csv.reader(io.StringIO(_text_of("ag_news_test.csv.gz"))))
    return [f"{row[1]} {row[2]}" for row in rows], [int(row[0]) - 1 for row in rows]


def sms_spam(fold: int = 0, download: bool = False) -> RivalData:  # noqa: ARG001  from a file
    """Return the UCI collection of short messages, of which 13.5 % are spam."""
    return _texts("SMS spam", *sms_texts(), SMS, fold)


def sms_texts() -> tuple[list[str], list[int]]:
    """Return the UCI collection of short messages, and whether each is spam."""
    rows = [line.split("\t", 1) for line in _text_of("sms_spam.tsv.gz").rstrip("\n").split("\n")]
    return [row[1] for row in rows], [int(row[0] == "spam") for row in rows]


def mnist(fold: int = 0, download: bool = False) -> RivalData:
    """Return a fold of MNIST as glyph features; a student sees them without their last step."""
    images = load_mnist(download=download)
    split = shuffled_folds(FOLDS)[fold]
    features = glyph_features(PublicRows(images.X_test[split.pool], "public MNIST test images"))
    plain = features[:-1]
    data = _images("MNIST", images, fold, features)
    return replace(
        data,
        plain_public=_float32(plain, images.X_test[split.pool]),
        plain_scored=_float32(plain, images.X_test[split.held_out]),
    )


def fashion_mnist(fold: int = 0, download: bool = False) -> RivalData:
    """Return a fold of Fashion-MNIST as principal axes of gradients and intensities."""
    images = load_fashion_mnist(download=download)
    public = PublicRows(images.X_test[shuffled_folds(FOLDS)[fold].pool], "public images of clothes")
    features = image_features(public, (28, 28))
    return _images("Fashion-MNIST", images, fold, features)


def svhn(fold: int = 0, download: bool = False) -> RivalData:  # noqa: ARG001  from a file
    """Return 10,000 images of house numbers as principal axes of gradients and intensities."""
    images = load_svhn_sample()
    order = np.random.default_rng(_SEED + fold).permutation(len(images.X_test))
    private, public, scored = np.split(order, np.cumsum(SVHN))[:3]
    learned = image_features(PublicRows(images.X_test[public], "public house numbers"), SVHN_SHAPE)

    def features(rows: IntArray) -> Matrix:
        return _float32(learned, images.X_test[rows])

    return RivalData(
        name="SVHN",
        private=features(private),
        y_private=images.y_test[private],
        public=features(public),
        y_public=images.y_test[public],
        scored=features(scored),
        y_scored=images.y_test[scored],
    )


def bundled(name: str, fold: int = 0, download: bool = False) -> RivalData:  # noqa: ARG001  within scikit-learn
    """Return a small data set of scikit-learn, dealt at random: a quarter is public, and a quarter is scored.

    Parameters
    ----------
    name : str
        One of `BUNDLED`.
    fold : int
        Number of the split.
    download : bool
        Without effect.
    """
    X, y = BUNDLED[name](return_X_y=True)
    order = np.random.default_rng(_SEED + fold).permutation(len(X))
    private, public, scored = np.split(order, [len(X) // 2, 3 * len(X) // 4])
    return RivalData(
        name=name,
        private=X[private],
        y_private=y[private],
        public=X[public],
        y_public=y[public],
        scored=X[scored],
        y_scored=y[scored],
    )


BUNDLED: dict[str, Callable[..., Any]] = {
    "Digits": datasets.load_digits,
    "Breast cancer": datasets.load_breast_cancer,
    "Wine": datasets.load_wine,
    "Iris": datasets.load_iris,
}

SOURCES = (
    Source("Adult", adult),
    Source("Fashion-MNIST", fashion_mnist),
    Source("AG News", ag_news),
    Source("SMS spam", sms_spam),
    Source("Diabetes", diabetes),
    Source("MNIST", mnist),
)
"""The data sets of the comparison with rivals."""

ALL_SOURCES = (
    *SOURCES,
    Source("Diabetes, unbalanced", partial(diabetes, balanced=False)),
    Source("SVHN", svhn),
    *(Source(name, partial(bundled, name)) for name in BUNDLED),
)
"""These, unbalanced and harder ones, and small ones."""


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
    # Every public category, however rare, as when the record was made.
    learned = PublicSteps(learned.steps, [np.unique(column) for column in public[:, n_numbers:].T])
    return partial(_float32, learned)


class Dealt(NamedTuple):
    """Texts and their classes in three parts."""

    private: list[str]
    y_private: IntArray
    public: list[str]
    y_public: IntArray
    scored: list[str]
    y_scored: IntArray


def dealt(texts: list[str], labels: Sequence[int], sizes: Sizes, fold: int) -> Dealt:
    """Return texts dealt at random into three parts.

    Parameters
    ----------
    texts, labels : sequences
        All texts and their classes.
    sizes : Sizes
        How many are private and public.
    fold : int
        Number of the split.
    """
    order = np.random.default_rng(_SEED + fold).permutation(len(texts))
    classes = np.asarray(labels)
    private, public, scored = np.split(order, np.cumsum(sizes))

    def texts_of(rows: IntArray) -> list[str]:
        return [texts[row] for row in rows]

    return Dealt(
        private=texts_of(private),
        y_private=classes[private],
        public=texts_of(public),
        y_public=classes[public],
        scored=texts_of(scored),
        y_scored=classes[scored],
    )


def _texts(
    name: str, texts: list[str], labels: Sequence[int], sizes: Sizes, fold: int
) -> RivalData:
    parts = dealt(texts, labels, sizes, fold)
    learned = text_features(PublicRows(np.array(parts.public, dtype=object), "public texts"))

    def features(rows: list[str]) -> Matrix:
        return _float32(learned, rows)

    return RivalData(
        name=name,
        private=features(parts.private),
        y_private=parts.y_private,
        public=features(parts.public),
        y_public=parts.y_public,
        scored=features(parts.scored),
        y_scored=parts.y_scored,
    )


def _images(name: str, images: ImageSplit, fold: int, features: FeatureMap | Pipeline) -> RivalData:
    split = shuffled_folds(FOLDS)[fold]
    return RivalData(
        name=name,
        private=_float32(features, images.X_train),
        y_private=images.y_train,
        public=_float32(features, images.X_test[split.pool]),
        y_public=images.y_test[split.pool],
        scored=_float32(features, images.X_test[split.held_out]),
        y_scored=images.y_test[split.held_out],
    )


def _float32(features: FeatureMap | Pipeline, X: Any) -> Matrix:
    """Return the features of rows in half the memory."""
    return cast("FeatureMap", features).transform(X).astype(np.float32)


def _numbers_first(is_number: Sequence[bool]) -> IntArray:
    return np.argsort([not number for number in is_number], kind="stable")


def _text_of(file: str) -> str:
    return gzip.decompress(find(file).read_bytes()).decode("utf-8")
