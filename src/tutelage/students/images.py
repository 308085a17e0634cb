"""The base of students of images, without torch: they see pixels, and know the shape of an image."""

from abc import abstractmethod
from dataclasses import field
from math import isqrt, prod
from typing import NamedTuple, Self, final

import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from tutelage._internal.records import settable
from tutelage._internal.typing import Array, Matrix, is_array
from tutelage._internal.validation import as_image_shape
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.features.images import flat_images
from tutelage.students.base import SemiSupervisedClassifier

LEAST_VARIANCE = 1e-5  # of a constant image, which becomes zeros


@settable
class ImageStudent(SemiSupervisedClassifier):
    """Base of students that learn from the pixels of images; an estimator shows them these, and no features."""

    image_shape: tuple[int, ...] | None = field(default=None, kw_only=False)

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike) -> Self:
        """Learn from images of which some have labels.

        Parameters
        ----------
        X : array of shape (rows, height, width), (rows, height, width, channels) or (rows, numbers of an image)
            Public images.
        y : array of shape (rows,)
            Class value of each image, −1 where it has none, as for every student.

        Raises
        ------
        InvalidDataError
            If these are not images of the shape, the labels not one class value per image, or no image is labeled.
        InvalidParameterError
            If a parameter is out of range, or the shape of flattened images is not known.

        Warns
        -----
        OneClassWarning
            If all labels are the same class.
        """
        self.image_shape_ = self.image_shape
        if is_array(X) and X.ndim > 2:
            self.image_shape_ = X.shape[1:]
            return super().fit(flat_images(X, X.shape[1:]), y)
        return super().fit(X, y)

    def _known_rows(self, X: npt.ArrayLike) -> Matrix:
        check_is_fitted(self)
        rows = flat_images(X, self._shape) if is_array(X) else X
        return super()._known_rows(rows)

    @property
    def _shape(self) -> tuple[int, ...]:
        """The shape of the images: that of those that were seen, else as set, else square and gray."""
        if self.image_shape_ is not None:
            return as_image_shape(self.image_shape_, 1, "image_shape", type(self).__name__)
        side = isqrt(self.n_features_in_)
        return side, side

    @abstractmethod
    def network(self) -> "ImageNetwork":
        """Return what was learned as arrays, for other formats."""

    def _check_settings(self) -> None:
        owner = type(self).__name__
        given = self.image_shape
        shape = self._shape
        n_numbers = self.n_features_in_
        if self.image_shape_ is None and prod(shape) != n_numbers:
            raise InvalidParameterError(
                f"{owner}.image_shape",
                "be (height, width) or (height, width, channels), because images of "
                f"{n_numbers} numbers are not square and gray",
                "None",
            )
        if given is not None:
            given = as_image_shape(given, 1, "image_shape", owner)
        if prod(shape) != n_numbers or given not in (None, shape):
            found = f"rows of {n_numbers} numbers" if given == shape else f"images of shape {shape}"
            raise InvalidDataError(
                f"`X` of {owner} must hold images of shape {given}, as `image_shape` says. Got {found}."
            )
        self.image_shape_ = shape


class Convolution(NamedTuple):
    """A convolution with its normalization, and then a ReLU; `halves` the images before, `beside` the images it had."""

    weights: Array  # shape (channels out, channels in, side, side)
    bias: Array  # shape (channels out,)
    halves: bool
    beside: bool


@final
class ImageNetwork(ClassifierMixin, BaseEstimator):
    """A trained network as arrays, for other formats: standardized images, convolutions, their means, one layer."""

    def __init__(
        self,
        image_shape: tuple[int, ...],
        classes: Array,
        convolutions: list[Convolution],
        weights: Array,  # shape (classes, channels)
        bias: Array,  # shape (classes,)
    ) -> None:
        self.image_shape = image_shape
        self.n_features_in_ = prod(image_shape)
        self.classes = self.classes_ = classes
        self.convolutions = convolutions
        self.weights = weights
        self.bias = bias
