"""A card read back from its file, which anyone may have edited."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from test_card import PATIENT, Outline, card, full_card, places, put
from tutelage._internal.drawing import straight
from tutelage._internal.records import plain
from tutelage.exceptions import (
    InvalidDataError,
    InvalidParameterError,
    NotPublishableError,
    TutelageError,
)
from tutelage.planning import plan
from tutelage.privacy import NeighboringRelation, PrivacyUnit, PublicEpsilon
from tutelage.reporting import PrivacyCard, read_card
from tutelage.reporting.card import _card_in
from tutelage.reporting.record import Proposed, Raised

RECORD = full_card().as_dict()
CONTENT = plain(full_card())
ANYWHERE = " ".join((
    "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "' onload='alert(1)", "</td></tr></table><h1>x",
    "</style><script>alert(1)</script>", "--><svg onload=alert(1)>", "]]>", "<!-- x", "&lt;b&gt; &#x202e; &amp;",
    "{{ 7*7 }}", "{% raw %}", "{% endraw %}{{ card }}", "{# x #}", "${7*7}", "javascript:alert(1)",
    "<javascript:alert(1)>", "[x](javascript:alert(1))", "](http://a.example) [y", "![x](http://a.example/x.png)",
    "`x` ``y``", "```\nx\n```", "a | b", "\\", "\\| x \\", "a\n\n# b", "**x** *y*", "__x__ _y_", "~~x~~",
    "x\u202ey \u2066z", "x\u2028y\x85z\x0bw\rv", "\x00\x07\x9b",
))  # fmt: skip
AT_START = (  # of a line, where Markdown knows blocks
    "# x", "---", "> x", "- x", "+ x", "* x", "1. x", "2) x", "    x", "~~~\nx", "|---|\n| x |", "[x]: http://a.example",
    "x\n===", "=== x",
)  # fmt: skip


def written(folder: Path, record: object) -> Path:
    (folder / "card.json").write_text(record if isinstance(record, str) else json.dumps(record))
    return folder / "card.json"


def refused(folder: Path, record: object) -> str:
    """Return the refusal of a file."""
    with pytest.raises(InvalidDataError) as found:
        read_card(written(folder, record))
    assert "\n" not in str(found.value)
    return str(found.value)


COST = PublicEpsilon(1.1, 1e-5, PATIENT, "a theorem", 3.0)


@pytest.mark.parametrize(
    "made", [card(findings=(), if_added_or_removed=1.5), full_card(answered=None, alone=COST)]
)
def test_a_card_comes_back_as_it_was(made, tmp_path):
    path, *_ = made.save(tmp_path)
    assert read_card(path) == made


def test_an_epsilon_of_fewer_changes_is_smaller_and_of_a_unit_that_may_be_removed():
    with pytest.raises(
        InvalidParameterError, match="`if_added_or_removed` of a card must be from 0 to 11"
    ):
        card(if_added_or_removed=11.5)
    of_rows = PublicEpsilon(
        2.0, 1e-5, PrivacyUnit("row", NeighboringRelation.CHANGE_ONE_ROW), "a theorem"
    )
    with pytest.raises(
        NotPublishableError, match="needs a unit of privacy that may be added and removed"
    ):
        card(of_rows, if_added_or_removed=1.0)


def test_a_simulated_card_stays_simulated(tmp_path):
    taint = put(card().as_dict(), ("guarantee", "epsilon", "simulated"), True)
    assert read_card(written(tmp_path, taint)).epsilon.simulated
    event = json.loads(
        json.dumps(RECORD["guarantee"]["event"]).replace('"simulated": false', '"simulated": true')
    )
    assert "must be marked so too" in refused(tmp_path, put(RECORD, ("guarantee", "event"), event))


@pytest.mark.parametrize(("path", "value"), [*places(CONTENT)], ids=str)
def test_every_entry_is_checked(path, value):
    wrong: list[Any] = [1 if type(value) is str else "x", [[]], {"a": [1]}]
    if type(value) is dict and path[-1] != "class_weight":
        wrong.append(value | {"more": 1})
    for one in wrong:
        with pytest.raises(TutelageError):
            _card_in(put(CONTENT, path, one))


def test_what_is_read_is_what_would_be_written():
    epsilon = dict(CONTENT["guarantee"]["epsilon"])
    del epsilon["order"]
    with pytest.raises(InvalidDataError, match="leaves out"):
        _card_in(put(CONTENT, ("guarantee", "epsilon"), epsilon))


@pytest.mark.parametrize(("record", "message"), [
    ({**RECORD, "format": 2}, "another format"),
    (put(RECORD, ("budget", "head"), "x"), "the budget.head of a card must fit its form"),
    (put(RECORD, ("student", "judged", "by_class", 0, "right"), 91), "from 0 to 90"),
    (json.dumps(put(RECORD, ("student", "name"), "\ud800")), "lone surrogates"),
    ('{"format": NaN}', "finite numbers"),
    (json.dumps(RECORD).replace('"epsilon": 1.2345', '"epsilon": 1e999'), "finite numbers"),
    (json.dumps(RECORD).replace('"epsilon": 1.2345', '"epsilon": ' + "9" * 400), "must fit its form"),
    (json.dumps(RECORD)[:-1] + ', "format": 1}', "not a JSON file"),
    ("[" * 100_000, "not a JSON file"),
])  # fmt: skip
def test_refusals_say_what_is_wrong(record, message, tmp_path):
    assert message in refused(tmp_path, record)


def test_deep_and_huge_files_are_refused(tmp_path):
    deep = '{"event": "Repeated", "count": 1, "of": ' * 5000 + "0" + "}" * 5000
    marked = json.dumps(put(RECORD, ("guarantee", "event"), 4711))
    refused(tmp_path, marked.replace("4711", deep))
    path = tmp_path / "card.json"
    for content, said in (
        (b"\xff\xfe", "not a JSON file"),
        (bytes(17 * 2**20), "is larger than 16 MiB"),
    ):
        path.write_bytes(content)
        with pytest.raises(InvalidDataError, match=said):
            read_card(path)
    with pytest.raises(InvalidDataError, match="cannot be read"):
        read_card(tmp_path / "none.json")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**18), 10**18) | st.floats(allow_nan=False) | st.text(max_size=5)
    | st.sampled_from([ANYWHERE, 0, 1, 5e-324, 1e-300, 1e300]),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=5), inside, max_size=3),
    max_leaves=5,
)  # fmt: skip


@given(path=st.sampled_from([path for path, _ in places(CONTENT)]), value=JSON)
def test_whatever_is_changed_in_a_card_it_is_refused_or_harmless(path, value):
    try:
        made = _card_in(put(CONTENT, path, value))
    except TutelageError:
        return
    assert isinstance(made, PrivacyCard)
    found = Outline(made.as_html())
    assert found.open == []
    assert not {"script", "img"} & {tag for tag, _ in found.tags}
    assert "<script" not in made.as_markdown().replace("\\<script", "")
    json.dumps(made.as_dict(), allow_nan=False)


# Every text of a card and of a plan is attacked, in every form: it stays text, and the page stays as it was.

HARMLESS = "harmless"
MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])
WHOLE = plain(
    full_card(
        alone=COST,
        if_added_or_removed=0.5,
        proposal=Proposed("a", 1, 0.5, 1e-5, 2.0, (0.1,), (1,), PATIENT),
        batches=full_card().budget.batches[:2],
        raised=(Raised(1.0, 3.0, 1e-5, "by", "why", "2026-01-01"),),
        cohorts={},
        opened="2026-01-01",
    )
)
FORMS: dict[str, Callable[[PrivacyCard], str]] = {
    "html": PrivacyCard.as_html,
    "notebook": PrivacyCard._repr_html_,
    "markdown": lambda made: MARKDOWN.render(made.as_markdown()),
}
# Texts that are of a list, texts that are computed again, and texts that a page cuts or changes.
CODES = {"neighboring", "head", "severity", "event"}
CHANGED = {"created", "written", "code"}


def seen(page: str) -> tuple[Any, str]:
    """Return the tags with all attributes, and the words, that a browser finds."""
    found = Outline(page)
    assert found.open == []
    return found.tags, " ".join("".join(found.text).split())


TEXTS = [path for path, value in places(WHOLE) if type(value) is str]
# All alike.
UNITS = [
    path for path in TEXTS if path[-2:] == ("unit", "name") and not {"event", "proposal"} & {*path}
]
ATTACKED = [path for path in TEXTS if path not in UNITS[1:]]
REST = [
    pytest.param(path, marks=pytest.mark.rest) for number, path in enumerate(ATTACKED) if number % 8
]


@pytest.mark.parametrize("path", [("release", "versions"), *ATTACKED[::8], *REST], ids=str)
def test_a_text_of_a_card_is_shown_as_it_is_and_changes_nothing_else(path):
    assert not [one for one, value in places(WHOLE) if value in ([], {}, "")], (
        "fill it, to have it attacked"
    )

    def made(text: str) -> PrivacyCard:
        record = WHOLE
        for place in UNITS if path in UNITS else [path]:
            record = put(record, place, {text: text} if path[-1] == "versions" else text)
        card = _card_in(record)
        assert json.loads(json.dumps(card.as_dict()))[path[0]] == record[path[0]]
        return card

    try:
        made(ANYWHERE)
    except TutelageError:
        assert {*CODES} & {*path}
        return
    begins = f"\n{HARMLESS}" in made(HARMLESS).as_markdown()
    for form, shown in FORMS.items():
        tags, words = seen(shown(made(HARMLESS)))
        for attack in (ANYWHERE, *(AT_START if begins and form == "markdown" else ())):
            if path[0] == "statements" and not any(map(str.isalnum, attack)):
                continue  # refused
            attacked, found = seen(shown(made(attack)))
            assert attacked == tags, (form, attack)
            assert "\u202e" not in found
            if path[-1] not in CHANGED:
                assert found == " ".join(words.replace(HARMLESS, straight(attack)).split()), (
                    form,
                    attack,
                )


def test_texts_of_a_plan_are_shown_as_they_are():
    def shown(text: str) -> tuple[Any, str]:
        return seen(
            plan(epsilon=12.0, people=1000, public_rows=300, classes=2, unit=text).as_html()
        )

    (tags, words), (attacked, found) = shown(HARMLESS), shown(ANYWHERE)
    assert HARMLESS in words
    assert attacked == tags
    assert found == " ".join(words.replace(HARMLESS, straight(ANYWHERE)).split())
