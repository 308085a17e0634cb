"""The reproduction of published ε: its two-class part always, MNIST where its data are at hand."""

import pytest

from tutelage_reproductions import load, publishable


@pytest.fixture(scope="module")
def two_classes():
    return {row.name: row for row in publishable._two_class_rows()}


def test_two_class_votes_publish_less_than_what_was_asked(two_classes):
    claim = two_classes["two classes, LNMax 20, 500 queries: ε to publish"]
    assert claim.at_most is not None
    assert claim.ours <= claim.at_most
    assert claim.ours < 0.3 * two_classes["two classes, LNMax 20, 500 queries: ε for any votes"].ours
    assert claim.ours > two_classes["two classes, LNMax 20, 500 queries: exact ε, not to publish"].ours


def test_what_is_asked_for_any_votes_pays_for_the_test(two_classes):
    name = "two classes, LNMax 20, 500 queries"
    assert two_classes[f"{name}: ε for any votes and the test"].ours > two_classes[f"{name}: ε for any votes"].ours


@pytest.mark.slow
def test_the_authors_votes_publish_less_than_their_paper(mnist_votes):
    found = load("publishable").reproduce(quick=True, download=False, progress=False)
    for row in found.rows:
        assert row.at_most is None or row.ours <= row.at_most
