"""The privacy card: what it says, in which form, and what it refuses to hold."""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from decimal import Decimal
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markupsafe import Markup
from msgspec import Struct, structs

from conftest import REPOSITORY
from tutelage import VoteHistogram
from tutelage._internal.records import plain
from tutelage.events import (
    Composed,
    ConfidenceCheck,
    Event,
    NoisyArgmaxGaussian,
    NoisyArgmaxLaplace,
    Repeated,
)
from tutelage.exceptions import InvalidParameterError, NotPublishableError, UnsupportedEventError
from tutelage.privacy import NeighboringRelation, PrivacyUnit, PrivateEpsilon, PublicEpsilon
from tutelage.reporting import ClassAccuracy, PrivacyCard
from tutelage.reporting.card import _card_in
from tutelage.reporting.lints import Case, lint
from tutelage.reporting.record import (
    FIRST_PAGE,
    STATEMENTS,
    BatchCost,
    BudgetPart,
    Curve,
    Errors,
    FrontierPoint,
    Guarantee,
    Influence,
    Judged,
    Proposed,
    Reached,
    ReleasePart,
    StudentPart,
    record_of,
)

PATIENT = PrivacyUnit("patient_id", NeighboringRelation.ADD_REMOVE_OR_CHANGE_ONE_ENTITY)
BUDGET = {
    "budget": 3.0,
    "delta": 1e-5,
    "spent": 2.5,
    "remaining": 0.5,
    "entries": 3,
    "head": "ab" * 32,
}
PRIVATE = {
    "a private epsilon": PrivateEpsilon(0.5577, 12.0, 1e-5, PATIENT, "exact"),
    "votes": VoteHistogram(np.array([[4711, 289]]), 5000),
    "an array": np.array([4711, 289]),
    "whatever is new": object(),
}


def card(epsilon=None, **changes: Any) -> PrivacyCard:
    """Return a small card as `tutelage run` makes one."""
    epsilon = epsilon or PublicEpsilon(11.40896, 1e-5, PATIENT, "a theorem")
    values = {
        "event": Repeated(NoisyArgmaxLaplace(20.0, 2, PATIENT), 500), "mechanism": "LNMax(scale=20.0)",
        "noise_source": "exact", "queries": 500, "answered": 480, "teachers": 250, "classes": ("no", "a | b"),
        "features": ("age", "dose"), "name": "forest", "versions": {"tutelage": "1"}, **BUDGET,
        "created": "2026-01-01T00:00:00+00:00", **changes,
    }  # fmt: skip
    values["event"] = record_of(values["event"])

    def of(kind: type[Any], **more: Any) -> Any:
        """Return the part that has these fields."""
        return kind(
            **{name: values.pop(name) for name in kind.__struct_fields__ if name in values}, **more
        )

    parts = {"guarantee": of(Guarantee, epsilon=epsilon), "release": of(ReleasePart)}
    return PrivacyCard(
        **parts, student=of(StudentPart, judged=of(Judged)), budget=of(BudgetPart), **values
    )


def full_card(**changes: Any) -> PrivacyCard:
    """Return a card with everything on it that there can be."""

    def cost(value: float) -> PublicEpsilon:
        return PublicEpsilon(value, 1e-5, PATIENT, "a theorem", 4.5)

    checked = (
        (ConfidenceCheck(200, 150, 3, PATIENT), 900),
        (NoisyArgmaxGaussian(40.0, 3, PATIENT), 612),
    )
    values: dict[str, Any] = {
        "tested": replace(
            cost(0.81), method="a test of its own, noise of its own", output_dependent=True
        ),
        "event": Composed(tuple(Repeated(event, times) for event, times in checked)),
        "by_class": (
            ClassAccuracy("no", 90, 88),
            ClassAccuracy("yes", 110, 92),
            ClassAccuracy("?", 0, 0),
        ),
        "public_labels": 0.8,
        "influences": (
            Influence("age", "yes", "17 to 20", "80 to 90", 1.5),
            Influence("<b>", "no", "x", "y", 0.25),
        ),
        "curves": (
            Curve("age", "yes", True, ["17 to 20", "20 to 90"], [-0.5, 1.25], [0.125, 0.5]),
            Curve("<b>ward", "yes", False, ["a&b", "<i>"], [0.75, -0.25], [0.0, 0.5]),
        ),
        "errors": (Errors(-5.0, 10.0, 40, 1.5, 2.5, 0.75),),
        "goals": (Reached("balanced accuracy", 0.75, 0.6, 0.5),),
        "class_weight": {"no": 0.5, "yes": 2.25},
        "batches": tuple(
            BatchCost(f"2026-01-0{day}T10:00:00+00:00", 100, 0.1, 0.02 * day) for day in range(1, 9)
        ),
        "frontier": tuple(
            FrontierPoint(queries, cost(queries**0.5 / 10)) for queries in (250, 500, 1000)
        ),
        "findings": lint(Case(epsilon=12.0, threshold=300, teachers=250, classes=3)),
        "statements": {topic: f"About {topic}: as agreed." for topic in STATEMENTS},
        **changes,
    }
    return card(cost(1.2345), **values)


