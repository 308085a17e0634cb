import numpy as np
import pytest

from tutelage import PATEClassifier
from tutelage.datasets import read_images
from tutelage.exceptions import InvalidDataError

Image = pytest.importorskip("PIL.Image")
RNG = np.random.default_rng(0)


def written(path, shape=(6, 5), mode=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = RNG.integers(0, 256, shape).astype(np.uint8)
    image = Image.fromarray(pixels)
    (image if mode is None else image.convert(mode)).save(path)
    return pixels


def test_images_come_sorted_by_name(tmp_path):
    pixels = {name: written(tmp_path / name) for name in ("b.png", "a.PNG", "c.bmp")}
    (tmp_path / "notes.txt").write_text("no image")
    (tmp_path / ".hidden.png").write_text("no image")
    found = read_images(tmp_path)
    assert found.names == ("a.PNG", "b.png", "c.bmp")
    assert found.labels is None
    assert np.array_equal(found.images, [pixels[name] for name in found.names])
    assert found.images.dtype == np.uint8
    assert "a.PNG" not in repr(found)


def test_a_folder_per_class_gives_labels(tmp_path):
    for name in ("dog/1.png", "cat/2.png", "dog/3.png"):
        written(tmp_path / name)
    found = read_images(str(tmp_path))
    assert found.names == ("cat/2.png", "dog/1.png", "dog/3.png")
    assert found.labels is not None
    assert found.labels.tolist() == ["cat", "dog", "dog"]


def test_color_is_asked_for_and_not_read_off_the_files(tmp_path):
    colored, gray = written(tmp_path / "a.png", (6, 5, 3)), written(tmp_path / "b.png")
    found = read_images(tmp_path, color=True)
    assert np.array_equal(found.images, [colored, np.stack([gray] * 3, axis=2)])
    assert read_images(tmp_path).images.shape == (2, 6, 5)
    assert np.array_equal(read_images(tmp_path).images[1], gray)


def test_broken_folders_are_refused_without_naming_a_file(tmp_path):
    private = "Miller.png"
    for case in ("empty", "two sizes", "broken", "deep"):
        (tmp_path / case).mkdir()
    written(tmp_path / "two sizes" / private)
    written(tmp_path / "two sizes" / "b.png", (7, 5))
    (tmp_path / "broken" / private).write_bytes(b"no image")
    Image.fromarray(RNG.integers(0, 60_000, (6, 5)).astype(np.uint16)).save(tmp_path / "deep" / private)
    written(tmp_path / "both" / private)
    written(tmp_path / "both" / "Miller" / "b.png")
    for case, message in {
        "missing": "cannot be read: No such folder",
        "empty": "has no images",
        "two sizes": "must have one size",
        "broken": r"cannot be read \(UnidentifiedImageError\)",
        "deep": "must have 8 bits per channel",
        "both": "has images beside its subfolders and in them",
    }.items():
        with pytest.raises(InvalidDataError, match=message) as caught:
            read_images(tmp_path / case)
        assert "Miller" not in str(caught.value)
        assert caught.value.__context__ is None


def test_a_file_is_no_folder_and_the_images_are_passed_by_their_name(tmp_path):
    written(tmp_path / "a.png")
    with pytest.raises(InvalidDataError, match=r"a\.png is no folder"):
        read_images(tmp_path / "a.png")
    files = read_images(tmp_path)
    for X, public in ((files, files.images), (files.images, files)):
        with pytest.raises(InvalidDataError, match=r"Got a ImageFiles; pass its `\.images`"):
            PATEClassifier(epsilon=1.0).fit(X, [0], X_public=public)
