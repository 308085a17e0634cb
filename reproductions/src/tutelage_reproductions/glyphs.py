"""Features for small images of characters: strokes set upright, their directions, and the shape that the images form.

Directions of strokes, counted by cell, are what has long told handwritten characters apart [1]_; slant tells writers
apart, so it is taken out first [2]_. The maps learn from public images without labels.

References
----------
.. [1] Dalal and Triggs, "Histograms of oriented gradients for human detection", CVPR 2005.
.. [2] LeCun, Bottou, Bengio and Haffner, "Gradient-based learning applied to document recognition", Proc. IEEE 86(11),
   1998, where the deskewed digits are.
"""

from dataclasses import KW_ONLY
from typing import Any, Protocol, Self, cast, final

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.linalg import LinearOperator, eigsh
from sklearn.pipeline import make_pipeline

from tutelage._internal.records import settable
from tutelage._internal.typing import FloatArray, IntArray, Matrix
from tutelage._internal.validation import integer_at_least, positive
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.features import PublicFeatureMap, PublicPCA, PublicProjection, PublicRows
from tutelage.features.base import FeatureMap, require_public
from tutelage.features.images import LEVELS, Directions, edge_histograms, flat_images
from tutelage.features.rowwise import (
    EXACT_FLOAT32,
    distance_levels,
    finite_rows,
    in_chunks,
    nearest,
    number_rows,
    on_grid,
    reach_of,
    unit_rows,
)


class FeatureChain(FeatureMap, Protocol):
    """Feature maps that are applied one after the other; some of them are a feature map too."""

    def __getitem__(self, steps: int | slice, /) -> FeatureMap:
        """Return the map of one step, or the chain of some."""
        ...


_STEEPEST = 1.0  # shear, in columns per row: 45 degrees
_LARGEST_CELL = 32  # in larger ones a pixel's share would round to nothing


def glyph_features(
    public: PublicRows,
    image_shape: tuple[int, int] = (28, 28),
    *,
    cell: int = 4,
    n_components: int = 64,
) -> FeatureChain:
    """Return features of images of characters in which a few examples of each suffice: one class, one direction.

    Stroke directions, their principal axes, the metric of neighbors, and the shape that the public images form. Some
    thousand public images are needed.

    Parameters
    ----------
    public : PublicRows
        Public images, flattened; their largest value is taken for full ink.
    image_shape : tuple of two int
        Height and width, in pixels.
    cell : int
        Side of the cells in which stroke directions are counted, in pixels.
    n_components : int
        Number of principal axes.
    """
    values = require_public(public, "glyph_features").values
    white = float(np.max(finite_rows(values, values.shape[-1], "glyph_features")))
    if white <= 0:
        raise InvalidDataError("The public images of glyph_features must not all be blank.")
    gradients = GlyphGradients(image_shape, white=white, cell=cell)
    rows = public.through(gradients)
    axes = PublicPCA.learn(rows, n_components)
    rows = rows.through(axes)
    metric = NeighborWhitening.learn(rows)
    diffusion = PublicDiffusion.learn(rows.through(metric))
    return cast("FeatureChain", make_pipeline(gradients, axes, metric, diffusion))


