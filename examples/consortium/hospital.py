"""One hospital: trains teachers on its own stays, lets them vote on a batch, and hands the ballots to tutelage.

python hospital.py HOME MAILBOX PUBLIC BATCH

Nothing of HOME leaves it but what `tutelage federate vote` seals: noised, and in shares.
"""

import os
import secrets
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import LogisticRegression
from stays import Encoder, Numbers

from tutelage.federation import Home, Mailbox
from tutelage.partition import Shards
from tutelage.teachers import EstimatorTeachers

TEACHERS = 25


def classifier() -> LogisticRegression:
    """Return the model of teachers and student: a strongly regularized plane through the average public patient."""
    return LogisticRegression(C=0.03, fit_intercept=False)


def main(home: Path, mailbox: Path, public: Path, batch: str) -> None:
    """Vote on a batch, once it is found to be signed by the aggregator of the consortium that was joined."""
    asked = Mailbox(mailbox).batch(batch, Home(home).consortium())
    encode = Encoder(np.load(public))
    with np.load(home / "stays.npz") as stays:
        votes = ballots(encode(stays["X"]), stays["y"], stays["patients"], asked.rows, key=own_key(home))
    np.save(home / "ballots.npy", votes)
    command = [sys.executable, "-m", "tutelage", "federate", "vote", home / "ballots.npy", "--batch", batch]
    places = ["--home", home, "--mailbox", mailbox, "--ledger", home / "ledger.sqlite"]
    sys.exit(subprocess.run([*command, *places]).returncode)  # noqa: S603  our own words


def ballots(
    X: Numbers, y: npt.NDArray[np.int64], patients: npt.NDArray[np.int64], rows: Numbers, *, key: bytes
) -> npt.NDArray[np.int16]:
    """Return the votes of this hospital's teachers, shape (teachers, queries); private.

    Parameters
    ----------
    X, y, patients : arrays of shape (stays, 16), (stays,) and (stays,)
        Encoded stays, their labels, and whose they are: all stays of a patient teach one teacher.
    rows : array of shape (queries, 16)
        Encoded public rows.
    key : bytes
        This hospital's key, which assigns patients to teachers.
    """
    shards = Shards.of_entities(patients, TEACHERS, key=key, name="patient_nbr")
    return EstimatorTeachers(classifier(), n_classes=2, seed=0).fit_ballots(X, y, shards, rows)


def own_key(home: Path) -> bytes:
    """Return the key that assigns patients to teachers. It is made once: another key would give other teachers."""
    path = home / "shards.key"
    if not path.exists():
        path.write_bytes(secrets.token_bytes(32))
    return path.read_bytes()


if __name__ == "__main__":
    os.umask(0o077)  # only this user can read the files
    home, mailbox, public, batch = sys.argv[1:]
    main(Path(home), Path(mailbox), Path(public), batch)
