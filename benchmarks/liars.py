"""How much one or two of ten hospitals can spoil a student with sums that pass the test of sizes, by its AUC.

    python benchmarks/liars.py [--splits 5]

Hospitals hold stays of Diabetes 130-US, cut by patient; terms, schema and ε = 1 are those of `examples/consortium`. The
sums are made and opened as a consortium does, without sealing and sharing them. A lie is told in all three sums. It is
found if the size of one of its forty random sums is beyond the bound, which is tried here on the same numbers.
"""

import argparse
import importlib.util
import secrets
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.metrics import roc_auc_score

from tutelage.noise import SystemNoise
from tutelage.partition import Shards
from tutelage_consortium.entity import ballots_of
from tutelage_consortium.mpc.session import _coefficients  # pyright: ignore[reportPrivateUsage]
from tutelage_consortium.sums import (
    Round,
    Sums,
    _bound_of_projection,  # pyright: ignore[reportPrivateUsage]
)
from tutelage_consortium.terms_file import TermsFile
from tutelage_reproductions.datasets.diabetes import (
    FEATURES,
    HospitalStays,
    load_diabetes,
    split_by_patient,
)

HOSPITALS = 10
PLAY = Path(__file__).parents[1] / "examples" / "consortium" / "run.py"
# From the honest sum and that of turned labels.
Lie = Callable[[np.ndarray, np.ndarray], np.ndarray]
LIES: dict[str, Lie] = {
    "honest": lambda sum_, _: sum_,
    "silent: zeros": lambda sum_, _: 0 * sum_,
    "labels turned": lambda _, turned: turned,
    "labels turned, 3 times": lambda _, turned: 3 * turned,
    "labels turned, 5 times": lambda _, turned: 5 * turned,
    "labels turned, 10 times": lambda _, turned: 10 * turned,
    "labels turned, 1,000 times": lambda _, turned: 1_000 * turned,
}


def consortium() -> Sums:
    """Return the sums of the terms that the example plays."""
    spec: Any = importlib.util.spec_from_file_location("play", PLAY)
    play = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(play)
    names = "\n".join(f"h{place} = 1300" for place in range(HOSPITALS))
    parties = "\n".join(
        f'{name} = "127.0.0.1:{port}"'
        for port, name in enumerate(("left", "middle", "right"), 7001)
    )
    terms = play.TERMS.format(quorum=8, hospitals=names, parties=parties)
    return TermsFile.of(tomllib.loads(terms)).draft().sums()


def sum_of(sums: Sums, asked: Round, stays: HospitalStays, labels: np.ndarray) -> np.ndarray:
    """Return the sum of one hospital's ballots without noise."""
    columns = {name: stays.X[:, place] for place, name in enumerate(FEATURES)}
    return ballots_of(sums, asked, columns, labels, stays.patients).totals


def release(sums: Sums, hospitals: list[HospitalStays], lie: Lie, liars: int) -> tuple[Any, bool]:
    """Return the student of three sums, and whether a liar was found; found liars are left out."""
    asked, noise, found = sums.first_round("trial"), SystemNoise(), False
    names, people = list(asked.opened.people), asked.opened.people
    for _ in sums.events:
        event, totals = sums.event_asked(asked), dict[str, np.ndarray]()
        for place, (name, stays) in enumerate(zip(names, hospitals, strict=True)):
            total = sum_of(sums, asked, stays, stays.y)
            if place < liars:
                total = lie(total, sum_of(sums, asked, stays, 1 - stays.y))
            total = total + noise.discrete_gaussian(event.sigma_of_share, total.shape)
            vector = total.ravel()
            tests = np.abs(
                vector @ _coefficients(vector.size, secrets.token_bytes(32)).astype(np.int64)
            )
            if tests.max() <= _bound_of_projection(people[name], event):
                totals[name] = total
            else:
                found = True
        asked = sums.round_after(asked, np.sum([*totals.values()], axis=0), totals)
    return asked.classifier, found


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--splits", type=int, default=5)
    splits = parser.parse_args().splits
    sums, data = consortium(), load_diabetes()
    table = Table(
        title=f"{HOSPITALS} hospitals, ε = 1, AUC in % over {splits} splits, mean ± 2 standard errors"
    )
    for heading in ("sums of the liars", "one liar", "found in", "two liars", "found in"):
        table.add_column(heading)
    for name, lie in LIES.items():
        cells = [name]
        for liars in (1, 2):
            scores = list[float]()
            found = 0
            for split in range(splits):
                cut = split_by_patient(data, key=f"split {split} of liars".encode())
                shards = Shards.of_entities(
                    cut.private.patients, HOSPITALS, key=b"hospitals of liars", name="patient"
                )
                hospitals = [cut.private.select(rows) for rows in shards.rows]
                student, caught = release(sums, hospitals, lie, liars)
                test = {column: cut.test.X[:, place] for place, column in enumerate(FEATURES)}
                chances = student.predict_proba(test)[:, 1]
                scores.append(100 * cast("float", roc_auc_score(cut.test.y, chances)))
                found += caught
            error = 2 * np.std(scores, ddof=1) / np.sqrt(splits)
            cells += [f"{np.mean(scores):.1f} ± {error:.1f}", f"{found} of {splits}"]
        table.add_row(*cells)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
