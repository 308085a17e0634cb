"""How fast NVIDIA FLARE carries files between members, each with a process of its own, over TLS on one machine.

    python benchmarks/flare.py [--members 10] [--rounds 5] [--bytes 130000]

In a round every member delivers three files, to the next three members. Nothing but the mailbox is at work.
"""

import argparse
import os
import secrets
import socket
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
from rich.console import Console
from rich.table import Table

from tutelage_consortium.kits import Carrier, provision, start

EACH, QUIET_SECONDS, IDLE_SECONDS = 3, 90.0, 20.0


def until(is_so: Callable[[], bool]) -> float:
    """Wait until something is so, and return for how long."""
    began = time.perf_counter()
    while not is_so():
        time.sleep(0.02)
    return time.perf_counter() - began


def one_round(mail: Path, names: list[str], batch: str, size: int) -> tuple[float, int]:
    """Let every member deliver and get its files; return the seconds, and the bytes that the machine sent itself."""
    recipients = {
        name: [names[(at + k + 1) % len(names)] for k in range(EACH)]
        for at, name in enumerate(names)
    }
    before = psutil.net_io_counters(pernic=True)["lo"].bytes_sent
    for name in names:
        folder = mail / name / "shares" / batch
        folder.mkdir(parents=True, exist_ok=True)
        for to in recipients[name]:
            (mail / f"{name}.part").write_bytes(secrets.token_bytes(size))
            (mail / f"{name}.part").rename(folder / f"{name}.to-{to}.sealed")
    expected = [
        mail / to / "shares" / batch / f"{name}.to-{to}.sealed"
        for name in names
        for to in recipients[name]
    ]
    seconds = until(lambda: all(path.exists() for path in expected))
    return seconds, psutil.net_io_counters(pernic=True)["lo"].bytes_sent - before


def measured(folder: Path, members: int, rounds: int, size: int) -> dict[str, str]:
    """Return what was measured, by name."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"localhost:{free.getsockname()[1]}"
    names, mail = [f"hospital-{number}" for number in range(members)], folder / "mail"
    began = time.perf_counter()
    provision(folder, "benchmark", address, names)
    made = time.perf_counter() - began
    (mail / "server").mkdir(parents=True)
    (mail / "server" / "consortium.json").write_bytes(b"{}")
    began = time.perf_counter()
    carriers: list[Carrier] = [start(folder / "server", mail / "server")]
    try:
        carriers += [start(folder / "members" / name, mail / name) for name in names]
        until(lambda: all((mail / name / "consortium.json").exists() for name in names))
        started = time.perf_counter() - began
        found = [one_round(mail, names, f"{number:032x}", size) for number in range(rounds)]
        processes = [psutil.Process(carrier.process.pid) for carrier in carriers]
        memory = [process.memory_full_info() for process in processes]
        time.sleep(QUIET_SECONDS)
        cpu = [sum(process.cpu_times()[:2]) for process in processes]
        time.sleep(IDLE_SECONDS)
        cpu = [
            (sum(p.cpu_times()[:2]) - old) / IDLE_SECONDS
            for p, old in zip(processes, cpu, strict=True)
        ]
    finally:
        for carrier in carriers:
            carrier.stop()
    seconds = sorted(round_[0] for round_ in found)
    return {
        "kits made, s": f"{made:.1f}",
        "all connected after, s": f"{started:.1f}",
        "a round, s": f"{seconds[0]:.2f}–{seconds[-1]:.2f}, median {seconds[len(seconds) // 2]:.2f}",
        "sent in a round, MB": f"{sum(round_[1] for round_ in found) / rounds / 1e6:.1f}",
        "files in a round, MB": f"{members * EACH * size / 1e6:.1f}",
        "processes": str(len(processes)),
        "memory of all, MB": f"{sum(each.pss for each in memory) / 1e6:.0f}",
        "of the server, of a member, MB": f"{memory[0].uss / 1e6:.0f}, {memory[1].uss / 1e6:.0f}",
        "CPU at rest of the server, of a member, %": f"{100 * cpu[0]:.1f}, {100 * sum(cpu[1:]) / members:.1f}",
    }


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--members", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bytes", type=int, default=130_000)
    given = parser.parse_args()
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        del os.environ[name]
    with TemporaryDirectory() as folder:
        found = measured(Path(folder), given.members, given.rounds, given.bytes)
    table = Table("measured", "", title=f"{given.members} members, {os.cpu_count()} cores")
    for row in found.items():
        table.add_row(*row)
    Console().print(table)


if __name__ == "__main__":
    main()