@final
@settable
class GlyphGradients(PublicFeatureMap):
    """Histograms of stroke directions in the cells of an image, after its ink was moved to the middle and set upright.

    The shear is at most 45 degrees. The square roots of all counts have length 1 together; a blank image gets zeros.

    Parameters
    ----------
    image_shape : tuple of two int
        Height and width, in pixels.
    white : float
        Value of full ink: 255 for bytes, 1 for intensities. Values are clipped to [0, white].
    cell : int
        Side of a cell, in pixels; at most 32.
    """

    image_shape: tuple[int, int] = (28, 28)
    _: KW_ONLY
    white: float = 255.0
    cell: int = 4

    def __post_init__(self) -> None:
        for side in self.image_shape:
            integer_at_least(side, 4, "image_shape", "GlyphGradients")
        positive(self.white, "white", "GlyphGradients")
        if integer_at_least(self.cell, 1, "cell", "GlyphGradients") > _LARGEST_CELL:
            raise InvalidParameterError(
                "GlyphGradients.cell", f"be at most {_LARGEST_CELL}", f"{self.cell!r}"
            )

    def transform(self, X: npt.ArrayLike) -> Matrix:
        """Return float32 features: each direction's cells from left to right and top to bottom."""
        height, width = self.image_shape
        rows = number_rows(flat_images(X, self.image_shape), height * width, "GlyphGradients")
        if rows.dtype.kind == "f" and np.isnan(rows).any():
            raise InvalidDataError(
                "X of GlyphGradients must hold gray values. Fill the missing pixels first."
            )
        directions = Directions.of((height, width), self.cell)

        def histograms(chunk: Matrix) -> Matrix:
            levels = np.rint(
                np.clip(chunk, 0, self.white, dtype=np.float64) * (LEVELS / self.white)
            )
            return edge_histograms(
                upright(levels.astype(np.float32).reshape(-1, height, width)), directions
            )

        return in_chunks(histograms, rows)


def upright(images: Matrix) -> Matrix:
    """Return images with their ink in the middle, sheared until ink's column no longer correlates with its row."""
    _, height, _ = images.shape
    down, right, shear = _posture(images)
    lifted = _sampled(images.transpose(0, 2, 1), down[:, np.newaxis]).transpose(0, 2, 1)
    return _sampled(lifted, right[:, np.newaxis] + shear[:, np.newaxis] * _centered(height))


