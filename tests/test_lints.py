import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutelage.exceptions import InvalidParameterError
from tutelage.lints import Finding, lint


def codes(**settings) -> list[tuple[str, str]]:
    return [(finding.code, finding.severity) for finding in lint(**settings)]


def test_what_is_not_said_is_not_judged():
    assert lint() == ()


def test_good_settings_have_no_finding():
    assert not lint(
        epsilon=0.3, delta=1e-6, entities=60_000, teachers=250, classes=10, threshold=200, stopping="fixed",
        tuned_on="public", public_overlap=0, mechanism="confident",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"epsilon": 5.0}, []),
        ({"epsilon": 5.001}, [("epsilon-large", "warning")]),
        ({"epsilon": 10.0}, [("epsilon-large", "warning")]),
        ({"epsilon": 10.001}, [("epsilon-too-large", "danger")]),
        ({"epsilon": math.inf}, [("epsilon-too-large", "danger")]),
        ({"delta": 0.01}, []),
        ({"delta": 1 / 128, "entities": 127}, []),
        ({"delta": 1 / 128, "entities": 128}, [("delta-too-large", "danger")]),
        ({"teachers": 42, "entities": 126}, []),
        ({"teachers": 42, "entities": 125}, [("teachers-without-rows", "warning")]),
        ({"threshold": 300}, []),
        ({"threshold": 250, "teachers": 250}, []),
        ({"threshold": 250.5, "teachers": 250}, [("threshold-above-teachers", "danger")]),
        ({"threshold": 251, "teachers": 250, "classes": 10}, [("threshold-above-teachers", "danger")]),
        ({"threshold": 25, "teachers": 250, "classes": 10}, [("threshold-passes-always", "warning")]),
        ({"threshold": 26, "teachers": 250, "classes": 10}, []),
        ({"threshold": 20, "teachers": 250, "classes": 10, "mechanism": "interactive"}, []),
        ({"stopping": "data-independent"}, []),
        ({"stopping": "data-dependent"}, [("stopped-by-votes", "danger")]),
        ({"tuned_on": "nothing"}, []),
        ({"tuned_on": "private"}, [("tuned-on-private", "danger")]),
        ({"public_overlap": 1}, [("public-overlaps-private", "danger")]),
        ({"shares": 1}, [("noise-from-shares", "warning")]),
    ],
)
def test_each_rule_fires_at_its_limit_and_not_before(settings, expected):
    assert codes(**settings) == expected


def test_every_objection_is_made_at_once():
    found = lint(
        epsilon=20.0, delta=0.1, entities=100, teachers=10, threshold=11, stopping="data-dependent",
        tuned_on="private", public_overlap=3,
    )  # fmt: skip
    assert len(found) == len({finding.code for finding in found}) == 6
    for finding in found:
        assert isinstance(finding, Finding)
        assert finding.reason.endswith(".")
        assert 2 <= finding.reason.count(". ") + 1 <= 3


def test_no_reason_quotes_what_may_have_been_counted_on_private_rows():
    for entities, overlap in ((987_654, 0), (1, 987_654)):
        for finding in lint(delta=0.1, entities=entities, public_overlap=overlap):
            assert "987" not in finding.reason


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"epsilon": -1.0}, "`epsilon` of lint"),
        ({"epsilon": math.nan}, "`epsilon` of lint"),
        ({"delta": 0.0}, "`delta` of lint"),
        ({"delta": math.nan}, "`delta` of lint"),
        ({"entities": 0}, "`entities` of lint"),
        ({"teachers": 2.5}, "`teachers` of lint"),
        ({"classes": 1}, "`classes` of lint"),
        ({"threshold": math.nan}, "`threshold` of lint"),
        ({"stopping": "whenever"}, "`stopping` of lint must be one of fixed"),
        ({"tuned_on": "votes"}, "`tuned_on` of lint must be one of nothing"),
        ({"public_overlap": -1}, "`public_overlap` of lint"),
        ({"shares": 0}, "`shares` of lint"),
    ],
)
def test_nonsense_is_refused_in_one_sentence(settings, sentence):
    with pytest.raises(InvalidParameterError, match=sentence):
        lint(**settings)


@given(st.floats(1e-9, 0.5), st.integers(1, 10**9), st.integers(1, 10**9))
def test_more_people_never_make_a_large_delta_small(delta, one, other):
    few, many = sorted((one, other))
    assert len(lint(delta=delta, entities=few)) <= len(lint(delta=delta, entities=many))
