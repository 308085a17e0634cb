import dataclasses
import functools
import gzip
import hashlib
import http.server
import io
import struct
import threading

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
from tutelage_reproductions.datasets.images import MOST_BYTES, read_idx
from tutelage_reproductions.datasets.releases import RemoteFile

GZ_NAMES = [f"{name}.gz" for name in images.IDX_NAMES]
LOADERS = {"MNIST": load_mnist, "Fashion-MNIST": load_fashion_mnist}
SEEDS = {"MNIST": 1, "Fashion-MNIST": 2}


def as_idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


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


def published_md5(array: np.ndarray) -> str:
    return hashlib.md5(as_idx(array), usedforsecurity=False).hexdigest()


def save_idx(folder, arrays, names=images.IDX_NAMES):
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in zip(names, arrays.values(), strict=True):
        content = as_idx(array)
        (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return folder


def same_rows(split, arrays) -> bool:
    return all(
        np.array_equal(getattr(split, name.replace("x", "X")), array.reshape(len(array), *[-1] * (array.ndim > 1)))
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

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder)) as server:
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
    arrays = {}
    for constant, name in (("MNIST", "MNIST"), ("FASHION_MNIST", "Fashion-MNIST")):
        arrays[name] = tiny_arrays(SEEDS[name])
        published = save_idx(folder / name, arrays[name], GZ_NAMES)
        files = {file: (published / file).read_bytes() for file in GZ_NAMES}
        release = dataclasses.replace(
            getattr(images, constant),
            remote=tuple(
                RemoteFile(f"{address}/{name}/{file}", len(content), sha256(content)) for file, content in files.items()
            ),
            contents={key: images.Content(array.shape, sha256(array.tobytes())) for key, array in arrays[name].items()},
        )
        monkeypatch.setattr(images, constant, release)
    return arrays


@pytest.fixture
def tiny_svhn(monkeypatch, web, nothing_found):
    """A tiny edition of SVHN, published on this machine: 12 training, 11 test and 20 extra images."""
    folder, address = web
    parts = {}
    for seed, (part, rows) in enumerate({"train": 12, "test": 11, "extra": 20}.items()):
        content = tiny_mat(rows, seed)
        (folder / f"{part}_32x32.mat").write_bytes(content)
        remote = RemoteFile(f"{address}/{part}_32x32.mat", len(content), sha256(content))
        parts[part] = images.MatRelease(remote, rows)
    monkeypatch.setattr(images, "SVHN", parts)
    return folder


# idx


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize("shape", [(7,), (3, 5, 4), (2, 3, 4, 3), (0, 5, 4)], ids=str)
def test_an_idx_file_gives_back_its_array(shape, pack, tmp_path):
    array = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    path = tmp_path / "any name"
    path.write_bytes(pack(as_idx(array)))
    read = read_idx(path)
    assert read.dtype == np.uint8
    assert np.array_equal(read, array)
    assert read.shape == shape


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "Got an empty file"),
        (b"\0\0\x08", "Got 000008"),
        (b"PK\x03\x04 no idx at all", "must be an idx file of unsigned bytes.* Got 504b0304"),
        (b"\0\0\x0d\x01" + struct.pack(">I", 1) + bytes(4), "must be an idx file of unsigned bytes"),
        (b"\0\0\x08\0", "must be an idx file of unsigned bytes"),
        (b"\0\0\x08\x05" + struct.pack(">5I", 1, 1, 1, 1, 1) + b"x", "must be an idx file of unsigned bytes"),
        (b"\0\0\x08\x03" + struct.pack(">2I", 2, 2), "cut short within its dimensions"),
        (b"\0\0\x08\x02" + struct.pack(">2I", 2, 3) + bytes(5), r"is cut short: its dimensions \(2, 3\) take 6 bytes"),
        (b"\0\0\x08\x02" + struct.pack(">2I", 2, 3) + bytes(7), "goes on after its last row"),
        (b"\0\0\x08\x02" + struct.pack(">2I", 2**16, 2**15), f"would unpack to more than {MOST_BYTES} bytes"),
        (b"\0\0\x08\x04" + struct.pack(">4I", *[2**32 - 1] * 4), f"would unpack to more than {MOST_BYTES} bytes"),
    ],
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_what_is_no_whole_idx_file_is_refused(content, message, pack, tmp_path):
    path = tmp_path / "images"
    path.write_bytes(pack(content))
    with pytest.raises(InvalidDataError, match=message):
        read_idx(path)