class Outline(HTMLParser):
    """What a browser finds in a page."""

    VOID = ("meta", "br", "img", "hr", "link")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert tag in self.VOID or self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text.append(data)

    def all(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.tags if tag == name]


def test_a_card_names_everything_an_officer_asks_for_and_rounds_epsilon_up(tmp_path):
    path, *_ = card().save(tmp_path)
    filed = json.loads(path.read_text())
    expected = {
        "epsilon": 11.40896,
        "delta": 1e-5,
        "unit": {"name": "patient_id", "neighboring": "entity"},
    }
    expected |= {
        "method": "a theorem",
        "order": None,
        "simulated": False,
        "output_dependent": False,
    }
    assert filed["guarantee"]["epsilon"] == expected
    expected = {"queries": 500, "answered": 480, "teachers": 250, "mechanism": "LNMax(scale=20.0)"}
    assert {name: filed["release"][name] for name in expected} == expected
    assert filed["guarantee"]["event"]["of"]["unit"]["name"] == "patient_id"
    scored = card(by_class=(ClassAccuracy("no", 150, 140), ClassAccuracy("yes", 50, 10)))
    judged = scored.student.judged
    assert (judged.accuracy, judged.majority, judged.rows) == (0.75, 0.75, 200)
    text = scored.as_markdown()
    assert "75.00% of the same rows" in text
    assert "(11.409, 1e-05)-differential privacy" in text
    assert "is at most e^11.41 times its probability if one unit were different, plus 1e-05" in text


def test_simulated_noise_marks_all_forms_as_not_private():
    seeded = Repeated(NoisyArgmaxLaplace(20.0, 2, PATIENT, simulated=True), 5)
    simulated = card(PublicEpsilon(1.0, 1e-5, PATIENT, "a theorem", simulated=True), event=seeded)
    for text in (simulated.as_markdown(), simulated.as_html()):
        assert "-differential privacy" not in text
        assert "ε = 1.0" not in text
        assert "NOT PRIVATE" in text
    with pytest.raises(NotPublishableError, match="must be marked so too"):
        card(event=Composed((seeded,)))
    assert simulated.as_dict()["guarantee"]["epsilon"]["simulated"] is True
    assert simulated.usage == ""


LIST: Any = [4711, 289]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield every value inside a record, with its path."""
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, tuple | list)
        else ()
    )
    if isinstance(value, Struct):
        inner = structs.asdict(value).items()
    elif is_dataclass(value):
        inner = ((item.name, getattr(value, item.name)) for item in fields(value))
    for key, part in inner:
        yield (*path, key), part
        yield from places(part, (*path, key))


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """Return the record with another value at a path."""
    if not path:
        return new
    if isinstance(value, Struct):
        return structs.replace(value, **{path[0]: put(getattr(value, path[0]), path[1:], new)})
    if is_dataclass(type(value)):
        return replace(value, **{path[0]: put(getattr(value, path[0]), path[1:], new)})
    whole: Any = value
    kind: Any = type(whole)
    items: Any = dict(whole) if kind is dict else list(whole)
    items[path[0]] = put(items[path[0]], path[1:], new)
    return items if kind is dict else kind(items)


def test_no_place_on_a_card_takes_a_private_value_however_deep():
    proposal = Proposed("x", 1, 0.5, 1e-5, 2.0, (0.1,), (1,), PATIENT)
    of_event = (NotPublishableError, InvalidParameterError, UnsupportedEventError)
    whole = full_card(
        alone=full_card().epsilon, proposal=proposal, batches=full_card().budget.batches[:1]
    )
    for path, _ in places(whole):
        lists = path[-1] in ("effects", "noise")  # of public numbers
        for hidden in (*PRIVATE.values(), *([] if lists else [LIST])):
            for value in (hidden, ({"deep": (hidden,)},)):
                with pytest.raises(of_event if "event" in path else NotPublishableError) as refused:
                    put(whole, path, value)
                assert path[0] in str(refused.value) or "event" in path
                assert not re.search("4711|289|5577", str(refused.value))


@pytest.mark.parametrize("changes", [
    {"proposal": {"caps": [0.1, [4711.0]]}}, {"proposal": {"chances": [0.4711]}},
    {"public_labels": math.nan}, {"spent": math.inf}, {"errors": (Errors(math.nan, 1.0, 1, 1.0, 1.0, 0.5),)},
    {"spent": {"exact epsilon": 0.4711}}, {"queries": 4711.5}, {"epsilon": 0.4711}, {"spent": Decimal("0.4711")},
    {"name": {"exact epsilon": 0.4711}}, {"mechanism": b"4711"}, {"mechanism": Markup("4711")},
    {"frontier": ({"queries": 4711, "epsilon": 0.4711},)},
    {"event": NoisyArgmaxLaplace(20.0, 2, PrivacyUnit(LIST, PATIENT.neighboring))},
    {"event": Composed((Repeated(LIST, 3),))}, {"public_labels": np.float64(0.4711)}, {"queries": True},
])  # fmt: skip
def test_numbers_are_refused_where_they_do_not_belong(changes):
    with pytest.raises(NotPublishableError) as refused:
        card(**changes)
    assert not re.search("4711|289", str(refused.value))


@dataclass(frozen=True)
class TellingEvent(Event):
    """An event of one's own, which calls votes its settings."""

    scale: float = 1.0
    classes: int = 2
    unit: PrivacyUnit = PATIENT
    votes: int = 4711


