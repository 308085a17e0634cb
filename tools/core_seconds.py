"""Core seconds of every test, child processes included.

    CORE_SECONDS=seconds.jsonl PYTHONPATH=tools pytest -p core_seconds
    python tools/core_seconds.py seconds.jsonl --top 20

As a pytest plugin it appends one JSON line for each test, its id and its seconds, to the file that CORE_SECONDS names;
fixtures count for the first test that uses them. As a script it prints the sum, and the tests and files that take most.
"""

import argparse
import json
import os
import resource
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import psutil
import pytest


def used() -> float:
    """Return the core seconds of this process and of all its children so far, those that still run included."""
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    total = sum(each.ru_utime + each.ru_stime for each in spent)
    for child in psutil.Process().children(recursive=True):
        try:
            times: Any = child.cpu_times()
        except psutil.Error:  # it ended meanwhile
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Write down what a test takes, with its fixtures."""
    before = used()
    try:
        return (yield)
    finally:
        line = json.dumps([item.nodeid, round(used() - before, 3)]) + "\n"
        with Path(os.environ["CORE_SECONDS"]).open("a") as file:
            file.write(line)


def main() -> None:
    """Print the sum, and which tests and files take most."""
    arguments = argparse.ArgumentParser(description="Print the core seconds of tests.")
    arguments.add_argument("files", nargs="+", type=Path)
    arguments.add_argument("--top", type=int, default=20)
    given = arguments.parse_args()
    tests: Counter[str] = Counter()
    for file in given.files:
        for name, seconds in map(json.loads, file.read_text().splitlines()):
            tests[name] += seconds
    files: Counter[str] = Counter()
    for name, seconds in tests.items():
        files[name.partition("::")[0]] += seconds
    for found in (tests, files):
        for name, seconds in found.most_common(given.top):
            print(f"{seconds:8.1f}  {name}")
        print()
    print(f"{sum(tests.values()):8.1f}  {len(tests)} tests")


if __name__ == "__main__":
    main()
