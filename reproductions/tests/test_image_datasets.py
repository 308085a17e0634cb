"""Images from files and from the web: the published ones, or refused."""

import gzip
import hashlib
import http.server
import io
import struct
import threading
from functools import partial

import numpy as np
import pytest
from scipy.io import savemat

from tutelage.exceptions import InvalidDataError
from tutelage_reproductions.datasets import (
    images,
    load_fashion_mnist,
    load_mnist,
    load_svhn,
    releases,
)
from tutelage_reproductions.datasets.releases import RemoteFile

LOADERS = {"MNIST": load_mnist, "Fashion-MNIST": load_fashion_mnist}
SEEDS = {"MNIST": 1, "Fashion-MNIST": 2}
GZ_NAMES = [f"{name}.gz" for name in images.IDX_NAMES]


def as_idx(array: np.ndarray) -> bytes:
    return (
        bytes([0, 0, 8, array.ndim])
        + struct.pack(f">{array.ndim}I", *array.shape)
        + array.tobytes()
    )


def tiny_arrays(seed: int) -> dict[str, np.ndarray]:
    """Return six training and four test images of 5 x 4 values."""
    rng = np.random.default_rng(seed)
    shapes = {"x_train": (6, 5, 4), "y_train": (6,), "x_test": (4, 5, 4), "y_test": (4,)}
    return {name: rng.integers(0, 10, shape, dtype=np.uint8) for name, shape in shapes.items()}


def tiny_mat(rows: int, seed: int) -> bytes:
    rng = np.random.default_rng(seed)
    file = io.BytesIO()
    X = rng.integers(0, 256, (32, 32, 3, rows), dtype=np.uint8)
    y = np.resize(np.arange(10, 0, -1, dtype=np.uint8), (rows, 1))
    savemat(file, {"X": X, "y": y}, do_compression=True)
    return file.getvalue()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def save(folder, arrays):
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in zip(GZ_NAMES, arrays.values(), strict=True):
        (folder / name).write_bytes(gzip.compress(as_idx(array)))
    return folder


def same_rows(split, arrays) -> bool:
    return all(
        np.array_equal(
            getattr(split, name.replace("x", "X")),
            array.reshape(len(array), *[-1] * (array.ndim > 1)),
        )
        for name, array in arrays.items()
    )