def test_only_known_events_stand_on_a_card():
    disguised = type("NoisyArgmaxLaplace", (TellingEvent,), {})()
    record = NoisyArgmaxLaplace(1.0, 2, PATIENT).as_dict()
    posing = type("NoisyArgmaxLaplace", (Event,), {"as_dict": lambda _: record})()
    for event in (TellingEvent(), disguised, posing):
        for nested in (event, Repeated(event, 3), Composed((event,))):
            with pytest.raises(NotPublishableError, match=r"the events of `tutelage\.events` only"):
                card(event=nested)


@pytest.mark.parametrize(("changes", "name"), [
    ({"public_labels": 1.01}, "public_labels"),
    ({"spent": -0.1}, "spent"),
    ({"head": "AB" * 32}, "head"),
    ({"head": "ab" * 32 + "\n"}, "head"),
    ({"mechanism": "\ud800"}, "lone surrogates"),
    ({"answered": 501}, "answered"),
    ({"by_class": (ClassAccuracy("no", 4, 5),)}, "right"),
    ({"batches": (BatchCost("2026", 4, -0.1, 0.2),)}, "batches"),
    ({"epsilon": PublicEpsilon(-3.0, 1e-5, PATIENT, "")}, "epsilon"),
    ({"epsilon": PublicEpsilon(3.0, 1.5, PATIENT, "a theorem")}, "delta"),
    ({"statements": {"trust": "x" * 4001}}, "Got 4,001"),
])  # fmt: skip
def test_numbers_are_finite_and_in_their_ranges_and_statements_short_and_about_known_topics(
    changes, name
):
    with pytest.raises(InvalidParameterError, match=name):
        card(**changes)


def test_a_card_needs_what_the_ledger_says():
    for name in BUDGET.keys() - {"remaining"}:
        record = plain(card())
        del record["budget"][name]
        with pytest.raises(InvalidParameterError, match=f"missing required field `{name}`"):
            _card_in(record)


def test_costs_beside_the_guarantee_are_about_the_same_unit_and_noise():
    other = PublicEpsilon(
        0.5, 1e-5, PrivacyUnit("row", NeighboringRelation.CHANGE_ONE_ROW), "a theorem"
    )
    simulated = PublicEpsilon(0.5, 1e-5, PATIENT, "a theorem", simulated=True)
    for epsilon in (other, simulated):
        at_hand, point = replace(epsilon, output_dependent=True), FrontierPoint(5, epsilon)
        for changes in ({"tested": at_hand}, {"alone": epsilon}, {"frontier": (point,)}):
            with pytest.raises(NotPublishableError, match="same unit of privacy"):
                card(**changes)


def test_an_epsilon_that_holds_for_the_outcome_at_hand_only_is_never_the_first():
    always = PublicEpsilon(0.5, 1e-5, PATIENT, "a theorem")
    at_hand = replace(always, output_dependent=True)
    for changes in (
        {"epsilon": at_hand},
        {"alone": at_hand},
        {"frontier": (FrontierPoint(5, at_hand),)},
    ):
        with pytest.raises(NotPublishableError, match="must be worst-case ε"):
            card(**changes)
    for epsilon in (always, replace(at_hand, epsilon=11.41), replace(at_hand, epsilon=11.40896)):
        with pytest.raises(NotPublishableError, match="holds only for what was released"):
            card(tested=epsilon)
    with pytest.raises(NotPublishableError, match="below the worst-case ε"):
        card(tested=at_hand, alone=replace(always, epsilon=0.4))
    for text in (full_card().as_markdown(), full_card().as_html()):  # the other stands first
        assert re.search(r"ε = 1\.2345 at δ = 1e-05.*ε = 0\.81(01)? at δ = 1e-05", text, re.DOTALL)
        assert text.index("1.2345") < text.index("0.81")


