"""Assign the published hospital stays to ten hospitals.

The published table does not name the hospital of a stay, so a keyed hash of the patient number assigns patients to
hospitals. All stays of a patient are in one hospital. Hospitals differ only by chance; real hospitals differ more.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tutelage.partition import Shards
from tutelage_reproductions.datasets.diabetes import DiabetesSplit

HOSPITALS = tuple(f"hospital-{number:02}" for number in range(1, 11))


def deal(split: DiabetesSplit, folder: Path, *, key: bytes, names: Sequence[str] = HOSPITALS) -> None:
    """Write ``<hospital>/stays.npz``, each hospital's own stays, and ``public.npy``, the public rows without labels.

    Parameters
    ----------
    split : DiabetesSplit
        The private part is assigned to hospitals.
    folder : path
        Where the hospitals' folders are made.
    key : bytes
        Key of the hash that assigns patients to hospitals; it must differ from the key of the split.
    names : sequence of str
        The hospitals.
    """
    hospitals = Shards.of_entities(split.private.patients, len(names), key=key, name="patient_nbr")
    for name, rows in zip(names, hospitals.rows, strict=True):
        own = split.private.select(rows)
        (folder / name).mkdir(parents=True, exist_ok=True)
        np.savez_compressed(folder / name / "stays.npz", X=own.X, y=own.y, patients=own.patients)
    np.save(folder / "public.npy", split.public.X)
