"""Images with labels: MNIST, Fashion-MNIST, SVHN and scikit-learn's digits, in their publishers' splits.

No file is taken at its name's word. MNIST and Fashion-MNIST name theirs alike, so the arrays themselves are compared
with the checksums in `releases`, whatever container they came in; SVHN's files are compared before anything reads into
them.
"""

import gzip
import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, final

import numpy as np
import numpy.typing as npt
from scipy.io import loadmat

from tutelage._internal.files import Form, read_arrays
from tutelage._internal.gate import MODEL, open_input
from tutelage._internal.typing import Matrix
from tutelage.exceptions import InvalidDataError
from tutelage_reproductions.datasets import releases
from tutelage_reproductions.datasets.releases import (
    DIGIT_NAMES,
    FASHION_MNIST,
    IDX_NAMES,
    MNIST,
    SVHN,
    SVHN_CONTENTS,
    SVHN_SHAPE,
    Content,
    IdxRelease,
    MatRelease,
)

MOST_BYTES = 2**30  # refuses a compressed bomb; the images of MNIST take 47 million
_MOST_DIMENSIONS = 4  # rows of color images
_UNSIGNED_BYTE = b"\0\0\x08"
_BLOCK = 2**20


def read_idx(path: Path, most: int = MOST_BYTES) -> npt.NDArray[np.uint8]:
    """Return the array of an idx file, plain or compressed with gzip, in the shape that the file states.

    Memory grows with what the file turns out to hold, never with what its header claims.
    """
    with releases.unpacked(path) as file:
        return _parse(file, path, most)


def _parse(file: BinaryIO | gzip.GzipFile, path: Path, most: int) -> npt.NDArray[np.uint8]:
    magic = file.read(4)
    dimensions = magic[-1] if magic else 0
    if magic[:3] != _UNSIGNED_BYTE or not 1 <= dimensions <= _MOST_DIMENSIONS:
        raise InvalidDataError(
            f"{path} must be an idx file of unsigned bytes, which begins with 00000801 to 0000080{_MOST_DIMENSIONS}. "
            f"Got {magic.hex() or 'an empty file'}."
        )
    sizes = file.read(4 * dimensions)
    if len(sizes) < 4 * dimensions:
        raise InvalidDataError(f"{path} is cut short within its dimensions. Fetch it again.")
    shape = tuple(np.frombuffer(sizes, ">u4").tolist())
    stated = math.prod(shape)
    if stated > most:
        raise InvalidDataError(f"{path} would unpack to more than {most} bytes, the most that is read of it.")
    content = bytearray()
    while block := file.read(min(_BLOCK, stated + 1 - len(content))):
        content += block
    if len(content) != stated:
        fault = "is cut short" if len(content) < stated else "goes on after its last row"
        raise InvalidDataError(f"{path} {fault}: its dimensions {shape} take {stated} bytes. Fetch it again.")
    try:
        return np.frombuffer(content, np.uint8).reshape(shape)
    except ValueError:  # nothing at all, spread over more than an index can count
        raise InvalidDataError(f"{path} states dimensions that no array can have. Fetch it again.") from None


ARRAYS = ("x_train", "y_train", "x_test", "y_test")  # as in the npz files that Keras distributes
DIGITS_TEST_ROWS = 360
SVHN_SUBFOLDERS = ("svhn",)


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
        """Return rows of this data set as images, shape (rows, *image_shape).

        Raises
        ------
        InvalidDataError
            If a row has another number of features than an image has values.
        """
        values = int(np.prod(self.image_shape))
        if X.ndim != 2 or X.shape[1] != values:
            raise InvalidDataError(f"`X` of ImageSplit.images must have {values} columns. Got the shape {X.shape}.")
        return X.reshape(-1, *self.image_shape)


_SAMPLE_NAME = re.compile(r"svhn_(train|test)_first([1-9]\d*)\.npz")


def load_mnist(folder: str | Path | None = None, *, download: bool = False) -> ImageSplit:
    """Return MNIST: 60,000 training and 10,000 test images of 28 x 28 values, of ten handwritten digits.

    Read are the four idx files, compressed or not, in `folder` or in ``mnist`` or ``MNIST/raw`` there; or ``mnist.npz``
    as Keras has it.

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

    Read are the four idx files, compressed or not, in `folder` or in ``fashion-mnist`` or ``FashionMNIST/raw`` there;
    or ``fashion-mnist.npz`` with the array names of Keras. They are found where Debian's package dataset-fashion-mnist
    puts them.

    Parameters
    ----------
    folder, download
        As for `load_mnist`: 31 MB, into ``fashion-mnist``.

    References
    ----------
    Xiao, Rasul and Vollgraf, arXiv:1708.07747v2, 2017; MIT license.
    """
    return _load_idx_release(FASHION_MNIST, folder, download=download)


