"""Where, when and with what a reproduction was run, so that another run of it can be compared."""

import platform
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from shutil import which
from typing import final

from joblib import cpu_count

_PROCESSORS = Path("/proc/cpuinfo")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What a run was run on.

    Parameters
    ----------
    date : str
        Day on which it ended, ISO 8601, UTC.
    seconds : float
        On the clock, the whole run.
    processor : str
        Model, and how many threads of it the process may use.
    python : str
        Version of the interpreter, and the operating system.
    tutelage : str
        Version of this package.
    commit : str, optional
        Of the checkout it was imported from, with ``+`` where files differ from it; none where it is no checkout.
    """

    date: str
    seconds: float
    processor: str
    python: str
    tutelage: str
    commit: str | None

    @classmethod
    def now(cls, seconds: float) -> "Circumstances":
        """Return those of this process.

        Parameters
        ----------
        seconds : float
            How long the run took.
        """
        return cls(
            date=datetime.now(UTC).date().isoformat(),
            seconds=round(seconds, 1),
            processor=f"{_processor()}, {cpu_count()} threads",
            python=f"Python {platform.python_version()}, {platform.system()}",
            tutelage=version("tutelage"),
            commit=commit(),
        )


def _processor() -> str:
    if _PROCESSORS.is_file():
        for line in _PROCESSORS.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


@cache
def commit() -> str | None:
    """Return the commit of the checkout that this package is imported from, as of the first call in this process.

    Files may change while a run goes on; modules were read before.
    """
    # Of this very file: an environment may lie in the working tree of some other project.
    if _git("ls-files", "--error-unmatch", Path(__file__).name) is None:
        return None
    return _git("describe", "--always", "--exclude=*", "--dirty=+")


def _git(*words: str) -> str | None:
    git = which("git")
    if git is None:
        return None
    command = [git, "-C", str(Path(__file__).parent), *words]
    found = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  fixed words
    return found.stdout.strip() if found.returncode == 0 else None
