"""Output files: written whole, and never over a file that the command reads."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

from tutelage._internal.results import blamed_on, is_read
from tutelage.exceptions import ConfigError


def check_output(output: Path, *inputs: Path, option: str = "--output") -> None:
    """Refuse, before anything is spent, an output that cannot be written or that is one of the inputs."""
    if not output.parent.is_dir() or (output.exists() and not output.is_file()):
        raise ConfigError(f"{option} must be a file in a folder that exists. Got {output}.")
    if is_read(output, inputs):
        raise ConfigError(f"{option} must not be a file that this command reads. Got {output}.")
    require_writable(output.parent)


def require_writable(folder: Path) -> None:
    """Refuse a folder in which no file can be created."""
    try:
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigError(f"The folder {folder} is not writable: {error.strerror}.") from None


@contextmanager
def written_whole(output: Path) -> Iterator[Path]:
    """Yield a temporary path, which replaces `output` if the block raises nothing."""
    target = Path(os.path.realpath(output))  # a link stays one
    with blamed_on(output, target.parent), TemporaryDirectory(prefix=".tutelage-", dir=target.parent) as staging:
        part = Path(staging) / target.name
        yield part
        if target.exists():
            shutil.copymode(target, part)
        part.replace(target)