def load_svhn(folder: str | Path | None = None, *, extra: bool = False, download: bool = False) -> ImageSplit:
    """Return SVHN's cropped digits: 73,257 training and 26,032 test images of 32 x 32 pixels in three colors.

    Read are ``train_32x32.mat`` and ``test_32x32.mat`` in `folder` or in ``svhn`` there; or ``svhn.npz`` with the
    arrays ``x_train``, ``y_train``, ``x_test``, ``y_test``, of whose images only the shape can be checked. The label of
    the digit 0, which the files write as 10, becomes 0.

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
    places = releases.search_places(folder, SVHN_SUBFOLDERS)
    parts = [SVHN[part] for part in (("train", "test", "extra") if extra else ("train", "test"))]
    paths = [releases.first_complete(places, [(part.remote.name,)]) for part in parts]
    if not all(paths) and not extra and (npz := releases.first_complete(places, [("svhn.npz",)])):
        return _read_svhn_npz(npz[0])
    if download:
        target = releases.download_folder(folder, SVHN_SUBFOLDERS)
        paths = [found or (releases.fetch(part.remote, target),) for found, part in zip(paths, parts, strict=True)]
    if not all(paths):
        names = " and ".join(part.remote.name for part in parts)
        raise releases.not_found(
            "SVHN",
            names if extra else f"{names}, or svhn.npz",
            folder,
            SVHN_SUBFOLDERS,
            f"Put them into one, name theirs in {releases.VARIABLE}, pass `download=True`, or load a part of SVHN with "
            "load_svhn_sample.",
        )
    train, test, *more = ((part, found[0]) for part, found in zip(parts, paths, strict=True))
    X_train, y_train = _read_mats([train, *more])
    X_test, y_test = _read_mats([test])
    name = "SVHN with its extra images" if extra else "SVHN"
    return ImageSplit(X_train, y_train, X_test, y_test, SVHN_SHAPE, DIGIT_NAMES, name)


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

    X, y = datasets.load_digits(return_X_y=True)
    X, y = np.asarray(X).astype(np.uint8), np.asarray(y).astype(np.int64)
    last = len(y) - DIGITS_TEST_ROWS
    return ImageSplit(X[:last], y[:last], X[last:], y[last:], (8, 8), DIGIT_NAMES, "digits")


def _load_idx_release(release: IdxRelease, folder: str | Path | None, *, download: bool) -> ImageSplit:
    paths = _find_idx_release(release, folder)
    if not paths and download:
        target = releases.download_folder(folder, release.subfolders)
        paths = tuple(releases.fetch(file, target) for file in release.remote)
    if not paths:
        raise releases.not_found(
            release.name,
            f"{release.npz_names[0]} or the files {', '.join(IDX_NAMES)} (also with .gz)",
            folder,
            release.subfolders,
            f"Put them into one, name theirs in {releases.VARIABLE}, or pass `download=True`.",
        )
    whole = len(paths) == 1
    origins: dict[str, Path] = dict(zip(ARRAYS, paths * len(ARRAYS) if whole else paths, strict=True))
    if whole:
        arrays = _read_npz(paths[0], release.contents, release.name)
    else:
        most = {name: math.prod(content.shape) for name, content in release.contents.items()}
        arrays = {name: read_idx(path, most[name]) for name, path in origins.items()}
    for name, content in release.contents.items():
        _check(arrays[name], content, f"{name} in {origins[name]}", release.name)
    return _split(arrays, release.contents["x_train"].shape[1:], release.classes, release.name)


def _find_idx_release(release: IdxRelease, folder: str | Path | None) -> tuple[Path, ...]:
    """Return the path of one npz file or of four idx files, in the order of `ARRAYS`; none if they are not found."""
    places = releases.search_places(folder, release.subfolders)
    dotted = [name.replace("-idx", ".idx") for name in IDX_NAMES]  # as some archives unpack
    spellings = [[name, other, f"{name}.gz", f"{other}.gz"] for name, other in zip(IDX_NAMES, dotted, strict=True)]
    return releases.first_complete(places, [release.npz_names]) or releases.first_complete(places, spellings)


def _read_npz(path: Path, contents: Mapping[str, Content], owner: str) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of a file once all are found to be of the right shapes."""
    arrays = read_arrays(path)
    if not set(contents) <= set(arrays):
        raise InvalidDataError(f"{path} must hold the arrays {', '.join(contents)}. Got {', '.join(sorted(arrays))}.")
    for name, content in contents.items():
        _check_form(arrays.form(name), content, f"{name} in {path}", owner)
    return {name: arrays[name] for name in contents}


