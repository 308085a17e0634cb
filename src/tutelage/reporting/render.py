"""Templates to pages: every value is escaped, as HTML or as Markdown, wherever it stands in a template.

`html.jinja` and `markdown.jinja` have the same blocks (plans and bars are in HTML alone), and all other
templates are written in these blocks. So a page says the same in both forms, and no template can forget to escape.
"""

import re
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from tutelage._internal.drawing import round_up, straight, with_sign
from tutelage.reporting import meaning
from tutelage.reporting.intervals import Interval

if TYPE_CHECKING:
    from jinja2 import BytecodeCache, Environment

Form = Literal["html", "markdown"]
# An underscore inside a word is text.
_SIGNS = re.compile(r"[\\`*\[\]{}<>|~&$]|(?<![^\W_])_|_(?![^\W_])")
_HIDDEN = "hidden by the noise"
_AT_START = re.compile(r"^ ?(?=[-+=#])|^ ?\d{1,9}(?=[.)](?:\s|$))")  # headings, lists and rules


def render(template: str, form: Form, **values: object) -> str:
    """Return a template of this package with its values, as one HTML file or as Markdown."""
    text = _environment(form).get_template(template).render(values).strip()
    if form == "markdown":  # no value has a line break: see `plain`
        text = re.sub(r"\n{3,}", "\n\n", "\n".join(line.strip() for line in text.split("\n")))
    return text + "\n"


def plain(text: str) -> str:
    """Return text in one line in which no sign is Markdown, HTML or a template, and that runs one way."""
    line = re.sub(r"\s+", " ", straight(text))
    escaped = _SIGNS.sub(r"\\\g<0>", line)
    return _AT_START.sub(r"\g<0>\\", escaped)


def number_of(number: int, one: str, more: str) -> str:
    """Return a number of things."""
    return f"{number:,} {one if number == 1 else more}"


def as_count(people: Interval) -> str:
    """Return a number of people, with its interval unless it is exact."""
    if people.low == people.high:
        return f"{people.value:,.0f}"
    return f"{people.value:,.0f} ({people.low:,.0f} to {people.high:,.0f})"


def as_share(measure: Interval | None) -> str:
    """Return a share in percent, with its interval."""
    if measure is None:
        return _HIDDEN
    return f"{measure.value:.1%} ({measure.low:.1%} to {measure.high:.1%})"


def as_points(difference: Interval) -> str:
    """Return a difference of two shares in percentage points, with its interval."""
    value, low, high = (100 * end for end in (difference.value, difference.low, difference.high))
    return f"{value:.1f} points ({low:.1f} to {high:.1f})"


def as_number(measure: Interval | None) -> str:
    """Return a measure that is no share, with its interval."""
    if measure is None:
        return _HIDDEN
    return f"{measure.value:.3g} ({measure.low:.3g} to {measure.high:.3g})"


@cache
def _shared_code() -> "BytecodeCache":
    """Return a cache of compiled templates, which all forms share: each takes a tenth of a second to compile."""
    from jinja2.bccache import Bucket, BytecodeCache

    compiled = dict[str, Any]()

    class SharedCode(BytecodeCache):
        def load_bytecode(self, bucket: Bucket) -> None:
            bucket.code = compiled.get(bucket.key)

        def dump_bytecode(self, bucket: Bucket) -> None:
            compiled[bucket.key] = bucket.code

    return SharedCode()


@cache
def _environment(form: Form) -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
    from markupsafe import Markup

    @pass_context  # so that nothing of a form is in the code of a template, which both forms share
    def text_of(_context: object, value: object) -> object:
        """Return a value as text of the form, unless it is HTML already: bars, or a rendered block."""
        if isinstance(value, Markup) or (form == "html" and hasattr(value, "__html__")):
            return value
        if form == "html":
            return straight(str(value))
        return Markup(plain(str(value)))  # noqa: S704

    def anchor_of(title: str) -> str:
        return title.lower().replace(" ", "-")

    def ends_of(cell: str) -> list[str]:
        return cell.split(" to ")

    def line_of(block: str) -> Markup:
        return Markup(" ".join(block.split()))  # noqa: S704  a block is escaped already

    environment: Any = Environment(  # whose stubs allow its own globals and filters only
        loader=PackageLoader("tutelage.reporting"), autoescape=True, finalize=text_of, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, bytecode_cache=_shared_code(),
    )  # fmt: skip
    environment.globals |= {"form": form, "rule": meaning.RULE}
    environment.filters |= {
        "anchor": anchor_of,
        "bayes_factor": meaning.bayes_factor,
        "cases": meaning.cases,
        "claim": meaning.claim,
        "counted": number_of,
        "ends": ends_of,
        "signed": with_sign,
        "number": "{:,}".format,
        "short": "{:.10g}".format,
        "line": line_of,
        "one_in": meaning.one_in,
        "points": meaning.points,
        "up": round_up,
        "as_count": as_count,
        "as_number": as_number,
        "as_points": as_points,
        "as_share": as_share,
    }
    return environment
