"""Folders of image files as arrays; errors name the folder and no file in it."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tutelage._internal.gate import MODEL, open_input, require_memory, user_path
from tutelage.exceptions import InvalidDataError

_CHANNELS = 3  # at most
_ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
_EIGHT_BITS = ("1", "CMYK", "HSV", "L", "LA", "LAB", "P", "PA", "RGB", "RGBA", "RGBX", "YCbCr")


class ImageFiles(NamedTuple):
    """The images of a folder.

    Parameters
    ----------
    images : uint8 array of shape (rows, height, width), or (rows, height, width, 3) in color
        One row per file.
    names : tuple of str
        Paths of the files within the folder, in the order of the rows.
    labels : array of str or None
        The subfolder of each file, where every class has one.
    """

    images: npt.NDArray[np.uint8]
    names: tuple[str, ...]
    labels: npt.NDArray[Any] | None

    def __repr__(self) -> str:
        return f"ImageFiles(<images of shape {self.images.shape}>)"


def read_images(folder: str | Path, *, color: bool = False) -> ImageFiles:
    """Read all image files of a folder, sorted by name; needs the extra ``images``.

    The files are in the folder itself, or in one subfolder per class, whose name is then the label. Files of other
    types are ignored, and so are those whose name begins with a dot.

    Parameters
    ----------
    folder : path-like
        Where the files are.
    color : bool
        Whether to keep three channels. This is not read off the files, so that no single image decides it.

    Raises
    ------
    InvalidDataError
        If there is no image, one cannot be read or does not have 8 bits per channel, or their sizes differ. No message
        names a file.
    """
    try:
        from PIL import Image
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "Image files need their extra: pip install 'tutelage[images]'.", name=error.name
        ) from None
    root = user_path(folder)
    paths = _files(root)
    images = [_pixels(Image, path, "RGB" if color else "L", len(paths)) for path in paths]
    problem = next((each for each in images if isinstance(each, str)), None)
    if problem is not None:
        raise InvalidDataError(f"An image in {root} {problem}.")
    if len({image.shape for image in images}) > 1:
        raise InvalidDataError(f"The images in {root} must have one size. Got several; resize them first.")
    names = tuple(path.relative_to(root).as_posix() for path in paths)
    labels = None if paths[0].parent == root else np.array([path.parent.name for path in paths])
    return ImageFiles(np.stack(images), names, labels)


def _files(root: Path) -> list[Path]:
    """Return the image files of a folder, or of its subfolders."""
    if not root.is_dir():
        raise InvalidDataError(f"{root} is no folder." if root.exists() else f"{root} cannot be read: No such folder.")
    here, below = (sorted(path for path in root.glob(form) if _is_image(path)) for form in ("*", "*/*"))
    if bool(here) == bool(below):
        problem = "has images beside its subfolders and in them" if here else "has no images"
        raise InvalidDataError(f"{root} {problem}. Put all images into it, or into one subfolder per class.")
    return here or below


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in _ENDINGS and not path.name.startswith(".") and path.is_file()


def _pixels(library: Any, path: Path, mode: str, n_files: int) -> Any:
    """Return the pixels of a file, or what is wrong with it."""
    try:
        with open_input(path, MODEL) as file, library.open(file) as image:
            require_memory(_CHANNELS * n_files * image.width * image.height, path)
            if image.mode not in _EIGHT_BITS:
                return "must have 8 bits per channel. Convert such images first"
            return np.asarray(image.convert(mode))
    except Exception as error:  # of whatever kind the file makes Pillow raise; its message names the file
        return f"cannot be read ({type(error).__name__})"
