"""Every text of a card and of a plan is attacked, in every form: it stays text, and the page stays as it was."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from markdown_it import MarkdownIt

from test_card import PATIENT, Outline, full_card, places, put
from tutelage._internal.html import straight
from tutelage.exceptions import TutelageError
from tutelage.planning import plan
from tutelage.privacy import PublicEpsilon
from tutelage.reporting import PrivacyCard
from tutelage.reporting.card import card_from_dict

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
HARMLESS = "harmless"
MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])
COST = PublicEpsilon(1.1, 1e-5, PATIENT, "a theorem", 3.0)
PROPOSAL = {"kind": "a", "unit": {"name": "b", "neighboring": "c"}}
RECORD = full_card(alone=COST, if_added_or_removed=0.5, proposal=PROPOSAL, batches=full_card().batches[:2]).as_dict()
FORMS: dict[str, Callable[[PrivacyCard], str]] = {
    "html": PrivacyCard.as_html,
    "notebook": PrivacyCard._repr_html_,
    "markdown": lambda made: MARKDOWN.render(made.as_markdown()),
}
# Texts that are of a list, texts that are computed again, and texts that a page cuts or changes.
CODES = {"noise", "neighboring", "head", "severity", "event"}
CHANGED = {"created", "written", "code"}


def seen(page: str) -> tuple[Any, str]:
    """Return the tags with all attributes, and the words, that a browser finds."""
    found = Outline(page)
    assert found.open == []
    return found.tags, " ".join("".join(found.text).split())


def test_no_entry_of_the_attacked_card_is_empty():
    assert not [name for name, value in RECORD.items() if value in (None, [], {}, "")]


# Found by introspection, so that a new text is attacked too.
TEXTS = [path for path, value in places(RECORD) if type(value) is str and path != ("epsilon_kind",)]


@pytest.mark.parametrize("path", [*TEXTS, ("versions",)], ids=str)
def test_a_text_of_a_card_is_shown_as_it_is_and_changes_nothing_else(path):
    def made(text: str) -> PrivacyCard:
        record = put(RECORD, path, {text: text} if path == ("versions",) else text)
        card = card_from_dict(record)
        assert json.loads(json.dumps(card.as_dict()))[path[0]] == record[path[0]]
        return card

    try:
        made(ANYWHERE)
    except TutelageError:
        assert path[-1] in CODES
        return
    begins = f"\n{HARMLESS}" in made(HARMLESS).as_markdown()
    for form, shown in FORMS.items():
        tags, words = seen(shown(made(HARMLESS)))
        for attack in (ANYWHERE, *(AT_START if begins and form == "markdown" else ())):
            attacked, found = seen(shown(made(attack)))
            assert attacked == tags, (form, attack)
            assert "\u202e" not in found
            if path[-1] not in CHANGED:
                assert found == " ".join(words.replace(HARMLESS, straight(attack)).split()), (form, attack)


def test_texts_of_a_plan_are_shown_as_they_are():
    def shown(text: str) -> tuple[Any, str]:
        return seen(plan(epsilon=12.0, people=1000, public_rows=300, classes=2, unit=text).as_html())

    (tags, words), (attacked, found) = shown(HARMLESS), shown(ANYWHERE)
    assert HARMLESS in words
    assert attacked == tags
    assert found == " ".join(words.replace(HARMLESS, straight(ANYWHERE)).split())