# MNIST and Fashion-MNIST


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize("spelling", ["{}", "{}.gz", "dotted", "dotted.gz"])
def test_every_spelling_of_the_four_files_is_read(name, spelling, tiny, tmp_path):
    stems = [stem.replace("-idx", ".idx") for stem in images.IDX_NAMES] if "dotted" in spelling else images.IDX_NAMES
    names = [f"{stem}.gz" if spelling.endswith("gz") else stem for stem in stems]
    split = LOADERS[name](save_idx(tmp_path / "mine", tiny[name], names))
    assert same_rows(split, tiny[name])
    assert split.name == name
    assert split.X_train.dtype == np.uint8
    assert split.y_train.dtype == split.y_test.dtype == np.int64
    assert split.image_shape == (5, 4)
    assert len(split.classes) == 10
    assert np.array_equal(split.images(split.X_test), tiny[name]["x_test"])
    assert np.array_equal(split.images(split.X_test[2:3])[0], tiny[name]["x_test"][2])


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("MNIST", "."), ("MNIST", "mnist"), ("MNIST", "MNIST/raw"),
        ("Fashion-MNIST", "."), ("Fashion-MNIST", "fashion-mnist"), ("Fashion-MNIST", "FashionMNIST/raw"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("given", ["folder", "variable", "cache", "system"])
def test_files_are_found_where_others_put_them(name, place, given, tiny, nothing_found, tmp_path, monkeypatch):
    root = {"cache": nothing_found, "system": tmp_path / "system"}.get(given, tmp_path / "mine")
    save_idx(root / place, tiny[name])
    if given == "variable":
        monkeypatch.setenv("TUTELAGE_DATA", str(root))
    assert same_rows(LOADERS[name](root if given == "folder" else None), tiny[name])


def test_one_is_never_taken_for_the_other(tiny, tmp_path):
    save_idx(tmp_path, tiny["Fashion-MNIST"])
    with pytest.raises(InvalidDataError, match=r"train-images-idx3-ubyte is Fashion-MNIST's, not MNIST's\. Keep each"):
        load_mnist(tmp_path)
    np.savez(tmp_path / "mnist.npz", **tiny["Fashion-MNIST"])
    with pytest.raises(InvalidDataError, match=r"x_train in .*mnist\.npz is Fashion-MNIST's, not MNIST's"):
        load_mnist(tmp_path)
    assert same_rows(load_fashion_mnist(tmp_path), tiny["Fashion-MNIST"])


@pytest.mark.parametrize("array", images.ARRAYS)
def test_one_changed_byte_is_noticed(array, tiny, tmp_path):
    tiny["MNIST"][array].flat[0] ^= 1
    with pytest.raises(InvalidDataError, match=rf"{array} in .* is not MNIST's: its SHA-256 differs"):
        load_mnist(save_idx(tmp_path / "mine", tiny["MNIST"]))


# Search and download


@pytest.mark.parametrize("name", LOADERS)
def test_a_download_goes_to_the_cache_and_happens_once(name, tiny, nothing_found, monkeypatch):
    assert same_rows(LOADERS[name](download=True), tiny[name])
    subfolder = {"MNIST": "mnist", "Fashion-MNIST": "fashion-mnist"}[name]
    assert sorted(path.name for path in (nothing_found / subfolder).iterdir()) == sorted(GZ_NAMES)
    monkeypatch.setattr("urllib.request.urlopen", pytest.fail)
    assert same_rows(LOADERS[name](download=True), tiny[name])
    assert same_rows(LOADERS[name](), tiny[name])


@pytest.mark.parametrize(
    "damage",
    [lambda content: content[:-1], lambda content: bytes(len(content)), lambda content: b"x" + content],
    ids=["cut short", "replaced", "longer"],
)
def test_a_download_with_another_checksum_is_thrown_away(damage, tiny, nothing_found, web):
    folder, _ = web
    file = folder / "MNIST" / GZ_NAMES[0]
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(InvalidDataError, match="is not the file that was published: its SHA-256 differs"):
        load_mnist(download=True)
    assert list((nothing_found / "mnist").iterdir()) == []


def test_no_more_is_fetched_than_was_published(tiny, web, tmp_path):
    folder, address = web
    (folder / "endless").write_bytes(b"right" + bytes(10_000_000))
    path = releases.fetch(RemoteFile(f"{address}/endless", 5, sha256(b"right")), tmp_path / "mine")
    assert path.read_bytes() == b"right"


# SVHN


@pytest.mark.parametrize("place", [".", "svhn"])
def test_svhn_is_read_row_by_row_with_zero_as_zero(place, tiny_svhn, tmp_path):
    root = tmp_path / "mine"
    (root / place).mkdir(parents=True)
    for part in ("train", "test"):
        (root / place / f"{part}_32x32.mat").write_bytes((tiny_svhn / f"{part}_32x32.mat").read_bytes())
    split = load_svhn(root)
    X = np.random.default_rng(0).integers(0, 256, (32, 32, 3, 12), dtype=np.uint8)
    assert split.X_train.shape == (12, 3072)
    assert split.X_train.dtype == np.uint8
    assert np.array_equal(split.images(split.X_train)[7], X[:, :, :, 7])
    assert split.y_train.tolist() == [0, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 9]
    assert len(split.X_test) == len(split.y_test) == 11
    assert split.y_train.dtype == np.int64
    assert split.image_shape == (32, 32, 3)
    assert split.name == "SVHN"


def test_a_mat_file_is_not_opened_unless_it_is_the_published_one(tiny_svhn, monkeypatch):
    monkeypatch.setattr(images, "loadmat", pytest.fail)
    (tiny_svhn / "train_32x32.mat").write_bytes(tiny_mat(12, seed=9))
    with pytest.raises(InvalidDataError, match=r"is not the train_32x32\.mat that SVHN's authors publish"):
        load_svhn(tiny_svhn)


# The real data


def test_mnist_is_mnist(data_folder):
    if not (data_folder / "mnist.npz").is_file():
        pytest.skip("mnist.npz is not in TUTELAGE_DATA")
    split = load_mnist(data_folder)
    assert split.X_train.shape == (60_000, 784)
    assert split.X_test.shape == (10_000, 784)
    assert split.image_shape == (28, 28)
    assert np.bincount(split.y_train).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(split.y_test).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert published_md5(split.images(split.X_train)) == "6bbc9ace898e44ae57da46a324031adb"
    assert published_md5(split.images(split.X_test)) == "2646ac647ad5339dbf082846283269ea"


def test_the_labels_of_svhn_are_svhns(data_folder):
    path = data_folder / "svhn_labels.npz"
    if not path.is_file():
        pytest.skip("svhn_labels.npz is not in TUTELAGE_DATA")
    with np.load(path) as labels:
        for name in ("y_train", "y_test"):
            assert sha256(labels[name].tobytes()) == images.SVHN_CONTENTS[name].sha256
