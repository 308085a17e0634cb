"""The reproduction of published ε: its two-class part always, MNIST where its data are at hand."""

import pytest

from tutelage_reproductions import load, publishable


@pytest.fixture(scope="module")
def two_classes():
    return {row.name: row for row in publishable._two_class_rows()}


def test_two_class_votes_publish_less_than_what_was_asked(two_classes):
    claim = two_classes["two classes, LNMax 20, 500 queries: tested ε (publishable)"]
    assert claim.at_most is not None
    assert claim.ours <= claim.at_most
    assert claim.ours < 0.3 * two_classes["two classes, LNMax 20, 500 queries: worst-case ε"].ours
    assert claim.ours > two_classes["two classes, LNMax 20, 500 queries: exact ε (private)"].ours


def test_what_is_asked_for_any_votes_pays_for_the_test(two_classes):
    name = "two classes, LNMax 20, 500 queries"
    assert (
        two_classes[f"{name}: worst-case ε with test"].ours
        > two_classes[f"{name}: worst-case ε"].ours
    )


@pytest.mark.slow
def test_the_authors_votes_publish_less_than_their_paper(mnist_votes):
    found = load("publishable").reproduce(quick=True, download=False, progress=False)
    for row in found.rows:
        assert row.at_most is None or row.ours <= row.at_most