def _check_form(array: npt.NDArray[Any] | Form, content: Content, what: str, owner: str) -> None:
    if array.dtype != np.uint8 or array.shape != content.shape:
        raise InvalidDataError(
            f"{what} must be uint8 of shape {content.shape} to be {owner}. Got {array.dtype} of shape {array.shape}."
        )


def _check(array: npt.NDArray[Any], content: Content, what: str, owner: str) -> None:
    """Raise InvalidDataError unless `array` has the content that data set `owner` has there."""
    _check_form(array, content, what, owner)
    if content.sha256 is None:
        return
    digest = hashlib.sha256(array.ravel().data).hexdigest()
    if digest == content.sha256:
        return
    for release in (MNIST, FASHION_MNIST):
        if digest in {known.sha256 for known in release.contents.values()}:
            raise InvalidDataError(f"{what} is {release.name}'s, not {owner}'s. Keep each in a folder of its own name.")
    raise InvalidDataError(f"{what} is not {owner}'s: its SHA-256 differs. Replace the file.")


def _split(
    arrays: Mapping[str, npt.NDArray[Any]], image_shape: tuple[int, ...], classes: tuple[str, ...], name: str
) -> ImageSplit:
    X_train, X_test = (arrays[key].reshape(len(arrays[key]), -1) for key in ("x_train", "x_test"))
    y_train, y_test = (arrays[key].astype(np.int64) for key in ("y_train", "y_test"))
    return ImageSplit(X_train, y_train, X_test, y_test, image_shape, classes, name)


def _read_mats(
    files: Sequence[tuple[MatRelease, Path]],
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return the images and labels of SVHN's files, one after the other."""
    rows = sum(part.rows for part, _ in files)
    # Filled in place, because the extra images alone take 1.6 GB.
    images = np.empty((rows, *SVHN_SHAPE), dtype=np.uint8)
    labels = np.empty(rows, dtype=np.int64)
    start = 0
    for part, path in files:
        stop = start + part.rows
        pixels, digits = _read_mat(part, path)
        images[start:stop] = pixels.transpose(3, 0, 1, 2)
        labels[start:stop] = digits.ravel() % 10
        start = stop
    return images.reshape(rows, -1), labels


def _read_mat(part: MatRelease, path: Path) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    with open_input(path, MODEL) as file:
        # MATLAB's format is too rich to read from strangers: only the very bytes that were published get that far.
        if hashlib.file_digest(file, "sha256").hexdigest() != part.remote.sha256:
            raise InvalidDataError(
                f"{path} is not the {part.remote.name} that SVHN's authors publish: its SHA-256 differs. Replace it."
            )
        file.seek(0)
        arrays = loadmat(file, variable_names=["X", "y"])
    pixels, digits = arrays["X"], arrays["y"]
    _check(pixels, Content((*SVHN_SHAPE, part.rows)), f"X in {path}", "SVHN")
    _check(digits, Content((part.rows, 1)), f"y in {path}", "SVHN")
    return pixels, digits


def _read_svhn_npz(path: Path) -> ImageSplit:
    arrays = _read_npz(path, SVHN_CONTENTS, "SVHN")
    for name, content in SVHN_CONTENTS.items():
        if name.startswith("y") and arrays[name].dtype == np.uint8:
            arrays[name] = arrays[name] % 10
        _check(arrays[name], content, f"{name} in {path}", "SVHN")
    return _split(arrays, SVHN_SHAPE, DIGIT_NAMES, "SVHN")


def _read_sample(part: str, folder: str | Path | None) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    found = _sample_files(part, releases.search_places(folder, SVHN_SUBFOLDERS))
    if not found:
        file = f"svhn_{part}_first<rows>.npz"
        raise releases.not_found("SVHN's sample", file, folder, SVHN_SUBFOLDERS, "Put it into one.")
    if len(found) > 1:
        names = " and ".join(str(path) for path, _ in found)
        raise InvalidDataError(f"SVHN's sample must be one file. Got {names}; keep one of them.")
    ((path, rows),) = found
    contents = {"x": Content((rows, *SVHN_SHAPE)), "y": Content((rows,))}
    arrays = _read_npz(path, contents, "SVHN's sample")
    if arrays["y"].max() > 10:
        raise InvalidDataError(f"y in {path} must hold the digits 0 to 9, or 10 for 0. Got another label.")
    return arrays["x"].reshape(rows, -1), arrays["y"].astype(np.int64) % 10


def _sample_files(part: str, places: Iterable[Path]) -> list[tuple[Path, int]]:
    """Return the sample files of `part` in the first of `places` that has any, and the rows each name states."""
    for place in places:
        matches = ((path, _SAMPLE_NAME.fullmatch(path.name)) for path in sorted(place.glob(f"svhn_{part}_first*.npz")))
        if found := [(path, int(match[2])) for path, match in matches if match]:
            return found
    return []
