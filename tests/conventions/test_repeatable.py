"""Tests do not depend on how busy the machine is: none reads a clock or sleeps."""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
OF_CONSORTIUM = TESTS.parent / "consortium" / "tests"
CLOCKS = {
    "sleep",
    "time",
    "time_ns",
    "monotonic",
    "monotonic_ns",
    "perf_counter",
    "perf_counter_ns",
}
# Where a clock is what is tested, or where no assertion depends on it.
MAY_READ_A_CLOCK = {
    "processes.py": "looks again and again whether a condition holds, for as long as it takes",
}


def clocks(source: str) -> list[str]:
    """Return the functions of `time` that Python source calls or imports; and sleeps of event loops."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module, name = node.value.id, node.attr
            if (module == "time" and name in CLOCKS) or (module, name) == ("asyncio", "sleep"):
                found.append(f"{module}.{name}")
    return found


@pytest.mark.parametrize(
    "path",
    sorted(path for folder in (TESTS, OF_CONSORTIUM) for path in folder.rglob("*.py")),
    ids=lambda path: path.name,
)
def test_no_test_reads_a_clock(path):
    if path.name not in MAY_READ_A_CLOCK:
        assert not clocks(path.read_text()), "wait for a condition instead, with processes.until"


def test_every_exception_is_needed():
    assert all(clocks((TESTS / name).read_text()) for name in MAY_READ_A_CLOCK)


@pytest.mark.parametrize("planted", [
    "import time\ntime.sleep(1)",
    "from time import monotonic",
    "start = time.perf_counter()",
    "await asyncio.sleep(0)",
])  # fmt: skip
def test_a_clock_is_seen(planted):
    planted = f"async def test():\n    {planted}" if planted.startswith("await") else planted
    assert clocks(planted)
