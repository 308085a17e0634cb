"""Write again the pages that `tests/test_cards_of_ledgers.py` expects: a card for each kind of ledger.

Run `python tools/golden_cards.py`, and read the difference: each sentence must follow from what happened.
"""

from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1] / "tests"

if __name__ == "__main__":
    for page in (TESTS / "golden" / "cards").glob("*.md"):
        page.unlink()
    pytest.main(
        [str(TESTS / "test_cards_of_ledgers.py"), "-q", "-m", "", "--tb=line", "--durations=15"]
    )
