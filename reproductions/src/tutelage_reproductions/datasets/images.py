"""Images with labels: MNIST, Fashion-MNIST, SVHN and scikit-learn's digits, in their publishers' splits.

No file is taken at its name's word. MNIST and Fashion-MNIST name theirs alike, so the arrays themselves are compared
with checksums, whatever container they came in; SVHN's files are compared before anything reads into them.
"""

import gzip
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, cast, final

import numpy as np
import numpy.typing as npt
from scipy.io import loadmat

from tutelage._internal.files import read_arrays
from tutelage._internal.typing import IntArray, Matrix
from tutelage.exceptions import InvalidDataError
from tutelage_reproductions.datasets import releases
from tutelage_reproductions.datasets.releases import RemoteFile, check

# As in the npz files that Keras distributes.
ARRAYS: tuple[str, ...] = ("x_train", "y_train", "x_test", "y_test")
IDX_NAMES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
DIGIT_NAMES = tuple("0123456789")
SVHN_SHAPE = (32, 32, 3)
DIGITS_TEST_ROWS = 360


@final
@dataclass(frozen=True, slots=True, eq=False)
class ImageSplit:
    """Images and their labels, split by their publisher into training and test rows.

    Parameters
    ----------
    X_train, X_test : uint8 arrays of shape (rows, features)
        One image a row: its pixels row by row, the channels of a pixel side by side.
    y_train, y_test : int64 arrays of shape (rows,)
        Labels: indices into `classes`.
    image_shape : tuple of int
        (height, width), or (height, width, channels).
    classes : tuple of str
        Class names in label order.
    name : str
        What this is, in full.
    """

    X_train: npt.NDArray[np.uint8]
    y_train: npt.NDArray[np.int64]
    X_test: npt.NDArray[np.uint8]
    y_test: npt.NDArray[np.int64]
    image_shape: tuple[int, ...]
    classes: tuple[str, ...]
    name: str

    def images(self, X: Matrix) -> Matrix:
        """Return rows of this data set as images, shape (rows, *image_shape)."""
        return X.reshape(-1, *self.image_shape)


class IdxRelease(NamedTuple):
    """MNIST, or a data set that was published in its form."""

    name: str
    classes: tuple[str, ...]
    subfolder: str
    files: tuple[RemoteFile, ...]
    contents: Mapping[str, tuple[tuple[int, ...], str]]  # shape and SHA-256 of each of `ARRAYS`


def _idx_release(
    name: str,
    classes: tuple[str, ...],
    subfolder: str,
    url: str,
    files: tuple[str, ...],
    contents: tuple[str, ...],
) -> IdxRelease:
    remote = tuple(
        RemoteFile(f"{url}/{file}.gz", sha256)
        for file, sha256 in zip(IDX_NAMES, files, strict=True)
    )
    shapes: list[tuple[int, ...]] = [(60_000, 28, 28), (60_000,), (10_000, 28, 28), (10_000,)]
    of_arrays = dict(zip(ARRAYS, zip(shapes, contents, strict=True), strict=True))
    return IdxRelease(name, classes, subfolder, remote, of_arrays)