def _posture(images: Matrix) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return how far below and right of the middle the ink lies, and its columns per row.

    Sums of whole levels times half pixels are exact, in whatever order they are added.
    """
    _, height, width = images.shape
    y, x = np.broadcast_arrays(_centered(height)[:, np.newaxis], _centered(width))
    powers = np.stack([np.ones_like(y), y, x, y * y, y * x], axis=-1).reshape(height * width, 5)
    ink, sum_y, sum_x, sum_yy, sum_yx = (
        images.reshape(-1, height * width).astype(np.float64) @ powers
    ).T
    mass = np.where(ink > 0, ink, 1)
    down, right = sum_y / mass, sum_x / mass
    spread = sum_yy / mass - down * down
    # One line has no slant.
    shear = (sum_yx / mass - down * right) / np.where(spread > 0.01, spread, np.inf)
    return down, right, np.clip(shear, -_STEEPEST, _STEEPEST)


def _centered(side: int) -> Matrix:
    return np.arange(side) - (side - 1) / 2


def _sampled(signals: Matrix, shift: FloatArray) -> Matrix:
    """Return each signal of shape (images, lines, n) read `shift` places further on, between places linearly."""
    n_images, n_lines, n = signals.shape
    padded = np.zeros((n_images, n_lines, 3 * n + 1), np.float32)
    padded[:, :, n : 2 * n] = signals
    shift = np.broadcast_to(np.clip(shift, -n, n), (n_images, n_lines))
    whole = np.floor(shift)
    part = (shift - whole).astype(np.float32)[:, :, np.newaxis]
    lines = np.arange(n_images * n_lines, dtype=np.int64).reshape(n_images, n_lines)
    line_starts: IntArray = lines * (3 * n + 1)
    first: IntArray = line_starts + n + whole.astype(np.int64)
    here: IntArray = first[:, :, np.newaxis] + np.arange(n, dtype=np.int64)
    flat = padded.ravel()
    return (1 - part) * flat[here] + part * flat[here + 1]


@final
class NeighborWhitening(PublicProjection):
    """Makes distances between neighbors alike in all directions; a `PublicProjection` made by `learn`.

    Neighbors mostly belong to one class, so their differences tell how rows vary within a class, without labels.
    Nearest class means after this map are those of linear discriminant analysis with that covariance.
    """

    @classmethod
    def learn(cls, public: PublicRows, *, n_neighbors: int = 10, shrinkage: float = 0.5) -> Self:
        """Return the whitening by `neighbor_covariance`, which see for the parameters."""
        variances, axes = np.linalg.eigh(
            neighbor_covariance(public, n_neighbors=n_neighbors, shrinkage=shrinkage)
        )
        center = public.values.mean(axis=0, dtype=np.float64)
        return cls(center, (axes / np.sqrt(variances)) @ axes.T, reach_of(public.values, center))


def neighbor_covariance(
    public: PublicRows, *, n_neighbors: int = 10, shrinkage: float = 0.5
) -> FloatArray:
    """Return how rows vary within a class, estimated without labels: half the mean square of neighbors' differences.

    `shrinkage` times the mean variance is added to each variance, so that no direction outweighs all others.
    """
    rows = _public_numbers(public, "neighbor_covariance")
    _at_most(n_neighbors, len(rows) - 1, "n_neighbors", "neighbor_covariance")
    positive(shrinkage, "shrinkage", "neighbor_covariance")
    center = rows.mean(axis=0)
    neighbors, _ = _other_neighbors(_points(rows, center, reach_of(rows, center)), n_neighbors)
    scatter = np.zeros((rows.shape[1], rows.shape[1]))
    for column in neighbors.T:
        differences = rows - rows[column]
        scatter += differences.T @ differences
    covariance = scatter / (2 * neighbors.size)
    mean_variance = np.trace(covariance) / len(covariance)
    if mean_variance == 0:
        raise InvalidDataError(
            "The public rows of neighbor_covariance must differ from their neighbors."
        )
    return covariance + shrinkage * mean_variance * np.eye(len(covariance))


@final
@settable
class PublicDiffusion(PublicFeatureMap):
    """Where a row lies on the shape that public rows form: rows joined by chains of neighbors come together.

    A random walk among neighbors mixes within a group long before it leaves it. The features are the walk's slowest
    eigenvectors times their eigenvalues to the power of the number of steps [1]_, extended to any row as the weighted
    mean over its nearest public rows, at length 1. Made by `learn`.

    Parameters
    ----------
    center : array of shape (columns,)
        Public mean.
    reach : float
        The largest distance of a public value from its column's mean; values further out are moved there.
    points : array of shape (public rows, columns)
        Public rows minus center, in whole steps of the grid on which distances are exact.
    places : array of shape (public rows, features)
        Features of the public rows.
    n_neighbors : int
        Public rows that a row's place is the mean of.

    References
    ----------
    .. [1] Coifman and Lafon, "Diffusion maps", Applied and Computational Harmonic Analysis 21(1), 2006.
    """

    center: FloatArray
    reach: float
    points: Matrix
    places: FloatArray
    n_neighbors: int

    @classmethod
    def learn(
        cls, public: PublicRows, n_components: int = 30, *, n_neighbors: int = 10, n_steps: int = 24
    ) -> Self:
        """Return the places of the public rows, and what places other rows among them.

        Parameters
        ----------
        public : PublicRows
            Rows of numbers, best in a metric in which neighbors mostly belong together.
        n_components : int
            Number of eigenvectors, at most the rows' number − 2.
        n_neighbors : int
            Neighbors of a row, at most the rows' number − 2.
        n_steps : int
            Steps of the walk; the more, the closer groups contract.
        """
        rows = _public_numbers(public, "PublicDiffusion")
        _at_most(n_components, len(rows) - 2, "n_components", "PublicDiffusion")
        _at_most(n_neighbors, len(rows) - 2, "n_neighbors", "PublicDiffusion")
        integer_at_least(n_steps, 0, "n_steps", "PublicDiffusion")
        center = rows.mean(axis=0)
        reach = reach_of(rows, center)
        points = _points(rows, center, reach)
        eigenvalues, vectors = _slowest_modes(_walk(points, n_neighbors), n_components)
        return cls(
            center, reach, points, vectors * np.maximum(eigenvalues, 0) ** n_steps, n_neighbors
        )

    def transform(self, X: npt.ArrayLike) -> FloatArray:
        """Return the places of the rows, shape (rows, features)."""
        search = nearest(self.points, self.n_neighbors + 1)

        def placed(rows: Matrix) -> FloatArray:
            indices, distances = search(_points(rows, self.center, self.reach))
            weights = _neighbor_weights(distances)
            total = np.zeros((len(rows), self.places.shape[1]))
            # The furthest has no weight.
            for index, weight in zip(indices.T, weights.T, strict=False):
                total += weight[:, np.newaxis] * self.places[index]
            return unit_rows(total)

        return in_chunks(placed, finite_rows(X, len(self.center), "PublicDiffusion"))


def _public_numbers(public: object, owner: str) -> FloatArray:
    values = require_public(public, owner).values
    return finite_rows(values, values.shape[-1], f"{owner}.learn").astype(np.float64)


def _at_most(value: Any, maximum: int, name: str, owner: str) -> None:
    if integer_at_least(value, 1, name, owner) > maximum:
        raise InvalidParameterError(
            f"{owner}.{name}", f"be at most {maximum} with so few public rows", f"{value}"
        )


def _points(rows: Matrix, center: FloatArray, reach: float) -> Matrix:
    limit = distance_levels(len(center), EXACT_FLOAT32)
    return on_grid(rows, center, reach / limit, limit).astype(np.float32)


def _other_neighbors(points: Matrix, k: int) -> tuple[IntArray, Matrix]:
    """Return each point's `k` nearest others and their squared distances, in ascending order."""
    search = nearest(points, k + 1)
    found = in_chunks(lambda rows: np.stack(search(rows), axis=-1), points)
    indices, distances = found[:, :, 0].astype(np.int64), found[:, :, 1]
    itself = indices == np.arange(len(points))[:, np.newaxis]
    # One that coincides with k others finds those alone.
    others = np.argsort(itself, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(indices, others, 1), np.take_along_axis(distances, others, 1)


def _neighbor_weights(distances: Matrix) -> FloatArray:
    """Return weights that fall to nearly zero at the last neighbor, so that no row's place jumps; they sum to one."""
    furthest = np.maximum(distances[:, -1:], 1).astype(np.float64)
    weights = np.maximum(1 - distances[:, :-1] / furthest, 1e-6)
    return weights / weights.sum(axis=1, keepdims=True)


def _walk(points: Matrix, n_neighbors: int) -> csr_array:
    """Return the weights of the symmetric graph in which a point is joined to its nearest others."""
    indices, distances = _other_neighbors(points, n_neighbors + 1)
    weights = _neighbor_weights(distances).ravel()
    ends = np.arange(0, weights.size + 1, n_neighbors)
    shape = (len(points), len(points))
    directed: Any = csr_array((weights, indices[:, :-1].ravel(), ends), shape=shape)
    return csr_array(directed + directed.T)


def _slowest_modes(graph: csr_array, n_modes: int) -> tuple[FloatArray, FloatArray]:
    """Return the largest eigenvalues of the walk and its right eigenvectors, without the constant one."""
    degrees = cast("FloatArray", graph.sum(axis=1)).ravel()
    roots = np.sqrt(degrees)
    constant = roots / np.linalg.norm(roots)

    def step(vector: FloatArray) -> FloatArray:
        vector = vector.ravel()
        spread = cast("FloatArray", graph @ (vector / roots))
        return spread / roots - constant * (constant @ vector)

    operator = LinearOperator(graph.shape, matvec=step, dtype=np.float64)  # type: ignore[call-arg]
    # The solver's own would differ from call to call.
    start = np.random.default_rng(0).random(len(roots))
    eigenvalues, vectors = cast(
        "tuple[FloatArray, FloatArray]", eigsh(operator, n_modes, which="LA", v0=start)
    )
    return eigenvalues[::-1], vectors[:, ::-1] / constant[:, np.newaxis]
