"""A person who is in three releases with names, attacked with all that is known: the ledger's ε is not passed."""

import pytest

from benchmarks.audit_cohorts import EPSILON, audited

pytestmark = [pytest.mark.rest, pytest.mark.slow, pytest.mark.timeout(7200)]


def test_three_releases_show_no_more_than_the_ledger_claims():
    found = audited("", 300)
    assert max(found.sums, found.student) <= found.distance <= EPSILON


def test_a_ledger_that_forgets_who_came_is_given_away():
    found = audited("forgets who came", 600)
    assert found.sums > EPSILON
    assert found.distance > EPSILON