# The checksums of compressed files are those that TensorFlow Datasets publishes (url_checksums/mnist.txt,
# fashion_mnist.txt, svhn_cropped.txt); Keras lists the same ones for Fashion-MNIST. Those of contents were computed
# from files whose uncompressed form has the MD5 sums published for it (for example 6bbc9ace898e44ae57da46a324031adb for
# MNIST's training images and f4a8712d7a061bf5bd6d2ca38dc4d50a for Fashion-MNIST's).
MNIST = _idx_release(
    "MNIST",
    DIGIT_NAMES,
    "mnist",
    "https://ossci-datasets.s3.amazonaws.com/mnist",  # PyTorch's mirror; the first home closed
    (
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
    (
        "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757",
        "1feba77c54802fa5339a11837ea4b2866434b83314ec45192930f1df69120c13",
        "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
        "ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5",
    ),
)
FASHION_MNIST = _idx_release(
    "Fashion-MNIST",
    (
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    ),
    "fashion-mnist",
    "https://storage.googleapis.com/tensorflow/tf-keras-datasets",  # Zalando's own has no https
    (
        "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    ),
    (
        "2e487a6c89124f78f2d7521542223cafe96f7123c3ca13d447772ac6ecbb3012",
        "657fbd221bfc9f4198cc14b5619cc33ec57c58dd0e47af4d99d6650759e869a7",
        "c867c93ff95360594e8ec3287995350b824dd110b11595c0e13d5423f621867a",
        "3d0e6c6ea990b53b6f8f500a41cac93881d981b315f84578b7d915342ade01e9",
    ),
)
_SVHN_URL = "http://ufldl.stanford.edu/housenumbers"  # the only address that its authors give
SVHN: Mapping[str, RemoteFile] = {
    part: RemoteFile(f"{_SVHN_URL}/{part}_32x32.mat", sha256)
    for part, sha256 in (
        ("train", "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8"),
        ("test", "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b"),
        ("extra", "a133a4beb38a00fcdda90c9489e0c04f900b660ce8a316a5e854838379a71eb3"),
    )
}
# Computed from a copy with as many rows as the authors count, the digit 0 as 0; 88 % of the majorities that PATE 2018
# published agree with it.
SVHN_TEST_LABELS = "c2488ef300c629f4bd90a3d2a7b4141589e5b5a4f9046845dfc1a9021319e31a"


def load_mnist(folder: str | Path | None = None, *, download: bool = False) -> ImageSplit:
    """Return MNIST: 60,000 training and 10,000 test images of 28 x 28 values, of ten handwritten digits.

    Read are ``mnist.npz`` as Keras has it, or the four idx files, compressed with gzip, in `folder` or in ``mnist``
    there.

    Parameters
    ----------
    folder : path-like, optional
        The only folder to search. Default: the one that the environment variable ``TUTELAGE_DATA`` names, the cache
        (``tutelage`` in ``$XDG_CACHE_HOME`` or ``~/.cache``) and ``/usr/share/datasets``.
    download : bool
        Fetch the files if they are not found, 12 MB, into ``mnist`` in `folder` or, without one, in the cache.

    Raises
    ------
    InvalidDataError
        If the files are not found or cannot be downloaded, or are not MNIST.

    References
    ----------
    LeCun, Cortes and Burges, The MNIST database of handwritten digits, 1998.
    """
    return _load_idx_release(MNIST, folder, download=download)


def load_fashion_mnist(folder: str | Path | None = None, *, download: bool = False) -> ImageSplit:
    """Return Fashion-MNIST: 60,000 training and 10,000 test images of 28 x 28 values, of ten kinds of clothing.

    Read are ``fashion-mnist.npz`` with the array names of Keras, or the four idx files, compressed with gzip, in
    `folder` or in ``fashion-mnist`` there. They are found where Debian's package dataset-fashion-mnist puts them.

    Parameters
    ----------
    folder, download
        As for `load_mnist`: 31 MB, into ``fashion-mnist``.

    References
    ----------
    Xiao, Rasul and Vollgraf, arXiv:1708.07747v2, 2017; MIT license.
    """
    return _load_idx_release(FASHION_MNIST, folder, download=download)


def load_svhn(
    folder: str | Path | None = None, *, extra: bool = False, download: bool = False
) -> ImageSplit:
    """Return SVHN's cropped digits: 73,257 training and 26,032 test images of 32 x 32 pixels in three colors.

    Read are ``train_32x32.mat`` and ``test_32x32.mat`` in `folder` or in ``svhn`` there. The label of the digit 0,
    which the files write as 10, becomes 0.

    Parameters
    ----------
    folder : path-like, optional
        As for `load_mnist`.
    extra : bool
        Append the 531,131 easier images of ``extra_32x32.mat`` to the training rows; takes 3.5 GB of memory.
    download : bool
        Fetch what is not found, 246 MB and with `extra` 1.6 GB, into ``svhn`` in `folder` or, without one, in the
        cache.

    Raises
    ------
    InvalidDataError
        If the files are not found or cannot be downloaded, or are not SVHN.

    See Also
    --------
    load_svhn_sample : where only the first images are at hand.

    References
    ----------
    Netzer, Wang, Coates, Bissacco, Wu and Ng, Reading digits in natural images with unsupervised feature learning,
    NIPS workshop 2011; for non-commercial use.
    """
    parts = [SVHN[part] for part in ("train", "test", "extra")[: 3 if extra else 2]]
    paths = releases.obtain(parts, "svhn", folder, download=download)
    train, test, *more = (_read_mat(part, path) for part, path in zip(parts, paths, strict=True))
    X_train, y_train = (np.concatenate(arrays) for arrays in zip(train, *more, strict=True))
    name = "SVHN with its extra images" if extra else "SVHN"
    return ImageSplit(X_train, y_train, *test, SVHN_SHAPE, DIGIT_NAMES, name)


def load_svhn_sample(folder: str | Path | None = None) -> ImageSplit:
    """Return the first images of SVHN's training and test files, as many as are at hand; `name` says how many.

    This is for trying things out where the whole of SVHN is not at hand: a result on it is no result on SVHN. Read are
    ``svhn_train_first<rows>.npz`` and ``svhn_test_first<rows>.npz``, each with the arrays ``x`` of shape
    (rows, 32, 32, 3) and ``y`` of shape (rows,), in `folder` or in ``svhn`` there. Nothing tells whether their images
    are SVHN's but their names.

    Parameters
    ----------
    folder : path-like, optional
        As for `load_mnist`.

    Raises
    ------
    InvalidDataError
        If a file is not found, is one of several, or holds other than its name says.
    """
    X_train, y_train = _read_sample("train", folder)
    X_test, y_test = _read_sample("test", folder)
    name = f"sample of SVHN: the first {len(y_train)} training and {len(y_test)} test images"
    return ImageSplit(X_train, y_train, X_test, y_test, SVHN_SHAPE, DIGIT_NAMES, name)


def load_digits() -> ImageSplit:
    """Return scikit-learn's digits: 1437 training and 360 test images of 8 x 8 values between 0 and 16.

    It needs no file. The test rows are the last 360.

    References
    ----------
    Alpaydin and Kaynak, Optical recognition of handwritten digits, UCI 1998; CC BY 4.0.
    """
    # Imported here because it takes longer than everything else in this module.
    from sklearn import datasets

    intensities, classes = cast("tuple[Matrix, IntArray]", datasets.load_digits(return_X_y=True))
    X = intensities.astype(np.uint8)
    y = classes.astype(np.int64)
    last = len(y) - DIGITS_TEST_ROWS
    return ImageSplit(X[:last], y[:last], X[last:], y[last:], (8, 8), DIGIT_NAMES, "digits")


def _load_idx_release(
    release: IdxRelease, folder: str | Path | None, *, download: bool
) -> ImageSplit:
    npz = f"{release.subfolder}.npz"
    if found := releases.first_complete([npz], releases.search_places(folder, release.subfolder)):
        stored = read_arrays(found[0])
        if not set(ARRAYS) <= set(stored):
            raise InvalidDataError(
                f"{found[0]} must hold the arrays {', '.join(ARRAYS)}. It has {', '.join(stored)}."
            )
        origins, arrays = (
            found * len(ARRAYS),
            [np.ascontiguousarray(stored[name]) for name in ARRAYS],
        )
    else:
        origins = releases.obtain(
            release.files, release.subfolder, folder, download=download, otherwise=npz
        )
        arrays = [_read_idx(path) for path in origins]
    for array, origin, (name, (_, sha256)) in zip(
        arrays, origins, release.contents.items(), strict=True
    ):
        check(array, sha256, f"{name} in {origin}", release.name)
    shapes = [shape for shape, _ in release.contents.values()]
    X_train, X_test = (arrays[place].reshape(shapes[place][0], -1) for place in (0, 2))
    y_train, y_test = (arrays[place].astype(np.int64) for place in (1, 3))
    return ImageSplit(
        X_train, y_train, X_test, y_test, shapes[0][1:], release.classes, release.name
    )


def _read_idx(path: Path) -> npt.NDArray[np.uint8]:
    """Return the numbers of a compressed idx file behind its header: two codes, the dimensions, and their sizes."""
    try:
        content = gzip.decompress(path.read_bytes())
        return np.frombuffer(content[4 + 4 * content[3] :], np.uint8)
    except (OSError, EOFError, IndexError):
        raise InvalidDataError(f"{path} cannot be read, or is damaged. Fetch it again.") from None


def _read_mat(part: RemoteFile, path: Path) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return the images and labels of one of SVHN's files."""
    # MATLAB's format is too rich to read from strangers: only the very bytes that were published get that far.
    check(path.read_bytes(), str(part.sha256), str(path), "SVHN")
    # X: (height, width, colors, images); y: (images, 1).
    arrays = cast("dict[str, npt.NDArray[np.uint8]]", loadmat(path, variable_names=["X", "y"]))
    images = np.moveaxis(arrays["X"], 3, 0)
    return images.reshape(len(images), -1), arrays["y"].ravel().astype(np.int64) % 10


def _read_sample(
    part: str, folder: str | Path | None
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    places = releases.search_places(folder, "svhn")
    found = list[Path]()
    for place in places:
        found = list(place.glob(f"svhn_{part}_first*.npz"))
        if found:
            break
    if len(found) != 1:
        raise InvalidDataError(
            f"SVHN's sample must be one file svhn_{part}_first<rows>.npz in one of {', '.join(map(str, places))}. Got "
            f"{len(found)}."
        )
    stored, rows = read_arrays(found[0]), re.findall(r"_first(\d+)\.npz$", found[0].name)
    shapes = {name: stored.form(name).shape for name in stored}
    if (
        not rows
        or shapes != {"x": (int(rows[0]), *SVHN_SHAPE), "y": (int(rows[0]),)}
        or stored["y"].max() > 10
    ):
        raise InvalidDataError(
            f"{found[0]} must hold `x` and `y` of as many rows as its name says, and digits in `y`."
        )
    return stored["x"].reshape(len(stored["x"]), -1), stored["y"].astype(np.int64) % 10
