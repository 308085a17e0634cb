"""The day of a release: no finer time is published or written into a ledger.

The moment at which a label was drawn would tell how long the private rows took, and with it how many there are.
"""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime

_RELEASE: ContextVar[str | None] = ContextVar("release", default=None)


def today() -> str:
    """Return the UTC day on which the present release began, or the present day outside of a release."""
    return _RELEASE.get() or _now().date().isoformat()


@contextmanager
def on_one_day(day: str | None = None) -> Generator[None]:
    """Keep the day on which the block begins: all entries of a release get one date, even if midnight passes."""
    token = _RELEASE.set(day or today())
    try:
        yield
    finally:
        _RELEASE.reset(token)


def _now() -> datetime:
    return datetime.now(UTC)