def test_all_fifteen_questions_are_answered_or_missing_and_the_first_page_says_how_many_are():
    bare, stated = card().as_markdown(), full_card().as_markdown()
    for text in (bare, stated):
        assert len(re.findall(r"^\| \d+\. ", text, re.MULTILINE)) == 15
        places = "; ".join(re.findall(r"^\| \d+\. .*\| (.*) \|$", text, re.MULTILINE)).split("; ")
        assert {*places} - {"Released, on the first page"} <= {
            *re.findall(r"^### (.*)$", text, re.MULTILINE)
        }
    (listed,) = re.findall(r"### Missing statements\n\n(.*)", bare, re.DOTALL)
    assert all(one in listed.replace("\\", "") for one in STATEMENTS.values())
    first = stated.split("## Annex")[0]
    assert "on completeness: **incomplete**" in bare.split("## Annex")[0]
    assert "Verdict on completeness: **complete**" in first
    for topic in STATEMENTS:
        assert f"About {topic}: as agreed." in (first if topic in FIRST_PAGE else stated).replace(
            "\\", ""
        )
    assert "issing statements" not in stated


def test_one_sentence_says_how_the_three_epsilons_of_a_release_belong_together():
    """Of the release, of the budget that it used, and of what was released so far: 1.2345, 2.5 of 3, and 1.6."""
    made = full_card(so_far=1.59995)
    used = "It used 2.5000 of the budget of 3."
    assert "is (3.0, 1e-05)-differentially private" in made.as_markdown()
    assert (
        made.usage
        == f"This release: ε = 1.2345. {used} If you stop here because of what you saw, quote 1.6000."
    )
    without = full_card(so_far=3.1)
    assert without.usage == f"This release: ε = 1.2345. {used}"  # the budget covers everything, too
    of_all = card(replace(made.epsilon, epsilon=3.0), alone=made.epsilon, so_far=1.59995)
    assert of_all.usage.startswith(f"Everything released from this budget: ε = 3.0000. {used} If")


@pytest.mark.parametrize("page", ["card.md", "frameworks.md"])
def test_the_pages_on_the_card_name_every_statement(page):
    text = (REPOSITORY / "docs" / page).read_text()
    assert [topic for topic in STATEMENTS if f"`{topic}`" not in text] == []


def test_the_page_is_whole_and_fetches_and_runs_nothing():
    for page in (card().as_html(), full_card().as_html()):
        found = Outline(page)
        assert found.open == []
        assert not {"script", "link", "img", "iframe", "object", "form", "base"} & {
            tag for tag, _ in found.tags
        }
        assert not [
            name
            for _, attributes in found.tags
            for name in attributes
            if name.startswith(("on", "src"))
        ]
        assert not re.search(r"url\(|@import|https?:", page)
        policy = next(meta for meta in found.all("meta") if "http-equiv" in meta)
        assert str(policy["content"]).startswith("default-src 'none'; style-src 'unsafe-inline'")


# Bars are true to the numbers

COSTS = st.floats(0, 10)
BATCHES = st.lists(
    st.builds(BatchCost, st.just("2026-01-01"), st.integers(0, 10**6), COSTS, COSTS),
    min_size=1,
    max_size=40,
)


def numbers(page: str, before: str = "<b>", after: str = "</b>") -> list[float]:
    return [float(number) for number in re.findall(rf"{before}([\d.e-]+){after}", page)]


def widths(page: str, kind: int) -> list[float]:
    return numbers(page, f'<i class="bar-{kind}" style="width:', "%")


@settings(max_examples=25)
@given(BATCHES, st.floats(0.1, 100))
def test_bars_fit_into_their_cells_and_their_numbers_add_up(batches, left):
    spent = sum(batch.share for batch in batches)
    made = card(budget=spent + left, spent=spent, batches=tuple(batches))
    page, spending = made.as_html(), made.budget.spending
    answers, checks, rest = (widths(page, kind) for kind in (1, 2, 3))
    assert all(first + second <= 100.02 for first, second in zip(answers, checks, strict=True))
    assert (
        max([*rest, *(first + second for first, second in zip(answers, checks, strict=True))])
        >= 99.98
    )
    assert sum(numbers(page)) == pytest.approx(spent + left, abs=1e-3)
    assert sum(numbers(page)) == pytest.approx(spending.budget)
    assert (f"{spending.spent:.10g} is spent" in made.as_markdown()) == bool(spending.left)