@pytest.fixture
def web(tmp_path):
    """A folder, and the address under which a server on this machine publishes it."""
    folder = tmp_path / "web"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format, *args):  # noqa: A002
            pass

    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Quiet, directory=folder)
    ) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def nothing_found(monkeypatch, tmp_path):
    """No data and no proxy on this machine; the cache is empty."""
    monkeypatch.delenv("TUTELAGE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(releases, "SYSTEM_FOLDER", tmp_path / "system")
    return tmp_path / "xdg" / "tutelage"


@pytest.fixture
def tiny(monkeypatch, web, nothing_found):
    """Tiny editions of MNIST and Fashion-MNIST in the place of the real ones, published on this machine."""
    folder, address = web
    arrays = {name: tiny_arrays(seed) for name, seed in SEEDS.items()}
    for constant, name in (("MNIST", "MNIST"), ("FASHION_MNIST", "Fashion-MNIST")):
        published = save(folder / name, arrays[name])
        files = tuple(
            RemoteFile(f"{address}/{name}/{file}", sha256((published / file).read_bytes()))
            for file in GZ_NAMES
        )
        contents = {
            key: (array.shape, sha256(array.tobytes())) for key, array in arrays[name].items()
        }
        monkeypatch.setattr(
            images, constant, getattr(images, constant)._replace(files=files, contents=contents)
        )
    return arrays


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize("place", [".", "subfolder"])
@pytest.mark.parametrize("given", ["folder", "variable", "cache", "system"])
@pytest.mark.parametrize("container", ["idx", "npz"])
def test_files_are_found_where_others_put_them(
    name, place, given, container, tiny, nothing_found, tmp_path, monkeypatch
):
    root = {"cache": nothing_found, "system": tmp_path / "system"}.get(given, tmp_path / "mine")
    folder = root / (name.lower() if place == "subfolder" else place)
    save(folder, tiny[name])
    if container == "npz":
        np.savez(folder / f"{name.lower()}.npz", **tiny[name])
        (folder / GZ_NAMES[0]).unlink()
    if given == "variable":
        monkeypatch.setenv("TUTELAGE_DATA", str(root))
    split = LOADERS[name](root if given == "folder" else None)
    assert same_rows(split, tiny[name])
    assert (split.name, split.image_shape, len(split.classes)) == (name, (5, 4), 10)
    assert split.X_train.dtype == np.uint8
    assert split.y_train.dtype == split.y_test.dtype == np.int64
    assert np.array_equal(split.images(split.X_test), tiny[name]["x_test"])


def test_one_is_never_taken_for_the_other(tiny, tmp_path):
    save(tmp_path, tiny["Fashion-MNIST"])
    with pytest.raises(InvalidDataError, match=r"train-images-idx3-ubyte\.gz is not MNIST's"):
        load_mnist(tmp_path)
    np.savez(tmp_path / "mnist.npz", **tiny["Fashion-MNIST"])
    with pytest.raises(InvalidDataError, match=r"x_train in .*mnist\.npz is not MNIST's"):
        load_mnist(tmp_path)
    assert same_rows(load_fashion_mnist(tmp_path), tiny["Fashion-MNIST"])


@pytest.mark.parametrize("array", images.ARRAYS)
def test_one_changed_byte_is_noticed(array, tiny, tmp_path):
    tiny["MNIST"][array].flat[0] ^= 1
    with pytest.raises(
        InvalidDataError, match=rf"{array} in .* is not MNIST's: its SHA-256 differs"
    ):
        load_mnist(save(tmp_path / "mine", tiny["MNIST"]))


@pytest.mark.parametrize(
    "content",
    [b"", b"\x1f\x8b", gzip.compress(b"", mtime=0), gzip.compress(bytes(3), mtime=0), b"no gzip"],
)
def test_a_damaged_file_is_refused(content, tiny, tmp_path):
    (save(tmp_path / "mine", tiny["MNIST"]) / GZ_NAMES[0]).write_bytes(content)
    with pytest.raises(InvalidDataError, match="cannot be read, or is damaged"):
        load_mnist(tmp_path / "mine")


@pytest.mark.parametrize("name", LOADERS)
def test_a_download_goes_to_the_cache_and_happens_once(name, tiny, nothing_found, monkeypatch):
    with pytest.raises(InvalidDataError, match="pass `download=True`"):
        LOADERS[name]()
    assert same_rows(LOADERS[name](download=True), tiny[name])
    assert sorted(path.name for path in (nothing_found / name.lower()).iterdir()) == sorted(
        GZ_NAMES
    )
    monkeypatch.setattr(releases.pooch, "retrieve", pytest.fail)
    assert same_rows(LOADERS[name](download=True), tiny[name])
    assert same_rows(LOADERS[name](), tiny[name])


@pytest.mark.parametrize("damaged", [b"x", None], ids=["other content", "no file"])
def test_a_download_of_something_else_is_thrown_away(damaged, tiny, nothing_found, web):
    file = web[0] / "MNIST" / GZ_NAMES[0]
    file.write_bytes(damaged) if damaged else file.unlink()
    with pytest.raises(
        InvalidDataError, match=r"The download into .*mnist failed: .* Put the files there manually"
    ):
        load_mnist(download=True)
    assert not list((nothing_found / "mnist").iterdir())


@pytest.fixture
def tiny_svhn(monkeypatch, nothing_found, tmp_path):
    """A tiny edition of SVHN: 12 training, 11 test and 20 extra images."""
    parts = {}
    for seed, (part, rows) in enumerate({"train": 12, "test": 11, "extra": 20}.items()):
        content = tiny_mat(rows, seed)
        (tmp_path / f"{part}_32x32.mat").write_bytes(content)
        parts[part] = RemoteFile(f"http://127.0.0.1/{part}_32x32.mat", sha256(content))
    monkeypatch.setattr(images, "SVHN", parts)
    return tmp_path


def test_svhn_is_read_row_by_row_with_zero_as_zero(tiny_svhn):
    split = load_svhn(tiny_svhn)
    X = np.random.default_rng(0).integers(0, 256, (32, 32, 3, 12), dtype=np.uint8)
    assert split.X_train.shape == (12, 3072)
    assert split.X_train.dtype == np.uint8
    assert np.array_equal(split.images(split.X_train)[7], X[:, :, :, 7])
    assert split.y_train.tolist() == [0, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 9]
    assert len(split.X_test) == len(split.y_test) == 11
    assert (split.y_train.dtype, split.image_shape, split.name) == (np.int64, (32, 32, 3), "SVHN")
    assert len(load_svhn(tiny_svhn, extra=True).X_train) == 32


def test_a_mat_file_is_not_opened_unless_it_is_the_published_one(tiny_svhn, monkeypatch):
    monkeypatch.setattr(images, "loadmat", pytest.fail)
    (tiny_svhn / "train_32x32.mat").write_bytes(tiny_mat(12, seed=9))
    with pytest.raises(
        InvalidDataError, match=r"train_32x32\.mat is not SVHN's: its SHA-256 differs"
    ):
        load_svhn(tiny_svhn)


def test_mnist_is_mnist(data_folder):
    if not (data_folder / "mnist.npz").is_file():
        pytest.skip("mnist.npz is not in TUTELAGE_DATA")
    split = load_mnist(data_folder)
    assert (split.X_train.shape, split.X_test.shape, split.image_shape) == (
        (60_000, 784),
        (10_000, 784),
        (28, 28),
    )
    assert np.bincount(split.y_train).tolist() == [
        5923,
        6742,
        5958,
        6131,
        5842,
        5421,
        5918,
        6265,
        5851,
        5949,
    ]
    assert np.bincount(split.y_test).tolist() == [
        980,
        1135,
        1032,
        1010,
        982,
        892,
        958,
        1028,
        974,
        1009,
    ]
    for X, published in (
        (split.X_train, "6bbc9ace898e44ae57da46a324031adb"),
        (split.X_test, "2646ac647ad5339dbf082846283269ea"),
    ):
        assert hashlib.md5(as_idx(split.images(X)), usedforsecurity=False).hexdigest() == published


def test_the_labels_of_svhn_are_svhns(data_folder):
    path = data_folder / "svhn_labels.npz"
    if not path.is_file():
        pytest.skip("svhn_labels.npz is not in TUTELAGE_DATA")
    with np.load(path) as labels:
        assert sha256(labels["y_test"].tobytes()) == images.SVHN_TEST_LABELS
