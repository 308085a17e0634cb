"""Cards of ledgers: for each kind, made as its users make it, the whole page as it was last read and found true.

`python tools/golden_cards.py` writes the pages again.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import test_cli
import test_shared_sums
from conftest import GOLDEN
from consortia import all_ended, found, unanimous
from ledgers import reserve
from runs_of_people import ADDITIVE, NEAREST, NUMBERS, VECTORS, configure_people
from test_cli import succeeded
from tutelage import ConfidentGNMax, GNMax, LabelingSession, Ledger, SimulationNoise, VoteHistogram
from tutelage.events import NoisySumGaussian
from tutelage.privacy import ONE_TEACHER

pytestmark = pytest.mark.usefixtures("repeatable")
PAGES = GOLDEN / "cards"
MASKED = (
    (r"\d{4}-\d\d-\d\d", "DAY"),
    (r"[0-9a-f]{64}", "HEAD"),
    (r"(tutelage) \d[\w.]*", r"\1 VERSION"),
    # The form of a sum follows from the one before.
    (r"(sigma|norm_squared|dimension)=\d[\d.]*", r"\1=NUMBER"),
    (
        r"\d+ entries in a chain of hashes, (not tied to a|tied to one) data set",
        "… entries in a chain of hashes, …",
    ),
)
VOTES = VoteHistogram(np.random.default_rng(0).multinomial(250, [0.8, 0.15, 0.05], size=60), 250)
ROWS = np.arange(60.0)[:, None]
MONTHS = "budget = 2.0\nreleases = 2"


def of_run(
    by: dict[str, str] | None, names: tuple[str, ...] = (), **sections: str
) -> Callable[..., Iterator[Path]]:
    """Return how the ledger of one `tutelage run` is made, or of one for each name."""

    def make(folder: Path, called) -> Iterator[Path]:
        test_cli.write_people(folder, 900, 260)
        if by is None:
            test_cli.configure(folder, **sections)
        else:
            configure_people(folder, by, **sections)
        for named in [("--as", name) for name in names] or [()]:
            succeeded(called("run", "config.toml", *named, cwd=folder))
        yield folder / "private.csv.ledger"

    return make


def of_session(folder: Path, _: object, **noise: Any) -> Iterator[Path]:
    ledger = Ledger.create(folder / "a.ledger", epsilon=2.0, delta=1e-5, unit=ONE_TEACHER)
    LabelingSession(VOTES.first(40), GNMax(sigma=40), ledger, **noise).ask(ROWS[:40])
    check = ConfidentGNMax(threshold=200, sigma_threshold=150, sigma_vote=40)
    LabelingSession(VOTES.select(np.arange(40, 60)), check, ledger, **noise).ask(ROWS[40:])
    yield folder / "a.ledger"


def of_simulated_session(folder: Path, _: object) -> Iterator[Path]:
    yield from of_session(folder, _, noise=SimulationNoise(0))


def of_interrupted_session(folder: Path, _: object) -> Iterator[Path]:
    for path in of_session(folder, _):
        reserve(Ledger.open(path), NoisySumGaussian(40.0, 1, 2, ONE_TEACHER), 2)
        yield path


def of_tested_labels(folder: Path, called) -> Iterator[Path]:
    """Make the ledger of docs/privacy_guarantee.md, by Confident-GNMax."""
    np.savez(folder / "proxy.npz", counts=np.repeat([[145, 4, 1], [149, 1, 0]], 20, axis=0))
    np.savez(folder / "votes.npz", counts=np.repeat([[146, 3, 1], [148, 1, 1]], 20, axis=0))
    np.savez(folder / "rows.npz", X=ROWS[:40])
    by = "--mechanism confident --threshold 100 --sigma 15 --sigma-threshold 15 --ledger a.ledger"
    for words in (
        "ledger init a.ledger --epsilon 20 --delta 1e-5 --neighbors ballot",
        f"publish propose proxy.npz {by} --delta 1e-5 --output p.json",
        f"label rows.npz --votes votes.npz {by} --output labels.csv",
        f"publish test p.json rows.npz --votes votes.npz {by}",
    ):
        succeeded(called(*words.split(), cwd=folder))
    yield folder / "a.ledger"


def of_sums_between_hospitals(folder: Path, _: object) -> Iterator[Path]:
    members = test_shared_sums.agreed(folder)
    for _ in range(3):
        batch, _ = test_shared_sums.asked_by(members)
        test_shared_sums.cast_by_all(members, batch)
        all_ended(members, batch)
        members.aggregator().collect_sum(batch, members.mailbox)
    yield folder / "hospital-0" / "ledger"
    yield folder / "aggregator" / "ledger"  # whose entries alone tie it to no people


def of_votes_in_a_hospital(folder: Path, _: object) -> Iterator[Path]:
    members = found(folder)
    members.entity("hospital-0").vote(members.ask(5), unanimous(np.arange(5) % 3), members.mailbox)
    yield folder / "hospital-0" / "ledger"


KINDS: dict[str, Callable[..., Iterator[Path]]] = {
    "schema": of_run(ADDITIVE),
    "schema-of-numbers": of_run(NUMBERS),
    "noisy-moments": of_run(VECTORS, privacy="epsilon = 2.0\nbudget = 4.0"),
    "months": of_run(ADDITIVE, ("2026-01", "2026-02"), privacy=MONTHS),
    "votes-of-teachers": of_run(None),
    "capped-votes": of_run(NEAREST),
    "session": of_session,
    "session-simulated": of_simulated_session,
    "session-interrupted": of_interrupted_session,
    "tested-labels": of_tested_labels,
    "votes-in-a-hospital": of_votes_in_a_hospital,
    "sums-between-hospitals": of_sums_between_hospitals,
}
QUICK = ("schema", "session", "session-interrupted", "votes-in-a-hospital")


def page_of(path: Path, folder: Path, called) -> str:
    succeeded(called("card", "--ledger", path, "--output", folder / "published"))
    page = (folder / "published" / "card.md").read_text(encoding="utf-8")
    for found_there, mask in MASKED:
        page = re.sub(found_there, mask, page)
    return page


@pytest.mark.parametrize(
    "kind", [one if one in QUICK else pytest.param(one, marks=pytest.mark.rest) for one in KINDS]
)
def test_a_card_of_each_kind_of_ledger_says_what_was_read_and_found_true(kind, tmp_path, called):
    golden = PAGES / f"{kind}.md"
    for ledger in KINDS[kind](tmp_path, called):
        page = page_of(ledger, tmp_path, called)
        if not golden.exists():
            golden.write_text(page, encoding="utf-8")
            pytest.fail(
                f"{golden} was written. Read it: each sentence must follow from what happened."
            )
        assert page == golden.read_text(encoding="utf-8")
