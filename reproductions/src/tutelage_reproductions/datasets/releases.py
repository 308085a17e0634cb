"""Where data sets come from: what their publishers released, the folders that are searched, and checked downloads."""

import gzip
import hashlib
import http.client
import os
import tempfile
import urllib.request
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, final

from tutelage._internal.gate import MODEL, open_input
from tutelage.exceptions import InvalidDataError

VARIABLE = "TUTELAGE_DATA"
SYSTEM_FOLDER = Path("/usr/share/datasets")  # where Debian's dataset-* packages put their files
_TIMEOUT_SECONDS = 60
_BLOCK = 2**20
_GZIP = b"\x1f\x8b"


@final
@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file on the web, and what tells whether one got it."""

    url: str
    size: int
    sha256: str

    @property
    def name(self) -> str:
        """The file's name without its address."""
        return self.url.rpartition("/")[2]


def cache_folder() -> Path:
    """Return the folder for what was downloaded: ``tutelage`` in ``$XDG_CACHE_HOME``, or else in ``~/.cache``."""
    home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG specification asks to ignore a relative path.
    return (home if home.is_absolute() else Path.home() / ".cache") / "tutelage"


def search_folders(folder: str | Path | None) -> tuple[Path, ...]:
    """Return the folders to search: `folder` alone, or without one ``$TUTELAGE_DATA``, the cache and Debian's."""
    if folder is not None:
        return (Path(folder),)
    named = os.environ.get(VARIABLE)
    return (*((Path(named),) if named else ()), cache_folder(), SYSTEM_FOLDER)


def search_places(folder: str | Path | None, subfolders: Sequence[str]) -> list[Path]:
    """Return where to look: first folders with the data set's name, for others may have other files of these names."""
    folders = search_folders(folder)
    return [*(place / subfolder for place in folders for subfolder in subfolders), *folders]


def download_folder(folder: str | Path | None, subfolders: Sequence[str]) -> Path:
    """Return the folder into which a data set is downloaded."""
    return (cache_folder() if folder is None else Path(folder)) / subfolders[0]


@contextmanager
def unpacked(path: Path) -> Iterator[BinaryIO | gzip.GzipFile]:
    """Open a file that may be compressed with gzip; raise InvalidDataError where it is missing or damaged."""
    try:
        with open_input(path, MODEL) as file:
            compressed = file.read(len(_GZIP)) == _GZIP
            file.seek(0)
            if not compressed:
                yield file
                return
            with gzip.GzipFile(fileobj=file) as content:
                yield content
    except (OSError, EOFError, zlib.error):
        raise InvalidDataError(f"{path} is missing or damaged. Fetch it again.") from None


def first_complete(places: Iterable[Path], files: Sequence[Sequence[str]]) -> tuple[Path, ...]:
    """Return the paths of `files` in the first of `places` that has all of them; none if no place has."""
    for place in places:
        spellings = ([place / name for name in names if (place / name).is_file()] for names in files)
        found = tuple(paths[0] for paths in spellings if paths)
        if len(found) == len(files):
            return found
    return ()


def not_found(
    name: str, files: str, folder: str | Path | None, subfolders: Iterable[str], fix: str
) -> InvalidDataError:
    """Return the error that says which files of the data set `name` were looked for, and where."""
    searched = ", ".join(str(place) for place in search_folders(folder))
    return InvalidDataError(
        f"{name} was not found: no folder of {searched}, nor {' or '.join(subfolders)} in one of them, holds {files}. "
        f"{fix}"
    )


@contextmanager
def arriving(url: str, path: Path) -> Iterator[Path]:
    """Yield a path to download `url` to; it becomes `path` once the block ends without an error."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".download-") as workspace:
            partial = Path(workspace) / path.name
            yield partial
            partial.replace(path)
    except (OSError, http.client.HTTPException, zipfile.BadZipFile, zlib.error) as error:
        raise InvalidDataError(
            f"{url} could not be downloaded into {path.parent} ({error}). Put {path.name} there manually."
        ) from None


def fetch(remote: RemoteFile, folder: Path) -> Path:
    """Return the path of `remote` in `folder`, downloaded unless it lies there already.

    A file appears under its name only when it is whole and its checksum is right.
    """
    path = folder / remote.name
    if path.is_file():
        return path
    with arriving(remote.url, path) as partial:
        if _download(remote, partial) != remote.sha256:
            raise InvalidDataError(
                f"{remote.url} is not the file that was published: its SHA-256 differs. It was thrown away; put the "
                f"right {remote.name} into {folder}."
            )
    return path


def _download(remote: RemoteFile, partial: Path) -> str:
    digest = hashlib.sha256()
    left = remote.size
    # Only the addresses in this package come here, and the checksum decides over what they send.
    with urllib.request.urlopen(remote.url, timeout=_TIMEOUT_SECONDS) as reply, partial.open("wb") as file:  # noqa: S310
        while block := reply.read(min(_BLOCK, left)):
            file.write(block)
            digest.update(block)
            left -= len(block)
    return digest.hexdigest()


DIGIT_NAMES = tuple("0123456789")
IDX_NAMES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
SVHN_SHAPE = (32, 32, 3)


@final
@dataclass(frozen=True, slots=True)
class Content:
    """Requirements on an array: unsigned bytes of this shape and, if known, of this SHA-256 in C order."""

    shape: tuple[int, ...]
    sha256: str | None = None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class IdxRelease:
    """MNIST, or a data set that was published in its form."""

    name: str
    classes: tuple[str, ...]
    subfolders: tuple[str, ...]
    npz_names: tuple[str, ...]
    remote: tuple[RemoteFile, ...]
    contents: Mapping[str, Content]


@final
@dataclass(frozen=True, slots=True)
class MatRelease:
    """A part of SVHN: MATLAB's file, and how many images it holds."""

    remote: RemoteFile
    rows: int


