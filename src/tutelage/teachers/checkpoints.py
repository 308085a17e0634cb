"""Finished teachers' ballots on disk, so that a killed run resumes.

Files are npz of plain arrays, read with pickling off: a file from elsewhere can at worst be wrong, never run code.
They are private, like every ballot; the folder is readable by its owner only.
"""

from pathlib import Path
from typing import final

import joblib
import numpy as np
import sklearn

from tutelage._files import open_private, read_arrays
from tutelage._typing import Ballots, IntArray, Matrix
from tutelage.exceptions import InvalidDataError


@final
class BallotCheckpoints:
    """A folder of ballots, one file per teacher.

    Parameters
    ----------
    folder : path or None
        Private folder, made if missing; None keeps nothing.
    settings : object
        Whatever all teachers share; ballots made under other settings are not reused.
    """

    def __init__(self, folder: Path | None, settings: object) -> None:
        self._folder = folder
        if folder is not None:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._settings = joblib.hash((sklearn.__version__, settings))

    def identity(self, X: Matrix, y: IntArray, seed: int) -> str:
        """Return a digest of everything that determines one teacher."""
        return "" if self._folder is None else str(joblib.hash((self._settings, X, y, seed)))

    def load(self, number: int, identity: str) -> Ballots | None:
        """Return the ballots of teacher `number` if they were saved under this identity."""
        if self._folder is None:
            return None
        try:
            arrays = read_arrays(self._path(self._folder, number))
            return arrays["ballots"] if str(arrays["identity"]) == identity else None
        except (InvalidDataError, KeyError):
            return None  # absent or damaged: the teacher is trained again

    def save(self, number: int, identity: str, ballots: Ballots) -> None:
        """Keep the ballots of teacher `number`; the file appears whole or not at all."""
        if self._folder is None:
            return
        path = self._path(self._folder, number)
        part = path.with_suffix(".part")
        with open_private(part) as file:
            np.savez(file, ballots=ballots, identity=np.array(identity))
        part.replace(path)

    @staticmethod
    def _path(folder: Path, number: int) -> Path:
        return folder / f"teacher-{number:06d}.npz"


def discard_checkpoints(folder: Path) -> None:
    """Delete the ballots kept in `folder`, and the folder if nothing else is in it."""
    for file in [*folder.glob("teacher-[0-9]*.npz"), *folder.glob("teacher-[0-9]*.part")]:
        file.unlink()
    if not any(folder.iterdir()):
        folder.rmdir()
