"""Core seconds of each test, those of its processes included: printed after a run, and held to a ceiling by file."""

import os
from collections import defaultdict
from collections.abc import Generator
from operator import itemgetter
from typing import Any

import pytest

_SLOWEST = 20
_PROPERTY = "core seconds"
_BEGAN = pytest.StashKey[float]()
# Of a file in the quick tier, on any machine and at any load: three times what it takes on two idle cores, or this much
# if that is more. Lower a ceiling with each cut.
_CEILING = 25.0
_CEILINGS = {
    "tests/test_cohorts.py": 36.0,
    "consortium/tests/test_shared_sums.py": 29.0,
    "consortium/tests/test_serving.py": 26.0,
    "tests/test_transcript.py": 41.0,
}
_QUICK = "not rest and not slow"


def _spent() -> float:
    """Return processor time of this process and of all those that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    item.stash[_BEGAN] = _spent()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, Any, Any]:
    report = yield
    if call.when == "teardown":
        report.user_properties.append((_PROPERTY, _spent() - item.stash[_BEGAN]))
    return report


class CoreSeconds:
    """Adds up what the tests of a run took, wherever they ran."""

    def __init__(self, config: pytest.Config) -> None:
        self._is_quick_tier = config.option.markexpr == _QUICK and not config.option.keyword
        self._is_quick_tier &= config.args_source is not pytest.Config.ArgsSource.ARGS
        self._of_tests = dict[str, float]()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, spent in report.user_properties:
            if name == _PROPERTY:
                self._of_tests[report.nodeid] = float(str(spent))

    def _of_files(self) -> dict[str, float]:
        found = defaultdict[str, float](float)
        for test, spent in self._of_tests.items():
            found[test.partition("::")[0]] += spent
        return found

    def _too_slow(self) -> dict[str, float]:
        if not self._is_quick_tier:
            return {}
        return {
            file: spent
            for file, spent in self._of_files().items()
            if spent > _CEILINGS.get(file, _CEILING)
        }

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.exitstatus == pytest.ExitCode.OK and self._too_slow():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        write = terminalreporter.write_line
        total = sum(self._of_tests.values())
        terminalreporter.section(f"core seconds: {total:.0f} in all, the slowest tests and files")
        for found in (self._of_tests, self._of_files()):
            for name, spent in sorted(found.items(), key=itemgetter(1), reverse=True)[:_SLOWEST]:
                write(f"{spent:6.1f}  {name}")
        for file, spent in self._too_slow().items():
            write(
                f"{file} took {spent:.1f} core seconds, more than its ceiling of {_CEILINGS.get(file, _CEILING):g}."
            )


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # of the process that gathers the reports
        config.pluginmanager.register(CoreSeconds(config))