def _idx_files(url: str, files: Iterable[tuple[int, str]]) -> tuple[RemoteFile, ...]:
    """Return the four files of such a release from their sizes and checksums."""
    return tuple(RemoteFile(f"{url}/{name}.gz", *file) for name, file in zip(IDX_NAMES, files, strict=True))


# The checksums of compressed files are those that TensorFlow Datasets publishes (url_checksums/mnist.txt,
# fashion_mnist.txt, svhn_cropped.txt); Keras lists the same ones for Fashion-MNIST. Those of contents were computed
# from files whose uncompressed form has the MD5 sums published for it (for example 6bbc9ace898e44ae57da46a324031adb for
# MNIST's training images and f4a8712d7a061bf5bd6d2ca38dc4d50a for Fashion-MNIST's).
_MNIST_URL = "https://ossci-datasets.s3.amazonaws.com/mnist"  # PyTorch's mirror; the first home closed
MNIST = IdxRelease(
    name="MNIST",
    classes=DIGIT_NAMES,
    subfolders=("mnist", "MNIST/raw"),
    npz_names=("mnist.npz",),
    remote=_idx_files(
        _MNIST_URL,
        (
            (9_912_422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
            (28_881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
            (1_648_877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
            (4_542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
        ),
    ),
    contents={
        "x_train": Content((60_000, 28, 28), "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757"),
        "y_train": Content((60_000,), "1feba77c54802fa5339a11837ea4b2866434b83314ec45192930f1df69120c13"),
        "x_test": Content((10_000, 28, 28), "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161"),
        "y_test": Content((10_000,), "ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5"),
    },
)
_FASHION_URL = "https://storage.googleapis.com/tensorflow/tf-keras-datasets"  # Zalando's own has no https
FASHION_MNIST = IdxRelease(
    name="Fashion-MNIST",
    classes=(
        "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
    ),
    subfolders=("fashion-mnist", "FashionMNIST/raw"),
    npz_names=("fashion-mnist.npz", "fashion_mnist.npz"),
    remote=_idx_files(
        _FASHION_URL,
        (
            (26_421_880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
            (29_515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
            (4_422_102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
            (5_148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
        ),
    ),
    contents={
        "x_train": Content((60_000, 28, 28), "2e487a6c89124f78f2d7521542223cafe96f7123c3ca13d447772ac6ecbb3012"),
        "y_train": Content((60_000,), "657fbd221bfc9f4198cc14b5619cc33ec57c58dd0e47af4d99d6650759e869a7"),
        "x_test": Content((10_000, 28, 28), "c867c93ff95360594e8ec3287995350b824dd110b11595c0e13d5423f621867a"),
        "y_test": Content((10_000,), "3d0e6c6ea990b53b6f8f500a41cac93881d981b315f84578b7d915342ade01e9"),
    },
)  # fmt: skip
_SVHN_URL = "http://ufldl.stanford.edu/housenumbers"  # the only address that its authors give
SVHN: Mapping[str, MatRelease] = {
    part: MatRelease(RemoteFile(f"{_SVHN_URL}/{part}_32x32.mat", size, sha256), rows)
    for part, rows, size, sha256 in (
        ("train", 73_257, 182_040_794, "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8"),
        ("test", 26_032, 64_275_384, "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b"),
        ("extra", 531_131, 1_329_278_602, "a133a4beb38a00fcdda90c9489e0c04f900b660ce8a316a5e854838379a71eb3"),
    )
}
# No checksums of SVHN's arrays are published; those of its labels, the digit 0 as 0, were computed from a copy with as
# many rows as the authors count, whose test labels are what 88 % of the majorities that PATE 2018 published say.
SVHN_CONTENTS: Mapping[str, Content] = {
    "x_train": Content((73_257, *SVHN_SHAPE)),
    "y_train": Content((73_257,), "6a6e359bb9ecc6ce40896703f7b224715776155fe39710e0ddb8008a18172c6f"),
    "x_test": Content((26_032, *SVHN_SHAPE)),
    "y_test": Content((26_032,), "c2488ef300c629f4bd90a3d2a7b4141589e5b5a4f9046845dfc1a9021319e31a"),
}
