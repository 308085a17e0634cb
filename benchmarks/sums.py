"""How fast hospitals and three computing parties, each party a process of its own over TLS on one machine, add ballots.

    python benchmarks/sums.py [--hospitals 10]

The schema is made up, so that the first sum has as many numbers as are to be measured; each hospital has a thousand
people. `hospital` is one of them: ballots, noise, shares, seals and its ledger. `parties` is from the start of three
processes that have loaded everything until the last has sealed its share of the total: connecting and the test of sizes
included. `opening` is the aggregator: the total and its ledger.
"""

import argparse
import os
import platform
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
from mpc import free_ports, started
from rich.console import Console
from rich.table import Table

from tutelage.features import Schema
from tutelage.ledger import Ledger
from tutelage.mechanisms import NoisySum
from tutelage.privacy import NeighboringRelation, PrivacyUnit
from tutelage_consortium import (
    Aggregator,
    Batch,
    ComputingParty,
    Consortium,
    Entity,
    Home,
    Identity,
    Mailbox,
    Role,
)

SIZES = (2, 400), (10, 1_000), (100, 1_000)  # classes, and numbers for each
PARTIES, PEOPLE, COLUMNS = ("left", "middle", "right"), 1_000, 10
UNIT = PrivacyUnit("patient", NeighboringRelation.ADD_REMOVE_OR_CHANGE_WITHIN_SILO)


def categories(numbers: int) -> list[str]:
    """Return the categories of one column, of which unknown cells are one more number."""
    return [f"value {place}" for place in range(numbers // COLUMNS - 1)]


def assembled(folder: Path, hospitals: int, classes: int, numbers: int) -> Consortium:
    """Make keys, terms and ledgers of everybody."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports()]
    identities = [
        Identity.generate(f"hospital-{number}", Role.ENTITY) for number in range(hospitals)
    ]
    identities += [
        Identity.generate(*each)
        for each in zip(PARTIES, [Role.COMPUTING] * 3, addresses, strict=True)
    ]
    identities.append(Identity.generate("registry", Role.AGGREGATOR))
    terms = Consortium(
        name="benchmark",
        members=tuple(identity.member for identity in identities),
        classes=tuple(f"class {place}" for place in range(classes)),
        mechanism=NoisySum(8.0),
        teachers_per_entity=1,
        quorum=hospitals,
        colluding=1,
        unit=UNIT,
        people=(PEOPLE,) * hospitals,
        schema=Schema({f"column {number}": categories(numbers) for number in range(COLUMNS)}),
    )
    for identity in identities:
        home = folder / identity.member.name
        home.mkdir()
        identity.save(home)
        Home(home).join(terms, terms.words)
        if identity.member.role is not Role.COMPUTING:
            Ledger.create(home / "ledger", epsilon=2.0, delta=1e-5, unit=UNIT)
    return terms


def aggregator_of(folder: Path) -> Aggregator:
    """Return the aggregator with its ledger."""
    return Aggregator(Home(folder / "registry"), Ledger.open(folder / "registry" / "ledger"))


def party(pipe: Connection, home: Path, mail: Path, identifier: str) -> None:
    """Be one party, once told to begin, and say how long it took and what it sent."""
    computing, mailbox = ComputingParty(Home(home)), Mailbox(mail)
    batch = mailbox.batch(identifier, computing.consortium)
    pipe.send("ready")
    pipe.recv()
    start = time.perf_counter()
    done = computing.compute(batch, mailbox, timeout=120.0)
    pipe.send((time.perf_counter() - start, done.bytes_sent))


def measured(hospitals: int, classes: int, numbers: int) -> list[str]:
    """Play one round, and return what each part of it took."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        terms, mailbox = assembled(folder, hospitals, classes, numbers), Mailbox(folder / "mail")
        batch = aggregator_of(folder).ask_sum("first", mailbox)
        if batch is None:
            raise SystemExit("The first round was collected before.")
        casting = list[float]()
        for number in range(hospitals):
            rng, home = np.random.default_rng(number), folder / f"hospital-{number}"
            rows = {
                name: rng.choice(of_column, PEOPLE)
                for name, of_column in terms.sums().schema.columns.items()
            }
            labels, ids = rng.integers(0, classes, PEOPLE), np.arange(PEOPLE)
            start = time.perf_counter()
            Entity(Home(home), Ledger.open(home / "ledger")).cast(
                batch, rows, labels, mailbox, entity_ids=ids
            )
            casting.append(time.perf_counter() - start)
        seconds, sent = compute(folder, batch)
        start = time.perf_counter()
        values = aggregator_of(folder).collect_sum(batch, mailbox).values
        opening = time.perf_counter() - start
        envelope = (
            mailbox.answer(batch, terms.entities[0], terms.computing_parties[0]).envelope() or b""
        )
    total = classes * numbers
    if values.size != total:
        raise SystemExit("The sum has another size.")
    shown = (float(np.median(casting)), seconds, opening)
    sizes = f"{len(envelope) / total:.0f}", f"{sent / total:.1f}"
    return [
        f"{classes} x {numbers:,}",
        *(f"{each:.2f}" for each in shown),
        f"{total / seconds:,.0f}",
        *sizes,
    ]


def compute(folder: Path, batch: Batch) -> tuple[float, int]:
    """Let three processes add the shares; return the seconds of the slowest, and what one sent to the others."""
    pipes = started(party, ((folder / name, folder / "mail", batch.identifier) for name in PARTIES))
    for pipe in pipes:
        pipe.recv()
    for pipe in pipes:
        pipe.send("begin")
    found = [pipe.recv() for pipe in pipes]
    return max(seconds for seconds, _ in found), found[0][1]


def main() -> None:
    """Measure every size."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hospitals", type=int, default=10)
    options = parser.parse_args()
    machine = f"3 processes on {os.cpu_count()} cores, Python {platform.python_version()}"
    table = Table(title=f"{options.hospitals} hospitals, {machine}", title_justify="left")
    headings = "classes x numbers", "hospital, s", "parties, s", "opening, s", "numbers per second"
    for heading in (*headings, "bytes sealed a number", "bytes between parties a number"):
        table.add_column(heading, justify="right")
    for classes, numbers in SIZES:
        table.add_row(*measured(options.hospitals, classes, numbers))
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
