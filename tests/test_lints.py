import math
from typing import Any

import pytest

from test_card import card
from tutelage.exceptions import InvalidParameterError
from tutelage.reporting import ClassAccuracy
from tutelage.reporting.lints import Case, lint
from tutelage.reporting.record import Finding, Judged, Reached


@pytest.mark.parametrize(("settings", "expected"), [
    ({"epsilon": 0.3, "delta": 1e-6, "entities": 60_000, "teachers": 250, "classes": 10, "threshold": 200,
      "stopping": "fixed", "tuned_on": "public", "public_overlap": 0, "mechanism": "confident"}, []),
    ({"epsilon": 2.944}, []),
    ({"epsilon": 2.945}, [("epsilon-large", "warning")]),
    ({"epsilon": 10.001}, [("epsilon-too-large", "danger")]),
    ({"delta": 1 / 128, "entities": 127}, []),
    ({"delta": 1 / 128, "entities": 128}, [("delta-too-large", "danger")]),
    ({"teachers": 42, "entities": 126}, []),
    ({"teachers": 42, "entities": 125}, [("teachers-without-rows", "warning")]),
    ({"threshold": 250, "teachers": 250}, []),
    ({"threshold": 250.5, "teachers": 250}, [("threshold-above-teachers", "danger")]),
    ({"threshold": 25, "teachers": 250, "classes": 10}, [("threshold-passes-always", "warning")]),
    ({"threshold": 26, "teachers": 250, "classes": 10}, []),
    ({"stopping": "data-dependent"}, [("stopped-by-votes", "danger")]),
    ({"tuned_on": "private"}, [("tuned-on-private", "danger")]),
    ({"public_overlap": 1}, [("public-overlaps-private", "danger")]),
    ({"shares": 1}, [("noise-from-shares", "warning")]),
])  # fmt: skip
def test_each_rule_fires_at_its_limit_and_not_before(settings, expected):
    assert [(finding.code, finding.severity) for finding in lint(Case(**settings))] == expected


def test_a_severity_is_no_markup():
    markup: Any = '"><img src=x>'
    with pytest.raises(
        InvalidParameterError, match=r"the findings\[0\]\.severity of a card must"
    ) as refused:
        card(findings=(Finding("code", markup, "reason"),))
    assert "img" not in str(refused.value)


def judged(*counts: tuple[str, int, int], **more: Any) -> tuple[Finding, ...]:
    """Return the objections to a student with these rows and right ones of each class."""
    return lint(Case(judged=Judged(by_class=tuple(ClassAccuracy(*one) for one in counts), **more)))


def test_a_large_epsilon_is_said_with_its_own_odds():
    (large,) = lint(Case(epsilon=6.3369))
    assert "566 times as likely as it is on neighboring data" in large.reason


def test_a_student_without_use_is_objected_to():
    (lost,) = judged(("a", 60, 60), ("b", 50, 40), ("c", 9, 0), ("d", 0, 0))
    assert (lost.code, lost.severity) == ("lost-class", "warning")
    assert "c (9 rows)." in lost.reason
    _, no_better = judged(("a", 60, 60), ("b", 40, 0))
    assert no_better.code == "no-better-than-majority"
    (ranked,) = judged(
        ("a", 60, 60), ("b", 40, 1), goals=(Reached("recall at 5 %", 0.4, 0.41, 0.05),)
    )
    assert "Its recall at 5 % on the public labeled rows is 40.00%" in ranked.reason
    assert judged(("a", 60, 59), ("b", 40, 2)) == ()
    assert judged() == judged(("a", 0, 0)) == ()


def test_no_reason_quotes_what_may_have_been_counted_on_private_rows():
    for entities, overlap in ((987_654, 0), (1, 987_654)):
        for finding in lint(Case(delta=0.1, entities=entities, public_overlap=overlap)):
            assert "987" not in finding.reason


@pytest.mark.parametrize(("parameter", "value"), [
    ("epsilon", math.nan), ("stopping", "votes"), ("entities", 0), ("teachers", 2.5), ("public_overlap", -1),
])  # fmt: skip
def test_nonsense_is_refused(parameter, value):
    with pytest.raises(InvalidParameterError) as refused:
        Case(**{parameter: value})
    assert refused.value.parameter == parameter
