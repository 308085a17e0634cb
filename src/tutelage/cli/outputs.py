"""Where verbs write: whole, and never over what they read or did not write."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

from tutelage._internal.results import blamed_on, is_read
from tutelage.exceptions import ConfigError


def check_output(output: Path, *inputs: Path, option: str = "--output") -> None:
    """Refuse, before anything is spent, to write where no file can be made or over one of the files that are read."""
    if not output.parent.is_dir() or (output.exists() and not output.is_file()):
        raise ConfigError(f"{option} must be a file in a folder that exists. Got {output}.")
    if is_read(output, inputs):
        raise ConfigError(f"{option} must be a file of its own. Got {output}, which is read.")
    require_writable(output.parent)


def require_writable(folder: Path) -> None:
    """Refuse a folder in which no file can be made."""
    try:
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigError(f"No file can be written in {folder}: {error.strerror}.") from None


@contextmanager
def written_whole(output: Path) -> Iterator[Path]:
    """Yield a path to write to, which takes the place of `output` once the block ends well."""
    target = Path(os.path.realpath(output))  # a link stays one
    with blamed_on(output, target.parent), TemporaryDirectory(prefix=".tutelage-", dir=target.parent) as staging:
        part = Path(staging) / target.name
        yield part
        if target.exists():
            shutil.copymode(target, part)
        part.replace(target)
