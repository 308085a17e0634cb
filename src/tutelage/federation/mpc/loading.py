"""Importing MPyC without what its import does to a program: it parses the command line and sets up logging."""

import asyncio
import importlib.util
import logging
import os
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

from tutelage._forks import BriefLock
from tutelage.exceptions import FederationError

_OPTIONS = ["--no-log", "--no-uvloop", "-M1"]
_ONE_AT_A_TIME = BriefLock()  # two at once would restore what the other had changed


def load_mpyc() -> None:
    """Import MPyC and leave the program's command line, environment, logging and event loop as they were."""
    missing = [name for name in ("cryptography", "mpyc") if importlib.util.find_spec(name) is None]
    if missing:
        raise FederationError(f'Computing parties need {" and ".join(missing)}: pip install "tutelage[federation]".')
    with _ONE_AT_A_TIME:
        _load()


def _load() -> None:
    command_line, root = sys.argv, logging.getLogger()
    handlers, level = root.handlers[:], root.level
    environment = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("MPYC_")}
    sys.argv = ["", *_OPTIONS]
    try:
        with ThreadPoolExecutor(1) as thread:  # of its own, since MPyC takes the thread's event loop
            thread.submit(_import).result()
    finally:
        sys.argv = command_line
        for name in [name for name in os.environ if name.startswith("MPYC_")]:
            del os.environ[name]
        os.environ.update(environment)
        root.handlers[:] = handlers
        root.setLevel(level)


def _import() -> None:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of names that numpy has moved
            importlib.import_module("mpyc.runtime")
    finally:
        loop.close()
